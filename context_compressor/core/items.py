"""The view as items, and how it grows: `advance`. Pure: no clock, no I/O, no randomness."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from types import MappingProxyType
from typing import Literal

from context_compressor.core.edits import (
    SEGMENT_PART,
    Edit,
    ItemKey,
    SegmentEdit,
    StubEdit,
    message_id,
)
from context_compressor.core.ledger import Ledger
from context_compressor.messages import hosted
from context_compressor.messages.exchanges import (
    ORPHAN_REPAIR,
    Decisions,
    Exchange,
    ExchangeBuilder,
    ExchangeMessage,
)
from context_compressor.messages.hosted import is_sealed, tools_called_by, tools_loaded_by
from context_compressor.messages.markers import set_markers
from context_compressor.messages.msg import PROVENANCE, Msg
from context_compressor.messages.parts import (
    Part,
    PartPath,
    other_parts,
    replace_parts,
    text_parts,
    thinking_characters,
)
from context_compressor.messages.speech import standing_in
from context_compressor.tokens.counter import MessageTokens, TokenCounter

Measure = Callable[[Msg], MessageTokens]
"""Counts a message that was not counted before."""

READ_TOKENS = 1_000
"""What a summariser reads of one result: its head, its tail, and lines with errors."""
UNKNOWN_RATIO = 5
"""Tokens of messages per token of a segment that earlier releases made, which did not note what it stands
for."""
SEGMENT_NAME = "memory"
"""Who a segment speaks as. Its role is `user`: models imitate summaries that come as `assistant`."""


_LINE_TOKENS = 4
"""What stands around a standing instruction: a list mark, a line end."""
_MIN_OTHER_TOKENS = 80
"""Below this a message holds neither media nor a long argument worth a stub."""
_ARGUMENT_TOKENS_PER_CHARACTER = 0.5
"""Supposed of arguments beside media, at most: Chinese, or code with many digits."""
_FRAME_CHARACTERS = 100
"""What stands around arguments, in characters: names, keys, ids."""

_NO_STUBS: Mapping[PartPath, StubEdit] = MappingProxyType({})
_NO_SIZES: Mapping[str, int] = MappingProxyType({})


@dataclass(eq=False)
class ViewItem:
    """One message of the view, with what deciding needs to know about it; never changed once made."""

    key: ItemKey
    kind: Literal["message", "placeholder", "segment"]
    exchange: ItemKey
    """Key of the first item of its exchange: items with the same one stay or leave together."""
    source: Msg
    """The message before stubs; never handed out."""
    made: Msg | None
    """What is shown in its place; None: a copy of it."""
    tokens: int
    count: Callable[[], MessageTokens]
    """Returns `source_tokens`."""
    stubs: Mapping[PartPath, StubEdit]
    """The stubs in place of its texts, by address."""
    covered: tuple[str, ...]
    """Ids of the history messages that it shows or stands for."""
    repair: str | None = None
    """What was repaired, for the log."""
    notes: tuple[str, ...] = ()
    """Of a segment: what the agent asked to keep."""
    segment: SegmentEdit | None = None
    """The edit of a segment."""

    @cached_property
    def msg(self) -> Msg:
        """The view's own copy, which callers receive."""
        return self.source.copy() if self.made is None else self.made

    @cached_property
    def source_tokens(self) -> MessageTokens:
        """Tokens of `source` and of each of its texts, in the order of `text_parts`; counted when needed."""
        return self.count()

    @cached_property
    def stands_for_tokens(self) -> int:
        """Tokens of the messages that it shows or stands for, each result as far as a summariser reads it."""
        if self.segment is not None:
            return self.segment.stands_for_tokens or self.tokens * UNKNOWN_RATIO
        results = [n for part, n in self._whole_texts() if part.kind == "tool_result"]
        return self.source_tokens.total - sum(max(0, tokens - READ_TOKENS) for tokens in results)

    @property
    def read_tokens(self) -> int:
        """About how many tokens a summariser reads of it: of a segment its summary alone."""
        if self.segment is None:
            return self.stands_for_tokens
        beside = sum(map(len, (*self.segment.standing, *self.segment.notes)))
        return self.tokens * max(0, len(self.segment.text) - beside) // max(1, len(self.segment.text))

    @cached_property
    def standing(self) -> tuple[str, ...]:
        """The standing instructions in it, word for word."""
        if self.segment is not None:
            return self.segment.standing
        is_said = self.kind == "message" and self.repair != ORPHAN_REPAIR
        return standing_in(self.source) if is_said else ()

    @cached_property
    def standing_tokens(self) -> float:
        """About how many tokens its standing instructions take, each on a line of its own."""
        if not self.standing:
            return 0.0
        size = sum(len(part.text) for part in text_parts(self.source))  # media beside them say nothing
        per_character = sum(self.source_tokens.texts) / max(1, size)
        return sum(len(line) * per_character + _LINE_TOKENS for line in self.standing)

    @cached_property
    def loaded_tools(self) -> frozenset[str]:
        """The names of the tools that it loads: they can be called only while it stands."""
        return tools_loaded_by(self.source)

    @cached_property
    def called_tools(self) -> frozenset[str]:
        """The names of the tools that it calls."""
        return tools_called_by(self.source)

    @cached_property
    def is_sealed(self) -> bool:
        """Whether it holds a provider's own compaction that nothing else can read."""
        return is_sealed(self.source)

    def shows(self, message: ExchangeMessage, exchange: ItemKey) -> bool:
        """Tell whether it is what a message of an exchange is shown as, but for stubs."""
        return (
            self.kind == "message"
            and not message.placeholder
            and self.exchange == exchange
            and self.repair == message.repair
            and (self.source is message.msg or self.source == message.msg)
        )

    def texts(self) -> Iterator[tuple[Part, int]]:
        """Yield each of `text_parts` with the tokens that it takes in the view: those of its stub, if any."""
        for part, tokens in self._whole_texts():
            stub = self.stubs.get(part.path)
            yield part, tokens if stub is None else stub.tokens

    def text_tokens(self, path: PartPath) -> int | None:
        """Return the tokens of one of `text_parts` before stubs; None for any other part."""
        return next((tokens for part, tokens in self._whole_texts() if part.path == path), None)

    def _whole_texts(self) -> Iterator[tuple[Part, int]]:
        return zip(text_parts(self.source), self.source_tokens.texts, strict=True)

    def other_parts(self) -> list[tuple[Part, int]]:
        """Return the long arguments and the media that still stand in the message, each with its tokens.

        These are estimates: arguments by their characters, media the rest of what the message costs beside
        its texts. Counting each alone would count messages twice, and few ever leave.
        """
        others = self.source_tokens.total - sum(self.source_tokens.texts)
        if others < _MIN_OTHER_TOKENS:
            return []
        parts = other_parts(self.source)
        arguments = [len(part.text) for part in parts if part.kind == "argument"]
        media = len(parts) - len(arguments)
        per_character = others / (sum(arguments) + thinking_characters(self.source) + _FRAME_CHARACTERS)
        if media:
            per_character = min(_ARGUMENT_TOKENS_PER_CHARACTER, per_character)
        each = (others - int(sum(arguments) * per_character)) // max(media, 1)
        return [
            (part, int(len(part.text) * per_character) if part.kind == "argument" else each)
            for part in parts
            if part.path not in self.stubs
        ]


