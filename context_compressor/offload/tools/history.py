"""The tools of a memory that can search its whole history, or be compressed by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol, TypeGuard

from context_compressor.errors import ContextCompressorError
from context_compressor.events import CompressionEvent, NoteFate
from context_compressor.offload.tools.allowance import Allowance
from context_compressor.offload.tools.arguments import Arguments, show_value
from context_compressor.recall.hits import Hit, hits_page
from context_compressor.tokens.protocol import TokenCounter

SEARCH_TOKENS = 220
"""What a search answers unless `limit` asks for more: three to five passages, of which the first is mostly
the one."""
MAX_HITS = 50
_DEFAULT_HITS = 5

_NOTE_ANSWERS: dict[NoteFate, str] = {
    "kept": "The note was kept.",
    "cut": "There was no room for all of the note.",
    "dropped": "The note was not kept: no summary was made that had room for it.",
}


class SearchableSource(Protocol):
    """What `search_history` needs of a memory."""

    @property
    def counter(self) -> TokenCounter:
        """What pages are counted by."""
        ...

    async def search_history(self, query: str, limit: int = ...) -> Sequence[Hit]:
        """Return at most `limit` passages of the whole history that answer a query, best first.

        Raises:
            ContextCompressorError: it could not be searched.
        """
        ...


class CompressibleSource(Protocol):
    """What `compress_context` needs of a memory."""

    async def compress_now(self, keep: str | None = ...) -> CompressionEvent | None:
        """Compress all that may leave, with a note on what to keep; None if there was nothing to gain.

        Raises:
            ContextCompressorError: it could not be compressed.
        """
        ...


def can_search(memory: object) -> TypeGuard[SearchableSource]:
    """Tell whether a memory searches its history, be it by handing that on to one that it wraps.

    Not by `isinstance`: since Python 3.12 that does not ask `__getattr__`.
    """
    return callable(getattr(memory, "search_history", None))


def can_compress(memory: object) -> TypeGuard[CompressibleSource]:
    """Tell likewise whether a memory can be compressed by hand."""
    return callable(getattr(memory, "compress_now", None))


async def answer_search(memory: SearchableSource, allowance: Allowance, arguments: Arguments) -> str:
    """Return the passages that answer a query as a page, or why there are none; within the allowance.

    Raises:
        FinalAnswer: a wrong argument, or no room.
    """
    arguments.check("query", "limit")
    query = arguments.text("query")
    limit = arguments.integer("limit")
    wanted = min(limit or _DEFAULT_HITS, MAX_HITS)
    try:
        hits = await memory.search_history(query, limit=wanted)
    except ContextCompressorError as error:
        return f"Not searched: {error}"
    if not hits:
        return f"Nothing in this conversation answers {show_value(query)}; try other words."
    max_tokens = allowance.room() if limit else min(allowance.room(), SEARCH_TOKENS)
    return await asyncio.to_thread(hits_page, hits, query, memory.counter, max_tokens)


async def answer_compress(memory: CompressibleSource, arguments: Arguments) -> str:
    """Compress, and return a sentence on what that saved and whether the note was kept.

    Raises:
        FinalAnswer: a wrong argument.
    """
    arguments.check("keep")
    keep = None if arguments.get("keep") is None else arguments.text("keep")
    try:
        event = await memory.compress_now(keep=keep)
    except ContextCompressorError as error:
        return f"Not compressed: {error}"
    if event is None:
        answer = "Nothing to compress: what is there is the latest, or summarised already."
        return f"{answer} The note was not kept." if keep else answer
    answer = f"Compressed from {event.tokens_before} to {event.tokens_after} tokens."
    return f"{answer} {_NOTE_ANSWERS[event.note]}" if event.note else answer
