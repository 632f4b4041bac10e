"""A file that is damaged, gone, foreign, locked or unwritable, processes that are killed or at odds."""

import gc
import logging
import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from context_compressor.search import storage
from context_compressor.search.index import SearchIndex
from tests.search.support import History

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


DAMAGES: dict[str, Damage] = {
    **{f"garbage {seed}": garbage(seed) for seed in range(6)},
    **{f"cut at {size}": lambda data, size=size: data[:size] for size in (0, 1, 99, 100, 512, 700, 3000)},  # type: ignore[misc]
    "cut by a byte": lambda data: data[:-1],
    "cut by a page": lambda data: data[:-600],
    "zeros, as after a power cut": lambda data: bytes(len(data)),
    **{str(said): unreadable(said) for said in (b"TABLE messages", b"VIRTUAL TABLE terms", b"stamp BLOB")},
    "a table that is missing": told("DROP TABLE state"),
    "another version": told(f"PRAGMA user_version = {storage.VERSION - 1}"),
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


@pytest.mark.parametrize("is_on_disk", [True, False])
@pytest.mark.parametrize("is_dropped", [True, False])
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


@pytest.mark.skipif(sys.platform == "win32" or os.getuid() == 0, reason="rights do not bind the superuser")
def test_a_read_only_directory_is_memory(tmp_path: Path) -> None:
    history = write_index(tmp_path / "i.sqlite3")
    history.add("new", "another zebra")
    tmp_path.chmod(0o500)
    try:
        check(SearchIndex(tmp_path / "i.sqlite3"), history)
    finally:
        tmp_path.chmod(0o700)


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


def test_a_lock_that_is_not_given_up_is_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "i.sqlite3"
    history = write_index(path)
    monkeypatch.setattr(storage, "LOCK_SECONDS", 0.05)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    index = SearchIndex(path)
    check(index, history)
    other.execute("ROLLBACK")
    other.close()
    assert index.path is None
    assert len(caplog.records) == 1


@pytest.fixture
def locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, sqlite3.Connection]]:
    """An index file that somebody has locked, for longer than anybody waits."""
    path = tmp_path / "i.sqlite3"
    monkeypatch.setattr(storage, "LOCK_SECONDS", 0.05)
    other = sqlite3.connect(path, isolation_level=None)
    yield path, other
    other.close()


def test_a_lock_is_waited_for_again(
    locked: tuple[Path, sqlite3.Connection], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Memory serves while the file is locked, for a while at no cost; then the file is taken up again."""
    path, other = locked
    monkeypatch.setattr("context_compressor.search.index._PAUSE", 1e9)
    history = write_index(path)
    index = SearchIndex(path)
    for _ in range(2):
        other.execute("BEGIN EXCLUSIVE")
        check(index, history)
        assert index.path is None
        other.execute("ROLLBACK")
        check(index, history)
        assert index.path is None
        monkeypatch.setattr(index, "_next_try", 0.0)
        history.reads.clear()
        index.update(history.entries, history.read)
        assert (index.path, history.reads) == (path, [])
    other.execute("BEGIN EXCLUSIVE")
    check(index, history)
    other.execute("ROLLBACK")
    index.close()
    check(index, history)
    assert index.path == path
    assert len(caplog.records) == 1


@pytest.mark.parametrize("was_in_memory", [False, True])
def test_removing_from_a_locked_file_deletes_it(
    locked: tuple[Path, sqlite3.Connection], was_in_memory: bool
) -> None:
    """No deleted word is left in it, whether the index was in memory already or not."""
    path, other = locked
    history = History(["xylophonist", *TEXTS])
    index = SearchIndex(path)
    check(index, history)
    other.execute("BEGIN EXCLUSIVE" if was_in_memory else "BEGIN IMMEDIATE")
    check(index, history)
    assert (index.path is None) == was_in_memory
    index.remove(["m0"])
    assert not path.exists() or b"xylophonist" not in path.read_bytes()
    del history.documents["m0"]
    other.execute("ROLLBACK")
    index.close()
    check(index, history)
    assert index.path == path
    assert b"xylophonist" not in path.read_bytes()
    assert history.keys(index, "xylophonist") == []


def test_a_locked_file_is_cleared(locked: tuple[Path, sqlite3.Connection]) -> None:
    path, other = locked
    index, history = SearchIndex(path), History(TEXTS)
    check(index, history)
    other.execute("BEGIN EXCLUSIVE")
    index.clear()
    assert not path.exists()
    check(index, history)
    assert index.path == path


def test_what_cannot_be_deleted_is_emptied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows, where another process may have the file open."""
    path = tmp_path / "i.sqlite3"
    history = History(["xylophonist", *TEXTS])
    SearchIndex(path).update(history.entries, history.read)

    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "another process has it open")

    monkeypatch.setattr(Path, "unlink", refuse)
    SearchIndex(path).clear()
    assert b"xylophonist" not in path.read_bytes()


def test_words_that_cannot_be_removed_are_told_of_and_go_later(
    locked: tuple[Path, sqlite3.Connection], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path, other = locked
    index, history = SearchIndex(path), History(["xylophonist", *TEXTS])
    check(index, history)

    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "another process has it open")

    other.execute("BEGIN EXCLUSIVE")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refuse)
        index.remove(["m0"])
    assert "may still hold deleted words" in caplog.text
    other.execute("ROLLBACK")
    del history.documents["m0"]
    check(index, history)
    assert b"xylophonist" not in path.read_bytes()


def test_an_error_in_a_statement_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes through, and a sound file stays."""
    path = tmp_path / "i.sqlite3"
    history = write_index(path)

    def fail(opened: storage.Storage, query: object) -> None:
        opened._connection.execute("SELECT rowid FROM terms WHERE terms MATCH '\"'")

    index = SearchIndex(path)
    with monkeypatch.context() as patch:
        patch.setattr("context_compressor.search.index._look_up", fail)
        with pytest.raises(sqlite3.OperationalError, match="unterminated string"):
            history.search(index, "zebra")
    history.reads.clear()
    SearchIndex(path).update(history.entries, history.read)
    assert history.reads == []


def test_opening_an_index_keeps_the_locks_of_others(locked: tuple[Path, sqlite3.Connection]) -> None:
    """POSIX drops the locks of a process on a file when it closes the file, though others have it open."""
    path, other = locked
    write_index(path)
    other.execute("BEGIN IMMEDIATE")
    SearchIndex(path).update([], lambda keys: [])
    code = """
import sqlite3
try:
    sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None).execute("BEGIN IMMEDIATE")
except sqlite3.OperationalError as error:
    print(error)
"""
    assert run(code, path).communicate()[0].strip() == "database is locked"


def run(code: str, *arguments: object) -> "subprocess.Popen[str]":
    script = (
        "import sys\nfrom tests.search.support import History\n"
        f"from context_compressor.search.index import SearchIndex\n{code}"
    )
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX limits")
def test_a_full_disk_is_memory(tmp_path: Path) -> None:
    """A file that cannot grow beyond 9,000 bytes, as on a full disk."""
    code = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (9_000, 9_000))
history = History(f"zebra number {number} {'word%d ' % number * 50}" for number in range(300))
index = SearchIndex(sys.argv[1])
print(len(history.keys(index, "zebra", 300)), history.keys(index, "word123")[0], index.path)
"""
    process = run(code, tmp_path / "i.sqlite3")
    assert process.communicate()[0].split() == ["300", "m123", "None"]


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
    for _ in range(4):
        process = run(code, path)
        assert process.stdout is not None
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
