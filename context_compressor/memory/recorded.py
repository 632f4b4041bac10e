"""The ledger as a history has it: what others wrote there, and what brings it where a memory's ledger is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from context_compressor.core.edits import Edit, EditName, keys_of, name_of
from context_compressor.core.ledger import Ledger
from context_compressor.core.rebuild import Rebuilt
from context_compressor.errors import InvalidStateError
from context_compressor.memory.budget import BudgetInForce, RecordedBudget
from context_compressor.memory.history import Add, Change, Entry, Head, LedgerEntry, Record, Withdraw
from context_compressor.memory.saved import fault_of
from context_compressor.memory.state import MemoryState
from context_compressor.tokens.counter import TokenCounter, name_of_counter

NOTHING: Mapping[str, Any] = {**Ledger().learnt(), "summary_place": None}
"""What is learnt of an empty history."""


COUNTS = "calibration"
"""Under which name stands what was learnt of a provider's counts; missing: nothing."""


def learnt_by(state: MemoryState) -> dict[str, Any]:
    """Return what is recorded beside the edits of a ledger, so that every reader shows the same."""
    shown = state.shown
    place = None if shown.summary_place is None else [shown.summary_id, shown.summary_place]
    return {**state.ledger.learnt(), "summary_place": place}


class Counts:
    """What a provider's counts taught, which stands beside the ledger: the newest that was recorded holds.

    Args:
        counter: who counts views.
        is_kept: whether the history keeps it; one that is wrapped does not.

    Attributes:
        known: what the state had learnt when it took up what the history has.
    """

    def __init__(self, counter: TokenCounter, is_kept: bool) -> None:
        self.known: Mapping[str, Any] | None = None
        self._counter = counter
        self._is_kept = is_kept

    def _new(self, budget: BudgetInForce, recorded: Mapping[str, Any]) -> dict[str, Any] | None:
        counts = budget.recorded(self._counter) if self._is_kept else None
        return None if counts in (self.known, recorded.get(COUNTS)) else counts

    def beside(
        self, learnt: Mapping[str, Any], budget: BudgetInForce, recorded: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return what is recorded beside the edits with what was learnt here, or else before."""
        counts = self._new(budget, recorded) or recorded.get(COUNTS)
        return dict(learnt) if counts is None else {**learnt, COUNTS: counts}

    def changes(self, budget: BudgetInForce, recorded: Mapping[str, Any]) -> list[Change]:
        """Return what records what was learnt here; nothing where that is not new."""
        return [Record((), self.beside(recorded, budget, recorded))] if self._new(budget, recorded) else []

    def take(
        self, written: Sequence[LedgerEntry], state: MemoryState, recorded: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Let a state go by what others recorded, unless it has learnt more; return what is recorded now.

        Raises:
            InvalidStateError: it is malformed; the text names the place.
        """
        said = next((entry.learnt.get(COUNTS) for entry in reversed(written) if entry.learnt), None)
        if said is None or said == recorded.get(COUNTS):
            return recorded
        try:
            read = _adapter().validate_python(said)
        except ValidationError as error:
            raise InvalidStateError(fault_of(error, f"the history's {COUNTS}")) from error
        if self._new(state.budget, recorded) is None:
            if read.counter == name_of_counter(self._counter):
                state.budget = state.budget.following(read.saved)
            self.known = state.budget.recorded(self._counter)
        return {**recorded, COUNTS: said}


@cache  # made for the first that is read
def _adapter() -> TypeAdapter[RecordedBudget]:
    return TypeAdapter(RecordedBudget)


# What others wrote


def up_to(head: Head, entries: list[Entry]) -> list[Entry]:
    """Return messages without those behind a head, which are read when that is known."""
    while entries and entries[-1].changed > head.number:
        entries.pop()
    return entries


def appended(written: Iterable[LedgerEntry], learnt: Mapping[str, Any]) -> list[Edit] | None:
    """Return the edits that others recorded; None where they did more, and all is to be read.

    Args:
        written: what others wrote to the ledger.
        learnt: what goes with the ledger as it is known.
    """
    entries = list(written)
    for name in ("decisions", "summary_place"):
        if any((entry.learnt or learnt).get(name) != learnt[name] for entry in entries):
            return None
    if any(entry.withdrawn for entry in entries):
        return None
    return [edit for entry in entries for edit in entry.edits]


def says_same(entries: Iterable[Entry], written: Iterable[LedgerEntry], known: int) -> Callable[[Edit], bool]:
    """Return what tells of an edit whether its messages are those of which it was made.

    A history that numbers its writes never changes what a message says, and tells when it was added.

    Args:
        entries: the messages.
        written: what was read of the ledger.
        known: the number of the write up to which it was read before.
    """
    since = {entry.key: entry.added or entry.changed for entry in entries}
    recorded = {name_of(edit): entry.number for entry in written for edit in entry.edits}

    def tell(edit: Edit) -> bool:
        at = recorded.get(name_of(edit), known)
        return all(key in since and since[key] <= at for key in keys_of(edit))

    return tell


# What is to be written


def following(rebuilt: Rebuilt, ledger: Ledger, recorded: Mapping[str, Any]) -> list[Change]:
    """Return what a view that was made anew changes.

    Args:
        rebuilt: that view.
        ledger: as it is recorded.
        recorded: what goes with it.
    """
    withdrawn, renewed = rebuilt.changes(ledger.edits())
    return _changes(withdrawn, renewed, recorded, {**recorded, **rebuilt.ledger.learnt()})


def replacing(entries: Sequence[LedgerEntry], ledger: Ledger, recorded: Mapping[str, Any]) -> list[Change]:
    """Return what brings the ledger that was read to where a loaded one is."""
    there = {name_of(edit): edit for entry in entries for edit in entry.edits}
    edits = ledger.edits()
    new = [edit for name, edit in edits.items() if there.get(name) != edit]
    return _changes(there.keys() - edits.keys(), new, recorded, {**recorded, **ledger.learnt()})


def switching(old: MemoryState, new: MemoryState, learnt: Mapping[str, Any]) -> list[Change]:
    """Return what brings the ledger of one branch to where that of another is, and `learnt` beside it."""
    before, after = old.ledger.edits(), new.ledger.edits()
    gone = [name for name, edit in before.items() if after.get(name) is not edit]
    come = [edit for name, edit in after.items() if before.get(name) is not edit]
    return _changes(gone, come, {}, learnt)


def _changes(
    gone: Collection[EditName], come: Sequence[Edit], before: Mapping[str, Any], learnt: Mapping[str, Any]
) -> list[Change]:
    changes: list[Change] = [Withdraw(gone)] if gone else []
    return [*changes, Record(come, learnt)] if come or learnt != before else changes


def missing(entries: Sequence[Entry], there: Collection[str]) -> list[Change]:
    """Return what adds the messages that are not there, each in front of the next one that is."""
    changes: list[Change] = []
    follows: str | None = None
    for entry in reversed(entries):
        if entry.key in there:
            follows = entry.key
        elif entry.msg is not None:
            changes.append(Add(entry.msg, entry.marks, True, entry.tokens, follows))
    return changes[::-1]
