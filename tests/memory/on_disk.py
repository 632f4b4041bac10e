"""A history that keeps nothing in this process: messages and ledger in SQLite, as a service has them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from context_compressor import Msg
from context_compressor.core.edits import (
    Edit,
    ItemKey,
    SavedEdit,
    edit_to_dict,
    message_id,
    name_of,
)
from context_compressor.errors import ConflictError
from context_compressor.memory.base import MemoryBase
from context_compressor.memory.history import (
    Add,
    Change,
    Delete,
    Entry,
    Head,
    LedgerEntry,
    Mark,
    Record,
    SetSummary,
)
from context_compressor.messages.skeletons import as_message, skeleton_of

_TABLES = """
CREATE TABLE IF NOT EXISTS head (number INTEGER, last_place INTEGER, summary TEXT);
CREATE TABLE IF NOT EXISTS messages
    (key TEXT PRIMARY KEY, id TEXT, place TEXT, changed INTEGER, said TEXT, tokens TEXT, skeleton TEXT,
    added INTEGER);
CREATE INDEX IF NOT EXISTS by_id ON messages (id);
CREATE TABLE IF NOT EXISTS marks (number INTEGER PRIMARY KEY, key TEXT, mark TEXT, UNIQUE (key, mark));
CREATE TABLE IF NOT EXISTS ledger
    (position INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT UNIQUE, number INTEGER, edit TEXT);
