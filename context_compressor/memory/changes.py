"""Changes that a user makes to what is there: deleting, marking, clearing, the base memory's own summary."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

from context_compressor.memory.base import MemoryBase
from context_compressor.memory.housekeeping import Housekeeping
from context_compressor.memory.recalling import Recall
from context_compressor.memory.upkeep import Upkeep


class Changes:
    """Change base memory and view together; each is reported as an `edit`.

    Args:
        base: the wrapped memory.
        upkeep: keeps the view in step with it.
        house: delivers events, and removes from the store what nothing names any more.
        recall: forgets everything when all is cleared.
    """

    def __init__(self, base: MemoryBase, upkeep: Upkeep, house: Housekeeping, recall: Recall) -> None:
        self._base = base
        self._upkeep = upkeep
        self._house = house
        self._recall = recall

    async def remove(
        self,
        find: Callable[[], Awaitable[Collection[str]]],
        remove: Callable[[list[str]], Awaitable[int]],
    ) -> int:
        """Remove messages from history, view and store.

        Args:
            find: returns their ids; a segment's id stands for all the ids that it covers.
            remove: takes the ids of messages from the base memory, and returns how many it removed.
        """
        upkeep = self._upkeep
        async with self._house.telling() as events, upkeep.lock:
            await upkeep.refresh(events)
            expanded = upkeep.state.expand(await find())
            keys = upkeep.state.index.keys_of(expanded)
            state = upkeep.state
            upkeep.stale = True  # until both base and state have forgotten them
            count = await remove(expanded)
            if state is upkeep.state:  # nobody loaded another one meanwhile
                upkeep.history.remember()
                if keys:
                    await upkeep.forget(keys, events)
                size = await self._base.size()
                upkeep.stale = state is not upkeep.state or size != len(state.index)
        return count

    async def clear(self) -> None:
        """Remove everything."""
        upkeep = self._upkeep
        async with self._house.telling() as events, upkeep.lock:
            before = upkeep.state.tokens
            upkeep.stale = True
            await self._base.clear()
            upkeep.start_empty()
            if before:
                upkeep.note_edit(events, "cleared", before, ())
            await self._recall.clear()

    async def mark(self, new_mark: str | None, old_mark: str | None, msg_ids: list[str] | None) -> int:
        """Change marks as the base memory does; what becomes pinned returns to the view."""
        upkeep = self._upkeep
        async with self._house.telling() as events, upkeep.lock:
            await upkeep.refresh(events)
            ids = None if msg_ids is None else upkeep.state.expand(msg_ids)
            state = upkeep.state
            upkeep.stale = True
            count = await self._base.update_messages_mark(new_mark, old_mark=old_mark, msg_ids=ids)
            if state is upkeep.state:
                upkeep.history.remember()
                await upkeep.marks_changed([mark for mark in (new_mark, old_mark) if mark], events)
                upkeep.stale = state is not upkeep.state
        return count

    async def summarize(self, summary: str) -> None:
        """Set the base memory's own summary."""
        upkeep = self._upkeep
        async with self._house.telling() as events, upkeep.lock:
            await upkeep.refresh(events)
            state, before = upkeep.state, upkeep.state.tokens
            upkeep.stale = True
            await self._base.update_compressed_summary(summary)
            if state is upkeep.state:
                upkeep.history.remember()
                state.set_summary(summary)
                upkeep.stale = False
                upkeep.note_edit(events, "summary set", before, ())
