"""`RedisMemory`: the contracts, isolation, time to live, writers, and clients that decode or not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from redis.asyncio import ConnectionPool, Redis, RedisCluster

from context_compressor import CompressedMemory, Msg, RedisMemory
from context_compressor.backends import batch
from context_compressor.backends.admin.deletion import delete_session
from context_compressor.backends.redis import history as backend
from context_compressor.backends.redis.clients import Client
from context_compressor.backends.redis.history import RedisHistory
from context_compressor.errors import InvalidArgumentError, InvalidStateError
from context_compressor.memory.history import Add, Delete, Mark
from tests.memory.contract import make_msg
from tests.memory.history_contract import HistoryContract
from tests.memory.test_history import MemoryOverHistoryContract

KINDS = ["redis", "cluster", "valkey"]
everywhere = pytest.mark.parametrize("kind", KINDS, indirect=True)


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> str:
    return getattr(request, "param", "redis")


@pytest.fixture
async def client(server: Callable[[str], int], kind: str) -> AsyncIterator[Client]:
    made = RedisCluster if kind == "cluster" else Redis
    client = made(host="127.0.0.1", port=server(kind))
    yield client
    await client.aclose()


@pytest.fixture
def history(client: Client) -> RedisHistory:
    return RedisHistory(client, session_id=uuid4().hex)


@pytest.mark.parametrize(
    "kind", ["redis", "cluster", pytest.param("valkey", marks=pytest.mark.variants(0))], indirect=True
)
class TestHistory(HistoryContract):
    pass


@pytest.mark.parametrize(
    "kind", ["redis", *(pytest.param(one, marks=pytest.mark.variants(0)) for one in KINDS[1:])], indirect=True
)
class TestMemory(MemoryOverHistoryContract):
    pass


async def words(memory: RedisMemory) -> list[Any]:
    return [entry.msg.content for entry in await memory.history.read() if entry.msg is not None]


@pytest.mark.parametrize("decodes", [True, False])
async def test_any_text_comes_back_as_it_was_decoded_or_not(
    server: Callable[[str], int], decodes: bool
) -> None:
    pool = ConnectionPool(host="127.0.0.1", port=server("redis"), decode_responses=decodes)
    memory = RedisMemory(pool, session_id=uuid4().hex)
    texts = ["\0", "\ud83d\ude00", "\ud83d" + "x" + "\ude00", "é你\U0001f600", "'\"\\%_", "x" * 3_000_000]
    await memory.add(
        [Msg("user", text, "user", {"deep": "\ud83d\ude00"}) for text in texts], marks="\ud83d\ude00"
    )
    assert await words(memory) == texts
    assert (await memory.get_memory(mark="\ud83d\ude00"))[0].metadata == {"deep": "\ud83d\ude00"}
    await memory.close()
    assert await memory.size() == len(texts)  # the pool is the caller's
    await pool.disconnect()


@everywhere
async def test_a_write_that_was_sent_twice_is_made_once(client: Client) -> None:
    history = RedisHistory(client, session_id=uuid4().hex)
    script = history._write

    async def twice(*arguments: Any) -> Any:
        await script(*arguments)
        return await script(*arguments)

    history._write = twice  # type: ignore[assignment]
    assert await history.write([Add(make_msg("a"), duplicate=True)], at=0) == 1
    assert await history.write([Add(make_msg("a"), duplicate=True)]) == 2
    assert (await history.head()).size == 2


async def test_who_asks_first_need_not_ask_alone(server: Callable[[str], int]) -> None:
    client, name = RedisCluster("127.0.0.1", server("cluster")), uuid4().hex
    memories = [RedisMemory(client, session_id=f"{name} {number}") for number in range(40)]
    await asyncio.gather(*(memory.add(make_msg("a")) for memory in memories))
    assert [await memory.size() for memory in memories] == [1] * 40
    await client.aclose()


@everywhere
async def test_a_session_lives_as_long_as_it_is_used_and_goes_whole(client: Client) -> None:
    prefix = uuid4().hex
    memory = RedisMemory(client, key_prefix=prefix, key_ttl=100)
    await memory.add([make_msg("a"), make_msg("b")], marks="m")
    await memory.delete(["b"])
    keys = [key async for key in client.scan_iter(f"{prefix}*") if not key.endswith(b":sessions")]
    assert len(keys) >= 5
    for key in keys:
        assert 0 < await client.ttl(key) <= 100
        await client.expire(key, 50)
    await memory.get_memory()
    assert [key for key in keys if await client.ttl(key) <= 50] == []


async def test_without_a_time_to_live_nothing_ends(client: Client) -> None:
    prefix = uuid4().hex
    await RedisMemory(client, key_prefix=prefix).add(make_msg("a"))
    assert {await client.ttl(key) async for key in client.scan_iter(f"{prefix}*")} == {-1}


@pytest.mark.parametrize("key_ttl", [None, 100])
async def test_a_key_that_was_evicted_is_named(client: Client, key_ttl: int | None) -> None:
    for part in ("head", "messages", "ids", "order", "changed", "marks", "ledger", "edits", "bodies"):
        name = uuid4().hex

        def opened(name: str = name) -> CompressedMemory:
            base = RedisMemory(client, session_id=name, key_ttl=key_ttl)
            return CompressedMemory(base, max_total_tokens=1_000)

        memory = opened()
        await memory.add([Msg("user", f"{one} alpha beta " * 30, "user") for one in range(12)], marks="m")
        assert len(await memory.get_memory()) < 12
        lost = next(key for key in memory.base.history._keys if key.endswith(f":{part}"))  # type: ignore[attr-defined]
        assert await client.delete(lost) == 1
        whole = opened().base
        for call in (
            *(opened().get_memory, memory.get_memory, whole.get_memory, partial(whole.get_memory, mark="m")),
            partial(memory.add, make_msg("new")),
        ):
            with pytest.raises(InvalidStateError, match=lost):
                await call()
        await delete_session(memory.base)
        assert await opened().get_memory() == []


async def test_a_server_that_evicts_keys_is_warned_of(
    server: Callable[[str], int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for policy, key_ttl, is_told in (("noeviction", 9, 0), ("volatile-lru", None, 0), ("volatile-lru", 9, 1)):
        async with RedisMemory(port=server("redis"), session_id=uuid4().hex, key_ttl=key_ttl) as memory:

            async def info(section: str, policy: str = policy) -> dict[str, Any]:
                assert section == "memory"
                return {"maxmemory": 9, "maxmemory_policy": policy}

            monkeypatch.setattr(memory.get_client(), "info", info)
            await memory.size()
            await memory.size()
            assert caplog.text.count("set it to noeviction") == is_told


def test_what_is_no_server_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="expected a URL"):
        RedisMemory(5)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="redis://"):
        RedisMemory("http://localhost")
    with pytest.raises(InvalidArgumentError, match="redis://"):
        RedisMemory("redis+cluster://localhost:7000/3")
    for url in ("redis://localhost?hots=x", "redis+cluster://localhost:7000?hots=x"):
        with pytest.raises(InvalidArgumentError, match="hots"):
            RedisMemory(url)
    with pytest.raises(InvalidArgumentError, match="braces"):
        RedisMemory(key_prefix="{a}")
    with pytest.raises(InvalidArgumentError, match="key_ttl"):
        RedisMemory(key_ttl=0)


@everywhere
async def test_deleted_messages_are_forgotten_after_a_while(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "TOLD_WRITES", 3)
    monkeypatch.setattr(backend, "TOLD_WRITES", 3)
    history = RedisHistory(client, session_id=uuid4().hex)
    await history.write([Add(make_msg("a")), Add(make_msg("b"))])
    await history.write([Delete(["a"])])
    for number in range(5):
        await history.write([Add(make_msg(str(number)))])
    await history.write([Delete(["0"])])
    assert [entry.key for entry in await history.read(after=1) if entry.msg is None] == ["0"]
    assert (await history.head()).size == 5
    kept = {one: await client.hlen(one) for one in history._keys[1:3]}
    assert list(kept.values()) == [6, 6], "messages and ids"
    for number in range(5):
        await history.write([Mark([str(number)], add="x")])
    await history.write([Add(make_msg("0")), Delete(["1"])])  # it came back as it was to be forgotten
    assert [entry.key for entry in await history.read()] == ["b", "2", "3", "4", "0"]
