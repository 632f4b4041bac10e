"""All that touches the store: texts read back, stored late, removed; and what follows upon a call."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager

from context_compressor.compression.config import CompressionConfig
from context_compressor.compression.ledger import Ledger
from context_compressor.compression.recovery import Recovery
from context_compressor.errors import (
    OffloadCollisionError,
    OffloadCorruptError,
    OffloadError,
    OffloadFullError,
    OffloadNotFoundError,
)
from context_compressor.events import CompressionEvent, EventHook
from context_compressor.memory.ahead import Background
from context_compressor.memory.history import BaseHistory
from context_compressor.memory.searching import Recall
from context_compressor.memory.tracking import LoopLock, Upkeep
from context_compressor.offload.store import OffloadStore, check_ref, list_refs, read_text, write_text

logger = logging.getLogger(__name__)


class OffloadedTexts:
    """Give access to what a ledger names.

    Args:
        config: redaction and the store's time limit in seconds.
        store: where the texts are.
        history: what they can be made from again.
    """

    def __init__(self, config: CompressionConfig, store: OffloadStore, history: BaseHistory) -> None:
        self._config = config
        self._store = store
        self._history = history
        self._lost: set[str] = set()
        """Refs whose text the store once had and was found not to have any more, or was asked to remove and
        did not say that it has: it may do so late, when the text is named again."""

    async def read(self, ref: str, ledger: Ledger) -> str:
        """Return a text that the ledger names; made from the history where the store does not have it.

        Raises:
            OffloadNotFoundError: the ledger does not name the ref, or the text is nowhere any more.
            OffloadError: the store failed, and the history does not give the text either.
        """
        if not ledger.is_live(check_ref(ref)):
            raise OffloadNotFoundError(f"{ref} is not one of this memory's refs")
        failure: OffloadError
        if ref in ledger.pending:
            failure = OffloadNotFoundError(f"{ref} was never stored, and its messages are gone")
        else:
            try:
                return await read_text(self._store, ref, self._config.store_timeout_seconds)
            except OffloadError as error:
                failure = error
        text = (await self._recovery(ledger)).text_of(ref)
        if text is None:
            raise failure
        if isinstance(failure, OffloadNotFoundError | OffloadCorruptError):
            self._lost.add(ref)  # somebody tidied the store; the next event stores it again
        return text

    async def _recovery(self, ledger: Ledger) -> Recovery:
        return Recovery(await self._history.peek(), ledger, self._config.redact)

    async def retry_pending(self, ledger: Ledger) -> None:
        """Try again to store what the store refused, or has lost; it stays so where that fails again.

        What is deleted meanwhile is unwanted by then, and removed behind this. Holds: event lock.
        """
        self._lost = {ref for ref in self._lost if ledger.is_live(ref) or ref in ledger.unwanted}
        missing = ledger.pending.union(ref for ref in self._lost if ledger.is_live(ref))
        if not missing:
            return
        recovery = await self._recovery(ledger)
        refusal: OffloadError | None = None
        for ref in sorted(missing):
            text = recovery.text_of(ref)
            if text is None:
                continue
            try:
                await write_text(self._store, text, ref, self._config.store_timeout_seconds)
            except (OffloadCollisionError, OffloadFullError) as error:  # a smaller text may still fit
                refusal = error
                continue
            except OffloadError as error:
                refusal = error
                break
            ledger.pending.discard(ref)
            self._lost.discard(ref)
        if refusal is not None:  # one line for all: a disk may be full for long, and each event adds a text
            left = missing & (ledger.pending | self._lost)
            logger.warning("texts still not stored: %d, the last for: %s", len(left), refusal)

    async def stored_refs(self) -> list[str]:
        """Return the refs of all that is in the store.

        Raises:
            OffloadError: the store does not say.
        """
        return await list_refs(self._store, self._config.store_timeout_seconds)

    async def sweep(self, ledger: Ledger) -> None:
        """Remove from the store what nothing names any more; it stays unwanted where that fails."""
        refused = 0
        refusal: Exception | None = None
        for ref in sorted(ledger.unwanted):
            if not ledger.is_live(ref):
                self._lost.add(ref)
                try:
                    async with asyncio.timeout(self._config.store_timeout_seconds):
                        await self._store.delete(ref)
                except TimeoutError:
                    logger.warning("%s could not be removed in time, it is tried again", ref)
                    return
                except Exception as error:
                    refused, refusal = refused + 1, error
                    continue
                self._lost.discard(ref)
            ledger.unwanted.discard(ref)
        if refusal is not None:  # one line for all: a disk may be read-only for long
            logger.warning("texts not removed, tried again: %d, the last for: %r", refused, refusal)


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
