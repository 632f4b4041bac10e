"""Agents that call, hear and follow one another, each with a memory of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from agentscope.formatter import (
    DashScopeMultiAgentFormatter,
    OpenAIMultiAgentFormatter,
)
from agentscope.pipeline import MsgHub

from tests.integrations.agents.depot import make_toolkit, read
from tests.integrations.agents.support import (
    DASHSCOPE,
    OPENAI,
    SMALL_BUDGET,
    SMALL_WINDOW,
    WatchedMemory,
    Wire,
    assert_sound,
    make_agent,
    user,
)
from tests.support.model_server import ModelServer, Received, Reply, answer
from tests.support.rendering import text_of


class Readers:
    """Models, told apart by their system prompt, that read so many logs when asked and then say so."""

    def __init__(self, logs: int) -> None:
        self.logs = logs
        self.turns: dict[str, int] = {}

    def __call__(self, messages: list[dict[str, Any]], received: Received) -> Reply:
        name = text_of(messages[0]).removeprefix("You are ").partition(".")[0]
        turn = self.turns[name] = self.turns.get(name, -1) + 1
        calls: list[tuple[str, dict[str, str]]] = [read(turn % 30)]
        if turn % (self.logs + 1) < self.logs:
            return answer(tool_calls=calls)
        return answer(f"{name} has read {self.logs} logs more, {turn + 1} replies in all.")


@pytest.mark.parametrize(
    ("wire", "formatter"),
    [
        (OPENAI, OpenAIMultiAgentFormatter),
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
