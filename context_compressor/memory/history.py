"""The base memory as the wrapper sees it: reading it whole, noticing changes made behind its back."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from context_compressor.compression.edits import ItemKey, message_id, refs_of
from context_compressor.compression.ledger import Ledger
from context_compressor.compression.recovery import Recovery
from context_compressor.memory.base import MemoryBase
from context_compressor.memory.known import keyed
from context_compressor.messages.msg import Msg
from context_compressor.offload.protocol import REF_PATTERN
from context_compressor.tokens.off_loop import run_off_loop

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


async def withdraw_outdated(ledger: Ledger, recovery: Recovery, characters: int) -> None:
    """Withdraw stubs and segments whose messages are gone or say something else now.

    Nobody else may change stubs and segments meanwhile.

    Args:
        ledger: the edits.
        recovery: what its refs name, by the history as it is now.
        characters: of all texts; where they are many, the work is done in threads.
    """
    stubs = list(ledger.stubs())
    outdated = await run_off_loop(characters, lambda: [s.item for s in stubs if recovery.is_outdated(s)])
    for item in outdated:
        ledger.withdraw(item)
    # Stubs stand in transcripts: look at those only after the stubs, or a changed text could pass.
    for segment in list(ledger.segments()):
        if ledger.segment(segment.id) is None or not segment.items:
            continue
        if not await run_off_loop(characters, recovery.still_gives, segment):
            ledger.withdraw_segments_over(segment.items[0])
    while torn := await run_off_loop(characters, list, recovery.torn_items()):
        for item in torn:
            ledger.withdraw_segments_over(item)
    # A page is read again from its sources; those may be transcripts that hold withdrawn pages.
    while pages := _pages_without_source(ledger):
        for item in pages:
            ledger.withdraw(item)


def _pages_without_source(ledger: Ledger) -> list[ItemKey]:
    """Return the items with pages that show lines of a text which nothing but pages names."""
    pages = [stub for stub in ledger.stubs() if stub.page]
    if not pages:
        return []
    sources = {stub.ref for stub in ledger.stubs() if not stub.page}
    sources.update(ref for segment in ledger.segments() for ref in refs_of(segment))
    return [page.item for page in pages if not sources.issuperset(REF_PATTERN.findall(page.text))]
