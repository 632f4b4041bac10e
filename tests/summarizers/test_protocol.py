"""What a summariser is asked and answers."""

from __future__ import annotations

from context_compressor import Summary, SummaryRequest


def test_request_and_summary_are_made_in_the_order_of_their_fields() -> None:
    assert Summary("a", 1, 2) == Summary(text="a", input_tokens=1, output_tokens=2)
    request = SummaryRequest((), 100, "before", ("a fact",), "mind the dates")
    assert (request.max_tokens, request.previous, request.facts) == (100, "before", ("a fact",))
    assert (request.instructions, request.note) == ("mind the dates", None)
