"""The wires of the Responses API and of Anthropic, as the real SDKs see them: whole and streamed."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import anthropic
import openai
import pytest

from tests.support.model_server import (
    CallThenAnswer,
    ModelServer,
    answer,
)
from tests.support_tests.refused_forms import HI, call, output

pytestmark = pytest.mark.variants(2)

Dict = dict[str, Any]
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
SETTINGS: Dict = {"api_key": "k", "max_retries": 0, "timeout": 120}

every_way = pytest.mark.parametrize(
    ("asynchronous", "stream"),
    [(True, False), (True, True), (False, False), (False, True)],
    ids=["async", "async streamed", "sync", "sync streamed"],
)


async def respond(server: ModelServer, given: Any, *, asynchronous: bool, stream: bool, **more: Any) -> Any:
    """Return OpenAI's `Response`; a streamed one is what the last event holds."""
    request: Dict = {"model": "m", "input": given, "stream": stream, **more}
    if asynchronous:
        async with openai.AsyncOpenAI(base_url=server.url, **SETTINGS) as client:
            made = await client.responses.create(**request)
            return completed([event async for event in made]) if stream else made

    def ask() -> Any:
        with openai.OpenAI(base_url=server.url, **SETTINGS) as client:
            made = client.responses.create(**request)
            return completed(list(made)) if stream else made

    return await asyncio.to_thread(ask)


def completed(events: list[Any]) -> Any:
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[0].type == "response.created"
    done = [event.item for event in events if event.type == "response.output_item.done"]
    assert done == events[-1].response.output
    said = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert said == events[-1].response.output_text
    given = "".join(event.delta for event in events if event.type == "response.function_call_arguments.delta")
    assert given == "".join(item.arguments for item in done if item.type == "function_call")
    return events[-1].response


async def converse(
    server: ModelServer, messages: list[Any], *, asynchronous: bool, stream: bool, **more: Any
) -> Any:
    """Return Anthropic's `Message`; a streamed one is what the SDK puts together."""
    request: Dict = {"model": "m", "max_tokens": 1_000, "messages": messages, **more}
    if asynchronous:
        async with anthropic.AsyncAnthropic(base_url=server.anthropic_url, **SETTINGS) as client:
            if not stream:
                return await client.messages.create(**request)
            async with client.messages.stream(**request) as events:
                return await events.get_final_message()

    def ask() -> Any:
        with anthropic.Anthropic(base_url=server.anthropic_url, **SETTINGS) as client:
            if not stream:
                return client.messages.create(**request)
            with client.messages.stream(**request) as events:
                return events.get_final_message()

    return await asyncio.to_thread(ask)


class TestResponses:
    @every_way
    async def test_a_tool_loop_of_some_turns(self, asynchronous: bool, stream: bool):
        tools = [{"type": "function", "name": "read_file", "parameters": SCHEMA}]
        history: list[Any] = []
        async with ModelServer(CallThenAnswer(calls=2)) as server:
            for request in ("Look.", "Look again."):
                history.append({"role": "user", "content": request})
                while True:
                    made = await respond(
                        server, history, asynchronous=asynchronous, stream=stream, tools=tools
                    )
                    history += [item.model_dump(exclude_unset=True) for item in made.output]
                    calls = [item for item in made.output if item.type == "function_call"]
                    history += [output(made_call.call_id, "a file") for made_call in calls]
                    if not calls:
                        break
            assert made.output_text == "Done, after 4 calls."
            assert made.status == "completed"
            assert made.usage.total_tokens > 100
            assert server.refusals == []
            assert len(server.requests) == 6

    @every_way
    async def test_a_previous_response_is_continued(self, asynchronous: bool, stream: bool):
        def policy(messages: list[Dict]) -> Any:
            return answer("Seen.") if len(messages) > 2 else answer("So:", [("look", {})], reasoning="Hm.")

        way: Dict = {"asynchronous": asynchronous, "stream": stream}
        async with ModelServer(policy) as server:
            first = await respond(server, "Look.", **way)
            assert [item.type for item in first.output] == ["reasoning", "message", "function_call"]
            assert first.output[0].summary[0].text == "Hm."
            more = [output(first.output[2].call_id, "a file")]
            second = await respond(server, more, previous_response_id=first.id, **way)
            assert second.output_text == "Seen."
            assert [item.get("type") for item in server.requests[1].messages] == [
                *["message", "reasoning", "message", "function_call", "function_call_output"]
            ]
            with pytest.raises(openai.BadRequestError, match="not found") as caught:
                await respond(server, more, previous_response_id="resp_0", **way)
            assert caught.value.code == "previous_response_not_found"

    @every_way
    async def test_what_does_not_fit_is_refused(self, asynchronous: bool, stream: bool):
        long = [{"role": "user", "content": "word " * 90}]
        way: Dict = {"asynchronous": asynchronous, "stream": stream}
        async with ModelServer(lambda messages: "well", window_tokens=100) as server:
            assert (await respond(server, long, **way)).output_text == "well"
            for more in ({"input": long * 2}, {"instructions": "word " * 90}, {"input": [call(), output()]}):
                given = [*long, *more.pop("input", [])]
                with pytest.raises(openai.BadRequestError, match="exceeds the context window") as caught:
                    await respond(server, given, **way, **more)
                assert caught.value.code == "context_length_exceeded"


