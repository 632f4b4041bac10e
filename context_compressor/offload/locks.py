"""Who has a namespace open: locks between processes, and the disk below them."""

from __future__ import annotations

import errno
import os
import secrets
import stat
import sys
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from context_compressor.errors import OffloadError, OffloadFullError, OffloadPermissionError

PLAIN_FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
"""For a file of ours: a link in its place could point to any file on the disk; without the last one Windows
writes every line feed as two characters."""


def make_directory(path: Path) -> None:
    """Make a directory, and those above it, durably and for this user alone, where there is none."""
    if path.is_dir():
        return
    make_directory(path.parent)
    with suppress(FileExistsError):  # another process was faster
        path.mkdir(0o700)
    with suppress(PermissionError):  # a parent may be passable but not readable
        sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable; a no-op where the system has no such call."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network disks cannot
            raise
    finally:
        os.close(descriptor)


def disk_error(error: OSError, what: str, otherwise: type[OffloadError]) -> OffloadError:
    """Return what a disk's error is called here, and what to do: `otherwise` where nothing more is known."""
    reason = f"{what}: {error.strerror or error}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return OffloadFullError(f"{reason}; free disk space there, or raise the quota")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return OffloadPermissionError(f"{reason}; give this process access, or choose another path")
    return otherwise(f"{reason}; mend the disk or choose another path")


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


class ForkAware(Protocol):
    """What a child process may have inherited in the middle of something."""

    def start_as_child(self) -> None:
        """Take over in a process that was forked: a thread of the parent may have held the locks."""
        ...


T = TypeVar("T", bound=ForkAware)

_watched: weakref.WeakSet[ForkAware] = weakref.WeakSet()


def watch_forks(holder: ForkAware) -> None:
    """Let an object start anew in every process that is forked from this one, as long as it lives."""
    _watched.add(holder)


class OnePerDirectory(Generic[T]):
    """The one object that all users of a directory share in this process. Thread-safe."""

    def __init__(self, make: Callable[[Path], T]) -> None:
        self._make = make
        self._known: weakref.WeakValueDictionary[Path, T] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()
        watch_forks(self)

    def __call__(self, path: Path) -> T:
        """Return the object of a directory; made where nobody has one."""
        with self._lock:
            found = self._known.get(path)
            if found is None:
                found = self._known[path] = self._make(path)
                watch_forks(found)
            return found

    def start_as_child(self) -> None:
        """Take over in a process that was forked."""
        self._lock = threading.Lock()


def _start_as_child() -> None:
    for holder in list(_watched):
        holder.start_as_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_as_child)


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
