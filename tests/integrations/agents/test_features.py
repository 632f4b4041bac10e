"""What else an agent of AgentScope does with its memory while ours compresses it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from agentscope.agent import ReActAgent
from agentscope.memory import LongTermMemoryBase
from agentscope.message import Msg, TextBlock
from agentscope.plan import PlanNotebook
from agentscope.rag import DocMetadata, Document, KnowledgeBase
from agentscope.token import CharTokenCounter
from pydantic import BaseModel

from tests.integrations.agents.depot import log_text, make_toolkit, read
from tests.integrations.agents.support import (
    DASHSCOPE,
    LINES,
    OPENAI,
    SMALL_BUDGET,
    SMALL_WINDOW,
    WatchedMemory,
    Wire,
    assert_sound,
    in_every_way,
    make_agent,
    on_every_wire,
    user,
)
from tests.support.model_server import ModelServer, Received, Reply, answer
from tests.support.rendering import text_of


class Report(BaseModel):
    """What the user wants to know."""

    courier: str
    parcels: int


FINISHED = ("generate_response", {"courier": "Ilse", "parcels": 117})


@pytest.mark.variants(1)
@in_every_way
async def test_structured_output_comes_through_many_replies(wire: Wire, stream: bool, depots: Path) -> None:
    """Hints and all: one where the model forgets to call the finishing tool, one where it only calls."""
    async with ModelServer(window_tokens=SMALL_WINDOW) as server, wire.model(server, stream) as model:
        memory = WatchedMemory(SMALL_BUDGET)
        agent = make_agent(wire, model, make_toolkit(depots), memory, max_iters=20)
        for number in range(3):
            server.script(
                *[answer(tool_calls=[read(8 * number + n)]) for n in range(4)],
                answer("It was Ilse, I think."),
                answer(tool_calls=[("generate_response", {"courier": "Ilse"})]),
                *[answer(tool_calls=[read(8 * number + 4 + n)]) for n in range(4)],
                answer("It was Ilse." if number else None, [FINISHED]),
                answer("It was Ilse, with 117 parcels."),
            )
            reply = await agent(user("Which courier carried the most?"), structured_model=Report)
            assert reply.metadata == {"courier": "Ilse", "parcels": 117}
            assert "It was Ilse" in str(reply.get_text_content())
        await assert_sound(server, memory)
    assert memory.stats().noted > 0
    assert hints_in(server) == [5, 11, 17, 28]
    assert not any("system-hint" in str(msg.get_text_content()) for msg in await memory.get_history())


def hints_in(server: ModelServer) -> list[int]:
    """Return the requests that end with a hint, the first being 0; a hint anywhere else is a failure."""
    found = []
    for index, request in enumerate(server.requests):
        *others, last = map(text_of, request.messages)
        assert not any(text.startswith("<system-hint>") for text in others)
        if last.startswith("<system-hint>"):
            found.append(index)
    return found


@pytest.mark.variants(1)
@on_every_wire
async def test_the_hint_of_a_plan_ends_every_request_and_leaves_no_trace(wire: Wire, depots: Path) -> None:
    """Between two events a request without its hint is the beginning of the next, for prompt caches."""
    subtasks = [
        {"name": f"Depots {n}", "description": "Read the logs.", "expected_outcome": "A count."}
        for n in range(3)
    ]
    plan = {"name": "Count", "description": "Count.", "expected_outcome": "A name.", "subtasks": subtasks}
    async with ModelServer(window_tokens=SMALL_WINDOW) as server, wire.model(server) as model:
        replies = [answer(tool_calls=[("create_plan", plan)])]
        for number in range(3):
            started = {"subtask_idx": number, "state": "in_progress"}
            replies.append(answer(tool_calls=[("update_subtask_state", started)]))
            replies += [answer(tool_calls=[read(6 * number + n)]) for n in range(6)]
            done = {"subtask_idx": number, "subtask_outcome": "Counted."}
            replies.append(answer(tool_calls=[("finish_subtask", done)]))
        finished = answer(tool_calls=[("finish_plan", {"state": "done", "outcome": "Ilse."})])
        server.script(*replies, finished, answer("Ilse."))
        events: list[Any] = []
        memory = WatchedMemory(SMALL_BUDGET, on_event=lambda event: events.append((asked(), event)))

        def asked() -> int:
            return len(server.requests)

        agent = make_agent(
            wire, model, make_toolkit(depots), memory, max_iters=30, plan_notebook=PlanNotebook()
        )
        await agent(user("Which courier carried the most?"))
        await assert_sound(server, memory)
    assert hints_in(server) == list(range(len(server.requests)))
    assert len(await memory.get_history()) == 2 * len(server.requests)
    compressed_before = {number for number, event in events if event.kind != "edit"}
    assert compressed_before
    for number, (request, following) in enumerate(zip(server.requests, server.requests[1:], strict=False), 1):
        if number not in compressed_before:
            view = request.messages[:-1]
            assert following.messages[: len(view)] == view


@pytest.mark.parametrize(("wire", "stream"), [(OPENAI, False), (DASHSCOPE, True)], ids=str)
async def test_reasoning_is_kept_in_the_history_and_never_sent(
    wire: Wire, stream: bool, depots: Path
) -> None:
    """AgentScope's formatters leave it out, and its DashScope model hears it in streams only."""
    async with ModelServer(window_tokens=SMALL_WINDOW) as server, wire.model(server, stream) as model:
        thoughts = [f"Thought {number}: every log counts." for number in range(15)]
        replies = [
            answer(tool_calls=[read(number)], reasoning=thought) for number, thought in enumerate(thoughts)
        ]
        server.script(*replies, answer("Done.", reasoning="That was the last."))
        memory = WatchedMemory(SMALL_BUDGET)
        agent = make_agent(wire, model, make_toolkit(depots), memory, max_iters=20)
        await agent(user("Read fifteen logs."))
        await assert_sound(server, memory)
    history = await memory.get_history()
    kept = [block["thinking"] for msg in history for block in msg.get_content_blocks("thinking")]
    assert kept == [*thoughts, "That was the last."]
    assert memory.stats().noted > 0


