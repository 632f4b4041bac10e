"""A ranked full-text index over the history of a conversation."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from context_compressor.recall.passages import Document, split_passages
from context_compressor.recall.query import Query, read_query
from context_compressor.recall.ranking import Found, Lookup, rank
from context_compressor.recall.rows import KEY_BYTES, Entry, Record, Rows, key_stamp, stamp_of
from context_compressor.recall.storage import DamagedError, NotAnIndexError, Storage, discard_file, is_damage
from context_compressor.recall.terms import TermReader

_LOGGER = logging.getLogger(__name__)

_BATCH = 256
"""Messages whose texts are read at a time."""

_MERGED_FROM = 64
"""Messages added at a time after which the index is merged: a history taken up, rather than a turn."""

ReadTexts = Callable[[Sequence[str]], Iterable[Document]]
"""Returns the texts of messages, by their keys, in any order; nothing for a key without texts."""

_T = TypeVar("_T")


class SearchIndex:
    """Find the passages of a history that answer a query.

    The index holds terms, never texts: what a passage says is read back from the history. It is a cache: a
    file that is damaged, of another version or deleted is written anew, and where no file can be used (no
    right to write, disk full, locked for 5 seconds) an index in memory takes its place, which is logged once.
    Several processes may use one file: each answer is of the history given with its question, for which the
    index is brought in step first, all in one transaction.

    Methods may be called from any thread; one runs at a time.

    Args:
        path: the file, made when it is not there, readable by its user alone; None for memory. A file that
            is something else than an index is left alone.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self._path = None if path is None else Path(path).absolute()
        self._lock = threading.Lock()  # a connection, and what we know of its file, serve one call at a time
        self._storage: Storage | None = None
        self._rows = Rows()
        self._reader = TermReader()

    @property
    def path(self) -> Path | None:
        """The file in use; None when the index is in memory, be it because the file could not be used."""
        return self._path

    def update(self, history: Sequence[Entry], read: ReadTexts) -> None:
        """Bring the index in step with a history: take up what is new, drop what is gone or changed.

        Args:
            history: key and digest of each message, in order.
            read: returns the texts of messages; its errors come through, and leave the index as it was.
        """
        entries = list(history)
        with self._lock:
            self._run(entries, read, lambda _: None)

    def remove(self, keys: Iterable[str]) -> None:
        """Drop messages now, so that their terms are neither found nor in the file."""
        stamps = {key_stamp(key) for key in keys}
        with self._lock:
            if stamps:
                self._with_storage(lambda storage: self._remove(storage, stamps))

    def search(self, query: str, limit: int, history: Sequence[Entry], read: ReadTexts) -> list[Found]:
        """Return the passages of a history that answer a query, best first, at most `limit`.

        Args:
            query: words, names or a question, in any characters; nothing in it is an operator.
            limit: how many passages at most.
            history: key and digest of each message, in order; the index is brought in step with it.
            read: returns the texts of messages; its errors come through.
        """
        entries = list(history)
        with self._lock:
            asked = read_query(query, self._reader)
            if not asked.terms or limit <= 0 or not entries:
                return []
            lookup = self._run(entries, read, lambda storage: self._look_up(storage, asked))
            candidates = lookup.candidates()
            keys = dict.fromkeys(entries[lookup.rows.places[row][0]][0] for row in candidates)
            try:
                documents = _read_documents(read, list(keys))
            except _TextsError as error:
                raise error.cause from None
            return rank(lookup, candidates, documents, self._reader, limit)

    def close(self) -> None:
        """Close the file. A later call opens it again."""
        with self._lock:
            self._close()

    def _look_up(self, storage: Storage, query: Query) -> Lookup:
        postings = [
            {row for one in term.terms for row in storage.rows_with(one, is_beginning=term.is_beginning)}
            for term in query.terms
        ]
        return Lookup(query, self._rows, postings)

    def _run(self, entries: list[Entry], read: ReadTexts, action: Callable[[Storage], _T]) -> _T:
        """Bring the index in step, then act on it in the same transaction."""

        def step(storage: Storage) -> _T:
            with storage.transaction(write=False) as is_unchanged:
                if is_unchanged and entries == self._rows.history:
                    return action(storage)
            with storage.transaction(write=True) as is_unchanged:
                self._sync(storage, entries, read, is_unchanged)
                return action(storage)

        return self._with_storage(step)

    def _sync(self, storage: Storage, entries: list[Entry], read: ReadTexts, is_unchanged: bool) -> None:
        known = len(self._rows.history)
        is_appended = is_unchanged and entries[:known] == self._rows.history
        gone: list[Record] = []
        if is_appended:
            records = self._rows.records
            appended = {stamp_of(entry): entry for entry in entries[known:]}
            new = {stamp: entry for stamp, entry in appended.items() if stamp not in records}
        else:
            records = {record.stamp: record for record in storage.read_records()}
            wanted = {stamp_of(entry): entry for entry in entries}
            gone = [record for stamp, record in records.items() if stamp not in wanted]
            new = {stamp: entry for stamp, entry in wanted.items() if stamp not in records}
        first = self._rows.end if is_appended else max((one.end for one in records.values()), default=1)
        if gone:
            storage.remove(gone)
        added: dict[bytes, Record] = {}
        for stamp, terms in self._read_terms(new, read):
            added[stamp] = record = Record(first, stamp, bytes(min(len(found), 255) for found in terms))
            storage.add(record, terms)
            first = record.end
        if len(added) >= _MERGED_FROM:
            storage.merge()
        if gone or added:
            storage.seal()
        if is_appended:
            for entry in entries[known:]:
                stamp = stamp_of(entry)
                self._rows.append(entry, added.get(stamp) or records[stamp])
        else:
            self._rows = Rows.of(entries, records | added)

    def _read_terms(
        self, new: Mapping[bytes, Entry], read: ReadTexts
    ) -> Iterator[tuple[bytes, list[set[str]]]]:
        """Yield the stamp of each message, and the terms of each of its passages."""
        stamps = list(new)
        for start in range(0, len(stamps), _BATCH):
            batch = stamps[start : start + _BATCH]
            documents = _read_documents(read, [new[stamp][0] for stamp in batch])
            for stamp in batch:
                yield (
                    stamp,
                    [
                        terms
                        for document in documents.get(new[stamp][0], ())
                        for terms in terms_of_document(document, self._reader)
                    ],
                )

    def _remove(self, storage: Storage, stamps: set[bytes]) -> None:
        with storage.transaction(write=True) as is_unchanged:
            records = self._rows.records.values() if is_unchanged else storage.read_records()
            gone = [record for record in records if record.stamp[:KEY_BYTES] in stamps]
            if gone:
                storage.remove(gone)
                storage.seal()
        storage.forget()

    def _with_storage(self, action: Callable[[Storage], _T]) -> _T:
        """Act on the file; where it is damaged on a new one, where it cannot be used on memory."""
        is_anew = False
        while True:
            try:
                return action(self._opened())
            except _TextsError as error:
                raise error.cause from None
            except (sqlite3.Error, OSError, DamagedError, NotAnIndexError) as error:
                self._close()
                if self._path is None:
                    raise
                if is_anew or not is_damage(error) or not _discard(self._path):
                    _LOGGER.warning("search index %s is kept in memory instead: %s", self._path, error)
                    self._path = None
                else:
                    _LOGGER.info("search index %s is written anew: %s", self._path, error)
                    is_anew = True

    def _opened(self) -> Storage:
        if self._storage is not None and not self._storage.is_in_place:
            self._close()
        if self._storage is None:
            self._storage = Storage(self._path)
        return self._storage

    def _close(self) -> None:
        if self._storage is not None:
            self._storage.close()
        self._storage = None
        self._rows = Rows()


class _TextsError(Exception):
    """Carry what the caller's `read` raised past those errors that the file raises."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


def terms_of_document(document: Document, reader: TermReader) -> Iterator[set[str]]:
    """Yield the terms of each passage of a text, the name of its tool among them."""
    tool = reader.terms(document.tool) if document.tool else set()
    for start, end in split_passages(document.text):
        terms = reader.terms(document.text[start:end])
        yield terms | tool if terms else terms


def _read_documents(read: ReadTexts, keys: Sequence[str]) -> dict[str, list[Document]]:
    """Return the texts of messages by key, each message's in order."""
    by_key: dict[str, list[Document]] = {}
    try:
        for document in read(keys):
            by_key.setdefault(document.key, []).append(document)
    except Exception as error:
        raise _TextsError(error) from error
    for documents in by_key.values():
        documents.sort(key=lambda document: document.part)
    return by_key


def _discard(path: Path) -> bool:
    """Remove a damaged file; tell whether that went well."""
    try:
        discard_file(path)
    except OSError:
        return False
    return True
