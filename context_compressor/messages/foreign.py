"""Shapes of messages that are not read here, known by their keys: refused by name, never taken in silence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from context_compressor.errors import InvalidMessageError

_BLOCKS = {
    "toolUse": "Bedrock's Converse API",
    "toolResult": "Bedrock's Converse API",
    "functionCall": "Gemini's API",
    "functionResponse": "Gemini's API",
    "function_response": "Gemini's API",
    "toolInvocation": "Vercel's AI SDK",
}
"""Keys of blocks of content, by which a form is known."""
_PARTS = "Gemini's contents or Vercel's UI messages"


def refuse_foreign(data: Mapping[str, Any], form: str, place: str = "") -> None:
    """Refuse a message, or a block of content, that is of a form which nothing here reads.

    Args:
        data: the message or the block.
        form: the name of the form that was asked for.
        place: where it stands, for the error.

    Raises:
        InvalidMessageError: it is such a one; the text names the form and what to do.
    """
    name = next((_BLOCKS[key] for key in _BLOCKS if key in data), None)
    if name is None and isinstance(data.get("parts"), list) and "content" not in data:
        name = _PARTS
    if name is None and str(data.get("type", "")).startswith("tool-") and "toolCallId" in data:
        name = "Vercel's AI SDK"
    if name is not None:
        raise InvalidMessageError(
            f"{place}this is of {name}, which is not read here; make messages of form {form!r} of it, or "
            "bring a Form(read, write)"
        )
