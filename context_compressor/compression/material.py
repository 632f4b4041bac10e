"""What a segment is to stand for, as transcripts and summarisers read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from context_compressor.compression.edits import ItemKey
from context_compressor.compression.labels import summary_of
from context_compressor.compression.notes import newest_once
from context_compressor.compression.performed import Performed
from context_compressor.compression.plans import PlannedSegment
from context_compressor.compression.redaction import Redact, shown_message
from context_compressor.compression.stubbing import StubMaker, may_hold_pages
from context_compressor.compression.view import ViewItem
from context_compressor.messages.msg import Msg
from context_compressor.messages.parts import PartPath
from context_compressor.messages.provenance import is_staying, segment_metadata, staying_metadata
from context_compressor.messages.standing import standing_in
from context_compressor.summarizers.cutting import cut
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
