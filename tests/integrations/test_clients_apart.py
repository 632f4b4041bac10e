"""What stays as it was in a wrapped client, what breaks off, and what is the API's own."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import aiohttp
import anthropic
import dashscope
import httpx2
import openai
import pytest
from langsmith.wrappers import wrap_openai
from openai.resources.chat.completions import AsyncCompletions
from pydantic import BaseModel

from context_compressor import InvalidArgumentError
from context_compressor.integrations import anthropic as ours_anthropic
from context_compressor.integrations import dashscope as ours_dashscope
from context_compressor.integrations import openai as ours
from tests.integrations.clients_support import CHAT, MESSAGES, OURS, RESPONSES, SETTINGS, Api
from tests.integrations.test_clients import BOTH, HIS, OURS_ALONE, SAID, SMALL, Reads, every_api
from tests.support.markdown import blocks
from tests.support.model_server import ModelServer, answer, half_stream, hang

Dict = dict[str, Any]
ROOT = Path(__file__).parents[2]
LONG = [{"role": "user", "content": f"Note {n}: {'word ' * 300}"} for n in range(60)]
"""More than the budget of a small client."""

CUT = (openai.APIError, anthropic.APIError, httpx2.HTTPError, aiohttp.ClientError)


class Verdict(BaseModel):
    is_well: bool


async def test_the_copy_is_of_the_same_type_and_the_given_one_stays_as_it_is() -> None:
    async with ModelServer(lambda messages: "Well.") as server:
        async with openai.AsyncOpenAI(base_url=server.url, **SETTINGS) as given:
            client = ours.compressed(given, **SMALL)
            assert type(client) is openai.AsyncOpenAI
            assert isinstance(client.chat.completions, AsyncCompletions)
            again = client.with_options(timeout=7)
            for one in (client, again, given):
                await one.chat.completions.create(model="m", messages=LONG)
        assert again.timeout == 7
        sizes = [len(received.messages) for received in server.requests]
        assert sizes[0] == sizes[1] < len(LONG)
        assert sizes[2] == len(LONG)
        assert server.requests[2].tools == []
        await server.assert_no_connections()


class Gateway(openai.AsyncOpenAI):
    """A client with something of its own, which the SDK's `copy` loses."""

    tenant = "nobody"

    @property
    def default_headers(self) -> Any:
        return {**super().default_headers, "x-tenant": self.tenant}


class AnthropicGateway(anthropic.Anthropic):
    tenant = "nobody"

    @property
    def default_headers(self) -> Any:
        return {**super().default_headers, "x-tenant": self.tenant}


async def test_a_subclass_its_headers_and_hooks_stay() -> None:
    hooked: list[str] = []

    async def hook(request: Any) -> None:
        hooked.append(request.url.path)

    async with ModelServer(lambda messages: "Well.") as server:
        http = openai.DefaultAsyncHttpxClient(event_hooks={"request": [hook]})
        async with Gateway(base_url=server.url, http_client=http, **SETTINGS) as given:
            given.tenant = "acme"
            given.embeddings.create = traced = lambda: None  # type: ignore[assignment]
            assert given.chat.completions is not None  # which is made when it is first asked for
            client = ours.compressed(given, **SMALL)
            assert type(client) is Gateway
            assert client.embeddings.create is traced
            await CHAT.ask(client, LONG, stream=False, asynchronous=True)
            await RESPONSES.ask(client, LONG, stream=True, asynchronous=True)
        with AnthropicGateway(base_url=server.anthropic_url, **SETTINGS) as blocking:
            blocking.tenant = "acme"
            claude = ours_anthropic.compressed(blocking, **SMALL)
            await MESSAGES.ask(claude, LONG, stream=False, asynchronous=False)
        assert [received.headers["x-tenant"] for received in server.requests] == ["acme"] * 3
        assert all(len(received.messages) < len(LONG) for received in server.requests)
    assert hooked == ["/v1/chat/completions", "/v1/responses"]


class Traced:
    """As wrapt's proxies, which have the class of what they wrap."""

    def __init__(self, client: Any) -> None:
        self.client = client

    @property
    def __class__(self) -> Any:
        return type(self.client)


