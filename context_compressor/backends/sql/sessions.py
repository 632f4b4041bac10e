"""The sessions of a database, and those of one user."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from context_compressor.backends.admin.sessions import (
    RemovedObject,
    SessionDirectory,
    SessionInfo,
    StoredObject,
)
from context_compressor.backends.records import Standing, digest, from_bytes, unpack
from context_compressor.backends.sql.engines import (
    dispose,
    empty_log,
    engine_for,
    in_transaction,
    make_tables,
    sqlite_file,
)
from context_compressor.backends.sql.history import SQLAlchemyHistory
from context_compressor.backends.sql.states import SQLAlchemyStates
from context_compressor.backends.sql.tables import ledger, messages, metadata, sessions, texts
from context_compressor.compression.edits import refs_in
from context_compressor.errors import ConflictError, InvalidArgumentError, shown_url, without_secrets
from context_compressor.memory.history import Change, Head, WriteNumber
from context_compressor.memory.loops import to_its_end

_REMINDERS = {
    "sqlite": "backups of the file, and blocks of the disk that were given back",
    "postgresql": "dead rows until VACUUM, the write-ahead log, replicas, backups",
}
_OTHERWISE = "undo and binary logs until they are purged, replicas, backups"
_ANSWER_SECONDS = 30.0
"""How long a connection may take: what listens there may be no database, and never answer."""
_OF_SESSIONS = [table for table in metadata.sorted_tables if "session" in table.c]
"""The tables that hold something of a session."""


class SQLSessions(SessionDirectory):
    """The sessions of a database.

    Args:
        engine: by which to ask.
        is_own: whether `close` closes it.
    """

    def __init__(self, engine: AsyncEngine, *, is_own: bool) -> None:
        self.engine = engine
        self._is_own = is_own
        self._url = engine.url.render_as_string(hide_password=False)
        self.place = shown_url(self._url)
        self.reminders = [_REMINDERS.get(engine.dialect.name, _OTHERWISE)]

    @classmethod
    def at(cls, url: str) -> SQLSessions:
        """Return the sessions behind a URL. A file that is not there is not made.

        Raises:
            InvalidArgumentError: there is no such driver, or no such file.
        """
        engine = engine_for(url)
        file = sqlite_file(engine)
        if file is not None and not file.parent.is_dir():
            raise InvalidArgumentError(f"{file}: there is no directory {file.parent}")
        return cls(engine, is_own=True)

    @classmethod
    def beside(cls, history: SQLAlchemyHistory) -> tuple[SQLSessions, str, str]:
        """Return the sessions beside one, its user and its session."""
        if history._within is not None:
            raise InvalidArgumentError(
                "base: it writes in a caller's transaction; give a memory over an engine or a URL"
            )
        row: dict[str, Any] = history._row
        made = cls(history._engine, is_own=False)
        return made, from_bytes(row["user_id"]), from_bytes(row["session_id"])

    async def check(self, *, may_make: bool = False) -> None:
        """Look whether the database can be reached and has our tables; nothing is made.

        Args:
            may_make: whether tables may be missing, which are made later.

        Raises:
            InvalidArgumentError: it cannot, or has not.
        """
        file = sqlite_file(self.engine)
        if file is not None and not file.is_file():
            if may_make:
                return  # to look would make it
            raise InvalidArgumentError(f"{file}: there is no such file")
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                has_tables = await in_transaction(
                    self.engine,
                    lambda connection: sa.inspect(connection).has_table(sessions.name),
                    is_write=False,
                )
        except TimeoutError as error:
            raise InvalidArgumentError(
                f"{self.place}: cannot be used: no answer of a database within {_ANSWER_SECONDS:g} seconds"
            ) from error
        except Exception as error:  # of SQLAlchemy, or, as it is, of a driver
            reason = getattr(error, "orig", None) or error
            raise InvalidArgumentError(
                f"{self.place}: cannot be used: {without_secrets(reason, self._url)}"
            ) from error
        if not (has_tables or may_make):
            raise InvalidArgumentError(f"{self.place}: holds no sessions (there is no table {sessions.name})")

    async def infos(self, user_id: str | None = None) -> list[SessionInfo]:
        """Return the sessions, of all users or of one, sorted by user and session."""
        held = sa.select(ledger.c.session, sa.func.count()).where(ledger.c.edit.is_not(None))
        told = sa.select(messages.c.session, messages.c.tokens).where(messages.c.msg.is_not(None))
        columns = sessions.c

        def look(connection: sa.Connection) -> list[SessionInfo]:
            edits = dict(connection.execute(held.group_by(ledger.c.session)).tuples().all())
            tokens: dict[str, int | None] = {}
            for session, counted in connection.execute(told):
                each, so_far = unpack(counted), tokens.get(session, 0)
                tokens[session] = None if each is None or so_far is None else so_far + int(each[1])
            rows = connection.execute(
                sa.select(columns.session, columns.user_id, columns.session_id, columns.number, columns.size)
            )
            return [
                SessionInfo(
                    from_bytes(user),
                    from_bytes(name),
                    Head(number, size, ""),
                    edits.get(session, 0),
                    tokens.get(session, 0),
                )
                for session, user, name, number, size in rows
            ]

        await make_tables(self.engine)
        found = await in_transaction(self.engine, look)
        return sorted(one for one in found if user_id in (None, one.user_id))

    def history(self, user_id: str, session_id: str) -> SQLAlchemyHistory:
        """Return the history of a session."""
        return SQLAlchemyHistory(self.engine, user_id=user_id, session_id=session_id)

    async def named_refs(self, but: tuple[str, str] | None = None) -> list[set[str]]:
        """Return the refs that live ledgers name, a set for each session that names some; but for one's."""
        wanted = sa.select(ledger.c.session, ledger.c.edit).where(ledger.c.edit.is_not(None))
        if but is not None:
            wanted = wanted.where(ledger.c.session != digest(*but))

        def look(connection: sa.Connection) -> list[set[str]]:
            found: dict[str, set[str]] = {}
            for session, edit in connection.execute(wanted):
                found.setdefault(session, set()).update(refs_in([unpack(edit)]))
            return list(found.values())

        await make_tables(self.engine)
        return [*await in_transaction(self.engine, look), *await self._refs_of_states()]

    def states(self) -> SQLAlchemyStates:
        """Return the states of adapters in the database."""
        return SQLAlchemyStates(self.engine)

    async def restore(self, user_id: str, session_id: str, changes: Sequence[Change]) -> None:
        """Make a session of these changes, in one transaction.

        Raises:
            ConflictError: it exists.
        """
        await self.history(user_id, session_id).write(changes, at=0)

    async def objects(self, user_id: str, session_id: str) -> dict[str, StoredObject]:
        """Return the rows of a session, by their keys."""
        session = digest(user_id, session_id)

        def look(connection: sa.Connection) -> dict[str, StoredObject]:
            found: dict[str, StoredObject] = {}
            for table in _OF_SESSIONS:
                keys = [column.name for column in table.primary_key.columns]
                for row in connection.execute(sa.select(table).where(table.c.session == session)):
                    said = hashlib.sha256(repr(tuple(row)).encode())
                    size = sum(len(value) for value in row if isinstance(value, bytes))
                    where = _where(table, keys, [row._mapping[key] for key in keys])
                    found[where] = StoredObject("row", size, said.hexdigest())
            return found

        await make_tables(self.engine)
        return await in_transaction(self.engine, look)

    async def remove(self, user_id: str, session_id: str) -> list[RemovedObject]:
        """Remove a session's rows from every table that has some, in one transaction; return which."""
        session = digest(user_id, session_id)

        def remove(connection: sa.Connection) -> list[RemovedObject]:
            # Whoever writes to the session waits for this row, and SQLite for the transaction.
            mine = sessions.c.session == session
            connection.execute(sa.update(sessions).where(mine).values(number=sessions.c.number + 1))
            removed: list[RemovedObject] = []
            for table in _OF_SESSIONS:
                removed += _rows_of(connection, table, session)
                connection.execute(sa.delete(table).where(table.c.session == session))
            return removed

        await make_tables(self.engine)
        return await in_transaction(self.engine, remove, removes=True)

    async def close(self) -> None:
        """Close the engine, if it was made here."""
        if self._is_own:
            await dispose(self.engine)


