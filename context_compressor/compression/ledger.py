"""The ledger: the append-only record of edits to the view, and what follows from it.

Edits are appended and never changed; a later stub of the same text replaces an earlier one, a withdrawal
takes a segment or an item's stubs back. The serialised form is versioned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from context_compressor.errors import InvalidStateError
from context_compressor.messages.parts import PartPath

LEDGER_VERSION = 1


class ItemKey(NamedTuple):
    """Name one message of a view: the history message it comes from, and which part of it (mostly "")."""

    key: str
    part: str = ""


def message_id(key: str) -> str:
    """Return the message id of a history key; later messages under a reused id have keys of their own."""
    return key.split("\0", 1)[0]


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


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """A segment, or all stubs of an item, no longer hold."""

    segment: str | None = None
    item: ItemKey | None = None


Edit = StubEdit | SegmentEdit | Withdrawal


class Ledger:
    """Keep edits in order, and answer what is live.

    Attributes:
        entries: every edit ever committed, oldest first.
        pending: refs whose text is not durable yet; read-back serves them from the history.
        unwanted: refs whose text nothing names any more and which the store has yet to remove.
        frontier: how many history messages have been seen.
    """

    def __init__(self) -> None:
        self.entries: list[Edit] = []
        self.pending: set[str] = set()
        self.unwanted: set[str] = set()
        self.frontier = 0
        self._stubs: dict[ItemKey, dict[PartPath, StubEdit]] = {}
        self._segments: dict[str, SegmentEdit] = {}
        self._holder: dict[ItemKey, str] = {}
        self._parent: dict[str, str] = {}
        self._named: Counter[str] = Counter()
        self._used_ids: set[str] = set()
        self._ids_under: dict[str, tuple[str, ...]] = {}

    def stubs_of(self, item: ItemKey) -> Mapping[PartPath, StubEdit]:
        """Return the live stubs of an item, by address."""
        return self._stubs.get(item, {})

    def stubs(self) -> Iterator[StubEdit]:
        """Yield every live stub, those inside segments included."""
        for by_path in self._stubs.values():
            yield from by_path.values()

    def segment(self, segment_id: str) -> SegmentEdit | None:
        """Return a live segment, merged ones included, or None."""
        return self._segments.get(segment_id)

    def segments(self) -> Iterator[SegmentEdit]:
        """Yield every live segment, merged ones included."""
        yield from self._segments.values()

    def top_segment_of(self, item: ItemKey) -> SegmentEdit | None:
        """Return the segment that stands in the view for an item, or None when the item itself does."""
        holder = self._holder.get(item)
        return None if holder is None else self._segments[self._top(holder)]

    def _top(self, segment_id: str) -> str:
        while (parent := self._parent.get(segment_id)) is not None:
            segment_id = parent
        return segment_id

    def ids_under(self, segment_id: str) -> tuple[str, ...]:
        """Return the ids of the messages that a segment covers, those of the segments it merged first.

        Kept for segments that nothing has merged yet: joining those of children is all that a merge costs,
        and copies at every level of merging would add up to far more than the history.
        """
        ids = self._ids_under.get(segment_id)
        if ids is None:
            segment = self._segments[segment_id]
            own = tuple(dict.fromkeys(message_id(item.key) for item in segment.items))
            ids = sum((self.ids_under(child) for child in segment.children), ()) + own
            for child in segment.children:
                self._ids_under.pop(child, None)
            self._ids_under[segment_id] = ids
        return ids

    def items(self) -> Iterator[ItemKey]:
        """Yield every item that a live stub or segment concerns."""
        yield from self._stubs
        yield from self._holder

    def is_live(self, ref: str) -> bool:
        """Tell whether a live edit names `ref`."""
        return self._named[ref] > 0

    def refs(self) -> list[str]:
        """Return the refs that live edits name, those committed last first."""
        found: dict[str, None] = {}
        for edit in reversed(self.entries):
            if not isinstance(edit, Withdrawal):
                found.update((ref, None) for ref in _refs_of(edit) if self._named[ref] > 0)
        return list(found)

    def new_segment_id(self, ref: str, taken: Collection[str] = ()) -> str:
        """Return an id for a segment with this ref, not among `taken`.

        The same ledger gives the same id in any process; a withdrawn segment's id is not given again.
        """
        stem = "segment-" + ref.removeprefix("ctx://")
        number, segment_id = 1, stem
        while segment_id in self._used_ids or segment_id in taken:
            number += 1
            segment_id = f"{stem}-{number}"
        return segment_id

    def append(self, edit: Edit) -> None:
        """Record an edit."""
        self.entries.append(edit)
        if isinstance(edit, StubEdit):
            by_path = self._stubs.setdefault(edit.item, {})
            earlier = by_path.get(edit.path)
            by_path[edit.path] = edit
            self._name(edit)
            if earlier is not None:
                self._forget(earlier)
        elif isinstance(edit, SegmentEdit):
            self._segments[edit.id] = edit
            self._used_ids.add(edit.id)
            self._holder.update((item, edit.id) for item in edit.items)
            self._parent.update((child, edit.id) for child in edit.children)
            self._name(edit)
        elif edit.segment is not None:
            self._withdraw_segment(edit.segment)
        elif edit.item is not None:
            for stub in self._stubs.pop(edit.item, {}).values():
                self._forget(stub)

    def _withdraw_segment(self, segment_id: str) -> None:
        segment = self._segments.pop(segment_id)
        self._ids_under.pop(segment_id, None)
        for item in segment.items:
            del self._holder[item]
        for child in segment.children:
            del self._parent[child]
        self._parent.pop(segment_id, None)
        self._forget(segment)

    def _name(self, edit: StubEdit | SegmentEdit) -> None:
        refs = _refs_of(edit)
        self._named.update(refs)
        self.unwanted.difference_update(refs)

    def _forget(self, edit: StubEdit | SegmentEdit) -> None:
        for ref in _refs_of(edit):
            self._named[ref] -= 1
            if self._named[ref] <= 0:
                del self._named[ref]
                if ref in self.pending:
                    self.pending.discard(ref)
                else:
                    self.unwanted.add(ref)

    def withdraw_segments_over(self, item: ItemKey) -> list[SegmentEdit]:
        """Withdraw every segment that covers `item`, the outermost first; return them.

        Segments that those had merged, and that do not cover the item, stand in the view again.
        """
        chain: list[str] = []
        holder = self._holder.get(item)
        while holder is not None:
            chain.append(holder)
            holder = self._parent.get(holder)
        withdrawn = [self._segments[segment_id] for segment_id in reversed(chain)]
        for segment in withdrawn:
            self.append(Withdrawal(segment=segment.id))
        return withdrawn

    def to_dict(self) -> dict[str, Any]:
        """Return the ledger as JSON-like data; `from_dict` reads it back."""
        return {
            "version": LEDGER_VERSION,
            "frontier": self.frontier,
            "pending": sorted(self.pending),
            "unwanted": sorted(self.unwanted),
            "entries": [_edit_to_dict(edit) for edit in self.entries],
        }

    @classmethod
    def from_dict(cls, data: Any) -> Ledger:
        """Read the serialised form.

        Raises:
            InvalidStateError: an unknown version, or a missing or malformed field; the text says which.
        """
        if not isinstance(data, dict):
            raise InvalidStateError(f"ledger: expected a dict, got {type(data).__name__}")
        if data.get("version") != LEDGER_VERSION:
            raise InvalidStateError(
                f"ledger.version: this release reads {LEDGER_VERSION}, the state has {data.get('version')!r}"
            )
        ledger = cls()
        try:
            ledger.frontier = int(data["frontier"])
            for index, entry in enumerate(data["entries"]):
                try:
                    ledger.append(_edit_from_dict(entry))
                except (KeyError, TypeError, ValueError, AttributeError) as error:
                    raise InvalidStateError(f"ledger.entries[{index}]: malformed ({error!r})") from error
            ledger.pending = {ref for ref in data["pending"] if ledger.is_live(ref)}
            ledger.unwanted = {_text(ref) for ref in data["unwanted"] if not ledger.is_live(ref)}
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, InvalidStateError):
                raise
            raise InvalidStateError(f"ledger: missing or malformed field ({error!r})") from error
        return ledger


def _refs_of(edit: StubEdit | SegmentEdit) -> Iterable[str]:
    return (edit.ref,) if isinstance(edit, StubEdit) else (edit.ref, *edit.media_refs)


def _item_to_json(item: ItemKey) -> Any:
    return [item.key, item.part] if item.part else item.key


def _item_from_json(data: Any) -> ItemKey:
    if isinstance(data, str):
        return ItemKey(data)
    key, part = data
    return ItemKey(str(key), str(part))


def _edit_to_dict(edit: Edit) -> dict[str, Any]:
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
    if isinstance(edit, SegmentEdit):
        return {
            "type": "segment",
            "id": edit.id,
            "items": [_item_to_json(item) for item in edit.items],
            "children": list(edit.children),
            "ref": edit.ref,
            "media_refs": list(edit.media_refs),
            "text": edit.text,
            "summarized": edit.summarized,
        }
    item = None if edit.item is None else _item_to_json(edit.item)
    return {"type": "withdrawal", "segment": edit.segment, "item": item}


def _edit_from_dict(data: Mapping[str, Any]) -> Edit:
    kind = data["type"]
    if kind == "stub":
        return StubEdit(
            _item_from_json(data["item"]),
            tuple(int(step) for step in data["path"]),
            _text(data["ref"]),
            _text(data["text"]),
            int(data["tokens"]),
            bool(data["page"]),
        )
    if kind == "segment":
        return SegmentEdit(
            _text(data["id"]),
            tuple(_item_from_json(item) for item in data["items"]),
            tuple(_text(child) for child in data["children"]),
            _text(data["ref"]),
            tuple(_text(ref) for ref in data["media_refs"]),
            _text(data["text"]),
            bool(data["summarized"]),
        )
    if kind == "withdrawal":
        item = data["item"]
        return Withdrawal(data["segment"], None if item is None else _item_from_json(item))
    raise ValueError(f"unknown type {kind!r}")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a string, got {type(value).__name__}")
    return value
