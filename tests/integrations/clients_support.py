"""One agent for the wrapped clients of every provider: it asks, runs the caller's tools, and asks again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from anthropic import Anthropic, AsyncAnthropic
from anthropic.lib.streaming._messages import accumulate_event
from dashscope import AioGeneration, Generation
from openai import AsyncOpenAI, OpenAI

from context_compressor.integrations import anthropic, dashscope, openai
from tests.support.model_server import ModelServer
from tests.support.task import FUNCTIONS
from tests.support_tests.clients import generated, joined_chunks, joined_responses

Dict = dict[str, Any]
SETTINGS: Dict = {"api_key": "k", "max_retries": 0, "timeout": 120}
OURS = ("read_offloaded", "grep_offloaded", "load_offloaded", "search_history")


@dataclass
class Turn:
    """What a reply says to the caller."""

    items: list[Any]
    """As he puts it into his list."""
    calls: list[tuple[str, str, Dict]]
    text: str
    usage: tuple[int, int] | None
    reason: str | None = None
    raw: Any = None


Ask = Callable[..., Any]


@dataclass
class Api:
    """One API of one provider, as a caller uses it."""

    name: str
    make: Callable[[ModelServer, bool], Any]
    """Returns a client of the SDK's, asynchronous or not."""
    ask: Ask
    """Asks it: `await ask(client, said, stream=, asynchronous=)`."""
    results: Callable[[list[tuple[str, str]]], list[Any]]
    compressed: Callable[..., Any]
    stats_of: Callable[..., Any]
    tools: list[Dict] = field(default_factory=list)

    @asynccontextmanager
    async def open(self, server: ModelServer, asynchronous: bool, **options: Any) -> AsyncIterator[Any]:
        """Give a client, wrapped if there are options, and close it.

        Rules write unless these say otherwise: scripted models have no summary to give.
        """
        client = self.make(server, asynchronous)
        try:
            yield self.compressed(client, **{"summarizer": "rules", **options}) if options else client
        finally:
            closed = client.close() if hasattr(client, "close") else None
            if closed is not None:
                await closed

    def __str__(self) -> str:
        return self.name


async def waited(asynchronous: bool, call: Callable[[], Any]) -> Any:
    return await call() if asynchronous else await asyncio.to_thread(call)


# OpenAI


def _openai(server: ModelServer, asynchronous: bool) -> Any:
    return (AsyncOpenAI if asynchronous else OpenAI)(base_url=server.url, **SETTINGS)


async def _ask_chat(client: Any, said: list[Any], *, stream: bool, asynchronous: bool, **more: Any) -> Turn:
    request: Dict = {"model": "m", "messages": said, "tools": CHAT.tools, **more}
    if not stream:
        made = await waited(asynchronous, lambda: client.chat.completions.create(**request))
    else:
        request |= {"stream": True, "stream_options": {"include_usage": True}}
        made = joined_chunks(await _listed(asynchronous, lambda: client.chat.completions.create(**request)))
    return chat_turn(made)


def chat_turn(made: Any) -> Turn:
    [choice] = made.choices
    message = choice.message.model_dump(exclude_none=True, exclude_unset=True)
    calls = message.get("tool_calls") or []
    for call in calls:
        call.pop("index", None)
        call["function"] = {key: call["function"][key] for key in ("name", "arguments")}
    parsed = [
        (call["id"], call["function"]["name"], json.loads(call["function"]["arguments"])) for call in calls
    ]
    item = {
        key: message[key]
        for key in ("role", "content", "reasoning_content", "tool_calls")
        if message.get(key)
    }
    usage = (made.usage.prompt_tokens, made.usage.completion_tokens)
    return Turn([item], parsed, message.get("content") or "", usage, choice.finish_reason, made)


async def _listed(asynchronous: bool, call: Callable[[], Any]) -> list[Any]:
    if asynchronous:
        return [event async for event in await call()]
    return await asyncio.to_thread(lambda: list(call()))


CHAT = Api(
    "chat",
    _openai,
    _ask_chat,
    lambda results: [{"role": "tool", "tool_call_id": id, "content": text} for id, text in results],
    openai.compressed,
    openai.stats_of,
    [{"type": "function", "function": function} for function in FUNCTIONS],
)


async def _ask_responses(
    client: Any, said: list[Any], *, stream: bool, asynchronous: bool, **more: Any
) -> Turn:
    request: Dict = {"model": "m", "input": said, "tools": RESPONSES.tools, **more}
    if not stream:
        made = await waited(asynchronous, lambda: client.responses.create(**request))
    else:
        events = await _listed(asynchronous, lambda: client.responses.create(stream=True, **request))
        made = completed(events)
        assert len([event for event in events if event.type == "response.created"]) == 1
    return responses_turn(made)


def completed(events: list[Any]) -> Any:
    """Return the response that the last event holds, of which all others told."""
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[0].type == "response.created"
    done = [event.item for event in events if event.type == "response.output_item.done"]
    assert done == events[-1].response.output
    said = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert said == events[-1].response.output_text
    given = "".join(event.delta for event in events if event.type == "response.function_call_arguments.delta")
    assert given == "".join(item.arguments for item in done if item.type == "function_call")
    return events[-1].response


def responses_turn(made: Any) -> Turn:
    items = [item.model_dump(exclude_unset=True) for item in made.output]
    calls = [
        (one["call_id"], one["name"], json.loads(one["arguments"]))
        for one in items
        if one["type"] == "function_call"
    ]
    usage = (made.usage.input_tokens, made.usage.output_tokens)
    return Turn(items, calls, made.output_text, usage, made.status, made)


