"""Keeping a store's directory within its quota: making room before a text is written."""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import suppress
from pathlib import Path

from context_compressor.errors import OffloadError, OffloadFullError
from context_compressor.offload.directory.disk import make_directory
from context_compressor.offload.directory.gc import collect_garbage
from context_compressor.offload.directory.in_use import OPEN_PREFIX, STORE_FOLDER
from context_compressor.offload.directory.process import OnePerDirectory
from context_compressor.offload.directory.usage import Usage

logger = logging.getLogger(__name__)

_FILL = 0.9
"""Share of the quota to which a full directory is emptied, where that can be: a collection looks through all
of it, so that one for every write would cost more than the writes."""
_BRIEF_SECONDS = 0.05
_REST = 4
"""A collection that took longer than brief, in vain, is followed by a rest of so many times as long."""
_IN_VAIN_SECONDS = 60.0
"""How long nothing is tried again after a collection in vain, unless somebody opens or closes a namespace."""
_LOOKS_PER_AGE, _LONGEST_LOOK_SECONDS = 24, 3600.0
_COLLECTED_FILE = "collected"
"""Its time of change says when what is too old was last looked for."""


class Quota:
    """The limits of one directory, as this process keeps them. Thread-safe; all blocks."""

    def __init__(self, path: Path) -> None:
        self.usage = Usage(path)
        self._path = path
        # One collection at a time: whoever waits for it finds room, or that there is none.
        self._lock = threading.Lock()
        self._rest_until = 0.0
        self._in_vain_until = 0.0
        self._open_then: list[tuple[str, int]] = []
        self._next_look = 0.0

    def reserve(self, size: int, descriptor: int, max_bytes: int) -> None:
        """Count bytes that are about to be written to an open file, which becomes as large; where they do
        not fit, make room first.

        Raises:
            OffloadFullError: there is not enough that may be removed.
            OffloadError: the directory could not be tidied.
            OSError: the count cannot be kept.
        """
        if size > max_bytes:
            raise OffloadFullError(self._complaint(size, max_bytes, "raise max_bytes"))
        if self._add(size, descriptor, max_bytes):
            return
        with self._lock:
            if self._add(size, descriptor, max_bytes):
                return
            if self._may_try():
                began = time.monotonic()
                if self.usage.used() is None:
                    self.usage.begin_counting()
                    collect_garbage(self._path)  # which counts
                    if self._add(size, descriptor, max_bytes):
                        return
                goal = max(int(_FILL * max_bytes) - size, 0)
                collect_garbage(self._path, max_bytes=goal)
                if self._add(size, descriptor, max_bytes):
                    return
                self._note_failure(time.monotonic() - began)
            in_use = "what is in it is used by sessions that are open; raise max_bytes, or end sessions"
            raise OffloadFullError(self._complaint(size, max_bytes, in_use))

    def _add(self, size: int, descriptor: int, max_bytes: int) -> bool:
        os.ftruncate(descriptor, size)  # takes no room on the disk yet
        if self.usage.add(size, max_bytes):
            return True
        os.ftruncate(descriptor, 0)  # or the collection that makes room for it would find it
        return False

    def _may_try(self) -> bool:
        now = time.monotonic()
        if now < self._rest_until:
            return False
        return now >= self._in_vain_until or self._open_now() != self._open_then

    def _note_failure(self, seconds: float) -> None:
        now = time.monotonic()
        self._rest_until = now + (_REST * seconds if seconds > _BRIEF_SECONDS else 0)
        self._in_vain_until = now + _IN_VAIN_SECONDS
        self._open_then = self._open_now()

    def _open_now(self) -> list[tuple[str, int]]:
        """Return what differs after a namespace was opened or closed, without reading who has what."""
        folder = self._path / STORE_FOLDER
        make_directory(folder)
        found = []
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith(OPEN_PREFIX):
                    with suppress(FileNotFoundError):  # its process has just ended
                        found.append((entry.name, entry.stat(follow_symlinks=False).st_size))
        return sorted(found)

    def _complaint(self, size: int, max_bytes: int, reason: str) -> str:
        used = self.usage.used()
        held = "" if used is None else f" holds {used:,} and"
        return f"{size:,} bytes do not fit: {self._path}{held} may hold {max_bytes:,} (max_bytes); {reason}"

    def remove_expired(self, max_age_seconds: float) -> None:
        """Remove what nobody has used for too long, if that was not looked for lately; trouble is logged."""
        now = time.monotonic()
        if now < self._next_look:
            return
        interval = min(max(max_age_seconds / _LOOKS_PER_AGE, 1.0), _LONGEST_LOOK_SECONDS)
        self._next_look = now + interval
        stamp = self._path / STORE_FOLDER / _COLLECTED_FILE
        try:
            if stamp.exists() and abs(time.time() - stamp.stat().st_mtime) < interval:
                return
            make_directory(stamp.parent)
            stamp.touch(0o600)
            with self._lock:
                collect_garbage(self._path, max_age_seconds=max_age_seconds)
        except (OSError, OffloadError) as error:
            logger.warning("%s could not be tidied: %s", self._path, error)

    def start_as_child(self) -> None:
        """Take over in a process that was forked: another thread of the parent may have held the lock."""
        self._lock = threading.Lock()


quota_of = OnePerDirectory(Quota)
"""What was tried in vain concerns all stores of the process in a directory."""
