"""Deciding what leaves the view. Pure: no clock, no I/O, no randomness.

The means come in one order, in every mode, each tried only while the one before was not enough: compact old
tool results, compress old exchanges, then (only for the budget) compact recent tool results, compress recent
exchanges, cut long user and assistant texts, and at the very end leave nothing but refs.
"""

from __future__ import annotations

from collections.abc import Sequence

from context_compressor.compression.draft import Draft
from context_compressor.compression.plans import Plan, Situation
from context_compressor.compression.view import ViewItem


def plan(items: Sequence[ViewItem], situation: Situation) -> Plan | None:
    """Return what should leave the view now, or None when nothing should or could.

    The result may still exceed the budget where the fixed messages alone do; the caller judges that.
    """
    draft = Draft(items, situation)
    config, budget = situation.config, situation.config.budget
    draft.stub_arrivals()
    if draft.projected <= budget and not situation.manual:
        return draft.finish("arrival")
    before = draft.tokens_now
    if config.mode != "compress":
        draft.stub_results(old=True, above=config.max_tool_message_tokens, goal=None)
        draft.stub_media(old=True, keep=config.keep_images, goal=None)
    if config.mode == "compact":
        enough = draft.projected <= budget
    else:
        bearable = config.compact_ratio_threshold * min(before, budget)
        enough = (
            config.mode == "auto" and not situation.manual and draft.projected <= max(draft.target, bearable)
        )
    if not enough:
        draft.compress((u for u in draft.units if u.compressible), draft.target)
    if draft.projected > budget:
        _force(draft)
    return draft.finish("asked for" if situation.manual else "over budget")


def _force(draft: Draft) -> None:
    """Take the means that only the budget justifies, the mildest first."""
    budget = draft.situation.config.budget
    # Stopping at the budget itself would force the next turn's event, too, and so on every turn.
    goal = (draft.target + budget) // 2
    draft.stub_results(old=False, above=0, goal=goal)
    draft.stub_media(old=False, keep=draft.situation.config.keep_images, goal=goal)
    recent = [u for u in draft.units if u.recent and not (u.fixed or u.volatile or u.kept)][:-1]
    if draft.projected - draft.gain_of(recent) > budget:
        # One huge message: without the others it would not fit either, so they need not go first.
        draft.stub_texts(goal=goal)
    if draft.projected > budget:
        draft.compress(recent, goal)
    if draft.projected > budget:
        draft.stub_texts(goal=goal)
    if draft.projected > budget:
        draft.shrink_to_refs()
