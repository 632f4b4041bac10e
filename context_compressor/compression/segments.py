"""The stand-ins of an event: what leaves is stored, and the notes say what it came to, in words that fit."""

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
    is_staying,
    segment_metadata,
    staying_metadata,
)
from context_compressor.messages.parts import PartPath
from context_compressor.messages.repair import with_content
from context_compressor.messages.speech import standing_in
from context_compressor.messages.text import sendable
from context_compressor.offload.store import ref_of
from context_compressor.summarizers.cutting import cut, cut_middle
from context_compressor.summarizers.notes import Notes
from context_compressor.summarizers.protocol import SummaryRequest
from context_compressor.summarizers.writing import NotesWriter, RulesWriter, Written
from context_compressor.tokens.off_loop import run_rules_off_loop, text_characters

_STAYING_CHARS = 200
"""So much of a message that stays tells which it is."""
_LEAST_PROSE_TOKENS = 32
"""With less room than a sentence or two nobody is asked."""


class SegmentMaker:
    """Make the stand-ins of one event.

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
        self._writers = engine.writers[-1:] if plan.by_rules else engine.writers
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
        requests = plan.requests if plan.needs_summary else ()
        self._requests = [self._said(unit) for unit in requests]

    async def make(self, planned: PlannedSegment, *, noted: bool, guide: str) -> SegmentEdit:
        """Store what leaves, and bring the notes up to date that stand for it. Its id is still to be given.

        Args:
            planned: what leaves, and what stood for more before.
            noted: whether the agent's note is to stand there.
            guide: what it is to say of the tools.
        """
        counter = self._counter
        items = [item for unit in planned.units for item in unit.items]
        earlier = [item.segment for item in items if item.segment is not None]
        keys = [item.key for item in items if item.segment is None]
        stored, read, standing = await self._material(planned)
        transcript = render_transcript(stored, before=[edit.ref for edit in earlier])
        ref = await self._writer.write_own(transcript.text)
        media_refs = [await self._writer.write_own(media) for media in transcript.media]
        replaced = sum(unit.tokens for unit in planned.units)
        own = self._note if noted else None
        kept = newest_once([*(note for edit in earlier for note in edit.notes), *([own] if own else [])])
        before = sum(len(item.covered) for item in items if item.segment is not None)
        text_with = partial(segment_text, ref, before + len({key.key for key in keys}))
        notes = _notes_of(earlier)
        bare = SegmentEdit(
            id="",
            items=tuple(keys),
            children=tuple(edit.id for edit in earlier),
            ref=ref,
            media_refs=tuple(media_refs),
            text=text_with(None),
            summarized=False,
            notes=kept,
            standing=standing,
            stands_for_tokens=sum(item.stands_for_tokens for item in items),
            left_standing=sum(edit.left_standing for edit in earlier),
        ).with_notes(notes)
        if not planned.summary_tokens:
            text = text_with(None, guide=guide)
            if guide and segment_tokens(text, counter) > self._bare_tokens:
                text = bare.text
            room = min(self._bare_tokens + self._spare_tokens, replaced - 1) - segment_tokens(text, counter)
            fitted = fit_notes(kept, room, counter) if own else ()
            # What finds no room is kept for the next event.
            return replace(bare, text=text + notes_section(fitted), notes=fitted or kept)

        lines = fit_standing(standing, planned.standing_tokens, counter)
        left_out = bare.left_standing + len(standing) - len(lines)
        left = planned.summary_tokens - section_tokens(standing_section(lines, left_out, SAMPLE_REF), counter)
        left -= counter.count_text(f" {guide}.") if guide else 0
        spare = max(0, min(self._spare_tokens, replaced - planned.summary_tokens - self._bare_tokens - 1))
        own_room = min(spare, section_tokens(notes_section([own]), counter)) if own else 0
        fitted = fit_notes(kept, max(left // 2, 0) + own_room, counter)
        left -= max(section_tokens(notes_section(fitted), counter) - own_room, 0)
        told: tuple[Told, ...] = ()
        if left >= _LEAST_PROSE_TOKENS and not all(map(is_staying, read)):
            context, context_tokens, beside = self._context(planned)
            if lines:
                context.append(_summary_message(standing_section(lines).strip()))
            notes, repeats = await self._write(
                self._request(read, left, context),
                notes,
                place=before,
                read_tokens=sum(item.read_tokens for item in items) + context_tokens,
                material=transcript.text,
            )
            told = newest_once(beside) if repeats else ()
        else:
            notes = notes.fitted(lambda some: counter.count_text(some.text()) <= left)
        summary = notes.text() or None
        text_with = partial(text_with, summary, standing=lines, left_out=left_out, guide=guide)
        if own and fitted[-1:] != (own,):
            # The note was cut or left out for room: the summary may have left some, as may the view.
            most = min(self._bare_tokens + planned.summary_tokens + spare, replaced - 1)
            found = fit_notes(kept, most - segment_tokens(text_with(), counter), counter)
            fitted = max(fitted, found, key=lambda some: len(some[-1]) if some else 0)
        text = sendable(text_with(notes=fitted))
        # Texts are reckoned alone, and a counter may find more in a message, as its JSON is longer.
        if segment_tokens(text, counter) >= replaced:
            return bare
        return replace(
            bare,
            text=text,
            summarized=summary is not None,
            notes=fitted,
            standing=lines,
            left_standing=left_out,
            told=told,
        ).with_notes(notes)

    async def _material(self, planned: PlannedSegment) -> tuple[list[Msg], list[Msg], tuple[str, ...]]:
        """Return what is to leave, as the transcript has it, and as writers read it; what stands in it.

        The transcript has stubs in place, those of pages made here. Writers read texts whole, and what users
        said amid it that stays. Last come the standing instructions in it, and in what stood for more before,
        that no message tells that stays, the oldest first. All of it is redacted: what was written before was
        when it was made.

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
        """Return what users said before that stays, about what reading it costs, and what else than what
        leaves a model is told.
        """
        start, end = _span(planned)
        context = [said.msg for said in self._requests if said.position < start]
        told = [said.told for said in self._requests if said.position < end or said is self._requests[-1]]
        return context, sum(len(str(msg.content)) for msg in context) // 4, told

    def _request(self, read: Sequence[Msg], max_tokens: int, context: Sequence[Msg]) -> SummaryRequest:
        return SummaryRequest(
            messages=tuple(read),
            max_tokens=max_tokens,
            context=tuple(context),
            request=self._requests[-1].msg.get_text_content() if self._requests else None,
            instructions=self._config.summary_instructions or None,
            note=self._note or None,
        )

    async def _write(
        self, request: SummaryRequest, notes: Notes, *, place: int, read_tokens: int, material: str
    ) -> tuple[Notes, bool]:
        """Return the notes by the first means that gives them, and whether they may repeat what is only told.

        Args:
            request: as rules read it; of long results a model reads a part.
            notes: so far.
            place: how many messages left before.
            read_tokens: about how many tokens a model reads of it.
            material: what leaves, as text.
        """
        *asked_first, last = self._writers
        for writer in asked_first:
            asked = request
            if writer.remote:
                characters = text_characters(request.messages)
                short = await run_rules_off_loop(characters, abridge, request.messages, self._counter)
                asked = replace(request, messages=short)
            try:
                written = await writer.write(
                    asked, notes, read_tokens=read_tokens, material=material, place=place
                )
            except SummarizerError as error:
                if self._config.on_failure == "raise" and writer is asked_first[-1]:
                    raise
                self._writer.fail(error)
                continue
            self._note_paid(writer, written)
            return written.notes, True
        # What a user says in messages that stay is told by them, and not here again.
        asked = replace(request, context=(*request.context, self._spoken))
        written = await last.write(asked, notes, read_tokens=read_tokens, place=place)
        self._note_paid(last, written)
        return written.notes, False

    def _note_paid(self, writer: NotesWriter | RulesWriter, written: Written) -> None:
        paid = written.paid
        self._writer.use.add(paid.input_tokens, paid.output_tokens, remote=writer.remote, by=writer.name)


def _notes_of(earlier: Sequence[SegmentEdit]) -> Notes:
    """Return the notes so far: what segments of an earlier release say are their first lines."""
    notes = Notes()
    for edit in earlier:
        if edit.is_notes:
            notes = notes.joined(edit.as_notes)
        elif said := summary_of(edit.text, edit.standing, edit.notes):
            notes = notes.added(sendable(said))
    return notes


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
