"""Texts of a history, and where each is cut into passages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

MAX_PASSAGE_CHARACTERS = 700
"""Some 170 tokens of English: an agent reads five passages for the price of one tool result."""

MIN_PASSAGE_CHARACTERS = 300
"""A passage ends at the last good place after so many characters."""

_SENTENCE_END = re.compile(r"[.!?;](?=\s)|[。！？；…]")


@dataclass(frozen=True, slots=True)
class Document:
    """One text of one message of a history."""

    key: str
    """Key of the message in the history; unique per message."""
    part: int
    """Number of the text within its message."""
    role: str
    """`user`, `assistant`, `system`, `tool` or another."""
    tool: str | None
    """Name of the tool that was called, or whose result this is."""
    text: str


def split_passages(text: str) -> list[tuple[int, int]]:
    """Return where the passages of a text begin and end, in characters; together they are the text.

    An empty text has none.

    A passage ends at the last empty line that leaves it long enough, else at the end of a line, of a
    sentence, of a word, of a name, else anywhere.
    """
    if not text:
        return []
    passages: list[tuple[int, int]] = []
    start = 0
    while len(text) - start > MAX_PASSAGE_CHARACTERS:
        end = _end(text, start + MIN_PASSAGE_CHARACTERS, start + MAX_PASSAGE_CHARACTERS)
        passages.append((start, end))
        start = end
    passages.append((start, len(text)))
    return passages


def find_all(sought: str, text: str) -> Iterator[int]:
    """Yield where something stands in a text, overlapping places too; nowhere where it is empty."""
    at = text.find(sought) if sought else -1
    while at >= 0:
        yield at
        at = text.find(sought, at + 1)


def _end(text: str, least: int, most: int) -> int:
    for mark in ("\n\n", "\n"):
        at = text.rfind(mark, least, most)
        if at >= 0:
            return at + len(mark)
    ends = [match.end() for match in _SENTENCE_END.finditer(text, least, most)]
    if ends:
        return ends[-1]
    at = text.rfind(" ", least, most)
    if at >= 0:
        return at + 1
    from context_compressor.search.terms import OUTSIDE  # which only a search loads

    # Data without spaces, such as compact JSON: a name that is cut in two is found by neither half.
    ends = [match.end() for match in OUTSIDE.finditer(text, least, most)]
    return ends[-1] if ends else most
