"""Hypothesis strategies: conversations that their providers accept, for property tests of one's own."""

from __future__ import annotations

from typing import Any

from context_compressor.errors import naming_extras

with naming_extras("laws"):
    from hypothesis import strategies as st

from context_compressor.laws.forms import Dict, FormName, form_of


def histories(
    form: FormName = "chat", max_turns: int = 4, *, plain: bool = False
) -> st.SearchStrategy[list[Dict]]:
    """Return a strategy for lists of messages; a turn is a request and all that is done for it.

    A plain one holds texts and calls alone. Each is drawn as the law suite draws it, from Hypothesis's own
    `Random`, so that a failing one is made smaller.

    Raises:
        ValueError: there is no such form, or no plain histories of it.
    """
    how = form_of(form, plain=plain)

    @st.composite
    def drawn(draw: Any) -> list[Dict]:
        rng = draw(st.randoms(use_true_random=False))
        return how.draw(rng, draw(st.integers(0, max_turns)))

    return drawn()
