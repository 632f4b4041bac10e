"""An agent that is interrupted goes on afterwards: no request is refused, no message lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from agentscope.agent import ReActAgent
from agentscope.tool import Toolkit, ToolResponse

from context_compressor.integrations.agentscope import AgentScopeCompressedMemory
from tests.integrations.agents.depot import make_toolkit, read, say
from tests.integrations.agents.support import (
    DASHSCOPE,
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
from tests.support.model_server import ModelServer, answer, half_stream, hang

# AgentScope makes all its calls before it awaits the first.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine 'ReActAgent._acting' was never awaited")

Interrupt = Callable[[ReActAgent, "asyncio.Task[Any]"], Awaitable[None]]


async def by_the_agents_method(agent: ReActAgent, _: asyncio.Task[Any]) -> None:
    await agent.interrupt()


async def by_cancelling_its_task(_: ReActAgent, task: asyncio.Task[Any]) -> None:
    task.cancel()


def add_waiting_tool(toolkit: Toolkit) -> asyncio.Event:
    """Register `wait`, which never answers, and return what it sets when it is called."""
    called = asyncio.Event()

    async def wait() -> ToolResponse:
        """Wait for news."""
        called.set()
        await asyncio.Event().wait()
        return say("There is news.")

    toolkit.register_tool_function(wait)
    return called


async def interrupted(agent: ReActAgent, when: asyncio.Event, how: Interrupt) -> None:
    """Let the agent work until then, interrupt it, and check that it noticed."""
    task = asyncio.create_task(agent(user("Read on.")))
    await when.wait()
    await how(agent, task)
    assert (await task).metadata == {"_is_interrupted": True}


@pytest.mark.parametrize(
    ("wire", "how"),
    [(OPENAI, by_the_agents_method), (DASHSCOPE, by_cancelling_its_task)],
    ids=["openai, method", "dashscope, cancelled"],
)
async def test_interrupted_in_the_first_of_three_calls_it_goes_on(
    wire: Wire, how: Interrupt, depots: Path
) -> None:
    """The other two calls have no result, for which AgentScope's own memory leads to a refusal."""
    toolkit = make_toolkit(depots)
    called = add_waiting_tool(toolkit)
    async with ModelServer(window_tokens=SMALL_WINDOW) as server, wire.model(server) as model:
        memory = WatchedMemory(SMALL_BUDGET)
        agent = make_agent(wire, model, toolkit, memory, max_iters=20)
        server.script(
            *[answer(tool_calls=[read(number)]) for number in range(6)],
            answer(tool_calls=[("wait", {}), read(6), read(7)]),
            *[answer(tool_calls=[read(number)]) for number in range(8, 16)],
            answer("All were read."),
        )
        await interrupted(agent, called, how)
        assert (await agent(user("Go on."))).get_text_content() == "All were read."
        await assert_sound(server, memory)
    assert memory.stats().noted > 0


@pytest.mark.variants(1)
@on_every_wire
async def test_interrupted_in_parallel_calls_it_goes_on(wire: Wire, depots: Path) -> None:
    """Every call is answered then: AgentScope says for each that it was interrupted."""
    toolkit = make_toolkit(depots)
    called = add_waiting_tool(toolkit)
    async with ModelServer(window_tokens=SMALL_WINDOW) as server, wire.model(server) as model:
        memory = WatchedMemory(SMALL_BUDGET)
        agent = make_agent(wire, model, toolkit, memory, max_iters=20, parallel_tool_calls=True)
        for number in range(4):
            called.clear()
            server.script(
                answer(tool_calls=[read(3 * number), read(3 * number + 1)]),
                answer(tool_calls=[read(3 * number + 2), ("wait", {}), ("wait", {})]),
                answer("Done."),
            )
            await interrupted(agent, called, by_the_agents_method)
        await agent(user("Go on."))
        await assert_sound(server, memory)
    assert memory.stats().events > 0


@pytest.mark.variants(2)
@in_every_way
async def test_interrupted_while_the_model_speaks_it_goes_on(wire: Wire, stream: bool, depots: Path) -> None:
    """With half an answer, if it came in pieces: AgentScope answers its calls, cut short or not."""
    async with ModelServer(window_tokens=SMALL_WINDOW) as server, wire.model(server, stream) as model:
        memory = WatchedMemory(SMALL_BUDGET)
        agent = make_agent(wire, model, make_toolkit(depots), memory, max_iters=20)
        for number, calls in enumerate([[], [read(20)], [read(21), read(22)]]):
            server.started.clear()
            server.script(
                *[answer(tool_calls=[read(3 * number + n)]) for n in range(3)],
                half_stream("I begin to think.", calls, then="hang") if stream else hang(),
                answer(tool_calls=[read(10 + number)]),
                answer("Done."),
            )
            await interrupted(agent, server.started, by_the_agents_method)
            assert (await agent(user("Go on."))).get_text_content() == "Done."
        await assert_sound(server, memory)
    assert memory.stats().events > 0


@pytest.mark.variants(1)
@on_every_wire
async def test_interrupted_while_the_memory_summarises_it_goes_on(wire: Wire, depots: Path) -> None:
    """The summary is asked for again, and nothing has changed meanwhile."""
    summaries = 0

    def policy(messages: list[dict[str, Any]], received: Any) -> Any:
        nonlocal summaries
        if not received.tools:
            summaries += 1
            return hang() if summaries == 1 else answer("## Goal\n- Read on.")
        turn = sum(1 for request in server.requests if request.tools)
        return answer(tool_calls=[read(turn)]) if turn < 20 else answer("All were read.")

    async with ModelServer(policy, SMALL_WINDOW) as server, wire.model(server) as model:
        memory = WatchedMemory(SMALL_BUDGET, summarizer=wire.summarizer(server))
        agent = make_agent(wire, model, make_toolkit(depots), memory, max_iters=30)
        await interrupted(agent, server.started, by_the_agents_method)
        assert memory.stats().noted == 0
        server.release()
        assert (await agent(user("Go on."))).get_text_content() == "All were read."
        await assert_sound(server, memory)
    assert memory.stats().noted > 0
    assert summaries > 1


async def test_what_is_being_added_when_an_agent_is_interrupted_is_added() -> None:
    """AgentScope's own memory adds without a pause, in which nothing can be cancelled."""
    memory = AgentScopeCompressedMemory()
    adding = asyncio.create_task(memory.add(user("The tool has run, and this is its log.\n" * 20_000)))
    await asyncio.sleep(0)
    adding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await adding
    assert await memory.size() == 1
