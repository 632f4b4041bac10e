"""Which passages answer a query best: a first score from the index, a second from reading the best.

`CANDIDATES`, `SATURATION` and `LENGTH` were set by the questions of `benchmarks/search.py`; `USER_WEIGHT`,
`AROUND_WEIGHT` and `TOPIC_MESSAGES` by these and by questions written for recorded chats; the other numbers
were chosen.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from itertools import pairwise, product
from math import log
from typing import NamedTuple
from zlib import crc32

from context_compressor.search.passages import Document, find_all, split_passages
from context_compressor.search.query import Query
from context_compressor.search.terms import RUN, TermReader, fold, readings

Entry = tuple[str, str]
"""A message of a history: its key, and a digest that changes whenever its texts do."""

KEY_BYTES = 8


def stamp_of(entry: Entry) -> bytes:
    """Return 16 bytes that stand for a message in the index: 8 for its key, 8 for its digest."""
    key, digest = entry
    return key_stamp(key) + key_stamp(digest)


def key_stamp(text: str) -> bytes:
    """Return the 8 bytes that stand for a key, or a digest."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=KEY_BYTES).digest()


@dataclass(frozen=True)
class Record:
    """What the index holds of a message, which has the row `first` and, a row a passage, those after it."""

    first: int
    stamp: bytes
    sizes: bytes
    """Of each passage, how many terms it has; 255 for more."""

    @property
    def end(self) -> int:
        """The row after the last; a message without passages has one row to itself."""
        return self.first + max(len(self.sizes), 1)

    @cached_property
    def checksum(self) -> int:
        """A checksum of all that it says."""
        return crc32(self.stamp + self.sizes, self.first & 0xFFFFFFFF)


