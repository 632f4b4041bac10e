"""Which candidates the room is given to. Pure."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, groupby
from math import log
from typing import Literal, NamedTuple

from pydantic import InstanceOf

from context_compressor.summarizers.rules.pieces import values_of, words_of

Heading = Literal["goal", "instructions", "facts", "decisions", "done", "failures", "state"]

MOST_TOKENS = 2_000
"""What the ledger keeps of one part."""
USER_SHARE = 0.4
"""Share of the room that users' words may fill; what they leave is for the others."""
CHAT_USER_SHARE = 0.8
"""The same where nothing is called: what an agent says of itself it can say again."""
_LINE_TOKENS = 12
"""What a line costs beside its pieces and what it is about: how it begins, and the gap before it."""
_AGAIN = 0.1
"""What a word is worth that is told already."""
_UNSAID = 0.1
"""What a word is worth that a tool printed and nobody said."""
_UNIT = 2.0**-120
"""The worth of words is summed in it: so small that their weights are whole numbers of it."""
_SUPERSEDED = 0.5
LEAST = 0.002
"""What is worth less, as what is said or pasted again and again, leaves its room to the others."""
_PLAIN = 0.25
"""What a word is worth that is no name, number or path."""
_MOST_PIECES = 4
"""More pieces of a call are told only where room is left: the whole can be read again."""
_MANY = 4
"""After so many pieces of a line the next is worth half."""
_RECENT = 0.5
"""By how much more the newest words count than the oldest."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A piece of a line that the notes could tell."""

    heading: Heading
    text: str
    """Word for word, a whole sentence or line."""
    place: int
    """Where its message stands among all messages."""
    step: int
    """Which of several things in that message it tells of: pieces with one place and step make one line."""
    piece: int
    """Its order in that line."""
    key: InstanceOf[str]
    """The history key of its message; "" where it is derived from several."""
    kind: str
    """`user`, `instruction`, `agent`, or the name of the tool that was called."""
    rank: float
    """How much its words weigh beside those of others."""
    tokens: int
    said_by_user: bool = False
    subject: str = ""
    """What a call was about, told before its pieces; of several users the name."""
    about: str = ""
    """The file, record or id that it tells of: the newest supersedes."""
    failed: bool = False
    shape: str = ""
    """Which calls came to the same, but for numbers: they are told as one. "" for what is told alone."""
    times: int = 1
    """How many calls it stands for, all of which came to this."""
    since: str = ""
    """What the oldest of them was about."""
    pieces: int = 1
    """How many pieces the line has in all."""


class Worded(NamedTuple):
    """A candidate and the words in it, which are read once, however often it is chosen among others."""

    one: Candidate
    words: frozenset[str]
    """Those of its text."""
    head: frozenset[str]
    """Those before a line's pieces: which lines of a file were read is no news."""
    values: frozenset[str]
    """Those that are names, numbers or parts of paths."""


def worded(candidates: Iterable[Candidate]) -> Iterator[Worded]:
    """Yield candidates with their words."""
    for (kind, subject), line in groupby(candidates, key=lambda one: (one.kind, one.subject)):
        head = frozenset(word for word in words_of(f"{kind} {subject}") if not word.isdecimal())
        named = values_of(subject)
        for one in line:
            # A name that begins the text stands amid a sentence where a word goes before it.
            values = values_of(f"{subject[-1:]} {one.text}")
            yield Worded(one, words_of(one.text), head, named | values)


def chosen(candidates: Iterable[Worded], room: float) -> list[Worded]:
    """Return the candidates that a room in tokens is given to, in order."""
    return Chooser(candidates, room, least=0).chosen()


