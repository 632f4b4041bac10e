"""What replays found: turn by turn, in total, and for a report; and how figures are told."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

from context_compressor.events import CompressionEvent
from context_compressor.lab.measure.probes import KINDS, Probe, wilson

OURS = "ours"
RAW = "raw"

LEAST_BUDGET = 1_000
"""Budgets in tokens below which no saving is reported: hardly any real work is done in so little."""

EDIT_TOKENS = 1_200
"""What the agent's own model is taken to write at an event, as edits of the notes, where no model wrote."""
MESSAGE_TOKENS = 800
"""What the message that asks it for edits is taken to cost beside the notes: how they are edited, the numbers
of their lines, the room."""

_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What a token costs, in units of a plain input token."""

    cached: float = 0.1
    """In the prefix that a request shares, message for message, with the one before."""
    fresh: float = 1.0
    """In the rest of the request; more where a provider charges for writing its cache."""
    summary_input: float = 1.0
    """Read by whoever summarises."""
    summary_output: float = 4.0
    """Written by whoever summarises."""
    in_place_output: float = 5.0
    """Written by the agent's own model where it edits the notes in place."""

    def sending(self, tokens: int, cached: int) -> float:
        """Return what a request costs, so many tokens of which are cached."""
        return self.cached * cached + self.fresh * (tokens - cached)

    def summarising(self, read: int, written: int, cached: int = 0) -> float:
        """Return what a summary costs for which so many tokens were read and written."""
        return self.summary_input * (read - cached) + self.cached * cached + self.summary_output * written


PRICES = Prices()
CACHE_WRITE_PRICES = Prices(fresh=1.25)
"""Of Anthropic, which bills what is written to its cache: https://platform.claude.com/docs/en/about-claude/pricing."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A probe that was put to a view."""

    probe: Probe
    is_told: bool
    view_tokens: int
    """Tokens of the view; 0 where there was none."""


@dataclass(frozen=True, slots=True)
class Told:
    """How many probes views told."""

    told: int
    probes: int
    share: float
    low: float
    """Ends of the interval of 95 %, by Wilson."""
    high: float
    per_1000_tokens: float | None
    """The share to the mean tokens of the views, in thousands: what a view's room is used for."""


def count_told(asked: Sequence[Asked]) -> Told | None:
    """Return how many of some probes were told; None where there are none."""
    if not asked:
        return None
    told = sum(one.is_told for one in asked)
    low, high = wilson(told, len(asked))
    # Share to mean tokens: the number of probes stands on both sides.
    dense = _share(1000 * told, sum(one.view_tokens for one in asked))
    return Told(told, len(asked), told / len(asked), low, high, dense)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One turn of a replay. Tokens are those of the request, the history or what is said."""

    index: int
    """Index of the recorded assistant message."""
    raw_tokens: int
    """Tokens of what was really sent: the history, from where its program compacted it last."""
    raw_cached_tokens: int
    """Of these those that the request of the turn before held too."""
    view_tokens: int
    cached_tokens: int
    """Tokens of the messages at the start of the view that are those of the view before, one for one."""
    is_over: bool
    """Whether the view costs more than the budget."""
    is_sent: bool
    """Whether there was a view; where the system raised, its tokens are those of the history."""
    problems: tuple[str, ...]
    """What a provider would refuse; of many, the first and how many more."""
    paid_input_tokens: int
    """Read by a model to summarise, in this turn."""
    paid_output_tokens: int
    summary_input_tokens: int
    """Read by whoever summarised, in this turn."""
    summary_output_tokens: int
    in_place_cached_tokens: int
    """Read again, of the last request, by the agent's own model if it wrote in place what was summarised."""
    in_place_input_tokens: int
    """Read by it beside: the message at the end, with the notes; before the first request all that left."""
    in_place_output_tokens: int
    """Written by it: what a model wrote in this turn, or else what is assumed."""
    is_summarised: bool
    """Whether there was a summary by then."""
    seconds: float
    """Seconds that the system took, events that asked a model apart."""
    summary_seconds: float
    paid_cached_tokens: int = 0
    """Of what a model read to summarise, in this turn, what came out of its provider's prompt cache."""
    is_compacted: bool = False
    """Whether the program that was recorded had just put a summary in the place of its history."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What requests and summaries cost at some prices, in plain input tokens."""

    raw: float
    """Sending the history."""
    view: float
    """Sending the views."""
    spent: float
    """That, and the summaries that a model was paid for."""
    as_if_model: float
    """The views, and every summary as if a model had written it, asked apart."""
    in_place: float
    """The views, and edits of the notes, as if the agent's own model had written them in place."""
    spent_ratio: float | None
    """`spent` to `raw`."""
    as_if_model_ratio: float | None
    in_place_ratio: float | None


