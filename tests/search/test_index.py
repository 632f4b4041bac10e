"""An index in step with its history."""

import logging
import random
import sqlite3
import stat
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from context_compressor.search.hits import Document
from context_compressor.search.index import SearchIndex
from tests.search.support import History, random_text


def test_what_is_new_is_found_and_read_once(tmp_path: Path) -> None:
    index = SearchIndex(tmp_path / "i.sqlite3")
    history = History(["first about lions", "second about zebras"])
    assert history.keys(index, "zebra") == ["m1"]
    history.reads.clear()
    history.add("m2", "third about herons")
    index.update(history.entries, history.read)
    assert history.reads == ["m2"]
    history.reads.clear()
    index.update(history.entries, history.read)
    assert history.reads == []
    assert history.keys(index, "heron") == ["m2"]


def test_a_file_is_taken_up_again(tmp_path: Path) -> None:
    """However it was written, in one go or message by message, nothing is read anew."""
    history = History()
    index = SearchIndex(tmp_path / "i.sqlite3")
    for number in range(30):
        history.add(f"m{number}", f"zebra {number}")
        index.update(history.entries, history.read)
    del history.documents["m7"]
    index.update(history.entries, history.read)
    index.close()
    history.reads.clear()
    again = SearchIndex(tmp_path / "i.sqlite3")
    again.update(history.entries, history.read)
    assert history.reads == []
    assert history.keys(again, "zebra", 50) == history.keys(SearchIndex(), "zebra", 50)


def test_what_changed_or_went_is_followed(tmp_path: Path) -> None:
    index = SearchIndex(tmp_path / "i.sqlite3")
    history = History(["lion", "zebra", "heron"])
    assert history.keys(index, "lion zebra heron") != []
    history.add("m1", "quetzal")
    del history.documents["m2"]
    history.reads.clear()
    index.update(history.entries, history.read)
    assert history.reads == ["m1"]
    assert history.keys(index, "zebra") == []
    assert history.keys(index, "heron") == []
    assert history.keys(index, "quetzal") == ["m1"]


@pytest.mark.parametrize("count", [3, 200])
def test_deleted_words_leave_the_file(tmp_path: Path, count: int) -> None:
    """Removed by key, or gone from the history: no byte of a word is left."""
    path = tmp_path / "i.sqlite3"
    index = SearchIndex(path)
    history = History([f"plain text number {number} on lions" for number in range(count)])
    history.add("secret", "the word is xylophonist")
    history.add("secret\0two", "another is bandersnatch")
    index.update(history.entries, history.read)
    assert b"xylophonist" in path.read_bytes()
    index.remove(["secret", "unknown"])
    assert b"xylophonist" not in path.read_bytes()
    del history.documents["secret"]
    assert history.keys(index, "bandersnatch") == ["secret\0two"]
    del history.documents["secret\0two"]
    index.update(history.entries, history.read)
    assert b"andersnatch" not in path.read_bytes()
    assert len(history.keys(index, "lions", 300)) == count
    assert [one.name for one in tmp_path.iterdir()] == ["i.sqlite3"]


