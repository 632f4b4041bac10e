"""The tools that read stored texts and search them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from context_compressor.messages.media import is_data_url, media_type_of
from context_compressor.offload.tools.allowance import Allowance
from context_compressor.offload.tools.arguments import Arguments, FinalAnswer, show_value
from context_compressor.offload.tools.patterns import compile_pattern
from context_compressor.offload.tools.reading import read_page
from context_compressor.offload.tools.schemas import LOAD_TOOL
from context_compressor.offload.tools.searching import SEARCH_SECONDS, TextMatches, search_page, search_text
from context_compressor.offload.tools.source import NEWEST_NAMED, OffloadSource, find_ref, text_of

if TYPE_CHECKING:
    import regex

GREP_TOKENS = 300
"""What a search answers unless `limit` asks for more: enough to see where to read on. Where the first match
with its context takes more, it may have a page."""
MAX_CONTEXT_LINES = 50


async def answer_read(memory: OffloadSource, allowance: Allowance, arguments: Arguments) -> str:
    """Return a page of a stored text within the allowance.

    Raises:
        FinalAnswer: a wrong argument, no such text, or no room.
    """
    arguments.check("ref", "offset", "limit", "column")
    offset, column = arguments.integer("offset") or 1, arguments.integer("column") or 1
    limit = arguments.integer("limit")
    ref = await find_ref(memory, arguments.required("ref"))
    max_tokens = allowance.room()
    text = await text_of(memory, ref)
    if is_data_url(text):
        raise FinalAnswer(f"{ref} is {media_type_of(text) or 'no text'}: show it with {LOAD_TOOL}.")
    return await asyncio.to_thread(
        read_page, text, ref, memory.counter, max_tokens=max_tokens, offset=offset, column=column, limit=limit
    )


class _Found(NamedTuple):
    """What a search came to."""

    texts: list[TextMatches]
    unreadable: list[str]
    """Refs of the texts that could not be read."""
    stopped: bool
    """Whether the time was over before all was searched."""


async def answer_grep(memory: OffloadSource, allowance: Allowance, arguments: Arguments) -> str:
    """Return the lines of stored texts that match a pattern, within the allowance, or why there are none.

    Raises:
        FinalAnswer: a wrong argument, no such text, or no room.
        PatternError: the pattern cannot be used.
    """
    arguments.check("pattern", "ref", "ignore_case", "context", "limit")
    given = arguments.text("pattern")
    context = min(arguments.integer("context", least=0) or 0, MAX_CONTEXT_LINES)
    limit = arguments.integer("limit")
    pattern = await asyncio.to_thread(compile_pattern, given, arguments.flag("ignore_case"))
    named = arguments.get("ref")
    refs = await memory.reachable_refs() if named is None else [await find_ref(memory, named)]
    max_tokens = allowance.room()
    found = await _search(memory, refs, pattern, is_named=named is not None)
    if not found.texts:
        return _nothing_found(given, refs, found)
    return await asyncio.to_thread(
        search_page,
        found.texts,
        memory.counter,
        max_tokens=max_tokens if limit else min(max_tokens, GREP_TOKENS),
        first_max_tokens=max_tokens,
        limit=limit,
        context=context,
        stopped_seconds=ceil(SEARCH_SECONDS) if found.stopped else 0,
        unreadable=len(found.unreadable),
    )


async def _search(
    memory: OffloadSource, refs: Sequence[str], pattern: regex.Pattern[str], *, is_named: bool
) -> _Found:
    """Search texts one after the other, for `SEARCH_SECONDS` in all.

    Raises:
        FinalAnswer: the only text, which was asked for by name, cannot be read.
    """
    seconds_left = SEARCH_SECONDS
    texts: list[TextMatches] = []
    unreadable: list[str] = []
    for ref in refs:
        if seconds_left <= 0:
            return _Found(texts, unreadable, stopped=True)
        try:
            text = await text_of(memory, ref)
        except FinalAnswer:
            if is_named:
                raise
            unreadable.append(ref)
            continue
        if is_data_url(text):
            continue
        searched = await asyncio.to_thread(search_text, text, ref, pattern, seconds_left)
        if searched.matches:
            texts.append(searched)
        if searched.timed_out:
            return _Found(texts, unreadable, stopped=True)
        seconds_left -= searched.seconds
    return _Found(texts, unreadable, stopped=False)


def _nothing_found(pattern: str, refs: Sequence[str], found: _Found) -> str:
    if found.stopped:
        return (
            f"The search for {show_value(pattern)} was stopped after {SEARCH_SECONDS:g} s, nothing found. "
            "Simplify the pattern (nested repeats such as (a+)+ take for ever), or name a ref."
        )
    if not refs:
        return "Nothing has left this conversation yet, so there is nothing to search."
    where = refs[0] if len(refs) == 1 else f"any of {len(refs)} stored texts"
    answer = f"No line matches {show_value(pattern)} in {where}."
    if found.unreadable:
        named = ", ".join(found.unreadable[:NEWEST_NAMED])
        answer += f" {len(found.unreadable)} could not be read: {named}."
    return answer
