"""States of adapters in databases and Redis, and what is left there of what lists say no more."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa
from redis.asyncio import Redis
from sqlalchemy.ext.asyncio import create_async_engine

from context_compressor import InvalidArgumentError, InvalidStateError, RedisStates, SQLAlchemyStates
from context_compressor.backends.admin import collection
from context_compressor.backends.admin.collection import collect_texts
from context_compressor.backends.admin.opening import open_sessions, open_store
from context_compressor.backends.sql import tables
from context_compressor.integrations import conversations as module
from context_compressor.integrations.conversations import Conversations
from tests.backends.kept import KINDS, all_kept, url_of
from tests.memory.scripted import exchange, user

pytestmark = pytest.mark.variants(2)

Dict = dict[str, Any]
WORD = f"quagga-{os.getpid()}"
"""Other processes of the run look through the same servers for theirs."""
SECRET = f"The {WORD} is at 7719. " + "Remember the lake. " * 60


class Place:
    """A database or a Redis, and what is in it for one test."""

    def __init__(self, kind: str, url: str, folder: Path) -> None:
        self.kind, self.url, self.folder = kind, url, folder
        self.prefix = uuid4().hex if kind == "redis" else ""
        self.opened: list[Any] = []

    def states(self, **options: Any) -> Any:
        if self.kind == "redis":
            made: Any = RedisStates(self.url, key_prefix=self.prefix, **options)
        else:
            made = SQLAlchemyStates(self.url)
        self.opened.append(made)
        return made

    def store(self) -> Any:
        made = open_store(self.url, "texts", key_prefix=self.prefix)
        self.opened.append(made)
        return made

    async def says(self, word: str) -> list[str]:
        """Return where a word stands, in SQLite's own files as well."""
        kept = await all_kept(self.kind, self.url, self.folder)
        return [place for place, data in kept.items() if word.encode() in data]


@pytest.fixture(params=KINDS)
async def place(
    request: pytest.FixtureRequest, server: Callable[[str], int], tmp_path: Path
) -> AsyncIterator[Place]:
    found = Place(request.param, url_of(request.param, server, tmp_path), tmp_path)
    yield found
    for one in found.opened:
        await one.close()


def said(turns: int) -> list[Dict]:
    """Return a list whose sixth message is to be forgotten."""
    listed = [one for n in range(turns) for one in (user(f"Ask {n}."), *exchange(f"t{n}", 20))]
    listed[6]["content"] += SECRET
    return listed


@pytest.mark.parametrize("kept", [b"{", b"[" * 100_000, b"\xc3("])
async def test_what_cannot_be_read_is_named_and_made_anew(place: Place, kept: bytes) -> None:
    key, states = uuid4().hex, place.states()
    await states.set(key, {"text": "first"})
    async with AsyncExitStack() as closing:
        if place.kind == "redis":
            client = await closing.enter_async_context(Redis.from_url(place.url))
            await client.set(states._name(key), kept)
            states = RedisStates(
                client, key_prefix=place.prefix
            )  # a client that decodes would fail before us
        else:
            async with states._engine.begin() as connection:
                where = tables.states.c.key == key.encode()
                await connection.execute(sa.update(tables.states).where(where).values(state=kept))
        with pytest.raises(InvalidStateError, match=f"the state under '{key}' cannot be read"):
            await states.get(key)
        await states.exchange(key, lambda there: {"text": "second", "was": there})
        assert await states.get(key) == {"text": "second", "was": None}
        await states.delete(key)


async def test_what_is_set_comes_back_whoever_sets_at_once(place: Place) -> None:
    key, states = f"ada {uuid4().hex} \ud83d", place.states()
    assert await states.get(key) is None
    state: Dict = {"text": "\ud83d\ude00 \ud83d \0", "n": [1, None, {"deep": "x" * 200_000}]}
    await states.set(key, state)
    assert await place.states().get(key) == state
    assert key in await states.keys()

    def counted(known: Dict | None) -> Dict:
        return {"n": (known or {"n": 0})["n"] + 1}

    await states.exchange(key, lambda _: None)
    assert await states.get(key) == state
    await states.delete(key)
    assert await states.get(key) is None
    many = [states, *(place.states() for _ in range(3))]
    await asyncio.gather(*(one.exchange(key, counted) for one in many for _ in range(5)))
    assert await states.get(key) == {"n": 20}
    await states.delete(key)
    assert key not in await states.keys()


