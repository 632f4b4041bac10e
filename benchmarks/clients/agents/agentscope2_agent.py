"""An agent of AgentScope 2, with its own tools; streamed."""

import asyncio

from agentscope.agent import Agent, ReActConfig
from agentscope.credential import OpenAICredential
from agentscope.message import UserMsg
from agentscope.model import OpenAIChatModel
from agentscope.permission import PermissionContext, PermissionMode
from agentscope.state import AgentState
from agentscope.tool import Bash, Read, Toolkit
from work import BASE_URL, MOST_TURNS, REQUEST


async def main() -> None:
    credential = OpenAICredential(api_key="sk-of-the-caller", base_url=BASE_URL)
    agent = Agent(
        "reader",
        "You read logs.",
        OpenAIChatModel(credential, "gpt-5", context_size=400_000),
        Toolkit([Read(), Bash()]),
        state=AgentState(permission_context=PermissionContext(mode=PermissionMode.BYPASS)),
        react_config=ReActConfig(max_iters=MOST_TURNS),
    )
    print((await agent.reply(UserMsg("user", REQUEST))).get_text_content())


asyncio.run(main())
