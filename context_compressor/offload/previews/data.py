"""Show JSON by its shape: keys and values as far as there is room, counts, and the first items of lists."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from context_compressor.messages.text import sendable
from context_compressor.offload.previews.text import Show, counted, share_out

MAX_JSON_CHARACTERS = 2_000_000
"""Longer texts are previewed as plain text: parsing takes some 20 ms per million characters."""

MAX_DEPTH = 100
"""Of values within values; JSON that is nested deeper is previewed as plain text, too."""

VALUE_CHARACTERS = 120
"""What a value gets at least, if it needs it: where it cannot have it, fewer values are shown. Addresses,
titles and names are shorter, as a rule."""

MAX_TEXT_SHARE = 0.5
"""Where one text takes more of the JSON, that text is what there is to show, not the shape around it."""

NOTED_CHARACTERS = 1000
"""Of a longer text it is said how long it is."""

_MIN_CHARACTERS, _NUMBER_CHARACTERS, _NAMES_CHARACTERS = 12, 24, 40
"""What is shown at least of a text, of a number, and of the names of keys."""
_MARK_CHARACTERS = 25
"""What it costs to say that there is more."""

_encode = json.JSONEncoder(ensure_ascii=False).encode
_WORDS = {None: "null", True: "true", False: "false"}


def show_json(text: str) -> Show | None:
    """Return what shows the shape of a JSON object or array; None for other and for very large texts."""
    if len(text) > MAX_JSON_CHARACTERS or text.lstrip()[:1] not in ("{", "["):
        return None
    sizes: dict[int, int] = {}
    try:
        # Numbers as the bytes they are written in, so that none is rounded and none is too long to convert.
        value = json.loads(
            text, strict=False, parse_int=str.encode, parse_float=str.encode, parse_constant=str.encode
        )
        longest = _measure(value, sizes, 0)
    except (ValueError, RecursionError):
        return None
    if longest > sizes[id(value)] * MAX_TEXT_SHARE:
        return None
    return lambda characters: sendable(_render(value, characters, sizes)) if characters > 0 else ""


def _measure(value: Any, sizes: dict[int, int], depth: int) -> int:
    """Note how long objects and arrays are as written, by identity; return the length of the longest text."""
    if not isinstance(value, dict | list):
        return len(value) if isinstance(value, str) else 0
    if depth == MAX_DEPTH:
        raise RecursionError
    items = value.values() if isinstance(value, dict) else value
    longest = max((_measure(item, sizes, depth + 1) for item in items), default=0)
    names = sum(len(name) + 4 for name in value) if isinstance(value, dict) else 0
    sizes[id(value)] = 2 + names + sum(_size(item, sizes) + 2 for item in items)
    return longest


def _size(value: Any, sizes: dict[int, int]) -> int:
    if isinstance(value, dict | list):
        return sizes[id(value)]
    if isinstance(value, bytes):
        return min(len(value), _NUMBER_CHARACTERS + 1)
    return len(value) + 2 if isinstance(value, str) else 5


def _render(value: Any, room: int, sizes: dict[int, int]) -> str:
    """Write a value in about `room` characters."""
    if isinstance(value, dict):
        return _object(value, room, sizes)
    if isinstance(value, list):
        return _array(value, room, sizes)
    if isinstance(value, str):
        return _string(value, room)
    if isinstance(value, bytes):
        return value[:_NUMBER_CHARACTERS].decode() + ("…" if len(value) > _NUMBER_CHARACTERS else "")
    return _WORDS[value]


def _string(value: str, room: int) -> str:
    if len(value) <= max(room - 2, _MIN_CHARACTERS):
        return _encode(value)
    note = f" ({len(value)} characters)" if len(value) > NOTED_CHARACTERS else ""
    return f"{_encode(value[: max(room - 3 - len(note), _MIN_CHARACTERS)] + '…')}{note}"


def _need(value: Any, most: int) -> int:
    """Return what a value takes with its long texts cut to their beginning, up to `most`."""
    if not isinstance(value, dict | list):
        return min(_size(value, {}), most)
    size = 2
    for key, item in value.items() if isinstance(value, dict) else (("", item) for item in value):
        size += len(key) + 6 + _need(item, VALUE_CHARACTERS)
        if size > most:
            return most
    return size


def _choose(needs: Iterable[int], room: int) -> int:
    """Return how many members of an object or items of an array are shown in `room` characters."""
    count = 0
    for need in needs:
        if need > 2 * room:
            break
        room -= need
        count += 1
    return count


def _object(value: dict[str, Any], room: int, sizes: dict[int, int]) -> str:
    names = shown = list(value)
    if sizes[id(value)] > room:
        room -= _MARK_CHARACTERS
        needs = (len(name) + 6 + _need(value[name], VALUE_CHARACTERS) for name in names)
        shown = names[: _choose(needs, room)]
    if names and not shown:
        return f"{{{counted(len(names), 'key')}: {_names(names, room)}}}"
    room -= sum(len(name) + 6 for name in shown)
    rooms = share_out([_size(value[name], sizes) for name in shown], room)
    members = [
        f"{_string(name, VALUE_CHARACTERS)}: {_render(value[name], part, sizes)}"
        for name, part in zip(shown, rooms, strict=True)
    ]
    if rest := names[len(shown) :]:
        members.append(f"… {len(rest)} more: {_names(rest, room - sum(rooms))}")
    return f"{{{', '.join(members)}}}"


def _names(names: Sequence[str], room: int) -> str:
    most = max(room, _NAMES_CHARACTERS)
    said = ", ".join(names[:most])
    return said if len(said) <= most else f"{said[:most]}…"


def _array(value: list[Any], room: int, sizes: dict[int, int]) -> str:
    if sizes[id(value)] <= room:
        return f"[{', '.join(_render(item, _size(item, sizes), sizes) for item in value)}]"
    thing = "object" if all(isinstance(item, dict) for item in value) else "item"
    room -= _MARK_CHARACTERS
    items = value[: _choose((_need(item, room) + 2 for item in value), room)]
    if room < 2 * _MIN_CHARACTERS or not items:
        keys = f" with keys {_names(list(value[0]), room)}" if thing == "object" else ""
        return f"[{counted(len(value), thing)}{keys}]"
    needs = [min(_need(item, room), _size(item, sizes)) for item in items]
    left = room - sum(need + 2 for need in needs)
    said = []
    for item, need in zip(items, needs, strict=True):
        # The first has what others do not need; the last may have less than it needs.
        part = min(_size(item, sizes), need + max(left, 0)) if item is not items[-1] else need + left
        left -= part - need
        said.append(_render(item, part, sizes))
    if hidden := len(value) - len(items):
        said.append(f"… {hidden} more")
    return f"[{counted(len(value), thing)}: {', '.join(said)}]"
