"""`FsspecOffloadStore`: texts in S3, GCS, Azure, OSS and whatever else fsspec reaches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from difflib import get_close_matches
from inspect import signature
from pathlib import Path
from typing import Any

from context_compressor.errors import (
    ContextCompressorError,
    InvalidArgumentError,
    OffloadError,
    naming_extras,
    without_secrets,
)

with naming_extras():
    import fsspec
    from fsspec.core import url_to_fs

from context_compressor.offload.folders import (
    FILE_NAME,
    NAMESPACE,
    TEMPORARY_PREFIX,
    check_namespace,
    make_directory,
    replacing,
)
from context_compressor.offload.packed import PackedOffloadStore, Packing, digits
from context_compressor.offload.store import REF_PREFIX, StoredText

_TIMES = ("LastModified", "last_modified", "updated", "mtime", "modified", "created")
"""What file systems call the time of the last change."""


class FsspecOffloadStore(PackedOffloadStore):
    """Keep each text as `<url>/<namespace>/<16 hex digits>.txt`.

    Args:
        url: a folder as fsspec names it, such as "s3://bucket/texts" or "memory://texts".
        namespace: 1 to 64 of `A-Z a-z 0-9 . _ -`, not starting with a dot; one memory's alone. "default" when
            None.
        compress_above: bytes above which a text is compressed by zstd; None: never.
        encryption_key: encrypts every text, a key of `Fernet.generate_key()`; None: none is.
        max_bytes: bytes that the namespace may hold; a text that does not fit is refused. None: any.
        options: for the file system, as `fsspec.filesystem` takes them.

    Raises:
        InvalidArgumentError: no URL of a file system that is there, or an option that it does not take.
        ValueError: the namespace is not of that form.
    """

    def __init__(
        self,
        url: str,
        namespace: str | None = None,
        *,
        compress_above: int | None = None,
        encryption_key: bytes | str | None = None,
        max_bytes: int | None = None,
        **options: Any,
    ) -> None:
        name = "default" if namespace is None else namespace
        check_namespace(name)
        super().__init__(name, Packing(compress_above, encryption_key), max_bytes)
        if not isinstance(url, str) or not url:
            raise InvalidArgumentError(f"url: expected such as 's3://bucket/texts', got {url!r:.200}")
        for option in options:  # a file system ignores options that it does not know
            if near := get_close_matches(option, signature(FsspecOffloadStore).parameters, n=1, cutoff=0.8):
                raise InvalidArgumentError(f"{option}: there is no such option; did you mean {near[0]}?")
        try:
            protocol = fsspec.utils.get_protocol(url)
            self._class: Any = fsspec.get_filesystem_class(protocol)
            self._options = {"use_listings_cache": False, **options}
            made, path = url_to_fs(url, skip_instance_cache=True, **self._options)
        except (ValueError, ImportError, TypeError) as error:
            raise InvalidArgumentError(f"url: {without_secrets(error, url)}") from None
        self._url, self._root = url, path.rstrip("/")
        self._folder = f"{self._root}/{name}"
        self._protocol = protocol
        self._sync: Any = made
        # A client of asyncio's belongs to the loop that made it.
        self._by_loop: tuple[asyncio.AbstractEventLoop, Any, Any] | None = None

    def _path(self, ref: str) -> str:
        return f"{self._folder}/{digits(ref)}.txt"

    async def _filesystem(self) -> Any:
        loop = asyncio.get_running_loop()
        if self._by_loop is None or self._by_loop[0] is not loop:
            made = self._class(asynchronous=True, skip_instance_cache=True, **self._options)
            self._by_loop = loop, made, await made.set_session()
        return self._by_loop[1]

    async def _do(self, name: str, *arguments: Any, **named: Any) -> Any:
        """Call a method: in this loop where the file system can, else in a thread."""
        try:
            if self._sync.async_impl:
                method: Callable[..., Awaitable[Any]] = getattr(await self._filesystem(), f"_{name}")
                return await method(*arguments, **named)
            return await asyncio.to_thread(getattr(self._sync, name), *arguments, **named)
        except (FileNotFoundError, FileExistsError):
            raise
        except Exception as error:  # of HTTP, whose paths are URLs
            said = without_secrets(error, self._url)
            if said == str(error):
                raise
            raise ContextCompressorError(said) from None

    async def _put(self, ref: str, data: bytes) -> bool:
        if self._protocol in ("file", "local"):
            if await self._do("exists", self._path(ref)):
                return False
            await self._replace(ref, data)
            return True
        if not self._sync.async_impl:
            await self._do("makedirs", self._folder, exist_ok=True)
        try:
            await self._do("pipe_file", self._path(ref), data, mode="create")
        except FileExistsError:
            return False
        return True

    async def _replace(self, ref: str, data: bytes) -> None:
        if self._protocol in ("file", "local"):  # fsspec would write in steps, and so that everybody can read
            await asyncio.to_thread(_write_file, Path(self._path(ref)), data)
        else:
            await self._do("pipe_file", self._path(ref), data)

    async def _get(self, ref: str) -> bytes | None:
        try:
            return bytes(await self._do("cat_file", self._path(ref)))
        except FileNotFoundError:
            return None

    async def _remove(self, ref: str) -> None:
        try:
            await self._do("rm_file", self._path(ref))
        except FileNotFoundError:
            return

    async def _touch(self, ref: str, data: bytes) -> None:
        await self._replace(ref, data)

    async def _list(self) -> list[StoredText]:
        try:
            found: dict[str, Any] = await self._do("find", self._folder, detail=True)
        except FileNotFoundError:
            return []
        named = ((FILE_NAME.fullmatch(path.rpartition("/")[2]), told) for path, told in found.items())
        return [
            StoredText(f"{REF_PREFIX}{name[1]}", int(told.get("size") or 0), _age_of(told))
            for name, told in named
            if name is not None
        ]

    async def remove_halves(self, older_than: float) -> list[tuple[str, int]]:
        """Remove texts that a crash left half written."""
        removed: list[tuple[str, int]] = []
        try:
            found: dict[str, Any] = await self._do("find", self._folder, detail=True)
            for path, told in found.items():
                if path.rpartition("/")[2].startswith(TEMPORARY_PREFIX) and _age_of(told) >= older_than:
                    with suppress(FileNotFoundError):
                        await self._do("rm_file", path)
                        removed.append((self._named(path), int(told["size"])))
        except FileNotFoundError:
            return removed
        except Exception as error:
            raise OffloadError(f"half-written texts could not be removed: {error}") from error
        return removed

    async def _names(self) -> list[str]:
        try:
            found = await self._do("ls", self._root, detail=True)
        except FileNotFoundError:
            return []
        folders = (one["name"].rstrip("/").rpartition("/")[2] for one in found if one["type"] == "directory")
        return [name for name in sorted(folders) if NAMESPACE.fullmatch(name)]

    def _be(self, name: str) -> None:
        self.label, self._folder = name, f"{self._root}/{name}"

    def where(self, ref: str) -> str:
        """Return where a text lies, for people."""
        return self._named(self._path(ref))

    def _named(self, path: str) -> str:
        return without_secrets(self._sync.unstrip_protocol(path), self._url)

    async def close(self) -> None:
        """Close the connections that were made here."""
        if self._by_loop is not None:
            session, self._by_loop = self._by_loop[2], None
            if session is not None and hasattr(session, "close"):
                await session.close()


def _write_file(path: Path, data: bytes) -> None:
    make_directory(path.parent)
    with replacing(path) as file:
        file.write(data)


def _age_of(told: dict[str, Any]) -> float:
    """Return how long ago a file was changed, in seconds; 0 where the file system does not say."""
    for name in _TIMES:
        at = told.get(name)
        if isinstance(at, str):
            try:
                at = datetime.fromisoformat(at)
            except ValueError:
                continue
        if isinstance(at, datetime):
            at = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
        if isinstance(at, int | float):
            return max(time.time() - at, 0.0)
    return 0.0