RESPONSES = Api(
    "responses",
    _openai,
    _ask_responses,
    lambda results: [{"type": "function_call_output", "call_id": id, "output": text} for id, text in results],
    openai.compressed,
    openai.stats_of,
    [{"type": "function", "strict": False, **function} for function in FUNCTIONS],
)


# Anthropic


def _anthropic(server: ModelServer, asynchronous: bool) -> Any:
    return (AsyncAnthropic if asynchronous else Anthropic)(base_url=server.anthropic_url, **SETTINGS)


async def _ask_messages(
    client: Any, said: list[Any], *, stream: bool, asynchronous: bool, **more: Any
) -> Turn:
    thinking = {"type": "enabled", "budget_tokens": 1_024}
    request: Dict = {"model": "m", "max_tokens": 2_048, "messages": said, "thinking": thinking}
    request |= {"tools": MESSAGES.tools, **more}

    def streamed() -> Any:
        with client.messages.stream(**request) as events:
            return events.get_final_message()

    if not stream:
        made = await waited(asynchronous, lambda: client.messages.create(**request))
    elif asynchronous:
        async with client.messages.stream(**request) as events:
            made = await events.get_final_message()
    else:
        made = await asyncio.to_thread(streamed)
    return messages_turn(made)


def joined_events(events: list[Any]) -> Any:
    message, inputs = None, dict[int, bytes]()
    for event in events:
        message = accumulate_event(event=event, current_snapshot=message, json_bufs=inputs)
    return message


def messages_turn(made: Any) -> Turn:
    keys = ("parsed_output", "partial_json")
    blocks = [
        {k: v for k, v in block.model_dump(exclude_unset=True, mode="json").items() if k not in keys}
        for block in made.content
    ]
    calls = [(one["id"], one["name"], one["input"]) for one in blocks if one["type"] == "tool_use"]
    text = "".join(one["text"] for one in blocks if one["type"] == "text")
    usage = (made.usage.input_tokens, made.usage.output_tokens)
    return Turn([{"role": "assistant", "content": blocks}], calls, text, usage, made.stop_reason, made)


def _blocks(results: list[tuple[str, str]]) -> list[Any]:
    content = [{"type": "tool_result", "tool_use_id": id, "content": text} for id, text in results]
    return [{"role": "user", "content": content}]


MESSAGES = Api(
    "messages",
    _anthropic,
    _ask_messages,
    _blocks,
    anthropic.compressed,
    anthropic.stats_of,
    [
        {"name": one["name"], "description": one["description"], "input_schema": one["parameters"]}
        for one in FUNCTIONS
    ],
)


# DashScope


async def _ask_generation(
    client: Any, said: list[Any], *, stream: bool, asynchronous: bool, incremental: bool = True, **more: Any
) -> Turn:
    generation, url = client
    request: Dict = {
        "model": "m",
        "messages": said,
        "tools": GENERATION.tools,
        "api_key": "k",
        "base_address": url,
        "result_format": "message",
        **more,
    }
    if stream:
        request |= {"stream": True, "incremental_output": incremental}
    events = await generated(generation, asynchronous, **request)
    heard = joined_responses(events, stream and incremental)
    calls = [
        {"id": id, "type": "function", "function": {"name": name, "arguments": given}}
        for id, name, given in heard.calls
    ]
    item: Dict = {"role": "assistant", "content": heard.content}
    if heard.reasoning:
        item["reasoning_content"] = heard.reasoning
    if calls:
        item["tool_calls"] = calls
    parsed = [(id, name, json.loads(given)) for id, name, given in heard.calls]
    return Turn([item], parsed, heard.content, heard.usage, heard.finish_reason, events)


async def _ask_whole(client: Any, said: list[Any], **more: Any) -> Turn:
    return await _ask_generation(client, said, incremental=False, **more)


def _generation(server: ModelServer, asynchronous: bool) -> Any:
    return (AioGeneration if asynchronous else Generation), server.dashscope_url


def _compressed(client: Any, **options: Any) -> Any:
    return dashscope.compressed(client[0], **options), client[1]


GENERATION = Api(
    "dashscope",
    _generation,
    _ask_generation,
    CHAT.results,
    _compressed,
    lambda client, key=None: dashscope.stats_of(client[0], key),
    CHAT.tools,
)
GENERATION_WHOLE = replace(GENERATION, name="dashscope whole", ask=_ask_whole)
APIS = [CHAT, RESPONSES, MESSAGES, GENERATION]


async def work(
    api: Api,
    client: Any,
    said: list[Any],
    run: Callable[[str, Dict], str],
    *,
    turns: int,
    stream: bool = False,
    asynchronous: bool = True,
    **more: Any,
) -> Turn:
    """Ask until an answer calls nothing; what is said is added to the list."""
    for _ in range(turns):
        turn: Turn = await api.ask(client, said, stream=stream, asynchronous=asynchronous, **more)
        said += turn.items
        told = [tool.name for tool in getattr(turn.raw, "tools", ())]
        assert not {*told, *(name for _, name, _ in turn.calls)} & set(OURS)
        if not turn.calls:
            return turn
        said += api.results([(id, run(name, arguments)) for id, name, arguments in turn.calls])
    raise AssertionError(f"no answer within {turns} turns")


def ways(*given: tuple[bool, bool]) -> Any:
    """Return a mark that runs a test through each API in these ways: asynchronous or not, streamed or not."""
    cases = [(api, *way) for api in APIS for way in given]
    cases += [(GENERATION_WHOLE, *way) for way in given if way[1]]
    names = [
        f"{api}, {'async' if asynchronous else 'sync'}{', streamed' * stream}"
        for api, asynchronous, stream in cases
    ]
    return pytest.mark.parametrize(("api", "asynchronous", "stream"), cases, ids=names)


every_way = ways((True, True), (True, False), (False, True), (False, False))
each_way_once = ways((True, True), (False, False))
