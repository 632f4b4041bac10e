"""What the labels of segments say."""

import pytest

from context_compressor.compression.labels import segment_text, without_index


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


def test_a_heading_of_a_summary_does_not_pass_for_that_of_the_index() -> None:
    """A merge would cut off what the summary says below it."""
    text = segment_text("ctx://a", 2, "## Goal\n- g\n\n## Index\n- b.py")
    assert text.endswith("\n## Goal\n- g\n\nIndex\n- b.py")
    assert without_index(text) == text
    indexed = segment_text("ctx://a", 2, "## Goal\n- g\n\n## Index\n- b.py", ["c.py"])
    assert without_index(indexed) == text
