"""LangChain messages: `messages_to_dict`, `dumpd` or `model_dump`; in lists, in a state, or one per line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from context_compressor.lab.readers.reader import Reader
from context_compressor.lab.readers.session import Format, UnreadableError
from context_compressor.lab.readers.transcript import (
    Part,
    Transcript,
    content_blocks,
    dicts_in,
    first_in,
    kind_of,
    text_in,
    to_part,
    to_parts,
)

_KINDS = {kind: kind for kind in ("human", "ai", "tool", "system", "function", "chat", "remove")}
_CLASSES = {f"{kind.capitalize()}Message": kind for kind in _KINDS} | {"AIMessage": "ai"}
_KINDS |= {f"{name}Chunk": kind for name, kind in _CLASSES.items()}
_ROLES = {"human": "user", "user": "user", "ai": "assistant", "assistant": "assistant", "system": "system"}
_CALLS = ("tool_use", "tool_call", "tool_call_chunk", "function_call", "input_json_delta")
"""Content blocks that repeat what `tool_calls` says."""
_HOLDERS = ("messages", "values", "channel_values", "kwargs")


def _first(value: Any) -> Any:
    try:
        items = _unwrap(value)
    except UnreadableError:
        return None
    return items[0] if items else None


def _fields(value: Any) -> tuple[str, dict[str, Any]] | None:
    """Return the kind and the fields of a message; None where it is none."""
    if not isinstance(value, dict):
        return None
    kind = value.get("type")
    held: Any = None
    if kind == "constructor" and isinstance(value.get("id"), list) and value["id"]:
        name = str(value["id"][-1])
        kind, held = _CLASSES.get(name.removesuffix("Chunk")), value.get("kwargs")
    elif isinstance(kind, str):
        kind = _KINDS.get(kind)
        flat = value if "content" in value and "role" not in value else None
        held = value["data"] if isinstance(value.get("data"), dict) else flat
        if kind == "chat" and held is None and "content" in value:
            held = value
    if not isinstance(kind, str) or not isinstance(held, dict):
        return None
    return kind, held


def _unwrap(value: Any) -> list[Any]:
    """Return the list that a state, a checkpoint or an object holds."""
    for _ in range(len(_HOLDERS)):
        if isinstance(value, list):
            return value
        if not isinstance(value, dict):
            break
        value = next((value[key] for key in _HOLDERS if key in value), None)
    raise UnreadableError("expected a list of LangChain messages, or an object that holds one")


def _add_reply(transcript: Transcript, data: dict[str, Any], line: int, name: str | None) -> None:
    more = data.get("additional_kwargs")
    more = more if isinstance(more, dict) else {}
    transcript.close()
    transcript.reply(line, name=name)
    transcript.think(text_in(more, "reasoning_content"), line)
    blocks = content_blocks(data.get("content"), "blocks")
    for block in blocks:
        reasoning = _reasoning(block)
        if reasoning is not None:
            transcript.think(reasoning, line)
        elif block.get("type") not in _CALLS:
            transcript.speak([to_part(block)], line)
    calls = dicts_in(data.get("tool_calls")) + dicts_in(data.get("invalid_tool_calls"))
    for call in calls:
        transcript.call(text_in(call, "id"), text_in(call, "name"), _arguments(call), line)
    if not calls:
        _add_raw_calls(transcript, more, blocks, line)
    transcript.close()


def _add_raw_calls(transcript: Transcript, more: dict[str, Any], blocks: list[Part], line: int) -> None:
    """Add the calls of messages older than `tool_calls`, which kept what the provider sent."""
    for call in dicts_in(more.get("tool_calls")):
        function = call.get("function")
        held = function if isinstance(function, dict) else {}
        transcript.call(text_in(call, "id"), text_in(held, "name"), held.get("arguments") or {}, line)
    for block in blocks:
        if block.get("type") in ("tool_use", "tool_call"):
            transcript.call(text_in(block, "id"), text_in(block, "name"), _arguments(block), line)
    legacy = more.get("function_call")
    if isinstance(legacy, dict):
        transcript.call("", text_in(legacy, "name"), legacy.get("arguments") or {}, line)


def _arguments(call: dict[str, Any]) -> Any:
    found = first_in(call, "args", "input", "arguments")
    return {} if found is None else found


def _reasoning(block: dict[str, Any]) -> str | None:
    kind = block.get("type")
    if kind == "redacted_thinking":
        return ""
    if kind not in ("thinking", "reasoning", "reasoning_content"):
        return None
    texts = [text_in(block, key) for key in ("thinking", "reasoning", "text")]
    texts += [text_in(part, "text") for part in dicts_in(block.get("summary"))]
    return "\n\n".join(filter(None, texts))


class _LangChain(Reader):
    format = Format.LANGCHAIN
    id_keys = ("id", "thread_id")

    def claims(self, sample: Sequence[Any]) -> int:
        """Count the values that are messages, or hold a list that begins with one."""
        return sum(_fields(value) is not None or _fields(_first(value)) is not None for value in sample)

    def is_item(self, value: Any) -> bool:
        return _fields(value) is not None

    def unwrap(self, value: Any) -> list[Any]:
        return _unwrap(value)

    def add(self, transcript: Transcript, item: Any, line: int) -> None:
        found = _fields(item)
        if found is None:
            is_typed = isinstance(item, dict) and "type" in item
            got = f"one of type {item['type']!r}" if is_typed else kind_of(item)
            raise UnreadableError(f"expected a LangChain message, got {got}")
        kind, data = found
        if kind == "remove":
            transcript.leave_out("removals")
            return
        name = data.get("name") if isinstance(data.get("name"), str) else None
        parts = to_parts(data.get("content")) if kind != "ai" else []
        if kind == "chat":
            role = str(data.get("role"))
            kind = {"user": "human", "assistant": "ai"}.get(_ROLES.get(role, "user"), "system")
            name = name if role in _ROLES else role
        if kind == "ai":
            _add_reply(transcript, data, line, name)
        elif kind == "tool":
            transcript.answer(text_in(data, "tool_call_id"), parts, line)
        elif kind == "function":
            transcript.say("function", parts, line, name or "function")
        else:
            transcript.say("user" if kind == "human" else "system", parts, line, name)


READER = _LangChain()
