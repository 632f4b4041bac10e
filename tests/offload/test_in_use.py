"""Which namespaces count as in use: across processes, crashes, forks, and any number of sessions."""

from __future__ import annotations

import asyncio
import gc as python_gc
import os
import shutil
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from context_compressor.offload import directory
from context_compressor.offload.directory import Lease, collect_garbage, directory_of, namespaces_in_use
from context_compressor.offload.files import FileOffloadStore
from context_compressor.offload.locks import locked, try_lock
from tests.offload.directories import hold_elsewhere, names_in, namespaces_in, put, run_python


def open_in(path: Path) -> list[Path]:
    """Return the files below a folder that this process has open; others of its files come and go."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(link.readlink())
    return [file for file in found if path in file.parents]


def files_in(path: Path) -> list[str]:
    """Return what says who has what open."""
    return [name for name in names_in(path / ".store") if name.startswith(("open-", "in-use-"))]


class TestOneProcess:
    async def test_a_namespace_is_in_use_until_the_last_store_for_it_is_forgotten(
        self, tmp_path: Path
    ) -> None:
        one, other = FileOffloadStore(tmp_path, "a"), FileOffloadStore(tmp_path, "a")
        await one.write("text")
        await other.refs()
        one.close()
        assert namespaces_in_use(tmp_path) == {"a"}
        other.close()
        other.close()
        assert namespaces_in_use(tmp_path) == set()
        assert [name for name in files_in(tmp_path) if name.startswith("in-use-")] == []
        await other.refs()
        assert namespaces_in_use(tmp_path) == {"a"}

    async def test_what_a_process_of_an_earlier_release_has_open_stays(self, tmp_path: Path) -> None:
        """It writes lines: those that are whole count; what nobody holds and has no end is not read."""
        for name in ("a", "b", "closed"):
            await put(tmp_path, name)
        file = tmp_path / ".store" / "open-1-abc"
        with file.open("wb") as stream:
            stream.write(b"\n+a;\n+closed;\n-closed;\n+b;\n+\xff\x00;\n-b\xff;\n-")
            stream.flush()
            assert try_lock(stream.fileno())
            os.mkfifo(tmp_path / ".store" / "open-2-abc")
            assert [each.name for each in collect_garbage(tmp_path, max_bytes=0).removed] == ["closed"]
        assert [each.name for each in collect_garbage(tmp_path, max_bytes=0).removed] == ["a", "b"]
        assert not file.exists()

    async def test_a_process_of_an_earlier_release_is_told_in_its_own_way(self, tmp_path: Path) -> None:
        """It reads the lines of files that are locked, and knows of no leases."""
        stores = [FileOffloadStore(tmp_path, name) for name in "ab"]
        for store in stores:
            await store.write("text")
        [file] = [name for name in files_in(tmp_path) if name.startswith("open-")]
        with (tmp_path / ".store" / file).open("rb") as stream:
            assert not try_lock(stream.fileno())
            assert stream.read().split() == [b"+a;", b"+b;"]

    @pytest.mark.parametrize("how", ["closed", "died"])
    async def test_what_is_removed_is_closed_before(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
    ) -> None:
        """Windows removes no file that is open; names of stores that are gone would count for ever."""
        remove = Path.unlink

        def remove_as_on_windows(file: Path, missing_ok: bool = False) -> None:
            if file in open_in(tmp_path):
                raise PermissionError(13, "it is being used by another process", str(file))
            remove(file, missing_ok)

        if how == "died":
            (tmp_path / ".store").mkdir()
            (tmp_path / ".store" / "open-1-abc").write_text("\n+a;")
        monkeypatch.setattr(Path, "unlink", remove_as_on_windows)
        store = FileOffloadStore(tmp_path, "a")
        if how == "closed":
            store.open()
            store.close()
        del store
        python_gc.collect()
        assert namespaces_in_use(tmp_path) == set()
        assert files_in(tmp_path) == []

    async def test_a_thousand_sessions_take_one_descriptor_and_leave_nothing(self, tmp_path: Path) -> None:
        shared = directory_of(tmp_path)
        leases = [Lease(shared, "first", 1)]
        leases += [Lease(shared, f"n{number}", 1) for number in range(1_000)]
        assert len(open_in(tmp_path)) == 1
        assert len(namespaces_in_use(tmp_path)) == 1_001
        del leases[1:]
        assert namespaces_in_use(tmp_path) == {"first"}
        assert len(files_in(tmp_path)) == 2

    async def test_stores_forgotten_in_a_cycle_while_others_open(self, tmp_path: Path) -> None:
        """Python may run the finaliser in the middle of anything, in any thread."""
        kept = [FileOffloadStore(tmp_path, f"kept{number}") for number in range(20)]

        def open_and_forget(start: int) -> None:
            for number in range(start, start + 50):
                store = FileOffloadStore(tmp_path, f"n{number}")
                store.open()
                cycle: list[object] = [store]
                cycle.append(cycle)
                if number % 7 == 0:
                    python_gc.collect(1)  # what is young

        threads = [threading.Thread(target=open_and_forget, args=(100 * number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for store in kept:
            store.open()
        for thread in threads:
            thread.join()
        python_gc.collect()
        assert namespaces_in_use(tmp_path) == {f"kept{number}" for number in range(20)}

    @pytest.mark.parametrize("how", ["removed", "moved"])
    async def test_a_directory_that_went_under_open_stores_is_made_again(
        self, tmp_path: Path, how: str
    ) -> None:
        path = tmp_path / "store"
        stores = [FileOffloadStore(path, name) for name in "ab"]
        for store in stores:
            await store.write("text")
        if how == "removed":
            shutil.rmtree(path)
        else:
            path.rename(tmp_path / "moved")
        refs = [await store.write("another") for store in stores]
        assert namespaces_in_use(path) == {"a", "b"}
        assert collect_garbage(path, max_bytes=0).in_use == 2
        assert [await store.read(ref) for store, ref in zip(stores, refs, strict=True)] == ["another"] * 2

    async def test_a_directory_that_takes_no_such_file_is_used_all_the_same(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (tmp_path / ".store").write_text("in the way")
        store = FileOffloadStore(tmp_path, "a")
        ref = await store.write("text")
        assert await store.read(ref) == "text"
        await store.write("another")
        assert caplog.text.count("is not marked as in use") == 1


class TestProcesses:
    async def test_what_another_process_has_open_stays_until_it_ends(self, tmp_path: Path) -> None:
        process = hold_elsewhere(tmp_path, "there")
        assert collect_garbage(tmp_path, max_bytes=0).in_use == 1
        assert namespaces_in(tmp_path) == ["there"]
        process.communicate("")
        assert process.returncode == 0
        assert files_in(tmp_path) == []
        assert len(collect_garbage(tmp_path, max_bytes=0).removed) == 1

    async def test_a_crash_leaves_nothing_that_counts(self, tmp_path: Path) -> None:
        process = hold_elsewhere(tmp_path, "there")
        process.kill()
        process.communicate()
        assert len(files_in(tmp_path)) == 2
        assert len(collect_garbage(tmp_path, max_bytes=0).removed) == 1
        assert files_in(tmp_path) == []

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
    def test_a_forked_process_keeps_what_it_inherited(self, tmp_path: Path) -> None:
        code = """
            import asyncio, os, sys
            from context_compressor.offload.files import FileOffloadStore
            inherited = FileOffloadStore(sys.argv[1], "inherited")
            asyncio.run(inherited.write("text"))
            if os.fork():
                os._exit(0)  # the parent dies without a word
            own = FileOffloadStore(sys.argv[1], "own")
            if sys.argv[2] == "used":
                asyncio.run(own.write("text"))
            print("open", flush=True)
            sys.stdin.read()
        """
        for state, expected in {"used": {"inherited", "own"}, "unused": {"inherited"}}.items():
            path = tmp_path / state
            process = run_python(code, path, state)
            assert process.stdout.readline() == "open\n"
            assert namespaces_in_use(path) == expected
            process.communicate("")
            assert namespaces_in_use(path) == set()

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
    @pytest.mark.filterwarnings("ignore:This process")
    def test_a_process_forked_while_a_lock_is_held_does_not_keep_it(self, tmp_path: Path) -> None:
        """A thread of the parent may hold one at any moment, and the child may live for months."""
        reading, writing = os.pipe()
        with locked(tmp_path / "lock"):
            child = os.fork()
            if child == 0:
                os.close(writing)
                os.read(reading, 1)  # until the parent lets go
                os._exit(0)
        try:
            with locked(tmp_path / "lock", wait_seconds=0.0) as (_, is_held):
                assert is_held
        finally:
            os.close(writing)
            os.close(reading)
            os.waitpid(child, 0)

    def test_collections_beside_processes_that_open_close_and_crash(self, tmp_path: Path) -> None:
        """Whatever a process has open reads back, while others collect all the time."""
        code = """
            import asyncio, os, random, sys
            from context_compressor.offload.files import FileOffloadStore
            from context_compressor.offload.directory import collect_garbage
            seed = sys.argv[2]
            random.seed(seed)
            async def main():
                held = {}
                for step in range(150):
                    name = f"p{seed}-{random.randrange(12)}"
                    if name in held and random.random() < 0.5:
                        del held[name]
                    else:
                        store = held.setdefault(name, [FileOffloadStore(sys.argv[1], name), set()])
                        store[1].add(await store[0].write(f"{name} {step} " * 20))
                    if step % 5 == 0:
                        await asyncio.to_thread(collect_garbage, sys.argv[1], max_bytes=0)
                    for store, refs in held.values():
                        for ref in refs:
                            await store.read(ref)
            asyncio.run(main())
            os._exit(0)
        """
        processes = [run_python(code, tmp_path, seed) for seed in range(3)]
        for process in processes:
            _, errors = process.communicate()
            assert process.returncode == 0, errors
        collect_garbage(tmp_path, max_bytes=0)
        assert namespaces_in(tmp_path) == []


async def test_threads_and_what_is_shared_end_with_the_stores_of_a_directory(tmp_path: Path) -> None:
    stores = [FileOffloadStore(tmp_path, str(n)) for n in range(3)]
    await asyncio.gather(*(store.write("text") for store in stores))
    (pool,) = {store._tenant.shared.threads for store in stores}
    working = set(pool._threads)
    assert working
    del pool, stores
    python_gc.collect()
    for thread in working:
        thread.join()
    python_gc.collect()  # a thread lets go of its work after it is done
    assert (os.getpid(), tmp_path) not in directory._directories