class Chooser:
    """Choose among candidates for a room.

    Users' words are chosen first and among themselves: what tools printed does not decide which of them are
    kept.

    Args:
        candidates: all that there are.
        room: tokens.
        told: what stands beside them, such as standing instructions.
        least: what words have to be worth, for each token.
    """

    def __init__(
        self, candidates: Iterable[Worded], room: float, *, told: Iterable[str] = (), least: float = LEAST
    ) -> None:
        candidates = list(candidates)
        beside = frozenset(word for text in told for word in words_of(text))
        self._has_calls = not all(_is_said(known.one) for known in candidates)
        self._room, share = room, USER_SHARE if self._has_calls else CHAT_USER_SHARE
        self._users = _Pool([known for known in candidates if known.one.said_by_user], beside, least)
        self._kept = self._users.cover(room * share)
        beside = beside.union(*(known.words for known in self._kept))
        self._others = _Pool([known for known in candidates if not known.one.said_by_user], beside, least)

    def chosen(self, stretch: float = 1.0) -> list[Worded]:
        """Return the candidates that the room is given to, in order.

        Args:
            stretch: the others may fill so many times what users' words leave: costs are reckoned roughly.
        """
        kept = self._kept
        left = (self._room - _cost_of(kept)) * stretch
        others = self._others.cover(left)
        if not self._has_calls:  # else what tools printed would decide how much is left
            kept = self._users.cover(_cost_of(kept) + left - _cost_of(others))
        return sorted([*kept, *others], key=lambda known: order_of(known.one))


def order_of(one: Candidate) -> tuple[int, int, int]:
    """Return where a candidate stands among all."""
    return one.place, one.step, one.piece


def folded(candidates: Sequence[Worded]) -> list[Worded]:
    """Return candidates with those told as one, the newest, that say the same; of plans the newest alone.

    So are calls that came to the same, and what somebody says again, word for word.
    """
    lines: defaultdict[object, dict[object, list[Worded]]] = defaultdict(dict)
    for known in sorted(candidates, key=lambda known: order_of(known.one)):
        one = known.one
        line: object = one.place, one.step
        same: object = line
        if _is_said(one):
            same, line = (one.kind, one.subject, one.text), order_of(one)
        elif one.shape or one.heading == "state":
            same = (one.kind, one.shape) if one.shape else one.heading
        lines[same].setdefault(line, []).append(known)
    kept: list[Worded] = []
    for alike in lines.values():
        *older, newest = alike.values()
        first = newest[0].one
        if older and first.heading == "done":
            times = sum(line[0].one.times for line in alike.values())
            since = older[0][0].one.since or older[0][0].one.subject
            key = first.key if _is_said(first) else ""
            newest = [
                known._replace(one=replace(known.one, times=times, since=since, key=key)) for known in newest
            ]
        kept += newest
    return kept


def _line_cost(one: Candidate) -> int:
    return _LINE_TOKENS + len(one.subject) // 3


def _tokens_of(one: Candidate, times: int) -> int:
    """Return what a candidate costs on a line of which so many pieces are told."""
    return one.tokens + (0 if times else _line_cost(one))


def _cost_of(kept: Sequence[Worded]) -> int:
    lines = {(one.place, one.step): _line_cost(one) for one, *_ in kept}
    return sum(known.one.tokens for known in kept) + sum(lines.values())


class _Pool:
    """Candidates among which is chosen, one after the other, what tells the most new words for its tokens.

    (Greedy coverage: Lin and Bilmes, A class of submodular functions for document summarization, 2011.)

    Args:
        known: the candidates.
        told: the words that are told already.
        least: what words have to be worth, for each token.
    """

    def __init__(self, known: Iterable[Worded], told: frozenset[str], least: float) -> None:
        self._known = folded([*known])
        self._told, self._least = told, least

    @cached_property
    def _worths(self) -> _Worths:
        return _Worths(self._known, self._told)

    @cached_property
    def _heap(self) -> list[tuple[float, int, int]]:
        heap = [
            (-self._worths.of(number, 0), -known.one.place, number)
            for number, known in enumerate(self._known)
        ]
        heapq.heapify(heap)
        return heap

    @cached_property
    def _lines(self) -> dict[tuple[int, int], list[int]]:
        lines: dict[tuple[int, int], list[int]] = {}
        for number, known in enumerate(self._known):
            lines.setdefault((known.one.place, known.one.step), []).append(number)
        return lines

    def cover(self, room: float) -> list[Worded]:
        """Return what a room in tokens is given to."""
        if not self._least and _cost_of(self._known) <= room:
            return self._known
        worths, heap = self._worths.copy(), self._heap.copy()
        opened: Counter[tuple[int, int]] = Counter()
        kept: dict[int, Worded] = {}
        while heap:
            _, place, number = heapq.heappop(heap)
            if number in kept:
                continue
            one, words, head, _ = self._known[number]
            line = (one.place, one.step)
            value = worths.of(number, opened[line])
            if value < self._least and _is_said(one):
                continue
            if heap and -value > heap[0][0]:  # less than it was: others may be worth more now
                heapq.heappush(heap, (-value, place, number))
                continue
            tokens = _tokens_of(one, opened[line])
            if tokens > room:
                continue
            room -= tokens
            kept[number] = self._known[number]
            worths.tell(words)
            opened[line] += 1
            if opened[line] == 1:
                worths.tell(head)
                for other in self._lines[line]:  # what else there is to tell on the line costs less now
                    heapq.heappush(heap, (-worths.of(other, 1), place, other))
        return list(kept.values())


