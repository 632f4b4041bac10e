"""A long task by a real agent, against a server that refuses what providers refuse."""

from __future__ import annotations

from pathlib import Path

import pytest
from agentscope.memory import AsyncSQLAlchemyMemory, InMemoryMemory
from openai import BadRequestError
from sqlalchemy.ext.asyncio import create_async_engine

from tests.integrations.agents.depot import TASK, log_text, make_depots, make_toolkit
from tests.integrations.agents.script import ANSWER, BUDGET, TARGET, TURNS, WINDOW, LongTask
from tests.integrations.agents.support import (
    OPENAI,
    WatchedMemory,
    Wire,
    assert_sound,
    in_every_way,
    make_agent,
    sent_tokens,
    user,
)
from tests.support.model_server import ModelServer
from tests.support.rendering import render_request, text_of

pytestmark = pytest.mark.variants(1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_depots(tmp_path_factory.mktemp("depots"))


@in_every_way
async def test_an_agent_is_never_refused_and_reads_back_what_left_its_view(
    wire: Wire, stream: bool, folder: Path
) -> None:
    script = LongTask()
    async with ModelServer(script, WINDOW) as server, wire.model(server, stream) as model:
        memory = WatchedMemory(BUDGET, summarizer=wire.summarizer(server))
        agent = make_agent(wire, model, make_toolkit(folder), memory, max_iters=TURNS)
        reply = await agent(user(TASK))
        await assert_sound(server, memory)
    assert (reply.get_text_content(), script.turn) == (ANSWER, TURNS)
    asked = [request for request in server.requests if request.tools][TURNS - 4]
    assert not any(log_text(TARGET) in text_of(message) for message in asked.messages)
    assert "\n".join(script.read_back).startswith(log_text(TARGET))
    stats = memory.stats()
    assert stats.history_tokens > 100_000
    assert stats.summarizer_calls > 0
    print(f"history {stats.history_tokens:,} tokens, largest view sent {max(sent_tokens(server)):,}; {stats}")


async def test_so_is_one_whose_history_is_in_agentscopes_database(folder: Path, tmp_path: Path) -> None:
    wire = OPENAI  # what is behind the memory knows nothing of it
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'history.db'}")
    base = AsyncSQLAlchemyMemory(engine, session_id="long task")
    try:
        async with ModelServer(LongTask(), WINDOW) as server, wire.model(server) as model:
            memory = WatchedMemory(BUDGET, base)
            agent = make_agent(wire, model, make_toolkit(folder), memory, max_iters=TURNS)
            assert (await agent(user(TASK))).get_text_content() == ANSWER
            await assert_sound(server, memory)
    finally:
        await base.close()
        await engine.dispose()


@in_every_way
async def test_the_same_task_with_agentscopes_own_memory_is_refused_as_too_long(
    wire: Wire, stream: bool, folder: Path
) -> None:
    script = LongTask()
    async with ModelServer(script, WINDOW) as server, wire.model(server, stream) as model:
        agent = make_agent(wire, model, make_toolkit(folder), InMemoryMemory(), max_iters=TURNS)
        with pytest.raises((BadRequestError, RuntimeError), match=r"maximum context length|input length"):
            await agent(user(TASK))
    refused = server.requests[-1]
    shown = render_request(refused)
    print(shown)
    assert script.turn < TURNS / 2, shown
    assert [problem.endswith(f"in a window of {WINDOW}") for problem in refused.refused] == [True], shown
    assert len(server.refusals) == 1, shown
