"""`RedisMemoryService`: what ends together, and what a service leaves as it is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from uuid import uuid4

import pytest
from redis.asyncio import ConnectionPool, Redis

from context_compressor import CompressedMemory, InvalidArgumentError, Msg, RedisMemory, RedisMemoryService
from context_compressor.backends.redis import scripts, users
from context_compressor.backends.redis.users import UserSessions

QUERY = [Msg("user", "the gate code", "user")]


@pytest.fixture
async def client(server: Callable[[str], int]) -> AsyncIterator[Redis]:
    client = Redis(port=server("redis"))
    yield client
    await client.aclose()


@pytest.fixture
def prefix() -> str:
    return uuid4().hex


async def keys_of(client: Redis, prefix: str) -> list[str]:
    return [key.decode() async for key in client.scan_iter(f"{prefix}*")]


async def test_all_of_a_session_lives_as_long_as_it_is_used(client: Redis, prefix: str) -> None:
    async with RedisMemoryService(redis_client=client, key_prefix=prefix, ttl_seconds=100) as service:
        base, store = service.memory("ada", "a"), service.store("ada", "a")
        memory = CompressedMemory(base, store=store, max_total_tokens=1_500)
        await memory.add(Msg("user", "The gate code is 7731-B.", "user"), marks="m")
        for number in range(30):
            await memory.add(Msg("user", f"Parcel {number} went out by lorry. " * 12, "user"))
            await memory.get_memory()
        keys = await keys_of(client, prefix)
        parts = {key.rpartition(":")[2] for key in keys}
        assert parts >= {"head", "messages", "ledger", "edits", "marks", "texts", "sessions"}
        assert [key for key in keys if not 0 < await client.ttl(key) <= 151] == []
        for use in (
            lambda: service.search_memory("ada", QUERY),
            lambda: service.list_memory("ada"),
            lambda: service.add_memory("ada", QUERY, "a"),
            lambda: memory.get_memory(),  # whoever reads a session keeps its texts as well
        ):
            for key in keys:
                if not key.endswith(":sessions"):
                    await client.expire(key, 5)
            await use()
            assert [key for key in keys if await client.ttl(key) <= 50] == []


async def test_what_ended_is_found_no_more_and_its_name_goes_too(
    client: Redis, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with RedisMemoryService(redis_client=client, key_prefix=prefix, ttl_seconds=100) as service:
        await service.add_memory("ada", QUERY, "short")
        await service.add_memory("ada", QUERY, "long")
        assert len(await service.search_memory("ada", QUERY)) == 2
        stem = scripts.stem_of(prefix, "ada", "short")
        for part in scripts.PARTS:
            await client.delete(stem + part)
        assert len(await service.search_memory("ada", QUERY)) == len(await service.list_memory("ada")) == 1
        sessions = UserSessions(client, "ada", prefix, 100)
        assert sorted(await sessions.names()) == ["long", "short"]
        await client.zadd(sessions._key, dict.fromkeys(await client.zrange(sessions._key, 0, -1), 1))
        await sessions.note("other")  # whose name goes is no more than a name
        assert await sessions.names() == ["other"]


async def test_a_session_that_is_kept_for_good_or_for_longer_stays_so(client: Redis, prefix: str) -> None:
    for_good = RedisMemory(client, user_id="ada", session_id="a", key_prefix=prefix)
    longer = RedisMemory(client, user_id="ada", session_id="b", key_prefix=prefix, key_ttl=1_000)
    await for_good.add(Msg("user", "The gate code is 7731-B.", "user"))
    await longer.add(Msg("user", "The gate code was 7731-A.", "user"))
    async with RedisMemoryService(redis_client=client, key_prefix=prefix, ttl_seconds=10) as service:
        assert len(await service.search_memory("ada", QUERY)) == 2
        assert len(await service.list_memory("ada")) == 2
    for memory, least in ((for_good, -1), (longer, 900)):
        for key in memory.history._keys:
            if await client.exists(key):
                ttl = await client.ttl(key)
                assert (ttl == -1) if least < 0 else (ttl > least)
    assert await client.ttl(UserSessions(client, "ada", prefix, None)._key) == -1


async def test_names_are_noted_again_before_they_end(
    client: Redis, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(users.time, "monotonic", lambda: now[0])
    memory = RedisMemory(client, user_id="ada", session_id="a", key_prefix=prefix, key_ttl=100)
    await memory.add(Msg("user", "one", "user"))
    key = UserSessions(client, "ada", prefix, 100)._key
    await client.expire(key, 60)
    await memory.size()
    assert await client.ttl(key) <= 60
    now[0] = 51.0
    await memory.size()
    assert await client.ttl(key) > 140


async def test_deleting_leaves_no_key(client: Redis, prefix: str) -> None:
    async with RedisMemoryService(redis_client=client, key_prefix=prefix, ttl_seconds=None) as service:
        await service.add_memory("ada", QUERY, "a")
        await service.add_memory("ada", QUERY)
        await service.store("ada").write("a text")
        assert {await client.ttl(key) for key in await keys_of(client, prefix)} == {-1}
        held = service.memory("ada", "a")
        await service.delete_memory("ada")
        assert await keys_of(client, prefix) == []
        await held.add(Msg("user", "the gate code again", "user"))  # by somebody who held it
        assert len(await service.search_memory("ada", QUERY)) == 1


async def test_a_pool_or_a_client_stays_the_callers(server: Callable[[str], int], prefix: str) -> None:
    pool = ConnectionPool(host="127.0.0.1", port=server("redis"), decode_responses=True)
    service = RedisMemoryService(redis_client=pool, key_prefix=prefix)
    async with service:
        await service.add_memory("ada", QUERY)
    assert await Redis(connection_pool=pool).ping()
    await pool.disconnect()


async def test_a_server_that_is_not_there_is_no_health(prefix: str) -> None:
    service = RedisMemoryService("redis://127.0.0.1:1/0", socket_connect_timeout=0.1)
    await service.start()
    assert not await service.health()
    await service.stop()
    with pytest.raises(InvalidArgumentError, match="redis_url"):
        await RedisMemoryService("http://localhost").start()
    with pytest.raises(InvalidArgumentError, match="ttl_seconds"):
        RedisMemoryService(ttl_seconds=0)
