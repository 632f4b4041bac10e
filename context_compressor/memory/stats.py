"""What a compressed memory reports about itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class CompressionStats:
    """Where a compressed memory stands, and what it has done since it was made."""

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
