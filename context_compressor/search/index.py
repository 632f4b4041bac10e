"""A ranked full-text index over the history of a conversation."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from context_compressor.search.hits import Document, Found, split_passages
from context_compressor.search.query import Query, read_query
from context_compressor.search.ranking import Lookup, rank
from context_compressor.search.storage import (
    KEY_BYTES,
    Entry,
    NotAnIndexError,
    Record,
    Rows,
    Storage,
    discard_file,
    identity_of,
    key_stamp,
    read_file,
    stamp_of,
    write_file,
)
from context_compressor.search.terms import TermReader, readings

logger = logging.getLogger(__name__)

_BATCH = 256
"""Messages whose texts are read at a time."""

_MERGED_FROM = 64
"""Messages added at a time after which the index is merged: a history taken up, rather than a turn."""

ReadTexts = Callable[[Sequence[str]], Iterable[Document]]
"""Returns the texts of messages, by their keys, in any order.

For a message without texts it returns one empty text; a message of which nothing is returned counts as gone
for now, is asked for again by the next call, and is found once it is there.
"""


class SearchIndex:
    """Find the passages of a history that answer a query.

    The index holds terms, never texts: what a passage says is read back from the history. It works in memory
    and is written to the file, as a whole, whenever it has changed. That is a cache: one that is damaged, of
    another version or deleted is written anew. While it cannot be used (no right to write, disk full) the
    memory serves alone, which is logged once, and the file is tried again by each call. Several processes may
    use one file: each answer is of the history given with its question, and what others wrote is read before.

    Threads: every method may be called from any thread of the process that made the index, and from several
    at once; a process forked from it makes its own. Calls run one after another: each waits, without limit,
    until those before it have returned, `close`, `remove` and `clear` too. `read` is called in the thread of
    the call that it was given with, while all others wait, so it must not call the index, nor wait for
    somebody who does. It may end its call at any moment: whatever it raises, be it no `Exception`, comes
    through as it is, what the call has written is taken back, and the next call runs.

    Args:
        path: the file, made when it is not there, readable by its user alone; None for memory. A file that
            is something else than an index is left alone.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self._path = None if path is None else Path(path).absolute()
        self._lock = threading.Lock()  # a connection, and what we know of its file, serve one call at a time
        self._storage: Storage | None = None
        self._identity: tuple[int, int, int] | None = None  # of the file as we read or wrote it
        self._is_saved = False  # whether the file has what we have
        self._is_usable = True  # the file, as far as we know
        self._is_warned = False
        self._reader = TermReader()

    @property
    def path(self) -> Path | None:
        """The file in use; None while the index is in memory, be it because the file cannot be used."""
        return self._path if self._is_usable else None

    def update(self, history: Sequence[Entry], read: ReadTexts) -> None:
        """Bring the index in step with a history: take up what is new, drop what is gone or changed.

        Args:
            history: key and digest of each message, in order.
            read: returns the texts of messages; its errors come through, and leave the index as it was.
        """
        entries = list(history)
        with self._lock:
            self._follow(entries, read)

    def remove(self, keys: Iterable[str]) -> int:
        """Drop messages now, so that their terms are neither found nor in the file or in memory.

        Return how many there were.

        A file that cannot be written is deleted instead; where neither can be done, a warning is logged, and
        the first call that can use the file drops what its history does not hold.
        """
        stamps = {key_stamp(key) for key in keys}
        with self._lock:
            return self._erase(stamps.__contains__)

    def keep(self, keys: Iterable[str]) -> int:
        """Drop all messages but these now, as `remove` does: a process that died may have left some."""
        stamps = {key_stamp(key) for key in keys}
        with self._lock:
            return self._erase(lambda stamp: stamp not in stamps)

    def clear(self) -> int:
        """Drop everything now: delete the file, and forget what is in memory. A later call begins anew.

        A file that cannot be deleted is emptied; where neither can be done, a warning is logged.
        """
        with self._lock:
            self._close()
            if self._path is None:
                return 0
            try:
                discard_file(self._path)
            except NotAnIndexError:
                pass
            except OSError:  # on Windows nothing can be deleted that another process has open
                return self._erase(lambda _: True)
            return 0

    def search(
        self,
        query: str,
        limit: int,
        history: Sequence[Entry],
        read: ReadTexts,
        *,
        among: Container[str] | None = None,
        role: str | None = None,
        last: Callable[[Document], bool] = lambda _: False,
    ) -> list[Found]:
        """Return the passages of a history that answer a query, best first, at most `limit`.

        Args:
            query: words, names or a question, in any characters; nothing in it is an operator.
            limit: how many passages at most.
            history: key and digest of each message, in order; the index is brought in step with it.
            read: returns the texts of messages; its errors come through.
            among: keys of the messages that may answer; None for all.
            role: of the texts that may answer; None for all.
            last: tells which come behind all others; none.
        """
        entries = list(history)
        with self._lock:
            asked = read_query(query, self._reader)
            if not asked.terms or limit <= 0 or not entries:
                return []
            lookup = _look_up(self._follow(entries, read), asked)

            def read_rows(rows: Sequence[int]) -> Mapping[str, Sequence[Document]]:
                places = lookup.rows.places
                return _read(read, list(dict.fromkeys(entries[places[row][0]][0] for row in rows)))

            return rank(lookup, read_rows, self._reader, limit, among, role, last)

    def close(self) -> None:
        """Give the memory back, and forget every word read. A later call begins with the file."""
        with self._lock:
            self._close()

    def _follow(self, entries: list[Entry], read: ReadTexts) -> Storage:
        """Return the index, in step with a history."""
        storage = self._open()
        rows = storage.rows
        is_changed = not (rows.is_complete and entries == rows.history)
        if is_changed:
            with storage.transaction():
                is_changed = self._sync(storage, entries, read)
        if is_changed or not self._is_saved:
            self._save(storage)
        return storage

    def _open(self) -> Storage:
        """Return the index, from the file where another process wrote that or removed it."""
        image: bytes | None = None
        is_other = self._storage is None
        if self._path is not None:
            try:
                identity = identity_of(self._path)
                if is_other or identity != self._identity:
                    self._identity = identity
                    image, is_other = read_file(self._path), True
                    self._is_usable = True
            except (OSError, NotAnIndexError) as error:
                self._warn(error)
        if self._storage is None or is_other:
            self._close_storage()
            self._storage, self._is_saved = _read_image(image), image is not None
        return self._storage

    def _save(self, storage: Storage, *, is_erased: bool = False) -> None:
        """Write the file; not over what others wrote meanwhile, unless what is erased must not stay there."""
        if self._path is None:
            return
        self._is_saved = False
        try:
            if is_erased or identity_of(self._path) == self._identity:
                write_file(self._path, storage.image())
                self._identity, self._is_saved, self._is_usable = identity_of(self._path), True, True
        except (OSError, NotAnIndexError) as error:
            self._warn(error)

    def _warn(self, error: Exception) -> None:
        self._is_usable = False
        if not self._is_warned:
            logger.warning("search index %s is kept in memory for now: %s", self._path, error)
        self._is_warned = True

    def _sync(self, storage: Storage, entries: list[Entry], read: ReadTexts) -> bool:
        """Bring what is stored in step with a history; tell whether that changed it."""
        rows = storage.rows
        known = len(rows.history)
        is_appended = rows.is_complete and entries[:known] == rows.history
        wanted = {stamp_of(entry): entry for entry in (entries[known:] if is_appended else entries)}
        records = rows.records
        gone = [] if is_appended else [one for stamp, one in records.items() if stamp not in wanted]
        new = {stamp: entry for stamp, entry in wanted.items() if stamp not in records}
        first = rows.end if is_appended else max((one.end for one in records.values()), default=1)
        if gone:
            self._reader.clear()
            storage.remove(gone)
        added = self._add(storage, new, read, first)
        if len(added) >= _MERGED_FROM:
            storage.merge()
        if is_appended:
            for entry in entries[known:]:
                stamp = stamp_of(entry)
                rows.append(entry, added.get(stamp) or records.get(stamp))
        else:
            storage.rows = Rows.of(entries, records | added)
        return bool(gone or added)

    def _add(
        self, storage: Storage, new: Mapping[bytes, Entry], read: ReadTexts, first: int
    ) -> dict[bytes, Record]:
        """Take up messages, by stamp, in rows from `first` on; return the records of those that are there."""
        added: dict[bytes, Record] = {}
        stamps = list(new)
        for start in range(0, len(stamps), _BATCH):
            batch = stamps[start : start + _BATCH]
            documents = _read(read, [new[stamp][0] for stamp in batch])
            for stamp in batch:
                found = documents.get(new[stamp][0])
                if found is None:
                    continue  # deleted meanwhile, it may come back, and has no record or none would be read
                terms = [one for document in found for one in terms_of_document(document, self._reader)]
                added[stamp] = record = Record(first, stamp, bytes(min(len(one), 255) for one in terms))
                storage.add(record, terms)
                first = record.end
        return added

    def _erase(self, is_gone: Callable[[bytes], bool]) -> int:
        """Take messages out of memory and file, by the stamps of their keys; delete a file that refuses."""
        self._reader.clear()
        erased = 0
        try:
            if self._storage is None and (self._path is None or identity_of(self._path) is None):
                return 0
            storage = self._open()
            with storage.transaction():
                erased = _remove(storage, is_gone)
            if erased or not self._is_saved:
                self._save(storage, is_erased=True)
            if self._path is not None and not self._is_saved:
                discard_file(self._path)
                self._identity = None
        except NotAnIndexError:
            pass
        except OSError as error:
            logger.warning("search index %s may still hold deleted words: %s", self._path, error)
        return erased

    def _close(self) -> None:
        self._close_storage()
        self._reader.clear()
        self._is_usable = True

    def _close_storage(self) -> None:
        if self._storage is not None:
            self._storage.close()
        self._storage = None


