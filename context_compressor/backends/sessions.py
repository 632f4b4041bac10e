"""The sessions of a database or of Redis, seen from outside: which there are, what their ledgers name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

from context_compressor.backends.records import DEFAULT_SESSION, DEFAULT_USER
from context_compressor.errors import InvalidArgumentError, InvalidStateError
from context_compressor.memory.history import Change, Head, History
from context_compressor.offload.store import REF_PATTERN

_DRIVERS = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg", "mysql": "mysql+asyncmy"}
"""The drivers for URLs that name none."""
SQL_SCHEMES = ("sqlite", "postgresql", "postgres", "mysql", "mariadb")
REDIS_SCHEMES = ("redis", "rediss", "unix")


def scheme_of(url: str) -> str:
    """Return the scheme of a URL without a driver, "" where it has none."""
    scheme, mark, _ = url.partition("://")
    return scheme.partition("+")[0] if mark else ""


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
    """Or "rewritten"."""


class StoredObject(NamedTuple):
    """Something that is kept of a session."""

    kind: str
    bytes: int
    digest: str
    """Of what it says: tells whether it was rewritten."""


class SessionDirectory(ABC):
    """The sessions of one database, or under one prefix of a Redis."""

    place: str
    """What to call it, without a password."""
    reminders: Sequence[str] = ()
    """What a deletion does not reach, for people."""

    @abstractmethod
    async def check(self, *, may_make: bool = False) -> None:
        """Look whether it can be reached and holds sessions, or may; nothing is made.

        Args:
            may_make: whether tables may be missing, which are made later.

        Raises:
            InvalidArgumentError: it cannot, or is something else.
        """

    @abstractmethod
    async def infos(self, user_id: str | None = None) -> list[SessionInfo]:
        """Return the sessions, of all users or of one, sorted by user and session."""

    @abstractmethod
    def history(self, user_id: str, session_id: str) -> History:
        """Return the history of a session."""

    @abstractmethod
    async def named_refs(self, but: tuple[str, str] | None = None) -> list[set[str]]:
        """Return the refs that live ledgers name, a set for each session that names some.

        Args:
            but: user and session of one that is left out.

        Raises:
            InvalidStateError: a ledger cannot be read.
        """

    @abstractmethod
    async def restore(self, user_id: str, session_id: str, changes: Sequence[Change]) -> None:
        """Make a session of these changes: all of them or none.

        Raises:
            ConflictError: it exists.
        """

    @abstractmethod
    async def objects(self, user_id: str, session_id: str) -> dict[str, StoredObject]:
        """Return all that is kept of a session, by where it lies."""

    @abstractmethod
    async def remove(self, user_id: str, session_id: str) -> list[RemovedObject]:
        """Remove all that is kept of a session, in one step; return what that was."""

    @abstractmethod
    async def close(self) -> None:
        """Close the connections, if they were made here."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


def with_driver(url: str) -> str:
    """Return a URL of SQLAlchemy's with a driver for asyncio where it names none."""
    scheme, mark, rest = url.partition("://")
    scheme = {"postgres": "postgresql", "mariadb": "mysql"}.get(scheme, scheme)
    return f"{_DRIVERS.get(scheme, scheme)}{mark}{rest}"


def one_session(
    found: Sequence[SessionInfo], user_id: str | None, session_id: str | None
) -> SessionInfo | None:
    """Return the session that is meant: where no user is given, the default one's, or else the only one's
    of that name.

    Raises:
        InvalidArgumentError: several users have one of that name.
    """
    wanted = DEFAULT_SESSION if session_id is None else session_id
    named = [one for one in found if one.session_id == wanted and user_id in (None, one.user_id)]
    if len(named) > 1:
        named = [one for one in named if one.user_id == DEFAULT_USER] or named
    if len(named) > 1:
        users = ", ".join(repr(one.user_id) for one in named[:5])
        raise InvalidArgumentError(
            f"several users have a session {wanted!r} ({users}): say whose with --user"
        )
    return named[0] if named else None


def refs_in(edits: Iterable[Any]) -> Iterator[str]:
    """Yield what edits of a ledger name in the store, given as `edit_to_dict` wrote them.

    Raises:
        InvalidStateError: one of them is no edit: then nobody can tell what it names.
    """
    for edit in edits:
        if not isinstance(edit, Mapping):
            raise InvalidStateError(f"a ledger holds what is no edit: {edit!r:.100}")
        own = edit.get("words_ref")
        for ref in (edit.get("ref"), *edit.get("media_refs", ()), *(() if own is None else (own,))):
            if not isinstance(ref, str) or not REF_PATTERN.fullmatch(ref):
                raise InvalidStateError(f"a ledger names {ref!r:.100}, which is no ref")
            yield ref
