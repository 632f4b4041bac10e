"""One store's namespace in a directory that others share: marked as in use, its bytes counted."""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from context_compressor.errors import OffloadFullError
from context_compressor.offload.directory.in_use import open_namespaces
from context_compressor.offload.directory.locking import WAIT_SECONDS
from context_compressor.offload.directory.namespaces import index_bytes
from context_compressor.offload.directory.process import watch_forks
from context_compressor.offload.directory.quota import quota_of

logger = logging.getLogger(__name__)

_TOUCH_SECONDS = 3600.0
"""How often the time of last use is written down: collections go by it."""


class Tenant:
    """What a store owes the others in its directory. Thread-safe; all blocks.

    It leaves when nothing refers to it any more.
    """

    def __init__(
        self, root: Path, namespace: str, max_bytes: int | None, max_age_seconds: float | None
    ) -> None:
        self._namespace = namespace
        self._directory = root / namespace
        self._max_bytes = max_bytes
        self._max_age_seconds = max_age_seconds
        self._account = open_namespaces(root)
        self._quota = quota_of(root)
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

    def enter(self, *, to_write: bool, wait_seconds: float = WAIT_SECONDS) -> None:
        """Mark the namespace as in use, if it is there or about to be; what keeps from that is logged."""
        try:
            if not (to_write or self._directory.is_dir()):
                return
            with self._lock:
                if self._held is not None:
                    self._account.confirm()
                else:
                    self._account.hold(self._namespace, wait_seconds)
                    self._held = weakref.finalize(self, self._account.release, self._namespace)
                    self._held.atexit = False
                    self._index = index_bytes(self._directory), self._quota.usage.counted_at()
                if time.monotonic() >= self._touch_at:
                    with suppress(OSError):  # not there yet, or not ours
                        os.utime(self._directory)
                        self._touch_at = time.monotonic() + _TOUCH_SECONDS
                self._is_unmarked = False
        except OSError as error:
            if to_write and not self._is_unmarked:
                self._is_unmarked = True  # on a full disk every write would tell of it
                logger.warning("%s is not marked as in use: %s", self._directory, error)
        if to_write and self._max_age_seconds is not None:
            self._quota.remove_expired(self._max_age_seconds)

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
                self._quota.usage.add(size)
            return
        self.count_index()
        try:
            self._quota.reserve(size, descriptor, self._max_bytes)
        except OffloadFullError as error:
            raise OffloadFullError(f"{ref} was not stored: {error}") from None
        finally:
            self.count_index()  # what it is part of may be a new count

    @contextmanager
    def freeing(self, size: int) -> Iterator[None]:
        """Surround what removes so many bytes, to take note of it."""
        if not size:
            yield
            return
        usage = self._quota.usage
        counted_at = 0
        with suppress(OSError):  # too high a count is mended by the next collection
            counted_at = usage.counted_at()
        yield
        with suppress(OSError):
            usage.subtract(size, counted_at)

    def count_index(self) -> None:
        """Count by how much the search index grew or shrank since the last time."""
        usage = self._quota.usage
        with self._lock:
            earlier, counted_at = self._index
            self._index = index_bytes(self._directory), usage.counted_at()
            grown = self._index[0] - earlier
        if grown > 0:
            usage.add(grown)
        elif grown < 0:
            usage.subtract(-grown, counted_at)
