"""Unicode normalisation in linear time."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from typing import Literal

_MOST_MARKS = 30
"""Unicode's stream-safe texts have no more in a row (UAX #15): no script needs as many on one letter."""
_MARK = r"[^\x00-\u02ff\u0370-\u0482\u048a-\u0590\u3000-\u3029\u3030-\u3098\u309b-\u9fff\uac00-\ud7ff\w\s]"
"""Any combining mark, and other signs without harm. Most letters are told by the ranges, which is faster."""


@cache
def _many_marks() -> re.Pattern[str]:
    """Compile the pattern, which takes milliseconds, for the first text that may need it."""
    return re.compile(f"{_MARK}{_MARK}{{{_MOST_MARKS - 1}}}")  # looks for the first by its class alone


def normalize(form: Literal["NFC", "NFKC", "NFKD"], text: str) -> str:
    """Return a text in a normal form; of more than 30 marks in a row only so many are put in order at a time.

    `unicodedata.normalize` sorts all marks on a letter at once, in quadratic time: 40,000 took 20 seconds, in
    which nothing else ran in the process.
    """
    if len(text) <= _MOST_MARKS or text.isascii():
        return unicodedata.normalize(form, text)
    if form != "NFC":  # letters by themselves, these two become marks
        text = text.replace("\uff9e", "\u3099").replace("\uff9f", "\u309a")
    return "".join([unicodedata.normalize(form, piece) for piece in _pieces(text)])


def _pieces(text: str) -> Iterator[str]:
    start = 0
    for found in _many_marks().finditer(text):
        yield text[start : found.end()]
        start = found.end()
    yield text[start:]
