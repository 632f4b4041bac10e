"""What is searched, and what a search gives: texts and their passages, and how a model reads those found."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from context_compressor.messages.text import indent_lines
from context_compressor.offload.pages import ago_of
from context_compressor.tokens.counter import TokenCounter

MAX_PASSAGE_CHARACTERS = 700
"""Some 170 tokens of English: an agent reads five passages for the price of one tool result."""

MIN_PASSAGE_CHARACTERS = 300
"""A passage ends at the last good place after so many characters."""

_SENTENCE_END = re.compile(r"[.!?;](?=\s)|[。！？；…]")

_NOT_IN_TITLES = str.maketrans("[]", "()")
_TITLE_LIKE = re.compile(r"\[")
_WIDTHS = (MAX_PASSAGE_CHARACTERS, 480, 320, 200, 140)
"""Characters of a passage to show, the most first; the least still shows a name with the words beside it."""
_LEAST_WIDTHS = (70, 35, 17)
"""Where not even one hit fits: characters that take two tokens each, or a page of 100 tokens."""


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


class Lines(NamedTuple):
    """Where a stretch stands in a text, 1-based."""

    first: int
    last: int
    column: int
    """Of its first character, in the first line."""


def lines_of(text: str, start: int, end: int) -> Lines:
    """Return the lines of characters `start` to `end` of a text."""
    first = text.count("\n", 0, start) + 1
    last = first + text.count("\n", start, max(start, end - 1))
    return Lines(first, last, start - text.rfind("\n", 0, start))


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


@dataclass(frozen=True, slots=True)
class Found:
    """A passage that answers a query: characters `start` to `end` of a text of the history."""

    document: Document
    start: int
    end: int

    @property
    def text(self) -> str:
        """The passage."""
        return self.document.text[self.start : self.end]


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage of the history that answers a query."""

    text: str
    """The passage, some 300 to 700 characters, as it was said."""
    ref: str | None
    """The stored text that holds it; None where the message stands in the view as it is."""
    message_ids: tuple[str, ...]
    """The message that it comes from."""
    role: str
    """`user`, `assistant`, `system`, or `tool` for the result of a call."""
    tool: str | None
    """The tool that was called, or whose result this is."""
    lines: tuple[int, int] | None
    """First and last line in the text under `ref`, for `read_offloaded`; None where that cannot be told."""
    in_view: bool
    """Whether the view shows the passage."""
    messages_ago: int
    """How many messages came after it."""
    column: int = 1
    """Its first character in the first of `lines`, for `read_offloaded`: a line may be long."""

    @property
    def title(self) -> str:
        """What a page says above the passage: where it stands, who said it, and how long ago."""
        what = f"result of {self.tool}" if self.role == "tool" else self.role
        if self.role == "assistant" and self.tool:
            what = f"call of {self.tool}"
        where = "in view" if self.in_view else self.place
        ago = ago_of(self.messages_ago, self.messages_ago)
        return f"{where}, {' '.join(what.split()).translate(_NOT_IN_TITLES)}, {ago}"

    @property
    def place(self) -> str:
        """Where the passage can be read in the store."""
        place = self.ref or "not stored"
        if self.lines:
            place += f" line {self.lines[0]}"
            if self.column > MAX_PASSAGE_CHARACTERS:  # else a page that begins with the line shows it
                place += f" column {self.column}"
        return place


def hits_page(hits: Sequence[Hit], query: str, counter: TokenCounter, max_tokens: int) -> str:
    """Return hits as a page of at most `max_tokens` tokens: as many as fit, each as long as then fits.

    All of at most `max_tokens` are shown at the width at which that is so; else the first ones.
    """
    # The first search loads what it takes, which nothing else needs.
    from context_compressor.search.excerpts import cutter

    cut = cutter(query, [hit.text.strip() for hit in hits])

    @cache
    def shown(width: int) -> list[str]:
        # No line of a passage can pass for the title of another: a tool could speak as the user.
        texts = cut(width)
        return [
            f"[{hit.title}]\n{indent_lines(text, _TITLE_LIKE)}" for hit, text in zip(hits, texts, strict=True)
        ]

    page = ""
    for places, width in _attempts(hits):
        closing = "end" if len(places) == len(hits) else f"{len(hits) - len(places)} more; ask more precisely"
        page = "\n".join([*(shown(width)[place] for place in places), f"[{closing}]"])
        if counter.count_text(page) <= max_tokens:
            break
    return page


def _attempts(hits: Sequence[Hit]) -> Iterator[tuple[list[int], int]]:
    """Yield which hits to show, and how many characters of each, the most first.

    What the view shows gives way first: the model has it before its eyes.
    """
    places = list(range(len(hits)))
    yield from ((places, width) for width in _WIDTHS)
    for place in sorted(places[1:], key=lambda place: (hits[place].in_view, place), reverse=True):
        places = [other for other in places if other != place]
        yield places, _WIDTHS[-1]
    yield from ((places, width) for width in _LEAST_WIDTHS)
