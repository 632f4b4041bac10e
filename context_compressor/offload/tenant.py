"""One process's use of a store's directory, and the quota that all share."""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from context_compressor.errors import OffloadError, OffloadFullError
from context_compressor.offload.folders import index_bytes, own_folder, refuse_link
from context_compressor.offload.locks import WAIT_SECONDS, OpenNamespaces, locked, watch_forks
from context_compressor.offload.retention import Usage, collect_garbage

logger = logging.getLogger(__name__)

_FILL = 0.9
"""Share of the quota to which a full directory is emptied, where that can be: a collection looks through all
of it, so that one for every write would cost more than the writes."""
_BRIEF_SECONDS = 0.05
_REST = 4
"""A collection that took longer than brief, in vain, is followed by a rest of so many times as long."""
_IN_VAIN_SECONDS = 10.0
"""How long nothing is tried again after a collection in vain, unless this process closes a namespace."""
_LOOKS_PER_AGE, _LONGEST_LOOK_SECONDS = 24, 3600.0
_COLLECTED_FILE = "collected"
"""Its time of change says when what is too old was last looked for."""
_TOUCH_SECONDS = 3600.0
"""How often the time of last use is written down: collections go by it."""


class Directory:
    """What the stores of this process in one directory share. Thread-safe; all blocks.

    Attributes:
        namespaces: which of them are open.
        usage: how many bytes there are.
        threads: where blocking work runs. The event loop's threads are few and belong to everybody: a disk
            that hangs would take them all, one write each. They end with the last store in the directory.
    """

    threads: ThreadPoolExecutor

    def __init__(self, root: Path) -> None:
        self.namespaces = OpenNamespaces(root)
        self.usage = Usage(root)
        self._root = root
        self._rest_until = 0.0
        self._in_vain_until = 0.0
        self._changes_then = 0
        self._next_look = 0.0
        self.start_as_child()
        watch_forks(self)

    def start_as_child(self) -> None:
        """Take over in a process that was forked, which has none of the threads that may hold a lock."""
        # One collection at a time: whoever waits for it finds room, or that there is none.
        self._collecting = threading.Lock()
        self.threads = ThreadPoolExecutor(thread_name_prefix="offload")
        self.namespaces.start_as_child()

    def reserve(self, size: int, descriptor: int, max_bytes: int) -> None:
        """Count bytes that are about to be written to an open file, which becomes as large; where they do
        not fit, make room first.

        Raises:
            OffloadFullError: there is not enough that may be removed.
            OffloadError: the directory could not be tidied.
            OSError: the count cannot be kept.
        """
        mend = "raise max_bytes"
        if size <= max_bytes:
            if self.usage.reserve(size, max_bytes, descriptor):
                return
            with self._collecting:
                if self.usage.reserve(size, max_bytes, descriptor) or self._make_room(
                    size, descriptor, max_bytes
                ):
                    return
            mend = "what is in it is used by sessions that are open; raise max_bytes, or end sessions"
        used = self.usage.used()
        held = "" if used is None else f" holds {used:,} and"
        raise OffloadFullError(
            f"{size:,} bytes do not fit: {self._root}{held} may hold {max_bytes:,} (max_bytes); {mend}"
        )

    def _make_room(self, size: int, descriptor: int, max_bytes: int) -> bool:
        """Collect until the bytes fit and are counted; False where that is in vain, or was just now."""
        began = time.monotonic()
        is_the_same = self._changes_then == self.namespaces.changes
        if began < self._rest_until or (is_the_same and began < self._in_vain_until):
            return False
        if self.usage.used() is None:
            self.usage.begin_counting()
            collect_garbage(self._root)  # which counts
            if self.usage.reserve(size, max_bytes, descriptor):
                return True
        collect_garbage(self._root, max_bytes=max(int(_FILL * max_bytes) - size, 0))
        if self.usage.reserve(size, max_bytes, descriptor):
            return True
        now = time.monotonic()
        self._rest_until = now + (_REST * (now - began) if now - began > _BRIEF_SECONDS else 0)
        self._in_vain_until = now + _IN_VAIN_SECONDS
        self._changes_then = self.namespaces.changes
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
                collect_garbage(self._root, max_age_seconds=max_age_seconds)
        except (OSError, OffloadError) as error:
            logger.warning("%s could not be tidied: %s", self._root, error)


_directories: weakref.WeakValueDictionary[Path, Directory] = weakref.WeakValueDictionary()


