"""Recognise a provider's complaint that a prompt is longer than its model reads, or that it writes less."""

from __future__ import annotations

import re

_CODES = frozenset({"context_length_exceeded", "context_window_exceeded", "exceed_context_size_error"})
_STATUS = frozenset({200, 400, 413, 422, 500})
"""Others say what else is wrong; 429 speaks of tokens per minute. Some servers put errors into a 200."""
_TEXT = re.compile(
    r"""
    context[ _](?:length|window|size|limit) | \bprompt\b[^\n]{0,80}\btoo\ long
    | \b(?:input|request)(?:\ (?:context|token\ length|length))?(?:\ is)?\ too\ (?:long|large)
    | too\ many\ tokens: | reduce\ the\ length | range\ of\ input\ length
    | max(?:imum)?\ (?:(?:prompt|input)\ length|input\ characters) | exceeded\ model\ token\ limit
    | \b(?:prompt|input|tokens)\b[^\n]{0,40}\ (?:exceed(?:s|ed)?|(?:more|longer)\ than)
      \ (?:the\ )?max(?:imum\b|\b|_)
    | \b(?:prompt|tokens)\b[^\n]{0,40}\bexceeds\ the\ limit\ of\ \d
    | max_seq_len | tokens\ \+\ `?max_new_tokens | `inputs`\ must\ have\ less\ than
    | (?:上下文|输入|prompt)[^\n]{0,12}(?:超过|超出|过长|超长)
    | 超出[^\n]{0,4}上下文 | (?<!\w)token数量超过
    """,
    re.IGNORECASE | re.VERBOSE,
)
_NUMBER = r"(\d[\d,]{0,14}+)(?![\dk])"
"""Python reads no number of thousands of digits, which a broken server may write; `128k` is not 128."""
_LIMITS = tuple(
    re.compile(pattern.replace("NUMBER", _NUMBER), re.IGNORECASE)
    for pattern in (
        r"context[ _](?:length|window|size)(?: is| of|:)?(?: only)?\s*\(?NUMBER",
        r"NUMBER maximum context length",
        r"range of input length should be \[\s*\d+\s*,\s*NUMBER\s*\]",
        r"> NUMBER maximum",
        r"limit: \d[\d,]* \+ \d[\d,]* > NUMBER",
        r"max(?:imum)? (?:allowed )?(?:prompt|input|model) length(?: is| of)? NUMBER",
        r"max_(?:seq_len|prompt_tokens|sequence_length)\W{1,3}NUMBER",
        r"max(?:imum)? number of tokens(?: allowed)?\s*\(?NUMBER",
        r"must be <= NUMBER",
        r"must have less than NUMBER tokens",
        r"tokens\b[^\n]{0,40} cannot exceed NUMBER",
        r"limit(?: is| of|:)?\s*NUMBER",  # in parentheses it may be the error's own number (MiniMax)
    )
)
_ROOM = re.compile(
    r"max_(?:completion_)?tokens\b"
    r"(?:.{0,40}\[\s*\d+\s*,\s*(\d{1,12})\s*\]"
    r"|(?: for \S{1,80})?\W{0,2} must be (?:less than or equal to|at most|<=) \W?(\d{1,12})"
    r"|.{0,100}expected a value <= (\d{1,12})"
    r"|: \d+ > (\d{1,12}))"
    r"|at most (\d{1,12}) completion tokens",
    re.IGNORECASE | re.ASCII,  # a name may stand between Chinese characters
)
_MIN_LIMIT = 16
"""A smaller number is no limit but something else."""


def is_overflow(status: int, code: str | None, text: str) -> bool:
    """Tell whether an answer with this HTTP status, error code and text says that the prompt was too long."""
    if code in _CODES or status == 413:
        return True
    # What says that an answer may not be so long may name the context window, too.
    return status in _STATUS and _ROOM.search(text) is None and _TEXT.search(text) is not None


def limit_in(text: str) -> int | None:
    """Return how many tokens the model reads, as an error text says, or None when it does not."""
    for pattern in _LIMITS:
        for match in pattern.finditer(text):
            tokens = int(match[1].replace(",", ""))
            if tokens >= _MIN_LIMIT:
                return tokens
    return None


def room_in(text: str) -> int | None:
    """Return how many tokens an answer may be given, as an error text says, or None when it does not."""
    match = _ROOM.search(text)
    return next(int(tokens) for tokens in match.groups() if tokens) if match else None