class Notes(LongTermMemoryBase):
    """A long-term memory that always remembers the same, and keeps what it is told to record."""

    def __init__(self) -> None:
        super().__init__()
        self.recorded: list[list[Msg | None]] = []

    async def record(self, msgs: list[Msg | None], **_: Any) -> None:
        self.recorded.append(msgs)

    async def retrieve(self, msg: Msg | list[Msg] | None, limit: int = 5, **_: Any) -> str:
        return "Depot 7 closes at noon. " * 10


@pytest.mark.variants(1)
@on_every_wire
async def test_long_term_memory_adds_to_the_history_and_records_the_view(wire: Wire, depots: Path) -> None:
    async with ModelServer(window_tokens=SMALL_WINDOW) as server, wire.model(server) as model:
        memory, notes = WatchedMemory(SMALL_BUDGET), Notes()
        settings = {"long_term_memory": notes, "long_term_memory_mode": "static_control"}
        agent = make_agent(wire, model, make_toolkit(depots), memory, **settings)
        for number in range(5):
            calls = [answer(tool_calls=[read(3 * number + n)]) for n in range(3)]
            server.script(*calls, answer(f"That was part {number}."))
            await agent(user(f"Read part {number}."))
        await assert_sound(server, memory)
    retrieved = [msg for msg in await memory.get_history() if msg.name == "long_term_memory"]
    assert len(retrieved) == len(notes.recorded) == 5
    assert memory.stats().events > 0
    last = notes.recorded[-1][-1]
    assert last.get_text_content() == "That was part 4."


class Shelf(KnowledgeBase):
    """A knowledge base that always finds the same."""

    def __init__(self) -> None:
        pass

    async def retrieve(
        self, query: str, limit: int = 5, score_threshold: float | None = None, **_: Any
    ) -> list[Document]:
        texts = [f"Shelf {number} holds amber parcels. " * 10 for number in range(3)]
        blocks = [TextBlock(type="text", text=text) for text in texts]
        return [Document(DocMetadata(block, doc_id="d", chunk_id=0, total_chunks=1)) for block in blocks]

    async def add_documents(self, documents: list[Document], **_: Any) -> None:
        raise NotImplementedError


