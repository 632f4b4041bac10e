"""Which passages answer a query best: a first score from the index, a second from reading the best.

`CANDIDATES`, `SATURATION` and `LENGTH` were set by the questions of `benchmarks/search.py`; `USER_WEIGHT`,
`AROUND_WEIGHT` and `TOPIC_MESSAGES` by these and by questions written for recorded chats; the other numbers
were chosen.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product
from math import log

from context_compressor.messages.text import line_at
from context_compressor.search.hits import Document, Found, find_all, split_passages
from context_compressor.search.query import Query, find_places
from context_compressor.search.storage import Rows
from context_compressor.search.terms import TermReader, fold, readings

CANDIDATES = 80
"""Passages that are read, which takes some 8 ms; 120 answered no more questions of `benchmarks/search.py`."""

ROUNDS = 6
"""How often so many are read where those before hold too little of what is sought, as rows that share codes
or the parts of a name do not: some 50 ms. More are read only where these hold nothing of it at all."""

SATURATION, LENGTH = 0.2, 0.9
"""k1 and b of BM25 (S. Robertson, H. Zaragoza, "The Probabilistic Relevance Framework", 2009). A passage is
short: that a term comes again says less than in a document, and what a short message is about is plainer."""

FIRST_SATURATION, FIRST_LENGTH = 1.2, 0.4
"""The same before passages are read, when each term is known to be there, not how often."""

NEAR_CHARACTERS = 160
"""Two terms of a query that stand closer add up to the weight of the lesser: some two lines of text."""

NAME_WEIGHT = 0.5
"""What a name that stands there letter for letter adds, of the weight of its term."""

USER_WEIGHT = 1.4
"""What a user says tells about him; what an assistant says often repeats it, at length. But what only asks
tells nothing: it would stand before its answer."""

AROUND_WEIGHT = 1.0
"""What the messages around add to an answer in words, of the mean of their first scores. A name is found
where it stands."""

TOPIC_MESSAGES = 6
"""So many messages before one, or behind it, are on the same topic: some three exchanges."""

_QUESTIONS = re.compile(r"(?:(?:[^.!?。！？؟]|[.!](?=\S)|\?(?=[^\s?]))*+[?？؟]+\s*+)++")
"""Sentences that ask, and nothing else."""

_PLACES = 20
"""Places of one term in a passage that are compared with those of another."""

_ALONE, _IN_FULL = 3, 2
"""How closely a passage holds a name that stands there letter for letter: on its own, or as the beginning of
longer ones, as `/srv/app` does in `/srv/app/main.py`."""

_LEAST_SAID = 20
"""Characters; shorter lines are compared together with the lines around them."""
_TOOL_PLACE = -1_000
"""Where the name of a tool stands: near no word of the text."""


@dataclass(frozen=True)
class Lookup:
    """What the index alone tells about a query."""

    query: Query
    rows: Rows
    postings: Sequence[Collection[int]]
    """Of each term of the query, the rows that hold it."""

    @cached_property
    def weights(self) -> list[float]:
        """Of each term of the query, how rare it is: BM25's inverse document frequency.

        Of words the documents are topics, not passages: one that a topic comes back to tells more of what is
        asked for than one that stands now and then in any. A pair of characters is of many words.
        """
        found: Sequence[Collection[int]] = self.postings
        total = len(self.rows.sizes)
        if not self.query.has_names and all(term.characters is None for term in self.query.terms):
            places = self.rows.places
            found = [{places[row][0] // TOPIC_MESSAGES for row in rows if row in places} for rows in found]
            total = len(self.rows.history) // TOPIC_MESSAGES + 1
        return [log(1 + (total - len(one) + 0.5) / (len(one) + 0.5)) if one else 0.0 for one in found]

    @cached_property
    def scores(self) -> dict[int, float]:
        """Row -> score by the terms that it holds."""
        sizes, scores = self.rows.sizes, dict[int, float]()
        flat = 1 + FIRST_SATURATION * (1 - FIRST_LENGTH)
        slope = FIRST_SATURATION * FIRST_LENGTH / self.rows.mean_size
        for weight, found in zip(self.weights, self.postings, strict=True):
            for row in found:
                if row in sizes:
                    scores[row] = scores.get(row, 0.0) + weight / (flat + slope * sizes[row])
        return scores

    def around(self, position: int) -> float:
        """Return the mean of the best first scores of the messages around one, nearer ones counting more."""
        first = max(position - TOPIC_MESSAGES, 0)
        end = min(position + TOPIC_MESSAGES + 1, len(self.rows.history))
        near = {other: 1 / abs(other - position) for other in range(first, end) if other != position}
        score = sum(weight * self._best.get(other, 0.0) for other, weight in near.items())
        return score / (sum(near.values()) or 1.0)

    @cached_property
    def _best(self) -> dict[int, float]:
        """Position of a message in the history -> score of its best row."""
        best: dict[int, float] = {}
        for row, score in self.scores.items():
            position = self.rows.places[row][0]
            if score > best.get(position, 0.0):
                best[position] = score
        return best

    def candidates(self) -> list[int]:
        """Return the rows that may answer, best first; for a name alone those that may hold it, last first.

        Before those that hold all its parts come those that hold it as such.
        """
        scores, places = self.scores, self.rows.places
        whole, *parts = (set(found) & self.rows.sizes.keys() for found in self.postings)
        if self.query.bare_name and (named := whole | set.intersection(*parts or [whole])):
            return sorted(named, key=lambda row: (row in whole, places[row]), reverse=True)
        return sorted(scores, key=lambda row: (scores[row], places[row]), reverse=True)


class _Reading:
    """A candidate that has been read."""

    def __init__(self, lookup: Lookup, row: int, found: Found, reader: TermReader) -> None:
        self.found = found
        self._lookup, self._row = lookup, row
        self._folded = "\n".join(fold(text) for text, _ in readings(found.text))
        self._places = self._find_places(reader)
        self.closeness = self._closeness()
        self.score = self._score()

    @property
    def is_given(self) -> bool:
        """Whether the agent was given it, and did not say it itself."""
        return self.found.document.role != "assistant"

    @property
    def standing(self) -> tuple[int, int, float, tuple[int, int]]:
        """What puts it before others, the most telling first; more is better."""
        lookup = self._lookup
        place = lookup.rows.places[self._row]
        around = 0.0 if lookup.query.has_names else AROUND_WEIGHT * lookup.around(place[0])
        # Of those that hold the name asked for the position in the history tells first.
        latest = place[0] if self.closeness >= _IN_FULL else 0
        return self.closeness, latest, round(self.score + around, 6), place

    @property
    def answer(self) -> str:
        """The lines that hold what is searched for, without the lines around them."""
        text = self.found.text
        starts = sorted({at for places in self._places for at in places if at >= 0})
        lines = dict.fromkeys(line_at(text, at) for at in starts)
        said = " ".join(" ".join(lines).split())
        return said if len(said) >= _LEAST_SAID else text

    def _find_places(self, reader: TermReader) -> list[list[int]]:
        """Return where each term of the query begins, in order."""
        terms, tool = self._lookup.query.terms, self.found.document.tool
        found: list[list[int]] = [[] for _ in terms]
        for place in find_places(self.found.text, self._lookup.query, reader, by_run=True):
            if place.start not in found[place.term][-1:]:
                found[place.term].append(place.start)
        named = reader.terms(tool) if tool else set()
        for term, places in zip(terms, found, strict=True):
            places += [_TOOL_PLACE for one in term.terms if one in named and term.characters is None]
        return found

    def _score(self) -> float:
        """Return BM25 times the share of the query that is there, and what names and nearness add."""
        query, weights, rows = self._lookup.query, self._lookup.weights, self._lookup.rows
        size = rows.sizes[self._row] / rows.mean_size
        damping = SATURATION * (1 - LENGTH + LENGTH * size)
        score = covered = 0.0
        for weight, places in zip(weights, self._places, strict=True):
            if places:
                score += weight * len(places) * (SATURATION + 1) / (len(places) + damping)
                covered += weight
        score *= covered / (sum(weights) or 1.0)
        for weight, term in zip(weights, query.terms, strict=True):
            if term.name is not None and any(ends_of(term.name, self._folded)):
                score += NAME_WEIGHT * weight
        present = [index for index, places in enumerate(self._places) if places]
        for one, other in pairwise(present):
            # The parts of a name always stand together; that two pairs of characters do is a longer word.
            if query.terms[one].run != query.terms[other].run or query.terms[one].characters is not None:
                pairs = product(self._places[one][:_PLACES], self._places[other][:_PLACES])
                nearness = 1 - min(abs(here - there) for here, there in pairs) / NEAR_CHARACTERS
                score += max(nearness, 0.0) * min(weights[one], weights[other])
        is_told = self.found.document.role == "user" and not query.has_names
        return score * USER_WEIGHT if is_told and not _QUESTIONS.fullmatch(self.found.text) else score

    def _closeness(self) -> int:
        """Tell how closely it holds the name asked for: in full, within a longer word, otherwise written."""
        name = self._lookup.query.bare_name
        if name is None:
            return 0
        ends = list(ends_of(name, self._folded))
        if ends:
            return _IN_FULL if all(_goes_on(name, self._folded, end) for end in ends) else _ALONE
        return int(name in self._folded or bool(self._places[0]))


def rank(
    lookup: Lookup,
    read: Callable[[Sequence[int]], Mapping[str, Sequence[Document]]],
    reader: TermReader,
    limit: int,
    among: Container[str] | None,
    role: str | None,
    last: Callable[[Document], bool],
) -> list[Found]:
    """Return the best passages: the best one of each text, what other passages of these texts there are, and
    last those that say the same as one before them, and those of texts that are to come last.

    Of passages that answer equally the latest is first, as what was said last is true. When nothing but a
    name is asked for, the latest is first where it stands on its own, then the latest where longer ones begin
    with it. Behind the first of all, what the agent was given comes before what it said itself: the source
    says more of a name than its mentions.
    """
    name = lookup.query.bare_name
    ordered: list[_Reading] = []
    candidates, rows_of = lookup.candidates(), lookup.rows
    if among is not None:
        candidates = [row for row in candidates if rows_of.history[rows_of.places[row][0]][0] in among]
    for start in range(0, len(candidates), CANDIDATES):
        if ordered and start >= ROUNDS * CANDIDATES:
            break
        rows = candidates[start : start + CANDIDATES]
        # What scores nothing has a code of what is sought, but nothing more.
        found = _read(lookup, rows, read(rows), reader)
        ordered += [
            one for one in found if one.score > 0 and (role is None or one.found.document.role == role)
        ]
        if name is None:
            is_enough = len(ordered) >= limit
        else:
            is_enough = any(one.closeness >= _IN_FULL for one in ordered)
        if is_enough:
            break
    ordered.sort(key=lambda one: one.standing, reverse=True)
    if name is not None:
        ordered[1:] = sorted(ordered[1:], key=lambda one: (one.closeness, one.is_given), reverse=True)
    return _spread(ordered, last)[:limit]


def _spread(ordered: Sequence[_Reading], last: Callable[[Document], bool]) -> list[Found]:
    """Return the first passage of each text, then their other passages, then those whose answering line
    stands in an earlier passage, and those of texts that come last.
    """
    seen: set[tuple[str, int]] = set()
    said: set[str] = set()
    firsts: list[Found] = []
    others: list[Found] = []
    repeats: list[Found] = []
    behind: list[Found] = []
    for one in ordered:
        found, answer = one.found, one.answer
        text = found.document.key, found.document.part
        if last(found.document):
            behind.append(found)
            continue
        (repeats if answer in said else others if text in seen else firsts).append(found)
        seen.add(text)
        said.add(answer)
    return firsts + others + repeats + behind


def ends_of(name: str, text: str) -> Iterator[int]:
    """Yield where a name ends that stands in a text, and not within a longer word; both are folded."""
    for at in find_all(name, text):
        end = at + len(name)
        if not (at and _is_inner(text[at - 1])) and not (end < len(text) and _is_inner(text[end])):
            yield end


def _goes_on(name: str, text: str, end: int) -> bool:
    """Tell whether a name that ends there begins a longer one of its kind, as `a.b` begins `a.b.c`."""
    joint, beginning = text[end : end + 1], text[end + 1 : end + 2]
    return _is_inner(beginning) and joint in f"{name}/\\"


def _is_inner(character: str) -> bool:
    return character == "_" or character.isalnum()


def _read(
    lookup: Lookup, candidates: Sequence[int], documents: Mapping[str, Sequence[Document]], reader: TermReader
) -> Iterator[_Reading]:
    passages: dict[str, list[Found]] = {}
    for row in candidates:
        position, number = lookup.rows.places[row]
        key = lookup.rows.history[position][0]
        if key not in passages:
            passages[key] = [
                Found(one, *place) for one in documents.get(key, ()) for place in split_passages(one.text)
            ]
        if number < len(passages[key]):  # a text read back may be shorter than its digest says
            yield _Reading(lookup, row, passages[key][number], reader)
