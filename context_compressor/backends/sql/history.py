"""`SQLAlchemyMemory`: history and ledger in SQLite, PostgreSQL, MySQL or MariaDB, by SQLAlchemy 2."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from functools import cache
from typing import Any, Self, TypeVar

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from context_compressor.backends.batch import check
from context_compressor.backends.records import (
    DEFAULT_SESSION,
    DEFAULT_USER,
    Standing,
    as_name,
    digest,
    from_bytes,
    from_tokens,
    place_of,
    to_bytes,
    to_edit,
    to_message,
    to_name,
    unpack,
)
from context_compressor.backends.sql.engines import (
    abandoned_seconds,
    dispose,
    engine_for,
    engine_of,
    hiding_parameters,
    in_transaction,
    make_tables,
    thoroughly,
)
from context_compressor.backends.sql.tables import (
    OF_SESSIONS,
    leases,
    ledger,
    marks,
    messages,
    sessions,
    texts,
)
from context_compressor.backends.sql.write import Again, Write, in_parts
from context_compressor.core.edits import message_id
from context_compressor.errors import InvalidArgumentError
from context_compressor.memory.base import MemoryBase
from context_compressor.memory.history import (
    Change,
    Delete,
    Entry,
    Head,
    LedgerEntry,
    SetSummary,
    Withdraw,
    WriteNumber,
    ledger_entries,
)
from context_compressor.memory.loops import to_its_end
from context_compressor.messages.skeletons import as_message

T = TypeVar("T")


def _rows(table: sa.Table, names: str, order: str = "") -> sa.Select[Any]:
    """Return what reads a session's rows; made once, for that takes longer than reading some of them."""
    wanted = sa.select(*(table.c[name] for name in names.split()))
    ordered = wanted.order_by(*(table.c[name] for name in order.split()))
    return ordered.where(table.c.session == sa.bindparam("of_session"))


_HEAD = _rows(sessions, "number writes size summary")
_LEARNT = _rows(sessions, "learnt_number learnt")
_LEDGER = _rows(ledger, "number name edit", "number position")
_MESSAGES = _rows(messages, "place fraction changed key msg marks tokens", "place fraction")
_THERE = _MESSAGES.where(messages.c.msg.is_not(None))
_OUTLINE = _rows(messages, "place fraction changed key skeleton marks tokens added", "place fraction").where(
    messages.c.msg.is_not(None)
)
_BEARING = _rows(marks, "key_digest")


class SQLAlchemyMemory(MemoryBase):
    """Keep a session's messages, marks, summary and ledger in a database.

    Several processes may use one session at the same time. Tables are made at the first use.

    Args:
        engine_or_session: a URL, such as "sqlite+aiosqlite:///memory.db" or "postgresql+asyncpg://...", whose
            engine is closed by `close`; an `AsyncEngine`, which stays the caller's, for any number of
            memories; or an `AsyncSession`: then what is written is part of its transaction, and the caller
            commits it. What he rolls back has not been.
        session_id: names the session; "default_session" when None.
        user_id: whose it is; "default_user" when None. Users never see each other's sessions.

    Raises:
        InvalidArgumentError: none of those.
    """

    def __init__(
        self,
        engine_or_session: AsyncEngine | AsyncSession | str,
        *,
        session_id: str | None = None,
        user_id: str | None = None,
    ) -> None:
        super().__init__(SQLAlchemyHistory(engine_or_session, session_id=session_id, user_id=user_id))

    @property
    def history(self) -> SQLAlchemyHistory:
        """Where the messages live."""
        assert isinstance(self._history, SQLAlchemyHistory)
        return self._history

    async def close(self) -> None:
        """Close the engine, if it was made here; nothing that was given."""
        await self.history.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


AsyncSQLAlchemyMemory = SQLAlchemyMemory
"""The name that AgentScope has for it."""


