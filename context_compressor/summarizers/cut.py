"""As much of a text as fits: into a number of tokens, on a line."""

from __future__ import annotations

import re

from context_compressor.messages.text import clean
from context_compressor.tokens.counter import TokenCounter, largest_fitting

ELLIPSIS = " …"
_BOUNDARY = re.compile(r"[.!?؟।][\"')\]]*(?=\s)|[。！？；…][”’』」）]*|\n")


def cut(text: str, max_chars: int) -> str:
    """Return `text`, cleaned, on one line of at most `max_chars` characters, cut between words.

    Where a word is so long that it is cut itself, the ellipsis touches what is left of it.
    """
    line = " ".join(clean(text[: max_chars * 4]).split())
    if len(line) <= max_chars:
        return line
    head = line[: max(0, max_chars - 2)]
    space = head.rfind(" ")
    return f"{head[:space].rstrip(ELLIPSIS)} …" if space > max_chars // 2 else f"{head}…"


def cut_middle(text: str, max_chars: int) -> str:
    """Return about `max_chars` characters of a longer text: its head, how much is left out, its tail.

    It is cut between words where it has some, and stays whole where that saves less than the mark costs.
    """
    if len(text) <= max_chars:
        return text
    half = max_chars // 2
    blanks = [found.end() for found in re.finditer(r"\s", text[half // 2 : half])]
    end = half // 2 + blanks[-1] if blanks else half
    blank = re.search(r"\s", text[len(text) - half :][: half // 2])
    start = len(text) - half + (blank.end() if blank else 0)
    mark = left_out(text[end:start])
    return f"{text[:end].rstrip()}\n{mark}\n{text[start:].lstrip()}" if mark else text


def left_out(gap: str) -> str:
    """Return the mark for what is left out of a text that a summariser reads; "" if it is not worth one."""
    lines = gap.strip("\n").count("\n") + 1
    mark = f"[... {f'{lines:,} lines' if lines > 1 else f'{len(gap):,} characters'} left out ...]"
    return mark if len(gap) > 2 * len(mark) else ""


def cut_to_tokens(text: str, max_tokens: int, counter: TokenCounter) -> str:
    """Return `text` in at most `max_tokens` tokens, cut at the end of a sentence or line, with an ellipsis.

    Where that would lose more than half of what fits, as in a text without sentences, it is cut between
    characters. Returns "" where not even one character and the ellipsis fit.
    """
    if counter.count_text(text) <= max_tokens:
        return text

    def cost(length: int) -> int:
        return counter.count_text(text[:length].rstrip() + ELLIPSIS)

    length = largest_fitting(cost, len(text) - 1, max_tokens, 4 * max_tokens, good_enough=None)
    for end in reversed([match.end() for match in _BOUNDARY.finditer(text, 0, length)]):
        if end <= length // 2:
            break
        # Ending elsewhere can cost a token more, so each candidate is counted.
        result = text[:end].rstrip() + ELLIPSIS
        if counter.count_text(result) <= max_tokens:
            return result
    return text[:length].rstrip() + ELLIPSIS if length else ""


def drop_torn_end(text: str) -> str:
    """Return `text`, which broke off somewhere, up to its last whole sentence or line, with an ellipsis."""
    end = max((match.end() for match in _BOUNDARY.finditer(text)), default=0)
    return (text[:end].rstrip() if end else text.rstrip()) + ELLIPSIS
