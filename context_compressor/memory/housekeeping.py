"""What follows upon a call: what nothing names any more leaves the store, and events are delivered."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager

from context_compressor.events import CompressionEvent, EventHook
from context_compressor.memory.background import Background
from context_compressor.memory.locks import LoopLock
from context_compressor.memory.offloaded import OffloadedTexts
from context_compressor.memory.search.recalling import Recall
from context_compressor.memory.upkeep import Upkeep

logger = logging.getLogger(__name__)


class Housekeeping:
    """Tidy up behind calls and events, and tell of these.

    Args:
        upkeep: keeps the view in step with the history.
        texts: those that left the view.
        background: what is prepared ahead, and may have stored something.
        recall: drops from its index what is no longer in the history.
        on_event: receives every event.

    Attributes:
        event_lock: one event at a time: a second caller over budget waits for the first one's view and pays
            for none. Taken before the upkeep's lock where both are.
    """

    event_lock = LoopLock()

    def __init__(
        self,
        upkeep: Upkeep,
        texts: OffloadedTexts,
        background: Background,
        recall: Recall,
        on_event: EventHook | None,
    ) -> None:
        self._upkeep = upkeep
        self._texts = texts
        self._background = background
        self._recall = recall
        self._on_event = on_event

    @asynccontextmanager
    async def telling(self) -> AsyncIterator[list[CompressionEvent]]:
        """Collect the events of a call, and `finish` with them however it ends. Held outside every lock."""
        events = list[CompressionEvent]()
        try:
            yield events
        finally:
            await self.finish(events)

    @asynccontextmanager
    async def in_step(self) -> AsyncIterator[list[CompressionEvent]]:
        """Hold the upkeep's lock, the view brought to the end of the history; tell of events afterwards."""
        async with self.telling() as events, self._upkeep.lock:
            await self._upkeep.refresh(events)
            yield events

    async def refresh(self) -> None:
        """Bring the view to the end of the history, and tell of what that led to."""
        async with self.in_step():
            pass

    async def finish(self, events: Sequence[CompressionEvent]) -> None:
        """Tidy up after whatever a call changed, and deliver the events that it led to."""
        try:
            await self.tidy_up()
        finally:  # cancelled while a store removes something, say: what happened has happened
            await self._deliver(events)

    async def tidy_up(self) -> None:
        """Cancel a preparation that holds no more; remove what nothing names, unless an event does it."""
        self._background.drop_outdated(self._upkeep.state)
        await self._settle()
        await self._drop_gone()
        if self._upkeep.state.ledger.unwanted and not self.event_lock.locked():
            async with self.event_lock:
                await self.sweep()

    async def _drop_gone(self) -> None:
        """Drop from the search index the messages that left the history."""
        upkeep = self._upkeep
        if upkeep.gone is None and upkeep.stale:  # the history is still to be read
            return
        gone, upkeep.gone = upkeep.gone, set()
        try:
            if gone is None:
                await self._recall.keep(list(upkeep.state.known.tokens))
            else:
                await self._recall.forget(gone)
        except BaseException:  # cancelled, the next call drops whatever is not in the history
            upkeep.gone = None
            raise

    async def sweep(self) -> None:
        """Remove from the store what nothing names any more. Holds: event lock."""
        await self._settle()
        ledger = self._upkeep.state.ledger
        self._background.note_removal([ref for ref in ledger.unwanted if not ledger.is_live(ref)])
        await self._texts.sweep(ledger)

    async def _settle(self) -> None:
        self.note_unwanted(await self._background.settle())

    def note_unwanted(self, refs: Collection[str]) -> None:
        """Note that texts which were stored, or may yet be, are to be removed unless an edit names them."""
        ledger = self._upkeep.state.ledger
        ledger.unwanted |= {ref for ref in refs if not ledger.is_live(ref)}

    async def remove_orphans(self) -> list[str]:
        """Remove the stored texts that neither the ledger nor an event under way names; return their refs.

        Whatever an event stores is named by the ledger when it ends, or removed by it. Only a process that
        ended in the middle leaves texts that nobody names. A memory whose ledger names nothing may be one
        that was not loaded yet, and removes nothing.

        Raises:
            OffloadError: the store could not be listed. What could not be removed is tried again at later
                events.
        """
        async with self.telling(), self.event_lock:
            ledger = self._upkeep.state.ledger
            if not ledger.refs():
                return []
            stored = await self._texts.stored_refs()
            # No event writes while its lock is held. One that is prepared in the background says what it
            # writes before it does; from here to `telling`'s end, which removes what is unwanted, nothing is
            # awaited but that lock, and what an event commits in between is wanted again.
            prepared = self._background.refs()
            orphans = [ref for ref in stored if not ledger.is_live(ref) and ref not in prepared]
            if orphans:
                logger.info("%d stored texts that nothing names are removed", len(orphans))
            ledger.unwanted.update(orphans)
        return orphans

    async def _deliver(self, events: Sequence[CompressionEvent]) -> None:
        """Hand events to the hook; its errors are logged and contained."""
        self._background.totals.events += len(events)
        if self._on_event is None:
            return
        for event in events:
            try:
                answer = self._on_event(event)
                if inspect.isawaitable(answer):
                    await answer
            except (Exception, asyncio.CancelledError) as error:
                if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                    raise
                logger.exception("on_event failed for an event of kind %s", event.kind)


def _is_cancelled() -> bool:
    """Tell whether somebody cancelled the running task, and not only what the hook waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
