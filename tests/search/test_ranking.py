"""Which passages come first."""

import json
import random
from uuid import UUID

import pytest

from context_compressor.search.hits import MAX_PASSAGE_CHARACTERS, find_all, split_passages
from context_compressor.search.index import SearchIndex
from context_compressor.search.ranking import CANDIDATES, ROUNDS, ends_of
from tests.search.support import History

FILLER = [
    f"Notes on topic {number}: weather, music and the garden of neighbour {number}." for number in range(40)
]


def test_nothing_stands_nowhere_and_places_may_overlap() -> None:
    assert [list(find_all(sought, "a aaa")) for sought in ("", "aa", "b")] == [[], [2, 3], []]


def test_a_bare_name_finds_the_latest() -> None:
    """Of several messages that hold a name the last one comes first, though another holds it more often."""
    history = History(
        ["app/config.py " * 9, *FILLER, "wrote app/config.py once", *FILLER[:9], "app/config.pyc"]
    )
    assert history.keys(SearchIndex(), "app/config.py")[0] == "m41"


@pytest.mark.parametrize("name", ["/srv/app", "\\srv\\app", "srv.app", "srv-app"])
def test_a_name_is_found_before_longer_ones_that_begin_with_it(name: str) -> None:
    """The listing of a directory says more about it than each later message on a file there."""
    longer = [f"open {name}{name[-4]}page{number}" for number in range(30)]
    history = History([*FILLER, f"{name}:\nREADME  main.py  static", *longer])
    assert history.keys(SearchIndex(), name)[:2] == ["m40", "m70"]


def test_the_source_of_a_name_comes_before_older_mentions() -> None:
    """The latest is first whoever said it; then what was given to the agent, and then its own words."""
    history = History(FILLER)
    history.add("source", "def persist_tree(self, suffix):", role="tool", tool="bash")
    for number in range(5):
        history.add(f"said{number}", f"Let us look at persist_tree again, {number}.", role="assistant")
    assert history.keys(SearchIndex(), "persist_tree")[:3] == ["said4", "source", "said3"]


@pytest.mark.parametrize(
    ("said", "query", "others"),
    [
        ("edited pkg/db/__init__.py", "pkg/db/__init__.py", "edited pkg/db/page{}.py, init, py"),
        ("if module.__name__ is set", "module.__name__", "the module has name {}"),
        ("opts = model._meta", "_meta", "class Meta: number = {}"),
        ("type /session to see it", "/session", "the session number {}"),
        ("run it with --verbose", "--verbose", "it is verbose {}"),
        ("the directory of $HOME", "$HOME", "at home {}"),
    ],
)
def test_signs_around_words_belong_to_a_name(said: str, query: str, others: str) -> None:
    history = History([*FILLER, said, *(others.format(number) for number in range(120))])
    assert history.keys(SearchIndex(), query)[0] == "m40"


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


def test_of_passages_that_hold_a_word_the_one_that_is_about_it_comes_first() -> None:
    """The shorter one, the one that holds it more often, and the one that holds all that is sought."""
    around = "among much else that has another subject"
    history = History(["one zebra there", *FILLER, f"one zebra there {around}"])
    assert history.keys(SearchIndex(), "a zebra")[:2] == ["m0", "m41"]
    history = History([f"zebra and zebra, a zebra {around}", *FILLER, f"zebra and lion, a tiger {around}"])
    assert history.keys(SearchIndex(), "a zebra")[:2] == ["m0", "m41"]
    history = History([f"zebra {around * 2} crossing", *FILLER, "zebra, a zebra"])
    assert history.keys(SearchIndex(), "zebra crossing")[:2] == ["m0", "m41"]


def test_what_is_best_is_found_behind_many_that_hold_less_of_what_is_sought() -> None:
    """More than are read, all of them later."""
    later = [f"a zebra number {n}, among much else on subject {n}" for n in range(ROUNDS * CANDIDATES + 1)]
    for said in ("a zebra", "a zebra crossing, among much else on another subject"):
        assert History([said, *later]).keys(SearchIndex(), "a zebra crossing")[0] == "m0"


def test_of_equal_passages_the_latest_comes_first() -> None:
    history = History([*FILLER, "the code is heron", "unrelated", "the code is heron"])
    assert history.keys(SearchIndex(), "heron code")[:2] == ["m42", "m40"]


def test_what_says_the_same_once_more_comes_last() -> None:
    """A call made over and over would fill the page, and hide what else there is."""
    history = History(["booked for A-17, see the receipt", *FILLER, *["retry A-17"] * 9])
    keys = history.keys(SearchIndex(), "A-17", 60)
    assert keys[:2] == ["m49", "m0"]
    assert keys[-8:] == [f"m{number}" for number in range(48, 40, -1)]


def test_further_passages_of_a_text_come_before_what_says_the_same_once_more() -> None:
    long = "\n\n".join(f"zebra {number} " + "and a word of some length " * 20 for number in range(3))
    history = History([long, *FILLER, *["a zebra again"] * 4])
    assert history.keys(SearchIndex(), "zebra", 7) == ["m44", "m0", "m0", "m0", "m43", "m42", "m41"]


