"""What follows upon every call: events are delivered, and what nothing needs any more is removed."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from context_compressor.events import CompressionEvent, EventHook
from context_compressor.memory.ahead import ENDING_SECONDS, Background
from context_compressor.memory.handover import HandingOver
from context_compressor.memory.leases import EventLease
from context_compressor.memory.loops import LoopLock
from context_compressor.memory.places import Recall
from context_compressor.memory.reporting import Totals
from context_compressor.memory.texts import Texts
from context_compressor.memory.tracking import Tracker

logger = logging.getLogger(__name__)

CLOSING_SECONDS = 30.0
"""How long a memory that is closed waits for a summary that is being written."""


class Housekeeper:
    """Tell of events, and tidy up behind every call.

    Args:
        tracker: keeps the view in step with the history.
        texts: those that left the view.
        recall: drops from its index what is no longer in the history.
        background: what is prepared ahead, and what events came to.
        lease: who has it may make events, and remove texts.
        on_event: receives every event.

    Attributes:
        event_lock: one event at a time: a second caller over budget waits for the first one's view and pays
            for none. Taken before the tracker's lock where both are.
        background: as given.
        handing_over: hands over what left the view, where somebody takes it.
    """

    event_lock = LoopLock()

    def __init__(
        self,
        tracker: Tracker,
        texts: Texts,
        recall: Recall,
        background: Background,
        lease: EventLease,
        on_event: EventHook | None,
    ) -> None:
        self._tracker = tracker
        self._texts = texts
        self._recall = recall
        self.background = background
        self._lease = lease
        self._on_event = on_event
        self.handing_over: HandingOver | None = None
        self._following = set[asyncio.Task[None]]()

    @property
    def totals(self) -> Totals:
        """What events came to, those that are prepared ahead included."""
        totals = self.background.totals
        totals.taken_over += self._lease.taken_over
        self._lease.taken_over = 0
        return totals

    async def _give_back(self) -> None:
        """Give the lease back, unless something that needs it goes on. Holds: event lock."""
        if not self.background.is_preparing:
            await self._lease.give_back()

    async def _may_remove(self) -> bool:
        try:
            return await self._lease.take()
        except Exception as error:
            logger.warning("nothing is removed from the store now: %r", error)
            return False

    # What follows upon a call

    @asynccontextmanager
    async def telling(self) -> AsyncIterator[list[CompressionEvent]]:
        """Collect the events of a call, and `finish` with them however it ends. Held outside every lock."""
        events = list[CompressionEvent]()
        try:
            yield events
        finally:
            await self.finish(events)

    @asynccontextmanager
    async def changing(self) -> AsyncIterator[list[CompressionEvent]]:
        """Hold the tracker's lock; tell of events afterwards."""
        async with self.telling() as events, self._tracker.lock:
            yield events

    async def refresh(self) -> None:
        """Bring the view to the end of the history, and tell of what that led to."""
        async with self.changing() as events:
            await self._tracker.catch_up(events)

    async def finish(self, events: Sequence[CompressionEvent]) -> None:
        """Tidy up after whatever a call changed, and deliver the events that it led to."""
        try:
            await self.tidy_up()
        finally:  # cancelled while a store removes something, say: what happened has happened
            await self._deliver(events)
            if self.handing_over is not None:
                self.handing_over.wake()

    async def tidy_up(self) -> None:
        """Cancel a preparation that holds no more; remove what nothing names, unless an event does it."""
        self._tracker.branches.expire()
        self.background.drop_outdated(self._tracker.state)
        await self._give_up_dropped()
        await self._drop_gone()
        if self._tracker.state.ledger.unwanted and not self.event_lock.locked():
            async with self.event_lock:
                try:
                    await self._sweep()
                finally:
                    await self._give_back()

    async def _drop_gone(self) -> None:
        """Drop from the search index the messages that left the history."""
        tracker = self._tracker
        if tracker.gone is None and tracker.is_behind:  # the history is still to be read
            return
        gone, tracker.gone = tracker.gone, set()
        try:
            if gone is None:
                await self._recall.index.keep(list(tracker.state.known.tokens))
            else:
                await self._recall.index.forget(gone)
        except BaseException:  # cancelled, the next call drops whatever is not in the history
            tracker.gone = None
            raise

    async def _sweep(self) -> None:
        """Remove from the store what nothing names any more. Holds: event lock.

        Not while somebody else makes an event, who may have stored the same just now.
        """
        await self._give_up_dropped()
        ledger = self._tracker.state.ledger
        if ledger.unwanted and not await self._may_remove():
            return
        held = self._tracker.branches.holds
        gone = [ref for ref in ledger.unwanted if not (ledger.is_live(ref) or held(ref))]
        self.background.note_removal(gone)
        await self._texts.sweep()

    async def _give_up_dropped(self) -> None:
        self._texts.note_unwanted(await self.background.settle())

    async def remove_orphans(self) -> list[str]:
        """Remove the stored texts that neither the ledger nor an event under way names; return their refs.

        Whatever an event stores is named by the ledger when it ends, or removed by it. Only a process that
        ended in the middle leaves texts that nobody names. A memory whose ledger names nothing may be one
        that was not loaded yet, and removes nothing.

        Raises:
            OffloadError: the store could not be listed. What could not be removed is tried again at later
                events.
        """
        async with self.telling() as events, self.event_lock:
            async with self._tracker.lock:  # others may have named what this one knows nothing of
                await self._tracker.catch_up(events)
            if not self._tracker.state.ledger.refs():
                return []
            stored = await self._texts.stored_refs()
            ledger = self._tracker.state.ledger
            # No event writes while its lock is held. One that is prepared in the background says what it
            # writes before it does; from here to `telling`'s end, which removes what is unwanted, nothing is
            # awaited but that lock, and what an event commits in between is wanted again.
            prepared = self.background.refs() | self._tracker.branches.refs()
            orphans = [ref for ref in stored if not ledger.is_live(ref) and ref not in prepared]
            if orphans:
                logger.info("%d stored texts that nothing names are removed", len(orphans))
            ledger.unwanted.update(orphans)
        return orphans

    async def _deliver(self, events: Sequence[CompressionEvent]) -> None:
        """Hand events to the hook; its errors are logged and contained."""
        self.background.totals.events += len(events)
        if self._on_event is None:
            return
        key = getattr(self._tracker.history, "session_id", None)
        for event in events if key is None else [replace(event, key=key) for event in events]:
            try:
                answer = self._on_event(event)
                if inspect.isawaitable(answer):
                    await answer
            except (Exception, asyncio.CancelledError) as error:
                if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                    raise
                logger.exception("on_event failed for an event of kind %s", event.kind)

    # Life

    def start_counting(self, on_event: EventHook | None) -> None:
        """Count what events come to from now on, and tell another hook of them."""
        self.background.totals = Totals()
        self._on_event = on_event

    def start_anew(self) -> None:
        """Cancel what was prepared: another state is taken."""
        self.background.drop()
        self.background.start_anew()
        if self.handing_over is not None:
            self.handing_over.start_anew()

    def take_over(self, other: Housekeeper) -> None:
        """Count on where another one ends, and cancel what it prepared; its `aclose` tidies up behind it."""
        self.background.totals = other.totals
        other.background.drop()

    async def aclose(self, *, waits: bool = True) -> None:
        """End what goes on in the background, and remove what it stored.

        Args:
            waits: whether a summary that a model is writing is waited for, where the history outlives this
                memory: whoever opens it next would pay for it again.
        """
        try:
            if waits:
                await self._end_following(CLOSING_SECONDS)
        finally:  # though it be cancelled: nothing is to be written once the base is closed
            self.background.drop()
        if self.handing_over is not None:
            await self.handing_over.aclose()
        self._tracker.branches.drop()  # no list can go back to them
        await self.tidy_up()
        await self._end_following(ENDING_SECONDS)
        if not self.event_lock.locked():  # else who holds it gives the lease back
            await self._give_back()

    async def _end_following(self, seconds: float) -> None:
        """Wait until what is prepared is committed or dropped, for so long at most."""
        loop = asyncio.get_running_loop()
        # A hook may close the memory while it is told of what was prepared.
        ending = {task for task in self._following if task.get_loop() is loop} - {asyncio.current_task()}
        if ending:
            await asyncio.wait(ending, timeout=seconds)


def _is_cancelled() -> bool:
    """Tell whether somebody cancelled the running task, and not only what the hook waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
