"""Pages of a stored text, and media again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from context_compressor.messages.chat import block_to_part
from context_compressor.messages.media import is_data_url, kind_of_media, media_type_of, source_of
from context_compressor.messages.msg import Block, Msg
from context_compressor.offload.guide import LOAD_TOOL, READ_TOOL
from context_compressor.offload.pages import END, closing_more, lines_page
from context_compressor.offload.previews.making import CHARS_PER_TOKEN_BOUND, largest_fitting
from context_compressor.offload.previews.text import counted
from context_compressor.tokens.counter import TokenCounter
from context_compressor.tools.arguments import Arguments, FinalAnswer, show_value
from context_compressor.tools.grep import (
    SEARCH_SECONDS,
    TextMatches,
    compile_pattern,
    search_page,
    search_text,
)
from context_compressor.tools.source import NEWEST_NAMED, Allowance, OffloadSource, find_ref, text_of

if TYPE_CHECKING:
    import regex

_STEP_CHARACTERS = 1 << 16
"""Characters passed in one step on the way to a line; splitting a large text would hold the interpreter."""


def read_page(
    text: str,
    ref: str,
    counter: TokenCounter,
    *,
    max_tokens: int,
    offset: int = 1,
    column: int = 1,
    limit: int | None = None,
) -> str:
    """Return as many lines as fit `max_tokens`, or a sentence that says why none can be shown.

    `limit`: how many lines at most; None for as many as fit.
    """
    total = text.count("\n") + 1
    if offset > total:
        return f"There is no line {offset}: {ref} has {counted(total, 'line')}."
    most = max_tokens * CHARS_PER_TOKEN_BOUND
    wanted = _lines_from(text, offset, most if limit is None else min(limit, most))
    lengths = [len(line) for line in wanted]
    if column > max(lengths[0], 1):
        return f"There is no column {column}: line {offset} of {ref} has {lengths[0]} characters."
    wanted[0] = wanted[0][column - 1 :]

    def whole(count: int) -> str:
        following = offset + count
        closing = closing_more(following) if following <= total else END
        return lines_page(ref, wanted[:count], offset, total, closing, from_column=column)

    def cut(count: int, characters: int) -> str:
        """Show `count` whole lines and the beginning of the next."""
        part = wanted[count][:characters]
        number = offset + count
        start = column if count == 0 else 1
        closing = closing_more(number, start + characters, lengths[count])
        return lines_page(
            ref,
            [*wanted[:count], part],
            offset,
            total,
            closing,
            from_column=column,
            to_column=start + characters - 1,
        )

    upper = _lines_within(wanted, most)
    guess = _lines_within(wanted, max_tokens * 3)
    count = largest_fitting(lambda n: counter.count_text(whole(n)), upper, max_tokens, guess)
    # A long line must be cut when nothing else fits; it may be when half the page would stay empty.
    if count < len(wanted) and (count == 0 or counter.count_text(whole(count)) < max_tokens // 2):
        upper = min(len(wanted[count]) - 1, most)
        characters = largest_fitting(
            lambda n: counter.count_text(cut(count, n)), upper, max_tokens, max_tokens * 2
        )
        if characters:
            return cut(count, characters)
    if count == 0:
        return f"No room for a page of {ref}: {max_tokens} tokens are left for it, less than its frame takes."
    return whole(count)


def _lines_from(text: str, first: int, count: int) -> list[str]:
    """Return at most `count` lines from line `first` on, which there is."""
    position, ahead = 0, first - 1  # line feeds in front of it
    while (passed := text.count("\n", position, position + _STEP_CHARACTERS)) < ahead:
        position, ahead = position + _STEP_CHARACTERS, ahead - passed
    for _ in range(ahead):
        position = text.index("\n", position) + 1
    lines: list[str] = []
    while len(lines) < count and position <= len(text):
        end = text.find("\n", position)
        end = len(text) if end < 0 else end
        lines.append(text[position:end])
        position = end + 1
    return lines


def _lines_within(lines: list[str], characters: int) -> int:
    """Return how many of the first lines hold at most `characters`, their line feeds included."""
    for count, line in enumerate(lines):
        characters -= len(line) + 1
        if characters < 0:
            return count
    return len(lines)


GREP_TOKENS = 300
"""What a search answers unless `limit` asks for more: enough to see where to read on. Where the first match
with its context takes more, it may have a page."""
MAX_CONTEXT_LINES = 50


async def answer_read(memory: OffloadSource, allowance: Allowance, arguments: Arguments) -> str:
    """Return a page of a stored text within the allowance."""
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


Wire = Literal["openai", "dashscope"]


async def answer_load(memory: OffloadSource, allowance: Allowance, arguments: Arguments) -> str:
    """Return a sentence that announces media; `media_part` of what `find_media` returns has to follow it."""
    ref, url = await find_media(memory, allowance, arguments)
    return f"{ref} ({media_type_of(url) or kind_of_media(url)}) follows as a message of the user."


async def find_media(memory: OffloadSource, allowance: Allowance, arguments: Arguments) -> tuple[str, str]:
    """Return the ref of media that can be shown, and their `data:` URL."""
    arguments.check("ref")
    ref = await find_ref(memory, arguments.required("ref"))
    url = await text_of(memory, ref)
    if not is_data_url(url):
        raise FinalAnswer(f"{ref} is a text: read it with {READ_TOOL}.")
    shown = Msg("user", [_media_block(url)], "user", timestamp="", id="")
    tokens, allowed = memory.counter.count_messages([shown]), allowance.standing_tokens
    if tokens > allowed:
        raise FinalAnswer(
            f"{ref} cannot be shown: it takes {tokens} tokens, and {allowed} are allowed. Do not retry."
        )
    return ref, url


def media_part(url: str, wire: Wire) -> dict[str, Any]:
    """Return media as a content part, from their `data:` URL."""
    if wire == "dashscope":
        return {kind_of_media(url): url}
    return block_to_part(_media_block(url))


def _media_block(url: str) -> Block:
    kind = kind_of_media(url)
    if kind == "file":
        ending = media_type_of(url).rpartition("/")[2] or "bin"
        return {"type": "file", "file": {"filename": f"offloaded.{ending}", "file_data": url}}
    return {"type": kind, "source": source_of(url)}
