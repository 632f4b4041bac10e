"""OpenAI Responses: requests, answers or lists of items; one in a file, or one per line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from context_compressor.lab.readers.documents import Numbered
from context_compressor.lab.readers.reader import Reader
from context_compressor.lab.readers.session import Format, UnreadableError
from context_compressor.lab.readers.transcript import (
    Part,
    Transcript,
    as_object,
    content_blocks,
    dicts_in,
    first_in,
    keys_of,
    kind_of,
    opaque_part,
    string,
    text_in,
    text_part,
    to_part,
)

_ROLES = ("user", "system", "developer", "assistant")
_PART_TYPES = ("input_text", "output_text", "input_image", "input_file")
"""Types of content parts that only this API has."""

_HOSTED = {
    "web_search_call": (("action",), ("results",)),
    "file_search_call": (("queries",), ("results",)),
    "code_interpreter_call": (("code",), ("outputs",)),
    "image_generation_call": (("action", "prompt", "revised_prompt"), ()),
    "mcp_call": (("arguments",), ("output", "error")),
}
"""Calls that the provider carries out itself, in one item: where the arguments are, and where the result."""

_SILENT = frozenset(
    {
        *("item_reference", "compaction", "compaction_summary", "compaction_trigger", "context_compaction"),
        *("mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "additional_tools"),
        *("ghost_snapshot", "other"),
    }
)
"""Items that say nothing that could be read: encrypted, pointers elsewhere, bookkeeping."""

_ITEM_TYPES = (
    *_HOSTED,
    *("function_call", "custom_tool_call", "local_shell_call", "shell_call", "apply_patch_call"),
    *("function_call_output", "custom_tool_call_output", "local_shell_call_output", "shell_call_output"),
    *("apply_patch_call_output", "computer_call", "computer_call_output"),
    *("tool_search_call", "tool_search_output", "reasoning"),
    *("item_reference", "compaction", "mcp_list_tools"),
)
"""Types by which an item is known; a tuple, since what is looked for may be anything."""
_ACTIONS = ("arguments", "input", "action", "actions", "operation", "code")
"""Where a call keeps what it was called with."""
_ENVELOPE = frozenset({"type", "id", "call_id", "name", "namespace", "status", "phase", "metadata"})
"""What stands around what an item says."""


def is_item(value: Any) -> bool:
    """Tell whether a value is an item that no other format has."""
    if not isinstance(value, dict):
        return False
    if value.get("type") in _ITEM_TYPES:
        # With a role it is a message of Roo Code's, which keeps such thoughts among others.
        return value["type"] != "reasoning" or "role" not in value
    return any(part.get("type") in _PART_TYPES for part in dicts_in(value.get("content")))


def add_item(transcript: Transcript, item: Any, line: int) -> None:
    """Add an item.

    Raises:
        UnreadableError: it is none, or lacks what an item of its type must have.
    """
    item = as_object(item, "expected an item")
    kind = item.get("type") or ("message" if "role" in item else None)
    if not isinstance(kind, str):
        raise UnreadableError("type: expected the type of an item, but it is missing")
    if kind == "message":
        _add_message(transcript, item, line)
    elif kind == "agent_message" and isinstance(item.get("content"), str | list):
        _add_message(transcript, {**item, "role": "assistant"}, line)
    elif kind == "reasoning":
        _add_reasoning(transcript, item, line)
    elif kind in _HOSTED:
        _add_hosted(transcript, item, kind, line)
    elif kind.endswith("_output"):
        call_id = text_in(item, "call_id", "id")  # that of a local shell says `id`
        transcript.answer(call_id, _output_parts(transcript, item), line)
    elif kind.endswith("_call"):
        _add_call(transcript, item, kind, line)
    elif kind in _SILENT:
        transcript.leave_out(kind)
    else:
        raise UnreadableError(f"type: {kind!r} is not an item that is read here")


def _add_message(transcript: Transcript, item: dict[str, Any], line: int) -> None:
    role = item.get("role")
    if role not in _ROLES:
        raise UnreadableError(f"role: expected one of {', '.join(_ROLES)}, got {role!r}")
    parts = _parts(transcript, item.get("content"))
    for key, held in item.items():
        if key not in _ENVELOPE | {"content"} and isinstance(held, dict | list) and held:
            transcript.leave_out(f"{key} of a message")
    if role != "assistant":
        transcript.say(str(role), parts, line)
        return
    transcript.close_said()
    transcript.speak(parts, line)


def _add_reasoning(transcript: Transcript, item: dict[str, Any], line: int) -> None:
    texts = _texts(item.get("content")) or _texts(item.get("summary"))
    if texts:
        transcript.close_said()
        transcript.think("\n\n".join(texts), line)
    else:
        transcript.leave_out("reasoning without words")


def _add_call(transcript: Transcript, item: dict[str, Any], kind: str, line: int) -> None:
    named = kind in ("function_call", "custom_tool_call")
    name = string(item, "name") if named else kind.removesuffix("_call")
    if named and isinstance(item.get("namespace"), str):
        name = f"{item['namespace']}__{name}"
    found = first_in(item, *_ACTIONS)
    if found is None:  # a kind yet to come, or another format's
        found = {key: value for key, value in item.items() if key not in _ENVELOPE}
    if kind == "custom_tool_call" and isinstance(found, str):
        found = {"input": found}  # free text, where arguments must be an object
    transcript.call(text_in(item, "call_id", "id"), name, found, line)


def _add_hosted(transcript: Transcript, item: dict[str, Any], kind: str, line: int) -> None:
    asked, given = _HOSTED[kind]
    held = {key: item[key] for key in asked if item.get(key) is not None}
    only = next(iter(held.values())) if len(held) == 1 else held
    arguments = only if isinstance(only, dict) or (kind == "mcp_call" and isinstance(only, str)) else held
    found = first_in(item, *given)
    result = found if found is not None else f"({item.get('status') or 'completed'})"
    name = (text_in(item, "name") if kind == "mcp_call" else "") or kind.removesuffix("_call")
    transcript.hosted_call(text_in(item, "id"), name, arguments, [opaque_part(result)], line)


def _parts(transcript: Transcript, content: Any) -> list[Part]:
    """Return content as parts; images of which nothing is there are left out."""
    blocks = content_blocks(content, "parts")
    kept = [block for block in blocks if not _is_gone(block)]
    if len(kept) < len(blocks):
        transcript.leave_out("images without data", len(blocks) - len(kept))
    return [to_part(block) for block in kept]


def _is_gone(block: dict[str, Any]) -> bool:
    is_image = block.get("type") in ("input_image", "computer_screenshot")
    return is_image and not (block.get("image_url") or block.get("file_id"))


def _output_parts(transcript: Transcript, item: dict[str, Any]) -> list[Part]:
    output = first_in(item, "output", "tools", "result")
    if isinstance(output, dict):
        # Codex once wrapped text so; a screenshot is a part by itself.
        held = output.get("content")
        return [text_part(held)] if isinstance(held, str) else _parts(transcript, [output])
    return _parts(transcript, output) if isinstance(output, list) else [opaque_part(output or "")]


def _texts(parts: Any) -> list[str]:
    return [text for part in dicts_in(parts) if (text := text_in(part, "text"))]


def _is_session(value: Any) -> bool:
    if isinstance(value, list):
        return any(is_item(item) for item in value)
    if not isinstance(value, dict) or "messages" in value:
        return False
    if value.get("object") == "response" and isinstance(value.get("output"), list):
        return True
    if isinstance(value.get("input"), str):
        return "model" in value or "instructions" in value
    held = _held(value)
    if not held:
        return False
    return any(is_item(item) for item in held) or ("model" in value and isinstance(held[0], dict))


def _held(value: dict[str, Any]) -> list[Any]:
    items: list[Any] = []
    for key in ("input", "output", "data"):
        found = value.get(key)
        if isinstance(found, str) and key == "input":
            items.append({"role": "user", "content": found})
        elif isinstance(found, list):
            items += found
    return items


def _is_bare(value: Any) -> bool:
    if not isinstance(value, dict) or {"messages", "input", "output", "data"} & value.keys():
        # The output of a call is an item; that of an answer is a list of them.
        return is_item(value)
    return "role" in value or is_item(value)


class _Responses(Reader):
    format = Format.RESPONSES
    place = "item {}: "

    def claims(self, sample: Sequence[Any]) -> int:
        """Count the values that are items, or hold such as a request or an answer does."""
        items = sum(map(_is_bare, sample)) if any(map(is_item, sample)) else 0
        return max(items, sum(map(_is_session, sample)))

    def is_item(self, value: Any) -> bool:
        return _is_bare(value)

    def unwrap(self, value: Any) -> list[Any]:
        if isinstance(value, list):
            return value
        if not isinstance(value, dict):
            found = kind_of(value)
            raise UnreadableError(f"expected a list of items, or an object that holds one, got {found}")
        if not {"input", "output", "data"} & value.keys():
            found = keys_of(value)
            raise UnreadableError(f"input: expected a list of items, but the key is missing ({found})")
        return _held(value)

    def begin(self, transcript: Transcript, holder: Any, line: int) -> list[Numbered]:
        """Say the instructions that stand beside the items; they may be items themselves."""
        found = holder.get("instructions") if isinstance(holder, dict) else None
        if isinstance(found, str) and found:
            transcript.say("system", [text_part(found)], line)
        return [(line, item) for item in found] if isinstance(found, list) else []

    def add(self, transcript: Transcript, item: Any, line: int) -> None:
        add_item(transcript, item, line)


READER = _Responses()
