"""What an event says of itself."""

from context_compressor import CompressionEvent


def test_as_a_text_an_event_is_one_line_that_says_what_changed() -> None:
    event = CompressionEvent(
        kind="compress",
        reason="over budget",
        tokens_before=17_065,
        tokens_after=7_084,
        message_ids=("a",) * 80,
    )
    assert str(event) == "compress (over budget): 17,065 tokens became 7,084"


def test_or_what_failed() -> None:
    event = CompressionEvent(
        kind="failure", reason="arrival", tokens_before=5, tokens_after=5, error="OffloadFullError: full"
    )
    assert str(event) == "failure (arrival): OffloadFullError: full"