def cost_of(turns: Iterable[Turn], prices: Prices = PRICES) -> Cost:
    """Return what turns cost."""
    return _cost_at((turn, prices) for turn in turns)


def _cost_at(priced: Iterable[tuple[Turn, Prices]]) -> Cost:
    raw = view = paid = written = edited = 0.0
    for turn, prices in priced:
        raw += prices.sending(turn.raw_tokens, turn.raw_cached_tokens)
        view += prices.sending(turn.view_tokens, turn.cached_tokens)
        paid += prices.summarising(turn.paid_input_tokens, turn.paid_output_tokens, turn.paid_cached_tokens)
        written += prices.summarising(turn.summary_input_tokens, turn.summary_output_tokens)
        edited += prices.cached * turn.in_place_cached_tokens + prices.fresh * turn.in_place_input_tokens
        edited += prices.in_place_output * turn.in_place_output_tokens
    costs = view + paid, view + written, view + edited
    return Cost(raw, view, *costs, *(_share(cost, raw) for cost in costs))


@dataclass(frozen=True, slots=True)
class Times:
    """Milliseconds per turn, events that asked a model apart; and all of those."""

    median_ms: float | None
    p99_ms: float | None
    max_ms: float | None
    summaries_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What turns come to, of one session or many."""

    sessions: int
    turns: int
    raw_tokens: int
    view_tokens: int
    saved: float | None
    """Share of the raw tokens that views did not cost."""
    peak_tokens: int | None
    """Tokens of the largest view; None where there was none."""
    over: int
    """Turns whose view exceeds the budget."""
    invalid: int
    """Turns whose view a provider would refuse."""
    noted: int
    """Turns before which somebody was asked for a summary or notes, a model or rules in its place."""
    cost: Cost
    """At the prices of each session's provider."""
    cost_with_cache_writes: Cost
    """As if each of them billed writing its cache."""
    fill: float | None
    """The mean of view tokens to budget, over requests from a session's first summary on, if any."""
    told: Told | None
    """What the views tell of all probes; None where there are none."""
    told_by_kind: dict[str, Told]
    stored_texts: int
    stored_bytes: int
    time: Times


@dataclass(frozen=True, slots=True)
class Replay:
    """What the replay of one session found."""

    session: str
    system: str
    budget: int
    turns: tuple[Turn, ...]
    asked: tuple[Asked, ...]
    """The session's probes, in their order."""
    stored_texts: int
    """Texts in the store at the end, each once."""
    stored_bytes: int
    """Their bytes, in UTF-8."""
    prices: Prices = PRICES
    """Of the provider that the session was held with."""

    @property
    def cost(self) -> Cost:
        """What the turns cost."""
        return cost_of(self.turns, self.prices)

    def totals(self) -> Totals:
        """Return what the turns come to."""
        return total([self])

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-like data, the totals included. The same every time but for seconds."""
        asked = [
            {**one.probe.model_dump(), "told": one.is_told, "view_tokens": one.view_tokens}
            for one in self.asked
        ]
        return {**asdict(replace(self, asked=())), "asked": asked, "totals": asdict(self.totals())}


def total(replays: Sequence[Replay]) -> Totals:
    """Return what replays come to together: sums over all turns, so longer sessions weigh more."""
    turns = [turn for replay in replays for turn in replay.turns]
    spent = [1000 * turn.seconds for turn in turns]
    raw_tokens = sum(turn.raw_tokens for turn in turns)
    view_tokens = sum(turn.view_tokens for turn in turns)
    share = _share(view_tokens, raw_tokens)
    is_told = all(replay.budget >= LEAST_BUDGET for replay in replays)
    asked = [one for replay in replays for one in replay.asked]
    by_kind = {kind: count_told([one for one in asked if one.probe.kind == kind]) for kind in KINDS}
    fills = [
        turn.view_tokens / replay.budget
        for replay in replays
        for turn in replay.turns
        if turn.is_summarised and turn.is_sent
    ]
    return Totals(
        sessions=len(replays),
        turns=len(turns),
        raw_tokens=raw_tokens,
        view_tokens=view_tokens,
        saved=None if share is None or not is_told else 1 - share,
        peak_tokens=max((turn.view_tokens for turn in turns if turn.is_sent), default=None),
        over=sum(turn.is_over for turn in turns),
        invalid=sum(bool(turn.problems) for turn in turns),
        noted=sum(turn.summary_input_tokens > 0 for turn in turns),
        cost=_cost_at((turn, replay.prices) for replay in replays for turn in replay.turns),
        cost_with_cache_writes=cost_of(turns, CACHE_WRITE_PRICES),
        fill=_share(sum(fills), len(fills)),
        told=count_told(asked),
        told_by_kind={kind: told for kind, told in by_kind.items() if told is not None},
        stored_texts=sum(replay.stored_texts for replay in replays),
        stored_bytes=sum(replay.stored_bytes for replay in replays),
        time=Times(
            median_ms=percentile(spent, 0.5),
            p99_ms=percentile(spent, 0.99),
            max_ms=max(spent, default=None),
            summaries_ms=1000 * sum(turn.summary_seconds for turn in turns),
        ),
    )


def percentile(values: Sequence[_Number], share: float) -> _Number | None:
    """Return the smallest of the values that at least `share` of them do not exceed; None where none is."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


