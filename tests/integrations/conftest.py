"""A Redis server of our own, places for memories, and AgentScope made to read today's streams."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from agentscope.model import OpenAIChatModel

from tests.integrations.bases import DURABLE, KINDS, Place, new_session, redis_server


@pytest.fixture(scope="session")
def redis_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], int]]:
    """Give the port of a server that is started when it is first asked for."""
    with ExitStack() as stack:
        yield cache(lambda: stack.enter_context(redis_server(tmp_path_factory.mktemp("redis"))))


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Callable[..., Any]]:
    """Give what returns the result of a function, which another process calls: one for all of a module."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:

        async def call(function: Callable[..., Any], *arguments: Any) -> Any:
            return await asyncio.wrap_future(pool.submit(function, *arguments))

        yield call


@pytest.fixture(scope="session", autouse=True)
def folder_for_agentscope(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Its formatters write a file for every image that they see, and remove none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("agentscope")))
        yield


@pytest.fixture(scope="session", autouse=True)
def readable_streams() -> Iterator[None]:
    """Let AgentScope read what the openai SDK streams from 3.25 on: a delta's `audio` that is None.

    AgentScope 1.0.21 takes it for there and fails. The extra `agentscope` asks for an older SDK; the tests
    are for the newest.
    """
    parse = OpenAIChatModel._parse_openai_stream_response

    def patched(model: Any, start: Any, response: Any, *rest: Any) -> Any:
        return parse(model, start, _WithoutNoAudio(response), *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OpenAIChatModel, "_parse_openai_stream_response", patched)
        yield


class _WithoutNoAudio:
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aenter__(self) -> AsyncIterator[Any]:
        return self._chunks(await self._stream.__aenter__())

    async def __aexit__(self, *error: Any) -> Any:
        return await self._stream.__aexit__(*error)

    async def _chunks(self, stream: Any) -> AsyncIterator[Any]:
        async for item in stream:
            # Structured answers come as events; of these, those that hold a chunk are read.
            chunk = getattr(item, "chunk", item)
            for choice in getattr(chunk, "choices", None) or ():
                if getattr(choice.delta, "audio", ...) is None:
                    del choice.delta.audio
            yield item


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path, redis_port: Callable[[], int]) -> Place:
    """Give a place for each of AgentScope's memories in turn."""
    return Place(request.param, tmp_path, redis_port, new_session())


@pytest.fixture(params=DURABLE)
def durable(request: pytest.FixtureRequest, tmp_path: Path, redis_port: Callable[[], int]) -> Place:
    """Give a place for each of those that outlive a process."""
    return Place(request.param, tmp_path, redis_port, new_session())


@pytest.fixture
async def theirs(place: Place) -> AsyncIterator[Any]:
    """Give each of AgentScope's memories in turn, empty."""
    async with place.open() as memory:
        yield memory
