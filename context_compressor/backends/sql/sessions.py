"""The sessions of a database."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine

from context_compressor.backends.admin.sessions import RemovedObject, SessionDirectory, SessionInfo
from context_compressor.backends.records import digest, from_bytes, name_digest, pack, unpack
from context_compressor.backends.sql.engines import Database, in_transaction, sqlite_file
from context_compressor.backends.sql.history import SQLAlchemyHistory
from context_compressor.backends.sql.states import SQLAlchemyStates
from context_compressor.backends.sql.tables import OF_SESSIONS, ledger, marks, messages, sessions
from context_compressor.core.edits import Edit, edit_to_dict, name_of, refs_in
from context_compressor.errors import InvalidArgumentError, shown_url, without_secrets
from context_compressor.memory.history import Entry, Head

_REMINDERS = {
    "sqlite": "backups of the file, and blocks of the disk that were given back",
    "postgresql": "dead rows until VACUUM, statistics of tables that belong to another role, the write-ahead "
    "log, replicas, backups",
}
_OTHERWISE = "undo and binary logs until they are purged, replicas, backups"
_ANSWER_SECONDS = 30.0
"""How long a connection may take: what listens there may be no database, and never answer."""


class SQLSessions(Database, SessionDirectory):
    """The sessions of a database.

    Args:
        engine: by which to ask, or a URL; a file that is not there is not made.

    Raises:
        InvalidArgumentError: there is no such driver, or no directory for such a file.
    """

    def __init__(self, engine: AsyncEngine | str) -> None:
        super().__init__(engine)
        engine, file = self.engine, sqlite_file(self.engine)
        if file is not None and not file.parent.is_dir():
            raise InvalidArgumentError(f"{file}: there is no directory {file.parent}")
        self._url = engine.url.render_as_string(hide_password=False)
        self.place = shown_url(self._url)
        self.reminders = [_REMINDERS.get(engine.dialect.name, _OTHERWISE)]

    @classmethod
    def beside(cls, history: SQLAlchemyHistory) -> tuple[SQLSessions, str, str]:
        """Return the sessions beside one, its user and its session."""
        if history._within is not None:
            raise InvalidArgumentError(
                "base: it writes in a caller's transaction; give a memory over an engine or a URL"
            )
        row: dict[str, Any] = history._row
        return cls(history._engine), from_bytes(row["user_id"]), from_bytes(row["session_id"])

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

    async def _infos(self) -> list[SessionInfo]:
        held = sa.select(ledger.c.session, sa.func.count()).where(ledger.c.edit.is_not(None))
        told = sa.select(messages.c.session, messages.c.tokens).where(messages.c.msg.is_not(None))
        columns = sessions.c
        wanted = sa.select(columns.session, columns.user_id, columns.session_id, columns.number, columns.size)

        def look(connection: sa.Connection) -> list[SessionInfo]:
            edits = dict(connection.execute(held.group_by(ledger.c.session)).tuples().all())
            tokens: dict[str, int | None] = {}
            for session, counted in connection.execute(told):
                each, so_far = unpack(counted), tokens.get(session, 0)
                tokens[session] = None if each is None or so_far is None else so_far + int(each[1])
            return [
                SessionInfo(
                    from_bytes(user),
                    from_bytes(name),
                    Head(number, size, ""),
                    edits.get(session, 0),
                    tokens.get(session, 0),
                )
                for session, user, name, number, size in connection.execute(wanted)
            ]

        return await self._run(look)

    async def _refs(self, but: str | None) -> list[set[str]]:
        wanted = sa.select(ledger.c.session, ledger.c.edit).where(ledger.c.edit.is_not(None))
        wanted = wanted.where(ledger.c.session != (but or ""))

        def look(connection: sa.Connection) -> list[set[str]]:
            found: dict[str, set[str]] = {}
            for session, edit in connection.execute(wanted):
                found.setdefault(session, set()).update(refs_in([unpack(edit)]))
            return list(found.values())

        return await self._run(look)

    def history(self, user_id: str, session_id: str) -> SQLAlchemyHistory:
        """Return the history of a session."""
        return SQLAlchemyHistory(self.engine, user_id=user_id, session_id=session_id)

    def states(self) -> SQLAlchemyStates:
        """Return the states of adapters in the database."""
        return SQLAlchemyStates(self.engine)

    def lost(
        self,
        user_id: str,
        session_id: str,
        entries: Iterable[Entry],
        edits: Iterable[Edit],
        *,
        learnt: bool,  # noqa: ARG002 - in the session's row
    ) -> list[RemovedObject]:
        """Return the rows that a write removed and rewrote."""
        session = digest(user_id, session_id)

        def row(table: sa.Table, *keys: str, said: Any = None) -> RemovedObject:
            size = 0 if said is None else len(pack(said))
            action = "removed" if table is marks else "rewritten"
            return RemovedObject("row", _where(table, [session, *keys]), size, action)

        found = [row(sessions)]
        for entry in entries:
            key = digest(entry.key)
            found.append(row(messages, key, said=entry.msg and entry.msg.to_dict()))
            found += [row(marks, digest(mark), key) for mark in entry.marks]
        return found + [row(ledger, name_digest(name_of(edit)), said=edit_to_dict(edit)) for edit in edits]

    async def remove(self, user_id: str, session_id: str) -> list[RemovedObject]:
        """Remove a session's rows from every table that has some, in one transaction; return which."""
        session = digest(user_id, session_id)

        def remove(connection: sa.Connection) -> list[RemovedObject]:
            # Whoever writes to the session waits for this row, and SQLite for the transaction.
            mine = sessions.c.session == session
            connection.execute(sa.update(sessions).where(mine).values(number=sessions.c.number + 1))
            removed: list[RemovedObject] = []
            for table in OF_SESSIONS:
                keys = list(table.primary_key.columns)
                size: Any = sa.literal(0)
                for column in table.c:
                    if isinstance(column.type, sa.LargeBinary):
                        size = size + sa.func.coalesce(sa.func.length(column), 0)
                held = sa.select(size, *keys).where(table.c.session == session).order_by(*keys)
                removed += [
                    RemovedObject("row", _where(table, values), int(bytes_))
                    for bytes_, *values in connection.execute(held)
                ]
                connection.execute(sa.delete(table).where(table.c.session == session))
            return removed

        return await self._run(remove, removes=True)


def _where(table: sa.Table, keys: Iterable[Any]) -> str:
    named = zip(table.primary_key.columns, keys, strict=True)
    return " ".join([table.name, *(f"{column.name}={key}" for column, key in named)])
