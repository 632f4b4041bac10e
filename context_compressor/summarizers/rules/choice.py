"""Which candidates the room is given to. Pure."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import fsum, log
from typing import Literal

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


def chosen(candidates: Iterable[Candidate], room: float) -> list[Candidate]:
    """Return the candidates that a room in tokens is given to, in order."""
    return Chooser(candidates).chosen(room, least=0)


class Chooser:
    """Choose among candidates, for one room after the other.

    Users' words are chosen first and among themselves: what tools printed does not decide which of them are
    kept.

    Args:
        candidates: all that there are.
        told: what stands beside them, such as standing instructions.
    """

    def __init__(self, candidates: Iterable[Candidate], told: Iterable[str] = ()) -> None:
        candidates = list(candidates)
        self._told = frozenset(word for text in told for word in words_of(text))
        self._users = _Pool(folded([one for one in candidates if one.said_by_user]))
        self._has_calls = not all(map(_is_said, candidates))
        self._others = _Pool(folded([one for one in candidates if not one.said_by_user]))

    def chosen(self, room: float, *, stretch: float = 1.0, least: float = LEAST) -> list[Candidate]:
        """Return the candidates that a room in tokens is given to, in order.

        Args:
            room: tokens.
            stretch: the others may fill so many times what users' words leave: costs are reckoned roughly.
            least: what words have to be worth, for each token.
        """
        share = USER_SHARE if self._has_calls else CHAT_USER_SHARE
        kept, told = self._users.cover(room * share, self._told, least)
        left = (room - _cost_of(kept)) * stretch
        others, _ = self._others.cover(left, told, least)
        if not self._has_calls:  # else what tools printed would decide how much is left
            kept, _ = self._users.cover(_cost_of(kept) + left - _cost_of(others), self._told, least)
        return sorted([*kept, *others], key=order_of)


def order_of(one: Candidate) -> tuple[int, int, int]:
    """Return where a candidate stands among all."""
    return one.place, one.step, one.piece


def folded(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return candidates with those told as one, the newest, that say the same; of plans the newest alone.

    So are calls that came to the same, and what somebody says again, word for word.
    """
    lines: defaultdict[object, dict[object, list[Candidate]]] = defaultdict(dict)
    for one in sorted(candidates, key=order_of):
        line: object = one.place, one.step
        same: object = line
        if _is_said(one):
            same, line = (one.kind, one.subject, one.text), order_of(one)
        elif one.shape or one.heading == "state":
            same = (one.kind, one.shape) if one.shape else one.heading
        lines[same].setdefault(line, []).append(one)
    kept: list[Candidate] = []
    for alike in lines.values():
        *older, newest = alike.values()
        if older and newest[0].heading == "done":
            times = sum(line[0].times for line in alike.values())
            since = older[0][0].since or older[0][0].subject
            key = newest[0].key if _is_said(newest[0]) else ""
            newest = [replace(one, times=times, since=since, key=key) for one in newest]
        kept += newest
    return kept


def _line_cost(one: Candidate) -> int:
    return _LINE_TOKENS + len(one.subject) // 3


def _cost_of(kept: Sequence[Candidate]) -> int:
    lines = {(one.place, one.step): _line_cost(one) for one in kept}
    return sum(one.tokens for one in kept) + sum(lines.values())


class _Pool:
    """Candidates among which is chosen, one after the other, what tells the most new words for its tokens.

    A word weighs more the fewer messages have it, and twice as much where a second one comes back to it.
    (Greedy coverage: Lin and Bilmes, A class of submodular functions for document summarization, 2011.)
    """

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self._candidates = candidates
        self._texts = [words_of(one.text) for one in candidates]
        self._heads = [_head_words(one) for one in candidates]
        self._weigh = _weights(candidates, self._texts, self._heads)
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
        self._lines: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for number, one in enumerate(candidates):
            newest[one.about] = max(one.place, newest.get(one.about, 0))
            self._lines[one.place, one.step].append(number)
        self._ranks = [
            one.rank
            / (one.times if _is_said(one) else 1)
            * rarity.get(one.kind, 1.0)
            * (1 + _RECENT * (one.place - oldest) / span)
            * (_SUPERSEDED if one.about and newest[one.about] > one.place else 1.0)
            for one in candidates
        ]

    def cover(
        self, room: float, told: frozenset[str], least: float
    ) -> tuple[list[Candidate], frozenset[str]]:
        """Return what a room in tokens is given to, and the words that are told then."""
        candidates, texts, heads, weigh = self._candidates, self._texts, self._heads, self._weigh
        covered = set(told)
        opened: Counter[tuple[int, int]] = Counter()
        kept: dict[int, Candidate] = {}

        def worth(number: int) -> tuple[float, int]:
            """Return how much a candidate tells for each token, and the tokens."""
            one = candidates[number]
            times = opened[one.place, one.step]
            words = texts[number] if times else texts[number] | heads[number]
            # Exact, so that the order of a set, which differs between processes, does not matter.
            new = fsum(weigh[word] * (_AGAIN if word in covered else 1.0) for word in words)
            new *= self._ranks[number] / (1 + times / _MANY)
            if times >= _MOST_PIECES and not _is_said(one):
                new *= _AGAIN
            tokens = one.tokens + (0 if times else _line_cost(one))
            return new / (tokens + 8), tokens

        heap = [(-worth(number)[0], -candidates[number].place, number) for number in range(len(candidates))]
        heapq.heapify(heap)
        while heap:
            _, place, number = heapq.heappop(heap)
            if number in kept:
                continue
            value, tokens = worth(number)
            if value < least and _is_said(candidates[number]):
                continue
            if heap and -value > heap[0][0]:  # less than it was: others may be worth more now
                heapq.heappush(heap, (-value, place, number))
                continue
            one = candidates[number]
            line = (one.place, one.step)
            if tokens > room:
                continue
            room -= tokens
            kept[number] = one
            covered |= texts[number]
            opened[line] += 1
            if opened[line] == 1:
                covered |= heads[number]
                for other in self._lines[line]:  # what else there is to tell on the line costs less now
                    heapq.heappush(heap, (-worth(other)[0], place, other))
        return list(kept.values()), told.union(*(texts[number] for number in kept))


def _is_said(one: Candidate) -> bool:
    return one.said_by_user or one.kind == "agent"


def _head_words(one: Candidate) -> frozenset[str]:
    """Return the words before a line's pieces: which lines of a file were read is no news."""
    return frozenset(word for word in words_of(f"{one.kind} {one.subject}") if not word.isdecimal())


def _weights(
    candidates: Sequence[Candidate], texts: Sequence[frozenset[str]], heads: Sequence[frozenset[str]]
) -> dict[str, float]:
    places: defaultdict[str, set[int]] = defaultdict(set)
    said: set[str] = set()
    values: set[str] = set()
    for one, text, head in zip(candidates, texts, heads, strict=True):
        for word in text | head:
            places[word].add(one.place)
        said |= head
        values |= values_of(f"{one.subject} {one.text}")
        if _is_said(one):
            said |= text
    total = len({one.place for one in candidates}) + 1
    return {
        word: (log(total / len(at)) / log(total)) ** 2
        * (2.0 if len(at) > 1 else 1.0)
        * (1.0 if word in said else _UNSAID)
        * (1.0 if word in values else _PLAIN)
        for word, at in places.items()
    }
