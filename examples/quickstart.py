"""An agent reads forty logs on a budget of 2,000 tokens; no key, no network: python examples/quickstart.py"""

from typing import Any

from context_compressor import CompressedMemory

memory = CompressedMemory(max_total_tokens=2_000)
messages: list[Any] = [{"role": "user", "content": "Which host dropped an order last night, and why?"}]
for host in range(40):
    arguments = f'{{"host": {host}}}'
    call = {
        "id": f"call_{host}",
        "type": "function",
        "function": {"name": "read_log", "arguments": arguments},
    }
    log = "\n".join(f"02:{minute:02} host-{host} order {host * 60 + minute} shipped" for minute in range(60))
    if host == 17:
        log += "\n02:41 host-17 ERROR order 1061 dropped: disk quota exceeded on /var/spool"
    messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
    messages.append({"role": "tool", "tool_call_id": call["id"], "content": log})
    view = memory.view_sync(messages)  # what you send to the model, at every turn

for message in view[:2]:
    print(f"{message['role']}: {message['content']}")
stats = memory.stats()
print(f"\n{len(messages)} messages of {stats.history_tokens:,} tokens; the view has {stats.view_tokens:,}")
print(memory.tools().call_sync("grep_offloaded", {"pattern": "order 1061 dropped"}))
