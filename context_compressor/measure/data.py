"""What a report tells: sessions, how each system did in them, and what could not be replayed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from context_compressor.measure import Probe, Replay, Told, Totals, Watched, total

OURS = "ours"
RAW = "raw"


@dataclass(frozen=True, slots=True)
class SessionRun:
    """A session, replayed by every system at every budget."""

    name: str
    source: str
    """Where it was read, as the user knows it."""
    messages: int
    tokens: int
    runs: tuple[Watched, ...]
    probes: tuple[Probe, ...] = ()

    def run(self, system: str, budget: int) -> Watched:
        """Return the run of a system at a budget."""
        return next(run for run in self.runs if _is_of(run.replay, system, budget))

    def replays(self, budget: int) -> list[Replay]:
        """Return the replays at a budget, in the order of the systems."""
        return [run.replay for run in self.runs if run.replay.budget == budget]


def _is_of(replay: Replay, system: str, budget: int) -> bool:
    return replay.system == system and replay.budget == budget


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something that is not in the report, and why."""

    name: str
    why: str
    is_failure: bool = True
    """False where there was nothing to replay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportData:
    """Everything that a report tells. The longest session first."""

    sessions: tuple[SessionRun, ...]
    budgets: tuple[int, ...]
    systems: tuple[str, ...]
    """`raw` and `ours` among them."""
    failed: tuple[Skipped, ...] = ()
    """Sessions whose replay failed, and input that could not be read."""
    notes: tuple[Skipped, ...] = ()
    """What was left out on purpose."""
    asked_sessions: int = 0
    """How many sessions were to be replayed: more than there are where it was interrupted."""

    @property
    def is_interrupted(self) -> bool:
        """Whether sessions are missing because somebody stopped the replay."""
        return len(self.sessions) + len(self.failed) < self.asked_sessions

    @property
    def has_probes(self) -> bool:
        """Whether views were asked anything."""
        return any(session.probes for session in self.sessions)

    def totals(self, system: str, budget: int) -> Totals:
        """Return what a system comes to at a budget, over all sessions."""
        runs = (run.replay for session in self.sessions for run in session.runs)
        return total([replay for replay in runs if _is_of(replay, system, budget)])

    def tables(self) -> Iterator[tuple[int, list[tuple[str, Totals]]]]:
        """Yield for each budget what each system comes to."""
        for budget in self.budgets:
            yield budget, [(system, self.totals(system, budget)) for system in self.systems]


def report_value(data: ReportData) -> dict[str, Any]:
    """Return the report as JSON-like data, the texts of stand-ins left out."""
    return {
        "budgets": list(data.budgets),
        "systems": list(data.systems),
        "interrupted": data.is_interrupted,
        "totals": [
            {"budget": budget, "system": system, **asdict(totals)}
            for budget, rows in data.tables()
            for system, totals in rows
        ],
        "sessions": [
            {
                "name": session.name,
                "source": session.source,
                "messages": session.messages,
                "tokens": session.tokens,
                "probes": len(session.probes),
                "runs": list(map(_run_value, session.runs)),
            }
            for session in data.sessions
        ],
        "failed": [{"name": one.name, "why": one.why} for one in data.failed],
        "notes": [{"name": one.name, "why": one.why} for one in data.notes],
    }


def _run_value(run: Watched) -> dict[str, Any]:
    events = [{"turn": one.turn, **asdict(one.event)} for one in run.events]
    for event in events:
        del event["message_ids"]  # made up while replaying: they name nothing in the input
    return {
        **run.replay.to_dict(),
        "events": events,
        "stand_ins": [
            {
                "kind": one.kind,
                "turn": one.turn,
                "refs": list(one.refs),
                "messages": list(one.covers),
                "shown_tokens": one.shown_tokens,
                "full_tokens": one.full_tokens,
            }
            for one in run.stand_ins
        ],
    }


HOW_TO_ASK = "context-compressor examine PATH --model NAME"
"""What makes probes for sessions that have none."""


def percent(share: float | None, none: str = "–") -> str:
    """Return a share in per cent; where there is none, `none`."""
    return none if share is None else f"{100 * share:.1f} %"


def ratio(value: float | None, none: str = "–") -> str:
    """Return a ratio with two decimals; where there is none, `none`."""
    return none if value is None else f"{value:.2f}"


def told_range(told: Told) -> str:
    """Return the interval of 95 % in which the share of what is told lies."""
    return f"{100 * told.low:.0f} to {100 * told.high:.0f} %"


def short_number(value: float) -> str:
    """Return a number in three digits or so: 950, 12k, 1.2M."""
    for least, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= least:
            return f"{value / least:.{1 if value < 10 * least and value % least else 0}f}{letter}"
    return f"{value:.0f}"


def index_ranges(indexes: Iterable[int]) -> list[list[int]]:
    """Return ascending indexes as `[first, last]` pairs."""
    found: list[list[int]] = []
    for index in indexes:
        if found and found[-1][1] == index - 1:
            found[-1][1] = index
        else:
            found.append([index, index])
    return found
