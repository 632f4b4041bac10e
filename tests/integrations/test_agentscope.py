"""`AgentScopeCompressedMemory` as an agent uses it: arguments, hints, plans, the agent's own compression."""

from __future__ import annotations

import asyncio
import logging
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from agentscope.agent import ReActAgent
from agentscope.agent._react_agent import _MemoryMark
from agentscope.formatter import OpenAIChatFormatter
from agentscope.memory import InMemoryMemory, MemoryBase
from agentscope.message import Msg
from agentscope.model import ChatModelBase, ChatResponse, OpenAIChatModel
from agentscope.module import StateModule
from agentscope.plan import PlanNotebook
from agentscope.token import CharTokenCounter
from pydantic import ValidationError

from context_compressor import (
    CompressedMemory,
    CompressionConfig,
    CompressionEvent,
    ExtractiveSummarizer,
    InMemoryOffloadStore,
)
from context_compressor import InMemoryMemory as OurInMemoryMemory
from context_compressor.errors import ContextOverflowError, InvalidArgumentError
from context_compressor.integrations import agentscope
from context_compressor.integrations.agentscope import AgentScopeCompressedMemory, AgentScopeSummarizer
from context_compressor.laws.chat_rules import problems
from tests.integrations.messages import fields_of, reply, result, turns, user
from tests.memory.scripted import Gated, reached

BUDGET = 2_000


async def request_of(memory: MemoryBase, **filters: Any) -> list[dict[str, Any]]:
    """Return what an agent would send."""
    system = Msg("system", "You are Friday.", "system")
    return await OpenAIChatFormatter().format([system, *await memory.get_memory(**filters)])


def kinds_in(view: list[Msg]) -> list[str | None]:
    return [(msg.metadata or {}).get("compression", {}).get("kind") for msg in view]  # type: ignore[union-attr]


# Arguments


def test_it_is_a_memory_of_agentscopes() -> None:
    memory = AgentScopeCompressedMemory()
    assert isinstance(memory, MemoryBase)
    assert isinstance(memory, StateModule)
    assert memory  # an agent takes an empty one, too: `memory or InMemoryMemory()`


def test_a_memory_in_a_database_asks_for_no_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    stored, theirs = "context_compressor.integrations.agentscope.stored", "context_compressor.backends.redis"
    for name in [name for name in sys.modules if name.startswith((stored, theirs, "redis"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "redis", None)
    monkeypatch.setattr(agentscope, "stored", None, raising=False)
    memories = import_module(stored)

    assert memories.AsyncSQLAlchemyMemory("sqlite+aiosqlite://")
    with pytest.raises(ImportError, match=r"pip install 'agent-context-compressor\[redis\]'"):
        memories.RedisMemory()


def test_the_arguments_of_reme_are_taken_in_their_order() -> None:
    model = OpenAIChatModel("m", "key", stream=False)
    memory = AgentScopeCompressedMemory(model, None, "compact", 0.5, 9_000, 900, 4_000, 7)
    expected = CompressionConfig(
        mode="compact",
        compact_ratio_threshold=0.5,
        max_total_tokens=9_000,
        max_tool_message_tokens=900,
        group_token_threshold=4_000,
        keep_recent_count=7,
    )
    assert memory.config == expected
    assert isinstance(memory.compressed._summarizer, AgentScopeSummarizer)


def test_what_is_not_given_is_our_default() -> None:
    memory = AgentScopeCompressedMemory(group_token_threshold=0)
    assert memory.config == CompressionConfig(group_token_threshold=0) == CompressionConfig()
    assert isinstance(memory.compressed.base, OurInMemoryMemory)
    assert isinstance(memory.compressed.store, InMemoryOffloadStore)
    assert isinstance(memory.compressed._summarizer, ExtractiveSummarizer)


def test_any_field_of_the_configuration_is_an_argument() -> None:
    memory = AgentScopeCompressedMemory(max_total_tokens=5_000, reserved_tokens=500, exclude_tools={"ls"})
    assert (memory.budget_tokens, memory.config.exclude_tools) == (4_500, {"ls"})
    with pytest.raises(InvalidArgumentError, match="max_total_token: there is no such field"):
        AgentScopeCompressedMemory(max_total_token=5_000)
    with pytest.raises(ValidationError, match="two names of one field"):
        AgentScopeCompressedMemory(working_summary_mode="auto", mode="compact")


def test_none_is_a_value_of_a_field_and_no_value_of_an_argument() -> None:
    memory = AgentScopeCompressedMemory(max_total_tokens=None, pinned_mark=None, background_ratio=None)
    assert memory.compressed.config == CompressionConfig(pinned_mark=None, background_ratio=None)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            {"config": CompressionConfig(), "max_total_tokens": 5, "preview_tokens": 3},
            "config and max_total_tokens, preview_tokens exclude each other",
        ),
        (
            {"model": OpenAIChatModel("m", "key"), "summarizer": ExtractiveSummarizer()},
            "model and summarizer exclude each other",
        ),
        ({"store_dir": "x", "store": InMemoryOffloadStore()}, "store_dir and store exclude each other"),
        ({"reme_config_path": "reme.yaml"}, r"reme_config_path \('reme.yaml'\): there is no ReMe here"),
        ({"base": CompressedMemory()}, "base: a CompressedMemory is compressed already"),
        ({"base": AgentScopeCompressedMemory()}, "base: a AgentScopeCompressedMemory is compressed already"),
        ({"base": InMemoryMemory}, r"base: InMemoryMemory is a class; give an object, InMemoryMemory\(...\)"),
        ({"base": []}, "base: a list is not a memory; it lacks add, delete, "),
    ],
)
def test_arguments_that_cannot_be_are_refused_by_name(given: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidArgumentError, match=told):
        AgentScopeCompressedMemory(**given)


