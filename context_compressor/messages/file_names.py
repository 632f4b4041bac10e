"""Find the files whose names are Chinese: what looks for names in ASCII sees the torn ends of these."""

from __future__ import annotations

import re

_ENDING = re.compile(r"[\u3400-\u9fff](?:\d{0,8}|[_-][A-Za-z0-9_-]{0,20})\.[a-z]")
"""Every such file has one, few Chinese texts have; to look for it takes a fraction of the time."""
_CHINESE_FILE = re.compile(
    r"(?<![\w@.~/-])(?:[\u3400-\u9fff]*(?=[A-Za-z0-9_.~-]+/))?"  # of `打开src/服务.py` the verb is no part
    r"([\w@.~/-]{0,100}?[\u3400-\u9fff](?:\d{0,8}|[_-][A-Za-z0-9_-]{0,20})\.[a-z]{1,4}\d?)(?![A-Za-z0-9_])"
)
"""A Chinese character, at most a number or a marked ending such as `_v2`, and an extension."""


def take_chinese_files(text: str) -> tuple[list[str], str]:
    """Return the files with Chinese names in `text`, paths included, and the text without them.

    Words without an extension cannot be told from prose; prose that stands right before a bare name, as in
    `打开报告.pdf`, stays with it.
    """
    if text.isascii() or not _ENDING.search(text):
        return [], text
    found: list[str] = []

    def take(match: re.Match[str]) -> str:
        found.append(match[1])
        return " "

    rest = _CHINESE_FILE.sub(take, text)
    return found, rest