@pytest.mark.parametrize(
    ("make", "compressed", "method"),
    [
        (openai.AsyncOpenAI, ours.compressed, "chat.completions.create"),
        (openai.OpenAI, ours.compressed, "chat.completions.parse"),
        (openai.OpenAI, ours.compressed, "responses.stream"),
        (openai.OpenAI, ours.compressed, "chat"),
        (anthropic.Anthropic, ours_anthropic.compressed, "messages.create"),
        (openai.OpenAI, ours.compressed, "chat.completions.with_raw_response.create"),
        (anthropic.AsyncAnthropic, ours_anthropic.compressed, "messages"),
        (anthropic.AsyncAnthropic, ours_anthropic.compressed, "beta.messages.stream"),
    ],
)
def test_what_cannot_be_kept_is_named(make: Any, compressed: Any, method: str) -> None:
    client = make(api_key="k")
    *path, name = method.split(".")
    place = client
    for one in path:
        place = getattr(place, one)
    setattr(place, name, lambda **request: None)
    with pytest.raises(InvalidArgumentError, match=rf"its {method} was replaced.*\(compressed"):
        compressed(client)
    with pytest.raises(InvalidArgumentError, match="a Traced stands in"):
        compressed(Traced(make(api_key="k")))
    fine = compressed(make(api_key="k"))
    (fine.messages if hasattr(fine, "messages") else fine.chat.completions).create = None


async def test_what_is_wrapped_behind_it_sends_views() -> None:
    async with (
        ModelServer(lambda messages: "Well.") as server,
        openai.AsyncOpenAI(base_url=server.url, **SETTINGS) as given,
    ):
        client = wrap_openai(ours.compressed(given, **SMALL))
        await CHAT.ask(client, LONG, stream=True, asynchronous=True)
        assert len(server.requests[-1].messages) < len(LONG)
        with pytest.raises(InvalidArgumentError, match="was replaced"):
            ours.compressed(wrap_openai(given))


async def test_parse_and_stream_of_chat_send_views_and_keep_their_types() -> None:
    verdict = answer('{"is_well": true}')
    async with ModelServer(lambda messages: verdict) as server, CHAT.open(server, True, **SMALL) as client:
        server.script(answer("", OURS_ALONE), verdict, answer("", OURS_ALONE), verdict)
        made = await client.chat.completions.parse(model="m", messages=LONG, response_format=Verdict)
        assert made.choices[0].message.parsed == Verdict(is_well=True)
        async with client.chat.completions.stream(
            model="m", messages=LONG, response_format=Verdict
        ) as events:
            made = await events.get_final_completion()
        assert made.choices[0].message.parsed == Verdict(is_well=True)
        assert made.choices[0].message.tool_calls is None
        assert len(server.requests) == 4
        assert all(len(received.messages) < len(LONG) for received in server.requests)


async def test_stream_of_responses_and_parse_of_messages() -> None:
    async with ModelServer(Reads(OURS_ALONE, HIS)) as server, RESPONSES.open(server, True, **SMALL) as client:
        async with client.responses.stream(model="m", input=LONG, tools=RESPONSES.tools) as events:
            made = await events.get_final_response()
        passed = ["reasoning", "message", "reasoning", "message", "function_call"]
        assert [item.type for item in made.output] == passed
        assert made.output[-1].name == "read_file"
        assert server.refusals == []
    async with ModelServer(lambda messages: answer('{"is_well": true}')) as server:
        server.fail(answer("", OURS_ALONE))
        async with MESSAGES.open(server, True, **SMALL) as client:
            said = await client.messages.parse(model="m", max_tokens=9, messages=LONG, output_format=Verdict)
        assert said.parsed_output == Verdict(is_well=True)
        assert len(server.requests) == 2


async def test_raw_responses_hold_views_and_are_not_looked_into() -> None:
    async with ModelServer(Reads(HIS, HIS)) as server, CHAT.open(server, True, **SMALL) as client:
        raw = await client.chat.completions.with_raw_response.create(model="m", messages=LONG)
        assert raw.parse().choices[0].message.tool_calls[0].function.name == "read_file"
        async with client.chat.completions.with_streaming_response.create(
            model="m", messages=LONG
        ) as response:
            assert (await response.json())["choices"]
        predicted: Any = {"type": "content", "content": "All is well."}
        for more in ({"n": 2}, {"prediction": predicted}):  # which exclude tools
            made = await client.chat.completions.create(model="m", messages=LONG, **more)
            assert made.choices[0].message.content == "All done."
        for received in server.requests:
            assert len(received.messages) < len(LONG)
            assert received.tools == []


