"""Find values that consist of several words, of which one who looks for words sees parts, or none."""

from __future__ import annotations

import re

_PHONE = re.compile(r"\+\d{1,3}(?:[ -]\(?\d{1,8}\)?){2,5}(?!\w)", re.ASCII)
_LEAST_DIGITS = 8
_EAST_ASIAN = re.compile(
    r"\d{2,4}[年년] ?\d{1,2}[月월](?: ?\d{1,2}[日号일])?|\d{1,2}[月월] ?\d{1,2}[日号일]"
    r"|[¥￥₩]?(?<![\d.,])\d{1,3}(?:,?\d{3}){0,4}(?:\.\d{1,2})?[万億亿만]?[円元원]",
    re.ASCII,
)
"""Dates and sums of money in Chinese, Japanese and Korean."""
_ITS_SIGNS = re.compile("[月월円元원]")


def take_values(text: str) -> tuple[list[str], str]:
    """Return phone numbers, and dates and sums in East Asian writing, and the text without them.

    A phone number is known by the plus sign before its country, with blanks or hyphens in it.
    """
    found: list[str] = []

    def take(match: re.Match[str]) -> str:
        if match[0][0] == "+" and sum(map(str.isdecimal, match[0])) < _LEAST_DIGITS:
            return match[0]
        found.append(match[0])
        return " "

    if "+" in text:
        text = _PHONE.sub(take, text)
    if not text.isascii() and _ITS_SIGNS.search(text):
        text = _EAST_ASIAN.sub(take, text)
    return found, text
