"""The agent's own model writes: AgentScope 2."""

from __future__ import annotations

from typing import Any

import pytest
from agentscope.agent import Agent
from agentscope.credential import OpenAICredential
from agentscope.message import UserMsg
from agentscope.model import OpenAIChatModel

from context_compressor.integrations.agentscope2 import Compression
from tests.apart.agentscope2.support import agent_of, tool
from tests.support.model_server import ModelServer
from tests.support.own import *  # noqa: F403  # the tests
from tests.support.own import BENT, MODEL, Ran, Rig
from tests.support.task import GREP, QUERY, READ_FILE, REQUEST, Workplace


class AgentScope2:
    takes_names = False
    writes_in_place = True

    async def run(self, server: ModelServer, place: Workplace, *, bent: bool = False, **fields: Any) -> Ran:
        parameters = OpenAIChatModel.Parameters(max_tokens=50) if bent else None
        more: Any = {"n": 2, "stop": ["\n\n"], "metadata": BENT["metadata"]} if bent else None
        model = OpenAIChatModel(
            OpenAICredential(api_key="x", base_url=server.url),
            MODEL,
            parameters,
            stream=True,
            max_retries=0,
            client_kwargs={"max_retries": 0},
            extra_body=more,
        )
        schemas = ((place.read_file, READ_FILE), (place.grep_files, GREP), (place.query, QUERY))
        async with model.client:
            compression = Compression(**fields)
            agent: Agent = agent_of(model, compression, [tool(*one) for one in schemas])
            heard = [event async for event in agent.reply_stream(UserMsg("user", REQUEST))]
        return Ran(compression.stats(), str(heard))


@pytest.fixture
def rig() -> Rig:
    return AgentScope2()
