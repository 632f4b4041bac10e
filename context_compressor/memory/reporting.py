"""What events came to, and where a memory stands: for hooks, errors and `stats`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from context_compressor.core.config import CompressionConfig
from context_compressor.core.edits import SegmentEdit, StubEdit, message_id
from context_compressor.core.event import Done, Event
from context_compressor.errors import ContextOverflowError
from context_compressor.events import CompressionEvent
from context_compressor.memory.handover import HandingOver
from context_compressor.memory.state import MemoryState
from context_compressor.messages.hosted import has_compaction

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class CompressionStats:
    """Where a compressed memory stands, and what it has done since it was made.

    As a text it is one line for people, and for models as a hint: `12,431 / 16,000 tokens, notes of
    212 messages, 41 texts offloaded, next event in about 3,500 tokens`.
    """

    history_tokens: int
    """Tokens of every message in the history, and of the instructions that a request carries beside it."""
    view_tokens: int
    """Tokens of the view, as last built."""
    saved_tokens: int
    """`history_tokens - view_tokens`: what a request costs less than without the wrapper."""
    events: int
    """Events committed or reported, failures included."""
    offloaded: int
    """Texts for which a stub stands, those of messages that left included."""
    noted: int
    """Messages that left the view, for which the notes stand there."""
    summarizer_calls: int
    """Calls of a model; 0 where rules write."""
    summarizer_input_tokens: int
    """Tokens that a model read to write notes."""
    summarizer_output_tokens: int
    """Tokens that a model wrote of notes."""
    summarizer_seconds: float
    """Wall-clock seconds spent in events that called a model, those in the background included."""
    budget_tokens: int
    """What a view may cost."""
    tokens_to_event: int
    """By about how many tokens the view may grow until the next event."""
    handed_over: int = 0
    """Departures that `hand_over` has taken, each the messages of a part of the notes."""
    to_hand_over: int = 0
    """Departures that wait for it."""
    hand_over_failures: int = 0
    """Attempts that it refused, or that took too long."""
    summarizer_cached_tokens: int = 0
    """Of the tokens that a model read to write notes, those that came out of its provider's prompt cache."""
    taken_over: int = 0
    """Events that another process had begun and this one made, because that died or stood still for longer
    than its lease: notes that may have been paid for twice."""

    @property
    def segments(self) -> int:
        """1 where notes stand in the view, else 0; `noted` takes its place after one release."""
        return int(self.noted > 0)

    def __str__(self) -> str:
        return (
            f"{self.view_tokens:,} / {self.budget_tokens:,} tokens, "
            f"notes of {_count(self.noted, 'message')}, {_count(self.offloaded, 'text')} offloaded, "
            f"next event in about {_about(self.tokens_to_event):,} tokens"
        )


def stats_of(state: MemoryState, totals: Totals, handing_over: HandingOver | None) -> CompressionStats:
    """Return what a memory has to report."""
    handed = {}
    if handing_over is not None:
        handed = {
            "handed_over": handing_over.done,
            "to_hand_over": len(handing_over.waiting()),
            "hand_over_failures": handing_over.failures,
        }
    budget, history = state.budget.due_tokens, state.known.total_tokens + state.shown.system_tokens
    return CompressionStats(
        history_tokens=history,
        view_tokens=state.tokens,
        saved_tokens=history - state.tokens,
        events=totals.events,
        offloaded=state.ledger.stub_count,
        noted=sum(len(item.covered) for item in state.items if item.kind == "segment"),
        summarizer_calls=totals.calls,
        summarizer_input_tokens=totals.input_tokens,
        summarizer_output_tokens=totals.output_tokens,
        summarizer_cached_tokens=totals.cached_tokens,
        summarizer_seconds=totals.seconds,
        budget_tokens=budget,
        tokens_to_event=max(0, budget - state.tokens),
        **handed,
        taken_over=totals.taken_over,
    )


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _about(number: int) -> int:
    """Return a number to two digits."""
    return int(float(f"{number:.1e}"))


