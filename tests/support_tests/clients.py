"""The real SDKs, each behind the same three calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
import dashscope
import requests
from openai import AsyncOpenAI, OpenAI
from openai.lib.streaming.chat import ChatCompletionStreamState

from tests.support.model_server import ModelServer

Dict = dict[str, Any]
TIMEOUT_SECONDS = 120
"""Only so that a failure is one, however loaded the machine is."""


class RefusedError(Exception):
    """Stands for OpenAI's exceptions and for what DashScope's SDK returns instead."""

    def __init__(self, status: int, code: str | None, message: str, headers: Any) -> None:
        super().__init__(f"{status} {code}: {message}")
        self.status, self.code, self.message, self.headers = status, code, message, headers


@dataclass(frozen=True)
class Heard:
    """An answer, put together from its pieces if it came in pieces."""

    content: str
    reasoning: str
    calls: list[tuple[str, str, str]]
    finish_reason: str | None
    usage: tuple[int, int] | None
    pieces: int = 1


@dataclass(frozen=True)
class Client:
    """One way to ask: an SDK, an endpoint, sync or async."""

    name: str
    whole: Callable[[ModelServer, list[Dict], Dict], Any]
    streamed: Callable[[ModelServer, list[Dict], Dict], Any]

    def __str__(self) -> str:
        return self.name

    async def ask(
        self, server: ModelServer, messages: list[Dict], *, stream: bool = False, **more: Any
    ) -> Heard:
        """Return the answer, or raise `RefusedError`, or whatever the SDK raises for a broken connection."""
        heard: Heard = await (self.streamed if stream else self.whole)(server, messages, more)
        return heard


def _openai(url: Callable[[ModelServer], str], asynchronous: bool) -> dict[str, Any]:
    from openai import APIStatusError

    def settings(server: ModelServer) -> Dict:
        return {"base_url": url(server), "api_key": "k", "max_retries": 0, "timeout": TIMEOUT_SECONDS}

    def refusal(error: APIStatusError) -> RefusedError:
        return RefusedError(error.status_code, error.code, str(error), error.response.headers)

    async def whole(server: ModelServer, messages: list[Dict], more: Dict) -> Heard:
        try:
            if asynchronous:
                async with AsyncOpenAI(**settings(server)) as client:
                    made = await client.chat.completions.create(model="m", messages=messages, **more)
            else:
                made = await asyncio.to_thread(ask_in_thread, server, messages, more)
        except APIStatusError as error:
            raise refusal(error) from error
        return _heard(made)

    def ask_in_thread(server: ModelServer, messages: list[Dict], more: Dict) -> Any:
        with OpenAI(**settings(server)) as client:
            made = client.chat.completions.create(model="m", messages=messages, **more)
            return list(made) if more.get("stream") else made

    async def streamed(server: ModelServer, messages: list[Dict], more: Dict) -> Heard:
        more = {"stream": True, "stream_options": {"include_usage": True}, **more}
        try:
            if asynchronous:
                async with AsyncOpenAI(**settings(server)) as client:
                    stream = await client.chat.completions.create(model="m", messages=messages, **more)
                    chunks = [chunk async for chunk in stream]
            else:
                chunks = await asyncio.to_thread(ask_in_thread, server, messages, more)
        except APIStatusError as error:
            raise refusal(error) from error
        return _heard(joined_chunks(chunks), len(chunks))

    return {"whole": whole, "streamed": streamed}


def joined_chunks(chunks: list[Any]) -> Any:
    state = ChatCompletionStreamState()
    for chunk in chunks:
        state.handle_chunk(chunk)
    return state.current_completion_snapshot


def _heard(made: Any, pieces: int = 1) -> Heard:
    [choice] = made.choices
    calls = [(c.id, c.function.name, c.function.arguments) for c in choice.message.tool_calls or []]
    reasoning = getattr(choice.message, "reasoning_content", None) or ""
    usage = (made.usage.prompt_tokens, made.usage.completion_tokens) if made.usage else None
    return Heard(choice.message.content or "", reasoning, calls, choice.finish_reason, usage, pieces)


async def generated(kind: Any, asynchronous: bool, **request: Any) -> list[Any]:
    """Return what a class of DashScope's gives for a request: its pieces, or the one that is whole."""

    def in_thread() -> list[Any]:
        with requests.Session() as session:
            made = kind.call(**request, session=session)
            return list(made) if request.get("stream") else [made]

    if not asynchronous:
        return await asyncio.to_thread(in_thread)
    # Not the SDK's own: when one is forgotten, it closes the one that has its `id()` by then.
    async with aiohttp.ClientSession() as session:
        made = await kind.call(**request, session=session)
        return [piece async for piece in made] if request.get("stream") else [made]


