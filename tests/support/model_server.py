"""A scripted chat-completions server on the loopback, for tests with real provider SDKs.

async with ModelServer() as server:
    server.script(status(429), completion("## Goal\n- ..."))
    ...  # point the SDK at server.url
    server.requests[0].json["messages"]
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from aiohttp import web

Reply = Callable[[web.Request, "ModelServer"], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Received:
    """A request as it came in."""

    path: str
    headers: Mapping[str, str]
    json: dict[str, Any]


class ModelServer:
    """Answer each request with the next scripted reply; the last one is repeated."""

    def __init__(self) -> None:
        self.requests: list[Received] = []
        self.url = ""
        self.started = asyncio.Event()
        """Set while a request hangs."""
        self.released = asyncio.Event()
        """Set when hanging requests are to end."""
        self._replies: deque[Reply] = deque([completion("## Goal\n- the scripted summary")])
        self._runner: web.AppRunner | None = None

    def script(self, *replies: Reply) -> None:
        """Set the replies to come, in order."""
        self._replies = deque(replies)

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_post("/v1/{tail:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}/v1"
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.released.set()
        assert self._runner is not None
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(Received(request.path, request.headers, await request.json()))
        reply = self._replies.popleft() if len(self._replies) > 1 else self._replies[0]
        return await reply(request, self)


def completion(
    content: str | None,
    *,
    finish_reason: str = "stop",
    usage: tuple[int, int] | None = (100, 20),
    **message: Any,
) -> Reply:
    """Answer with a chat completion; further arguments go into its message."""
    body: dict[str, Any] = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": "scripted",
        "choices": [
            {
                "index": 0,
                "finish_reason": finish_reason,
                "message": {"role": "assistant", "content": content, **message},
            }
        ],
    }
    if usage is not None:
        read, written = usage
        body["usage"] = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    return raw(json.dumps(body))


def status(
    code: int,
    message: str = "scripted failure",
    *,
    headers: Mapping[str, str] | None = None,
    param: str | None = None,
    error_code: str | None = None,
) -> Reply:
    """Answer with an HTTP status and an error in OpenAI's form."""
    error = {"message": message, "type": "invalid_request_error", "param": param, "code": error_code}
    return raw(json.dumps({"error": error}), code=code, headers=headers)


def context_length_exceeded(limit: int = 8_192) -> Reply:
    """Answer as OpenAI does when the prompt does not fit the model."""
    message = (
        f"This model's maximum context length is {limit} tokens. Please reduce the length of the messages."
    )
    return status(400, message, param="messages", error_code="context_length_exceeded")


def raw(
    body: str | bytes,
    *,
    code: int = 200,
    content_type: str = "application/json",
    headers: Mapping[str, str] | None = None,
) -> Reply:
    """Answer with this body."""
    data = body.encode() if isinstance(body, str) else body

    async def reply(request: web.Request, server: ModelServer) -> web.StreamResponse:
        return web.Response(body=data, status=code, content_type=content_type, headers=headers)

    return reply


def hang() -> Reply:
    """Do not answer until the server closes."""

    async def reply(request: web.Request, server: ModelServer) -> web.StreamResponse:
        server.started.set()
        await server.released.wait()
        return web.Response(status=503)

    return reply


def reset() -> Reply:
    """Break the connection in the middle of the body."""

    async def reply(request: web.Request, server: ModelServer) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b'{"id": "chatcmpl-1", "choices": [')
        assert request.transport is not None
        request.transport.abort()
        return response

    return reply
