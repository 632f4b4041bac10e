"""Deciding whether an event comes, and what leaves the view. Pure: no clock, no I/O, no randomness.

An event comes only when it must: the budget, a large arrival, `max_view_messages`, or somebody's call. The
means come in one order, in every mode, each tried only while the one before was not enough: compact old tool
results, compress the oldest exchanges until the view stands at its target, then (only for the budget) compact
recent tool results, compress recent exchanges, cut long user and assistant texts, and at the very end leave
nothing but refs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum
from math import ceil
from typing import NamedTuple

from context_compressor.core.config import CompressionConfig
from context_compressor.core.edits import ItemKey
from context_compressor.core.items import ViewItem
from context_compressor.core.units import Marks, Unit, classify, is_crowded, newest_request, with_callers
from context_compressor.messages.msg import tool_names
from context_compressor.messages.parts import Part, PartPath

ARRIVAL_SHARE = 1 / 8
"""Tokens of preview per token of a result that is compacted as it arrives, beyond `preview_tokens`: the agent
asked for it a moment ago, and is about to work with what its first stub shows."""
MOST_PREVIEWS = 6
"""How many times `preview_tokens` such a stub shows at most."""
PART_SHARE = 1 / 4
"""Tokens of preview per token of a text that is compacted because it is part of such a result: many such
stubs stand beside one another."""
GROWTH = 1 / 3
"""Tokens by which the notes grow, per token of the messages that leave, until they have all their room."""
MODEL_GROWTH = 1 / 6
"""The same, per token that leaves the view, where a model writes: it uses its room bit by bit."""
NOTES_SHARE = 1 / 3
"""Share of the budget that the notes may hold."""
TARGET_SHARE = 2 / 3
"""Share of the target that they may hold: the rest is for what stays word for word."""
MOST_NOTES_TOKENS = 8_000
"""What they may hold in any budget."""
LEAST_NOTES_TOKENS = 800
"""What they may hold in any budget, as far as what is fixed, what users said and what is newest leave it."""
LEAST_TOKENS = 300
"""By what they may grow however little leaves, where that is less than half of it."""
MIN_SUMMARY_TOKENS = 64
"""Less than this says too little to be worth a label."""
STANDING_SHARE = 1 / 10
"""Share of the budget that standing instructions may hold, word for word."""
LEAST_STANDING_TOKENS = 400
"""What they may hold in any budget whose notes have as much room."""
FILLED_SHARE = 0.75
"""Share of the budget that compacting alone may leave filled: with less room the next event would soon
follow."""

Run = list[Unit]
"""What one stand-in is for, in the order of the view."""


class Reason(StrEnum):
    """Why an event comes."""

    ARRIVAL = "arrival"
    """A text is too large to enter the view whole."""
    OVER = "over budget"
    CROWDED = "too many messages"
    """More than `max_view_messages`."""
    ASKED = "asked for"


@dataclass(frozen=True, slots=True)
class Costs:
    """Tokens that a stand-in costs before it says anything, by the counter in use, and who writes."""

    stub: int
    """A stub without preview."""
    media: int
    """A stub of an image or other media."""
    segment: int
    """A segment that only names its ref, as a message."""
    by_model: bool = False
    """Whether a model writes the notes, as a rule."""


@dataclass(frozen=True, slots=True)
class PlannedStub:
    """A text that is to leave, and what its stub may cost in tokens."""

    item: ItemKey
    path: PartPath
    max_tokens: int


@dataclass(frozen=True, slots=True)
class PlannedSegment:
    """Units that are to leave together, and what the notes may cost then in tokens; 0: only the ref."""

    units: tuple[Unit, ...]
    summary_tokens: int
    standing_tokens: int = 0
    """What of that is for standing instructions, word for word, if there are as many; beside the ref alone
    they take what the view has to spare, and no more than this."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What an event is to do, and the tokens that the view has afterwards at most."""

    stubs: tuple[PlannedStub, ...]
    segments: tuple[PlannedSegment, ...]
    reason: Reason
    projected_tokens: int
    spare_tokens: int = 0
    """What the view may cost above that."""
    requests: tuple[Unit, ...] = ()
    """What users said that stays in the view, the oldest first."""
    hints: frozenset[ItemKey] = frozenset()
    """Keys of what comes and goes by its mark and stays in the view: no model is told of it."""
    by_rules: bool = False
    """Whether rules write what a model might: it had left before, and nobody is to wait for that again."""

    @property
    def leaving(self) -> set[ItemKey]:
        """Keys of the units that leave for a segment."""
        return {unit.key for segment in self.segments for unit in segment.units}

    @property
    def needs_summary(self) -> bool:
        """Whether a summariser has to be asked."""
        return not self.by_rules and any(segment.summary_tokens for segment in self.segments)


