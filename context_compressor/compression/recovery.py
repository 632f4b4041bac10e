"""What history and ledger still say of stored texts: to make one again, to withdraw what no longer holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from context_compressor.compression.edits import ItemKey, SegmentEdit, StubEdit, refs_of
from context_compressor.compression.items import SEGMENT_NAME
from context_compressor.compression.ledger import Ledger
from context_compressor.compression.shown import (
    Redact,
    Transcript,
    render_transcript,
    shown_message,
    stored_text,
)
from context_compressor.messages.exchanges import build_exchanges
from context_compressor.messages.msg import Msg, tool_names
from context_compressor.messages.parts import Part, part_at
from context_compressor.offload.pages import page_stub, parse_page
from context_compressor.offload.store import REF_PATTERN, ref_of
from context_compressor.tokens.off_loop import run_off_loop


class Recovery:
    """Render again what a ledger's refs name, and withdraw what no longer holds by that.

    Args:
        history: `(history key, message)` of every message, in order.
        ledger: the edits; stubs and segments that are live can be recovered.
        redact: what was applied when the texts were stored.
    """

    def __init__(self, history: Iterable[tuple[str, Msg]], ledger: Ledger, redact: Redact | None) -> None:
        self._exchanges = build_exchanges(history, ledger.decisions)
        self._sources = {
            ItemKey(message.key, message.part): message.msg
            for exchange in self._exchanges
            for message in exchange
        }
        self._names = tool_names(self._sources.values())
        self._ledger = ledger
        self._redact = redact

    def text_of(self, ref: str) -> str | None:
        """Return the text under `ref`, or None when history no longer gives a text with this ref."""
        for stub in self._ledger.stubs():
            if stub.ref == ref and not stub.page:
                part = self._stubbed_part(stub)
                text = None if part is None else stored_text(part, self._redact)
                if text is not None and ref_of(text) == ref:
                    return text
        for segment in self._ledger.segments():
            if ref == segment.ref or ref in segment.media_refs:
                transcript = self._transcript_of(segment)
                if transcript is not None:
                    for text in (transcript.text, *transcript.media):
                        if ref_of(text) == ref:
                            return text
        return None

    def _transcript_of(self, segment: SegmentEdit) -> Transcript | None:
        """Return a segment's transcript, or None when a message that it covers is gone."""
        messages: list[Msg] = []
        for child in segment.children:
            edit = self._ledger.segment(child)
            if edit is None:
                return None
            messages.append(Msg(SEGMENT_NAME, edit.text, "user", timestamp="", id=edit.id))
        for item in segment.items:
            source = self._sources.get(item)
            if source is None:
                return None
            stubs = {path: stub.text for path, stub in self._ledger.stubs_of(item).items()}
            messages.append(shown_message(source, stubs, self._names, self._redact))
        return render_transcript(messages, segments=len(segment.children))

    def _stubbed_part(self, stub: StubEdit) -> Part | None:
        source = self._sources.get(stub.item)
        return None if source is None else part_at(source, stub.path)

    # What no longer holds

    async def withdraw_outdated(self, characters: int) -> None:
        """Withdraw stubs and segments whose messages are gone or say something else now.

        Nobody else may change stubs and segments meanwhile.

        Args:
            characters: of all texts; where they are many, the work is done in threads.
        """
        ledger = self._ledger
        stubs = list(ledger.stubs())
        outdated = await run_off_loop(characters, lambda: [s.item for s in stubs if self._is_outdated(s)])
        for item in outdated:
            ledger.withdraw(item)
        # Stubs stand in transcripts: look at those only after the stubs, or a changed text could pass.
        for segment in list(ledger.segments()):
            if ledger.segment(segment.id) is None or not segment.items:
                continue
            if not await run_off_loop(characters, self._still_gives, segment):
                ledger.withdraw_segments_over(segment.items[0])
        while torn := await run_off_loop(characters, list, self._torn_items()):
            for item in torn:
                ledger.withdraw_segments_over(item)
        # A page is read again from its sources; those may be transcripts that hold withdrawn pages.
        while pages := self._pages_without_source():
            for item in pages:
                ledger.withdraw(item)

    def _is_outdated(self, stub: StubEdit) -> bool:
        """Tell whether a message no longer has the text for which a stub stands."""
        part = self._stubbed_part(stub)
        if part is None:
            return True
        if stub.page:
            spans = parse_page(part.text)
            return spans is None or page_stub(spans) != stub.text
        return ref_of(stored_text(part, self._redact)) != stub.ref

    def _still_gives(self, segment: SegmentEdit) -> bool:
        """Tell whether what a segment covers still gives the transcript that is stored of it."""
        transcript = self._transcript_of(segment)
        return transcript is not None and ref_of(transcript.text) == segment.ref

    def _torn_items(self) -> Iterator[ItemKey]:
        """Yield the items that left the view in part of an exchange: its other part cannot stand alone.

        What a call's result is may change without a word of either, where a message comes between them.
        """
        for exchange in self._exchanges:
            items = [ItemKey(message.key, message.part) for message in exchange]
            covered = [item for item in items if self._ledger.segment_of(item) is not None]
            if len(covered) < len(items):
                yield from covered

    def _pages_without_source(self) -> list[ItemKey]:
        """Return the items with pages that show lines of a text which nothing but pages names."""
        ledger = self._ledger
        pages = [stub for stub in ledger.stubs() if stub.page]
        if not pages:
            return []
        sources = {stub.ref for stub in ledger.stubs() if not stub.page}
        sources.update(ref for segment in ledger.segments() for ref in refs_of(segment))
        return [page.item for page in pages if not sources.issuperset(REF_PATTERN.findall(page.text))]
