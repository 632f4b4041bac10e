"""Searching the history of a memory: where what is found can be read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from context_compressor.compression.edits import ItemKey, StubEdit, message_id
from context_compressor.compression.shown import Redact, call_text, shown_message
from context_compressor.errors import InvalidArgumentError, OffloadError
from context_compressor.memory.history import History
from context_compressor.memory.index import HistoryIndex, texts_of
from context_compressor.memory.state import MemoryState
from context_compressor.messages.msg import Msg, tool_results
from context_compressor.messages.parts import PartPath, is_argument, part_at
from context_compressor.messages.text import dump_sendable
from context_compressor.offload.files import FileOffloadStore
from context_compressor.offload.guide import ROLES, is_own_tool
from context_compressor.offload.store import OffloadStore, ref_of
from context_compressor.search.hits import Document, Hit, find_all

if TYPE_CHECKING:
    from context_compressor.search import Found

_MAX_PLACES = 200
"""Places of one text in a transcript that are looked at."""
_HEADER_END = " ===\n"
"""What stands before a message's text in a transcript."""


class _Lines(NamedTuple):
    """Where a passage stands in a text, 1-based."""

    first: int
    last: int
    column: int
    """Of its first character, in the first line."""


class Place(NamedTuple):
    """A passage that was found, and what stands in the view and the ledger for its message."""

    found: Found
    shown: Sequence[Msg]
    stubs: Sequence[StubEdit]
    segments: Mapping[str, float]
    """The refs of the segments that hold parts of the message, and how far into each these stand: 0 its
    beginning, 1 its end."""
    messages_ago: int
    msg: Msg | None
    """The message itself, for the call that the passage is of."""
    stand_ins: Mapping[PartPath, str]
    """What stands in a segment for single texts of the message."""
    redact: Redact | None

    @property
    def is_call(self) -> bool:
        """Whether the passage is of a call's arguments."""
        return self.found.document.tool is not None and self.found.document.role != "tool"

    @property
    def arguments(self) -> list[StubEdit]:
        """The stubs of arguments, where the passage is of a call: it may stand in the text of one of them."""
        return [stub for stub in self.stubs if self.is_call and is_argument(stub.path)]

    @property
    def refs(self) -> list[str]:
        """The refs of the texts that tell its lines."""
        return [*(stub.ref for stub in self.arguments), *self.segments]


class Recall:
    """Search the history of a memory, and tell where what is found can be read.

    Args:
        history: the base memory.
        store: where texts go; the index of a `FileOffloadStore` stands in its directory, else in memory.
        read_ref: reads a text that left the view.
        redact: what every text goes through before the index sees it.

    Attributes:
        index: finds messages.
    """

    def __init__(
        self,
        history: History,
        store: OffloadStore,
        read_ref: Callable[[str], Awaitable[str]],
        redact: Redact | None,
    ) -> None:
        self._history, self._read_ref, self._redact = history, read_ref, redact
        files = store if isinstance(store, FileOffloadStore) else None
        self.index = HistoryIndex(lambda _: history, store=files, redact=redact)

    async def search(self, query: str, limit: int, state: MemoryState, role: str | None = None) -> list[Hit]:
        """Return the passages of the history that answer a query, best first.

        Args:
            query: words, names or a question.
            limit: how many at most.
            state: in step with the history.
            role: who said it: one of `ROLES`; None for all.

        Raises:
            InvalidArgumentError: a query that is no string, a limit below 1, or no such role.
            RedactionError: the user's callable failed.
            OffloadError: this Python's SQLite has no full-text search, or the memory was closed meanwhile.
        """
        if not isinstance(query, str):
            raise InvalidArgumentError(f"query: expected a string, got {type(query).__name__}")
        if type(limit) is not int or limit < 1:
            raise InvalidArgumentError(f"limit: expected a number from 1 up, got {limit!r}")
        if role is not None and role not in ROLES:
            raise InvalidArgumentError(f"role: expected one of {', '.join(ROLES)}, got {role!r:.80}")

        def is_last(document: Document) -> bool:
            # The request stands in the view, and earlier answers of the tools repeat what they found.
            return document.key == self.index.newest_request() or is_own_tool(document.tool)

        head = await self._history.head()
        found = await self.index.search(query, limit, [("", head.number, head.size)], role=role, last=is_last)
        ago = {key: count for count, key in enumerate(reversed(state.known.tokens))}
        places = [
            _place(one, state, ago[key], msg, self._redact)
            for one, msg in found
            if (key := one.document.key) in ago
        ]
        texts: dict[str, str] = {}
        for ref in dict.fromkeys(ref for place in places for ref in place.refs):
            with suppress(OffloadError):
                texts[ref] = await self._read_ref(ref)
        return await asyncio.to_thread(lambda: [_hit(place, texts, query) for place in places])


def _place(
    found: Found, state: MemoryState, messages_ago: int, msg: Msg | None, redact: Redact | None
) -> Place:
    """Return what view and ledger have for the message of a passage, None where it is gone."""
    key = found.document.key
    orphans = [] if msg is None else [f"#orphan{number}" for number in range(len(tool_results(msg)))]
    items = [ItemKey(key, part) for part in ("", "#results", "#text", *orphans)]
    shown = [item.msg for item in state.items if item.key.key == key and item.kind != "segment"]
    stubs = [stub for item in items for stub in state.ledger.stubs_of(item).values() if not stub.page]
    segments: dict[str, float] = {}
    for item in items:
        held = state.ledger.segment_of(item)
        if held is not None:
            segments.setdefault(held.ref, held.items.index(item) / len(held.items))
    stand_ins = {path: stub.text for path, stub in state.ledger.stubs_of(items[0]).items()}
    return Place(found, shown, stubs, segments, messages_ago, msg, stand_ins, redact)


