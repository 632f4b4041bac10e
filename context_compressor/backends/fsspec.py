"""`FsspecOffloadStore`: texts in S3, GCS, Azure, OSS and whatever else fsspec reaches."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

try:
    import fsspec
    from fsspec.core import url_to_fs
except ImportError as error:
    raise ImportError(
        f"FsspecOffloadStore needs fsspec: pip install 'agent-context-compressor[fsspec]' ({error})"
    ) from error

from context_compressor.backends.stores import PackedOffloadStore, Packing, digits
from context_compressor.errors import InvalidArgumentError
from context_compressor.offload.folders import FILE_NAME, check_namespace
from context_compressor.offload.store import REF_PREFIX


class FsspecOffloadStore(PackedOffloadStore):
    """Keep each text as `<url>/<namespace>/<16 hex digits>.txt`.

    Args:
        url: a folder as fsspec names it, such as "s3://bucket/texts" or "memory://texts".
        namespace: 1 to 64 of `A-Z a-z 0-9 . _ -`, not starting with a dot; one memory's alone. "default" when
            None.
        compress_above: bytes above which a text is compressed by zstd; None: never.
        encryption_key: encrypts every text, a key of `Fernet.generate_key()`; None: none is.
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
        **options: Any,
    ) -> None:
        super().__init__(Packing(compress_above, encryption_key))
        name = "default" if namespace is None else namespace
        check_namespace(name)
        if not isinstance(url, str) or not url:
            raise InvalidArgumentError(f"url: expected such as 's3://bucket/texts', got {url!r}")
        try:
            protocol = fsspec.utils.get_protocol(url)
            self._class: Any = fsspec.get_filesystem_class(protocol)
            self._options = {"use_listings_cache": False, **options}
            made, path = url_to_fs(url, skip_instance_cache=True, **self._options)
        except (ValueError, ImportError, TypeError) as error:
            raise InvalidArgumentError(f"url: {error}") from error
        self._folder = f"{path.rstrip('/')}/{name}"
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
        if self._sync.async_impl:
            method: Callable[..., Awaitable[Any]] = getattr(await self._filesystem(), f"_{name}")
            return await method(*arguments, **named)
        return await asyncio.to_thread(getattr(self._sync, name), *arguments, **named)

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
        if self._protocol in ("file", "local"):  # which writes in steps: another name first, then the move
            path = f"{self._folder}/.writing-{digits(ref)}-{uuid4().hex}.tmp"
            await self._do("makedirs", self._folder, exist_ok=True)
            await self._do("pipe_file", path, data)
            await self._do("mv", path, self._path(ref))
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

    async def _list(self) -> list[str]:
        try:
            found = await self._do("find", self._folder)
        except FileNotFoundError:
            return []
        names = (FILE_NAME.fullmatch(path.rpartition("/")[2]) for path in found)
        return [f"{REF_PREFIX}{name[1]}" for name in names if name is not None]

    async def close(self) -> None:
        """Close the connections that were made here."""
        if self._by_loop is not None:
            session, self._by_loop = self._by_loop[2], None
            if session is not None and hasattr(session, "close"):
                await session.close()
