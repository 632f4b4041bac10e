"""The agent's own model writes: that of the request which an event belongs to; its cost is told."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from dashscope.api_entities.dashscope_response import GenerationResponse

from context_compressor import (
    CompressedMemory,
    CompressionConfig,
    Msg,
    compress_messages,
)
from context_compressor.errors import InvalidArgumentError
from context_compressor.integrations.asked import Own, OwnModel, Said, as_summarizer, at_hand
from context_compressor.integrations.clients.chat import ChatWire
from context_compressor.integrations.clients.generation import GenerationWire
from context_compressor.integrations.clients.messages import MessagesWire
from context_compressor.integrations.clients.responses import ResponsesWire
from context_compressor.integrations.clients.talk import asker
from context_compressor.integrations.conversations import Conversations
from context_compressor.tokens.tiktoken import TiktokenCounter
from tests.integrations.clients_support import CHAT, Api
from tests.integrations.test_clients import every_api
from tests.integrations.test_clients_apart import LONG
from tests.support.model_server import ModelServer, status
from tests.support.wires import Received, wire_of

SMALL = {"max_total_tokens": 3_000, "on_failure": "raise"}


def own(name: str, asked: list[str], gate: asyncio.Barrier | None = None) -> Own:
    async def ask(instructions: str, text: str, room: int | None) -> Said:
        assert instructions
        assert text
        assert room
        asked.append(name)
        if gate is not None and asked.count(name) == 1:
            await gate.wait()
        return Said(f"## Goal\n- Count the units; {name} wrote this line.", 1_000, 50, "stop")

    return Own(name, ask)


def talk(who: str, turns: int = 40) -> list[dict[str, Any]]:
    said = [{"role": "user", "content": f"Count the units, for {who}."}]
    for n in range(turns):
        said.append(
            {"role": "assistant", "content": f"{who}: unit {n} was counted. " + "It is as it was. " * 20}
        )
        said.append({"role": "user", "content": f"And the next after {n}?"})
    return said


async def test_the_model_of_each_request_writes_for_it(caplog: pytest.LogCaptureFixture) -> None:
    """Two conversations share an adapter; each event's cost is logged once and counted apart."""
    conversations, asked, gate = (
        Conversations(summarizer=OwnModel(), **SMALL),
        list[str](),
        asyncio.Barrier(2),
    )
    caplog.set_level(logging.INFO, "context_compressor.memory.reporting")
    views = await asyncio.gather(
        *(
            conversations.view(talk(who), key=who, own=own(f"model-{who}", asked, gate))
            for who in ("anna", "bert")
        )
    )
    for who, view in zip(("anna", "bert"), views, strict=True):
        assert f"model-{who} wrote this" in str(view.messages)
        stats = conversations.stats(who)
        assert stats.summarizer_calls == asked.count(f"model-{who}")
        assert stats.summarizer_output_tokens == 50 * stats.summarizer_calls
        [line] = [text for text in caplog.messages if f"model-{who}" in text]
        assert f"{stats.summarizer_calls} calls of a model" in line


async def test_another_model_goes_on_with_a_conversation() -> None:
    conversations, asked = Conversations(summarizer=OwnModel(), **SMALL), list[str]()
    await conversations.view(talk("anna", 30), key="a", own=own("first", asked))
    shown = await conversations.view(talk("anna", 60), key="a", own=own("second", asked))
    assert set(asked) == {"first", "second"}
    assert "second wrote this" in str(shown.messages)
    async with conversations.memory(shown) as memory:
        await memory.compress_now()
    assert asked[-1] == "second"


async def test_what_is_prepared_ahead_is_written_by_the_model_at_hand_then() -> None:
    gate, asked = asyncio.Barrier(2), list[str]()
    config = CompressionConfig(max_total_tokens=3_000, background_ratio=0.5)
    async with CompressedMemory(config=config, summarizer=OwnModel()) as memory:
        said = [Msg("assistant", one["content"], one["role"]) for one in talk("anna", 12)]
        await memory.add(said)
        with at_hand(own("first", asked, gate)):
            await memory.get_memory()
        with at_hand(own("second", asked, gate)):
            await gate.wait()
    assert set(asked) == {"first"}


