"""Leases of every backend that several processes share, by its own clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from redis.asyncio import Redis
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.pool import NullPool

from context_compressor.backends.redis.history import RedisHistory
from context_compressor.backends.sql.history import SQLAlchemyHistory
from tests.backends.kept import KINDS, url_of

Opened = Callable[..., Any]


@pytest.fixture(params=KINDS)
async def opened(
    request: pytest.FixtureRequest, server: Callable[[str], int], tmp_path: Path
) -> AsyncIterator[Opened]:
    """Give what opens a history by the name of its session."""
    url, name = url_of(request.param, server, tmp_path), uuid4().hex
    if request.param == "redis":
        client = Redis.from_url(url)
        yield lambda session="", **given: RedisHistory(client, session_id=session + name, **given)
        await client.aclose()
    else:
        engine = create_async_engine(url, poolclass=NullPool)
        yield lambda session="": SQLAlchemyHistory(engine, session_id=session + name)
        await engine.dispose()


async def test_one_holder_has_it_until_it_gives_it_back_or_its_time_is_over(opened: Opened) -> None:
    history, other = opened(), opened("another session")
    assert await history.claim("event", "a", 60)
    assert not await opened().claim("event", "b", 60)
    assert await history.claim("other \0 \ud800 thing", "b", 60)
    assert await other.claim("event", "b", 60)
    assert not await history.claim("event", "b", 0), "it is not b's to give back"
    assert not await history.claim("event", "b", 60)
    assert await history.claim("event", "a", 0.2), "the same holder renews"
    await asyncio.sleep(0.3)
    assert await history.claim("event", "b", 60)
    assert not await history.claim("event", "a", 60)
    assert await history.claim("hour", "a", 3_600)
    assert not await history.claim("hour", "b", 0)
    assert await history.claim("hour", "b", 60), "the clock was set back since: none lasts for an hour"
    assert await history.claim("event", "b", 0)
    assert await history.claim("event", "a", 60)
    assert (await history.head()).number == 0, "a claim is no change"


async def test_of_many_who_claim_at_once_one_has_it(opened: Opened) -> None:
    await opened().claim("ran out", "a", 0.01)
    await asyncio.sleep(0.05)
    for name in ("free", "ran out"):
        claims = await asyncio.gather(*(opened().claim(name, f"{number}", 60) for number in range(8)))
        assert sum(claims) == 1


@pytest.mark.parametrize("opened", ["redis"], indirect=True)
async def test_leases_end_with_their_session(opened: Opened) -> None:
    history = opened(key_ttl=100)
    await history.claim("event", "a", 60)
    [key] = [key for key in history._keys if key.endswith(":leases")]
    assert 90 <= await history.client.ttl(key) <= 100
    history = opened(key_ttl=1_000)
    await history.head()
    assert await history.client.ttl(key) > 900


@pytest.mark.parametrize("opened", ["sqlite"], indirect=True)
async def test_in_a_transaction_of_the_callers_nobody_is_asked(opened: Opened) -> None:
    engine = opened()._engine
    async with AsyncSession(engine) as session:
        assert await SQLAlchemyHistory(session, session_id="s").claim("event", "a", 60)
    assert await SQLAlchemyHistory(engine, session_id="s").claim("event", "b", 60)
