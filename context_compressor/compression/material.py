"""What a segment is to stand for, as transcripts, summarisers and the index read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from context_compressor.compression.labels import summary_of, without_notes
from context_compressor.compression.notes import newest_once
from context_compressor.compression.performed import Performed
from context_compressor.compression.plans import PlannedSegment
from context_compressor.compression.redaction import Redact, shown_message
from context_compressor.compression.stubbing import StubMaker, may_hold_pages
from context_compressor.compression.surroundings import Surroundings
from context_compressor.compression.view import ViewItem
from context_compressor.messages.msg import Msg
from context_compressor.messages.provenance import segment_metadata


@dataclass(frozen=True, slots=True)
class Material:
    """What a segment is to stand for."""

    items: Sequence[ViewItem]
    messages: Sequence[Msg]
    """As transcripts and summarisers read them: redacted, with stubs in place."""
    whole: Sequence[Msg]
    """The same without stubs, for the index."""

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
    def notes(self) -> tuple[str, ...]:
        """The agent's notes in earlier segments, the oldest first."""
        return newest_once(note for item in self.items for note in item.notes)

    @property
    def says_something(self) -> bool:
        """Whether there is anything to summarise: earlier segments may only name their refs."""
        return any(
            item.kind != "segment" or summary_of(str(message.content)) is not None
            for message, item in zip(self.messages, self.items, strict=True)
        )

    def take_out_notes(self) -> None:
        """Take the notes out of earlier segments: they stand beside summaries, for no summariser to read."""
        for message, item in zip(self.messages, self.items, strict=True):
            if item.notes:
                message.content = without_notes(str(message.content), item.notes)


async def gather_material(
    planned: PlannedSegment, around: Surroundings, stubs: StubMaker, redact: Redact | None, done: Performed
) -> Material:
    """Return what is to leave, as it is read; pages in it are stubbed, their texts being stored.

    Args:
        planned: what that is.
        around: what the segment is made with.
        stubs: makes stubs of pages.
        redact: what every text goes through, segments apart, which went through it when they were made.
        done: receives the stubs of pages.

    Raises:
        RedactionError: the user's callable failed.
    """
    items = [item for unit in planned.units for item in unit.items]
    messages: list[Msg] = []
    whole: list[Msg] = []
    names, have_pages = around.names, may_hold_pages(around.names)
    for item in items:
        texts = {path: stub.text for path, stub in item.stubs.items()}
        texts |= around.new_stubs.get(item.key, {})
        if have_pages:
            texts |= await stubs.stub_pages(item, texts, names, done)
        own_redact = None if item.kind == "segment" else redact
        message = shown_message(item.source, texts, names, own_redact)
        if item.kind == "segment":
            message.metadata = segment_metadata()
        messages.append(message)
        whole.append(shown_message(item.source, {}, names, own_redact) if texts else message)
    return Material(items, messages, whole)
