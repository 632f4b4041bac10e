"""An agent of Anthropic's SDK: messages, streamed or whole."""

import anthropic
from work import API, BASE_URL, DESCRIPTIONS, MOST_TURNS, REQUEST, SCHEMAS, TOOLS

client = anthropic.Anthropic(base_url=BASE_URL)
tools = [{"name": name, "description": DESCRIPTIONS[name], "input_schema": SCHEMAS[name]} for name in TOOLS]
messages = [{"role": "user", "content": REQUEST}]
for _ in range(MOST_TURNS):
    request = {"model": "claude-sonnet-4-5", "max_tokens": 1_000, "system": "You read logs."}
    request |= {"messages": messages, "tools": tools}
    if API.endswith("streamed"):
        with client.messages.stream(**request) as events:
            message = events.get_final_message()
    else:
        message = client.messages.create(**request)
    messages.append({"role": "assistant", "content": message.content})
    if message.stop_reason != "tool_use":
        print("".join(block.text for block in message.content if block.type == "text"))
        break
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": TOOLS[block.name](**block.input)}
        for block in message.content
        if block.type == "tool_use"
    ]
    messages.append({"role": "user", "content": results})
