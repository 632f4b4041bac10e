"""The sessions of a database or of Redis, seen from outside: which there are, what their ledgers name."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Self

from context_compressor.backends.records import digest
from context_compressor.core.edits import Edit, kept_refs_of
from context_compressor.memory.history import Change, Entry, Head, History
from context_compressor.offload.store import REF_PATTERN

if TYPE_CHECKING:  # their packages may be missing
    from context_compressor.backends.redis.states import RedisStates
    from context_compressor.backends.sql.states import SQLAlchemyStates


class SessionInfo(NamedTuple):
    """A session as a list of all tells of it."""

    user_id: str
    session_id: str
    head: Head
    edits: int
    """Edits of the view that hold."""
    tokens: int | None
    """Of all messages, as they were counted when they came; None: some were not, or that is not looked up."""


class RemovedObject(NamedTuple):
    """Something that was removed or rewritten, without a word of what it said."""

    kind: str
    """"row", "redis key", "text", "file"."""
    where: str
    bytes: int
    action: str = "removed"
    """Or "rewritten": then `bytes`, of a row or a key, is the size of what is gone from it."""


def refs_in_state(state: object) -> set[str]:
    """Return the refs in the state of an adapter's, wherever they stand."""
    return set(REF_PATTERN.findall(json.dumps(state)))


class SessionDirectory(ABC):
    """The sessions of one database, or under one prefix of a Redis."""

    place: str
    """What to call it, without a password."""
    reminders: Sequence[str] = ()
    """What a deletion does not reach, for people."""

    async def infos(self, user_id: str | None = None) -> list[SessionInfo]:
        """Return the sessions, of all users or of one, sorted by user and session."""
        return sorted(one for one in await self._infos() if user_id in (None, one.user_id))

    async def named_refs(
        self, but: tuple[str, str] | None = None, without: Collection[str] = ()
    ) -> list[set[str]]:
        """Return the refs that live ledgers name, a set for each session, and each key of an adapter's, that
        names some; there maybe too many.

        Args:
            but: user and session of one that is left out.
            without: keys of adapters' that are left out.

        Raises:
            InvalidStateError: a ledger cannot be read.
        """
        named = await self._refs(None if but is None else digest(*but))
        states = self.states()
        keys = [key for key in await states.keys() if key not in without]
        kept = [refs_in_state(await states.get(key)) for key in keys]
        return [refs for refs in (*named, *kept) if refs]

    async def restore(self, user_id: str, session_id: str, changes: Sequence[Change]) -> None:
        """Make a session of these changes, all of them or none.

        Raises:
            ConflictError: it exists.
        """
        await self.history(user_id, session_id).write(changes, at=0)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @abstractmethod
    async def check(self, *, may_make: bool = False) -> None:
        """Look whether it can be reached and holds sessions, or may; nothing is made.

        Args:
            may_make: whether tables may be missing, which are made later.

        Raises:
            InvalidArgumentError: it cannot, or is something else.
        """

    @abstractmethod
    async def _infos(self) -> list[SessionInfo]:
        """Return all sessions."""

    @abstractmethod
    async def _refs(self, but: str | None) -> list[set[str]]:
        """Return the refs that live ledgers name, a set for each but that of one session, by its digest."""

    @abstractmethod
    def history(self, user_id: str, session_id: str) -> History:
        """Return the history of a session."""

    @abstractmethod
    def states(self) -> SQLAlchemyStates | RedisStates:
        """Return the states of adapters beside the sessions."""

    @abstractmethod
    def lost(
        self,
        user_id: str,
        session_id: str,
        entries: Iterable[Entry],
        edits: Iterable[Edit],
        *,
        learnt: bool,
    ) -> list[RemovedObject]:
        """Return what a write removed and rewrote that deleted these messages, and let go of these edits;
        `learnt`: and wrote anew what stands beside them.
        """

    @abstractmethod
    async def remove(self, user_id: str, session_id: str) -> list[RemovedObject]:
        """Remove all that is kept of a session, in one step; return what that was."""

    @abstractmethod
    async def close(self) -> None:
        """Close the connections, if they were made here."""


async def named_by(history: History) -> set[str]:
    """Return the refs that a session's ledger names."""
    return {ref for entry in await history.ledger() for edit in entry.edits for ref in kept_refs_of(edit)}
