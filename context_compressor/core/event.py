"""Performing a plan: store what will leave, summarise, check. The only part of compression with I/O.

An event changes neither view nor ledger; it gives the edits to commit, so that a cancelled or outdated event
leaves everything as it was.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from context_compressor.core.edits import Edit, ItemKey, SegmentEdit, StubEdit, Told
from context_compressor.core.engine import Done, Engine, SummaryUse, Writer
from context_compressor.core.items import ViewItem
from context_compressor.core.labels import bounded_note, notes_section
from context_compressor.core.ledger import Ledger
from context_compressor.core.plans import Plan, PlannedSegment, PlannedStub
from context_compressor.core.segments import SegmentMaker
from context_compressor.core.shown import redacted_text
from context_compressor.core.stubs import StubMaker
from context_compressor.events import NoteFate
from context_compressor.messages.msg import tool_names
from context_compressor.messages.text import sendable
from context_compressor.summarizers.attempts import attempt_budget
from context_compressor.tokens.off_loop import gather

MAX_ATTEMPTS_PER_EVENT = 48
"""Calls of a model that one event may make, retries and the parts of large groups included."""
_CONCURRENT_CALLS = 8
"""Writes of one event that run at the same time."""


class Event:
    """One event: what a plan lets go is stored and summarised.

    Args:
        engine: what it works with.
        plan: what is to leave.
        items: the view that it was made for.
        ledger: the edits so far.
        note: what the agent still needs: stands word for word in the newest segment, and goes to the
            summariser.
        names_tools: whether the agent has the read-back tools: then stand-ins tell of them.
        fresh: keys of the items that no view has shown yet.
        free_tokens: what fits into the model's window behind the last request; None: not known.
        system: what the request carries beside the messages.
        places: where each message stands in the history, by its id.

    Attributes:
        plan: as given.
        seconds: wall-clock seconds that `perform` took.
    """

    def __init__(
        self,
        engine: Engine,
        plan: Plan,
        items: Sequence[ViewItem],
        ledger: Ledger,
        *,
        note: str | None = None,
        names_tools: bool = True,
        fresh: Collection[ItemKey] = frozenset(),
        free_tokens: int | None = None,
        system: str = "",
        places: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self.plan = plan
        self.seconds = 0.0
        self._engine = engine
        self._items = items
        self._ledger = ledger
        self._note = note
        self._fresh, self._free_tokens, self._system = fresh, free_tokens, system
        self._places = places
        self._writer = Writer(engine)
        self._by_key = {item.key: item for item in items}
        leaving = plan.leaving.union(self._by_key[planned.item].exchange for planned in plan.stubs)
        names = tool_names(item.source for item in items if item.exchange in leaving)
        self._stubs = StubMaker(engine, self._writer, names, names_tools=names_tools)

    @property
    def attempted(self) -> Collection[str]:
        """Refs that the store was asked to take so far: what is never committed can be removed from it."""
        return self._writer.writes.keys()

    @property
    def use(self) -> SummaryUse:
        """What models were paid for so far."""
        return self._writer.use

    async def perform(self) -> Done:
        """Store and summarise what the plan lets go; return what is to be committed.

        However it ends, `attempted`, `use` and `seconds` are right then.

        Raises:
            RedactionError: the user's callable failed.
            OffloadError, SummarizerError: a store or summariser failed and `on_failure` is "raise".
        """
        writer, began = self._writer, time.monotonic()
        with attempt_budget(MAX_ATTEMPTS_PER_EVENT) as attempts:
            try:
                segments, note = await self._perform()
            finally:
                self.seconds = time.monotonic() - began
                writer.settle(attempts)
        made = {(stub.item, stub.path) for stub in self._stubs.made}
        blocked = {(stub.item, stub.path) for stub in self.plan.stubs}.difference(made)
        edits: list[Edit] = [*self._stubs.made, *segments]
        return Done(edits, writer.writes, writer.failures, writer.use, blocked, note)

    async def _perform(self) -> tuple[list[SegmentEdit], NoteFate | None]:
        """Make stubs, which `StubMaker` keeps, then segments; return these, and what became of the note."""
        engine, plan = self._engine, self.plan
        limit = asyncio.Semaphore(_CONCURRENT_CALLS)
        note = bounded = None
        if self._note:
            note = sendable(" ".join(redacted_text(self._note, engine.config.redact).split()))
            bounded = bounded_note(note, engine.counter)

        async def stub(planned: PlannedStub) -> StubEdit | None:
            async with limit:
                return await self._stubs.make(planned, self._by_key[planned.item])

        stubs = await gather([stub(planned) for planned in plan.stubs])
        self._stubs.made = [edit for edit in stubs if edit is not None]
        carrier, guide = await self._stubs.place_guide(plan, self._items)
        maker = SegmentMaker(
            engine,
            self._writer,
            self._stubs,
            plan,
            self._items,
            bounded,
            fresh=self._fresh,
            free_tokens=self._free_tokens,
            system=self._system,
            places=self._places,
        )
        noted = max(plan.segments, key=_age, default=None)

        fate: NoteFate | None = "dropped" if self._note else None
        segments: list[SegmentEdit] = []
        taken: set[str] = set()
        for planned in plan.segments:  # never two requests at once
            edit = await maker.make(
                planned, noted=planned is noted, guide=guide if planned is carrier else ""
            )
            segment_id = self._ledger.new_segment_id(edit.ref, taken)
            taken.add(segment_id)
            segments.append(replace(edit, id=segment_id, told=self._told_first(edit)))
            # It may also be kept for when the segment is merged, and not shown.
            if bounded and planned is noted and edit.notes and edit.text.endswith(notes_section(edit.notes)):
                fate = "kept" if edit.notes[-1] == note else "cut"
        return segments, fate

    def _told_first(self, segment: SegmentEdit) -> tuple[Told, ...]:
        """Return of what a segment was told and does not cover, without what parts before it were told.

        These are withdrawn with all parts after them.
        """
        known: set[Told] = set()
        todo = list(segment.children)
        while todo:
            part = self._ledger.segment(todo.pop())
            if part is not None:
                known.update(part.told)
                todo += part.children

        def covers(item: ItemKey) -> bool:
            top = self._ledger.top_segment_of(item)
            return item in segment.items or (top is not None and top.id in segment.children)

        return tuple(told for told in segment.told if told not in known and not covers(told[0]))


def _age(segment: PlannedSegment) -> tuple[bool, bool, int]:
    """Return what puts segments of conversation behind mere merges, and the newest of them last."""
    last = segment.units[-1]
    return not last.segment, not last.volatile, last.position
