"""A model server on the loopback that is as strict as a provider, for tests with real SDKs and for examples.

async with ModelServer() as server:
    server.script(status(429), completion("## Goal\n- ..."))
    ...  # point the SDK at server.url, server.compatible_url or server.dashscope_url
    server.requests[0].json["messages"]

A scripted model is a policy: `ModelServer(lambda messages: answer("Hello."), window_tokens=8_000)`. What a
provider would refuse is refused in the provider's own form, before any reply leaves the script. To run:

    python -m tests.support.model_server --port 8000 --window 32000
"""

from __future__ import annotations

import argparse
import asyncio
from collections import deque
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, Self

from aiohttp import web

from tests.support.policies import CallThenAnswer, Policy, ask_policy
from tests.support.replies import (
    Exchange,
    Reply,
    answer,
    completion,
    context_length_exceeded,
    failing_stream,
    half_stream,
    hang,
    inspection_failed,
    malformed,
    rate_limited,
    raw,
    reset,
    status,
)
from tests.support.wires import Failure, Known, Received, Said, wire_of

__all__ = [
    "CallThenAnswer",
    "Exchange",
    "ModelServer",
    "Policy",
    "Received",
    "Reply",
    "answer",
    "completion",
    "context_length_exceeded",
    "failing_stream",
    "half_stream",
    "hang",
    "inspection_failed",
    "malformed",
    "rate_limited",
    "raw",
    "reset",
    "status",
]

_ENDPOINTS = (
    "/v1/chat/completions",
    "/v1/responses",
    "/v1/messages",
    "/compatible-mode/v1/chat/completions",
    "/api/v1/services/aigc/text-generation/generation",
    "/api/v1/services/aigc/multimodal-generation/generation",
)
_CLOSING_SECONDS = 60.0
_SHUTDOWN_SECONDS = 5.0  # 0 would be no limit
_ROUNDS_OF_ACCEPTING = 5
"""Of the event loop. A connection that asyncio is just accepting when its server closes is never closed, and
whichever test runs when that is noticed fails."""


