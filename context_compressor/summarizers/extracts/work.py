"""The state of the work, failures that stand, and what earlier summaries told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from context_compressor.summarizers.extracts.artifacts import Done
from context_compressor.summarizers.extracts.passages import (
    CHINESE,
    ENGLISH,
    Item,
    Kind,
    Labels,
    Passage,
    flat,
    shorten,
)
from context_compressor.summarizers.extracts.reading import Material, Told
from context_compressor.summarizers.extracts.words import worth_of

_SUBJECT_CHARS = 200
_STEP_CHARS = 160


def plan_in(arguments: Any) -> dict[str, list[str]]:
    """Return the steps of a plan by their status: a list of objects that each have one; empty for no plan."""
    for steps in arguments.values() if isinstance(arguments, dict) else ():
        if isinstance(steps, list) and steps and all(isinstance(s, dict) and "status" in s for s in steps):
            plan: dict[str, list[str]] = {}
            for step in steps:
                texts = [text for key, text in step.items() if key != "status" and isinstance(text, str)]
                told = shorten(flat(max(texts, key=len, default="")), _STEP_CHARS)
                plan.setdefault(str(step["status"]), []).append(told)
            return plan
    return {}


def state_items(calls: Sequence[Done], labels: Labels) -> Iterator[Item]:
    """Yield the newest plan and the calls without a result; what was asked last stays in the view."""
    plan = next((plan for done in reversed(calls) if (plan := plan_in(done.call.arguments))), {})
    for number, (status, steps) in enumerate(plan.items()):
        rank = 1.0 + (status not in ("completed", "done"))
        yield Item("state", number, Passage(steps, f"{status}: ", joint="; "), rank)
    waiting = [done for done in calls if done.call.result is None]
    for done in waiting[-3:]:
        told = f"{done.call.name}: {shorten(done.subject, _SUBJECT_CHARS)}"
        yield Item("state", 100 + done.call.place, Passage([told], f"{labels.no_result}: "), 1.5)


def failure_items(failures: Sequence[Done]) -> Iterator[Item]:
    """Yield a line for each failure that stands, with the exact error."""
    for done in failures:
        head = f"{done.call.name}: {shorten(done.subject, _SUBJECT_CHARS)} → "
        place = done.call.place
        yield Item("failure", place, replace(done.outcome.told, head=head), place, 1.5)


def standing_failures(calls: Sequence[Done]) -> list[Done]:
    """Return the calls that failed, each once, where the same tool has not succeeded since.

    That is at the same name, or with the same first words.
    """
    seen: set[tuple[str, str]] = set()
    failures = []
    for done in reversed(calls):
        if done.call.result is None:
            continue
        if done.outcome.failed and done.key not in seen:
            failures.append(done)
        seen.add(done.key)
    return failures[::-1]


_LANGUAGES = (ENGLISH, CHINESE)
_HEADING_CHARS = 40


def carried_items(material: Material, calls: Sequence[Done]) -> Iterator[Item]:
    """Yield the lines of earlier summaries as the oldest of the lists that they belong to.

    A line never becomes a user's new words. What failed and has succeeded since is told with the rest, and of
    the state only what nothing newer says.
    """
    count = len(material.told)
    said = [number for number, told in enumerate(material.told) if _kind_of(told) == "user"]
    is_over = any(words.closing or words.speaker != "agent" for words in material.words)
    over = set(said if is_over else said[:-1])
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
        if number in over:
            line = _answered(line)
        rank = (number + 1) / count + (kind not in seen) - (line.partition(" (")[0] in again)
        rank += worth_of(line) * (kind == "user")
        seen.add(kind)
        is_row = kind in ("agent", "work") and " · " in line
        passage = Passage(line.split(" · ")) if is_row else Passage([line], is_quote=True)
        yield Item(kind, number - count, passage, rank, carried=True)


def _answered(line: str) -> str:
    """Return a user's words with the mark of what was answered: the agent closed, or the user went on."""
    if any(line.endswith(f"({labels.answered})") for labels in _LANGUAGES):
        return line
    labels = CHINESE if line.startswith((f"{CHINESE.user}: ", f"{CHINESE.user} ")) else ENGLISH
    return f"{line} ({labels.answered})"


def _kind_of(told: Told) -> Kind:
    for labels in _LANGUAGES:
        if told.heading == labels.log:
            is_user = told.line.startswith((f"{labels.user}: ", f"{labels.user} ", f"{labels.system}: "))
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
    if told.line.startswith(tuple(labels.no_result for labels in _LANGUAGES)):
        return not calls
    return not any(plan_in(done.call.arguments) for done in calls)


def _mends(done: Done, line: str) -> bool:
    """Tell whether a call has succeeded at what a line tells as a failure."""
    tool, first = done.key
    subject = line.removeprefix(f"{tool}: ").partition(" → ")[0]
    has_succeeded = done.call.result is not None and not done.outcome.failed
    return has_succeeded and line.startswith(f"{tool}: ") and first in subject
