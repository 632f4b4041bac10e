"""Edits: what may change in a view other than by growing, and their JSON form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from context_compressor.messages.parts import PartPath
from context_compressor.offload.store import check_ref


class ItemKey(NamedTuple):
    """Name one message of a view: the history message it comes from, and which part of it (mostly "")."""

    key: str
    part: str = ""


def message_id(key: str) -> str:
    """Return the message id of a history key; later messages under a reused id have keys of their own."""
    return key.rsplit("\0", 1)[0]


SEGMENT_PART = "@segment"
"""The part of a segment's own key, which keeps segment ids and message ids apart."""


@dataclass(frozen=True, slots=True)
class StubEdit:
    """A text left the view; a stub stands in for it."""

    item: ItemKey
    path: PartPath
    ref: str
    text: str
    """The stub as the view shows it."""
    tokens: int
    """Tokens of the stub's text."""
    page: bool = False
    """Whether the text was a page of `ref`: then `ref` names its source, and the stub says which lines."""


@dataclass(frozen=True, slots=True)
class SegmentEdit:
    """A group of exchanges, or of earlier segments, left the view; a segment stands in for it."""

    id: str
    items: tuple[ItemKey, ...]
    """The messages that it covers itself, in order."""
    children: tuple[str, ...]
    """The segments that it merged, in order."""
    ref: str
    """Ref of the transcript, or of the contents text of a merged segment."""
    media_refs: tuple[str, ...]
    """Refs of images and files that the transcript names."""
    text: str
    """The segment as the view shows it, label included."""
    summarized: bool
    """Whether it holds a summary; else it only names its ref."""
    notes: tuple[str, ...] = ()
    """What the agent asked to keep, as its text says it; or, where that only names a ref, as the segments
    that it merged said it."""
    standing: tuple[str, ...] = ()
    """Standing instructions of what it covers, as its text says them, the oldest first."""
    stands_for_tokens: int = 0
    """Tokens of the messages that it covers, at whatever depth, each result as far as a summariser reads it;
    0: not known, as in states of earlier releases."""


Edit = StubEdit | SegmentEdit


EditName = tuple[ItemKey, PartPath]
"""What an edit stands in for, or, of a segment, itself: no two edits that hold have one name."""


def name_of(edit: Edit) -> EditName:
    """Return an edit's name."""
    return (edit.item, edit.path) if isinstance(edit, StubEdit) else (ItemKey(edit.id, SEGMENT_PART), ())


def refs_of(edit: Edit) -> tuple[str, ...]:
    """Return the refs that an edit names."""
    return (edit.ref,) if isinstance(edit, StubEdit) else (edit.ref, *edit.media_refs)


def _item_to_json(item: ItemKey) -> Any:
    return [item.key, item.part] if item.part else item.key


def _item_from_json(data: Any) -> ItemKey:
    if isinstance(data, str):
        return ItemKey(data)
    if not isinstance(data, list) or len(data) != 2:
        raise ValueError(f"an item is a key, or a key and a part, not {data!r}")
    return ItemKey(_text(data[0]), _text(data[1]))


def edit_to_dict(edit: Edit) -> dict[str, Any]:
    """Return an edit as JSON-like data."""
    if isinstance(edit, StubEdit):
        return {
            "type": "stub",
            "item": _item_to_json(edit.item),
            "path": list(edit.path),
            "ref": edit.ref,
            "text": edit.text,
            "tokens": edit.tokens,
            "page": edit.page,
        }
    data = {
        "type": "segment",
        "id": edit.id,
        "items": [_item_to_json(item) for item in edit.items],
        "children": list(edit.children),
        "ref": edit.ref,
        "media_refs": list(edit.media_refs),
        "text": edit.text,
        "summarized": edit.summarized,
    }
    if edit.notes:
        data["notes"] = list(edit.notes)
    if edit.standing:
        data["standing"] = list(edit.standing)
    if edit.stands_for_tokens:
        data["stands_for_tokens"] = edit.stands_for_tokens
    return data


def edit_from_dict(data: Mapping[str, Any]) -> Edit:
    """Read `edit_to_dict`'s form.

    Raises:
        KeyError, TypeError, ValueError, OffloadNotFoundError: it is malformed.
    """
    kind = data["type"]
    if kind == "stub":
        return StubEdit(
            item=_item_from_json(data["item"]),
            path=tuple(_integer(step) for step in _items(data, "path")),
            ref=check_ref(data["ref"]),
            text=_text(data["text"]),
            tokens=_integer(data["tokens"]),
            page=_flag(data["page"]),
        )
    if kind == "segment":
        return SegmentEdit(
            id=_text(data["id"]),
            items=tuple(_item_from_json(item) for item in _items(data, "items")),
            children=tuple(_text(child) for child in _items(data, "children")),
            ref=check_ref(data["ref"]),
            media_refs=tuple(check_ref(ref) for ref in _items(data, "media_refs")),
            text=_text(data["text"]),
            summarized=_flag(data["summarized"]),
            notes=tuple(_text(note) for note in _items(data, "notes")) if "notes" in data else (),
            standing=tuple(_text(line) for line in _items(data, "standing")) if "standing" in data else (),
            stands_for_tokens=_integer(data.get("stands_for_tokens", 0)),
        )
    raise ValueError(f"unknown type {kind!r}")


def _items(data: Mapping[str, Any], name: str) -> list[Any]:
    values = data[name]
    if not isinstance(values, list):
        raise TypeError(f"{name}: expected a list, got {type(values).__name__}")
    return values


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a string, got {type(value).__name__}")
    return value


def _integer(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"expected an integer, got {type(value).__name__}")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"expected true or false, got {type(value).__name__}")
    return value
