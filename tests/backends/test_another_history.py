"""A session that was deleted and begun anew, or restored from a backup, is not the one that was known."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa
from redis.asyncio import Redis
from sqlalchemy.ext.asyncio import AsyncEngine

from context_compressor import (
    CompressedMemory,
    CompressionEvent,
    Msg,
    RedisMemoryService,
    SQLAlchemyMemory,
    SQLAlchemyMemoryService,
    TiktokenCounter,
)
from context_compressor.backends.sql.engines import dispose, engine_for, make_tables
from context_compressor.backends.sql.tables import metadata, schema
from context_compressor.memory.history import NAME_CHARACTERS, NAMES_CHARACTERS
from context_compressor.services.base import MemoryService
from tests.backends.kept import KINDS, url_of

COUNTER = TiktokenCounter()
Restore = Callable[[], Awaitable[None]]


def said(prefix: str, number: int) -> Msg:
    return Msg("ada", f"{prefix} {number} " + "alpha beta gamma " * 20, "user", id=f"{number}")


async def rows_of(engine: AsyncEngine) -> Restore:
    """Back up a database, and return what restores it."""
    tables = [table for table in metadata.sorted_tables if table is not schema]
    async with engine.connect() as connection:
        kept = [(table, (await connection.execute(sa.select(table))).all()) for table in tables]

    async def restore() -> None:
        async with engine.begin() as connection:
            for table, rows in kept:
                await connection.execute(sa.delete(table))
                if rows:
                    await connection.execute(sa.insert(table), [row._asdict() for row in rows])

    return restore


async def keys_of(client: Redis) -> Restore:
    kept = {key: await client.dump(key) async for key in client.scan_iter()}

    async def restore() -> None:
        await client.flushdb()
        for key, value in kept.items():
            await client.restore(key, 0, value)

    return restore


@asynccontextmanager
async def services(
    kind: str, server: Callable[[str], int], folder: Path
) -> AsyncIterator[tuple[MemoryService, MemoryService, Callable[[], Awaitable[Restore]]]]:
    """Give two services, as two processes have them, and what backs their database up: one of their own."""
    url = url_of(kind, server, folder)
    if kind == "redis":
        url = url.removesuffix("/0") + "/7"  # which no other test uses
        client = Redis.from_url(url)
        async with RedisMemoryService(url) as one, RedisMemoryService(url) as two:
            yield one, two, lambda: keys_of(client)
        await client.flushdb()
        await client.aclose()
        return
    if kind != "sqlite":
        name = f"new{uuid4().hex}"
        engine = engine_for(url)
        async with engine.connect() as connection:
            await connection.execution_options(isolation_level="AUTOCOMMIT")
            await connection.execute(sa.text(f"CREATE DATABASE {name}"))
        await dispose(engine)
        url = f"{url.rpartition('/')[0]}/{name}"
    engine = engine_for(url)
    async with SQLAlchemyMemoryService(url) as one, SQLAlchemyMemoryService(url) as two:
        yield one, two, lambda: rows_of(engine)
    await dispose(engine)


def opened(service: MemoryService, session: str, **given: Any) -> CompressedMemory:
    base, store = service.memory("ada", session), service.store("ada", session)
    return CompressedMemory(base, store=store, counter=COUNTER, max_total_tokens=700, **given)


@pytest.mark.parametrize("kind", KINDS)
async def test_all_who_knew_it_see_what_is_there_now(
    kind: str, server: Callable[[str], int], tmp_path: Path
) -> None:
    """Whether it has fewer writes since than it had, as many, or more; whether they look first, or add."""
    every = [(None, False), (0, False), (3, True), (4, False), (9, True)]
    async with services(kind, server, tmp_path) as (one, two, back_up):
        for what in ("deleted", "restored"):
            for more, adds_first in every if kind == "sqlite" else every[:1]:
                session, query = uuid4().hex, Msg("ada", "secret", "user")
                memory = opened(one, session)
                await memory.add([said("secret", number) for number in range(10)])
                await memory.get_memory()
                restore = await back_up()
                for number in range(10, 14):
                    await memory.add(said("secret", number))
                await memory.get_memory()
                assert await memory.search_history("secret")
                assert await one.search_memory("ada", [query], {"top_k": 100})
                writes = (await memory.base.history.head()).number
                await (restore() if what == "restored" else two.delete_memory("ada", session))
                other = opened(two, session)
                assert (await other.base.history.head()).number < writes
                if more is None:  # as many writes as there were
                    while (await other.base.history.head()).number < writes:
                        await other.base.add(Msg("ada", "weather", "user"))
                for number in range(20, 20 + (more or 0)):
                    await other.add(said("weather", number))
                if adds_first:
                    await memory.add(said("mine", 99))
                found = [hit.message_ids for hit in await memory.search_history("secret", limit=20)]
                view, truth = await memory.get_memory(), opened(two, session)
                assert [msg.to_dict() for msg in view] == [msg.to_dict() for msg in await truth.get_memory()]
                assert found == [hit.message_ids for hit in await truth.search_history("secret", limit=20)]
                assert bool(found) == (what == "restored")
                for asked in ("secret", "weather", "mine"):
                    told = [
                        await service.search_memory("ada", [Msg("ada", asked, "user")], {"top_k": 100})
                        for service in (one, two)
                    ]
                    assert told[0] == told[1]
                await two.delete_memory("ada", session)


async def test_who_is_far_behind_goes_on_with_what_it_has(tmp_path: Path) -> None:
    """It cannot see whether all of its writes are there: it opens the session anew, and shows the same."""
    events: list[CompressionEvent] = []
    async with SQLAlchemyMemory(f"sqlite+aiosqlite:///{tmp_path}/memory.db") as base:
        memory = CompressedMemory(base, max_total_tokens=100_000, on_event=events.append)
        await memory.add(said("first", 0))
        await memory.get_memory()
        for number in range(NAMES_CHARACTERS // NAME_CHARACTERS + 1):
            await base.add(Msg("ada", "and", "user", id=f"and {number}"))
        assert len(await memory.get_memory()) == await base.size()
    assert events == []


@pytest.mark.parametrize("kind", ["sqlite", "asyncpg", "mariadb"])
async def test_tables_of_an_earlier_release_get_what_they_lack(
    kind: str, server: Callable[[str], int], tmp_path: Path
) -> None:
    async with services(kind, server, tmp_path) as (one, _, _):
        await one.memory("ada", "s").add(said("first", 0))
        engine = one._engine  # type: ignore[attr-defined]
        async with engine.begin() as connection:
            await connection.execute(sa.text("ALTER TABLE context_compressor_sessions DROP COLUMN writes"))
        later = engine_for(engine.url.render_as_string(hide_password=False))
        await make_tables(later)
        memory = SQLAlchemyMemory(later, user_id="ada", session_id="s")
        assert (await memory.history.head()).number == 1
        await memory.add(said("second", 1))
        assert [msg.id for msg in await memory.get_memory()] == ["0", "1"]
        await dispose(later)
