"""A small agent on the OpenAI Agents SDK, with tools over a folder, whose views fit a budget.

pip install '.[openai-agents]'
OPENAI_API_KEY=... python examples/openai_agents_agent.py FOLDER "What does this project do?"
"""

import asyncio
import sys

from agents import Agent, RunConfig, Runner, function_tool
from files_tools import FileTools

from context_compressor.integrations.openai_agents import Compression


async def main(folder: str, task: str) -> None:
    files = FileTools(folder)

    @function_tool
    def list_files(pattern: str) -> str:
        """List the files whose names match a glob pattern such as *.py."""
        return files.call("list_files", {"pattern": pattern})

    @function_tool
    def read_file(path: str) -> str:
        """Return the text of a file."""
        return files.call("read_file", {"path": path})

    c = Compression(max_total_tokens=16_000)
    agent = Agent("Reader", model=c.model("gpt-5"), tools=[list_files, read_file, *c.tools])
    result = await Runner.run(agent, task, max_turns=500, run_config=RunConfig(call_model_input_filter=c))
    print(result.final_output)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
