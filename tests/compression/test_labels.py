"""What the labels of segments say."""

import pytest

from context_compressor.compression.labels import segment_text


@pytest.mark.parametrize(
    ("summary", "guide", "label"),
    [
        ("- Went on.", "", "[Summary by the memory, not by the user, of {}. Full text: ctx://a.]"),
        (None, "", "[Earlier conversation: {} left the view. Full text: ctx://a.]"),
        (None, "ask", "[{}: ctx://a; ask]"),
    ],
)
def test_one_message_is_told_as_one(summary: str | None, guide: str, label: str) -> None:
    for count, told in ((1, "1 earlier message"), (2, "2 earlier messages")):
        text = segment_text("ctx://a", count, summary, guide=guide).partition("\n")[0]
        assert text == label.format(told if "left" not in label else told.replace("earlier ", ""))
