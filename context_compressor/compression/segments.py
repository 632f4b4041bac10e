"""Segments: what one stands for, stored and summarised, in words that fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from context_compressor.compression.edits import ItemKey, SegmentEdit, Told
from context_compressor.compression.engine import Engine, Writer
from context_compressor.compression.items import READ_TOKENS, ViewItem, segment_tokens
from context_compressor.compression.labels import (
    SAMPLE_REF,
    fit_notes,
    fit_standing,
    newest_once,
    notes_section,
    section_tokens,
    segment_text,
    standing_section,
    summary_of,
)
from context_compressor.compression.plans import Plan, PlannedSegment
from context_compressor.compression.shown import abridge, render_transcript, shown_message
from context_compressor.compression.stubs import StubMaker
from context_compressor.compression.units import Unit
from context_compressor.errors import SummarizerError
from context_compressor.messages.compaction import compacted_words
from context_compressor.messages.msg import (
    Msg,
    is_segment,
    is_staying,
    segment_metadata,
    staying_metadata,
)
from context_compressor.messages.parts import PartPath
from context_compressor.messages.repair import with_content
from context_compressor.messages.speech import standing_in
from context_compressor.messages.text import sendable
from context_compressor.offload.store import ref_of
from context_compressor.summarizers.checking import summarize_checked
from context_compressor.summarizers.cutting import cut, cut_middle
from context_compressor.summarizers.extracts import ExtractiveSummarizer
from context_compressor.summarizers.protocol import RULES, SummaryRequest, writer_of
from context_compressor.tokens.off_loop import run_rules_off_loop, text_characters

CONTEXT_SHARE = 1 / 10
"""Share of the budget that a summariser reads of segments that stay: what is said there need not be repeated,
but to read it costs as much as what leaves."""
_STAYING_CHARS = 200
"""So much of a message that stays tells which it is."""
_LEAST_PROSE_TOKENS = 32
"""With less room than a sentence or two nobody is asked for a summary."""
_LONGER = 0.1
"""Share by which a summary may be too long where the view has room for it: to cut it, or to ask again, costs
more than it saves."""


class SegmentMaker:
    """Make the segments of one event.

    Args:
        engine: what the event works with.
        writer: stores what leaves.
        stubs: those of the event, made already; makes those of pages.
        plan: what leaves.
        items: the view.
        note: what the agent asked to keep; summarisers are to mind it.

    Raises:
        RedactionError: the user's callable failed.
    """

    def __init__(
        self,
        engine: Engine,
        writer: Writer,
        stubs: StubMaker,
        plan: Plan,
        items: Sequence[ViewItem],
        note: str | None,
    ) -> None:
        self._engine = engine
        self._config, self._counter = engine.config, engine.counter
        self._writer = writer
        self._stubs = stubs
        self._note = note
        self._bare_tokens = engine.costs().segment
        self._spare_tokens = plan.spare_tokens // max(1, len(plan.segments))
        self._stubbed: dict[ItemKey, dict[PartPath, str]] = {}
        for edit in stubs.made:
            self._stubbed.setdefault(edit.item, {})[edit.path] = edit.text
        leaving = plan.leaving
        stays = [item for item in items if item.kind == "message" and item.exchange not in leaving]
        # Nobody has to repeat what users say in messages that stay.
        self._standing = frozenset(line for item in stays for line in item.standing)
        spoken = [item.source.get_text_content() or "" for item in stays if item.source.role == "user"]
        self._spoken = Msg("user", "\n".join(spoken), "user", timestamp="", id="")
        self._segments = [item for item in items if item.kind == "segment"]
        requests = plan.requests if plan.needs_summary else ()
        self._requests = [self._said(unit) for unit in requests]

    async def make(self, planned: PlannedSegment, *, noted: bool, guide: str) -> SegmentEdit:
        """Store and summarise what a segment is to stand for. Its id is still to be given.

        Args:
            planned: what that is.
            noted: whether this segment is to show the agent's note.
            guide: what it is to say of the tools.
        """
        counter = self._counter
        items = [item for unit in planned.units for item in unit.items]
        merged = [item for item in items if item.kind == "segment"]
        keys = [item.key for item in items if item.kind != "segment"]
        stored, read, standing = await self._material(planned)
        transcript = render_transcript(stored, segments=len(merged))
        ref = await self._writer.write_own(transcript.text)
        media_refs = [await self._writer.write_own(media) for media in transcript.media]
        replaced = sum(unit.tokens for unit in planned.units)
        own = self._note if noted else None
        notes = newest_once([*(note for item in items for note in item.notes), *([own] if own else [])])
        messages = sum(len(item.covered) for item in merged) + len({key.key for key in keys})
        text_with = partial(segment_text, ref, messages)
        alone = stored[len(merged) :]
        bare = SegmentEdit(
            id="",
            items=tuple(keys),
            children=tuple(item.key.key for item in merged),
            ref=ref,
            media_refs=tuple(media_refs),
            text=text_with(None),
            summarized=False,
            notes=notes,
            standing=standing,
            stands_for_tokens=sum(item.stands_for_tokens for item in items),
            items_ref=ref_of(render_transcript(alone).text) if alone and merged else None,
            told=newest_once(told for item in merged if item.segment for told in item.segment.told),
        )
        if not planned.summary_tokens:
            text = text_with(None, guide=guide)
            if guide and segment_tokens(text, counter) > self._bare_tokens:
                text = bare.text
            room = min(self._bare_tokens + self._spare_tokens, replaced - 1) - segment_tokens(text, counter)
            fitted = fit_notes(notes, room, counter) if own else ()
            # What finds no room is kept for when it is merged.
            return replace(bare, text=text + notes_section(fitted), notes=fitted or notes)

        lines = fit_standing(standing, planned.standing_tokens, counter)
        left_out = len(standing) - len(lines)
        left = planned.summary_tokens - section_tokens(standing_section(lines, left_out, SAMPLE_REF), counter)
        left -= counter.count_text(f" {guide}.") if guide else 0
        spare = max(0, min(self._spare_tokens, replaced - planned.summary_tokens - self._bare_tokens - 1))
        own_room = min(spare, section_tokens(notes_section([own]), counter)) if own else 0
        fitted = fit_notes(notes, max(left // 2, 0) + own_room, counter)
        left -= max(section_tokens(notes_section(fitted), counter) - own_room, 0)
        summary, told = None, bare.told
        if left >= _LEAST_PROSE_TOKENS and not all(
            map(is_staying, read)
        ):  # segments may only name their refs
            context, context_tokens, beside = self._context(planned)
            if lines:
                context.append(_summary_message(standing_section(lines).strip()))
            summary, repeats = await self._summarize(
                self._request(read, left, context),
                longer=min(int(_LONGER * left), spare - own_room),
                read_tokens=sum(item.read_tokens for item in items) + context_tokens,
                material=transcript.text,
            )
            told = newest_once([*told, *beside]) if repeats else told
        text_with = partial(text_with, summary, standing=lines, left_out=left_out, guide=guide)
        if own and fitted[-1:] != (own,):
            # The note was cut or left out for room: the summary may have left some, as may the view.
            most = min(self._bare_tokens + planned.summary_tokens + spare, replaced - 1)
            found = fit_notes(notes, most - segment_tokens(text_with(), counter), counter)
            fitted = max(fitted, found, key=lambda kept: len(kept[-1]) if kept else 0)
        text = sendable(text_with(notes=fitted))
        # Texts are reckoned alone, and a counter may find more in a message, as its JSON is longer.
        if segment_tokens(text, counter) >= replaced:
            return bare
        is_summary = summary is not None
        return replace(bare, text=text, summarized=is_summary, notes=fitted, standing=lines, told=told)

    async def _material(self, planned: PlannedSegment) -> tuple[list[Msg], list[Msg], tuple[str, ...]]:
        """Return what is to leave, as the transcript has it, and as summarisers read it; what stands in it.

        The transcript has stubs in place, those of pages made here. Summarisers read texts whole, of earlier
        segments the summary alone, and what users said amid it that stays. Last come the standing
        instructions in it that no message tells that stays, the oldest first. All of it is redacted: segments
        were when they were made.

        Raises:
            RedactionError: the user's callable failed.
        """
        redact, names = self._config.redact, self._stubs.names
        stored: list[Msg] = []
        read: list[Msg] = []
        standing: list[str] = []
        start, end = _span(planned)
        waiting = [said for said in self._requests if start < said.position < end]
        for place, item in [(unit.position, item) for unit in planned.units for item in unit.items]:
            if item.kind == "segment":
                standing += item.standing
                stored.append(item.source)
                summary = summary_of(str(item.source.content), item.standing, item.notes)
                if summary is not None:
                    read.append(_summary_message(summary))
                continue
            while waiting and waiting[0].position < place:
                read.append(_staying_message(waiting.pop(0).msg))
            texts = {path: stub.text for path, stub in item.stubs.items()} | self._stubbed.get(item.key, {})
            texts |= await self._stubs.stub_pages(item, texts)
            stored.append(shown_message(item.source, texts, names, redact))
            read += _without_compaction(
                shown_message(item.source, {}, names, redact) if texts else stored[-1]
            )
            if redact is None:
                standing += item.standing
            elif item.standing:  # a rule may be on what it leaves of the sentences around
                standing += await run_rules_off_loop(text_characters(read[-1:]), standing_in, read[-1])
        return stored, read, newest_once(line for line in standing if line not in self._standing)

    def _said(self, unit: Unit) -> _Said:
        item = unit.items[0]
        shown = shown_message(item.source, {}, {}, self._config.redact)
        text = shown.get_text_content() or ""
        most = READ_TOKENS * len(text) // max(1, item.source_tokens.total)
        msg = Msg(shown.name, cut_middle(text, most), "user", timestamp="", id="")
        return _Said(unit.position, msg, (item.key, ref_of(text)))

    def _context(self, planned: PlannedSegment) -> tuple[list[Msg], int, list[Told]]:
        """Return what is said before that stays, about what reading its first part costs, and of what else
        than the messages of a segment a model is told.

        That first part is of segments, the newest whole before older ones. Those that merge at the same time
        are among them: what they say stays in the view.
        """
        left = room = int(CONTEXT_SHARE * self._config.budget)
        context: list[Msg] = []
        told: list[Told] = []
        merged = {unit.key for unit in planned.units}
        for item in reversed(self._segments):
            if item.exchange in merged or left <= 0:
                continue
            summary = summary_of(str(item.source.content), item.standing, item.notes)
            if summary is None:
                continue
            if item.read_tokens > left:
                summary = cut_middle(summary, left * len(summary) // item.read_tokens)
            context.append(_summary_message(summary))
            told += [(item.key, item.segment.ref)] if item.segment else []
            left -= item.read_tokens
        start, end = _span(planned)
        context = [*reversed(context), *(said.msg for said in self._requests if said.position < start)]
        told += [said.told for said in self._requests if said.position < end or said is self._requests[-1]]
        return context, room - max(0, left), told

    def _request(self, read: Sequence[Msg], max_tokens: int, context: Sequence[Msg]) -> SummaryRequest:
        """Return the request. In a merge, a summary that comes first is the text to update."""
        messages, previous = list(read), None
        if len(messages) > 1 and is_segment(messages[0]):
            previous = messages.pop(0).get_text_content()
        return SummaryRequest(
            messages=tuple(messages),
            max_tokens=max_tokens,
            previous=previous,
            context=tuple(context),
            request=self._requests[-1].msg.get_text_content() if self._requests else None,
            instructions=self._config.summary_instructions or None,
            note=self._note or None,
        )

    async def _summarize(
        self, request: SummaryRequest, *, longer: int, read_tokens: int, material: str
    ) -> tuple[str | None, bool]:
        """Return a checked summary by the first means that gives one, None when none does; and whether it may
        repeat what is only told.

        Args:
            request: as a summariser without a model reads it; of long results a model reads a part.
            longer: tokens by which the summary may be too long.
            read_tokens: about how many tokens a model reads of it.
            material: what was summarised, as text.
        """
        for summarizer in self._engine.summarizers:
            remote, asked = summarizer.remote, request
            is_extract = isinstance(summarizer, ExtractiveSummarizer)
            if remote:
                characters = text_characters(request.messages)
                short = await run_rules_off_loop(characters, abridge, request.messages, self._counter)
                asked = replace(request, messages=short)
            elif is_extract:  # what a user says in messages that stay is told by them, and not here again
                asked = replace(request, context=(*request.context, self._spoken))
            try:
                summary = await summarize_checked(
                    summarizer,
                    asked,
                    self._counter,
                    replaced_tokens=request.max_tokens + longer + 1,
                    spare_tokens=longer if remote else 0,
                    # A model reads the request as messages, and what it parrots is that.
                    material=None if remote else material,
                    input_tokens_estimate=read_tokens,
                    timeout_seconds=self._config.summarizer_timeout_seconds,
                )
            except SummarizerError as error:
                if self._config.on_failure == "raise":
                    raise
                self._writer.fail(error)
                continue
            by = RULES if is_extract else writer_of(summarizer)
            self._writer.use.add(summary.input_tokens, summary.output_tokens, remote=remote, by=by)
            return summary.text, not is_extract
        return None, False


class _Said(NamedTuple):
    """What a user said that stays."""

    position: int
    msg: Msg
    """As a summariser reads it: head and tail, where it is long."""
    told: Told


def _span(planned: PlannedSegment) -> tuple[int, int]:
    """Return where what leaves stands first and last."""
    return min(unit.position for unit in planned.units), planned.units[-1].position


def _summary_message(summary: str) -> Msg:
    """Return the summary of an earlier segment as a message that summarisers read as such."""
    return Msg("memory", summary, "user", segment_metadata(), timestamp="", id="")


def _without_compaction(msg: Msg) -> list[Msg]:
    """Return a message as summarisers read it; a summary by a provider becomes a message of its own."""
    blocks = msg.get_content_blocks()
    words = [found for block in blocks if (found := compacted_words(block)) is not None]
    if not words:
        return [msg]
    rest = with_content(msg, [block for block in blocks if compacted_words(block) is None])
    return [_summary_message("\n\n".join(words)), *([rest] if rest.content else [])]


def _staying_message(msg: Msg) -> Msg:
    """Return what a user said that stays as a message that only tells the order, cut where it is long."""
    text = cut(msg.get_text_content() or "", _STAYING_CHARS)
    return Msg(msg.name, text, "user", staying_metadata(), timestamp="", id="")
