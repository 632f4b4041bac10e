"""Where texts lie: stores by their URL, and their namespaces, looked at from outside."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from context_compressor.backends.sessions import (
    REDIS_SCHEMES,
    SQL_SCHEMES,
    RemovedObject,
    scheme_of,
    with_driver,
)
from context_compressor.backends.stores import PackedOffloadStore
from context_compressor.errors import InvalidArgumentError, OffloadError
from context_compressor.offload.files import ABANDONED_SECONDS, FileOffloadStore, TextFiles
from context_compressor.offload.folders import INDEX_FILE, SESSION_FILE, TEMPORARY_PREFIX, find_namespaces
from context_compressor.offload.store import REF_PATTERN, KeepingStore, OffloadStore, StoredText


class Namespace(Protocol):
    """What a store holds under one name."""

    label: str

    async def stored(self) -> list[StoredText]:
        """Return what is stored."""
        ...

    async def delete(self, ref: str) -> None:
        """Remove a text; absent is fine."""
        ...

    def where(self, ref: str) -> str:
        """Return where a text lies, for people."""
        ...


class FileNamespace:
    """A namespace of a directory, which looking at it does not mark as used."""

    def __init__(self, directory: Path, store: FileOffloadStore | None = None) -> None:
        self.label = directory.name
        self._directory = directory
        self._files = TextFiles(directory)
        self._store = store

    async def stored(self) -> list[StoredText]:
        """Return what is stored."""
        return await asyncio.to_thread(self._files.stored)

    async def delete(self, ref: str) -> None:
        """Remove a text; absent is fine."""
        if self._store is None:
            self._store = FileOffloadStore(self._directory.parent, self.label)
        await self._store.delete(ref)

    def where(self, ref: str) -> str:
        """Return where a text lies, for people."""
        return str(self._directory / f"{ref.removeprefix('ctx://')}.txt")

    def refs_of_states(self) -> set[str]:
        """Return the refs that the states of conversations beside the texts name, and some more, maybe.

        Raises:
            OffloadError: one cannot be read.
        """
        named: set[str] = set()
        with suppress(FileNotFoundError):
            for file in self._directory.iterdir():
                if SESSION_FILE.fullmatch(file.name) and file.suffix == ".json":
                    try:
                        named.update(REF_PATTERN.findall(file.read_text("utf-8", "replace")))
                    except FileNotFoundError:
                        continue
                    except OSError as error:
                        raise OffloadError(f"{file}: cannot be read: {error.strerror}") from error
        return named

    def remove_rest(self, *, young: bool) -> list[RemovedObject]:
        """Remove what holds words beside the texts: the search index, and texts that were half written.

        Args:
            young: whether half a text goes also where it may be written at this moment.
        """
        removed: list[RemovedObject] = []
        with suppress(FileNotFoundError, NotADirectoryError):
            for file in sorted(self._directory.iterdir()):
                is_half = file.name.startswith(TEMPORARY_PREFIX)
                if file.is_symlink() or not (is_half or file.name.startswith(INDEX_FILE)):
                    continue
                with suppress(FileNotFoundError):
                    status = file.stat()
                    if is_half and not young and time.time() - status.st_mtime < ABANDONED_SECONDS:
                        continue
                    file.unlink()
                    removed.append(RemovedObject("file", str(file), status.st_size))
        with suppress(OSError):  # there is something else in it
            self._directory.rmdir()
        return removed


class _OtherNamespace:
    """A store of a caller's own class, of which only the refs are known."""

    def __init__(self, store: OffloadStore) -> None:
        self.label = type(store).__name__
        self.delete = store.delete
        self._store = store

    async def stored(self) -> list[StoredText]:
        """Return what is stored; how large or how old it is nobody knows."""
        return [StoredText(ref, 0, 0.0) for ref in await self._store.refs()]

    def where(self, ref: str) -> str:
        """Return what is known of where a text lies."""
        return f"{self.label} {ref}"


def namespace_of(store: OffloadStore) -> Namespace:
    """Return the namespace that a store stands for."""
    if isinstance(store, KeepingStore):
        return namespace_of(store.wrapped)
    if isinstance(store, FileOffloadStore):
        return FileNamespace(store.directory, store)
    return store if isinstance(store, PackedOffloadStore) else _OtherNamespace(store)


async def namespaces_of(store: OffloadStore) -> list[Namespace]:
    """Return all namespaces where a store's texts lie, of which it may stand for one."""
    if isinstance(store, PackedOffloadStore):
        return list(await store.namespaces())
    if not isinstance(store, FileOffloadStore):
        return [namespace_of(store)]
    root = store.directory.parent
    if not root.is_dir():
        return []
    found = await asyncio.to_thread(find_namespaces, root)
    return [FileNamespace(root / one.name) for one in sorted(found, key=lambda one: one.name)]


def refs_of_states(namespace: Namespace) -> set[str]:
    """Return the refs that something in a namespace itself names."""
    return namespace.refs_of_states() if isinstance(namespace, FileNamespace) else set()


def open_store(
    where: str,
    namespace: str | tuple[str, str] = "default",
    *,
    key_prefix: str = "",
    encryption_key: bytes | str | None = None,
    options: Mapping[str, Any] | None = None,
) -> FileOffloadStore | PackedOffloadStore:
    """Return the store at a place: a directory, or a URL of a database, of Redis, or of fsspec's.

    Args:
        where: such as "working_memory", "sqlite:///memory.db", "redis://localhost" or "s3://bucket/texts".
        namespace: of the texts; in a database or Redis also the ids of a user and a session.
        key_prefix: what all keys of Redis begin with.
        encryption_key: of texts that are encrypted.
        options: for the file system of fsspec.

    Raises:
        InvalidArgumentError, ValueError: there is no such place, or an argument is for another kind of store.
        ImportError: a package is missing; the text names the extra.
    """
    kind = scheme_of(where)
    if options and kind in (*REDIS_SCHEMES, *SQL_SCHEMES):
        raise InvalidArgumentError("options: they are for file systems of fsspec's")
    if kind in REDIS_SCHEMES:
        from context_compressor.backends.redis_store import RedisOffloadStore

        return RedisOffloadStore(where, namespace, key_prefix=key_prefix, encryption_key=encryption_key)
    if kind in SQL_SCHEMES:
        from context_compressor.backends.sqlalchemy_store import SQLAlchemyOffloadStore

        return SQLAlchemyOffloadStore(with_driver(where), namespace, encryption_key=encryption_key)
    if not isinstance(namespace, str):
        raise InvalidArgumentError(
            "namespace: ids of a user and a session name one in a database or in Redis"
        )
    if not kind:
        if encryption_key is not None or options:
            raise InvalidArgumentError("encryption_key, options: a directory takes none; give 'file://...'")
        return FileOffloadStore(where, namespace)
    from context_compressor.backends.fsspec import FsspecOffloadStore

    return FsspecOffloadStore(where, namespace, encryption_key=encryption_key, **(options or {}))
