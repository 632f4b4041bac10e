"""Requests that chat completions, the Responses API and Anthropic refuse, each with a piece of the reason."""

from __future__ import annotations

from typing import Any

Dict = dict[str, Any]
HI: Dict = {"role": "user", "content": "Hi."}


def call(call_id: Any = "c1", **more: Any) -> Dict:
    return {"type": "function_call", "call_id": call_id, "name": "f", "arguments": "{}", **more}


def output(call_id: Any = "c1", value: Any = "done", kind: str = "function_call_output") -> Dict:
    return {"type": kind, "call_id": call_id, "output": value}


def said(part: Any, role: str = "user") -> Dict:
    return {"type": "message", "role": role, "content": [part]}


REASONING: Dict = {"type": "reasoning", "id": "rs_1", "summary": []}
SHELL: Dict = {"type": "shell_call", "call_id": "c1", "action": {"commands": ["ls"]}, "status": "completed"}
CHUNK: Dict = {"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}

REFUSED_RESPONSES: dict[str, tuple[list[Any], str]] = {
    "no kind": ([HI, {"text": "x"}], "neither a type nor a role"),
    "role": ([HI, {"role": "tool", "content": "x"}], "input[1].role"),
    "content": ([{"role": "user", "content": 5}], "expected a text or an array"),
    "empty content": ([{"role": "user", "content": []}], "empty array"),
    "unknown field": ([{**HI, "name": "Ann"}], "Unknown parameter: 'input[0].name'"),
    "parsed arguments": ([HI, call(parsed_arguments={}), output()], "input[1].parsed_arguments"),
    "chat part": ([said({"type": "text", "text": "x"})], "Invalid value: 'text'"),
    "output part of a user": ([said({"type": "output_text", "text": "x"})], "Invalid value: 'output_text'"),
    "input part of an assistant": (
        [HI, said({"type": "input_text", "text": "x"}, "assistant")],
        "Supported values are: 'output_text', 'refusal'",
    ),
    "image of an assistant": (
        [HI, said({"type": "input_image", "image_url": "https://example.com/a.png"}, "assistant")],
        "Invalid value: 'input_image'",
    ),
    "image of nothing": ([said({"type": "input_image", "detail": "low"})], "one of image_url, file_id"),
    "image without address": ([said({"type": "input_image", "image_url": "a.png"})], "image_url"),
    "file of nothing": ([said({"type": "input_file", "filename": "a.pdf"})], "one of file_data"),
    "text of null": ([said({"type": "input_text", "text": None})], "content[0].text"),
    "phase": ([HI, {"role": "assistant", "content": "x", "phase": "draft"}], "phase"),
    "status": ([HI, call(status="done"), output()], "input[1].status"),
    "arguments cut off": ([HI, call(arguments='{"a'), output()], "input[1].arguments"),
    "arguments in a list": ([HI, call(arguments="[1]"), output()], "input[1].arguments"),
    "arguments as an object": ([HI, call(arguments={}), output()], "input[1].arguments"),
    "call without id": ([HI, call(None), output()], "input[1].call_id"),
    "call id too long": ([HI, call("c" * 65), output("c" * 65)], "input[1].call_id"),
    "call without name": ([HI, call(name=""), output()], "input[1].name"),
    "call without output": ([HI, call(), HI], "No tool output found for function call c1"),
    "call at the end": ([HI, call()], "No tool output found for function call c1"),
    "one of two outputs": (
        [HI, call(), call("c2"), output("c2")],
        "No tool output found for function call c1",
    ),
    "output without call": ([HI, output()], "No tool call found for function call output with call_id c1"),
    "output before call": ([HI, output(), call()], "No tool call found"),
    "second output": ([HI, call(), output(), output()], "Duplicate output"),
    "output of another kind": ([HI, call(), output(kind="custom_tool_call_output")], "No tool call found"),
    "shell output of a function": ([HI, SHELL, output()], "No tool call found"),
    "shell output as text": ([HI, SHELL, output(kind="shell_call_output")], "input[2].output"),
    "output of null": ([HI, call(), output(value=None)], "input[2].output"),
    "output part": ([HI, call(), output(value=[{"type": "output_text", "text": "x"}])], "Invalid value"),
    "same call id": ([HI, call(), output(), call(), output()], "Duplicate call_id c1"),
    "same item id": ([HI, *([REASONING, {"role": "assistant", "content": "x"}] * 2)], "Duplicate item"),
    "item id": ([HI, call(id="call_1"), output()], "Invalid 'input[1].id'"),
    "item id with a dot": ([HI, call(id="fc_1.2"), output()], "Invalid 'input[1].id'"),
    "reasoning at the end": ([HI, REASONING], "without its required following item"),
    "reasoning before a user": ([HI, REASONING, HI], "without its required following item"),
    "reasoning before an output": ([HI, call(), REASONING, output()], "without its required following item"),
    "reasoning without summary": ([{"type": "reasoning", "id": "rs_1"}, call(), output()], "summary"),
    "reasoning without id": ([{"type": "reasoning", "summary": []}, call(), output()], "input[0].id"),
    "summary": ([{**REASONING, "summary": [{"text": "x"}]}, call(), output()], "summary[0]"),
    "patch without diff": (
        [
            {
                "type": "apply_patch_call",
                "call_id": "c1",
                "status": "completed",
                "operation": {"type": "create_file", "path": "a"},
            },
            {"type": "apply_patch_call_output", "call_id": "c1", "status": "completed"},
        ],
        "operation.diff",
    ),
    "after a trigger": ([HI, {"type": "compaction_trigger"}, HI], "after compaction_trigger"),
}


def use(call_id: Any = "t1", **more: Any) -> Dict:
    return {"type": "tool_use", "id": call_id, "name": "f", "input": {}, **more}


def result(call_id: Any = "t1", **more: Any) -> Dict:
    return {"type": "tool_result", "tool_use_id": call_id, "content": "done", **more}


def text(words: Any = "x", **more: Any) -> Dict:
    return {"type": "text", "text": words, **more}


def user(*blocks: Any) -> Dict:
    return {"role": "user", "content": [*blocks]}


def model(*blocks: Any) -> Dict:
    return {"role": "assistant", "content": [*blocks]}


MARK: Dict = {"cache_control": {"type": "ephemeral"}}
THOUGHT: Dict = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
SEARCH: Dict = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
FOUND: Dict = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
CALLER: Dict = {"type": "code_execution_20260120", "tool_id": "srvtoolu_1"}
IMAGE: Dict = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}

