"""Making segments: what stands for a group of exchanges, or of earlier segments, that leaves the view."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from context_compressor.compression.abridging import abridge
from context_compressor.compression.config import CompressionConfig
from context_compressor.compression.edits import SegmentEdit
from context_compressor.compression.labels import segment_text, summary_of, without_index
from context_compressor.compression.material import Material, gather_material
from context_compressor.compression.notes import fit_notes, newest_once, notes_tokens
from context_compressor.compression.performed import Performed
from context_compressor.compression.plans import PlannedSegment
from context_compressor.compression.stubbing import StubMaker
from context_compressor.compression.surroundings import Surroundings
from context_compressor.compression.transcript import render_transcript
from context_compressor.compression.view import segment_tokens
from context_compressor.compression.writing import Writer
from context_compressor.errors import SummarizerError
from context_compressor.messages.escapes import sendable
from context_compressor.messages.msg import Msg
from context_compressor.summarizers.extracts.artifacts import Artifacts, index_artifacts, names_in
from context_compressor.summarizers.identifiers.uses import Names
from context_compressor.summarizers.map_reduce import InParts
from context_compressor.summarizers.protocol import Summarizer, SummaryRequest
from context_compressor.summarizers.validation import summarize_checked
from context_compressor.tokens.off_loop import run_rules_off_loop, text_characters
from context_compressor.tokens.protocol import TokenCounter

PROSE_SHARE = 0.15
"""Share of a segment's room for what the summariser writes; the rest is for the index of artifacts."""
_MIN_PROSE_TOKENS = 48
"""What the summariser has in any room: two or three sentences. Chosen, as the share; what a segment is
worth that is all prose, `benchmarks/ablation.py` tells."""
_HEADING_TOKENS = 6
"""What the heading of the index costs at most, by any vocabulary in use."""


class _OwnNote(NamedTuple):
    """What the agent asked a segment to keep."""

    text: str
    room: int
    """Tokens that the segment may cost above its plan to show it."""


class _Room(NamedTuple):
    """Tokens of what a segment says, and the notes that fit beside it."""

    prose_tokens: int
    index_tokens: int
    notes: tuple[str, ...]


class _Said(NamedTuple):
    """What a segment says of its material; nothing where it only names its ref."""

    summary: str | None = None
    facts: tuple[str, ...] = ()
    """The lines of its index."""
    names: Names | None = None
    """Who named what in its messages; None where no index will ever ask."""


class MadeSegment(NamedTuple):
    """A segment, its id still to be given."""

    edit: SegmentEdit
    names: Names | None
    """Who named what in the messages that it stands for; None where no index will ever ask."""
    note: str | None
    """What the agent asked it to keep, as its text says it; None where that says nothing of it."""


