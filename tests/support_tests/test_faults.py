"""Faults on command, as the real SDKs show them."""

import asyncio
import json
from contextlib import suppress
from typing import Any

import aiohttp
import openai
import pytest
import requests

from tests.support.model_server import (
    ModelServer,
    Reply,
    completion,
    context_length_exceeded,
    failing_stream,
    half_stream,
    hang,
    inspection_failed,
    malformed,
    rate_limited,
    reset,
    status,
)
from tests.support_tests.clients import CLIENTS, DASHSCOPE_CLIENTS, OPENAI_CLIENTS, Client, RefusedError

pytestmark = pytest.mark.variants(2)

HI: list[dict[str, Any]] = [{"role": "user", "content": "Hi."}]
BROKEN: tuple[type[Exception], ...] = (
    openai.APIConnectionError,
    aiohttp.ClientPayloadError,
    requests.exceptions.ChunkedEncodingError,
)
with suppress(ImportError):  # newer SDKs of OpenAI's need it no more; older ones let its errors through
    import httpx

    BROKEN = (*BROKEN, httpx.RemoteProtocolError)
"""What each SDK raises when an answer breaks off."""

every_client = pytest.mark.parametrize("client", CLIENTS, ids=str)
streamed_or_not = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@every_client
@streamed_or_not
@pytest.mark.parametrize(
    ("reply", "code", "codes"),
    [
        (rate_limited(), 429, ("rate_limit_exceeded", "limit_requests", "Throttling.RateQuota")),
        (status(500), 500, (None, None, "InternalError")),
        (status(401, error_code="InvalidApiKey"), 401, ("InvalidApiKey",) * 3),
        (inspection_failed(), 400, ("content_filter", "data_inspection_failed", "DataInspectionFailed")),
        (
            context_length_exceeded(30_720),
            400,
            ("context_length_exceeded", "invalid_parameter_error", "InvalidParameter"),
        ),
    ],
    ids=["429", "500", "401", "inspection", "context"],
)
async def test_an_error_has_the_provider_s_form(
    client: Client, stream: bool, reply: Reply, code: int, codes: tuple[str | None, ...]
):
    async with ModelServer() as server:
        server.script(reply)
        with pytest.raises(RefusedError) as caught:
            await client.ask(server, HI, stream=stream)
    expected = codes[2] if client in DASHSCOPE_CLIENTS else codes[int(client.name == "compatible")]
    assert (caught.value.status, caught.value.code) == (code, expected)
    assert "etry-" not in str(caught.value.headers)


@every_client
@streamed_or_not
@pytest.mark.parametrize("reply", [reset(), half_stream()], ids=["reset", "half"])
async def test_a_connection_that_breaks_is_seen_as_broken(client: Client, stream: bool, reply: Reply):
    async with ModelServer() as server:
        server.script(reply)
        with pytest.raises(BROKEN):
            await client.ask(server, HI, stream=stream)


@every_client
async def test_an_error_may_come_in_the_middle_of_a_stream(client: Client):
    async with ModelServer() as server:
        server.script(failing_stream(503, "overloaded"))
        with pytest.raises((RefusedError, openai.APIError), match="overloaded") as caught:
            await client.ask(server, HI, stream=True)
        with pytest.raises(RefusedError, match="overloaded"):
            await client.ask(server, HI)
    if isinstance(caught.value, RefusedError):
        assert caught.value.status == 503


@every_client
@streamed_or_not
async def test_json_may_break_off(client: Client, stream: bool):
    async with ModelServer() as server:
        server.script(malformed())
        # In a stream DashScope's SDK returns a piece with an error of its own: 500 async, 400 sync.
        with pytest.raises(
            (json.JSONDecodeError, requests.exceptions.JSONDecodeError, RefusedError)
        ) as caught:
            await client.ask(server, HI, stream=stream)
    if isinstance(caught.value, RefusedError):
        assert client in DASHSCOPE_CLIENTS
        assert stream
        assert caught.value.code == "Unknown"


@pytest.mark.parametrize(
    "client", [*OPENAI_CLIENTS[::2], DASHSCOPE_CLIENTS[0], DASHSCOPE_CLIENTS[4]], ids=str
)
class TestHanging:
    @pytest.mark.parametrize("reply", [hang(), half_stream(then="hang")], ids=["before", "within"])
    async def test_one_lasts_until_the_client_gives_up(self, client: Client, reply: Reply):
        async with ModelServer() as server:
            server.script(reply)
            task = asyncio.create_task(client.ask(server, HI, stream=True))
            await server.started.wait()
            assert server.open_connections == 1
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await server.assert_no_connections()

    async def test_one_lasts_until_it_is_released(self, client: Client):
        async with ModelServer() as server:
            server.script(hang(), completion("after all"))
            task = asyncio.create_task(client.ask(server, HI))
            await server.started.wait()
            assert not task.done()
            server.release()
            with pytest.raises(RefusedError, match="503"):
                await task
            assert (await client.ask(server, HI)).content == "after all"
