from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compressor.offload.store import ref_of
from context_compressor.tokens.tiktoken import TiktokenCounter
from context_compressor.tools.reading import read_page
from tests.offload.counters import ByteCounter, QuarterCounter, WordCounter
from tests.support.pages import page_matches, parse_page

COUNTERS = {
    "qwen": TiktokenCounter(),
    "quarter": QuarterCounter(),
    "word": WordCounter(),
    "byte": ByteCounter(),
}
MORE = re.compile(r"\[more: [\w ]+; read_offloaded\(ref, offset=(\d+)(?:, column=(\d+))?\)")
TEXTS = st.lists(
    st.sampled_from(
        ["", "x", "def f(x): return x", "中文一行", "[end]", "a" * 3000, "word " * 700, "\ud800"]
    ),
    max_size=30,
).map("\n".join)


def read_all(text: str, counter: str, max_tokens: int) -> list[str]:
    """Follow the pages to the end, and return them."""
    pages = []
    offset, column = 1, 1
    for _ in range(len(text) + 10):
        page = read_page(
            text, ref_of(text), COUNTERS[counter], max_tokens=max_tokens, offset=offset, column=column
        )
        pages.append(page)
        closing = page.rsplit("\n", 1)[1]
        if closing == "[end]":
            return pages
        more = MORE.match(closing)
        assert more, page
        assert (int(more[1]), int(more[2] or 1)) > (offset, column)
        offset, column = int(more[1]), int(more[2] or 1)
    raise AssertionError("the pages never end")


@pytest.mark.parametrize("counter", COUNTERS)
@given(text=TEXTS)
def test_following_the_pages_shows_the_whole_text(counter: str, text: str) -> None:
    count = COUNTERS[counter].count_text
    pages = read_all(text, counter, 300)
    shown: list[str] = []
    cut = False
    for page in pages:
        assert count(page) <= 300
        assert page_matches(page, {ref_of(text): text})
        lines = page.split("\n")[1:-1]
        if cut:
            shown[-1] += lines.pop(0)
        shown += lines
        cut = ", to column" in page.split("\n")[0]
    assert "\n".join(shown) == text


def test_pages_are_well_filled() -> None:
    text = "\n".join(f"{i}: some line of a log, {'x' * (i % 40)}" for i in range(2000))
    counter = COUNTERS["qwen"]
    pages = read_all(text, "qwen", 1000)
    assert all(counter.count_text(page) > 900 for page in pages[:-1])


def test_one_enormous_line_is_read_in_fragments_of_full_size() -> None:
    text = "".join(f'{{"id": {i}, "name": "n{i}"}}, ' for i in range(20_000))
    counter = COUNTERS["qwen"]
    first = read_page(text, ref_of(text), counter, max_tokens=500)
    assert 440 < counter.count_text(first) <= 500
    ((_, column, shown),) = parse_page(first) or []
    assert column == 1
    end = len(shown)
    second = read_page(text, ref_of(text), counter, max_tokens=500, column=end + 1)
    assert second.split("\n")[1] == text[end:][: len(second.split("\n")[1])]
    assert f"line 1 has {len(text)} characters" in first


def test_an_empty_text_is_one_empty_line() -> None:
    page = read_page("", ref_of(""), COUNTERS["qwen"], max_tokens=100)
    assert page == f"[{ref_of('')} lines 1-1 of 1]\n\n[end]"
    assert page_matches(page, {ref_of(""): ""})


def test_a_page_of_a_large_text_takes_apart_only_what_it_may_show() -> None:
    """Splitting a text of 200 MB would hold the interpreter, and with it every other session, for seconds."""

    class Whole(str):
        def split(self, *_: object) -> list[str]:  # type: ignore[override]
            raise AssertionError

    text = Whole("\n".join(map(str, range(1, 50_001))))
    for offset in (1, 2, 30_000, 50_000):
        page = read_page(text, ref_of(text), COUNTERS["quarter"], max_tokens=100, offset=offset)
        assert page.startswith(f"[{ref_of(text)} lines {offset}-")
        assert page.split("\n")[1] == str(offset)


def test_too_little_room_is_said() -> None:
    answer = read_page("text " * 100, "ctx://0123456789abcdef", COUNTERS["qwen"], max_tokens=20)
    assert answer.startswith("No room")
    assert parse_page(answer) is None
