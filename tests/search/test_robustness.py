"""A file that is damaged, gone, foreign, locked or unwritable, processes that are killed or at odds."""

import gc
import logging
import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import NoReturn
from zlib import crc32

import pytest

from context_compressor.search import storage
from context_compressor.search.hits import Document
from context_compressor.search.index import SearchIndex
from tests.search.support import History
from tests.support.limits import small_files

Damage = Callable[[bytes], bytes]

ROOT = Path(__file__).parents[2]
TEXTS = [f"zebra number {number}, with stripes and {'hooves ' * (number % 7)}" for number in range(60)]


def write_index(path: Path) -> History:
    history = History(TEXTS)
    index = SearchIndex(path)
    index.update(history.entries, history.read)
    index.close()
    return history


def check(index: SearchIndex, history: History) -> None:
    for query in ("zebra 17", "stripes", "hooves zebra"):
        assert history.search(index, query, 70) == history.search(SearchIndex(), query, 70)


def garbage(seed: int) -> Damage:
    """Return what puts bytes anywhere after the header."""

    def spoil(data: bytes) -> bytes:
        draw, spoilt = random.Random(seed), bytearray(data)
        for _ in range(1 + seed):
            start = draw.randrange(100, len(data) - 40)
            spoilt[start : start + 40] = draw.randbytes(40)
        return bytes(spoilt)

    return spoil


def unreadable(said: bytes) -> Damage:
    """Return what spoils a statement that SQLite keeps: its error cannot even be decoded."""
    return lambda data: data.replace(said, said[:2] + b"\xe5" * 3 + said[5:])


def told(statement: str) -> Damage:
    """Return what somebody does to the database."""

    def run(data: bytes) -> bytes:
        with closing(sqlite3.connect(":memory:")) as connection:
            connection.deserialize(data)
            connection.execute(statement)
            connection.commit()
            return connection.serialize()

    return run


def sealed(damage: Damage) -> Damage:
    """Return what damages a file and mends its checksum."""

    def spoil(data: bytes) -> bytes:
        spoilt = damage(data[:-4])
        return spoilt + crc32(spoilt).to_bytes(4)

    return spoil


DAMAGES: dict[str, Damage] = {
    **{f"garbage {seed}": garbage(seed) for seed in range(3)},
    **{f"cut at {size}": lambda data, size=size: data[:size] for size in (0, 99, 700)},  # type: ignore[misc]
    "cut by a byte": lambda data: data[:-1],
    "zeros, as after a power cut": lambda data: bytes(len(data)),
    **{str(said): unreadable(said) for said in (b"TABLE messages",)},
    "a table that is missing": sealed(told("DROP TABLE messages")),
    "terms of another SQLite": sealed(told("UPDATE terms_config SET v = 99 WHERE k = 'version'")),
    "another version": sealed(told(f"PRAGMA user_version = {storage.VERSION - 1}")),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_written_anew(
    tmp_path: Path, damage: Damage, caplog: pytest.LogCaptureFixture
) -> None:
    """Answers are right, and the next index finds a sound file."""
    path = tmp_path / "i.sqlite3"
    history = write_index(path)
    path.write_bytes(damage(path.read_bytes()))
    with caplog.at_level(logging.WARNING):
        index = SearchIndex(path)
        check(index, history)
        index.close()
    assert index.path == path
    assert caplog.records == []
    history.reads.clear()
    SearchIndex(path).update(history.entries, history.read)
    assert history.reads == []


@pytest.mark.parametrize("data", [b"not a database, but somebody's notes\n" * 50, b"x", None])
def test_a_file_of_something_else_is_left_alone(
    tmp_path: Path, data: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever is asked of the index; None: a database."""
    path = tmp_path / "notes.txt"
    if data is None:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE orders (id)")
        data = path.read_bytes()
    path.write_bytes(data)
    index = SearchIndex(path)
    check(index, History(TEXTS))
    check(index, History(TEXTS))
    index.remove(["m0"])
    assert index.path is None
    index.clear()
    assert path.read_bytes() == data
    assert [record.levelname for record in caplog.records] == ["WARNING"]


@pytest.mark.parametrize(("is_on_disk", "is_dropped"), [(True, False), (False, True)])
def test_an_index_is_closed_by_its_user_or_when_it_is_dropped(
    tmp_path: Path, is_on_disk: bool, is_dropped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.13 warns of every connection that is not."""
    closed: list[sqlite3.Connection] = []

    class Connection(sqlite3.Connection):
        def close(self) -> None:
            closed.append(self)
            super().close()

    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Connection))
    index = SearchIndex(tmp_path / "i.sqlite3" if is_on_disk else None)
    History(TEXTS).search(index, "zebra 17")
    if is_dropped:
        del index
        gc.collect()
    else:
        index.close()
    assert len(set(closed)) == 1


