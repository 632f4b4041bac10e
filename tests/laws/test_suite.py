"""The suite finds each broken law, by that law alone, and lets an honest compactor pass."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from context_compressor.laws import LAWS, Counterexample, Subject, check
from context_compressor.laws.forms import CLAIM, FORMS, RULE, Dict, History, form_of, said_by, strings_in
from context_compressor.laws.subject import memory
from context_compressor.laws.suite import draw_case

FOUND = Path(__file__).parent / "found"
BUDGET = 1_000
EXAMPLES = 12
PAD: Dict = {"role": "user", "content": "There is a memory."}


def count(messages: History) -> int:
    """Count a quarter of the characters as tokens: a counter of a user's own, and a fast one."""
    return len(json.dumps(messages)) // 4


class Honest:
    """Keeps a list until it exceeds the budget; then says users' rules, and stores the rest."""

    room = BUDGET

    def __init__(self) -> None:
        self.view: History = []
        self.given: History = []
        self.stored: list[str] = []

    def __call__(self, messages: History) -> History:
        new, self.given = messages[len(self.given) :], messages
        self.view = [*(self.view or self.opens_with(messages)), *new]
        if new and count(self.view) > self.room:
            self.stored += strings_in(messages)
            self.view = self.notes(messages)
        return self.view

    def opens_with(self, messages: History) -> History:
        return []

    def notes(self, messages: History) -> History:
        return [{"role": "user", "content": "\n".join(["Notes.", *said_by("user", messages, RULE)])}]

    def read(self, view: History) -> list[str]:
        return self.stored


class Orphans(Honest):
    def notes(self, messages: History) -> History:
        last = messages[-1]
        kept = [{**last, "content": "ok"}] if last["role"] == "tool" else []
        return [*super().notes(messages), *kept]


class TooLarge(Honest):
    room = 2 * BUDGET


class Restless(Honest):
    """Makes notes for each list that they make shorter, though it fits."""

    def __call__(self, messages: History) -> History:
        is_first = not self.given
        view = super().__call__(messages)
        if not is_first and count(self.notes(messages)) < min(count(view), count(messages)):
            self.stored += strings_in(messages)
            self.view = self.notes(messages)
        return self.view


class Losing(Honest):
    def read(self, view: History) -> list[str]:
        return []


class Padding(Honest):
    def opens_with(self, messages: History) -> History:
        return [] if PAD in messages else [PAD]

    def notes(self, messages: History) -> History:
        return [PAD, *super().notes(messages)]


class Forgetful(Honest):
    def notes(self, messages: History) -> History:
        return [{"role": "user", "content": "Notes."}]


class Parrot(Honest):
    def notes(self, messages: History) -> History:
        [notes] = super().notes(messages)
        return [{**notes, "content": "\n".join([notes["content"], *said_by("tool", messages, CLAIM)[:5]])}]


class Alternating(Honest):
    """Asked again with the same list, it says another thing each time."""

    turn = 0

    def __call__(self, messages: History) -> History:
        if messages != self.given:
            return super().__call__(messages)
        self.turn += 1
        return [*self.view, {"role": "user", "content": f"Notes {self.turn}."}]


class Raising(Honest):
    def __call__(self, messages: History) -> History:
        if len(messages) > 5:
            raise KeyError("five")
        return super().__call__(messages)


class Hanging(Honest):
    async def __call__(self, messages: History) -> History:  # type: ignore[override]
        if len(messages) > 5:
            await asyncio.Event().wait()
        return super().__call__(messages)


class Growing(Honest):
    """Takes its own notes for a user's."""

    def opens_with(self, messages: History) -> History:
        is_ours = str(messages[0].get("content")).startswith("Notes.")
        return [{"role": "user", "content": "Notes on notes."}] if is_ours else []


FAULTS = {
    "valid": [Orphans],
    "budget": [TooLarge],
    "still": [Restless],
    "lossless": [Losing],
    "smaller": [Padding],
    "rules": [Forgetful],
    "voice": [Parrot],
    "terminates": [Alternating, Raising, Hanging],
    "idempotent": [Growing],
}


def subject(compactor: Any, **promises: Any) -> Subject:
    return Subject(make=compactor, name=compactor.__name__, budget=BUDGET, count=count, **promises)


def test_an_honest_compactor_keeps_every_law():
    report = check(subject(Honest), examples=2 * EXAMPLES)
    assert report.broken == {}
    assert report.compacted > EXAMPLES
    assert {report.state_of(law) for law in LAWS} == {"kept"}


@pytest.mark.parametrize(("law", "fault"), [(law, fault) for law in LAWS for fault in FAULTS[law]])
def test_a_fault_is_found_by_its_law_alone(law: str, fault: Any):
    """And is found again in its example, which survives JSON and has a picture that says what is wrong."""
    broken = subject(fault, seconds=0.2 if fault is Hanging else 30)
    report = check(broken, examples=EXAMPLES, tries=40)
    assert set(report.broken) == {law}, report.broken
    example = Counterexample.from_json(report.broken[law].to_json())
    assert example.check(broken)
    assert example.check(subject(Honest)) == []
    assert law in example.picture()
    assert len(example.script("mine:Fault").splitlines()) < 30


def test_examples_are_small():
    example = check(subject(Orphans), examples=EXAMPLES).broken["valid"]
    assert len(example.history) <= 4
    assert example.rule == "result for …, which is not open"


@pytest.mark.parametrize("form", FORMS)
def test_our_views_are_judged_in_every_form(form: Any):
    """Over a few conversations; the laws that are broken over many are told in docs/laws-of-others.md."""
    report = check(memory(form), examples=2, tries=0)
    assert {"valid", "budget", "lossless", "smaller", "voice", "terminates"}.isdisjoint(report.broken)


@pytest.mark.parametrize("path", sorted(FOUND.glob("*.json")), ids=lambda path: path.stem)
def test_what_was_found_once_is_kept(path: Path):
    """Each was the smallest conversation that broke a law in our views."""
    example = Counterexample.from_json(path.read_text(encoding="utf-8"))
    assert example.check(memory(example.form, example.budget)) == []


def test_lists_can_be_sent_as_they_are():
    for form in FORMS:
        for number in range(10):
            case = draw_case(form, Random(number))
            for cut in case.cuts:
                assert form_of(form).judge(case.history[:cut])(case.history[:cut]) == []


def test_a_function_alone_is_checked():
    """It is sync or async, and may say that it promises less; a wrong promise is named."""

    async def newest(messages: History) -> History:
        return messages[-1:]

    report = check(newest, examples=EXAMPLES, without={"rules", "still"}, count=count, tries=0)
    assert "valid" in report.broken
    assert report.state_of("lossless") == "not claimed"  # there is nothing to read with
    with pytest.raises(ValueError, match="law 'speed': there is none; the laws are valid, budget"):
        check(newest, without={"speed"})
    with pytest.raises(ValueError, match="form 'xml': there is no such form"):
        check(newest, form="xml")  # type: ignore[arg-type]
