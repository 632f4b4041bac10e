"""The state of the work: its plan, and what failed and was not mended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from context_compressor.summarizers.extracts.artifacts import Done
from context_compressor.summarizers.extracts.items import Item, Labels
from context_compressor.summarizers.extracts.passages import Passage, flat, shorten

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
