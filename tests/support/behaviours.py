"""What has to hold for an agent with views, whichever framework it is built on.

A module of tests takes these in, and gives the fixture `rig`: a framework, as the tests drive it.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import logging
import os
import pickle
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import pytest

from context_compressor import CompressionEvent, CompressionStats, FileOffloadStore, Summary, SummaryRequest
from context_compressor.errors import InvalidArgumentError
from context_compressor.integrations.observed import writer
from context_compressor.lab.readers import read_path
from tests.support.model_server import (
    ModelServer,
    Received,
    Reply,
    answer,
    completion,
    half_stream,
    hang,
    status,
)
from tests.support.replies import Exchange, context_length_exceeded
from tests.support.task import (
    BUDGET,
    FUNCTIONS,
    LEAST_RAW_TOKENS,
    REQUEST,
    TURNS,
    WINDOW,
    Talkers,
    Worker,
    Workplace,
)
from tests.support.wires import Failure, wire_of

Dict = dict[str, Any]
How = Literal["whole", "streamed", "blocking"]

MODEL = "the-agents"
BENT: Dict = {"max_tokens": 50, "stop": ["\n\n"], "n": 2, "store": True, "metadata": {"team": "a"}}
"""What a caller may have set for his own requests, and what is no matter of ours."""
SMALL: Dict = {"max_total_tokens": 3_000}
RULED: Dict = {"max_total_tokens": 4_000, "summarizer": "rules"}
NOTES = "## Goal\n- Go through the logs.\n## Done\n- Logs were read, as the writer says."
TOLD = "as the writer says"
IN_PLACE = "This message is from your memory, not from the user."
OURS = {"read_offloaded", "grep_offloaded", "load_offloaded", "search_history"}
LONG = "word " * 1_500
"""Of which two do not fit a small budget."""


class Tool(NamedTuple):
    """A tool of an agent's."""

    name: str
    description: str
    parameters: Dict
    run: Callable[..., Any]
    """Returns a text, or what is awaited for one."""

    async def call(self, arguments: Dict) -> str:
        made = self.run(**arguments)
        return str(await made if inspect.isawaitable(made) else made)


def tool(run: Callable[..., Any]) -> Tool:
    """Return a tool that has its name and no parameters."""
    return Tool(run.__name__, run.__name__, {"type": "object", "properties": {}}, run)


def tools_of(place: Workplace, **instead: Callable[..., Any]) -> list[Tool]:
    """Return the tools of a workplace, some of which do something else."""
    return [
        Tool(
            one["name"],
            one["description"],
            one["parameters"],
            instead.get(one["name"]) or getattr(place, one["name"]),
        )
        for one in FUNCTIONS
    ]


@dataclass(kw_only=True)
class Setup:
    """How an agent is to be."""

    server: ModelServer
    """Where its model is."""
    tools: Sequence[Tool] = ()
    adapter: Any = None
    """What makes its views; None: nothing does."""
    how: How = "whole"
    """How it is run."""
    saved: Any = None
    """What it goes on from."""
    model: str = MODEL
    """The name of its model."""
    bent: bool = False
    """Whether `BENT` is set for its requests."""


@dataclass
class Agent(ABC):
    """An agent of a framework's, in one conversation."""

    how: How
    adapter: Any = None
    heard: list[Any] = field(default_factory=list)
    """All that the framework showed to whoever watched."""
    calls: int | None = 0
    """Calls of a model, as the framework counted them; None: it does not count."""

    @abstractmethod
    async def ask(self, text: str) -> str:
        """Go on with the conversation, and return the answer."""

    @abstractmethod
    async def told(self) -> list[str]:
        """Return the texts that the framework holds: what was asked, said and returned by tools."""

    @abstractmethod
    async def save(self) -> Any:
        """Return what another process needs to go on; it can be pickled."""

    def stats(self) -> CompressionStats:
        """Return where its views stand."""
        stats: CompressionStats | None = self.adapter.stats()
        assert stats is not None
        return stats


