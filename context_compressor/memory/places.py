"""Searching the history of a memory: where what is found can be read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

from context_compressor.core.edits import ItemKey, message_id
from context_compressor.core.shown import Redact, call_text, shown_message
from context_compressor.errors import InvalidArgumentError, OffloadError
from context_compressor.memory.history import History
from context_compressor.memory.index import HistoryIndex, texts_of
from context_compressor.memory.state import MemoryState
from context_compressor.messages.msg import Msg, tool_results
from context_compressor.messages.parts import is_argument, part_at
from context_compressor.offload.files import FileOffloadStore
from context_compressor.offload.guide import ROLES, is_own_tool
from context_compressor.offload.store import OffloadStore, ref_of
from context_compressor.search.hits import Document, Hit, Lines, find_all, lines_of

if TYPE_CHECKING:
    from context_compressor.search import Found

_MAX_PLACES = 200
"""Places of one text in a transcript that are looked at."""
_HEADER_END = " ===\n"
"""What stands before a message's text in a transcript."""


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
            raise InvalidArgumentError(f"limit: expected a number from 1 up, got {limit!r:.200}")
        if role is not None and role not in ROLES:
            raise InvalidArgumentError(f"role: expected one of {', '.join(ROLES)}, got {role!r:.80}")

        def is_last(document: Document) -> bool:
            # The request stands in the view, and earlier answers of the tools repeat what they found.
            return document.key == self.index.newest_request() or is_own_tool(document.tool)

        keys = list(state.known.tokens)
        found = await self.index.search(query, limit, self._heads, keys=keys, role=role, last=is_last)
        ago = {key: count for count, key in enumerate(reversed(state.known.tokens))}
        places = [
            _Place(one, msg, state, ago[key], self._redact)
            for one, msg in found
            if (key := one.document.key) in ago
        ]
        texts: dict[str, str] = {}
        for ref in dict.fromkeys(ref for place in places for ref in place.refs):
            with suppress(OffloadError):
                texts[ref] = await self._read_ref(ref)
        return await asyncio.to_thread(lambda: [place.hit(texts, query) for place in places])

    async def _heads(self) -> list[tuple[str, int, int]]:
        head = await self._history.head()
        return [("", head.number, head.size)]


