"""Which namespaces of a directory are in use, by this process or another.

Each process that has stores open keeps one file in `<path>/.store`, locked as long as it lives, in which it
writes the names of their namespaces. A file whose lock can be taken belongs to a process that died. So one
file descriptor does for any number of namespaces, and a crash leaves nothing behind that counts.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import threading
import time
import weakref
from collections import Counter, deque
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from context_compressor.offload.directory.disk import PLAIN_FLAGS, make_directory
from context_compressor.offload.directory.locking import WAIT_SECONDS, locked, try_lock
from context_compressor.offload.directory.process import OnePerDirectory

STORE_FOLDER = ".store"
"""Folder in a store's directory for what is not a namespace, which no namespace can be called."""
LOCK_FILE = "lock"
"""Held, shared, while a process says what it has open; held alone while somebody decides what nobody has."""
OPEN_PREFIX = "open-"
_SLACK_LINES = 1_000
"""Lines beyond those needed at which the file is written anew; a service opens sessions for months."""
UNLOCKABLE_SECONDS = 24 * 3600.0
"""Where the disk has no locks, nobody can tell who is alive: what is younger than this counts as in use."""


class OpenNamespaces:
    """The namespaces of one directory that stores of this process have open. Thread-safe; all blocks."""

    def __init__(self, path: Path) -> None:
        self._folder = path / STORE_FOLDER
        # Guards what follows. Never waited for by `release`, which Python may call in the middle of anything,
        # even of this.
        self._lock = threading.Lock()
        self._held: Counter[str] = Counter()
        self._released: deque[str] = deque()
        self._file = self._folder  # of the descriptor
        self._descriptor: int | None = None
        self._closing: weakref.finalize[..., Any] | None = None
        self._lines = 0

    def hold(self, namespace: str, wait_seconds: float = WAIT_SECONDS) -> None:
        """Note that one more store has a namespace open; on return nobody removes it any more.

        Raises:
            OSError: it cannot be written down, or not in time; then the namespace is not protected.
        """
        if not self._lock.acquire(timeout=wait_seconds):
            raise TimeoutError(errno.ETIMEDOUT, "another thread is writing down what is in use")
        try:
            is_new = self._held[namespace] == 0
            self._held[namespace] += 1
            try:
                if not self._stands() or self._lines > _SLACK_LINES + 4 * len(self._held):
                    self._write_anew(wait_seconds)
                elif is_new:
                    with self._saying(wait_seconds):
                        self._append("+", [namespace])
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
        if not self._stands():
            with self._lock:
                if not self._stands():
                    self._write_anew()
            self._settle()

    def release(self, namespace: str) -> None:
        """Note that a store is gone. Never waits and never fails, so that a finaliser may call it."""
        self._released.append(namespace)
        self._settle()

    def _settle(self) -> None:
        """Write down what was released, unless another thread is at it, which then does this at its end."""
        while self._released and self._lock.acquire(blocking=False):
            try:
                gone = []
                while self._released:
                    namespace = self._released.popleft()
                    if self._let_go(namespace):
                        gone.append(namespace)
                if not self._held:
                    self._close()
                elif self._descriptor is not None and gone:
                    with suppress(OSError):  # then it counts as in use for longer, which does no harm
                        self._append("-", gone)
            finally:
                self._lock.release()

    def _let_go(self, namespace: str) -> bool:
        self._held[namespace] -= 1
        if self._held[namespace] <= 0:
            del self._held[namespace]
            return True
        return False

    def _stands(self) -> bool:
        """Tell whether the file is this process's and still where others look for it."""
        descriptor = self._descriptor
        try:
            return descriptor is not None and os.path.samestat(os.fstat(descriptor), self._file.stat())
        except OSError:
            return False

    def _saying(self, wait_seconds: float) -> AbstractContextManager[object]:
        """Hold off whoever is deciding what nobody has open."""
        return locked(self._folder / LOCK_FILE, shared=True, wait_seconds=wait_seconds)

    def _append(self, sign: str, namespaces: list[str]) -> None:
        # Of a line that could be written in part only, the next one is kept apart, and it has no semicolon.
        data = memoryview("".join(f"\n{sign}{namespace};" for namespace in namespaces).encode())
        while data:
            assert self._descriptor is not None
            data = data[os.write(self._descriptor, data) :]
        self._lines += len(namespaces)

    def _write_anew(self, wait_seconds: float = WAIT_SECONDS) -> None:
        make_directory(self._folder)
        with self._saying(wait_seconds):
            file = self._folder / f"{OPEN_PREFIX}{os.getpid()}-{secrets.token_hex(6)}"
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | PLAIN_FLAGS
            earlier = self._file, self._descriptor, self._closing, self._lines
            descriptor = os.open(file, flags, 0o600)
            closing = weakref.finalize(self, _remove, descriptor, file, os.getpid())
            self._file, self._descriptor, self._closing, self._lines = file, descriptor, closing, 0
            try:
                with suppress(OSError):  # a disk without locks
                    try_lock(descriptor)
                self._append("+", list(self._held))
            except BaseException:
                closing()
                self._file, self._descriptor, self._closing, self._lines = earlier
                raise
            if earlier[2] is not None:
                earlier[2]()

    def _close(self) -> None:
        closing, self._closing, self._descriptor = self._closing, None, None
        if closing is not None:
            closing()

    def start_as_child(self) -> None:
        """Take over in a process that was forked: the file is the parent's, the stores are copies."""
        self._lock = threading.Lock()  # another thread of the parent may have held it
        # Its lock is held on to until this process opens a file of its own, or ends: what the parent had open
        # is open here, too.
        self._descriptor = None


def _remove(descriptor: int, file: Path, pid: int) -> None:
    """Give up a file; in a child process only the descriptor."""
    with suppress(OSError):
        os.close(descriptor)  # first: Windows removes no file that is open
    if os.getpid() == pid:
        with suppress(OSError):
            file.unlink(missing_ok=True)


open_namespaces = OnePerDirectory(OpenNamespaces)
"""What is in use is a property of the process: all its stores in a directory write into one file."""


def namespaces_in_use(path: Path) -> set[str]:
    """Return the namespaces that living processes have open, and remove the files of those that died.

    Holds: the lock of the directory, alone; without it the answer may be outdated before it is given.

    Raises:
        OSError: a file cannot be read, so that nobody can tell.
    """
    names: set[str] = set()
    try:
        with os.scandir(path / STORE_FOLDER) as entries:
            files = [entry.path for entry in entries if entry.name.startswith(OPEN_PREFIX)]
    except FileNotFoundError:
        return names
    for file in files:
        with suppress(FileNotFoundError):  # its process has just ended
            names |= _names_in(file)
    return names


def _names_in(file: str) -> set[str]:
    descriptor = os.open(file, os.O_RDWR | PLAIN_FLAGS)
    try:
        has_ended = _has_ended(descriptor)
        with os.fdopen(descriptor, "rb", closefd=False) as stream:
            written = b"" if has_ended else stream.read()  # what nobody holds may be a pipe, without an end
    finally:
        os.close(descriptor)
    if has_ended:
        with suppress(OSError):
            Path(file).unlink()
        return set()
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