@dataclass(frozen=True, slots=True)
class Show:
    """The view can be handed out as it is."""


@dataclass(frozen=True, slots=True)
class Perform:
    """Something has to leave the view first."""

    plan: Plan


@dataclass(frozen=True, slots=True)
class Overflow:
    """The view exceeds the budget, and nothing more can leave."""


Step = Show | Perform | Overflow


@dataclass(frozen=True, slots=True)
class Loan:
    """What comes with an exchange once something before it has left: thoughts that its turn began with."""

    by: ItemKey
    before: frozenset[ItemKey]
    """Exchanges that have to stay for it to need none."""
    tokens: int
    is_due: bool = False
    """Whether something before it left already."""

    def is_taken(self, gone: AbstractSet[ItemKey]) -> bool:
        """Tell whether it is needed once these have left."""
        return self.by not in gone and (self.is_due or not self.before.isdisjoint(gone))


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything that a decision rests on, beside the view."""

    config: CompressionConfig
    costs: Costs
    marks: Marks = field(default_factory=Marks)
    fresh: Collection[ItemKey] = frozenset()
    """Items that no view has shown yet."""
    blocked: Collection[tuple[ItemKey, PartPath]] = frozenset()
    """Texts that could not be stubbed (a collision, or no gain)."""
    extra_tokens: int = 0
    """Tokens of what is fixed and no item: the base memory's own summary, what stands beside the messages."""
    cut_extra_tokens: int = 0
    """The same of a view that does more than grow, loans apart."""
    loans: Sequence[Loan] = ()
    """Of those that a cut makes necessary, one comes: at most the dearest."""
    growth_tokens: int = 0
    """Tokens by which the view will have grown when the plan is committed, where that is planned ahead: what
    is to leave then is decided as if they stood at the end of the view now."""
    manual: bool = False
    """Whether the user asked for the event: then everything that may leave does."""
    goal_tokens: int = 0
    """What such an event is to reach, if not all is to leave."""


def decide(items: Sequence[ViewItem], situation: Situation) -> Step:
    """Say what has to happen to a view for which an event is due."""
    planned = plan(items, situation)
    if planned is not None:
        return Perform(planned)
    tokens = situation.extra_tokens + sum(item.tokens for item in items)
    return Overflow() if tokens > situation.config.budget else Show()


