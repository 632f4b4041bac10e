"""A history that keeps nothing in this process: what was written lies in a file, as a service has it."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from context_compressor.core.edits import message_id
from context_compressor.memory.base import MemoryBase
from context_compressor.memory.history import Change, Entry, Head, LedgerEntry, ListHistory
from context_compressor.messages.skeletons import as_message, skeleton_of


class FileHistory:
    """A `ListHistory` that is read from its file for each call; several may have the file open.

    Without a file it is bytes in this process, and what it gives is made anew all the same.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._bytes = b""

    def _held(self) -> tuple[ListHistory, dict[Any, int]]:
        """Return the history, and which write added the message at each place."""
        is_there = self._file is not None and self._file.exists()
        data = self._file.read_bytes() if self._file is not None and is_there else self._bytes
        return pickle.loads(data) if data else (ListHistory(), {})

    async def head(self) -> Head:
        return await self._held()[0].head()

    async def read(self, **which: Any) -> list[Entry]:
        return await self._held()[0].read(**which)

    async def outline(self) -> list[Entry]:
        history, added = self._held()
        return [
            entry._replace(
                msg=as_message(message_id(entry.key), skeleton_of(entry.msg)), added=added[entry.place]
            )
            for entry in await history.read()
            if entry.msg is not None
        ]

    async def write(self, changes: Sequence[Change], *, at: int | None = None) -> int:
        history, added = self._held()
        number = await history.write(changes, at=at)
        added = {entry.place: added.get(entry.place, number) for entry in history.entries()}
        data = pickle.dumps((history, added))
        if self._file is None:
            self._bytes = data
        else:
            self._file.write_bytes(data)
        return number

    async def ledger(self, *, after: int = 0) -> list[LedgerEntry]:
        return await self._held()[0].ledger(after=after)


class FileMemory(MemoryBase):
    """A memory over such a history."""

    def __init__(self, file: Path | None = None) -> None:
        super().__init__(FileHistory(file))

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: the file holds it all."""
        return {}

    def load_state_dict(self, state: dict[str, Any], strict: bool = True) -> None:
        """Take nothing: the file holds it all."""
