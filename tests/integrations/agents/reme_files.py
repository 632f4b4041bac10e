"""Save a session of ReMe's short-term memory with its files; run in ReMe's own environment.

`tests/examples/reme` holds what it wrote: results that were moved out, and summaries that stand for messages,
of which one file names others.

    python reme_files.py FOLDER
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from agentscope.message import Msg, TextBlock, ToolResultBlock, ToolUseBlock
from flowllm.core.context import C
from flowllm.core.llm import BaseLLM
from flowllm.core.schema import Message
from reme_ai import ReMeApp

from tests.integrations.agents.reme_agent import ReMeMemory, save


@C.register_llm("scripted")
class Scripted(BaseLLM):
    async def achat(self, messages: list[Message], *_: Any, callback_fn: Any = None, **__: Any) -> Any:
        answer = Message(role="assistant", content="<state_snapshot>Hosts were looked at.</state_snapshot>")
        return callback_fn(answer) if callback_fn else answer


def turn(host: int) -> list[Msg]:
    call = {"id": f"call_{host}", "name": "read_log"}
    lines = "\n".join(f"02:{minute:02} host-{host} order {host * 100 + minute}" for minute in range(12))
    result = ToolResultBlock(type="tool_result", output=[TextBlock(type="text", text=lines)], **call)
    return [
        Msg("user", f"Look at host {host}.", "user"),
        Msg("Ada", [ToolUseBlock(type="tool_use", input={"host": host}, **call)], "assistant"),
        Msg("system", [result], "system"),
        Msg("Ada", [TextBlock(type="text", text=f"Host {host} is well.")], "assistant"),
    ]


async def main() -> None:
    os.chdir(sys.argv[1])
    keys = dict.fromkeys(("llm_api_key", "embedding_api_key", "llm_api_base", "embedding_api_base"), "-")
    async with ReMeApp("llm.default.backend=scripted", **keys) as app:
        memory = ReMeMemory(app, max_total_tokens=150, max_tool_message_tokens=50, keep_recent_count=3)
        memory.settings["store_dir"] = "files"  # as "working_memory" is ignored by git
        for host in range(9):
            mode = "compact" if host < 4 or host == 8 else "compress"
            memory.settings |= {"working_summary_mode": mode, "chat_id": f"chat-{host}"}
            memory.settings["group_token_threshold"] = 200 if host < 7 else 0
            await memory.add(turn(host))
            await memory.get_memory()
    save("session.json", json.dumps({"agent": {"name": "Ada", "memory": memory.state_dict()}}, indent=1))


if __name__ == "__main__":
    asyncio.run(main())
