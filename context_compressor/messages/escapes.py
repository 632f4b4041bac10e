"""Halves of surrogate pairs, which UTF-8 cannot carry, as JSON escapes."""

from __future__ import annotations

import json
from typing import Any


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
