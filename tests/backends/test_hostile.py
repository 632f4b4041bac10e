"""Ids and texts that nobody expects, and many writers, over every backend: all kept, or refused by name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa
from redis.asyncio import Redis, RedisCluster
from sqlalchemy.ext.asyncio import create_async_engine

from context_compressor import (
    CompressedMemory,
    Msg,
    RedisMemory,
    RedisOffloadStore,
    SQLAlchemyMemory,
    SQLAlchemyOffloadStore,
)
from context_compressor.errors import InvalidMessageError
from tests.backends.kept import KINDS as KEPT
from tests.backends.kept import URLS, url_of

pytestmark = pytest.mark.variants(1)

KINDS = ["sqlite", "redis", "mariadb", "asyncpg", "cluster", "psycopg", "valkey"]
NAMES = [
    "é" * 300,
    "x'; DROP TABLE context_compressor_messages; --",
    '"; FLUSHALL\r\n*1\r\n$8\r\nFLUSHALL\r\n',
    "{a}:}b{",
    "a:b/../c\\d|e",
    "NUL\0inside",
    "half \ud83d, other half \ude00",
    "你好 \U0001f600 e\u0301 \u202e",
    "%s %(name)s :name ? $1",
    " ",
    "",
]
PAIRS = [("a", "b:c"), ("a:b", "c"), ("a", "b"), ("b", "a"), ("A", "b:c"), ("a ", "b:c"), ("", "ab:c")]
"""User and session, which are others if one runs them together, or folds their letters."""


@pytest.fixture(params=KINDS)
async def opened(
    request: pytest.FixtureRequest, server: Callable[[str], int], tmp_path: Path
) -> AsyncIterator[Callable[[str, str], tuple[Any, Any]]]:
    """Give a function that opens the memory and the store of a user's session."""
    kind, closing = request.param, list[Callable[[], Awaitable[None]]]()
    if kind in URLS:
        engine = create_async_engine(url_of(kind, server, tmp_path))
        closing.append(engine.dispose)
        yield lambda user, name: (
            SQLAlchemyMemory(engine, user_id=user, session_id=name),
            SQLAlchemyOffloadStore(engine, user + name),
        )
    else:
        client: Any = (RedisCluster if kind == "cluster" else Redis)(host="127.0.0.1", port=server(kind))
        closing.append(client.aclose)
        yield lambda user, name: (
            RedisMemory(client, user_id=user, session_id=name),
            RedisOffloadStore(client, user + name),
        )
    for close in closing:
        await close()


@pytest.mark.variants(5)
async def test_ids_of_any_kind_are_kept_and_told_apart(opened: Any) -> None:
    base = uuid4().hex
    for number, name in enumerate(NAMES):
        memory, store = opened(base + name, name)
        await memory.add([Msg("user", f"{number} {id}", "user", id=id) for id in NAMES], marks=name)
        await memory.update_messages_mark("other " + name, msg_ids=[name])
        await store.write(f"text {number}")
    for number, name in enumerate(NAMES):
        memory, store = opened(base + name, name)
        held = await memory.get_memory(mark=name)
        assert [(msg.id, msg.content) for msg in held] == [(id, f"{number} {id}") for id in NAMES]
        assert [msg.id for msg in await memory.get_memory(mark="other " + name)] == [name]
        assert [await store.read(ref) for ref in await store.refs()] == [f"text {number}"]
        assert await memory.delete([name]) == 1
        assert name not in [msg.id for msg in await memory.get_memory()]


@pytest.mark.variants(5)
async def test_users_and_sessions_are_told_apart(opened: Any) -> None:
    base = uuid4().hex
    memories = [opened(base + user, session)[0] for user, session in PAIRS]
    for number, memory in enumerate(memories):
        await memory.add(Msg("user", f"word {number}", "user", id="the same"), marks="m")
    for number, memory in enumerate(memories):
        assert [msg.content for msg in await memory.get_memory(mark="m")] == [f"word {number}"]


@pytest.mark.variants(4)
@pytest.mark.parametrize("kind", [*KEPT, "psycopg"])
async def test_many_writers_lose_nothing(kind: str, server: Callable[[str], int], tmp_path: Path) -> None:
    """Over connections of their own, as processes have them; the first writes make the session, too."""
    url, name = url_of(kind, server, tmp_path), uuid4().hex
    made = SQLAlchemyMemory if kind in URLS else RedisMemory
    memories: list[Any] = [made(url, session_id=name) for _ in range(4)]

    async def write(number: int, memory: Any) -> None:
        for step in range(10):
            await memory.add(Msg("user", f"{number} {step}", "user"))

    await asyncio.gather(*(write(number, memory) for number, memory in enumerate(memories)))
    found = [str(msg.content) for msg in await memories[0].get_memory()]
    assert len(found) == 40
    for number in range(4):
        assert [text for text in found if text[0] == str(number)] == [f"{number} {n}" for n in range(10)]
    for memory in memories:
        await memory.close()


@pytest.mark.variants(5)
async def test_a_view_over_them_is_the_same_elsewhere(opened: Any) -> None:
    user = uuid4().hex
    for name in NAMES[:2]:
        base, store = opened(user, name)
        memory = CompressedMemory(base, store=store, max_total_tokens=1_000)
        await memory.add([Msg("user", f"\0 \ud83d {id} " + "word " * 150, "user", id=id) for id in NAMES])
        view = await memory.get_memory()
        assert memory.stats().events
        base, store = opened(user, name)
        other = CompressedMemory(base, store=store, max_total_tokens=1_000)
        assert [msg.to_dict() for msg in await other.get_memory()] == [msg.to_dict() for msg in view]
        for ref in await other.reachable_refs():
            assert "\0 \ud83d" in await other.read_ref(ref)


async def test_what_mariadb_does_not_take_is_refused_by_name(server: Callable[[str], int]) -> None:
    url = url_of("mariadb", server, Path())
    engine = create_async_engine(url, pool_size=1, max_overflow=0)
    setting = create_async_engine(url)
    memory = SQLAlchemyMemory(engine, session_id=uuid4().hex)
    async with setting.connect() as connection:
        limit = (await connection.execute(sa.text("SELECT @@max_allowed_packet"))).scalar_one()
        await connection.execute(sa.text("SET GLOBAL max_allowed_packet = 16777216"))  # the default
        try:
            await memory.add(Msg("user", "first", "user"))
        finally:
            await connection.execute(sa.text(f"SET GLOBAL max_allowed_packet = {limit}"))
    with pytest.raises(
        InvalidMessageError, match=r"message 'large': .* 16,777,216; raise its max_allowed_pa"
    ):
        await memory.add([Msg("user", "second", "user"), Msg("user", "\\" * 6_000_000, "user", id="large")])
    await memory.add(Msg("user", "x" * 16_000_000, "user", id="third"))
    assert [msg.content[:10] for msg in await memory.get_memory()] == ["first", "x" * 10]
    await asyncio.gather(engine.dispose(), setting.dispose())
