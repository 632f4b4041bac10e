"""Tool calls of chat dicts <-> `tool_use` blocks.

Remark keys, in the block under `REMARK`: `form` ("function_call", the legacy key; "custom"), `type` (an
unusual call type), `arguments` ("object": not a string, as DashScope may send them), `keys` and `extra` of
the call dict, and `function`, with the `keys` and `extra` of the dict inside it.
"""

from __future__ import annotations

import json
import math
from typing import Any

from context_compressor.errors import InvalidMessageError
from context_compressor.messages.escapes import dump_sendable
from context_compressor.messages.msg import Block, copy_json
from context_compressor.messages.openai.common import (
    MAX_DEPTH,
    MISSING,
    REMARK,
    as_dict,
    assemble,
    plain,
    remark_of,
    remember,
    wrong,
)

_CALL_KEYS = {"function": ("id", "type", "function"), "custom": ("id", "type", "custom")}
_HELD_KEYS = {"function": ("name", "arguments"), "custom": ("name", "input")}


def parse_arguments(raw: str) -> dict[str, Any]:
    """Return a call's arguments: the object that `raw` spells in JSON, else `{"arguments": raw}`.

    Strict: NaN, infinities (also by overflow) and objects nested deeper than `MAX_DEPTH` are not accepted, so
    that what is returned can always be written as JSON again.
    """
    try:
        value = _DECODER.decode(raw)
        if type(value) is dict and (raw.count("{") + raw.count("[") <= MAX_DEPTH or plain(value, "")):
            return value
    except (ValueError, RecursionError):  # ValueError: no JSON, or an integer too long for Python
        pass
    return {"arguments": raw}


def dump_arguments(value: dict[str, Any]) -> str:
    """Return a call's `input` as JSON text, always an object.

    Raises:
        InvalidMessageError: the input holds something that JSON has no form for.
    """
    try:
        try:
            return dump_sendable(value, allow_nan=False)
        except ValueError:  # a NaN: readable for the model, in a form that any provider can parse
            return dump_sendable({"arguments": json.dumps(value, ensure_ascii=False)})
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidMessageError(f"tool_use.input: expected JSON data; {error}") from error


def call_to_block(call: object, path: str) -> Block:
    """Return an element of `tool_calls` as a `tool_use` block."""
    data = as_dict(call)
    if data is None:
        raise wrong(path, "a dict", call)
    kind = data.get("type", "function")
    if not isinstance(kind, str | None):
        raise wrong(f"{path}.type", "a string", kind)
    call_id = data.get("id", "")  # Ollama and chat templates know none
    if not isinstance(call_id, str):
        raise wrong(f"{path}.id", "a string", call_id)
    holder = "custom" if kind == "custom" else "function"
    block, remark = _read_held(data.get(holder, MISSING), holder, f"{path}.{holder}")
    block["id"] = call_id
    if kind not in _CALL_KEYS:
        remark["type"] = kind
    canonical = _CALL_KEYS[holder]
    remark |= remember(data, canonical, canonical, f"{path}.")
    if holder == "custom":
        remark["form"] = "custom"
    if remark:
        block[REMARK] = remark
    return block


def function_call_to_block(call: object, path: str) -> Block:
    """Return a legacy `function_call` as a `tool_use` block; it has no id."""
    block, remark = _read_held(call, "function", path)
    block[REMARK] = remark | {"form": "function_call"}
    return block


def block_to_call(block: Block) -> dict[str, Any]:
    """Return a `tool_use` block as an element of `tool_calls`."""
    remark = remark_of(block)
    holder = "custom" if remark.get("form") == "custom" else "function"
    fields = {"id": block["id"], "type": remark.get("type", holder), holder: block_to_held(block)}
    keys = remark.get("keys", fields)
    if "type" not in keys:
        del fields["type"]
    if not block["id"] and "id" not in keys:
        del fields["id"]
    return assemble(fields, remark)


def block_to_held(block: Block) -> dict[str, Any]:
    """Return the dict inside a call: `function`, `custom`, or the legacy `function_call` itself."""
    remark = remark_of(block)
    if remark.get("form") == "custom":
        fields = {"name": block["name"], "input": _custom_input(block["input"])}
    else:
        as_object = remark.get("arguments") == "object"
        arguments = copy_json(block["input"]) if as_object else _arguments_text(block)
        fields = {"name": block["name"], "arguments": arguments}
    return assemble(fields, remark.get("function", {}))


def _read_held(held: object, holder: str, path: str) -> tuple[Block, dict[str, Any]]:
    data = as_dict(held)
    if data is None:
        raise wrong(path, "a dict", held)
    canonical = _HELD_KEYS[holder]
    for key in canonical:
        value = data.get(key, MISSING)
        if not isinstance(value, str) and (key != "arguments" or as_dict(value) is None):
            raise wrong(f"{path}.{key}", "a string", value)
    text = data[canonical[1]]
    block: Block = {"type": "tool_use", "id": "", "name": data["name"]}
    remark: dict[str, Any] = {}
    if holder == "custom":
        block["input"] = {"input": text}
    elif isinstance(text, str):
        block["input"] = parse_arguments(text)
        block["raw_input"] = text
    else:
        block["input"] = plain(text, f"{path}.arguments")
        remark["arguments"] = "object"
    inner = remember(data, canonical, canonical, f"{path}.")
    if inner:
        remark["function"] = inner
    return block, remark


def _arguments_text(block: Block) -> str:
    """Return the text as received while it still says what `input` says, else `input` as JSON."""
    # Compared as JSON text: to `==`, 1, 1.0 and True are one value, and an edit between them would not show.
    text = dump_arguments(block["input"])
    raw = block.get("raw_input")
    if isinstance(raw, str) and (raw == text or dump_arguments(parse_arguments(raw)) == text):
        return raw
    return text


def _custom_input(value: dict[str, Any]) -> str:
    text = value.get("input")
    return text if isinstance(text, str) and len(value) == 1 else dump_arguments(value)


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits} is beyond a float")
    return number


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)
