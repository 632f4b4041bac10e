"""The suite of offload stores over databases, Redis, S3 and files, and what these have more."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3
import pytest
from cryptography.fernet import Fernet
from moto.server import ThreadedMotoServer
from redis.asyncio import RedisCluster
from sqlalchemy import event
from sqlalchemy.ext.asyncio import create_async_engine

from context_compressor import (
    CompressedMemory,
    FsspecOffloadStore,
    Msg,
    OffloadCorruptError,
    OffloadFullError,
    OffloadKeyError,
    OffloadStore,
    OffloadWriteError,
    RedisOffloadStore,
    SQLAlchemyOffloadStore,
)
from context_compressor.errors import InvalidArgumentError
from context_compressor.offload.packed import PackedOffloadStore
from tests.backends.kept import URLS, url_of
from tests.offload import test_stores as suite

pytestmark = pytest.mark.variants(4)

KINDS: list[Any] = [
    "sqlite", "asyncpg", "mariadb", "redis", "cluster", "memory", "local", "s3",
    pytest.param("valkey", marks=pytest.mark.variants(0)),
]  # fmt: skip


@pytest.fixture(scope="session")
def s3() -> Iterator[dict[str, Any]]:
    """Give the options for a server that speaks S3."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    options = {"key": "k", "secret": "s", "endpoint_url": f"http://{host}:{port}"}
    client = boto3.client(
        "s3",
        endpoint_url=options["endpoint_url"],
        aws_access_key_id="k",
        aws_secret_access_key="s",
        region_name="us-east-1",
    )
    client.create_bucket(Bucket="texts")
    yield options
    server.stop()