class _Worths:
    """What candidates are worth for each token: less with each of their words that is told.

    A word weighs more the fewer messages have it, and twice as much where a second one comes back to it. Sums
    are of whole numbers: a word that is told is taken off, and the order of a set, which differs between
    processes, does not matter.

    Args:
        known: the candidates.
        told: the words that are told already.
    """

    def __init__(self, known: Sequence[Worded], told: frozenset[str]) -> None:
        self._known = known
        self._ranks = _ranks([known.one for known in known])
        weights = _weights(known)
        whole = {word: int(weight / _UNIT) for word, weight in weights.items()}
        self._less = {word: whole[word] - int(weight * _AGAIN / _UNIT) for word, weight in weights.items()}
        # Of the words in the texts, then of those before a line's pieces.
        parts = [known.words for known in known] + [known.head - known.words for known in known]
        self._sums = [sum(map(whole.__getitem__, words)) for words in parts]
        self._having: defaultdict[str, list[int]] = defaultdict(list)
        for place, words in enumerate(parts):
            for word in words:
                self._having[word].append(place)
        self._told: set[str] = set()
        self.tell(told)

    def copy(self) -> _Worths:
        """Return the same, in which other words may be told from now on."""
        other = copy(self)
        other._sums, other._told = self._sums.copy(), self._told.copy()
        return other

    def tell(self, words: frozenset[str]) -> None:
        """Make words worth less that are told from now on."""
        new = self._less.keys() & words - self._told
        self._told |= new
        for word in new:
            less = self._less[word]
            for place in self._having[word]:
                self._sums[place] -= less

    def of(self, number: int, times: int) -> float:
        """Return what a candidate is worth of whose line so many pieces are told."""
        one = self._known[number].one
        new = self._sums[number] + (0 if times else self._sums[len(self._known) + number])
        worth = new * _UNIT * (self._ranks[number] / (1 + times / _MANY))
        if times >= _MOST_PIECES and not _is_said(one):
            worth *= _AGAIN
        return worth / (_tokens_of(one, times) + 8)


def _ranks(candidates: Sequence[Candidate]) -> list[float]:
    """Return how much the words of each candidate weigh beside those of others."""
    places = [one.place for one in candidates]
    oldest = min(places, default=0)
    span = max(1, max(places, default=0) - oldest)
    # What is called again and again looks things up; what is rarely called does something.
    calls = Counter(
        kind for kind, _ in {(one.kind, order_of(one)[:2]) for one in candidates if not _is_said(one)}
    )
    total = calls.total() + 1
    rarity = {kind: 0.5 + log(total / n) / log(total) for kind, n in calls.items()}
    newest: dict[str, int] = {}
    for one in candidates:
        newest[one.about] = max(one.place, newest.get(one.about, 0))
    return [
        one.rank
        / (one.times if _is_said(one) else 1)
        * rarity.get(one.kind, 1.0)
        * (1 + _RECENT * (one.place - oldest) / span)
        * (_SUPERSEDED if one.about and newest[one.about] > one.place else 1.0)
        for one in candidates
    ]


def _is_said(one: Candidate) -> bool:
    return one.said_by_user or one.kind == "agent"


def _weights(candidates: Iterable[Worded]) -> dict[str, float]:
    places: defaultdict[int, set[str]] = defaultdict(set)
    said: set[str] = set()
    values: set[str] = set()
    for one, words, head, names in candidates:
        places[one.place] |= words | head
        said |= head
        values |= names
        if _is_said(one):
            said |= words
    total = len(places) + 1
    counts = Counter(chain.from_iterable(places.values()))
    rarity = {n: (log(total / n) / log(total)) ** 2 * (2.0 if n > 1 else 1.0) for n in set(counts.values())}
    return {
        word: rarity[n] * (1.0 if word in said else _UNSAID) * (1.0 if word in values else _PLAIN)
        for word, n in counts.items()
    }
