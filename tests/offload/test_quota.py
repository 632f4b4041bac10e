"""Quotas of a directory, kept by all the stores and processes in it."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from context_compressor.errors import InvalidArgumentError, OffloadFullError
from context_compressor.offload import directory
from context_compressor.offload.directory import Usage, collect_garbage
from context_compressor.offload.files import FileOffloadStore
from context_compressor.offload.store import ref_of
from tests.offload.directories import DAY, bytes_in, make_older, namespaces_in, put, run_python, text_of


class TestBytes:
    async def test_a_write_that_does_not_fit_removes_what_is_longest_unused(self, tmp_path: Path) -> None:
        for name, days in {"a": 1, "b": 3, "c": 2}.items():
            await put(tmp_path, name, age_seconds=days * DAY)
        store = FileOffloadStore(tmp_path, "new", max_bytes=3_500)
        ref = await store.write(text_of("new"))
        assert namespaces_in(tmp_path) == ["a", "c", "new"]
        assert await store.read(ref) == text_of("new")

    async def test_it_makes_room_for_more_than_one_write(self, tmp_path: Path) -> None:
        for number in range(20):
            await put(tmp_path, f"n{number}", age_seconds=number + 1)
        await FileOffloadStore(tmp_path, "new", max_bytes=20_000).write(text_of("new", 500))
        assert bytes_in(tmp_path) <= 18_000

    async def test_where_all_is_in_use_it_is_refused_with_the_mend_and_leaves_nothing(
        self, tmp_path: Path
    ) -> None:
        store = FileOffloadStore(tmp_path, "a", max_bytes=2_500)
        await store.write(text_of(1))
        await store.write(text_of(2))
        with pytest.raises(OffloadFullError) as caught:
            await store.write(text_of(3))
        for part in (ref_of(text_of(3)), "1,000 bytes", "2,000", "2,500 (max_bytes)", "raise max_bytes"):
            assert part in str(caught.value)
        assert len(list((tmp_path / "a").iterdir())) == 2
        await store.write(text_of(4, 500))  # a smaller one fits

    async def test_a_text_larger_than_the_quota_removes_nothing(self, tmp_path: Path) -> None:
        await put(tmp_path, "closed")
        with pytest.raises(OffloadFullError, match="raise max_bytes"):
            await FileOffloadStore(tmp_path, "a", max_bytes=5_000).write(text_of("large", 5_001))
        assert namespaces_in(tmp_path) == ["a", "closed"]

    async def test_a_session_that_ends_makes_room(self, tmp_path: Path) -> None:
        ending = FileOffloadStore(tmp_path, "ending", max_bytes=1_500)
        await ending.write(text_of(1))
        store = FileOffloadStore(tmp_path, "a", max_bytes=1_500)
        with pytest.raises(OffloadFullError):
            await store.write(text_of(2))
        ending.close()
        await store.write(text_of(2))
        assert namespaces_in(tmp_path) == ["a"]

    async def test_a_full_directory_is_not_looked_through_at_every_write(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = FileOffloadStore(tmp_path, "a", max_bytes=1_500)
        await store.write(text_of(1))
        calls = 0
        real = directory._collect

        def count(*arguments: object, **options: object) -> object:
            nonlocal calls
            calls += 1
            return real(*arguments, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(directory, "_collect", count)
        for number in range(10):
            with pytest.raises(OffloadFullError):
                await store.write(text_of(f"more {number}"))
        assert calls == 1

    async def test_an_index_counts_as_it_grows(self, tmp_path: Path) -> None:
        store = FileOffloadStore(tmp_path, "a", max_bytes=3_000)
        await store.write(text_of(1))
        (tmp_path / "a" / "search.sqlite3").write_bytes(b"x" * 1_500)
        with pytest.raises(OffloadFullError):
            await store.write(text_of(2))
        (tmp_path / "a" / "search.sqlite3").unlink()
        await store.write(text_of(2))

    @pytest.mark.parametrize("max_bytes", [9_000, None])
    @pytest.mark.parametrize("call", ["open", "close", "write"])
    async def test_what_an_index_grew_by_after_the_last_text_counts(
        self, tmp_path: Path, call: str, max_bytes: int | None
    ) -> None:
        await FileOffloadStore(tmp_path, "limited", max_bytes=9_000).write(text_of(1))
        store = FileOffloadStore(tmp_path, "a", max_bytes=max_bytes)
        await store.write(text_of(2))
        (tmp_path / "a" / "search.sqlite3").write_bytes(b"x" * 1_500)
        if call == "write":
            await store.write(text_of(3))
        else:
            getattr(store, call)()
        assert Usage(tmp_path).used() == bytes_in(tmp_path) == (4_500 if call == "write" else 3_500)

    async def test_stores_without_a_quota_are_counted(self, tmp_path: Path) -> None:
        limited = FileOffloadStore(tmp_path, "limited", max_bytes=2_500)
        await limited.write(text_of(1))
        free = FileOffloadStore(tmp_path, "free")
        await free.write(text_of(2))
        with pytest.raises(OffloadFullError):
            await limited.write(text_of(3))
        await free.write(text_of(3))

    async def test_what_was_removed_or_put_back_by_hand_is_noticed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await put(tmp_path, "by-hand")
        store = FileOffloadStore(tmp_path, "a", max_bytes=2_500)
        await store.write(text_of(1))
        for file in (tmp_path / "by-hand").iterdir():
            file.unlink()
        await store.write(text_of(2))  # the count was too high, and is made anew before anything is refused
        used = Usage(tmp_path).used()
        assert used == bytes_in(tmp_path) == 2_000
        monkeypatch.setattr("context_compressor.offload.directory.TRUSTED_SECONDS", -1.0)
        assert Usage(tmp_path).used() is None  # what was put back, once a day

    async def test_a_write_that_fails_gives_its_room_back(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = FileOffloadStore(tmp_path, "a", max_bytes=1_500)
        await store.write(text_of(1, 100))

        def fail(_: int) -> None:
            raise OSError(5, "Input/output error")

        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", fail)
            for number in range(5):
                with pytest.raises(Exception, match="could not be written"):
                    await store.write(text_of(number))
        await store.write(text_of("fits", 1_400))

    def test_processes_share_it(self, tmp_path: Path) -> None:
        code = """
            import asyncio, glob, os, sys
            from context_compressor.errors import OffloadFullError
            from context_compressor.offload.files import FileOffloadStore
            def size(name):
                try:
                    return os.path.getsize(name)
                except FileNotFoundError:  # another process just made room
                    return 0
            async def main():
                stored = 0
                for session in range(8):
                    store = FileOffloadStore(sys.argv[1], f"p{sys.argv[2]}-{session}", max_bytes=30_000)
                    for number in range(10):
                        try:
                            await store.write(f"{sys.argv[2]} {session} {number}".ljust(1000, "x"))
                            stored += 1
                        except OffloadFullError:
                            pass
                    used = sum(size(name) for name in glob.glob(f"{sys.argv[1]}/*/*.txt"))
                    assert used <= 30_000, used
                return stored
            print(asyncio.run(main()))
        """
        processes = [run_python(code, tmp_path, seed) for seed in range(3)]
        for process in processes:
            output, errors = process.communicate()
            assert process.returncode == 0, errors
            assert int(output) > 10
        assert 0 < bytes_in(tmp_path) <= 30_000
        collect_garbage(tmp_path)
        assert Usage(tmp_path).used() == bytes_in(tmp_path)

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
    @pytest.mark.filterwarnings("ignore:This process")
    def test_a_forked_process_waits_for_no_thread_of_its_parent(self, tmp_path: Path) -> None:
        store = FileOffloadStore(tmp_path, "a", max_bytes=5_000)
        asyncio.run(store.write("of the parent"))  # whose thread the child does not have
        shared = store._tenant.shared
        with shared._collecting:
            child = os.fork()
            if child == 0:
                signal.alarm(120)  # only so that a failure is one
                try:
                    asyncio.run(store.write("of the child"))
                    asyncio.run(FileOffloadStore(tmp_path, "b", max_bytes=5_000).write("another"))
                    os._exit(0)
                except BaseException:
                    os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    def test_limits_are_checked_at_the_door(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"max_bytes \(-5\)"):
            FileOffloadStore(tmp_path, max_bytes=-5)
        with pytest.raises(InvalidArgumentError, match="max_bytes"):
            FileOffloadStore(tmp_path, max_bytes="1 GB")  # type: ignore[arg-type]
        with pytest.raises(InvalidArgumentError, match="max_age_seconds"):
            FileOffloadStore(tmp_path, max_age_seconds="30d")  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            FileOffloadStore(tmp_path, "a", 5)  # type: ignore[misc]


class TestAge:
    async def test_what_nobody_used_for_too_long_goes_at_a_write(self, tmp_path: Path) -> None:
        await put(tmp_path, "old", age_seconds=31 * DAY)
        await put(tmp_path, "young", age_seconds=29 * DAY)
        await FileOffloadStore(tmp_path, "new", max_age_seconds=30 * DAY).write("text")
        assert namespaces_in(tmp_path) == ["new", "young"]

    async def test_it_is_looked_for_now_and_then_only(self, tmp_path: Path) -> None:
        store = FileOffloadStore(tmp_path, "new", max_age_seconds=30 * DAY)
        await store.write("text")
        await put(tmp_path, "old", age_seconds=31 * DAY)
        await store.write("another")
        other = FileOffloadStore(tmp_path, "other", max_age_seconds=30 * DAY)
        await other.write("text")
        assert "old" in namespaces_in(tmp_path)
        make_older(tmp_path / ".store" / "collected", 3_601)
        directory.directory_of(tmp_path)._next_look = 0.0
        await store.write("a third")
        assert "old" not in namespaces_in(tmp_path)

    async def test_a_clock_that_was_put_back_does_not_stop_it(self, tmp_path: Path) -> None:
        store = FileOffloadStore(tmp_path, "new", max_age_seconds=30 * DAY)
        await store.write("text")
        await put(tmp_path, "old", age_seconds=31 * DAY)
        make_older(tmp_path / ".store" / "collected", -DAY)
        directory.directory_of(tmp_path)._next_look = 0.0
        await store.write("another")
        assert "old" not in namespaces_in(tmp_path)

    async def test_trouble_with_it_does_not_stop_the_write(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fail(*_: object, **__: object) -> None:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(directory, "_collect", fail)
        await FileOffloadStore(tmp_path, "new", max_age_seconds=1).write("text")
        assert "could not be tidied" in caplog.text
