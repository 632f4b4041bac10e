"""What a compressed memory reports about itself."""

from __future__ import annotations

from dataclasses import dataclass

from context_compressor.memory.reporting import Totals
from context_compressor.memory.state import MemoryState


@dataclass(frozen=True, kw_only=True, slots=True)
class CompressionStats:
    """Where a compressed memory stands, and what it has done since it was made.

    As a text it is one line for people, and for models as a hint: `12,431 / 16,000 tokens, 3 segments,
    41 texts offloaded, next event in about 3,500 tokens`.
    """

    history_tokens: int
    """Tokens of every message in the history."""
    view_tokens: int
    """Tokens of the view, as last built."""
    saved_tokens: int
    """`history_tokens - view_tokens`: what a request costs less than without the wrapper."""
    events: int
    """Events committed or reported, failures included."""
    offloaded: int
    """Texts for which a stub stands, those inside segments included."""
    segments: int
    """Segments that stand in the view."""
    summarizer_calls: int
    """Calls of a model; 0 for extractive summaries."""
    summarizer_input_tokens: int
    """Tokens that a model read to summarise."""
    summarizer_output_tokens: int
    """Tokens that a model wrote to summarise."""
    summarizer_seconds: float
    """Wall-clock seconds spent in events that called a model, those in the background included."""
    budget_tokens: int
    """What a view may cost."""
    tokens_to_event: int
    """By about how many tokens the view may grow until the next event."""

    def __str__(self) -> str:
        return (
            f"{self.view_tokens:,} / {self.budget_tokens:,} tokens, {_count(self.segments, 'segment')}, "
            f"{_count(self.offloaded, 'text')} offloaded, next event in about "
            f"{_about(self.tokens_to_event):,} tokens"
        )


def stats_of(state: MemoryState, totals: Totals) -> CompressionStats:
    """Return what a memory has to report."""
    budget, history = state.budget.due_tokens, state.known.total_tokens
    return CompressionStats(
        history_tokens=history,
        view_tokens=state.tokens,
        saved_tokens=history - state.tokens,
        events=totals.events,
        offloaded=state.ledger.stub_count,
        segments=sum(item.kind == "segment" for item in state.items),
        summarizer_calls=totals.calls,
        summarizer_input_tokens=totals.input_tokens,
        summarizer_output_tokens=totals.output_tokens,
        summarizer_seconds=totals.seconds,
        budget_tokens=budget,
        tokens_to_event=max(0, budget - state.tokens),
    )


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _about(number: int) -> int:
    """Return a number to two digits."""
    return int(float(f"{number:.1e}"))