def _rows_of(connection: sa.Connection, table: sa.Table, session: str) -> list[RemovedObject]:
    """Return the rows of a session in a table: their keys and sizes."""
    keys = list(table.primary_key.columns)
    large = [
        column for column in table.c if isinstance(column.type, sa.LargeBinary) or "BLOB" in str(column.type)
    ]
    size: Any = sa.literal(0)
    for column in large:
        size = size + sa.func.coalesce(sa.func.length(column), 0)
    found = connection.execute(sa.select(size, *keys).where(table.c.session == session).order_by(*keys))
    return [
        RemovedObject("row", _where(table, [key.name for key in keys], values), int(bytes_))
        for bytes_, *values in found
    ]


def _where(table: sa.Table, keys: Sequence[str], values: Sequence[Any]) -> str:
    return " ".join([table.name, *(f"{key}={value}" for key, value in zip(keys, values, strict=True))])


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
    for table in (sessions, *(table for table in _OF_SESSIONS if table is not sessions)):
        connection.execute(sa.delete(table).where(table.c.session == session))
    connection.execute(sa.delete(texts).where(texts.c.namespace == session))


async def rewrite_file(engine: AsyncEngine, wait_seconds: float) -> list[RemovedObject]:
    """Rewrite SQLite's file and empty its log, so that only what the tables hold is in them.

    Args:
        engine: over the file; of another database nothing is done.
        wait_seconds: how long to wait for others who use it.

    Raises:
        ConflictError: others use it at the moment.
    """
    file = sqlite_file(engine)
    if file is None:
        return []

    async def rewrite(_: object) -> bool:
        async with engine.connect() as connection:
            await connection.execution_options(isolation_level="AUTOCOMMIT")
            was = (await connection.exec_driver_sql("PRAGMA busy_timeout")).scalar_one()
            await connection.exec_driver_sql(f"PRAGMA busy_timeout={int(1000 * wait_seconds)}")
            await connection.exec_driver_sql("VACUUM")
            await connection.exec_driver_sql(f"PRAGMA busy_timeout={int(was)}")
        return await empty_log(engine, wait_seconds)

    try:
        is_empty = await to_its_end(rewrite)
    except DBAPIError as error:
        raise ConflictError(f"{file} could not be rewritten: {error.orig}", number=0) from error
    if not is_empty:
        raise ConflictError(f"the log of {file} could not be emptied: others read it", number=0)
    return [RemovedObject("file", str(file), file.stat().st_size, "rewritten")]
