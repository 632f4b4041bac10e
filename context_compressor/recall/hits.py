"""What a search of a history gives, and how a model reads it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from context_compressor.recall.escapes import readings
from context_compressor.recall.passages import MAX_PASSAGE_CHARACTERS
from context_compressor.recall.query import Query, read_query
from context_compressor.recall.terms import RUN, UNSPACED_RUN, TermReader, fold
from context_compressor.tokens.protocol import TokenCounter

_FIRST = re.compile(r"\[(?:in view|not stored|ctx://[0-9a-f]{16}(?: line \d+(?: column \d+)?)?), [^\n]*\]\n")
_LAST = re.compile(r"\n\[(?:end|\d+ more; ask more precisely)\]\Z")
_WIDTHS = (MAX_PASSAGE_CHARACTERS, 480, 320, 200, 140)
"""Characters of a passage to show, the most first; the least still shows a name with the words beside it."""
_LEAST_WIDTHS = (70, 35, 17)
"""Where not even one hit fits: characters that take two tokens each, or a page of 100 tokens."""
_LONG_CHARACTERS = 60
"""Of a longer run only the part that is asked for has to be shown, with so many characters."""
_CHARACTER = re.compile(
    ".[\u0300-\u036f\u1160-\u11ff\u3099\u309a\u314f-\u3163\uff9e\uff9f\uffc2-\uffdc]*", re.DOTALL
)
"""A character with the marks, or letters of a Korean syllable, that follow it and fold into one with it."""


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


class Place(NamedTuple):
    """Where a term of a query stands in a text: characters, the end not included."""

    start: int
    end: int
    term: int
    """Its number in the query."""


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
    texts = [hit.text.strip() for hit in hits]
    places = [find_places(text, sought, reader) for text in texts]
    weights = _weights(sought, places)

    @cache
    def shown(width: int) -> list[str]:
        return [
            f"[{_title(hit)}]\n{excerpt(text, found, width, weights)}"
            for hit, text, found in zip(hits, texts, places, strict=True)
        ]

    page = ""
    for count, width in _attempts(len(hits)):
        closing = "end" if count == len(hits) else f"{len(hits) - count} more; ask more precisely"
        page = "\n".join([*shown(width)[:count], f"[{closing}]"])
        if counter.count_text(page) <= max_tokens:
            break
    return page


def _attempts(hits: int) -> Iterator[tuple[int, int]]:
    """Yield how many hits to show, and how many characters of each, the most first."""
    yield from ((hits, width) for width in _WIDTHS)
    yield from ((count, _WIDTHS[-1]) for count in range(hits - 1, 0, -1))
    yield from ((1, width) for width in _LEAST_WIDTHS)


def is_hits_page(text: str) -> bool:
    """Tell whether a text has the form of `hits_page`; what it says is not looked at."""
    return _FIRST.match(text) is not None and _LAST.search(text) is not None


def _title(hit: Hit) -> str:
    what = f"result of {hit.tool}" if hit.role == "tool" else hit.role
    if hit.role == "assistant" and hit.tool:
        what = f"call of {hit.tool}"
    where = "in view" if hit.in_view else hit.ref or "not stored"
    if hit.lines and not hit.in_view:
        where += f" line {hit.lines[0]}"
        if hit.column > MAX_PASSAGE_CHARACTERS:  # else a page that begins with the line shows it
            where += f" column {hit.column}"
    ago = "now" if hit.messages_ago == 0 else f"{hit.messages_ago} messages ago"
    return f"{where}, {what}, {ago}"


def _weights(query: Query, places: Sequence[Sequence[Place]]) -> list[float]:
    """Return what each term of a query is worth showing: more than all words a name, more the rarer it is."""
    held = Counter(term for found in places for term in {place.term for place in found})
    return [
        1 / max(held[number], 1) + (len(query.terms) if term.name is not None else 0)
        for number, term in enumerate(query.terms)
    ]


def find_places(text: str, query: Query, reader: TermReader) -> list[Place]:
    """Return where terms of a query stand in a text, in order."""
    found: set[Place] = set()
    for said, origins in readings(text):
        for place in (*_runs_with(said, query, reader), *_unspaced_with(said, query)):
            found.add(Place(origins[place.start], origins[place.end], place.term))
    return sorted(found)


def _runs_with(text: str, query: Query, reader: TermReader) -> Iterator[Place]:
    numbers = {term: number for number, sought in enumerate(query.terms) for term in sought.terms}
    beginnings = [(number, sought.beginning) for number, sought in enumerate(query.terms) if sought.beginning]
    for match in RUN.finditer(text):
        run, (start, end) = match[0], match.span()
        if UNSPACED_RUN.match(run):
            continue
        words, wholes = reader[run]
        held = {numbers[term] for term in (*words, *wholes) if term in numbers}
        held.update(number for number, one in beginnings if any(word.startswith(one) for word in words))
        for number in held:
            sought = query.terms[number]
            # Of a long path the part that is asked for; a name that is written otherwise begins with its run.
            at = fold(run).find(sought.name or sought.terms[0]) if len(run) > _LONG_CHARACTERS else -1
            place = (start, end) if at < 0 else (start + at, start + at + _LONG_CHARACTERS)
            yield Place(place[0], min(place[1], end), number)


def _unspaced_with(text: str, query: Query) -> Iterator[Place]:
    unspaced = [(number, sought.characters) for number, sought in enumerate(query.terms) if sought.characters]
    if not unspaced:
        return
    folded, origins = _fold_each(text)
    for number, characters in unspaced:
        at = folded.find(characters)
        while at >= 0:
            yield Place(origins[at], origins[at + len(characters)], number)
            at = folded.find(characters, at + 1)


def _fold_each(text: str) -> tuple[str, list[int]]:
    """Return a text folded character by character, and where each of these and the end come from."""
    matches = list(_CHARACTER.finditer(text))
    folded = [fold(match[0]) for match in matches]
    origins = [match.start() for match, characters in zip(matches, folded, strict=True) for _ in characters]
    return "".join(folded), [*origins, len(text)]


def excerpt(text: str, places: Sequence[Place], width: int, weights: Sequence[float] = ()) -> str:
    """Return the part of a text that holds most of what is sought, cut between words where it has some.

    Args:
        text: a passage, without white space at its ends.
        places: where in it what is sought stands, in order.
        width: characters to show at most, two ellipses apart.
        weights: what each term of the query is worth; by default all the same.
    """
    if len(text) <= width:
        return text
    first, last = _densest(places, width, weights)
    # What is looked for stands in the middle.
    begin = min(max(0, first - max(0, width - (last - first)) // 2), len(text) - width)
    if begin:
        space = text.find(" ", begin, min(begin + 20, first)) + 1
        begin = space or begin
    end = min(len(text), begin + width)
    if end < len(text):
        space = text.rfind(" ", max(last, end - 20), end)
        end = space if space > begin else end
    shown = text[begin:end].strip()
    return ("… " if begin else "") + shown + (" …" if end < len(text) else "")


def _densest(places: Sequence[Place], width: int, weights: Sequence[float]) -> tuple[int, int]:
    """Return the shortest stretch with most of a query, within `width` characters; the beginning if none."""
    best, found = (0.0, 0), (0, 0)
    counts: Counter[int] = Counter()
    left = 0
    for index, last in enumerate(places):
        counts[last.term] += 1
        while left < index and (places[left].start + width < last.end or counts[places[left].term] > 1):
            term = places[left].term
            counts[term] -= 1
            if not counts[term]:
                del counts[term]
            left += 1
        held = sum(weights[term] if weights else 1.0 for term in sorted(counts))
        worth = held, places[left].start - last.end
        if worth > best:
            best, found = worth, (places[left].start, last.end)
    return found