def plan(items: Sequence[ViewItem], situation: Situation) -> Plan | None:
    """Return what should leave the view now, or None when nothing should or could.

    The result may still exceed the budget where the fixed messages alone do; the caller judges that.
    """
    draft = Draft(items, situation)
    config, budget = situation.config, situation.config.budget
    draft.stub_arrivals()
    only_grows = not (draft.stubs or situation.growth_tokens)
    grown = situation.extra_tokens + sum(unit.tokens for unit in draft.units)
    over = (grown if only_grows else draft.projected) > budget
    crowded = is_crowded(draft.units, config)
    if not (over or crowded or situation.manual):
        return draft.finish(Reason.ARRIVAL)
    if config.mode != "compress":
        draft.stub_results(old=True, above=config.max_tool_message_tokens, goal=None)
        draft.stub_media(old=True, keep=config.keep_images, goal=None)
    if config.mode == "compact":
        if draft.projected > budget:
            draft.stub_results(old=True, above=draft.full_stub, goal=draft.bearable, again=True)
        enough = draft.projected <= budget and not crowded
    else:
        bearable = min(config.compact_ratio_threshold * draft.tokens_now, FILLED_SHARE * budget)
        reached = draft.projected <= max(draft.target, bearable)
        enough = config.mode == "auto" and over and not (crowded or situation.manual) and reached
    if not enough:
        goal = situation.goal_tokens if crowded or situation.manual else draft.target
        draft.compress((u for u in draft.units if u.compressible), goal)
        if over and config.may_shrink_recent and config.mode != "compact" and draft.projected > draft.target:
            draft.compress(_recent(draft), draft.target)
    if draft.projected > budget and not situation.growth_tokens:
        _force(draft)
    if situation.growth_tokens and draft.projected > draft.bearable:
        return None  # the rest is for the budget to ask, once it is exceeded
    return draft.finish(Reason.ASKED if situation.manual else Reason.OVER if over else Reason.CROWDED)


def _recent(draft: Draft) -> list[Unit]:
    """Return the recent exchanges that may leave where it must be: not the last, nor the newest request."""
    request = newest_request(draft.units)
    recent = [u for u in draft.units if u.recent and not (u.fixed or u.volatile or u.kept)]
    return [unit for unit in recent[:-1] if unit is not request]


def _force(draft: Draft) -> None:
    """Take the means that only the budget justifies, the mildest first."""
    budget, goal = draft.situation.config.budget, draft.bearable
    # What cannot stay whatever leaves, as reasoning beyond the budget, goes before anything suffers for it.
    huge = [u for u in draft.units if not (u.fixed or u.volatile) and draft.least_tokens(u) > budget]
    if huge:
        draft.compress(with_callers(huge), 0)
    draft.stub_results(old=False, above=2 * draft.full_stub, goal=goal)
    draft.stub_media(old=False, keep=draft.situation.config.keep_images, goal=goal)
    recent = _recent(draft)
    if draft.projected - draft.gain_of(recent) > budget:
        # One huge message: without the others it would not fit either, so they need not go first.
        draft.stub_texts(goal=goal)
    if draft.projected > budget:
        draft.compress(recent, goal)
    if draft.projected > budget:
        draft.stub_texts(goal=goal)
    if draft.projected > budget:
        draft.shrink_to_refs(goal)


def still_holds(
    plan: Plan, then: Sequence[Unit], now: Sequence[Unit], told: AbstractSet[ItemKey] = frozenset()
) -> bool:
    """Tell whether a plan that was made for one view can be committed to a later one.

    All that is to leave has to stand there as it stood, must not have become more worth keeping, and must
    not be the newest exchange, as it may be where others were deleted.

    Args:
        plan: what is to leave.
        then: the view that it was made for.
        now: the view as it is.
        told: items that a summary may repeat: they have to say what they said.
    """
    standing = {unit.key: unit for unit in now}
    leaving = plan.leaving
    newest = next((unit for unit in reversed(now) if unit.recent), None)
    if newest is not None and newest.key in leaving:
        return False
    stubbed = {stub.item for stub in plan.stubs}
    for unit in then:
        keys, found = [item.key for item in unit.items], standing.get(unit.key)
        leaves = unit.key in leaving or not stubbed.isdisjoint(keys)
        if leaves and (found is None or not _is_as_it_was(unit, found)):
            return False
        if not told.isdisjoint(keys) and (found is None or not _says_as_before(unit, found)):
            return False
    return True


def _is_as_it_was(then: Unit, now: Unit) -> bool:
    worthier = (now.fixed > then.fixed) or (now.kept > then.kept) or (now.recent > then.recent)
    return (
        not worthier
        and now.volatile == then.volatile
        and _says_as_before(then, now)
        and all(new.stubs == old.stubs for old, new in zip(then.items, now.items, strict=True))
    )


