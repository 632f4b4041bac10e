"""`FileOffloadStore`: texts in files, written durably, and read back as they were."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from context_compressor.errors import (
    OffloadCorruptError,
    OffloadError,
    OffloadNotFoundError,
    OffloadWriteError,
)
from context_compressor.offload.directory import Tenant
from context_compressor.offload.folders import (
    FILE_NAME,
    INDEX_FILE,
    PLAIN_FLAGS,
    TEMPORARY_PREFIX,
    TEMPORARY_SUFFIX,
    as_root,
    check_limit,
    check_namespace,
    disk_error,
    find_namespaces,
    is_directory,
    is_link,
    make_directory,
    refs_of_states_in,
    refuse_link,
    sweep,
    sync_directory,
)
from context_compressor.offload.packed import PackedOffloadStore, Packing
from context_compressor.offload.store import REF_PREFIX, StoredText, ref_of

T = TypeVar("T")

_GRACE_SECONDS = 5.0
"""How long a cancelled operation waits for its thread: an fsync on a busy disk can take seconds."""
_OPENING_SECONDS = 0.1
"""How long making a store may take, which happens on the event loop; what fails is made up for later."""
_READ_FLAGS = os.O_RDONLY | PLAIN_FLAGS | getattr(os, "O_NONBLOCK", 0)
"""A named pipe in the place of a text would block the open for ever."""
_ABSENT = FileNotFoundError, NotADirectoryError


class FileOffloadStore(PackedOffloadStore):
    """Keep each text in `<path>/<namespace>/<16 hex digits>.txt`, durable before `write` returns.

    Files are made with mode 0600 in directories of mode 0700, at the first write; directories that exist
    already keep their mode. Processes may share a directory. A namespace belongs to one memory, and is in use
    from when a store for it is made until that is closed or forgotten: `collect_garbage` and quotas only
    remove namespaces that no living process uses. A call that is cancelled waits for the step under way (one
    fsync at most) and leaves no partial file.

    Args:
        path: the directory; a relative one is resolved now, so that a later `chdir` loses nothing.
        namespace: 1 to 64 of `A-Z a-z 0-9 . _ -`, not starting with a dot.
        max_bytes: bytes that all namespaces in `path` may hold together, sizes of files, search indexes
            included. A write that does not fit first removes namespaces that are not in use, the longest
            unused first, down to nine tenths; where that is not enough it is refused. Give all stores in a
            directory the same.
        max_age_seconds: seconds after which a namespace that nobody uses is removed, looked for at a write,
            once an hour at most, or 24 times in a shorter age.

    Raises:
        ValueError: the path is empty, the namespace not of that form, or a limit below 0.
        InvalidArgumentError: an argument is of the wrong type.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        namespace: str = "default",
        *,
        max_bytes: int | None = None,
        max_age_seconds: float | None = None,
    ) -> None:
        root = as_root(path)
        check_namespace(namespace)
        check_limit("max_bytes", max_bytes, whole=True)
        check_limit("max_age_seconds", max_age_seconds)
        self._tenant = Tenant(root, namespace, max_bytes, max_age_seconds)
        self._files = TextFiles(root / namespace)
        self._only_looks = False
        super().__init__(namespace, _AsTheyAre(self._files))
        # What lies there may be named by a ledger that is about to be loaded, and not used for long.
        self._tenant.enter(to_write=False, wait_seconds=_OPENING_SECONDS)

    @property
    def directory(self) -> Path:
        """The directory that holds this namespace's files."""
        return self._files.directory

    def open(self) -> None:
        """Mark the namespace as in use, so that no collection removes it; blocks.

        Every operation does so. Call it before putting a search index into `directory`, and again after it
        grew: that counts it, as `close` does.
        """
        self._tenant.enter(to_write=True)
        with suppress(OSError):  # a daily look makes up for it
            self._tenant.count_index()

    def close(self) -> None:
        """Let collections remove the namespace, as when the store is forgotten; the next operation opens it.

        Python forgets an object when nothing refers to it any more, and one in a cycle some time later.
        """
        self._tenant.leave()

    async def _run(
        self, work: Callable[[threading.Event], T], *, to_write: bool = False, enters: bool = True
    ) -> T:
        """Run blocking work in one thread, with the namespace marked as in use."""

        def enter_and_work(cancelled: threading.Event) -> T:
            if enters:
                self._tenant.enter(to_write=to_write)
            return work(cancelled)

        return await _off_loop(self._tenant.shared.threads, enter_and_work)

    async def _put(self, ref: str, data: bytes) -> bool:
        return await self._run(
            lambda cancelled: self._files.put(ref, data, self._tenant, cancelled), to_write=True
        )

    async def _replace(self, ref: str, data: bytes) -> None:
        await self._run(
            lambda cancelled: self._files.put(ref, data, self._tenant, cancelled, replace=True), to_write=True
        )

    async def _get(self, ref: str) -> bytes | None:
        return await self._run(lambda _: self._files.get(ref))

    async def _remove(self, ref: str) -> None:
        await self._run(lambda cancelled: self._files.remove(ref, self._tenant, cancelled))

    async def _touch(self, ref: str, data: bytes) -> None:  # noqa: ARG002
        await self._run(lambda _: os.utime(self._files.file(ref)))

    async def _list(self) -> list[StoredText]:
        return await self._run(lambda _: self._files.stored(), enters=not self._only_looks)

    async def _names(self) -> list[str]:
        root = self.directory.parent
        found = await self._run(lambda _: find_namespaces(root) if is_directory(root) else [], enters=False)
        return sorted(one.name for one in found)

    def _be(self, name: str) -> None:
        self.label, self._only_looks = name, True  # whoever lists all texts marks no namespace as used
        self._files = TextFiles(self.directory.parent / name)
        self._packing, self._tenant = _AsTheyAre(self._files), self._tenant.beside(name)

    async def remove_halves(self, older_than: float) -> list[tuple[str, int]]:
        """Remove texts that a crash left half written."""
        return await self._run(lambda _: self._files.unlink(TEMPORARY_PREFIX, older_than), enters=False)

    async def remove_index(self) -> list[tuple[str, int]]:
        """Remove the search index beside the texts, and the directory, if nothing is left in it."""
        removed = await self._run(lambda _: self._files.unlink(INDEX_FILE), enters=False)
        with suppress(OSError):  # there is something else in it
            self.directory.rmdir()
        return removed

    def refs_of_states(self) -> set[str]:
        """Return the refs that the states of conversations beside the texts name, and some more, maybe."""
        return refs_of_states_in(self.directory)

    def where(self, ref: str) -> str:
        """Return where a text lies, for people."""
        return str(self._files.file(ref))


