"""Performing a plan: store what will leave, summarise, check. The only part of compression with I/O.

The engine changes neither view nor ledger; it gives the edits to commit, so that a cancelled or outdated
event leaves everything as it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import takewhile
from typing import TYPE_CHECKING

from context_compressor.compression.config import CompressionConfig
from context_compressor.compression.edits import ItemKey, StubEdit
from context_compressor.compression.guiding import place_guide
from context_compressor.compression.labels import segment_text
from context_compressor.compression.notes import bounded_note
from context_compressor.compression.performed import Performed
from context_compressor.compression.plans import Costs, Plan, PlannedSegment, PlannedStub
from context_compressor.compression.redaction import redacted_text
from context_compressor.compression.stubbing import StubMaker
from context_compressor.compression.surroundings import Surroundings
from context_compressor.compression.view import ViewItem, segment_tokens
from context_compressor.compression.writing import Writer
from context_compressor.messages.escapes import sendable
from context_compressor.messages.msg import tool_names
from context_compressor.messages.parts import PartPath
from context_compressor.offload.protocol import OffloadStore
from context_compressor.offload.stubs import media_stub, minimal_stub
from context_compressor.summarizers.identifiers.uses import Uses
from context_compressor.summarizers.protocol import Summarizer
from context_compressor.tokens.off_loop import gather, run_off_loop, text_characters
from context_compressor.tokens.protocol import TokenCounter

if TYPE_CHECKING:
    from context_compressor.compression.segmenting import MadeSegment, SegmentMaker

_CONCURRENT_CALLS = 8
"""Summaries and writes of one event that run at the same time."""
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
        read_uses: returns what the agent named in what left the view.
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
        read_uses: Callable[[], Awaitable[Uses]],
    ) -> None:
        self._config = config
        self._read_uses = read_uses
        self._counter = counter
        self._writer = Writer(config, store)
        self._stubs = StubMaker(self._writer, counter, config.redact, read_ref)
        self._summarizer, self._fallback = summarizer, fallback
        self._segments: SegmentMaker | None = None
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

    async def _segment_maker(self) -> SegmentMaker:
        """Return what makes segments.

        The first event of a process imports the rules that it reads messages by, which takes a tenth of a
        second: in a thread. A session that stays within its budget needs none of them.
        """
        if self._segments is None:
            await asyncio.to_thread(import_module, "context_compressor.compression.segmenting")
            from context_compressor.compression.segmenting import SegmentMaker

            self._segments = SegmentMaker(
                self._config, self._writer, self._stubs, self._summarizer, self._fallback, self._counter
            )
        return self._segments

    async def perform(
        self,
        plan: Plan,
        items: Sequence[ViewItem],
        new_segment_id: Callable[[str, set[str]], str],
        done: Performed,
        *,
        note: str | None = None,
        spare_tokens: int = 0,
    ) -> None:
        """Store and summarise what the plan lets go; fill `done` with the edits to commit.

        `note`, on what the agent still needs, stands word for word in the newest segment and goes to the
        summariser. For its sake the view may cost `spare_tokens` more than planned.

        `done.attempted` is right even when the call is cancelled: what stands there and is never committed
        can be removed from the store.

        Raises:
            RedactionError: the user's callable failed.
            OffloadError, SummarizerError: a store or summariser failed and `on_failure` is "raise".
        """
        segments = await self._segment_maker()
        by_key = {item.key: item for item in items}
        leaving = {unit.key for planned in plan.segments for unit in planned.units}
        leaving.update(by_key[planned.item].exchange for planned in plan.stubs)
        names = tool_names(item.source for item in items if item.exchange in leaving)
        limit = asyncio.Semaphore(_CONCURRENT_CALLS)

        async def stub(planned: PlannedStub) -> StubEdit | None:
            async with limit:
                item = by_key[planned.item]
                return await self._stubs.make(planned, item, names, done)

        staying = [item for item in items if item.exchange not in leaving] if plan.segments else []
        said = [item for item in staying if item.source.role == "user"]
        # Off the loop, once for all segments: each item keeps what is found in it.
        await run_off_loop(text_characters(item.msg for item in said), identifiers_in_view, said)
        before = await self._read_uses() if plan.needs_summary else Uses()
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
        surroundings = partial(
            Surroundings,
            new_stubs=new_stubs,
            names=names,
            before=before,
            bare_tokens=self.costs().segment,
            note=bounded,
        )

        async def segment(planned: PlannedSegment) -> MadeSegment:
            async with limit:
                first = planned.units[0].items[0].key
                earlier = takewhile(lambda item: item.key != first, items)
                standing = {
                    item.key: item
                    for item in earlier
                    if item.kind == "segment" and item.exchange not in leaving
                }
                return await segments.make(
                    planned,
                    surroundings(
                        known=identifiers_in_view(item for item in said if item.key not in standing),
                        standing=tuple(line for item in standing.values() for line in item.lines()),
                    ),
                    done,
                    note_room=spare_tokens if planned is noted else None,
                    guide=form if planned is carrier else "",
                )

        taken: set[str] = set()
        for made in await gather([segment(planned) for planned in plan.segments]):
            segment_id = new_segment_id(made.edit.ref, taken)
            taken.add(segment_id)
            done.segments.append(replace(made.edit, id=segment_id))
            if made.edit.items and made.names is not None:
                done.names[segment_id] = made.names
            if made.note is not None:
                done.note = "kept" if made.note == note else "cut"


def identifiers_in_view(said: Iterable[ViewItem]) -> frozenset[str]:
    """Return the identifiers that users and segments name in what stays in the view."""
    return frozenset().union(*(item.identifiers() for item in said))


def _age(segment: PlannedSegment) -> tuple[bool, bool, int]:
    """Return what puts segments of conversation behind mere merges, and the newest of them last."""
    last = segment.units[-1]
    return not last.segment, not last.volatile, last.position
