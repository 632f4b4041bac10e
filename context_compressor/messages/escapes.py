"""Characters that stand as JSON escapes: halves of surrogate pairs, and what comes from outside so."""

from __future__ import annotations

import json
import re
from typing import Any

_ESCAPES = re.compile(r"(?<!\\)\\+u[0-9A-Fa-f]{4}")
_ESCAPED_LETTERS = re.compile(r"(?<!\\)(?:\\+u(?!00[0-9])[0-9A-Fa-f]{4})+")
"""Without those of ASCII and of control characters, which have a meaning where they are escaped."""


def without_escapes(text: str) -> str:
    """Return a text with a blank for each character that JSON wrote as an escape, in JSON within JSON, too.

    The digits of an escape are no part of the word beside it, and no name.
    """
    return _ESCAPES.sub(" ", text) if "\\" in text and "\\u" in text else text


def with_letters(text: str) -> str:
    """Return a text with the characters that JSON wrote as escapes, other than those of ASCII."""
    if "\\" not in text or "\\u" not in text:  # one character is found faster than two
        return text
    return _ESCAPED_LETTERS.sub(
        lambda run: bytes.fromhex(re.sub(r"\\+u", "", run[0])).decode("utf-16-be", "replace"), text
    )


def sendable(text: str) -> str:
    """Return text that can be sent as UTF-8: the same, halves of surrogate pairs as escapes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return text


def dump_sendable(value: Any, **options: Any) -> str:
    """Return JSON text that can be sent as UTF-8: readable, and escaped where it holds half a surrogate pair.

    Raises:
        TypeError, ValueError, RecursionError: as `json.dumps`, which gets the options.
    """
    text = json.dumps(value, ensure_ascii=False, **options)
    return text if sendable(text) is text else json.dumps(value, **options)
