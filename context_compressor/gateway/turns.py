"""Turns: of requests of one conversation, one at a time has its view made, in whichever worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from context_compressor.memory.leases import EventLease, Leases, Waits


class Turns:
    """Give each request of a conversation its turn.

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
        async with lock:
            lease, waits = EventLease(self._leases, name), Waits()
            try:
                while not await lease.take():
                    await waits.next()
                yield lease
            finally:
                await lease.give_back()
