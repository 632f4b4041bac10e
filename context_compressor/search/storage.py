"""What an index holds: which row has which term, and which rows belong to which message; and its file."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from weakref import finalize
from zlib import crc32

from context_compressor.offload.folders import is_link, make_directory, replacing

VERSION = 7
"""Of terms, passages and tables, as `user_version`: a file of another version is written anew."""

APPLICATION = 0x63746678
"""`ctfx`, as `application_id`: what bears another is no index, and is left alone."""

_PAGE_BYTES = 512
"""SQLite's smallest page: a short history has a small file."""
_SQLITE_MAGIC = b"SQLite format 3\0"
_HEADER_BYTES, _CHECKSUM_BYTES = 100, 4

# `detail=none`: for each term the rows only; how often and where is read from the texts of the best rows.
# Without `content` and sizes of rows the table holds terms and nothing else.
_TABLES = f"""
PRAGMA page_size = {_PAGE_BYTES};
PRAGMA auto_vacuum = FULL;
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {VERSION};
CREATE TABLE messages (first INTEGER PRIMARY KEY, stamp BLOB NOT NULL, sizes BLOB NOT NULL);
CREATE VIRTUAL TABLE terms USING fts5(term, content='', columnsize=0, detail=none, tokenize='ascii');
"""


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


class Storage:
    """One index, in memory. For one thread at a time.

    Args:
        image: what `image` returned; None: an empty one.

    Raises:
        sqlite3.Error: this SQLite has no FTS5, or cannot read the image.
    """

    def __init__(self, image: bytes | None = None) -> None:
        self._connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        # It need not be closed, and Python tells of connections that were not.
        finalize(self, self._connection.close).atexit = False
        if image is None:
            self._connection.executescript(_TABLES)
        else:
            self._connection.deserialize(image)
        self._connection.execute("PRAGMA secure_delete = ON")  # what is deleted is overwritten
        self._connection.execute("CREATE VIRTUAL TABLE temp.instances USING fts5vocab(main, terms, instance)")
        self.rows = self._read_rows()
        """What is known of the contents."""
        self.rows_with("a")  # fails where these are terms of another SQLite

    def close(self) -> None:
        """Give the memory back. Closing again is fine."""
        self._connection.close()

    def image(self) -> bytes:
        """Return all that it holds, as an SQLite file."""
        return self._connection.serialize()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run a transaction; when it fails all is as it was."""
        self._connection.execute("BEGIN")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            self.rows = self._read_rows()
            raise

    def _read_rows(self) -> Rows:
        found = self._connection.execute("SELECT first, stamp, sizes FROM messages ORDER BY first")
        records = {record.stamp: record for record in (Record(*row) for row in found)}
        return Rows(records=records, is_complete=False)

    def rows_with(self, term: str, *, is_beginning: bool = False) -> list[int]:
        """Return the rows that hold a term, or a term that begins so."""
        sign = "*" if is_beginning else ""
        rows = self._connection.execute("SELECT rowid FROM terms WHERE terms MATCH ?", (f'"{term}"{sign}',))
        return [row for (row,) in rows]

    def add(self, record: Record, terms: Iterable[Collection[str]]) -> None:
        """Write a message: its record, and the terms of each of its rows."""
        self._connection.execute(
            "INSERT INTO messages VALUES (?, ?, ?)", (record.first, record.stamp, record.sizes)
        )
        self._connection.executemany(
            "INSERT INTO terms (rowid, term) VALUES (?, ?)",
            ((record.first + number, " ".join(found)) for number, found in enumerate(terms) if found),
        )

    def remove(self, records: Collection[Record]) -> None:
        """Take messages out, so that nothing in the file tells what terms they had.

        FTS5 asks for the terms of a row that is to go. They are not kept, and the text may be gone, but the
        index itself, read once from end to end, tells them. (`contentless_delete`, of SQLite 3.43, would have
        the size of every row kept.)
        """
        rows = {row for record in records for row in range(record.first, record.end)}
        held: dict[int, list[str]] = {}
        found = self._connection.execute(
            "SELECT doc, term FROM temp.instances WHERE doc BETWEEN ? AND ?", (min(rows), max(rows))
        )
        for row, term in found:
            if row in rows:
                held.setdefault(row, []).append(term)
        self._connection.executemany(
            "INSERT INTO terms (terms, rowid, term) VALUES ('delete', ?, ?)",
            ((row, " ".join(terms)) for row, terms in held.items()),
        )
        self._connection.executemany(
            "DELETE FROM messages WHERE first = ?", ((record.first,) for record in records)
        )
        self.merge()

    def merge(self) -> None:
        """Merge the parts in which terms were written to one, and leave out what was deleted."""
        self._connection.execute("INSERT INTO terms (terms) VALUES ('optimize')")


class NotAnIndexError(Exception):
    """Report a file that is something else and must not be touched."""


def identity_of(path: Path) -> tuple[int, int, int] | None:
    """Return what tells a file from another one in its place; None where there is none.

    Raises:
        OSError: nobody can tell.
    """
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def read_file(path: Path) -> bytes | None:
    """Return the image in a file; None where there is none that is whole and of this version.

    Raises:
        NotAnIndexError: the file is something else.
        OSError: it cannot be read.
    """
    _refuse_other(path)
    _check_sqlite()
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    image, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
    is_whole = len(image) >= _HEADER_BYTES and crc32(image).to_bytes(_CHECKSUM_BYTES) == checksum
    return image if is_whole and image[60:64] == VERSION.to_bytes(4) else None


def write_file(path: Path, image: bytes) -> None:
    """Put an image, and its checksum behind it, in the place of a file, for the user alone.

    Raises:
        NotAnIndexError: the file is something else.
        OSError: it cannot be written.
    """
    _refuse_other(path)
    _check_sqlite()
    make_directory(path.parent)
    with replacing(path, is_durable=False) as file:  # the checksum tells what a power cut left
        file.write(image + crc32(image).to_bytes(_CHECKSUM_BYTES))
    with suppress(OSError):  # what an earlier release kept beside it
        path.with_name(f"{path.name}-journal").unlink(missing_ok=True)


def discard_file(path: Path) -> None:
    """Remove an index.

    Raises:
        NotAnIndexError: the file is something else.
        OSError: it cannot be removed.
    """
    _refuse_other(path)
    for name in (path, path.with_name(f"{path.name}-journal")):
        name.unlink(missing_ok=True)


def _check_sqlite() -> None:
    if not hasattr(sqlite3.Connection, "serialize"):
        raise OSError("the SQLite of this Python cannot give its contents, as those before 3.36 may not")


def _refuse_other(path: Path) -> None:
    """Refuse what is neither an index nor the beginning of one, nor empty or all zeros.

    A link could point to any file of the user's; a named pipe would be waited for, for ever.
    """
    if is_link(path.parent):
        raise NotAnIndexError(f"{path.parent} is a link, which is not followed")
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            raise NotAnIndexError(f"{path} is no regular file; delete it, or name another file")
        with path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
    except FileNotFoundError:
        return
    is_ours = _SQLITE_MAGIC.startswith(header[:16])
    if len(header) == _HEADER_BYTES:
        is_ours = header[:16] == _SQLITE_MAGIC and header[68:72] == APPLICATION.to_bytes(4)
    if header.strip(b"\0") and not is_ours:
        raise NotAnIndexError(f"{path} is no index; delete it, or name another file")
