"""Locks between processes, which end with the process that holds them, however it ends."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from context_compressor.offload.directory.disk import PLAIN_FLAGS

WAIT_SECONDS = 20.0
"""How long a lock is waited for. It is held for milliseconds, so whoever holds it that long was stopped."""
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.0005, 0.02

_HELD = frozenset({errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EDEADLK})

if sys.platform == "win32":
    import msvcrt

    # A lock on Windows keeps others from reading the byte, so it is one that no file reaches.
    _LOCKED_BYTE = 1 << 30

    def _take(descriptor: int, shared: bool) -> None:  # noqa: ARG001  # there are no shared ones
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

    def _give_back(descriptor: int) -> None:
        """Do nothing: closing is enough."""

else:
    import fcntl

    def _take(descriptor: int, shared: bool) -> None:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)

    def _give_back(descriptor: int) -> None:
        # A process that was forked meanwhile has a copy of the descriptor, which would keep the lock.
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def try_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Lock an open file until it is closed; tell whether that could be done, without waiting.

    Raises:
        OSError: this disk has no locks.
    """
    try:
        _take(descriptor, shared)
    except OSError as error:
        if error.errno in _HELD:
            return False
        raise
    return True


class Locked(NamedTuple):
    """An open file whose lock is held."""

    descriptor: int
    is_held: bool
    """False where the disk has no locks."""


@contextmanager
def locked(file: Path, *, shared: bool = False, wait_seconds: float = WAIT_SECONDS) -> Iterator[Locked]:
    """Hold the lock of a file, which is made if need be. Blocks for `wait_seconds` at most.

    Raises:
        OSError: the file cannot be opened, or somebody holds the lock all that time.
    """
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | PLAIN_FLAGS, 0o600)
    try:
        yield Locked(descriptor, _wait_for(descriptor, file, shared, wait_seconds))
    finally:
        with suppress(OSError):
            _give_back(descriptor)
        with suppress(OSError):
            os.close(descriptor)


def _wait_for(descriptor: int, file: Path, shared: bool, wait_seconds: float) -> bool:
    # Not the blocking call: a thread that waits in it cannot be ended.
    give_up = time.monotonic() + wait_seconds
    pause = _FIRST_PAUSE_SECONDS
    try:
        while not try_lock(descriptor, shared=shared):
            if time.monotonic() > give_up:
                raise TimeoutError(errno.ETIMEDOUT, "another process holds the lock", str(file))
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
    except TimeoutError:
        raise
    except OSError:
        return False
    return True
