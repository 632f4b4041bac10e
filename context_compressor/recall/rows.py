"""Which rows of the index are passages of which message of a history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from zlib import crc32

Entry = tuple[str, str]
"""A message of a history: its key, and a digest that changes whenever its texts do."""

KEY_BYTES = 8


def stamp_of(entry: Entry) -> bytes:
    """Return 16 bytes that stand for a message in the index: 8 for its key, 8 for its digest."""
    key, digest = entry
    return key_stamp(key) + key_stamp(digest)


def key_stamp(text: str) -> bytes:
    """Return the 8 bytes that stand for a key, or a digest."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=KEY_BYTES).digest()


@dataclass(frozen=True)
class Record:
    """What the index holds of a message, which has the row `first` and, a row a passage, those after it."""

    first: int
    stamp: bytes
    sizes: bytes
    """Of each passage, how many terms it has; 255 for more."""

    @property
    def end(self) -> int:
        """The row after the last; a message without passages has one row to itself."""
        return self.first + max(len(self.sizes), 1)

    @cached_property
    def checksum(self) -> int:
        """A checksum of all that it says."""
        return crc32(self.stamp + self.sizes, self.first & 0xFFFFFFFF)


@dataclass(slots=True)
class Rows:
    """The messages of a history in its order, and the row of each passage."""

    history: list[Entry] = field(default_factory=list)
    records: dict[bytes, Record] = field(default_factory=dict)
    """Stamp -> record."""
    places: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Row -> position of its message in the history, number of the passage within the message."""
    sizes: dict[int, int] = field(default_factory=dict)
    """Row -> how many terms its passage has."""
    total_size: int = 0
    end: int = 1
    """The row after the last."""
    is_complete: bool = True
    """Whether each message has a record; texts of some may not have been there to read."""

    @property
    def mean_size(self) -> float:
        """How many terms a passage has in the mean, at least 1."""
        return max(self.total_size / max(len(self.sizes), 1), 1.0)

    @classmethod
    def of(cls, history: Sequence[Entry], records: Mapping[bytes, Record]) -> Rows:
        """Return the rows of a history, of those messages that have a record."""
        rows = cls()
        for entry in history:
            rows.append(entry, records.get(stamp_of(entry)))
        return rows

    def append(self, entry: Entry, record: Record | None) -> None:
        """Take up a message after all others."""
        position = len(self.history)
        self.history.append(entry)
        if record is None:
            self.is_complete = False
            return
        self.records[record.stamp] = record
        for number, size in enumerate(record.sizes):
            self.places[record.first + number] = position, number
            self.sizes[record.first + number] = size
        self.total_size += sum(record.sizes)
        self.end = max(self.end, record.end)
