"""What `forget` takes away: the messages and notes that hold a text. Nothing is written here."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from context_compressor.core.edits import EditName, SegmentEdit, message_id, words_of
from context_compressor.core.ledger import Ledger
from context_compressor.core.rebuild import Rebuilt
from context_compressor.core.recovery import Read, read_words
from context_compressor.errors import OffloadError
from context_compressor.memory.history import Entry
from context_compressor.memory.rebuilder import Basis, Rebuilder
from context_compressor.messages.exchanges import Decisions, build_exchanges
from context_compressor.messages.parts import plain_texts


@dataclass(frozen=True, kw_only=True, slots=True)
class Forgotten:
    """What was taken away, or would be: all that was rewritten."""

    message_ids: tuple[str, ...] = ()
    """Messages that left the history."""
    parts: tuple[str, ...] = ()
    """Parts of the notes that were withdrawn, by the refs of their transcripts. What else they covered stands
    in the view again; the next view that needs the room makes the notes anew."""
    stubs: int = 0
    """Stubs that were withdrawn."""
    refs: tuple[str, ...] = ()
    """Texts that were removed from the store."""
    refs_left: tuple[str, ...] = ()
    """Texts that the store did not remove yet; later calls try again."""
    index_rows: int = 0
    """Rows that were dropped from the search index; a dry run does not tell."""
    summary: bool = False
    """Whether the history's own summary held the text, and was removed."""
    is_dry_run: bool = False
    """Whether nothing was done."""


class Leaving(NamedTuple):
    """What is to be forgotten."""

    keys: Sequence[str]
    """Of messages."""
    rebuilt: Rebuilt
    """The view without them, and without what quotes them."""
    told: Forgotten

    @property
    def is_nothing(self) -> bool:
        """Whether there is nothing to forget."""
        return not (self.keys or self.told.parts or self.told.summary)


async def find_leaving(rebuilder: Rebuilder, basis: Basis, ids: Sequence[str], text: str | None) -> Leaving:
    """Find what is to be forgotten: messages under ids, or all that hold a text, and what quotes it.

    Args:
        rebuilder: makes the view without it.
        basis: what is known.
        ids: of messages; a part's id stands for all that it covers.
        text: what is to be found nowhere any more.
    """
    state, ledger = basis.state, basis.state.ledger
    entries, quoting, summary = await rebuilder.read_entries(), set[EditName](), ""
    keys = [key for key in dict.fromkeys(state.known.keys_of(state.expand(ids))) if key in state.known]
    if text is not None:
        keys = keys_saying(text, entries, ledger.decisions)
        quoting = await _quoting(text, ledger, rebuilder.read_words)
        summary = state.shown.summary if text in state.shown.summary else ""
    leaving, before = set(keys), ledger.edits()
    left = [entry for entry in entries if entry.key not in leaving]
    rebuilt = await rebuilder.rebuild(basis, left, keys, without=quoting)
    gone, _ = rebuilt.changes(before)
    withdrawn = [edit for name, edit in before.items() if name in gone]
    parts = [edit.ref for edit in withdrawn if isinstance(edit, SegmentEdit)]
    told = Forgotten(
        message_ids=tuple(dict.fromkeys(map(message_id, keys))),
        parts=tuple(parts),
        stubs=len(withdrawn) - len(parts),
        refs=tuple(sorted(ledger.kept_refs() - rebuilt.ledger.kept_refs())),
        summary=bool(summary),
    )
    return Leaving(keys, rebuilt, told)


async def _quoting(text: str, ledger: Ledger, read: Read) -> set[EditName]:
    """Return the names of the parts of the notes that hold a text, and of all parts after these."""
    before, left = ledger.edits(), ledger.copy()
    for part in ledger.segments():
        with suppress(OffloadError, KeyError, TypeError, ValueError):  # nobody can read their words
            if quotes(text, await read_words(part, read)) and left.segment(part.id):
                left.withdraw_segment(part.id)
    return before.keys() - left.edits().keys()


def keys_saying(text: str, entries: Iterable[Entry], decisions: Decisions | None) -> list[str]:
    """Return the keys of the messages that hold a text, and of those in an exchange with one, in order."""
    messages, saying = list[tuple[str, Any]](), set[str]()
    for entry in entries:
        if entry.msg is None:
            continue
        messages.append((entry.key, entry.msg))
        msg = entry.msg
        said = [one for block in msg.get_content_blocks() for name, one in block.items() if name != "type"]
        joined = "\n".join(plain_texts(msg))  # as stored texts and notes have it
        if says(text, (msg.id, msg.name, said, joined, msg.metadata, msg.invocation_id, entry.marks)):
            saying.add(entry.key)
    together = [{message.key for message in exchange} for exchange in build_exchanges(messages, decisions)]
    gone = saying.union(*(keys for keys in together if not saying.isdisjoint(keys)))
    return [key for key, _ in messages if key in gone]


def quotes(text: str, part: SegmentEdit) -> bool:
    """Tell whether a part of the notes holds a text in its words."""
    return says(text, list(json.loads(words_of(part)).values()))


def says(text: str, value: Any) -> bool:
    """Tell whether a string, a number or a name in JSON-like data holds a text."""
    return any(text in one for one in _strings(value))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield str(key)
            yield from _strings(one)
    elif isinstance(value, Collection):
        for one in value:
            yield from _strings(one)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield json.dumps(value)
