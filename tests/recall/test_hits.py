from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compressor.recall.hits import excerpt

CHINESE = "数据库迁移之后所有订单都必须重新核对，" * 40


def test_a_short_text_is_shown_whole() -> None:
    assert excerpt("  port 80 is open\n", {"port"}, 140) == "port 80 is open"


@pytest.mark.parametrize("text", [CHINESE, "x" * 900, "row_1\nrow_2\n" * 80 + "row_3"])
def test_a_text_without_spaces_takes_all_the_width(text: str) -> None:
    assert excerpt(text, set(), 200) == text[:200].strip() + " …"


def test_a_text_with_spaces_is_cut_between_words() -> None:
    text = "amber basil cedar delta " * 40
    shown = excerpt(text, set(), 200).removesuffix(" …")
    assert text.startswith(shown + " ")
    assert 180 <= len(shown) <= 200


def test_a_space_early_in_a_text_does_not_cut_it_there() -> None:
    text = "Notes: " + CHINESE
    assert excerpt(text, set(), 200) == text[:200] + " …"


def test_words_asked_for_stand_in_the_middle() -> None:
    text = "amber " * 100 + "the zebra sleeps " + "basil " * 100
    shown = excerpt(text, {"zebra"}, 140)
    assert shown.startswith("… amber")
    assert shown.endswith("basil …")
    assert abs(shown.index("zebra") - len(shown) / 2) < 20


@given(st.text(alphabet="a你 \n,", max_size=300), st.integers(1, 250))
def test_an_excerpt_stands_in_its_text_and_keeps_to_the_width(text: str, width: int) -> None:
    shown = excerpt(text, {"a", "你"}, width)
    inner = shown.removeprefix("… ").removesuffix(" …")
    assert inner in text
    assert len(inner) <= width
