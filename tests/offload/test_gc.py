"""`collect_garbage`: what goes, in which order, and what never does."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compressor.errors import InvalidArgumentError, OffloadError, OffloadPermissionError
from context_compressor.offload import directory, files, locks
from context_compressor.offload.directory import choose, collect_garbage, namespaces_in_use
from context_compressor.offload.files import FileOffloadStore
from context_compressor.offload.folders import FoundNamespace
from tests.offload.directories import DAY, bytes_in, make_older, names_in, namespaces_in, put, text_of


class TestLimits:
    async def test_what_is_older_goes(self, tmp_path: Path) -> None:
        for name, days in {"a": 40, "b": 31, "c": 29, "d": 0}.items():
            await put(tmp_path, name, age_seconds=days * DAY)
        done = collect_garbage(tmp_path, max_age_seconds=30 * DAY)
        assert [(each.name, each.reason) for each in done.removed] == [("a", "age"), ("b", "age")]
        assert namespaces_in(tmp_path) == ["c", "d"]
        assert done.removed[0].unused_seconds == pytest.approx(40 * DAY, abs=60)

    async def test_the_longest_unused_go_first_and_no_more_than_needed(self, tmp_path: Path) -> None:
        for name, days in {"a": 1, "b": 4, "c": 3, "d": 2}.items():
            await put(tmp_path, name, age_seconds=days * DAY)
        done = collect_garbage(tmp_path, max_bytes=2_500)
        assert [(each.name, each.bytes, each.texts, each.reason) for each in done.removed] == [
            ("b", 1_000, 1, "bytes"),
            ("c", 1_000, 1, "bytes"),
        ]
        assert (done.bytes_before, done.bytes_after, done.removed_bytes) == (4_000, 2_000, 2_000)
        assert (done.namespaces, done.in_use, done.kept) == (4, 0, 0)
        assert bytes_in(tmp_path) == 2_000

    async def test_without_limits_only_what_is_empty_goes(self, tmp_path: Path) -> None:
        await put(tmp_path, "old", age_seconds=1_000 * DAY)
        store = FileOffloadStore(tmp_path, "emptied")
        await store.delete(await store.write("text"))
        store.close()
        done = collect_garbage(tmp_path)
        assert [(each.name, each.reason) for each in done.removed] == [("emptied", "empty")]
        assert namespaces_in(tmp_path) == ["old"]

    async def test_a_dry_run_tells_the_same_and_changes_nothing(self, tmp_path: Path) -> None:
        held = directory.directory_of(tmp_path)  # else its file may go late, with the thread that wrote last
        for name, days in {"a": 40, "b": 2, "c": 1}.items():
            await put(tmp_path, name, age_seconds=days * DAY)
        before = times_in(tmp_path)
        told = collect_garbage(tmp_path, max_bytes=1_000, max_age_seconds=30 * DAY, dry_run=True)
        assert times_in(tmp_path) == before
        done = collect_garbage(tmp_path, max_bytes=1_000, max_age_seconds=30 * DAY)
        assert told.is_dry_run
        assert [each.name for each in told.removed] == [each.name for each in done.removed]
        assert told.bytes_after == done.bytes_after == 1_000
        assert held.is_of_this_process()

    def test_no_directory_is_an_empty_one(self, tmp_path: Path) -> None:
        done = collect_garbage(tmp_path / "nowhere", max_bytes=0)
        assert (done.removed, done.namespaces, done.bytes_after) == ((), 0, 0)
        assert not (tmp_path / "nowhere").exists()

    def test_arguments_are_checked(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"max_bytes \(-1\)"):
            collect_garbage(tmp_path, max_bytes=-1)
        with pytest.raises(ValueError, match="max_age_seconds"):
            collect_garbage(tmp_path, max_age_seconds=float("nan"))
        for wrong in (1.5, "10", True):
            with pytest.raises(InvalidArgumentError, match="max_bytes"):
                collect_garbage(tmp_path, max_bytes=wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgumentError, match="keep"):
            collect_garbage(tmp_path, keep="chat-1")
        with pytest.raises(InvalidArgumentError, match="keep"):
            collect_garbage(tmp_path, keep=5)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgumentError, match="path"):
            collect_garbage(5)  # type: ignore[arg-type]


class TestWhatStays:
    async def test_a_namespace_that_a_store_has_open(self, tmp_path: Path) -> None:
        store = FileOffloadStore(tmp_path, "open")
        ref = await store.write("text")
        make_older(tmp_path / "open", 99 * DAY)
        await put(tmp_path, "closed", age_seconds=99 * DAY)
        done = collect_garbage(tmp_path, max_bytes=0, max_age_seconds=0)
        assert [each.name for each in done.removed] == ["closed"]
        assert (done.in_use, done.bytes_after) == (1, 4)
        assert await store.read(ref) == "text"

    @pytest.mark.parametrize("operation", ["read", "refs", "delete", "open"])
    async def test_one_opened_again_by_any_operation(self, tmp_path: Path, operation: str) -> None:
        ref = await put(tmp_path, "again", age_seconds=99 * DAY)
        store = FileOffloadStore(tmp_path, "again")
        if operation == "read":
            await store.read(ref)
        elif operation == "refs":
            await store.refs()
        elif operation == "delete":
            await store.delete("ctx://0123456789abcdef")
        else:
            store.open()
        assert collect_garbage(tmp_path, max_bytes=0, max_age_seconds=0).removed == ()
        assert await store.read(ref)

    async def test_what_the_caller_keeps(self, tmp_path: Path) -> None:
        for name in ("a", "b"):
            await put(tmp_path, name, age_seconds=99 * DAY)
        done = collect_garbage(tmp_path, max_bytes=0, max_age_seconds=0, keep={"a", "not there"})
        assert [each.name for each in done.removed] == ["b"]
        assert (done.kept, done.in_use) == (1, 0)

    async def test_one_for_which_a_store_was_made_and_not_used_yet(self, tmp_path: Path) -> None:
        """As of a session that was resumed, and whose ledger names what lies there."""
        ref = await put(tmp_path, "a", age_seconds=99 * DAY)
        store = FileOffloadStore(tmp_path, "a")
        assert collect_garbage(tmp_path, max_bytes=0, max_age_seconds=0).in_use == 1
        assert await store.read(ref)

    async def test_a_store_made_while_a_collection_is_deciding_waits_for_its_first_operation(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ref = await put(tmp_path, "a")
        monkeypatch.setattr(files, "_OPENING_SECONDS", 0.0)
        with locks.locked(tmp_path / ".store" / "lock"):
            store = FileOffloadStore(tmp_path, "a")
        assert namespaces_in_use(tmp_path) == set()
        assert await store.read(ref)
        assert namespaces_in_use(tmp_path) == {"a"}

    async def test_files_that_no_store_made_and_their_directory(self, tmp_path: Path) -> None:
        await put(tmp_path, "shared", age_seconds=9)
        (tmp_path / "shared" / "notes.txt").write_text("mine")
        (tmp_path / "shared" / "folder").mkdir()
        make_older(tmp_path / "shared", 9)
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "thesis.tex").write_text("mine")
        (tmp_path / "mine" / "search.sqlite3").write_text("of another program")
        (tmp_path / "empty").mkdir(0o755)
        (tmp_path / "file").write_text("mine")
        done = collect_garbage(tmp_path, max_bytes=0, max_age_seconds=0)
        assert [each.name for each in done.removed] == ["shared"]
        assert namespaces_in(tmp_path) == ["empty", "file", "mine", "shared"]
        assert names_in(tmp_path / "shared") == ["folder", "notes.txt"]
        assert names_in(tmp_path / "mine") == ["search.sqlite3", "thesis.tex"]
        assert done.bytes_after == 0

    async def test_a_directory_that_may_not_be_read_is_named_and_the_others_go(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        await put(tmp_path, "of-root")
        await put(tmp_path, "a")
        real = os.scandir

        def scandir(path: Path) -> Any:
            if path == tmp_path / "of-root":
                raise PermissionError(13, "Permission denied", str(path))
            return real(path)

        monkeypatch.setattr(os, "scandir", scandir)
        assert [each.name for each in collect_garbage(tmp_path, max_bytes=0).removed] == ["a"]
        assert f"{tmp_path / 'of-root'} is not counted and stays" in caplog.text

    async def test_links_are_not_followed(self, tmp_path: Path) -> None:
        elsewhere = tmp_path / "elsewhere"
        ref = await put(elsewhere, "default")
        path = tmp_path / "store"
        await put(path, "a")
        (path / "linked").symlink_to(elsewhere / "default")
        name = ref.removeprefix("ctx://") + ".txt"
        (path / "a" / ("0" * 16 + ".txt")).symlink_to(elsewhere / "default" / name)
        collect_garbage(path, max_bytes=0, max_age_seconds=0)
        assert (elsewhere / "default" / name).read_text() == text_of("default")
        assert (path / "linked").is_symlink()
        assert names_in(path / "a") == ["0" * 16 + ".txt"]

    @pytest.mark.parametrize("meanwhile", ["used", "removed by another collection", "opened"])
    async def test_one_to_which_something_happened_after_it_was_looked_at(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: str
    ) -> None:
        ref = await put(tmp_path, "a", age_seconds=9)
        store = FileOffloadStore(tmp_path, "a")
        store.close()
        make_older(tmp_path / "a", 9)
        looked_at = (tmp_path / "a").lstat()
        real = directory.choose

        def let_it_happen(*arguments: Any) -> Any:
            chosen = real(*arguments)
            if meanwhile == "used":
                make_older(tmp_path / "a", 1)
            elif meanwhile == "opened":
                store.open()
                os.utime(tmp_path / "a", ns=(looked_at.st_atime_ns, looked_at.st_mtime_ns))  # no other trace
            elif (tmp_path / "a").exists():
                (tmp_path / "a").rename(tmp_path / ".store" / "removing-0")
            return chosen

        monkeypatch.setattr(directory, "choose", let_it_happen)
        done = collect_garbage(tmp_path, max_bytes=0)
        assert done.removed == ()
        assert done.bytes_after == (0 if "removed" in meanwhile else 1_000)
        if meanwhile == "opened":
            assert await store.read(ref)

    async def test_where_the_disk_has_no_locks_what_is_younger_than_a_day(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def unsupported(*_: object) -> None:
            raise OSError(37, "No locks available")

        monkeypatch.setattr(fcntl, "flock", unsupported)
        store = FileOffloadStore(tmp_path, "open")
        ref = await store.write("text")
        make_older(tmp_path / "open", 0.5 * DAY)
        await put(tmp_path, "young", age_seconds=0.9 * DAY)
        await put(tmp_path, "old", age_seconds=1.1 * DAY)
        done = collect_garbage(tmp_path, max_bytes=0)
        assert [each.name for each in done.removed] == ["old"]
        assert await store.read(ref) == "text"


def times_in(path: Path) -> list[tuple[Path, int]]:
    return sorted((each, each.lstat().st_mtime_ns) for each in path.rglob("*"))


class TestRemoving:
    async def test_an_index_beside_the_texts_counts_and_goes(self, tmp_path: Path) -> None:
        await put(tmp_path, "a")
        with closing(sqlite3.connect(tmp_path / "a" / "search.sqlite3")) as connection:
            connection.execute("CREATE TABLE t (x)")
            connection.commit()
        (tmp_path / "a" / "search.sqlite3-journal").write_bytes(b"x" * 10)
        size = (tmp_path / "a" / "search.sqlite3").stat().st_size
        done = collect_garbage(tmp_path, max_bytes=0)
        assert done.removed_bytes == 1_000 + size + 10
        assert namespaces_in(tmp_path) == []

    async def test_one_that_broke_off_is_finished_by_the_next(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await put(tmp_path, "a")

        def crash(_: Path) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(directory, "empty", crash)
            with pytest.raises(KeyboardInterrupt):
                collect_garbage(tmp_path, max_bytes=0)
        assert namespaces_in(tmp_path) == []
        assert list((tmp_path / ".store").glob("removing-*/*.txt"))
        collect_garbage(tmp_path)
        assert not list((tmp_path / ".store").glob("removing-*"))

    async def test_a_disk_that_fails_is_reported(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await put(tmp_path, "a")

        def fail(*_: object, **__: object) -> None:
            raise OSError(5, "Input/output error", str(tmp_path / "a"))

        with monkeypatch.context() as patched:
            patched.setattr(Path, "rename", fail)
            with pytest.raises(OffloadError, match=rf"{tmp_path} could not be tidied \({tmp_path}/a\)"):
                collect_garbage(tmp_path, max_bytes=0)
        assert namespaces_in(tmp_path) == ["a"]

    async def test_one_that_may_not_be_removed_is_named_and_others_go_in_its_place(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """As one that a run as another user left where all may read: it must not stop every collection."""
        for age, name in enumerate(("new", "old", "of-root")):
            await put(tmp_path, name, age_seconds=9 + age)
        real = Path.rename

        def rename(directory: Path, target: Path) -> Path:
            if directory.name == "of-root":
                raise PermissionError(13, "Permission denied", str(directory))
            return real(directory, target)

        monkeypatch.setattr(Path, "rename", rename)
        done = collect_garbage(tmp_path, max_bytes=2_000)
        assert ([each.name for each in done.removed], done.bytes_after) == (["old"], 2_000)
        assert namespaces_in(tmp_path) == ["new", "of-root"]
        assert f"{tmp_path / 'of-root'} may not be removed: Permission denied" in caplog.text
        assert [each.name for each in collect_garbage(tmp_path, max_bytes=0).removed] == ["new"]
        with pytest.raises(
            OffloadPermissionError, match="of-root"
        ):  # where nothing goes, somebody has to act
            collect_garbage(tmp_path, max_bytes=0)

    async def test_what_was_set_aside_and_may_not_be_removed_keeps_nothing_else(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await put(tmp_path, "a")
        aside = tmp_path / ".store" / "removing-0"
        (tmp_path / "a").rename(aside)
        await put(tmp_path, "b")
        real = Path.unlink

        def unlink(file: Path, missing_ok: bool = False) -> None:
            if file.parent == aside:
                raise PermissionError(1, "Operation not permitted", str(file))
            real(file, missing_ok)

        monkeypatch.setattr(Path, "unlink", unlink)
        assert [each.name for each in collect_garbage(tmp_path, max_bytes=0).removed] == ["b"]
        assert namespaces_in(tmp_path) == []


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9), st.booleans()), max_size=8),
    st.none() | st.integers(0, 20),
    st.none() | st.integers(0, 10),
)
def test_what_is_chosen(
    sizes: list[tuple[int, int, bool]], max_bytes: int | None, max_age: int | None
) -> None:
    """Nothing protected; within the limits, or nothing else could go; nothing that need not go."""
    found = [FoundNamespace(str(i), size, int(size > 0), age) for i, (size, age, _) in enumerate(sizes)]
    protected = {str(i) for i, (_, _, is_protected) in enumerate(sizes) if is_protected}
    now = 10_000_000_000
    found = [
        FoundNamespace(each.name, each.bytes, each.texts, now - each.used_ns * 1_000_000_000)
        for each in found
    ]
    chosen = choose(found, protected, max_bytes, max_age, now)
    names = [namespace.name for namespace, _ in chosen]
    assert protected.isdisjoint(names)
    left = [namespace for namespace in found if namespace.name not in names]
    total = sum(namespace.bytes for namespace in left)
    if max_bytes is not None and total > max_bytes:
        assert {namespace.name for namespace in left} <= protected
    by_bytes = [namespace for namespace, why in chosen if why == "bytes"]
    if by_bytes:
        assert max_bytes is not None
        assert total + by_bytes[-1].bytes > max_bytes
        oldest_left = [n.used_ns for n in left if n.name not in protected]
        assert all(each.used_ns <= min(oldest_left, default=now) for each in by_bytes)
    if max_age is not None:
        assert all((now - n.used_ns) / 1e9 <= max_age for n in left if n.name not in protected)
