"""A loop over LiteLLM: chat completions, or messages by way of its translation."""

import json
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm
from work import API, BASE_URL, DESCRIPTIONS, MOST_TURNS, REQUEST, SCHEMAS, TOOLS

model = "anthropic/claude-sonnet-4-5" if API == "messages" else "openai/gpt-5"
functions = [{"name": name, "description": DESCRIPTIONS[name], "parameters": SCHEMAS[name]} for name in TOOLS]
tools = [{"type": "function", "function": function} for function in functions]
messages = [{"role": "system", "content": "You read logs."}, {"role": "user", "content": REQUEST}]
for _ in range(MOST_TURNS):
    reply = litellm.completion(model=model, messages=messages, tools=tools, api_base=BASE_URL)
    message = reply.choices[0].message
    messages.append(message.model_dump(exclude_none=True))
    if not message.tool_calls:
        print(message.content)
        break
    for call in message.tool_calls:
        said = TOOLS[call.function.name](**json.loads(call.function.arguments))
        messages.append({"role": "tool", "tool_call_id": call.id, "content": said})
