"""Making a stored text again from history and ledger: for refs that are pending, or that a store has lost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from context_compressor.compression.edits import ItemKey, SegmentEdit, StubEdit
from context_compressor.compression.ledger import Ledger
from context_compressor.compression.redaction import Redact, shown_message, stored_text
from context_compressor.compression.transcript import Transcript, render_transcript
from context_compressor.compression.view import SEGMENT_NAME
from context_compressor.messages.exchanges import build_exchanges
from context_compressor.messages.msg import Msg, tool_names
from context_compressor.messages.parts import Part, part_at
from context_compressor.offload.pages import page_stub, parse_page
from context_compressor.offload.protocol import ref_of


class Recovery:
    """Render again what a ledger's refs name.

    Args:
        history: `(history key, message)` of every message, in order.
        ledger: the edits; stubs and segments that are live can be recovered.
        redact: what was applied when the texts were stored.
    """

    def __init__(self, history: Iterable[tuple[str, Msg]], ledger: Ledger, redact: Redact | None) -> None:
        self._exchanges = build_exchanges(history)
        self._sources = {
            ItemKey(message.key, message.part): message.msg
            for exchange in self._exchanges
            for message in exchange
        }
        self._names = tool_names(self._sources.values())
        self._ledger = ledger
        self._redact = redact

    def torn_items(self) -> Iterator[ItemKey]:
        """Yield the items that left the view in part of an exchange: its other part cannot stand alone.

        What a call's result is may change without a word of either, where a message comes between them.
        """
        for exchange in self._exchanges:
            items = [ItemKey(message.key, message.part) for message in exchange]
            covered = [item for item in items if self._ledger.segment_of(item) is not None]
            if len(covered) < len(items):
                yield from covered

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
                transcript = self.transcript_of(segment)
                if transcript is not None:
                    for text in (transcript.text, *transcript.media):
                        if ref_of(text) == ref:
                            return text
        return None

    def is_outdated(self, stub: StubEdit) -> bool:
        """Tell whether a message no longer has the text for which a stub stands."""
        part = self._stubbed_part(stub)
        if part is None:
            return True
        if stub.page:
            spans = parse_page(part.text)
            return spans is None or page_stub(spans) != stub.text
        return ref_of(stored_text(part, self._redact)) != stub.ref

    def _stubbed_part(self, stub: StubEdit) -> Part | None:
        source = self._sources.get(stub.item)
        return None if source is None else part_at(source, stub.path)

    def still_gives(self, segment: SegmentEdit) -> bool:
        """Tell whether what a segment covers still gives the transcript that is stored of it."""
        transcript = self.transcript_of(segment)
        return transcript is not None and ref_of(transcript.text) == segment.ref

    def messages_of(self, segment: SegmentEdit) -> list[Msg]:
        """Return the messages that a segment holds beside those it merged, whole, as its index read them."""
        sources = [self._sources[item] for item in segment.items if item in self._sources]
        return [shown_message(source, {}, self._names, self._redact) for source in sources]

    def transcript_of(self, segment: SegmentEdit) -> Transcript | None:
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
