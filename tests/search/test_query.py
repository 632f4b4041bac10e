"""What of a query is looked for."""

import pytest

from context_compressor.search.index import SearchIndex
from context_compressor.search.query import read_query
from context_compressor.search.terms import TermReader
from tests.search.support import History


@pytest.mark.parametrize(
    "asked",
    [
        "I've baked",
        "what I'm baking",
        "you're baking",
        "who'd bake",
        "doesn't bake",
        "we’ll bake",
        "CAN'T BAKE",
    ],
)
def test_contractions_are_no_names(asked: str) -> None:
    query = read_query(f"{asked} bread", TermReader())
    assert not query.has_names
    assert {"bake", "bread"} <= {term.terms[0] for term in query.terms} <= {"bake", "bread", "ca"}


@pytest.mark.parametrize("name", ["O'Brien", "can't_fail", "it.isn't.so"])
def test_names_may_hold_apostrophes(name: str) -> None:
    assert read_query(name, TermReader()).has_names


def test_a_question_with_a_contraction_finds_what_the_user_said() -> None:
    """Messages that are full of `I've` say nothing about the battery."""
    history = History([])
    for number in range(60):
        history.add(f"chat{number}", f"I've seen page {number}, I've read it.", role="user")
    history.add("told", "The battery of a phone lasts longer when the screen is dark.", role="assistant")
    history.add("said", "My phone needs a new battery after two years of use.", role="user")
    assert history.keys(SearchIndex(), "I've got trouble with the battery of the phone")[0] == "said"


@pytest.mark.parametrize("word", ["self-cleaning", "o'clock", "l’école", "Year-End"])
def test_words_with_hyphens_are_names_on_their_own(word: str) -> None:
    assert read_query(word, TermReader()).has_names
    assert not read_query(f"When was it repaired {word}?", TermReader()).has_names
    assert read_query(f"When was it repaired {word} in app.py?", TermReader()).has_names


@pytest.mark.parametrize("word", ["any", "before", "does", "has", "many", "once", "they", "this"])
def test_common_words_are_not_looked_for(word: str) -> None:
    assert [term.terms[0] for term in read_query(f"{word} bread", TermReader()).terms] == ["bread"]
