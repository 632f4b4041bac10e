"""Patterns from outside: compiled so that they do no harm, and find what JSON wrote as escapes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import regex

MAX_PATTERN_CHARACTERS = 1000
MAX_REPEATS = 100_000
"""Product of the `{n}` in a pattern. `regex` unrolls nested ones when it compiles, which no timeout stops:
`((x{500}){500}){500}` takes gigabytes, 100,000 takes 0.1 s."""

_REPEAT = re.compile(r"\{\s*(\d+)")
_RECURSION = re.compile(r"\(\?(?:R|&|P>|[+-]?\d)")
_BEYOND_ASCII = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\(\?P?<\w+>|([^\x00-\x7f])", re.DOTALL)
"""A character that JSON may have written as an escape, outside of sets and of names of groups."""


class PatternError(ValueError):
    """Report a pattern that cannot be used; the text is an answer for the model."""


def compile_pattern(pattern: str, ignore_case: bool) -> regex.Pattern[str]:
    """Compile a pattern from outside; `^` and `$` match at every line.

    Raises:
        PatternError: it is invalid, too long, recursive, or its repeats multiply beyond `MAX_REPEATS`.
    """
    import regex  # which only a search loads

    if len(pattern) > MAX_PATTERN_CHARACTERS:
        raise PatternError(
            f"The pattern has {len(pattern)} characters; use at most {MAX_PATTERN_CHARACTERS}."
        )
    repeats = 1
    for match in _REPEAT.finditer(pattern):
        repeats *= max(int(match[1][:9]), 1)
        if repeats > MAX_REPEATS:
            raise PatternError(
                f"The counted repeats of this pattern multiply beyond {MAX_REPEATS}; lower them."
            )
    if _RECURSION.search(pattern):
        # Measured: such a pattern takes a gigabyte of memory per second before the timeout ends it.
        raise PatternError("Patterns that call themselves are not supported; write it without recursion.")
    try:
        return regex.compile(pattern, regex.MULTILINE | (regex.IGNORECASE if ignore_case else 0))
    except (regex.error, RecursionError, MemoryError, OverflowError, ValueError) as error:
        raise PatternError(
            f"Invalid pattern: {error}. "
            "Put a backslash before each of . * + ? ( ) [ ] { } | ^ $ \\ that is meant literally."
        ) from error


def with_escapes(pattern: regex.Pattern[str]) -> regex.Pattern[str]:
    """Return a pattern that finds characters beyond ASCII also where JSON wrote them as escapes."""
    import regex

    if pattern.pattern.isascii():
        return pattern
    try:
        return regex.compile(_BEYOND_ASCII.sub(_or_escaped, pattern.pattern), pattern.flags)
    except regex.error:
        return pattern


def _or_escaped(found: re.Match[str]) -> str:
    if not found[1]:
        return found[0]
    units = found[1].encode("utf-16-be", "surrogatepass").hex()
    escapes = "".join(rf"\\+u{units[start : start + 4]}" for start in range(0, len(units), 4))
    return f"(?:{found[1]}|(?i:{escapes}))"