class Rig(ABC):
    """A framework."""

    takes_names: ClassVar[bool] = True
    """Whether it finds a model by its name."""
    writes_in_place: ClassVar[bool] = True
    """Whether its last request can go out once more with a message behind it."""
    has_tools: ClassVar[bool] = True
    """Whether agents get the read-back tools."""
    mends: ClassVar[bool] = True
    """Whether what is refused is sent once more within one call."""
    keeps_states: ClassVar[bool] = True
    """Whether the adapter takes `states`."""
    blocks: ClassVar[bool] = False
    """Whether agents run without asyncio as well."""
    takes_ids_again: ClassVar[bool] = True
    """Whether it goes on where a model gives a call the id of an earlier one."""
    most_tools: ClassVar[int] = 124
    """Of the caller's, beside which ours are offered."""
    thinks: ClassVar[bool] = False
    """Whether its messages hold thoughts."""

    @abstractmethod
    def adapter(self, **options: Any) -> Any:
        """Return an adapter, which agents may share."""

    @abstractmethod
    def agent(self, to: Setup) -> AbstractAsyncContextManager[Agent]:
        """Give an agent."""

    @asynccontextmanager
    async def open(
        self,
        server: ModelServer,
        functions: Sequence[Tool] = (),
        how: How = "whole",
        *,
        adapter: Any = None,
        **more: Any,
    ) -> Any:
        """Give an agent, with an adapter of its own where there are options for one."""
        own = {name: more.pop(name) for name in ("saved", "model", "bent") if name in more}
        made = self.adapter(**more) if more else adapter
        async with self.agent(Setup(server=server, tools=functions, how=how, adapter=made, **own)) as agent:
            yield agent

    def __str__(self) -> str:
        return type(self).__name__


