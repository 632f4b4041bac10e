"""Lines of a summary before their length is known, told at any length."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

ELLIPSIS = "…"
_LEAST_PART, _LEAST_PASSAGE = 60, 90
"""Characters below which a part is left out rather than cut further, first words alone telling nothing; and
one that has parts itself."""
_JOINT_CHARS = 3
_LEAST_QUOTE = 120
"""Characters from which a quote has a head and a tail."""
_TAIL_SHARE = 0.35
_SENTENCE_END = re.compile(r"[.!?;](?=\s)|[。！？；]")
_ENDS_ITSELF = tuple(".!?:;,。！？：；，…")


@dataclass(slots=True, eq=False)
class Passage:
    """A text in parts, of which each may be cut; the head is always told."""

    parts: Sequence[str | Passage]
    head: str = ""
    tail: str = ""
    joint: str = ""
    """What stands between parts; "" for a blank behind a sentence, and a dot otherwise."""
    is_quote: bool = False
    """Whether it is one text, word for word, of which head and tail are kept."""
    keeps: Literal["first", "last", "ends"] = "ends"
    weights: tuple[float, ...] = ()
    """How much longer than others each part may be; () where all are alike."""
    ranks: tuple[float, ...] = ()
    """Which of too many parts are kept, the highest first; () where `keeps` says it."""

    def __len__(self) -> int:
        joints = _JOINT_CHARS * (len(self.parts) - 1)
        return len(self.head) + len(self.tail) + sum(map(len, self.parts)) + max(0, joints)

    def only(self, kept: Sequence[int]) -> Passage:
        """Return the passage with some of its parts alone."""
        ranks = tuple(self.ranks[number] for number in kept) if self.ranks else ()
        return replace(self, parts=[self.parts[number] for number in kept], ranks=ranks)

    def tell(self, limit: int) -> str:
        """Return the passage in about `limit` characters, the head aside never more."""
        room = limit - len(self.head) - len(self.tail)
        if self.is_quote:
            parts = [quote_ends(str(part), room) for part in self.parts]
        elif len(self) <= limit:
            parts = [_tell(part, len(part)) for part in self.parts]
        else:
            told = self._whole_parts(room) if self.ranks else self._cut_parts(room)
            # What is left out before a part, and behind the last, is marked.
            parts = [
                text if index - 1 in told or index == 0 else f"{ELLIPSIS} {text}"
                for index, text in sorted(told.items())
            ]
            if len(self.parts) - 1 not in told and parts and not parts[-1].endswith(ELLIPSIS):
                parts[-1] += f" {ELLIPSIS}"
        return f"{self.head}{self._joined(parts)}{self.tail}"

    def _cut_parts(self, room: int) -> dict[int, str]:
        """Return parts by number, as many as can say something in a room, each cut to its share of it."""
        weights = self.weights or (1.0,) * len(self.parts)
        least = [
            min(len(part), _LEAST_PART if isinstance(part, str) else _LEAST_PASSAGE) for part in self.parts
        ]
        if len(least) == 2:  # neither is worth much without the other
            part_of = room / sum(weights)
            shares = [int(part_of * weight) - _JOINT_CHARS for weight in weights]
            least = [max(0, min(pair)) for pair in zip(least, shares, strict=True)]
        kept: list[int] = []
        left = max(room, 0)
        for index in self._order():
            if least[index] + _JOINT_CHARS > left and kept:
                break
            left -= least[index] + _JOINT_CHARS
            kept.append(index)
        kept.sort()
        more = [len(self.parts[index]) - least[index] for index in kept]
        shares = share_out(more, left, [weights[index] for index in kept])
        return {
            index: _tell(self.parts[index], least[index] + share)
            for index, share in zip(kept, shares, strict=True)
        }

    def _whole_parts(self, room: int) -> dict[int, str]:
        """Return the parts that matter most whole, and one of them cut: halves of all would tell nothing."""
        told: dict[int, str] = {}
        room = max(room, 0)
        for index in self._order():
            part = str(self.parts[index])
            if len(part) <= room or not told or room >= _LEAST_PART:
                told[index] = shorten(part, room)
                room -= len(told[index]) + _JOINT_CHARS
        return told

    def _order(self) -> list[int]:
        """Return the numbers of the parts, those first that are kept of too many."""
        numbers = list(range(len(self.parts)))
        if self.ranks:
            return sorted(numbers, key=lambda number: (-self.ranks[number], number))
        if self.keeps == "last":
            return numbers[::-1]
        return numbers if self.keeps == "first" else numbers[:1] + numbers[1:][-1:] + numbers[1:-1]

    def _joined(self, parts: list[str]) -> str:
        if self.joint:
            return self.joint.join(parts)
        text = ""
        for part in parts:
            joint = " " if text.endswith(_ENDS_ITSELF) or part.startswith(ELLIPSIS) else " · "
            text = f"{text}{joint}{part}" if text else part
        return text


def _tell(part: str | Passage, limit: int) -> str:
    return shorten(part, limit) if isinstance(part, str) else part.tell(limit)


def share_out(needs: Sequence[float], room: float, weights: Sequence[float] | None = None) -> list[int]:
    """Return how much of a room each gets: what it needs, or a part by its weight where that is not there."""
    weights = weights or [1.0] * len(needs)
    shares = [0] * len(needs)
    left, weight = room, sum(weights)
    for index in sorted(range(len(needs)), key=lambda index: needs[index] / weights[index]):
        shares[index] = int(min(needs[index], max(0.0, left) * weights[index] / weight))
        left -= shares[index]
        weight = max(weight - weights[index], 1e-9)
    return shares


def flat(text: str) -> str:
    """Return a text on one line."""
    return " ".join(text.split())


def shorten(text: str, limit: int) -> str:
    """Return the head of a text of one line in at most `limit` characters, with an ellipsis where it ends."""
    if len(text) <= limit:
        return text
    head = text[: max(0, limit - 2)]
    ends = [found.end() for found in _SENTENCE_END.finditer(head, int(len(head) * 0.7))]
    if ends:
        return f"{head[: ends[-1]]} {ELLIPSIS}"
    space = max(head.rfind(mark, len(head) // 2) for mark in " ，、")
    return f"{head[:space]} {ELLIPSIS}" if space > 0 else f"{head}{ELLIPSIS}"


def quote_ends(text: str, limit: int) -> str:
    """Return head and tail of a text of one line in at most `limit` characters.

    What is wanted is said at the head, and what to mind often at the tail.
    """
    if len(text) <= limit or limit < _LEAST_QUOTE:
        return shorten(text, limit)
    tail = text[len(text) - int(limit * _TAIL_SHARE) :]
    sentence = _SENTENCE_END.search(tail, 0, len(tail) // 2)
    start = sentence.end() if sentence else tail.find(" ") + 1
    tail = tail[start:].lstrip()
    head = shorten(text, limit - len(tail) - 1)
    return f"{head} {tail}"


Kind = Literal["user", "agent", "work", "failure", "state", "earlier", "spare"]


@dataclass(slots=True, eq=False)
class Item:
    """A line of a summary, of which more or less may be told."""

    kind: Kind
    place: float
    """Where it stands among the others: below 0 for what an earlier summary told."""
    passage: Passage
    rank: float = 0.0
    """Those that rank highest stay where there is no room for all."""
    weight: float = 1.0
    carried: bool = False


@dataclass(frozen=True, slots=True)
class Labels:
    """The words of ours, in the conversation's language."""

    log: str = "What was said and done, in order"
    failures: str = "Failures not mended since"
    state: str = "State of the work"
    earlier: str = "From earlier summaries"
    user: str = "User"
    agent: str = "Agent"
    system: str = "Instruction"
    asked: str = "asked"
    answered: str = "answered"
    failed: str = "FAILED"
    no_result: str = "Called, without a result so far"
    root: str = "Paths without a beginning are under"


ENGLISH = Labels()
CHINESE = Labels(
    *("经过（按先后顺序）", "尚未解决的失败", "工作状态", "更早的摘要"),
    *("用户", "助手", "指示", "问", "已答复", "失败"),
    *("已调用，尚无结果", "省略开头的路径均位于"),
)
