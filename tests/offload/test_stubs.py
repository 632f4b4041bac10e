from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compressor.offload.guide import SHORT_GUIDE
from context_compressor.offload.pages import is_page
from context_compressor.offload.store import REF_PATTERN, ref_of
from context_compressor.offload.stubs import minimal_stub, stub_text
from context_compressor.tokens.tiktoken import TiktokenCounter
from tests.offload.counters import ByteCounter, QuarterCounter, WordCounter
from tests.support.strategies import FRAGMENTS

COUNTER = TiktokenCounter()
COUNTERS = {"qwen": COUNTER, "quarter": QuarterCounter(), "word": WordCounter(), "byte": ByteCounter()}
REF = "ctx://9f86d081884c7d65"


def stub(text: str, max_tokens: int, what: str = "tool result") -> str:
    return stub_text(text, REF, COUNTER, tokens=COUNTER.count_text(text), max_tokens=max_tokens, what=what)


def test_the_header_names_ref_and_sizes_in_few_tokens() -> None:
    text = "some words\n" * 812
    header = stub(text, 300).split("\n")[0]
    assert header == (
        f"[Offloaded tool result {REF}: 813 lines, 8932 characters, {COUNTER.count_text(text)} tokens]"
    )
    assert COUNTER.count_text(header) <= 50
    assert COUNTER.count_text(minimal_stub(REF)) <= 30


@pytest.mark.parametrize("counter", COUNTERS)
@given(
    text=st.lists(st.sampled_from([*FRAGMENTS, "\n", '{"a": [1, 2]}'])).map(
        lambda parts: "".join(parts) * 20
    ),
    max_tokens=st.sampled_from([0, 1, 30, 60, 70, 100, 250, 1000]),
    what=st.sampled_from(["tool result", "message"]),
)
def test_it_fits_and_names_its_ref(counter: str, text: str, max_tokens: int, what: str) -> None:
    ref, counted = ref_of(text), COUNTERS[counter]
    made = stub_text(text, ref, counted, tokens=12_345, max_tokens=max_tokens, what=what)
    assert counted.count_text(made) <= max(max_tokens, counted.count_text(minimal_stub(ref)))
    assert REF_PATTERN.findall(made)[0] == ref
    assert not is_page(made)
    assert made == stub_text(text, ref, counted, tokens=12_345, max_tokens=max_tokens, what=what)


def test_a_text_of_half_pairs_is_cut_by_what_their_escapes_cost() -> None:
    """A file read in another encoding may be full of them, and each is sent as six characters."""
    shown = stub("caf\udce9 " * 5_000, 300)
    assert "caf\\udce9 caf\\udce9" in shown
    assert 200 < COUNTER.count_text(shown) <= 300


def test_one_stub_of_a_view_tells_of_the_tools_where_it_has_room() -> None:
    text = "some words\n" * 812
    tokens = COUNTER.count_text(text)

    def guided(max_tokens: int) -> str:
        return stub_text(text, REF, COUNTER, tokens=tokens, max_tokens=max_tokens, guide=True)

    header = guided(300).split("\n")[0]
    assert all(name in header for name in ("search_history", "read_offloaded", "grep_offloaded"))
    assert COUNTER.count_text(guided(300)) <= 300
    assert f" tokens. {SHORT_GUIDE}]\n" in guided(100)
    assert 85 < COUNTER.count_text(guided(100)) <= 100
    assert guided(45) == f"[offloaded: {REF}; {SHORT_GUIDE}]"
    assert guided(30) == stub(text, 30) == minimal_stub(REF)


def test_with_less_room_there_is_less() -> None:
    text = "line of text\n" * 500
    assert stub(text, 20) == minimal_stub(REF)
    header = stub(text, 50)
    assert "\n" not in header
    assert header.startswith("[Offloaded tool result")
    assert stub(text, 300).startswith(header + "\nline of text\n")


def test_json_is_shown_by_its_shape_only_in_tool_results() -> None:
    text = json.dumps({"items": list(range(5000))})
    assert stub(text, 200).split("\n")[1].startswith('{"items": [5000 items: 0, 1, ')
    assert stub(text, 200, "message").split("\n")[1].startswith('{"items": [0, 1, ')


def test_a_message_keeps_head_and_tail() -> None:
    text = "Please do this first.\n" + "error error\n" * 2000 + "And never touch main."
    made = stub(text, 200, "message")
    assert made.startswith(f"[Offloaded message {REF}: 2002 lines,")
    assert "Please do this first." in made
    assert "And never touch main." in made


def test_a_single_line_is_one_line() -> None:
    assert ": 1 line, " in stub("word " * 1000, 100)