@pytest.mark.parametrize(
    ("question", "answer", "query"),
    [
        ("Which room is it?", "The room is 4b, by the way.", "which room"),
        ("Which room? And whose?!?", "The room is 4b, by the way.", "which room"),
        ("Which room at a.example?x=1 ?\n", "The room is 4b, by the way.", "which room"),
        ("研讨会在哪个房间？", "研讨会是在四楼的大房间。", "研讨会房间"),
    ],
)
def test_what_only_asks_has_no_weight_of_its_own(question: str, answer: str, query: str) -> None:
    history = History(FILLER)
    history.add("asked", question, role="user")
    history.add("said", answer, role="assistant")
    assert history.keys(SearchIndex(), query)[:2] == ["said", "asked"]


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
    history.add("result", "sunny, 21 degrees", " \n", role="tool", tool="get_forecast")
    assert history.keys(SearchIndex(), "get_forecast degrees")[0] == "result"
    assert history.keys(SearchIndex(), "get_forecast") == ["result"]


def test_words_by_which_nothing_is_found_count_where_there_are_no_others() -> None:
    history = History(["who are they", *FILLER])
    assert history.keys(SearchIndex(), "who are they?") == ["m0"]


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
    assert list(ends_of("foo", "a foo.bar")) == [5]
    assert not list(ends_of("foo", "a foo_bar and xfoo"))
    assert list(ends_of("foo", "foo_bar and foo")) == [15]


@pytest.mark.parametrize(
    ("said", "query", "others"),
    [
        ("host is 10.0.0.5", "10.0.0.5", "10.0.{}.0 and 5 nodes up"),
        ("the column is user_id", "user_id", "The user {} logged in with id {}"),
        ("set test_id to forty", "test_id", "the test number {} of the suite has id 7"),
        ("open src/main.py now", "src/main.py", "src {} is the main folder of py files"),
        ("it was 2024-05-17 then", "2024-05-17", "2024 had {} events, 05 of them with 17 people"),
        ("we deploy v1.2.3 today", "1.2.3", "step {}: 1 of 2, then 3 retries"),
        ("see my_test_ids there", "test_id", "the test number {} has ids, test, id"),
    ],
)
def test_a_name_is_found_behind_many_texts_with_its_parts(said: str, query: str, others: str) -> None:
    history = History([said, *(others.format(number, number) for number in range(1, 121))])
    assert history.keys(SearchIndex(), query)[0] == "m0"


def test_a_passage_without_anything_that_is_sought_is_no_hit() -> None:
    """Two pairs of characters may share a code: 潘石 has that of 用户, which here many texts hold."""
    said = "负责这件事的人是潘石，他周五回来，请把发票和合同都寄给他本人确认"
    history = History([said, *[f"用户 {number} 已登录" for number in range(120)]])
    assert history.keys(SearchIndex(), "潘石") == ["m0"]
    assert history.keys(SearchIndex(), "潘石是谁") == ["m0"]


def test_few_passages_are_read() -> None:
    """However many share the parts of a name that stands nowhere."""
    history = History([f"the test number {number} has id 7" for number in range(2_000)])
    index = SearchIndex()
    index.update(history.entries, history.read)
    history.reads.clear()
    assert len(history.keys(index, "test_id")) == 5
    assert len(history.reads) == ROUNDS * CANDIDATES
    history.reads.clear()
    assert len(history.keys(index, "which test")) == 5
    assert len(history.reads) == CANDIDATES


def test_names_in_data_without_spaces_are_cut_nowhere() -> None:
    draw = random.Random(1)
    ids = [str(UUID(int=draw.getrandbits(128))) for _ in range(400)]
    compact = json.dumps([{"id": one, "n": n} for n, one in enumerate(ids)], separators=(",", ":"))
    for text in (compact, "&".join(f"id={one}" for one in ids), "[" + "][".join(ids)):
        passages = [text[start:end] for start, end in split_passages(text)]
        assert all(any(one in passage for passage in passages) for one in ids)


def test_a_name_written_otherwise_comes_before_a_longer_one_with_it() -> None:
    history = History(["the file_name is a.txt", *FILLER, "the fileName is b.txt", "see profile_names"])
    assert history.keys(SearchIndex(), "FileName")[0] == "m41"
    assert history.keys(SearchIndex(), "file-name")[:2] == ["m41", "m0"]


def test_the_word_of_a_topic_tells_more_than_one_of_any() -> None:
    """Twenty messages in a row are about pottery; five, each on something else, say `advice`."""
    texts = [f"Notes on {number}, the music of neighbour {number}." for number in range(120)]
    for number in range(60, 80):
        texts[number] = f"Notes on {number}, the pottery of neighbour {number}."
    for number in range(5, 120, 25):
        texts[number] = f"Notes on {number}, the advice of neighbour {number}."
    found = History(texts).keys(SearchIndex(), "Is there advice on pottery?")
    assert all(60 <= int(key[1:]) < 80 for key in found)
