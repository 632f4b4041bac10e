"""Segments: what one stands for, stored and summarised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from context_compressor.compression.config import CompressionConfig
from context_compressor.compression.done import Performed, Writer
from context_compressor.compression.edits import ItemKey, SegmentEdit
from context_compressor.compression.items import ViewItem, segment_tokens
from context_compressor.compression.labels import (
    fit_notes,
    fit_standing,
    newest_once,
    notes_section,
    notes_tokens,
    segment_text,
    standing_section,
    standing_tokens,
    summary_of,
)
from context_compressor.compression.plans import PlannedSegment
from context_compressor.compression.shown import Redact, abridge, render_transcript, shown_message
from context_compressor.compression.stubs import StubMaker, may_hold_pages
from context_compressor.errors import SummarizerError
from context_compressor.messages.msg import Msg, is_staying, segment_metadata, staying_metadata
from context_compressor.messages.parts import PartPath
from context_compressor.messages.standing import standing_in
from context_compressor.messages.text import sendable
from context_compressor.offload.store import ref_of
from context_compressor.summarizers.checking import summarize_checked
from context_compressor.summarizers.cutting import cut
from context_compressor.summarizers.parts import InParts
from context_compressor.summarizers.protocol import Summarizer, SummaryRequest
from context_compressor.tokens.counter import TokenCounter
from context_compressor.tokens.off_loop import run_rules_off_loop, text_characters

_STAYING_CHARS = 200
"""So much of a message that stays tells which it is."""


@dataclass(frozen=True, slots=True)
class Material:
    """What a segment is to stand for."""

    items: Sequence[ViewItem]
    stored: Sequence[Msg]
    """As the transcript has them: redacted, with stubs in place."""
    read: Sequence[Msg]
    """As summarisers read them: redacted, without stubs; of earlier segments the summary alone."""
    standing: tuple[str, ...]
    """The standing instructions in all of it, redacted, the oldest first."""

    @property
    def children(self) -> int:
        """How many earlier segments it begins with."""
        return sum(item.kind == "segment" for item in self.items)

    @property
    def message_count(self) -> int:
        """How many messages of the history the segment covers, those of earlier segments included."""
        merged = sum(len(item.covered) for item in self.items if item.kind == "segment")
        return merged + len({item.key.key for item in self.items if item.kind != "segment"})

    @property
    def stands_for_tokens(self) -> int:
        """Tokens of those messages, as `ViewItem.stands_for_tokens`."""
        return sum(item.stands_for_tokens for item in self.items)

    @property
    def read_tokens(self) -> int:
        """About how many tokens a model reads of it."""
        return sum(item.read_tokens for item in self.items)

    @property
    def notes(self) -> tuple[str, ...]:
        """The agent's notes in earlier segments, the oldest first."""
        return newest_once(note for item in self.items for note in item.notes)

    @property
    def says_something(self) -> bool:
        """Whether there is anything to summarise: earlier segments may only name their refs."""
        return not all(map(is_staying, self.read))


async def gather_material(
    planned: PlannedSegment,
    new_stubs: Mapping[ItemKey, Mapping[PartPath, str]],
    names: Mapping[str, str],
    stubs: StubMaker,
    redact: Redact | None,
    said: Sequence[tuple[int, Msg]],
    done: Performed,
) -> Material:
    """Return what is to leave, as it is stored and read; pages in it are stubbed, their texts being stored.

    Args:
        planned: what that is.
        new_stubs: the stubs that the event has made.
        names: tool names by call id.
        stubs: makes stubs of pages.
        redact: what every text goes through, segments apart, which went through it when they were made.
        said: what users said that stays, each with where it stands: it is read at its place.
        done: receives the stubs of pages.

    Raises:
        RedactionError: the user's callable failed.
    """
    items = [item for unit in planned.units for item in unit.items]
    places = [unit.position for unit in planned.units for _ in unit.items]
    stored: list[Msg] = []
    read: list[Msg] = []
    standing: list[str] = []
    have_pages = may_hold_pages(names)
    waiting = list(said)
    for item, place in zip(items, places, strict=True):
        while item.kind != "segment" and waiting and waiting[0][0] < place:
            read.append(waiting.pop(0)[1])
        if item.kind == "segment":
            standing += item.standing
            stored.append(item.source)
            summary = summary_of(str(item.source.content), item.standing, item.notes)
            if summary is not None:
                read.append(summary_message(summary))
            continue
        texts = {path: stub.text for path, stub in item.stubs.items()}
        texts |= new_stubs.get(item.key, {})
        if have_pages:
            texts |= await stubs.stub_pages(item, texts, names, done)
        stored.append(shown_message(item.source, texts, names, redact))
        read.append(shown_message(item.source, {}, names, redact) if texts else stored[-1])
        if redact is None:
            standing += item.standing
        elif item.standing:  # a rule may be on what it leaves of the sentences around
            standing += await run_rules_off_loop(text_characters(read[-1:]), standing_in, read[-1])
    return Material(items, stored, read, newest_once(standing))


