"""Preview JSON: its shape, its keys, and real values of the first and last items."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from json.decoder import JSONArray  # type: ignore[attr-defined]
from json.scanner import py_make_scanner  # type: ignore[attr-defined]
from typing import Any

from context_compressor.messages.escapes import sendable
from context_compressor.offload.previews.lines import Show, counted
from context_compressor.offload.previews.objects import Objects, look_through

MAX_JSON_CHARACTERS = 2_000_000
"""Longer texts are previewed as plain text: parsing takes some 20 ms per million characters."""

MAX_PLACED_CHARACTERS = 200_000
"""Of a longer text in many lines no line numbers are given: to find them takes some 0.5 s per million
characters, twenty times as long as parsing."""

WHOLE_NAMES = 3
"""A string without blanks may be so many times as long before it is cut: a URL is of use only as a whole."""

MIN_JSON_LINES = 3
"""Of a text with a JSON value on each line."""


@dataclass(frozen=True, slots=True)
class _Detail:
    """How much is shown: characters per string, items at either end of a list, keys per object, levels."""

    string: int
    head: int
    tail: int
    keys: int
    depth: int


_DETAILS = (
    _Detail(24, 0, 0, 6, 1),
    _Detail(32, 1, 0, 8, 2),
    _Detail(100, 1, 0, 12, 2),
    _Detail(40, 1, 1, 10, 3),
    _Detail(50, 1, 1, 14, 3),
    _Detail(40, 1, 0, 10, 5),
    _Detail(60, 1, 1, 20, 4),
    _Detail(60, 2, 0, 14, 5),
    _Detail(60, 3, 0, 20, 5),
    _Detail(80, 2, 1, 24, 4),
    _Detail(100, 3, 1, 30, 5),
    _Detail(120, 4, 2, 30, 5),
    _Detail(140, 5, 2, 35, 6),
    _Detail(160, 6, 3, 40, 6),
    _Detail(200, 8, 4, 45, 6),
    _Detail(240, 10, 5, 50, 6),
    _Detail(300, 13, 6, 55, 7),
    _Detail(400, 20, 10, 60, 8),
    _Detail(600, 30, 15, 80, 10),
    _Detail(1000, 40, 20, 100, 12),
)
"""From the poorest to the richest, more or less: the richest that fits is shown."""

_WORDS = {None: "null", True: "true", False: "false"}
_encode = json.JSONEncoder(ensure_ascii=False).encode


class _Placed(list[Any]):
    """An array of which it is known where in the text its items begin."""

    starts: Sequence[int] = ()


class _PlacingDecoder(json.JSONDecoder):
    """Parse in Python, where arrays can be parsed in a way of one's own."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.parse_array = _place_items
        self.scan_once = py_make_scanner(self)


def _parse(text: str, is_numbered: bool) -> Any:
    is_placed = is_numbered and "\n" in text and len(text) <= MAX_PLACED_CHARACTERS
    decoder = _PlacingDecoder if is_placed else json.JSONDecoder
    # Numbers as the bytes they are written in, so that none is rounded and none is too long to convert.
    return decoder(parse_int=str.encode, parse_float=str.encode, parse_constant=str.encode).decode(text)


def _place_items(text_and_end: tuple[str, int], scan_once: Callable[[str, int], Any]) -> tuple[_Placed, int]:
    """Parse an array as the decoder does, and note where its items begin."""
    starts: list[int] = []

    def scan_and_note(text: str, start: int) -> Any:
        starts.append(start)
        return scan_once(text, start)

    values, end = JSONArray(text_and_end, scan_and_note)
    placed = _Placed(values)
    placed.starts = starts
    return placed, end


def _as_array(lines: Sequence[str]) -> str:
    """Return lines with a JSON value each as an array whose items stand on the same lines."""
    last = max(number for number, line in enumerate(lines) if line.strip())
    separated = (f"{line}," if line.strip() and number < last else line for number, line in enumerate(lines))
    return "[" + "\n".join(separated) + "]"


class _TooLong(Exception):
    """The rendering outgrew what could ever fit."""


def show_json(text: str, *, is_numbered: bool = True) -> Show | None:
    """Return what shows the shape of a JSON object or array in so many characters.

    A text with a value on each line is shown as an array.
    None when the text is not JSON, is larger than `MAX_JSON_CHARACTERS`, or is nested too deeply to parse.
    With `is_numbered` it says on which lines of the text the items begin that are left out.
    """
    if len(text) > MAX_JSON_CHARACTERS or text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        value = _parse(text, is_numbered)
    except json.JSONDecodeError as error:
        lines = text.split("\n")
        # A second value where the second line begins: JSON lines, it may be.
        if len(lines) < MIN_JSON_LINES or error.msg != "Extra data" or error.lineno > 2:
            return None
        try:
            text = _as_array(lines)
            value = _parse(text, is_numbered)
        except (ValueError, RecursionError):
            return None
    except (ValueError, RecursionError):
        return None

    seen: dict[int, Objects] = {}

    def render(level: int, characters: int) -> str:
        try:
            return _Renderer(_DETAILS[level], characters, text, seen).render(value, 0)
        except (_TooLong, RecursionError):
            return ""

    def show(characters: int) -> str:
        richest_first = (render(level, characters) for level in reversed(range(len(_DETAILS))))
        return next(filter(None, richest_first), "")

    return show


