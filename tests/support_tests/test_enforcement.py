"""What the server refuses, in the provider's own form, as the real SDKs show it."""

import json
from typing import Any

import pytest

from tests.support.model_server import ModelServer
from tests.support.provider_tokens import count_request
from tests.support_tests.clients import CLIENTS, OPENAI_CLIENTS, Client, RefusedError
from tests.support_tests.refused_forms import HI, chat_call, chat_result

OVERFLOW = "maximum context length is 100 tokens|Range of input length should be \\[1, 100\\]"
CODES = {"AsyncOpenAI": "invalid_value", "OpenAI": "invalid_value", "compatible": "invalid_parameter_error"}

every_client = pytest.mark.parametrize("client", CLIENTS, ids=str)


@every_client
async def test_an_invalid_history_is_refused_unless_anything_is_answered(client: Client):
    invalid = [HI, chat_result("a")]
    async with ModelServer(lambda messages: "never") as server:
        for stream in (False, True):
            with pytest.raises(RefusedError, match="which is not open") as caught:
                await client.ask(server, invalid, stream=stream)
            assert caught.value.status == 400
            assert caught.value.code == CODES.get(client.name, "InvalidParameter")
        assert all(received.refused for received in server.requests)
    async with ModelServer(lambda messages: "well", 10, enforce=False) as server:
        assert (await client.ask(server, invalid)).content == "well"
        assert server.refusals == []


@every_client
async def test_what_does_not_fit_is_refused(client: Client):
    async with ModelServer(lambda messages: "well", window_tokens=100) as server:
        fitting = {"role": "user", "content": "word " * 90}
        await client.ask(server, [fitting])
        for stream in (False, True):
            with pytest.raises(RefusedError, match=OVERFLOW) as caught:
                await client.ask(server, [fitting, fitting], stream=stream)
            assert caught.value.status == 400
            kind = "context_length_exceeded" if client in OPENAI_CLIENTS[:2] else "nvalid"
            assert kind in str(caught.value.code)
        assert "tokens in a window of 100" in server.refusals[0]


def test_everything_in_the_request_is_counted():
    text = "word " * 40
    for more in (
        {"tools": [{"type": "function", "function": {"name": "f", "description": text}}]},
        {"messages": [{**HI, "name": "word" * 40}]},
        {"messages": [HI, chat_call("a", arguments=json.dumps({"a": text})), chat_result("a")]},
        {"messages": [HI, chat_call("word" * 40), chat_result("word" * 40)]},
        {"messages": [HI, chat_call("a"), chat_result("a", text)]},
        {"messages": [HI, {"role": "assistant", "content": "x", "reasoning_content": text}]},
    ):
        assert count_request(**{"messages": [HI], **more}) > 40, more


def test_an_image_costs_the_same_whatever_its_size():
    small, large = (count_request([_picture(size)]) for size in (1, 10**6))
    assert 1_000 < small == large < 3_000


def _picture(size: int) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x" * size}}]}
