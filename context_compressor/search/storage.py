"""The SQLite file of an index: which row holds which term, and which rows belong to which message."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import reduce
from hashlib import blake2b
from operator import xor
from pathlib import Path
from weakref import finalize
from zlib import crc32

from context_compressor.offload.folders import make_directory

VERSION = 7
"""Of terms, passages and tables, as `user_version`: a file of another version is written anew."""

APPLICATION = 0x63746678
"""`ctfx`, as `application_id`: what bears another is no index, and is left alone."""

LOCK_SECONDS = 5.0
"""How long another process may hold the file."""

_PAGE_BYTES = 512
"""SQLite's smallest page: a short history has a small file."""
_SQLITE_MAGIC = b"SQLite format 3\0"
_DAMAGE = {"CORRUPT", "NOTADB", "FORMAT", "CONSTRAINT"}
_ENVIRONMENT = {"BUSY", "LOCKED", "FULL", "IOERR", "CANTOPEN", "READONLY", "PERM", "AUTH", "NOMEM"}

# `detail=none`: for each term the rows only; how often and where is read from the texts of the best rows.
# Without `content` and sizes of rows the table holds terms and nothing else.
_TABLES = """
CREATE TABLE messages (first INTEGER PRIMARY KEY, stamp BLOB NOT NULL, sizes BLOB NOT NULL);
CREATE TABLE state (checksum INTEGER NOT NULL);
INSERT INTO state VALUES (0);
CREATE VIRTUAL TABLE terms USING fts5(term, content='', columnsize=0, detail=none, tokenize='ascii');
"""
_CONTENTS = """
SELECT first, CAST(stamp || sizes AS BLOB) FROM messages
UNION ALL SELECT id, block FROM terms_data
UNION ALL SELECT pgno, CAST(segid || term AS BLOB) FROM terms_idx
"""
"""All that the tables hold, those in which FTS5 keeps its terms among them."""


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


class NotAnIndexError(Exception):
    """Report a file that is something else and must not be touched."""


class DamagedError(Exception):
    """Report contents that do not match their checksum."""


def is_damaged(path: Path, error: Exception) -> bool:
    """Tell whether an error is due to bad contents of the file, rather than that it cannot be used.

    Where the error does not tell, as one in a statement does not, the file is read and tried.
    """
    if not isinstance(error, sqlite3.Error):
        return isinstance(error, DamagedError | UnicodeDecodeError)
    if _kind_of(error) in _DAMAGE or _is_of_environment(error):
        return _kind_of(error) in _DAMAGE
    try:
        with closing(Storage(path)) as storage, storage.transaction(write=False):
            storage.read_records()
            storage.rows_with("a")
    except sqlite3.Error as found:
        return not _is_of_environment(found)
    except (DamagedError, UnicodeDecodeError, NotAnIndexError, OSError) as found:
        return isinstance(found, DamagedError | UnicodeDecodeError)
    return False


def _is_of_environment(error: sqlite3.Error) -> bool:
    """Tell whether an error has its cause outside of the file: a lock, a full disk, a SQLite without FTS5."""
    return _kind_of(error) in _ENVIRONMENT or "no such module" in str(error)


def _kind_of(error: sqlite3.Error) -> str:
    """Return SQLite's primary result code: `CORRUPT` of `SQLITE_CORRUPT_VTAB`."""
    name = getattr(error, "sqlite_errorname", None) or "SQLITE_ERROR"
    return str(name).split("_")[1]


