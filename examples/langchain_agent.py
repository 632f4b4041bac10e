"""A small agent on LangChain 1.x, whose model reads views of the conversation.

pip install '.[langchain]' langchain-openai
OPENAI_API_KEY=... python examples/langchain_agent.py FOLDER "What does this project do?"
"""

import os
import sys
from typing import Any

from files_tools import SCHEMAS, FileTools
from langchain.agents import create_agent
from langchain_core.tools import StructuredTool

from context_compressor.integrations.langchain import Compression


def tool(files: FileTools, name: str, description: str, parameters: dict[str, Any]) -> StructuredTool:
    def look(**arguments: Any) -> str:
        return files.call(name, arguments)

    return StructuredTool(name=name, description=description, args_schema=parameters, func=look)


def main(folder: str, task: str) -> None:
    tools = [tool(FileTools(folder), **schema["function"]) for schema in SCHEMAS]
    compression = Compression(max_total_tokens=16_000)
    agent = create_agent("openai:gpt-4o-mini", tools, middleware=[compression])
    asked: Any = {"messages": [{"role": "user", "content": task}]}
    print(agent.invoke(asked, {"recursion_limit": 500})["messages"][-1].text)
    if stats := compression.stats():
        print(f"history {stats.history_tokens:,} tokens, view {stats.view_tokens:,}", file=sys.stderr)


if __name__ == "__main__":
    if len(sys.argv) != 3 or not os.environ.get("OPENAI_API_KEY"):
        print(f"usage: OPENAI_API_KEY=... python {sys.argv[0]} FOLDER TASK", file=sys.stderr)
        sys.exit(2)
    main(*sys.argv[1:])
