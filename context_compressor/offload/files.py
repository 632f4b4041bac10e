"""`FileOffloadStore`: a directory of texts that many sessions and processes may share."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from aiofiles.os import wrap

from context_compressor.errors import InvalidArgumentError, OffloadFullError
from context_compressor.offload.directory.checks import as_root, check_limit, check_namespace
from context_compressor.offload.directory.in_use import open_namespaces
from context_compressor.offload.directory.locking import WAIT_SECONDS
from context_compressor.offload.directory.namespaces import index_bytes
from context_compressor.offload.directory.process import watch_forks
from context_compressor.offload.directory.quota import quota_of
from context_compressor.offload.directory.threads import DiskThreads, threads_of
from context_compressor.offload.protocol import check_ref
from context_compressor.offload.text_files import TextFiles

T = TypeVar("T")

logger = logging.getLogger(__name__)

_GRACE_SECONDS = 5.0
"""How long a cancelled operation waits for its thread: an fsync on a busy disk can take seconds."""
_OPENING_SECONDS = 0.1
"""How long making a store may take, which happens on the event loop; what fails is made up for later."""
_TOUCH_SECONDS = 3600.0
"""How often the time of last use is written down: collections go by it."""


class FileOffloadStore(TextFiles):
    """Keep each text in `<path>/<namespace>/<16 hex digits>.txt`, durable before `write` returns.

    Files are made with mode 0600 in directories of mode 0700, at the first write; directories that exist
    already keep their mode. Processes may share a directory. A namespace belongs to one memory, and is in use
    from when a store for it is made until that is closed or forgotten: `collect_garbage` and quotas only
    remove namespaces that no living process uses.

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

    is_user = True
    """Whether this store's namespace counts as in use; False for one that only has a look."""

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
        super().__init__(root / namespace)
        self._namespace = namespace
        self._max_bytes = max_bytes
        self._max_age_seconds = max_age_seconds
        self._account = open_namespaces(root)
        self._quota = quota_of(root)
        self._threads = threads_of(root)
        # Guards what follows: a memory writes several texts at a time, each in a thread of its own.
        self._begin_lock = threading.Lock()
        self._held: weakref.finalize[..., Any] | None = None
        self._is_unmarked = False
        self._touch_at = 0.0
        self._index = (0, 0)  # bytes, and which count they were part of
        watch_forks(self)
        # What lies there may be named by a ledger that is about to be loaded, and not used for long.
        self._begin(to_write=False, wait_seconds=_OPENING_SECONDS)

    @property
    def directory(self) -> Path:
        """The directory that holds this namespace's files."""
        return self._directory

    async def write(self, text: str) -> str:
        """Make `text` durable and return its ref; a text that is already stored is not written again.

        Cancelled, it waits for the step under way (one fsync at most) and leaves no partial file.

        Raises:
            OffloadCollisionError: another text holds this ref.
            OffloadFullError: the disk is full, or the quota is used up and all there is in use.
            OffloadPermissionError: this process may not write there, or the disk is read-only.
            OffloadWriteError: any other reason why the text could not be made durable.
            InvalidArgumentError: `text` is no string.
        """
        if not isinstance(text, str):
            raise InvalidArgumentError(f"text: expected a string, got {type(text).__name__}")
        return await _off_loop(self._threads, lambda cancelled: self._write(text, cancelled))

    async def read(self, ref: str) -> str:
        """Return the text under `ref`, as it was written.

        Raises:
            OffloadNotFoundError: the ref is absent or malformed.
            OffloadCorruptError: the file was truncated or changed, or is a link.
            OffloadPermissionError: this process may not read the file.
            OffloadError: the disk failed otherwise.
        """
        check_ref(ref)
        return await _off_loop(self._threads, lambda _: self._read(ref))

    async def delete(self, ref: str) -> None:
        """Remove the text under `ref`, durably; absent is fine.

        Raises:
            OffloadNotFoundError: the ref is malformed.
            OffloadPermissionError: this process may not remove the file.
            OffloadError: the disk failed otherwise.
        """
        check_ref(ref)
        await _off_loop(self._threads, lambda cancelled: self._delete(ref, cancelled))

    async def refs(self) -> list[str]:
        """Return every ref that is stored, sorted; other files, temporary ones included, are ignored."""
        return await _off_loop(self._threads, lambda _: self._list())

    def open(self) -> None:
        """Mark the namespace as in use, so that no collection removes it; blocks.

        Every operation does so. Call it before putting a search index into `directory`, and again after it
        grew: that counts it, as `close` does.
        """
        self._begin(to_write=True)
        with suppress(OSError):  # a daily look makes up for it
            self._count_index()

    def close(self) -> None:
        """Let collections remove the namespace, as when the store is forgotten; the next operation opens it.

        Python forgets an object when nothing refers to it any more, and one in a cycle some time later.
        """
        # Only where it changed: whoever closes a session does so on the event loop.
        if self._held is not None and index_bytes(self._directory) != self._index[0]:
            with suppress(OSError):  # a daily look makes up for it
                self._count_index()
        with self._begin_lock:
            held, self._held, self._touch_at = self._held, None, 0.0
        if held is not None:
            held()

    def start_as_child(self) -> None:
        """Take over in a process that was forked: another thread of the parent may have held the lock."""
        self._begin_lock = threading.Lock()

    # What follows blocks, and runs in a worker thread: one hop per operation, since fsync dwarfs all else.

    def _begin(self, *, to_write: bool, wait_seconds: float = WAIT_SECONDS) -> None:
        if not self.is_user:
            return
        try:
            if not (to_write or self._directory.is_dir()):
                return
            with self._begin_lock:
                if self._held is not None:
                    self._account.confirm()
                else:
                    self._account.hold(self._namespace, wait_seconds)
                    self._held = weakref.finalize(self, self._account.release, self._namespace)
                    self._held.atexit = False
                    self._index = index_bytes(self._directory), self._quota.usage.counted_at()
                if time.monotonic() >= self._touch_at:
                    with suppress(OSError):  # not there yet, or not ours
                        os.utime(self._directory)
                        self._touch_at = time.monotonic() + _TOUCH_SECONDS
                self._is_unmarked = False
        except OSError as error:
            if to_write and not self._is_unmarked:
                self._is_unmarked = True  # on a full disk every write would tell of it
                logger.warning("%s is not marked as in use: %s", self._directory, error)
        if to_write and self._max_age_seconds is not None:
            self._quota.remove_expired(self._max_age_seconds)

    def _reserve(self, ref: str, size: int, descriptor: int) -> None:
        if self._max_bytes is None:
            os.ftruncate(descriptor, size)
            with suppress(OSError):  # the count is for others; a daily look makes up for it
                self._count_index()
                self._quota.usage.add(size)
            return
        self._count_index()
        try:
            self._quota.reserve(size, descriptor, self._max_bytes, self._max_age_seconds)
        except OffloadFullError as error:
            raise OffloadFullError(f"{ref} was not stored: {error}") from None
        finally:
            self._count_index()  # what it is part of may be a new count

    def _count_index(self) -> None:
        """Count by how much the index grew or shrank since the last time."""
        usage = self._quota.usage
        with self._begin_lock:
            earlier, counted_at = self._index
            self._index = index_bytes(self._directory), usage.counted_at()
            grown = self._index[0] - earlier
        if grown > 0:
            usage.add(grown)
        elif grown < 0:
            usage.subtract(-grown, counted_at)

    @contextmanager
    def _freeing(self, size: int) -> Iterator[None]:
        usage = self._quota.usage
        counted_at = 0
        with suppress(OSError):  # too high a count is mended by the next collection
            counted_at = usage.counted_at() if size else 0
        yield
        with suppress(OSError):
            if size:
                usage.subtract(size, counted_at)


async def _off_loop(threads: DiskThreads, work: Callable[[threading.Event], T]) -> T:
    """Run blocking work in a thread; cancelled, tell the work so and wait for its end.

    A thread cannot be interrupted. Left alone, it would go on writing behind the back of whoever cancelled.
    It is left alone only after `_GRACE_SECONDS`: then the disk hangs, and a caller with a time limit must
    not.
    """
    cancelled = threading.Event()
    task = asyncio.ensure_future(wrap(work)(cancelled, executor=threads.pool))
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
