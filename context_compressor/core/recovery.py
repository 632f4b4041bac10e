"""What history and ledger still say of stored texts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Iterable
from functools import cached_property

from context_compressor.core.edits import SEGMENT_PART, EditT, ItemKey, SegmentEdit, StubEdit, with_words
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
from context_compressor.errors import OffloadError, OffloadNotFoundError
from context_compressor.messages.exchanges import ExchangeMessage
from context_compressor.messages.msg import Msg, tool_names
from context_compressor.messages.parts import Part, part_at
from context_compressor.offload.store import ref_of

Read = Callable[[str], Awaitable[str]]
"""Returns a text from the store, for the words of edits; raises `OffloadError`."""


class Recovery:
    """Render again what a ledger's refs name.

    Args:
        messages: of the history, as they are paired.
        ledger: the edits; stubs and segments that are live can be recovered.
        redact: what was applied when the texts were stored.
        bare: keys of messages of which there are skeletons, of which no text is made.
    """

    def __init__(
        self,
        messages: Iterable[ExchangeMessage],
        ledger: Ledger,
        redact: Redact | None,
        bare: Container[str] = (),
    ) -> None:
        self.messages = {ItemKey(message.key, message.part): message for message in messages}
        self._ledger = ledger
        self.redact = redact
        self._bare = bare

    @cached_property
    def _names(self) -> dict[str, str]:
        return tool_names(message.msg for message in self.messages.values())

    def source_of(self, item: ItemKey) -> Msg | None:
        """Return a message before stubs; None where it is gone, or its text is not at hand."""
        message = self.messages.get(item)
        return None if message is None or item.key in self._bare else message.msg

    def said_ref(self, item: ItemKey) -> str | None:
        """Return the ref of what a message says now, or of what a segment stands for; None: it is gone."""
        if item.part == SEGMENT_PART and (segment := self._ledger.segment(item.key)) is not None:
            return segment.ref
        source = self.source_of(item)
        return None if source is None else said_ref(source, self.redact)

    async def text_of(self, ref: str, read: Read) -> str | None:
        """Return the text under `ref`, or None when history no longer gives a text with this ref."""
        for stub in self._ledger.stubs():
            if stub.ref == ref and not stub.page:
                part = self.stubbed_part(stub)
                text = None if part is None else stored_text(part, self.redact)
                if text is not None and ref_of(text) == ref:
                    return text
        for segment in self._ledger.segments():
            if ref == segment.ref or ref in segment.media_refs:
                transcript = await self._transcript_of(segment, read)
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
        shown = [msg for item in reversed(items) if (msg := self._shown(item)) is not None]
        return render_transcript(shown).text

    async def _transcript_of(self, segment: SegmentEdit, read: Read) -> Transcript | None:
        """Return a segment's transcript, or None when a text in it is nowhere any more."""
        if segment.is_notes:
            return self.render(segment)
        children = [self._ledger.segment(child) for child in segment.children]
        try:
            merged = [await read_words(child, read) for child in children if child is not None]
        except OffloadError:
            return None
        return self.render(segment, merged)

    def render(self, segment: SegmentEdit, merged: Iterable[SegmentEdit] = ()) -> Transcript | None:
        """Return the transcript of merged segments and a segment's own items; None when an item is gone."""
        messages = [Msg(SEGMENT_NAME, edit.text, "user", timestamp="", id=edit.id) for edit in merged]
        children = len(messages)
        for item in segment.items:
            if (shown := self._shown(item)) is None:
                return None
            messages.append(shown)
        before = segment.children if segment.is_notes else ()
        refs = [one.ref for id in before if (one := self._ledger.segment(id)) is not None]
        return render_transcript(messages, segments=children, before=refs)

    def _shown(self, item: ItemKey) -> Msg | None:
        if (source := self.source_of(item)) is None:
            return None
        stubs = {path: stub.text for path, stub in self._ledger.stubs_of(item).items()}
        return shown_message(source, stubs, self._names, self.redact)

    def stubbed_part(self, stub: StubEdit) -> Part | None:
        """Return the part of a message for which a stub stands, as the message is now."""
        source = self.source_of(stub.item)
        return None if source is None else part_at(source, stub.path)

    def has_part(self, stub: StubEdit) -> bool:
        """Tell whether a message has what a stub stands for, whatever it says; of a skeleton nobody knows."""
        return stub.item.key in self._bare or self.stubbed_part(stub) is not None


async def read_words(edit: EditT, read: Read) -> EditT:
    """Return an edit with its words, which may be in the store alone.

    Raises:
        OffloadError: they are not there.
        KeyError, TypeError, ValueError: what is there are no words.
    """
    if edit.text:
        return edit
    if edit.words_ref is None:
        raise OffloadNotFoundError(f"the words of what left under {edit.ref} are not kept any more")
    return with_words(edit, await read(edit.words_ref))
