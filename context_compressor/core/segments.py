"""The stand-ins of an event: what leaves is stored, and the notes say what it came to, in words that fit."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import takewhile
from types import MappingProxyType
from typing import NamedTuple

from context_compressor.core.edits import ItemKey, SegmentEdit, Told
from context_compressor.core.engine import Engine, Writer
from context_compressor.core.items import READ_TOKENS, ViewItem, segment_tokens
from context_compressor.core.labels import (
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
from context_compressor.core.plans import Plan, PlannedSegment
from context_compressor.core.shown import abridge, render_transcript, said_ref, shown_message
from context_compressor.core.stubs import StubMaker
from context_compressor.errors import SummarizerError
from context_compressor.messages.compaction import compacted_words
from context_compressor.messages.msg import (
    Msg,
    is_instruction,
    is_staying,
    segment_metadata,
    staying_metadata,
    tool_names,
)
from context_compressor.messages.parts import PartPath
from context_compressor.messages.repair import with_content
from context_compressor.messages.speech import standing_in
from context_compressor.messages.text import sendable
from context_compressor.summarizers.cutting import cut, cut_middle
from context_compressor.summarizers.notes import Notes
from context_compressor.summarizers.prompts import opening_of
from context_compressor.summarizers.protocol import Departure, SummaryRequest
from context_compressor.summarizers.writing import InPlace, NotesWriter, RulesWriter, Written
from context_compressor.tokens.off_loop import run_rules_off_loop, text_characters

_MOST_NAMED = 8
"""So many messages are named one by one."""
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
        fresh: keys of the items that no view has shown yet.
        free_tokens: what fits into the model's window behind the last request; None: not known.
        system: what the request carries beside the messages.
        places: where each message stands in the history, by its id.

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
        *,
        fresh: Collection[ItemKey] = frozenset(),
        free_tokens: int | None = None,
        system: str = "",
        places: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self._engine = engine
        self._config, self._counter = engine.config, engine.counter
        self._writer = writer
        self._stubs = stubs
        self._note = note
        self._writers = () if plan.by_rules else engine.writers
        self._bare_tokens = engine.costs().segment
        self._spare_tokens = plan.spare_tokens // max(1, len(plan.segments))
        self._stubbed: dict[ItemKey, dict[PartPath, str]] = {}
        for edit in stubs.made:
            self._stubbed.setdefault(edit.item, {})[edit.path] = edit.text
        leaving = plan.leaving
        self._items, self._fresh, self._free_tokens = items, fresh, free_tokens
        self._places = places
        self._system = Msg("system", system, "system", timestamp="", id="")
        stays = [item for item in items if item.kind == "message" and item.exchange not in leaving]
        head = list(takewhile(lambda item: is_instruction(item.source), stays))
        self._hints = plan.hints
        self._stays = [item for item in stays[len(head) :] if item.key not in plan.hints]
        # Nobody has to repeat what users say in messages that stay.
        self._standing = frozenset(line for item in stays for line in item.standing)
        spoken = [item.source.get_text_content() or "" for item in stays if item.source.role == "user"]
        self._spoken = Msg("user", "\n".join(spoken), "user", timestamp="", id="")
        requests = plan.requests if plan.needs_summary else ()
        self._requests = [self._said(unit.items[0], unit.position) for unit in requests]

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
        stored, read, whole, standing = await self._material(planned)
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
        told: Sequence[Told] = ()
        if left >= _LEAST_PROSE_TOKENS and not all(map(is_staying, read)):
            beside = [_summary_message(standing_section(lines).strip())] if lines else []
            notes, told = await self._write(
                self._request(read, left, beside),
                notes,
                planned,
                whole=whole,
                read_tokens=sum(item.read_tokens for item in items),
                material=transcript.text,
            )
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
            told=tuple(told),
        ).with_notes(notes)

    async def _material(
        self, planned: PlannedSegment
    ) -> tuple[list[Msg], list[Msg], set[int], tuple[str, ...]]:
        """Return what is to leave, as the transcript has it, and as writers read it; what stands in it.

        The transcript has stubs in place, those of pages made here. Writers read texts whole, and what users
        said amid it that stays; behind these stand the places of those that the view showed whole. Last come
        the standing instructions in it, and in what stood for more before, that no message tells that stays,
        the oldest first. All of it is redacted: what was written before was when it was made.

        Raises:
            RedactionError: the user's callable failed.
        """
        redact, names = self._config.redact, self._stubs.names
        stored: list[Msg] = []
        read: list[Msg] = []
        whole: set[int] = set()
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
            stored.append(shown_message(item.source, texts, names, redact))
            begin = len(read)
            read += _without_compaction(
                shown_message(item.source, {}, names, redact) if texts else stored[-1]
            )
            if not item.stubs and item.key not in self._fresh:
                whole.update(range(begin, len(read)))
            if redact is None:
                standing += item.standing
            elif item.standing:  # a rule may be on what it leaves of the sentences around
                standing += await run_rules_off_loop(text_characters(read[-1:]), standing_in, read[-1])
        told = newest_once(line for line in standing if line not in self._standing)
        return stored, read, whole, told

    def _said(self, item: ViewItem, position: int = 0) -> _Said:
        shown = shown_message(item.source, {}, {}, self._config.redact)
        text = shown.get_text_content() or ""
        most = READ_TOKENS * len(text) // max(1, item.source_tokens.total)
        return _Said(position, item.key, Msg(shown.name, cut_middle(text, most), "user", timestamp="", id=""))

    # What a model is shown

    def _apart(
        self, request: SummaryRequest, whole: Collection[int], *, is_remote: bool
    ) -> tuple[SummaryRequest, list[Told]]:
        """Return a request with what stays, and what of that is told: all but the newest exchange.

        That one may still be asked for again, and notes that tell of it would have to be made again.
        """
        said = {one.key: one.msg for one in self._requests}
        now = {one.key for one in self._requests[-1:]}  # what the agent works on, which is told by itself
        newest = self._items[-1].exchange
        told = self._told(item for item in self._stays if item.exchange != newest or item.key in now)
        shown: list[Msg] = []
        for item in self._stays:
            if item.exchange == newest:
                continue
            texts = {path: stub.text for path, stub in item.stubs.items()} | self._stubbed.get(item.key, {})
            msg = said.get(item.key) or shown_message(item.source, texts, {}, self._config.redact)
            shown += abridge(_without_compaction(msg), self._counter)
        messages = abridge(request.messages, self._counter, whole) if is_remote else request.messages
        return replace(request, messages=messages, context=(*request.context, *shown)), told

    def _in_place(
        self, own: object, planned: PlannedSegment, request: SummaryRequest
    ) -> tuple[InPlace | None, list[Told]]:
        """Return what the agent's own model is asked behind its last request, and what of it stays.

        None: what leaves did not all stand there, or what did is not all for a model to note.
        """
        held = getattr(own, "held", ())
        leaving = [item for unit in planned.units for item in unit.items if item.kind == "message"]
        sees_more = self._config.redact is not None or not self._hints.isdisjoint(held)
        if sees_more or not leaving or any(item.key not in held for item in leaving):
            return None, []
        seen = [item for item in self._items if item.kind == "message" and item.key in held]
        left = {item.key for item in leaving}
        end = next(place for place, item in enumerate(self._items) if item is leaving[-1])
        before = {item.key for item in self._items[:end]}
        stays = [item for item in self._stays if item.key in held]
        names = tool_names(item.source for item in seen)
        openings = {item.key: opening_of(item.msg, names) for item in seen}
        amid = [openings[item.key] for item in stays if item.key in before]
        behind = (_among(openings, item.key) for item in stays if item.key not in before)
        more = len(amid) - _MOST_NAMED
        departure = Departure(
            count=len(leaving),
            last=_among(openings, leaving[-1].key),
            next=next(behind, ""),
            amid=(*amid[:_MOST_NAMED], *([f"{more} more"] if more > 0 else [])),
            since=tuple(item.source.role for item in self._stays if item.key not in held),
            before_tokens=sum(item.tokens for item in self._items if item.key in held),
            free_tokens=self._free_tokens,
        )
        texts = [(item, shown_message(item.source, {}, {})) for item in seen]
        stubs = "\n".join(stub.text for item in seen for stub in item.stubs.values())
        shown = replace(
            request,
            messages=tuple(msg for item, msg in texts if item.key in left),
            context=(
                self._system,
                Msg("memory", stubs, "assistant", timestamp="", id=""),
                *request.context,
                *(msg for item, msg in texts if item.key not in left),
            ),
            request=None,
        )
        return InPlace(shown, departure), self._told(stays)

    def _told(self, items: Iterable[ViewItem]) -> list[Told]:
        """Return by what it is noticed that one of these is gone or says something else."""
        return [(item.key, said_ref(item.source, self._config.redact)) for item in items]

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
        self,
        request: SummaryRequest,
        notes: Notes,
        planned: PlannedSegment,
        *,
        whole: Collection[int],
        read_tokens: int,
        material: str,
    ) -> tuple[Notes, list[Told]]:
        """Return the notes by the first means that gives them, and what else than what leaves they may tell.

        Args:
            request: as rules read it. A model reads a part of long results that the view did not show, and
                what stays.
            notes: so far.
            planned: what leaves.
            whole: the places of the messages that the view showed whole.
            read_tokens: about how many tokens a model reads of it.
            material: what leaves, as text.
        """
        for writer in self._writers:
            size = text_characters(item.source for item in self._items)
            asked, told = await run_rules_off_loop(size, self._apart, request, whole, is_remote=writer.remote)
            in_place, told_there = await run_rules_off_loop(
                size, self._in_place, writer.summarizer, planned, request
            )
            try:
                written = await writer.write(
                    asked, notes, read_tokens=read_tokens, material=material, in_place=in_place
                )
            except SummarizerError as error:
                if self._config.on_failure == "raise" and writer is self._writers[-1]:
                    raise
                self._writer.fail(error)
                continue
            self._note_paid(writer, written)
            return written.notes, told_there if written.in_place else told
        # What a user says in messages that stay is told by them, and not here again.
        asked = replace(request, context=(*request.context, self._spoken))
        rules = self._engine.rules
        written = await rules.write(asked, notes, read_tokens=read_tokens, places=self._places)
        self._note_paid(rules, written)
        return written.notes, []

    def _note_paid(self, writer: NotesWriter | RulesWriter, written: Written) -> None:
        self._writer.use.add(written.paid, remote=writer.remote, by=writer.name)


def _notes_of(earlier: Sequence[SegmentEdit]) -> Notes:
    """Return the notes so far: what segments of an earlier release say are their first lines."""
    notes = Notes()
    for edit in earlier:
        if edit.is_notes:
            notes = notes.joined(edit.as_notes)
        elif said := summary_of(edit.text, edit.standing, edit.notes):
            notes = notes.added(sendable(said))
    return notes


def _among(openings: Mapping[ItemKey, str], key: ItemKey) -> str:
    """Return how a message begins, and which it is of several that begin so."""
    same = [one for one, opening in openings.items() if opening == openings[key]]
    which = f" (number {same.index(key) + 1} of the {len(same)} that begin so)" if len(same) > 1 else ""
    return openings[key] + which


class _Said(NamedTuple):
    """What a user said that stays."""

    position: int
    key: ItemKey
    msg: Msg
    """As a summariser reads it: head and tail, where it is long."""


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