class SegmentMaker:
    """Make segments: render and store what leaves, index and summarise it, and put that into words that fit.

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
        self,
        planned: PlannedSegment,
        around: Surroundings,
        done: Performed,
        *,
        note_room: int | None,
        guide: str,
    ) -> MadeSegment:
        """Store, index and summarise what a segment is to stand for.

        Args:
            planned: what that is.
            around: what it is made with.
            done: receives what was stored, and what failed.
            note_room: tokens that this segment may cost above its plan to show the agent's note; None where
                it is not to.
            guide: what it is to say of the tools.
        """
        bare_tokens = around.bare_tokens
        material = await gather_material(planned, around, self._stubs, self._config.redact, done)
        transcript = render_transcript(material.messages, segments=material.children)
        ref = await self._writer.write_own(transcript.text, done)
        media_refs = [await self._writer.write_own(media, done) for media in transcript.media]
        material.take_out_notes()
        replaced_tokens = sum(unit.tokens for unit in planned.units)
        own = _OwnNote(around.note, note_room) if around.note and note_room is not None else None
        notes = newest_once([*material.notes, own.text]) if own else material.notes
        gain = replaced_tokens - planned.summary_tokens - bare_tokens
        room = self._divide(planned.summary_tokens, notes, own, gain, guide)
        if planned.summary_tokens and material.says_something:
            left = replaced_tokens - bare_tokens
            said = await self._say(material, transcript.text, room, left, around, done)
        else:
            said = await self._say_nothing(material)
        text_with = partial(segment_text, ref, material.message_count, said.summary)
        if (
            guide
            and not planned.summary_tokens
            and segment_tokens(text_with(guide=guide), self._counter) > bare_tokens
        ):
            guide = ""
        shown = room.notes
        if own and shown[-1:] != (own.text,):
            # The note was cut or left out for room: the index may have left some, as may the view's gain.
            most = min(bare_tokens + planned.summary_tokens + own.room, replaced_tokens - 1)
            without = segment_tokens(text_with(said.facts, guide=guide), self._counter)
            found = fit_notes(notes, most - without, self._counter)
            shown = max(shown, found, key=lambda kept: len(kept[-1]) if kept else 0)
        # Texts are reckoned alone, and a counter may find more in a message, as its JSON is longer.
        bare = segment_text(ref, material.message_count, None)
        indices = (said.facts, ()) if said.facts else ((),)
        texts = (sendable(text_with(facts, notes=shown, guide=guide)) for facts in indices)
        fitting = (text for text in texts if segment_tokens(text, self._counter) < replaced_tokens)
        text = next(fitting, None)
        if text is None:
            said, shown, text = said._replace(summary=None), (), bare
        edit = SegmentEdit(
            id="",
            items=tuple(item.key for item in material.items if item.kind != "segment"),
            children=tuple(item.key.key for item in material.items if item.kind == "segment"),
            ref=ref,
            media_refs=tuple(media_refs),
            text=text,
            summarized=said.summary is not None,
            # Where only a ref is left, notes that found no room are kept for when the segment is merged.
            notes=shown or (() if planned.summary_tokens and text != bare else notes),
        )
        return MadeSegment(edit, said.names, shown[-1] if own and shown else None)

    async def _say(
        self,
        material: Material,
        transcript: str,
        room: _Room,
        replaced_tokens: int,
        around: Surroundings,
        done: Performed,
    ) -> _Said:
        """Index and summarise; `replaced_tokens` are those that index and summary may not reach together."""
        facts, named = await self._index(material.whole, room.index_tokens, around, done)
        written = await self._summarize(
            self._request(material, room.prose_tokens, around.note),
            replaced_tokens - room.index_tokens,
            sum(item.tokens for item in material.items),
            transcript,
            done,
        )
        return _Said(written, tuple(f for f in facts if written is None or f not in written), named)

    async def _say_nothing(self, material: Material) -> _Said:
        """Note who named what: an index may ask later, unless there is never to be one."""
        if self._config.mode == "compact":
            return _Said()
        return _Said(
            names=await run_rules_off_loop(text_characters(material.whole), names_in, material.whole)
        )

    def _divide(
        self, summary_tokens: int, notes: Sequence[str], own: _OwnNote | None, gain: int, guide: str
    ) -> _Room:
        """Divide what a segment may say between prose, notes and index."""
        count = self._counter.count_text
        left = summary_tokens - (count(f" {guide}.") if guide else 0)
        prose_tokens = min(max(_MIN_PROSE_TOKENS, int(PROSE_SHARE * summary_tokens)), left)
        left -= prose_tokens + _HEADING_TOKENS
        own_tokens = max(0, min(own.room, gain - 1, notes_tokens([own.text], count))) if own else 0
        fitted = fit_notes(notes, max(left // 2, 0) + own_tokens, self._counter)
        left -= max(notes_tokens(fitted, count) - own_tokens, 0)
        return _Room(prose_tokens, left, fitted)

    async def _index(
        self, messages: Sequence[Msg], max_tokens: int, around: Surroundings, done: Performed
    ) -> Artifacts:
        """Return an index; an empty one where its rules fail on what somebody wrote to break them."""
        index = partial(
            index_artifacts,
            messages,
            max_tokens,
            self._counter,
            known=around.known,
            before=around.before,
            standing=around.standing,
        )
        try:
            return await run_rules_off_loop(text_characters(messages), index)
        except Exception as error:
            done.fail(error)
            return Artifacts()

    def _request(self, material: Material, max_tokens: int, note: str | None) -> SummaryRequest:
        """Return the request; the oldest summary of a merge is what the new one carries forward."""
        messages, previous = material.messages, None
        if material.children and len(messages) > 1:
            oldest = messages[0].content
            assert isinstance(oldest, str)
            previous = summary_of(oldest)
        return SummaryRequest(
            messages=tuple(messages if previous is None else messages[1:]),
            max_tokens=max_tokens,
            previous=previous,
            instructions=self._config.summary_instructions or None,
            note=note or None,
        )

    async def _summarize(
        self, request: SummaryRequest, replaced_tokens: int, read_tokens: int, material: str, done: Performed
    ) -> str | None:
        """Return a checked summary by the first means that gives one; None when none does."""
        for summarizer in (self._summarizer, self._fallback):
            asked = request
            if summarizer.remote:
                asked = await self._abridged(request)
            try:
                summary = await summarize_checked(
                    summarizer,
                    asked,
                    self._counter,
                    replaced_tokens=replaced_tokens,
                    # A model reads the request as messages, and what it parrots is that.
                    material=None if summarizer.remote else material,
                    input_tokens_estimate=read_tokens,
                    timeout_seconds=self._config.summarizer_timeout_seconds,
                )
            except SummarizerError as error:
                if self._config.on_failure == "raise":
                    raise
                done.fail(error)
                continue
            if summarizer.remote:
                done.use.add_remote(summary)
            else:
                done.use.input_tokens += summary.input_tokens
                done.use.output_tokens += summary.output_tokens
            return summary.text
        return None

    async def _abridged(self, request: SummaryRequest) -> SummaryRequest:
        """Return a request as a model reads it: every token costs, so of long results it sees a part."""
        shorten = partial(abridge, request.messages, self._counter)
        messages = await run_rules_off_loop(text_characters(request.messages), shorten)
        previous = request.previous
        return replace(request, messages=messages, previous=without_index(previous) if previous else previous)