@pytest.fixture(params=KINDS)
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Give a function that opens one and the same store, with options."""
    kind, name = request.param, uuid4().hex
    if kind in ("redis", "cluster", "valkey"):
        port = request.getfixturevalue("server")(kind)
        if kind == "cluster":
            return lambda **more: RedisOffloadStore(RedisCluster("127.0.0.1", port), name, **more)
        return lambda **more: RedisOffloadStore(f"redis://127.0.0.1:{port}", name, **more)
    if kind in URLS:
        url = url_of(kind, request.getfixturevalue("server"), tmp_path)
        return lambda **more: SQLAlchemyOffloadStore(url, name, **more)
    where = {"memory": f"memory://{name}", "local": f"file://{tmp_path}/texts", "s3": f"s3://texts/{name}"}[
        kind
    ]
    options = request.getfixturevalue("s3") if kind == "s3" else {}
    return lambda **more: FsspecOffloadStore(where, "ns", **options, **more)


@pytest.fixture
async def store(made: Any) -> AsyncIterator[OffloadStore]:
    store = made()
    yield store
    await closed(store)


async def closed(store: Any) -> None:
    await store.close()
    if isinstance(getattr(store, "_client", None), RedisCluster):  # which was given to it
        await store._client.aclose()


# The suite of all stores, as far as it takes one from a fixture.
for _name, _test in list(vars(suite).items()):
    if _name.startswith("test_") and _test.__code__.co_varnames[:1] == ("store",) and "colli" not in _name:
        globals()[_name] = _test
del _name, _test


async def test_another_process_reads_it(made: Any) -> None:
    one, other = made(), made()
    ref = await one.write("a text")
    assert await other.read(ref) == "a text"
    assert await other.refs() == [ref]
    await closed(one)
    await closed(other)


async def test_large_texts_are_compressed_and_read_by_any_store(made: Any) -> None:
    small, plain = made(compress_above=1_000), made()
    text = "the same words again and again " * 20_000
    ref = await small.write(text)
    held = await small._get(ref)
    assert held is not None
    assert len(held) < len(text) / 50
    assert await plain.read(ref) == text
    assert await plain.write(text) == ref
    bomb = bytes.fromhex("01 28b52ffd a0") + (300 * 2**20).to_bytes(4, "little")  # a frame's beginning
    await plain._replace(ref, bomb)
    with pytest.raises(OffloadCorruptError, match="more than 268,435,456 bytes"):
        await plain.read(ref)
    for one in (small, plain):
        await closed(one)


async def test_a_full_database_is_called_so_and_costs_no_view(tmp_path: Path) -> None:
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/texts.db")

    @event.listens_for(engine.sync_engine, "connect")
    def fill(connection: Any, _: object) -> None:
        cursor = connection.cursor()
        cursor.execute("PRAGMA max_page_count=24")
        cursor.close()

    store = SQLAlchemyOffloadStore(engine, "a")
    with pytest.raises(OffloadFullError, match=r"could not be stored: \S*.*disk is full; make room there$"):
        await store.write("x" * 400_000)
    events: list[str | None] = []
    async with CompressedMemory(
        store=store, max_total_tokens=2_000, on_event=lambda one: events.append(one.error)
    ) as memory:
        for number in range(8):
            await memory.add(Msg("user", f"{number} " + f"alpha {number} " * 900, "user"))
            assert await memory.get_memory()
    assert any(error and error.startswith("OffloadFullError") for error in events)
    await engine.dispose()


async def test_what_is_encrypted_opens_with_its_key_alone(made: Any) -> None:
    key = Fernet.generate_key()
    sealed, other, none = (
        made(encryption_key=key, compress_above=10),
        made(encryption_key=Fernet.generate_key()),
        made(),
    )
    ref = await sealed.write("a secret that nobody else reads")
    assert b"secret" not in (await sealed._get(ref) or b"")
    assert await sealed.read(ref) == "a secret that nobody else reads"
    with pytest.raises(OffloadKeyError, match="another one"):
        await other.read(ref)
    with pytest.raises(OffloadKeyError, match="give its store the key"):
        await none.read(ref)
    for one in (sealed, other, none):
        await closed(one)


async def test_what_was_changed_is_found_and_written_anew(made: Any) -> None:
    store: PackedOffloadStore = made()
    ref = await store.write("as it was")
    await store._replace(ref, b"\0something else")
    with pytest.raises(OffloadCorruptError, match=ref):
        await store.read(ref)
    assert await store.write("as it was") == ref
    assert await store.read(ref) == "as it was"
    await closed(store)


async def test_a_large_text_is_kept_whole(made: Any) -> None:
    store = made()
    text = "".join(f"{number:09}\n" for number in range(1_200_000))  # 12 MB
    ref = await store.write(text)
    assert await store.read(ref) == text
    await closed(store)


async def test_a_memory_keeps_its_texts_there(made: Any) -> None:
    store = made()
    memory = CompressedMemory(max_total_tokens=2_000, store=store)
    for number in range(30):
        await memory.add(Msg("user", f"Order {number} was sent. " * 12, "user"))
        await memory.get_memory()
    refs = await memory.reachable_refs()
    assert refs
    assert set(refs) <= set(await store.refs())
    for ref in refs:
        assert await memory.read_ref(ref) == await store.read(ref)
    await closed(store)


def test_a_store_serves_several_loops(made: Any) -> None:
    store = made()

    async def write(text: str) -> str:
        try:
            return await store.write(text)
        finally:
            await closed(store)

    refs = [asyncio.run(write(text)) for text in ("one", "two")]
    assert len(set(refs)) == 2


async def test_who_does_not_answer_is_named() -> None:
    store = RedisOffloadStore("redis://127.0.0.1:1?socket_connect_timeout=0.1", "ns")
    store._client.connection_pool.connection_kwargs["retry"] = None
    with pytest.raises(OffloadWriteError, match="could not be stored"):
        await asyncio.wait_for(store.write("text"), 30)
    await closed(store)


def test_what_is_wrong_is_refused_at_the_door() -> None:
    with pytest.raises(InvalidArgumentError, match="Fernet"):
        FsspecOffloadStore("memory://x", encryption_key="too short")
    with pytest.raises(InvalidArgumentError, match="url"):
        FsspecOffloadStore("nowhere://x")
    with pytest.raises(ValueError, match="namespace"):
        FsspecOffloadStore("memory://x", "../y")
    with pytest.raises(InvalidArgumentError, match="compress_above"):
        FsspecOffloadStore("memory://x", compress_above=-1)
    with pytest.raises(InvalidArgumentError, match="engine"):
        SQLAlchemyOffloadStore(5)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="namespace"):
        RedisOffloadStore("redis://localhost", 5)  # type: ignore[arg-type]
    assert RedisOffloadStore("redis://localhost", None).label == "default"  # as of other stores


def test_what_is_missing_is_named_by_its_extra() -> None:
    """Whichever name, URL or module of ours asks for the package first."""
    code = """
import sys
sys.modules |= dict.fromkeys(("fsspec", "redis", "sqlalchemy"))
import context_compressor
from context_compressor.backends.admin.opening import open_sessions, open_store
kinds = {"SQLAlchemy": "sql", "Redis": "redis", "Fsspec": "fsspec"}
ends = ("Memory", "MemoryService", "OffloadStore")
asked = {
    lambda name=kind + end: getattr(context_compressor, name): extra
    for kind, extra in kinds.items()
    for end in ends
    if kind + end in dir(context_compressor)
}
for url, extra in (("sqlite:///x", "sql"), ("redis://x", "redis"), ("memory://x", "fsspec")):
    asked[lambda url=url: open_store(url)] = extra
    if extra != "fsspec":
        asked[lambda url=url: open_sessions(url)] = extra
for ask, extra in asked.items():
    try:
        ask()
    except ImportError as error:
        assert f"pip install 'agent-context-compressor[{extra}]'" in str(error), error
    else:
        raise AssertionError(extra)
print(len(asked))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("12\n", "")
