"""The namespaces of stores, looked at from outside: what texts lie in them, and where."""

from __future__ import annotations

from context_compressor.offload.packed import PackedOffloadStore
from context_compressor.offload.store import KeepingStore, OffloadStore, StoredText


class OtherNamespace:
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

    async def remove_index(self) -> list[tuple[str, int]]:
        """Do nothing: nobody knows of one."""
        return []

    def refs_of_states(self) -> set[str]:
        """Return nothing: nobody knows of any."""
        return set()

    def is_of(self, user_id: str, session_id: str) -> bool:  # noqa: ARG002
        """Return False: nobody knows."""
        return False


Namespace = PackedOffloadStore | OtherNamespace
"""What a store holds under one name."""


def namespace_of(store: OffloadStore) -> Namespace:
    """Return the namespace that a store stands for."""
    if isinstance(store, KeepingStore):
        return namespace_of(store.wrapped)
    return store if isinstance(store, PackedOffloadStore) else OtherNamespace(store)


async def namespaces_of(store: OffloadStore) -> list[Namespace]:
    """Return all namespaces where a store's texts lie, of which it may stand for one."""
    return list(await store.namespaces()) if isinstance(store, PackedOffloadStore) else [namespace_of(store)]
