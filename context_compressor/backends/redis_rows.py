"""What Redis keeps of a message: a row that says all but its content, and the content by itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from context_compressor.backends.records import from_tokens, place_of, to_message, unpack_ascii
from context_compressor.compression.edits import message_id
from context_compressor.memory.history import Entry
from context_compressor.messages.skeletons import as_message


def as_text(value: str | bytes) -> str:
    """Return what a client gave, decoded or not, as text; what others wrote may be no UTF-8."""
    return value if isinstance(value, str) else value.decode("utf-8", "surrogateescape")


def as_texts(values: Iterable[str | bytes]) -> list[str]:
    return [as_text(value) for value in values]


def by_name(fields: Mapping[str | bytes, str | bytes]) -> dict[str, str | bytes]:
    return {as_text(name): value for name, value in fields.items()}


def entry_of(one: Mapping[str, Any], body: str | bytes | None) -> Entry:
    """Return a message; one whose content is gone was deleted, if only since its row was read."""
    is_there = one["is_there"] and body is not None
    msg = to_message(unpack_ascii(body)) if is_there and body is not None else None
    marks = tuple(one["marks"]) if is_there else ()
    tokens = from_tokens(one["tokens"]) if is_there else None
    return Entry(place_of(*one["place"]), one["changed"], one["key"], msg, marks, tokens)


def outlined_of(one: Mapping[str, Any]) -> Entry:
    key, changed, added = one["key"], one["changed"], one["added"]
    msg, tokens = as_message(message_id(key), one["skeleton"]), from_tokens(one["tokens"])
    return Entry(place_of(*one["place"]), changed, key, msg, tuple(one["marks"]), tokens, added)
