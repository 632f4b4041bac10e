"""What the labels of segments say."""

import pytest

from context_compressor.core.labels import segment_text, summary_of

NEWER = "; what stands below is newer"


@pytest.mark.parametrize(
    ("summary", "guide", "label"),
    [
        ("- Went on.", "", f"[Notes by the memory, not by the user, of {{}}{NEWER}. Full text: ctx://a.]"),
        (None, "", "[Earlier conversation: {} left the view. Full text: ctx://a.]"),
        (None, "ask", "[{}: ctx://a; ask]"),
    ],
)
def test_one_message_is_told_as_one(summary: str | None, guide: str, label: str) -> None:
    for count, told in ((1, "1 earlier message"), (2, "2 earlier messages")):
        text = segment_text("ctx://a", count, summary, guide=guide).partition("\n")[0]
        assert text == label.format(told if "left" not in label else told.replace("earlier ", ""))


def test_a_merge_reads_the_summary_alone() -> None:
    """What stands beside it word for word is carried by itself, and would be told twice."""
    lines, notes = ["Never push.", "必须先问我。"], ["the lock is 7 of 9"]
    text = segment_text("ctx://a", 2, "## Goal\n- g", standing=lines, left_out=2, notes=notes, guide="ask")
    assert summary_of(text, lines, notes) == "## Goal\n- g"
    assert summary_of(segment_text("ctx://a", 2, None, standing=lines), lines) is None


def test_the_list_of_names_of_earlier_releases_is_not_carried_on() -> None:
    assert summary_of("[Summary]\n## Goal\n- g\n\n## Index\n- b.py\n- c.py") == "## Goal\n- g"


def test_older_standing_words_are_named_by_a_ref() -> None:
    assert "- (3 older ones: ctx://a)" in segment_text(
        "ctx://a", 2, "s", standing=["Never push."], left_out=3
    )
