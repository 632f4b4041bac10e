"""Making a view anew from messages and ledger, and what that changes. Nothing is written here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from context_compressor.core.edits import (
    Edit,
    EditName,
    ItemKey,
    SegmentEdit,
    StubEdit,
    covered_by,
    name_of,
)
from context_compressor.core.items import ViewItem
from context_compressor.core.ledger import Ledger
from context_compressor.core.recovery import Recovery
from context_compressor.memory.history import Change, LedgerEntry, Record, Withdraw
from context_compressor.memory.reading import Reading
from context_compressor.memory.state import MemoryState
from context_compressor.messages.exchanges import Decisions, ExchangeBuilder
from context_compressor.messages.msg import Msg
from context_compressor.tokens.counter import MessageTokens, TokenCounter
from context_compressor.tokens.off_loop import measure_all_off_loop, run_off_loop, text_characters


class Rebuilt(NamedTuple):
    """A view made anew from messages and ledger, which nobody has seen yet."""

    messages: list[tuple[str, Msg]]
    withdrawn: set[EditName]
    """The edits that do not hold any more."""
    renewed: list[SegmentEdit]
    """Segments that stand in the view again, with their words; and those that were checked first."""
    ledger: Ledger
    """A copy of the state's where that is done."""
    counted: dict[str, MessageTokens]
    unseen: set[str]
    built: tuple[list[ViewItem], ExchangeBuilder]


async def rebuilt_view(
    state: MemoryState,
    reading: Reading,
    leaving: Iterable[str],
    known: Mapping[str, int],
    unseen: set[str],
    counter: TokenCounter,
    recover: Callable[[Sequence[tuple[str, Msg]], Ledger, Container[str]], Awaitable[Recovery]],
) -> Rebuilt:
    """Make the view anew from messages and ledger, neither of which changes.

    Args:
        state: has the ledger, and what was shown.
        reading: every message.
        leaving: keys of messages for which nothing may stand in any more.
        known: tokens of messages that were counted; inside a segment that is enough.
        unseen: keys of messages that no view has shown, beside those that the state knows of.
        counter: measures messages.
        recover: returns what messages still say of the texts that a ledger names.
    """
    bare, messages = reading.bare, [(e.key, e.msg) for e in reading.entries if e.msg is not None]
    characters = text_characters(msg for _, msg in messages)
    ledger, edits = state.ledger.copy(), state.ledger.edits()
    for item in state.items_of(leaving):
        ledger.withdraw(item)
    if ledger.decisions is None:
        seen = messages[: ledger.frontier]
        ledger.decisions = await run_off_loop(characters, Decisions.of_earlier_releases, seen)
    ledger.decisions.keep({key for key, _ in messages})
    counted = _still_valid(state, dict(messages))
    # Pairing may have changed, and with it what a message says in the view.
    recovery = await recover(messages, ledger, bare)
    await recovery.withdraw_outdated(characters)
    for stub in [stub for stub in ledger.stubs() if stub.item.key in bare]:
        if ledger.top_segment_of(stub.item) is None:
            ledger.withdraw(stub.item)  # a skeleton has no such text; `is_told_by` refuses this view
    missing = {
        key: msg
        for key, msg in messages
        if not (key in counted or key in bare)
        and not (key in known and ledger.top_segment_of(ItemKey(key)) is not None)
    }
    counts = await measure_all_off_loop(counter, list(missing.values()))
    counted |= dict(zip(missing, counts, strict=True))
    unseen = unseen | state.unseen()
    built = await run_off_loop(characters, state.build, messages, ledger, counted, unseen)
    ledger.decisions = built[1].decisions
    withdrawn = edits.keys() - ledger.edits().keys()
    renewed = [one for one in ledger.segments() if edits[name_of(one)] is not one]
    return Rebuilt(messages, withdrawn, renewed, ledger, counted, unseen, built)


def is_told_by(bare: Collection[str], rebuilt: Rebuilt) -> bool:
    """Tell whether a view is what it would be if these messages had been read, of which skeletons were.

    It shows none of them, and no edit is withdrawn or changed by what they are.
    """
    items, builder = rebuilt.built
    shown = {*(item.key.key for item in items if item.kind != "segment"), *builder.withheld}
    return not (rebuilt.withdrawn or rebuilt.renewed) and shown.isdisjoint(bare)


def appended_edits(
    state: MemoryState, written: Iterable[LedgerEntry], added: Iterable[str], learnt: Mapping[str, Any]
) -> list[Edit] | None:
    """Return the edits that others appended to the ledger; None where they did more, and all is to be read.

    Args:
        state: where the ledger has none of it.
        written: what others wrote to the ledger.
        added: keys of the messages that others added.
        learnt: what goes with the ledger as it is known.
    """
    entries = list(written)
    known = {name: learnt[name] for name in ("decisions", "summary_place")}
    if any(
        entry.withdrawn or {name: (entry.learnt or known).get(name) for name in known} != known
        for entry in entries
    ):
        return None
    edits = [edit for entry in entries for edit in entry.edits]
    there = {item.key.key for item in state.items} | state.unseen() | set(added)
    for edit in edits:
        if isinstance(edit, StubEdit):
            if edit.item.key not in there:
                return None
        elif (segment := state.ledger.segment(edit.id)) is not None:
            if edit.text not in ("", segment.text):
                return None
        elif not edit.text or not {item.key for item in covered_by(edit)} <= there:
            return None
        else:
            there.add(edit.id)
    return edits


def replacing(entries: Sequence[LedgerEntry], ledger: Ledger, recorded: Mapping[str, Any]) -> list[Change]:
    """Return what brings the ledger of a history to where a loaded one is."""
    there = {name_of(edit): edit for entry in entries for edit in entry.edits}
    edits, learnt = ledger.edits(), {**recorded, **ledger.learnt()}
    gone = there.keys() - edits.keys()
    new = [edit for name, edit in edits.items() if there.get(name) != edit]
    changes: list[Change] = [Withdraw(gone)] if gone else []
    return [*changes, Record(new, learnt)] if new or learnt != recorded else changes


def _still_valid(state: MemoryState, now: Mapping[str, Msg]) -> dict[str, MessageTokens]:
    """Return the counts of messages whose content is as it was when they were counted."""
    valid = {
        item.key.key: item.source_tokens
        for item in state.items
        if item.kind == "message" and item.repair is None and now.get(item.key.key) == item.source
    }
    return valid | {key: tokens for key, msg, tokens in state.queue if now.get(key) == msg}


def is_continued(before: Sequence[ViewItem], after: Sequence[ViewItem]) -> bool:
    """Tell whether a view begins with all that it showed before."""
    return len(before) <= len(after) and all(map(_shows_same, before, after))


def changed_ids(before: Sequence[ViewItem], after: Sequence[ViewItem]) -> list[str]:
    """Return the ids of the messages that a view no longer shows as it did, or shows among earlier ones."""
    now = {item.key: item for item in after}
    kept = {item.key for item in before if item.key in now and _shows_same(item, now[item.key])}
    last = max((place for place, item in enumerate(after) if item.key in kept), default=-1)
    changed = [item for item in (*before, *after[: last + 1]) if item.key not in kept]
    return [id for item in changed for id in item.covered]


def _shows_same(one: ViewItem, other: ViewItem) -> bool:
    return one.key == other.key and one.source == other.source and one.tokens == other.tokens