def test_damage_while_open_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "i.sqlite3"
    history = History(TEXTS)
    index = SearchIndex(path)
    check(index, history)
    path.write_bytes(path.read_bytes()[:1500])
    history.add("new", "a zebra more")
    check(index, history)


@pytest.mark.skipif(sys.platform == "win32", reason="open files cannot be deleted there")
def test_a_deleted_file_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "i.sqlite3"
    history = write_index(path)
    index = SearchIndex(path)
    check(index, history)
    path.unlink()
    check(index, history)
    assert path.exists()


def test_a_place_that_cannot_be_written_is_memory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    index = SearchIndex(tmp_path / "file" / "i.sqlite3")
    check(index, History(TEXTS))
    index.close()
    check(index, History(TEXTS))
    assert len(caplog.records) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="no links and pipes there")
def test_a_link_or_a_pipe_in_the_place_of_the_file_is_left_alone(tmp_path: Path) -> None:
    """Who unpacks somebody's directory must find no other file of his changed, nor wait for ever."""
    script = tmp_path / "script.sh"
    script.write_text("#!/bin/sh\n" + "true\n" * 500)
    script.chmod(0o755)
    other = tmp_path / "other.sqlite3"
    write_index(other)
    indexed = other.read_bytes()
    history = History(["a zebra of another memory", *TEXTS])
    path = tmp_path / "i.sqlite3"
    for target in (script, other, tmp_path / "not there"):
        path.symlink_to(target)
        check(SearchIndex(path), history)
        SearchIndex(path).clear()
        path.unlink()
    assert (script.stat().st_mode & 0o777, other.read_bytes()) == (0o755, indexed)
    assert not (tmp_path / "not there").exists()
    os.mkfifo(path)
    check(SearchIndex(path), history)
    SearchIndex(path).clear()
    assert path.is_fifo()


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> Callable[[], AbstractContextManager[None]]:
    """Return what lets writing fail while it is entered, as a full disk does."""

    @contextmanager
    def refuse() -> Iterator[None]:
        with monkeypatch.context() as patch:
            patch.setattr("context_compressor.search.storage.replacing", no_room)
            yield

    def no_room(path: Path, **_: bool) -> NoReturn:
        raise OSError(28, "no space left on device", str(path))

    return refuse


def test_a_file_that_cannot_be_written_is_tried_again(
    tmp_path: Path, refusing: Callable[[], AbstractContextManager[None]], caplog: pytest.LogCaptureFixture
) -> None:
    """Memory serves meanwhile, which is told once."""
    path = tmp_path / "i.sqlite3"
    history = write_index(path)
    index = SearchIndex(path)
    for number in range(2):
        history.add(f"new {number}", "a zebra more")
        with refusing():
            check(index, history)
            assert index.path is None
        check(index, history)
        assert index.path == path
    history.reads.clear()
    SearchIndex(path).update(history.entries, history.read)
    assert history.reads == []
    assert len(caplog.records) == 1


