"""An agent's loop that owns its list of messages, with tools to read back what left its view.

The model is a script, so that this needs no key and no network. With a real one, `answer` is
`client.chat.completions.create(model=..., messages=view, tools=TOOLS + offloaded.schemas)`.

    python examples/agent_loop.py
"""

import asyncio
import json
from typing import Any

from make_session import BROKEN_HOST, HOSTS, read_log

from context_compressor import CompressedMemory, CompressionConfig, OffloadTools, to_openai

Message = dict[str, Any]


def call(name: str, **arguments: Any) -> Message:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": f"call_{name}_{arguments}", "type": "function", "function": function}],
    }


def answer(view: list[Message], turn: int) -> Message:
    """Do what a model would: read every log, then look up again what it no longer sees."""
    if turn < HOSTS:
        return call("read_log", host=turn)
    if turn == HOSTS:
        return call("grep_offloaded", pattern="ERROR", context=1)
    return {"role": "assistant", "content": f"Host {BROKEN_HOST}; its log says:\n{view[-1]['content']}"}


async def main() -> None:
    memory = CompressedMemory(config=CompressionConfig(max_total_tokens=16_000), on_event=print)
    offloaded = OffloadTools(memory)
    messages: list[Message] = [
        {"role": "system", "content": "You look after 40 hosts. Read logs with read_log(host)."},
        {"role": "user", "content": "Which host dropped an order last night, and why?"},
    ]
    for turn in range(HOSTS + 2):
        await memory.sync(messages)
        view = to_openai(await memory.get_memory())
        said = answer(view, turn)
        messages.append(said)
        for made in said.get("tool_calls", []):
            name, arguments = made["function"]["name"], json.loads(made["function"]["arguments"])
            result = read_log(**arguments) if name == "read_log" else await offloaded.call(name, arguments)
            messages.append({"role": "tool", "tool_call_id": made["id"], "content": result})
    print(messages[-1]["content"])
    stats = memory.stats()
    print(f"history {stats.history_tokens:,} tokens, view {stats.view_tokens:,}, {stats.events} events")


asyncio.run(main())
