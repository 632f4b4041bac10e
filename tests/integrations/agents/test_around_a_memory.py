"""What stands around an agent's memory: its model's counts, its toolkit, its database, earlier chat dicts."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from agentscope.agent import ReActAgent
from agentscope.memory import AsyncSQLAlchemyMemory, RedisMemory
from agentscope.model import OpenAIChatModel
from agentscope.tool import Toolkit
from sqlalchemy.ext.asyncio import create_async_engine

from context_compressor.errors import InvalidArgumentError
from context_compressor.integrations.agentscope import AgentScopeCompressedMemory
from tests.integrations.agents.support import (
    DASHSCOPE,
    OPENAI,
    Wire,
    in_every_way,
    make_agent,
    user,
)
from tests.support.markdown import blocks
from tests.support.model_server import ModelServer, answer, context_length_exceeded

ROOT = Path(__file__).parents[3]


def agent_with(wire: Wire, model: Any, memory: AgentScopeCompressedMemory, **more: Any) -> ReActAgent:
    return make_agent(wire, model, Toolkit(), memory, **more)


# Counts


@pytest.mark.variants(1)
@in_every_way
async def test_a_counted_model_tells_the_memory_what_the_provider_counts(wire: Wire, stream: bool) -> None:
    async with ModelServer(lambda messages: answer("Good.")) as server, wire.model(server, stream) as model:
        seen = []
        for counts in (False, True):
            memory = AgentScopeCompressedMemory(max_total_tokens=4_000)
            used = memory.counted(model) if counts else model
            agent = agent_with(wire, used, memory, sys_prompt="You know this: " + "fact " * 1_500)
            for turn in range(8):
                await agent(user(f"Question {turn}. " + "word " * 300))
            seen.append(memory.stats().events)
        assert server.refusals == []
    assert seen[0] == 0  # the system prompt is nothing that a memory sees
    assert seen[1] > 0


async def test_a_counted_model_is_the_given_one_otherwise() -> None:
    memory = AgentScopeCompressedMemory()
    async with ModelServer(lambda messages: answer("Good.")) as server, OPENAI.model(server) as model:
        made = memory.counted(model)
        assert isinstance(made, OpenAIChatModel)
        assert type(made).__name__ == "OpenAIChatModel"
        made.stream = True
        assert model.stream
    with pytest.raises(InvalidArgumentError, match="model: expected an AgentScope chat model, got str"):
        memory.counted("gpt")  # type: ignore[type-var]


async def test_after_a_refusal_the_next_view_is_smaller() -> None:
    async with ModelServer(lambda messages: answer("Good.")) as server, OPENAI.model(server) as model:
        memory = AgentScopeCompressedMemory(max_total_tokens=4_000)
        agent = agent_with(OPENAI, memory.counted(model), memory)
        for turn in range(8):
            await agent(user(f"Question {turn}. " + "word " * 300))
        before = memory.stats().view_tokens
        server.fail(context_length_exceeded())
        with pytest.raises(Exception, match="context"):
            await agent(user("And now?"))
        await memory.get_memory()
        assert memory.stats().view_tokens < before
        assert (await agent(user("And now?"))).get_text_content() == "Good."


# Tools


async def test_a_toolkit_gets_the_tools_once_something_has_left(tmp_path: Path) -> None:
    toolkit = Toolkit()
    memory = AgentScopeCompressedMemory(toolkit=toolkit, max_total_tokens=4_000, store_dir=str(tmp_path))
    with pytest.raises(ValueError, match="has a memory's tools"):
        AgentScopeCompressedMemory(toolkit=toolkit)
    await memory.add(user("Hello."))
    await memory.get_memory()
    assert toolkit.get_json_schemas() == []
    await memory.add([user(f"Note {n}: {'word ' * 300}") for n in range(20)])
    assert "search_history" in str(await memory.get_memory())
    assert len(toolkit.get_json_schemas()) == 5
    again = Toolkit()
    resumed = AgentScopeCompressedMemory(toolkit=again, max_total_tokens=4_000, store_dir=str(tmp_path))
    resumed.load_state_dict(memory.state_dict())
    await resumed.get_memory()
    assert len(again.get_json_schemas()) == 5


def test_a_toolkit_that_has_a_tool_of_one_of_our_names_is_refused() -> None:
    toolkit = Toolkit()
    toolkit.register_tool_function(lambda: None, func_name="grep_offloaded")
    with pytest.raises(ValueError, match="grep_offloaded"):
        AgentScopeCompressedMemory(toolkit=toolkit)
    AgentScopeCompressedMemory(toolkit=toolkit, tools=False)


# Chat dicts of before


async def test_a_conversation_of_before_is_added_as_it_was_to_remes_memory() -> None:
    told = (ROOT / "README.md").read_text(encoding="utf-8") * 10
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "search", "arguments": "{}"}}
    before: list[dict[str, Any]] = [
        {"role": "user", "content": "Find what there is on this project.", "metadata": {"from": "mail"}},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": told, "tool_call_id": "c1"},
    ]
    async with ModelServer(lambda messages: answer("It is here."), window_tokens=24_000) as server:
        async with DASHSCOPE.model(server) as model:
            memory = AgentScopeCompressedMemory(
                model=model,
                working_summary_mode="auto",
                compact_ratio_threshold=0.75,
                max_total_tokens=20_000,
                max_tool_message_tokens=2_000,
                group_token_threshold=None,
                keep_recent_count=1,
            )
            async with memory:
                added = AgentScopeCompressedMemory.list_to_msg(before)
                await memory.add(added, allow_duplicates=True)
                agent = agent_with(DASHSCOPE, model, memory)
                assert (await agent(user("Where is it?"))).get_text_content() == "It is here."
        assert server.refusals == []
    assert [(msg.role, msg.name) for msg in added] == [
        ("user", "user"),
        ("assistant", "assistant"),
        ("system", "search"),
    ]
    assert added[0].metadata == {"from": "mail"}
    [result] = added[2].get_content_blocks("tool_result")
    assert (result["id"], result["output"]) == ("c1", told)


# A database that does not tell users apart


async def test_two_users_of_one_session_are_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'memory.db'}")
    again = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'memory.db'}")
    elsewhere = create_async_engine("sqlite+aiosqlite:///:memory:")

    def open_for(name: str, session: str = "chat-1", where: Any = engine) -> None:
        base = AsyncSQLAlchemyMemory(where, session_id=session, user_id=name)
        AgentScopeCompressedMemory(base=base)

    with caplog.at_level(logging.WARNING):
        open_for("Ada")
        open_for("Ada")
        open_for("Bob", "chat-2")
        open_for("Bob", where=elsewhere)
        for name in ("Ada", "Bob"):
            AgentScopeCompressedMemory(base=RedisMemory(session_id="chat-1", user_id=name))
        assert caplog.messages == []
        open_for("Bob", where=again)
        open_for("Eve")
    assert caplog.messages == [
        "session_id 'chat-1' is used by two users, 'Ada' and 'Bob', and AsyncSQLAlchemyMemory does not tell "
        "them apart: each reads the other's messages; give each user's sessions ids of their own"
    ]
    for one in (engine, again, elsewhere):
        await one.dispose()


async def test_the_code_of_the_page_runs() -> None:
    page = (ROOT / "docs" / "agentscope.md").read_text(encoding="utf-8")
    async with ModelServer(lambda messages: answer("Good.")) as server, OPENAI.model(server) as model:
        names: dict[str, Any] = {"model": model, "toolkit": Toolkit(), "formatter": OPENAI.formatter()}
        for block in blocks("python", page):
            exec(compile(block, "page", "exec"), names)
        names["agent"].set_console_output_enabled(False)
        assert (await names["agent"](user("Hello?"))).get_text_content() == "Good."
        assert names["memory"].compressed._tracker.state.budget.to_dict()
        assert names["agent"].memory is names["memory"]
    assert page.split("```")[1].count("AgentScopeCompressedMemory") == 2
