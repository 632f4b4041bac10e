from __future__ import annotations

import asyncio
import errno
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from context_compressor import CompressedMemory, from_openai
from context_compressor.errors import (
    InvalidArgumentError,
    OffloadCorruptError,
    OffloadError,
    OffloadFullError,
    OffloadNotFoundError,
    OffloadPermissionError,
    OffloadWriteError,
)
from context_compressor.offload import files
from context_compressor.offload.directory import Tenant, collect_garbage
from context_compressor.offload.files import FileOffloadStore
from context_compressor.offload.folders import _sweep
from context_compressor.offload.store import ref_of
from tests.offload.directories import run_python
from tests.support.limits import small_files


@pytest.fixture
def store(tmp_path: Path) -> FileOffloadStore:
    return FileOffloadStore(tmp_path / "memory")


def file_of(store: FileOffloadStore, text: str) -> Path:
    return store.directory / f"{ref_of(text).removeprefix('ctx://')}.txt"


def names_in(store: FileOffloadStore) -> list[str]:
    return sorted(path.name for path in store.directory.iterdir()) if store.directory.exists() else []


def failing(code: int) -> Callable[..., Any]:
    def fail(*args: Any, **kwargs: Any) -> Any:
        raise OSError(code, os.strerror(code))

    return fail


class TestLayout:
    async def test_a_text_is_one_file_of_its_bytes(self, store: FileOffloadStore) -> None:
        text = "naïve\r\n\ud800\n"
        await store.write(text)
        assert names_in(store) == [file_of(store, text).name]
        assert file_of(store, text).read_bytes() == text.encode("utf-8", "surrogatepass")

    async def test_files_and_new_directories_are_the_owners_alone(self, tmp_path: Path) -> None:
        parent = tmp_path / "existing"
        parent.mkdir(0o755)
        store = FileOffloadStore(parent / "new" / "newer", "ns")
        before = os.umask(0)
        try:
            await store.write("text")
        finally:
            os.umask(before)
        assert stat.S_IMODE(file_of(store, "text").stat().st_mode) == 0o600
        for directory in (parent / "new", parent / "new" / "newer", store.directory):
            assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert stat.S_IMODE(parent.stat().st_mode) == 0o755

    async def test_nothing_is_made_before_the_first_write(self, store: FileOffloadStore) -> None:
        assert await store.refs() == []
        await store.delete("ctx://0123456789abcdef")
        with pytest.raises(OffloadNotFoundError):
            await store.read("ctx://0123456789abcdef")
        assert not store.directory.parent.exists()

    async def test_a_relative_path_survives_a_change_of_directory(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        store = FileOffloadStore("memory")
        ref = await store.write("text")
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert await store.read(ref) == "text"

    async def test_namespaces_are_apart(self, tmp_path: Path) -> None:
        one, other = FileOffloadStore(tmp_path, "one"), FileOffloadStore(tmp_path, "other")
        ref = await one.write("text")
        assert await other.refs() == []
        with pytest.raises(OffloadNotFoundError):
            await other.read(ref)

    @pytest.mark.parametrize(
        "namespace", ["", ".", "..", ".hidden", "a/b", "../up", "a\\b", "a b", "é", "a\n", "a\0", "x" * 65]
    )
    def test_a_namespace_is_never_a_path(self, tmp_path: Path, namespace: str) -> None:
        with pytest.raises(ValueError, match="namespace"):
            FileOffloadStore(tmp_path, namespace)

    @pytest.mark.parametrize("path", ["", "texts\0"])
    def test_a_path_that_names_no_directory_is_refused(self, path: str) -> None:
        """An unset variable would be the current directory."""
        with pytest.raises(ValueError, match=r"path: .* names no directory"):
            FileOffloadStore(path)
        with pytest.raises(ValueError, match=r"path: .* names no directory"):
            collect_garbage(path)

    def test_arguments_of_the_wrong_type_are_named(self) -> None:
        with pytest.raises(InvalidArgumentError, match="path"):
            FileOffloadStore(5)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgumentError, match="namespace"):
            FileOffloadStore("x", 5)  # type: ignore[arg-type]

    async def test_a_stored_text_is_not_written_again(self, store: FileOffloadStore) -> None:
        await store.write("text")
        before = file_of(store, "text").stat()
        await store.write("text")
        await FileOffloadStore(store.directory.parent).write("text")
        after = file_of(store, "text").stat()
        assert before.st_ino == after.st_ino
        assert before.st_mtime_ns <= after.st_mtime_ns  # by which collections tell what is young


