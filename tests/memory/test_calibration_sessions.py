"""Long sessions with a provider that counts 30 % more than we do, and 4,000 tokens of schemas on top.

Before each recorded answer the view is sent to a provider whose window is the budget. What it counts is
recorded, and so is a refusal; then no further one follows. The same without recording is refused again and
again, and recording what is right changes nothing.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI

from context_compressor import CompressedMemory, CompressionConfig, CompressionEvent, from_openai, to_openai
from context_compressor.laws.chat_rules import RECORDED_PARTS
from tests.memory.scripted import COUNTER, Dict, assistant, exchange, system, text, user
from tests.support.model_server import ModelServer, Received, Reply, completion
from tests.support.recordings import requires_recordings, sessions

pytestmark = pytest.mark.variants(0)

RATIO = 1.3
SCHEMA_TOKENS = 4_000
LONG_TOKENS = 100_000
"""Sessions above this are replayed."""
BUDGETS = (16_000, 32_000)
MAX_ATTEMPTS = 8

Count = Callable[[int], int]


def counts_more(tokens: int) -> int:
    return math.ceil(RATIO * tokens) + SCHEMA_TOKENS


def counts_right(tokens: int) -> int:
    return tokens


@cache
def generated(opening_lines: int = 20) -> tuple[Dict, ...]:
    """Return a session of some 130,000 tokens: results from a line to some 3,500 tokens, and now and then
    a user who pastes much.
    """
    drawn = random.Random(7)
    said = [system(text("rules", 15)), user(text("task", opening_lines))]
    tokens = 0
    while tokens < 130_000:
        number = str(len(said))
        lines = drawn.choice([1, 5, 20, 60, 120, 240])
        new = exchange(number, lines)
        if drawn.random() < 0.2:
            new += [
                assistant(text(f"answer-{number}", 12)),
                user(text(f"ask-{number}", drawn.choice([4, 150]))),
            ]
        tokens += COUNTER.count_messages(new)
        said += new
    return (*said, assistant("Done."))


def half(said: Sequence[Dict]) -> Sequence[Dict]:
    """Return the first half of a session, up to an answer: some four times the smaller budget."""
    end = next(at for at in range(len(said) // 2, len(said)) if said[at]["role"] == "user")
    return said[:end]


@cache
def recorded() -> tuple[tuple[str, tuple[Dict, ...]], ...]:
    """Return every long recorded session, with its name."""
    found = [(str(session["id"]), tuple(session["messages"])) for session in sessions()]
    return tuple(
        (name, said)
        for name, said in found
        # None has fewer than three characters a token; to count the short ones, too, takes seconds.
        if len(json.dumps(said)) > 3 * LONG_TOKENS and COUNTER.count_messages(from_openai(said)) > LONG_TOKENS
    )


@dataclass
class Run:
    """What came of a session."""

    requests: int = 0
    refusals: list[int] = field(default_factory=list)
    """Which turn was refused, once for each time."""
    views: list[str] = field(default_factory=list)
    """As JSON, kept where the provider counts as we do."""
    peaks: list[float] = field(default_factory=list)
    """What the last request before each event of the budget cost, as a share of the window."""
    events: list[CompressionEvent] = field(default_factory=list)


async def run(said: Sequence[Dict], budget: int, count: Count, *, records: bool = True) -> Run:
    """Replay a session with a provider that counts as told and reads as much as the budget."""
    found = Run()
    memory = CompressedMemory(
        config=CompressionConfig(max_total_tokens=budget), counter=COUNTER, on_event=found.events.append
    )
    accepted, events = 0, 0
    for turn, message in enumerate(said):
        if message["role"] == "assistant":
            for _ in range(MAX_ATTEMPTS):
                view = await memory.get_memory()
                found.requests += 1
                if any(event.reason == "over budget" for event in found.events[events:]) and accepted:
                    found.peaks.append(accepted / budget)
                events = len(found.events)
                tokens = count(memory.stats().view_tokens)
                if tokens <= budget:
                    accepted = tokens
                    if records:
                        memory.record_usage(tokens)
                    break
                found.refusals.append(turn)
                if not records:
                    break
                memory.record_overflow(budget if turn % 2 else None)
            if count is counts_right:
                found.views.append(json.dumps(to_openai(view)))
        await memory.add(from_openai([message]))
    return found


def told(events: Sequence[CompressionEvent]) -> list[tuple[Any, ...]]:
    return [(event.kind, event.reason, event.tokens_before, event.tokens_after) for event in events]


@pytest.mark.parametrize("budget", BUDGETS)
async def test_a_generated_session_is_never_refused(budget: int) -> None:
    calibrated = await run(generated(), budget, counts_more)
    plain = await run(generated(), budget, counts_more, records=False)
    assert calibrated.refusals == []
    assert len(plain.refusals) > 0.15 * plain.requests
    assert len(calibrated.peaks) > 3
    assert sum(calibrated.peaks) / len(calibrated.peaks) > 0.8


@pytest.mark.parametrize("lines", [700, 900, 1_000])
async def test_where_the_very_first_request_is_refused_no_other_is(lines: int) -> None:
    said = generated(opening_lines=lines)
    found = await run(said, 16_000, counts_more)
    assert len(found.refusals) == 1
    assert said[found.refusals[0] - 1]["role"] == "user"


@requires_recordings
@pytest.mark.variants(0)
async def test_every_long_session_is_refused_once_at_most() -> None:
    """At one of the budgets, each in turn."""
    runs = {
        name: await run(said, BUDGETS[number % 2], counts_more)
        for number, (name, said) in enumerate(recorded())
    }
    assert len(runs) > 20
    assert [name for name, found in runs.items() if len(found.refusals) > 1] == []
    peaks = [peak for found in runs.values() for peak in found.peaks]
    assert sum(peaks) / len(peaks) > 0.7


async def check_nothing_changes(name: str, said: Sequence[Dict], budget: int) -> None:
    recording = await run(said, budget, counts_right)
    plain = await run(said, budget, counts_right, records=False)
    assert recording.views == plain.views, name
    assert told(recording.events) == told(plain.events), name
    assert plain.events, name


@pytest.mark.parametrize("budget", BUDGETS)
async def test_a_counter_that_is_right_is_left_alone(budget: int) -> None:
    await check_nothing_changes("generated", generated(), budget)


@requires_recordings
async def test_a_counter_that_is_right_is_left_alone_in_long_sessions() -> None:
    """The shortest of each kind."""
    by_length = sorted(recorded(), key=lambda session: len(json.dumps(session[1])), reverse=True)
    shortest = {name.partition("/")[0]: (name, said) for name, said in by_length}
    assert len(shortest) > 4
    for name, said in shortest.values():
        await check_nothing_changes(name, said, 16_000)


class TestRealSdk:
    """The loop of the guide, with the openai SDK, against a server that counts and refuses."""

    @staticmethod
    def ask(memory: CompressedMemory) -> Any:
        guide = (Path(__file__).parents[2] / "docs" / "guide.md").read_text(encoding="utf-8")
        blocks = re.findall(r"^```python\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)
        (block,) = [block for block in blocks if "record_overflow" in block]
        names: dict[str, Any] = {"memory": memory, "to_openai": to_openai}
        exec(block, names)
        return names["ask"]

    async def replay(self, said: Sequence[Dict], budget: int, *, compatible: bool = False) -> list[int]:
        """Return the numbers of the requests that were refused."""

        def count(messages: list[Any], tools: list[Any]) -> int:
            return counts_more(COUNTER.count_messages(messages))

        def policy(messages: list[Any], received: Received) -> Reply:
            return completion("noted", usage=(count(messages, received.tools), 1))

        async with ModelServer(policy, budget, parts=RECORDED_PARTS, count=count) as server:
            url = server.compatible_url if compatible else server.url
            async with AsyncOpenAI(base_url=url, api_key="test", max_retries=0) as client:
                memory = CompressedMemory(config=CompressionConfig(max_total_tokens=budget), counter=COUNTER)
                ask = self.ask(memory)
                for message in said:
                    if message["role"] == "assistant":
                        answer = await ask(client, model="scripted")
                        assert answer.choices[0].message.content == "noted"
                    await memory.add(from_openai([message]))
            assert len(server.requests) >= sum(message["role"] == "assistant" for message in said)
            assert all(f"in a window of {budget}" in refusal for refusal in server.refusals)
            return [received.number for received in server.requests if received.refused]

    async def test_a_generated_session(self) -> None:
        assert await self.replay(half(generated()), 16_000) == []

    @pytest.mark.parametrize("compatible", [False, True], ids=["openai", "dashscope"])
    async def test_a_session_that_begins_with_too_much(self, compatible: bool) -> None:
        """Servers that speak OpenAI's form say in words of their own that a request is too long."""
        said = half(generated(opening_lines=900))
        assert await self.replay(said, 16_000, compatible=compatible) == [1]

    @requires_recordings
    async def test_a_recorded_session(self) -> None:
        _, said = min(recorded(), key=lambda session: len(json.dumps(session[1])))
        assert len(await self.replay(said, 16_000)) <= 1
