"""Who has a namespace open: locks between processes, and what each of them says."""

from __future__ import annotations

import errno
import os
import secrets
import stat
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from context_compressor.offload.folders import PLAIN_FLAGS, own_folder

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


LOCK_FILE = "lock"
"""Held while a process says what it has open, and while somebody decides what nobody has."""
OPEN_PREFIX = "open-"
_SLACK_LINES = 1_000
"""Lines beyond those needed at which the file is written anew; a service opens sessions for months."""
UNLOCKABLE_SECONDS = 24 * 3600.0
"""Where the disk has no locks, nobody can tell who is alive: what is younger than this counts as in use."""


class _OpenFile:
    """The file in which a process says what it has open: it keeps its lock until it ends.

    A lock for each namespace would take a descriptor each, and a service has thousands open. Of a line that
    could be written in part only, the next one is kept apart, and it has no semicolon.
    """

    def __init__(self, folder: Path, namespaces: Iterable[str]) -> None:
        self._path = folder / f"{OPEN_PREFIX}{os.getpid()}-{secrets.token_hex(6)}"
        self._pid = os.getpid()
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | PLAIN_FLAGS
        self._descriptor = os.open(self._path, flags, 0o600)
        self.remove = weakref.finalize(self, _remove, self._descriptor, self._path, self._pid)
        self.lines = 0
        try:
            with suppress(OSError):  # a disk without locks
                try_lock(self._descriptor)
            self.append("+", namespaces)
        except BaseException:
            self.remove()
            raise

    @property
    def is_ours(self) -> bool:
        """Whether it is this process's, not that of the one which forked it."""
        return self._pid == os.getpid()

    def stands(self) -> bool:
        """Tell whether the file is this process's and still where others look for it."""
        try:
            return self.is_ours and os.path.samestat(os.fstat(self._descriptor), self._path.lstat())
        except OSError:
            return False

    def append(self, sign: str, namespaces: Iterable[str]) -> None:
        lines = [f"\n{sign}{namespace};" for namespace in namespaces]
        data = memoryview("".join(lines).encode())
        while data:
            data = data[os.write(self._descriptor, data) :]
        self.lines += len(lines)


def _remove(descriptor: int, file: Path, pid: int) -> None:
    """Give up a file; in a child process only the descriptor."""
    with suppress(OSError):
        os.close(descriptor)  # first: Windows removes no file that is open
    if os.getpid() == pid:
        with suppress(OSError):
            file.unlink(missing_ok=True)


class OpenNamespaces:
    """The namespaces of one directory that stores of this process have open. Thread-safe; all blocks.

    Attributes:
        changes: how often some were closed.
    """

    def __init__(self, root: Path) -> None:
        self.changes = 0
        self._root = root
        # Guards what follows. Never waited for by `release`, which Python may call in the middle of anything,
        # even of this.
        self._lock = threading.Lock()
        self._held: Counter[str] = Counter()
        self._released: deque[str] = deque()
        self._file: _OpenFile | None = None

    def hold(self, namespace: str, wait_seconds: float = WAIT_SECONDS) -> None:
        """Note that one more store has a namespace open; on return nobody removes it any more.

        Raises:
            OSError: it cannot be written down, or not in time; then the namespace is not protected.
        """
        if not self._lock.acquire(timeout=wait_seconds):
            raise TimeoutError(errno.ETIMEDOUT, "another thread is writing down what is in use")
        try:
            self._held[namespace] += 1
            try:
                self._write_down([namespace] if self._held[namespace] == 1 else [], wait_seconds)
            except BaseException:
                self._let_go(namespace)
                raise
        finally:
            self._lock.release()
        self._settle()

    def confirm(self) -> None:
        """Write everything down again where the file was lost: in a child process, or because it was removed.

        Raises:
            OSError: it cannot be written.
        """
        if self._file is None or not self._file.stands():
            with self._lock:
                self._write_down([], WAIT_SECONDS)
            self._settle()

    def release(self, namespace: str) -> None:
        """Note that a store is gone. Never waits and never fails, so that a finaliser may call it."""
        self._released.append(namespace)
        self._settle()

    def _write_down(self, new: list[str], wait_seconds: float) -> None:
        """Write down what is newly held, or all of it where the file is gone or has become long."""
        file = self._file
        if file is not None and not (file.stands() and file.lines <= _SLACK_LINES + 4 * len(self._held)):
            file = None
        if file is not None and not new:
            return
        folder = own_folder(self._root, make=True)
        with locked(folder / LOCK_FILE, wait_seconds=wait_seconds):
            if file is not None:
                file.append("+", new)
                return
            earlier, self._file = self._file, _OpenFile(folder, self._held)
            if earlier is not None:
                earlier.remove()

    def _settle(self) -> None:
        """Write down what was released, unless another thread is at it, which then does this at its end."""
        while self._released and self._lock.acquire(blocking=False):
            try:
                gone = []
                while self._released:
                    namespace = self._released.popleft()
                    if self._let_go(namespace):
                        gone.append(namespace)
                self.changes += 1
                file = self._file
                if file is not None and not self._held:
                    self._file = None
                    file.remove()
                elif file is not None and file.is_ours and gone:
                    with suppress(OSError):  # then it counts as in use for longer, which does no harm
                        file.append("-", gone)
            finally:
                self._lock.release()

    def _let_go(self, namespace: str) -> bool:
        self._held[namespace] -= 1
        if self._held[namespace] <= 0:
            del self._held[namespace]
            return True
        return False

    def start_as_child(self) -> None:
        """Take over in a process that was forked: the file is the parent's, the stores are copies.

        Its lock is held on to until this process opens a file of its own, or ends: what the parent had open
        is open here, too.
        """
        self._lock = threading.Lock()


def namespaces_in_use(root: Path) -> set[str]:
    """Return the namespaces that living processes have open, and remove the files of those that died.

    Holds: the lock of the directory; without it the answer may be outdated before it is given.

    Raises:
        OSError: a file cannot be read, so that nobody can tell.
    """
    names: set[str] = set()
    try:
        files = [file for file in own_folder(root).iterdir() if file.name.startswith(OPEN_PREFIX)]
    except FileNotFoundError:
        return names
    for file in files:
        with suppress(FileNotFoundError):  # its process has just ended
            names |= set() if file.is_symlink() else _names_in(file)
    return names


def _names_in(file: Path) -> set[str]:
    descriptor = os.open(file, os.O_RDWR | PLAIN_FLAGS)
    written = b""
    try:
        has_ended = _has_ended(descriptor)
        if not has_ended:  # what nobody holds may be a pipe, without an end
            os.lseek(descriptor, 1, os.SEEK_SET)  # Windows lets nobody read the first byte, a line feed
            with os.fdopen(descriptor, "rb", closefd=False) as stream:
                written = stream.read()
    finally:
        os.close(descriptor)
    if has_ended:
        with suppress(OSError):
            file.unlink()
    names: set[str] = set()
    for line in written.decode(errors="replace").split("\n"):  # what was damaged says nothing, the rest does
        if line.startswith("+") and line.endswith(";"):
            names.add(line[1:-1])
        elif line.startswith("-") and line.endswith(";"):
            names.discard(line[1:-1])
    return names


def _has_ended(descriptor: int) -> bool:
    try:
        return try_lock(descriptor)
    except OSError:
        status = os.fstat(descriptor)
        return stat.S_ISREG(status.st_mode) and status.st_mtime < time.time() - UNLOCKABLE_SECONDS
