"""A Hypothesis strategy: histories of Anthropic messages with gaps."""

from __future__ import annotations

from hypothesis import strategies as st

from context_compressor.laws.forms import Dict
from context_compressor.laws.strategies import histories


@st.composite
def cut_anthropic_histories(draw: st.DrawFn, max_turns: int = 4) -> list[Dict]:
    """Draw messages of which some are left out, so that calls and results stand alone."""
    said = draw(histories("anthropic", max_turns))
    gone = draw(st.sets(st.integers(0, max(0, len(said) - 1)), max_size=3))
    return [message for place, message in enumerate(said) if place not in gone]
