"""A small agent on the openai SDK, whose client keeps its requests within a budget.

OPENAI_API_KEY=... python examples/openai_client.py FOLDER "What does this project do?"
"""

import json
import sys
from typing import Any

from files_tools import SCHEMAS, FileTools
from openai import OpenAI

from context_compressor.integrations.openai import compressed

client = compressed(OpenAI(), max_total_tokens=16_000)
files = FileTools(sys.argv[1])
tools: Any = SCHEMAS
messages: list[Any] = [{"role": "user", "content": sys.argv[2]}]
while True:
    reply = client.chat.completions.create(model="gpt-5-mini", messages=messages, tools=tools)
    said = reply.choices[0].message
    messages.append(said)
    if not said.tool_calls:
        break
    for call in said.tool_calls:
        if call.type == "function":
            result = files.call(call.function.name, json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
print(said.content)