CREATE TABLE IF NOT EXISTS learnt (number INTEGER, data TEXT);
"""
"""Keys, ids, marks and names are JSON: SQLite takes no lone surrogates. A message without `said`, or an edit
without `edit`, is gone."""


_EDIT: TypeAdapter[Edit] = TypeAdapter(SavedEdit)


class SQLiteHistory:
    """Messages and ledger in one file; each write is one transaction. Several may have the file open."""

    def __init__(self, file: Path | str = ":memory:") -> None:
        self._database = sqlite3.connect(file, isolation_level=None)
        self._database.execute("PRAGMA synchronous = OFF")
        self._database.executescript(_TABLES)

    def close(self) -> None:
        self._database.close()

    def _rows(self, statement: str, *values: Any) -> list[Any]:
        return self._database.execute(statement, values).fetchall()

    @contextmanager
    def _transaction(self, kind: str) -> Iterator[None]:
        self._database.execute(f"BEGIN {kind}")
        try:
            yield
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")

    def _head(self) -> tuple[int, int, str]:
        found = self._rows("SELECT number, last_place, summary FROM head")
        return (found[0][0], found[0][1], json.loads(found[0][2])) if found else (0, 0, "")

    async def head(self) -> Head:
        with self._transaction("DEFERRED"):
            number, _, summary = self._head()
            [(size,)] = self._rows("SELECT count(*) FROM messages WHERE said IS NOT NULL")
        return Head(number, size, summary)

    async def read(
        self,
        *,
        after: int = 0,
        ids: Collection[str] | None = None,
        mark: str | None = None,
        limit: int | None = None,
    ) -> list[Entry]:
        columns = "SELECT key, place, changed, said, tokens FROM messages"
        with self._transaction("DEFERRED"):
            if ids is None:
                rows = self._rows(f"{columns} WHERE changed > ?", after)
            else:
                wanted = [json.dumps(id) for id in dict.fromkeys(ids)]
                rows = [row for id in wanted for row in self._rows(f"{columns} WHERE id = ?", id)]
            entries = [self._entry(*row) for row in rows if row[2] > after and (after or row[3] is not None)]
        entries = [entry for entry in entries if mark is None or mark in entry.marks]
        return sorted(entries, key=lambda entry: entry.place)[:limit]

    def _entry(self, key: str, place: str, changed: int, said: str | None, tokens: str) -> Entry:
        marks = [
            json.loads(mark)
            for (mark,) in self._rows("SELECT mark FROM marks WHERE key = ? ORDER BY number", key)
        ]
        msg = None if said is None else Msg.from_dict(json.loads(said))
        name, count = json.loads(tokens) or (None, 0)
        counted = None if name is None else (name, count)
        return Entry(Fraction(place), changed, json.loads(key), msg, tuple(marks), counted)

    async def outline(self) -> list[Entry]:
        columns = "SELECT key, place, changed, skeleton, tokens, added FROM messages WHERE said IS NOT NULL"
        with self._transaction("DEFERRED"):
            entries = [
                self._entry(*row, None, tokens)._replace(
                    msg=as_message(message_id(json.loads(row[0])), json.loads(skeleton)), added=added
                )
                for *row, skeleton, tokens, added in self._rows(columns)
            ]
        return sorted(entries, key=lambda entry: entry.place)

    async def write(self, changes: Sequence[Change], *, at: int | None = None) -> int:
        with self._transaction("IMMEDIATE"):
            number, last_place, summary = self._head()
            if at is not None and at != number:
                raise ConflictError(f"the history is at {number}, not at {at}", number=number)
            number += 1
            for change in changes:
                if isinstance(change, Add):
                    last_place += 1
                    self._add(change, number, last_place)
                elif isinstance(change, Delete):
                    self._delete(change.keys, number)
                elif isinstance(change, Mark):
                    self._mark(change.keys, change.add, change.remove, number)
                elif isinstance(change, SetSummary):
                    summary = change.summary
                else:
                    self._write_ledger(change, number)
            self._rows("DELETE FROM head")
            self._rows("INSERT INTO head VALUES (?, ?, ?)", number, last_place, json.dumps(summary))
        return number

    def _add(self, change: Add, number: int, last_place: int) -> None:
        msg, id = change.msg, json.dumps(change.msg.id)
        there = [
            json.loads(key)
            for (key,) in self._rows("SELECT key FROM messages WHERE id = ? AND said IS NOT NULL", id)
        ]
        if there and not change.duplicate:
            for mark in change.marks:
                self._mark(there, mark, None, number)
            return
        key, copy = msg.id, 2
        while key in there or message_id(key) != msg.id:
            key, copy = f"{msg.id}\0{copy}", copy + 1
        place = (
            Fraction(last_place) if change.before is None else self._place_before(change.before, last_place)
        )
        said, skeleton = json.dumps(msg.to_dict()), json.dumps(skeleton_of(msg))
        values = json.dumps(key), id, str(place), number, said, json.dumps(change.tokens), skeleton, number
        self._rows("INSERT OR REPLACE INTO messages VALUES (?, ?, ?, ?, ?, ?, ?, ?)", *values)
        for mark in change.marks:
            self._mark([key], mark, None, number)

    def _place_before(self, key: str, last_place: int) -> Fraction:
        found = self._rows("SELECT place FROM messages WHERE key = ? AND said IS NOT NULL", json.dumps(key))
        if not found:
            return Fraction(last_place)
        follows = Fraction(found[0][0])
        others = [
            Fraction(place) for (place,) in self._rows("SELECT place FROM messages WHERE said IS NOT NULL")
        ]
        return (max((place for place in others if place < follows), default=follows - 2) + follows) / 2

    def _delete(self, keys: Iterable[str], number: int) -> None:
        gone = (
            "UPDATE messages SET said = NULL, skeleton = NULL, tokens = 'null', changed = ? "
            "WHERE key = ? AND said IS NOT NULL"
        )
        for key in map(json.dumps, keys):
            self._rows(gone, number, key)
            self._rows("DELETE FROM marks WHERE key = ?", key)

    def _mark(self, keys: Iterable[str], add: str | None, remove: str | None, number: int) -> None:
        for key in map(json.dumps, keys):
            if not self._rows("SELECT 1 FROM messages WHERE key = ? AND said IS NOT NULL", key):
                continue
            before = self._rows("SELECT mark FROM marks WHERE key = ? ORDER BY number", key)
            if remove is not None and remove != add:
                self._rows("DELETE FROM marks WHERE key = ? AND mark = ?", key, json.dumps(remove))
            if add is not None:
                self._rows("INSERT OR IGNORE INTO marks (key, mark) VALUES (?, ?)", key, json.dumps(add))
            if before != self._rows("SELECT mark FROM marks WHERE key = ? ORDER BY number", key):
                self._rows("UPDATE messages SET changed = ? WHERE key = ?", number, key)

    def _write_ledger(self, change: Any, number: int) -> None:
        insert = "INSERT OR REPLACE INTO ledger (name, number, edit) VALUES (?, ?, ?)"
        if isinstance(change, Record):
            for edit in change.edits:
                self._rows(insert, json.dumps(name_of(edit)), number, json.dumps(edit_to_dict(edit)))
            if change.learnt:
                self._rows("DELETE FROM learnt")
                self._rows("INSERT INTO learnt VALUES (?, ?)", number, json.dumps(dict(change.learnt)))
            return
        for name in map(json.dumps, change.names):
            if self._rows("SELECT 1 FROM ledger WHERE name = ? AND edit IS NOT NULL", name):
                self._rows(insert, name, number, None)

    async def ledger(self, *, after: int = 0) -> list[LedgerEntry]:
        edits: dict[int, list[Any]] = {}
        withdrawn: dict[int, list[Any]] = {}
        with self._transaction("DEFERRED"):
            learnt = {number: json.loads(data) for number, data in self._rows("SELECT * FROM learnt")}
            rows = self._rows("SELECT name, number, edit FROM ledger ORDER BY position")
        for name, number, edit in rows:
            if edit is not None:
                edits.setdefault(number, []).append(_EDIT.validate_json(edit))
            elif after:
                item, path = json.loads(name)
                withdrawn.setdefault(number, []).append((ItemKey(*item), tuple(path)))
        return [
            LedgerEntry(number, edits.get(number, ()), withdrawn.get(number, ()), learnt.get(number))
            for number in sorted({*edits, *withdrawn, *learnt})
            if number > after
        ]


class SQLiteMemory(MemoryBase):
    """A memory over such a history."""

    def __init__(self, file: Path | str = ":memory:") -> None:
        super().__init__(SQLiteHistory(file))

    def close(self) -> None:
        assert isinstance(self.history, SQLiteHistory)
        self.history.close()

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: the file holds it all."""
        return {}

    def load_state_dict(self, state: dict[str, Any], strict: bool = True) -> None:
        """Take nothing: the file holds it all."""