def summary_message(summary: str) -> Msg:
    """Return the summary of an earlier segment as a message that summarisers read as such."""
    return Msg("memory", summary, "user", segment_metadata(), timestamp="", id="")


def staying_message(msg: Msg) -> Msg:
    """Return what a user said that stays as a message that only tells the order, cut where it is long."""
    text = cut(msg.get_text_content() or "", _STAYING_CHARS)
    return Msg(msg.name, text, "user", staying_metadata(), timestamp="", id="")


_LEAST_PROSE_TOKENS = 32
"""With less room than a sentence or two nobody is asked for a summary."""
_LONGER = 0.1
"""Share by which a summary may be too long where the view has room for it: to cut it, or to ask again, costs
more than it saves."""


@dataclass(frozen=True, slots=True)
class Around:
    """What segments are made with beside what they stand for."""

    new_stubs: Mapping[ItemKey, Mapping[PartPath, str]]
    """The stubs that the event has made."""
    names: Mapping[str, str]
    """Tool names by call id."""
    bare_tokens: int
    """What a segment costs that only names its ref."""
    spare_tokens: int
    """What each segment may cost above its plan."""
    context: tuple[Msg, ...]
    """Segments that stay, and what users said before that stays."""
    between: tuple[tuple[int, Msg], ...]
    """What users said amid it that stays, each with its position in the view."""
    context_tokens: int
    request: str | None
    """What the agent works on now."""
    said: frozenset[str]
    """Standing instructions in messages that stay: nobody has to repeat them."""
    spoken: str
    """All that users said in messages that stay."""
    note: str | None
    """What the agent asked to keep; summarisers are to mind it."""


class MadeSegment(NamedTuple):
    """A segment, its id still to be given."""

    edit: SegmentEdit
    note: str | None
    """What the agent asked it to keep, as its text says it; None where that says nothing of it."""