@pytest.mark.parametrize("found_by", ["long-term memory", "knowledge"])
async def test_what_is_retrieved_does_not_take_the_place_of_the_request(found_by: str, depots: Path) -> None:
    """AgentScope adds it as a message of the user's, behind the request."""
    settings: dict[str, Any] = {"knowledge": Shelf(), "enable_rewrite_query": False}
    if found_by == "long-term memory":
        settings = {"long_term_memory": Notes(), "long_term_memory_mode": "static_control"}
    async with ModelServer(window_tokens=SMALL_WINDOW) as server, OPENAI.model(server) as model:
        memory = WatchedMemory(SMALL_BUDGET)
        agent = make_agent(OPENAI, model, make_toolkit(depots), memory, max_iters=30, **settings)
        for number in range(2):
            request = f"Part {number}: which courier carried the most amber parcels?"
            server.script(*[answer(tool_calls=[read(n)]) for n in range(20)], answer("Ilse."))
            asked = len(server.requests)
            await agent(user(request))
            for received in server.requests[asked:]:
                assert request in map(text_of, received.messages)
        await assert_sound(server, memory)
    assert memory.stats().noted > 0


def calls_of(msg: Msg) -> list[str]:
    return [block["id"] for block in msg.get_content_blocks("tool_use")]


class Summarising:
    """A model that reads log after log; AgentScope's own compression asks it for a summary now and then."""

    def __init__(self, turns: int) -> None:
        self.turns = turns
        self.turn = 0
        self.summaries = 0

    def __call__(self, _: list[dict[str, Any]], received: Received) -> Reply:
        fields = ReActAgent.CompressionConfig.model_fields["summary_schema"].default.model_fields
        summary = {field: f"{field}, as of turn {self.turn}" for field in fields}
        forced = [tool["function"]["name"] for tool in received.tools] == ["generate_structured_output"]
        if forced or "response_format" in received.json:
            self.summaries += 1
            if forced:
                return answer(tool_calls=[("generate_structured_output", summary)])
            return answer(json.dumps(summary))
        self.turn += 1
        return answer(tool_calls=[read(self.turn)]) if self.turn < self.turns else answer("All were read.")


@pytest.mark.variants(2)
@pytest.mark.parametrize("threshold", [2_000, 2_200], ids=["summarises-often", "summarises-sometimes"])
@in_every_way
async def test_agentscopes_own_compression_and_ours_work_on_one_memory(
    wire: Wire, stream: bool, threshold: int, depots: Path
) -> None:
    """It marks as compressed what its summary stands for, segments included, and asks for the rest."""
    script = Summarising(25)
    async with ModelServer(script, SMALL_WINDOW) as server, wire.model(server, stream) as model:
        memory = WatchedMemory(SMALL_BUDGET)
        compression = ReActAgent.CompressionConfig(
            enable=True, agent_token_counter=CharTokenCounter(), trigger_threshold=threshold, keep_recent=2
        )
        agent = make_agent(
            wire, model, make_toolkit(depots), memory, max_iters=30, compression_config=compression
        )
        assert (await agent(user("Read every log."))).get_text_content() == "All were read."
        await assert_sound(server, memory)
    assert script.summaries > 1
    assert memory.stats().noted > 0
    history = await memory.get_history()
    marked = {msg.id for msg in await memory.compressed.base.get_memory(mark="compressed")}
    summarised = {call for msg in history if msg.id in marked for call in calls_of(msg)}
    last = server.requests[-1]
    shown = {call["id"] for message in last.messages for call in message.get("tool_calls") or []}
    assert len(summarised) > 15
    assert shown
    assert not shown & summarised
    assert sum("task_overview, as of turn" in text_of(message) for message in last.messages) == 1
    # What the agent's own compression marked still counts here, so the newest result may have left, too.
    newest = text_of(last.messages[-1])
    assert newest == log_text(script.turns - 1, LINES) or newest.startswith("[Offloaded tool result ctx://")
