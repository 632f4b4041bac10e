"""What history and ledger still say of stored texts: to make one again, to withdraw what no longer holds."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator
from dataclasses import replace

from context_compressor.core.edits import (
    SEGMENT_PART,
    EditT,
    ItemKey,
    SegmentEdit,
    StubEdit,
    with_words,
)
from context_compressor.core.items import SEGMENT_NAME
from context_compressor.core.ledger import Ledger
from context_compressor.core.shown import (
    Redact,
    Transcript,
    render_transcript,
    said_ref,
    shown_message,
    stored_text,
)
from context_compressor.errors import OffloadCorruptError, OffloadError, OffloadNotFoundError
from context_compressor.messages.exchanges import build_exchanges
from context_compressor.messages.msg import Msg, tool_names
from context_compressor.messages.parts import Part, part_at
from context_compressor.offload.store import ref_of
from context_compressor.tokens.off_loop import run_off_loop

logger = logging.getLogger(__name__)


class Recovery:
    """Render again what a ledger's refs name, and withdraw what no longer holds by that.

    Args:
        history: `(history key, message)` of every message, in order.
        ledger: the edits; stubs and segments that are live can be recovered.
        redact: what was applied when the texts were stored.
        read: returns a text from the store, for the words of merged segments; raises `OffloadError`.
        bare: keys of messages of which there are skeletons: they say what they always said, and are there to
            be paired. No text is made of them.
    """

    def __init__(
        self,
        history: Iterable[tuple[str, Msg]],
        ledger: Ledger,
        redact: Redact | None,
        read: Callable[[str], Awaitable[str]],
        bare: Container[str] = (),
    ) -> None:
        self._exchanges = build_exchanges(history, ledger.decisions)
        self._sources = {
            ItemKey(message.key, message.part): message.msg
            for exchange in self._exchanges
            for message in exchange
        }
        self._names = tool_names(self._sources.values())
        self._ledger = ledger
        self._redact = redact
        self._read = read
        self._bare = bare

    async def text_of(self, ref: str) -> str | None:
        """Return the text under `ref`, or None when history no longer gives a text with this ref."""
        for stub in self._ledger.stubs():
            if stub.ref == ref and not stub.page:
                part = self._stubbed_part(stub)
                text = None if part is None else stored_text(part, self._redact)
                if text is not None and ref_of(text) == ref:
                    return text
        for segment in self._ledger.segments():
            if ref == segment.ref or ref in segment.media_refs:
                transcript = await self._transcript_of(segment)
                if transcript is not None:
                    for text in (transcript.text, *transcript.media):
                        if ref_of(text) == ref:
                            return text
        return None

    def messages_under(self, ref: str) -> str | None:
        """Return the messages under a merged segment, where the words of those that it merged are gone.

        A store that lost them, by a quota say, left the messages that these were of, which say all that they
        said.
        """
        segment = next((one for one in self._ledger.segments() if one.ref == ref and one.children), None)
        if segment is None or segment.is_notes:
            return None
        items: list[ItemKey] = []
        todo = [segment]
        while todo:
            one = todo.pop()
            items += reversed(one.items)
            todo += [child for id in one.children if (child := self._ledger.segment(id)) is not None]
        said = (item for item in reversed(items) if item in self._sources and item.key not in self._bare)
        there = [(item, self._sources[item]) for item in said]
        texts = [{path: stub.text for path, stub in self._ledger.stubs_of(item).items()} for item, _ in there]
        shown = [
            shown_message(source, stubs, self._names, self._redact)
            for (_, source), stubs in zip(there, texts, strict=True)
        ]
        return render_transcript(shown).text

    async def _transcript_of(self, segment: SegmentEdit) -> Transcript | None:
        """Return a segment's transcript, or None when a text in it is nowhere any more."""
        if segment.is_notes:
            return self._render(segment, ())
        children = [self._ledger.segment(child) for child in segment.children]
        try:
            merged = [await self._with_words(child) for child in children if child is not None]
        except OffloadError:
            return None
        return self._render(segment, merged)

    async def _with_words(self, edit: EditT) -> EditT:
        """Return an edit with its words, which may be in the store alone."""
        if edit.text:
            return edit
        if edit.words_ref is None:
            raise OffloadNotFoundError(f"the words of what left under {edit.ref} are not kept any more")
        return with_words(edit, await self._read(edit.words_ref))

    def _render(self, segment: SegmentEdit, merged: Iterable[SegmentEdit]) -> Transcript | None:
        """Return the transcript of merged segments and a segment's own items; None when an item is gone."""
        messages = [Msg(SEGMENT_NAME, edit.text, "user", timestamp="", id=edit.id) for edit in merged]
        children = len(messages)
        for item in segment.items:
            source = self._sources.get(item)
            if source is None or item.key in self._bare:
                return None
            stubs = {path: stub.text for path, stub in self._ledger.stubs_of(item).items()}
            messages.append(shown_message(source, stubs, self._names, self._redact))
        before = segment.children if segment.is_notes else ()
        refs = [one.ref for id in before if (one := self._ledger.segment(id)) is not None]
        return render_transcript(messages, segments=children, before=refs)

    def _stubbed_part(self, stub: StubEdit) -> Part | None:
        source = None if stub.item.key in self._bare else self._sources.get(stub.item)
        return None if source is None else part_at(source, stub.path)

    # What no longer holds

    async def withdraw_outdated(self, characters: int) -> None:
        """Withdraw stubs and segments whose messages are gone or say something else now, and those of
        segments that were told of such messages.

        Stubs, and segments that stand in the view again, get their words back. Nobody else may change stubs
        and segments meanwhile.

        Args:
            characters: of all texts; where they are many, the work is done in threads.
        """
        ledger = self._ledger
        await self._give_words_back()
        stubs = list(ledger.stubs())
        outdated = await run_off_loop(characters, lambda: [s.item for s in stubs if self._is_outdated(s)])
        for item in outdated:
            ledger.withdraw(item)
        # Stubs stand in transcripts: look at those only after the stubs, or a changed text could pass.
        for segment in list(ledger.segments()):
            if ledger.segment(segment.id) is None or not segment.items:
                continue
            if not await run_off_loop(characters, self._still_gives, segment):
                ledger.withdraw_segment(segment.id)
        while torn := await run_off_loop(characters, list, self._torn_items()):
            for item in torn:
                ledger.withdraw_segments_over(item)
        while True:
            await self._give_words_back()
            repeating = await run_off_loop(characters, self._repeat_what_is_gone)
            if not repeating:
                return
            for segment_id in repeating:
                if ledger.segment(segment_id) is not None:  # it may have gone with one that merged it
                    ledger.withdraw_segment(segment_id)

    async def _give_words_back(self) -> None:
        """Give their words to edits that are shown; withdraw those whose words cannot be read."""
        is_answering = True
        lost: list[str] = []
        while shown := self._ledger.shown_without_words():
            for edit in filter(self._ledger.holds, shown):  # a withdrawal may take others with it
                try:
                    if not is_answering:
                        raise OffloadNotFoundError(f"{edit.words_ref} was not asked for")
                    self._ledger.replace(await self._with_words(edit))
                except (OffloadError, KeyError, TypeError, ValueError) as error:
                    lost.append(str(error))
                    is_answering = (
                        isinstance(error, OffloadCorruptError | OffloadNotFoundError) and is_answering
                    )
                    if isinstance(edit, StubEdit):
                        self._ledger.withdraw(edit.item)
                    else:
                        self._ledger.withdraw_segment(edit.id)
        if lost:
            logger.warning(
                "%d stand-ins are withdrawn, their words cannot be read, the last for: %s",
                len(lost),
                lost[-1],
            )

    def _is_outdated(self, stub: StubEdit) -> bool:
        """Tell whether a message no longer has the text for which a stub stands."""
        if stub.item.key in self._bare:
            return stub.item not in self._sources
        part = self._stubbed_part(stub)
        if part is None:
            return True
        if stub.page:
            return not part.text.startswith(f"[{stub.ref} ")
        return ref_of(stored_text(part, self._redact)) != stub.ref

    def _still_gives(self, segment: SegmentEdit) -> bool:
        """Tell whether what a segment covers still gives the transcript that is stored of it."""
        if any(item.key in self._bare for item in segment.items):
            return all(item in self._sources for item in segment.items)
        own = self._render(segment, ())
        if own is None:
            return False
        items_ref = ref_of(own.text)
        expected = segment.items_ref if segment.children and not segment.is_notes else segment.ref
        if expected is not None:
            return items_ref == expected
        # An earlier release made it, and the words of those that it merged are still here.
        merged = [edit for child in segment.children if (edit := self._ledger.segment(child)) is not None]
        whole = self._render(segment, merged)
        if whole is None or ref_of(whole.text) != segment.ref:
            return False
        self._ledger.replace(replace(segment, items_ref=items_ref))
        return True

    def _repeat_what_is_gone(self) -> list[str]:
        """Return the ids of segments that were told of what is gone or says something else now."""
        said: dict[ItemKey, str | None] = {}
        told = {item for segment in self._ledger.segments() for item, _ in segment.told}
        # What left since then says what it said, or the part that it left with were withdrawn.
        told = {item for item in told if self._ledger.segment_of(item) is None}
        unsaid = {item for item in told if item.key in self._bare and item in self._sources}
        for item in told - unsaid:
            if item.part == SEGMENT_PART:
                segment = self._ledger.segment(item.key)
                said[item] = None if segment is None else segment.ref
            else:
                source = self._sources.get(item)
                said[item] = None if source is None else said_ref(source, self._redact)
        return [
            segment.id
            for segment in self._ledger.segments()
            if any(said[item] != ref for item, ref in segment.told if item in said)
        ]

    def _torn_items(self) -> Iterator[ItemKey]:
        """Yield the items that left the view in part of an exchange: its other part cannot stand alone.

        What a call's result is may change without a word of either, where a message comes between them.
        """
        for exchange in self._exchanges:
            items = [ItemKey(message.key, message.part) for message in exchange]
            covered = [item for item in items if self._ledger.segment_of(item) is not None]
            if len(covered) < len(items):
                yield from covered
