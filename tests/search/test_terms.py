"""What a text is found by."""

import json
import re
from string import ascii_lowercase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compressor.search.index import SearchIndex
from context_compressor.search.query import MAX_QUERY_TERMS, read_query
from context_compressor.search.terms import RUN, TermReader, fold
from tests.search.support import History

DEEP_PATH = "/home/runner/" + "/".join(f"part-{one}" for one in "abcdefghijklm") + "/src/PaymentGateway.java"


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("step ⑴⑵ first", "⑴"),
        ("step ⑴⑵ first", "2"),
        ("see No⑴ and ⒈⒉", "No⑴"),
        ("item (1)", "⑴"),
        ("day ㈤", "五"),
        ("第五章", "㈤"),
        ("about 1½ cups", "1½"),
        ("said ﷺ once", "ﷺ"),
        ("said ﷺ once", "الله"),
        ("ﬁrst ofﬁce", "office"),
        ("see src/foo_bar.py for it", "src/foo_bar.py"),
        ("see src/foo_bar.py for it", "foo_bar.py"),
        ("see src/foo_bar.py for it", "foo_bar"),
        ("see src/foo_bar.py for it", "bar"),
        ("call getUserName() now", "getUserName"),
        ("call getUserName() now", "get_user_name"),
        ("call getUserName() now", "getusername"),
        ("call get_user_name() now", "getUserName"),
        ("the filename is set", "file_name"),
        ("start HTTPServer2 here", "httpserver2"),
        ("start HTTPServer2 here", "server"),
        ("import os.path.join", "os.path"),
        ("mail jo.doe@example.org", "jo.doe@example.org"),
        ("order ORD-2024-0917 was sent", "ord-2024-0917"),
        ("order ORD-2024-0917 was sent", "0917"),
        ("commit 3f2a9c1e88", "3F2A9C1E88"),
        ("commit 9f8e7d6c5b4a39281706f5e4d3c2b1a098765432", "9F8E7D6"),
        ("commit 1234567ab9d3e2f1", "1234567a"),
        (f"opened {DEEP_PATH}", DEEP_PATH),
        (f"opened {DEEP_PATH}", f"where is {DEEP_PATH}"),
        (f"opened {DEEP_PATH}", "PaymentGateway.java"),
        (f"opened {DEEP_PATH}", "payment_gateway"),
        ("she was planning trips", "plan a trip"),
        ("the user's organisations", "organisation users"),
        ("ein schönes Café", "SCHONES cafe"),
        ("ｆｕｌｌ ｗｉｄｔｈ", "full width"),
        ("Большая Москва", "москва"),
        ("मुझे हिन्दी पसंद है", "हिन्दी"),
        ("مرحبا بالعالم", "بالعالم"),
        ("我们在讨论外卖平台的市场", "外卖"),
        ("我们在讨论外卖平台的市场", "市场"),
        ("我们在讨论外卖平台的市场", "场"),
        ("使用Python3编写代码", "编写"),
        ("使用Python3编写代码", "python"),
        ("東京でラーメンを食べた", "ラーメン"),
        ("안녕하세요 세계", "세계"),
        ("ภาษาไทยง่าย", "ไทย"),
        ("to be or not to be", "to be"),
        ("𠮷野家に行く", "𠮷野"),
        ("an OAuth2 token", "oauth"),
        ("PostgreSQL15-based", "postgresql"),
        ("a JavaScript-based app", "javascript"),
        (json.dumps({"out": "total 5\nzebra\ttiger"}), "zebra"),
        (json.dumps({"out": "total 5\nzebra\ttiger"}), "tiger"),
        (json.dumps({"text": json.dumps({"out": "total 5\nreport.txt"})}), "report"),
        (json.dumps({"name": "李雪梅", "city": "Zürich"}), "雪梅"),
        (json.dumps({"name": "李雪梅", "city": "Zürich"}), "Zürich"),
        (json.dumps({"name": "𠮷野家"}), "𠮷野"),
        (r"edited src\tests\new.py", "tests"),
        (r"edited src\tests\new.py", r"src\tests\new.py"),
    ],
)
def test_found_by(text: str, query: str) -> None:
    """Names whole and in parts, words in other forms, cases and accents, pairs of unspaced characters."""
    history = History(["something else entirely 别的内容 другое", text])
    assert history.keys(SearchIndex(), query)[:1] == ["m1"]


def test_long_words_and_data_cost_little() -> None:
    """A word is known by its first 64 characters, and long data without spaces has no whole."""
    terms = TermReader().terms("x" * 100_000 + " " + ".".join(["part"] * 5_000))
    assert terms == {"x" * 64, "part"}