def test_removing_reads_nothing_that_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hint comes and goes with every turn: that must not cost more the longer the history is."""
    history = History(["about lions", "about zebras", "about herons"])
    index = SearchIndex(tmp_path / "i.sqlite3")
    index.update(history.entries, history.read)
    reads: list[Path] = []
    monkeypatch.setattr("context_compressor.search.index.read_file", reads.append)
    index.remove(["unknown"])
    history.add("m3", "about okapis")
    assert history.keys(index, "okapi") == ["m3"]
    for key in ("m0", "unknown", "m1", "m0"):
        index.remove([key])
    assert reads == []
    assert b"zebra" not in (tmp_path / "i.sqlite3").read_bytes()
    del history.documents["m0"], history.documents["m1"]
    history.reads.clear()
    index.update(history.entries, history.read)
    assert history.reads == []
    assert history.keys(index, "about") == history.keys(SearchIndex(), "about") == ["m3", "m2"]


@pytest.mark.parametrize("in_file", [False, True])
def test_what_was_removed_is_read_anew(tmp_path: Path, in_file: bool) -> None:
    history = History(["lion", "zebra"])
    index = SearchIndex(tmp_path / "i.sqlite3" if in_file else None)
    index.update(history.entries, history.read)
    history.reads.clear()
    index.remove(["m0"])
    index.update(history.entries, history.read)
    assert history.reads == ["m0"]
    assert history.keys(index, "lion") == ["m0"]


def test_two_indexes_of_one_file_follow_each_other(tmp_path: Path) -> None:
    one, other = (SearchIndex(tmp_path / "i.sqlite3") for _ in range(2))
    lions, zebras = History(["a lion"]), History(["a zebra"])
    for _ in range(3):
        assert (lions.keys(one, "lion"), lions.keys(one, "zebra")) == (["m0"], [])
        assert (zebras.keys(other, "zebra"), zebras.keys(other, "lion")) == (["m0"], [])


@pytest.mark.parametrize("in_file", [False, True])
def test_any_order_of_changes_gives_what_a_fresh_index_gives(tmp_path: Path, in_file: bool) -> None:
    """Random additions, changes, deletions and moves, with and without `remove`."""
    draw = random.Random(11)
    path = tmp_path / "i.sqlite3" if in_file else None
    index = SearchIndex(path)
    history = History()
    for step in range(32):
        for _ in range(draw.randint(0, 4)):
            history.add(f"k{draw.randint(0, 25)}\0", *(random_text(draw) for _ in range(draw.randint(0, 3))))
        if history.documents and draw.random() < 0.4:
            key = draw.choice(list(history.documents))
            del history.documents[key]
            if draw.random() < 0.5:
                index.remove([key])
        if draw.random() < 0.15:
            keys = draw.sample(list(history.documents), len(history.documents))
            history.documents = {key: history.documents[key] for key in keys}
        if draw.random() < 0.1:
            index.close()
        if step % 4 == 0:
            fresh = SearchIndex()
            for query in ("amber", "heron islet", "世界", "foo_bar", "x_y cedar 検索"):
                assert history.search(index, query, 50) == history.search(fresh, query, 50)


def test_an_error_of_the_reader_comes_through(tmp_path: Path) -> None:
    """And leaves the index as it was, be it one that a damaged file would raise."""
    index = SearchIndex(tmp_path / "i.sqlite3")
    history = History(["lion", "zebra"])

    def fail(keys: object) -> list[Document]:
        error = sqlite3.DatabaseError("of the caller's own database")
        error.sqlite_errorname = "SQLITE_CORRUPT"
        raise error

    with pytest.raises(sqlite3.DatabaseError, match="caller's own"):
        index.search("lion", 5, history.entries, fail)
    assert index.path is not None
    assert history.keys(index, "lion") == ["m0"]
    with pytest.raises(sqlite3.DatabaseError, match="caller's own"):
        index.search("lion", 5, history.entries, fail)
    assert history.keys(index, "zebra") == ["m1"]
    history.add("m2", "heron")
    with pytest.raises(sqlite3.DatabaseError, match="caller's own"):
        index.update(history.entries, fail)
    history.reads.clear()
    index.update(history.entries, history.read)
    assert history.reads == ["m2"]


def test_a_limit_is_kept() -> None:
    history = History(["zebra"] * 9)
    assert len(history.keys(SearchIndex(), "zebra", 4)) == 4
    assert history.keys(SearchIndex(), "zebra", 0) == history.keys(SearchIndex(), "zebra", -1) == []
    assert SearchIndex().search("zebra", 5, [], history.read) == []


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX rights")
def test_the_file_is_for_its_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "i.sqlite3"
    history = History(["lion"])
    SearchIndex(path).update(history.entries, history.read)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_file_is_small(tmp_path: Path) -> None:
    """Below 60 % of texts of 30,000 bytes, though few words repeat in them."""
    draw = random.Random(3)
    words = ["".join(draw.choices("abcdefghijklmnop", k=draw.randint(3, 9))) for _ in range(1_000)]
    history = History(" ".join(draw.choices(words, k=100)) for _ in range(45))
    index = SearchIndex(tmp_path / "i.sqlite3")
    index.update(history.entries, history.read)
    texts = sum(len(one.text) for documents in history.documents.values() for one in documents)
    assert (tmp_path / "i.sqlite3").stat().st_size < 0.6 * texts


def test_threads_may_share_an_index(caplog: pytest.LogCaptureFixture) -> None:
    from concurrent.futures import ThreadPoolExecutor

    index = SearchIndex()
    histories = [History([f"zebra {name}", "lion"]) for name in ("one", "two")]
    with caplog.at_level(logging.WARNING), ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda i: histories[i % 2].search(index, "zebra")[0].text, range(40)))
    assert found == ["zebra one", "zebra two"] * 20
    assert caplog.records == []


def test_a_message_that_was_not_there_to_read_is_found_once_it_is() -> None:
    """Deleted while a search runs and added again, with the same key and digest."""
    index = SearchIndex()
    history = History(["pineapple", "other"])
    entries = history.entries
    gone = history.documents.pop("m0")

    def read(keys: Sequence[str]) -> list[Document]:
        return [document for key in keys for document in history.documents.get(key, ())]

    assert [one.document.key for one in index.search("other", 5, entries, read)] == ["m1"]
    history.documents["m0"] = gone
    assert [one.document.key for one in index.search("pineapple", 5, entries, read)] == ["m0"]
    assert [one.document.key for one in index.search("other", 5, entries, read)] == ["m1"]


def test_a_message_without_texts_is_read_once(tmp_path: Path) -> None:
    """It is answered with one empty text; what is not answered at all is asked for again."""
    path = tmp_path / "i.sqlite3"
    history = History(["lion"])
    history.add("empty", "")
    history.add("silent")
    for index in (SearchIndex(path), SearchIndex(path)):
        assert history.keys(index, "lion") == ["m0"]
        history.reads.clear()
        assert history.keys(index, "lion") == ["m0"]
        assert history.reads == ["silent", "m0"]


class Abort(BaseException):
    pass


@pytest.mark.parametrize("raised", [Abort, GeneratorExit, StopIteration])
@pytest.mark.parametrize("in_file", [False, True])
def test_reading_may_be_ended_by_any_exception(
    tmp_path: Path, raised: type[BaseException], in_file: bool
) -> None:
    """It comes through as it is, from whichever text on, and the index is as it was for the next call."""
    index = SearchIndex(tmp_path / "i.sqlite3" if in_file else None)
    history = History(f"zebra {number}" for number in range(300))
    index.update(history.entries[:10], history.read)
    for left in (0, 200, 300):
        cause = ValueError("the cause")
        error = raised("ended")
        error.__cause__ = cause

        def read(keys: Sequence[str], left: int = left, error: BaseException = error) -> list[Document]:
            if len(history.reads) + len(keys) > left:
                raise error
            return history.read(keys)

        history.reads.clear()
        with pytest.raises(raised) as caught:
            index.search("zebra", 5, history.entries, read)
        assert caught.value is error
        assert error.__cause__ is cause
        index.update(history.entries[:10], fail_to_read)
    assert history.keys(index, "zebra 299", 1) == ["m299"]
    assert index.path == (tmp_path / "i.sqlite3" if in_file else None)
    index.close()


def fail_to_read(keys: Sequence[str]) -> list[Document]:
    raise AssertionError("what was written before is there")


def test_a_call_waits_for_one_that_reads() -> None:
    """And runs once that was ended from outside, so that closing hangs as long as `read` does, no longer."""
    index, history = SearchIndex(), History(["lion"])
    reading, ended = threading.Event(), threading.Event()

    def read(keys: Sequence[str]) -> list[Document]:
        reading.set()
        ended.wait()
        raise Abort

    def search() -> None:
        with pytest.raises(Abort):
            index.search("lion", 5, history.entries, read)

    threads = [threading.Thread(target=search)]
    threads[0].start()
    reading.wait()
    threads += [threading.Thread(target=index.close), threading.Thread(target=index.remove, args=(["m0"],))]
    for thread in threads[1:]:
        thread.start()
    assert all(thread.is_alive() for thread in threads)
    ended.set()
    for thread in threads:
        thread.join()
    assert history.keys(index, "lion") == ["m0"]


@pytest.mark.parametrize("action", ["remove", "clear", "close", "gone"])
def test_deleted_words_leave_memory(action: str) -> None:
    """No word of a text is remembered, to read the next one faster, when it was deleted."""
    index, history = SearchIndex(), History(["zebrapassword hunter_2", "hello"])
    assert history.keys(index, "hello") == ["m1"]
    assert {*index._reader} >= {"zebrapassword", "hunter_2"}
    assert index._reader._stem.cache_info().currsize > 0
    del history.documents["m0"]
    if action == "remove":
        index.remove(["m0"])
    elif action == "gone":
        index.update(history.entries, history.read)
    else:
        getattr(index, action)()
    assert not index._reader
    assert index._reader._stem.cache_info().currsize == 0
    assert history.keys(index, "hello zebrapasswords") == ["m1"]


@pytest.mark.parametrize("in_file", [False, True])
def test_all_can_be_dropped_at_once(tmp_path: Path, in_file: bool) -> None:
    """By the index in use and by a fresh one; what comes after is taken up as ever."""
    path = tmp_path / "i.sqlite3"
    index = SearchIndex(path if in_file else None)
    history = History(["xylophonist", "zebra"])
    for clearing in (index, SearchIndex(path) if in_file else index):
        assert history.keys(index, "zebra") == ["m1"]
        clearing.clear()
        assert list(tmp_path.iterdir()) == []
        clearing.clear()
        history.reads.clear()
    assert history.keys(index, "xylophonist") == ["m0"]
    assert history.reads[:2] == ["m0", "m1"]
