"""`MemoryService`: what all services do over the histories of users' sessions; and one in this process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Self, TypedDict, Unpack

from context_compressor.backends.records import Standing, as_name
from context_compressor.core.edits import name_of
from context_compressor.errors import (
    ConflictError,
    InvalidArgumentError,
    NotStartedError,
    check_number,
    check_options,
)
from context_compressor.memory.base import MemoryBase
from context_compressor.memory.history import Add, Delete, History, Record, SetSummary, Withdraw
from context_compressor.memory.in_memory import InMemoryMemory
from context_compressor.memory.recorded import NOTHING
from context_compressor.messages.msg import Msg
from context_compressor.offload.store import InMemoryOffloadStore, OffloadStore
from context_compressor.services.forms import read_messages, text_of, write_messages
from context_compressor.services.indexes import Indexes

DEFAULT_SESSION = "default"
"""The session of what comes without one, as agentscope-runtime has it."""
_TOP_K, _PAGE_SIZE = 10, 10
"""How many messages a search, and a page, give at most unless told otherwise."""


class IndexOptions(TypedDict, total=False):
    """The keywords of every service that speak of its search index."""

    indexed_messages: int
    idle_seconds: float


class ServiceOptions(IndexOptions, total=False):
    """The keywords of every service; `MemoryService` says what they are."""

    max_messages_per_session: int | None


class MemoryService(ABC):
    """Keep the messages of users' sessions, and find, list and delete them.

    A session is a history: an agent's `CompressedMemory(service.memory(user, session))` stands over the same
    one, and what left its view is found like the rest. Messages are `Msg`, chat dicts, or objects with `role`
    and `content` (pydantic models, or classes with `to_dict` and `from_dict`), and come back as they came. A
    message whose id the session holds already is not added again.

    Args:
        max_messages_per_session: older messages of a session are deleted; None: none are.
        indexed_messages: of how many messages, in all, this process keeps the search index.
        idle_seconds: for how long it keeps that of a user who asks for nothing.
    """

    def __init__(
        self,
        *,
        max_messages_per_session: int | None = None,
        indexed_messages: int = 100_000,
        idle_seconds: float = 3_600,
    ) -> None:
        if max_messages_per_session is not None:
            check_number("max_messages_per_session", max_messages_per_session, 1, is_whole=True)
        check_number("indexed_messages", indexed_messages, 0, is_whole=True)
        check_number("idle_seconds", idle_seconds, 0, is_above=True)
        self._most = max_messages_per_session
        self._index_bounds = indexed_messages, idle_seconds
        self._indexes: Indexes | None = None

    # Life

    async def start(self) -> None:
        """Begin; a service that has started stays as it is."""
        if self._indexes is None:
            await self._begin()
            self._indexes = Indexes(self._look, *self._index_bounds)

    async def stop(self) -> None:
        """End: close what was opened here, and nothing that was given."""
        indexes, self._indexes = self._indexes, None
        if indexes is not None:
            await indexes.close()
            await self._end()

    async def health(self) -> bool:
        """Tell whether the service has started, and what it keeps messages in answers."""
        if self._indexes is None:
            return False
        try:
            await self._check()
        except Exception:
            return False
        return True

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # Messages

    def memory(self, user_id: str, session_id: str | None = None) -> MemoryBase:
        """Return the memory of a session, for an agent or for a `CompressedMemory` as its `base`."""
        self._started()
        return self._open(_user(user_id), _session(session_id))

    def store(self, user_id: str, session_id: str | None = None) -> OffloadStore:
        """Return an offload store for the texts of a session, which are deleted, and end, with it."""
        self._started()
        return self._texts(_user(user_id), _session(session_id))

    async def add_memory(
        self, user_id: str, messages: Sequence[Any] | None, session_id: str | None = None
    ) -> None:
        """Append messages to a session, all or none.

        Raises:
            InvalidArgumentError, InvalidMessageError: an id is no string, or something is no message; nothing
                was added.
            NotStartedError: the service has not started, or has stopped.
        """
        self._started()
        user, session = _user(user_id), _session(session_id)
        added = [Add(msg) for msg in read_messages(messages)]
        if added:
            history = self._open(user, session).history
            await history.write(added)
            await self._trim(history)

    async def _trim(self, history: History) -> None:
        while self._most is not None:
            head = await history.head()
            if head.size <= self._most:
                return
            oldest = await history.read(limit=head.size - self._most)
            try:
                await history.write([Delete([entry.key for entry in oldest])], at=head.number)
            except ConflictError:
                continue

    async def search_memory(
        self, user_id: str, messages: Sequence[Any], filters: Mapping[str, Any] | None = None
    ) -> list[Any]:
        """Return the messages of all sessions of a user that answer a query, best first.

        Args:
            user_id: whose sessions.
            messages: the text of the last one is the query; without one there is none, and nothing is found.
            filters: `top_k`: how many at most, 10 unless told; others are passed over.

        Raises:
            InvalidArgumentError, InvalidMessageError: the user's id is no string, `top_k` is no number from 1
                up, or the last message is none.
            NotStartedError: the service has not started, or has stopped.
        """
        indexes, user = self._started(), _user(user_id)
        top_k = _number(filters, "top_k", _TOP_K)
        if not isinstance(messages, list | tuple) or not messages:
            return []
        query = text_of(read_messages([messages[-1]]))
        if not query:
            return []
        found = await indexes.search(user, query, top_k, partial(self._standings, user, renew=True))
        return [one for msg in found for one in write_messages([msg], messages[-1])]

    async def list_memory(self, user_id: str, filters: Mapping[str, Any] | None = None) -> list[Any]:
        """Return a page of a user's messages: the sessions in the order of their ids, each in its own order.

        Args:
            user_id: whose sessions.
            filters: `page_num` from 1 up, 1 unless told, and `page_size`, 10 unless told; others are passed
                over.

        Raises:
            InvalidArgumentError: the user's id is no string, or a number is none from 1 up.
            NotStartedError: the service has not started, or has stopped.
        """
        self._started()
        user, size = _user(user_id), _number(filters, "page_size", _PAGE_SIZE)
        skipped = (_number(filters, "page_num", 1) - 1) * size
        found: list[Msg] = []
        for standing in sorted(await self._standings(user, renew=True)):
            if skipped >= standing.size:
                skipped -= standing.size
                continue
            wanted = min(skipped + size - len(found), standing.size)
            entries = (await self._look(user, standing.session_id).read(limit=wanted))[skipped:]
            found += [entry.msg.copy() for entry in entries if entry.msg is not None]
            skipped = 0
            if len(found) >= size:
                break
        return write_messages(found)

    async def list_sessions(self, user_id: str) -> list[str]:
        """Return the ids of a user's sessions, sorted.

        Raises:
            InvalidArgumentError: the user's id is no string.
            NotStartedError: the service has not started, or has stopped.
        """
        self._started()
        return sorted(one.session_id for one in await self._standings(_user(user_id)))

    async def delete_memory(self, user_id: str, session_id: str | None = None) -> None:
        """Delete a session, or all of a user's: messages, ledger, texts and what the index has of them.

        Args:
            user_id: whose sessions; an unknown one is fine.
            session_id: of one session; None or "": all.

        Raises:
            InvalidArgumentError: an id is no string.
            NotStartedError: the service has not started, or has stopped.
        """
        indexes, user = self._started(), _user(user_id)
        as_name(session_id, "session_id", "")
        names = [session_id] if session_id else [one.session_id for one in await self._standings(user)]
        for name in names:
            await self._remove(user, name)
        await indexes.forget(user, names if session_id else None)

    def _started(self) -> Indexes:
        if self._indexes is None:
            raise NotStartedError(
                f"the {type(self).__name__} has not started: await service.start(), or async with"
            )
        return self._indexes

    # Where messages are

    async def _begin(self) -> None:  # noqa: B027
        """Open what messages are kept in."""

    async def _end(self) -> None:  # noqa: B027
        """Close it."""

    async def _check(self) -> None:  # noqa: B027
        """Fail where it does not answer."""

    @abstractmethod
    def _open(self, user: str, session: str) -> MemoryBase:
        """Return the memory of a session, which may be new."""

    def _look(self, user: str, session: str) -> History:
        """Return the history of a session that is only read."""
        return self._open(user, session).history

    @abstractmethod
    def _texts(self, user: str, session: str) -> OffloadStore:
        """Return the store of a session's texts."""

    @abstractmethod
    async def _standings(self, user: str, *, renew: bool = False) -> list[Standing]:
        """Return where a user's sessions stand, in any order.

        Args:
            user: whose.
            renew: whether they are used, and so live on.
        """

    @abstractmethod
    async def _remove(self, user: str, session: str) -> None:
        """Remove a session, with all that is its own."""


def _user(user_id: object) -> str:
    if not isinstance(user_id, str):
        raise InvalidArgumentError(f"user_id: expected a string, got {type(user_id).__name__}")
    return user_id


def _session(session_id: object) -> str:
    return as_name(session_id, "session_id", DEFAULT_SESSION) or DEFAULT_SESSION


def _number(filters: object, name: str, default: int) -> int:
    if not (filters is None or isinstance(filters, Mapping)):
        raise InvalidArgumentError(f"filters: expected a dict or None, got {type(filters).__name__}")
    value = (filters or {}).get(name)
    if value is None:
        return default
    check_number(f"filters[{name!r}]", value, 1, is_whole=True)
    return int(value)


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
