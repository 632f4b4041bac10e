"""Performing a plan: store what will leave, summarise, check. The only part of compression with I/O.

The engine changes neither view nor ledger; it gives the edits to commit, so that a cancelled or outdated
event leaves everything as it was.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

from context_compressor.compression.abridging import abridge, tokens_read
from context_compressor.compression.config import CompressionConfig
from context_compressor.compression.edits import ItemKey, SegmentEdit, StubEdit
from context_compressor.compression.labels import segment_text, split_notes, summary_of
from context_compressor.compression.plans import Costs, Plan, PlannedSegment, PlannedStub
from context_compressor.compression.stubbing import READ_TOOLS, StubMaker
from context_compressor.compression.transcript import (
    redacted_text,
    render_transcript,
    shown_message,
    tool_names,
)
from context_compressor.compression.view import SEGMENT_NAME, ViewItem
from context_compressor.compression.writing import Performed, Writer
from context_compressor.errors import SummarizerError
from context_compressor.messages.msg import Msg
from context_compressor.messages.parts import PartPath
from context_compressor.offload.protocol import OffloadStore
from context_compressor.offload.schemas import GUIDE
from context_compressor.offload.stubs import media_stub, minimal_stub
from context_compressor.summarizers.artifacts import artifact_lines
from context_compressor.summarizers.cutting import cut_to_tokens
from context_compressor.summarizers.identifiers import known_identifiers
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
"""What the heading of index or notes costs at most, by any vocabulary in use."""
_LINE_TOKENS = 3
"""What the mark before a line costs at most."""
_GUIDE_SHARE = 4
"""The sentence on the tools takes at most this part of a segment's room."""
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
            bare = Msg(SEGMENT_NAME, segment_text(_SAMPLE_REF, 9_999_999, "x"), "user", timestamp="")
            self._costs = Costs(
                stub=self._counter.count_text(minimal_stub(_SAMPLE_REF)),
                media=self._counter.count_text(media_stub(_SAMPLE_MEDIA, _SAMPLE_REF, "image")) + 20,
                segment=self._counter.count_messages([bare]),
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

        `note`, on what to keep, stands word for word in the first segment, and goes to the summariser.

        `done.attempted` is right even when the call is cancelled: what stands there and is never committed
        can be removed from the store.

        Raises:
            RedactionError: the user's callable failed.
            OffloadError, SummarizerError: a store or summariser failed and `on_failure` is "raise".
        """
        by_key = {item.key: item for item in items}
        leaving = {unit.key for planned in plan.segments for unit in planned.units}
        leaving.update(by_key[planned.item].exchange for planned in plan.stubs)
        carrier = self._guide_carrier(plan, [item for item in items if item.exchange not in leaving])
        names = tool_names(item.source for item in items if item.exchange in leaving)
        limit = asyncio.Semaphore(_CONCURRENT_CALLS)

        async def stub(planned: PlannedStub) -> StubEdit | None:
            async with limit:
                item = by_key[planned.item]
                return await self._stubs.make(planned, item, names, done, guide=planned is carrier)

        staying = [item for item in items if item.exchange not in leaving] if plan.segments else []
        known = known_identifiers(
            item.source.get_text_content() or "" for item in staying if item.source.role == "user"
        )

        async def segment(planned: PlannedSegment) -> SegmentEdit:
            async with limit:
                return await self._perform_segment(
                    planned,
                    new_stubs,
                    names,
                    known,
                    done,
                    note=note if planned is plan.segments[0] else None,
                    guide=GUIDE if planned is carrier else "",
                )

        stubs = await gather([stub(planned) for planned in plan.stubs])
        done.stubs = [edit for edit in stubs if edit is not None]
        new_stubs: dict[ItemKey, dict[PartPath, str]] = {}
        for edit in done.stubs:
            new_stubs.setdefault(edit.item, {})[edit.path] = edit.text
        taken: set[str] = set()
        for made in await gather([segment(planned) for planned in plan.segments]):
            segment_id = new_segment_id(made.ref, taken)
            taken.add(segment_id)
            done.segments.append(replace(made, id=segment_id))

    def _guide_carrier(self, plan: Plan, staying: Sequence[ViewItem]) -> PlannedSegment | PlannedStub | None:
        """Return what is to tell the agent of its tools; None where something that stays in the view does."""
        if any(map(_is_guide, staying)):
            return None
        least = _GUIDE_SHARE * self._counter.count_text(GUIDE)
        roomy = [segment for segment in plan.segments if segment.summary_tokens >= least]
        return roomy[0] if roomy else next(iter(plan.stubs), None)

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
        guide: str,
    ) -> SegmentEdit:
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
                message.metadata = {"compression": {"kind": "segment"}}
            messages.append(message)
            whole.append(shown_message(item.source, {}, names, redact) if stubs else message)
        children = sum(item.kind == "segment" for item in items)
        transcript = render_transcript(messages, segments=children)
        ref = await self._writer.write_own(transcript.text, done)
        media_refs = [await self._writer.write_own(media, done) for media in transcript.media]
        notes: list[str] = []
        for message in messages[:children]:
            message.content, found = split_notes(str(message.content))
            notes += found
        if note:
            notes.append(" ".join(redacted_text(note, self._config.redact).split()))
        summary: Summary | None = None
        facts: tuple[str, ...] = ()
        if planned.summary_tokens:
            prose_tokens = max(_MIN_PROSE_TOKENS, int(PROSE_SHARE * planned.summary_tokens))
            index_tokens = planned.summary_tokens - prose_tokens - _HEADING_TOKENS
            index_tokens -= self._counter.count_text(guide) if guide else 0
            notes, notes_tokens = self._fit_notes(notes, index_tokens // 2)
            index_tokens -= notes_tokens
            facts = await run_off_loop(
                text_characters(whole),
                partial(artifact_lines, whole, index_tokens, self._counter, known=known),
            )
            request = self._request(messages, children, prose_tokens, facts, note)
            replaced_tokens = sum(unit.tokens for unit in planned.units) - index_tokens
            read_tokens = tokens_read(items, self._config.preview_tokens)
            summary = await self._summarize(request, replaced_tokens, read_tokens, transcript.text, done)
            if summary is not None:
                facts = tuple(fact for fact in facts if fact not in summary.text)
        merged = sum(len(item.covered) for item in items if item.kind == "segment")
        count = merged + len({item.key.key for item in items if item.kind != "segment"})
        return SegmentEdit(
            id="",
            items=tuple(item.key for item in items if item.kind != "segment"),
            children=tuple(item.key.key for item in items if item.kind == "segment"),
            ref=ref,
            media_refs=tuple(media_refs),
            text=segment_text(
                ref, count, None if summary is None else summary.text, facts, notes=notes, guide=guide
            ),
            summarized=summary is not None,
        )

    def _fit_notes(self, notes: Sequence[str], room: int) -> tuple[list[str], int]:
        """Return the notes, the newest before others, as far as they fit, and what they cost in tokens."""
        kept: list[str] = []
        left = room - _HEADING_TOKENS
        for text in reversed(notes):
            cut = cut_to_tokens(text, left - _LINE_TOKENS, self._counter) if left > _LINE_TOKENS else ""
            if not cut:
                break
            kept.append(cut)
            left -= self._counter.count_text(cut) + _LINE_TOKENS
        return kept[::-1], room - left if kept else 0

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
        asked = redacted_text(note, self._config.redact) if note else None
        if children and len(messages) > 1:
            oldest = messages[0].content
            assert isinstance(oldest, str)
            previous = summary_of(oldest)
        return SummaryRequest(
            messages=tuple(messages if previous is None else messages[1:]),
            max_tokens=max_tokens,
            previous=previous,
            facts=facts,
            instructions="\n".join(filter(None, (self._config.summary_instructions, asked))) or None,
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


def _is_guide(item: ViewItem) -> bool:
    """Tell whether a stand-in says which tools read back what left the view."""
    if item.kind == "segment":
        return GUIDE in str(item.source.content)
    return any(GUIDE in stub.text for stub in item.stubs.values())
