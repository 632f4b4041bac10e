"""What has to hold wherever an agent's own model writes, whichever framework the agent is built on.

A module of tests takes these in, and gives the fixture `rig`: an agent of one framework.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from typing import Any, Protocol

import pytest

from context_compressor import CompressionEvent, CompressionStats, Summary, SummaryRequest
from context_compressor.errors import InvalidArgumentError
from tests.support.model_server import ModelServer, Received, Reply, answer, status
from tests.support.task import WINDOW, Worker, Workplace

Dict = dict[str, Any]

MODEL = "the-agents"
BENT: Dict = {"max_tokens": 50, "stop": ["\n\n"], "n": 2, "store": True, "metadata": {"team": "a"}}
"""What a caller may have set for his own requests, and what is no matter of ours."""
SMALL: Dict = {"max_total_tokens": 3_000}
NOTES = "## Goal\n- Go through the logs.\n## Done\n- Logs were read, as the writer says."
TOLD = "as the writer says"
IN_PLACE = "This message is from your memory, not from the user."


@dataclass
class Ran:
    """What came of a run of an agent."""

    stats: CompressionStats | None
    heard: str = ""
    """All that the framework showed of it to whoever watched."""
    calls: int | None = None
    """Calls of a model, as the framework counted them; None: it does not count."""


class Rig(Protocol):
    """An agent of one framework."""

    takes_names: bool
    """Whether the framework finds a model by its name."""
    writes_in_place: bool
    """Whether its last request can go out once more with a message behind it."""

    async def run(
        self, server: ModelServer, place: Workplace, *, bent: bool = False, **compression: Any
    ) -> Ran:
        """Run an agent to its end, streamed where the framework can, with `BENT` set for its requests."""


@dataclass
class Writing:
    """A worker's model that writes notes as well: for the memory, which offers it no tools of its own."""

    reply: Reply = field(default_factory=lambda: answer(NOTES))
    worker: Worker = field(default_factory=lambda: Worker(9))
    asked: list[Received] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.worker.read_back = ""  # it reads nothing that left, which may tell of what stood for it

    def __call__(self, messages: list[Dict], received: Received) -> Reply:
        if received.tools and not is_in_place(received):
            return self.worker(messages, received)
        self.asked.append(received)
        return self.reply


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    return Workplace(tmp_path_factory.mktemp("workplace"))


def is_in_place(received: Received) -> bool:
    """Tell whether a request has the memory's message behind what the agent sent before."""
    return IN_PLACE in json.dumps(received.messages[-1])


def said_in(received: Received) -> Dict:
    """Return the fields of a request, without what it asks."""
    body = {**received.json, **received.json.get("options", {}), **received.json.get("parameters", {})}
    return {key: held for key, held in body.items() if key not in ("messages", "input")}


@pytest.mark.parametrize("summarizer", [None, "own"])
async def test_the_agents_own_model_writes(rig: Rig, place: Workplace, summarizer: Any, caplog: Any) -> None:
    """And nobody who watches the agent hears of it; it is no step, and its cost stands apart."""
    caplog.set_level(logging.INFO)
    writing, events = Writing(), list[CompressionEvent]()
    async with ModelServer(writing, window_tokens=WINDOW) as server:
        ran = await rig.run(server, place, summarizer=summarizer, on_event=events.append, **SMALL)
        assert server.refusals == []
        own = len(server.requests) - len(writing.asked)
        assert writing.asked
        assert {one.json["model"] for one in server.requests} == {MODEL}
        assert TOLD in json.dumps(server.requests[-1].json)
    assert own == writing.worker.turn == (own if ran.calls is None else ran.calls)
    assert TOLD not in ran.heard
    assert ran.stats is not None
    assert ran.stats.summarizer_calls == len(writing.asked)
    assert ran.stats.summarizer_input_tokens > 0 < ran.stats.summarizer_output_tokens


async def test_what_the_caller_set_for_his_own_requests_is_not_taken_over(rig: Rig, place: Workplace) -> None:
    writing = Writing()
    async with ModelServer(writing, window_tokens=WINDOW) as server:
        await rig.run(server, place, bent=True, **SMALL)
    assert writing.asked
    for received in writing.asked:
        said = said_in(received)
        room = [held for key, held in said.items() if key.startswith("max_")]
        assert all(held > BENT["max_tokens"] for held in room), said
        left = {"stop", "stop_sequences", "n", "metadata", "response_format", "text"}
        left |= set() if is_in_place(received) else {"tools"}
        assert left & {key for key, held in said.items() if held} == set(), said
        assert said.get("store") is not True
        assert said.get("tool_choice") in (None, "auto")


async def test_rules_write_where_the_caller_says_so(rig: Rig, place: Workplace) -> None:
    writing = Writing()
    async with ModelServer(writing, window_tokens=WINDOW) as server:
        ran = await rig.run(server, place, summarizer="rules", **SMALL)
    assert writing.asked == []
    assert ran.stats is not None
    assert ran.stats.events > 0 == ran.stats.summarizer_calls


async def test_another_model_writes_by_its_name(
    rig: Rig, place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked through the framework where that finds models by name, else refused with what to do."""
    writing = Writing()
    async with ModelServer(writing, window_tokens=WINDOW) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "test")
        if not rig.takes_names:
            with pytest.raises(InvalidArgumentError, match=r"summarizer: 'another'"):
                await rig.run(server, place, summarizer="another")
            return
        await rig.run(server, place, summarizer="openai:another", **SMALL)
    assert {one.json["model"] for one in writing.asked} == {"another"}


async def test_an_object_writes_as_it_is(rig: Rig, place: Workplace) -> None:
    class Own:
        remote = False
        asked = 0

        async def summarize(self, request: SummaryRequest) -> Summary:
            self.asked += 1
            return Summary(NOTES)

    writing, writer = Writing(), Own()
    async with ModelServer(writing, window_tokens=WINDOW) as server:
        await rig.run(server, place, summarizer=writer, **SMALL)
    assert writer.asked
    assert writing.asked == []


async def test_where_the_model_fails_rules_write_in_the_same_event(rig: Rig, place: Workplace) -> None:
    writing, events = Writing(status(401)), list[CompressionEvent]()
    async with ModelServer(writing, window_tokens=WINDOW) as server:
        await rig.run(server, place, on_event=events.append, **SMALL)
        assert server.refusals == []
    assert writing.asked
    assert writing.worker.turn == writing.worker.turns
    assert {"failure", "compress"} <= {event.kind for event in events}


async def test_it_writes_behind_what_the_agent_sent_last_where_all_that_leaves_stood(
    rig: Rig, place: Workplace
) -> None:
    """The messages, system and tools of that request are sent as they were, byte for byte."""
    writing = Writing()
    async with ModelServer(writing, window_tokens=WINDOW) as server:
        ran = await rig.run(server, place, **SMALL)
        assert server.refusals == []
    there = [received for received in writing.asked if is_in_place(received)]
    assert bool(there) is rig.writes_in_place
    assert TOLD not in ran.heard
    assert IN_PLACE not in ran.heard
    for received in there:
        sent = server.requests[received.number - 2]
        assert json.dumps(received.messages[:-1]) == json.dumps(sent.messages)
        assert json.dumps(received.tools) == json.dumps(sent.tools)