async def test_what_is_no_list_passes_and_a_caller_may_have_a_tool_of_our_name() -> None:
    own = {"type": "function", "function": {"name": "grep_offloaded", "parameters": {"type": "object"}}}
    async with ModelServer(Reads([], OURS_ALONE)) as server:
        async with RESPONSES.open(server, True, **SMALL) as client:
            await client.responses.create(model="m", input="Hello.")
            assert server.requests[0].messages[0]["content"] == "Hello."
        async with CHAT.open(server, True, **SMALL) as client:
            made = await client.chat.completions.create(model="m", messages=SAID, tools=[own])
            assert made.choices[0].message.tool_calls[0].function.name == "grep_offloaded"
        names = [tool["function"]["name"] for tool in server.requests[1].tools]
        assert sorted(names) == sorted(OURS)


@pytest.mark.parametrize("stream", [False, True])
async def test_where_the_server_keeps_the_conversation(
    stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        ModelServer(Reads(OURS_ALONE, BOTH)) as server,
        RESPONSES.open(server, True, **SMALL) as client,
    ):
        first = (await RESPONSES.ask(client, SAID, stream=stream, asynchronous=True)).raw
        [call] = [item for item in first.output if item.type == "function_call"]
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "a file"}
        with caplog.at_level(logging.WARNING):
            for _ in range(2):
                made = await client.responses.create(model="m", input=[result], previous_response_id=first.id)
        assert made.output_text == "All done."
        assert server.refusals == []
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "previous_response_id" in caplog.text


@every_api
async def test_a_stream_that_is_cut_raises_as_it_did(api: Api) -> None:
    async with ModelServer(lambda messages: "Well.") as server:
        async with api.open(server, True) as given:
            client = api.compressed(given, **SMALL)
            raised = []
            for one, calls in [(given, []), (client, []), (client, OURS_ALONE)]:
                server.fail(half_stream("Half. " * 9, calls))
                with pytest.raises(CUT) as caught:
                    await api.ask(one, SAID, stream=True, asynchronous=True)
                raised.append(caught.type)
            assert len(set(raised)) == 1
            assert (await api.ask(client, SAID, stream=True, asynchronous=True)).text == "Well."
        assert len(server.requests) == 4


@every_api
async def test_a_request_that_is_cancelled_harms_nothing(api: Api) -> None:
    async with ModelServer(lambda messages: "Well.") as server, api.open(server, True, **SMALL) as client:
        server.fail(answer("", OURS_ALONE), hang())
        asked = asyncio.create_task(api.ask(client, SAID, stream=True, asynchronous=True))
        await server.started.wait()
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        server.release()
        turn = await api.ask(client, SAID, stream=False, asynchronous=True)
        assert turn.text == "Well."
        assert server.requests[-1].messages == server.requests[0].messages


async def test_a_stream_left_early_gives_its_connection_back() -> None:
    async with ModelServer(lambda messages: "Well, " * 50) as server:
        async with (
            CHAT.open(server, True, **SMALL) as client,
            await client.chat.completions.create(model="m", messages=SAID, stream=True) as stream,
        ):
            assert isinstance(stream, openai.AsyncStream)
            async for chunk in stream:
                assert chunk.choices
                break
        with openai.OpenAI(base_url=server.url, **SETTINGS) as given:
            client = ours.compressed(given, **SMALL)

            def leave() -> None:
                with client.chat.completions.create(model="m", messages=SAID, stream=True) as stream:
                    assert isinstance(stream, openai.Stream)
                    next(stream)

            await asyncio.to_thread(leave)
        await server.assert_no_connections()