@pytest.mark.parametrize("notes_lines", [4, 100])
async def test_no_request_for_notes_takes_more_than_the_window(notes_lines: int) -> None:
    """The answer's room counts, what is reasoned in it; a list of many windows goes in pieces."""
    window, count, rooms = 8_000, TiktokenCounter().count_text, list[int]()
    notes = "## Goal\n" + "- Count the units of anna, each as it was.\n" * notes_lines

    async def ask(instructions: str, text: str, room: int | None) -> Said:
        assert room
        rooms.append(room)
        assert count(instructions) + count(text) + room <= window
        return Said(notes, 1_000, 50, "stop")

    conversations = Conversations(summarizer=OwnModel(), window_tokens=window, on_failure="raise")
    shown = await conversations.view(talk("anna", 200), key="a", own=Own("model", ask))
    assert "Count the units of anna" in str(shown.messages)
    assert len(rooms) >= 5
    assert min(rooms) > 1_000


def test_words_are_read_at_the_door() -> None:
    """`own` is refused by name where there is no request of an agent's, `rules` is known everywhere."""

    def no_model(_: Any) -> Any:
        raise AssertionError

    assert as_summarizer("rules", str, no_model) is None
    assert as_summarizer("rules", str, no_model, has_own=True) is None
    for given in (None, "own"):
        assert isinstance(as_summarizer(given, str, no_model, has_own=True), OwnModel)
    messages = talk("anna")
    assert compress_messages(messages, summarizer="rules").messages
    CompressedMemory(summarizer="rules")
    for refuse in (
        lambda: as_summarizer("own", str, no_model),
        lambda: CompressedMemory(summarizer="own"),  # type: ignore[arg-type]
        lambda: compress_messages(messages, summarizer="own"),  # type: ignore[arg-type]
    ):
        with pytest.raises(
            InvalidArgumentError, match=r"summarizer: 'own' is the model of an agent's request.*adapter"
        ):
            refuse()


# The clients

FORM = {"type": "json_schema", "json_schema": {"name": "verdict", "schema": {"type": "object"}}}
FORMAT = {"format": {"type": "json_schema", "name": "verdict", "schema": {"type": "object"}}}
WITH: dict[str, dict[str, Any]] = {
    "chat": {
        "max_tokens": 50,
        "stop": ["END"],
        "n": 2,
        "response_format": FORM,
        "tool_choice": "required",
        "metadata": {"user": "anna"},
        "store": True,
        "extra_headers": {"x-tenant": "anna"},
    },
    "responses": {
        "max_output_tokens": 50,
        "text": FORMAT,
        "tool_choice": "required",
        "metadata": {"user": "anna"},
        "truncation": "auto",
        "instructions": "Be brief.",
        "extra_headers": {"x-tenant": "anna"},
    },
    "messages": {
        "max_tokens": 1_100,
        "stop_sequences": ["END"],
        "tool_choice": {"type": "auto"},
        "metadata": {"user_id": "anna"},
        "system": "Be brief.",
        "extra_headers": {"x-tenant": "anna"},
    },
    "dashscope": {
        "max_tokens": 50,
        "stop": ["END"],
        "response_format": {"type": "json_object"},
        "headers": {"x-tenant": "anna"},
    },
}
"""What a caller may ask of his own answer, and who he is."""


def with_of(api: Api) -> dict[str, Any]:
    """Return what a caller of an API says."""
    return WITH[api.name]


MAY_SAY = {
    *("model", "messages", "max_tokens", "system", "thinking", "input", "instructions", "store"),
    *("max_output_tokens", "parameters"),
}
SUMMARY = "## Goal\n- Notes were taken; the model of the agent wrote that."


def is_summary(received: Received) -> bool:
    return "You write the notes of an AI agent" in json.dumps(received.json)


def serve(messages: list[Any], received: Received) -> str:
    return SUMMARY if is_summary(received) else "Well."


