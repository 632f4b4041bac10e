"""`InMemoryMemoryService`: sessions in this process, gone when the service stops."""

from __future__ import annotations

from typing import Unpack

from context_compressor.backends.records import Standing
from context_compressor.core.edits import name_of
from context_compressor.errors import check_options
from context_compressor.memory.history import Delete, Record, SetSummary, Withdraw
from context_compressor.memory.in_memory import InMemoryMemory
from context_compressor.memory.recorded import NOTHING
from context_compressor.offload.store import InMemoryOffloadStore
from context_compressor.services.base import MemoryService, ServiceOptions


class InMemoryMemoryService(MemoryService):
    """Keep sessions in this process; `stop` lets go of all of them."""

    def __init__(self, **options: Unpack[ServiceOptions]) -> None:
        check_options(options, ServiceOptions)
        super().__init__(**options)
        self._users: dict[str, dict[str, InMemoryMemory]] = {}
        self._stores: dict[tuple[str, str], InMemoryOffloadStore] = {}

    async def _end(self) -> None:
        self._users, self._stores = {}, {}

    def _open(self, user: str, session: str) -> InMemoryMemory:
        sessions = self._users.setdefault(user, {})
        return sessions.setdefault(session, InMemoryMemory())

    def _texts(self, user: str, session: str) -> InMemoryOffloadStore:
        return self._stores.setdefault((user, session), InMemoryOffloadStore())

    async def _standings(self, user: str, *, renew: bool = False) -> list[Standing]:  # noqa: ARG002
        heads = [(name, await one.history.head()) for name, one in self._users.get(user, {}).items()]
        return [Standing(name, head.number, head.size) for name, head in heads if head.size or head.summary]

    async def _remove(self, user: str, session: str) -> None:
        # Whoever holds the memory of the session goes on with it, empty as it is now.
        memory = self._users.get(user, {}).get(session)
        if memory is not None:
            history = memory.history
            entries, edits = await history.read(), await history.ledger()
            names = [name_of(edit) for entry in edits for edit in entry.edits]
            await history.write(
                [Delete([e.key for e in entries]), SetSummary(""), Withdraw(names), Record((), NOTHING)]
            )
        store = self._stores.get((user, session))
        if store is not None:
            for ref in await store.refs():
                await store.delete(ref)