_NO_ITEMS: Mapping[ItemKey, ViewItem] = MappingProxyType({})


def advance(
    items: Sequence[ViewItem],
    exchanges: Iterable[Exchange],
    *,
    ledger: Ledger,
    counted: Mapping[str, MessageTokens],
    measure: Measure,
    sizes: Mapping[str, int] = _NO_SIZES,
    earlier: Mapping[ItemKey, ViewItem] = _NO_ITEMS,
) -> list[ViewItem]:
    """Return the items by which the view grows when these exchanges stand behind it.

    Args:
        items: the view so far.
        exchanges: in order; their messages are kept, so hand over private copies.
        ledger: which messages are covered by segments, which texts by stubs.
        counted: tokens of messages that were counted before, by history key.
        measure: counts the others.
        sizes: tokens of messages that are what they were when they were counted, by history key.
        earlier: items that were shown before, which are shown again where they are the same.
    """
    grown: list[ViewItem | SegmentEdit] = []
    standing: set[ItemKey] | None = None
    for exchange in exchanges:
        first: ItemKey | None = None
        if exchange[0].goes_on:
            first, exchange = _go_on(chain(reversed(grown), reversed(items)), exchange)
        for message in exchange:
            item_key = ItemKey(message.key, message.part)
            first = first or item_key
            segment = ledger.top_segment_of(item_key)
            if segment is None:
                stubs = ledger.stubs_of(item_key)
                item = earlier.get(item_key)
                if item is None or not item.shows(message, first):
                    tokens = counted.get(message.key) if message.repair is None else None
                    size = sizes.get(message.key) if message.repair is None else None
                    item = _message_item(item_key, first, message, measure, tokens, size)
                grown.append(item if item.stubs == stubs else with_stubs(item, stubs, measure))
                continue
            if grown and grown[-1] is segment:
                continue
            if standing is None:
                standing = {item.key for item in items if item.kind == "segment"}
            if ItemKey(segment.id, SEGMENT_PART) not in standing:
                grown.append(segment)
    if standing is None:
        return [entry for entry in grown if isinstance(entry, ViewItem)]
    # Notes stand where the last of what they cover stood: what stands behind them is newer.
    last = {entry.id: place for place, entry in enumerate(grown) if isinstance(entry, SegmentEdit)}
    return [
        entry if isinstance(entry, ViewItem) else segment_item(entry, ledger, measure)
        for place, entry in enumerate(grown)
        if isinstance(entry, ViewItem) or last[entry.id] == place
    ]


