"""Make the dumps beside this file: the invented sessions of `tests/memory/saved`, in SQLite and in Redis.

It was run once. The files are not to be made again: they stand for what users have in their databases. What
today's code keeps, for new files beside these, is written by

    python -m tests.backends.saved.make FOLDER PORT

where a Redis server listens on a loopback port, with nothing in it. It writes `sqlite.sql.xz`,
`redis.json.xz` (by key its type and what it holds), and `views.json.xz` (by session: `config`, `remote`, and
the `view`).
"""

from __future__ import annotations

import asyncio
import json
import lzma
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from redis import Redis

from context_compressor import (
    CompressedMemory,
    CompressionConfig,
    RedisMemory,
    RedisOffloadStore,
    SQLAlchemyMemory,
    SQLAlchemyOffloadStore,
)
from tests.memory.saved.make import Making, counted_ids
from tests.memory.saved.sessions import SESSIONS, Model, Session

NAMES = [session.name for session in SESSIONS if session.name != "refused_write"]
"""A database that refuses is another test's."""
FOLDER = Path(__file__).parent


def over(kind: str, where: str, name: str) -> tuple[Any, Any]:
    """Return the history of one session and the store of its texts, in a database at this URL."""
    if kind == "redis":
        return RedisMemory(where, session_id=name), RedisOffloadStore(where, namespace=name)
    return SQLAlchemyMemory(where, session_id=name), SQLAlchemyOffloadStore(where, namespace=name)


@asynccontextmanager
async def memory_over(
    kind: str, where: str, name: str, config: dict[str, Any], *, remote: bool
) -> AsyncIterator[CompressedMemory]:
    """Open the memory of one session in a database."""
    base, store = over(kind, where, name)
    summarizer = Model() if remote else None
    async with (
        base,
        CompressedMemory(
            config=CompressionConfig(**config), base=base, store=store, summarizer=summarizer
        ) as memory,
    ):
        yield memory
    await store.close()


async def made(session: Session, kind: str, where: str) -> dict[str, Any]:
    """Run a session in a database; return what is to be seen of it."""
    making = Making(session)
    async with memory_over(kind, where, session.name, session.config, remote=session.remote) as memory:
        making.memory = memory
        with counted_ids():
            await session.run(making)
        view = [msg.to_dict() for msg in await memory.get_memory()]
    return {"config": session.config, "remote": session.remote, "view": view}


def redis_dump(client: Redis) -> dict[str, Any]:
    """Return what a server holds, by key."""
    read = {
        b"string": lambda key: _text(client.get(key)),
        b"hash": lambda key: {_text(name): _text(held) for name, held in sorted(client.hgetall(key).items())},
        b"list": lambda key: [_text(held) for held in client.lrange(key, 0, -1)],
        b"set": lambda key: sorted(_text(held) for held in client.smembers(key)),
        b"zset": lambda key: [
            [_text(held), score] for held, score in client.zrange(key, 0, -1, withscores=True)
        ],
    }
    found = {}
    for key in sorted(client.scan_iter()):
        kind = client.type(key)
        found[_text(key)] = [kind.decode(), read[kind](key)]
    return found


def redis_restored(client: Redis, dump: dict[str, Any]) -> None:
    """Fill a server with a dump."""
    for name, (kind, held) in dump.items():
        key = name.encode("latin-1")
        if kind == "string":
            client.set(key, held.encode("latin-1"))
        elif kind == "hash":
            client.hset(key, mapping={k.encode("latin-1"): v.encode("latin-1") for k, v in held.items()})
        elif kind == "list":
            client.rpush(key, *(one.encode("latin-1") for one in held))
        elif kind == "set":
            client.sadd(key, *(one.encode("latin-1") for one in held))
        else:
            client.zadd(key, {one.encode("latin-1"): score for one, score in held})


def _text(held: Any) -> str:
    text: str = held.decode("latin-1")
    return text


def packed(name: str, content: str, folder: Path) -> None:
    """Write one file."""
    (folder / name).write_bytes(lzma.compress(content.encode("utf-8", "surrogatepass"), preset=9))
    print(f"{folder / name}  {(folder / name).stat().st_size:,} bytes")


def unpacked(name: str) -> str:
    """Return what a file beside this one says."""
    return lzma.decompress((FOLDER / name).read_bytes()).decode("utf-8", "surrogatepass")


def main(folder: Path, port: int) -> None:
    """Write the dumps."""
    folder.mkdir(parents=True, exist_ok=True)
    sessions = [session for session in SESSIONS if session.name in NAMES]
    with TemporaryDirectory() as scratch:
        file = Path(scratch) / "memory.db"
        where = {"sqlite": f"sqlite+aiosqlite:///{file}", "redis": f"redis://127.0.0.1:{port}/0"}
        views = {
            kind: {session.name: asyncio.run(made(session, kind, url)) for session in sessions}
            for kind, url in where.items()
        }
        if views["sqlite"] != views["redis"]:
            raise SystemExit("the two databases show different views")
        with sqlite3.connect(file) as database:
            packed("sqlite.sql.xz", "\n".join(database.iterdump()), folder)
    with Redis(port=port) as client:
        packed("redis.json.xz", json.dumps(redis_dump(client), indent=1), folder)
    packed("views.json.xz", json.dumps(views["sqlite"], indent=1), folder)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit("usage: python -m tests.backends.saved.make FOLDER PORT")
    main(Path(sys.argv[1]), int(sys.argv[2]))
