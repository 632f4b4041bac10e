"""The ledger: the append-only record of edits to the view, and what follows from it.

Edits are appended and never changed; one holds until a later stub of the same text replaces it, or it is
withdrawn: a segment by itself, the stubs of an item together. The serialised form is versioned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Reversible
from copy import deepcopy
from itertools import chain
from typing import Any

from context_compressor.compression.edits import (
    Edit,
    EditName,
    ItemKey,
    SegmentEdit,
    StubEdit,
    edit_from_dict,
    edit_to_dict,
    message_id,
    name_of,
    refs_of,
)
from context_compressor.errors import InvalidStateError, OffloadNotFoundError
from context_compressor.messages.exchanges import Decisions
from context_compressor.messages.parts import PartPath
from context_compressor.offload.store import check_ref

LEDGER_VERSION = 1


class Ledger:
    """Keep edits in order, and answer what is live.

    Attributes:
        entries: the edits committed, oldest first; some may not hold any more.
        pending: refs whose text is not durable yet; read-back serves them from the history.
        unwanted: refs whose text nothing names any more and which the store has yet to remove.
        frontier: how many history messages have been seen.
        decisions: what pairing decided for views that were shown, saved beside it; None in a state that an
            earlier release saved, until the history is read.
        stub_count: how many live stubs there are, those inside segments included.
    """

    def __init__(self) -> None:
        self.entries: list[Edit] = []
        self.pending: set[str] = set()
        self.unwanted: set[str] = set()
        self.frontier = 0
        self.decisions: Decisions | None = Decisions()
        self.stub_count = 0
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

    def segments(self) -> Reversible[SegmentEdit]:
        """Return every live segment, merged ones included, the oldest first."""
        return self._segments.values()

    @property
    def has_segments(self) -> bool:
        """Whether there are live segments."""
        return bool(self._segments)

    def segment_of(self, item: ItemKey) -> SegmentEdit | None:
        """Return the segment whose transcript holds an item, or None."""
        holder = self._holder.get(item)
        return None if holder is None else self._segments[holder]

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
            own = dict.fromkeys(message_id(item.key) for item in segment.items)
            ids = tuple(chain(*(self.ids_under(child) for child in segment.children), own))
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
            found.update((ref, None) for ref in refs_of(edit) if self._named[ref] > 0)
        return list(found)

    def refs_newest_first(self, places: Mapping[str, int]) -> list[str]:
        """Return the refs that live edits name, the one of the newest message first.

        A segment counts by the newest message that it covers, a page by none, for what it shows is older; of
        one message, what was committed last comes first.

        Args:
            places: where each message stands in the history, by key.
        """
        newest = dict.fromkeys(self.refs(), -1)
        of_segment: dict[str, int] = {}
        for edit in self._holding():
            if isinstance(edit, StubEdit):
                place = -1 if edit.page else places.get(edit.item.key, -1)
            else:
                within = [places.get(item.key, -1) for item in edit.items]
                within += [of_segment.get(child, -1) for child in edit.children]
                place = of_segment[edit.id] = max(within, default=-1)
            newest.update((ref, max(newest[ref], place)) for ref in refs_of(edit))
        return sorted(newest, key=lambda ref: -newest[ref])

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
            if earlier is None:
                self.stub_count += 1
            else:
                self._forget(earlier)
        else:
            self._segments[edit.id] = edit
            self._used_ids.add(edit.id)
            self._holder.update((item, edit.id) for item in edit.items)
            self._parent.update((child, edit.id) for child in edit.children)
            self._name(edit)

    def _name(self, edit: Edit) -> None:
        refs = refs_of(edit)
        self._named.update(refs)
        self.unwanted.difference_update(refs)

    def _forget(self, edit: Edit) -> None:
        for ref in refs_of(edit):
            self._named[ref] -= 1
            if self._named[ref] <= 0:
                del self._named[ref]
                # A pending text may have landed although the store said no; removing an absent one is fine.
                self.pending.discard(ref)
                self.unwanted.add(ref)

    def stands_in_for(self, item: ItemKey) -> bool:
        """Tell whether a segment stands in for an item, or a stub for one of its texts."""
        return item in self._holder or bool(self._stubs.get(item))

    def withdraw(self, item: ItemKey) -> None:
        """Withdraw whatever stands in for an item; nothing may."""
        self.withdraw_segments_over(item)
        for stub in self._stubs.pop(item, {}).values():
            self._forget_stub(stub)

    def _forget_stub(self, stub: StubEdit) -> None:
        self.stub_count -= 1
        self._forget(stub)

    def withdraw_segments_over(self, item: ItemKey) -> None:
        """Withdraw every segment that covers `item`, the outermost first.

        Segments that those had merged, and that do not cover the item, stand in the view again.
        """
        chain: list[str] = []
        holder = self._holder.get(item)
        while holder is not None:
            chain.append(holder)
            holder = self._parent.get(holder)
        for segment_id in reversed(chain):
            self._withdraw_segment(segment_id)

    def _withdraw_segment(self, segment_id: str) -> None:
        segment = self._segments.pop(segment_id)
        self._ids_under.pop(segment_id, None)
        for item in segment.items:
            del self._holder[item]
        for child in segment.children:
            del self._parent[child]
        self._forget(segment)

    def edits(self) -> dict[EditName, Edit]:
        """Return the edits that hold, oldest first, by their names."""
        return {name_of(edit): edit for edit in self._holding()}

    def drop(self, names: Container[EditName]) -> None:
        """Drop edits, and with them their words; whatever merged one of them has to be among them."""
        for edit in reversed(list(self._holding())):
            if name_of(edit) not in names:
                continue
            if isinstance(edit, SegmentEdit):
                self._withdraw_segment(edit.id)
            else:
                by_path = self._stubs[edit.item]
                self._forget_stub(by_path.pop(edit.path))
                if not by_path:
                    del self._stubs[edit.item]
        self.entries = list(self._holding())

    def followed_by(self, edits: Iterable[Edit], learnt: Mapping[str, Any]) -> Ledger:
        """Return the ledger of a history to which others wrote, with what this one knows beside it.

        Args:
            edits: all that hold now.
            learnt: what goes with them, as `learnt` returns it.
        """
        other = Ledger()
        for edit in edits:
            other.append(edit)
        other._used_ids |= self._used_ids
        other.frontier = self.frontier
        other.pending = {ref for ref in learnt["pending"] if other.is_live(ref)}
        other.unwanted = {ref for ref in (*self.refs(), *self.unwanted) if not other.is_live(ref)}
        other.decisions = Decisions.from_dict(learnt["decisions"])
        return other

    def learnt(self) -> dict[str, Any]:
        """Return, as JSON-like data, what every reader of a history has to know beside the edits."""
        decisions = self.decisions or Decisions()
        return {"pending": sorted(self.pending), "decisions": decisions.to_dict()}

    def copy(self) -> Ledger:
        """Return another ledger with the same edits; `drop` brings this one to where the copy gets."""
        other = Ledger()
        for edit in self._holding():
            other.append(edit)
        other.pending, other.unwanted = set(self.pending), set(self.unwanted)
        other.frontier, other._used_ids = self.frontier, set(self._used_ids)
        other.decisions = deepcopy(self.decisions)
        return other

    def to_dict(self) -> dict[str, Any]:
        """Return the ledger as JSON-like data; `from_dict` reads it back.

        Edits that no longer hold are left out: they would keep words of deleted messages.
        """
        return {
            "version": LEDGER_VERSION,
            "frontier": self.frontier,
            "pending": sorted(self.pending),
            "unwanted": sorted(self.unwanted),
            "withdrawn_ids": sorted(self._used_ids - self._segments.keys()),
            "entries": [edit_to_dict(edit) for edit in self._holding()],
        }

    def _holding(self) -> Iterator[Edit]:
        for edit in self.entries:
            if isinstance(edit, StubEdit):
                holds = self._stubs.get(edit.item, {}).get(edit.path) is edit
            else:
                holds = self._segments.get(edit.id) is edit
            if holds:
                yield edit

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
        frontier = data.get("frontier")
        if type(frontier) is not int or frontier < 0:
            raise InvalidStateError(f"ledger.frontier: expected a number of messages, got {frontier!r}")
        for index, entry in enumerate(_list_of(data, "entries", dict)):
            try:
                ledger._load(edit_from_dict(entry))
            except (KeyError, TypeError, ValueError, OffloadNotFoundError) as error:
                raise InvalidStateError(f"ledger.entries[{index}]: malformed ({error})") from error
        ledger.frontier = frontier
        ledger.pending = {ref for ref in _refs_in(data, "pending") if ledger.is_live(ref)}
        ledger.unwanted = {ref for ref in _refs_in(data, "unwanted") if not ledger.is_live(ref)}
        ledger._used_ids.update(_list_of(data, "withdrawn_ids", str))
        return ledger

    def _load(self, edit: Edit) -> None:
        """Append an edit from outside.

        Raises:
            ValueError: it does not fit what stands before it.
        """
        if isinstance(edit, SegmentEdit):
            if edit.id in self._used_ids:
                raise ValueError(f"a second segment {edit.id!r}")
            for child in edit.children:
                if child not in self._segments or child in self._parent:
                    raise ValueError(f"child {child!r} is no segment that is free to be merged")
            if len(set(edit.items)) < len(edit.items) or len(set(edit.children)) < len(edit.children):
                raise ValueError("an item or a child comes twice")
            for item in edit.items:
                if item in self._holder:
                    raise ValueError(f"item {item.key!r} is in another segment")
        self.append(edit)


def _list_of(data: Mapping[str, Any], name: str, kind: type) -> list[Any]:
    values = data.get(name)
    if not isinstance(values, list):
        raise InvalidStateError(f"ledger.{name}: expected a list, got {type(values).__name__}")
    for index, value in enumerate(values):
        if not isinstance(value, kind):
            got = type(value).__name__
            raise InvalidStateError(f"ledger.{name}[{index}]: expected {kind.__name__}, got {got}")
    return values


def _refs_in(data: Mapping[str, Any], name: str) -> list[str]:
    refs: list[str] = _list_of(data, name, str)
    for index, ref in enumerate(refs):
        try:
            check_ref(ref)
        except OffloadNotFoundError as error:
            raise InvalidStateError(f"ledger.{name}[{index}]: {error}") from error
    return refs
