"""What OpenAI's Responses API refuses in `input`, written down on its own: nothing here asks the library.

Which fields an item may have is read from the `openai` package's types (`types/responses/*_param.py`). Each
other rule names its source. What is not known here is taken as it is: hosted calls, kinds to come.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from openai.types import responses as sdk
from openai.types.responses import response_input_item_param as kinds

from context_compressor.laws.shapes import (
    Check,
    is_filled,
    is_flag,
    is_json_object,
    is_list,
    is_object,
    is_text,
    is_url,
    keys_of,
    matches,
    misshapen,
    one_of,
    or_null,
)

Dict = dict[str, Any]

_STATUS = one_of("in_progress", "completed", "incomplete")
# "string too long. Expected a string with maximum length 64": AnswerDotAI/fastllm#45.
_CALL_ID = matches(r"(?s).{1,64}")
# "Expected an ID that contains letters, numbers, underscores, or dashes": langchain-ai/langchainjs#11044.
_ITEM_ID = matches(r"[A-Za-z0-9_-]{1,64}")
# "Expected an ID that begins with 'msg'": openai/codex#33176; the same is told of 'fc' and 'rs'.
_PREFIXES = {"message": "msg", "function_call": "fc", "reasoning": "rs"}

_INPUT_PARTS: dict[str, tuple[frozenset[str], dict[str, Check]]] = {
    "input_text": (keys_of(sdk.ResponseInputTextParam), {"text": is_text}),
    "input_image": (keys_of(sdk.ResponseInputImageParam), {}),
    "input_file": (keys_of(sdk.ResponseInputFileParam), {}),
}
# "Invalid value: 'input_text'. Supported values are: 'output_text' and 'refusal'.":
# jeremychone/rust-genai#119.
_OUTPUT_PARTS: dict[str, tuple[frozenset[str], dict[str, Check]]] = {
    "output_text": (keys_of(sdk.ResponseOutputTextParam), {"text": is_text}),
    "refusal": (keys_of(sdk.ResponseOutputRefusalParam), {"refusal": is_text}),
}
_ONE_OF = {"input_image": ("image_url", "file_id"), "input_file": ("file_data", "file_id", "file_url")}

OUTPUT_OF = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "local_shell_call": "local_shell_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "computer_call": "computer_call_output",
    "tool_search_call": "tool_search_output",
}
"""The calls that a client answers, and what with; a search of tools without a `call_id` is OpenAI's own."""
HOSTED = frozenset(
    {
        "web_search_call",
        "file_search_call",
        "code_interpreter_call",
        "image_generation_call",
        "mcp_call",
        "mcp_approval_request",
        "program",
    }
)
"""What the model calls and OpenAI answers; these settle a reasoning item as other calls do."""
_MAY_BE_HOSTED = ("tool_search_call", "tool_search_output")
_CLIENT_SIDE = frozenset({*OUTPUT_OF.values(), "mcp_approval_response", "compaction_trigger"})