async def _off_loop(threads: ThreadPoolExecutor, work: Callable[[threading.Event], T]) -> T:
    """Run blocking work in a thread; cancelled, tell the work so and wait for its end.

    A thread cannot be interrupted. Left alone, it would go on writing behind the back of whoever cancelled.
    It is left alone only after `_GRACE_SECONDS`: then the disk hangs, and a caller with a time limit must
    not.
    """
    cancelled = threading.Event()
    task = asyncio.get_running_loop().run_in_executor(threads, work, cancelled)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        cancelled.set()
        # Of an error that nobody waits for asyncio would tell that it was lost.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        give_up = time.monotonic() + _GRACE_SECONDS
        while not task.done() and (left := give_up - time.monotonic()) > 0:
            with suppress(asyncio.CancelledError):
                await asyncio.wait([task], timeout=left)
        raise


class _AsTheyAre(Packing):
    """Leave texts as they are, so that any program can read the files."""

    def __init__(self, files: TextFiles) -> None:
        super().__init__()
        self._files = files

    def _pack(self, text: str) -> bytes:
        return text.encode("utf-8", "surrogatepass")

    def _unpack(self, data: bytes, ref: str) -> str:
        return self._files.text_of(ref, data)


class TextFiles:
    """Read and write the files of one directory. All of this blocks, and belongs into a worker thread.

    The directory is made at the first write. See `FileOffloadStore` for what each operation raises.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def file(self, ref: str) -> Path:
        """Return where a text lies."""
        return self.directory / f"{ref.removeprefix(REF_PREFIX)}.txt"

    def put(
        self, ref: str, data: bytes, tenant: Tenant, cancelled: threading.Event, *, replace: bool = False
    ) -> bool:
        """Make a text durable, where there is none yet or it is to be replaced; tell whether that was so.

        Cancelled, end after the step under way.
        """
        file = self.file(ref)
        with self._failing(f"{ref} could not be written to {file}", OffloadWriteError):
            make_directory(self.directory)
            sweep(self.directory)
            is_new = replace or not os.path.lexists(file)
            if is_new:
                is_new = self._write(file, data, tenant, cancelled, replace=replace)
            sync_directory(self.directory)
        return is_new

    def get(self, ref: str) -> bytes:
        """Return what the file of a text holds."""
        file = self.file(ref)
        with self._failing(f"{ref} could not be read from {file}"):
            try:
                descriptor = os.open(file, _READ_FLAGS)
                try:
                    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                        raise self._corrupt(ref, "is not a regular file")
                    with os.fdopen(descriptor, "rb", closefd=False) as stream:
                        return stream.read()
                finally:
                    os.close(descriptor)
            except _ABSENT as error:
                raise OffloadNotFoundError(f"{ref} is not stored: there is no {file}") from error
            except OSError as error:
                if error.errno == errno.ELOOP:
                    raise self._corrupt(ref, "is a link, which is not followed") from error
                raise

    def text_of(self, ref: str, data: bytes) -> str:
        """Return the text that a file holds."""
        try:
            text = data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise self._corrupt(ref, "was truncated or changed: it is no UTF-8") from error
        if (found := ref_of(text)) != ref:
            raise self._corrupt(ref, f"was truncated or changed: it hashes to {found}")
        return text

    def read(self, ref: str) -> str:
        """Return the text under a ref."""
        return self.text_of(ref, self.get(ref))

    def remove(self, ref: str, tenant: Tenant, cancelled: threading.Event) -> None:
        """Remove the text under a ref, durably, unless cancelled before; absent is fine."""
        file = self.file(ref)
        with self._failing(f"{ref} could not be removed ({file})"), suppress(*_ABSENT):
            if cancelled.is_set():  # and given up: it may be named again by now
                raise OffloadError(f"{ref} was not removed: cancelled")
            file.unlink()
            tenant.freed()
            sync_directory(self.directory)

    def unlink(self, prefix: str, older_than: float = 0.0) -> list[tuple[str, int]]:
        """Remove files whose names begin so, and that are so many seconds old; return where, and bytes."""
        removed: list[tuple[str, int]] = []
        with self._failing(f"{self.directory} could not be tidied"), suppress(*_ABSENT):
            for file in sorted(self.directory.iterdir()):
                if file.name.startswith(prefix) and not is_link(file):
                    with suppress(FileNotFoundError):
                        status = file.stat()
                        if max(time.time() - status.st_mtime, 0.0) >= older_than:
                            file.unlink()
                            removed.append((str(file), status.st_size))
        return removed

    def refs(self) -> list[str]:
        """Return every ref that is stored, sorted."""
        return [text.ref for text in self.stored()]

    def stored(self) -> list[StoredText]:
        """Return what is stored, sorted by ref."""
        found: list[StoredText] = []
        now = time.time()
        with (
            self._failing(f"{self.directory} could not be listed"),
            suppress(*_ABSENT),
            os.scandir(self.directory) as entries,
        ):
            for entry in entries:
                match = FILE_NAME.fullmatch(entry.name)
                if match is None or not entry.is_file(follow_symlinks=False):
                    continue
                with suppress(FileNotFoundError):  # it was removed meanwhile
                    status = entry.stat(follow_symlinks=False)
                    age = max(now - status.st_mtime, 0.0)
                    found.append(StoredText(REF_PREFIX + match[1], status.st_size, age))
        return sorted(found)

    @contextmanager
    def _failing(self, what: str, otherwise: type[OffloadError] = OffloadError) -> Iterator[None]:
        """Refuse a directory that is a link, and call a disk's error by its name here."""
        try:
            refuse_link(self.directory)
            yield
        except OSError as error:
            raise disk_error(error, what, otherwise) from error

    def _write(
        self, file: Path, data: bytes, tenant: Tenant, cancelled: threading.Event, *, replace: bool
    ) -> bool:
        """Write a file under a name of its own, and publish it; tell whether that was needed."""
        descriptor, name = tempfile.mkstemp(TEMPORARY_SUFFIX, TEMPORARY_PREFIX, self.directory)
        temporary = Path(name)
        is_reserved = is_published = False
        try:
            try:
                tenant.reserve(REF_PREFIX + file.stem, len(data), descriptor)
                is_reserved = True
                rest = memoryview(data)
                while rest and not cancelled.is_set():
                    rest = rest[os.write(descriptor, rest) :]
                if not cancelled.is_set():
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
            is_published = not cancelled.is_set() and _publish(temporary, file, replace=replace)
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            if is_reserved and not is_published:
                tenant.freed()
        return is_published

    def _corrupt(self, ref: str, fault: str) -> OffloadCorruptError:
        return OffloadCorruptError(f"{ref}: {self.file(ref)} {fault}; delete it, or restore it from a backup")


def _publish(temporary: Path, file: Path, *, replace: bool) -> bool:
    """Put a file in its place; False where something is there that is not to be replaced."""
    if replace:
        temporary.replace(file)
        return True
    # A hard link never replaces what another writer, of this process or not, put there meanwhile.
    try:
        os.link(temporary, file)
    except FileExistsError:
        return False
    except OSError:
        temporary.replace(file)  # a disk without hard links; if something else is wrong, this says so
    return True
