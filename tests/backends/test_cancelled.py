"""Whoever is cancelled at whatever moment leaves nothing behind that others have to wait for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.pool import NullPool

from context_compressor import Msg, RedisMemory, SQLAlchemyMemory
from context_compressor.backends.sql.engines import dispose, engine_for
from tests.backends.kept import url_of

MOMENTS = sorted({int(1.7**power) for power in range(15)})
"""Steps of the loop after which somebody is cancelled; a write takes fewer."""
Opened = Callable[[], Any]


@pytest.fixture(params=["sqlite", "asyncpg", "psycopg", "mariadb", "redis", "cluster"])
async def two(
    request: pytest.FixtureRequest, server: Callable[[str], int], tmp_path: Path
) -> AsyncIterator[tuple[Opened, Opened]]:
    """Give what opens a memory of a session, by two engines or clients that share nothing."""
    name, closing = uuid4().hex, list[Callable[[], Any]]()

    def opens() -> Opened:
        if request.param in ("redis", "cluster"):
            port = server(request.param)
            scheme = "redis+cluster" if request.param == "cluster" else "redis"
            memory = RedisMemory(f"{scheme}://127.0.0.1:{port}", session_id=name)
            closing.append(memory.close)
            return lambda: RedisMemory(memory.get_client(), session_id=name)
        engine = engine_for(url_of(request.param, server, tmp_path))
        closing.append(lambda: dispose(engine))
        return lambda: SQLAlchemyMemory(engine, session_id=name)

    yield opens(), opens()
    for close in closing:
        await close()


async def test_the_next_call_works_in_any_process(two: tuple[Opened, Opened]) -> None:
    opened, elsewhere = two
    acknowledged, asked = [], []
    for moment in MOMENTS:
        memory, ids = opened(), [f"{moment} {one}" for one in "ab"]
        adding = [asyncio.create_task(memory.add(Msg("user", id, "user", id=id))) for id in ids]
        for _ in range(moment):
            await asyncio.sleep(0)
        for one in adding:
            one.cancel()
        done = await asyncio.gather(*adding, return_exceptions=True)
        assert [one for one in done if one is not None and not isinstance(one, asyncio.CancelledError)] == []
        asked += ids
        acknowledged += [id for id, one in zip(ids, done, strict=True) if one is None]
        async with asyncio.timeout(60):
            for number, who in enumerate((elsewhere, opened)):
                await who().add(Msg("user", "next", "user", id=f"{moment} next {number}"))
                acknowledged.append(f"{moment} next {number}")
    there = [msg.id for msg in await elsewhere().get_memory()]
    assert len(there) == len(set(there)) == await opened().size()
    assert set(acknowledged) <= set(there) <= {*acknowledged, *asked}


@pytest.mark.parametrize("two", ["sqlite", "asyncpg"], indirect=True)
async def test_in_a_session_of_the_callers_it_is_his_to_end(two: tuple[Opened, Opened]) -> None:
    opened, elsewhere = two
    await opened().add(Msg("user", "first", "user"))
    sessions, name = (
        async_sessionmaker(opened().history._engine),
        opened().history._row["session_id"].decode(),
    )

    async def add(moment: int) -> None:
        async with sessions() as session, session.begin():
            await SQLAlchemyMemory(session, session_id=name).add(Msg("user", f"{moment}", "user"))

    for moment in MOMENTS:
        adding = asyncio.create_task(add(moment))
        for _ in range(moment):
            await asyncio.sleep(0)
        adding.cancel()
        [error] = await asyncio.gather(adding, return_exceptions=True)
        assert error is None or isinstance(error, asyncio.CancelledError)
        async with asyncio.timeout(60):
            await elsewhere().add(Msg("user", "next", "user"))


# The driver's thread may be opening a connection for nobody when the loop is closed.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_the_end_of_a_loop_waits_for_a_transaction(tmp_path: Path) -> None:
    """`asyncio.run` cancels every task that is left."""
    url = f"sqlite+aiosqlite:///{tmp_path}/memory.db"
    for moment in MOMENTS:

        async def leave(moment: int = moment) -> asyncio.Task[None]:
            memory = SQLAlchemyMemory(create_async_engine(url, poolclass=NullPool))
            adding = asyncio.create_task(memory.add(Msg("user", "left", "user")))
            for _ in range(moment):
                await asyncio.sleep(0)
            return adding

        await asyncio.to_thread(lambda: asyncio.run(leave()))
        async with asyncio.timeout(60), SQLAlchemyMemory(url) as memory:
            await memory.add(Msg("user", "next", "user"))