def _go_on(shown: Iterator[ViewItem | SegmentEdit], exchange: Exchange) -> tuple[ItemKey | None, Exchange]:
    """Return the key of the exchange of which another is the rest, None where it left the view, and that rest
    without what needs calls that left.

    `shown`: what stands before it, the newest first.
    """
    first: ItemKey | None = None
    called: list[str] = []
    for item in shown:
        if not isinstance(item, ViewItem) or item.kind == "segment" or first not in (None, item.exchange):
            break
        first = item.exchange
        called += hosted.called_by(item.source)
    rest = []
    for message in exchange:
        msg = hosted.with_calls(message.msg, called)
        called += hosted.called_by(msg)
        rest.append(message if msg is message.msg else message._replace(msg=msg, repair="content rewritten"))
    return first, tuple(rest)


def paired(
    history: Sequence[tuple[str, Msg]], decisions: Decisions | None, unseen: Container[str]
) -> tuple[list[Exchange], ExchangeBuilder]:
    """Return the exchanges of a view that is made from scratch, and the pairing to go on with.

    Args:
        history: `(history key, message)` in order; the messages are kept, so hand over private copies.
        decisions: what was decided before.
        unseen: keys of messages that no view has shown: calls before them may still wait.
    """
    builder, exchanges = ExchangeBuilder(decisions), list[Exchange]()
    # Not before the first that is unseen: a call may be withheld before a result that was shown.
    seen = max((place for place, (key, _) in enumerate(history) if key not in unseen), default=-1)
    for place, (key, msg) in enumerate(history):
        exchanges += builder.feed(key, msg)
        if place == seen:
            exchanges += builder.settle()
    return exchanges, builder


