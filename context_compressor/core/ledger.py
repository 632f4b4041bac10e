"""The ledger: the append-only record of edits to the view, and what follows from it.

Edits are appended and never changed; one holds until a later stub of the same text replaces it, or it is
withdrawn: a segment by itself, the stubs of an item together. The serialised form is versioned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Reversible, Sequence, Set
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import Annotated, Any

from pydantic import Field, StrictInt

from context_compressor.core.edits import (
    SEGMENT_PART,
    Edit,
    EditName,
    ItemKey,
    Made,
    Ref,
    SavedEdit,
    SegmentEdit,
    StubEdit,
    Text,
    edit_to_dict,
    kept_refs_of,
    message_id,
    name_of,
    refs_of,
    without_words,
    words_of,
)
from context_compressor.errors import InvalidStateError
from context_compressor.messages.exchanges import Decisions
from context_compressor.messages.parts import PartPath
from context_compressor.offload.store import ref_of

KEPT_PARTS = 4
"""So many parts before the newest keep their words, for what takes the newest back: an answer that is asked
for again, a message that is deleted soon after it came."""


@dataclass(frozen=True, slots=True)
class SavedLedger:
    """A ledger as `Ledger.to_dict` writes it, for pydantic to read."""

    frontier: Annotated[StrictInt, Field(ge=0)]
    pending: list[Ref]
    unwanted: list[Ref]
    withdrawn_ids: list[Text]
    entries: list[SavedEdit]


class Ledger:
    """Keep the edits that hold in order, and answer what is live.

    It grows with what can still be reached: an edit that is replaced or withdrawn is forgotten, and of parts
    of the notes all but the newest keep their refs and the keys of their items, some 200 bytes and, with
    those of what a model read beside, 50 for each message, and no words.

    Attributes:
        doubtful: refs of which nobody knows whether the store has what an edit names, or has removed what
            none does.
        frontier: how many history messages have been seen.
        decisions: what pairing decided for views that were shown, saved beside it; None in a state that an
            earlier release saved, until the history is read.
    """

    def __init__(self) -> None:
        self.doubtful: set[str] = set()
        self.frontier = 0
        self.decisions: Decisions | None = Decisions()
        self._edits: dict[EditName, Edit] = {}
        self._stubs: dict[ItemKey, dict[PartPath, StubEdit]] = {}
        self._segments: dict[str, SegmentEdit] = {}
        self._holder: dict[ItemKey, str] = {}
        self._parent: dict[str, str] = {}
        self._named: Counter[str] = Counter()
        self._kept: Counter[str] = Counter()  # those that are named, and those of words
        self._used_ids: set[str] = set()
        self._ids_under: dict[str, tuple[str, ...]] = {}
        self._tops: dict[str, str] = {}

    @property
    def entries(self) -> list[Edit]:
        """The edits that hold, oldest first."""
        return list(self._edits.values())

    @property
    def stub_count(self) -> int:
        """How many live stubs there are, those inside segments included."""
        return len(self._edits) - len(self._segments)

    def holds(self, edit: Edit) -> bool:
        """Tell whether this very edit is live."""
        return self._edits.get(name_of(edit)) is edit

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

    def segment_of(self, item: ItemKey) -> SegmentEdit | None:
        """Return the segment whose transcript holds an item, or None."""
        holder = self._holder.get(item)
        return None if holder is None else self._segments[holder]

    def top_segment_of(self, item: ItemKey) -> SegmentEdit | None:
        """Return the segment that stands in the view for an item or a segment; None when the item does."""
        is_segment = item.part == SEGMENT_PART and item.key in self._segments
        holder = item.key if is_segment else self._holder.get(item)
        return None if holder is None else self._segments[self._top(holder)]

    def _top(self, segment_id: str) -> str:
        path = []
        while segment_id not in self._tops and (parent := self._parent.get(segment_id)) is not None:
            path.append(segment_id)
            segment_id = parent
        top = self._tops.get(segment_id, segment_id)
        self._tops.update(dict.fromkeys(path, top))  # or a chain of merges would be walked for each item
        return top

    def shown_without_words(self) -> list[Edit]:
        """Return the stubs, and the segments that stand in the view, that have no words here."""
        bare = (edit for edit in self._edits.values() if not edit.text)
        return [one for one in bare if isinstance(one, StubEdit) or one.id not in self._parent]

    def ids_under(self, segment_id: str) -> tuple[str, ...]:
        """Return the ids of the messages that a segment covers, those of the segments it merged first.

        Kept for segments that nothing has merged yet: joining those of children is all that a merge costs,
        and copies at every level of merging would add up to far more than the history.
        """
        found: list[tuple[str, ...]] = []
        todo = [segment_id]
        while todo:  # the last first
            one = todo.pop()
            ids = self._ids_under.pop(one, None)
            if ids is None:
                segment = self._segments[one]
                ids = tuple(dict.fromkeys(message_id(item.key) for item in segment.items))
                todo += segment.children
            found.append(ids)
        joined = self._ids_under[segment_id] = tuple(chain.from_iterable(reversed(found)))
        return joined

    def covered(self) -> Set[ItemKey]:
        """Return every item that left for a live segment; it grows and shrinks with the ledger."""
        return self._holder.keys()

    def items(self) -> Iterator[ItemKey]:
        """Yield every item that a live stub or segment concerns."""
        yield from self._stubs
        yield from self._holder

    @property
    def pending(self) -> set[str]:
        """The refs of texts that may not be in the store: read-back serves them from the history."""
        return {ref for ref in self.doubtful if self.is_live(ref)}

    @property
    def unwanted(self) -> set[str]:
        """The refs of texts that nothing names any more and that the store has yet to remove."""
        return {ref for ref in self.doubtful if not self.is_live(ref)}

    def is_live(self, ref: str) -> bool:
        """Tell whether a live edit names `ref`, or has its words there."""
        return self._kept[ref] > 0

    def is_named(self, ref: str) -> bool:
        """Tell whether a live edit names `ref`: only then may it be read."""
        return self._named[ref] > 0

    def refs(self) -> list[str]:
        """Return the refs that live edits name, those committed last first."""
        return list(dict.fromkeys(ref for edit in reversed(self._edits.values()) for ref in refs_of(edit)))

    def kept_refs(self) -> set[str]:
        """Return the refs of all that is to stay in the store."""
        return set(self._kept)

    def places_of_refs(self, places: Mapping[str, int]) -> dict[str, tuple[int, int]]:
        """Return where the oldest and the newest message stand that each ref of live edits is of.

        A segment is of all that it covers. Refs come as `refs` has them.

        Args:
            places: where each message stands in the history, by key.
        """
        found: dict[str, list[int]] = {ref: [] for ref in self.refs()}
        of_segment: dict[str, list[int]] = {}
        for edit in self._edits.values():
            if isinstance(edit, StubEdit):
                within = [places.get(edit.item.key, -1)]
            else:
                within = [places.get(item.key, -1) for item in edit.items]
                if not edit.is_notes:  # their text under that ref holds no others
                    within += [place for child in edit.children for place in of_segment.get(child, ())]
                within = of_segment[edit.id] = [min(within), max(within)] if within else []
            for ref in refs_of(edit):
                found[ref] += within
        return {ref: (min(within, default=-1), max(within, default=-1)) for ref, within in found.items()}

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
        """Record an edit; a stub takes the place of an earlier one of the same text."""
        name = name_of(edit)
        earlier = self._edits.pop(name, None)
        self._edits[name] = edit
        if isinstance(edit, StubEdit):
            self._stubs.setdefault(edit.item, {})[edit.path] = edit
        else:
            self._segments[edit.id] = edit
            self._used_ids.add(edit.id)
            self._holder.update((item, edit.id) for item in edit.items)
            self._parent.update((child, edit.id) for child in edit.children)
            self._tops.clear()
        self._name(edit)
        if earlier is not None:
            self._forget(earlier)

    def replace(self, edit: Edit) -> None:
        """Exchange an edit for the same one with other words, or without words."""
        earlier = self._edits[name_of(edit)]
        self._edits[name_of(edit)] = edit
        self._name(edit)
        self._forget(earlier)
        if isinstance(edit, StubEdit):
            self._stubs[edit.item][edit.path] = edit
            return
        self._segments[edit.id] = edit

    def outlived_by(self, edit: Edit) -> list[SegmentEdit]:
        """Return earlier parts without what nothing needs any more once this edit is there.

        A withdrawal of more parts than keep theirs is made good from the history. The part before the newest
        keeps all: it is the newest again where that is undone.
        """
        outlived: list[SegmentEdit] = []
        generation: Sequence[str] = () if isinstance(edit, StubEdit) or not edit.is_notes else edit.children
        for age in count():
            parts = [self._segments[id] for id in generation]
            if not any(part.text for part in parts):
                return outlived
            if age >= KEPT_PARTS:
                outlived += [without_words(part, None) for part in parts]
            elif age == 1:  # the newest has all of them
                worn = [part for part in parts if part.candidates or part.stretches]
                outlived += [replace(part, candidates=(), stretches=()) for part in worn]
            generation = [child for part in parts for child in part.children]
        raise AssertionError("a chain of parts has an end")

    def events(self) -> dict[int, Made]:
        """Return the events whose edits hold, by their numbers, in order; those of earlier releases have
        none.
        """
        made = {edit.made.event: edit.made for edit in self._edits.values() if edit.made is not None}
        return dict(sorted(made.items()))

    def events_with_words(self) -> list[int]:
        """Return the numbers of the events after which the words of all that the view showed are kept."""
        bare = [one for one in self._segments.values() if not one.text and one.words_ref is None]
        parents = (self._segments.get(self._parent.get(one.id, "")) for one in bare)
        spans = [(_event_of(one), _event_of(parent)) for one, parent in zip(bare, parents, strict=True)]
        return [event for event in self.events() if not any(first <= event < end for first, end in spans)]

    def made_after(self, event: int) -> set[EditName]:
        """Return the names of the edits that later events made."""
        return {name for name, edit in self._edits.items() if edit.made and edit.made.event > event}

    def made_now(self, edits: Sequence[Edit], reason: str) -> list[Edit]:
        """Return edits with the event that they come with, which is the next one.

        A stub that is made anew is still of the event in which the text left.
        """
        now = Made(max(self.events(), default=0) + 1, reason, self.frontier)
        earlier = (self._edits.get(name_of(edit)) for edit in edits)
        return [
            replace(edit, made=old.made if old else now) for edit, old in zip(edits, earlier, strict=True)
        ]

    def _name(self, edit: Edit) -> None:
        self._named.update(named := refs_of(edit))
        self._kept.update(kept := kept_refs_of(edit))
        self.doubtful.difference_update(ref for ref in kept if ref not in named)  # words were just written

    def _forget(self, edit: Edit) -> None:
        for counts, refs in ((self._named, refs_of(edit)), (self._kept, kept_refs_of(edit))):
            for ref in refs:
                counts[ref] -= 1
                if counts[ref] <= 0:
                    del counts[ref]
        # A pending text may have landed although the store said no; removing an absent one is fine.
        self.give_up(kept_refs_of(edit))

    def give_up(self, refs: Iterable[str]) -> None:
        """Note that texts are to be removed from the store, but for those that an edit names."""
        self.doubtful |= {ref for ref in refs if not self.is_live(ref)}

    def note_pending(self, refs: Iterable[str]) -> None:
        """Note which of the texts that an edit names may not be in the store: these, and no others."""
        self.doubtful = self.unwanted | {ref for ref in refs if self.is_live(ref)}

    def note_stored(self, ref: str) -> None:
        """Note that a text is in the store; one that nothing names any more is still to be removed."""
        if self.is_live(ref):
            self.doubtful.discard(ref)

    def stands_in_for(self, item: ItemKey) -> bool:
        """Tell whether a segment stands in for an item, or a stub for one of its texts."""
        return item in self._holder or bool(self._stubs.get(item))

    def is_told(self, item: ItemKey) -> bool:
        """Tell whether what stands in the view may repeat an item that it does not cover."""
        return any(item == told for segment in self._segments.values() for told, _ in segment.told)

    def withdraw(self, item: ItemKey) -> None:
        """Withdraw whatever stands in for an item; nothing may."""
        self.withdraw_segments_over(item)
        for stub in list(self._stubs.get(item, {}).values()):
            self._withdraw(stub)

    def withdraw_segments_over(self, item: ItemKey) -> None:
        """Withdraw every segment that covers `item`, the outermost first.

        Segments that those had merged, and that do not cover the item, stand in the view again.
        """
        self.withdraw_segment(self._holder.get(item))

    def withdraw_segment(self, segment_id: str | None) -> None:
        """Withdraw a segment, and before it whatever merged it."""
        path = []
        while segment_id is not None:
            path.append(self._segments[segment_id])
            segment_id = self._parent.get(segment_id)
        for segment in reversed(path):
            self._withdraw(segment)

    def _withdraw(self, edit: Edit) -> None:
        """Withdraw an edit that nothing has merged."""
        del self._edits[name_of(edit)]
        if isinstance(edit, StubEdit):
            by_path = self._stubs[edit.item]
            del by_path[edit.path]
            if not by_path:
                del self._stubs[edit.item]
        else:
            del self._segments[edit.id]
            self._ids_under.pop(edit.id, None)
            self._tops.clear()
            for item in edit.items:
                del self._holder[item]
            for child in edit.children:
                del self._parent[child]
        self._forget(edit)

    def edits(self) -> dict[EditName, Edit]:
        """Return the edits that hold, oldest first, by their names."""
        return dict(self._edits)

    def drop(self, names: Container[EditName]) -> None:
        """Drop edits, and with them their words; whatever merged one of them has to be among them."""
        for name, edit in reversed(list(self._edits.items())):
            if name in names:
                self._withdraw(edit)

    def followed_by(self, edits: Iterable[Edit], learnt: Mapping[str, Any]) -> Ledger:
        """Return the ledger of a history to which others wrote, with what this one knows beside it.

        Args:
            edits: all that hold now.
            learnt: what goes with them, as `learnt` returns it.
        """
        other = Ledger()
        for edit in _children_first(edits):
            other.append(edit)
        other._used_ids |= self._used_ids
        other.frontier = self.frontier
        # What was to be removed may be gone, though somebody names it again.
        other.note_pending({*learnt.get("pending", ()), *self.unwanted})
        other.give_up(self.unwanted | self.kept_refs())
        decisions = learnt.get("decisions")
        other.decisions = Decisions() if decisions is None else Decisions.from_dict(decisions)
        return other

    def learnt(self) -> dict[str, Any]:
        """Return, as JSON-like data, what every reader of a history has to know beside the edits."""
        decisions = self.decisions or Decisions()
        return {"pending": sorted(self.pending), "decisions": decisions.to_dict()}

    def copy(self) -> Ledger:
        """Return another ledger with the same edits; `drop` brings this one to where the copy gets."""
        other = Ledger()
        for edit in self._edits.values():
            other.append(edit)
        other.doubtful = set(self.doubtful)
        other.frontier, other._used_ids = self.frontier, set(self._used_ids)
        other.decisions = deepcopy(self.decisions)
        return other

    def to_dict(self, *, with_words: bool = True) -> dict[str, Any]:
        """Return the ledger as JSON-like data; `load` reads it back.

        Args:
            with_words: whether edits hold their words; else each names the ref of its words in the store.
        """
        edits = self._edits.values() if with_words else map(_bare, self._edits.values())
        return {
            "frontier": self.frontier,
            "pending": sorted(self.pending),
            "unwanted": sorted(self.unwanted),
            "withdrawn_ids": sorted(self._used_ids - self._segments.keys()),
            "entries": [edit_to_dict(edit) for edit in edits],
        }

    @classmethod
    def load(cls, saved: SavedLedger) -> Ledger:
        """Return the ledger that was saved.

        Raises:
            InvalidStateError: edits do not fit together; the text says which.
        """
        ledger = cls()
        for index, edit in enumerate(saved.entries):
            if isinstance(edit, SegmentEdit) and (fault := ledger._fault_in(edit)):
                raise InvalidStateError(f"compression.ledger.entries[{index}]: {fault}")
            ledger.append(edit)
        ledger.frontier = saved.frontier
        ledger.note_pending(saved.pending)
        ledger.give_up(saved.unwanted)
        ledger._used_ids.update(saved.withdrawn_ids)
        return ledger

    def _fault_in(self, edit: SegmentEdit) -> str | None:
        """Return why a segment does not fit what stands before it."""
        if edit.id in self._used_ids:
            return f"a second segment {edit.id!r}"
        for child in edit.children:
            if child not in self._segments or child in self._parent:
                return f"child {child!r} is no segment that is free to be merged"
        if len(set(edit.items)) < len(edit.items) or len(set(edit.children)) < len(edit.children):
            return "an item or a child comes twice"
        return next((f"item {i.key!r} is in another segment" for i in edit.items if i in self._holder), None)


def _event_of(edit: Edit | None) -> int:
    return edit.made.event if edit is not None and edit.made is not None else 0


def _bare(edit: Edit) -> Edit:
    return without_words(edit, edit.words_ref or ref_of(words_of(edit))) if edit.text else edit


def _children_first(edits: Iterable[Edit]) -> list[Edit]:
    """Return edits in order, but each segment behind those that it merged: these may be recorded anew."""
    by_name = {name_of(edit): edit for edit in edits}
    segments = {edit.id: edit for edit in by_name.values() if isinstance(edit, SegmentEdit)}
    ordered: dict[EditName, Edit] = {}
    for edit in by_name.values():
        todo = [edit]
        while todo:
            one = todo.pop()
            before = [] if isinstance(one, StubEdit) else [segments[id] for id in one.children]
            if missing := [child for child in before if name_of(child) not in ordered]:
                todo += [one, *reversed(missing)]
            else:
                ordered.setdefault(name_of(one), one)
    return list(ordered.values())
