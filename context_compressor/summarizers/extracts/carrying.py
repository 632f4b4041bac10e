"""Carry what earlier summaries told, whoever wrote them, into the lists of a new one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from context_compressor.summarizers.extracts.artifacts import Done
from context_compressor.summarizers.extracts.items import (
    ANSWERED,
    CHINESE,
    ENGLISH,
    PAIR_WEIGHTS,
    Item,
    Kind,
    Labels,
)
from context_compressor.summarizers.extracts.passages import Passage
from context_compressor.summarizers.extracts.reading import Material, Told
from context_compressor.summarizers.extracts.words import with_answer, worth_of
from context_compressor.summarizers.extracts.work import plan_in

_LANGUAGES = (ENGLISH, CHINESE)
_HEADING_CHARS = 40
_ANSWERS = tuple(f"{ANSWERED.lstrip()}{labels.agent}: " for labels in _LANGUAGES)
"""How a line begins that answers what an earlier summary told."""


def carried_items(
    material: Material, calls: Sequence[Done], answered: Told | None, labels: Labels
) -> Iterator[Item]:
    """Yield the lines of earlier summaries as the oldest of the lists that they belong to.

    A line never becomes a user's new words. What failed and has succeeded since is told with the rest, and of
    the state only what nothing newer says.

    Args:
        material: what is read.
        calls: its calls.
        answered: the line about which the agent closed since, as `awaiting` returns it.
        labels: our words.
    """
    count = len(material.told)
    again = {done.name for done in calls if done.name}
    seen: set[Kind] = set()
    for number, told in enumerate(material.told):
        kind = _kind_of(told)
        if kind == "state" and not _still_holds(told, material, calls):
            continue
        if kind == "failure" and any(_mends(done, told.line) for done in calls):
            kind = "work"
        line = told.line
        if kind == "earlier" and told.heading not in {labels.earlier for labels in _LANGUAGES}:
            heading = told.heading[:_HEADING_CHARS]
            line = f"{heading}: {line}" if heading else line
        rank = (number + 1) / count + (kind not in seen) - (line.partition(" (")[0] in again)
        rank += worth_of(line) * (kind == "user")
        seen.add(kind)
        passage = _passage_of(kind, line)
        if told is answered and material.late_answer is not None:
            passage = with_answer(passage, material.late_answer, labels)
        yield Item(kind, number - count, passage, rank, carried=True)


def join_answers(lines: Sequence[Told]) -> list[Told]:
    """Return lines of earlier summaries with each answer behind the words of a user that it is about.

    The words may stand at the end of one summary, and the answer at the beginning of the next.
    """
    joined: list[Told] = []
    asked: int | None = None
    for told in lines:
        if asked is not None and told.line.startswith(_ANSWERS):
            joined[asked] = replace(joined[asked], line=f"{joined[asked].line} {told.line}")
            asked = None
            continue
        if _kind_of(told) == "user":
            asked = len(joined) if _is_awaiting(told) else None
        joined.append(told)
    return joined


def awaiting(material: Material) -> Told | None:
    """Return the newest line of a user's words, where no answer to it is told; None for none."""
    said = [told for told in material.told if _kind_of(told) == "user"]
    return said[-1] if said and _is_awaiting(said[-1]) else None


def _is_awaiting(told: Told) -> bool:
    return not told.line.startswith(_ANSWERS) and len(_passage_of("user", told.line).parts) == 1


def _passage_of(kind: Kind, line: str) -> Passage:
    for closes in '")' if kind == "user" else "":
        for labels in _LANGUAGES:
            said, found, answer = line.partition(f"{closes}{ANSWERED}{labels.agent}: ")
            if found:
                told = [said + closes, f"{labels.agent}: {answer}"]
                parts = [Passage([text], is_quote=True) for text in told]
                return Passage(parts, joint=ANSWERED, weights=PAIR_WEIGHTS)
    is_row = kind in ("agent", "work") and " · " in line
    return Passage(line.split(" · ")) if is_row else Passage([line], is_quote=True)


def _kind_of(told: Told) -> Kind:
    for labels in _LANGUAGES:
        if told.heading == labels.log:
            is_user = told.line.startswith(
                (f"{labels.user}: ", f"{labels.user} ", f"{labels.system}: ", *_ANSWERS)
            )
            return "user" if is_user else "agent" if told.line.startswith(f"{labels.agent}: ") else "work"
        if told.heading == labels.failures:
            return "failure"
        if told.heading == labels.state:
            return "state"
    return "earlier"


def _still_holds(told: Told, material: Material, calls: Sequence[Done]) -> bool:
    """Tell whether a line on the state of the work is the newest of its kind."""
    states = [other for other in material.told if _kind_of(other) == "state"]
    newest = max(other.summary for other in states)
    if told.summary != newest:
        return False
    if told.line.startswith(tuple(labels.open for labels in _LANGUAGES)):
        return not any(words.speaker == "user" or words.closing for words in material.words)
    if told.line.startswith(tuple(labels.no_result for labels in _LANGUAGES)):
        return not calls
    return not any(plan_in(done.call.arguments) for done in calls)


def _mends(done: Done, line: str) -> bool:
    """Tell whether a call has succeeded at what a line tells as a failure."""
    tool, first = done.key
    subject = line.removeprefix(f"{tool}: ").partition(" → ")[0]
    has_succeeded = done.call.result is not None and not done.outcome.failed
    return has_succeeded and line.startswith(f"{tool}: ") and first in subject
