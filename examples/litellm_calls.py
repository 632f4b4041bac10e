"""A loop of LiteLLM calls, with tools over a folder, whose views fit a budget.

pip install '.[litellm]'
OPENAI_API_KEY=... python examples/litellm_calls.py FOLDER "What does this project do?"
"""

import asyncio
import json
import sys
from typing import Any

import litellm
from files_tools import SCHEMAS, FileTools

from context_compressor.integrations.litellm import Compression


async def main(folder: str, task: str) -> None:
    litellm.callbacks = [Compression(max_total_tokens=16_000)]
    files = FileTools(folder)
    messages: list[Any] = [{"role": "user", "content": task}]
    while True:
        response: Any = await litellm.acompletion(model="openai/gpt-5", messages=messages, tools=SCHEMAS)
        said = response.choices[0].message
        messages.append(said)
        if not said.tool_calls:
            print(said.content)
            return
        for call in said.tool_calls:
            result = files.call(call.function.name, json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
