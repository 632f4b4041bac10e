"""What a scripted server can answer: rendered in the wire of the request, and streamed if asked for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from aiohttp import web

from tests.support.provider_tokens import count_text
from tests.support.wires import Failure, Received, Said, Wire, wire_of

End = Literal["end", "abort", "hang"]


class Server(Protocol):
    """What replies need of their server."""

    async def hold(self) -> None:
        """Return when hanging requests are to end."""

    def remember(self, said: Said, received: Received) -> None:
        """Note an answer that goes out."""


@dataclass(frozen=True)
class Exchange:
    """A request that is being answered."""

    request: web.Request
    received: Received
    wire: Wire
    server: Server
    sent: list[web.StreamResponse] = field(default_factory=list)
    """The stream that has begun, if one has."""

    async def send_said(self, said: Said) -> web.StreamResponse:
        """Answer with what the model says."""
        self.server.remember(said, self.received)
        if not self.received.streams:
            return web.json_response(self.wire.body(said, self.received))
        return await self.send_events(self.wire.events(said, self.received))

    async def send_failure(
        self, failure: Failure, headers: Mapping[str, str] | None = None
    ) -> web.StreamResponse:
        """Answer with an error; DashScope puts it in an event if it was asked for events."""
        if self.received.streams and self.received.path.startswith("/api/"):
            event = self.wire.error_event(failure, self.received)
            return web.Response(
                text=event, status=failure.status, content_type="text/event-stream", headers=headers
            )
        body = self.wire.error(failure, self.received)
        return web.json_response(body, status=failure.status, headers=headers)

    async def send_events(self, events: Iterable[str], then: End = "end") -> web.StreamResponse:
        """Answer with server-sent events, and end as told."""
        headers = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
        return await self.send_pieces([event.encode() for event in events], headers, then)

    async def send_pieces(
        self, pieces: Iterable[bytes], headers: Mapping[str, str], then: End
    ) -> web.StreamResponse:
        """Answer with a body in pieces, and end as told."""
        response = web.StreamResponse(headers=headers)
        self.sent.append(response)
        await response.prepare(self.request)
        for piece in pieces:
            await response.write(piece)
        if then == "hang":
            await self.server.hold()
        if then != "end" and self.request.transport is not None:
            self.request.transport.abort()
        return response


Reply = Callable[[Exchange], Awaitable[web.StreamResponse]]


def completion(
    content: str | list[dict[str, Any]] | None,
    *,
    finish_reason: str = "stop",
    usage: tuple[int, int] | None = (100, 20),
    **message: Any,
) -> Reply:
    """Answer with a chat completion; further arguments go into its message."""
    said = Said({"role": "assistant", "content": content, **message}, finish_reason, usage)

    async def reply(exchange: Exchange) -> web.StreamResponse:
        return await exchange.send_said(said)

    return reply


def answer(
    content: str | None = None,
    tool_calls: Sequence[tuple[str, Any] | tuple[str, Any, str]] = (),
    *,
    reasoning: str | None = None,
    finish_reason: str | None = None,
    extra_content: Mapping[str, Any] | None = None,
    **message: Any,
) -> Reply:
    """Answer with text and calls, each `(name, arguments)` or `(name, arguments, id)`; usage is counted.

    Arguments that are text go out as they are, so that a model's broken ones can be played. Ids are fresh
    and unique, and the same in every run. Calls hold `extra_content`, as Gemini's do.
    Further arguments go into the message.
    """

    async def reply(exchange: Exchange) -> web.StreamResponse:
        said = _build_said(exchange.received, content, tool_calls, reasoning, finish_reason)
        said.message.update(message)
        if extra_content is not None:
            for call in said.message["tool_calls"]:
                call["extra_content"] = extra_content
        return await exchange.send_said(said)

    return reply


def _build_said(
    received: Received,
    content: str | None,
    tool_calls: Sequence[tuple[str, Any] | tuple[str, Any, str]],
    reasoning: str | None,
    finish_reason: str | None,
) -> Said:
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if reasoning is not None:
        message["reasoning_content"] = reasoning
    calls: list[dict[str, Any]] = []
    for index, (name, arguments, *given) in enumerate(tool_calls):
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        call_id = given[0] if given else _fresh_id(received, index)
        calls.append({"id": call_id, "type": "function", "function": {"name": name, "arguments": text}})
    if calls:
        message["tool_calls"] = calls
    read = wire_of(received.path).count(received)
    texts = [content, reasoning, *(value for call in calls for value in call["function"].values())]
    written = sum(map(count_text, texts))
    return Said(message, finish_reason or ("tool_calls" if calls else "stop"), (read, written))


def _fresh_id(received: Received, index: int) -> str:
    seed = json.dumps([received.number, index, received.messages])
    return f"call_{hashlib.sha256(seed.encode()).hexdigest()[:24]}"


def status(
    code: int,
    message: str = "scripted failure",
    *,
    headers: Mapping[str, str] | None = None,
    param: str | None = None,
    error_code: str | None = None,
) -> Reply:
    """Answer with an HTTP status and an error in the provider's form."""
    return _failing(lambda _wire: Failure(code, message, error_code, param), headers)