_ITEMS: dict[str, tuple[frozenset[str], dict[str, Check]]] = {
    "message": (
        keys_of(sdk.EasyInputMessageParam, kinds.Message, sdk.ResponseOutputMessageParam),
        {"role": one_of("user", "assistant", "system", "developer")},
    ),
    "function_call": (
        keys_of(sdk.ResponseFunctionToolCallParam),
        {"call_id": _CALL_ID, "name": is_filled, "arguments": is_json_object},
    ),
    "function_call_output": (keys_of(kinds.FunctionCallOutput), {"call_id": _CALL_ID}),
    "custom_tool_call": (
        keys_of(sdk.ResponseCustomToolCallParam),
        {"call_id": _CALL_ID, "name": is_filled, "input": is_text},
    ),
    "custom_tool_call_output": (keys_of(sdk.ResponseCustomToolCallOutputParam), {"call_id": _CALL_ID}),
    "local_shell_call": (
        keys_of(kinds.LocalShellCall),
        {"id": is_filled, "call_id": _CALL_ID, "action": is_object, "status": _STATUS},
    ),
    # The types name the call by `id`; OpenAI's guide and its Agents SDK send `call_id`. Both are taken.
    "local_shell_call_output": (keys_of(kinds.LocalShellCallOutput) | {"call_id"}, {"output": is_text}),
    "shell_call": (keys_of(kinds.ShellCall), {"call_id": _CALL_ID, "action": is_object}),
    "shell_call_output": (keys_of(kinds.ShellCallOutput), {"call_id": _CALL_ID, "output": is_list}),
    "apply_patch_call": (
        keys_of(kinds.ApplyPatchCall),
        {"call_id": _CALL_ID, "operation": is_object, "status": one_of("in_progress", "completed")},
    ),
    "apply_patch_call_output": (
        keys_of(kinds.ApplyPatchCallOutput),
        {"call_id": _CALL_ID, "status": one_of("completed", "failed")},
    ),
    "computer_call": (
        keys_of(sdk.ResponseComputerToolCallParam),
        {"id": is_filled, "call_id": _CALL_ID, "pending_safety_checks": is_list, "status": _STATUS},
    ),
    "computer_call_output": (keys_of(kinds.ComputerCallOutput), {"call_id": _CALL_ID, "output": is_object}),
    "tool_search_output": (
        keys_of(sdk.ResponseToolSearchOutputItemParamParam),
        {"call_id": or_null(_CALL_ID), "tools": is_list},
    ),
    # `summary` may be empty, never absent: newo-ether/Agora#141.
    "reasoning": (keys_of(sdk.ResponseReasoningItemParam), {"summary": is_list}),
    "item_reference": (keys_of(kinds.ItemReference), {"id": is_filled}),
    "mcp_approval_response": (
        keys_of(kinds.McpApprovalResponse),
        {"approval_request_id": is_filled, "approve": is_flag},
    ),
}
_INNER: dict[str, tuple[str, dict[str, Check]]] = {
    "local_shell_call": ("action", {"type": one_of("exec"), "command": is_list, "env": is_object}),
    "shell_call": ("action", {"commands": is_list}),
    "computer_call_output": ("output", {"type": one_of("computer_screenshot")}),
}


def problems(items: Sequence[Any], needs: Mapping[str, str] | None = None) -> list[str]:
    """Return what the API would refuse in these items; none for a valid input.

    `needs` names the items (by id) that came with a reasoning item (by id), as `needs_of` reads it: they are
    refused without it ("was provided without its required 'reasoning' item": continuedev/continue#11994).
    """
    checker = _Checker(needs or {})
    for index, item in enumerate(items):
        checker.read(f"input[{index}]", item)
    checker.close()
    return checker.found


def needs_of(items: Sequence[Any]) -> dict[str, str]:
    """Return which items, by id, came with which reasoning item: the nearest before, in one response."""
    found: dict[str, str] = {}
    reasoning: str | None = None
    for item in items:
        kind = kind_of(item)
        if _is_client_side(kind, item):
            reasoning = None
        elif kind == "reasoning":
            reasoning = item.get("id")
        elif reasoning is not None and item.get("id") and _settles(kind) and kind != "item_reference":
            found[item["id"]] = reasoning
    return found


def unloaded(items: Sequence[Any], found: str) -> list[str]:
    """Return the calls of a tool that stand before, or without, the output of a search that defines it."""
    is_there, calls = False, []
    for item in items:
        kind = kind_of(item)
        is_there = is_there or (kind == "tool_search_output" and found in json.dumps(item))
        if kind == "function_call" and item.get("name") == found and not is_there:
            calls.append(str(item.get("call_id")))
    return calls


def kind_of(item: Any) -> str:
    """Return an item's kind; those with a role need not name it. "" for what has none."""
    if not isinstance(item, dict):
        return ""
    kind = item.get("type")
    if kind is None:
        return "message" if "role" in item else "item_reference" if "id" in item else ""
    return kind if isinstance(kind, str) else ""


