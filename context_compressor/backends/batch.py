"""What a write comes to: the messages that it touches, as they are when all changes are made, in order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from context_compressor.backends.records import between, digest
from context_compressor.core.edits import Edit, EditName, edit_to_dict, name_of
from context_compressor.memory.history import (
    Add,
    Change,
    Delete,
    Keys,
    Mark,
    Record,
    Restored,
    SetSummary,
    Withdraw,
)

Place = int | Fraction

TOLD_WRITES = 10_000
"""For how many writes a deleted message is still told of. Who looks later finds by the size that something is
missing, and reads all anew."""


@dataclass(slots=True, eq=False)
class Row:
    """A message that a write may touch."""

    key: str
    id_digest: str
    place: Place
    marks: list[str]
    is_there: bool
    add: Add | None = None
    """It is new."""
    before: tuple[str, ...] = ()
    """Marks that it had."""
    is_touched: bool = False
    replaces: bool = False
    """Whether it is new under the key of a message that was there."""

    @property
    def lost(self) -> list[str]:
        """Marks that it bears no more."""
        return [mark for mark in self.before if mark not in self.marks]

    @property
    def gained(self) -> list[str]:
        """Marks that it did not bear."""
        return [mark for mark in self.marks if mark not in self.before]


def touched_by(changes: Sequence[Change]) -> tuple[list[str], list[str], list[EditName]]:
    """Return what a write has to look up: digests of ids, digests of keys, and names of edits."""
    ids: dict[str, None] = {}
    keys: dict[str, None] = {}
    names: dict[EditName, None] = {}
    for change in changes:
        if isinstance(change, Add):
            ids[digest(change.msg.id)] = None
            if change.before is not None:
                keys[digest(change.before)] = None
        elif isinstance(change, Delete | Mark):
            keys |= dict.fromkeys(map(digest, change.keys))
        elif isinstance(change, Withdraw):
            names |= dict.fromkeys(change.names)
    return list(ids), list(keys), list(names)


def check(changes: Sequence[Change]) -> None:
    """Let fail what could fail, before anything is changed."""
    for change in changes:
        if isinstance(change, Record):
            for edit in change.edits:
                edit_to_dict(edit)


@dataclass(slots=True, eq=False)
class Batch:
    """The changes of one write, made on what it touches.

    Args:
        last_place: the last whole place that was given.
        below: returns the place of the nearest message of the history below another place.
        held: those of the names to withdraw under which there is an edit.
    """

    last_place: int
    below: Callable[[Place], Place | None]
    held: Collection[EditName] = ()
    rows: dict[str, Row] = field(default_factory=dict)
    """By key, in the order of adding."""
    by_id: dict[str, list[str]] = field(default_factory=dict)
    """Keys of the messages that are there, by the digest of their id."""
    summary: str | None = None
    edits: dict[EditName, Edit | None] = field(default_factory=dict)
    """In the order of recording; None: withdrawn."""
    learnt: Any = None

    def load(self, rows: Iterable[Row]) -> None:
        """Take up messages as they are, in the order of their places."""
        for row in rows:
            if row.key not in self.rows:
                row.before = tuple(row.marks)
                self.rows[row.key] = row
                if row.is_there:
                    self.by_id.setdefault(row.id_digest, []).append(row.key)

    def make(self, changes: Sequence[Change]) -> None:
        """Make changes, in order."""
        for change in changes:
            if isinstance(change, Add):
                self._add(change)
            elif isinstance(change, Delete):
                for key in change.keys:
                    self._delete(key)
            elif isinstance(change, Mark):
                for key in change.keys:
                    self._mark(key, change.add, change.remove)
            elif isinstance(change, SetSummary):
                self.summary = change.summary
            elif isinstance(change, Record):
                for edit in change.edits:
                    self.edits.pop(name_of(edit), None)
                    self.edits[name_of(edit)] = edit
                self.learnt = change.learnt or self.learnt
            else:
                for name in change.names:
                    if name in self.held or self.edits.get(name) is not None:
                        self.edits[name] = None

    @property
    def touched(self) -> list[Row]:
        """The messages that changed."""
        return [row for row in self.rows.values() if row.is_touched]

    @property
    def more(self) -> int:
        """By how many messages the history has grown."""
        return sum(row.is_there - (row.add is None or row.replaces) for row in self.touched)

    def _add(self, change: Add) -> None:
        self.last_place += 1
        id_digest = digest(change.msg.id)
        there = self.by_id.setdefault(id_digest, [])
        if there and not change.duplicate:
            for key in there:
                for mark in change.marks:
                    self._mark(key, mark, None)
            return
        key = change.key if isinstance(change, Restored) else Keys().new(change.msg.id, there)
        place = self.last_place if change.before is None else self._place_before(change.before)
        old = self.rows.pop(key, None)
        row = Row(key, id_digest, place, list(dict.fromkeys(change.marks)), True, change, is_touched=True)
        if old is not None:
            row.before = old.before
            # What a write deletes and adds again was there before it.
            row.replaces = old.replaces or (old.add is None and old.is_touched)
        self.rows[key] = row
        there.append(key)

    def _place_before(self, key: str) -> Place:
        row = self.rows.get(key)
        if row is None or not row.is_there:
            return self.last_place
        upper, found = row.place, self.below(row.place)
        new = (one.place for one in self.rows.values() if one.add is not None and one.place < upper)
        return between(max([upper - 2 if found is None else found, *new]), upper)

    def _delete(self, key: str) -> None:
        row = self.rows.get(key)
        if row is not None and row.is_there:
            row.is_there, row.is_touched, row.marks = False, True, []
            self.by_id[row.id_digest].remove(key)

    def _mark(self, key: str, add: str | None, remove: str | None) -> None:
        row = self.rows.get(key)
        if row is None or not row.is_there:
            return
        now = [mark for mark in row.marks if mark != remove or mark == add]
        if add is not None and add not in now:
            now.append(add)
        if now != row.marks:
            row.marks, row.is_touched = now, True