def context_length_exceeded(limit: int = 8_192) -> Reply:
    """Answer as the provider does when the prompt does not fit the model."""
    return _failing(lambda wire: wire.overflow(limit, None))


def rate_limited(retry_after: float | str | None = None) -> Reply:
    """Answer with 429, and with Retry-After if given: seconds or a date."""
    headers = None if retry_after is None else {"Retry-After": str(retry_after)}
    return _failing(lambda wire: wire.rate_limited(), headers)


def inspection_failed() -> Reply:
    """Answer as the provider does when its content filter refuses the prompt."""
    return _failing(lambda wire: wire.inspection_failed())


def _failing(failure: Callable[[Wire], Failure], headers: Mapping[str, str] | None = None) -> Reply:
    async def reply(exchange: Exchange) -> web.StreamResponse:
        return await exchange.send_failure(failure(exchange.wire), headers)

    return reply


def raw(
    body: str | bytes,
    *,
    code: int = 200,
    content_type: str = "application/json",
    headers: Mapping[str, str] | None = None,
) -> Reply:
    """Answer with this body."""
    data = body.encode() if isinstance(body, str) else body

    async def reply(exchange: Exchange) -> web.StreamResponse:
        return web.Response(body=data, status=code, content_type=content_type, headers=headers)

    return reply


def malformed() -> Reply:
    """Answer with JSON that breaks off: the body, or an event inside a stream that ends properly."""
    said = Said({"role": "assistant", "content": "half and half"}, "stop", (1, 1))

    async def reply(exchange: Exchange) -> web.StreamResponse:
        wire, received = exchange.wire, exchange.received
        if received.streams:
            first, *rest = wire.events(said, received)
            return await exchange.send_events([first, wire.torn_event(), *rest])
        body = json.dumps(wire.body(said, received))
        return web.Response(text=body[: len(body) // 2], content_type="application/json")

    return reply


def hang() -> Reply:
    """Do not answer until the server closes, or is told to `release`."""

    async def reply(exchange: Exchange) -> web.StreamResponse:
        await exchange.server.hold()
        return web.Response(status=503)

    return reply


def reset() -> Reply:
    """Break the connection in the middle of the body."""

    async def reply(exchange: Exchange) -> web.StreamResponse:
        headers = {"Content-Type": "application/json", "Content-Length": "1000"}
        return await exchange.send_pieces([b'{"id": "chatcmpl-1", "choices": ['], headers, "abort")

    return reply


def half_stream(
    content: str = "a text that is long enough to be sent in several pieces",
    tool_calls: Sequence[tuple[str, Any] | tuple[str, Any, str]] = (),
    *,
    then: End = "abort",
) -> Reply:
    """Stream the first half of an answer, then break the connection, end as if all were well, or hang.

    The half has neither a finish reason nor `[DONE]`. An answer that is not streamed is cut in the same place
    of its body.
    """

    async def reply(exchange: Exchange) -> web.StreamResponse:
        said = _build_said(exchange.received, content, tool_calls, None, None)
        if exchange.received.streams:
            events = exchange.wire.events(said, exchange.received)
            return await exchange.send_events(events[: len(events) // 2], then)
        body = json.dumps(exchange.wire.body(said, exchange.received)).encode()
        return await exchange.send_pieces(
            [body[: len(body) // 2]], {"Content-Type": "application/json"}, then
        )

    return reply


def failing_stream(code: int = 500, message: str = "scripted failure") -> Reply:
    """Stream the first half of an answer, then an event that holds an error; whole answers only fail."""
    failure = Failure(code, message)

    async def reply(exchange: Exchange) -> web.StreamResponse:
        wire, received = exchange.wire, exchange.received
        if not received.streams:
            return await exchange.send_failure(failure)
        said = _build_said(received, "a text in several pieces", (), None, None)
        events = wire.events(said, received)
        return await exchange.send_events([*events[: len(events) // 2], wire.error_event(failure, received)])

    return reply
