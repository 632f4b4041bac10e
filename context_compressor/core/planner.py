"""Deciding what leaves the view. Pure: no clock, no I/O, no randomness.

An event comes only when it must: the budget, a large arrival, `max_view_messages`, or somebody's call. The
means come in one order, in every mode, each tried only while the one before was not enough: compact old tool
results, compress the oldest exchanges until the view stands at its target, then (only for the budget) compact
recent tool results, compress recent exchanges, cut long user and assistant texts, and at the very end leave
nothing but refs.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from context_compressor.core.draft import Draft
from context_compressor.core.edits import ItemKey
from context_compressor.core.items import ViewItem
from context_compressor.core.plans import (
    Overflow,
    Perform,
    Plan,
    Reason,
    Show,
    Situation,
    Step,
)
from context_compressor.core.units import Unit, is_crowded, newest_request, with_callers

FILLED_SHARE = 0.75
"""Share of the budget that compacting alone may leave filled: with less room the next event would soon
follow."""


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
    over, crowded = draft.projected > budget, is_crowded(draft.units, config)
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
        goal = 0 if crowded or situation.manual else draft.target
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
