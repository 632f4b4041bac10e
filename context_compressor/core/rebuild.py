"""A view made anew from messages and ledger, and what that changes. Nothing is written here."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from context_compressor.core.edits import Edit, EditName, ItemKey, SegmentEdit, StubEdit, name_of
from context_compressor.core.items import Measure, ViewItem, advance, paired
from context_compressor.core.ledger import Ledger
from context_compressor.core.recovery import Read, Recovery, read_words
from context_compressor.core.shown import Redact, stored_text
from context_compressor.errors import OffloadCorruptError, OffloadError, OffloadNotFoundError
from context_compressor.messages import hosted
from context_compressor.messages.exchanges import (
    ORPHAN_REPAIR,
    Exchange,
    ExchangeBuilder,
    ExchangeMessage,
    build_exchanges,
)
from context_compressor.messages.msg import Msg
from context_compressor.offload.store import ref_of
from context_compressor.tokens.counter import MessageTokens

logger = logging.getLogger(__name__)


class Rebuilt(NamedTuple):
    """A view made anew from messages and ledger, which nobody has seen yet."""

    messages: Sequence[tuple[str, Msg]]
    ledger: Ledger
    """Without the edits that do not hold any more."""
    counted: dict[str, MessageTokens]
    unseen: Collection[str]
    items: list[ViewItem]
    builder: ExchangeBuilder
    lacking: set[str]
    """Keys of messages that are shown, or will be, of which there are skeletons: nothing is shown then."""

    def changes(self, before: Mapping[EditName, Edit]) -> tuple[set[EditName], list[SegmentEdit]]:
        """Return the names of the edits that hold no more, and the segments that say more than before.

        Those stand in the view again, with their words, or were checked for the first time.
        """
        now = self.ledger.edits()
        renewed = [one for one in self.ledger.segments() if before[name_of(one)] is not one]
        return before.keys() - now.keys(), renewed


def rebuild(
    messages: Sequence[tuple[str, Msg]],
    ledger: Ledger,
    *,
    counted: dict[str, MessageTokens],
    measure: Measure,
    known: Collection[str] = (),
    sizes: Mapping[str, int] = MappingProxyType({}),
    earlier: Mapping[ItemKey, ViewItem] = MappingProxyType({}),
    unseen: Collection[str] = (),
    bare: Collection[str] = (),
    redact: Redact | None = None,
    says_same: Callable[[Edit], bool] = lambda _: False,
) -> Rebuilt:
    """Return the view that messages and ledger give, from scratch.

    Args:
        messages: `(history key, message)` in order; they are kept, so hand over private copies.
        ledger: what does not hold any more is withdrawn from it. Where stand-ins have no words then, they are
            to be read, and all is done again.
        counted: tokens of messages that were counted before, by key; of the others those are added that are
            shown, or not known.
        measure: counts them.
        known: keys of messages whose tokens in all are known: for what has left that is enough.
        sizes: as `advance`.
        earlier: as `advance`.
        unseen: keys of messages that no view has shown: calls before them may still wait.
        bare: keys of messages of which there are skeletons, which say what they said.
        redact: what was applied when the texts were stored.
        says_same: tells whether the messages that an edit is of, and tells of, say what they said.
    """
    exchanges, builder = paired(messages, ledger.decisions, unseen)
    # What stands behind a call that waits again says what it said, too.
    said = build_exchanges(messages, ledger.decisions) if builder.withheld else exchanges
    recovery = Recovery([message for exchange in said for message in exchange], ledger, redact, bare)
    _withdraw_outdated(ledger, recovery, said, says_same)
    for key, msg in messages:
        if key in counted or key in sizes or key in bare:
            continue
        before = earlier.get(ItemKey(key))
        is_same = before is not None and before.repair is None and before.source == msg
        if not (key in known and (is_same or ledger.segment_of(ItemKey(key)))):
            counted[key] = before.source_tokens if before is not None and is_same else measure(msg)
    ledger.decisions = builder.decisions
    lacking = {item.key for item in recovery.messages if item.key in bare and not ledger.segment_of(item)}
    lacking |= {key for key in builder.withheld if key in bare}
    items: list[ViewItem] = []
    if not lacking:
        items = advance(
            [],
            exchanges,
            ledger=ledger,
            counted=counted,
            measure=measure,
            sizes=sizes,
            earlier=earlier,
        )
    return Rebuilt(messages, ledger, counted, unseen, items, builder, lacking)


def _withdraw_outdated(
    ledger: Ledger, recovery: Recovery, exchanges: Sequence[Exchange], says_same: Callable[[Edit], bool]
) -> None:
    """Withdraw stubs and segments whose messages are gone or say something else now, and those of segments
    that were told of such messages.
    """
    trusted = {name for name, edit in ledger.edits().items() if says_same(edit)}
    for stub in list(ledger.stubs()):
        if not _stands_for_its_text(stub, recovery, is_trusted=name_of(stub) in trusted):
            ledger.withdraw(stub.item)
    # Stubs stand in transcripts: look at those only after the stubs, or a changed text could pass.
    for segment in list(ledger.segments()):
        if ledger.segment(segment.id) is None or not segment.items:
            continue
        is_trusted = name_of(segment) in trusted and all(
            (message := recovery.messages.get(item)) is not None and not _tells_of_others(message)
            for item in segment.items
        )
        if not (is_trusted or _still_gives(segment, recovery, ledger)):
            ledger.withdraw_segment(segment.id)
    while torn := list(_torn_items(ledger, exchanges)):
        for item in torn:
            ledger.withdraw_segments_over(item)
    while repeating := _repeat_what_is_gone(ledger, recovery, trusted):
        for segment_id in repeating:
            if ledger.segment(segment_id) is not None:  # it may have gone with one that merged it
                ledger.withdraw_segment(segment_id)


def _tells_of_others(message: ExchangeMessage) -> bool:
    """Tell whether a message is shown with what others say: a late result names its call."""
    if message.repair is None:
        return False
    return message.repair == ORPHAN_REPAIR or any(map(hosted.is_hosted, hosted.blocks_of(message.msg)))


def _stands_for_its_text(stub: StubEdit, recovery: Recovery, *, is_trusted: bool) -> bool:
    """Tell whether a message still has the text for which a stub stands."""
    message = recovery.messages.get(stub.item)
    if is_trusted and message is not None and not _tells_of_others(message):
        return recovery.has_part(stub)  # a late result has others than the answer that it becomes
    part = recovery.stubbed_part(stub)
    if part is None:
        return False
    if stub.page:  # an earlier release made it
        return part.text.startswith(f"[{stub.ref} ")
    return ref_of(stored_text(part, recovery.redact)) == stub.ref


def _still_gives(segment: SegmentEdit, recovery: Recovery, ledger: Ledger) -> bool:
    """Tell whether what a segment covers still gives the transcript that is stored of it."""
    own = recovery.render(segment)
    if own is None:
        return False
    items_ref = ref_of(own.text)
    expected = segment.items_ref if segment.children and not segment.is_notes else segment.ref
    if expected is not None:
        return items_ref == expected
    # An earlier release made it, and the words of those that it merged are still here.
    merged = [edit for child in segment.children if (edit := ledger.segment(child)) is not None]
    whole = recovery.render(segment, merged)
    if whole is None or ref_of(whole.text) != segment.ref:
        return False
    ledger.replace(replace(segment, items_ref=items_ref))
    return True


def _torn_items(ledger: Ledger, exchanges: Iterable[Exchange]) -> Iterator[ItemKey]:
    """Yield the items that left the view in part of an exchange: its other part cannot stand alone.

    What a call's result is may change without a word of either, where a message comes between them.
    """
    for exchange in exchanges:
        if len(exchange) == 1:
            continue
        items = [ItemKey(message.key, message.part) for message in exchange]
        covered = [item for item in items if ledger.segment_of(item) is not None]
        if len(covered) < len(items):
            yield from covered


def _repeat_what_is_gone(ledger: Ledger, recovery: Recovery, trusted: Collection[EditName]) -> list[str]:
    """Return the ids of segments that were told of what is gone or says something else now."""
    said: dict[ItemKey, str | None] = {}

    def is_gone(item: ItemKey, ref: str, *, is_trusted: bool) -> bool:
        # What left since then says what it said, or the part that it left with were withdrawn.
        if ledger.segment_of(item) is not None:
            return False
        message = recovery.messages.get(item)
        if is_trusted and message is not None and not _tells_of_others(message):
            return False
        if item not in said:
            said[item] = recovery.said_ref(item)
        return said[item] != ref

    return [
        segment.id
        for segment in ledger.segments()
        if any(is_gone(*told, is_trusted=name_of(segment) in trusted) for told in segment.told)
    ]


async def give_words_back(ledger: Ledger, read: Read) -> None:
    """Give their words to edits that are shown; withdraw those whose words cannot be read.

    Args:
        ledger: is changed.
        read: returns them from the store; where that does not answer, it is not asked again.
    """
    is_answering = True
    lost: list[str] = []
    while shown := ledger.shown_without_words():
        for edit in filter(ledger.holds, shown):  # a withdrawal may take others with it
            try:
                if not is_answering:
                    raise OffloadNotFoundError(f"{edit.words_ref} was not asked for")
                ledger.replace(await read_words(edit, read))
            except (OffloadError, KeyError, TypeError, ValueError) as error:
                lost.append(str(error))
                is_answering = isinstance(error, OffloadCorruptError | OffloadNotFoundError) and is_answering
                if isinstance(edit, StubEdit):
                    ledger.withdraw(edit.item)
                else:
                    ledger.withdraw_segment(edit.id)
    if lost:
        logger.warning(
            "%d stand-ins are withdrawn, their words cannot be read, the last for: %s", len(lost), lost[-1]
        )


def is_continued(before: Sequence[ViewItem], after: Sequence[ViewItem]) -> bool:
    """Tell whether a view begins with all that it showed before."""
    return len(before) <= len(after) and all(map(_shows_same, before, after))


def changed_ids(before: Sequence[ViewItem], after: Sequence[ViewItem]) -> list[str]:
    """Return the ids of the messages that a view no longer shows as it did, or shows among earlier ones."""
    now = {item.key: item for item in after}
    kept = {item.key for item in before if item.key in now and _shows_same(item, now[item.key])}
    last = max((place for place, item in enumerate(after) if item.key in kept), default=-1)
    changed = [item for item in (*before, *after[: last + 1]) if item.key not in kept]
    return [id for item in changed for id in item.covered]


def _shows_same(one: ViewItem, other: ViewItem) -> bool:
    return one.key == other.key and one.source == other.source and one.tokens == other.tokens
