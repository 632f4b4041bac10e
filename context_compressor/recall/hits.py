"""What a search of a history gives, and how a model reads it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from context_compressor.recall.query import Query, read_query
from context_compressor.recall.terms import RUN, UNSPACED_RUN, TermReader
from context_compressor.tokens.protocol import TokenCounter

_FIRST = re.compile(r"\[(?:in view|not stored|ctx://[0-9a-f]{16}(?: line \d+)?), [^\n]*\]\n")
_LAST = re.compile(r"\n\[(?:end|\d+ more; ask more precisely)\]\Z")
_WIDTHS = (480, 320, 200, 140)
"""Characters of a passage to show, the most first; the least still shows a name with the words beside it."""


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


class Place(NamedTuple):
    """Where a term of a query stands in a text: characters, the end not included."""

    start: int
    end: int
    term: str


def hits_page(hits: Sequence[Hit], query: str, counter: TokenCounter, max_tokens: int) -> str:
    """Return hits as a page of at most `max_tokens` tokens: as many as fit, each as long as then fits.

    All of at most `max_tokens` are shown at the width at which that is so; else the first ones.

    Args:
        hits: what was found, best first; at least one.
        query: what was asked: passages are cut around what answers it.
        counter: what the page is counted by.
        max_tokens: what it may cost.
    """
    reader = TermReader()
    sought = read_query(query, reader)
    places = [find_places(hit.text, sought, reader) for hit in hits]
    page = ""
    for width in _WIDTHS:
        page = _page(hits, len(hits), places, width)
        if counter.count_text(page) <= max_tokens:
            return page
    for count in range(len(hits) - 1, 0, -1):
        page = _page(hits, count, places, _WIDTHS[-1])
        if counter.count_text(page) <= max_tokens:
            break
    return page


def is_hits_page(text: str) -> bool:
    """Tell whether a text has the form of `hits_page`; what it says is not looked at."""
    return _FIRST.match(text) is not None and _LAST.search(text) is not None


def _page(hits: Sequence[Hit], count: int, places: Sequence[Sequence[Place]], width: int) -> str:
    shown = [
        f"[{_title(hit)}]\n{excerpt(hit.text, found, width)}"
        for hit, found in zip(hits[:count], places, strict=False)
    ]
    closing = "end" if count == len(hits) else f"{len(hits) - count} more; ask more precisely"
    return "\n".join([*shown, f"[{closing}]"])


def _title(hit: Hit) -> str:
    what = f"result of {hit.tool}" if hit.role == "tool" else hit.role
    if hit.role == "assistant" and hit.tool:
        what = f"call of {hit.tool}"
    where = "in view" if hit.in_view else hit.ref or "not stored"
    if hit.lines and not hit.in_view:
        where += f" line {hit.lines[0]}"
    ago = "now" if hit.messages_ago == 0 else f"{hit.messages_ago} messages ago"
    return f"{where}, {what}, {ago}"


def find_places(text: str, query: Query, reader: TermReader) -> list[Place]:
    """Return where terms of a query stand in a text, in order."""
    wanted = {term for sought in query.terms for term in sought.terms}
    beginnings = tuple(term for sought in query.terms if sought.is_beginning for term in sought.terms)
    found: list[Place] = []
    for match in RUN.finditer(text):
        words, wholes = reader[match[0]]
        start, end = match.span()
        if UNSPACED_RUN.match(match[0]):
            # A term of such a run is a pair of characters, or its last one.
            for at, word in enumerate(words, start):
                if word in wanted or (beginnings and word.startswith(beginnings)):
                    found.append(Place(at, min(at + 2, end), word))
        else:
            found += [Place(start, end, word) for word in (*words, *wholes) if word in wanted]
    return found


def excerpt(text: str, places: Sequence[Place], width: int) -> str:
    """Return the part of a text that holds most of what is sought, cut between words where it has some.

    Args:
        text: a passage.
        places: where in it what is sought stands, in order.
        width: characters to show at most, two ellipses apart.
    """
    if len(text.strip()) <= width:
        return text.strip()
    start, end = _densest(places, width)
    # What is looked for stands in the middle.
    begin = max(0, start - max(0, width - (end - start)) // 2)
    begin = min(begin, len(text) - width)
    if begin:
        begin = text.find(" ", begin, begin + 20) + 1 or begin
    end = min(len(text), begin + width)
    if end < len(text):
        space = text.rfind(" ", max(begin, end - 20), end)
        end = space if space > begin else end
    shown = text[begin:end].strip()
    return ("… " if begin else "") + shown + (" …" if end < len(text) else "")


def _densest(places: Sequence[Place], width: int) -> tuple[int, int]:
    """Return the shortest stretch with the most terms, within `width` characters; the beginning if none."""
    best, found = (0, 0), (0, 0)
    for index, first in enumerate(places):
        terms: set[str] = set()
        for place in places[index:]:
            if terms and place.end > first.start + width:
                break
            if place.term not in terms:
                terms.add(place.term)
                worth = len(terms), first.start - place.end
                if worth > best:
                    best, found = worth, (first.start, place.end)
    return found
