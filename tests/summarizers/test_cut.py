import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compressor.summarizers.cut import cut, cut_middle, cut_to_tokens, drop_torn_end
from tests.summarizers.support import PieceCounter

counter = PieceCounter()


@pytest.mark.parametrize(
    ("text", "room", "left"),
    [
        ("one two three", 3, "one two three"),
        ("First fact here. Second fact here. Third fact here, longer than the room.", 14, 2),
        ("The file is src/app.py and it is long enough. Next sentence does not fit any more at all.", 18, 1),
        ("- line 1\n- line 2\n- line 3\n- line 4\n- line 5", 10, "- line 1\n- line 2\n- line 3 …"),
        (
            "第一句话在这里。第二句话在这里。第三句话很长很长很长很长很长。",
            18,
            "第一句话在这里。第二句话在这里。 …",
        ),
        ("一" * 100, 11, "一" * 10 + " …"),
        ("word " * 10, 0, ""),
    ],
)
def test_a_text_is_cut_where_a_sentence_or_line_ends_if_it_has_any(text: str, room: int, left: str | int):
    whole = f"{'. '.join(text.split('. ')[:left])}. …" if isinstance(left, int) else left
    assert cut_to_tokens(text, room, counter) == whole


@given(
    text=st.text(alphabet="ab .\n。1é", max_size=300),
    max_tokens=st.integers(min_value=0, max_value=120),
)
def test_never_costs_more_than_allowed(text: str, max_tokens: int):
    assert counter.count_text(cut_to_tokens(text, max_tokens, counter)) <= max_tokens


def test_a_huge_text_is_not_counted_whole_again_and_again():
    counted = 0

    class Watching(PieceCounter):
        def count_text(self, text: str) -> int:
            nonlocal counted
            counted += len(text)
            return super().count_text(text)

    text = "A sentence of some words. " * 100_000
    cut_to_tokens(text, 100, Watching())
    assert counted < 1.1 * len(text)


def test_a_torn_end_is_dropped_up_to_the_last_whole_line():
    assert drop_torn_end("## Goal\n- whole line\n- torn li") == "## Goal\n- whole line …"
    assert drop_torn_end("torn from the sta") == "torn from the sta …"


def test_the_ellipsis_touches_a_word_that_is_cut_itself():
    assert cut("see src/core/engine.py now", 20) == "see src/core/engin…"
    assert cut("see the engine: src/core/engine.py", 20) == "see the engine: …"


def test_a_middle_that_is_left_out_is_marked_and_no_word_is_cut():
    words = [f"word{n}" for n in range(100)]
    head, mark, tail = cut_middle(" ".join(words), 200).split("\n")
    assert re.fullmatch(r"\[\.\.\. \d+ characters left out \.\.\.\]", mark)
    assert head.split() == words[: len(head.split())]
    assert tail.split() == words[-len(tail.split()) :]
    assert cut_middle("x" * 110, 40) == f"{'x' * 20}\n[... 70 characters left out ...]\n{'x' * 20}"
    assert cut_middle("x" * 100, 40) == "x" * 100  # a mark that stands for little helps nobody