def directory_of(root: Path) -> Directory:
    """Return what this process has for a directory; two threads may each get one, which does no harm."""
    found = _directories.get(root)
    if found is None:
        found = _directories[root] = Directory(root)
    return found


class Tenant:
    """What a store owes the others in its directory. Thread-safe; all blocks.

    It leaves when nothing refers to it any more.
    """

    def __init__(
        self, root: Path, namespace: str, max_bytes: int | None, max_age_seconds: float | None
    ) -> None:
        self.shared = directory_of(root)
        self._namespace = namespace
        self._directory = root / namespace
        self._max_bytes = max_bytes
        self._max_age_seconds = max_age_seconds
        # Guards what follows: a memory writes several texts at a time, each in a thread of its own.
        self._lock = threading.Lock()
        self._held: weakref.finalize[..., Any] | None = None
        self._is_unmarked = False
        self._touch_at = 0.0
        self._index = (0, 0)  # bytes, and which count they were part of
        watch_forks(self)

    def start_as_child(self) -> None:
        """Take over in a process that was forked: another thread of the parent may have held the lock."""
        self._lock = threading.Lock()

    def beside(self, namespace: str) -> Tenant:
        """Return one for another namespace of the directory, not entered yet."""
        return Tenant(self._directory.parent, namespace, self._max_bytes, self._max_age_seconds)

    def enter(self, *, to_write: bool, wait_seconds: float = WAIT_SECONDS) -> None:
        """Mark the namespace as in use, if it is there or about to be; what keeps from that is logged."""
        try:
            if not (to_write or self._directory.is_dir()):
                return
            refuse_link(self._directory)
            with self._lock:
                self._mark(wait_seconds)
        except OSError as error:
            if to_write and not self._is_unmarked:
                self._is_unmarked = True  # on a full disk every write would tell of it
                logger.warning("%s is not marked as in use: %s", self._directory, error)
        if to_write and self._max_age_seconds is not None:
            self.shared.remove_expired(self._max_age_seconds)

    def _mark(self, wait_seconds: float) -> None:
        namespaces = self.shared.namespaces
        if self._held is not None:
            namespaces.confirm()
        else:
            namespaces.hold(self._namespace, wait_seconds)
            self._held = weakref.finalize(self, namespaces.release, self._namespace)
            self._held.atexit = False
            self._index = index_bytes(self._directory), self.shared.usage.counted_at()
        if time.monotonic() >= self._touch_at:
            with suppress(OSError):  # not there yet, or not ours
                os.utime(self._directory)
                self._touch_at = time.monotonic() + _TOUCH_SECONDS
        self._is_unmarked = False

    def leave(self) -> None:
        """Let collections remove the namespace, until it is entered again."""
        # Only where it changed: whoever closes a session does so on the event loop.
        if self._held is not None and index_bytes(self._directory) != self._index[0]:
            with suppress(OSError):  # a daily look makes up for it
                self.count_index()
        with self._lock:
            held, self._held, self._touch_at = self._held, None, 0.0
        if held is not None:
            held()

    def reserve(self, ref: str, size: int, descriptor: int) -> None:
        """Make room for a text of so many bytes, about to be written to an open file.

        Raises:
            OffloadFullError: there is none.
            OffloadError: the directory could not be tidied.
            OSError: the bytes cannot be counted, where there is a quota.
        """
        if self._max_bytes is None:
            os.ftruncate(descriptor, size)
            with suppress(OSError):  # the count is for others; a daily look makes up for it
                self.count_index()
                self.shared.usage.add(size)
            return
        self.count_index()
        try:
            self.shared.reserve(size, descriptor, self._max_bytes)
        except OffloadFullError as error:
            raise OffloadFullError(f"{ref} was not stored: {error}") from None
        finally:
            self.count_index()  # what it is part of may be a new count

    @contextmanager
    def freeing(self, size: int) -> Iterator[None]:
        """Surround what removes so many bytes, to take note of it."""
        counted_at = 0
        with suppress(OSError):  # too high a count is mended by the next collection
            counted_at = self.shared.usage.counted_at() if size else 0
        yield
        with suppress(OSError):
            self.shared.usage.subtract(size, counted_at)

    def count_index(self) -> None:
        """Count by how much the search index grew or shrank since the last time."""
        usage = self.shared.usage
        with self._lock:
            earlier, counted_at = self._index
            index = index_bytes(self._directory), usage.counted_at()
            grown = index[0] - earlier
            if grown > 0:
                usage.add(grown)
            elif grown < 0:
                usage.subtract(-grown, counted_at)
            self._index = index