@dataclass(slots=True)
class Totals:
    """What events came to since the memory was made."""

    events: int = 0
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    seconds: float = 0.0
    taken_over: int = 0

    def add(self, event: Event) -> None:
        """Add what a model was paid for, and log it, whether or not its notes came into the view."""
        use = event.use
        self.calls += use.calls
        self.input_tokens += use.remote.input_tokens
        self.output_tokens += use.remote.output_tokens
        self.cached_tokens += use.remote.cached_tokens
        self.seconds += event.seconds if use.calls else 0.0
        if use.calls:
            logger.info(
                "notes of an event (%s): written by %s; %d calls of a model, %d tokens read, %d of them from "
                "the cache, %d written, %.1f seconds",
                event.plan.reason,
                " and ".join(use.writers) or "nobody",
                use.calls,
                use.remote.input_tokens,
                use.remote.cached_tokens,
                use.remote.output_tokens,
                event.seconds,
            )


def describe_event(
    event: Event, done: Done, before: int, after: int, number: int | None = None
) -> list[CompressionEvent]:
    """Return an event for each thing that failed on the way, and last the one for what was committed, if any.

    Args:
        event: what was performed.
        done: what came of it.
        before: tokens of the view before.
        after: tokens of the view now.
        number: of the event in the ledger.
    """
    reason = str(event.plan.reason)
    left = (item for segment in event.plan.segments for unit in segment.units for item in unit.items)
    if any(has_compaction(item.source) for item in left):
        reason += "; what the provider itself had compacted left"
    events = [
        CompressionEvent(
            kind="failure", reason=reason, tokens_before=before, tokens_after=after, error=failure
        )
        for failure in done.failures
    ]
    if not done.edits:
        return events
    segments = [edit for edit in done.edits if isinstance(edit, SegmentEdit)]
    keys = [edit.item.key for edit in done.edits if isinstance(edit, StubEdit)]
    for segment in segments:
        keys += [*segment.children, *(item.key for item in segment.items)]
    told = CompressionEvent(
        kind="compress" if segments else "compact",
        reason=reason,
        tokens_before=before,
        tokens_after=after,
        refs=tuple(dict.fromkeys(edit.ref for edit in done.edits)),
        message_ids=tuple(dict.fromkeys(message_id(key) for key in keys)),
        summary_input_tokens=done.use.every.input_tokens,
        summary_output_tokens=done.use.every.output_tokens,
        seconds=event.seconds,
        note=done.note,
        number=number,
    )
    return [*events, told]


def overflow_error(
    state: MemoryState, config: CompressionConfig, places: Mapping[str, str] | None = None
) -> ContextOverflowError:
    """Return the error that names what may not leave a view that is over budget.

    Args:
        state: where the memory stands.
        config: the user's thresholds; those in force may be lower.
        places: what to call messages instead of by their ids.
    """
    fixed = [((places or {}).get(id, id), tokens) for id, tokens in state.fixed_tokens()]
    budget, needed = state.config.budget, state.tokens
    limit, remedies = f"the budget is {budget:,}", ["raise max_total_tokens"]
    if state.budget.is_lowered and needed <= config.budget:
        limit = f"the provider's counts leave {budget:,} of the budget of {config.budget:,}"
        remedies = ["send fewer tool schemas", "choose a model with a larger window and budget"]
    if fixed:
        named = ", ".join(f"{id} ({tokens:,})" for id, tokens in fixed)
        limit += f"; messages that may not leave, with their tokens: {named}"
        remedies.append("shorten or unpin them")
    return ContextOverflowError(
        f"the smallest view takes {needed:,} tokens, {limit}; {', or '.join(remedies)}",
        budget=budget,
        needed=needed,
        fixed=fixed,
    )


def undo_error(needed: int, budget: int) -> ContextOverflowError:
    """Return the error of a view that does not fit without its last part."""
    return ContextOverflowError(
        f"without its last part the view takes {needed:,} tokens, {needed - budget:,} more than the budget "
        f"of {budget:,}; give undo a budget or a note to make the part anew, or raise max_total_tokens",
        budget=budget,
        needed=needed,
        fixed=[],
    )
