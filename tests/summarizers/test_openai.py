"""What only `OpenAISummarizer` does; the rest is in `test_providers.py`."""

import asyncio
import gc
import json
import threading
from typing import Any

import pytest
from openai import AsyncOpenAI, AzureOpenAI

from context_compressor.errors import InvalidArgumentError, SummarizerError, SummarizerOverflowError
from context_compressor.summarizers.openai import OpenAISummarizer
from tests.summarizers.providers import ASKED, GOOD, KEY, PROVIDERS
from tests.support.model_server import ModelServer, Reply, completion, raw, status


def summarizer(server: ModelServer, **kw: Any) -> OpenAISummarizer:
    return PROVIDERS[0].make(server, **kw)


async def test_the_server_may_come_from_the_environment(server: ModelServer, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    await OpenAISummarizer("scripted").summarize(ASKED)
    assert server.requests[0].headers["Authorization"] == f"Bearer {KEY}"


async def test_a_synchronous_client_is_refused():
    """Its call would block the loop, be paid for, and come back as something that cannot be awaited."""
    with pytest.raises(InvalidArgumentError, match="client: expected an AsyncOpenAI, got AzureOpenAI"):
        OpenAISummarizer(client=AzureOpenAI(api_key=KEY, azure_endpoint="http://x", api_version="1"))  # type: ignore[arg-type]


@pytest.mark.parametrize("client", [5, AsyncOpenAI])
def test_what_is_no_client_is_refused(client):
    with pytest.raises(InvalidArgumentError, match="client: "):
        OpenAISummarizer(client=client)


async def test_extra_fields_are_sent(server: ModelServer):
    await summarizer(server, extra_body={"enable_thinking": False}).summarize(ASKED)
    assert server.requests[0].json["enable_thinking"] is False


REFUSE_MAX_TOKENS = status(
    400,
    "Unsupported parameter: 'max_tokens' is not supported with this model. "
    "Use 'max_completion_tokens' instead.",
    param="max_tokens",
    error_code="unsupported_parameter",
)
REFUSE_TEMPERATURE = status(
    400,
    "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) is supported.",
    param="temperature",
    error_code="unsupported_value",
)


class TestParameters:
    async def test_a_reasoning_model_gets_what_it_takes_and_room_to_reason(self, server: ModelServer):
        server.script(REFUSE_MAX_TOKENS, REFUSE_TEMPERATURE, completion(GOOD))
        asked = summarizer(server, reasoning_tokens=5_000, max_retries=0)
        assert (await asked.summarize(ASKED)).text == GOOD
        first, second, third = (received.json for received in server.requests)
        assert "max_tokens" not in second
        assert second["max_completion_tokens"] == first["max_tokens"] + 5_000
        assert "temperature" not in third
        assert third["max_completion_tokens"] == second["max_completion_tokens"]
        await asked.summarize(ASKED)
        assert server.requests[3].json == third


@pytest.mark.parametrize(
    ("reply", "cause"),
    [
        (raw('{"error": {"message": "upstream is down"}}'), "no chat completion.*upstream is down"),
        (raw("<html>502</html>", content_type="text/html"), "no chat completion.*502"),
        (raw('{"choices": [{"index": 0}]}'), "no chat completion"),
    ],
    ids=["error", "html", "no message"],
)
async def test_what_came_instead_of_a_completion_is_told(server: ModelServer, reply, cause: str):
    server.script(reply)
    with pytest.raises(SummarizerError, match=f"scripted: .*{cause}"):
        await summarizer(server).summarize(ASKED)


def error_in_200(code: object, message: str = "upstream is down", **rest: object) -> Reply:
    """Answer as OpenRouter does when the status has already left."""
    return raw(json.dumps({"error": {"code": code, "message": message, **rest}, "user_id": "u"}))


class TestErrorsIn200:
    """They are judged by the status that they name."""

    @pytest.mark.parametrize("code", [429, "429", 502])
    async def test_what_may_pass_is_tried_again(self, server: ModelServer, code: object):
        server.script(error_in_200(code), completion(GOOD))
        asked = summarizer(server)
        assert (await asked.summarize(ASKED)).text == GOOD
        assert asked._sleep.seconds == [0.5]

    async def test_one_in_a_choice_is_none_the_less_an_error(self, server: ModelServer):
        choice = {
            "index": 0,
            "finish_reason": "error",
            "message": {"role": "assistant", "content": "## Goal\n- fi"},
            "error": {"code": 502, "message": "the model broke off"},
        }
        server.script(raw(json.dumps({"choices": [choice]})), completion(GOOD))
        assert (await summarizer(server).summarize(ASKED)).text == GOOD

    @pytest.mark.parametrize("reason", ["insufficient_system_resource", "network_error"])
    async def test_an_answer_that_broke_off_in_the_server_is_asked_for_again(
        self, server: ModelServer, reason: str
    ):
        server.script(completion("## Goal\n- fi", finish_reason=reason), completion(GOOD))
        assert (await summarizer(server).summarize(ASKED)).text == GOOD

    @pytest.mark.parametrize(
        ("reply", "cause"),
        [
            (error_in_200(401, "no such key"), "HTTP 401: no such key"),
            (error_in_200(429, "pay first", type="billing_hard_limit_reached"), "HTTP 429: pay first"),
            (error_in_200(400, type=["a"], param={}), "HTTP 400: upstream is down"),
            (error_in_200("overloaded"), "no chat completion.*upstream is down"),
        ],
    )
    async def test_what_does_not_pass_is_not_tried_again(self, server: ModelServer, reply: Reply, cause: str):
        server.script(reply)
        with pytest.raises(SummarizerError, match=cause):
            await summarizer(server).summarize(ASKED)
        assert len(server.requests) == 1

    async def test_what_is_too_long_or_refused_is_told_apart(self, server: ModelServer):
        too_long = error_in_200(400, "This endpoint's maximum context length is 8192 tokens.")
        server.script(error_in_200(400, "`temperature` is deprecated for this model."), too_long)
        with pytest.raises(SummarizerOverflowError) as caught:
            await summarizer(server, max_retries=0).summarize(ASKED)
        assert caught.value.limit_tokens == 8_192
        assert "temperature" not in server.requests[1].json


class TestClients:
    async def test_a_client_of_yours_is_used_and_left_open(self, server: ModelServer):
        from openai import AsyncOpenAI

        server.script(status(500), completion(GOOD))
        async with AsyncOpenAI(
            base_url=server.url, api_key=KEY, default_headers={"X-Mine": "1"}, max_retries=9
        ) as client:
            asked = OpenAISummarizer("scripted", client=client, max_retries=0)
            with pytest.raises(SummarizerError):
                await asked.summarize(ASKED)
            assert len(server.requests) == 1  # the client's own retries are off
            assert (await asked.summarize(ASKED)).text == GOOD
            await asked.aclose()
            assert not client.is_closed()
            assert client.max_retries == 9
        assert server.requests[0].headers["X-Mine"] == "1"

    async def test_a_client_of_ours_is_closed_after_each_call(self, server: ModelServer, monkeypatch):
        made = []
        asked = summarizer(server)
        make = asked._make_client
        monkeypatch.setattr(asked, "_make_client", lambda: made.append(make()) or made[-1])
        server.script(completion(GOOD), status(404))
        await asked.summarize(ASKED)
        with pytest.raises(SummarizerError):
            await asked.summarize(ASKED)
        assert [client.is_closed() for client in made] == [True, True]

    async def test_one_that_is_still_being_made_holds_up_no_cancellation(
        self, server: ModelServer, monkeypatch
    ):
        """Nor does it close itself later, in a task that nobody waits for."""
        gc.collect()  # clients that other tests left close themselves when they are found
        before = asyncio.all_tasks()
        asked = summarizer(server)
        make = asked._make_client
        begun, may_end = threading.Event(), threading.Event()

        def make_slowly():
            begun.set()
            may_end.wait()
            return make()

        monkeypatch.setattr(asked, "_make_client", make_slowly)
        task = asyncio.create_task(asked.summarize(ASKED))
        try:
            await asyncio.to_thread(begun.wait)
            task.cancel()
            ended, _ = await asyncio.wait({task}, timeout=60)  # only so that a failure is one
            assert ended
        finally:
            may_end.set()
        await asyncio.get_running_loop().shutdown_default_executor()
        gc.collect()
        assert task.cancelled()
        assert asyncio.all_tasks() <= before