class _Renderer:
    """Write a value at one level of detail, and give up beyond `room` characters.

    Arrays are looked through once; `seen` has what they tell of their objects, by their identity.
    """

    def __init__(self, detail: _Detail, room: int, text: str, seen: dict[int, Objects]) -> None:
        self._detail = detail
        self._room = room
        self._text = text
        self._seen = seen

    def render(self, value: Any, depth: int) -> str:
        if isinstance(value, dict):
            return self._object(value, depth)
        if isinstance(value, list):
            return self._array(value, depth)
        if isinstance(value, bytes):
            return self._spend(self._shorten(value.decode()))
        if isinstance(value, str):
            return self._spend(self._string(value))
        return self._spend(_WORDS[value])

    def _spend(self, written: str) -> str:
        written = sendable(written)  # what was an escape in the text is one again
        self._room -= len(written)
        if self._room < 0:
            raise _TooLong
        return written

    def _shorten(self, text: str) -> str:
        return text if len(text) <= self._detail.string else f"{text[: self._detail.string]}…"

    def _string(self, value: str) -> str:
        most = self._detail.string
        if value.isascii() and " " not in value:
            most *= WHOLE_NAMES
        if len(value) <= most + 12:  # no longer than the note that it was cut
            return _encode(value)
        return f"{_encode(value[:most] + '…')} ({len(value)} characters)"

    def _object(self, value: dict[str, Any], depth: int) -> str:
        if not value:
            return self._spend("{}")
        names = list(value)
        if depth >= self._detail.depth:
            return self._spend(f"{{{counted(len(names), 'key')}: {self._names(names)}}}")
        shown = names[: self._detail.keys]
        members = [
            f"{self._spend(self._string(name))}: {self.render(value[name], depth + 1)}" for name in shown
        ]
        if len(names) > len(shown):
            rest = names[len(shown) :]
            members.append(self._spend(f"… {len(rest)} more: {self._names(rest)}"))
        return f"{{{', '.join(members)}}}"

    def _names(self, names: list[str]) -> str:
        shown = [self._shorten(name) for name in names[: self._detail.keys]]
        return ", ".join(shown) + (", …" if len(names) > len(shown) else "")

    def _array(self, value: list[Any], depth: int) -> str:
        if not value:
            return self._spend("[]")
        objects = self._objects(value)
        # Objects of which only the keys would be shown are told together.
        is_told = self._detail.head == 0 or (objects.titles != () and depth + 1 == self._detail.depth)
        if depth >= self._detail.depth or is_told:
            where = self._lines(value, 0, len(value))
            titles = self._titles(objects) if self._detail.head else ""
            return self._spend(f"[{self._count(value)}{where}{self._common_keys(value)}{titles}]")
        head, tail = self._detail.head, self._detail.tail
        if len(value) <= head + tail:
            return f"[{self._items(value, depth)}]"
        parts = [self._items(value[:head], depth)]
        end = len(value) - tail
        failed = next((at for at in objects.failed if head <= at < end), None)
        if failed is not None:
            parts += [self._left_out(value, head, failed), self.render(value[failed], depth + 1)]
            head = failed + 1
        parts.append(self._left_out(value, head, end))
        if tail:
            parts.append(self._items(value[-tail:], depth))
        return f"[{self._spend(self._count(value))}: {', '.join(filter(None, parts))}]"

    def _objects(self, value: list[Any]) -> Objects:
        if id(value) not in self._seen:
            self._seen[id(value)] = look_through(value)
        return self._seen[id(value)]

    def _left_out(self, value: list[Any], first: int, end: int) -> str:
        if first == end:
            return ""
        return self._spend(f"… {end - first} more{self._lines(value, first, end)} …")

    def _titles(self, objects: Objects) -> str:
        """Return the titles of a list's objects, in as many characters as one string more than items has."""
        if not objects.titles:
            return ""
        said = "; ".join(objects.titles)
        most = self._detail.string * (self._detail.head + self._detail.tail + 1)
        if len(said) > most:
            said = f"{said[:most].rpartition('; ')[0] or said[:most]}; …"
        return f"; {objects.key}: {said}"

    def _items(self, items: Iterable[Any], depth: int) -> str:
        return ", ".join(self.render(item, depth + 1) for item in items)

    def _lines(self, value: list[Any], first: int, end: int) -> str:
        """Return on which lines of the text some items of an array begin; "" where they share one."""
        if not isinstance(value, _Placed) or end - first < 2:
            return ""
        start, last = value.starts[first], value.starts[end - 1]
        line = self._text.count("\n", 0, start) + 1
        lines_after = self._text.count("\n", start, last)
        return f", lines {line}-{line + lines_after}" if lines_after else ""

    def _count(self, value: list[Any]) -> str:
        return counted(len(value), "object" if self._objects(value).are_all else "item")

    def _common_keys(self, value: list[Any]) -> str:
        if not isinstance(value[0], dict):
            return ""
        return f", keys {self._names(list(value[0]))}"
