"""What a summariser is asked and answers."""

from __future__ import annotations

import pytest

from context_compressor import Msg, Summary, SummaryRequest

SAID = Msg("user", "hi", "user")


def test_request_and_summary_are_made_in_the_order_of_their_fields() -> None:
    assert Summary("a", 1, 2) == Summary(text="a", input_tokens=1, output_tokens=2)
    asked = SummaryRequest((), 100, "before", (SAID,), "go on", "mind the dates", "ids")
    assert (asked.max_tokens, asked.previous, asked.context) == (100, "before", (SAID,))
    assert (asked.request, asked.instructions, asked.note) == ("go on", "mind the dates", "ids")


def test_a_summariser_that_reads_facts_gets_none_and_a_warning() -> None:
    with pytest.warns(DeprecationWarning, match=r"SummaryRequest\.facts is always empty"):
        assert SummaryRequest((), 100).facts == ()
