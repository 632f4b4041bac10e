"""A plan in the making: which exchanges leave for segments, and which segments merge.

Pure: no clock, no I/O, no randomness.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from math import inf, log2

from context_compressor.compression.edits import ItemKey
from context_compressor.compression.items import ViewItem
from context_compressor.compression.plans import Plan, PlannedSegment, Reason, Situation
from context_compressor.compression.stub_draft import StubDraft
from context_compressor.compression.units import Unit, newest_request, staying_messages, with_callers

SUMMARY_RATIO = 1 / 5
"""Tokens of a segment per token of the messages that it stands for, and share of the budget that it holds at
most."""
SEGMENTS_SHARE = 1 / 3
"""Share of the budget that all segments together may hold; beyond it neighbours merge."""
LEAST_TOKENS = 300
"""What a segment may say however little it stands for, where that is less than what leaves."""
MIN_SUMMARY_TOKENS = 64
"""A summary below this says too little to be worth its label."""
STANDING_SHARE = 1 / 10
"""Share of the budget that standing instructions may hold, word for word."""
LEAST_STANDING_TOKENS = 400
"""What they may hold in any budget, but for half of it."""
_HEADING_TOKENS = 40
"""What stands around all of them: a heading, and where the older ones are."""

Run = list[Unit]
"""What one segment stands for, in the order of the view."""


class Draft(StubDraft):
    """A plan in the making: what leaves so far, and what the view would cost.

    Attributes:
        target: tokens that an event is to reach.
        refs_only: whether segments only name their refs, without a summary.
    """

    def __init__(self, items: Sequence[ViewItem], situation: Situation) -> None:
        super().__init__(items, situation)
        config = situation.config
        self.refs_only = config.mode == "compact"
        self._planned: list[PlannedSegment] = []
        self._is_shrunk = False
        self._group_count = 1
        fixed = situation.extra_tokens + sum(unit.tokens for unit in self.units if unit.fixed)
        room = max(0, config.budget - fixed)
        self.target = int(fixed + config.target_ratio * room)
        most = config.max_view_messages
        self._most_segments = inf if most is None else max(1, (most - staying_messages(self.units)) // 2)

    @property
    def bearable(self) -> int:
        """What a view may cost after an event that does not reach its target.

        Stopping at the budget itself would force the next turn's event, too, and so on every turn.
        """
        return (self.target + self.situation.config.budget) // 2

    # Segments

    def compress(self, candidates: Iterable[Unit], goal: int) -> None:
        """Let units leave, the oldest first, until the view reaches `goal` tokens."""
        standing = self._standing_segments()
        held = sum(unit.tokens for unit in standing) - self._standing_tokens(standing)
        label, config = self.situation.costs.segment, self.situation.config
        left = [unit for unit in self.units if unit.key in self.leaving]
        most_standing = self._most_standing(left)
        stands_for = gaining = verbatim = tokens = 0
        self._reckon_staying(self.leaving)
        self._segments_cost = 0

        def take(unit: Unit) -> None:
            """Reckon with a unit more; segments beyond their share merge."""
            nonlocal stands_for, gaining, verbatim, tokens
            stands_for += unit.stands_for_tokens
            gaining += self._worth_telling(unit)
            verbatim += self._standing_tokens([unit]) if unit.standing_tokens else 0
            tokens += self._tokens_of(unit)
            if config.group_token_threshold is not None:
                self._group_count = -(-tokens // config.group_token_threshold)
            room, said = self._room_for(stands_for, gaining, verbatim, most_standing)
            most = max(SEGMENTS_SHARE * config.budget - held, label)
            self._segments_cost = said + int(min(label + room - said, most))

        for unit in left:
            take(unit)
        for unit in candidates:
            if self.projected <= goal:
                break
            if unit.key in self.leaving:
                continue
            self.leaving[unit.key] = unit
            self._staying -= self._tokens_of(unit)
            take(unit)
        self._settle()

    def _tokens_of(self, unit: Unit) -> int:
        return unit.tokens - self._saved.get(unit.key, 0)

    def _worth_telling(self, unit: Unit) -> int:
        """Return how many of its tokens a segment may say at most.

        Earlier segments are dense; of what leaves only now, that is half, and what is told word for word.
        """
        tokens = self._tokens_of(unit)
        if unit.segment:
            return tokens
        return int(tokens + min(tokens, unit.standing_tokens)) // 2

    def _tokens_in(self, units: Iterable[Unit]) -> int:
        return sum(map(self._tokens_of, units))

    def _standing_segments(self) -> list[Unit]:
        return [u for u in self.units if u.segment and not u.volatile and u.key not in self.leaving]

    def _room(self, run: Collection[Unit], free: float = inf) -> tuple[int, int]:
        """Return what a segment may say, in tokens beside its label, and how much of that word for word.

        Args:
            run: what it is to stand for.
            free: what there is for its label and its summary.
        """
        stands_for = sum(unit.stands_for_tokens for unit in run)
        gaining = sum(map(self._worth_telling, run))
        return self._room_for(stands_for, gaining, self._standing_tokens(run), self._most_standing(run), free)

    def _room_for(
        self, stands_for: int, gaining: int, standing: int, most_standing: int, free: float = inf
    ) -> tuple[int, int]:
        if self.refs_only:
            return 0, 0
        budget, label = self.situation.config.budget, self.situation.costs.segment
        standing = min(standing, most_standing)
        # Of the many groups of an event each has its part.
        most = max(SEGMENTS_SHARE * budget / self._group_count, MIN_SUMMARY_TOKENS)
        least = max(LEAST_TOKENS / self._group_count, MIN_SUMMARY_TOKENS)
        summary = max(least, min(SUMMARY_RATIO * min(stands_for, budget), most, free - label))
        room = int(min(summary + standing, gaining - label - 1))  # what costs as much as it replaces is none
        return (room, min(standing, room)) if room >= MIN_SUMMARY_TOKENS else (0, 0)

    def _most_standing(self, run: Collection[Unit]) -> int:
        """Return what a segment may say word for word, beside the segments that stay."""
        budget = self.situation.config.budget
        most = min(max(int(STANDING_SHARE * budget), LEAST_STANDING_TOKENS), budget // 2)
        held = self._standing_tokens(unit for unit in self._standing_segments() if unit not in run)
        return max(most - held, most // 4)

    def _standing_tokens(self, run: Iterable[Unit]) -> int:
        """Return about how many tokens the standing instructions in a run take."""
        tokens = sum(unit.standing_tokens for unit in run)
        return int(tokens) + _HEADING_TOKENS if tokens else 0

    def _settle(self) -> None:
        """Decide which segments are made, of what, and reckon exactly."""
        groups = self._groups()
        self._group_count = max(1, len(groups))
        runs = self._arranged(groups)
        self._planned = []
        for run, free in runs:
            summary, standing = self._room(run, free)
            gains = self.situation.costs.segment + summary < self._tokens_in(run)
            if gains and (summary or not self._may_wait):
                ordered = sorted(run, key=lambda u: (not u.segment, u.position))
                # Tokens by characters are a guess: where there is room, none is lost to it.
                most = min(self._most_standing(run), summary) if standing else 0
                self._planned.append(PlannedSegment(tuple(ordered), summary, most))
            else:
                for unit in run:
                    self.leaving.pop(unit.key, None)
        self._reckon()
        self._squeeze()

    def _squeeze(self) -> None:
        """Leave segments less to say, as long as that says something, where what stays leaves little room."""
        goal = self.situation.config.budget if self.situation.manual else self.bearable
        missing = self.projected - goal
        if missing <= 0 or self.refs_only:
            return
        said = sum(planned.summary_tokens for planned in self._planned)
        squeezed: list[PlannedSegment] = []
        for planned in self._planned:
            left = planned.summary_tokens - -(-missing * planned.summary_tokens // max(1, said))
            squeezed.append(PlannedSegment(planned.units, left, min(planned.standing_tokens, left)))
        if min((planned.summary_tokens for planned in squeezed), default=0) >= MIN_SUMMARY_TOKENS:
            self._planned = squeezed
            self._reckon()

    def _arranged(self, groups: list[Run]) -> list[tuple[Run, float]]:
        """Return what each segment of the plan is to stand for, and the tokens that there are for it.

        Segments that together exceed their share, or the budget, merge with neighbours that stand for about
        as much, the oldest first, and no more of them than makes room: so how often a message is
        summarised again grows with the logarithm of what came after it (the logarithmic method of Bentley and
        Saxe, 1980).
        """
        volatile = [(run, inf) for run in groups if run[0].volatile]
        standing = [[unit] for unit in self._standing_segments()]
        runs = [*standing, *(run for run in groups if not run[0].volatile)]
        runs.sort(key=lambda run: run[-1].position)
        most = SEGMENTS_SHARE * self.situation.config.budget

        def cost(run: Run, free: float = inf) -> tuple[int, int]:
            """Return what a segment costs beside what it says word for word, and that."""
            if run in standing:
                said = self._standing_tokens(run)
                return max(0, run[0].tokens - said), said
            room, said = self._room(run, free)
            return self.situation.costs.segment + room - said, said

        def is_thin(run: Run) -> bool:
            return run not in standing and not (self.refs_only or self._room(run)[0])

        def may_join(one: Run, other: Run) -> bool:
            threshold = self.situation.config.group_token_threshold
            crowded = len(runs) > self._most_segments
            if threshold is None or crowded or any(unit.segment for unit in (*one, *other)):
                return True
            return max(self._tokens_in(one), self._tokens_in(other)) > threshold

        weights = [sum(unit.stands_for_tokens for unit in run) for run in runs]
        # Each level of merging has its part: the more a memory lives through, the less each may hold.
        levels = max(1.0, log2(max(1, sum(weights) / max(1, weights[-1])))) if runs else 1.0
        fair = most / levels
        free = dict.fromkeys(map(id, runs), inf)
        costs = [cost(run) for run in runs]
        self._reckon_staying(self.leaving)
        beside = self._staying - sum(run[0].tokens for run in standing)
        while len(runs) > 1 and not (self.refs_only and self._is_shrunk):
            total = sum(beside_words for beside_words, _ in costs)
            thin = [place for place, run in enumerate(runs) if is_thin(run)]
            over = beside + sum(map(sum, costs)) > self.situation.config.budget
            if not (thin or total > most or over or len(runs) > self._most_segments):
                break
            pairs = [
                p
                for p in range(len(runs) - 1)
                if (not thin or p in thin or p + 1 in thin) and may_join(runs[p], runs[p + 1])
            ]
            if not pairs:
                break
            place = min(pairs, key=lambda p: _likeness(runs[p], runs[p + 1]))
            merged = [*runs[place], *runs[place + 1]]
            room = min(most - total + costs[place][0] + costs[place + 1][0], fair)
            self._group_count = max(1, self._group_count - 1)
            runs[place : place + 2], costs[place : place + 2] = [merged], [cost(merged, room)]
            free[id(merged)] = room
        return [*volatile, *((run, free[id(run)]) for run in runs if run not in standing)]

    def _groups(self) -> list[Run]:
        """Return the leaving units in groups of at most `group_token_threshold` tokens, in view order."""
        threshold = self.situation.config.group_token_threshold
        groups: list[Run] = []
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
        return groups

    @property
    def _may_wait(self) -> bool:
        """Whether a group that is too small for a summary stays until there is more to leave with it."""
        if self.situation.manual or self.situation.config.max_view_messages:
            return False
        return not (self.refs_only or self._is_shrunk)

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
            for unit in with_callers(units):
                self.leaving.setdefault(unit.key, unit)
            self._plan_groups()

    def _plan_groups(self, free: float = inf) -> None:
        """Plan a segment for each group that leaves, however little it says."""
        label = self.situation.costs.segment
        planned = [PlannedSegment(tuple(group), *self._room(group, free)) for group in self._groups()]
        self._planned = [p for p in planned if label + p.summary_tokens < self._tokens_in(p.units)]
        self._reckon()

    def _sum_up_again(self) -> None:
        """Plan summaries after all, where what left made room for them."""
        if self.situation.config.mode == "compact":
            return
        free = self.situation.config.budget - self._staying
        self.refs_only = False
        self._plan_groups(free // max(1, len(self._planned)))
        if self.projected > self.situation.config.budget:
            self.refs_only = True
            self._plan_groups()

    # Reckoning

    def _reckon(self) -> None:
        """Reckon what the view costs with the segments that are planned."""
        self._reckon_staying({unit.key for planned in self._planned for unit in planned.units})
        label = self.situation.costs.segment
        self._segments_cost = sum(label + planned.summary_tokens for planned in self._planned)

    def _reckon_staying(self, gone: Collection[ItemKey]) -> None:
        self._staying = self._beside + self._tokens_in(u for u in self.units if u.key not in gone)

    def gain_of(self, candidates: Sequence[Unit]) -> int:
        """Return the tokens of those among these units that stay: at most so many would leave with them."""
        return self._tokens_in([unit for unit in candidates if unit.key not in self.leaving])

    def finish(self, reason: Reason) -> Plan | None:
        """Return the plan, or None when it would not make the view smaller."""
        if not (self.stubs or self._planned) or self.projected >= self.tokens_now:
            return None
        gone = {unit.key for planned in self._planned for unit in planned.units}
        return Plan(
            stubs=tuple(self.stubs.values()),
            segments=tuple(self._planned),
            reason=reason,
            projected_tokens=self.projected,
            spare_tokens=max(0, self.situation.config.budget - self.projected),
            requests=tuple(u for u in self.units if u.is_request and u.key not in gone),
        )


def _likeness(one: Run, other: Run) -> float:
    """Return how many times as much one of two runs stands for as the other."""
    small, large = sorted(sum(unit.stands_for_tokens for unit in run) for run in (one, other))
    return large / max(1, small)