REFUSED_ANTHROPIC: dict[str, tuple[list[Any], str]] = {
    "role": ([{"role": "tool", "content": "x"}], "messages.0.role"),
    "assistant first": ([model(text()), HI], 'first message must use the "user" role'),
    "system first": ([{"role": "system", "content": "x"}, model(text()), HI], "must follow"),
    "system before user": ([HI, {"role": "system", "content": "x"}, HI], "must precede"),
    "content": ([{"role": "user", "content": 5}], "neither a text nor a list"),
    "empty content": ([{"role": "user", "content": ""}], "non-empty content"),
    "empty list": ([HI, model(), HI], "non-empty content"),
    "blank text": ([{"role": "user", "content": " \n"}], "non-whitespace"),
    "blank block": ([user(text("x"), text(" "))], "text content blocks must be non-empty"),
    "blank block in a result": (
        [HI, model(use()), user(result(content=[text("")]))],
        "text content blocks must be non-empty",
    ),
    "extra field of a message": ([{**HI, "name": "Ann"}], "messages.0.name: Extra inputs"),
    "extra field of a block": ([user(text(id="x"))], "text.id: Extra inputs"),
    "call without result": ([HI, model(use()), HI], "without `tool_result` blocks immediately after: t1"),
    "call at the end": ([HI, model(use())], "without `tool_result` blocks immediately after: t1"),
    "call before an assistant": ([HI, model(use()), model(text()), user(result())], "immediately after"),
    "one of two results": ([HI, model(use(), use("t2")), user(result("t2"))], "immediately after: t1"),
    "late result": ([HI, model(use()), HI, user(result())], "immediately after: t1"),
    "result without call": ([user(result())], "unexpected `tool_use_id`"),
    "second result": ([HI, model(use()), user(result(), result())], "Found multiple: t1"),
    "result behind text": ([HI, model(use()), user(text(), result())], "must come first"),
    "same call id": ([HI, *[model(use()), user(result())] * 2], "ids must be unique"),
    "call id": ([HI, model(use("t.1")), user(result("t.1"))], "tool_use.id"),
    "input as text": ([HI, model(use(input="{}")), user(result())], "tool_use.input"),
    "empty error": ([HI, model(use()), user(result(content="", is_error=True))], "cannot be empty"),
    "image as error": ([HI, model(use()), user(result(content=[IMAGE], is_error=True))], 'type "text"'),
    "call of a user": ([user(use())], "`tool_use` blocks are not permitted"),
    "result of an assistant": ([HI, model(text(), result()), HI], "`tool_result` blocks are not permitted"),
    "image of an assistant": ([HI, model(IMAGE), HI], "`image` blocks are not permitted"),
    "image source": ([user({"type": "image", "source": {"type": "path", "path": "a"}})], "source"),
    "image kind": (
        [user({"type": "image", "source": {"type": "base64", "media_type": "image/bmp", "data": "AA=="}})],
        "media_type",
    ),
    "document source": ([user({"type": "document", "source": {"type": "text", "data": "x"}})], "media_type"),
    "search result": ([user({"type": "search_result", "source": "a", "title": "b", "content": []})], "empty"),
    "unsigned thinking": ([HI, model({"type": "thinking", "thinking": "x"}, text()), HI], "signature"),
    "thinking behind text": ([HI, model(text(), THOUGHT, text()), HI], "Expected `thinking`"),
    "thinking last": ([HI, model(THOUGHT), HI], "final block in an assistant message cannot be `thinking`"),
    "five marks": ([user(*[text(**MARK)] * 5)], "A maximum of 4 blocks"),
    "mark on thinking": ([HI, model({**THOUGHT, **MARK}, text()), HI], "cache_control: Extra inputs"),
    "mark of a kind": ([user(text(cache_control={"type": "forever"}))], "cache_control"),
    "longer mark later": (
        [user(text(**MARK), text(cache_control={"type": "ephemeral", "ttl": "1h"}))],
        "must not come after",
    ),
    "prefill": ([HI, {"role": "assistant", "content": "The answer is "}], "trailing whitespace"),
    "hosted call without result": ([HI, model(SEARCH, text()), HI], "without a corresponding"),
    "hosted result without call": ([HI, model(FOUND, text()), HI], "unexpected `tool_use_id`"),
    "hosted result elsewhere": ([HI, model(SEARCH, text()), HI, model(FOUND, text())], "without a corr"),
    "hosted result not in the next reply": (
        [HI, model(SEARCH, use()), user(result()), model(text()), HI, model(FOUND, text())],
        "without a corr",
    ),
    "hosted call of another's": ([HI, model(use(caller=CALLER)), user(result())], "caller.tool_id"),
    "hosted result of another kind": (
        [HI, model(SEARCH, {**FOUND, "type": "web_fetch_tool_result"}, text()), HI],
        "unexpected `tool_use_id`",
    ),
}


