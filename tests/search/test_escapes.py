"""Texts are read as they are, and with their escapes resolved."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compressor.search.terms import readings

SAID = st.text(st.one_of(st.sampled_from('\\"/nu04\n\t\b你🎉'), st.characters(exclude_categories=["Cs"])))


@given(SAID, st.booleans())
def test_what_json_says_is_read(said: str, is_ascii: bool) -> None:
    text = json.dumps(said, ensure_ascii=is_ascii)[1:-1]
    assert said in [one for one, _ in readings(text)][:2]


def test_what_json_in_json_says_is_read() -> None:
    said = "李雪梅\nand her \\ brother"
    *_, (last, _) = readings(json.dumps({"result": json.dumps({"said": said})}))
    assert said in last


@given(SAID)
def test_each_character_comes_from_its_place(text: str) -> None:
    (as_it_is, _), *resolved = readings(text)
    assert as_it_is == text
    for said, origins in [(text, range(len(text) + 1)), *resolved]:
        assert len(origins) == len(said) + 1
        assert list(origins) == sorted(set(origins))
        assert origins[-1] == len(text)
        assert all(text[at] in (one, "\\") for one, at in zip(said, origins, strict=False))


@pytest.mark.parametrize("text", ["", "a plain text", r"C:\Users and \d+ or \u12", "a backslash \\"])
def test_a_text_without_escapes_is_read_once(text: str) -> None:
    assert [said for said, _ in readings(text)] == [text]
