"""What holds for every adapter, for agents of AgentScope 2."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from agentscope.agent import Agent as AgentOfTheirs
from agentscope.credential import OpenAICredential
from agentscope.message import TextBlock, UserMsg
from agentscope.model import OpenAIChatModel
from agentscope.state import AgentState

from context_compressor.integrations.agentscope2 import Compression
from tests.apart.agentscope2.support import agent_of, output_of
from tests.apart.agentscope2.support import tool as tool_of
from tests.support.behaviours import *  # noqa: F403  # the tests
from tests.support.behaviours import BENT, Agent, Rig, Setup, Tool


@dataclass
class AgentScope2Agent(Agent):
    made: Any = None

    async def ask(self, text: str) -> str:
        agent: AgentOfTheirs = self.made
        if self.how == "streamed":
            self.heard += [event async for event in agent.reply_stream(UserMsg("user", text))]
            return str(agent.state.context[-1].get_text_content())
        return str((await agent.reply(UserMsg("user", text))).get_text_content())

    async def told(self) -> list[str]:
        blocks = [block for msg in self.made.state.context for block in msg.get_content_blocks()]
        held = [block for block in blocks if block.type in ("text", "tool_result")]
        return [block.text if isinstance(block, TextBlock) else output_of(block) for block in held]

    async def save(self) -> Any:
        return self.made.state.model_dump_json()


class AgentScope2(Rig):
    takes_names = False
    keeps_states = False

    def adapter(self, **options: Any) -> Any:
        return Compression(**options)

    @asynccontextmanager
    async def agent(self, to: Setup) -> AsyncIterator[Agent]:
        more: Any = {"n": 2, "stop": ["\n\n"], "metadata": BENT["metadata"]} if to.bent else None
        used = OpenAIChatModel(
            OpenAICredential(api_key="x", base_url=to.server.url),
            to.model,
            OpenAIChatModel.Parameters(max_tokens=50) if to.bent else None,
            stream=to.how == "streamed",
            max_retries=0,
            client_kwargs={"max_retries": 0},
            extra_body=more,
        )
        state = None if to.saved is None else AgentState.model_validate_json(to.saved)
        async with used.client:
            made = agent_of(used, to.adapter, [_tool(one) for one in to.tools], state)
            yield AgentScope2Agent(to.how, to.adapter, calls=None, made=made)


def _tool(one: Tool) -> Any:
    async def call(**arguments: Any) -> str:
        return await one.call(arguments)

    return tool_of(call, {"name": one.name, "description": one.description, "parameters": one.parameters})


@pytest.fixture
def rig() -> Rig:
    return AgentScope2()


@pytest.fixture
def rich_rig(rig: Rig) -> Rig:
    return rig
