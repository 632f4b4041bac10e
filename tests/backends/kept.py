"""Sessions for tests, in every backend, and everything that is kept of them."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import sqlalchemy as sa
from redis.asyncio import Redis
from sqlalchemy.ext.asyncio import create_async_engine

from context_compressor import CompressedMemory, Msg
from context_compressor.backends.admin.opening import open_sessions
from context_compressor.backends.admin.sessions import SessionDirectory
from context_compressor.offload.store import OffloadStore

URLS = {
    "sqlite": "sqlite+aiosqlite:///{folder}/memory.db",
    "asyncpg": "postgresql+asyncpg://postgres@127.0.0.1:{port}/postgres",
    "psycopg": "postgresql+psycopg://postgres@127.0.0.1:{port}/postgres",
    "mariadb": "mysql+asyncmy://test@127.0.0.1:{port}/test",
}
_SERVERS = {"asyncpg": "postgres", "psycopg": "postgres", "mariadb": "mariadb"}
KINDS = ["sqlite", "redis", "asyncpg", "mariadb"]
BUDGET = {"max_total_tokens": 2_000, "max_tool_message_tokens": 150, "preview_tokens": 20}


def url_of(kind: str, server: Callable[[str], int], folder: Path) -> str:
    if kind == "redis":
        return f"redis://127.0.0.1:{server('redis')}/0"
    port = server(_SERVERS[kind]) if kind in _SERVERS else 0
    return URLS[kind].format(folder=folder, port=port)


@asynccontextmanager
async def sessions_in(
    kind: str, server: Callable[[str], int], folder: Path, prefix: str = ""
) -> AsyncIterator[SessionDirectory]:
    url = url_of(kind, server, folder)
    async with open_sessions(url, key_prefix=prefix if kind == "redis" else "") as directory:
        yield directory


async def talk(memory: CompressedMemory, said: str = "", turns: int = 30) -> list[dict[str, Any]]:
    """Have a long conversation, and return the view at its end."""
    for turn in range(turns):
        call = f"call-{uuid4().hex[:8]}"
        await memory.add(
            [
                Msg("user", f"Step {turn}{said}: look for the order \ud83d\0 of {uuid4().hex}.", "user"),
                Msg(
                    "agent",
                    [{"type": "tool_use", "id": call, "name": "look", "input": {"at": turn}}],
                    "assistant",
                ),
                Msg(
                    "system",
                    [
                        {
                            "type": "tool_result",
                            "id": call,
                            "name": "look",
                            "output": f"{said} line {turn}\n" * 150,
                        }
                    ],
                    "system",
                ),
                Msg("agent", f"Order {turn} was sent on time. " * 5, "assistant"),
            ],
            marks=["seen"] if turn % 3 else None,
        )
        await memory.get_memory()
    return [msg.to_dict() for msg in await memory.get_memory()]


async def view(
    directory: SessionDirectory, user: str, name: str, store: OffloadStore
) -> list[dict[str, Any]]:
    """Return the view that another process has."""
    memory = CompressedMemory(directory.history(user, name), store=store, **BUDGET)
    return [msg.to_dict() for msg in await memory.get_memory()]


async def all_kept(kind: str, url: str, folder: Path) -> dict[str, bytes]:
    """Return all that a backend, and the files of a folder, hold; SQLite's files as they lie on the disk."""
    found = files_in(folder)
    if kind == "redis":
        client = Redis.from_url(url)
        async for key in client.scan_iter(count=1_000):
            name = await client.type(key)
            if name == b"hash":
                held: Any = await client.hgetall(key)
                found |= {
                    f"{shown(key)} {shown(field)}": key + field + value + plain(value)
                    for field, value in held.items()
                }
            elif name == b"zset":
                held = await client.zrange(key, 0, -1)
                found |= {f"{shown(key)} {shown(member)}": key + member for member in held}
            else:
                found[shown(key)] = key + (await client.get(key) or b"")  # another test's may end meanwhile
        await client.aclose()
    else:
        engine = create_async_engine(url)
        async with engine.connect() as connection:
            tables = await connection.run_sync(lambda one: sa.inspect(one).get_table_names())
            for table in tables:
                if table.startswith("context_compressor_"):
                    for row in await connection.execute(sa.text(f"SELECT * FROM {table}")):
                        found[f"{table} {tuple(row)!r:.400}"] = repr(tuple(row)).encode()
        await engine.dispose()
    return found


def shown(name: bytes) -> str:
    return name.decode(errors="backslashreplace")


def plain(value: bytes) -> bytes:
    """Return what a text in Redis says, whose value is base64."""
    try:
        return b64decode(value, validate=True)
    except ValueError:
        return b""


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(one): one.read_bytes() for one in folder.rglob("*") if one.is_file()}