def _call_of(place: Place) -> str:
    """Return the call of a passage as a transcript has it; empty where its message is another by now."""
    msg, part = place.msg, place.found.document.part
    said = [] if msg is None else [one for one in texts_of(msg, (), place.redact) if one.part == part]
    if msg is None or not said:
        return ""
    stand_ins = {path: text for path, text in place.stand_ins.items() if part_at(msg, path) is not None}
    block = shown_message(msg, stand_ins, {}, place.redact).get_content_blocks()[said[0].block]
    return call_text(block) if block.get("type") == "tool_use" else ""


def _hit(place: Place, texts: Mapping[str, str], query: str) -> Hit:
    """Return a passage with where it stands.

    Args:
        place: the passage.
        texts: the texts under `place.refs`, as far as they could be read.
        query: what was asked.
    """
    sought = _lines_sought(place.found.text, query) if place.is_call else []
    found, document = place.found, place.found.document
    # Of a call with a stub the line that was asked for may still be there.
    told = found.text[slice(*sought[0])] if sought else found.text
    in_view = any(told in said.text for msg in place.shown for said in texts_of(msg, (), place.redact))
    ref: str | None = None
    lines: _Lines | None = None
    whole = ref_of(document.text) if place.stubs else ""
    argument = _argument_with(place, texts, sought)
    if any(stub.ref == whole for stub in place.stubs):
        ref, lines = whole, _lines_of(document.text, found.start, found.end)
    elif argument is not None:
        ref, lines = argument
    elif place.segments:
        ref, lines = _in_segments(place, texts, sought)
    return Hit(
        text=found.text,
        ref=ref,
        message_ids=(message_id(document.key),),
        role=document.role,
        tool=document.tool,
        lines=None if lines is None else (lines.first, lines.last),
        in_view=in_view,
        messages_ago=place.messages_ago,
        column=1 if lines is None else lines.column,
    )


def _in_segments(
    place: Place, texts: Mapping[str, str], sought: Sequence[tuple[int, int]]
) -> tuple[str, _Lines | None]:
    """Return ref and lines of the segment with a passage: the parts of a message may leave apart."""
    call = _call_of(place) if place.is_call else ""
    for ref, share in place.segments.items():
        transcript = texts.get(ref, "")
        if place.is_call:
            lines = _lines_of_call(transcript, call, place.found.text, share, sought)
        else:
            lines = _lines_in(transcript, place.found, share)
        if lines is not None:
            return ref, lines
    return next(iter(place.segments)), None


def _lines_sought(text: str, query: str) -> list[tuple[int, int]]:
    """Return where lines of a text begin and end: those with most of what is sought, then the longest."""
    from context_compressor.search.query import places_in  # which only a search loads

    places = places_in(text, query)
    ranked: list[tuple[int, int, int]] = []
    start = 0
    for line in text.split("\n"):
        end = start + len(line)
        ranked.append((len({place.term for place in places if start <= place.start < end}), start, end))
        start = end + 1
    ranked.sort(key=lambda one: (one[0], one[2] - one[1]), reverse=True)
    return [(start, end) for _, start, end in ranked]


def _argument_with(
    place: Place, texts: Mapping[str, str], sought: Sequence[tuple[int, int]]
) -> tuple[str, _Lines] | None:
    """Return ref and lines of the stored argument that holds what was sought of a call."""
    found = place.found
    for stub in place.arguments:
        stored = texts.get(stub.ref)
        start = found.document.text.find(stored) if stored else -1
        if not stored or start < 0:
            continue
        end = start + len(stored)
        first, last = (found.start + at for at in sought[0])
        if first < end and start < last:
            return stub.ref, _lines_of(stored, max(0, found.start - start), found.end - start)
    return None


def _lines_of_call(
    transcript: str, call: str, text: str, share: float, sought: Sequence[tuple[int, int]]
) -> _Lines | None:
    """Return the lines of a call in the transcript with it, of those the ones with what was sought.

    Where the call is not found as a whole, what was sought tells them if it stands there just once.
    """
    places = _places_of(call, transcript)
    begin, end = 0, len(transcript)
    if places:
        at = _nearest(places, transcript, share)
        begin, end = at + call.index("\n") + 1, at + len(call)
    for start, stop in sought if places else sought[:1]:
        line = text[start:stop]
        value = line.partition(": ")[2] or line
        # Arguments stand there as JSON, of which there are two forms, those of a custom tool as they are.
        for needle in (dump_sendable(value)[1:-1], json.dumps(value)[1:-1], line):
            at = transcript.find(needle, begin, end) if needle else -1
            if at >= 0 and (places or transcript.find(needle, at + 1) < 0):
                return _lines_of(transcript, at, at + len(needle))
    return _lines_of(transcript, begin, end) if places else None


def _lines_in(transcript: str, found: Found, share: float) -> _Lines | None:
    """Return the lines of a passage in the transcript with its message, told from like texts by its place."""
    places = _places_of(found.document.text, transcript)
    if not places:
        return None
    whole = [at for at in places if transcript.endswith(_HEADER_END, 0, at)]
    start = _nearest(whole or places, transcript, share)
    return _lines_of(transcript, start + found.start, start + found.end)


def _places_of(text: str, transcript: str) -> list[int]:
    """Return where a text begins in a transcript, the first of the places that there are."""
    return list(islice(find_all(text, transcript), _MAX_PLACES))


def _nearest(places: Sequence[int], transcript: str, share: float) -> int:
    return min(places, key=lambda at: abs(at - share * len(transcript)))


def _lines_of(text: str, start: int, end: int) -> _Lines:
    first = text.count("\n", 0, start) + 1
    last = first + text.count("\n", start, max(start, end - 1))
    return _Lines(first, last, start - text.rfind("\n", 0, start))
