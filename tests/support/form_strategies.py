"""Hypothesis strategies: histories of Responses items and of Anthropic messages that their providers accept.

They draw what the seeded generators draw, `random_responses` and `random_anthropic`, from Hypothesis's own
`Random`, so that a failing history is made smaller.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from context_compressor.laws.random_anthropic import random_anthropic
from context_compressor.laws.random_responses import random_responses

__all__ = [
    "anthropic_histories",
    "cut_anthropic_histories",
    "random_anthropic",
    "random_responses",
    "responses_histories",
]

Dict = dict[str, Any]


@st.composite
def responses_histories(draw: st.DrawFn, max_turns: int = 4) -> list[Dict]:
    """Draw input items of the Responses API; a turn is a request and all that is done for it."""
    rng = draw(st.randoms(use_true_random=False))
    return random_responses(rng, draw(st.integers(0, max_turns)))


@st.composite
def anthropic_histories(draw: st.DrawFn, max_turns: int = 4) -> list[Dict]:
    """Draw messages of Anthropic's Messages API; a turn is a request and all that is done for it."""
    rng = draw(st.randoms(use_true_random=False))
    return random_anthropic(rng, draw(st.integers(0, max_turns)))


@st.composite
def cut_anthropic_histories(draw: st.DrawFn, max_turns: int = 4) -> list[Dict]:
    """Draw messages of the same kind of which some are left out, so that calls and results stand alone."""
    said = draw(anthropic_histories(max_turns))
    gone = draw(st.sets(st.integers(0, max(0, len(said) - 1)), max_size=3))
    return [message for place, message in enumerate(said) if place not in gone]