@dataclass(slots=True)
class Rows:
    """The messages of a history in its order, and the row of each passage."""

    history: list[Entry] = field(default_factory=list)
    records: dict[bytes, Record] = field(default_factory=dict)
    """Stamp -> record."""
    places: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Row -> position of its message in the history, number of the passage within the message."""
    sizes: dict[int, int] = field(default_factory=dict)
    """Row -> how many terms its passage has."""
    total_size: int = 0
    end: int = 1
    """The row after the last."""
    is_complete: bool = True
    """Whether each message has a record; texts of some may not have been there to read."""

    @property
    def mean_size(self) -> float:
        """How many terms a passage has in the mean, at least 1."""
        return max(self.total_size / max(len(self.sizes), 1), 1.0)

    @classmethod
    def of(cls, history: Sequence[Entry], records: Mapping[bytes, Record]) -> Rows:
        """Return the rows of a history, of those messages that have a record."""
        rows = cls()
        for entry in history:
            rows.append(entry, records.get(stamp_of(entry)))
        return rows

    def append(self, entry: Entry, record: Record | None) -> None:
        """Take up a message after all others."""
        position = len(self.history)
        self.history.append(entry)
        if record is None:
            self.is_complete = False
            return
        self.records[record.stamp] = record
        for number, size in enumerate(record.sizes):
            self.places[record.first + number] = position, number
            self.sizes[record.first + number] = size
        self.total_size += sum(record.sizes)
        self.end = max(self.end, record.end)


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

_TOOL_PLACE = -1_000
"""Where the name of a tool stands: near no word of the text."""


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


class _Ranked(NamedTuple):
    """A passage, and what puts it before others, the most telling first; more is better."""

    closeness: int
    latest: int
    """Position in the history, where only that tells apart passages that hold the name asked for."""
    score: float
    place: tuple[int, int]
    """Position of its message, and number of the passage within it."""
    found: Found

    @property
    def is_given(self) -> bool:
        """Whether the agent was given it, and did not say it itself."""
        return self.found.document.role != "assistant"


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
    """A candidate that has been read: where in it the terms of the query stand."""

    def __init__(
        self, lookup: Lookup, row: int, found: tuple[Document, int, int], reader: TermReader
    ) -> None:
        self.row = row
        self.document, self.start, self.end = found
        self.places: list[list[int]] = [[] for _ in lookup.query.terms]
        folded: list[str] = []
        for text, origins in readings(self.document.text[self.start : self.end]):
            folded.append(fold(text))
            found_at = _places_in(text, folded[-1], lookup.query, reader)
            for places, more in zip(self.places, found_at, strict=True):
                if not places:  # what stands there as it is counts once
                    places += [origins[min(at, len(text))] for at in more]  # folded, a text may be longer
        self.folded = "\n".join(folded)
        tool = reader.terms(self.document.tool) if self.document.tool else set()
        for term, places in zip(lookup.query.terms, self.places, strict=True):
            places += [_TOOL_PLACE for one in term.terms if one in tool and term.characters is None]

    def score(self, lookup: Lookup) -> float:
        """Return BM25 times the share of the query that is there, and what names and nearness add."""
        weights, terms = lookup.weights, lookup.query.terms
        size = lookup.rows.sizes[self.row] / lookup.rows.mean_size
        damping = SATURATION * (1 - LENGTH + LENGTH * size)
        score = covered = 0.0
        for weight, places in zip(weights, self.places, strict=True):
            if places:
                score += weight * len(places) * (SATURATION + 1) / (len(places) + damping)
                covered += weight
        score *= covered / (sum(weights) or 1.0)
        for index, term in enumerate(terms):
            if term.name is not None and any(ends_of(term.name, self.folded)):
                score += NAME_WEIGHT * weights[index]
        present = [index for index, places in enumerate(self.places) if places]
        for one, other in pairwise(present):
            # The parts of a name always stand together; that two pairs of characters do is a longer word.
            if terms[one].run != terms[other].run or terms[one].characters is not None:
                pairs = product(self.places[one][:_PLACES], self.places[other][:_PLACES])
                nearness = 1 - min(abs(here - there) for here, there in pairs) / NEAR_CHARACTERS
                score += max(nearness, 0.0) * min(weights[one], weights[other])
        is_told = self.document.role == "user" and not lookup.query.has_names
        if is_told and not _QUESTIONS.fullmatch(self.document.text, self.start, self.end):
            score *= USER_WEIGHT
        return score

    def closeness(self, name: str) -> int:
        """Tell how closely it holds the name asked for: in full, within a longer word, otherwise written."""
        ends = list(ends_of(name, self.folded))
        if ends:
            return _IN_FULL if all(_goes_on(name, self.folded, end) for end in ends) else _ALONE
        return int(name in self.folded or bool(self.places[0]))


def rank(
    lookup: Lookup,
    read: Callable[[Sequence[int]], Mapping[str, Sequence[Document]]],
    reader: TermReader,
    limit: int,
) -> list[Found]:
    """Return the best passages: the best one of each text, what other passages of these texts there are, and
    last those that say the same as one before them.

    Of passages that answer equally the latest is first, as what was said last is true. When nothing but a
    name is asked for, the latest is first where it stands on its own, then the latest where longer ones begin
    with it. Behind the first of all, what the agent was given comes before what it said itself: the source
    says more of a name than its mentions.
    """
    name, places = lookup.query.bare_name, lookup.rows.places
    ordered: list[_Ranked] = []
    candidates = lookup.candidates()
    for start in range(0, len(candidates), CANDIDATES):
        if ordered and start >= ROUNDS * CANDIDATES:
            break
        rows = candidates[start : start + CANDIDATES]
        for reading in _read(lookup, rows, read(rows), reader):
            score = reading.score(lookup)
            if score <= 0:
                continue  # it has a code of what is sought, but nothing more
            place = places[reading.row]
            if not lookup.query.has_names:
                score += AROUND_WEIGHT * lookup.around(place[0])
            closeness = 0 if name is None else reading.closeness(name)
            latest = place[0] if closeness >= _IN_FULL else 0
            found = Found(reading.document, reading.start, reading.end)
            ordered.append(_Ranked(closeness, latest, round(score, 6), place, found))
        if name is None:
            is_enough = len(ordered) >= limit
        else:
            is_enough = any(one.closeness >= _IN_FULL for one in ordered)
        if is_enough:
            break
    ordered.sort(key=lambda one: one[:-1], reverse=True)
    if name is not None:
        ordered[1:] = sorted(ordered[1:], key=lambda one: (one.closeness, one.is_given), reverse=True)
    return _spread([one.found for one in ordered])[:limit]


def _spread(ordered: Sequence[Found]) -> list[Found]:
    """Return the first passage of each text, then their others, last those that say what one before says."""
    seen: set[tuple[str, int]] = set()
    said: set[str] = set()
    firsts: list[Found] = []
    others: list[Found] = []
    repeats: list[Found] = []
    for found in ordered:
        text = found.document.key, found.document.part
        (repeats if found.text in said else others if text in seen else firsts).append(found)
        seen.add(text)
        said.add(found.text)
    return firsts + others + repeats


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
    passages: dict[str, list[tuple[Document, int, int]]] = {}
    for row in candidates:
        position, number = lookup.rows.places[row]
        key = lookup.rows.history[position][0]
        if key not in passages:
            passages[key] = [
                (one, *place) for one in documents.get(key, ()) for place in split_passages(one.text)
            ]
        if number < len(passages[key]):  # a text read back may be shorter than its digest says
            yield _Reading(lookup, row, passages[key][number], reader)


def _places_in(text: str, folded: str, query: Query, reader: TermReader) -> list[list[int]]:
    """Return where in a text each term of a query stands."""
    found: list[list[int]] = [[] for _ in query.terms]
    wanted: dict[str, list[list[int]]] = {}
    for term, places in zip(query.terms, found, strict=True):
        if term.characters is not None:
            places += find_all(term.characters, folded)
        else:
            for one in term.terms:
                wanted.setdefault(one, []).append(places)
    if not wanted:
        return found
    beginnings = [
        (term.beginning, places)
        for term, places in zip(query.terms, found, strict=True)
        if term.beginning is not None
    ]
    for match in RUN.finditer(text):
        at, (words, wholes) = match.start(), reader[match[0]]
        for one in words + wholes:
            if one in wanted:
                for places in wanted[one]:
                    places.append(at)
            for beginning, places in beginnings:
                if one.startswith(beginning) and one not in wanted:
                    places.append(at)
    return found
