"""A page of a stored text: as many lines as fit."""

from __future__ import annotations

from functools import partial

from context_compressor.offload.pages import END, closing_more, lines_page
from context_compressor.offload.previews.making import CHARS_PER_TOKEN_BOUND
from context_compressor.offload.previews.text import counted
from context_compressor.tokens.counter import TokenCounter, largest_fitting

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

    def page(count: int, characters: int = 0) -> str:
        """Show `count` whole lines, and so many characters of the next."""
        number = offset + count
        if not characters:
            tokens = None if count == limit else max_tokens
            closing = closing_more(number, tokens=tokens) if number <= total else END
            return lines_page(ref, wanted[:count], offset, total, closing, from_column=column)
        end = (column if count == 0 else 1) + characters - 1
        closing = closing_more(number, end + 1, lengths[count], max_tokens)
        lines = [*wanted[:count], wanted[count][:characters]]
        return lines_page(ref, lines, offset, total, closing, from_column=column, to_column=end)

    def tokens(count: int, characters: int = 0) -> int:
        return counter.count_text(page(count, characters))

    upper, guess = _lines_within(wanted, most), _lines_within(wanted, max_tokens * 3)
    count = largest_fitting(tokens, upper, max_tokens, guess)
    characters = 0
    # A long line must be cut when nothing else fits; it may be when half the page would stay empty.
    if count < len(wanted) and (count == 0 or tokens(count) < max_tokens // 2):
        upper = min(len(wanted[count]) - 1, most)
        characters = largest_fitting(partial(tokens, count), upper, max_tokens, max_tokens * 2)
    if count or characters:
        return page(count, characters)
    return f"No room for a page of {ref}: {max_tokens} tokens are left for it, less than its frame takes."


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