class Kept:
    """States as a database keeps them: JSON text."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    async def get(self, key: str) -> Any:
        return json.loads(self.texts[key]) if key in self.texts else None

    async def set(self, key: str, state: Any) -> None:
        self.texts[key] = json.dumps(state)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    return Workplace(tmp_path_factory.mktemp("workplace"))


def size_of(received: Received) -> int:
    return len(json.dumps(received.json))


def offered(received: Received) -> set[str]:
    return {str((one.get("function") or one)["name"]) for one in received.tools} & OURS


def named_in(received: Received) -> bool:
    text = json.dumps(received.json)
    return any(name in text for name in OURS)


# A view fits, the history stays whole


async def test_a_long_task_is_never_refused(rich_rig: Rig, place: Workplace) -> None:
    """What left is read back, the history is whole, and it is told where the conversation stands."""
    rig, events = rich_rig, list[CompressionEvent]()
    worker = Worker(reasoning=rig.thinks)
    async with ModelServer(worker, window_tokens=WINDOW) as server:
        options: Dict = {"max_total_tokens": BUDGET, "summarizer": "rules", "on_event": events.append}
        async with rig.open(server, tools_of(place), **options) as agent:
            assert await agent.ask(REQUEST) == "All logs are read: units were lost on every host."
            assert server.refusals == []
            assert len(server.requests) == worker.turn == TURNS
            assert "by the memory, not by the user" in json.dumps(server.requests[-1].json)
            told, stats = await agent.told(), agent.stats()
    assert (worker.read_back is not None) == rig.has_tools
    if rig.has_tools:
        assert any(text.startswith(f"[{worker.read_back} lines 1-") for text in told)
    assert {place.read_file(number) for number in range(1, 12)} <= {*told}
    assert not any(text.startswith("[Offloaded") for text in told)
    assert stats.events == len(events) > 3
    assert stats.history_tokens > LEAST_RAW_TOKENS > BUDGET >= stats.view_tokens


async def test_the_same_task_without_it_is_refused(rig: Rig, place: Workplace) -> None:
    async with (
        ModelServer(Worker(), window_tokens=WINDOW) as server,
        rig.open(server, tools_of(place)) as agent,
    ):
        with pytest.raises(Exception, match=r"(?i)context"):
            await agent.ask(REQUEST)
        assert len(server.refusals) == 1
        assert len(server.requests) < TURNS / 2


async def test_it_goes_on_elsewhere_with_the_same_request(rig: Rig, place: Workplace, tmp_path: Path) -> None:
    """From what was saved, byte for byte, and nothing is done a second time."""
    kept, events, sent = Kept(), list[CompressionEvent](), list[str]()
    options: Dict = {**RULED, "on_event": events.append, "store": FileOffloadStore(tmp_path)}
    if rig.keeps_states:
        options["states"] = kept
    worker = Worker(9)
    async with ModelServer(worker, window_tokens=WINDOW) as server:
        async with rig.open(server, tools_of(place), **options) as agent:
            await agent.ask(REQUEST)
            saved, at_first = pickle.dumps(await agent.save()), dict(kept.texts)
            assert {event.kind for event in events} >= {"compress"}
            before = len(events)
            await agent.ask("And now?")
            sent.append(json.dumps(server.requests[-1].json))
        after, kept.texts = len(events), at_first
        async with rig.open(server, tools_of(place), saved=pickle.loads(saved), **options) as other:
            await other.ask("And now?")
            sent.append(json.dumps(server.requests[-1].json))
        assert server.refusals == []
    assert sent[0] == sent[1]
    assert "ctx://" in sent[0]
    assert len(events) - after == after - before


async def test_one_that_only_looks_on_changes_nothing(rig: Rig, place: Workplace, tmp_path: Path) -> None:
    """Request for request the same is sent; how large its messages are is written down, and no word of it."""
    log, sent = tmp_path / "log.jsonl", list[str]()
    for options in ({}, {**RULED, "observe": log}):
        async with (
            ModelServer(Worker(5)) as server,
            rig.open(server, tools_of(place), "streamed", **options) as agent,
        ):
            await agent.ask(REQUEST)
            assert len(server.requests) == 5
            sent.append(json.dumps([one.json for one in server.requests]))
    first, second = (re.sub(r"call_\w+|\d", "", text) for text in sent)  # ids and clocks
    assert first == second
    writer().submit(int).result()
    assert "unit" not in log.read_text()
    (session,) = read_path(log, [])
    assert session.turns is not None
    assert len(session.turns) == 5
    assert [one["role"] for one in session.messages].count("tool") == 5


class Searching(Talkers):
    """Each searches, once, what left his view."""

    def __init__(self) -> None:
        super().__init__(2)
        self.searched: set[str] = set()

    def __call__(self, messages: list[Dict], received: Received) -> Reply:
        text = json.dumps(messages)
        if "I am" not in text:
            return answer("Who are you?")
        name = re.findall(r"I am (\w+)", text)[-1]
        if name not in self.searched and offered(received):
            self.searched.add(name)
            return answer(
                "", [("search_history", {"query": "line"}), ("grep_offloaded", {"pattern": "owns"})]
            )
        return super().__call__(messages, received)


async def test_conversations_at_once_never_mix(rig: Rig) -> None:
    """They begin alike, share an adapter, and one may run without asyncio."""
    talkers, names = Searching(), ("Ada", "Bob")
    adapter = rig.adapter(**RULED)

    async def talk(server: ModelServer, name: str, how: How) -> None:
        def read_file(number: int) -> str:
            return "\n".join(f"{name} owns line {line} of {number}" for line in range(120))

        read = Tool(**{**FUNCTIONS[0], "run": read_file})
        async with rig.open(server, [read], how, adapter=adapter) as agent:
            for text in ("Hello.", "I have questions."):
                await agent.ask(text)
            for turn in range(6):
                assert (await agent.ask(f"I am {name}, and ask for the {turn}th time.")).startswith("Done")
            told = await agent.told()
        assert sum(text.startswith(f"{name} owns line 0") for text in told) == 12
        assert not any("[Offloaded" in text for text in told if "I am" not in text and "owns" in text)

    async with ModelServer(talkers, window_tokens=9_000) as server:
        await asyncio.gather(
            talk(server, "Ada", "streamed"), talk(server, "Bob", "blocking" if rig.blocks else "whole")
        )
        assert server.refusals == []
    assert talkers.searched == ({*names} if rig.has_tools else set())
    for name, other in (names, names[::-1]):
        assert talkers.heard[name] == 18
        assert [text for text in talkers.requests[name] if other in text] == []
        assert "ctx://" in talkers.requests[name][-1]


async def test_an_agent_called_by_anothers_tool_has_its_own_conversation(rig: Rig, place: Workplace) -> None:
    """Although it is asked the same, and both share an adapter."""

    def policy(messages: list[Dict], received: Received) -> Reply:
        if "delegate" in json.dumps(received.tools):
            turns["outer"] += 1
            return answer("Outer is done.") if turns["outer"] == 4 else answer(None, [("delegate", {})])
        inner.append(json.dumps(received.json))
        return (
            answer("Inner is done.")
            if len(inner) % 5 == 0
            else answer(None, [("read_file", {"number": len(inner)})])
        )

    turns, inner, adapter = {"outer": 0}, list[str](), rig.adapter(**RULED)

    async def delegate() -> str:
        async with rig.open(server, tools_of(place), "streamed", adapter=adapter) as called:
            return await called.ask("Go through it.") + " outer-secret" * 300

    async with ModelServer(policy, window_tokens=WINDOW) as server:
        async with rig.open(server, [tool(delegate)], adapter=adapter) as agent:
            assert await agent.ask("Go through it.") == "Outer is done."
            assert sum(text.startswith("Inner is done.") for text in await agent.told()) == 3
        assert server.refusals == []
    assert len(inner) == 15
    assert not any("outer-secret" in text for text in inner)
    assert "ctx://" in inner[-1]


# What goes wrong


async def test_what_breaks_off_leaves_the_history_whole(rig: Rig, place: Workplace) -> None:
    """Cancelled, cut in its stream, a tool that fails, arguments that are cut: it goes on behind each."""

    def query(sql: str) -> str:
        raise OSError("the disk is gone")

    tools = tools_of(place, query=query)
    async with (
        ModelServer(lambda messages: "Well.", window_tokens=WINDOW) as server,
        rig.open(server, tools, "streamed", **RULED) as agent,
    ):
        server.script(*(answer(f"{n}", [("read_file", {"number": n})]) for n in range(5)))
        await agent.ask("Begin.")
        before = await agent.told()
        server.fail(hang())
        task = asyncio.create_task(agent.ask("One."))
        await server.started.wait()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        server.release()
        server.fail(half_stream())
        with pytest.raises(Exception, match=r"(?i)closed|incomplete|connection|stream|read"):
            await agent.ask("Two.")
        for calls in (
            [("read_file", {"number": 1}), ("query", {"sql": "1"}), ("read_file", {"number": 3})],
            [("read_file", '{"number": '), ("read_file", {"number": 3})],
        ):
            server.fail(answer("", calls))
            with contextlib.suppress(Exception):
                await agent.ask("Three.")
        assert await agent.ask("Four.") == "Well."
        assert server.refusals == []
        assert (await agent.told())[: len(before)] == before
    assert not [one for one in asyncio.all_tasks() if "context_compressor" in repr(one.get_coro())]


async def test_a_refusal_is_answered_by_one_smaller_view(rig: Rig, place: Workplace) -> None:
    """And a second refusal, or one of another kind, is the caller's to read."""
    if not rig.mends:
        pytest.skip("the framework asks again, or its caller does")
    worker = Worker(9)
    async with ModelServer(worker, window_tokens=WINDOW) as server:
        options: Dict = {"max_total_tokens": BUDGET, "summarizer": "rules"}
        async with rig.open(server, tools_of(place), "streamed", **options) as agent:
            await agent.ask(REQUEST)
            before = len(server.requests)
            server.fail(context_length_exceeded(9_000))
            assert await agent.ask("And now?")
            refused, sent = map(size_of, server.requests[before:])
            assert sent < refused
            for failing, count in ((context_length_exceeded(7_000), 2), (status(400, "no such field"), 1)):
                before = len(server.requests)
                server.fail(failing, times=2)
                with pytest.raises(Exception, match=r"(?i)context|no such field"):
                    await agent.ask("And?")
                assert len(server.requests) == before + count
                server.script()
            assert await agent.ask("And now?")


