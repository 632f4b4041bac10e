"""What servers, processes and loops do to connections costs no call, and errors tell no words of messages."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa
from redis.asyncio import Redis
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from context_compressor import (
    CompressedMemory,
    Msg,
    RedisMemory,
    RedisMemoryService,
    RedisStates,
    SQLAlchemyMemory,
    SQLAlchemyMemoryService,
    SQLAlchemyOffloadStore,
    SQLAlchemyStates,
)
from context_compressor.backends.admin.opening import open_sessions
from tests.backends.kept import url_of

WORD = "hunter2-swordfish"
_POSTGRES = (
    "SELECT pg_backend_pid()",
    "SELECT pg_terminate_backend({})",
    "SELECT count(*) FROM pg_stat_activity WHERE pid = {}",
)
_CUT = {
    "asyncpg": _POSTGRES,
    "psycopg": _POSTGRES,
    "mariadb": (
        "SELECT CONNECTION_ID()",
        "KILL {}",
        "SELECT count(*) FROM information_schema.processlist WHERE id = {}",
    ),
}
"""What names a connection, what cuts it, and what counts whether it is there still."""


@pytest.mark.parametrize("whose", ["ours", "the caller's"])
@pytest.mark.parametrize("kind", _CUT)
async def test_a_server_that_cuts_idle_connections_costs_no_call(
    kind: str, whose: str, server: Callable[[str], int], tmp_path: Path
) -> None:
    url = url_of(kind, server, tmp_path)
    admin, given = create_async_engine(url, isolation_level="AUTOCOMMIT"), create_async_engine(url)
    memory = SQLAlchemyMemory(url if whose == "ours" else given, session_id=uuid4().hex)
    await memory.add(Msg("user", "first", "user"))
    engine = memory.history._engine
    for number in range(2):
        async with engine.connect() as connection:
            asked, kill, count = _CUT[kind]
            own = (await connection.exec_driver_sql(asked)).scalar_one()
        async with admin.connect() as connection:
            await connection.exec_driver_sql(kill.format(own))
            async with asyncio.timeout(60):
                while (await connection.exec_driver_sql(count.format(own))).scalar_one():  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        await memory.add(Msg("user", f"{number}", "user"))
    assert await memory.size() == 3
    await memory.close()
    for one in (admin, given):
        await one.dispose()


async def test_a_redis_that_cuts_idle_connections_costs_no_call(server: Callable[[str], int]) -> None:
    async with (
        Redis(port=server("redis")) as admin,
        RedisMemory(port=server("redis"), session_id=uuid4().hex) as memory,
    ):
        for number in range(3):
            await memory.add(Msg("user", f"{number}", "user"))
            await admin.client_kill_filter(_id=str(await memory.get_client().client_id()))
        assert await memory.size() == 3


async def test_more_calls_than_connections_wait(server: Callable[[str], int]) -> None:
    name = uuid4().hex
    async with RedisMemory(f"redis://127.0.0.1:{server('redis')}?max_connections=3") as one:
        memories = [RedisMemory(one.get_client(), session_id=f"{name} {number % 5}") for number in range(100)]
        await asyncio.gather(*(memory.add(Msg("user", "x", "user")) for memory in memories))
        assert [await memory.size() for memory in memories[:5]] == [20] * 5


async def test_errors_tell_no_words(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Though the engine be the caller's: what an error says gets into logs and events."""
    engine: AsyncEngine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/memory.db")
    base, store, events = SQLAlchemyMemory(engine), SQLAlchemyOffloadStore(engine, "texts"), list[Any]()
    await base.add(Msg("user", "first", "user"))
    async with engine.begin() as connection:
        await connection.exec_driver_sql("PRAGMA query_only=ON")
    with pytest.raises(sa.exc.OperationalError) as raised:
        await base.add(Msg("user", WORD, "user"))
    memory = CompressedMemory(store=store, max_total_tokens=1_000, on_event=events.append)
    with caplog.at_level(logging.DEBUG, "context_compressor"):
        for number in range(12):
            await memory.add(Msg("user", f"{WORD} {number} " + "alpha beta " * 60, "user"))
            await memory.get_memory()
    await engine.dispose()
    told = [str(raised.value), caplog.text, repr(events)]
    assert "readonly" in repr(events)
    assert [text for text in told if WORD in text] == []


def lives(url: str, name: str) -> list[int]:
    """Use what there is over a backend in one loop after another, and in a process between; return counts."""
    is_redis = url.startswith("redis")
    base: Any = (RedisMemory if is_redis else SQLAlchemyMemory)(url, session_id="s", user_id=name)
    service: Any = (RedisMemoryService if is_redis else SQLAlchemyMemoryService)(url)
    states: Any = (RedisStates if is_redis else SQLAlchemyStates)(url)
    memory, directory = CompressedMemory(base), open_sessions(url)

    async def add(prefix: str) -> int:
        await service.start()
        assert await service.health()
        await asyncio.gather(*(memory.add(Msg("user", f"{prefix} {one}", "user")) for one in range(10)))
        # Many at once wait for each other, in each loop.
        asked = [service.search_memory(name, [Msg("user", prefix, "user")]) for _ in range(3)]
        assert [len(found) for found in await asyncio.gather(*asked)] == [10] * 3
        assert [info.session_id for info in await directory.infos(name)] == ["s"]
        await states.exchange(name, lambda _: {"said": prefix})
        assert name in await states.keys()
        return len(await memory.get_memory())

    async def close() -> int:
        await states.delete(name)
        for closing in (service.stop(), states.close(), directory.close(), base.close()):
            await closing
        return 0

    counts = [asyncio.run(add("one")), asyncio.run(add("two"))]
    child = os.fork()
    if not child:
        code = 1
        try:
            code = asyncio.run(asyncio.wait_for(add("child"), 120))
        finally:
            os._exit(code)
    counts.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    return [*counts, asyncio.run(add("three")), asyncio.run(close())]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # loops end before sockets
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # and what Python keeps of these keeps them, too
@pytest.mark.parametrize("kind", ["sqlite", "asyncpg", "mariadb", "redis"])
async def test_all_go_on_in_another_loop_and_in_a_process_that_was_forked(
    kind: str, server: Callable[[str], int], tmp_path: Path
) -> None:
    url = url_of(kind, server, tmp_path)
    assert await asyncio.to_thread(lives, url, uuid4().hex) == [10, 20, 30, 40, 0]
    gc.collect()  # or Python would complain of those sockets in a later test