class ModelServer:
    """Answer requests with the scripted replies, then by the policy; without one the last reply is repeated.

    Args:
        policy: the scripted model.
        window_tokens: what a request may cost, tools included; longer ones are refused.
        enforce: refuse what the provider refuses; false answers anything.
        parts: the kinds of content parts to take, as in `chat_rules`; None: what the endpoint takes. Use
            `RECORDED_PARTS` for recorded sessions.
        count: the tokens of messages and tools, as they are held against the window; None: as the
            wire counts.
        port: 0 picks a free one.

    What a policy raises is answered with 500, and raised again when the server closes.
    """

    def __init__(
        self,
        policy: Policy | None = None,
        window_tokens: int | None = None,
        enforce: bool = True,
        *,
        parts: Collection[str] | None = None,
        count: Callable[[list[Any], list[Any]], int] | None = None,
        port: int = 0,
    ) -> None:
        self.requests: list[Received] = []
        self.url = ""
        """OpenAI's form: `.../v1`; chat completions and responses."""
        self.anthropic_url = ""
        """Anthropic's form: `...`, with nothing behind it."""
        self.compatible_url = ""
        """DashScope's OpenAI-compatible mode: `.../compatible-mode/v1`."""
        self.dashscope_url = ""
        """DashScope's own form: `.../api/v1`."""
        self.started = asyncio.Event()
        """Set while a request hangs."""
        self.released = asyncio.Event()
        """Set when hanging requests are to end."""
        self._policy = policy
        self._window_tokens = window_tokens
        self._enforce = enforce
        self._parts = parts
        self._count = count
        self._port = port
        self._known = Known()
        self._replies: deque[Reply] = deque()
        if policy is None:
            self._replies.append(completion("## Goal\n- the scripted summary"))
        self._runner: web.AppRunner | None = None
        self._errors: list[Exception] = []
        self._tasks: set[asyncio.Task[Any]] = set()

    def script(self, *replies: Reply) -> None:
        """Set the replies to come, in order."""
        self._replies = deque(replies)

    def fail(self, *replies: Reply, times: int = 1) -> None:
        """Put replies before all others, `times` over."""
        self._replies.extendleft(reversed(replies * times))

    def release(self) -> None:
        """End the requests that hang."""
        self.released.set()

    async def hold(self) -> None:
        """Return when hanging requests are to end."""
        self.started.set()
        await self.released.wait()

    def remember(self, said: Said, received: Received) -> None:
        """Note an answer that goes out, for the requests that continue it."""
        wire_of(received.path).remember(said, received, self._known)

    @property
    def refusals(self) -> list[str]:
        """Everything that was refused, and why."""
        return [f"request {r.number}: {problem}" for r in self.requests for problem in r.refused]

    @property
    def open_connections(self) -> int:
        """How many connections clients hold open."""
        if self._runner is None or self._runner.server is None:
            return 0
        return sum(handler.transport is not None for handler in self._runner.server.connections)

    async def assert_no_connections(self) -> None:
        """Fail if clients hold connections open; those that are just closing are waited for."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSING_SECONDS):
                # The transports tell nobody when they have closed.
                while self.open_connections:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
        assert self.open_connections == 0, f"{self.open_connections} connections are open"

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_post("/{tail:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=_SHUTDOWN_SECONDS)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        root = f"http://{host}:{port}"
        self.url = f"{root}/v1"
        self.anthropic_url = root
        self.compatible_url = f"{root}/compatible-mode/v1"
        self.dashscope_url = f"{root}/api/v1"
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self.released.set()
        for _ in range(_ROUNDS_OF_ACCEPTING):
            await asyncio.sleep(0)
        await self._runner.cleanup()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._errors and kind is None:
            raise self._errors[0]

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        task = asyncio.current_task()
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        exchange = await self._receive(request)
        received = exchange.received
        if request.path not in _ENDPOINTS:
            return await exchange.send_failure(Failure(404, f"no such path: {request.path}"))
        if received.refused:
            return await exchange.send_failure(self._refusal(exchange))
        try:
            reply = await self._next_reply(received)
        except Exception as error:
            self._errors.append(error)
            return await exchange.send_failure(Failure(500, f"the policy failed: {error!r}"))
        try:
            return await reply(exchange)
        except ConnectionError:
            # The client went away in the middle of a stream.
            return exchange.sent[0] if exchange.sent else web.Response(status=499)

    async def _receive(self, request: web.Request) -> Exchange:
        refused: list[str] = []
        try:
            body = await request.json()
        except ValueError:
            body = None
        if not isinstance(body, dict):
            body = {}
            refused.append("the body is no JSON object")
        wire = wire_of(request.path)
        earlier = wire.earlier(body, self._known)
        received = Received(request.path, request.headers, body, refused, len(self.requests) + 1, earlier)
        self.requests.append(received)
        if self._enforce:
            refused += self._problems(received)
        else:
            refused.clear()
        return Exchange(request, received, wire, self)

    def _problems(self, received: Received) -> list[str]:
        if not received.messages:
            return ["no messages"]
        wire = wire_of(received.path)
        found = wire.problems(received, self._known, self._parts)
        if self._window_tokens is not None and not found:
            tokens = (
                wire.count(received)
                if self._count is None
                else self._count(received.messages, received.tools)
            )
            if tokens > self._window_tokens:
                found.append(f"{tokens} tokens in a window of {self._window_tokens}")
        return found

    def _refusal(self, exchange: Exchange) -> Failure:
        first = exchange.received.refused[0]
        if self._window_tokens is not None and first.endswith(f"in a window of {self._window_tokens}"):
            return exchange.wire.overflow(self._window_tokens, int(first.split()[0]))
        return exchange.wire.invalid(first)

    async def _next_reply(self, received: Received) -> Reply:
        if self._policy is None:
            return self._replies.popleft() if len(self._replies) > 1 else self._replies[0]
        return self._replies.popleft() if self._replies else await ask_policy(self._policy, received)


async def _serve(port: int, window_tokens: int | None) -> None:
    async with ModelServer(CallThenAnswer(), window_tokens, port=port) as server:
        for url in (server.url, server.compatible_url, server.dashscope_url, server.anthropic_url):
            print(url, flush=True)
        await asyncio.Event().wait()


def main() -> None:
    """Serve a deterministic model until interrupted."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--window", type=int, default=None, metavar="TOKENS")
    given = parser.parse_args()
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(given.port, given.window))


if __name__ == "__main__":
    main()
