"""A small agent on LangChain 1.x: middleware that sends views, tools to read back what left them.

    pip install langchain langchain-openai
    OPENAI_API_KEY=... python examples/langchain_agent.py FOLDER "What does this project do?"

The agent's state keeps every message, whatever the model read. Each thread has a memory of its own, and so an
agent that another one's tool calls needs a thread id of its own. For `ainvoke` and `astream`.
"""

import argparse
import asyncio
import json
import os
import sys
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

from files_tools import SCHEMAS, FileTools
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.messages import convert_to_messages, convert_to_openai_messages
from langchain_core.tools import StructuredTool
from langgraph.config import get_config

from context_compressor import CompressedMemory, CompressionConfig, OffloadTools, to_openai


class Views(AgentMiddleware):
    def __init__(self, config: CompressionConfig) -> None:
        super().__init__()
        self.memories: dict[str, CompressedMemory] = defaultdict(lambda: CompressedMemory(config=config))
        tools = [tool(schema, self.read_back) for schema in OffloadTools(CompressedMemory()).schemas]
        self.tools = [made for made in tools if made.name != "load_offloaded"]  # would have to add a message

    def memory(self) -> CompressedMemory:
        return self.memories[get_config()["configurable"]["thread_id"]]

    async def read_back(self, name: str, arguments: dict[str, Any]) -> str:
        return await OffloadTools(self.memory()).call(name, arguments)

    async def awrap_model_call(
        self, request: ModelRequest, handler: Callable[[ModelRequest], Awaitable[ModelResponse]]
    ) -> ModelResponse:
        chats, originals = [], {}
        for message in request.messages:
            made = convert_to_openai_messages([message])  # without ids, which may be new on every turn
            chats += made
            if len(made) == 1 and not getattr(message, "invalid_tool_calls", None):
                originals[json.dumps(made[0])] = message  # goes out as it is: chat dicts cannot say all
        memory = self.memory()
        await memory.sync(chats)
        view = to_openai(await memory.get_memory())
        messages: Any = [originals.get(json.dumps(chat)) or convert_to_messages([chat])[0] for chat in view]
        response = await handler(request.override(messages=messages))
        if usage := getattr(response.result[0], "usage_metadata", None):
            memory.record_usage(usage["input_tokens"])  # with the system prompt and the tools' schemas
        return response


def tool(schema: dict[str, Any], call: Callable[[str, dict[str, Any]], Awaitable[str]]) -> StructuredTool:
    name, description, parameters = (schema["function"][key] for key in ("name", "description", "parameters"))

    async def run(**arguments: Any) -> str:
        return await call(name, arguments)

    return StructuredTool(name=name, description=description, args_schema=parameters, coroutine=run)


async def main(folder: str, task: str) -> None:
    files = FileTools(folder)

    async def look(name: str, arguments: dict[str, Any]) -> str:
        return await asyncio.to_thread(files.call, name, arguments)

    views = Views(CompressionConfig(max_total_tokens=16_000))
    agent = create_agent("openai:gpt-4o-mini", [tool(schema, look) for schema in SCHEMAS], middleware=[views])
    asked: Any = {"messages": [{"role": "user", "content": task}]}
    answer = await agent.ainvoke(asked, {"configurable": {"thread_id": "1"}, "recursion_limit": 500})
    print(answer["messages"][-1].text)
    stats = views.memories["1"].stats()
    print(f"history {stats.history_tokens:,} tokens, view {stats.view_tokens:,}", file=sys.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", help="the folder to look at")
    parser.add_argument("task", help="what to find out")
    options = parser.parse_args()
    if not os.environ.get("OPENAI_API_KEY"):
        parser.error("set OPENAI_API_KEY (any text where the server at OPENAI_BASE_URL asks for none)")
    asyncio.run(main(options.folder, options.task))