class TestDamage:
    @pytest.mark.parametrize(
        ("damaged", "why"),
        [
            *((data, "truncated or changed") for data in (b"", b"tex", b"text\n", b"TEXT", b"\xff\xfe")),
            ("link", "is a link"),
            ("pipe", "not a regular file"),
        ],
    )
    async def test_what_is_damaged_names_the_mend_and_the_right_text_mends_it(
        self, store: FileOffloadStore, tmp_path: Path, damaged: bytes | str, why: str
    ) -> None:
        """A link is not followed, even to the right text; a pipe blocks nobody."""
        ref = await store.write("text")
        file, elsewhere = file_of(store, "text"), tmp_path / "elsewhere"
        elsewhere.write_text("text")
        before = elsewhere.stat().st_mtime_ns
        file.unlink()
        if isinstance(damaged, bytes):
            file.write_bytes(damaged)
        elif damaged == "link":
            file.symlink_to(elsewhere)
        else:
            os.mkfifo(file)
        with pytest.raises(OffloadCorruptError, match=f"{ref}.*{store.directory}.*{why}.*delete it"):
            await store.read(ref)
        assert await store.refs() == ([ref] if isinstance(damaged, bytes) else [])
        assert await store.write("text") == ref
        assert await store.read(ref) == "text"
        assert names_in(store) == [file.name]
        assert not file.is_symlink()
        assert (elsewhere.read_text(), elsewhere.stat().st_mtime_ns) == ("text", before)

    async def test_a_link_in_the_place_of_a_namespace_is_not_followed(self, tmp_path: Path) -> None:
        elsewhere = FileOffloadStore(tmp_path / "elsewhere", "mine")
        ref = await elsewhere.write("mine alone")
        (tmp_path / "shared").mkdir()
        (tmp_path / "shared" / "planted").symlink_to(elsewhere.directory)
        store = FileOffloadStore(tmp_path / "shared", "planted")
        for call in (store.write("text"), store.read(ref), store.delete(ref), store.refs()):
            with pytest.raises(OffloadError, match="the directory is a link, which is not followed"):
                await call
        memory = CompressedMemory(store=store)
        await memory.add(from_openai([{"role": "user", "content": "hello"}]))
        assert [hit.text for hit in await memory.search_history("hello")] == ["hello"]
        await memory.clear()
        assert [file.name for file in elsewhere.directory.iterdir()] == [f"{ref.removeprefix('ctx://')}.txt"]

    async def test_a_directory_in_the_place_of_a_file_is_reported(self, store: FileOffloadStore) -> None:
        await store.write("other")
        file_of(store, "text").mkdir()
        with pytest.raises(OffloadCorruptError, match="not a regular file"):
            await store.read(ref_of("text"))
        with pytest.raises(OffloadWriteError):
            await store.write("text")
        assert len(names_in(store)) == 2

    async def test_a_file_in_the_place_of_the_directory_is_reported(self, tmp_path: Path) -> None:
        (tmp_path / "memory").write_text("not a directory")
        store = FileOffloadStore(tmp_path / "memory")
        with pytest.raises(OffloadWriteError, match="memory"):
            await store.write("text")
        with pytest.raises(OffloadNotFoundError):
            await store.read(ref_of("text"))
        assert await store.refs() == []


