"""A directory of stores: who has which namespace open, how many bytes there may be, and what goes."""

from __future__ import annotations

import logging
import os
import secrets
import stat
import threading
import time
import weakref
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Literal, NamedTuple

from context_compressor.errors import InvalidArgumentError, OffloadError, OffloadFullError
from context_compressor.offload.folders import (
    PLAIN_FLAGS,
    REMOVING_PREFIX,
    FoundNamespace,
    as_root,
    being_removed,
    check_limit,
    disk_error,
    empty,
    find_namespaces,
    index_bytes,
    is_directory,
    is_link,
    mode_of,
    own_folder,
    refuse_link,
    sync_directory,
)
from context_compressor.offload.locks import WAIT_SECONDS, locked, try_lock

logger = logging.getLogger(__name__)

__path__: list[str] = []  # `offload.directory` was a room: a path into it is one that moved

LOCK_FILE = "lock"
"""Held while a process says what it has open, and while somebody decides what nobody has."""
OPEN_PREFIX, _LEASING = "open-", "open-leases-"
"""How the file is called that a process keeps locked as long as it lives; with leases beside
it, or of an earlier release, which writes lines into it instead."""
_MOST_TOLD = 1_000_000
"""Bytes of lines that a process writes for those of earlier releases, which see no leases."""
LEASE_PREFIX, _OF = "in-use-", "~"
"""How a lease is called: the name of the namespace follows, and that of the file of the process. A lock for
each would take a descriptor each, and a service has thousands open."""
UNLOCKABLE_SECONDS = 24 * 3600.0
"""Where the disk has no locks, nobody can tell who is alive: what is younger than this counts as in use."""
_NEW_FILE = os.O_RDWR | os.O_CREAT | os.O_EXCL | PLAIN_FLAGS


class Lease:
    """That a store has a namespace open: a file, until it is released or nothing refers to it any more.

    Blocks. On return nobody removes the namespace any more.

    Raises:
        OSError: it cannot be written down, or not in time.
    """

    def __init__(self, directory: Directory, namespace: str, wait_seconds: float) -> None:
        self._directory = directory
        self._file = directory.write_lease(namespace, wait_seconds)
        self.release = weakref.finalize(self, _end_lease, directory, self._file)

    def stands(self) -> bool:
        """Tell whether it is this process's, not that of the one which forked it, and where others look."""
        return self._directory.is_of_this_process() and mode_of(self._file) != 0


def _end_lease(directory: Directory, file: Path) -> None:
    """Give up a lease. Waits for nothing and never fails: Python calls it in the middle of anything."""
    if directory.is_of_this_process():
        directory.changes += 1
        with suppress(OSError):
            file.unlink(missing_ok=True)


def _end_process(descriptor: int, file: Path, pid: int) -> None:
    """Give up the file of a process; in a child of it only the descriptor."""
    with suppress(OSError):
        os.close(descriptor)  # first: Windows removes no file that is open
    if pid == os.getpid():
        with suppress(OSError):
            file.unlink(missing_ok=True)


def namespaces_in_use(root: Path) -> set[str]:
    """Return the namespaces that living processes have open, and remove what those that died left of it.

    Holds: the lock of the directory; without it the answer may be outdated before it is given.

    Raises:
        OSError: a file cannot be read, so that nobody can tell.
    """
    names: set[str] = set()
    living: set[str] = set()
    folder = own_folder(root)
    try:
        files = os.listdir(folder)  # noqa: PTH208 - of thousands no paths are made
    except FileNotFoundError:
        return names
    for name in files:
        if name.startswith(OPEN_PREFIX) and not is_link(folder / name):
            with suppress(FileNotFoundError):  # its process has just ended
                written = _written_by(folder / name)
                if written is not None:
                    living.add(name)
                    names |= _names_of_earlier(written) if not name.startswith(_LEASING) else set()
    for name in files:
        if name.startswith(LEASE_PREFIX):
            namespace, _, owner = name.removeprefix(LEASE_PREFIX).partition(_OF)
            if owner.rpartition("-")[0] in living:
                names.add(namespace)
            else:
                with suppress(OSError):
                    (folder / name).unlink()
    return names