@pytest.mark.parametrize("by", ["request", "collection"])
async def test_nothing_is_left_of_what_a_list_says_no_more(
    place: Place, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000_000.0
    for one in (module, collection):
        monkeypatch.setattr(one.time, "time", lambda: now)
    store, states, key = place.store(), place.states(), uuid4().hex
    options: Dict = {"max_total_tokens": 2_000, "store": store, "states": states}
    conversations = Conversations(**options)
    listed = said(30)
    view = await conversations.view(listed, key=key)
    assert await place.says(WORD)
    del listed[6]
    view = await conversations.view(listed, key=key)
    now += 3_000
    again = await Conversations(**options).view(listed, key=key)  # another process
    assert again.messages == view.messages
    assert await place.says(WORD)
    now += 601
    if by == "request":
        await Conversations(**options).view(listed, key=key)
    else:
        async with open_sessions(place.url, key_prefix=place.prefix) as directory:
            await collect_texts(directory, store, dry_run=True)
            assert await place.says(WORD)
            done = await collect_texts(directory, store)
        assert done.problems == ()
        assert done.named > 0
    assert await place.says(WORD) == []
    last = await Conversations(**options).view(listed, key=key)
    assert last.messages == view.messages
    async with conversations.memory(last) as memory:
        for ref in await memory.reachable_refs():
            assert await store.read(ref)


@pytest.mark.parametrize("place", ["sqlite", "redis"], indirect=True)
async def test_conversations_in_which_nothing_happens_are_forgotten(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With their texts; what others keep beside them too, if it is as old."""
    now = 1_000_000.0
    for one in (module, collection):
        monkeypatch.setattr(one.time, "time", lambda: now)
    store, states = place.store(), place.states()
    await states.set("beside", {"no": "conversation"})
    conversations = Conversations(max_total_tokens=2_000, store=store, states=states)
    await conversations.view(said(30), key="old")
    now += 86_400
    await conversations.view([user("Another one."), *said(30)[:5], *said(30)[7:]], key="new")
    now += 86_400
    async with open_sessions(place.url, key_prefix=place.prefix) as directory:
        kept = await collect_texts(directory, store)
        told = await collect_texts(directory, store, forget_seconds=86_401, dry_run=True)
        assert await place.says(WORD)
        done = await collect_texts(directory, store, forget_seconds=86_401)
        assert [one.problems for one in (kept, told, done)] == [()] * 3
    assert [(one.forgotten, bool(one.removed)) for one in (kept, told, done)] == [
        (0, False),
        *[(1, True)] * 2,
    ]
    assert len(told.removed) == len(done.removed)
    assert await place.says(WORD) == []
    assert await states.keys() == ["new"]
    for ref in await store.refs():
        assert await store.read(ref)


async def test_a_time_to_live_goes_on_with_each_use(server: Callable[[str], int], tmp_path: Path) -> None:
    place = Place("redis", url_of("redis", server, tmp_path), tmp_path)
    states, others = place.states(key_ttl=500), place.states()
    await states.set("ada", {"n": 1})
    client = Redis.from_url(place.url)
    [name] = [key async for key in client.scan_iter(f"{place.prefix}*")]
    assert 0 < await client.ttl(name) <= 500
    await others.exchange("ada", lambda _: {"n": 2})  # as a collection does, which knows of no time
    assert 0 < await client.ttl(name) <= 500
    await client.expire(name, 200)
    assert await states.get("ada") == {"n": 2}
    assert await client.ttl(name) > 200
    for one in (states, others):
        await one.close()
    await client.aclose()


async def test_an_engine_of_the_callers_stays_his(tmp_path: Path) -> None:
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/own.db")
    states = SQLAlchemyStates(engine)
    await states.set("ada", {"n": 1})
    await states.close()
    assert await SQLAlchemyStates(engine).get("ada") == {"n": 1}
    await engine.dispose()


async def test_what_is_wrong_is_refused_at_the_door() -> None:
    with pytest.raises(InvalidArgumentError, match="engine: expected a URL or an AsyncEngine, got int"):
        SQLAlchemyStates(5)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="url_or_pool"):
        RedisStates(5)  # type: ignore[arg-type]
    states = SQLAlchemyStates("sqlite+aiosqlite:///:memory:")
    with pytest.raises(InvalidArgumentError, match="key: expected a string, got int"):
        await states.get(5)  # type: ignore[arg-type]
    await states.close()