async def test_memories_may_share_a_directory(tmp_path: Path) -> None:
    memories = [
        AgentScopeCompressedMemory(max_total_tokens=BUDGET, store_dir=str(tmp_path)) for _ in range(2)
    ]
    for memory in memories:
        await memory.add(turns(10))
        await memory.get_memory()
    first, second = [await memory.reachable_refs() for memory in memories]
    assert set(first) == set(second)
    await memories[0].clear()
    assert await memories[0].compressed.store.refs() == []
    assert await memories[1].compressed.store.refs() == sorted(second)


async def test_it_may_be_entered_and_need_not_be() -> None:
    async with AgentScopeCompressedMemory() as memory:
        await memory.add(user("hi"))
    await memory.close()
    assert await memory.size() == 1


async def test_the_summary_is_not_set_behind_its_back() -> None:
    memory = AgentScopeCompressedMemory()
    await memory.update_compressed_summary("so far")
    assert memory._compressed_summary == "so far"
    with pytest.raises(AttributeError, match="update_compressed_summary"):
        memory._compressed_summary = "else"
    assert "so far" in str(await memory.get_memory())


async def test_what_cannot_fit_is_told_with_the_messages() -> None:
    memory = AgentScopeCompressedMemory(max_total_tokens=100)
    await memory.add(user("word " * 500), marks="pinned")
    with pytest.raises(ContextOverflowError, match="raise max_total_tokens"):
        await memory.get_memory()


# Views


async def test_between_events_a_request_begins_with_the_one_before(theirs: Any) -> None:
    events: list[CompressionEvent] = []
    memory = AgentScopeCompressedMemory(base=theirs, max_total_tokens=BUDGET, on_event=events.append)
    before: list[Any] = []
    seen = 0
    for msg in turns(15):
        await memory.add(msg)
        if msg.has_content_blocks("tool_use"):
            continue
        request = await request_of(memory)
        assert problems(request) == []
        if len(events) == seen:
            assert request[: len(before)] == before
        before, seen = request, len(events)
    assert seen > 1


async def test_the_base_makes_no_difference_to_a_view(theirs: Any) -> None:
    events: list[list[CompressionEvent]] = [[], []]
    memories = [
        AgentScopeCompressedMemory(base=base, max_total_tokens=BUDGET, on_event=seen.append)
        for base, seen in zip((None, theirs), events, strict=True)
    ]
    for number, msg in enumerate(turns(12)):
        for memory in memories:
            await memory.add(msg, marks=f"m{number}")
            await memory.update_messages_mark("even", msg_ids=[msg.id] if number % 2 == 0 else [])
            if number % 7 == 0:
                await memory.delete_by_mark(f"m{number - 3}")
        ours, over_theirs = [[fields_of(m) for m in await memory.get_memory()] for memory in memories]
        assert over_theirs == ours
    told = [[(e.kind, e.reason, e.tokens_after, e.refs) for e in seen] for seen in events]
    assert told[1] == told[0]
    assert {"compress", "edit"} <= {event.kind for event in events[0]}
    assert memories[1].stats().history_tokens == memories[0].stats().history_tokens