def _written_by(file: Path) -> bytes | None:
    """Return what a process wrote into its file; None where it has ended: then the file goes."""
    descriptor = os.open(file, os.O_RDWR | PLAIN_FLAGS)
    try:
        if not _has_ended(descriptor):  # what nobody holds may be a pipe, without an end
            os.lseek(descriptor, 1, os.SEEK_SET)  # Windows lets nobody read the first byte, a line feed
            with os.fdopen(descriptor, "rb", closefd=False) as stream:
                return stream.read()
    finally:
        os.close(descriptor)
    with suppress(OSError):
        file.unlink()
    return None


def _has_ended(descriptor: int) -> bool:
    try:
        return try_lock(descriptor)
    except OSError:
        status = os.fstat(descriptor)
        return stat.S_ISREG(status.st_mode) and status.st_mtime < time.time() - UNLOCKABLE_SECONDS


def _names_of_earlier(written: bytes) -> set[str]:
    """Return what a process of an earlier release has open."""
    names: set[str] = set()
    for line in written.decode(errors="replace").split("\n"):  # what was damaged says nothing, the rest does
        if line.startswith("+") and line.endswith(";"):
            names.add(line[1:-1])
        elif line.startswith("-") and line.endswith(";"):
            names.discard(line[1:-1])
    return names


_USAGE_FILE = "usage"
_WIDTH = 64
"""Bytes of the file, always written as a whole."""
TRUSTED_SECONDS = 24 * 3600.0
"""Age at which a count is made anew: somebody may have removed or restored files by hand."""


class _Count(NamedTuple):
    used: int = 0
    """Bytes in the directory, or more: what went since it was looked through is not taken off."""
    added: int = 0
    """Bytes ever added: what came while a new count was made."""
    counted_at: int = 0
    """When the directory was last looked through, in nanoseconds since the epoch; 0 for never."""

    @property
    def is_trusted(self) -> bool:
        return abs(time.time_ns() - self.counted_at) <= TRUSTED_SECONDS * 1e9


