"""Performing a plan: store what will leave, summarise, check. The only part of compression with I/O.

An event changes neither view nor ledger; it gives the edits to commit, so that a cancelled or outdated event
leaves everything as it was.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace

from context_compressor.compression.config import CompressionConfig
from context_compressor.compression.done import Done, SummaryUse, Writer
from context_compressor.compression.edits import Edit, SegmentEdit, StubEdit
from context_compressor.compression.items import ViewItem, segment_tokens
from context_compressor.compression.labels import bounded_note, notes_section, segment_text
from context_compressor.compression.plans import Costs, Plan, PlannedSegment, PlannedStub
from context_compressor.compression.segments import SegmentMaker
from context_compressor.compression.shown import redacted_text
from context_compressor.compression.stubs import StubMaker
from context_compressor.events import NoteFate
from context_compressor.messages.msg import tool_names
from context_compressor.messages.text import sendable
from context_compressor.offload.store import OffloadStore
from context_compressor.offload.stubs import media_stub, minimal_stub
from context_compressor.summarizers.attempts import attempt_budget
from context_compressor.summarizers.parts import InParts
from context_compressor.summarizers.protocol import Summarizer
from context_compressor.tokens.counter import TokenCounter
from context_compressor.tokens.off_loop import gather

MAX_ATTEMPTS_PER_EVENT = 48
"""Calls of a model that one event may make, retries and the parts of large groups included."""
_CONCURRENT_CALLS = 8
"""Summaries and writes of one event that run at the same time."""
_SAMPLE_REF = "ctx://1a2b3c4d5e6f7a8b"
"""Letters and digits in turn: no vocabulary joins them, so that no other ref costs more."""
_SAMPLE_MEDIA = "data:application/octet-stream;base64,"


class Engine:
    """Make events that perform plans against a store and a summariser.

    Args:
        config: thresholds, redaction, timeouts in seconds, what failures lead to.
        store: where texts go.
        summarizer: who writes summaries.
        fallback: who writes them when that fails; it should not be able to.
        counter: measures stand-ins.
        read_ref: reads a text that the memory's ledger names, to check pages against their source.
    """

    def __init__(
        self,
        *,
        config: CompressionConfig,
        store: OffloadStore,
        summarizer: Summarizer,
        fallback: Summarizer,
        counter: TokenCounter,
        read_ref: Callable[[str], Awaitable[str]],
    ) -> None:
        self.config = config
        self.store = store
        self.summarizers = (InParts(summarizer, counter), fallback)
        self.counter = counter
        self.read_ref = read_ref
        self._costs: Costs | None = None

    def costs(self) -> Costs:
        """Return what the bare stand-ins cost by the counter, measured at first use.

        Those that name no tool cost less.
        """
        if self._costs is None:
            # A count of messages as large as it may become, so that no real stand-in costs more.
            self._costs = Costs(
                stub=self.counter.count_text(minimal_stub(_SAMPLE_REF)),
                media=self.counter.count_text(media_stub(_SAMPLE_MEDIA, _SAMPLE_REF, "image")) + 20,
                segment=segment_tokens(segment_text(_SAMPLE_REF, 9_999_999, "x"), self.counter),
            )
        return self._costs

    def event(
        self,
        plan: Plan,
        items: Sequence[ViewItem],
        new_segment_id: Callable[[str, set[str]], str],
        *,
        note: str | None = None,
        names_tools: bool = True,
    ) -> Event:
        """Return the event that performs a plan.

        Args:
            plan: what is to leave.
            items: the view that it was made for.
            new_segment_id: gives an id for a segment with this ref, not among those taken.
            note: what the agent still needs: stands word for word in the newest segment, and goes to the
                summariser.
            names_tools: whether the agent has the read-back tools: then stand-ins tell of them.
        """
        return Event(self, plan, items, new_segment_id, note, names_tools)


class Event:
    """One event: what a plan lets go is stored and summarised.

    Attributes:
        plan: what is to leave.
        seconds: wall-clock seconds that `perform` took.
    """

    def __init__(
        self,
        engine: Engine,
        plan: Plan,
        items: Sequence[ViewItem],
        new_segment_id: Callable[[str, set[str]], str],
        note: str | None,
        names_tools: bool,
    ) -> None:
        self.plan = plan
        self.seconds = 0.0
        self._engine = engine
        self._items = items
        self._new_segment_id = new_segment_id
        self._note = note
        self._writer = Writer(engine.config, engine.store)
        leaving = plan.leaving
        by_key = {item.key: item for item in items}
        leaving.update(by_key[planned.item].exchange for planned in plan.stubs)
        names = tool_names(item.source for item in items if item.exchange in leaving)
        self._by_key = by_key
        self._stubs = StubMaker(
            self._writer,
            engine.counter,
            engine.config.redact,
            engine.read_ref,
            names,
            names_tools=names_tools,
        )

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
            plan,
            self._items,
            bounded,
            config=engine.config,
            writer=self._writer,
            stubs=self._stubs,
            summarizers=engine.summarizers,
            counter=engine.counter,
            bare_tokens=engine.costs().segment,
        )
        noted = max(plan.segments, key=_age, default=None)

        async def segment(planned: PlannedSegment) -> SegmentEdit:
            async with limit:
                said = guide if planned is carrier else ""
                return await maker.make(planned, noted=planned is noted, guide=said)

        fate: NoteFate | None = "dropped" if self._note else None
        segments: list[SegmentEdit] = []
        taken: set[str] = set()
        made = await gather([segment(planned) for planned in plan.segments])
        for planned, edit in zip(plan.segments, made, strict=True):
            segment_id = self._new_segment_id(edit.ref, taken)
            taken.add(segment_id)
            segments.append(replace(edit, id=segment_id))
            # It may also be kept for when the segment is merged, and not shown.
            if bounded and planned is noted and edit.notes and edit.text.endswith(notes_section(edit.notes)):
                fate = "kept" if edit.notes[-1] == note else "cut"
        return segments, fate


def _age(segment: PlannedSegment) -> tuple[bool, bool, int]:
    """Return what puts segments of conversation behind mere merges, and the newest of them last."""
    last = segment.units[-1]
    return not last.segment, not last.volatile, last.position