def _message_item(
    key: ItemKey,
    exchange: ItemKey,
    message: ExchangeMessage,
    measure: Measure,
    counted: MessageTokens | None,
    size: int | None,
) -> ViewItem:
    source = message.msg
    if counted is None and size is None:
        counted = measure(source)
    tokens = size if counted is None else counted.total
    count = partial(measure, source) if counted is None else partial(_same, counted)
    assert tokens is not None
    covered = (message_id(message.key),)
    kind: Literal["message", "placeholder"] = "message"
    shown: Msg | None = None
    if message.placeholder:
        kind, shown = "placeholder", source.copy()
        _note(shown, "placeholder", covered, [])
    return ViewItem(key, kind, exchange, source, shown, tokens, count, _NO_STUBS, covered, message.repair)


def _same(counted: MessageTokens) -> MessageTokens:
    return counted


def with_stubs(item: ViewItem, stubs: Mapping[PartPath, StubEdit], measure: Measure) -> ViewItem:
    """Return the item with these stubs, and no others, in place of its texts."""
    if not stubs:
        return replace(item, made=None, tokens=item.source_tokens.total, stubs=_NO_STUBS)
    shown = replace_parts(item.source, {path: stub.text for path, stub in stubs.items()})
    set_markers(shown, [])
    _note(shown, "stub", item.covered, [stub.ref for _, stub in sorted(stubs.items())])
    return replace(item, made=shown, tokens=measure(shown).total, stubs=dict(stubs))


def segment_item(segment: SegmentEdit, ledger: Ledger, measure: Measure) -> ViewItem:
    """Return the item that shows a segment."""
    covered = ledger.ids_under(segment.id)
    source = Msg(SEGMENT_NAME, segment.text, "user", timestamp="", id=segment.id)
    shown = source.copy()
    _note(shown, "notes" if segment.is_notes else "segment", covered, [segment.ref])
    tokens = measure(source)
    key = ItemKey(segment.id, SEGMENT_PART)
    return ViewItem(
        key=key,
        kind="segment",
        exchange=key,
        source=source,
        made=shown,
        tokens=tokens.total,
        count=partial(_same, tokens),
        stubs=_NO_STUBS,
        covered=covered,
        notes=segment.notes,
        segment=segment,
    )


def segment_tokens(text: str, counter: TokenCounter) -> int:
    """Return what a segment with this text costs in a view."""
    return counter.count_messages([Msg(SEGMENT_NAME, text, "user", timestamp="")])


def _note(msg: Msg, kind: str, covered: tuple[str, ...], refs: list[str]) -> None:
    """Write provenance into a view's message."""
    provenance = {"kind": kind, "covered_ids": list(covered), "ref": refs[0] if refs else None}
    if len(refs) > 1:
        provenance["refs"] = refs
    msg.metadata = {**(msg.metadata or {}), PROVENANCE: provenance}


def apply_edits(
    items: Sequence[ViewItem], edits: Sequence[Edit], ledger: Ledger, measure: Measure
) -> list[ViewItem]:
    """Return the view after edits that the ledger already holds: stubs in place, covered items replaced."""
    stubbed = {edit.item for edit in edits if isinstance(edit, StubEdit)}
    replaced_by: dict[ItemKey, SegmentEdit] = {}
    for edit in edits:
        if isinstance(edit, SegmentEdit):
            replaced_by.update((key, edit) for key in edit.items)
            replaced_by.update((ItemKey(child, SEGMENT_PART), edit) for child in edit.children)
    last = {replaced_by[item.key].id: item.key for item in items if item.key in replaced_by}
    result: list[ViewItem] = []
    for item in items:
        segment = replaced_by.get(item.key)
        if segment is None:
            if item.key in stubbed:
                item = with_stubs(item, ledger.stubs_of(item.key), measure)
            result.append(item)
        elif last[segment.id] == item.key:
            result.append(segment_item(segment, ledger, measure))
    return result
