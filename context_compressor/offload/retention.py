"""Remove what is old, or more than a store may hold; how much that is."""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from context_compressor.errors import InvalidArgumentError, OffloadError
from context_compressor.offload.folders import (
    REMOVING_PREFIX,
    FoundNamespace,
    as_root,
    being_removed,
    check_limit,
    disk_error,
    empty,
    find_namespaces,
    own_folder,
    sync_directory,
)
from context_compressor.offload.locks import LOCK_FILE, UNLOCKABLE_SECONDS, locked, namespaces_in_use

_FILE = "usage"
_WIDTH = 64
"""Bytes of the file, always written as a whole."""
TRUSTED_SECONDS = 24 * 3600.0
"""Age at which a count is made anew: somebody may have removed or restored files by hand."""


class _Count(NamedTuple):
    used: int = 0
    """Bytes in the directory."""
    added: int = 0
    """Bytes ever added: what came while a new count was made."""
    counted_at: int = 0
    """When the directory was last looked through, in nanoseconds since the epoch; 0 for never."""

    @property
    def is_trusted(self) -> bool:
        return abs(time.time_ns() - self.counted_at) <= TRUSTED_SECONDS * 1e9


class Usage:
    """The count of one directory. All of this blocks, and raises OSError where the count cannot be kept.

    Where nobody counts yet, which a quota begins, nothing is kept.
    """

    def __init__(self, path: Path) -> None:
        self._root = path

    def is_kept(self) -> bool:
        """Tell whether anybody counts in this directory."""
        return (own_folder(self._root) / _FILE).exists()

    def used(self) -> int | None:
        """Return how many bytes are counted; None where there is no count that can be trusted."""
        count = self._now()
        return count.used if count.is_trusted else None

    def add(self, size: int) -> None:
        """Count bytes that come; call when a file of that size is there.

        A look through the directory finds that file, or else this call comes after the look began, which
        takes note of it.
        """
        if self.is_kept():
            with self._opened() as (descriptor, count):
                _write(descriptor, _Count(count.used + size, count.added + size, count.counted_at))

    def reserve(self, size: int, limit: int, file: int) -> bool:
        """Let an open file, an empty one, grow to so many bytes, and count them, in one step.

        Returns:
            False where they exceed the limit, or nobody knows: then the file stays as it is.
        """
        if not self.is_kept():
            return False
        with self._opened() as (descriptor, count):
            if not count.is_trusted or count.used + size > limit:
                return False
            os.ftruncate(file, size)  # takes no room on the disk yet
            _write(descriptor, _Count(count.used + size, count.added + size, count.counted_at))
            return True

    def counted_at(self) -> int:
        """Return what `subtract` takes; call before the bytes go."""
        return self._now().counted_at

    def subtract(self, size: int, counted_at: int) -> None:
        """Count bytes that are gone, unless a look through the directory ended since, which may have missed
        them: then they would be taken off twice.
        """
        if self.is_kept():
            with self._opened() as (descriptor, count):
                if count.counted_at == counted_at:
                    _write(descriptor, count._replace(used=max(count.used - size, 0)))

    def begin_counting(self) -> int:
        """Return what `end_counting` takes; call before the directory is looked through."""
        own_folder(self._root, make=True)
        with self._opened() as (_, count):
            return count.added  # the file is there now, so what comes is noted

    def end_counting(self, total: int, begun: int) -> None:
        """Set the count to what was found, and what came meanwhile."""
        with self._opened() as (descriptor, count):
            # What came meanwhile may have been found, too. Too much is harmless, and mended the next time.
            used = total + max(count.added - begun, 0)
            _write(descriptor, _Count(used, count.added, time.time_ns()))

    def _now(self) -> _Count:
        if not self.is_kept():
            return _Count()
        with self._opened() as (_, count):
            return count

    @contextmanager
    def _opened(self) -> Iterator[tuple[int, _Count]]:
        with locked(own_folder(self._root) / _FILE) as (descriptor, _):
            os.lseek(descriptor, 0, os.SEEK_SET)
            fields = os.read(descriptor, _WIDTH).split()
            is_whole = len(fields) == 3 and all(field.isdigit() for field in fields)
            yield descriptor, _Count(*map(int, fields)) if is_whole else _Count()


def _write(descriptor: int, count: _Count) -> None:
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.write(descriptor, " ".join(map(str, count)).encode().ljust(_WIDTH))