def _dashscope(kind: Any, asynchronous: bool, multimodal: bool, stream_options: Dict) -> dict[str, Any]:
    async def ask(server: ModelServer, messages: list[Dict], more: Dict) -> list[Any]:
        settings = {
            "model": "qwen-scripted",
            "messages": [_with_parts(m) for m in messages] if multimodal else messages,
            "api_key": "k",
            "base_address": server.dashscope_url,
            "result_format": "message",
            "request_timeout": TIMEOUT_SECONDS,
            **more,
        }
        return await generated(kind, asynchronous, **settings)

    async def whole(server: ModelServer, messages: list[Dict], more: Dict) -> Heard:
        return joined_responses(await ask(server, messages, more), incremental=False)

    async def streamed(server: ModelServer, messages: list[Dict], more: Dict) -> Heard:
        more = {"stream": True, **stream_options, **more}
        responses = await ask(server, messages, more)
        return joined_responses(responses, bool(more.get("incremental_output")))

    return {"whole": whole, "streamed": streamed}


def _with_parts(message: Dict) -> Dict:
    content = message.get("content")
    return {**message, "content": [{"text": content}]} if isinstance(content, str) and content else message


def joined_responses(responses: list[Any], incremental: bool) -> Heard:
    content = reasoning = ""
    calls: list[list[str]] = []
    finish_reason, usage = None, None
    for response in responses:
        if response.status_code != 200:
            raise RefusedError(response.status_code, response.code, response.message, response.headers)
        usage = (response.usage["input_tokens"], response.usage["output_tokens"])
        [choice] = response.output.choices
        message = choice.message
        text = message["content"]
        text = "".join(part["text"] for part in text) if isinstance(text, list) else text
        content = content + text if incremental else text
        thought = message.get("reasoning_content", "")
        reasoning = reasoning + thought if incremental else thought
        finish_reason = choice.finish_reason if choice.finish_reason != "null" else finish_reason
        for index, call in enumerate(message.get("tool_calls") or []):
            function = call["function"]
            if not incremental:
                calls[index:] = [[call["id"], function["name"], function["arguments"]]]
            elif call["index"] == len(calls):
                calls.append([call["id"], function["name"], function["arguments"]])
            else:
                calls[call["index"]][2] += function["arguments"]
    return Heard(content, reasoning, [(a, b, c) for a, b, c in calls], finish_reason, usage, len(responses))


INCREMENTAL = {"incremental_output": True}
OPENAI_CLIENTS = [
    Client("AsyncOpenAI", **_openai(lambda server: server.url, True)),
    Client("OpenAI", **_openai(lambda server: server.url, False)),
    Client("compatible", **_openai(lambda server: server.compatible_url, True)),
]
DASHSCOPE_CLIENTS = [
    Client("AioGeneration", **_dashscope(dashscope.AioGeneration, True, False, INCREMENTAL)),
    Client("AioGeneration-whole", **_dashscope(dashscope.AioGeneration, True, False, {})),
    Client(
        "AioGeneration-merged",
        **_dashscope(dashscope.AioGeneration, True, False, {"incremental_output": False}),
    ),
    Client("Generation", **_dashscope(dashscope.Generation, False, False, INCREMENTAL)),
    Client("multimodal", **_dashscope(dashscope.AioMultiModalConversation, True, True, INCREMENTAL)),
    Client("multimodal-whole", **_dashscope(dashscope.AioMultiModalConversation, True, True, {})),
]
CLIENTS = [*OPENAI_CLIENTS, *DASHSCOPE_CLIENTS]
