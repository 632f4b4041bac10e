"""Locks between processes, and what starts anew in a process that was forked."""

from __future__ import annotations

import errno
import os
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from context_compressor.offload.folders import PLAIN_FLAGS

WAIT_SECONDS = 20.0
"""How long a lock is waited for. It is held for milliseconds, so whoever holds it that long was stopped."""
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.0005, 0.02


def try_lock(descriptor: int) -> bool:
    """Lock an open file until it is closed; tell whether that could be done, without waiting.

    Raises:
        OSError: this disk has no locks.
    """
    from filelock import lock_descriptor  # which takes 20 ms to load, and only whoever stores needs it

    return lock_descriptor(descriptor, blocking=False)


@contextmanager
def locked(file: Path, *, wait_seconds: float = WAIT_SECONDS) -> Iterator[tuple[int, bool]]:
    """Hold the lock of a file, which is made if need be. Blocks for `wait_seconds` at most.

    Gives its descriptor, and whether the lock is held, as it is on disks that have locks.

    Raises:
        OSError: the file cannot be opened, is a link, or somebody holds the lock all that time.
    """
    from filelock import unlock_descriptor

    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | PLAIN_FLAGS, 0o600)
    try:
        if os.fstat(descriptor).st_nlink > 1:
            raise OSError(
                errno.ELOOP, "the file has a second name, under which it is somebody else's", str(file)
            )
        yield descriptor, _wait_for(descriptor, file, wait_seconds)
    finally:
        with suppress(OSError):
            # A process that was forked meanwhile has a copy of the descriptor, which would keep the lock.
            unlock_descriptor(descriptor)
        with suppress(OSError):
            os.close(descriptor)


def _wait_for(descriptor: int, file: Path, wait_seconds: float) -> bool:
    # Not the blocking call: a thread that waits in it cannot be ended.
    give_up = time.monotonic() + wait_seconds
    pause = _FIRST_PAUSE_SECONDS
    while True:
        try:
            if try_lock(descriptor):
                return True
        except OSError:
            return False
        if time.monotonic() > give_up:
            raise TimeoutError(errno.ETIMEDOUT, "another process holds the lock", str(file))
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


class ForkAware(Protocol):
    """What a child process may have inherited in the middle of something."""

    def start_as_child(self) -> None:
        """Take over in a process that was forked: a thread of the parent may have held the locks."""
        ...


_watched: weakref.WeakSet[ForkAware] = weakref.WeakSet()


def watch_forks(holder: ForkAware) -> None:
    """Let an object start anew in every process that is forked from this one, as long as it lives."""
    _watched.add(holder)


def _start_as_child() -> None:
    for holder in list(_watched):
        holder.start_as_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_as_child)