class Usage:
    """The count of one directory, which all processes keep together. All of this blocks, and raises OSError
    where it cannot be kept.

    It is never below what is there, and looked after before a write is refused or anything removed for it.
    Where nobody counts yet, which a quota begins, nothing is kept.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def is_kept(self) -> bool:
        """Tell whether anybody counts in this directory."""
        return mode_of(own_folder(self._root) / _USAGE_FILE) != 0

    def used(self) -> int | None:
        """Return how many bytes are counted; None where there is no count that can be trusted."""
        if not self.is_kept():
            return None
        with self._opened() as (_, counted):
            return counted.used if counted.is_trusted else None

    def add(self, size: int, limit: int | None = None, file: int | None = None) -> bool:
        """Count bytes that come.

        Args:
            size: how many.
            limit: with which they must fit.
            file: an open one, empty, which becomes as large in the same step: a look through the directory
                finds it, or else it began before, and takes note of what was added meanwhile.

        Returns:
            False where they do not fit, or nobody knows: then everything stays as it is.
        """
        if not self.is_kept():
            return limit is None
        with self._opened() as (descriptor, counted):
            if limit is not None and not (counted.is_trusted and counted.used + size <= limit):
                return False
            if file is not None:
                os.ftruncate(file, size)  # takes no room on the disk yet
            _write(descriptor, counted._replace(used=counted.used + size, added=counted.added + size))
            return True

    def begin_counting(self) -> int:
        """Return what `end_counting` takes; call before the directory is looked through."""
        own_folder(self._root, make=True)
        with self._opened() as (_, counted):
            return counted.added  # the file is there now, so what comes is noted

    def end_counting(self, total: int, begun: int) -> None:
        """Set the count to what was found, and what came meanwhile."""
        with self._opened() as (descriptor, counted):
            # What came meanwhile may have been found, too: rather twice than not at all.
            came = max(counted.added - begun, 0)
            _write(descriptor, _Count(total + came, counted.added, time.time_ns()))

    @contextmanager
    def _opened(self) -> Iterator[tuple[int, _Count]]:
        with locked(own_folder(self._root) / _USAGE_FILE) as (descriptor, _):
            os.lseek(descriptor, 0, os.SEEK_SET)
            fields = os.read(descriptor, _WIDTH).split()
            is_whole = len(fields) == 3 and all(field.isdigit() for field in fields)
            yield descriptor, _Count(*map(int, fields)) if is_whole else _Count()


def _write(descriptor: int, counted: _Count) -> None:
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.write(descriptor, " ".join(map(str, counted)).encode().ljust(_WIDTH))


_FILL = 0.9
"""Share of the quota to which a full directory is emptied, where that can be: a collection looks through all
of it, so that one for every write would cost more than the writes."""
_BRIEF_SECONDS = 0.05
_REST = 4
"""A collection that took longer than brief, in vain, is followed by a rest of so many times as long."""
_IN_VAIN_SECONDS = 10.0
"""How long nothing is tried again after a collection in vain, unless something went in this process."""
_LOOKS_PER_AGE, _LONGEST_LOOK_SECONDS = 24, 3600.0
_COLLECTED_FILE = "collected"
"""Its time of change says when what is too old was last looked for."""
_TOUCH_SECONDS = 3600.0
"""How often the time of last use is written down: collections go by it."""


class Directory:
    """What the stores of this process in one directory share. Thread-safe; all blocks.

    A process that is forked makes one of its own, and keeps what it inherited while its stores refer to it:
    what the parent had open is open there, too.

    Attributes:
        usage: how many bytes there are.
        threads: where blocking work runs. The event loop's threads are few and belong to everybody: a disk
            that hangs would take them all, one write each. They end with the last store in the directory.
        changes: how often something went: a lease, a text, an index.
    """

    def __init__(self, root: Path) -> None:
        self.usage = Usage(root)
        self.threads = ThreadPoolExecutor(thread_name_prefix="offload")
        self.changes = 0
        self._root = root
        self._pid = os.getpid()
        self._process: tuple[Path, int] | None = None
        """The file of this process, and its descriptor."""
        self._numbers = count()
        # One collection at a time: whoever waits for it finds room, or that there is none.
        self._collecting = threading.Lock()
        self._rest_until = 0.0
        self._in_vain_until = 0.0
        self._changes_then = 0
        self._next_look = 0.0

    def is_of_this_process(self) -> bool:
        """Tell whether it was made here, not in the process which forked this one."""
        return self._pid == os.getpid()

    def write_lease(self, namespace: str, wait_seconds: float) -> Path:
        """Return the file of a new lease; see `Lease`."""
        folder = own_folder(self._root, make=True)
        with locked(folder / LOCK_FILE, wait_seconds=wait_seconds):
            if self._process is None or not mode_of(self._process[0]):  # it was removed, or moved
                process = folder / f"{_LEASING}{self._pid}-{secrets.token_hex(6)}"
                descriptor = os.open(process, _NEW_FILE | os.O_APPEND, 0o600)
                weakref.finalize(self, _end_process, descriptor, process, self._pid)
                with suppress(OSError):  # a disk without locks
                    try_lock(descriptor)
                self._process = process, descriptor
            process, descriptor = self._process
            file = folder / f"{LEASE_PREFIX}{namespace}{_OF}{process.name}-{next(self._numbers)}"
            os.close(os.open(file, _NEW_FILE, 0o600))
            with suppress(OSError):
                if os.fstat(descriptor).st_size < _MOST_TOLD:
                    os.write(descriptor, f"\n+{namespace};".encode())
        return file

    def reserve(self, ref: str, size: int, descriptor: int, max_bytes: int) -> None:
        """Count the bytes of a text, about to be written to an open file, which becomes as large; where they
        do not fit, make room first.

        Raises:
            OffloadFullError: there is not enough that may be removed.
            OffloadError: the directory could not be tidied.
            OSError: the count cannot be kept.
        """
        mend = "raise max_bytes"
        if size <= max_bytes:
            if self.usage.add(size, max_bytes, descriptor):
                return
            with self._collecting:
                if self.usage.add(size, max_bytes, descriptor):
                    return
                if self._make_room(size, descriptor, max_bytes):
                    return
            mend = "what is in it is used by sessions that are open; raise max_bytes, or end sessions"
        used = self.usage.used()
        held = "" if used is None else f" holds {used:,} and"
        raise OffloadFullError(
            f"{ref} was not stored: {size:,} bytes do not fit: {self._root}{held} may hold {max_bytes:,} "
            f"(max_bytes); {mend}"
        )

    def _make_room(self, size: int, descriptor: int, max_bytes: int) -> bool:
        """Count, and collect, until the bytes fit; False where that is in vain, or was just now."""
        began = time.monotonic()
        is_the_same = self._changes_then == self.changes
        if began < self._rest_until or (is_the_same and began < self._in_vain_until):
            return False
        _collect(self._root, _Limits(max(int(_FILL * max_bytes) - size, 0), above=max_bytes - size))
        if self.usage.add(size, max_bytes, descriptor):
            return True
        now = time.monotonic()
        self._rest_until = now + (_REST * (now - began) if now - began > _BRIEF_SECONDS else 0)
        self._in_vain_until = now + _IN_VAIN_SECONDS
        self._changes_then = self.changes
        return False

    def remove_expired(self, max_age_seconds: float) -> None:
        """Remove what nobody has used for too long, if that was not looked for lately; trouble is logged."""
        now = time.monotonic()
        if now < self._next_look:
            return
        interval = min(max(max_age_seconds / _LOOKS_PER_AGE, 1.0), _LONGEST_LOOK_SECONDS)
        self._next_look = now + interval
        try:
            stamp = own_folder(self._root, make=True) / _COLLECTED_FILE
            with suppress(FileNotFoundError):
                if abs(time.time() - stamp.lstat().st_mtime) < interval:
                    return
            with locked(stamp):
                os.utime(stamp)
            with self._collecting:
                _collect(self._root, _Limits(age_seconds=max_age_seconds))
        except (OSError, OffloadError) as error:
            logger.warning("%s could not be tidied: %s", self._root, error)


_directories: weakref.WeakValueDictionary[tuple[int, Path], Directory] = weakref.WeakValueDictionary()


def directory_of(root: Path) -> Directory:
    """Return what this process has for a directory; two threads may each get one, which does no harm."""
    key = os.getpid(), root
    found = _directories.get(key)
    if found is None:
        found = _directories[key] = Directory(root)
    return found


class Tenant:
    """What a store owes the others in its directory. Thread-safe; all blocks.

    It leaves when nothing refers to it any more.
    """

    def __init__(
        self, root: Path, namespace: str, max_bytes: int | None, max_age_seconds: float | None
    ) -> None:
        self._shared = directory_of(root)
        self._namespace = namespace
        self._directory = root / namespace
        self._max_bytes = max_bytes
        self._max_age_seconds = max_age_seconds
        self._lease: Lease | None = None
        self._is_unmarked = False
        self._touch_at = 0.0
        self._index = 0
        """Bytes of the search index that are counted."""

    def beside(self, namespace: str) -> Tenant:
        """Return one for another namespace of the directory, not entered yet."""
        return Tenant(self._directory.parent, namespace, self._max_bytes, self._max_age_seconds)

    @property
    def shared(self) -> Directory:
        """What the stores of this process share."""
        if not self._shared.is_of_this_process():
            self._shared = directory_of(self._directory.parent)
        return self._shared

    def enter(self, *, to_write: bool, wait_seconds: float = WAIT_SECONDS) -> None:
        """Mark the namespace as in use, if it is there or about to be; what keeps from that is logged."""
        try:
            if not (to_write or is_directory(self._directory)):
                return
            refuse_link(self._directory)
            self._mark(wait_seconds)
        except OSError as error:
            if to_write and not self._is_unmarked:
                self._is_unmarked = True  # on a full disk every write would tell of it
                logger.warning("%s is not marked as in use: %s", self._directory, error)
        if to_write and self._max_age_seconds is not None:
            self.shared.remove_expired(self._max_age_seconds)

    def _mark(self, wait_seconds: float) -> None:
        lease = self._lease
        if lease is None or not lease.stands():
            if lease is None:
                self._index = index_bytes(self._directory)
            # Two threads may each write one: the lease that is replaced goes with what referred to it.
            self._lease = Lease(self.shared, self._namespace, wait_seconds)
        if time.monotonic() >= self._touch_at:
            with suppress(OSError):  # not there yet, or not ours
                os.utime(self._directory)
                self._touch_at = time.monotonic() + _TOUCH_SECONDS
        self._is_unmarked = False

    def leave(self) -> None:
        """Let collections remove the namespace, until it is entered again."""
        # Only where it changed: whoever closes a session does so on the event loop.
        if self._lease is not None and index_bytes(self._directory) != self._index:
            with suppress(OSError):  # a daily look makes up for it
                self.count_index()
        lease, self._lease, self._touch_at = self._lease, None, 0.0
        if lease is not None:
            lease.release()

    def reserve(self, ref: str, size: int, descriptor: int) -> None:
        """Make room for a text of so many bytes, about to be written to an open file.

        Raises:
            OffloadFullError: there is none.
            OffloadError: the directory could not be tidied.
            OSError: the bytes cannot be counted, where there is a quota.
        """
        if self._max_bytes is None:
            with suppress(OSError):  # the count is for others; a daily look makes up for it
                self.count_index()
                self.shared.usage.add(size, file=descriptor)
            return
        self.count_index()
        self.shared.reserve(ref, size, descriptor, self._max_bytes)

    def freed(self) -> None:
        """Note that something went, so that there may be room again."""
        self.shared.changes += 1

    def count_index(self) -> None:
        """Count by how much the search index grew since the last time."""
        index = index_bytes(self._directory)
        if index > self._index:
            self.shared.usage.add(index - self._index)
        elif index < self._index:
            self.freed()
        self._index = index


_BATCH = 50
"""Namespaces set aside under one lock: some milliseconds, for which nobody can open another one."""
_NANO = 1_000_000_000

Reason = Literal["age", "bytes", "empty"]


@dataclass(frozen=True, slots=True)
class RemovedNamespace:
    """A namespace that was removed, or would be."""

    name: str
    bytes: int
    texts: int
    unused_seconds: float
    """Seconds since it was last used, to within an hour."""
    reason: Reason
    """Past the age, over the bytes, or nothing in it."""


@dataclass(frozen=True, slots=True)
class GarbageCollection:
    """What a collection found and did."""

    removed: tuple[RemovedNamespace, ...]
    namespaces: int
    """How many there were."""
    in_use: int
    """How many of them were open in living processes."""
    kept: int
    """How many of the others the caller asked to keep."""
    bytes_before: int
    bytes_after: int
    is_dry_run: bool = False

    @property
    def removed_bytes(self) -> int:
        """What the removed namespaces held."""
        return sum(namespace.bytes for namespace in self.removed)


def collect_garbage(
    path: str | os.PathLike[str],
    *,
    max_bytes: int | None = None,
    max_age_seconds: float | None = None,
    keep: Iterable[str] = (),
    dry_run: bool = False,
) -> GarbageCollection:
    """Remove namespaces that nobody has open: those unused for too long, then the longest unused.

    A memory whose texts were removed goes on with its history: its view is the same, and reads are served
    from there. Without limits only what is empty or half removed goes. Files that no store made stay, and
    links are not followed. Blocks for as long as looking through the directory takes: call it in a thread.

    Args:
        path: the directory of the stores.
        max_bytes: bytes that all namespaces together may hold afterwards.
        max_age_seconds: seconds after its last use for which a namespace stays, however much room there is.
        keep: namespaces that stay although no process has them open, such as those of saved sessions.
        dry_run: only tell what would be removed.

    Raises:
        ValueError: the path is empty, or a limit is below 0.
        InvalidArgumentError: an argument is of the wrong type.
        OffloadPermissionError: this process may not look through the directory, or may not remove any of what
            is to go.
        OffloadError: the disk failed otherwise.
    """
    root = as_root(path)
    check_limit("max_bytes", max_bytes, whole=True)
    check_limit("max_age_seconds", max_age_seconds)
    kept = list(keep) if isinstance(keep, Iterable) and not isinstance(keep, str) else None
    if kept is None or not all(isinstance(name, str) for name in kept):
        raise InvalidArgumentError(f"keep: expected names of namespaces, got {keep!r:.200}")
    return _collect(root, _Limits(max_bytes, max_age_seconds), frozenset(kept), dry_run=dry_run)


class _Limits(NamedTuple):
    bytes: int | None = None
    age_seconds: float | None = None
    above: int | None = None
    """Of a quota: bytes up to which nothing goes for the sake of the bytes."""


_Chosen = tuple[FoundNamespace, Reason]


def _collect(
    root: Path, limits: _Limits, keep: frozenset[str] = frozenset(), *, dry_run: bool = False
) -> GarbageCollection:
    """Do what `collect_garbage` says."""
    try:
        return _look_and_remove(root, limits, keep, dry_run=dry_run)
    except OSError as error:
        place = f" ({error.filename})" if error.filename else ""
        raise disk_error(error, f"{root} could not be tidied{place}", OffloadError) from error


def _look_and_remove(
    path: Path, limits: _Limits, keep: frozenset[str], *, dry_run: bool
) -> GarbageCollection:
    nothing = GarbageCollection((), 0, 0, 0, 0, 0, dry_run)
    if not is_directory(path):
        return nothing
    usage = Usage(path)
    is_counted = not dry_run and (limits.above is not None or usage.is_kept())
    begun = usage.begin_counting() if is_counted else 0
    if not dry_run:
        for directory in being_removed(path):  # what an earlier collection did not get done
            _empty_aside(directory)
    found = find_namespaces(path)
    if not found and not mode_of(own_folder(path)):
        return nothing  # no store was ever here
    with _deciding(path, found, look_only=dry_run) as taken:
        pass
    before = sum(namespace.bytes for namespace in found)
    max_bytes = limits.bytes if before > (limits.above or 0) else None
    now = time.time_ns()
    removed: list[_Chosen] = []
    refused: list[PermissionError] = []
    left, tried = {namespace.name: namespace for namespace in found}, set(taken | keep)
    # Where some of what is to go has to stay, others go in its place.
    while chosen := choose(list(left.values()), tried, max_bytes, limits.age_seconds, now):
        tried.update(namespace.name for namespace, _ in chosen)
        for start in range(0, len(chosen), _BATCH):
            batch = chosen[start : start + _BATCH]
            ours, others = (batch, []) if dry_run else _remove(path, batch, refused)
            removed += ours
            for namespace, _ in (*ours, *others):
                del left[namespace.name]
    if refused and not removed:
        raise refused[0]  # somebody has to act
    after = sum(namespace.bytes for namespace in left.values())
    if is_counted:
        usage.end_counting(after, begun)
    return GarbageCollection(
        removed=tuple(
            RemovedNamespace(each.name, each.bytes, each.texts, max((now - each.used_ns) / _NANO, 0), why)
            for each, why in removed
        ),
        namespaces=len(found),
        in_use=sum(namespace.name in taken for namespace in found),
        kept=sum(namespace.name in keep - taken for namespace in found),
        bytes_before=before,
        bytes_after=after,
        is_dry_run=dry_run,
    )


@contextmanager
def _deciding(
    path: Path, found: Iterable[FoundNamespace], *, look_only: bool = False
) -> Iterator[frozenset[str]]:
    """Let nobody open a namespace meanwhile; give the names of those in use."""
    lock = own_folder(path, make=not look_only) / LOCK_FILE
    if look_only and not mode_of(lock):
        yield frozenset(namespaces_in_use(path))
        return
    with locked(lock) as (_, is_locked):
        names = frozenset(namespaces_in_use(path))
        if not is_locked:  # nobody can tell, so what is young may be in use
            oldest = time.time_ns() - int(UNLOCKABLE_SECONDS * _NANO)
            names = names.union(namespace.name for namespace in found if namespace.used_ns > oldest)
        yield names


def _remove(
    path: Path, batch: Sequence[_Chosen], refused: list[PermissionError]
) -> tuple[list[_Chosen], list[_Chosen]]:
    """Remove what was chosen, is still as it was found and may be removed.

    Returns:
        What was removed, and what others removed before.
    """
    ours: list[_Chosen] = []
    others: list[_Chosen] = []
    aside: list[Path] = []
    with _deciding(path, [namespace for namespace, _ in batch]) as taken:
        for namespace, reason in batch:
            try:
                if namespace.name not in taken and _set_aside(path, namespace, aside):
                    ours.append((namespace, reason))
            except FileNotFoundError:
                others.append((namespace, reason))
            except PermissionError as error:
                logger.warning("%s may not be removed: %s", path / namespace.name, error.strerror)
                refused.append(error)
    sync_directory(path)
    for directory in aside:
        _empty_aside(directory)
    return ours, others


def _empty_aside(directory: Path) -> None:
    """Remove what was set aside; what may not be removed is logged, and keeps nothing else from going."""
    try:
        empty(directory)
    except PermissionError as error:
        logger.warning("%s may not be removed: %s", directory, error.strerror)


def _set_aside(path: Path, namespace: FoundNamespace, aside: list[Path]) -> bool:
    """Take a namespace out of everybody's sight, in one step; False where it was used meanwhile."""
    directory = path / namespace.name
    if directory.lstat().st_mtime_ns != namespace.used_ns:
        return False
    if namespace.has_others:
        empty(directory)
    else:
        target = own_folder(path) / f"{REMOVING_PREFIX}{secrets.token_hex(8)}"
        directory.rename(target)
        aside.append(target)
    return True


def choose(
    found: Sequence[FoundNamespace],
    protected: Collection[str],
    max_bytes: int | None,
    max_age_seconds: float | None,
    now_ns: int,
) -> list[_Chosen]:
    """Return which namespaces are to go, and why, the longest unused first."""
    chosen: list[_Chosen] = []
    left = sum(namespace.bytes for namespace in found)
    candidates = [namespace for namespace in found if namespace.name not in protected]
    for namespace in sorted(candidates, key=lambda namespace: (namespace.used_ns, namespace.name)):
        age_seconds = (now_ns - namespace.used_ns) / _NANO
        if namespace.is_empty:
            chosen.append((namespace, "empty"))
        elif max_age_seconds is not None and age_seconds > max_age_seconds:
            chosen.append((namespace, "age"))
        elif max_bytes is not None and left > max_bytes:
            chosen.append((namespace, "bytes"))
        else:
            continue
        left -= namespace.bytes
    return chosen
