"""Performing a plan: store what will leave, summarise, check. The only part of compression with I/O.

The engine changes neither view nor ledger; it gives the edits to commit, so that a cancelled or outdated
event leaves everything as it was.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from context_compressor.compression.abridging import abridge, tokens_read
from context_compressor.compression.config import CompressionConfig
from context_compressor.compression.edits import ItemKey, SegmentEdit, StubEdit
from context_compressor.compression.guiding import place_guide
from context_compressor.compression.labels import segment_text, summary_of, without_notes
from context_compressor.compression.notes import bounded_note, fit_notes, newest_once, notes_tokens
from context_compressor.compression.plans import Costs, Plan, PlannedSegment, PlannedStub
from context_compressor.compression.stubbing import READ_TOOLS, StubMaker
from context_compressor.compression.transcript import (
    redacted_text,
    render_transcript,
    shown_message,
)
from context_compressor.compression.view import SEGMENT_NAME, ViewItem
from context_compressor.compression.writing import Performed, Writer
from context_compressor.errors import SummarizerError
from context_compressor.messages.escapes import sendable
from context_compressor.messages.msg import Msg, tool_names
from context_compressor.messages.parts import PartPath
from context_compressor.messages.provenance import segment_metadata
from context_compressor.offload.protocol import OffloadStore
from context_compressor.offload.stubs import media_stub, minimal_stub
from context_compressor.summarizers.artifacts import artifact_lines
from context_compressor.summarizers.map_reduce import InParts
from context_compressor.summarizers.protocol import Summarizer, Summary, SummaryRequest
from context_compressor.summarizers.validation import summarize_checked
from context_compressor.tokens.off_loop import gather, run_off_loop, text_characters
from context_compressor.tokens.protocol import TokenCounter

logger = logging.getLogger(__name__)

_CONCURRENT_CALLS = 8
"""Summaries and writes of one event that run at the same time."""
PROSE_SHARE = 0.15
"""Share of a segment's room for what the summariser writes; the rest is for the index of artifacts."""
_MIN_PROSE_TOKENS = 48
_HEADING_TOKENS = 6
"""What the heading of the index costs at most, by any vocabulary in use."""
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
        self._summarizer: Summarizer = InParts(summarizer, counter)
        self._fallback = fallback
        self._counter = counter
        self._writer = Writer(config, store)
        self._stubs = StubMaker(config, self._writer, counter, read_ref)
        self._costs: Costs | None = None

    def costs(self) -> Costs:
        """Return what the bare stand-ins cost by the counter, measured at first use."""
        if self._costs is None:
            # A count of messages as large as it may become, so that no real stand-in costs more.
            self._costs = Costs(
                stub=self._counter.count_text(minimal_stub(_SAMPLE_REF)),
                media=self._counter.count_text(media_stub(_SAMPLE_MEDIA, _SAMPLE_REF, "image")) + 20,
                segment=self._segment_cost(segment_text(_SAMPLE_REF, 9_999_999, "x")),
            )
        return self._costs

    def _segment_cost(self, text: str) -> int:
        return self._counter.count_messages([Msg(SEGMENT_NAME, text, "user", timestamp="")])

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
        shown = [item.msg for item in staying]
        known = await run_off_loop(text_characters(shown), known_identifiers, staying)
        bounded, done.note = None, None
        if note:
            note = " ".join(redacted_text(note, self._config.redact).split())
            bounded, done.note = bounded_note(note, self._counter), "dropped"
        noted = max(plan.segments, key=_age, default=None)

        async def segment(planned: PlannedSegment) -> SegmentEdit:
            async with limit:
                made = await self._perform_segment(
                    planned,
                    new_stubs,
                    names,
                    known,
                    done,
                    note=bounded,
                    note_room=spare_tokens if planned is noted else None,
                    guide=form if planned is carrier else "",
                )
                if bounded and planned is noted and made.notes and f"\n- {made.notes[-1]}" in made.text:
                    done.note = "kept" if made.notes[-1] == note else "cut"
                return made

        stubs = await gather([stub(planned) for planned in plan.stubs])
        done.stubs = [edit for edit in stubs if edit is not None]
        carrier, form = await place_guide(plan, items, self._stubs, self._counter, done)
        new_stubs: dict[ItemKey, dict[PartPath, str]] = {}
        for edit in done.stubs:
            new_stubs.setdefault(edit.item, {})[edit.path] = edit.text
        taken: set[str] = set()
        for made in await gather([segment(planned) for planned in plan.segments]):
            segment_id = new_segment_id(made.ref, taken)
            taken.add(segment_id)
            done.segments.append(replace(made, id=segment_id))

    # Segments

    async def _perform_segment(
        self,
        planned: PlannedSegment,
        new_stubs: dict[ItemKey, dict[PartPath, str]],
        names: dict[str, str],
        known: frozenset[str],
        done: Performed,
        *,
        note: str | None,
        note_room: int | None,
        guide: str,
    ) -> SegmentEdit:
        """Store, index and summarise what a segment is to stand for.

        Args:
            planned: what that is.
            new_stubs: the stubs that the event has made.
            names: tool names by call id.
            known: identifiers that the index need not name.
            done: receives what was stored, and what failed.
            note: what the agent asked to keep; the summariser is to mind it.
            note_room: tokens that this segment may cost above its plan to show it; None where it is not to.
            guide: what it is to say of the tools.
        """
        items = [item for unit in planned.units for item in unit.items]
        messages: list[Msg] = []
        whole: list[Msg] = []
        may_hold_pages = not READ_TOOLS.isdisjoint(names.values())
        for item in items:
            stubs = {path: stub.text for path, stub in item.stubs.items()} | new_stubs.get(item.key, {})
            if may_hold_pages:
                stubs |= await self._stubs.stub_pages(item, stubs, names, done)
            redact = None if item.kind == "segment" else self._config.redact
            message = shown_message(item.source, stubs, names, redact)
            if item.kind == "segment":
                message.metadata = segment_metadata()
            messages.append(message)
            whole.append(shown_message(item.source, {}, names, redact) if stubs else message)
        children = sum(item.kind == "segment" for item in items)
        transcript = render_transcript(messages, segments=children)
        ref = await self._writer.write_own(transcript.text, done)
        media_refs = [await self._writer.write_own(media, done) for media in transcript.media]
        for message, item in zip(messages, items, strict=True):
            if item.notes:
                message.content = without_notes(str(message.content), item.notes)
        summary: Summary | None = None
        facts: tuple[str, ...] = ()
        text_tokens = planned.summary_tokens
        text_tokens -= self._counter.count_text(f" {guide}.") if guide else 0
        prose_tokens = min(max(_MIN_PROSE_TOKENS, int(PROSE_SHARE * planned.summary_tokens)), text_tokens)
        index_tokens = text_tokens - prose_tokens - _HEADING_TOKENS
        replaced_tokens = sum(unit.tokens for unit in planned.units)
        notes = newest_once(note for item in items for note in item.notes)
        own_room = 0
        if note and note_room is not None:
            notes = newest_once([*notes, note])
            gain = replaced_tokens - planned.summary_tokens - self.costs().segment
            own_room = min(note_room, gain - 1, notes_tokens([note], self._counter.count_text))
        fitted = fit_notes(notes, max(index_tokens // 2, 0) + max(own_room, 0), self._counter)
        index_tokens -= max(notes_tokens(fitted, self._counter.count_text) - max(own_room, 0), 0)
        # Earlier segments that only name their refs say nothing that could be summarised.
        says_something = any(
            item.kind != "segment" or summary_of(str(message.content)) is not None
            for message, item in zip(messages, items, strict=True)
        )
        if planned.summary_tokens and says_something:
            facts = await self._index(whole, index_tokens, known, done)
            request = self._request(messages, children, prose_tokens, facts, note)
            read_tokens = tokens_read(items, self._config.preview_tokens)
            summary = await self._summarize(
                request, replaced_tokens - index_tokens, read_tokens, transcript.text, done
            )
            if summary is not None:
                facts = tuple(fact for fact in facts if fact not in summary.text)
        merged = sum(len(item.covered) for item in items if item.kind == "segment")
        count = merged + len({item.key.key for item in items if item.kind != "segment"})
        if guide and not planned.summary_tokens:
            fits = self._segment_cost(segment_text(ref, count, None, guide=guide)) <= self.costs().segment
            guide = guide if fits else ""
        written = None if summary is None else summary.text
        if note and note_room is not None and fitted[-1:] != (note,):
            # What was reckoned with and is not used may be enough, if the view still gets smaller.
            limit = self.costs().segment + planned.summary_tokens + note_room
            left = min(limit, replaced_tokens - 1)
            left -= self._segment_cost(segment_text(ref, count, written, facts, guide=guide))
            found = fit_notes(notes, left, self._counter)
            fitted = max(fitted, found, key=lambda kept: len(kept[-1]) if kept else 0)
        return SegmentEdit(
            id="",
            items=tuple(item.key for item in items if item.kind != "segment"),
            children=tuple(item.key.key for item in items if item.kind == "segment"),
            ref=ref,
            media_refs=tuple(media_refs),
            text=sendable(segment_text(ref, count, written, facts, notes=fitted, guide=guide)),
            summarized=summary is not None,
            # Where only a ref is left there is no room now, and perhaps when that is merged.
            notes=fitted or (() if planned.summary_tokens else notes),
        )

    async def _index(
        self, messages: Sequence[Msg], max_tokens: int, known: frozenset[str], done: Performed
    ) -> tuple[str, ...]:
        """Return the lines of an index; none where its rules fail on what somebody wrote to break them."""
        lines = partial(artifact_lines, messages, max_tokens, self._counter, known=known)
        try:
            return await run_off_loop(text_characters(messages), lines)
        except Exception as error:
            done.fail(error)
            return ()

    def _request(
        self,
        messages: Sequence[Msg],
        children: int,
        max_tokens: int,
        facts: tuple[str, ...],
        note: str | None,
    ) -> SummaryRequest:
        """Return the request; the oldest summary of a merge is what the new one carries forward."""
        previous = None
        if children and len(messages) > 1:
            oldest = messages[0].content
            assert isinstance(oldest, str)
            previous = summary_of(oldest)
        return SummaryRequest(
            messages=tuple(messages if previous is None else messages[1:]),
            max_tokens=max_tokens,
            previous=previous,
            facts=facts,
            instructions=self._config.summary_instructions or None,
            note=note or None,
        )

    async def _summarize(
        self,
        request: SummaryRequest,
        replaced_tokens: int,
        read_tokens: int,
        material: str,
        done: Performed,
    ) -> Summary | None:
        """Return a checked summary by the first means that gives one; None when none does."""
        for summarizer in (self._summarizer, self._fallback):
            asked = request
            if summarizer.remote:
                asked = replace(request, messages=await self._abridged(request.messages))
            try:
                summary = await summarize_checked(
                    summarizer,
                    asked,
                    self._counter,
                    replaced_tokens=replaced_tokens - self.costs().segment,
                    # A model reads the request as messages, and what it parrots is that.
                    material=material if summarizer is self._fallback else None,
                    input_tokens_estimate=read_tokens,
                    timeout_seconds=self._config.summarizer_timeout_seconds,
                )
            except SummarizerError as error:
                if self._config.on_failure == "raise":
                    raise
                done.fail(error)
                if summarizer is self._fallback:
                    break
                continue
            done.use.input_tokens += summary.input_tokens
            done.use.output_tokens += summary.output_tokens
            if summarizer.remote:
                done.use.remote_input_tokens += summary.input_tokens
                done.use.remote_output_tokens += summary.output_tokens
            return summary
        return None

    async def _abridged(self, messages: Sequence[Msg]) -> tuple[Msg, ...]:
        """Return messages as a model reads them: every token costs, so of long results it sees previews."""
        return await run_off_loop(
            text_characters(messages), abridge, messages, self._config.preview_tokens, self._counter
        )


def known_identifiers(staying: Iterable[ViewItem]) -> frozenset[str]:
    """Return the identifiers that users and segments name in what stays in the view."""
    return frozenset().union(*(item.identifiers() for item in staying if item.source.role == "user"))


def _age(segment: PlannedSegment) -> tuple[bool, bool, int]:
    """Return what puts segments of conversation behind mere merges, and the newest of them last."""
    last = segment.units[-1]
    return not last.segment, not last.volatile, last.position
