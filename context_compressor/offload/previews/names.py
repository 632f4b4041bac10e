"""Name what a text contains beyond what a preview shows of it: paths, ids, identifiers, URLs."""

from __future__ import annotations

import re

from context_compressor.offload.fitting import largest_fitting
from context_compressor.tokens.protocol import TokenCounter

MAX_NAME_CHARACTERS = 100

SCANNED_CHARACTERS = 100_000
"""Read from either end of a text; scanning takes some 3 ms per 100,000 characters."""

_WORD = re.compile(rf"[A-Za-z0-9_/#][A-Za-z0-9_./:#@-]{{3,{MAX_NAME_CHARACTERS}}}")
_NAME_LIKE = re.compile(r"[0-9_]|\w/|[a-z][A-Z]|\w\.\w")
"""What tells an identifier from a word of prose: a digit, an underscore, a slash (not that of `</div>`),
a hump, an inner dot."""

_DIGITS = re.compile(r"[0-9]+")
_MAX_ALIKE = 8
"""Names shown that differ in their digits only: timestamps and running numbers would push out all others."""


def name_line(text: str, shown: str, max_tokens: int, counter: TokenCounter) -> str:
    """Return one line with the names that stand most often in `text`, `shown` left out; "" when none fits.

    Measured on 217 large tool results of recorded agent sessions: with half of a 200-token preview given to
    this line, the share of identifiers the agent used next that stand in the preview rises from 0.16 to 0.41.
    """
    names = _names(text, shown, max_tokens)

    def line(count: int) -> str:
        return f"[also contains: {', '.join(names[:count])}]"

    count = largest_fitting(lambda n: counter.count_text(line(n)), len(names), max_tokens, max_tokens // 5)
    return line(count) if count else ""


def _names(text: str, shown: str, most: int) -> list[str]:
    if len(text) > 2 * SCANNED_CHARACTERS:
        text = text[:SCANNED_CHARACTERS] + "\n" + text[-SCANNED_CHARACTERS:]
    counts: dict[str, int] = {}
    for word in _WORD.findall(text):
        counts[word] = counts.get(word, 0) + 1
    names: dict[str, None] = {}
    alike: dict[str, int] = {}
    # The sort is stable: among names that stand equally often, the first in the text comes first.
    for word in sorted(counts, key=lambda word: -counts[word]):
        name = word.rstrip("./:-")
        # A word of full length was cut from something longer: base64, a hash of hashes.
        if len(word) > MAX_NAME_CHARACTERS or len(name) < 4 or not _NAME_LIKE.search(name) or name in names:
            continue
        shape = _DIGITS.sub("0", name)
        alike[shape] = alike.get(shape, 0) + 1
        if alike[shape] <= _MAX_ALIKE and name not in shown:
            names[name] = None
            if len(names) >= most:
                break
    return list(names)
