"""`FileOffloadStore`: one file per text, written so that a crash leaves the whole text or none."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import stat
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from aiofiles.os import wrap

from context_compressor.errors import (
    InvalidArgumentError,
    OffloadCollisionError,
    OffloadCorruptError,
    OffloadError,
    OffloadFullError,
    OffloadNotFoundError,
    OffloadPermissionError,
    OffloadWriteError,
)
from context_compressor.offload.protocol import REF_PREFIX, check_ref, ref_of

T = TypeVar("T")

_NAMESPACE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")
_FILE_NAME = re.compile(r"([0-9a-f]{16})\.txt")
_TEMPORARY_PREFIX, _TEMPORARY_SUFFIX = ".writing-", ".tmp"

_ABANDONED_SECONDS = 24 * 3600
"""Age at which a temporary file belongs to a process that died: no write takes a day, and a clock that is
off by hours (network disks) does no harm."""

_GRACE_SECONDS = 5.0
"""How long a cancelled operation waits for its thread: an fsync on a busy disk can take seconds."""

_OPEN_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
    # A link in the directory could point anywhere on the disk; a named pipe would block the open for ever.
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
)


class FileOffloadStore:
    """Keep each text in `<path>/<namespace>/<16 hex digits>.txt`, durable before `write` returns.

    Files are made with mode 0600 in directories of mode 0700, at the first write; directories that exist
    already keep their mode. Processes may share a directory. A namespace belongs to one memory.

    Args:
        path: the directory; a relative one is resolved now, so that a later `chdir` loses nothing.
        namespace: 1 to 64 of `A-Z a-z 0-9 . _ -`, not starting with a dot.

    Raises:
        ValueError: the namespace is not of that form.
        InvalidArgumentError: path or namespace is of the wrong type.
    """

    def __init__(self, path: str | os.PathLike[str], namespace: str = "default") -> None:
        if not isinstance(path, (str, os.PathLike)):
            raise InvalidArgumentError(f"path: expected a str or os.PathLike, got {type(path).__name__}")
        if not isinstance(namespace, str):
            raise InvalidArgumentError(f"namespace: expected a str, got {type(namespace).__name__}")
        if not _NAMESPACE.fullmatch(namespace):
            raise ValueError(
                f"namespace: {namespace!r} cannot name a directory here; use 1 to 64 letters, digits, dots, "
                "underscores and hyphens, not starting with a dot"
            )
        self._directory = Path(path).absolute() / namespace
        self._swept = False

    @property
    def directory(self) -> Path:
        """The directory that holds this namespace's files."""
        return self._directory

    async def write(self, text: str) -> str:
        """Make `text` durable and return its ref; a text that is already stored is not written again.

        Cancelled, it waits for the step under way (one fsync at most) and leaves no partial file.

        Raises:
            OffloadCollisionError: another text holds this ref.
            OffloadFullError: the disk is full, or the quota is used up.
            OffloadPermissionError: this process may not write there, or the disk is read-only.
            OffloadWriteError: any other reason why the text could not be made durable.
            InvalidArgumentError: `text` is no string.
        """
        if not isinstance(text, str):
            raise InvalidArgumentError(f"text: expected a string, got {type(text).__name__}")
        return await _off_loop(lambda cancelled: self._write(text, cancelled))

    async def read(self, ref: str) -> str:
        """Return the text under `ref`, as it was written.

        Raises:
            OffloadNotFoundError: the ref is absent or malformed.
            OffloadCorruptError: the file was truncated or changed, or is a link.
            OffloadPermissionError: this process may not read the file.
            OffloadError: the disk failed otherwise.
        """
        check_ref(ref)
        return await _off_loop(lambda _: self._read(ref))

    async def delete(self, ref: str) -> None:
        """Remove the text under `ref`, durably; absent is fine.

        Raises:
            OffloadNotFoundError: the ref is malformed.
            OffloadPermissionError: this process may not remove the file.
            OffloadError: the disk failed otherwise.
        """
        check_ref(ref)
        await _off_loop(lambda _: self._delete(ref))

    async def refs(self) -> list[str]:
        """Return every ref that is stored, sorted; other files, temporary ones included, are ignored."""
        return await _off_loop(lambda _: self._list())

    # What follows blocks, and runs in a worker thread: one hop per operation, since fsync dwarfs all else.

    def _file(self, ref: str) -> Path:
        return self._directory / f"{ref.removeprefix(REF_PREFIX)}.txt"

    def _write(self, text: str, cancelled: threading.Event) -> str:
        ref = ref_of(text)
        file = self._file(ref)
        try:
            _make_directory(self._directory)
            self._sweep()
            if not self._holds(ref, text):
                self._write_file(file, ref, text, cancelled)
            _sync_directory(self._directory)
        except OSError as error:
            raise _disk_error(error, f"{ref} could not be written to {file}", OffloadWriteError) from error
        return ref

    def _write_file(self, file: Path, ref: str, text: str, cancelled: threading.Event) -> None:
        descriptor, name = tempfile.mkstemp(_TEMPORARY_SUFFIX, _TEMPORARY_PREFIX, self._directory)
        temporary = Path(name)
        try:
            try:
                rest = memoryview(text.encode("utf-8", "surrogatepass"))
                while rest and not cancelled.is_set():
                    rest = rest[os.write(descriptor, rest) :]
                if not cancelled.is_set():
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
            if not cancelled.is_set():
                self._publish(temporary, file, ref, text)
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)

    def _publish(self, temporary: Path, file: Path, ref: str, text: str) -> None:
        # A hard link never replaces what another writer, of this process or not, put there meanwhile.
        try:
            os.link(temporary, file)
        except FileExistsError:
            if not self._holds(ref, text):
                temporary.replace(file)  # what stands there is corrupt, and the right text is at hand
        except OSError:
            temporary.replace(file)  # a disk without hard links; if something else is wrong, this says so

    def _holds(self, ref: str, text: str) -> bool:
        try:
            held = self._load(ref)
        except (OffloadNotFoundError, OffloadCorruptError):
            return False
        if held != text:
            raise OffloadCollisionError(
                f"another text already holds {ref} ({self._file(ref)}); the text at hand was not stored"
            )
        return True

    def _read(self, ref: str) -> str:
        try:
            return self._load(ref)
        except OSError as error:
            file = self._file(ref)
            raise _disk_error(error, f"{ref} could not be read from {file}", OffloadError) from error

    def _load(self, ref: str) -> str:
        file = self._file(ref)
        try:
            descriptor = os.open(file, _OPEN_FLAGS)
            try:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise _corrupt_error(ref, file, "is not a regular file")
                with os.fdopen(descriptor, "rb", closefd=False) as stream:
                    data = stream.read()
            finally:
                os.close(descriptor)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise OffloadNotFoundError(f"{ref} is not stored: there is no {file}") from error
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise _corrupt_error(ref, file, "is a link, which is not followed") from error
            raise
        try:
            text = data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise _corrupt_error(ref, file, "was truncated or changed: it is no UTF-8") from error
        if ref_of(text) != ref:
            raise _corrupt_error(ref, file, f"was truncated or changed: it hashes to {ref_of(text)}")
        return text

    def _delete(self, ref: str) -> None:
        file = self._file(ref)
        try:
            file.unlink()
            _sync_directory(self._directory)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise _disk_error(error, f"{ref} could not be removed ({file})", OffloadError) from error

    def _list(self) -> list[str]:
        try:
            with os.scandir(self._directory) as entries:
                names = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise _disk_error(error, f"{self._directory} could not be listed", OffloadError) from error
        return sorted(REF_PREFIX + match[1] for name in names if (match := _FILE_NAME.fullmatch(name)))

    def _sweep(self) -> None:
        """Remove temporary files of processes that died, once in this store's life."""
        if self._swept:
            return
        self._swept = True
        oldest = time.time() - _ABANDONED_SECONDS
        for file in self._directory.glob(f"{_TEMPORARY_PREFIX}*{_TEMPORARY_SUFFIX}"):
            with suppress(OSError):  # another process may be sweeping too
                if file.lstat().st_mtime < oldest:
                    file.unlink()


