"""Changes that a user makes: adding, deleting, marking, clearing, the base memory's own summary."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any

from context_compressor.events import CompressionEvent
from context_compressor.memory.base import MemoryBase
from context_compressor.memory.searching import Recall
from context_compressor.memory.texts import Housekeeping
from context_compressor.memory.tracking import Upkeep
from context_compressor.messages.msg import Msg
from context_compressor.tokens.counter import TokenCounter
from context_compressor.tokens.off_loop import measure_all_off_loop


class Changes:
    """Change base memory and view together; each but adding is reported as an `edit`.

    Args:
        base: the wrapped memory.
        upkeep: keeps the view in step with it.
        housekeeping: delivers events, and removes from the store what nothing names any more.
        recall: forgets everything when all is cleared.
        counter: measures what is added.
    """

    def __init__(
        self,
        base: MemoryBase,
        upkeep: Upkeep,
        housekeeping: Housekeeping,
        recall: Recall,
        counter: TokenCounter,
    ) -> None:
        self._base = base
        self._upkeep = upkeep
        self._housekeeping = housekeeping
        self._recall = recall
        self._counter = counter

    async def add(self, messages: list[Msg], marks: list[str], **kwargs: Any) -> None:
        """Add messages to the history; one whose id is known gets the marks, unless duplicates are allowed.

        Args:
            messages: copies that nobody else holds; they are kept.
            marks: for each of them.
            kwargs: handed to the base memory.
        """
        upkeep = self._upkeep
        again = bool(kwargs.get("allow_duplicates"))
        unknown = [msg for msg in messages if again or msg.id not in upkeep.state.known]
        counts = await measure_all_off_loop(self._counter, unknown)
        counted = {id(msg): tokens for msg, tokens in zip(unknown, counts, strict=True)}
        events: list[CompressionEvent] = []
        async with upkeep.lock:
            if upkeep.stale or await upkeep.history.has_changed(len(upkeep.state.known)):
                await upkeep.refresh(events)
            async with upkeep.changing() as state:
                await self._base.add_owned(messages, marks, **kwargs)
                marked_again = False
                for msg in messages:
                    known = msg.id in state.known
                    marked_again = marked_again or (known and bool(marks))
                    if again or not known:
                        state.enqueue(msg, counted.get(id(msg)) or state.measure(msg))
                    for mark in marks:
                        # A mark that nobody looked at is read from the base when somebody does.
                        if mark in state.known.marks:
                            state.known.marks[mark].add(msg.id)
                if upkeep.remember(state) and marked_again:
                    await upkeep.marks_changed(marks, events)
        if events:
            await self._housekeeping.finish(events)

    async def delete(self, ids: list[str], **kwargs: Any) -> int:
        """Remove messages from history, view and store; a segment's id stands for all that it covers."""
        async with self._housekeeping.in_step() as events:
            expanded = self._upkeep.state.expand(ids)
            async with self._forgetting(expanded, events):
                return await self._base.delete(expanded, **kwargs)

    async def delete_by_mark(self, marks: list[str], *args: Any, **kwargs: Any) -> int:
        """Remove the messages that bear any of the marks."""
        async with self._housekeeping.in_step() as events:
            ids = [id for mark in marks for id in await self._upkeep.history.ids_bearing(mark)]
            async with self._forgetting(ids, events):
                return await self._base.delete_by_mark(marks, *args, **kwargs)

    @asynccontextmanager
    async def _forgetting(self, ids: Collection[str], events: list[CompressionEvent]) -> AsyncIterator[None]:
        """Take messages out of view and ledger once they are removed from the base memory, within."""
        upkeep = self._upkeep
        keys = upkeep.state.known.keys_of(ids)
        async with upkeep.changing() as state:
            yield
            if upkeep.remember(state) and keys:
                await upkeep.forget(keys, events)

    async def clear(self) -> None:
        """Remove everything."""
        upkeep = self._upkeep
        async with self._housekeeping.telling() as events, upkeep.lock:
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
        async with self._housekeeping.in_step() as events:
            ids = None if msg_ids is None else upkeep.state.expand(msg_ids)
            async with upkeep.changing() as state:
                count = await self._base.update_messages_mark(new_mark, old_mark=old_mark, msg_ids=ids)
                if upkeep.remember(state):
                    changed = [mark for mark in (new_mark, old_mark) if mark is not None]
                    await upkeep.marks_changed(changed, events)
        return count

    async def summarize(self, summary: str) -> None:
        """Set the base memory's own summary."""
        upkeep = self._upkeep
        async with self._housekeeping.in_step() as events:
            before = upkeep.state.tokens
            async with upkeep.changing() as state:
                await self._base.update_compressed_summary(summary)
                if upkeep.remember(state):
                    state.set_summary(summary)
                    upkeep.note_edit(events, "summary set", before, ())