class _Place:
    """A passage that was found, with what view and ledger have for its message at that moment.

    Args:
        found: the passage.
        msg: its message, None where it is gone.
        state: in step with the history.
        messages_ago: how many messages came after it.
        redact: what every text goes through.

    Attributes:
        refs: of the texts that tell its lines.
    """

    def __init__(
        self, found: Found, msg: Msg | None, state: MemoryState, messages_ago: int, redact: Redact | None
    ) -> None:
        self._found, self._msg, self._messages_ago, self._redact = found, msg, messages_ago, redact
        key, ledger = found.document.key, state.ledger
        orphans = [] if msg is None else [f"#orphan{number}" for number in range(len(tool_results(msg)))]
        items = [ItemKey(key, part) for part in ("", "#results", "#text", *orphans)]
        self._is_call = found.document.tool is not None and found.document.role != "tool"
        self._shown = [one.msg for one in state.items if one.key.key == key and one.kind != "segment"]
        self._stand_ins = {path: stub.text for path, stub in ledger.stubs_of(items[0]).items()}
        stubs = [stub for item in items for stub in ledger.stubs_of(item).values()]
        self._stubs = {stub.ref for stub in stubs}
        self._arguments = [stub.ref for stub in stubs if self._is_call and is_argument(stub.path)]
        # Each with how far into it the message stands, of which parts may leave apart: 0 its beginning.
        self._segments: dict[str, float] = {}
        for item in items:
            if (held := ledger.segment_of(item)) is not None:
                self._segments.setdefault(held.ref, held.items.index(item) / len(held.items))
        self.refs = [*self._arguments, *self._segments]

    def hit(self, texts: Mapping[str, str], query: str) -> Hit:
        """Return the passage with where it stands.

        Args:
            texts: those under `refs`, as far as they could be read.
            query: what was asked.
        """
        found, document = self._found, self._found.document
        sought = _lines_sought(found.text, query) if self._is_call else []
        # Of a call with a stub the line that was asked for may still be there.
        told = found.text[slice(*sought[0])] if sought else found.text
        ref, lines = self._stands(texts, sought)
        return Hit(
            text=found.text,
            ref=ref,
            message_ids=(message_id(document.key),),
            role=document.role,
            tool=document.tool,
            lines=None if lines is None else (lines.first, lines.last),
            in_view=any(told in said.text for msg in self._shown for said in texts_of(msg, (), self._redact)),
            messages_ago=self._messages_ago,
            column=1 if lines is None else lines.column,
        )

    def _stands(
        self, texts: Mapping[str, str], sought: Sequence[tuple[int, int]]
    ) -> tuple[str | None, Lines | None]:
        """Return ref and lines of the stored text with the passage, as far as they can be told."""
        found, document = self._found, self._found.document
        if self._stubs and (whole := ref_of(document.text)) in self._stubs:
            return whole, lines_of(document.text, found.start, found.end)
        for ref in self._arguments:
            stored = texts.get(ref, "")
            start = document.text.find(stored) if stored else -1
            first, last = (found.start + at - start for at in sought[0])
            if start >= 0 and first < len(stored) and last > 0:
                return ref, lines_of(stored, max(0, found.start - start), found.end - start)
        call = self._call() if self._is_call else ""
        for ref, share in self._segments.items():
            transcript = texts.get(ref, "")
            if self._is_call:
                lines = _lines_of_call(transcript, call, found.text, share, sought)
            else:
                lines = _lines_in(transcript, found, share)
            if lines is not None:
                return ref, lines
        return next(iter(self._segments), None), None

    def _call(self) -> str:
        """Return the call of the passage as a transcript has it; empty where its message is another."""
        msg, part = self._msg, self._found.document.part
        if msg is None or not (said := [one for one in texts_of(msg) if one.part == part]):
            return ""
        stand_ins = {path: text for path, text in self._stand_ins.items() if part_at(msg, path) is not None}
        block = shown_message(msg, stand_ins, {}, self._redact).get_content_blocks()[said[0].block]
        return call_text(block) if block.get("type") == "tool_use" else ""


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


def _lines_of_call(
    transcript: str, call: str, text: str, share: float, sought: Sequence[tuple[int, int]]
) -> Lines | None:
    """Return the lines of a call in the transcript with it, of those the ones with what was sought.

    Where the call is not found as a whole, what was sought tells them if it stands there just once.
    """
    from context_compressor.search.terms import readings  # which only a search loads

    at = _nearest(_places_of(call, transcript), transcript, share)
    begin, end = (0, len(transcript)) if at is None else (at + call.index("\n") + 1, at + len(call))
    # Arguments stand there as JSON, those of a custom tool as they are.
    said = list(readings(transcript[begin:end]))
    for start, stop in sought[:1] if at is None else sought:
        line = text[start:stop]
        value = line.partition(": ")[2] or line
        for reading, origins in said if value else ():
            first = reading.find(value)
            if first >= 0 and (at is not None or reading.find(value, first + 1) < 0):
                return lines_of(transcript, begin + origins[first], begin + origins[first + len(value)])
    return None if at is None else lines_of(transcript, begin, end)


def _lines_in(transcript: str, found: Found, share: float) -> Lines | None:
    """Return the lines of a passage in the transcript with its message, told from like texts by its place."""
    places = _places_of(found.document.text, transcript)
    whole = [at for at in places if transcript.endswith(_HEADER_END, 0, at)]
    start = _nearest(whole or places, transcript, share)
    return None if start is None else lines_of(transcript, start + found.start, start + found.end)


def _places_of(text: str, transcript: str) -> list[int]:
    """Return where a text begins in a transcript, the first of the places that there are."""
    return list(islice(find_all(text, transcript), _MAX_PLACES))


def _nearest(places: Sequence[int], transcript: str, share: float) -> int | None:
    return min(places, key=lambda at: abs(at - share * len(transcript)), default=None)