# What is watched, and what a report tells


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A text, or its two ends."""

    head: str
    tail: str
    left_out: int
    """Characters between the two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandIn:
    """A stub or notes as they first appeared in a view, beside what it stands for."""

    kind: str
    """`stub` or `notes`."""
    turn: int
    """The turn before which it appeared; the first is 1."""
    refs: tuple[str, ...]
    covers: tuple[int, ...]
    """Indexes of the messages that it stands for."""
    shown: Excerpt
    """What the agent reads."""
    shown_tokens: int
    full: Excerpt
    """What is stored under its refs."""
    full_tokens: int
    """Of that; for notes, those of all messages that they stand for."""


@dataclass(frozen=True, slots=True)
class TurnEvent:
    """An event, and the turn that it came in."""

    turn: int
    """The first is 1."""
    event: CompressionEvent


@dataclass(frozen=True, slots=True)
class SeenMessage:
    """A message as a view, or the history, has it."""

    role: str
    kind: str
    """`stub` or `notes`; empty for one of the history as it is."""
    index: int | None
    """Its place in the history; None for notes."""
    text: Excerpt


@dataclass(frozen=True, slots=True)
class TurnView:
    """What a turn made of the view before it. Messages are told by their places in `Watched.messages`."""

    kept: int
    """How many messages at the start of the view before it stayed."""
    first: int
    """The first message that the history got since."""
    count: int
    """How many it got; they follow each other."""
    rest: tuple[int, ...]
    """What stands in the view behind what stayed."""


@dataclass(frozen=True, slots=True)
class Watched:
    """The replay of one session by one system, and what was seen of it."""

    replay: Replay
    events: tuple[TurnEvent, ...] = ()
    stand_ins: tuple[StandIn, ...] = ()
    messages: tuple[SeenMessage, ...] = ()
    """What stood in any view or came into the history, each once."""
    views: tuple[TurnView, ...] = ()
    """One for each turn."""

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-like data, views and the texts of stand-ins left out."""
        events = [{"turn": one.turn, **asdict(one.event)} for one in self.events]
        for event in events:
            del event["message_ids"]  # made up while replaying: they name nothing in the input
        stand_ins = [asdict(one) for one in self.stand_ins]
        for stand_in in stand_ins:
            stand_in["messages"] = stand_in.pop("covers")
            del stand_in["shown"], stand_in["full"]
        return {**self.replay.to_dict(), "events": events, "stand_ins": stand_ins}


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
    title: str = ""
    """What its program called it, else the first request of its user."""
    has_instructions: bool = True
    """False where the recording holds none, as the transcripts of clients do not."""

    def run(self, system: str, budget: int) -> Watched:
        """Return the run of a system at a budget."""
        return next(one for one in self.runs if (one.replay.system, one.replay.budget) == (system, budget))


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
    edit_tokens: int = EDIT_TOKENS
    """What the agent's own model was taken to write at an event."""

    @property
    def is_interrupted(self) -> bool:
        """Whether sessions are missing because somebody stopped the replay."""
        return len(self.sessions) + len(self.failed) < self.asked_sessions

    @property
    def has_probes(self) -> bool:
        """Whether views were asked anything."""
        return any(session.probes for session in self.sessions)

    def tables(self) -> Iterator[tuple[int, list[tuple[str, Totals]]]]:
        """Yield for each budget what each system comes to, over all sessions."""
        for budget in self.budgets:
            yield (
                budget,
                [
                    (system, total([session.run(system, budget).replay for session in self.sessions]))
                    for system in self.systems
                ],
            )

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-like data, the texts of stand-ins left out."""
        return {
            "budgets": list(self.budgets),
            "systems": list(self.systems),
            "edit_tokens": self.edit_tokens,
            "interrupted": self.is_interrupted,
            "totals": [
                {"budget": budget, "system": system, **asdict(totals)}
                for budget, rows in self.tables()
                for system, totals in rows
            ],
            "sessions": [
                {
                    "name": session.name,
                    "title": session.title,
                    "source": session.source,
                    "messages": session.messages,
                    "tokens": session.tokens,
                    "probes": len(session.probes),
                    "runs": [run.to_dict() for run in session.runs],
                }
                for session in self.sessions
            ],
            "failed": [{"name": one.name, "why": one.why} for one in self.failed],
            "notes": [{"name": one.name, "why": one.why} for one in self.notes],
        }


# How figures are told

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