class SQLAlchemyHistory:
    """A session's history in a database; `SQLAlchemyMemory` tells of the arguments."""

    def __init__(
        self,
        engine_or_session: AsyncEngine | AsyncSession | str,
        *,
        session_id: str | None = None,
        user_id: str | None = None,
    ) -> None:
        user = as_name(user_id, "user_id", DEFAULT_USER)
        self.session_id = name = as_name(session_id, "session_id", DEFAULT_SESSION)
        self._session = digest(user, name)
        self._of_session = {"of_session": self._session}
        self._row: dict[str, Any] = {"session": self._session, "user_digest": digest(user)}
        self._row |= {"user_id": to_bytes(user), "session_id": to_bytes(name)}
        self._own: AsyncEngine | None = None
        self._within: AsyncSession | None = None
        if isinstance(engine_or_session, str):
            self._own = self._engine = engine_for(engine_or_session)
        elif isinstance(engine_or_session, AsyncSession):
            self._within = engine_or_session
            self._engine = engine_of(engine_or_session)
            self._shift, self._told, self._was_rolled_back = 0, 0, False
            event.listen(engine_or_session.sync_session, "after_soft_rollback", self._rolled_back)
        elif isinstance(engine_or_session, AsyncEngine):
            self._engine = engine_or_session
        else:
            raise InvalidArgumentError(
                "engine_or_session: expected a URL, an AsyncEngine or an AsyncSession, got "
                f"{type(engine_or_session).__name__}"
            )

    # The four verbs

    async def head(self) -> Head:
        """Return where the history stands."""

        def look(connection: sa.Connection) -> Head:
            found = connection.execute(_HEAD, self._of_session).one_or_none()
            if found is None:
                return Head(0, 0, "")
            return Head(WriteNumber(found[0], found[1] or ""), found[2], from_bytes(found[3]))

        return self._outward(await self._run(look))

    async def read(
        self,
        *,
        after: int = 0,
        ids: Collection[str] | None = None,
        mark: str | None = None,
        limit: int | None = None,
    ) -> list[Entry]:
        """Return messages as `History.read` does."""
        after = self._inward(after)
        columns = messages.c
        wanted = _MESSAGES.where(columns.changed > after) if after else _THERE
        if mark is not None:
            bearing = _BEARING.where(marks.c.mark_digest == digest(mark))
            wanted = wanted.where(columns.key_digest.in_(bearing))

        if ids is None:
            parts = [wanted.limit(limit)]
        else:  # SQLite would look at all messages in their order for these
            some = in_parts(dict.fromkeys(map(digest, ids)))
            parts = [wanted.where(columns.id_digest.in_(part)).order_by(None) for part in some]

        def look(connection: sa.Connection) -> list[sa.Row[Any]]:
            return [row for part in parts for row in connection.execute(part, self._of_session)]

        rows = await self._run(look)
        entries = list(map(_Told(self._shift_now).entry, rows))
        return entries if ids is None else sorted(entries, key=lambda entry: entry.place)[:limit]

    async def outline(self) -> list[Entry]:
        """Return every message as `Outlines.outline` does."""
        rows = await self._run(lambda connection: connection.execute(_OUTLINE, self._of_session).all())
        return list(map(_Told(self._shift_now).outlined, rows))

    async def write(self, changes: Sequence[Change], *, at: int | None = None) -> int:
        """Make changes as `History.write` does, in one transaction."""
        check(changes)
        inner = None if at is None else self._inward(at, exactly=True)

        def make(connection: sa.Connection) -> WriteNumber:
            return Write(connection, self._row, inner).make(changes)

        removes = any(isinstance(change, Delete | Withdraw | SetSummary) for change in changes)
        number = await self._run(make, is_write=True, removes=removes)
        return self._outward(Head(number, 0, "")).number

    async def ledger(self, *, after: int = 0) -> list[LedgerEntry]:
        """Return edits as `History.ledger` does."""
        after = self._inward(after)
        wanted = _LEDGER.where(ledger.c.number > after if after else ledger.c.edit.is_not(None))

        def look(connection: sa.Connection) -> list[LedgerEntry]:
            learnt, found = None, connection.execute(_LEARNT, self._of_session).one_or_none()
            if found is not None and found[1] is not None and found[0] > after:
                learnt = found[0], unpack(found[1])
            rows = connection.execute(wanted, self._of_session).all()
            return ledger_entries(
                ((number, to_edit(unpack(edit))) for number, _, edit in rows if edit is not None),
                ((number, to_name(unpack(name))) for number, name, edit in rows if edit is None),
                learnt,
            )

        found = await self._run(look)
        return [entry._replace(number=entry.number + self._shift_now) for entry in found]

    async def claim(self, name: str, holder: str, seconds: float) -> bool:
        """Claim something as `Leases.claim` does, by the database's clock.

        In a transaction of the caller's whatever is claimed is granted: others see nothing of it before the
        caller commits.
        """
        if self._within is not None:
            return True
        asked = self._session, name, holder, seconds
        return await self._run(lambda connection: _claim(connection, *asked), is_write=True)

    async def close(self) -> None:
        """Close the engine, if it was made here."""
        if self._own is not None:
            await dispose(self._own)

    # Connections

    async def _run(
        self, work: Callable[[sa.Connection], T], *, is_write: bool = False, removes: bool = False
    ) -> T:
        """Run statements on a connection: in a transaction of their own, or in the caller's."""
        await make_tables(self._engine)
        if self._within is not None:
            # A cancelled caller ends the transaction; no statement may be under way then.
            with hiding_parameters():
                return await to_its_end(
                    lambda _: self._run_within(work, is_write),
                    most_seconds=abandoned_seconds(self._engine),
                    waits=True,
                )
        return await in_transaction(self._engine, work, is_write=is_write, removes=removes)

    async def _run_within(self, work: Callable[[sa.Connection], T], is_write: bool) -> T:
        within = self._within
        assert within is not None
        if not is_write:
            return await within.run_sync(lambda session: work(session.connection()))
        if self._engine.dialect.name == "sqlite":
            # Its driver begins a transaction with the first change, and a savepoint without one commits.
            await within.execute(sa.update(sessions).where(sa.false()).values(number=0))
        async with within.begin_nested():
            return await within.run_sync(thoroughly(lambda session: work(session.connection())))

    # In a caller's transaction numbers may be taken back. They are given out once only.

    def _rolled_back(self, *_: object) -> None:
        self._was_rolled_back = True

    @property
    def _shift_now(self) -> int:
        return self._shift if self._within is not None else 0

    def _outward(self, head: Head) -> Head:
        if self._within is None:
            return head
        if self._was_rolled_back and head.number + self._shift <= self._told:
            self._shift = self._told + 2 - head.number  # none is the next one to what was told
        self._was_rolled_back = False
        number = head.number + self._shift if head.number or self._shift else 0
        self._told = max(self._told, number)
        return head._replace(number=WriteNumber(number, getattr(head.number, "names", "")))

    def _inward(self, number: int, *, exactly: bool = False) -> int:
        if self._within is None or not self._shift:
            return number
        inner = number - self._shift if exactly else max(0, number - self._shift)
        return WriteNumber(inner, getattr(number, "names", ""))


