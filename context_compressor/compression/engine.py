"""Performing a plan: store what will leave, summarise, check. The only part of compression with I/O.

The engine changes neither view nor ledger; it gives the edits to commit, so that a cancelled or outdated
event leaves everything as it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from context_compressor.compression.config import CompressionConfig
from context_compressor.compression.done import Performed, Writer
from context_compressor.compression.edits import ItemKey, StubEdit
from context_compressor.compression.items import READ_TOKENS, ViewItem, segment_tokens
from context_compressor.compression.labels import bounded_note, segment_text, summary_of
from context_compressor.compression.plans import Costs, Plan, PlannedSegment, PlannedStub
from context_compressor.compression.segments import (
    Around,
    MadeSegment,
    SegmentMaker,
    staying_message,
    summary_message,
)
from context_compressor.compression.shown import redacted_text, shown_message
from context_compressor.compression.stubs import StubMaker, place_guide
from context_compressor.compression.units import Unit
from context_compressor.messages.msg import Msg, tool_names
from context_compressor.messages.parts import PartPath
from context_compressor.messages.text import sendable
from context_compressor.offload.store import OffloadStore
from context_compressor.offload.stubs import media_stub, minimal_stub
from context_compressor.summarizers.cutting import cut_middle
from context_compressor.summarizers.protocol import Summarizer
from context_compressor.tokens.counter import TokenCounter
from context_compressor.tokens.off_loop import gather

_CONCURRENT_CALLS = 8
"""Summaries and writes of one event that run at the same time."""
CONTEXT_SHARE = 1 / 10
"""Share of the budget that a summariser reads of segments that stay: what is said there need not be repeated,
but to read it costs as much as what leaves."""
_SAMPLE_REF = "ctx://1a2b3c4d5e6f7a8b"
"""Letters and digits in turn: no vocabulary joins them, so that no other ref costs more."""
_SAMPLE_MEDIA = "data:application/octet-stream;base64,"


class Engine:
    """Perform plans against a store and a summariser.

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
        self._config = config
        self._counter = counter
        self._writer = Writer(config, store)
        self._stubs = StubMaker(self._writer, counter, config.redact, read_ref)
        self._segments = SegmentMaker(config, self._writer, self._stubs, summarizer, fallback, counter)
        self._costs: Costs | None = None

    def costs(self) -> Costs:
        """Return what the bare stand-ins cost by the counter, measured at first use."""
        if self._costs is None:
            # A count of messages as large as it may become, so that no real stand-in costs more.
            self._costs = Costs(
                stub=self._counter.count_text(minimal_stub(_SAMPLE_REF)),
                media=self._counter.count_text(media_stub(_SAMPLE_MEDIA, _SAMPLE_REF, "image")) + 20,
                segment=segment_tokens(segment_text(_SAMPLE_REF, 9_999_999, "x"), self._counter),
            )
        return self._costs

    async def perform(
        self,
        plan: Plan,
        items: Sequence[ViewItem],
        new_segment_id: Callable[[str, set[str]], str],
        done: Performed,
        *,
        note: str | None = None,
    ) -> None:
        """Store and summarise what the plan lets go; fill `done` with the edits to commit.

        `note`, on what the agent still needs, stands word for word in the newest segment and goes to the
        summariser.

        `done.attempted` is right even when the call is cancelled: what stands there and is never committed
        can be removed from the store.

        Raises:
            RedactionError: the user's callable failed.
            OffloadError, SummarizerError: a store or summariser failed and `on_failure` is "raise".
        """
        by_key = {item.key: item for item in items}
        leaving = {unit.key for planned in plan.segments for unit in planned.units}
        leaving.update(by_key[planned.item].exchange for planned in plan.stubs)
        names = tool_names(item.source for item in items if item.exchange in leaving)
        limit = asyncio.Semaphore(_CONCURRENT_CALLS)

        async def stub(planned: PlannedStub) -> StubEdit | None:
            async with limit:
                item = by_key[planned.item]
                return await self._stubs.make(planned, item, names, done)

        bounded = None
        if note:
            note = sendable(" ".join(redacted_text(note, self._config.redact).split()))
            bounded, done.note = bounded_note(note, self._counter), "dropped"
        noted = max(plan.segments, key=_age, default=None)
        stubs = await gather([stub(planned) for planned in plan.stubs])
        done.stubs = [edit for edit in stubs if edit is not None]
        carrier, form = await place_guide(plan, items, self._stubs, self._counter, done)
        new_stubs: dict[ItemKey, dict[PartPath, str]] = {}
        for edit in done.stubs:
            new_stubs.setdefault(edit.item, {})[edit.path] = edit.text
        said = [self._said(unit) for unit in plan.requests] if plan.needs_summary else []
        gone = {unit.key for planned in plan.segments for unit in planned.units}
        segments = [item for item in items if item.kind == "segment"]
        here = [item for item in items if item.kind == "message" and item.exchange not in gone]
        repeated = frozenset(line for item in here for line in item.standing)
        spoken = [item.source.get_text_content() or "" for item in here if item.source.role == "user"]

        async def segment(planned: PlannedSegment) -> MadeSegment:
            # Those that merge at the same time, too: what they say stays in the view.
            own = {unit.key for unit in planned.units}
            context, context_tokens = self._context([item for item in segments if item.exchange not in own])
            start = min(unit.position for unit in planned.units)
            before = [(unit.position, msg) for unit, msg in zip(plan.requests, said, strict=False)]
            context += [msg for place, msg in before if place < start]
            end = planned.units[-1].position
            around = Around(
                new_stubs=new_stubs,
                names=names,
                bare_tokens=self.costs().segment,
                spare_tokens=plan.spare_tokens // len(plan.segments),
                context=tuple(context),
                between=tuple((place, staying_message(msg)) for place, msg in before if start < place < end),
                context_tokens=context_tokens,
                request=said[-1].get_text_content() if said else None,
                said=repeated,
                spoken="\n".join(spoken),
                note=bounded,
            )
            async with limit:
                guide = form if planned is carrier else ""
                return await self._segments.make(planned, around, done, noted=planned is noted, guide=guide)

        taken: set[str] = set()
        for made in await gather([segment(planned) for planned in plan.segments]):
            segment_id = new_segment_id(made.edit.ref, taken)
            taken.add(segment_id)
            done.segments.append(replace(made.edit, id=segment_id))
            if made.note is not None:
                done.note = "kept" if made.note == note else "cut"

    def _said(self, unit: Unit) -> Msg:
        """Return what a user said that stays, as a summariser reads it: head and tail, where it is long."""
        item = unit.items[0]
        msg = shown_message(item.source, {}, {}, self._config.redact)
        text = msg.get_text_content() or ""
        most = READ_TOKENS * len(text) // max(1, item.source_tokens.total)
        return Msg(msg.name, cut_middle(text, most), "user", timestamp="", id="")

    def _context(self, segments: Sequence[ViewItem]) -> tuple[list[Msg], int]:
        """Return what segments say that stay, the newest whole before older ones, and about what it costs."""
        left = room = int(CONTEXT_SHARE * self._config.budget)
        context: list[Msg] = []
        for item in reversed(segments):
            summary = summary_of(str(item.source.content), item.standing, item.notes)
            if summary is None or left <= 0:
                continue
            if item.read_tokens > left:
                summary = cut_middle(summary, left * len(summary) // item.read_tokens)
            context.append(summary_message(summary))
            left -= item.read_tokens
        return context[::-1], room - max(0, left)


def _age(segment: PlannedSegment) -> tuple[bool, bool, int]:
    """Return what puts segments of conversation behind mere merges, and the newest of them last."""
    last = segment.units[-1]
    return not last.segment, not last.volatile, last.position
