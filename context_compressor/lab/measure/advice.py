"""Which budget recorded sessions speak for, and within what interval its cost lies."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from context_compressor.lab.measure.results import OURS, ReportData, SessionRun, percentile

TRIED = (8_000, 16_000, 32_000, 64_000, 128_000)
"""Budgets in tokens that are tried beside each other for a log of requests, where nobody names any."""
_DRAWS = 1_000
_SEED = 0
_LOW, _HIGH = 0.025, 0.975


@dataclass(frozen=True, slots=True)
class Choice:
    """What sessions come to at a budget."""

    budget: int
    cost: float
    """To that of the history, prompt cache counted, the agent's own model writing notes in place."""
    low: float | None
    """Ends of the interval of 95 %, by bootstrap over sessions; None where there is one session."""
    high: float | None
    events: int
    fits: bool
    """Whether each turn has a view that fits and that a provider takes."""

    @property
    def gains(self) -> bool:
        """Whether something left a view, and views cost less than the history."""
        return self.events > 0 and self.cost < 1

    @property
    def is_shown_to_gain(self) -> bool:
        """Whether that is so by the whole of the interval, too."""
        return self.gains and self.high is not None and self.high < 1


@dataclass(frozen=True, slots=True)
class Advice:
    """Budgets beside each other."""

    sessions: int
    choices: tuple[Choice, ...]
    """The smallest budget first."""
    budget: int | None
    """The largest of those that fit, gain and are not surely dearer than the cheapest; None if none does."""

    @property
    def chosen(self) -> Choice | None:
        """The choice that has this budget."""
        return next((one for one in self.choices if one.budget == self.budget), None)


def advise(data: ReportData) -> Advice | None:
    """Return which budget to take; None where fewer than two were tried, or nothing was sent.

    A larger budget leaves more of a conversation word for word, so the largest is taken of which the sessions
    do not show that it is dearer than the cheapest: the interval of 95 % of the difference has 0 in it, or
    lies below. One at which nothing is gained is never taken, and one that is not shown to gain only where
    none is.
    """
    chance = random.Random(_SEED)
    numbers = range(len(data.sessions))
    draws = [chance.choices(numbers, k=len(numbers)) for _ in range(_DRAWS)] if len(numbers) > 1 else []
    raw = [one.run(OURS, data.budgets[0]).replay.cost.raw for one in data.sessions]
    if len(data.budgets) < 2 or not sum(raw):
        return None

    def ratios(costs: Sequence[float]) -> list[float]:
        return [sum(costs[n] for n in draw) / sum(raw[n] for n in draw) for draw in draws]

    choices, drawn = [], {}
    for budget in sorted(data.budgets):
        costs = [one.run(OURS, budget).replay.cost.in_place for one in data.sessions]
        cost, drawn[budget] = sum(costs) / sum(raw), ratios(costs)
        ends = percentile(drawn[budget], _LOW), percentile(drawn[budget], _HIGH)
        events = sum(len(one.run(OURS, budget).events) for one in data.sessions)
        choices.append(Choice(budget, cost, *ends, events, all(_fits(one, budget) for one in data.sessions)))
    gaining = [one for one in choices if one.fits and one.gains]
    if not gaining:
        return Advice(len(numbers), tuple(choices), None)
    gaining = [one for one in gaining if one.is_shown_to_gain] or gaining
    cheapest = min(gaining, key=lambda one: one.cost)

    def is_surely_dearer(one: Choice) -> bool:
        beyond = [a - b for a, b in zip(drawn[one.budget], drawn[cheapest.budget], strict=True)]
        least = percentile(beyond, _LOW)
        return (one.cost - cheapest.cost if least is None else least) > 0

    taken = max(one.budget for one in gaining if not is_surely_dearer(one))
    return Advice(len(numbers), tuple(choices), taken)


def _fits(session: SessionRun, budget: int) -> bool:
    turns = session.run(OURS, budget).replay.turns
    return not any(turn.is_over or turn.problems or not turn.is_sent for turn in turns)
