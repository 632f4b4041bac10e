"""The base memory as the wrapper sees it: reading it whole, noticing changes made behind its back."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from context_compressor.compression.edits import message_id
from context_compressor.memory.base import MemoryBase
from context_compressor.memory.state import keyed
from context_compressor.messages.msg import Msg

_BATCH = 256
"""Messages that are copied at a time, so that nothing holds the event loop."""


class BaseHistory:
    """Read a base memory, and tell whether somebody else changed it.

    With a `revision()` every change is seen at once; without, a change of size at every call, and any other
    when an event reads the history anyway.
    """

    def __init__(self, base: MemoryBase) -> None:
        self._base = base
        self._revision = base.revision()

    @property
    def has_revision(self) -> bool:
        """Whether the base memory counts its changes."""
        return self._revision is not None

    def is_unchanged(self) -> bool:
        """Tell, without waiting, that nothing changed; False when that takes a look at the size."""
        return self._revision is not None and self._base.revision() == self._revision

    async def has_changed(self, expected_size: int) -> bool:
        """Tell whether somebody else changed the base memory since `remember`."""
        if self._revision is not None:
            return not self.is_unchanged()
        return await self.size() != expected_size

    async def size(self) -> int:
        """Return how many messages the base memory holds."""
        return await self._base.size()

    def remember(self) -> None:
        """Take the present state of the base memory as known."""
        self._revision = self._base.revision()

    async def read(self) -> list[tuple[str, Msg]]:
        """Return every message with its key, in order, as private copies."""
        self.remember()
        return await self.peek()

    async def peek(self) -> list[tuple[str, Msg]]:
        """Return the same without taking the state of the base memory as known."""
        messages = await self._base.get_memory(prepend_summary=False)
        copies: list[Msg] = []
        for start in range(0, len(messages), _BATCH):
            if start:
                await asyncio.sleep(0)
            copies += [msg.copy() for msg in messages[start : start + _BATCH]]
        return keyed(copies)

    @property
    def finds_some(self) -> bool:
        """Whether `find` reads only what is asked for."""
        return type(self._base).find is not MemoryBase.find

    async def find(self, keys: Collection[str]) -> dict[str, Msg]:
        """Return the messages under these keys."""
        found = await self._base.find({message_id(key) for key in keys})
        # Later messages under one id have keys of their own, in the order of the history.
        by_key = dict(keyed(found))
        return {key: by_key[key] for key in keys if key in by_key}

    async def ids_bearing(self, mark: str) -> list[str]:
        """Return the ids of the messages that bear a mark, in order."""
        return [msg.id for msg in await self._base.get_memory(mark=mark, prepend_summary=False)]

    @property
    def summary(self) -> str:
        """The base memory's own summary, "" when it has none."""
        return getattr(self._base, "_compressed_summary", "") or ""
