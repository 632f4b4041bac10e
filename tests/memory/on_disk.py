"""A base memory that keeps nothing in this process: messages in SQLite, as a service would have them."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

from context_compressor import Msg
from context_compressor.memory.base import MemoryBase, as_ids, as_marks, as_messages, summary_message


class SQLiteMemory(MemoryBase):
    """Messages in one file, marks beside them."""

    def __init__(self, file: Path | str = ":memory:") -> None:
        self._database = sqlite3.connect(file, isolation_level=None)
        self._database.execute("PRAGMA synchronous = OFF")
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS messages "
            "(number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT, said TEXT)"
        )
        self._database.execute("CREATE INDEX IF NOT EXISTS by_id ON messages (id)")
        self._database.execute("CREATE TABLE IF NOT EXISTS marks (mark TEXT, number INTEGER)")
        self._revision = 0

    def close(self) -> None:
        self._database.close()

    def _rows(self, statement: str, *values: Any) -> list[Any]:
        return self._database.execute(statement, values).fetchall()

    def _numbers(self, ids: list[str]) -> list[int]:
        return [row[0] for id in ids for row in self._rows("SELECT number FROM messages WHERE id = ?", id)]

    async def add(
        self, memories: Msg | list[Msg] | None, marks: str | list[str] | None = None, **kwargs: Any
    ) -> None:
        messages, names = as_messages(memories), as_marks(marks)
        self._database.execute("BEGIN")
        for msg in messages:
            numbers = [] if kwargs.get("allow_duplicates") else self._numbers([msg.id])
            if not numbers:
                said = json.dumps(msg.to_dict())
                added = self._database.execute(
                    "INSERT INTO messages (id, said) VALUES (?, ?)", (msg.id, said)
                )
                numbers = [added.lastrowid or 0]
            for number in numbers:
                for mark in names:
                    self._mark(number, mark)
        self._database.execute("COMMIT")
        self._revision += 1

    def _mark(self, number: int, mark: str) -> bool:
        if self._rows("SELECT 1 FROM marks WHERE mark = ? AND number = ?", mark, number):
            return False
        self._rows("INSERT INTO marks VALUES (?, ?)", mark, number)
        return True

    def _remove(self, numbers: set[int]) -> int:
        for number in numbers:
            self._rows("DELETE FROM messages WHERE number = ?", number)
            self._rows("DELETE FROM marks WHERE number = ?", number)
        self._revision += bool(numbers)
        return len(numbers)

    async def delete(self, msg_ids: list[str], **kwargs: Any) -> int:
        return self._remove(set(self._numbers(as_ids(msg_ids))))

    async def delete_by_mark(self, mark: str | list[str], *args: Any, **kwargs: Any) -> int:
        names = as_marks(mark, "mark", is_optional=False)
        numbers = {
            row[0] for name in names for row in self._rows("SELECT number FROM marks WHERE mark = ?", name)
        }
        return self._remove(numbers)

    async def size(self) -> int:
        return int(self._rows("SELECT count(*) FROM messages")[0][0])

    async def clear(self) -> None:
        self._rows("DELETE FROM messages")
        self._rows("DELETE FROM marks")
        self._compressed_summary = ""
        self._revision += 1

    async def get_memory(
        self,
        mark: str | None = None,
        exclude_mark: str | None = None,
        prepend_summary: bool = True,
        **kwargs: Any,
    ) -> list[Msg]:
        bearing = "number IN (SELECT number FROM marks WHERE mark = ?)"
        conditions = [(bearing, mark)] * (mark is not None)
        conditions += [(f"NOT {bearing}", exclude_mark)] * (exclude_mark is not None)
        where = " AND ".join(condition for condition, _ in conditions) or "1"
        values = [value for _, value in conditions]
        rows = self._rows(f"SELECT said FROM messages WHERE {where} ORDER BY number", *values)
        found = [Msg.from_dict(json.loads(said)) for (said,) in rows]
        if prepend_summary and self._compressed_summary:
            return [summary_message(self._compressed_summary), *found]
        return found

    async def update_messages_mark(
        self, new_mark: str | None, old_mark: str | None = None, msg_ids: list[str] | None = None
    ) -> int:
        numbers = {row[0] for row in self._rows("SELECT number FROM messages")}
        if msg_ids is not None:
            numbers &= set(self._numbers(msg_ids))
        if old_mark is not None:
            numbers &= {row[0] for row in self._rows("SELECT number FROM marks WHERE mark = ?", old_mark)}
        for number in numbers:
            if old_mark is not None:
                self._rows("DELETE FROM marks WHERE mark = ? AND number = ?", old_mark, number)
            if new_mark is not None:
                self._mark(number, new_mark)
        self._revision += bool(numbers)
        return len(numbers)

    async def update_compressed_summary(self, summary: str) -> None:
        self._compressed_summary = summary
        self._revision += 1

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: the file holds it all."""
        return {}

    def load_state_dict(self, state: dict[str, Any], strict: bool = True) -> None:
        """Take nothing: the file holds it all."""

    def revision(self) -> int:
        return self._revision
