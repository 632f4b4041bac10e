"""An agent of AgentScope 1, with its own tools; streamed."""

import asyncio

from agentscope.agent import ReActAgent
from agentscope.formatter import OpenAIChatFormatter
from agentscope.memory import InMemoryMemory
from agentscope.message import Msg
from agentscope.model import OpenAIChatModel
from agentscope.tool import Toolkit, execute_shell_command, view_text_file
from work import BASE_URL, MOST_TURNS, REQUEST


async def main() -> None:
    toolkit = Toolkit()
    toolkit.register_tool_function(view_text_file)
    toolkit.register_tool_function(execute_shell_command)
    agent = ReActAgent(
        "reader",
        "You read logs.",
        OpenAIChatModel("gpt-5", client_kwargs={"base_url": BASE_URL}),
        OpenAIChatFormatter(),
        toolkit,
        InMemoryMemory(),
        max_iters=MOST_TURNS,
    )
    agent.set_console_output_enabled(False)
    print((await agent(Msg("user", REQUEST, "user"))).get_text_content())


asyncio.run(main())
