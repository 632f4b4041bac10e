"""Normalising texts: as Unicode says, whatever stands in them, and in linear time."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compressor.messages.text import normalize

FORMS = ("NFC", "NFKC", "NFKD")
PIECES = (
    "a",
    "é",
    "e\u0301",
    "\u0323",
    "\u0344",
    "か\u3099",
    "ｶ\uff9e",
    "한",
    "\u1161",
    "⑴",
    "ﬁ",
    "─" * 20,
    "∃\u0338",
    " ",
    "😀",
)


@pytest.mark.parametrize("form", FORMS)
@given(st.lists(st.sampled_from(PIECES) | st.characters(), max_size=60).map("".join))
def test_texts_are_normalised_as_unicode_says(form: str, text: str) -> None:
    assert normalize(form, text) == unicodedata.normalize(form, text)  # type: ignore[arg-type]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("marks", ["\u0301\u0327", "\u0300\uff9e"])
def test_a_run_of_marks_is_normalised_in_pieces(form: str, marks: str) -> None:
    """Put in order all at once they took quadratic time: an hour for this."""
    assert len(normalize(form, "a" + marks * 200_000)) >= 400_000  # type: ignore[arg-type]
