"""`SQLAlchemyMemory` over SQLite, PostgreSQL and MariaDB: the contracts, isolation, transactions, writers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker, create_async_engine
from sqlalchemy.pool import NullPool

from context_compressor import CompressedMemory, FileOffloadStore, Msg, SQLAlchemyMemory
from context_compressor.backends.sql.history import SQLAlchemyHistory
from context_compressor.backends.sql.tables import metadata, schema
from context_compressor.errors import ConflictError, InvalidArgumentError, InvalidStateError
from context_compressor.memory.history import Add, Delete
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


def words(history: SQLAlchemyHistory | SQLAlchemyMemory) -> Any:
    async def read() -> list[Any]:
        entries = await (history.history if isinstance(history, SQLAlchemyMemory) else history).read()
        return [entry.msg.content for entry in entries if entry.msg is not None]

    return read()


async def test_sessions_and_users_are_apart_whatever_their_ids_hold(engine: AsyncEngine) -> None:
    base = uuid4().hex
    names = [
        ("a", "b-c"),
        ("a-b", "c"),
        ("a", "b"),
        ("b", "a"),
        ("A", "b-c"),
        ("a ", "b-c"),
        ("", "ab-c"),
        ("x'; DROP TABLE context_compressor_messages; --", "{}%_\\"),
        ("é" * 300, "\0"),
        ("\ud800", "你好\U0001f600"),
    ]
    memories = [SQLAlchemyMemory(engine, user_id=base + user, session_id=name) for user, name in names]
    for number, memory in enumerate(memories):
        await memory.add(Msg("user", f"word {number}", "user", id="the same"), marks="m")
    for number, memory in enumerate(memories):
        assert await words(memory) == [f"word {number}"]
        assert len(await memory.get_memory(mark="m")) == 1


async def test_any_text_comes_back_as_it_was(engine: AsyncEngine) -> None:
    history = SQLAlchemyHistory(engine, session_id=uuid4().hex)
    texts = ["\0", "\ud83d\ude00", "\ud83d" + "x" + "\ude00", "é你\U0001f600", "'\"\\%_", "x" * 3_000_000]
    await history.write([Add(Msg("user", text, "user")) for text in texts])
    assert await words(history) == texts


async def test_of_two_writes_at_one_number_one_is_refused(engine: AsyncEngine) -> None:
    histories = [SQLAlchemyHistory(engine, session_id="s" + uuid4().hex)] * 2
    await histories[0].write([Add(make_msg("a"))])
    for at in (1, 2, 3):
        writes = [one.write([Add(make_msg(f"{at}-{n}"))], at=at) for n, one in enumerate(histories)]
        done = await asyncio.gather(*writes, return_exceptions=True)
        assert sorted(isinstance(one, ConflictError) for one in done) == [False, True]
    assert (await histories[0].head()).size == 4


async def test_many_writers_lose_nothing(url: str) -> None:
    """Over pools of their own, as processes have them; the first writes make the session, too."""
    name = uuid4().hex
    engines = [create_async_engine(url, poolclass=NullPool) for _ in range(4)]

    async def write(number: int, engine: AsyncEngine) -> None:
        memory = SQLAlchemyMemory(engine, session_id=name)
        for step in range(10):
            await memory.add(Msg("user", f"{number} {step}", "user"))

    await asyncio.gather(*(write(number, engine) for number, engine in enumerate(engines)))
    found = await words(SQLAlchemyMemory(engines[0], session_id=name))
    assert len(found) == 40
    for number in range(4):
        assert [text for text in found if text.startswith(f"{number} ")] == [
            f"{number} {n}" for n in range(10)
        ]


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


async def test_another_process_shows_the_same_view(engine: AsyncEngine, tmp_path: Path) -> None:
    name, store = uuid4().hex, FileOffloadStore(tmp_path / "texts")

    def opened() -> CompressedMemory:
        base = SQLAlchemyMemory(engine, session_id=name)
        return CompressedMemory(base, store=store, max_total_tokens=2_000)

    memory = opened()
    for number in range(60):
        await memory.add(Msg("user", f"Order {number} was sent. " * 12, "user"))
        view = await memory.get_memory()
    assert memory.stats().events > 1
    assert [msg.to_dict() for msg in await opened().get_memory()] == [msg.to_dict() for msg in view]


async def test_who_deletes_leaves_no_word_in_any_table(engine: AsyncEngine) -> None:
    memory = SQLAlchemyMemory(engine, session_id=uuid4().hex)
    await memory.add([Msg("user", "the secret word", "user", id="a"), make_msg("b")])
    await memory.history.write([Delete(["a"])])
    async with engine.connect() as connection:
        for table in metadata.sorted_tables:
            for row in await connection.execute(sa.select(table)):
                assert b"secret" not in b" ".join(value for value in row if isinstance(value, bytes))


def test_what_is_no_engine_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="expected a URL, an AsyncEngine"):
        SQLAlchemyMemory(5)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="asyncio driver"):
        SQLAlchemyMemory("sqlite:///x.db")
    with pytest.raises(InvalidArgumentError, match="user_id"):
        SQLAlchemyMemory("sqlite+aiosqlite://", user_id=5)  # type: ignore[arg-type]
