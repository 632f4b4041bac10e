"""Engines of SQLAlchemy: made from a URL, with the tables in their database, and transactions on them."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote
from weakref import WeakSet

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError, StatementError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from context_compressor.backends.sql.tables import SCHEMA_VERSION, metadata, schema, sessions
from context_compressor.backends.sql.write import Again
from context_compressor.errors import (
    ConflictError,
    InvalidArgumentError,
    InvalidStateError,
    LoopError,
    without_secrets,
)
from context_compressor.memory.loops import left_by, to_its_end

logger = logging.getLogger(__name__)

T = TypeVar("T")

_ATTEMPTS = 5
"""How often a transaction is tried that failed after a long wait, or that others were faster than."""
_BREAKS = 25
"""How often one is tried that the database broke off at once. InnoDB does so to all but one of the many that
make sessions of their own at the same moment: it locks the gap where a row is missing."""
_PAUSE_SECONDS = 0.5
_LOCK_MILLISECONDS = 1_000
"""How long a change of PostgreSQL's tables waits for those who use them: others wait behind it."""
_OVERWRITES = "context_compressor_overwrites"
"""Where a connection says that what is removed by it is overwritten."""
_ABANDONED_SECONDS = 5.0
"""Seconds for which a server may take to end a cancelled transaction, before the connection is closed."""


def _attempts(error: DBAPIError) -> int:
    """Return how often a transaction that failed so is tried: it may go well the next time.

    PostgreSQL's SQLSTATE 40001 and 40P01, MySQL's 1213 are deadlocks and the like. MySQL's 1205, and SQLite
    that is locked for longer than the driver waits, took long already.
    """
    orig = error.orig
    state = getattr(orig, "sqlstate", None) or getattr(orig, "pgcode", None)
    number = next(iter(getattr(orig, "args", ())), None)
    if state in ("40001", "40P01") or number == 1213:
        return _BREAKS
    return _ATTEMPTS if number == 1205 or "database is locked" in str(orig) else 1


_PARENTS: list[sa.Pool] = []
"""Pools of the parent process, kept after a fork: closing them could break what the parent is writing."""


async def _take_over(engine: AsyncEngine) -> None:
    """Let go of connections that a parent process, or a loop that has ended, opened.

    Raises:
        LoopError: the database lies in the memory of the parent process.
    """
    left = left_by(engine)
    is_in_memory = engine.dialect.name == "sqlite" and sqlite_file(engine) is None
    if left == "parent":
        if is_in_memory:
            raise LoopError(
                "a database in memory belongs to the process that made it; use a file, or a server"
            )
        _PARENTS.append(engine.sync_engine.pool)
        engine.sync_engine.dispose(close=False)
    elif left == "loop" and not is_in_memory:
        # SQLite's connections can be closed from any loop; those of other drivers ended with their loop.
        await (engine.dispose() if engine.dialect.name == "sqlite" else engine.dispose(close=False))


class _Unwanted(Exception):
    """The caller was cancelled, and nobody waits for the transaction any more."""


def is_full(error: BaseException) -> bool:
    """Tell whether a database has no room left: SQLITE_FULL, SQLSTATE 53100, MySQL's 1021 and 1114."""
    orig = getattr(error, "orig", None)
    state = getattr(orig, "sqlstate", None) or getattr(orig, "pgcode", None)
    number = next(iter(getattr(orig, "args", ())), None)
    return state == "53100" or number in (1021, 1114) or "database or disk is full" in str(orig)


