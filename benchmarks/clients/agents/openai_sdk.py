"""An agent of OpenAI's SDK: chat completions or responses, streamed or whole."""

import json

import openai
from work import API, BASE_URL, DESCRIPTIONS, MOST_TURNS, REQUEST, SCHEMAS, TOOLS

client = openai.OpenAI(base_url=BASE_URL)


def chat(stream: bool) -> str:
    functions = [
        {"name": name, "description": DESCRIPTIONS[name], "parameters": SCHEMAS[name]} for name in TOOLS
    ]
    tools = [{"type": "function", "function": function} for function in functions]
    messages = [{"role": "system", "content": "You read logs."}, {"role": "user", "content": REQUEST}]
    for _ in range(MOST_TURNS):
        request = {"model": "gpt-5", "messages": messages, "tools": tools}
        if stream:
            with client.chat.completions.stream(**request) as events:
                for _ in events:
                    pass
                message = events.get_final_completion().choices[0].message
        else:
            message = client.chat.completions.create(**request).choices[0].message
        messages.append(message.model_dump(exclude_none=True, exclude={"parsed"}))
        if not message.tool_calls:
            return message.content
        for call in message.tool_calls:
            said = TOOLS[call.function.name](**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": said})
    return "too many turns"


def responses(stream: bool) -> str:
    tools = [
        {"type": "function", "name": name, "description": DESCRIPTIONS[name], "parameters": SCHEMAS[name]}
        for name in TOOLS
    ]
    items = [{"role": "user", "content": REQUEST}]
    for _ in range(MOST_TURNS):
        request = {"model": "gpt-5", "input": items, "tools": tools, "instructions": "You read logs."}
        request |= {"store": False, "include": ["reasoning.encrypted_content"]}
        if stream:
            with client.responses.stream(**request) as events:
                for _ in events:
                    pass
                response = events.get_final_response()
        else:
            response = client.responses.create(**request)
        items += [
            item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in response.output
        ]
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            return response.output_text
        for call in calls:
            said = TOOLS[call.name](**json.loads(call.arguments))
            items.append({"type": "function_call_output", "call_id": call.call_id, "output": said})
    return "too many turns"


api, _, how = API.partition("-")
print((chat if api == "chat" else responses)(how == "streamed"))