async def test_the_notes_id_stands_for_all_that_they_cover() -> None:
    memory = AgentScopeCompressedMemory(max_total_tokens=BUDGET)
    said = turns(20)
    await memory.add(said)
    view = await memory.get_memory()
    segment = view[kinds_in(view).index("notes")]
    covered: Any = segment.metadata["compression"]["covered_ids"]
    assert await memory.update_messages_mark("seen", msg_ids=[segment.id]) == len(covered) > 4
    assert [msg.id for msg in await memory.get_memory(mark="seen")] == covered
    assert segment.id not in [msg.id for msg in await memory.get_memory(exclude_mark="seen")]
    assert await memory.delete([segment.id]) == len(covered)
    assert await memory.size() == len(said) - len(covered)


async def test_calls_side_by_side_are_all_kept(theirs: Any) -> None:
    memory = AgentScopeCompressedMemory(base=theirs, max_total_tokens=BUDGET)
    ids = [f"c{n}" for n in range(8)]
    await memory.add([user("Go."), reply("", *((id, "read_file", {}) for id in ids))])
    await asyncio.gather(*(memory.add(result(id, "row\n" * 200)) for id in ids), memory.get_memory())
    request = await request_of(memory)
    assert problems(request) == []
    assert {msg["tool_call_id"] for msg in request if msg["role"] == "tool"} == set(ids)
    assert await memory.size() == 10


async def test_nothing_is_logged_as_a_warning_on_the_way(caplog: pytest.LogCaptureFixture) -> None:
    memory = AgentScopeCompressedMemory(max_total_tokens=BUDGET)
    with caplog.at_level(logging.WARNING):
        await memory.add(turns(20))
        await request_of(memory)
    assert caplog.records == []


# Hints and plans


async def test_a_hint_comes_and_goes_and_changes_nothing_else(theirs: Any) -> None:
    memory = AgentScopeCompressedMemory(base=theirs, max_total_tokens=BUDGET)
    for number, msg in enumerate(turns(12)):
        await memory.add(msg)
        if msg.has_content_blocks("tool_use"):
            continue
        await memory.add(user(f"<system-hint>step {number}</system-hint>"), marks=_MemoryMark.HINT)
        with_hint = await request_of(memory)
        assert await memory.delete_by_mark(mark=_MemoryMark.HINT) == 1
        without = await request_of(memory)
        assert "<system-hint>" in str(with_hint[-1])
        assert without == with_hint[:-1]
        assert "<system-hint>" not in str(without)
    assert await memory.get_memory(mark="hint") == []
    assert "notes" in kinds_in(await memory.get_memory())


async def test_marks_of_an_enum_are_kept_as_what_they_say(theirs: Any) -> None:
    memory = AgentScopeCompressedMemory(base=theirs)
    await memory.add([user("a"), user("b")], marks=_MemoryMark.HINT)
    await memory.update_messages_mark(_MemoryMark.COMPRESSED, old_mark=_MemoryMark.HINT)
    assert len(await memory.get_memory(mark="compressed")) == 2
    assert len(await theirs.get_memory(mark="compressed")) == 2
    assert await memory.get_memory(exclude_mark=_MemoryMark.COMPRESSED) == []
    assert await memory.delete_by_mark([_MemoryMark.HINT, _MemoryMark.COMPRESSED]) == 2


class Scripted(ChatModelBase):
    """A model that answers in turn, and keeps what it was asked."""

    def __init__(self, *answers: ChatResponse) -> None:
        super().__init__("scripted", stream=False)
        self.answers = list(answers)
        self.asked: list[list[dict[str, Any]]] = []

    async def __call__(self, messages: list[dict[str, Any]], **kwargs: Any) -> ChatResponse:
        self.asked.append(messages)
        assert problems(messages) == []
        return self.answers.pop(0)


def says(text: str) -> ChatResponse:
    return ChatResponse(content=[{"type": "text", "text": text}])


def calls(name: str, given: dict[str, Any]) -> ChatResponse:
    return ChatResponse(content=[{"type": "tool_use", "id": f"call_{name}", "name": name, "input": given}])


def make_agent(model: ChatModelBase, memory: MemoryBase, **more: Any) -> ReActAgent:
    agent = ReActAgent(
        name="Friday",
        sys_prompt="You are Friday.",
        model=model,
        formatter=OpenAIChatFormatter(),
        memory=memory,
        **more,
    )
    agent.set_console_output_enabled(False)
    return agent


