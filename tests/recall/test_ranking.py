"""Which passages come first."""

from context_compressor.recall.index import SearchIndex
from context_compressor.recall.passages import MAX_PASSAGE_CHARACTERS, split_passages
from context_compressor.recall.ranking import stands_in
from tests.recall.support import History

FILLER = [
    f"Notes on topic {number}: weather, music and the garden of neighbour {number}." for number in range(40)
]


def test_a_bare_name_finds_the_latest() -> None:
    """Of several messages that hold a name the last one comes first, though another holds it more often."""
    history = History(
        ["app/config.py " * 9, *FILLER, "wrote app/config.py once", *FILLER[:9], "app/config.pyc"]
    )
    assert history.keys(SearchIndex(), "app/config.py")[0] == "m41"


def test_a_whole_name_comes_before_its_parts() -> None:
    history = History([*FILLER, "open user_order now", "the user made an order, a user order, order by user"])
    assert history.keys(SearchIndex(), "user_order garden")[0] == "m40"


def test_near_words_come_first() -> None:
    far = "zebra " + "and so on it goes with words of little use " * 6 + "crossing"
    history = History([*FILLER, "zebra crossing " + far[6:-9], far])
    assert history.keys(SearchIndex(), "zebra crossing")[:2] == ["m40", "m41"]


def test_rare_words_count_most() -> None:
    history = History([*FILLER, "weather music garden topic notes", "quetzal"])
    assert history.keys(SearchIndex(), "notes on the weather and a quetzal")[0] == "m41"


def test_of_equal_passages_the_latest_comes_first() -> None:
    history = History([*FILLER, "the code is heron", "unrelated", "the code is heron"])
    assert history.keys(SearchIndex(), "heron code")[:2] == ["m42", "m40"]


def test_what_a_user_says_comes_before_its_repetition() -> None:
    history = History(FILLER)
    history.add("said", "My sister lives in Lisbon.", role="user")
    history.add("repeated", "My sister lives in Lisbon.")
    assert history.keys(SearchIndex(), "where does my sister live")[0] == "said"


def test_a_topic_around_helps() -> None:
    """Of messages that answer equally, the one amid its topic comes first."""
    amid = ["a trip by train", "the book is red", "a train ticket for the trip"]
    history = History([*FILLER, *amid, *FILLER[:20], "the book is red", *FILLER[:8]])
    assert history.keys(SearchIndex(), "which book did I take on the train trip", 9).index("m41") < 4
    found = [key for key in history.keys(SearchIndex(), "book trip train", 60) if key in ("m41", "m63")]
    assert found == ["m41", "m63"]


def test_texts_come_before_second_passages() -> None:
    """Of a text that has many hits one comes first; the others follow all other texts."""
    long = "\n\n".join([f"zebra {number} " + "and a word of some length " * 20 for number in range(5)])
    history = History([long, *FILLER, "a zebra in passing, among much else that has another subject"])
    keys = history.keys(SearchIndex(), "zebra", 5)
    assert sorted(keys[:2]) == ["m0", "m41"]
    assert keys[2:] == ["m0"] * 3


def test_passages_are_short_and_say_what_they_are() -> None:
    text = "\n".join(f"line {number} of the log" for number in range(400)) + "\nfinally quetzal\n"
    history = History(FILLER)
    history.add("log", "short first text", text, role="tool", tool="bash")
    (found, *_) = history.search(SearchIndex(), "quetzal")
    assert (found.document.key, found.document.part, found.document.tool) == ("log", 1, "bash")
    assert "quetzal" in found.text
    assert len(found.text) <= MAX_PASSAGE_CHARACTERS
    assert found.text == text[found.start : found.end]


def test_the_name_of_a_tool_finds_its_results() -> None:
    history = History(FILLER)
    history.add("result", "sunny, 21 degrees", role="tool", tool="get_forecast")
    assert history.keys(SearchIndex(), "get_forecast degrees")[0] == "result"


def test_passages_make_up_the_text() -> None:
    """They follow each other without a gap, end at good places, and none is too long."""
    paragraphs = "\n\n".join("A sentence of a paragraph. " * number for number in range(1, 40))
    for text in ("", "short", paragraphs, "x" * 5_000, "句子。" * 900, "one two " * 900, "a\n" * 3_000):
        places = split_passages(text)
        assert "".join(text[start:end] for start, end in places) == text
        assert all(end - start <= MAX_PASSAGE_CHARACTERS for start, end in places)
        assert [start for start, _ in places[1:]] == [end for _, end in places[:-1]]
    assert all(
        paragraphs[:end].rstrip(" ").endswith((".", "\n", paragraphs[-1]))
        for _, end in split_passages(paragraphs)
    )


def test_names_stand_in_texts_as_words() -> None:
    assert stands_in("foo", "a foo.bar")
    assert not stands_in("foo", "a foo_bar and xfoo")
    assert stands_in("foo", "foo_bar and foo")
