"""Recognise a provider's complaint that a prompt is longer than its model reads, or that it writes less."""

from __future__ import annotations

import re

_CODES = frozenset({"context_length_exceeded", "context_window_exceeded", "exceed_context_size_error"})
_STATUS = frozenset({200, 400, 413, 422, 500})
"""Others say what else is wrong; 429 speaks of tokens per minute. Some servers put errors into a 200."""
_WHAT = (
    r"(?:(?<!output )(?<!completion )tokens?\b|\bprompt\b|\binputs?\b(?! image| validation)"
    r"|\btext (?:bytes|characters)|\bcontext\b|上下文|输入(?!图))"
)
"""What is too long: not an image, not what an answer may take, no field of a request."""
_EXCESS = (
    r"(?:exceed|too (?:long|large|many)|\bmax|limit\b|only supports|<=|less than \d+ tokens|range of"
    r"|超过|超出|过长|超长)"
)
_TEXT = re.compile(
    rf"{_WHAT}[^\n]{{0,80}}?{_EXCESS}|{_EXCESS}[^\n]{{0,40}}?{_WHAT}"
    r"|context[ _](?:length|window|size)|reduce the length|request(?: is)? too (?:long|large)",
    re.IGNORECASE,
)
_NO_LENGTH = re.compile(r"'[\w.\[\]]{1,80}'|\bmax_(?:completion_|output_|new_)?tokens\b")
"""Names of fields: what is said of one is not said of the prompt."""
_RATE = re.compile(r"\bper (?:min|hour|day)|\brate\b|\bwait\b|throttl|quota", re.IGNORECASE)
_NUMBER = r"(\d[\d,]{0,14}+)(?![\dk>]| \+)"
"""Python reads no number of thousands of digits, which a broken server may write; `128k` is not 128, `<400>`
is a status, and what is added to something is no limit."""
_LINK = (
    r"(?:[ _:]+(?:allowed|number|of|is|only|up|to|tokens?|input|prompt|model|context|length|len|window|size"
    r"|seq|sequence))*"
)
_LIMIT = re.compile(
    # In parentheses behind `limit` it may be the error's own number (MiniMax).
    r"(?:context|max(?:imum)?|limit(?! \()|exceeds?|supports|than|[<>]=?|\[\s*\d+\s*,)"
    rf"{_LINK}[\s:(`]*{_NUMBER}|{_NUMBER} maximum",
    re.IGNORECASE,
)
_NO_TOKENS = re.compile(r"\bbytes\b|\bcharacters\b", re.IGNORECASE)
_ROOM = re.compile(
    r"max_(?:completion_)?tokens\b.{0,100}?(?:\[\s*\d+\s*,|equal to|at most|<=|: \d+ >) ?\W?(\d{1,12})"
    r"|at most (\d{1,12}) completion tokens",
    re.IGNORECASE | re.ASCII,  # a name may stand between Chinese characters
)
_MIN_LIMIT = 16
"""A smaller number is no limit but something else."""


def is_overflow(status: int, code: str | None, text: str) -> bool:
    """Tell whether an answer with this HTTP status, error code and text says that the prompt was too long."""
    if code in _CODES or status == 413:
        return True
    if status not in _STATUS or _RATE.search(text) or _ROOM.search(text):
        return False  # what says that an answer may not be so long may name the context window, too
    return _TEXT.search(_NO_LENGTH.sub("", text)) is not None


def limit_in(text: str) -> int | None:
    """Return how many tokens the model reads, as an error text says, or None when it does not."""
    if _NO_TOKENS.search(text) and "token" not in text:
        return None
    numbers = (int((match[1] or match[2]).replace(",", "")) for match in _LIMIT.finditer(text))
    return next((tokens for tokens in numbers if tokens >= _MIN_LIMIT), None)


def room_in(text: str) -> int | None:
    """Return how many tokens an answer may be given, as an error text says, or None when it does not."""
    match = _ROOM.search(text)
    return int(match[match.lastindex or 0]) if match else None