logger = logging.getLogger(__name__)

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
        raise InvalidArgumentError(f"keep: expected names of namespaces, got {keep!r}")
    try:
        return _collect(root, max_bytes, max_age_seconds, frozenset(kept), dry_run=dry_run)
    except OSError as error:
        place = f" ({error.filename})" if error.filename else ""
        raise disk_error(error, f"{root} could not be tidied{place}", OffloadError) from error


_Chosen = tuple[FoundNamespace, Reason]
_Limits = tuple[int | None, float | None, int]
"""Bytes, seconds of age, and the time now in nanoseconds, as `choose` takes them."""


def _collect(
    path: Path, max_bytes: int | None, max_age_seconds: float | None, keep: frozenset[str], *, dry_run: bool
) -> GarbageCollection:
    nothing = GarbageCollection((), 0, 0, 0, 0, 0, dry_run)
    if not path.is_dir():
        return nothing
    usage = Usage(path)
    is_counted = not dry_run and usage.is_kept()
    begun = usage.begin_counting() if is_counted else 0
    if not dry_run:
        for directory in being_removed(path):  # what an earlier collection did not get done
            _empty_aside(directory)
    found = find_namespaces(path)
    if not found and not own_folder(path).exists():
        return nothing  # no store was ever here
    with _deciding(path, found, look_only=dry_run) as taken:
        pass
    before = sum(namespace.bytes for namespace in found)
    limits = max_bytes, max_age_seconds, time.time_ns()
    if dry_run:
        chosen = choose(found, taken | keep, *limits)
        freed = sum(namespace.bytes for namespace, _ in chosen)
    else:
        chosen, freed = _remove_enough(path, found, taken | keep, limits)
    if is_counted:
        usage.end_counting(before - freed, begun)
    now = time.time()
    return GarbageCollection(
        removed=tuple(
            RemovedNamespace(each.name, each.bytes, each.texts, max(now - each.used_ns / _NANO, 0), why)
            for each, why in chosen
        ),
        namespaces=len(found),
        in_use=sum(namespace.name in taken for namespace in found),
        kept=sum(namespace.name in keep - taken for namespace in found),
        bytes_before=before,
        bytes_after=before - freed,
        is_dry_run=dry_run,
    )


@contextmanager
def _deciding(
    path: Path, found: Iterable[FoundNamespace], *, look_only: bool = False
) -> Iterator[frozenset[str]]:
    """Let nobody open a namespace meanwhile; give the names of those in use."""
    lock = own_folder(path, make=not look_only) / LOCK_FILE
    if look_only and not lock.exists():
        yield frozenset(namespaces_in_use(path))
        return
    with locked(lock) as (_, is_locked):
        names = frozenset(namespaces_in_use(path))
        if not is_locked:  # nobody can tell, so what is young may be in use
            oldest = time.time_ns() - int(UNLOCKABLE_SECONDS * _NANO)
            names = names.union(namespace.name for namespace in found if namespace.used_ns > oldest)
        yield names


def _remove_enough(
    path: Path, found: Sequence[FoundNamespace], protected: Collection[str], limits: _Limits
) -> tuple[list[_Chosen], int]:
    """Remove what is to go; where some of it has to stay, others go in its place.

    Returns:
        What was removed, and the bytes that are gone.

    Raises:
        PermissionError: nothing that is to go may be removed.
    """
    removed: list[_Chosen] = []
    refused: list[PermissionError] = []
    left, tried = {namespace.name: namespace for namespace in found}, set(protected)
    while chosen := choose(list(left.values()), tried, *limits):
        for start in range(0, len(chosen), _BATCH):
            removed += _remove(path, chosen[start : start + _BATCH], left, refused)
        tried.update(namespace.name for namespace, _ in chosen)
    if refused and not removed:
        raise refused[0]
    freed = sum(namespace.bytes for namespace in found if namespace.name not in left)
    return removed, freed


def _remove(
    path: Path, batch: Sequence[_Chosen], left: dict[str, FoundNamespace], refused: list[PermissionError]
) -> list[_Chosen]:
    """Remove what was chosen, is still as it was found and may be removed; return that."""
    removed: list[_Chosen] = []
    aside: list[Path] = []
    with _deciding(path, [namespace for namespace, _ in batch]) as taken:
        for namespace, reason in batch:
            if namespace.name in taken:
                continue
            try:
                if not _set_aside(path, namespace, aside):
                    continue
                removed.append((namespace, reason))
            except FileNotFoundError:
                pass  # another collection was faster
            except PermissionError as error:
                logger.warning("%s may not be removed: %s", path / namespace.name, error.strerror)
                refused.append(error)
                continue
            del left[namespace.name]
    sync_directory(path)
    for directory in aside:
        _empty_aside(directory)
    return removed


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
