"""Keep API keys out of what is raised and logged."""

from __future__ import annotations

import re
from collections.abc import Iterable

_KEY = re.compile(r"\bsk-[\w*-]{6,}", re.ASCII)  # Chinese may stand beside it without a blank
_MIN_KEY_CHARS = 6
"""Shorter keys are dummies; hiding "x" would garble every message."""


class KeyGuard:
    """Hide these keys, and whatever looks like one.

    Args:
        keys: those in use, as they were given; what is no string is ignored.
    """

    def __init__(self, keys: Iterable[object]) -> None:
        stripped = (key.strip() for key in keys if isinstance(key, str))
        self._keys = [key for key in stripped if len(key) >= _MIN_KEY_CHARS]

    def hide(self, text: str) -> str:
        """Return `text` without keys."""
        for key in self._keys:
            text = text.replace(key, "***")
        return _KEY.sub("***", text)

    def shows(self, error: BaseException | None) -> bool:
        """Tell whether an exception, or one that led to it, holds a key in its text or its repr."""
        seen: set[int] = set()
        waiting = [error]
        while waiting:
            current = waiting.pop()
            if current is None or id(current) in seen:
                continue
            seen.add(id(current))
            text = f"{current} {current!r} {getattr(current, '__notes__', '')}"
            if _KEY.search(text) or any(key in text for key in self._keys):
                return True
            waiting += [current.__cause__, current.__context__]
            if isinstance(current, BaseExceptionGroup):
                waiting += current.exceptions
        return False