class TestAnthropic:
    @every_way
    async def test_a_tool_loop_of_some_turns(self, asynchronous: bool, stream: bool):
        tools = [{"name": "read_file", "input_schema": SCHEMA}]
        history: list[Any] = []
        async with ModelServer(CallThenAnswer(calls=2)) as server:
            for request in ("Look.", "Look again."):
                history.append({"role": "user", "content": request})
                while True:
                    made = await converse(
                        server, history, asynchronous=asynchronous, stream=stream, tools=tools
                    )
                    blocks = [block.model_dump(exclude_unset=True, mode="json") for block in made.content]
                    history.append({"role": "assistant", "content": [_sendable(block) for block in blocks]})
                    results = [_result(block["id"]) for block in blocks if block["type"] == "tool_use"]
                    if not results:
                        break
                    assert made.stop_reason == "tool_use"
                    history.append({"role": "user", "content": results})
            assert made.content[0].text == "Done, after 4 calls."
            assert made.stop_reason == "end_turn"
            assert made.usage.input_tokens > 100
            assert server.refusals == []
            assert len(server.requests) == 6

    @every_way
    async def test_thinking_must_stay_while_its_turn_is_open(self, asynchronous: bool, stream: bool):
        policy: Callable[..., Any] = lambda messages: answer("So:", [("look", {"a": 1})], reasoning="Hm.")  # noqa: E731
        way: Dict = {"asynchronous": asynchronous, "stream": stream}
        thinking = {"type": "enabled", "budget_tokens": 1_024}
        async with ModelServer(policy) as server:
            made = await converse(server, [HI], **way)
            thought, _text, use = made.content
            assert (thought.thinking, use.input) == ("Hm.", {"a": 1})
            blocks = [_sendable(block.model_dump(exclude_unset=True, mode="json")) for block in made.content]
            results = {"role": "user", "content": [_result(use.id)]}
            whole = [HI, {"role": "assistant", "content": blocks}, results]
            await converse(server, whole, **way, thinking=thinking)
            lost = [HI, {"role": "assistant", "content": blocks[1:]}, results]
            await converse(server, lost, **way)
            with pytest.raises(anthropic.BadRequestError, match="Expected `thinking`"):
                await converse(server, lost, **way, thinking=thinking)

    @every_way
    async def test_what_does_not_fit_is_refused(self, asynchronous: bool, stream: bool):
        long = [{"role": "user", "content": "word " * 90}]
        way: Dict = {"asynchronous": asynchronous, "stream": stream}
        async with ModelServer(lambda messages: "well", window_tokens=100) as server:
            assert (await converse(server, long, **way)).content[0].text == "well"
            for given, more in ((long * 2, {}), (long, {"system": "word " * 90})):
                with pytest.raises(
                    anthropic.BadRequestError, match=r"prompt is too long: 1\d\d tokens > 100"
                ):
                    await converse(server, given, **way, **more)


def _sendable(block: Dict) -> Dict:
    """A block as it may go back: what the SDK's stream adds of its own must not."""
    return {key: value for key, value in block.items() if key not in ("parsed_output", "partial_json")}


def _result(call_id: str) -> Dict:
    return {"type": "tool_result", "tool_use_id": call_id, "content": json.dumps({"text": "a file"})}