@pytest.mark.parametrize(
    "query", ['zebra AND "', "NEAR(zebra, x)", "zebra*", "-zebra", "^zebra:", "key:zebra", "(zebra"]
)
def test_operators_are_none(query: str) -> None:
    """What FTS5 takes for an operator is text."""
    assert History(["a lion", "a zebra"]).keys(SearchIndex(), query) == ["m1"]


def test_a_long_query_is_cut() -> None:
    """However long a query, so many terms are looked up."""
    assert (
        len(read_query(" ".join(f"w{number}" for number in range(9_000)), TermReader()).terms)
        == MAX_QUERY_TERMS
    )


def test_a_deep_path_is_told_from_others_by_its_pieces() -> None:
    """Also where what it shares with them, its beginning, is what most texts hold."""
    history = History([f"opened {DEEP_PATH}", *[f"ls /home/runner/tmp/file{n}" for n in range(120)]])
    for query in (DEEP_PATH, f"where is {DEEP_PATH}", "PaymentGateway.java"):
        assert history.keys(SearchIndex(), query)[0] == "m0"


@pytest.mark.parametrize("words", [70, 400])
def test_of_a_long_query_names_count_wherever_they_stand(words: int) -> None:
    """So do numbers, and its end."""
    filler = " ".join(f"word{first}{second}" for first in ascii_lowercase for second in ascii_lowercase)
    query = " ".join(filler.split()[:words]) + " and ticket QX-9941"
    history = History(["ticket QX-9941 is closed", *["hello there"] * 3])
    assert history.keys(SearchIndex(), query) == ["m0"]
    terms = read_query(query, TermReader()).terms
    assert len(terms) == MAX_QUERY_TERMS
    assert [term.run for term in terms] == sorted(term.run for term in terms)


def test_the_beginning_of_a_word_is_no_hash() -> None:
    """Only of digits and letters that a hash may have, and of as many as are written of one."""
    history = History(["about 9f8e7d6c5b", "effaced2b1", "20240517"])
    for query in ("9f8e7d", "effaced", "2024051", "out 9f8"):
        assert history.keys(SearchIndex(), query) == []


def test_lines_of_underscores_are_read_in_linear_time() -> None:
    """Tried anew at each of these, a name that does not follow would take minutes."""
    assert TermReader().terms("_" * 300_000 + " x") == {"x"}
    assert TermReader().terms("a ___init__ b_") == TermReader().terms("a init b")


@given(st.text("ab_./:中", max_size=30))
def test_every_letter_stands_in_a_run(text: str) -> None:
    assert re.findall("[ab中]", "".join(RUN.findall(text))) == re.findall("[ab中]", text)


def test_terms_hold_letters_and_digits_alone() -> None:
    """No character, alone or in a name, gives a term that FTS5 would split or take for an operator."""
    reader = TermReader()
    sound = re.compile(r"[0-9a-z\u0080-\U0010ffff]+")
    every = [chr(code) for code in range(0x20000)]
    found = reader.terms(" ".join(every))
    for one in every:
        if one.isalnum() and fold(one) != one.casefold():
            for text in (one, f"a{one}b", f"x_{one}"):
                found |= reader.terms(text)
                found.update(term for asked in read_query(text, reader).terms for term in asked.terms)
    assert [term for term in found if not sound.fullmatch(term)] == []


# Draws odd characters more often than all of Unicode does: compatibility forms, marks, halves of pairs.
ODD = st.sampled_from("⑴⑵ﷺ½⒈㈤㌀ﬁͺ🄈゛\ufdfa\u0301\u0e33\ud800\0\"'()*^:-_./\\ aZ五ｶﾞİß\u1100")
TEXTS = st.lists(st.one_of(ODD, ODD, st.characters(exclude_categories=())), max_size=30).map("".join)


@given(texts=st.lists(TEXTS, max_size=4), query=TEXTS)
def test_any_text_may_be_searched(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], query: str
) -> None:
    """Taken up, found and removed without an error, and without a file given up or written anew."""
    path = tmp_path_factory.mktemp("any") / "i.sqlite3"
    index, history = SearchIndex(path), History([*texts, "zebra"])
    index.update(history.entries, history.read)
    for asked in (query, *texts):
        history.search(index, asked)
    index.remove(list(history.documents)[:-1])
    history.documents = dict([history.documents.popitem()])
    history.reads.clear()
    assert history.keys(index, "zebra") == [f"m{len(texts)}"]
    assert (index.path, history.reads) == (path, [f"m{len(texts)}"])
    index.close()