class Storage:
    """One open index, in a file or in memory. For one thread at a time.

    Raises:
        NotAnIndexError: the file is something else.
        OSError, sqlite3.Error, DamagedError: it cannot be opened; `is_damaged` tells what to do.
    """

    def __init__(self, path: Path | None) -> None:
        self.rows = Rows()
        """What its user knows of the contents: good as long as a transaction finds them unchanged."""
        self._path = path
        self._inode = None if path is None else _make_file(path)
        self._version: int | None = None  # SQLite's `data_version` as of our last transaction
        self._connection = sqlite3.connect(
            ":memory:" if path is None else path,
            timeout=LOCK_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )
        # A memory need not be closed, and Python tells of connections that were not.
        finalize(self, self._connection.close).atexit = False
        try:
            self._open()
        except BaseException as error:
            self._connection.close()
            if path is not None and isinstance(error, sqlite3.Error) and not _is_of_environment(error):
                _refuse_other(path)
            raise

    def close(self) -> None:
        """Close the file. Closing again is fine."""
        self._connection.close()

    @property
    def is_usable(self) -> bool:
        """Whether a transaction can begin, on the file that is now at the path."""
        return self.is_in_place and not self._connection.in_transaction

    @property
    def is_in_place(self) -> bool:
        """Whether the file is still the one at the path; it may have been deleted or replaced."""
        return self._path is None or self._inode == _inode(self._path)

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator[bool]:
        """Run a transaction; give whether nobody else has written since the last one.

        Another process sees all of it or, when it fails or the process is killed, nothing.
        """
        try:
            self._connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            version: int = self._one("PRAGMA data_version")
            is_unchanged, self._version = version == self._version, None
            yield is_unchanged
            self._connection.execute("COMMIT")
            if write or is_unchanged:
                self._version = version
        except BaseException:
            if self._connection.in_transaction:
                with suppress(sqlite3.Error):  # what failed first is what is told; see `is_usable`
                    self._connection.execute("ROLLBACK")
            raise

    def read_records(self) -> dict[bytes, Record]:
        """Return the records of all messages, by their stamps.

        Raises:
            DamagedError: the contents do not match their checksum.
        """
        if self._one("SELECT checksum FROM state") != self._checksum():
            raise DamagedError("its contents do not match their checksum")
        rows = self._connection.execute("SELECT first, stamp, sizes FROM messages ORDER BY first")
        return {record.stamp: record for record in (Record(*row) for row in rows)}

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
        index itself, read once from end to end, tells them.
        """
        rows = {row for record in records for row in range(record.first, record.end)}
        held: dict[int, list[str]] = {}
        bounds = min(rows), max(rows)
        found = self._connection.execute(
            "SELECT doc, term FROM temp.instances WHERE doc BETWEEN ? AND ?", bounds
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

    def seal(self) -> None:
        """Write the checksum, last in a transaction that writes."""
        # FTS5 holds back what is new; at a savepoint it writes it.
        self._connection.execute("SAVEPOINT written")
        self._connection.execute("RELEASE written")
        self._connection.execute("UPDATE state SET checksum = ?", (self._checksum(),))

    def _open(self) -> None:
        for setting in (
            "temp_store = MEMORY",
            "secure_delete = ON",  # what is deleted is overwritten
            "synchronous = OFF",  # what a power cut spoils, the checksum shows, and it is written anew
            f"page_size = {_PAGE_BYTES}",  # a short history has a small file
            "auto_vacuum = FULL",
        ):
            self._connection.execute(f"PRAGMA {setting}")
        if not self._is_ours():
            with self.transaction(write=True):
                if not self._is_ours():  # another process may have been quicker
                    for statement in _TABLES.strip().split(";\n"):
                        self._connection.execute(statement)
                    self._connection.execute(f"PRAGMA application_id = {APPLICATION}")
                    self._connection.execute(f"PRAGMA user_version = {VERSION}")
                    self.seal()
            self._version = None
        self._connection.execute("CREATE VIRTUAL TABLE temp.instances USING fts5vocab(main, terms, instance)")

    def _is_ours(self) -> bool:
        """Tell whether the file is an index, false when it is empty."""
        tables = self._one("SELECT count(*) FROM sqlite_master")
        application = self._one("PRAGMA application_id")
        if not tables and not application:
            return False
        if application != APPLICATION:
            raise NotAnIndexError(f"{self._path} is a database of something else")
        if self._one("PRAGMA user_version") != VERSION:
            raise DamagedError("it is of another version")
        return True

    def _checksum(self) -> int:
        """Return a checksum of all that is there; some ms for the index of a million tokens."""
        rows = self._connection.execute(_CONTENTS)
        try:
            return reduce(xor, (crc32(content, number) for number, content in rows), 0)
        except TypeError as error:
            raise DamagedError("its tables hold something else") from error

    def _one(self, statement: str) -> int:
        (value,) = self._connection.execute(statement).fetchone() or (None,)
        if not isinstance(value, int):
            raise DamagedError(f"{statement} gives no number")
        return value


def discard_file(path: Path) -> None:
    """Remove an index and what SQLite keeps beside it; other processes notice, and make a new one.

    Raises:
        NotAnIndexError: the file is something else.
        OSError: it cannot be removed.
    """
    _refuse_other(path)
    for name in (path, path.with_name(f"{path.name}-journal")):
        name.unlink(missing_ok=True)


def _make_file(path: Path) -> tuple[int, int]:
    """Make the file when it is not there, for the user alone; return which it is."""
    _refuse_link(path.parent)
    make_directory(path.parent)
    # Whoever closes a file gives up the locks of all connections that this process has to it, so that one
    # that is there is opened by SQLite alone. One shorter than a page is no index, or no more than a header.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600))
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode) or status.st_size < _PAGE_BYTES:
        _refuse_other(path)
    path.chmod(0o600)
    inode = _inode(path)
    if inode is None:
        raise FileNotFoundError(f"{path} was removed as it was made")
    return inode


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _refuse_link(directory: Path) -> None:
    if directory.is_symlink():
        raise NotAnIndexError(f"{directory} is a link, which is not followed")


def _refuse_other(path: Path) -> None:
    """Refuse what is neither an index nor the beginning of one, nor empty or all zeros.

    A link could point to any file of the user's; a named pipe would be waited for, for ever.
    """
    _refuse_link(path.parent)
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            raise NotAnIndexError(f"{path} is no regular file; delete it, or name another file")
        with path.open("rb") as file:
            header = file.read(100)
    except FileNotFoundError:
        return
    is_ours = _SQLITE_MAGIC.startswith(header[:16])
    if len(header) == 100:
        is_ours = header[:16] == _SQLITE_MAGIC and header[68:72] == APPLICATION.to_bytes(4)
    if header.strip(b"\0") and not is_ours:
        raise NotAnIndexError(f"{path} is no index; delete it, or name another file")
