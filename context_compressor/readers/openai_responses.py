"""OpenAI Responses: requests, answers or lists of items; one in a file, or one per line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from context_compressor.readers.documents import Document, Numbered
from context_compressor.readers.grouped import GroupReader
from context_compressor.readers.response_items import add_item, is_item
from context_compressor.readers.session import Format, Session, UnreadableError
from context_compressor.readers.transcript import Transcript, kind_of, text_part

FORMAT = Format.RESPONSES


def recognises(sample: Sequence[Any]) -> bool:
    """Tell whether some value is an item, or holds such as a request or an answer does."""
    return any(is_item(value) or _is_session(value) for value in sample)


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


def read(document: Document) -> Iterator[Session]:
    """Yield a session per request, answer or list."""
    yield from GroupReader(
        FORMAT, is_item=_is_bare, unwrap=_unwrap, add=add_item, place="item {}: ", begin=_begin
    ).read(document)


def _begin(transcript: Transcript, holder: Any, line: int) -> list[Numbered]:
    """Say the instructions that stand beside the items; they may be items themselves."""
    found = holder.get("instructions") if isinstance(holder, dict) else None
    if isinstance(found, str) and found:
        transcript.say("system", [text_part(found)], line)
    return [(line, item) for item in found] if isinstance(found, list) else []


def _unwrap(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    if not isinstance(value, dict):
        raise UnreadableError(f"expected a list of items, or an object that holds one, got {kind_of(value)}")
    if not {"input", "output", "data"} & value.keys():
        keys = ", ".join(list(value)[:5]) or "none"
        raise UnreadableError(f"input: expected a list of items, but the key is missing (keys found: {keys})")
    return _held(value)
