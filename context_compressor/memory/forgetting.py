"""What `forget` takes away, and which messages and notes hold a text. No I/O."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from context_compressor.core.edits import SegmentEdit, words_of
from context_compressor.memory.history import Entry
from context_compressor.messages.exchanges import Decisions, build_exchanges


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


def keys_saying(text: str, entries: Iterable[Entry], decisions: Decisions | None) -> list[str]:
    """Return the keys of the messages that hold a text, and of those in an exchange with one, in order."""
    messages, saying = list[tuple[str, Any]](), set[str]()
    for entry in entries:
        if entry.msg is None:
            continue
        messages.append((entry.key, entry.msg))
        msg = entry.msg
        said = [one for block in msg.get_content_blocks() for name, one in block.items() if name != "type"]
        if says(text, (msg.id, msg.name, said, msg.metadata, msg.invocation_id, entry.marks)):
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