@every_api
async def test_a_model_of_the_provider_writes_the_summaries(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = "## Goal\n- Notes were taken, the last one is note 59."
    async with ModelServer(lambda messages: answer(summary)) as server:
        monkeypatch.setattr(dashscope, "base_http_api_url", server.dashscope_url)
        monkeypatch.setattr(dashscope, "api_key", "k")
        async with api.open(server, False, **{**SMALL, "summarizer": "writer"}) as client:
            await api.ask(client, LONG, stream=False, asynchronous=False)
            assert api.stats_of(client).summarizer_calls > 0
        assert {received.json["model"] for received in server.requests} == {"writer", "m"}
        assert "the last one is note 59" in json.dumps(server.requests[-1].messages)


@every_api
async def test_conversations_by_key(api: Api) -> None:
    async with ModelServer(lambda messages: "Well.") as server:
        key = lambda request: request["model"]  # noqa: E731
        async with api.open(server, True, key=key, **SMALL) as client:
            await api.ask(client, SAID, stream=False, asynchronous=True)
            assert api.stats_of(client, "m") is not None
            assert api.stats_of(client, "other") is None


def test_wrong_arguments_are_named() -> None:
    client = openai.OpenAI(api_key="k")
    for wrong, text in [
        ({"tools": "yes"}, "tools: expected True or False"),
        ({"key": "user"}, "key: expected a function"),
        ({"max_token": 5}, "max_token"),
        ({"summarizer": 5}, "summarizer: expected"),
    ]:
        with pytest.raises(InvalidArgumentError, match=text):
            ours.compressed(client, **wrong)
    with pytest.raises(InvalidArgumentError, match="expected an AsyncOpenAI or an OpenAI, got Anthropic"):
        ours.compressed(anthropic.Anthropic(api_key="k"))  # type: ignore[type-var]
    with pytest.raises(InvalidArgumentError, match="expected an AsyncAnthropic or an Anthropic"):
        ours_anthropic.compressed(client)  # type: ignore[type-var]
    with pytest.raises(InvalidArgumentError, match="the class Generation or AioGeneration"):
        ours_dashscope.compressed(dashscope.Generation())  # type: ignore[type-var]
    for stats_of in (ours.stats_of, ours_dashscope.stats_of):
        with pytest.raises(InvalidArgumentError, match="expected what compressed"):
            stats_of(client)


async def test_the_page_runs_and_names_what_there_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its loop streams, runs tools, and goes on in another process, also where one died while a tool ran."""
    page = (ROOT / "docs" / "clients.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    ran: list[tuple[str, Dict]] = []

    async def run(name: str, arguments: Dict) -> str:
        ran.append((name, arguments))
        if len(ran) == 2:
            raise ConnectionError
        return f"line of {arguments['path']}\n" * 3_000

    def policy(messages: list[Dict]) -> Any:
        if messages[-1]["role"] == "user":
            return answer(tool_calls=[("read_log", {"path": "a.log"})])
        return answer("Read.")

    tools = [{"type": "function", "function": {"name": "read_log", "parameters": {"type": "object"}}}]
    async with ModelServer(policy=policy, window_tokens=32_000, enforce=True) as server:
        for name, value in (
            ("OPENAI_API_KEY", "k"),
            ("ANTHROPIC_API_KEY", "k"),
            ("OPENAI_BASE_URL", server.url),
        ):
            monkeypatch.setenv(name, value)
        for texts in (["Look.", "Again."], ["And now?"]):
            names: Dict = {}
            for block in blocks("python", page):
                exec(compile(block, "page", "exec"), names)
            assert isinstance(names["client"], openai.AsyncOpenAI)
            assert issubclass(names["qwen"], dashscope.AioGeneration)
            for text in texts:
                if text == "Again.":
                    with pytest.raises(ConnectionError):
                        await names["turn"]("ada", text, tools, run)
                else:
                    assert await names["turn"]("ada", text, tools, run) == "Read."
            for name in ("client", "claude", "states"):
                await names[name].close()
        assert server.refusals == []
    said = json.loads((tmp_path / "ada.json").read_text())
    assert [one["role"] for one in said][-6:] == [
        "assistant", "tool", "user", "assistant", "tool", "assistant"
    ]  # fmt: skip
    assert capsys.readouterr().out.replace("None\n", "") == "Read." * 2
