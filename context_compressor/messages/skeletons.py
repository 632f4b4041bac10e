"""Skeletons: what pairing needs of a message, without what it says."""

from __future__ import annotations

from typing import Any

from context_compressor.messages.hosted import skeletons_of
from context_compressor.messages.msg import Block, Msg, Role, tool_calls, tool_results
from context_compressor.messages.remark import REMARK, is_legacy_result, legacy_result_metadata
from context_compressor.messages.repair import (
    arguments_line,
    is_empty_assistant,
    is_legacy_call,
    named_call,
    with_content,
    with_refusal_as_text,
    wrapped_arguments,
)

_SAID = "."
"""Stands for whatever a message says."""


def skeleton_of(msg: Msg) -> dict[str, Any] | None:
    """Return what pairing needs of a message, as JSON-like data; None where it only has to know of it.

    Of a call there is the beginning of its arguments, by which a result that comes late names it.
    """
    results, is_assistant = tool_results(msg), msg.role == "assistant"
    blocks = [] if isinstance(msg.content, str) else msg.content
    calls = tool_calls(msg) if is_assistant else []  # elsewhere they are texts
    has_rest = len(blocks) > len(results) + len(calls)
    rest: str | None = _SAID if has_rest else None
    if is_assistant and not calls and (has_rest or not results):
        lead = with_content(msg, [b for b in blocks if b.get("type") != "tool_result"]) if results else msg
        is_dropped = is_empty_assistant(lead) and with_refusal_as_text(lead) is lead
        rest = "" if is_dropped else _SAID
    skeleton: dict[str, Any] = {}
    if is_assistant:
        skeleton["role"] = msg.role
    if not calls and not results and rest != "":
        rest = None
    if rest is not None and not calls:
        skeleton["rest"] = rest
    if hosted := skeletons_of(msg):
        skeleton["hosted"] = hosted
    if calls:
        skeleton["calls"] = [_call(block) for block in calls]
    if results:
        skeleton["results"] = [[block["id"], _name(block)] for block in results]
        if is_legacy_result(msg):
            skeleton["legacy"] = True
    return skeleton or None


def _call(block: Block) -> list[Any]:
    line = arguments_line(named_call(wrapped_arguments(block)))
    return [block["id"], block["name"], line, *([True] if is_legacy_call(block) else [])]


def _name(result: Block) -> str | None:
    name = result.get("name")
    return name if isinstance(name, str) else None


def as_message(id: str, skeleton: dict[str, Any] | None) -> Msg:
    """Return a message that is paired as the one is of which this is the skeleton. It is never shown.

    Args:
        id: of that message.
        skeleton: as `skeleton_of` returned it.
    """
    data = skeleton or {}
    role: Role = data.get("role", "system")
    calls, results, rest = data.get("calls", []), data.get("results", []), data.get("rest")
    hosted = data.get("hosted", [])
    if not calls and not results and not hosted:
        return Msg("", _SAID if rest is None else rest, role, timestamp="", id=id)
    content: list[Block] = [] if rest is None else [{"type": "text", "text": rest}]
    content += hosted
    for call_id, name, line, *legacy in calls:
        # As it came, so that this is what is quoted.
        block: Block = {"type": "tool_use", "id": call_id, "name": name, "input": {}, "raw_input": line}
        content.append({**block, REMARK: {"form": "function_call"}} if legacy else block)
    for call_id, name in results:
        content.append({"type": "tool_result", "id": call_id, "name": name, "output": ""})
    metadata = legacy_result_metadata() if data.get("legacy") else None
    return Msg("", content, role, metadata, timestamp="", id=id)
