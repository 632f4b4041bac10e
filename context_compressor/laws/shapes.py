"""Checks of JSON values, from which the providers' rules are put together."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Check = Callable[[Any], bool]


def is_text(value: Any) -> bool:
    """Tell whether this is a text, the empty one included."""
    return isinstance(value, str)


def is_filled(value: Any) -> bool:
    """Tell whether this is a text of at least one character."""
    return isinstance(value, str) and value != ""


def is_object(value: Any) -> bool:
    """Tell whether this is an object."""
    return isinstance(value, dict)


def is_list(value: Any) -> bool:
    """Tell whether this is a list."""
    return isinstance(value, list)


def is_flag(value: Any) -> bool:
    """Tell whether this is true or false."""
    return isinstance(value, bool)


def is_json_object(value: Any) -> bool:
    """Tell whether this is a text that holds a JSON object."""
    try:
        return isinstance(value, str) and isinstance(json.loads(value), dict)
    except (ValueError, RecursionError):
        return False


def is_url(value: Any) -> bool:
    """Tell whether this is a web address or a data URL."""
    return isinstance(value, str) and value.startswith(("https://", "http://", "data:"))


def one_of(*values: str) -> Check:
    """Return a check for one of some texts."""
    return lambda value: isinstance(value, str) and value in values


def matches(pattern: str) -> Check:
    """Return a check for a text that matches a pattern as a whole."""
    compiled = re.compile(pattern)
    return lambda value: isinstance(value, str) and compiled.fullmatch(value) is not None


def or_null(check: Check) -> Check:
    """Return a check that takes null, too."""
    return lambda value: value is None or check(value)


def misshapen(where: str, value: Mapping[str, Any], required: Mapping[str, Check]) -> Iterator[str]:
    """Tell which required fields an object lacks or has in another shape."""
    for name, check in required.items():
        if name not in value:
            yield f"{where}.{name}: field required"
        elif not check(value[name]):
            yield f"{where}.{name}: {value[name]!r:.60}"


def keys_of(*kinds: Any) -> frozenset[str]:
    """Return the keys that an SDK's typed dicts have, those of all together."""
    return frozenset(key for kind in kinds for key in kind.__annotations__)