async def in_transaction(
    engine: AsyncEngine,
    work: Callable[[sa.Connection], T],
    *,
    is_write: bool = True,
    removes: bool = False,
) -> T:
    """Run statements in a transaction of their own, again where the database broke it off.

    One that only reads is not committed, which would be one more answer to wait for. A caller that is
    cancelled leaves at once, and the transaction comes to its end by itself: it is rolled back, unless it is
    being committed. Were a statement broken off, its connection would be closed, and SQLite's would go on
    holding its lock.

    Args:
        engine: of the database.
        work: the statements.
        is_write: whether they change something.
        removes: whether what they take away or write over is to be in no file of SQLite's any more.
    """

    async def run(is_wanted: Callable[[], bool]) -> T:
        overtaken = 0
        for attempt in range(_BREAKS):
            is_ending = False
            try:
                async with engine.begin() if is_write else engine.connect() as connection:
                    if not is_wanted():
                        raise _Unwanted
                    found = await connection.run_sync(thoroughly(work) if is_write else work)
                    if is_write and not is_wanted():
                        raise _Unwanted
                    is_ending = is_write
                if removes:
                    await empty_log(engine)
                return found
            except _Unwanted:
                raise asyncio.CancelledError from None
            except Again:
                overtaken += 1
                if overtaken == _ATTEMPTS:
                    break
            except DBAPIError as error:
                is_lost = error.connection_invalidated and not is_ending  # and with it all that was done
                if attempt + 1 >= (_ATTEMPTS if is_lost else _attempts(error)) or not is_wanted():
                    raise
                logger.info("the database broke a transaction off, it is tried again: %s", error.orig)
                # Those that met once do not all come back at the same moment.
                await asyncio.sleep(min(0.01 * 2**attempt, _PAUSE_SECONDS) * (0.5 + random.random()))
        raise ConflictError("the history changes too fast to write to it; try again", number=0)

    await _take_over(engine)
    with hiding_parameters():
        return await to_its_end(run, most_seconds=abandoned_seconds(engine))


@contextmanager
def hiding_parameters() -> Iterator[None]:
    """Hide parameters in errors: they are texts of messages, and errors get into logs and events."""
    try:
        yield
    except StatementError as error:
        error.hide_parameters = True
        raise


def thoroughly(work: Callable[[Any], T]) -> Callable[[Any], T]:
    """Return work that runs with `secure_delete`, so that SQLite overwrites what is removed."""

    def run(given: Any) -> T:
        connection: sa.Connection = given if isinstance(given, sa.Connection) else given.connection()
        if connection.dialect.name == "sqlite" and not connection.info.get(_OVERWRITES):
            connection.exec_driver_sql("PRAGMA secure_delete=ON")
            connection.info[_OVERWRITES] = True
        return work(given)

    return run


async def empty_log(engine: AsyncEngine, wait_seconds: float = 0.0) -> bool:
    """Empty SQLite's log, which holds earlier states of rows; tell whether it is empty now.

    Args:
        engine: over the file.
        wait_seconds: how long to wait for others who use it. What is left is emptied by the next removal.
    """
    if sqlite_file(engine) is None:
        return True
    try:
        [busy, *_] = await _alone(engine, "PRAGMA wal_checkpoint(TRUNCATE)", wait_seconds)
    except DBAPIError as error:
        logger.info("SQLite's log was not emptied: %s", error.orig)
        return False
    return not busy


async def rewrite_file(engine: AsyncEngine, wait_seconds: float) -> None:
    """Rewrite SQLite's file and empty its log, so that only what the tables hold is in them.

    Raises:
        ConflictError: others use it at the moment, and for so many seconds.
    """

    async def rewrite(_: object) -> bool:
        await _alone(engine, "VACUUM", wait_seconds)
        return await empty_log(engine, wait_seconds)

    file = sqlite_file(engine)
    try:
        is_empty = await to_its_end(rewrite)
    except DBAPIError as error:
        raise ConflictError(f"{file} could not be rewritten: {error.orig}", number=0) from error
    if not is_empty:
        raise ConflictError(f"the log of {file} could not be emptied: others read it", number=0)


async def _alone(engine: AsyncEngine, statement: str, wait_seconds: float) -> Sequence[Any]:
    """Run a statement on SQLite's file outside of a transaction, and return the row that it gives, if any.

    Args:
        engine: over the file.
        statement: what to run.
        wait_seconds: how long to wait for others who use it.
    """
    async with engine.connect() as connection:
        await connection.execution_options(isolation_level="AUTOCOMMIT")
        was = (await connection.exec_driver_sql("PRAGMA busy_timeout")).scalar_one()
        await connection.exec_driver_sql(f"PRAGMA busy_timeout={int(1000 * wait_seconds)}")
        done = await connection.exec_driver_sql(statement)
        found = done.one() if done.returns_rows else ()
        await connection.exec_driver_sql(f"PRAGMA busy_timeout={int(was)}")
    return found


