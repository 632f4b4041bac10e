"""Where a gateway keeps what it knows: in its process, or in a backend that workers share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from weakref import WeakValueDictionary

from context_compressor.backends.admin.opening import (
    REDIS_SCHEMES,
    is_database,
    open_memory,
    open_states,
    open_store,
    scheme_of,
    with_driver,
)
from context_compressor.errors import naming_extras
from context_compressor.memory.leases import EventLease, Leases, take_turn
from context_compressor.offload.store import InMemoryOffloadStore, OffloadStore
from context_compressor.services.base import InMemoryMemoryService, MemoryService

_USER = "context_compressor gateway"
"""Whose the gateway's own session and namespace are."""


class MemoryStates:
    """States in this process."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[str, Any]] = {}

    async def get(self, key: str) -> dict[str, Any] | None:
        """Return what was set under a key, or None."""
        return self._kept.get(key)

    async def set(self, key: str, state: dict[str, Any]) -> None:
        """Keep a state."""
        self._kept[key] = state

    async def exchange(self, key: str, change: Callable[[Any], dict[str, Any]]) -> None:
        """Change a state, or None, into another one."""
        self._kept[key] = change(self._kept.get(key))

    async def delete(self, key: str) -> None:
        """Remove a state; there may be none."""
        self._kept.pop(key, None)

    async def keys(self) -> list[str]:
        """Return the keys that have a state."""
        return sorted(self._kept)


class Turns:
    """Give each request of a conversation its turn.

    Among workers it is a lease, for each request: whether one makes an event is known only when its state was
    read, which another one may be about to write.

    Args:
        leases: where several workers share them; None: there is one.
    """

    def __init__(self, leases: Leases | None = None) -> None:
        self._leases = leases
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def of(self, name: str) -> AsyncIterator[EventLease]:
        """Wait for the turn of a conversation, and keep it; gives the lease, by which costs are noted."""
        lock = self._locks.setdefault(name, asyncio.Lock())
        async with lock, take_turn(self._leases, name) as lease:
            yield lease


class Backend:
    """States, leases and texts of a gateway.

    Args:
        url: of Redis or a database; None: all is kept in this process.
        store: a directory or URL for texts; None: the backend's.
        key_prefix: what all keys of Redis begin with.
        options: for the file system of fsspec.

    Raises:
        InvalidArgumentError, ValueError: there is no such place.
        ImportError: a package is missing; the text names the extra.

    Attributes:
        states: of conversations; None: they are kept by whoever asks.
        journal: what the page shows.
        leases: None where one process is alone.
        store: of texts.
        service: of working memories.
    """

    def __init__(
        self,
        url: str | None = None,
        store: str | None = None,
        *,
        key_prefix: str = "",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.url, self._key_prefix = url, key_prefix
        self.states: Any = None
        self.journal: Any = MemoryStates()
        self.leases: Leases | None = None
        self.service: MemoryService = InMemoryMemoryService()
        self._closing: list[Any] = []
        if url is not None:
            self.service = open_service(url, key_prefix=key_prefix)
            self.states = self.journal = open_states(url, key_prefix=key_prefix)
            base = self.memory(_USER, "leases")
            self.leases = base.history
            self._closing = [self.states, base]
        self.store: OffloadStore = InMemoryOffloadStore()
        if store is not None or url is not None:
            where = store if store is not None else str(url)
            namespace: Any = (_USER, "texts") if is_database(where) else "gateway"
            opened = open_store(where, namespace, key_prefix=key_prefix, options=options)
            self.store = opened
            self._closing.append(opened)

    def memory(self, user: str, session: str) -> Any:
        """Return the base memory of a session in the backend."""
        assert self.url is not None
        return open_memory(self.url, user_id=user, session_id=session, key_prefix=self._key_prefix)

    async def aclose(self) -> None:
        """Close the connections."""
        await self.service.stop()
        for one in self._closing:
            close = getattr(one, "aclose", None) or getattr(one, "close", None)
            if close is not None:
                closed = close()
                if closed is not None:
                    await closed


@naming_extras()
def open_service(url: str, *, key_prefix: str = "") -> MemoryService:
    """Return the service of sessions behind a URL, which stay until they are deleted.

    Args:
        url: as `open_sessions` takes it.
        key_prefix: what all keys of Redis begin with.

    Raises:
        InvalidArgumentError: it is no such URL.
        ImportError: a package is missing; the text names the extra.
    """
    if scheme_of(url) in REDIS_SCHEMES:
        from context_compressor.services.redis import RedisMemoryService

        return RedisMemoryService(url, ttl_seconds=None, key_prefix=key_prefix)
    from context_compressor.services.sqlalchemy import SQLAlchemyMemoryService

    return SQLAlchemyMemoryService(with_driver(url))