async def _off_loop(work: Callable[[threading.Event], T]) -> T:
    """Run blocking work in a thread; cancelled, tell the work so and wait for its end.

    A thread cannot be interrupted. Left alone, it would go on writing behind the back of whoever cancelled.
    It is left alone only after `_GRACE_SECONDS`: then the disk hangs, and a caller with a time limit must
    not.
    """
    cancelled = threading.Event()
    task = asyncio.ensure_future(wrap(work)(cancelled))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        cancelled.set()
        task.add_done_callback(_look_at)
        give_up = time.monotonic() + _GRACE_SECONDS
        while not task.done() and (left := give_up - time.monotonic()) > 0:
            with suppress(asyncio.CancelledError):
                await asyncio.wait([task], timeout=left)
        raise


def _look_at(task: asyncio.Future[Any]) -> None:
    """Take note of an error nobody waits for, so that asyncio does not report it as lost."""
    if not task.cancelled():
        task.exception()


def _make_directory(path: Path) -> None:
    if path.is_dir():
        return
    _make_directory(path.parent)
    with suppress(FileExistsError):  # another process was faster
        path.mkdir(0o700)
    with suppress(PermissionError):  # a parent may be passable but not readable
        _sync_directory(path.parent)


def _sync_directory(path: Path) -> None:
    """Make the names in a directory durable; a no-op where the system has no such call."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network disks cannot
            raise
    finally:
        os.close(descriptor)


def _corrupt_error(ref: str, file: Path, fault: str) -> OffloadCorruptError:
    return OffloadCorruptError(f"{ref}: {file} {fault}; delete it, or restore it from a backup")


def _disk_error(error: OSError, what: str, otherwise: type[OffloadError]) -> OffloadError:
    reason = f"{what}: {error.strerror or error}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return OffloadFullError(f"{reason}; free disk space there, or raise the quota")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return OffloadPermissionError(f"{reason}; give this process access, or choose another path")
    return otherwise(f"{reason}; mend the disk or choose another path")
