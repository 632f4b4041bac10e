"""What a replay found: turn by turn, and in total. Data for `json.dumps` by `dataclasses.asdict`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

from context_compressor.measure.probes import KINDS, Probe, wilson

_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What a token costs, in units of a plain input token."""

    cached: float = 0.1
    """In the prefix that a request shares, message for message, with the one before."""
    fresh: float = 1.0
    """In the rest of the request; 1.25 where a provider charges for writing its cache."""
    summary_input: float = 1.0
    """Read by whoever summarises."""
    summary_output: float = 4.0
    """Written by whoever summarises."""


PRICES = Prices()
CACHE_WRITE_PRICES = Prices(fresh=1.25)


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
    dense = _ratio(1000 * told, sum(one.view_tokens for one in asked))
    return Told(told, len(asked), told / len(asked), low, high, dense)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One turn of a replay. Tokens are those of the request, the history or what is said."""

    index: int
    """Index of the recorded assistant message."""
    raw_tokens: int
    raw_cached_tokens: int
    """Tokens of the history that the request of the turn before held too."""
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
    is_summarised: bool
    """Whether there was a summary by then."""
    seconds: float
    """Seconds that the system took, its summariser apart."""
    summary_seconds: float


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
    """The views, and every summary as if a model had written it."""
    spent_ratio: float | None
    """`spent` to `raw`."""
    as_if_model_ratio: float | None


def cost_of(turns: Iterable[Turn], prices: Prices = PRICES) -> Cost:
    """Return what turns cost."""
    raw = view = paid = written = 0.0
    for turn in turns:
        raw += _weigh(turn.raw_tokens, turn.raw_cached_tokens, prices)
        view += _weigh(turn.view_tokens, turn.cached_tokens, prices)
        paid += prices.summary_input * turn.paid_input_tokens
        paid += prices.summary_output * turn.paid_output_tokens
        written += prices.summary_input * turn.summary_input_tokens
        written += prices.summary_output * turn.summary_output_tokens
    spent, as_if_model = view + paid, view + written
    return Cost(raw, view, spent, as_if_model, _ratio(spent, raw), _ratio(as_if_model, raw))


def _weigh(tokens: int, cached: int, prices: Prices) -> float:
    return prices.cached * cached + prices.fresh * (tokens - cached)


@dataclass(frozen=True, slots=True)
class Times:
    """Milliseconds per turn, the summariser apart; and all of the summariser's."""

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
    cost: Cost
    cost_with_cache_writes: Cost
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
    share = _ratio(view_tokens, raw_tokens)
    asked = [one for replay in replays for one in replay.asked]
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
        saved=None if share is None else 1 - share,
        peak_tokens=max((turn.view_tokens for turn in turns if turn.is_sent), default=None),
        over=sum(turn.is_over for turn in turns),
        invalid=sum(bool(turn.problems) for turn in turns),
        cost=cost_of(turns),
        cost_with_cache_writes=cost_of(turns, CACHE_WRITE_PRICES),
        fill=_ratio(sum(fills), len(fills)),
        told=count_told(asked),
        told_by_kind={
            kind: told
            for kind in KINDS
            if (told := count_told([one for one in asked if one.probe.kind == kind])) is not None
        },
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


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
