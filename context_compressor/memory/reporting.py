"""Telling what an event came to, or why none helps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from context_compressor.compression.config import CompressionConfig
from context_compressor.compression.edits import message_id
from context_compressor.compression.performed import Performed, SummaryUse
from context_compressor.compression.plans import Plan
from context_compressor.errors import ContextOverflowError
from context_compressor.events import CompressionEvent
from context_compressor.memory.state import MemoryState


@dataclass(slots=True)
class Totals:
    """What events came to since the memory was made."""

    events: int = 0
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0

    def add(self, use: SummaryUse, seconds: float) -> None:
        """Add what a model was paid for, whether or not its summary came into the view."""
        self.calls += use.calls
        self.input_tokens += use.remote_input_tokens
        self.output_tokens += use.remote_output_tokens
        self.seconds += seconds if use.calls else 0.0


def describe_event(
    planned: Plan, done: Performed, before: int, after: int, seconds: float
) -> list[CompressionEvent]:
    """Return an event for each thing that failed on the way, and last the one for what was committed, if any.

    Args:
        planned: what was to be done.
        done: what was.
        before: tokens of the view before.
        after: tokens of the view now.
        seconds: from plan to commit.
    """
    events = [
        CompressionEvent(
            kind="failure", reason=planned.reason, tokens_before=before, tokens_after=after, error=failure
        )
        for failure in done.failures
    ]
    if not (done.stubs or done.segments):
        return events
    merged = all(segment.children and not segment.items for segment in done.segments)
    keys = [stub.item.key for stub in done.stubs]
    for segment in done.segments:
        keys += [*segment.children, *(item.key for item in segment.items)]
    refs = [stub.ref for stub in done.stubs] + [segment.ref for segment in done.segments]
    event = CompressionEvent(
        kind="compact" if not done.segments else "merge" if merged else "compress",
        reason=planned.reason,
        tokens_before=before,
        tokens_after=after,
        refs=tuple(dict.fromkeys(refs)),
        message_ids=tuple(dict.fromkeys(message_id(key) for key in keys)),
        summary_input_tokens=done.use.input_tokens,
        summary_output_tokens=done.use.output_tokens,
        seconds=seconds,
        note=done.note,
    )
    return [*events, event]


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