def _read_image(image: bytes | None) -> Storage:
    """Return the index in an image, an empty one where this SQLite cannot read what another one wrote."""
    try:
        return Storage(image)
    except (sqlite3.Error, UnicodeDecodeError):
        if image is None:
            raise
        return Storage()


def _look_up(storage: Storage, query: Query) -> Lookup:
    postings = [
        {row for one in term.terms for row in storage.rows_with(one, is_beginning=term.is_beginning)}
        for term in query.terms
    ]
    return Lookup(query, storage.rows, postings)


def _remove(storage: Storage, is_gone: Callable[[bytes], bool]) -> int:
    known = storage.rows.records
    gone = {stamp: record for stamp, record in known.items() if is_gone(stamp[:KEY_BYTES])}
    if gone:
        storage.remove(gone.values())
        left = {stamp: record for stamp, record in known.items() if stamp not in gone}
        storage.rows = Rows(records=left, is_complete=False)
    return len(gone)


def _read(read: ReadTexts, keys: Sequence[str]) -> dict[str, list[Document]]:
    """Return the texts of messages by key, each message's in order."""
    by_key: dict[str, list[Document]] = {}
    for document in read(keys):
        by_key.setdefault(document.key, []).append(document)
    for documents in by_key.values():
        documents.sort(key=lambda document: document.part)
    return by_key


def terms_of_document(document: Document, reader: TermReader) -> Iterator[set[str]]:
    """Yield the terms of each passage of a text, the name of its tool among them."""
    tool = reader.terms(document.tool) if document.tool else set()
    for start, end in split_passages(document.text):
        terms: set[str] = set()
        for said, _ in readings(document.text[start:end]):
            terms |= reader.terms(said)
        yield terms | tool if terms else terms
