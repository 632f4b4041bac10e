"""What wrapped clients add to a request: nothing before something has left, and nothing that is refused."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import Any

import pytest

from context_compressor import CompressionConfig
from context_compressor.integrations.conversations import Conversations
from context_compressor.summarizers.faults import refuses_tools
from tests.integrations.clients_support import APIS, OURS, Api
from tests.support.model_server import ModelServer, answer
from tests.support.replies import Exchange
from tests.support.wires import Failure, Received

Dict = dict[str, Any]
SMALL: Dict = {"max_total_tokens": 4_000}
SHORT = ["Hello."]
LONG = [*(f"Note {n}: {'word ' * 300}" for n in range(20)), "Well?"]
"""More than the budget."""


def client(api: Api, asynchronous: bool, stream: bool) -> Any:
    @asynccontextmanager
    async def opened(server: ModelServer, **options: Any) -> Any:
        def tool(n: int) -> Dict:
            [first, *_] = api.tools
            named = first.get("function")
            return {**first, "function": {**named, "name": f"t{n}"}} if named else {**first, "name": f"t{n}"}

        async with api.open(server, asynchronous, **options) as made:

            async def ask(texts: list[str], count: int = 0, model: str = "m") -> None:
                said = [{"role": "user", "content": text} for text in texts]
                way: Dict = {"stream": stream, "asynchronous": asynchronous, "model": model}
                await api.ask(made, said, tools=[tool(n) for n in range(count)], **way)

            yield ask

    return opened


ADAPTERS = {
    "chat": client(APIS[0], True, True),
    "responses": client(APIS[1], False, False),
    "messages": client(APIS[2], True, True),
    "dashscope": client(APIS[3], False, True),
    "chat, sync": client(APIS[0], False, False),
    "responses, streamed": client(APIS[1], True, True),
    "messages, sync streamed": client(APIS[2], False, True),
    "dashscope, awaited": client(APIS[3], True, False),
}
every_adapter = pytest.mark.parametrize("opened", ADAPTERS.values(), ids=ADAPTERS.keys())


def offered(received: Received) -> set[str]:
    return {str((tool.get("function") or tool)["name"]) for tool in received.tools} & set(OURS)


def named_in(received: Received) -> bool:
    text = json.dumps(received.json)
    return any(name in text for name in OURS)


async def refuse(exchange: Exchange) -> Any:
    return await exchange.send_failure(Failure(400, "this model does not support Tools"))


def takes_no_tools(messages: list[Dict], received: Received) -> Any:
    return refuse if received.tools and received.json["model"] == "plain" else answer("Well.")


@pytest.mark.variants(4)
@every_adapter
async def test_tools_come_once_something_has_left(opened: Any) -> None:
    async with ModelServer(lambda messages: "Well.") as server, opened(server, **SMALL) as ask:
        await ask(SHORT)
        assert not any(map(named_in, server.requests))
        await ask(LONG, 2)
        assert offered(server.requests[-1]) == set(OURS)
        assert "ctx://" in json.dumps(server.requests[-1].messages)
        for received in server.requests:
            # What is named is offered.
            assert not named_in(received) or offered(received) == set(OURS)
        assert server.refusals == []


@pytest.mark.variants(4)
@every_adapter
async def test_a_refusal_that_names_tools_is_answered_by_one_request_without(opened: Any) -> None:
    async with ModelServer(takes_no_tools) as server, opened(server, **SMALL) as ask:
        await ask(LONG, model="plain")
        refused = [received for received in server.requests if offered(received)]
        assert len(refused) == 1
        assert not named_in(server.requests[-1])
        assert "ctx://" in json.dumps(server.requests[-1].json)
        before = len(server.requests)
        await ask([*LONG, "And?"], model="plain")
        assert not any(map(offered, server.requests[before:]))
        await ask(["Another one.", *LONG], model="other")
        assert offered(server.requests[-1]) == set(OURS)


@pytest.mark.variants(4)
@every_adapter
async def test_ours_are_left_out_beside_more_than_124(opened: Any) -> None:
    async with ModelServer(lambda messages: "Well.") as server, opened(server, **SMALL) as ask:
        for count, ours in ((124, set(OURS)), (125, set())):
            await ask([f"{count}", *LONG], count)
            assert offered(server.requests[-1]) == ours
            assert len(server.requests[-1].tools) == count + len(ours)
        assert not named_in(server.requests[-1])


@pytest.mark.variants(4)
@every_adapter
async def test_without_tools_none_are_offered_nor_named(opened: Any) -> None:
    async with ModelServer(lambda messages: "Well.") as server, opened(server, tools=False, **SMALL) as ask:
        await ask(LONG)
        assert "ctx://" in json.dumps(server.requests[-1].json)
        assert not any(map(named_in, server.requests))


async def test_a_refused_view_is_made_anew_from_where_it_began() -> None:
    """One event in place of the other: nothing of the first one is left, and of both it is told."""
    events: list[Any] = []
    conversations = Conversations(on_event=events.append, **SMALL)
    said = [{"role": "user", "content": text} for text in LONG]
    shown = await conversations.view(said, model="m")
    assert shown.offers_tools
    assert await conversations.after_refusal(shown, "no such field: messages") is None
    plain = await conversations.after_refusal(shown, "tools are not supported")
    assert not plain.offers_tools
    assert not any(name in json.dumps(plain.messages) for name in OURS)
    assert len(events) == 2
    assert await conversations.after_refusal(plain, "tools are not supported") is None
    smaller = await conversations.after_refusal(plain, "maximum context length is 3000 tokens")
    assert smaller is not None
    assert await conversations.after_refusal(smaller, "maximum context length is 3000 tokens") is None
    assert conversations.offers_tools_to("m")
    await conversations.record_usage(smaller, None)
    assert not conversations.offers_tools_to("m")
    assert CompressionConfig(**SMALL) == conversations.config


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Function tools with reasoning_effort are not supported", True),
        ('"auto" tool choice requires --enable-auto-tool-choice', True),
        ("registry.ollama.ai/library/gemma:2b does not support tools", True),
        ("tools.0.input_schema: bad", True),
        ("The toolConfig field is not allowed", True),
        ('Unknown name "functionDeclarations"', True),
        ("invalid field: tool_choice", True),
        ("this functionality is not available", False),
        ("the toolkit is closed", False),
        ("messages: too short", False),
    ],
)
def test_what_names_tools(text: str, names: bool) -> None:
    assert refuses_tools(text) == refuses_tools(ValueError(text)) == names


@pytest.mark.parametrize(
    ("status", "names"), [(400, True), (404, True), (422, True), (401, False), (429, False), (500, False)]
)
def test_only_an_error_of_the_request_itself_is_answered(status: int, names: bool) -> None:
    class StatusError(Exception):
        def __init__(self) -> None:
            super().__init__("no tools")
            self.status_code = status

    assert refuses_tools(StatusError()) == names
    assert not refuses_tools(TimeoutError("tools"))
    assert refuses_tools(NotImplementedError())