@every_api
@pytest.mark.parametrize(
    ("asynchronous", "stream"), [(True, False), (False, True)], ids=["async", "sync streamed"]
)
async def test_the_model_of_the_request_writes_by_default(api: Api, asynchronous: bool, stream: bool) -> None:
    """With its model and headers, not streamed; what was for the caller's answer is not taken over."""
    async with (
        ModelServer(serve) as server,
        api.open(server, asynchronous, max_total_tokens=8_000, summarizer=None) as client,
    ):
        turn = await api.ask(client, LONG, stream=stream, asynchronous=asynchronous, **with_of(api))
        stats = api.stats_of(client)
    [*asked, sent] = server.requests
    assert asked
    assert all(map(is_summary, asked))
    assert stats.summarizer_calls == len(asked)
    for one in asked:
        assert one.json["model"] == "m"
        assert one.headers["x-tenant"] == "anna"
        assert set(one.json) <= MAY_SAY
        assert not one.json.get("store")
        assert not one.tools
        parameters = one.json.get("parameters", {"result_format": "message", "max_tokens": 0})
        assert set(parameters) == {"result_format", "max_tokens"}
        assert one.json.get("max_tokens") != 50
        assert "anna" not in json.dumps(one.json)
    assert not is_summary(sent)
    assert "the model of the agent wrote that" in json.dumps(sent.json)
    assert (turn.text, turn.usage[0]) == ("Well.", wire_of(sent.path).count(sent))
    assert "wrote that" not in str(turn.raw)


@every_api
async def test_rules_send_no_request_and_a_model_that_fails_gives_way_to_them(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(messages: list[Any], received: Received) -> Any:
        return status(500) if is_summary(received) else "Well."

    caplog.set_level(logging.INFO, "context_compressor.memory.reporting")
    for word in ("rules", "own"):
        events = list[Any]()
        caplog.clear()
        async with (
            ModelServer(fail, enforce=False) as server,
            api.open(server, True, max_total_tokens=8_000, summarizer=word, on_event=events.append) as client,
        ):
            turn = await api.ask(client, LONG, stream=False, asynchronous=True)
            assert api.stats_of(client).summarizer_output_tokens == 0
        assert turn.text == "Well."
        assert any(map(is_summary, server.requests)) == (word == "own")
        assert any(event.kind == "failure" for event in events) == (word == "own")
        assert events[-1].kind == "compress"
        costs = [text for text in caplog.messages if "calls of a model" in text]
        assert len(costs) == (word == "own")
        assert all("written by rules" in text for text in costs)


async def test_a_limit_that_a_model_refuses_is_left_out_for_it_from_then_on() -> None:
    refusal = status(400, "Unsupported parameter: 'max_tokens' is not supported.", param="max_tokens")

    def refuse(messages: list[Any], received: Received) -> Any:
        return (
            refusal if is_summary(received) and "max_tokens" in received.json else serve(messages, received)
        )

    async with (
        ModelServer(refuse) as server,
        CHAT.open(server, True, max_total_tokens=8_000, summarizer=None) as client,
    ):
        for name in ("Anna", "Bert"):
            said = [{"role": "user", "content": f"I am {name}."}, *LONG]
            await CHAT.ask(client, said, stream=False, asynchronous=True)
    asked = [received for received in server.requests if is_summary(received)]
    assert ["max_tokens" in received.json for received in asked] == [True, False, False]


async def test_a_blocking_client_that_hangs_holds_none_of_the_loops_threads() -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    begun, ended = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def hang(sent: dict[str, Any]) -> None:
        loop.call_soon_threadsafe(begun.set)
        ended.wait()

    asking = asyncio.create_task(asker(ChatWire(), {"model": "m"}, hang, is_blocking=True)("", "Well?", None))
    try:
        await begun.wait()
        asking.cancel()
        assert await asyncio.wait_for(asyncio.to_thread(lambda: True), 60)
    finally:
        ended.set()


def test_what_came_out_of_the_cache_is_told() -> None:
    choices = [{"finish_reason": "stop", "message": {"role": "assistant", "content": "Kept."}}]
    spent = {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 7}}
    item = {"type": "message", "content": [{"type": "output_text", "text": "Kept."}]}
    read = {"input_tokens": 9, "output_tokens": 2}
    found: Any = {"status_code": 200, "output": {"choices": choices}}
    replies: dict[Any, Any] = {
        ChatWire(): {"choices": choices, "usage": spent},
        ResponsesWire(): {"output": [item], "usage": {**read, "input_tokens_details": {"cached_tokens": 7}}},
        MessagesWire(): {
            "content": [{"type": "text", "text": "Kept."}],
            "usage": {**read, "input_tokens": 2, "cache_read_input_tokens": 7},
        },
        GenerationWire(): GenerationResponse(
            **found, usage={**read, "prompt_tokens_details": {"cached_tokens": 7}}
        ),
    }
    for wire, reply in replies.items():
        assert wire.written(reply)._replace(finish_reason=None) == Said("Kept.", 9, 2, None, 7), wire
