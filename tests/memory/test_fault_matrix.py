"""Every failure of a provider x every summariser that asks one, in its first call; each sort in a map, too.

The real SDKs talk to a server on the loopback. Whatever happens: a valid view within budget, the whole
history, an event that says what happened, no task and no connection left behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from context_compressor import (
    CompressionEvent,
    DashScopeSummarizer,
    ExtractiveSummarizer,
    FallbackSummarizer,
    OpenAISummarizer,
)
from tests.memory.scripted import config, filled, good_view, new_memory, nothing_lost, turns
from tests.support.model_server import (
    ModelServer,
    Reply,
    completion,
    context_length_exceeded,
    hang,
    raw,
    reset,
    status,
)

pytestmark = pytest.mark.variants(8)

SAID = turns(14)
SUMMARY = completion("## Goal\n- The work went on as planned; see the transcript for what was said.")
TIMEOUT_SECONDS = 0.25
"""Where a request hangs."""
PATIENCE_SECONDS = 120.0
"""Where all are answered, however loaded the machine is: only so that a failure is one."""

FAULTS: dict[str, Reply] = {
    "429 with a pause": status(429, "slow down", headers={"Retry-After": "0"}),
    "429 with a pause that is too long": status(429, "slow down", headers={"Retry-After": "600"}),
    "429": status(429, "slow down"),
    "500": status(500, "oops"),
    "401": status(401, "no such key"),
    "reset": reset(),
    "hang": hang(),
    "malformed": raw('{"choices": [{"mess'),
    "no JSON": raw("<html>bad gateway</html>", content_type="text/html"),
    "empty": raw(""),
    "context length": context_length_exceeded(),
}


def openai(server: ModelServer, **kw: Any) -> Any:
    return OpenAISummarizer("scripted", base_url=server.url, api_key="x" * 12, **kw)


def dashscope(server: ModelServer, **kw: Any) -> Any:
    return DashScopeSummarizer("scripted", base_url=server.dashscope_url, api_key="x" * 12, **kw)


def chain(server: ModelServer, **kw: Any) -> Any:
    return FallbackSummarizer(openai(server, **kw), ExtractiveSummarizer())


SUMMARIZERS: dict[str, Callable[..., Any]] = {"openai": openai, "dashscope": dashscope, "chain": chain}


async def run(
    server: ModelServer,
    make: Callable[..., Any],
    max_input_tokens: int | None,
    timeout: float = PATIENCE_SECONDS,
) -> tuple[list[CompressionEvent], int]:
    """Run a session over budget; return its events and the number of requests of its first event."""
    events: list[CompressionEvent] = []
    summarizer = make(
        server,
        max_input_tokens=max_input_tokens,
        timeout=timeout,
        backoff_seconds=0.001,
        max_retries=1,
    )
    async with new_memory(config(4_000), summarizer=summarizer, on_event=events.append) as memory:
        await filled(memory, SAID)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await good_view(memory)
            requests = len(server.requests)
            await nothing_lost(memory, SAID)
    return events, requests


MOMENTS: dict[str, tuple[int | None, Callable[[int], int]]] = {
    "first call": (None, lambda calls: 0),
    "middle of a map": (2_000, lambda calls: (calls - 1) // 2),
    "reduce": (2_000, lambda calls: calls - 1),
}


SORTS = ("429 with a pause that is too long", "500", "401", "hang", "malformed", "context length")
"""One of each sort of failure, and all that a map could take for different: what follows one of the same sort
is the same wherever it comes, and the first call has them all."""


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "for good"])
@pytest.mark.parametrize(
    ("fault", "moment"),
    [*((fault, "first call") for fault in FAULTS), *product(SORTS, list(MOMENTS)[1:])],
)
@pytest.mark.parametrize("kind", SUMMARIZERS)
async def test_a_failing_provider_costs_no_message(
    fault: str, kind: str, moment: str, lasting: bool, smooth_calls: dict[tuple[str, str], int]
) -> None:
    before = asyncio.all_tasks()
    make, (max_input_tokens, at) = SUMMARIZERS[kind], MOMENTS[moment]
    async with ModelServer() as server:
        if (kind, moment) not in smooth_calls:
            server.script(SUMMARY)
            events, smooth_calls[kind, moment] = await run(server, make, max_input_tokens)
            assert not [event for event in events if event.kind == "failure"]
            server.requests.clear()
        calls = smooth_calls[kind, moment]
        assert calls > 2 if max_input_tokens else calls == 1
        number = at(calls)
        server.script(*[SUMMARY] * number, FAULTS[fault], *([] if lasting else [SUMMARY]))
        timeout = TIMEOUT_SECONDS if fault == "hang" else PATIENCE_SECONDS
        events, _ = await run(server, make, max_input_tokens, timeout)
        assert server.requests
        assert len(server.requests) <= 60
        assert any(event.kind == "compress" for event in events)
        failures = [event for event in events if event.kind == "failure"]
        if lasting and kind != "chain":  # a chain's next means is no failure of the event
            assert failures
            assert all(event.error and "x" * 12 not in event.error for event in failures)
        await server.assert_no_connections()
    assert asyncio.all_tasks() == before


@pytest.fixture(scope="module")
def smooth_calls() -> dict[tuple[str, str], int]:
    """How many requests a session takes where nothing fails, by summariser and moment."""
    return {}
