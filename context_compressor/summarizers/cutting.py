"""Cut a text to a number of tokens."""

from __future__ import annotations

import re
from bisect import bisect_right

from context_compressor.tokens.protocol import TokenCounter

ELLIPSIS = " …"
_BOUNDARY = re.compile(r"[.!?][\"')\]]*(?=\s)|[。！？；…][”’』」）]*|\n")


def cut_to_tokens(text: str, max_tokens: int, counter: TokenCounter) -> str:
    """Return `text` in at most `max_tokens` tokens, cut at the end of a sentence or line and marked with an ellipsis.

    Where that would lose more than half of what fits, as in a text without sentences, it is cut between characters.
    Returns "" when not even one character and the ellipsis fit.
    """
    if counter.count_text(text) <= max_tokens:
        return text
    fits = _longest_prefix(text, max_tokens, counter)
    ends = [match.end() for match in _BOUNDARY.finditer(text, 0, fits)]
    while ends and ends[-1] > fits // 2:
        # A prefix that ends elsewhere can take a token more, so each candidate is counted.
        result = text[: ends.pop()].rstrip() + ELLIPSIS
        if counter.count_text(result) <= max_tokens:
            return result
    return text[:fits].rstrip() + ELLIPSIS if fits else ""


def _longest_prefix(text: str, max_tokens: int, counter: TokenCounter) -> int:
    """Return how many characters of `text` fit together with the ellipsis."""

    def fits(length: int) -> bool:
        return counter.count_text(text[:length].rstrip() + ELLIPSIS) <= max_tokens

    # Doubling first keeps every count near the size of the answer, however long the text.
    high = max(16, max_tokens)
    while high < len(text) and fits(high):
        high *= 2
    return max(0, bisect_right(range(min(high, len(text)) + 1), 0, lo=1, key=lambda n: 0 if fits(n) else 1) - 1)
