"""Learning from a provider's own counts how many tokens of ours it accepts. Pure: numbers in, numbers out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil, sqrt
from statistics import median
from typing import Annotated

from pydantic import Field, StrictInt

MAX_RATIO = 2.0
"""Tokens of a provider's per token of ours, at most. Vocabularies in use differ by less on what agents read:
one of 100,000 entries against one of 200,000 by some 1.1 in English or code, by up to 1.9 in Chinese."""
MAX_OFFSET_SHARE = 0.5
"""Share of the limit that may go to what a memory does not see: system prompt, tool schemas, template. With
`MAX_RATIO` it bounds what usage reports can do: they never leave less than a quarter of the limit."""
SMALL_SHARE = 0.02
SMALL_TOKENS = 64
"""A view that costs so little more than we count, by share or in tokens, says nothing against our ratio: a
chat template alone does that."""
ANCHORS = 3
"""Newest reports whose median says where we stand. One that belongs to another request is outvoted; when the
schemas have changed, the second report after that is believed."""
KEPT_REPORTS = 16
"""Newest reports that the ratio is taken from: with fewer, one odd report weighs more; older ones may be of
other schemas."""
NOISE = 0.02
"""Standard deviation that is assumed of a report, as a share of it, over the number of reports: two points
always lie on a line, sixteen show themselves how far they scatter."""
DEVIATIONS = 2.0
"""Standard deviations that a ratio or a budget is moved to the safe side by."""
MARGIN_SHARE = 0.01
"""Share of what reports take from the budget that is taken on top; where they take nothing, nothing."""
MAX_SPREAD_SHARE = 0.05
"""Share of the limit that scattered reports may take from the budget."""
REFUSED_SHARE = 0.8
"""Share of a refused view that the next one may cost, and the later ones as long as nothing is reported."""
BLIND_SHARE = 0.5
"""The same for the next view where nothing was accepted since the last refusal: it must not be refused again,
and the first report afterwards says how far the later ones may go."""
REPORTED_SHARE = 0.9
"""Share of a refused view that views may cost when reports say how much fits."""

_MAD_TO_DEVIATION = 1.4826
"""Makes the median absolute deviation of normal noise its standard deviation (Hampel, 1974)."""

_Tokens = Annotated[StrictInt, Field(ge=1)]
_TokensOrNone = Annotated[StrictInt, Field(ge=0)]


@dataclass(slots=True)
class Calibration:
    """Predict from pairs (our count of a view, the provider's count of its request) how large a view may be.

    A provider counts `ratio * ours + offset`: another vocabulary and a chat template, and what is sent beside
    the view. Each report anchors a line at a point that is known, so only the way from there to the limit
    has to be predicted: the view may cost `ours + (limit - theirs) / ratio`. While a view nears the limit, as
    it does between two events, that way gets short and the ratio matters less and less.

    - The ratio is the median of the slopes between any two reports, weighted by their distance (Theil, 1950;
      Sen, 1968; the weights are Jaeckel's, 1972), so a few odd reports do not move it. It is moved to the
      safe side by its standard error, which is large until two views of different size were reported; and
      no ratio is above `theirs / ours`, since the offset is not negative.
    - The budget is the median of what the newest `ANCHORS` reports allow; of two, the lower.
    - A margin follows from how much the reports scatter, and from how much is taken at all; but a view that
      was accepted within the limit may stay.
    - A refusal says that a view costs more than the limit, whatever the reports said: they anchor no more.

    What it learnt is saved as `dataclasses.asdict` gives it, and read and checked by pydantic.

    Attributes:
        reports: the newest, each our count and the provider's.
        limit: the lowest limit that a provider named; None before.
        refused: our count of the smallest view that was refused; None before.
    """

    reports: list[tuple[_Tokens, _Tokens]] = field(default_factory=list)
    accepted: _TokensOrNone = 0
    """Reports since the last refusal, those kept; only they anchor."""
    limit: _Tokens | None = None
    refused: _Tokens | None = None
    next_tokens: _TokensOrNone | None = None
    """What the view after a refusal may cost, until it was made."""
    conceded: _TokensOrNone = 0
    """What a view that could not become smaller costs."""

    def __post_init__(self) -> None:
        if self.accepted > len(self.reports):
            raise ValueError(f"accepted: {self.accepted} of {len(self.reports)} reports")
        self.reports = self.reports[-KEPT_REPORTS:]
        self.accepted = min(self.accepted, KEPT_REPORTS)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was learnt."""
        return not self.reports and self.limit is None and self.refused is None

    @property
    def proven_ratio(self) -> float:
        """Tokens of the provider's per token of ours, as far as reports prove that they are more."""
        return self._ratios()[0]

    def nearest(self, ours: int) -> tuple[int, int] | None:
        """Return the report of what was nearest to `ours` tokens, of several the newest; None before any."""
        return min(reversed(self.reports), key=lambda report: abs(report[0] - ours), default=None)

    def expected(self, ours: int) -> int | None:
        """Return what a request with a view of `ours` tokens costs, on the safe side; None before any."""
        found = self.nearest(ours)
        if found is None:
            return None
        (near, theirs), (lowest, highest) = found, self._ratios()
        return theirs + ceil((ours - near) * min(lowest if ours < near else highest, theirs / near))

    @property
    def is_shrinking(self) -> bool:
        """Whether the view after a refusal was not made yet."""
        return self.next_tokens is not None

    def record_usage(self, ours: int, theirs: int) -> None:
        """Note that a view of `ours` tokens was accepted and cost `theirs`; reports of 0 are left out."""
        if ours <= 0 or theirs <= 0:
            return
        self.reports = [*self.reports, (ours, theirs)][-KEPT_REPORTS:]
        self.accepted = min(self.accepted + 1, KEPT_REPORTS)
        self.next_tokens, self.conceded = None, 0

    def record_overflow(self, ours: int | None, limit: int | None = None) -> None:
        """Note that a view of `ours` tokens was refused as too long by a provider that may name its limit."""
        if limit is not None:
            self.limit = limit if self.limit is None else min(self.limit, limit)
        if not ours:
            return
        self.refused = ours if self.refused is None else min(self.refused, ours)
        if self.accepted:
            self.next_tokens = int(REFUSED_SHARE * ours)
        else:
            self.next_tokens = int(BLIND_SHARE * min(ours, self.limit or ours))
        self.accepted, self.conceded = 0, 0

    def end_shrinking(self) -> None:
        """Note that the view after a refusal was made."""
        self.next_tokens = None

    def forget_refusals(self) -> None:
        """Forget refusals, what was conceded after them, and the limit that a provider named; not reports."""
        self.limit = self.refused = self.next_tokens = None
        self.accepted, self.conceded = len(self.reports), 0

    def concede(self, ours: int, limit: int) -> bool:
        """Let a view be that cannot become smaller, unless a report or a refusal rules it out.

        Returns:
            Whether it may be tried; the budget is then no lower until the next report or refusal.
        """
        if self.refused is not None and ours >= self.refused:
            return False
        limit = self._limit(limit)
        lowest, _ = self._ratios()
        possible = [_allowed(report, limit, lowest, lowest) for report in self._anchors(limit)]
        if ours > max(possible, default=limit):
            return False
        self.conceded = ours
        return True

    def budget(self, limit: int, most: int) -> int:
        """Return how many of our tokens a view may cost so that the provider counts no more than `limit`.

        Args:
            limit: what a request may cost by the provider's count.
            most: what a view may cost by ours; never exceeded. What `limit` is above it is held back for the
                rest of a request, so that much more is expected of every report.
        """
        lowered = self._limit(limit)
        found: float = min(most, lowered)
        if self._anchors(lowered):
            found = min(found, self._fitting(lowered, min(most, lowered), limit - most))
        if self.refused is not None:
            share = REPORTED_SHARE if self.accepted else REFUSED_SHARE
            if self.limit is not None and self.limit > limit:
                share *= max(0.5, limit / self.limit)  # the refused view costs more than what was named
            found = min(found, int(share * self.refused))
        if self.next_tokens is not None:
            found = min(found, self.next_tokens)
        return max(1, min(most, max(int(found), self.conceded)))

    def _limit(self, limit: int) -> int:
        return limit if self.limit is None else min(limit, self.limit)

    def _anchors(self, limit: int) -> list[tuple[int, int]]:
        """Return the newest reports since the last refusal."""
        if len(self.reports) == 1:
            # The very first may be of another request: what our bounds do not allow has to be said twice.
            ours, theirs = self.reports[0]
            if theirs > MAX_RATIO * ours + MAX_OFFSET_SHARE * limit:
                return []
        return self.reports[len(self.reports) - min(self.accepted, ANCHORS) :]

    def _fitting(self, limit: int, most: int, reserved: int) -> float:
        """Return what the reports say that fits, on the safe side; `reserved` tokens more are expected."""
        lowest, highest = self._ratios()
        accepted = self.reports[len(self.reports) - self.accepted :]
        allowed = [_allowed(report, limit, lowest, highest, reserved) for report in accepted]
        newest = allowed[-ANCHORS:]
        found = min(newest) if len(newest) < ANCHORS else median(newest)
        found -= min(DEVIATIONS * _deviation(allowed), MAX_SPREAD_SHARE * limit)
        found -= MARGIN_SHARE * max(0.0, most - found)
        ours, theirs = accepted[-1]
        if theirs <= limit:
            found = max(found, ours)  # what stands has been proven to fit
        return max(found, limit * (1 - MAX_OFFSET_SHARE) / MAX_RATIO)

    def _ratios(self) -> tuple[float, float]:
        """Return the lowest and the highest ratio that agree with the reports."""
        reports = self.reports
        middle = sum(ours for ours, _ in reports) / max(1, len(reports))
        width = sqrt(sum((ours - middle) ** 2 for ours, _ in reports))
        if not width:
            return 1.0, MAX_RATIO
        slope = _weighted_median(
            [
                ((theirs - others) / (ours - other), abs(ours - other))
                for index, (ours, theirs) in enumerate(reports)
                for other, others in reports[:index]
                if ours != other
            ]
        )
        noise = NOISE / len(reports) * median(theirs for _, theirs in reports)
        noise = max(noise, _deviation([theirs - slope * ours for ours, theirs in reports]))
        error = DEVIATIONS * noise / width
        return _bounded(slope - error), _bounded(slope + error)


def _allowed(report: tuple[int, int], limit: int, lowest: float, highest: float, reserved: int = 0) -> float:
    """Return what a view may cost by our count, going from a report to the limit; at most the limit."""
    ours, theirs = report
    if theirs > limit:
        return ours - (theirs - limit) / lowest
    is_expected = theirs - ours <= reserved + max(SMALL_TOKENS, SMALL_SHARE * ours)
    ratio = min(highest, 1.0 if is_expected else theirs / ours)
    return min(limit, ours + (limit - theirs) / ratio)


def _bounded(ratio: float) -> float:
    return min(max(ratio, 1.0), MAX_RATIO)


def _deviation(values: Sequence[float]) -> float:
    """Return the standard deviation of values, few of which may be wild."""
    middle = median(values)
    return _MAD_TO_DEVIATION * median(abs(value - middle) for value in values)


def _weighted_median(weighted: Iterable[tuple[float, float]]) -> float:
    """Return the value with half of the weight below it; each comes with its weight."""
    ordered = sorted(weighted)
    half = sum(weight for _, weight in ordered) / 2
    passed = 0.0
    for value, weight in ordered:
        passed += weight
        if passed >= half:
            return value
    raise ValueError("a median of nothing")