def _says_as_before(then: Unit, now: Unit) -> bool:
    return len(now.items) == len(then.items) and all(
        new is old or (new.key == old.key and new.source == old.source)
        for old, new in zip(then.items, now.items, strict=True)
    )


class Leavable(NamedTuple):
    """A part of a message that may leave the view for a stub."""

    tokens: int
    """What it costs there: where a stub stands for it already, what that costs."""
    unit: Unit
    item: ViewItem
    part: Part


@dataclass(slots=True)
class _Sums:
    """What leaves, in tokens."""

    tokens: int = 0
    """Of the messages that leave now."""
    stands_for: int = 0
    standing: float = 0.0
    held: int = 0
    """Of what stands for others already."""

    def add(self, unit: Unit, tokens: int) -> None:
        if unit.segment:
            self.held += tokens
        else:
            self.tokens += tokens
            self.stands_for += unit.stands_for_tokens
            self.standing += unit.standing_tokens


class Draft:
    """A plan in the making: what leaves so far, and what the view would cost.

    Attributes:
        situation: what a decision rests on beside the view.
        units: what stays or leaves together, in the order of the view.
        stubs: those planned so far.
        leaving: the units that leave for the notes, by key; what their planned stubs save is kept.
        tokens_now: what the view costs before the plan, the growth reckoned with included.
        target: tokens that an event is to reach.
        refs_only: whether what leaves is only named by its ref, without a summary.
    """

    # What the view would cost is kept in parts, since each stub and unit that is planned asks for it:
    # `_staying`, of all that does not leave for the notes, `_segments_cost`, of what stands for those, and
    # `_taken`, the loans that are needed then.

    def __init__(self, items: Sequence[ViewItem], situation: Situation) -> None:
        config = situation.config
        self.situation = situation
        self.units = classify(items, config, situation.marks)
        self.stubs: dict[tuple[ItemKey, PartPath], PlannedStub] = {}
        self.leaving: dict[ItemKey, Unit] = {}
        self._saved: dict[ItemKey, int] = {}
        self._beside = situation.cut_extra_tokens + situation.growth_tokens
        self._loans: dict[ItemKey, list[Loan]] = {}
        for loan in situation.loans:
            for key in (loan.by, *loan.before):
                self._loans.setdefault(key, []).append(loan)
        self._reckon_staying(frozenset())
        self._segments_cost = 0
        self.tokens_now = self.projected
        self.refs_only = config.mode == "compact"
        self._planned: list[PlannedSegment] = []
        self._is_shrunk = self._is_mute = False
        self._earlier = [unit for unit in self.units if unit.segment and not unit.volatile]
        """What stands for all that left before: the notes, or segments of an earlier release."""
        fixed = situation.cut_extra_tokens + sum(unit.tokens for unit in self.units if unit.fixed)
        room = max(0, config.budget - fixed)
        self.target = int(fixed + config.target_ratio * room)

    @property
    def bearable(self) -> int:
        """What a view may cost after an event that does not reach its target.

        Stopping at the budget itself would force the next turn's event, too, and so on every turn.
        """
        return (self.target + self.situation.config.budget) // 2

    @property
    def projected(self) -> int:
        """Tokens of the view after the plan, at most."""
        return self._staying + self._segments_cost + self._lent

    @property
    def _lent(self) -> int:
        return max((loan.tokens for loan in self._taken), default=0)

    # Stubs

    def stub_arrivals(self) -> None:
        """Compact tool results that are too large to enter the view whole.

        Together their stubs cost no more than a result that is just not too large, previews of the usual size
        apart; none is too large afterwards, with what stays of it.
        """
        config = self.situation.config
        limit, stub = config.arrival_tokens, self.situation.costs.stub
        large = [unit for unit in self.units if unit.tokens > limit and not unit.fixed]
        results = [result for unit in large for result in self._arrivals(unit)]
        fair = int(limit) // max(1, sum(len(texts) for texts, _ in results)) - stub
        most = min(MOST_PREVIEWS * config.preview_tokens, fair)
        for texts, stays in results:
            own = int(limit - stays) // len(texts) - stub
            for text in texts:
                shown = max(config.preview_tokens, min(int(ARRIVAL_SHARE * text.tokens), most))
                if text.tokens <= limit:
                    shown = min(shown, int(PART_SHARE * text.tokens))
                self._stub(text, stub + min(shown, own))

    def _arrivals(self, unit: Unit) -> Iterator[tuple[list[Leavable], int]]:
        """Yield texts of each new result that is too large, with the tokens of it that stay.

        Of one in parts these are the largest, until it is not too large.
        """
        config, stub = self.situation.config, self.situation.costs.stub
        limit, shown = config.arrival_tokens, MOST_PREVIEWS * config.preview_tokens
        results: dict[tuple[ItemKey, int], list[Leavable]] = {}
        for text in self._parts(unit):
            is_new = text.part.kind == "tool_result" and text.item.key in self.situation.fresh
            if is_new and not self._is_excluded(text):
                results.setdefault((text.item.key, text.part.path[0]), []).append(text)
        for texts in results.values():
            left = stays = sum(text.tokens for text in texts)
            found = []
            for text in sorted(texts, key=lambda text: -text.tokens) if left > limit else ():
                saved = text.tokens - stub - min(int(PART_SHARE * text.tokens), shown)
                if text.tokens > limit or (left > limit and saved > 0):
                    found.append(text)
                    left -= saved
                    stays -= text.tokens
            if found:
                yield found, stays

    def stub_results(self, *, old: bool, above: int, goal: int | None, again: bool = False) -> None:
        """Compact results and arguments above so many tokens, the largest first, until `goal` (None: all).

        With `again` stubs that show more than others do, as the first of a large arrival.
        """
        found = [
            text
            for unit in self.units
            if unit.tokens > above and unit.recent != old and self._may_be_stubbed(unit)
            for text in self._parts(unit)
            if text.tokens > above and (text.part.path in text.item.stubs) == again
            if text.part.kind in ("tool_result", "argument") and not self._is_excluded(text)
        ]
        found.sort(key=lambda text: (-text.tokens, text.unit.position, text.part.kind == "argument"))
        for text in found:
            if goal is not None and self.projected <= goal:
                return
            self._stub(text, self.full_stub)

    def stub_texts(self, *, goal: int) -> None:
        """Cut long texts of any speaker, the largest first, each only as far as `goal` needs.

        Texts that are hardly longer than a stub stay, and what the user asked for last is cut last.
        """
        request = newest_request(self.units)
        found = [
            text
            for unit in filter(self._may_be_stubbed, self.units)
            for text in self._parts(unit)
            if text.part.kind == "text" and text.tokens > 2 * self.full_stub
            if text.part.path not in text.item.stubs
        ]
        for text in sorted(found, key=lambda text: (text.unit is request, -text.tokens)):
            if self.projected <= goal:
                return
            self._stub(text, max(self.full_stub, text.tokens - (self.projected - goal)))

    def stub_media(self, *, old: bool, keep: int, goal: int | None) -> None:
        """Offload media but for the newest `keep` of the view, the oldest first, until `goal` (None: all)."""
        found = [
            text
            for unit in self.units
            for text in self._parts(unit, texts=False)
            if text.part.is_media and not self._stub_of(text)
        ]
        for text in found[: max(len(found) - keep, 0)]:
            if goal is not None and self.projected <= goal:
                return
            if text.unit.recent != old and self._may_be_stubbed(text.unit):
                self._stub(text, self.situation.costs.media)

    def _may_be_stubbed(self, unit: Unit) -> bool:
        return not (unit.fixed or unit.segment or unit.key in self.leaving)

    def _parts(self, unit: Unit, *, texts: bool = True) -> Iterator[Leavable]:
        """Yield the parts of a unit that can leave; all, or those that are no texts."""
        for item in unit.items:
            if item.kind == "message":
                for part, tokens in (*(item.texts() if texts else ()), *item.other_parts()):
                    yield Leavable(tokens, unit, item, part)

    def _is_excluded(self, text: Leavable) -> bool:
        """Tell whether the tool whose call or result this is may not be compacted."""
        excluded = self.situation.config.exclude_tools
        if not excluded:
            return False
        block = text.item.source.content[text.part.path[0]]
        assert isinstance(block, dict)
        names = tool_names(item.source for item in text.unit.items)
        return names.get(block["id"], block.get("name")) in excluded

    @property
    def full_stub(self) -> int:
        """Tokens of a stub with all of its preview."""
        return self.situation.costs.stub + self.situation.config.preview_tokens

    def _stub_of(self, text: Leavable) -> PlannedStub | None:
        return self.stubs.get((text.item.key, text.part.path))

    def _stub(self, text: Leavable, max_tokens: int) -> None:
        """Plan a stub where it is smaller than what it replaces, with as much preview as then fits."""
        name, least = (text.item.key, text.part.path), self._least(text)
        max_tokens = min(max(max_tokens, least), text.tokens - 1)
        if max_tokens < least or name in self.situation.blocked:
            return
        earlier = self.stubs.get(name)
        saved = (earlier.max_tokens if earlier else text.tokens) - max_tokens
        if saved <= 0:
            return
        self.stubs[name] = PlannedStub(*name, max_tokens)
        # What arguments cost is estimated, but no unit saves all that it costs.
        before = self._saved.get(text.unit.key, 0)
        saved = min(saved, text.unit.tokens - before - 1)
        self._saved[text.unit.key] = before + saved
        self._staying -= saved

    def _least(self, text: Leavable) -> int:
        """Return the tokens of a part's smallest stub, which keeps what was said for good."""
        costs = self.situation.costs
        if text.part.is_media:
            return costs.media
        standing = text.item.standing_tokens if text.part.kind == "text" else 0
        return costs.stub + (ceil(min(standing, self._most_standing)) if standing else 0)

    def least_tokens(self, unit: Unit) -> int:
        """Return what a unit costs when all that can be is cut down to its stub: reasoning is not."""
        return unit.tokens - sum(max(text.tokens - self._least(text), 0) for text in self._parts(unit))

    def shrink(self, units: Iterable[Unit], goal: int) -> None:
        """Cut all that is longest in these units to one size, stubs too: the largest that reaches `goal`."""
        found = [
            (text if planned is None else text._replace(tokens=planned.max_tokens), self._least(text))
            for unit in filter(self._may_be_stubbed, units)
            for text in self._parts(unit)
            for planned in [self._stub_of(text)]
            if (text.item.key, text.part.path) not in self.situation.blocked
        ]
        needed = self.projected - goal

        def is_too_large(size: int) -> bool:
            return sum(max(text.tokens - max(size, least), 0) for text, least in found) < needed

        largest = max((text.tokens for text, _ in found), default=0)
        size = bisect_left(range(largest + 1), True, key=is_too_large) - 1
        for text, least in found:
            if text.tokens > max(size, least):
                self._stub(text, max(size, least))

    # The notes

    def compress(self, candidates: Iterable[Unit], goal: int) -> None:
        """Let units leave, the oldest first, until the view reaches `goal` tokens.

        What comes back only with its mark is not among them.
        """
        runs = self._runs()
        self._reckon_staying({unit.key for run in runs for unit in run})
        label = self.situation.costs.segment
        hints = [run for run in runs if run[0].volatile]
        beside = sum(label + self._room(run) for run in hints)
        lasting = _Sums()
        for run in runs:
            for unit in () if run in hints else run:
                lasting.add(unit, self._tokens_of(unit))

        def reckon() -> None:
            self._segments_cost = beside + (label + self._room_for(lasting) if lasting.tokens else 0)

        reckon()
        for unit in candidates:
            if self.projected <= goal:
                break
            if unit.key in self.leaving:
                continue
            self.leaving[unit.key] = unit
            for one in [unit] if lasting.tokens else [*self._earlier, unit]:
                self._staying -= self._tokens_of(one)
                lasting.add(one, self._tokens_of(one))
            self._lend(self._loans.get(unit.key, ()), self.leaving.keys())
            reckon()
        self._settle()

    def _tokens_of(self, unit: Unit) -> int:
        return unit.tokens - self._saved.get(unit.key, 0)

    def _tokens_in(self, units: Iterable[Unit]) -> int:
        return sum(map(self._tokens_of, units))

    def _runs(self) -> list[Run]:
        """Return what leaves: all that the notes are for, what they stood for before first; hints apart.

        A hint comes and goes by its mark, and with it what stands for it.
        """
        left = sorted(self.leaving.values(), key=lambda unit: unit.position)
        lasting = [unit for unit in left if not unit.volatile]
        volatile = [unit for unit in left if unit.volatile]
        earlier = [unit for unit in self._earlier if unit.key not in self.leaving]
        return [run for run in (volatile, [*earlier, *lasting] if lasting else []) if run]

    def _room(self, run: Collection[Unit], *, most: bool = False) -> int:
        """Return what may be said of a run, in tokens beside the label; 0: too little to say it.

        Args:
            run: what leaves, and what stood for more before.
            most: whether all that it may take is asked for, or what it is reckoned to take.
        """
        sums = _Sums()
        for unit in run:
            sums.add(unit, self._tokens_of(unit))
        return self._room_for(sums, most=most)

    def _room_for(self, sums: _Sums, *, most: bool = False) -> int:
        label, by_model = self.situation.costs.segment, self.situation.costs.by_model
        held = max(0, sums.held - label)
        if self.refs_only:
            return held if held >= MIN_SUMMARY_TOKENS and not self._is_mute else 0
        told = MODEL_GROWTH * sums.tokens if by_model else GROWTH * sums.stands_for
        told = max(told, LEAST_TOKENS) + min(sums.standing, self._most_standing)
        # Half of what leaves makes room, but for what was said for good.
        grown = min(sums.tokens if most else told, (sums.tokens + sums.standing) // 2)
        room = min(held + grown, self._notes_room)
        # What costs as much as it replaces is none.
        room = int(min(room, held + sums.tokens - 1 - (0 if held else label)))
        return room if room >= MIN_SUMMARY_TOKENS else 0

    @property
    def _notes_room(self) -> float:
        """What the notes may hold, in tokens."""
        budget = self.situation.config.budget
        room = min(NOTES_SHARE * budget, TARGET_SHARE * self.target, MOST_NOTES_TOKENS)
        if room >= LEAST_NOTES_TOKENS:
            return room
        recent = [unit for unit in self.units if unit.recent]
        stays = [unit for unit in self.units if unit.fixed or unit.kept or unit in recent[-1:]]
        most = budget if self.situation.manual else self.bearable
        left = most - self._beside - self._lent - self.situation.costs.segment - self._tokens_in(stays)
        return max(room, min(LEAST_NOTES_TOKENS, left))

    @property
    def _most_standing(self) -> int:
        """What may be said word for word, in tokens."""
        most = max(STANDING_SHARE * self.situation.config.budget, LEAST_STANDING_TOKENS)
        return int(min(most, self._notes_room))

    def _settle(self) -> None:
        """Decide what stands in for what leaves, and reckon exactly."""
        self._planned = []
        label = self.situation.costs.segment
        for run in self._runs():
            said = self._room(run)
            if (said or not self._may_wait) and label + said < self._tokens_in(run):
                self._planned.append(self._plan(run, said))
            else:
                for unit in run:
                    self.leaving.pop(unit.key, None)
        self._reckon_planned()
        self._make_the_most()

    def _plan(self, run: Run, said: int) -> PlannedSegment:
        # Tokens by characters are a guess: where there is room, none is lost to it.
        standing = any(unit.standing_tokens for unit in run)
        most = min(self._most_standing, said or self._most_standing) if standing else 0
        return PlannedSegment(tuple(run), said, most)

    def _make_the_most(self) -> None:
        """Give the notes what is free up to the target; less than reckoned where what stays leaves little,
        but no less than half: what leaves now is told now or never.

        What a model may write, and is not reckoned to, may stand above the target: then its room is the same
        from event to event, and what it leaves free holds messages.
        """
        budget, by_model = self.situation.config.budget, self.situation.costs.by_model
        if self.situation.manual:
            most, enough = budget, budget if by_model else self.projected
        elif by_model:
            most, enough = (self.bearable + budget) // 2, self.bearable
        else:
            most, enough = self.bearable, self.target
        missing, free = self.projected - most, enough - self.projected
        for place, planned in enumerate(self._planned):
            said = planned.summary_tokens
            if said and missing > 0:
                said -= min(missing, said // 2)
            elif said and free > 0 and not planned.units[-1].volatile:
                said = max(said, min(self._room(planned.units, most=True), said + free))
            if said != planned.summary_tokens and said >= MIN_SUMMARY_TOKENS:
                self._planned[place] = self._plan(list(planned.units), said)
                missing = 0
        self._reckon_planned()

    @property
    def _may_wait(self) -> bool:
        """Whether what is too small for a summary stays until there is more to leave with it."""
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
        self._is_mute = self.projected > budget
        self._sum_up_again()

    def _let_go(self, *batches: Collection[Unit]) -> None:
        """Let units leave for nothing but the budget, until it holds."""
        for units in batches:
            if self.projected <= self.situation.config.budget:
                return
            for unit in with_callers(units):
                self.leaving.setdefault(unit.key, unit)
            self._plan_runs()

    def _plan_runs(self, free: int | None = None) -> None:
        """Plan a stand-in for each run that leaves, however little it says.

        Args:
            free: what there is for each, in tokens; None: as much as it may. Notes that fit stay as they are.
        """
        label = self.situation.costs.segment
        planned = []
        for run in self._runs():
            said = self._room(run) if free is None else min(self._room(run), free - label)
            if free is None or self._tokens_in(run) > free or not all(unit.segment for unit in run):
                planned.append(self._plan(run, said if said >= MIN_SUMMARY_TOKENS else 0))
        self._planned = [p for p in planned if label + p.summary_tokens < self._tokens_in(p.units)]
        self._reckon_planned()

    def _sum_up_again(self) -> None:
        """Plan summaries after all, where what left made room for them."""
        if self.situation.config.mode == "compact":
            return
        free = self.situation.config.budget - self._staying - self._lent
        self.refs_only = False
        self._plan_runs(free // max(1, len(self._planned)))
        if self.projected > self.situation.config.budget:
            self.refs_only = True
            self._plan_runs()

    # Reckoning

    def _reckon_planned(self) -> None:
        """Reckon what the view costs at most with what is planned."""
        self._reckon_staying({unit.key for planned in self._planned for unit in planned.units})
        label = self.situation.costs.segment
        self._segments_cost = sum(label + planned.summary_tokens for planned in self._planned)

    def _reckon_staying(self, gone: AbstractSet[ItemKey]) -> None:
        self._staying = self._beside + self._tokens_in(u for u in self.units if u.key not in gone)
        self._taken: set[Loan] = set()
        self._lend(self.situation.loans, gone)

    def _lend(self, loans: Iterable[Loan], gone: AbstractSet[ItemKey]) -> None:
        for loan in loans:
            (self._taken.add if loan.is_taken(gone) else self._taken.discard)(loan)

    def gain_of(self, candidates: Sequence[Unit]) -> int:
        """Return the tokens of those among these units that stay, and what is lent to them: at most so many
        would leave with them.
        """
        return self._tokens_in([unit for unit in candidates if unit.key not in self.leaving]) + self._lent

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
            hints=frozenset(
                item.key for u in self.units if u.volatile and u.key not in gone for item in u.items
            ),
        )
