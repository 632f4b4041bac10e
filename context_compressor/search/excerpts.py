"""Where a text says what is sought, and the part of it to show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from context_compressor.search.query import Place, Query, find_places, read_query
from context_compressor.search.terms import TermReader, fold


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
