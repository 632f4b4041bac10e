"""The namespaces of stores, looked at from outside: what texts lie in them, and where."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from context_compressor.backends.stores import PackedOffloadStore
from context_compressor.offload.files import FileOffloadStore, TextFiles
from context_compressor.offload.folders import (
    INDEX_FILE,
    TEMPORARY_PREFIX,
    find_namespaces,
    refs_of_states_in,
)
from context_compressor.offload.store import KeepingStore, OffloadStore, StoredText


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

    async def remove_halves(self, older_than: float) -> list[tuple[str, int]]:
        """Remove texts that a crash left half written, so many seconds old; return where, and bytes."""
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
        return refs_of_states_in(self._directory)

    async def remove_halves(self, older_than: float) -> list[tuple[str, int]]:
        """Remove texts that a crash left half written."""
        return await asyncio.to_thread(self._unlink, TEMPORARY_PREFIX, older_than)

    def remove_index(self) -> list[tuple[str, int]]:
        """Remove the search index beside the texts, and the directory, if nothing is left in it."""
        removed = self._unlink(INDEX_FILE)
        with suppress(OSError):  # there is something else in it
            self._directory.rmdir()
        return removed

    def _unlink(self, prefix: str, older_than: float = 0.0) -> list[tuple[str, int]]:
        removed: list[tuple[str, int]] = []
        with suppress(FileNotFoundError, NotADirectoryError):
            for file in sorted(self._directory.iterdir()):
                if file.name.startswith(prefix) and not file.is_symlink():
                    with suppress(FileNotFoundError):
                        status = file.stat()
                        if max(time.time() - status.st_mtime, 0.0) >= older_than:
                            file.unlink()
                            removed.append((str(file), status.st_size))
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

    async def remove_halves(self, older_than: float) -> list[tuple[str, int]]:  # noqa: ARG002
        """Do nothing: nobody knows of any."""
        return []


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
