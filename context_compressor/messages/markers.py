"""Markers: request metadata on chat dicts (cache breakpoints), apart from what these say and put back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from context_compressor.messages.msg import Msg, copy_json
from context_compressor.messages.plain import REQUEST_METADATA, as_dict, plain
from context_compressor.messages.remark import MARKERS, REMARK, remark_of

Markers = list[list[Any]]
"""Each a list: where the dict stands in the message, which of its keys this is, the key and its value.

Without a key it says only that the dict stands there: a part, where a string would say the same.
"""

_HOLDERS = ("content", "tool_calls", "function")
"""Keys under which dicts stand that may bear a marker; arguments are none: what they hold is content."""
_MAX_STEPS = 8
"""How deep such dicts may stand: in a result's part in a message's part, with room to spare."""
_ONLY_PART = ["content", 0]


def split_markers(wire: Mapping[str, Any]) -> tuple[dict[str, Any], Markers]:
    """Return a chat dict without request metadata, and that with its places.

    A content of one text is a string afterwards: where it bears a marker, it cannot be one.
    """
    markers: Markers = []
    bare = _split(wire, [], markers)
    content = bare.get("content")
    only = content[0] if isinstance(content, list) and len(content) == 1 else None
    text = only["text"] if isinstance(only, dict) and list(only) == ["type", "text"] else None
    if isinstance(text, str) and only == {"type": "text", "text": text}:
        bare["content"] = text
        markers = markers if has_marker(markers, _ONLY_PART) else [[_ONLY_PART, 0, None, None], *markers]
    return bare, markers


def has_marker(markers: Markers, path: list[Any] | None = None) -> bool:
    """Tell whether there is request metadata, in one place or at all."""
    return any(key is not None and path in (None, place) for place, _, key, _ in markers)


def _split(value: Mapping[str, Any], path: list[Any], markers: Markers) -> dict[str, Any]:
    bare: dict[str, Any] = {}
    for place, (key, held) in enumerate(value.items()):
        if key in REQUEST_METADATA:
            markers.append([path, place, key, plain(held, key)])
        elif key not in _HOLDERS or len(path) > _MAX_STEPS:
            bare[key] = held
        elif isinstance(held, list | tuple):
            bare[key] = [
                item if (found := as_dict(item)) is None else _split(found, [*path, key, index], markers)
                for index, item in enumerate(held)
            ]
        else:
            bare[key] = _split(held, [*path, key], markers) if isinstance(held, dict) else held
    return bare


def with_markers(wire: dict[str, Any], markers: Markers) -> dict[str, Any]:
    """Return a chat dict with request metadata in its places, as far as it has these; `wire` is changed."""
    if isinstance(wire.get("content"), str) and any(path[:2] == _ONLY_PART for path, *_ in markers):
        wire["content"] = [{"type": "text", "text": wire["content"]}]
    for path, place, key, value in markers:
        held: Any = wire
        for step in path:
            try:
                held = held[step]
            except (KeyError, IndexError, TypeError):
                held = None
        if key is not None and isinstance(held, dict):
            items = list(held.items())
            held.clear()
            held.update([*items[:place], (key, copy_json(value)), *items[place:]])
    return wire


def set_markers(msg: Msg, markers: Markers) -> Msg:
    """Let a message carry this request metadata and no other; return it."""
    remark = {key: said for key, said in remark_of(msg.metadata).items() if key != MARKERS}
    if markers:
        remark[MARKERS] = markers
    if remark:
        msg.metadata = {**(msg.metadata or {}), REMARK: remark}
    elif MARKERS in remark_of(msg.metadata):
        msg.metadata = {key: said for key, said in (msg.metadata or {}).items() if key != REMARK} or None
    return msg