class TestFailingDisk:
    """Errors are simulated: tests may run as root, for whom file modes refuse nothing."""

    @pytest.mark.parametrize(
        ("code", "kind", "mend"),
        [
            (errno.ENOSPC, OffloadFullError, "free disk space"),
            (errno.EDQUOT, OffloadFullError, "quota"),
            (errno.EACCES, OffloadPermissionError, "access"),
            (errno.EPERM, OffloadPermissionError, "access"),
            (errno.EROFS, OffloadPermissionError, "another path"),
            (errno.EIO, OffloadWriteError, "another path"),
        ],
    )
    @pytest.mark.parametrize("call", ["write", "fsync", "open"])
    async def test_a_failed_write_names_ref_path_and_mend_and_leaves_nothing(
        self,
        store: FileOffloadStore,
        monkeypatch: pytest.MonkeyPatch,
        call: str,
        code: int,
        kind: type[OffloadError],
        mend: str,
    ) -> None:
        await store.write("earlier")
        with monkeypatch.context() as patched:
            patched.setattr(os, call, failing(code))
            with pytest.raises(kind, match=f"(?s){ref_of('text')}.*{store.directory}.*{mend}") as caught:
                await store.write("text")
        assert type(caught.value) is kind
        assert isinstance(caught.value.__cause__, OSError)
        assert names_in(store) == [file_of(store, "earlier").name]
        assert await store.write("text") == ref_of("text")

    async def test_a_real_limit_on_file_size_leaves_nothing(self, store: FileOffloadStore) -> None:
        with small_files(5_000), pytest.raises(OffloadWriteError, match="could not be written"):
            await store.write("x" * 20_000)
        assert names_in(store) == []

    async def test_a_disk_that_fills_up_within_a_text_leaves_nothing(
        self, store: FileOffloadStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real_write, calls = os.write, 0

        def short_write(descriptor: int, data: memoryview) -> int:
            nonlocal calls
            calls += 1
            if calls > 2:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real_write(descriptor, data[:10])

        with monkeypatch.context() as patched:
            patched.setattr(os, "write", short_write)
            with pytest.raises(OffloadFullError):
                await store.write("x" * 100)
        assert names_in(store) == []

    async def test_short_writes_are_completed(
        self, store: FileOffloadStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real_write = os.write
        text = "0123456789" * 10
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", lambda descriptor, data: real_write(descriptor, data[:7]))
            await store.write(text)
        assert await store.read(ref_of(text)) == text

    async def test_a_disk_without_hard_links_is_used_all_the_same(
        self, store: FileOffloadStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os, "link", failing(errno.EPERM))
        assert await store.read(await store.write("text")) == "text"
        assert names_in(store) == [file_of(store, "text").name]

    async def test_a_disk_that_cannot_sync_directories_is_used_all_the_same(
        self, store: FileOffloadStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real_fsync = os.fsync

        def fsync(descriptor: int) -> None:
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "Invalid argument")
            real_fsync(descriptor)

        monkeypatch.setattr(os, "fsync", fsync)
        assert await store.read(await store.write("text")) == "text"

    async def test_file_and_directory_are_synced_before_write_returns(
        self, store: FileOffloadStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        synced: list[bool] = []
        real_fsync = os.fsync

        def fsync(descriptor: int) -> None:
            synced.append(stat.S_ISDIR(os.fstat(descriptor).st_mode))
            real_fsync(descriptor)

        await store.write("earlier")
        monkeypatch.setattr(os, "fsync", fsync)
        await store.write("text")
        assert synced == [False, True]

    async def test_reading_without_permission_says_so(
        self, store: FileOffloadStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ref = await store.write("text")
        with monkeypatch.context() as patched:
            patched.setattr(os, "open", failing(errno.EACCES))
            with pytest.raises(OffloadPermissionError, match="could not be read"):
                await store.read(ref)
            patched.setattr(os, "open", failing(errno.EIO))
            with pytest.raises(OffloadError, match="could not be read"):
                await store.read(ref)
            patched.setattr(os, "scandir", failing(errno.EACCES))
            with pytest.raises(OffloadPermissionError, match="could not be listed"):
                await store.refs()
        with monkeypatch.context() as patched:
            patched.setattr(os, "unlink", failing(errno.EROFS))
            patched.setattr(Path, "unlink", failing(errno.EROFS))
            with pytest.raises(OffloadPermissionError, match="could not be removed"):
                await store.delete(ref)
        assert await store.read(ref) == "text"

    async def test_where_not_even_the_directory_may_be_looked_for_each_operation_says_so(
        self, store: FileOffloadStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The answer of a directory above that may not be searched; Python asks for it in different ways."""
        ref = await store.write("text")
        for call in ("stat", "lstat", "open", "scandir"):
            monkeypatch.setattr(os, call, failing(errno.EACCES))
        other = FileOffloadStore(store.directory.parent)
        for operation in (other.read(ref), other.refs(), other.delete(ref), other.write("text")):
            with pytest.raises(OffloadPermissionError):
                await operation


class HeldFsync:
    """Holds every fsync until released, as a busy disk does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entered = threading.Event()
        self.release = threading.Event()
        self._real = os.fsync
        monkeypatch.setattr(os, "fsync", self._fsync)

    def _fsync(self, descriptor: int) -> None:
        self.entered.set()
        self.release.wait()
        self._real(descriptor)


class TestCancellation:
    async def test_a_cancelled_write_leaves_no_file(
        self, store: FileOffloadStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await store.write("earlier")
        fsync = HeldFsync(monkeypatch)
        writing = asyncio.create_task(store.write("text"))
        await asyncio.to_thread(fsync.entered.wait)
        writing.cancel()
        await asyncio.sleep(0)
        writing.cancel()  # impatience changes nothing
        await asyncio.sleep(0)
        assert not writing.done()
        fsync.release.set()
        with pytest.raises(asyncio.CancelledError):
            await writing
        assert names_in(store) == [file_of(store, "earlier").name]

    async def test_a_disk_that_hangs_does_not_hold_who_cancels(
        self, store: FileOffloadStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await store.write("earlier")
        monkeypatch.setattr(files, "_GRACE_SECONDS", 0.0)
        fsync = HeldFsync(monkeypatch)
        writing = asyncio.create_task(store.write("text"))
        await asyncio.to_thread(fsync.entered.wait)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        fsync.release.set()
        await asyncio.to_thread(store._tenant.shared.threads.shutdown)  # waits for the thread
        assert names_in(store) == [file_of(store, "earlier").name]

    async def test_a_removal_that_hangs_removes_nothing_once_it_was_given_up(
        self, store: FileOffloadStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ref = await store.write("named again")
        monkeypatch.setattr(files, "_GRACE_SECONDS", 0.0)
        entered, release = threading.Event(), threading.Event()

        def hang(*_: object, **__: object) -> None:
            entered.set()
            release.wait()

        monkeypatch.setattr(Tenant, "enter", hang)
        removing = asyncio.create_task(store.delete(ref))
        await asyncio.to_thread(entered.wait)
        removing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await removing
        release.set()
        await asyncio.to_thread(store._tenant.shared.threads.shutdown)  # waits for the thread
        assert file_of(store, "named again").read_text() == "named again"


class TestProcesses:
    def test_a_process_that_dies_while_writing_leaves_no_text(self, store: FileOffloadStore) -> None:
        code = """
            import asyncio, os, sys
            from context_compressor.offload.files import FileOffloadStore
            store = FileOffloadStore(sys.argv[1])
            asyncio.run(store.write("earlier"))
            os.fsync = lambda descriptor: os._exit(9)
            asyncio.run(store.write("text"))
        """
        process = run_python(code, str(store.directory.parent))
        process.communicate()
        assert process.returncode == 9
        assert asyncio.run(store.refs()) == [ref_of("earlier")]
        with pytest.raises(OffloadNotFoundError):
            asyncio.run(store.read(ref_of("text")))

        left_behind = [name for name in names_in(store) if name.startswith(".")]
        assert len(left_behind) == 1
        asyncio.run(FileOffloadStore(store.directory.parent).write("young ones stay"))
        assert left_behind[0] in names_in(store)
        os.utime(store.directory / left_behind[0], (0, 0))
        _sweep.cache_clear()  # an hour later
        asyncio.run(FileOffloadStore(store.directory.parent).write("old ones go"))
        assert left_behind[0] not in names_in(store)
        assert len(names_in(store)) == 3
