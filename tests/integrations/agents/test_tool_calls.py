"""Calls at once, out of order, wrong, failing: the views that follow are valid, and nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from agentscope.tool import Toolkit, ToolResponse

from tests.integrations.agents.depot import log_name, make_toolkit, read, say
from tests.integrations.agents.support import (
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
from tests.support.model_server import ModelServer, answer

# AgentScope makes all its calls before it awaits the first.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine 'ReActAgent._acting' was never awaited")


def make_racing_toolkit(folder: Path, runners: int) -> Toolkit:
    """Return a toolkit whose `race` is called by `runners` at once: each waits for the one after it."""
    passed = [asyncio.Event() for _ in range(runners)]
    toolkit = make_toolkit(folder)

    async def race(runner: int, name: str) -> ToolResponse:
        """Read a file after the next runner has.

        Args:
            runner (int): Which runner this is.
            name (str): The name of the file.
        """
        if runner + 1 < runners:
            await passed[runner + 1].wait()
            passed[runner + 1].clear()
        passed[runner].set()
        return say((folder / name).read_text(encoding="utf-8"))

    toolkit.register_tool_function(race)
    return toolkit


@pytest.mark.variants(1)
@in_every_way
async def test_parallel_calls_whose_results_arrive_in_reverse_are_one_exchange(
    wire: Wire, stream: bool, depots: Path
) -> None:
    """Three at a time, ten times over: four thousand tokens hold two rounds at most."""
    async with ModelServer(window_tokens=SMALL_WINDOW) as server, wire.model(server, stream) as model:
        rounds = [
            answer(tool_calls=[("race", {"runner": n, "name": log_name(3 * number + n)}) for n in range(3)])
            for number in range(10)
        ]
        server.script(*rounds, answer("All thirty were read."))
        memory = WatchedMemory(SMALL_BUDGET)
        toolkit = make_racing_toolkit(depots, 3)
        agent = make_agent(wire, model, toolkit, memory, max_iters=20, parallel_tool_calls=True)
        await agent(user("Read every log."))
        await assert_sound(server, memory)
    history = await memory.get_history()
    results = [block["id"] for msg in history for block in msg.get_content_blocks("tool_result")]
    calls = [[block["id"] for block in msg.get_content_blocks("tool_use")] for msg in history]
    assert results == [id for ids in calls for id in reversed(ids)]
    assert memory.stats().noted > 0


@pytest.mark.variants(1)
@in_every_way
async def test_what_goes_wrong_in_a_call_is_answered_and_the_agent_goes_on(
    wire: Wire, stream: bool, depots: Path
) -> None:
    """A tool that raises, one that is not there, arguments it does not take, JSON that breaks off."""
    wrong = [
        ("read_file", {"name": "nowhere.log"}),
        ("query_parcels", {"sql": "select nothing from nowhere"}),
        ("grep_files", {"pattern": "(((("}),
        ("no_such_tool", {"name": "x"}),
        ("read_file", {"file": 5}),
        ("read_file", '{"name": "depot-0'),
        ("read_file", "no JSON at all"),
        ("read_file", "[1, 2]"),
    ]
    async with ModelServer(window_tokens=SMALL_WINDOW) as server, wire.model(server, stream) as model:
        replies = []
        for number, call in enumerate(wrong):
            replies += [answer(f"Try {number}.", [call]), answer(tool_calls=[read(2 * number)])]
            replies.append(answer(tool_calls=[call, read(2 * number + 1)]))
        server.script(*replies, answer("Some of it went wrong."))
        memory = WatchedMemory(SMALL_BUDGET)
        agent = make_agent(wire, model, make_toolkit(depots), memory, max_iters=30)
        assert (await agent(user("Try everything."))).get_text_content() == "Some of it went wrong."
        await assert_sound(server, memory)
    assert memory.stats().noted > 0


@pytest.mark.variants(1)
@on_every_wire
async def test_a_tool_that_breaks_in_its_stream_ends_the_reply_and_the_next_one_is_valid(
    wire: Wire, depots: Path
) -> None:
    """AgentScope raises what the tool raised, and answers none of the calls."""
    toolkit = make_toolkit(depots)

    async def tail_log() -> AsyncIterator[ToolResponse]:
        """Follow a log."""
        yield say("06:00 parcel PX-0000049")
        raise ConnectionResetError("the log is gone")

    toolkit.register_tool_function(tail_log)
    async with ModelServer(window_tokens=SMALL_WINDOW) as server, wire.model(server) as model:
        server.script(
            *[answer(tool_calls=[read(number)]) for number in range(6)],
            answer(tool_calls=[("tail_log", {}), read(6), read(7)]),
            answer("I go on."),
        )
        memory = WatchedMemory(SMALL_BUDGET)
        agent = make_agent(wire, model, toolkit, memory)
        with pytest.raises(ConnectionResetError):
            await agent(user("Follow the log."))
        assert (await agent(user("Again."))).get_text_content() == "I go on."
        await assert_sound(server, memory)