def test_removing_from_a_file_that_cannot_be_written_deletes_it(
    tmp_path: Path, refusing: Callable[[], AbstractContextManager[None]]
) -> None:
    path = tmp_path / "i.sqlite3"
    history = History(["xylophonist", *TEXTS])
    index = SearchIndex(path)
    check(index, history)
    with refusing():
        index.remove(["m0"])
        assert not path.exists()
    del history.documents["m0"]
    check(index, history)
    assert index.path == path
    assert b"xylophonist" not in path.read_bytes()
    assert history.keys(index, "xylophonist") == []


def test_what_others_removed_meanwhile_is_not_written_again(tmp_path: Path) -> None:
    """And is gone from memory with the next call."""
    path = tmp_path / "i.sqlite3"
    history = History(["xylophonist", *TEXTS])
    index = SearchIndex(path)
    check(index, history)
    entries = history.entries
    history.add("new", "a zebra more")

    def read(keys: Sequence[str]) -> list[Document]:
        SearchIndex(path).remove(["m0"])
        return history.read(keys)

    index.update([*entries, history.entries[-1]], read)
    assert b"xylophonist" not in path.read_bytes()
    del history.documents["m0"]
    index.remove(["m1"])
    assert b"xylophonist" not in path.read_bytes()
    check(index, history)


def test_an_index_on_a_full_disk_goes_on_in_memory(tmp_path: Path) -> None:
    history = History(f"zebra number {n} {f'word{n} ' * 50}" for n in range(300))
    index = SearchIndex(tmp_path / "i.sqlite3")
    with small_files(9_000):
        assert len(history.keys(index, "zebra", 300)) == 300
        assert history.keys(index, "word123")[0] == "m123"
    assert index.path is None


def test_words_that_cannot_be_removed_are_told_of_and_go_later(
    tmp_path: Path,
    refusing: Callable[[], AbstractContextManager[None]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = tmp_path / "i.sqlite3"
    index, history = SearchIndex(path), History(["xylophonist", *TEXTS])
    check(index, history)

    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "another process has it open")

    with monkeypatch.context() as patch, refusing():
        patch.setattr(Path, "unlink", refuse)
        index.remove(["m0"])
    assert "may still hold deleted words" in caplog.text
    del history.documents["m0"]
    check(index, history)
    assert b"xylophonist" not in path.read_bytes()


def run(code: str, *arguments: object) -> "subprocess.Popen[str]":
    script = (
        "import sys\nfrom tests.search.support import History\n"
        f"from context_compressor.search.index import SearchIndex\n{code}"
    )
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")
def test_a_killed_writer_leaves_an_index(tmp_path: Path) -> None:
    """Killed at any moment, it leaves what its last transaction wrote."""
    code = """
history = History()
index = SearchIndex(sys.argv[1])
number = 0
while True:
    number += 1
    history.add(f"m{number % 40}", f"zebra {number} " + "stripes " * number)
    if number % 7 == 0:
        del history.documents[next(iter(history.documents))]
    index.update(history.entries, history.read)
    print(number, flush=True)
"""
    path = tmp_path / "i.sqlite3"
    draw = random.Random(7)
    history = History(TEXTS)
    for _ in range(2):
        process = run(code, path)
        for _ in range(draw.randint(1, 40)):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        index = SearchIndex(path)
        check(index, history)
        assert index.path == path
        index.close()


def test_processes_with_different_histories_each_get_their_own(tmp_path: Path) -> None:
    """They share a file, and no answer of one shows what only the other has."""
    code = """
name = sys.argv[2]
history = History([f"zebra {name} {number}" for number in range(20)])
index = SearchIndex(sys.argv[1])
for turn in range(25):
    history.add(f"turn {turn}", f"heron {name} {turn}")
    found = history.search(index, "zebra heron", 100)
    assert len(found) == 21 + turn, len(found)
    assert all(name in one.text for one in found)
    assert f" {turn}" in history.search(index, f"heron {name}", 1)[0].text or turn < 1
print(index.path is not None)
"""
    processes = [run(code, tmp_path / "i.sqlite3", name) for name in ("alpha", "omega")]
    assert [process.communicate()[0].strip() for process in processes] == ["True", "True"]
