"""`SQLAlchemyMemory` over SQLite, PostgreSQL and MariaDB: the contracts, isolation, transactions, writers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from uuid import uuid4

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker, create_async_engine
from sqlalchemy.pool import NullPool

from context_compressor import CompressedMemory, Msg, SQLAlchemyMemory
from context_compressor.backends.sql.history import SQLAlchemyHistory
from context_compressor.backends.sql.tables import messages, schema
from context_compressor.errors import ConflictError, InvalidArgumentError, InvalidStateError
from context_compressor.memory.history import Add
from tests.backends.kept import URLS, url_of
from tests.memory.contract import make_msg
from tests.memory.history_contract import HistoryContract
from tests.memory.test_history import MemoryOverHistoryContract


@pytest.fixture(params=URLS)
def url(request: pytest.FixtureRequest, server: Callable[[str], int], tmp_path: Path) -> str:
    return url_of(request.param, server, tmp_path)


@pytest.fixture
async def engine(url: str) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(url)
    if engine.dialect.name == "sqlite":  # no test pulls the plug
        sa.event.listen(engine.sync_engine, "connect", lambda db, _: db.execute("PRAGMA synchronous=OFF"))
    yield engine
    await engine.dispose()


@pytest.fixture
def history(engine: AsyncEngine) -> SQLAlchemyHistory:
    return SQLAlchemyHistory(engine, session_id=uuid4().hex)


class TestHistory(HistoryContract):
    pass


@pytest.mark.variants(1)
class TestMemory(MemoryOverHistoryContract):
    pass


# psycopg differs from asyncpg in what it sends, not in what a history does with it.
for _contract in (TestHistory, TestMemory):
    _contract.pytestmark = pytest.mark.parametrize(  # type: ignore[attr-defined]
        "url", [name for name in URLS if name != "psycopg"], indirect=True
    )


async def test_many_new_sessions_begin_at_once(server: Callable[[str], int]) -> None:
    """InnoDB locks the gap where a row is missing, and breaks off all but one of those that meet there."""
    engine = create_async_engine(URLS["mariadb"].format(port=server("mariadb")), pool_size=25)
    memories = [SQLAlchemyMemory(engine, session_id=uuid4().hex) for _ in range(25)]
    await asyncio.gather(*(memory.size() for memory in memories))  # connections are open
    await asyncio.gather(*(memory.add(Msg("user", "first", "user")) for memory in memories))
    assert [await memory.size() for memory in memories] == [1] * 25
    await engine.dispose()


async def test_what_many_add_at_once_is_added_once(url: str) -> None:
    name = uuid4().hex
    engines = [create_async_engine(url, poolclass=NullPool) for _ in range(5)]
    memories = [SQLAlchemyMemory(engine, session_id=name) for engine in engines]
    await memories[0].add(make_msg("first"))
    for number in range(5):
        await asyncio.gather(*(memory.add(make_msg(str(number)), marks="m") for memory in memories))
    assert await memories[0].size() == 6
    assert [msg.id for msg in await memories[0].get_memory(mark="m")] == [str(number) for number in range(5)]


async def test_tables_are_made_by_several_at_once(url: str) -> None:
    """In a database of their own: others of the run go on with theirs."""
    name = f"new{uuid4().hex}"
    if not url.startswith("sqlite"):
        engine = create_async_engine(url, isolation_level="AUTOCOMMIT")
        async with engine.connect() as connection:
            await connection.execute(sa.text(f"CREATE DATABASE {name}"))
        await engine.dispose()
        url = f"{url.rpartition('/')[0]}/{name}"
    engines = [create_async_engine(url, poolclass=NullPool) for _ in range(6)]
    await asyncio.gather(
        *(SQLAlchemyMemory(one, session_id=name).add(make_msg(str(n))) for n, one in enumerate(engines))
    )
    assert await SQLAlchemyMemory(engines[0], session_id=name).size() == 6
    async with engines[0].begin() as connection:
        assert (await connection.execute(sa.select(schema.c.version))).scalar_one() == 1


async def test_tables_of_a_later_release_are_refused(tmp_path: Path) -> None:
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/memory.db")
    await SQLAlchemyMemory(engine).size()
    async with engine.begin() as connection:
        await connection.execute(sa.update(schema).values(version=9))
    await engine.dispose()
    memory = SQLAlchemyMemory(f"sqlite+aiosqlite:///{tmp_path}/memory.db")
    with pytest.raises(InvalidStateError, match="version 9"):
        await memory.size()
    await memory.close()


async def test_an_engine_of_the_callers_stays_open_and_one_of_ours_does_not(url: str) -> None:
    name = uuid4().hex
    engine = create_async_engine(url)
    async with SQLAlchemyMemory(engine, session_id=name) as memory:
        await memory.add(make_msg("a"))
    assert await memory.size() == 1
    await engine.dispose()
    async with SQLAlchemyMemory(url, session_id=name) as memory:
        assert await memory.size() == 1


async def test_in_a_session_of_the_callers_nothing_is_committed_but_by_him(engine: AsyncEngine) -> None:
    name = uuid4().hex
    outside = SQLAlchemyMemory(engine, session_id=name)
    await outside.size()
    async with async_sessionmaker(engine)() as session:
        memory = SQLAlchemyMemory(session, session_id=name)
        await memory.add(make_msg("a"))
        assert await memory.size() == 1
        await session.commit()
        assert await outside.size() == 1
        await memory.add(make_msg("b"))
        await session.rollback()
        assert await memory.size() == 1
        with pytest.raises(ConflictError):
            await memory.history.write([Add(make_msg("c"))], at=99)
        await session.execute(sa.text("SELECT 1"))  # the session is usable
        await memory.add(make_msg("d"))
        await session.commit()
    assert [msg.id for msg in await outside.get_memory()] == ["a", "d"]


async def test_what_was_rolled_back_leaves_the_view(engine: AsyncEngine) -> None:
    async with async_sessionmaker(engine)() as session:
        memory = CompressedMemory(SQLAlchemyMemory(session, session_id=uuid4().hex))
        await memory.add(Msg("user", "kept", "user"))
        await session.commit()
        for text in ("lost", "lost too"):
            await memory.add(Msg("user", text, "user"))
            assert [msg.content for msg in await memory.get_memory()][-1] == text
            await session.rollback()
        await memory.add(Msg("user", "new", "user"))
        assert [msg.content for msg in await memory.get_memory()] == ["kept", "new"]
        await session.commit()


def test_what_is_no_engine_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="expected a URL, an AsyncEngine"):
        SQLAlchemyMemory(5)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="asyncio driver"):
        SQLAlchemyMemory("sqlite:///x.db")
    with pytest.raises(InvalidArgumentError, match="user_id"):
        SQLAlchemyMemory("sqlite+aiosqlite://", user_id=5)  # type: ignore[arg-type]


async def test_postgresql_samples_nothing_of_what_was_said(server: Callable[[str], int]) -> None:
    """In tables of an earlier release, too, whose samples go; `VACUUM` does not reach them."""

    async def sampled() -> bool:
        async with engine.connect() as connection:
            await connection.execution_options(isolation_level="AUTOCOMMIT")
            await connection.exec_driver_sql(f"ANALYZE {messages.name}")
            found = await connection.exec_driver_sql(
                f"SELECT attname, most_common_vals::text FROM pg_stats WHERE tablename = '{messages.name}'"
            )
            said = {name: values or "" for name, values in found}
        assert "session" in said, "what is searched by has them"
        return said.get("msg", "").count(word.encode().hex()) > 0

    word, name = f"walrus-{uuid4().hex}", f"own_{uuid4().hex}"
    shared = create_async_engine(url_of("asyncpg", server, Path()), isolation_level="AUTOCOMMIT")
    async with shared.connect() as connection:  # others use the tables of the one that is there
        await connection.exec_driver_sql(f"CREATE DATABASE {name}")
    await shared.dispose()
    url = shared.url.set(database=name).render_as_string(hide_password=False)
    engine = create_async_engine(url)
    memory = SQLAlchemyMemory(engine, session_id=uuid4().hex)
    await memory.add([Msg("user", word, "user", id=f"{word}-{n}", timestamp="1") for n in range(40)])
    assert not await sampled()
    async with engine.begin() as connection:  # as an earlier release made it
        await connection.exec_driver_sql(f"ALTER TABLE {messages.name} ALTER msg SET STATISTICS 100")
        await connection.execute(
            sa.update(messages).where(messages.c.session == memory.history._session).values(msg=word.encode())
        )
    assert await sampled()
    later = create_async_engine(url)
    assert await SQLAlchemyMemory(later, session_id="another").size() == 0
    assert not await sampled()
    await later.dispose()
    await engine.dispose()


async def test_mariadb_samples_nothing_of_what_was_said(server: Callable[[str], int]) -> None:
    engine = create_async_engine(url_of("mariadb", server, Path()))
    memory = SQLAlchemyMemory(engine, session_id=uuid4().hex)
    await memory.add([Msg("user", f"walrus {n}", "user") for n in range(40)])
    async with engine.connect() as connection:
        await connection.exec_driver_sql(f"ANALYZE TABLE {messages.name} PERSISTENT FOR ALL")
        found = await connection.exec_driver_sql(
            f"SELECT column_name FROM mysql.column_stats WHERE table_name = '{messages.name}'"
        )
        kept = {name if isinstance(name, str) else name.decode() for (name,) in found}
    assert "session" in kept
    assert not kept & {column.name for column in messages.c if isinstance(column.type, sa.LargeBinary)}
    await engine.dispose()
