"""Where a text says what is sought, and the part of it to show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from context_compressor.messages.text import line_at
from context_compressor.search.query import Place, Query, find_places, read_query
from context_compressor.search.terms import TermReader, fold

_LEAST_COMMON = 3
"""Texts that hold a line before it counts as common: an answer may well be said twice."""


def cutter(query: str, texts: Sequence[str]) -> Callable[[int], list[str]]:
    """Return a function that cuts texts to excerpts of at most so many characters, as they answer a query.

    `texts`: passages, without white space at their ends. A name is shown before words, and a term that few of
    the texts hold before one that many do. A line that most of the texts hold is shown where nothing else
    answers.
    """
    reader = TermReader()
    sought = read_query(query, reader)
    places = [_as_written(text, sought, find_places(text, sought, reader)) for text in texts]
    lines = Counter(line for text in texts for line in {part.strip() for part in text.split("\n")})
    common = {line for line, count in lines.items() if count >= _LEAST_COMMON and 2 * count > len(texts)}
    places = [
        [place for place in found if line_at(text, place.start).strip() not in common] or found
        for text, found in zip(texts, places, strict=True)
    ]
    held = Counter(term for found in places for term in {place.term for place in found})
    weights = [
        1 / max(held[number], 1) + (len(sought.terms) if term.name is not None else 0)
        for number, term in enumerate(sought.terms)
    ]
    return lambda width: [
        excerpt(text, found, width, weights) for text, found in zip(texts, places, strict=True)
    ]


def _as_written(text: str, query: Query, places: Sequence[Place]) -> list[Place]:
    """Return the places; where a name stands as asked for, without those where it is written otherwise."""
    names = {number: term.name for number, term in enumerate(query.terms) if term.name is not None}
    written = {
        place
        for place in places
        # What makes a name of a word, as in `--option`, stands before it.
        if place.term in names and names[place.term] in fold(text[max(place.start - 2, 0) : place.end])
    }
    literal = {place.term for place in written}
    return [place for place in places if place in written or place.term not in literal]


def excerpt(text: str, places: Sequence[Place], width: int, weights: Sequence[float]) -> str:
    """Return the part of a text that holds most of what is sought, cut between words where it has some.

    `places`: where in it what is sought stands, in order. `width`: characters to show at most, two ellipses
    apart.
    """
    if len(text) <= width:
        return text
    first, last = _whole_lines(text, *_densest(places, width, weights), width)
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


def _whole_lines(text: str, first: int, last: int, width: int) -> tuple[int, int]:
    """Return where the lines of a stretch begin and end, if they fit; only a long line is cut."""
    begin, end = text.rfind("\n", 0, first) + 1, text.find("\n", last)
    end = len(text) if end < 0 else end
    return (begin, end) if end - begin <= width else (first, last)


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
        held = sum(weights[term] for term in sorted(counts))
        worth = held, places[left].start - last.end
        if worth > best:
            best, found = worth, (places[left].start, last.end)
    return found
