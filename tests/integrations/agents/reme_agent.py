"""A real agent with ReMe's short-term memory, in ReMe's own environment: what `test_reme.py` starts.

The memory does in `get_memory` what AgentScope's `ReMeShortTermMemory` (an example in its repository) does,
with that class's defaults; `benchmarks/peers/reme_short_term.py` measures the same flow.

    python reme_agent.py URL COMPATIBLE_URL FOLDER MAX_ITERS BUDGET
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import dashscope
from agentscope.agent import ReActAgent
from agentscope.formatter import DashScopeChatFormatter
from agentscope.memory import InMemoryMemory
from agentscope.message import Msg, TextBlock, ToolResultBlock, ToolUseBlock
from agentscope.model import DashScopeChatModel
from reme_ai import ReMeApp

from tests.integrations.agents.depot import PROMPT, TASK, make_toolkit


class ReMeMemory(InMemoryMemory):
    """Give what the flow `summary_working_memory_for_as` makes of the messages, and keep only that."""

    def __init__(self, app: Any, **settings: Any) -> None:
        super().__init__()
        self._app = app
        self.settings = settings
        self._formatter = DashScopeChatFormatter()

    async def get_memory(self, *_: Any, **__: Any) -> list[Msg]:
        messages = await self._formatter.format([msg for msg, _ in self.content])
        for message in messages:
            if isinstance(message.get("content"), list):
                message["content"] = ""
        settings = {
            "working_summary_mode": "auto",
            "compact_ratio_threshold": 0.75,
            "max_tool_message_tokens": 2000,
            "group_token_threshold": None,
            "keep_recent_count": 10,
            "store_dir": "working_memory",
            "chat_id": uuid4().hex,
        }
        done = await self._app.async_execute(
            name="summary_working_memory_for_as", messages=messages, **(settings | self.settings)
        )
        for name, text in (done["metadata"].get("write_file_dict") or {}).items():
            save(name, text)
        self.content = [(_loaded(message), []) for message in done["answer"]]
        return [msg for msg, _ in self.content]


def save(name: str, text: str) -> None:
    """Write a file, and make its folder."""
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(text, encoding="utf-8")


def _loaded(message: dict[str, Any]) -> Msg:
    role, text = message["role"], message.get("content")
    blocks: list[Any] = []
    if role == "tool":
        output = [TextBlock(type="text", text=text)] if text else []
        blocks.append(
            ToolResultBlock(
                type="tool_result", id=message["tool_call_id"], name=message.get("name") or "", output=output
            )
        )
    elif text:
        blocks.append(TextBlock(type="text", text=text))
    for call in message.get("tool_calls") or []:
        function = call["function"]
        arguments = json.loads(function["arguments"] or "{}")
        blocks.append(ToolUseBlock(type="tool_use", id=call["id"], name=function["name"], input=arguments))
    speaker = "system" if role == "tool" else role
    return Msg(speaker, blocks, speaker)


async def main() -> None:
    url, compatible_url, folder, max_iters, budget = sys.argv[1:]
    dashscope.base_http_api_url = url
    keys = dict.fromkeys(("llm_api_key", "embedding_api_key"), "test")
    bases = dict.fromkeys(("llm_api_base", "embedding_api_base"), compatible_url)
    async with ReMeApp("llm.default.model_name=scripted", **keys, **bases) as app:
        agent = ReActAgent(
            "Ada",
            PROMPT,
            DashScopeChatModel("scripted", "test", stream=False),
            DashScopeChatFormatter(),
            make_toolkit(Path(folder)),
            ReMeMemory(app, max_total_tokens=int(budget)),
            max_iters=int(max_iters),
        )
        agent.set_console_output_enabled(False)
        print((await agent(Msg("user", TASK, "user"))).get_text_content())


if __name__ == "__main__":
    asyncio.run(main())
