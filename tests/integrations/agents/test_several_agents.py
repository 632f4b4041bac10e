"""Agents that call, hear and follow one another, each with a memory of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from agentscope.formatter import (
    DashScopeChatFormatter,
    DashScopeMultiAgentFormatter,
    OpenAIChatFormatter,
    OpenAIMultiAgentFormatter,
)
from agentscope.pipeline import MsgHub
from agentscope.tool import ToolResponse

from context_compressor import FileOffloadStore, OffloadTools
from tests.integrations.agents.depot import make_toolkit, read, say
from tests.integrations.agents.support import (
    DASHSCOPE,
    OPENAI,
    SMALL_BUDGET,
    SMALL_WINDOW,
    WatchedMemory,
    Wire,
    assert_sound,
    make_agent,
    on_every_wire,
    user,
)
from tests.support.model_server import ModelServer, Received, Reply, answer
from tests.support.rendering import text_of


class Readers:
    """Models, told apart by their system prompt, that read `logs` logs when they are asked and then say so.

    The leader asks a helper beside every sixth log.
    """

    def __init__(self, logs: int) -> None:
        self.logs = logs
        self.turns: dict[str, int] = {}

    def __call__(self, messages: list[dict[str, Any]], received: Received) -> Reply:
        name = text_of(messages[0]).removeprefix("You are ").partition(".")[0]
        turn = self.turns[name] = self.turns.get(name, -1) + 1
        calls: list[tuple[str, dict[str, str]]] = [read(turn % 30)]
        if name == "the leader" and turn % 6 == 5:
            calls.append(("ask_helper", {"question": "How far are you?"}))
        if turn % (self.logs + 1) < self.logs:
            return answer(tool_calls=calls)
        return answer(f"{name} has read {self.logs} logs more, {turn + 1} replies in all.")


@pytest.mark.parametrize(
    ("wire", "formatter"),
    [
        (OPENAI, OpenAIChatFormatter),
        (OPENAI, OpenAIMultiAgentFormatter),
        (DASHSCOPE, DashScopeChatFormatter),
        (DASHSCOPE, DashScopeMultiAgentFormatter),
    ],
    ids=lambda given: str(given) if isinstance(given, Wire) else given.__name__,
)
async def test_two_agents_in_a_hub_hear_each_other_and_keep_their_own_histories(
    wire: Wire, formatter: Any, depots: Path
) -> None:
    async with ModelServer(Readers(3), SMALL_WINDOW) as server, wire.model(server) as model:
        memories = {name: WatchedMemory(SMALL_BUDGET) for name in ("Bao", "Zofia")}
        agents = [
            make_agent(
                wire,
                model,
                make_toolkit(depots),
                memory,
                name=name,
                sys_prompt=f"You are {name}.",
                formatter=formatter(),
            )
            for name, memory in memories.items()
        ]
        async with MsgHub(agents, announcement=user("Read the logs in turns, and say how far you are.")):
            for _ in range(4):
                for agent in agents:
                    await agent()
        await assert_sound(server, *memories.values())
    for name, other in (("Bao", "Zofia"), ("Zofia", "Bao")):
        history = await memories[name].get_history()
        heard = [msg for msg in history if msg.name == other]
        said = [msg for msg in await memories[other].get_history() if msg.name == other]
        assert [(msg.id, msg.content) for msg in heard] == [
            (msg.id, msg.content) for msg in said if not msg.has_content_blocks("tool_use")
        ]
        assert len(heard) == 4
        assert memories[name].stats().noted > 0


@on_every_wire
async def test_an_agent_called_from_anothers_tool_shares_nothing_with_it(
    wire: Wire, depots: Path, tmp_path: Path
) -> None:
    """Each has a namespace of one store: none reads what another's view has lost, or takes it away."""
    async with ModelServer(Readers(12), SMALL_WINDOW) as server, wire.model(server) as model:
        helpers: list[WatchedMemory] = []

        async def ask_helper(question: str) -> ToolResponse:
            """Ask a helper who reads logs.

            Args:
                question (str): What to find out.
            """
            name = f"helper {len(helpers)}"
            memory = WatchedMemory(SMALL_BUDGET, store=FileOffloadStore(tmp_path, f"helper-{len(helpers)}"))
            helpers.append(memory)
            agent = make_agent(
                wire,
                model,
                make_toolkit(depots),
                memory,
                name=name,
                sys_prompt=f"You are {name}.",
                max_iters=20,
            )
            return say(str((await agent(user(question))).get_text_content()))

        toolkit = make_toolkit(depots)
        toolkit.register_tool_function(ask_helper)
        leading = WatchedMemory(SMALL_BUDGET, store=FileOffloadStore(tmp_path, "leader"))
        leader = make_agent(wire, model, toolkit, leading, sys_prompt="You are the leader.", max_iters=20)
        await leader(user("Read the logs, and have helpers read some."))
        await assert_sound(server, leading, *helpers)
    assert len(helpers) == 2
    refs = await leading.reachable_refs()
    for helper in helpers:
        assert helper.stats().noted > 0
        foreign = [ref for ref in await helper.reachable_refs() if ref not in refs]
        assert foreign
        for ref in foreign:
            assert (await OffloadTools(leading).call("read_offloaded", {"ref": ref})).startswith("No text")
        await helper.clear()
    for ref in refs:
        assert await leading.read_ref(ref)
    await leading.assert_whole()


@on_every_wire
async def test_an_agent_saved_in_the_middle_goes_on_elsewhere_with_the_same_view(
    wire: Wire, depots: Path
) -> None:
    """Its state is JSON, texts that left the view included; the next requests of both are the same."""
    async with ModelServer(Readers(12), SMALL_WINDOW) as server, wire.model(server) as model:
        memory = WatchedMemory(SMALL_BUDGET)
        agent = make_agent(wire, model, make_toolkit(depots), memory, max_iters=20)
        await agent(user("Read twelve logs."))
        saved = json.dumps(agent.state_dict())
        loaded = WatchedMemory(SMALL_BUDGET)
        other = make_agent(wire, model, make_toolkit(depots), loaded, max_iters=20)
        other.load_state_dict(json.loads(saved))
        loaded.given = list(memory.given)
        for each in (agent, other):
            await each(user("Read twelve more."))
        await assert_sound(server, memory, loaded)
    assert len(server.requests) == 3 * 13
    assert server.requests[13].messages == server.requests[26].messages
    assert memory.stats().noted > 0
    for ref in await loaded.reachable_refs():
        assert await loaded.read_ref(ref)
