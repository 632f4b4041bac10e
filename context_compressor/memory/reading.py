"""What is read of a history to make its view anew: all, or what the view shows and an outline of the rest.

An outline tells how messages are paired, and so which of them segments stand for. Only the others are read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from context_compressor.core.edits import (
    SEGMENT_PART,
    Edit,
    EditName,
    ItemKey,
    StubEdit,
    message_id,
    name_of,
)
from context_compressor.core.items import paired
from context_compressor.core.ledger import Ledger
from context_compressor.memory.history import Entry, Head, History, LedgerEntry
from context_compressor.messages.exchanges import ORPHAN_REPAIR, Decisions
from context_compressor.messages.msg import Msg
from context_compressor.tokens.off_loop import run_off_loop, text_characters


class Reading(NamedTuple):
    """What was read of a history."""

    entries: Sequence[Entry]
    """Every message."""
    bare: frozenset[str] = frozenset()
    """Keys of those of which there is a skeleton: segments stand for all that they say."""


async def read_all(history: History, head: Head) -> Reading:
    """Read every message, up to a head where the history tells of that."""
    entries = await history.read()
    return Reading(up_to(head, entries) if getattr(history, "tells_marks", True) else entries)


def up_to(head: Head, entries: list[Entry]) -> list[Entry]:
    """Return messages without those behind a head, which are read when that is known."""
    while entries and entries[-1].changed > head.number:
        entries.pop()
    return entries


def numbers_of(written: Sequence[LedgerEntry]) -> dict[EditName, int]:
    """Return the number of the write that recorded each edit."""
    return {name_of(edit): entry.number for entry in written for edit in entry.edits}


async def read_lightly(
    history: History,
    entries: Sequence[Entry],
    *,
    ledger: Ledger,
    recorded: Mapping[EditName, int],
    known: int,
    unseen: Collection[str],
    seen: Collection[str],
    counter: str,
) -> Reading | None:
    """Read the messages that a view shows, and of those under its segments the skeletons.

    Args:
        history: where the messages are.
        entries: the outline of it, up to the head that is known.
        ledger: the edits that hold.
        recorded: the write that recorded each edit, where it is told.
        known: the write that recorded the others, or a later one by which they were checked.
        unseen: keys of messages that no view has shown, beside all that are not among `seen`.
        seen: keys of messages whose tokens are known.
        counter: whose counts beside messages hold.

    Returns:
        None where that does not tell what the view is: somebody deleted a message that something stands for,
        or added it anew, or a segment stands for a result that came late.
    """
    added = {entry.key: entry.added for entry in entries}
    for edit in ledger.entries:
        at = recorded.get(name_of(edit), known)
        if any(key not in added or added[key] > at for key in _keys_of(edit)):
            return None
    messages = [(entry.key, entry.msg) for entry in entries if entry.msg is not None]
    new = {*unseen, *(key for key in added if key not in seen)}
    characters = text_characters(msg for _, msg in messages)
    shown = await run_off_loop(characters, _shown, messages, ledger, new)
    if shown is None:
        return None
    counted = {entry.key for entry in entries if entry.tokens is not None and entry.tokens[0] == counter}
    shown |= {key for key in added if not (key in counted or key in seen)}
    bodies = {entry.key: entry for entry in await history.read(ids={message_id(key) for key in shown})}
    whole: list[Entry] = []
    for entry in entries:
        if entry.key in shown:
            body = bodies.get(entry.key)
            if body is None or body.msg is None or body.place != entry.place:
                return None  # it was deleted meanwhile
            entry = entry._replace(msg=body.msg)
        whole.append(entry)
    return Reading(whole, frozenset(added.keys() - shown))


def _keys_of(edit: Edit) -> list[str]:
    """Return the keys of the messages that an edit is of, or tells of."""
    if isinstance(edit, StubEdit):
        return [edit.item.key]
    told = [item for item, _ in edit.told if item.part != SEGMENT_PART]
    return [item.key for item in (*edit.items, *told)]


def _shown(messages: Sequence[tuple[str, Msg]], ledger: Ledger, unseen: Collection[str]) -> set[str] | None:
    """Return the keys of the messages of which something is shown, or will be when results come.

    None where what a segment stands for says something of messages elsewhere: a result that came late is
    named after its call, which may have been deleted or exchanged.
    """
    decided = ledger.decisions or Decisions()
    decisions = Decisions(dict(decided.missing), set(decided.plain))
    decisions.keep({key for key, _ in messages})
    exchanges, builder = paired(messages, decisions, unseen)
    standing = set(builder.withheld)
    for message in (message for exchange in exchanges for message in exchange):
        if ledger.top_segment_of(ItemKey(message.key, message.part)) is None:
            standing.add(message.key)
        elif message.repair == ORPHAN_REPAIR:
            return None
    return standing