async def test_what_the_provider_counts_is_learnt(rig: Rig) -> None:
    """It counts three tokens for two of ours; the budget holds by its count."""

    def counted(messages: list[Dict], received: Received) -> Reply:
        counts.append(wire_of(received.path).count(received) * 3 // 2)
        return completion("Well.", usage=(counts[-1], 2))

    counts: list[int] = []
    async with ModelServer(counted) as server, rig.open(server, **RULED) as agent:
        for number in range(16):
            await agent.ask(f"Note {number}: {'word ' * 300}")
    assert max(counts) > RULED["max_total_tokens"] / 2
    assert max(counts[3:]) <= RULED["max_total_tokens"]


async def test_ids_of_calls_may_be_any(rig: Rig, place: Workplace, tmp_path: Path) -> None:
    """A path, blanks, one for all calls: requests are valid, and no file has its name."""
    ids = ("../../" * 3 + "etc/passwd", "same", "same", " ", "x" * 60, "same")

    def policy(messages: list[Dict], received: Received) -> Reply:
        turn = len(server.requests)
        again = "" if rig.takes_ids_again else str(turn)
        calls = [("read_file", {"number": turn}, ids[turn % len(ids)] + again)]
        return answer(f"Turn {turn}.", calls) if turn < 10 else answer("Done.")  # type: ignore[arg-type]

    store = FileOffloadStore(tmp_path / "texts")
    async with (
        ModelServer(policy, window_tokens=WINDOW) as server,
        rig.open(server, tools_of(place), store=store, **RULED) as agent,
    ):
        assert await agent.ask(REQUEST) == "Done."
        assert server.refusals == []
        assert "ctx://" in json.dumps(server.requests[-1].json)
    names = [name for _, folders, files in os.walk(tmp_path) for name in (*folders, *files)]
    assert not [name for name in names if "passwd" in name or "same" in name]


async def test_states_that_fail_end_no_run(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    class Down:
        async def get(self, key: str) -> Any:
            raise ConnectionError("no database")

        set: Any = get

    if not rig.keeps_states:
        pytest.skip("the framework keeps its state")
    async with (
        ModelServer(lambda messages: "Well.") as server,
        rig.open(server, states=Down(), **RULED) as agent,
    ):
        assert await agent.ask("Hello.") == "Well."
    assert "no database" in caplog.text


WRONG: list[tuple[Dict, str]] = [
    ({"max_tokens": 5}, "max_tokens: there is no such field"),
    ({"sumarizer": "rules"}, "sumarizer: there is no such field; did you mean summarizer?"),
    ({"form": "chat"}, "form: there is no such field"),
    ({"max_total_tokens": 0}, "max_total_tokens"),
    ({"summarizer": 5}, "summarizer: expected a summariser or a model of the framework's"),
    ({"store": 5}, "store: a int is not"),
    ({"on_event": 5}, "on_event: expected a callable or None, got int"),
    ({"counter": 5}, "counter: "),
    ({"states": 5}, "states: "),
    ({"tools": "no"}, "tools: expected True or False, got 'no'"),
]


def test_wrong_options_are_named(rig: Rig) -> None:
    for options, text in WRONG:
        with pytest.raises((InvalidArgumentError, ValueError), match=re.escape(text)):
            rig.adapter(**options)


# What is added to a request


async def talk_long(agent: Agent) -> None:
    for number in range(4):
        await agent.ask(f"Note {number}: {LONG}")
    await agent.ask("Well?")


async def test_tools_come_once_something_has_left(rig: Rig) -> None:
    """What is named is offered; with `tools=False` neither."""
    for tools in (True, False) if rig.has_tools else (False,):
        async with ModelServer(lambda messages: "Well.") as server:
            async with rig.open(server, tools=tools, **RULED) as agent:
                await agent.ask("Hello.")
                assert not any(map(named_in, server.requests))
                await talk_long(agent)
            assert "ctx://" in json.dumps(server.requests[-1].messages)
            assert offered(server.requests[-1]) == (OURS if tools else set())
            for received in server.requests:
                assert not named_in(received) or offered(received) == OURS
            assert server.refusals == []


async def test_a_refusal_that_names_tools_is_answered_by_one_request_without(rig: Rig) -> None:
    """And the model is not offered them again, another one is."""
    if not (rig.mends and rig.has_tools):
        pytest.skip("the framework's requests pass as they are")

    async def refuse(exchange: Exchange) -> Any:
        return await exchange.send_failure(Failure(400, "this model does not support Tools"))

    def policy(messages: list[Dict], received: Received) -> Any:
        return refuse if received.tools and received.json["model"] == "plain" else answer("Well.")

    adapter = rig.adapter(**RULED)
    async with ModelServer(policy) as server:
        async with rig.open(server, how="streamed", adapter=adapter, model="plain") as agent:
            await talk_long(agent)
            refused = [received for received in server.requests if offered(received)]
            assert len(refused) == 1
            assert not named_in(server.requests[-1])
            assert "ctx://" in json.dumps(server.requests[-1].json)
            await agent.ask("And?")
            assert not offered(server.requests[-1])
        async with rig.open(server, adapter=adapter, model="other") as another:
            await talk_long(another)
            assert offered(server.requests[-1]) == OURS


async def test_ours_are_left_out_beside_too_many_others(rig: Rig) -> None:
    if not rig.has_tools:
        pytest.skip("the adapter has none")
    for count, ours in ((rig.most_tools, OURS), (rig.most_tools + 1, set())):
        tools = [tool(lambda: "")._replace(name=f"t{n}", description="t") for n in range(count)]
        async with ModelServer(lambda messages: "Well.") as server:
            async with rig.open(server, tools, **RULED) as agent:
                await talk_long(agent)
            assert offered(server.requests[-1]) == ours
            assert len(server.requests[-1].tools) >= count + len(ours)
            assert named_in(server.requests[-1]) == bool(ours)


# The agent's own model writes


@dataclass
class Ran:
    """What came of a run of an agent."""

    stats: CompressionStats
    heard: str
    calls: int | None


async def run(
    rig: Rig,
    server: ModelServer,
    place: Workplace,
    how: How = "streamed",
    *,
    bent: bool = False,
    **options: Any,
) -> Ran:
    async with rig.open(server, tools_of(place), how, bent=bent, **options) as agent:
        await agent.ask(REQUEST)
        return Ran(agent.stats(), str(agent.heard), agent.calls)


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
        how: How = "blocking" if rig.blocks and summarizer else "streamed"
        ran = await run(rig, server, place, how, summarizer=summarizer, on_event=events.append, **SMALL)
        assert server.refusals == []
        own = len(server.requests) - len(writing.asked)
        assert writing.asked
        assert {one.json["model"] for one in server.requests} == {MODEL}
        assert TOLD in json.dumps(server.requests[-1].json)
    assert own == writing.worker.turn == (own if ran.calls is None else ran.calls)
    assert TOLD not in ran.heard
    assert ran.stats.summarizer_calls == len(writing.asked)
    assert ran.stats.summarizer_input_tokens > 0 < ran.stats.summarizer_output_tokens


async def test_what_the_caller_set_for_his_own_requests_is_not_taken_over(rig: Rig, place: Workplace) -> None:
    writing = Writing()
    async with ModelServer(writing, window_tokens=WINDOW) as server:
        await run(rig, server, place, bent=True, **SMALL)
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
        ran = await run(rig, server, place, summarizer="rules", **SMALL)
    assert writing.asked == []
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
                await run(rig, server, place, summarizer="another")
            return
        await run(rig, server, place, summarizer="openai:another", **SMALL)
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
        await run(rig, server, place, summarizer=writer, **SMALL)
    assert writer.asked
    assert writing.asked == []


async def test_where_the_model_fails_rules_write_in_the_same_event(rig: Rig, place: Workplace) -> None:
    writing, events = Writing(status(401)), list[CompressionEvent]()
    async with ModelServer(writing, window_tokens=WINDOW) as server:
        await run(rig, server, place, on_event=events.append, **SMALL)
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
        ran = await run(rig, server, place, **SMALL)
        assert server.refusals == []
    there = [received for received in writing.asked if is_in_place(received)]
    assert bool(there) is rig.writes_in_place
    assert TOLD not in ran.heard
    assert IN_PLACE not in ran.heard
    for received in there:
        sent = server.requests[received.number - 2]
        assert json.dumps(received.messages[:-1]) == json.dumps(sent.messages)
        assert json.dumps(received.tools) == json.dumps(sent.tools)