def abandoned_seconds(engine: AsyncEngine) -> float | None:
    """Return how many seconds a cancelled transaction may take; None for SQLite, whose own waits end."""
    return None if engine.dialect.name == "sqlite" else _ABANDONED_SECONDS


_READY: WeakSet[AsyncEngine] = WeakSet()
"""Engines in whose databases the tables are."""


_LAST_SECONDS = 1.0
"""How long closing waits for connections that are in use."""
_WAIT_SECONDS = 600
"""Seconds for which a call waits for a connection that others use."""
_POOL: dict[str, Any] = {"pool_size": 1, "max_overflow": 0, "pool_timeout": _WAIT_SECONDS}
"""SQLite has one writer at a time: connections of one process would only wait for each other."""
_SERVERS: dict[str, Any] = {"pool_pre_ping": True, "pool_timeout": _WAIT_SECONDS}
"""Options for engines of servers: these, and proxies before them, close idle connections."""


def sqlite_file(given: AsyncEngine | sa.URL) -> Path | None:
    """Return the SQLite file of an engine or a URL, or None where it has none."""
    url = given.url if isinstance(given, AsyncEngine) else given
    name = url.database or ""
    if url.query.get("uri"):
        name = unquote(name.removeprefix("file:"))
    is_none = name in ("", ":memory:") or url.query.get("mode") == "memory"
    return None if is_none or url.get_backend_name() != "sqlite" else Path(name)


_EXPECTED = (
    "expected a URL with an asyncio driver, such as 'sqlite+aiosqlite:///memory.db', "
    "'postgresql+asyncpg://...' or 'postgresql+psycopg://...'"
)


def engine_for(url: str) -> AsyncEngine:
    """Return an engine for a URL."""
    try:
        parsed = sa.make_url(url)
        pool = _POOL if sqlite_file(parsed) else {} if parsed.get_backend_name() == "sqlite" else _SERVERS
        engine = create_async_engine(url, hide_parameters=True, **pool)
    except ModuleNotFoundError as error:
        raise InvalidArgumentError(
            f"engine_or_session: its driver {error.name} is missing: pip install {error.name}; {_EXPECTED}"
        ) from None
    except (sa.exc.ArgumentError, sa.exc.InvalidRequestError, ImportError, ValueError) as error:
        raise InvalidArgumentError(f"engine_or_session: {without_secrets(error, url)}; {_EXPECTED}") from None
    if engine.dialect.name == "sqlite":

        @event.listens_for(engine.sync_engine, "connect")
        def prepare(connection: Any, _: object) -> None:
            cursor = connection.cursor()
            cursor.execute("PRAGMA journal_mode=WAL")
            cursor.execute("PRAGMA busy_timeout=30000")
            cursor.close()

    return engine


async def dispose(engine: AsyncEngine) -> None:
    """Close the connections of an engine, also of what was cancelled just now and still gives its own back.

    One that comes back later is closed by nobody.
    """
    await _take_over(engine)
    held = getattr(engine.pool, "checkedout", None)
    end = time.monotonic() + _LAST_SECONDS
    while held is not None and held() and time.monotonic() < end:  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0.005)
    await to_its_end(lambda _: engine.dispose(), most_seconds=abandoned_seconds(engine))


def engine_of(session: AsyncSession) -> AsyncEngine:
    """Return the engine of a session."""
    bind = session.bind
    if isinstance(bind, AsyncEngine):
        return bind
    if bind is not None:
        return bind.engine
    raise InvalidArgumentError("engine_or_session: the session has no engine: async_sessionmaker(engine)")


