"""An agent on AgentScope 2 that looks through a folder; its model reads views of 16,000 tokens.

    pip install '.[agentscope2]'
    OPENAI_API_KEY=... python examples/agentscope2_agent.py FOLDER "What does this project do?"

Saved by `agent.state.model_dump_json()`, and loaded, the agent goes on with the same view.
"""

import asyncio
import os
import sys

from agentscope.agent import Agent, ReActConfig
from agentscope.credential import OpenAICredential
from agentscope.message import UserMsg
from agentscope.model import OpenAIChatModel
from agentscope.permission import PermissionContext, PermissionMode
from agentscope.state import AgentState
from agentscope.tool import Glob, Grep, Read, Toolkit

from context_compressor.integrations.agentscope2 import Compression


async def main(folder: str, task: str) -> None:
    agent = Agent(
        "reader",
        f"You answer questions about the files in {folder}.",
        OpenAIChatModel(OpenAICredential(api_key=os.environ["OPENAI_API_KEY"]), "gpt-4o-mini"),
        Toolkit([Glob(), Grep(), Read()]),
        middlewares=[Compression(max_total_tokens=16_000)],
        state=AgentState(permission_context=PermissionContext(mode=PermissionMode.EXPLORE)),
        react_config=ReActConfig(max_iters=200),
    )
    print((await agent.reply(UserMsg("user", task))).get_text_content())


asyncio.run(main(*sys.argv[1:]))
