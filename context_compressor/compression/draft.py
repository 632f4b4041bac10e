"""A plan in the making. Pure: no clock, no I/O, no randomness.

Of the shares below, `SEGMENT_SHARE` and `SHARE_PER_DOUBLING` were set by what recorded sessions then cost and
keep known (`benchmarks/savings.py`; `benchmarks/ablation.py` tells what each is worth), as was
`SUMMARY_RATIO`. The others were chosen.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from math import inf, log2

from context_compressor.compression.plans import Plan, PlannedSegment, Situation
from context_compressor.compression.pricing import (
    SUMMARY_RATIO,
    cheapest_growth,
    growth_that_pays,
    staying_messages,
    tokens_per_turn,
)
from context_compressor.compression.stub_draft import StubDraft
from context_compressor.compression.units import Unit, newest_request
from context_compressor.compression.view import ViewItem

SEGMENT_SHARE = 0.33
"""Share of the budget beside the fixed messages that all segments together may hold; beyond it they merge."""
SHARE_PER_DOUBLING = 0.16
"""What this share gains each time that the history doubles, from `LONG_HISTORY` budgets on: the more is
summarised the more there is to know of it, and the less it costs, beside the history, to show some more."""
LONG_HISTORY = 7
"""Budgets that a history fills before it counts as long."""
MOST_SEGMENT_SHARE = 0.72
"""What this share never exceeds: the rest is for the messages that are worked with."""
HIDDEN_WEIGHT = 0.1
"""What a token behind a stub counts beside one that stands in the view, where the room of a summary is
reckoned: the index names what is behind stubs, too, but of most of it the agent made nothing."""
MOST_SUMMARY_RATIO = 0.5
"""Tokens of summary and index per token that leaves the view, at most."""
MERGE_RATIO = 0.8
"""Tokens of a merged summary per token of the summaries that it replaces: those are dense already."""
LEAST_ROOM = 0.05
"""Share of the budget that recent messages have to free if they are to leave for the next event's sake."""
MIN_SUMMARY_TOKENS = 64
"""A summary below this says too little to be worth its label."""


