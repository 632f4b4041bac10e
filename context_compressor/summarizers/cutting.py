"""Cut a text to a number of tokens."""

from __future__ import annotations

import re

from context_compressor.tokens.protocol import TokenCounter

ELLIPSIS = " …"
_BOUNDARY = re.compile(r"[.!?][\"')\]]*(?=\s)|[。！？；…][”’』」）]*|\n")


def cut_to_tokens(text: str, max_tokens: int, counter: TokenCounter) -> str:
    """Return `text` in at most `max_tokens` tokens, cut at the end of a sentence or line, with an ellipsis.

    Where that would lose more than half of what fits, as in a text without sentences, it is cut between
    characters. Returns "" where not even one character and the ellipsis fit.
    """
    if counter.count_text(text) <= max_tokens:
        return text
    length = _fitting_length(text, max_tokens, counter)
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


def _fitting_length(text: str, max_tokens: int, counter: TokenCounter) -> int:
    """Return how many characters of `text` fit together with the ellipsis."""

    def fits(length: int) -> bool:
        return counter.count_text(text[:length].rstrip() + ELLIPSIS) <= max_tokens

    # Doubling first keeps every count near the size of the answer, however long the text.
    low, high = 0, max(16, max_tokens)
    while high < len(text) and fits(high):
        low, high = high, high * 2
    high = min(high, len(text))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
