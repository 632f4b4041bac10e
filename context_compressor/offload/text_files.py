"""Texts as files of one directory, one per text, written so that a crash leaves the whole text or none."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

from context_compressor.errors import (
    OffloadCollisionError,
    OffloadCorruptError,
    OffloadError,
    OffloadNotFoundError,
    OffloadWriteError,
)
from context_compressor.offload.directory.disk import PLAIN_FLAGS, disk_error, make_directory, sync_directory
from context_compressor.offload.directory.namespaces import FILE_NAME, TEMPORARY_PREFIX, TEMPORARY_SUFFIX
from context_compressor.offload.directory.tenant import Tenant
from context_compressor.offload.protocol import REF_PREFIX, ref_of

ABANDONED_SECONDS = 24 * 3600
"""Age at which a temporary file belongs to a process that died: no write takes a day, and a clock that is
off by hours (network disks) does no harm."""

_READ_FLAGS = os.O_RDONLY | PLAIN_FLAGS | getattr(os, "O_NONBLOCK", 0)
"""A named pipe in the place of a text would block the open for ever."""


class TextFiles:
    """Read and write the files of one directory. All of this blocks, and belongs into a worker thread.

    The directory is made at the first write. See `FileOffloadStore` for what each operation raises.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._swept = False

    def write(self, text: str, tenant: Tenant, cancelled: threading.Event) -> str:
        """Make a text durable and return its ref; cancelled, end after the step under way."""
        ref = ref_of(text)
        try:
            self._refuse_link()
            make_directory(self.directory)
            self._sweep()
            if not self._holds(ref, text):
                self._write_file(ref, text, tenant, cancelled)
            sync_directory(self.directory)
        except OSError as error:
            file = self._file(ref)
            raise disk_error(error, f"{ref} could not be written to {file}", OffloadWriteError) from error
        return ref

    def read(self, ref: str) -> str:
        """Return the text under a ref."""
        try:
            self._refuse_link()
            return self._load(ref)
        except OSError as error:
            file = self._file(ref)
            raise disk_error(error, f"{ref} could not be read from {file}", OffloadError) from error

    def delete(self, ref: str, tenant: Tenant, cancelled: threading.Event) -> None:
        """Remove the text under a ref, durably, unless cancelled before; absent is fine."""
        file = self._file(ref)
        try:
            self._refuse_link()
            with tenant.freeing(file.lstat().st_size):
                if cancelled.is_set():  # and given up: it may be named again by now
                    raise OffloadError(f"{ref} was not removed: cancelled")
                file.unlink()
            sync_directory(self.directory)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise disk_error(error, f"{ref} could not be removed ({file})", OffloadError) from error

    def refs(self) -> list[str]:
        """Return every ref that is stored, sorted."""
        try:
            self._refuse_link()
            with os.scandir(self.directory) as entries:
                names = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise disk_error(error, f"{self.directory} could not be listed", OffloadError) from error
        return sorted(REF_PREFIX + match[1] for name in names if (match := FILE_NAME.fullmatch(name)))

    def _write_file(self, ref: str, text: str, tenant: Tenant, cancelled: threading.Event) -> None:
        data = text.encode("utf-8", "surrogatepass")
        descriptor, name = tempfile.mkstemp(TEMPORARY_SUFFIX, TEMPORARY_PREFIX, self.directory)
        temporary = Path(name)
        reserved = 0
        try:
            try:
                tenant.reserve(ref, len(data), descriptor)
                reserved = len(data)
                rest = memoryview(data)
                while rest and not cancelled.is_set():
                    rest = rest[os.write(descriptor, rest) :]
                if not cancelled.is_set():
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
            if not cancelled.is_set() and self._publish(temporary, ref, text):
                reserved = 0
        finally:
            with suppress(OSError), tenant.freeing(reserved):
                temporary.unlink(missing_ok=True)

    def _publish(self, temporary: Path, ref: str, text: str) -> bool:
        """Put a file in its place; tell whether that was needed."""
        file = self._file(ref)
        # A hard link never replaces what another writer, of this process or not, put there meanwhile.
        try:
            os.link(temporary, file)
        except FileExistsError:
            if self._holds(ref, text):
                return False
            temporary.replace(file)  # what stands there is corrupt, and the right text is at hand
        except OSError:
            temporary.replace(file)  # a disk without hard links; if something else is wrong, this says so
        return True

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

    def _load(self, ref: str) -> str:
        file = self._file(ref)
        try:
            descriptor = os.open(file, _READ_FLAGS)
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

    def _refuse_link(self) -> None:
        """Refuse a link in the place of the directory: texts would go, and be removed, wherever it points."""
        if self.directory.is_symlink():
            raise OSError(errno.ELOOP, "the directory is a link, which is not followed")

    def _file(self, ref: str) -> Path:
        return self.directory / f"{ref.removeprefix(REF_PREFIX)}.txt"

    def _sweep(self) -> None:
        """Remove temporary files of processes that died, once in this store's life."""
        if self._swept:
            return
        self._swept = True
        oldest = time.time() - ABANDONED_SECONDS
        for file in self.directory.glob(f"{TEMPORARY_PREFIX}*{TEMPORARY_SUFFIX}"):
            with suppress(OSError):  # another process may be sweeping too
                if file.lstat().st_mtime < oldest:
                    file.unlink()


def _corrupt_error(ref: str, file: Path, fault: str) -> OffloadCorruptError:
    return OffloadCorruptError(f"{ref}: {file} {fault}; delete it, or restore it from a backup")