class _Checker:
    """Read items in order, keeping the calls that are still to be answered."""

    def __init__(self, needs: Mapping[str, str]) -> None:
        self.found: list[str] = []
        self._needs = needs
        self._ids: set[str] = set()
        self._calls: dict[str, str] = {}
        self._answered: set[str] = set()
        self._programs: set[str] = set()
        self._unsettled: list[str] = []
        self._references = 0
        self._trigger = False

    def close(self) -> None:
        """Expect no more items."""
        self._refuse_unsettled()
        for call_id, kind in self._calls.items():
            # openai/openai-agents-python#673.
            if call_id not in self._answered:
                self.found.append(f"No tool output found for {kind.replace('_', ' ')} {call_id}.")

    def read(self, where: str, item: Any) -> None:
        """Check one item in its place."""
        kind = kind_of(item)
        if not kind:
            self.found.append(f"{where}: neither a type nor a role: {item!r:.60}")
            return
        if self._trigger:
            # "Must be the final input item": the type's own text.
            self.found.append(f"{where}: after compaction_trigger")
        self._trigger = kind == "compaction_trigger"
        if kind in _ITEMS:
            self.found += _misshapen(where, kind, item)
        self._check_id(where, kind, item)
        self._follow_reasoning(kind, item)
        if kind in _MAY_BE_HOSTED and item.get("call_id") is None:
            return
        self._follow_programs(where, kind, item)
        if kind in OUTPUT_OF:
            self._read_call(kind, item)
        elif kind in OUTPUT_OF.values():
            self._read_output(kind, item)
        elif kind.endswith("_call_output"):
            # The only outputs that the types name are those above.
            self.found.append(f"Invalid value: '{kind}' at {where}.type.")

    def _check_id(self, where: str, kind: str, item: Dict) -> None:
        item_id = item.get("id")
        if item_id is None or kind == "local_shell_call_output":
            return
        if kind in _ITEMS and not (_ITEM_ID(item_id) and item_id.startswith(_PREFIXES.get(kind, ""))):
            self.found.append(f"Invalid '{where}.id': {item_id!r:.80}")
        elif not isinstance(item_id, str):
            self.found.append(f"Invalid '{where}.id': {item_id!r:.80}")
            return
        if str(item_id) in self._ids:
            # earendil-works/pi#5151.
            self.found.append(f"Duplicate item found with id {item_id}.")
        self._ids.add(str(item_id))
        needed = self._needs.get(str(item_id))
        if needed is not None and kind != "item_reference" and needed not in self._ids:
            self.found.append(
                f"Item '{item_id}' of type '{kind}' was provided without its required 'reasoning' item: "
                f"'{needed}'."
            )

    def _follow_reasoning(self, kind: str, item: Dict) -> None:
        if _is_client_side(kind, item):
            self._refuse_unsettled()
        elif kind == "reasoning":
            self._unsettled.append(str(item.get("id")))
        elif _settles(kind):
            self._unsettled.clear()
        if kind == "item_reference":
            self._references += 1

    def _follow_programs(self, where: str, kind: str, item: Dict) -> None:
        """A program runs from its item to its output; what it calls stands between."""
        caller, call_id = item.get("caller"), str(item.get("call_id"))
        if isinstance(caller, dict) and caller.get("caller_id") not in (None, *self._programs):
            self.found.append(f"No program found for {where}.caller.caller_id {caller['caller_id']}.")
        if kind == "program":
            self._programs.add(call_id)
        elif kind == "program_output" and call_id not in self._programs:
            self.found.append(f"No program found for program output with call_id {call_id}.")
        elif kind == "program_output":
            self._programs.remove(call_id)
        elif kind == "message" and item.get("role") == "user":
            self.found += [f"No output found for program {one}." for one in sorted(self._programs)]
            self._programs.clear()

    def _refuse_unsettled(self) -> None:
        # continuedev/continue#8933; that a hosted call settles it, too: vercel/ai#7099.
        for reasoning in self._unsettled:
            self.found.append(
                f"Item '{reasoning}' of type 'reasoning' was provided without its required following item."
            )
        self._unsettled.clear()

    def _read_call(self, kind: str, item: Dict) -> None:
        call_id = str(item.get("call_id"))
        if call_id in self._calls:
            self.found.append(f"Duplicate call_id {call_id}.")
        self._calls[call_id] = kind

    def _read_output(self, kind: str, item: Dict) -> None:
        call_id = str(item.get("call_id") or item.get("id"))
        call = self._calls.get(call_id)
        if call is None and self._references:
            self._references -= 1  # the call may be what was referred to
        elif call is None or OUTPUT_OF[call] != kind:
            # continuedev/continue#10092.
            what = kind.removesuffix("_output").replace("_", " ")
            self.found.append(f"No tool call found for {what} output with call_id {call_id}.")
        elif call_id in self._answered:
            self.found.append(f"Duplicate output for call_id {call_id}.")
        if call is not None:
            self._answered.add(call_id)


def _is_client_side(kind: str, item: Any) -> bool:
    if kind in _MAY_BE_HOSTED and item.get("call_id") is None:
        return False
    return kind in _CLIENT_SIDE or (kind == "message" and item.get("role") != "assistant")


def _settles(kind: str) -> bool:
    return kind in OUTPUT_OF or kind in HOSTED or kind in ("message", "item_reference")


