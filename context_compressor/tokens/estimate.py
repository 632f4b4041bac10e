"""A token estimate that needs no vocabulary and errs on the high side."""

from __future__ import annotations

import math
import re

WORD_TOKENS = 0.9
LOWER_CASE_TOKENS = 0.15
UPPER_CASE_TOKENS = 0.5
DIGIT_TOKENS = 1.15
PUNCTUATION_TOKENS = 0.75
GAP_TOKENS = 0.8
IDEOGRAPH_TOKENS = 1.0
OTHER_CHARACTER_TOKENS = 1.2
ASTRAL_CHARACTER_TOKENS = 3.0
TEXT_TOKENS = 3.0
"""Tokens per word (`getName` is two), per character of each kind, per line break or run of blanks, per text.

Fitted to the Qwen vocabulary over the 33,070 texts of 449 recorded sessions such that none comes out too low.
"""

_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_GAPS = re.compile(r"[ \t]{2,}|[\r\n]\s*")
_BLANKS_BEFORE_DIGITS = re.compile(r"\s(?=\d)")

_DIGITS = b"0123456789"
_LOWER_CASE = b"abcdefghijklmnopqrstuvwxyz"
_UPPER_CASE = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_PUNCTUATION = bytes(c for c in range(0x21, 0x7F) if not chr(c).isalnum())
# The first bytes of characters in UTF-8: of U+3000 to U+9FFF, of the others below U+10000, of those above.
_IDEOGRAPH_LEAD_BYTES = bytes(range(0xE3, 0xEA))
_OTHER_LEAD_BYTES = bytes([*range(0xC0, 0xE3), *range(0xEA, 0xF0)])
_ASTRAL_LEAD_BYTES = bytes(range(0xF0, 0xF8))


def estimate_tokens(text: str) -> int:
    """Return about how many tokens `text` has, rather too many, by counting words and kinds of characters.

    Measured on recorded agent sessions against the Qwen vocabulary: 45 % too high over all, 29 to 56 % by
    kind of session, 57 % in Chinese; too low for none of their 33,070 texts. It can be too low for noise
    that no session holds: random lower-case letters, ideographs drawn at random. Never more than the
    text's UTF-8 bytes. It takes 13 MB/s.
    """
    data = text.encode("utf-8", "replace")
    tokens = (
        TEXT_TOKENS
        + WORD_TOKENS * len(_WORDS.findall(text))
        + LOWER_CASE_TOKENS * _count_bytes(data, _LOWER_CASE)
        + UPPER_CASE_TOKENS * _count_bytes(data, _UPPER_CASE)
        + DIGIT_TOKENS * _count_bytes(data, _DIGITS)
        + PUNCTUATION_TOKENS * _count_bytes(data, _PUNCTUATION)
        + GAP_TOKENS * len(_GAPS.findall(text))
        + len(_BLANKS_BEFORE_DIGITS.findall(text))
        + IDEOGRAPH_TOKENS * _count_bytes(data, _IDEOGRAPH_LEAD_BYTES)
        + OTHER_CHARACTER_TOKENS * _count_bytes(data, _OTHER_LEAD_BYTES)
        + ASTRAL_CHARACTER_TOKENS * _count_bytes(data, _ASTRAL_LEAD_BYTES)
    )
    # A byte-level vocabulary has a token for every byte, so no text costs more than its bytes.
    return min(math.ceil(tokens), len(data))


def _count_bytes(data: bytes, kinds: bytes) -> int:
    # Deleting runs at memory speed; counting in Python would be a hundred times slower.
    return len(data) - len(data.translate(None, kinds))
