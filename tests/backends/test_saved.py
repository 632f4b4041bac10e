"""Sessions that an earlier release kept in a database show what they showed, byte for byte, and go on."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from redis import Redis

from context_compressor import Msg
from tests.backends.saved.make import NAMES, memory_over, redis_restored, unpacked


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
async def test_sessions_of_an_earlier_release_show_what_they_showed(
    kind: str, server: Callable[[str], int], tmp_path: Path
) -> None:
    views = json.loads(unpacked("views.json.xz"))
    if kind == "redis":
        where = f"redis://127.0.0.1:{server('redis')}/8"  # which no other test uses
        with Redis.from_url(where) as client:
            client.flushdb()
            redis_restored(client, json.loads(unpacked("redis.json.xz")))
    else:
        where = f"sqlite+aiosqlite:///{tmp_path / 'memory.db'}"
        with sqlite3.connect(tmp_path / "memory.db") as database:
            database.executescript(unpacked("sqlite.sql.xz"))
    assert set(views) <= set(NAMES)
    for name, was in views.items():
        async with memory_over(kind, where, name, was["config"], remote=was["remote"]) as memory:
            shown = [msg.to_dict() for msg in await memory.get_memory()]
            assert shown == was["view"], name
            for ref in await memory.reachable_refs():
                assert await memory.read_ref(ref)
            await memory.add(Msg("user", "And on it goes.", "user"))
            assert (await memory.get_memory())[-1].content == "And on it goes."