class Draft(StubDraft):
    """A plan in the making: what leaves so far, and what the view would cost.

    Attributes:
        target: tokens that an event is to reach; 0 by hand, where all leaves that may.
        merging: segments that stand in the view and are to become one.
        refs_only: whether segments only name their refs, without a summary.
    """

    def __init__(self, items: Sequence[ViewItem], situation: Situation) -> None:
        super().__init__(items, situation)
        config = situation.config
        self.merging: list[Unit] = []
        self.refs_only = config.mode == "compact"
        self._is_shrunk = False
        self._fixed = situation.extra_tokens + sum(unit.tokens for unit in self.units if unit.fixed)
        room = max(0, config.budget - self._fixed)
        self.target = 0 if situation.manual else int(self._fixed + config.target_ratio * room)
        most = config.max_view_messages
        self._most_segments = inf if most is None else max(1, (most - staying_messages(self.units)) // 2)
        self._share = int(_segment_share(situation.history_tokens / config.budget) * room)

    # Segments

    @property
    def _has_segment(self) -> bool:
        return any(unit.segment for unit in self.units)

    def pays(self) -> bool:
        """Tell whether to summarise now is cheaper than to wait until the budget asks for it.

        Only where segments stand already: a session that never reaches its budget is left as it is.
        """
        old = [unit for unit in self.units if unit.compressible]
        if not (old and self._has_segment):
            return False
        leaving = self._tokens_in(old)
        segment = self._segment_cost(leaving)
        behind = self._tokens_in(self.units[old[0].position :]) - leaving
        growth = growth_that_pays(segment + behind, tokens_per_turn(self.units), self.situation.config)
        return leaving - segment >= growth

    def compress(self, candidates: Iterable[Unit], goal: int) -> None:
        """Let units leave, the oldest first, until the view reaches `goal` tokens."""
        grouped = self._tokens_in(self.leaving.values())
        threshold, merged = self.situation.config.group_token_threshold, self._merged_cost
        for unit in candidates:
            if self.projected <= goal:
                break
            if unit.key in self.leaving or unit in self.merging:
                continue
            tokens = self._tokens_of(unit)
            self.leaving[unit.key] = unit
            self._staying -= tokens
            grouped += tokens
            groups = 1 if threshold is None else -(-grouped // threshold)
            self._segments_cost = groups * self._segment_cost(grouped // groups, groups) + merged
        self._settle()

    def make_room(self, recent: Sequence[Unit]) -> None:
        """Let recent units leave, too, the oldest first, where the next event would follow before it pays.

        Where exchanges are large, the recent ones fill what an event has emptied: a view that then has to
        change on every other turn costs more than the whole history does. Not before the second summary of
        a session, not where a user set how many are to stay, and not for less than a twentieth of the budget.
        """
        config = self.situation.config
        if not (config.may_shrink_recent and self._has_segment):
            return
        standing = self.projected - self._fixed
        growth = cheapest_growth(standing, tokens_per_turn(self.units), config.cached_price)
        goal = int(max(self.target, config.budget - growth))
        if min(self.projected - goal, self.gain_of(recent)) >= LEAST_ROOM * config.budget:
            self.compress(recent, goal)

    def gain_of(self, candidates: Sequence[Unit]) -> int:
        """Return the tokens of those among these units that stay: at most so many would leave with them."""
        return self._tokens_in([unit for unit in candidates if unit.key not in self.leaving])

    def _tokens_of(self, unit: Unit) -> int:
        return unit.tokens - self._saved.get(unit.key, 0)

    def _tokens_in(self, units: Collection[Unit]) -> int:
        tokens = sum([unit.tokens for unit in units])
        return tokens - sum([self._saved.get(unit.key, 0) for unit in units]) if self._saved else tokens

    def _segment_cost(self, grouped_tokens: int, groups: int = 1) -> int:
        return self.situation.costs.segment + self._summary_tokens(grouped_tokens, groups)

    def _summary_tokens(self, grouped_tokens: int, groups: int = 1, hidden_tokens: int = 0) -> int:
        """Return what the summary of a group may cost, where an event makes so many.

        Args:
            grouped_tokens: of the group, as it stands in the view.
            groups: of the event.
            hidden_tokens: of what stubs in the group stand for.
        """
        if self.refs_only:
            return 0
        wanted = int((grouped_tokens + HIDDEN_WEIGHT * hidden_tokens) * SUMMARY_RATIO)
        wanted = max(MIN_SUMMARY_TOKENS, min(wanted, int(MOST_SUMMARY_RATIO * grouped_tokens)))
        # Half the share for all of an event, so that the segments of two events stand before they merge.
        wanted = min(wanted, max(MIN_SUMMARY_TOKENS, self._share // 2 // groups))
        return wanted if self.situation.costs.segment + wanted < grouped_tokens else 0

    def _merged_tokens(self, segments: Iterable[Unit]) -> int:
        """Return what the summary of segments that merge may cost."""
        held = sum(unit.tokens for unit in segments)
        return 0 if self.refs_only else min(int(held * MERGE_RATIO), self._share // 2)

    @property
    def _merged_cost(self) -> int:
        """Tokens of the segment that stands for those that merge."""
        if not self.merging:
            return 0
        return self.situation.costs.segment + self._merged_tokens(self.merging)

    def _settle(self) -> None:
        """Drop groups that would not gain, merge segments beyond their share, and reckon exactly."""
        for group, tokens, summary in self._groups_with_tokens():
            if self.situation.costs.segment + summary >= tokens or self._may_wait(group):
                for unit in group:
                    del self.leaving[unit.key]
        self._reckon_segments()
        standing = [u for u in self.units if u.segment and not u.volatile and u.key not in self.leaving]
        held = sum(unit.tokens for unit in standing)
        crowded = len(standing) > 1 and (
            held + self._segments_cost > self._share or len(standing) > self._most_segments
        )
        gains = self.situation.costs.segment + self._merged_tokens(standing) < held
        if not self.merging and crowded and gains:
            self.merging = standing
        self._reckon_staying()
        self._segments_cost += self._merged_cost

    def _groups_with_tokens(self) -> list[tuple[list[Unit], int, int]]:
        """Return each group of leaving units, its tokens, and those that its summary may cost."""
        groups = self._groups()
        sizes = [self._tokens_in(group) for group in groups]
        return [
            (group, size, self._summary_tokens(size, len(groups), self._hidden_in(group)))
            for group, size in zip(groups, sizes, strict=True)
        ]

    def _hidden_in(self, group: Iterable[Unit]) -> int:
        """Return the tokens of what stubs hide in a group, those included that the plan makes."""
        hidden = 0
        for unit in group:
            hidden += self._saved.get(unit.key, 0)
            hidden += sum(max(0, i.source_tokens.total - i.tokens) for i in unit.items if i.stubs)
        return hidden

    def _groups(self) -> list[list[Unit]]:
        """Return the leaving units in groups of at most `group_token_threshold` tokens, in view order."""
        threshold = self.situation.config.group_token_threshold
        groups: list[list[Unit]] = []
        filled = 0
        # Merged segments stand before the messages of their group, as the ledger lists them.
        for unit in sorted(self.leaving.values(), key=lambda u: (u.volatile, not u.segment, u.position)):
            tokens = self._tokens_of(unit)
            full = threshold is not None and filled + tokens > threshold and not self.refs_only
            if not groups or full or groups[-1][0].volatile != unit.volatile:
                groups.append([])
                filled = 0
            groups[-1].append(unit)
            filled += tokens
        return groups if threshold is None else self._joined(groups, threshold)

    def _joined(self, groups: list[list[Unit]], threshold: int) -> list[list[Unit]]:
        """Let groups that are too small for a summary go with a neighbour above the threshold."""
        joined: list[list[Unit]] = []
        for group in groups:
            before = joined[-1] if joined and joined[-1][0].volatile == group[0].volatile else group
            small, large = sorted((before, group), key=self._tokens_in)
            if before is not group and self._is_thin(small) and self._tokens_in(large) > threshold:
                joined[-1] = [*before, *group]
            else:
                joined.append(group)
        return joined

    def _is_thin(self, group: Collection[Unit]) -> bool:
        """Tell whether there is no room to summarise a group: only its ref would be left."""
        return not self.refs_only and not self._summary_tokens(self._tokens_in(group))

    def _may_wait(self, group: Collection[Unit]) -> bool:
        """Tell whether a group stays until there is more to summarise with it, as what is cut off may be."""
        config = self.situation.config
        is_cut_off = config.group_token_threshold is not None and config.max_view_messages is None
        return is_cut_off and not self._is_shrunk and self._is_thin(group)

    # The last means

    def shrink_to_refs(self, goal: int) -> None:
        """Leave less and less, in the end nothing but refs, until the budget holds.

        What is missed most comes last, and is left as long as there is room: first all but the last exchange
        is cut to reach `goal`.
        """
        budget, request = self.situation.config.budget, newest_request(self.units)
        least_room = (goal + budget) // 2  # what arguments cost is estimated
        ordinary = [u for u in self.units if not (u.fixed or u.volatile or u.kept or u is request)]
        recent = [u for u in ordinary if u.recent]
        volatile = [u for u in self.units if u.volatile and not u.fixed]
        last = recent[-1:]
        self.shrink([u for u in (*volatile, *ordinary) if u not in last], goal)
        self.shrink((*volatile, *ordinary), least_room)
        if self.projected <= budget:
            return
        self.refs_only = self._is_shrunk = True
        self._settle()
        self._let_go([u for u in ordinary if not u.recent], *([u] for u in recent[:-1]))
        self.shrink(self.units, least_room)
        kept = [u for u in self.units if u.kept and not (u.fixed or u.volatile or u is request)]
        self._let_go(kept, last, [u for u in self.units if u is request and not u.fixed], volatile)
        self._sum_up_again()

    def _let_go(self, *batches: Collection[Unit]) -> None:
        """Let units leave for nothing but the budget, until it holds."""
        for units in batches:
            if self.projected <= self.situation.config.budget:
                return
            self.merging = []
            for unit in units:
                self.leaving.setdefault(unit.key, unit)
            self._reckon_staying()
            self._reckon_segments()

    def _reckon_staying(self) -> None:
        staying = [u for u in self.units if u.key not in self.leaving and u not in self.merging]
        self._staying = self._beside + self._tokens_in(staying)

    def _reckon_segments(self) -> None:
        segment = self.situation.costs.segment
        self._segments_cost = sum(segment + summary for _, _, summary in self._groups_with_tokens())

    def _sum_up_again(self) -> None:
        """Plan summaries after all, where what left made room for them."""
        if self.merging or self.situation.config.mode == "compact":
            return
        self.refs_only = False
        self._reckon_segments()
        if self.projected > self.situation.config.budget:
            self.refs_only = True
            self._reckon_segments()

    def finish(self, reason: str) -> Plan | None:
        """Return the plan, or None when it would not make the view smaller."""
        segments = [PlannedSegment(tuple(group), summary) for group, _, summary in self._groups_with_tokens()]
        if self.merging:
            merged = self._merged_tokens(self.merging)
            first = segments[0] if segments else None
            if first and first.summary_tokens:
                # One segment for both: two indices would name the same, and that of what merges could not
                # tell what is still in use.
                segments[0] = PlannedSegment((*self.merging, *first.units), merged + first.summary_tokens)
            else:
                segments.append(PlannedSegment(tuple(self.merging), merged))
        if not (self.stubs or segments) or self.projected >= self.tokens_now:
            return None
        return Plan(tuple(self.stubs.values()), tuple(segments), reason, self.projected)


def _segment_share(history: float) -> float:
    """Return which share of the room segments may hold, for a history of so many budgets."""
    doublings = log2(max(1.0, history / LONG_HISTORY))
    return min(SEGMENT_SHARE + SHARE_PER_DOUBLING * doublings, MOST_SEGMENT_SHARE)
