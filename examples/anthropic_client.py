"""A small agent on the anthropic SDK, whose client keeps its requests within a budget.

ANTHROPIC_API_KEY=... python examples/anthropic_client.py FOLDER "What does this project do?"
"""

import sys
from typing import Any

from anthropic import Anthropic
from files_tools import SCHEMAS, FileTools

from context_compressor.integrations.anthropic import compressed

client = compressed(Anthropic(), max_total_tokens=16_000)
files = FileTools(sys.argv[1])
functions = [schema["function"] for schema in SCHEMAS]
tools: Any = [{"name": one["name"], "input_schema": one["parameters"]} for one in functions]
messages: list[Any] = [{"role": "user", "content": sys.argv[2]}]
while True:
    with client.messages.stream(
        model="claude-sonnet-4-5", max_tokens=4_096, messages=messages, tools=tools
    ) as stream:
        for text in stream.text_stream:
            print(text, end="", flush=True)
        reply = stream.get_final_message()
    messages.append({"role": "assistant", "content": reply.content})
    calls = [block for block in reply.content if block.type == "tool_use"]
    if not calls:
        break
    results = [(call.id, files.call(call.name, call.input)) for call in calls]
    blocks = [{"type": "tool_result", "tool_use_id": id, "content": text} for id, text in results]
    messages.append({"role": "user", "content": blocks})