async def make_tables(engine: AsyncEngine) -> None:
    """Make the tables where they are missing, and SQLite's file. Where several processes do so at once, all
    but one fail, and look again.

    Raises:
        InvalidStateError: a newer release made them.
    """
    if engine in _READY:
        return

    def make(connection: sa.Connection) -> int:
        metadata.create_all(connection)
        there = {column["name"] for column in sa.inspect(connection).get_columns(sessions.name)}
        if sessions.c.writes.name not in there:  # an earlier release made them, and may go on using them
            added = sa.schema.CreateColumn(sessions.c.writes).compile(dialect=connection.dialect)
            connection.exec_driver_sql(f"ALTER TABLE {sessions.name} ADD COLUMN {added}")
        version = sa.select(schema.c.version)
        found = connection.execute(version).scalar_one_or_none()
        if found is None:
            connection.execute(sa.insert(schema).values(id=1, version=SCHEMA_VERSION))
        return SCHEMA_VERSION if found is None else int(found)

    file = sqlite_file(engine)
    if file is not None and engine.url.query.get("mode") in (None, "rwc"):
        # SQLite makes files that everybody may read, and those beside a database with its mode.
        with suppress(OSError):  # it exists, or SQLite will say what is wrong
            os.close(os.open(file, os.O_CREAT | os.O_EXCL, 0o600))
    for attempt in range(_ATTEMPTS):
        try:
            found = await in_transaction(engine, make)
            break
        except DBAPIError:
            if attempt + 1 == _ATTEMPTS:
                raise
            await asyncio.sleep(0.02 * 2**attempt)
    if found > SCHEMA_VERSION:
        raise InvalidStateError(
            f"the tables have version {found}, this release knows {SCHEMA_VERSION}: upgrade it"
        )
    if engine.dialect.name == "postgresql":
        with suppress(DBAPIError):  # the tables can be used all the same, and the next process tries again
            await in_transaction(engine, _leave_out_of_statistics)
    _READY.add(engine)


def _leave_out_of_statistics(connection: sa.Connection) -> None:
    """Let PostgreSQL keep no samples of what messages say: they would outlast the rows.

    Nobody searches by these columns. Samples that are there go with a new type alone, though it be the same.
    """
    names = ", ".join(f"('{table.name}')" for table in metadata.sorted_tables)
    found = connection.exec_driver_sql(
        "SELECT attrelid::regclass::text, attname FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid "
        f"WHERE attrelid IN (SELECT to_regclass(name) FROM (VALUES {names}) AS ours (name)) "
        "AND atttypid = 'bytea'::regtype AND attstattarget IS DISTINCT FROM 0 "
        "AND pg_has_role(relowner, 'USAGE')"
    )
    columns: dict[str, list[str]] = {}
    for table, column in found:
        columns.setdefault(table, []).append(column)
    if columns:
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {_LOCK_MILLISECONDS}")
    for table, sampled in sorted(columns.items()):
        changes = (f"ALTER {column} TYPE bytea, ALTER {column} SET STATISTICS 0" for column in sampled)
        connection.exec_driver_sql(f"ALTER TABLE {table} {', '.join(changes)}")


class Database:
    """A database, by an engine that stays the caller's, or by a URL, whose engine `close` closes.

    Raises:
        InvalidArgumentError: it is neither.
    """

    def __init__(self, engine: AsyncEngine | str) -> None:
        if not isinstance(engine, AsyncEngine | str):
            raise InvalidArgumentError(
                f"engine: expected a URL or an AsyncEngine, got {type(engine).__name__}"
            )
        self._is_own = isinstance(engine, str)
        self._engine = engine_for(engine) if isinstance(engine, str) else engine

    @property
    def engine(self) -> AsyncEngine:
        """The engine by which the database is asked."""
        return self._engine

    async def close(self) -> None:
        """Close the engine, if it was made here."""
        if self._is_own:
            await dispose(self._engine)

    async def _run(
        self, work: Callable[[sa.Connection], T], *, is_write: bool = True, removes: bool = False
    ) -> T:
        """Run statements in a transaction of their own, where our tables are."""
        await make_tables(self._engine)
        return await in_transaction(self._engine, work, is_write=is_write, removes=removes)
