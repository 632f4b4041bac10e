"""An agent of Pydantic AI that reads a folder within 16,000 tokens; `all_messages()` stays whole.

pip install '.[pydantic-ai]'
OPENAI_API_KEY=... python examples/pydantic_ai_agent.py FOLDER "What does this project do?"
"""

import sys
from pathlib import Path

from pydantic_ai import Agent, UsageLimits

from context_compressor.integrations.pydantic_ai import Compression

agent = Agent(
    "openai:gpt-5",
    instructions="Answer from the files, and name them.",
    capabilities=[Compression(max_total_tokens=16_000)],
)


@agent.tool_plain
def list_files() -> str:
    """List the files of the folder."""
    return "\n".join(sorted(path.name for path in folder.iterdir() if path.is_file()))


@agent.tool_plain
def read_file(path: str) -> str:
    """Read a file of the folder."""
    return (folder / Path(path).name).read_text(encoding="utf-8", errors="replace")


folder, task = Path(sys.argv[1]), sys.argv[2]
result = agent.run_sync(task, usage_limits=UsageLimits(request_limit=500))
print(result.output)