def _misshapen(where: str, kind: str, item: Dict) -> Iterator[str]:
    allowed, required = _ITEMS[kind]
    yield from misshapen(where, item, required)
    yield from _unknown(where, item, allowed)
    if not or_null(_STATUS)(item.get("status")) and kind != "apply_patch_call_output":
        yield f"Invalid value: '{where}.status': {item['status']!r:.60}"
    if kind in _INNER:
        name, inner = _INNER[kind]
        if isinstance(item.get(name), dict):
            yield from misshapen(f"{where}.{name}", item[name], inner)
    match kind:
        case "message":
            yield from _misshapen_message(where, item)
        case "function_call_output" | "custom_tool_call_output":
            yield from _misshapen_content(f"{where}.output", item.get("output"), _INPUT_PARTS)
        case "apply_patch_call_output":
            if not or_null(is_text)(item.get("output")):
                yield f"{where}.output: {item['output']!r:.60}"
        case "apply_patch_call":
            yield from _misshapen_operation(f"{where}.operation", item.get("operation"))
        case "computer_call":
            if not isinstance(item.get("action"), dict) and not isinstance(item.get("actions"), list):
                yield f"{where}.action: field required"
        case "shell_call_output":
            for number, chunk in enumerate(item.get("output") or []):
                required = {"stdout": is_text, "stderr": is_text, "outcome": is_object}
                yield from misshapen(f"{where}.output[{number}]", chunk, required)
        case "reasoning":
            yield from _misshapen_reasoning(where, item)


def _misshapen_message(where: str, item: Dict) -> Iterator[str]:
    assistant = item.get("role") == "assistant"
    parts = _OUTPUT_PARTS if assistant else _INPUT_PARTS
    yield from _misshapen_content(f"{where}.content", item.get("content"), parts)
    if item.get("content") == []:
        yield f"Invalid '{where}.content': empty array."
    if not or_null(one_of("commentary", "final_answer"))(item.get("phase")):
        yield f"{where}.phase: {item['phase']!r:.60}"


def _misshapen_reasoning(where: str, item: Dict) -> Iterator[str]:
    # Codex sends encrypted reasoning without its id; without either there is nothing to find it by.
    if not is_filled(item.get("id")) and not is_filled(item.get("encrypted_content")):
        yield f"{where}.id: field required"
    for name, kind in (("summary", "summary_text"), ("content", "reasoning_text")):
        parts = item.get(name)
        for number, part in enumerate(parts if isinstance(parts, list) else []):
            if not isinstance(part, dict) or part.get("type") != kind or not is_text(part.get("text")):
                yield f"{where}.{name}[{number}]: {part!r:.60}"


def _misshapen_operation(where: str, operation: Any) -> Iterator[str]:
    if isinstance(operation, dict):
        required: dict[str, Check] = {
            "type": one_of("create_file", "update_file", "delete_file"),
            "path": is_filled,
        }
        if operation.get("type") != "delete_file":
            required["diff"] = is_text
        yield from misshapen(where, operation, required)


def _misshapen_content(
    where: str, content: Any, parts: Mapping[str, tuple[frozenset[str], dict[str, Check]]]
) -> Iterator[str]:
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        yield f"Invalid type for '{where}': expected a text or an array, got {content!r:.60}"
        return
    for number, part in enumerate(content):
        at = f"{where}[{number}]"
        kind = part.get("type") if isinstance(part, dict) else None
        if not isinstance(kind, str) or kind not in parts:
            names = ", ".join(f"'{name}'" for name in parts)
            yield f"Invalid value: {kind!r} at {at}. Supported values are: {names}."
            continue
        allowed, required = parts[kind]
        yield from misshapen(at, part, required)
        yield from _unknown(at, part, allowed)
        yield from _misshapen_medium(at, kind, part)


def _misshapen_medium(where: str, kind: str, part: Dict) -> Iterator[str]:
    if kind not in _ONE_OF:
        return
    if not any(is_filled(part.get(name)) for name in _ONE_OF[kind]):
        yield f"{where}: one of {', '.join(_ONE_OF[kind])} is required"
    for name in ("image_url", "file_url"):
        if not or_null(is_url)(part.get(name)):
            yield f"Invalid '{where}.{name}': {part[name]!r:.60}"
    if not or_null(one_of("low", "high", "auto", "original"))(part.get("detail")):
        yield f"Invalid value: '{where}.detail': {part['detail']!r:.60}"


def _unknown(where: str, value: Dict, allowed: frozenset[str]) -> Iterator[str]:
    # "Unknown parameter: 'input[2].parsed_arguments'": openai/openai-python#3146; pydantic/pydantic-ai#3653.
    for name in value:
        if name not in allowed and not (name == "id" and where.endswith("]") and "." not in where):
            yield f"Unknown parameter: '{where}.{name}'."
