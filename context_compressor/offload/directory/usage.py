"""How many bytes a store's directory holds, counted by all processes together.

The count is a small file: looking at it costs microseconds, looking through a directory of many sessions a
second. It may be above the truth until the next look through the directory, and for texts it is never below:
what is written is counted before, what is removed afterwards, unless somebody looked meanwhile and missed it
already. An index is counted after it grew, when its store is opened, written to or closed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from context_compressor.offload.directory.disk import make_directory
from context_compressor.offload.directory.in_use import STORE_FOLDER
from context_compressor.offload.directory.locking import locked

_FILE = "usage"
_WIDTH = 64
"""Bytes of the file, always written as a whole."""
TRUSTED_SECONDS = 24 * 3600.0
"""Age at which a count is made anew: somebody may have removed or restored files by hand."""


class _Count(NamedTuple):
    used: int
    """Bytes in the directory."""
    added: int
    """Bytes ever added: what came while a new count was made."""
    counted_at: int
    """When the directory was last looked through, in nanoseconds since the epoch; 0 for never."""

    @property
    def is_trusted(self) -> bool:
        return abs(time.time_ns() - self.counted_at) <= TRUSTED_SECONDS * 1e9


class Usage:
    """The count of one directory. All of this blocks, and raises OSError where the count cannot be kept."""

    def __init__(self, path: Path) -> None:
        self._file = path / STORE_FOLDER / _FILE

    def is_kept(self) -> bool:
        """Tell whether anybody counts in this directory."""
        return self._file.exists()

    def used(self) -> int | None:
        """Return how many bytes are counted; None where there is no count that can be trusted."""
        if not self.is_kept():
            return None
        with self._opened() as (_, count):
            return count.used if count.is_trusted else None

    def add(self, size: int, limit: int | None = None) -> bool:
        """Count bytes that come, unless they would exceed a limit; call when a file of that size is there.

        A look through the directory finds that file, or else this call comes after the look began, which
        takes note of it. Where nothing is counted yet, there is nothing to keep; with a limit the answer is
        then no.

        Returns:
            Whether they were counted.
        """
        if not self.is_kept():
            return False
        with self._opened() as (descriptor, count):
            if limit is not None and (not count.is_trusted or count.used + size > limit):
                return False
            _write(descriptor, _Count(count.used + size, count.added + size, count.counted_at))
            return True

    def counted_at(self) -> int:
        """Return what `subtract` takes; call before the bytes go."""
        if not self.is_kept():
            return 0
        with self._opened() as (_, count):
            return count.counted_at

    def subtract(self, size: int, counted_at: int) -> None:
        """Count bytes that are gone, unless a look through the directory ended since, which may have missed
        them: then they would be taken off twice.
        """
        if not self.is_kept():
            return
        with self._opened() as (descriptor, count):
            if count.counted_at == counted_at:
                _write(descriptor, count._replace(used=max(count.used - size, 0)))

    def begin_counting(self) -> int:
        """Return what `end_counting` takes; call before the directory is looked through."""
        make_directory(self._file.parent)
        with self._opened() as (_, count):
            return count.added  # the file is there now, so what comes is noted

    def end_counting(self, total: int, begun: int) -> None:
        """Set the count to what was found, and what came meanwhile."""
        with self._opened() as (descriptor, count):
            # What came meanwhile may have been found, too. Too much is harmless, and mended the next time.
            used = total + max(count.added - begun, 0)
            _write(descriptor, _Count(used, count.added, time.time_ns()))

    @contextmanager
    def _opened(self) -> Iterator[tuple[int, _Count]]:
        """Hold the lock of the file; give its descriptor and what it says."""
        with locked(self._file) as (descriptor, _):
            yield descriptor, _read(descriptor)


def _read(descriptor: int) -> _Count:
    os.lseek(descriptor, 0, os.SEEK_SET)
    fields = os.read(descriptor, _WIDTH).split()
    if len(fields) != 3 or not all(field.isdigit() for field in fields):
        return _Count(0, 0, 0)
    return _Count(*map(int, fields))


def _write(descriptor: int, count: _Count) -> None:
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.write(descriptor, " ".join(map(str, count)).encode().ljust(_WIDTH))