class SegmentMaker:
    """Make segments: render and store what leaves, summarise it, and put that into words that fit.

    Args:
        config: redaction, timeouts in seconds, what failures lead to.
        writer: stores what leaves.
        stubs: makes stubs of pages.
        summarizer: who writes summaries.
        fallback: who writes them when that fails; it should not be able to.
        counter: measures segments.
    """

    def __init__(
        self,
        config: CompressionConfig,
        writer: Writer,
        stubs: StubMaker,
        summarizer: Summarizer,
        fallback: Summarizer,
        counter: TokenCounter,
    ) -> None:
        self._config = config
        self._writer = writer
        self._stubs = stubs
        self._summarizer = InParts(summarizer, counter)
        self._fallback = fallback
        self._counter = counter

    async def make(
        self, planned: PlannedSegment, around: Around, done: Performed, *, noted: bool, guide: str
    ) -> MadeSegment:
        """Store and summarise what a segment is to stand for.

        Args:
            planned: what that is.
            around: what it is made with.
            done: receives what was stored, and what failed.
            noted: whether this segment is to show the agent's note.
            guide: what it is to say of the tools.
        """
        count = self._counter.count_text
        material = await gather_material(
            planned, around.new_stubs, around.names, self._stubs, self._config.redact, around.between, done
        )
        transcript = render_transcript(material.stored, segments=material.children)
        ref = await self._writer.write_own(transcript.text, done)
        media_refs = [await self._writer.write_own(media, done) for media in transcript.media]
        replaced = sum(unit.tokens for unit in planned.units)
        own = around.note if noted else None
        notes = newest_once([*material.notes, own]) if own else material.notes
        every = tuple(line for line in material.standing if line not in around.said)
        if not planned.summary_tokens:
            text = segment_text(ref, material.message_count, None, guide=guide)
            if guide and segment_tokens(text, self._counter) > around.bare_tokens:
                text = segment_text(ref, material.message_count, None)
            room = min(around.bare_tokens + around.spare_tokens, replaced - 1)
            room -= segment_tokens(text, self._counter)
            shown = fit_notes(notes, room, self._counter) if own else ()
            text += notes_section(shown)
            # What finds no room is kept for when it is merged.
            edit = self._edit(ref, media_refs, material, text, every, shown or notes, summarized=False)
            return MadeSegment(edit, shown[-1] if shown else None)

        standing = fit_standing(every, planned.standing_tokens, self._counter)
        left_out = len(every) - len(standing)
        left = planned.summary_tokens - standing_tokens(standing, left_out, count)
        left -= count(f" {guide}.") if guide else 0
        spare = max(0, min(around.spare_tokens, replaced - planned.summary_tokens - around.bare_tokens - 1))
        own_room = min(spare, notes_tokens([own], count)) if own else 0
        fitted = fit_notes(notes, max(left // 2, 0) + own_room, self._counter)
        left -= max(notes_tokens(fitted, count) - own_room, 0)
        summary = None
        if material.says_something and left >= _LEAST_PROSE_TOKENS:
            request = self._request(material, left, standing, around)
            longer = min(int(_LONGER * left), spare - own_room)
            read_tokens = material.read_tokens + around.context_tokens
            summary = await self._summarize(
                request, around.spoken, longer, read_tokens, transcript.text, done
            )
        text_with = partial(
            segment_text, ref, material.message_count, summary, standing=standing, left_out=left_out
        )
        if own and fitted[-1:] != (own,):
            # The note was cut or left out for room: the summary may have left some, as may the view.
            most = min(around.bare_tokens + planned.summary_tokens + spare, replaced - 1)
            found = fit_notes(
                notes, most - segment_tokens(text_with(guide=guide), self._counter), self._counter
            )
            fitted = max(fitted, found, key=lambda kept: len(kept[-1]) if kept else 0)
        text = sendable(text_with(notes=fitted, guide=guide))
        # Texts are reckoned alone, and a counter may find more in a message, as its JSON is longer.
        if segment_tokens(text, self._counter) >= replaced:
            text = segment_text(ref, material.message_count, None)
            edit = self._edit(ref, media_refs, material, text, every, notes, summarized=False)
            return MadeSegment(edit, None)
        edit = self._edit(ref, media_refs, material, text, standing, fitted, summarized=summary is not None)
        return MadeSegment(edit, fitted[-1] if own and fitted else None)

    @staticmethod
    def _edit(
        ref: str,
        media_refs: Sequence[str],
        material: Material,
        text: str,
        standing: tuple[str, ...],
        notes: tuple[str, ...],
        *,
        summarized: bool,
    ) -> SegmentEdit:
        own = material.stored[material.children :]
        items_ref = ref_of(render_transcript(own).text) if own and material.children else None
        return SegmentEdit(
            id="",
            items=tuple(item.key for item in material.items if item.kind != "segment"),
            children=tuple(item.key.key for item in material.items if item.kind == "segment"),
            ref=ref,
            media_refs=tuple(media_refs),
            text=text,
            summarized=summarized,
            notes=notes,
            standing=standing,
            stands_for_tokens=material.stands_for_tokens,
            items_ref=items_ref,
        )

    def _request(
        self, material: Material, max_tokens: int, standing: Sequence[str], around: Around
    ) -> SummaryRequest:
        """Return the request; the oldest summary of a merge is the text that is to be updated."""
        messages, previous = list(material.read), None
        if material.items[0].kind == "segment" and len(messages) > 1:
            previous = str(messages.pop(0).content)
        beside = [summary_message(standing_section(standing).strip())] if standing else []
        return SummaryRequest(
            messages=tuple(messages),
            max_tokens=max_tokens,
            previous=previous,
            context=(*around.context, *beside),
            request=around.request,
            instructions=self._config.summary_instructions or None,
            note=around.note or None,
        )

    async def _summarize(
        self,
        request: SummaryRequest,
        spoken: str,
        longer: int,
        read_tokens: int,
        material: str,
        done: Performed,
    ) -> str | None:
        """Return a checked summary by the first means that gives one; None when none does.

        Args:
            request: as a summariser without a model reads it; of long results a model reads a part.
            spoken: what users said in messages that stay.
            longer: tokens by which the summary may be too long.
            read_tokens: about how many tokens a model reads of it.
            material: what was summarised, as text.
            done: receives what failed, and what it cost.
        """
        for summarizer in (self._summarizer, self._fallback):
            remote = summarizer.remote
            # What a user says in messages that stay is told by them: an extract does not tell it again.
            staying = Msg("user", spoken, "user", timestamp="", id="")
            asked = request if remote else replace(request, context=(*request.context, staying))
            if remote:
                characters = text_characters(request.messages)
                short = await run_rules_off_loop(characters, abridge, request.messages, self._counter)
                asked = replace(request, messages=short)
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
                done.fail(error)
                continue
            if remote:
                done.use.add_remote(summary)
            else:
                done.use.input_tokens += summary.input_tokens
                done.use.output_tokens += summary.output_tokens
            return summary.text
        return None
