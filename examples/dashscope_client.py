"""A small agent on the dashscope SDK, whose requests keep within a budget.

DASHSCOPE_API_KEY=... python examples/dashscope_client.py FOLDER "What does this project do?"
"""

import json
import sys
from typing import Any

from dashscope import Generation
from files_tools import SCHEMAS, FileTools

from context_compressor.integrations.dashscope import compressed

generation = compressed(Generation, max_total_tokens=16_000)
files = FileTools(sys.argv[1])
messages: list[Any] = [{"role": "user", "content": sys.argv[2]}]
while True:
    reply: Any = generation.call("qwen-plus", messages=messages, tools=SCHEMAS, result_format="message")
    if reply.status_code != 200:
        sys.exit(f"{reply.code}: {reply.message}")
    said = reply.output.choices[0].message
    messages.append(said)
    if not said.get("tool_calls"):
        break
    for call in said["tool_calls"]:
        result = files.call(call["function"]["name"], json.loads(call["function"]["arguments"]))
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
print(said["content"])
