"""An agent on AgentScope 1.x that looks through a folder; its model reads views of 16,000 tokens.

    pip install '.[agentscope]'
    OPENAI_API_KEY=... python examples/agentscope_agent.py FOLDER "What does this project do?"

Its memory keeps every message. For AgentScope 2 there is agentscope2_agent.py.
"""

import asyncio
import sys
from pathlib import Path

from agentscope.agent import ReActAgent
from agentscope.formatter import OpenAIChatFormatter
from agentscope.message import Msg
from agentscope.model import OpenAIChatModel
from agentscope.tool import Toolkit, view_text_file

from context_compressor.integrations.agentscope import AgentScopeCompressedMemory


async def main(files: list[str], task: str) -> None:
    toolkit = Toolkit()
    toolkit.register_tool_function(view_text_file)
    agent = ReActAgent(
        "reader",
        f"You answer questions about {', '.join(files)}.",
        OpenAIChatModel("gpt-4o-mini", stream=False),
        OpenAIChatFormatter(),
        toolkit,
        AgentScopeCompressedMemory(max_total_tokens=16_000, toolkit=toolkit),
        max_iters=200,
    )
    agent.set_console_output_enabled(False)
    print((await agent(Msg("user", task, "user"))).get_text_content())


asyncio.run(main(sorted(map(str, Path(sys.argv[1]).iterdir())), sys.argv[2]))
