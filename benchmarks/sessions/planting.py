"""Facts that a session plants, and the probes that ask for them later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from context_compressor.lab.measure import KINDS, is_told, readable

POINTS = 5
"""At so many places, from the middle of a session to its last tenth, where it sums up, its probes are put."""
MOST_OF_A_KIND = 8
LEAST_DISTANCE = 30
"""Messages between a fact and its probe; an eighth of the session where that is less."""

Keys = str | Sequence[str]
"""A group of keys: alternatives, or the only one."""


@dataclass(slots=True)
class Fact:
    """Something that a session tells, and from where to where it holds."""

    kind: str
    question: str
    answer: str
    keys: list[list[str]]
    since: int
    about: str | None
    until: int | None = None


class Planting:
    """The facts of one session, oldest first."""

    def __init__(self) -> None:
        self._facts: list[Fact] = []

    def plant(
        self, kind: str, question: str, answer: str, *keys: Keys, since: int, about: str | None = None
    ) -> None:
        """Note a fact that the first `since` messages tell.

        Args:
            kind: of its probe.
            question: what to ask; it does not give the value away.
            answer: the right answer.
            keys: groups of alternatives: who or what, and the value or outcome.
            since: messages so far.
            about: what the fact is the current value of; an earlier one of the same name no longer holds.
        """
        for earlier in self._facts:
            if about is not None and earlier.about == about and earlier.until is None:
                earlier.until = since
        groups = [[group] if isinstance(group, str) else list(group) for group in keys]
        self._facts.append(Fact(kind, question, answer, groups, since, about))

    def probes(self, messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return probes of a finished session, by place: each of a fact that holds there.

        Left out is what the session itself tells in no passage, such as two records far apart.
        """
        first, last = len(messages) // 2, len(messages) * 9 // 10
        turns = [n for n, one in enumerate(messages) if one["role"] == "assistant" and first <= n <= last]
        points = [turns[(len(turns) - 1) * n // (POINTS - 1)] for n in range(POINTS)]
        distance = min(LEAST_DISTANCE, len(messages) // 8)
        found: list[dict[str, Any]] = []
        for kind in KINDS:
            asked: dict[bool, list[dict[str, Any]]] = {True: [], False: []}
            for number, fact in enumerate(fact for fact in self._facts if fact.kind == kind):
                late = [at for at in points if at >= fact.since + distance and at < (fact.until or at + 1)]
                if late and is_told(readable(messages[: fact.since]), fact.keys):
                    told = {"kind": kind, "question": fact.question, "answer": fact.answer, "keys": fact.keys}
                    asked[fact.about is not None].append({"at": late[number % len(late)], **told})
            # What changes is always asked for; of the rest, some from the first to the last.
            most = MOST_OF_A_KIND - len(asked[True])
            step = max(1.0, len(asked[False]) / most)
            found += asked[True] + [asked[False][int(n * step)] for n in range(min(len(asked[False]), most))]
        return sorted(found, key=lambda probe: probe["at"])


def set_to(name: str, new: str, old: str) -> list[str]:
    """Return ways to say that a setting has a new value."""
    joints = (" = ", "=", ": ", " is ", " to ", " set to ", " now ", f" = {old} is now ", f" from {old} to ")
    arrows = [f"{name} {sign}{old} {arrow} {new}" for sign in ("", "= ") for arrow in ("->", "→")]
    return [f"{name}{joint}{new}" for joint in joints] + arrows


def gist(sentence: str) -> str:
    """Return the longest word of a sentence: whoever tells why needs it."""
    return max((word.strip(".,:;") for word in sentence.split()), key=len)