def chat_call(*ids: Any, arguments: Any = "{}") -> Dict:
    calls = [{"id": id, "type": "function", "function": {"name": "f", "arguments": arguments}} for id in ids]
    return {"role": "assistant", "content": "", "tool_calls": calls}


def chat_result(id: str, content: Any = "done") -> Dict:
    return {"role": "tool", "tool_call_id": id, "content": content}


FUNCTION_CALL: Dict = {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}}

REFUSED_CHAT: dict[str, tuple[list[Any], str]] = {
    "result without call": ([HI, chat_result("a")], "result for 'a', which is not open"),
    "call without result": ([HI, chat_call("a"), HI], "call 'a' has no result"),
    "call at the end": ([HI, chat_call("a")], "call 'a' has no result"),
    "one of two results": ([HI, chat_call("a", "b"), chat_result("b"), HI], "call 'a' has no result"),
    "result after another message": ([HI, chat_call("a"), HI, chat_result("a")], "call 'a' has no result"),
    "second result": ([HI, chat_call("a"), chat_result("a"), chat_result("a")], "second result for 'a'"),
    "same id in one message": ([HI, chat_call("a", "a"), chat_result("a")], "call id 'a' used before"),
    "same id later": ([HI, *[chat_call("a"), chat_result("a")] * 2], "call id 'a' used before"),
    "empty id": ([HI, chat_call(""), chat_result("")], "call without id"),
    "id that is no text": ([HI, chat_call(None), HI], "call without id"),
    "empty assistant": ([HI, {"role": "assistant", "content": ""}], "empty assistant message"),
    "silent assistant": ([HI, {"role": "assistant", "content": None}], "empty assistant message"),
    "empty calls": ([HI, {"role": "assistant", "content": "x", "tool_calls": []}], "empty tool_calls"),
    "empty list of parts": ([HI, {"role": "system", "content": []}], "system message without content"),
    "result of null": ([HI, chat_call("a"), chat_result("a", None)], "tool message without content"),
    "arguments cut off": (
        [HI, chat_call("a", arguments='{"a'), chat_result("a")],
        "no JSON object",
    ),
    "arguments in a list": (
        [HI, chat_call("a", arguments="[1]"), chat_result("a")],
        "no JSON object",
    ),
    "no arguments": (
        [HI, chat_call("a", arguments=""), chat_result("a")],
        "no JSON object",
    ),
    "call without name": (
        [HI, {"role": "assistant", "tool_calls": [{"id": "a", "function": {}}]}, chat_result("a")],
        "call 'a' of no function",
    ),
    "function result without call": (
        [HI, {"role": "function", "name": "f", "content": "x"}],
        "without function_call",
    ),
    "function_call without result": ([HI, FUNCTION_CALL, HI], "a function_call has no result"),
    "function_call without name": (
        [HI, {**FUNCTION_CALL, "function_call": {"arguments": "{}"}}],
        "function_call of no function",
    ),
    "reasoning alone": ([HI, {"role": "assistant", "reasoning_content": "Hm."}], "empty assistant message"),
    "only instructions": ([{"role": "system", "content": "Be kind."}], "only instructions"),
    "role": ([HI, {"role": "critic", "content": "Hm."}], "role 'critic'"),
    "content": ([HI, {"role": "user", "content": 5}], "content that is no text and no list"),
}
