"""Where a text says what is sought, and the part of it to show."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from context_compressor.search.passages import find_all
from context_compressor.search.query import Query, read_query
from context_compressor.search.terms import RUN, UNSPACED_RUN, TermReader, fold, readings

_LONG_CHARACTERS = 60
"""Of a longer run only the part that is asked for has to be shown, with so many characters."""
_CHARACTER = re.compile(
    ".[\u0300-\u036f\u1160-\u11ff\u3099\u309a\u314f-\u3163\uff9e\uff9f\uffc2-\uffdc]*", re.DOTALL
)
"""A character with the marks, or letters of a Korean syllable, that follow it and fold into one with it."""


class Place(NamedTuple):
    """Where a term of a query stands in a text: characters, the end not included."""

    start: int
    end: int
    term: int
    """Its number in the query."""


class Excerpts:
    """Show the parts of texts that answer a query, a term that few of them hold before one of many.

    Args:
        texts: passages, without white space at their ends.
    """

    def __init__(self, query: str, texts: Sequence[str]) -> None:
        self._texts = texts
        reader = TermReader()
        sought = read_query(query, reader)
        self._places = [_as_written(text, sought, find_places(text, sought, reader)) for text in texts]
        self._weights = _weights(sought, self._places)

    def shown(self, width: int) -> list[str]:
        """Return an excerpt of each text, of at most so many characters."""
        return [
            excerpt(text, found, width, self._weights)
            for text, found in zip(self._texts, self._places, strict=True)
        ]


def _weights(query: Query, places: Sequence[Sequence[Place]]) -> list[float]:
    """Return what each term of a query is worth showing: more than all words a name, more the rarer it is."""
    held = Counter(term for found in places for term in {place.term for place in found})
    return [
        1 / max(held[number], 1) + (len(query.terms) if term.name is not None else 0)
        for number, term in enumerate(query.terms)
    ]


def places_in(text: str, query: str) -> list[Place]:
    """Return where terms of what was asked stand in a text, in order."""
    reader = TermReader()
    return find_places(text, read_query(query, reader), reader)


def find_places(text: str, query: Query, reader: TermReader) -> list[Place]:
    """Return where terms of a query stand in a text, in order."""
    found: set[Place] = set()
    for said, origins in readings(text):
        for place in (*_runs_with(said, query, reader), *_unspaced_with(said, query)):
            found.add(Place(origins[place.start], origins[place.end], place.term))
    return sorted(found)


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


def _runs_with(text: str, query: Query, reader: TermReader) -> Iterator[Place]:
    numbers = {term: number for number, sought in enumerate(query.terms) for term in sought.terms}
    beginnings = [(number, sought.beginning) for number, sought in enumerate(query.terms) if sought.beginning]
    names = [(number, sought.name) for number, sought in enumerate(query.terms) if sought.name]
    for match in RUN.finditer(text):
        run, (start, end) = match[0], match.span()
        if UNSPACED_RUN.match(run):
            continue
        words, wholes = reader[run]
        held = {numbers[term] for term in (*words, *wholes) if term in numbers}
        held.update(number for number, one in beginnings if any(word.startswith(one) for word in words))
        folded = fold(run) if names or len(run) > _LONG_CHARACTERS else ""
        held.update(number for number, name in names if name in folded)
        for number in held:
            sought = query.terms[number]
            # Of a long path the part that is asked for; a name that is written otherwise begins with its run.
            at = folded.find(sought.name or sought.terms[0]) if len(run) > _LONG_CHARACTERS else -1
            place = (start, end) if at < 0 else (start + at, start + at + _LONG_CHARACTERS)
            yield Place(place[0], min(place[1], end), number)


def _unspaced_with(text: str, query: Query) -> Iterator[Place]:
    unspaced = [(number, sought.characters) for number, sought in enumerate(query.terms) if sought.characters]
    if not unspaced:
        return
    folded, origins = _fold_each(text)
    for number, characters in unspaced:
        for at in find_all(characters, folded):
            yield Place(origins[at], origins[at + len(characters)], number)


def _fold_each(text: str) -> tuple[str, list[int]]:
    """Return a text folded character by character, and where each of these and the end come from."""
    matches = list(_CHARACTER.finditer(text))
    folded = [fold(match[0]) for match in matches]
    origins = [match.start() for match, characters in zip(matches, folded, strict=True) for _ in characters]
    return "".join(folded), [*origins, len(text)]


def excerpt(text: str, places: Sequence[Place], width: int, weights: Sequence[float]) -> str:
    """Return the part of a text that holds most of what is sought, cut between words where it has some.

    `places`: where in it what is sought stands, in order. `width`: characters to show at most, two ellipses
    apart.
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
        held = sum(weights[term] for term in sorted(counts))
        worth = held, places[left].start - last.end
        if worth > best:
            best, found = worth, (places[left].start, last.end)
    return found