class _Told:
    """What one reading tells: many rows hold the same bytes, which are decoded once.

    Args:
        shift: what is added to the numbers of writes.
    """

    def __init__(self, shift: int) -> None:
        self._shift = shift
        self._marks = cache(lambda data: tuple(unpack(data)))
        self._tokens = cache(lambda data: from_tokens(unpack(data)))
        self._skeleton = cache(lambda data: None if data is None else unpack(data))

    def entry(self, row: sa.Row[Any]) -> Entry:
        place, fraction, changed, key, said, own, counted = row
        where, changed, key = place_of(place, fraction), changed + self._shift, from_bytes(key)
        if said is None:
            return Entry(where, changed, key, None)
        return Entry(where, changed, key, to_message(unpack(said)), self._marks(own), self._tokens(counted))

    def outlined(self, row: sa.Row[Any]) -> Entry:
        place, fraction, changed, name, skeleton, own, counted, added = row
        key = from_bytes(name)
        msg = as_message(message_id(key), self._skeleton(skeleton))
        where, shift = place_of(place, fraction), self._shift
        return Entry(where, changed + shift, key, msg, self._marks(own), self._tokens(counted), added + shift)


# Sessions of a user


def standings(connection: sa.Connection, user_id: str) -> list[Standing]:
    """Return where a user's sessions stand."""
    wanted = sa.select(sessions.c.session_id, sessions.c.number, sessions.c.writes, sessions.c.size)
    found = connection.execute(wanted.where(sessions.c.user_digest == digest(user_id)))
    return [
        Standing(from_bytes(name), WriteNumber(number, writes or ""), size)
        for name, number, writes, size in found
    ]


def remove_session(connection: sa.Connection, user_id: str, session_id: str) -> None:
    """Remove all of a session, and the texts of a `SQLAlchemyOffloadStore` of its own; tell nothing of it."""
    session = digest(user_id, session_id)
    # Its own row first: whoever writes to the session holds that until all is written.
    for table in (sessions, *(table for table in OF_SESSIONS if table is not sessions)):
        connection.execute(sa.delete(table).where(table.c.session == session))
    connection.execute(sa.delete(texts).where(texts.c.namespace == session))


# Leases: what a process has claimed for some time, by the database's clock


class _Now(FunctionElement[int]):
    """Milliseconds since 1970 by the database's clock, whatever its time zone."""

    inherit_cache = True
    type = sa.BigInteger()


@compiles(_Now)
def _now(*_: object, **__: object) -> str:
    return "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)"


@compiles(_Now, "sqlite")
def _now_in_sqlite(*_: object, **__: object) -> str:
    return "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"


@compiles(_Now, "mysql")
@compiles(_Now, "mariadb")
def _now_in_mysql(*_: object, **__: object) -> str:
    return "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000)"


def _claim(connection: sa.Connection, session: Any, name: str, holder: str, seconds: float) -> bool:
    """Claim something as `Leases.claim` does. Each change is one statement that looks before it changes.

    Args:
        connection: in a transaction of its own.
        session: what stands for the session in every table.
        name: what is claimed.
        holder: who claims.
        seconds: for how long.

    Raises:
        Again: somebody else was faster.
    """
    known, now, own = leases.c, _Now(), digest(holder)
    this = sa.and_(known.session == session, known.name_digest == digest(name))
    if seconds <= 0:
        return bool(connection.execute(sa.delete(leases).where(this, known.holder == own)).rowcount)
    milliseconds = math.ceil(seconds * 1000)
    until = now + milliseconds
    # No lease is granted for so long: this one was made before the clock was set back.
    is_over = sa.or_(known.until <= now, known.until > now + 2 * milliseconds)
    # Whoever only asks takes no lock.
    found = connection.execute(sa.select(known.holder, is_over).where(this)).one_or_none()
    if found is None:
        connection.execute(sa.delete(leases).where(known.session == session, known.until <= now))
        try:
            values = {"session": session, "name_digest": digest(name), "holder": own, "until": until}
            connection.execute(sa.insert(leases).values(values))
        except IntegrityError as error:
            raise Again from error
        return True
    if found[0] != own and not found[1]:
        return False
    is_free = sa.or_(known.holder == own, is_over)
    taken = sa.update(leases).where(this, is_free).values(holder=own, until=until)
    return bool(connection.execute(taken).rowcount)