async def test_a_plans_hints_are_never_part_of_the_history(theirs: Any) -> None:
    memory = AgentScopeCompressedMemory(base=theirs, max_total_tokens=8_000)
    subtask = {"name": "count", "description": "d", "expected_outcome": "o"}
    plan = {"name": "counting", "description": "d", "expected_outcome": "o", "subtasks": [subtask]}
    model = Scripted(calls("create_plan", plan), says("Done."))
    await make_agent(model, memory, plan_notebook=PlanNotebook())(user("Count."))
    assert all("system-hint" in str(asked[-1]) for asked in model.asked)
    history = await memory.get_history()
    assert "system-hint" not in str([msg.content for msg in history])
    assert [msg.role for msg in history] == ["user", "assistant", "system", "assistant"]


# The agent's own compression


class Compressing(Scripted):
    """Fills in the form of AgentScope's compression whenever it is asked to."""

    async def __call__(self, messages: list[dict[str, Any]], **kwargs: Any) -> ChatResponse:
        if "structured_model" not in kwargs:
            return await super().__call__(messages, **kwargs)
        assert problems(messages) == []
        fields = dict.fromkeys(kwargs["structured_model"].model_fields, "the agent's own summary")
        return ChatResponse(content=[], metadata=fields)


async def test_an_agent_that_compresses_by_itself_loses_nothing(theirs: Any) -> None:
    memory = AgentScopeCompressedMemory(base=theirs, max_total_tokens=BUDGET)
    model = Compressing()
    own = ReActAgent.CompressionConfig(
        enable=True, agent_token_counter=CharTokenCounter(), trigger_threshold=4_000, keep_recent=3
    )
    agent = make_agent(model, memory, compression_config=own)
    said: list[str] = []
    for number in range(12):
        said += [f"question {number}", f"answer {number}"]
        model.answers = [says(f"answer {number} " + "word " * 80)]
        await agent(user(f"question {number} " + "word " * 80))
        assert memory.stats().view_tokens <= BUDGET
    history = await memory.get_history()
    assert [" ".join((msg.get_text_content() or "").split()[:2]) for msg in history] == said
    compressed = await memory.get_memory(mark="compressed")
    assert 3 < len(compressed) < len(history)
    shown = await request_of(memory, exclude_mark=_MemoryMark.COMPRESSED)
    assert "the agent's own summary" in str(shown[1])
    assert "question 0" not in str(shown[2:])


async def test_what_an_agent_compresses_may_be_compressed_already(theirs: Any) -> None:
    """AgentScope marks by ids taken from the view; the notes' id stands for all that they cover."""
    memory = AgentScopeCompressedMemory(base=theirs, max_total_tokens=2 * BUDGET)
    said = turns(40, words=20)
    await memory.add(said)
    assert "notes" in kinds_in(await memory.get_memory())
    own = ReActAgent.CompressionConfig(
        enable=True, agent_token_counter=CharTokenCounter(), trigger_threshold=1, keep_recent=2
    )
    await make_agent(Compressing(), memory, compression_config=own)._compress_memory_if_needed()
    shown = await memory.get_memory(exclude_mark=_MemoryMark.COMPRESSED)
    assert [msg.id for msg in shown[1:]] == [msg.id for msg in said[-3:]]
    assert "the agent's own summary" in str(shown[0].content)
    marked = await memory.get_memory(mark="compressed")
    assert [msg.id for msg in marked] == [msg.id for msg in said[:-3]]
    assert await memory.size() == len(said)


async def test_closing_ends_what_was_prepared_before_another_session_was_loaded(tmp_path: Path) -> None:
    other = AgentScopeCompressedMemory(max_total_tokens=BUDGET, store_dir=tmp_path)
    await other.add(user("another conversation"))
    summarizer = Gated()
    memory = AgentScopeCompressedMemory(
        max_total_tokens=BUDGET, keep_recent_count=2, store_dir=tmp_path, summarizer=summarizer
    )
    tasks = asyncio.all_tasks()
    while asyncio.all_tasks() == tasks:  # until an event is being prepared
        await memory.add(user("words and more words " * 40))
        await memory.get_memory()
    await reached(summarizer.asked, *asyncio.all_tasks() - tasks)
    events = memory.stats().events
    memory.load_state_dict(other.state_dict())
    await memory.get_memory()
    await memory.close()
    assert asyncio.all_tasks() == tasks
    assert memory.stats().events >= events
    assert memory.stats().summarizer_calls == 1
