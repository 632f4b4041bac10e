"""Edits: what may change in a view other than by growing, and their JSON form."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, fields, replace
from typing import Annotated, Any, NamedTuple, TypeVar

from pydantic import AfterValidator, BeforeValidator, Discriminator, InstanceOf, StrictBool, StrictInt, Tag

from context_compressor.errors import InvalidStateError
from context_compressor.messages.parts import PartPath
from context_compressor.offload.store import REF_PATTERN
from context_compressor.summarizers.notes import Line, Notes
from context_compressor.summarizers.rules.choice import Candidate
from context_compressor.summarizers.rules.lines import Stretch

Text = InstanceOf[str]
"""A string of saved data: also one with half a surrogate pair, which pydantic's own type refuses."""


def _checked_ref(ref: str) -> str:
    if not REF_PATTERN.fullmatch(ref):
        raise ValueError(f"{ref!r} is not a ref; a ref is ctx:// and 16 lower-case hex digits")
    return ref


Ref = Annotated[Text, AfterValidator(_checked_ref)]
"""A ref of saved data."""


class ItemKey(NamedTuple):
    """Name one message of a view: the history message it comes from, and which part of it (mostly "")."""

    key: Text
    part: Text = ""


_OF_CANDIDATES = tuple(field.name for field in fields(Candidate))


def _candidate(said: Any) -> Any:
    return dict(zip(_OF_CANDIDATES, said, strict=False)) if isinstance(said, list) else said


def _with_part(said: Any) -> Any:
    return [said] if isinstance(said, str) else said


Item = Annotated[ItemKey, BeforeValidator(_with_part)]
"""An item of saved data: a key alone, or with a part."""


def message_id(key: str) -> str:
    """Return the message id of a history key; later messages under a reused id have keys of their own."""
    return key.rsplit("\0", 1)[0] if "\0" in key else key  # most have none, and there are many


Told = tuple[Item, Ref]
"""What the model that wrote a summary read beside what it summarised: a message and `ref_of` what it said, or
a segment and its ref."""

SEGMENT_PART = "@segment"
"""The part of a segment's own key, which keeps segment ids and message ids apart."""


class Made(NamedTuple):
    """The event that an edit came with."""

    event: StrictInt
    """Its number: events whose edits hold have different ones, later events higher ones."""
    reason: Text
    messages: StrictInt
    """How many messages of the history the view was of."""


@dataclass(frozen=True, slots=True)
class StubEdit:
    """A text left the view; a stub stands in for it."""

    item: Item
    path: tuple[StrictInt, ...]
    ref: Ref
    text: Text
    """The stub as the view shows it."""
    tokens: StrictInt
    """Tokens of the stub's text."""
    page: StrictBool = False
    """Whether, in an earlier release, the text was a page of the text under `ref`, which other edits name."""
    words_ref: Ref | None = None
    """As a segment's. Its words are `text`."""
    made: Made | None = None
    """The event in which the text left, whichever made this stub of it; None: an event of an earlier
    release."""


@dataclass(frozen=True, slots=True)
class SegmentEdit:
    """A part of the conversation left the view: exchanges, and what stood for earlier parts.

    What stands in the view for all of them are the notes, of which this is the newest state. Its words are
    `text`, `lines`, `candidates`, `stretches`, `notes` and `standing`. Once a later part took its place only
    a withdrawal of that needs them, so the ledger keeps those of the newest parts.

    Segments of earlier releases are read for ever: they have no number of a next line.
    """

    id: Text
    items: tuple[Item, ...]
    """The messages that it covers itself, in order."""
    children: tuple[Text, ...]
    """The part before it, or the segments of an earlier release whose place it took, in order."""
    ref: Ref
    """Ref of the transcript of its items, or of the contents text of a merged segment of an earlier
    release."""
    media_refs: tuple[Ref, ...]
    """Refs of images and files that the transcript names."""
    text: Text
    """The segment as the view shows it, label included."""
    summarized: StrictBool
    """Whether it holds a summary; else it only names its ref."""
    notes: tuple[Text, ...] = ()
    """What the agent asked to keep, as its text says it; or, where that only names a ref, as the segments
    that it merged said it."""
    standing: tuple[Text, ...] = ()
    """Standing instructions of what it covers, as its text says them, the oldest first."""
    stands_for_tokens: StrictInt = 0
    """Tokens of the messages that it covers, at whatever depth, each result as far as a summariser reads it;
    0: not known, as in states of earlier releases."""
    words_ref: Ref | None = None
    """Ref of its words in the store. If `text` is empty, the words are there alone."""
    items_ref: Ref | None = None
    """Of a segment that merged others, `ref_of` the transcript of its own items alone: by that it can be
    checked without the words of the others. Not stored; None where it was not reckoned yet."""
    told: tuple[Told, ...] = ()
    """What its text may repeat, though it does not cover it, and what parts before it may not: it holds as
    long as that stands unchanged."""
    handed_over: StrictBool = False
    """Whether a long-term memory has taken the messages that it covers itself."""
    lines: tuple[Line, ...] = ()
    """The lines of the notes, as `text` shows them."""
    next_line: StrictInt = 0
    """The number of the next line of the notes; 0 in a segment of an earlier release."""
    candidates: tuple[Annotated[Candidate, BeforeValidator(_candidate)], ...] = ()
    """What rules may choose from at the next event."""
    stretches: tuple[Stretch, ...] = ()
    """Which messages these are of."""
    left_standing: StrictInt = 0
    """How many older standing instructions transcripts alone tell."""
    made: Made | None = None
    """The event that made it; None: one of an earlier release."""

    @property
    def as_notes(self) -> Notes:
        """The notes, to be edited."""
        return Notes(self.lines, self.next_line, self.candidates, self.stretches)

    def with_notes(self, notes: Notes) -> SegmentEdit:
        """Return it with other notes, but for its text."""
        return replace(
            self,
            lines=notes.lines,
            next_line=notes.next_number,
            candidates=notes.candidates,
            stretches=notes.stretches,
        )

    @property
    def is_notes(self) -> bool:
        """Whether it is a part of the notes, no segment of an earlier release."""
        return self.next_line > 0


Edit = StubEdit | SegmentEdit


EditName = tuple[ItemKey, PartPath]
"""What an edit stands in for, or, of a segment, itself: no two edits that hold have one name."""


def covered_by(segment: SegmentEdit) -> set[ItemKey]:
    """Return the keys of the items of a view that a segment takes the place of."""
    return {*segment.items, *(ItemKey(child, SEGMENT_PART) for child in segment.children)}


def name_of(edit: Edit) -> EditName:
    """Return an edit's name."""
    return (edit.item, edit.path) if isinstance(edit, StubEdit) else (ItemKey(edit.id, SEGMENT_PART), ())


def keys_of(edit: Edit) -> Iterator[str]:
    """Yield the keys of the messages that an edit is of, or tells of."""
    if isinstance(edit, StubEdit):
        yield edit.item.key
    else:
        yield from (item.key for item in edit.items)
        yield from (item.key for item, _ in edit.told if item.part != SEGMENT_PART)


def refs_of(edit: Edit) -> tuple[str, ...]:
    """Return the refs that an edit names."""
    if isinstance(edit, StubEdit):
        return () if edit.page else (edit.ref,)
    return (edit.ref, *edit.media_refs)


def kept_refs_of(edit: Edit) -> tuple[str, ...]:
    """Return the refs that an edit names, and the one of its words."""
    return refs_of(edit) if edit.words_ref is None else (*refs_of(edit), edit.words_ref)


def refs_in(edits: Iterable[Any]) -> Iterator[str]:
    """Yield the refs that edits of a ledger name, given as `edit_to_dict` wrote them.

    Raises:
        InvalidStateError: one of them is no edit, so its refs cannot be told.
    """
    for edit in edits:
        if not isinstance(edit, Mapping):
            raise InvalidStateError(f"a ledger holds what is no edit: {edit!r:.100}")
        own = edit.get("words_ref")
        for ref in (edit.get("ref"), *edit.get("media_refs", ()), *(() if own is None else (own,))):
            if not isinstance(ref, str) or not REF_PATTERN.fullmatch(ref):
                raise InvalidStateError(f"a ledger names {ref!r:.100}, which is no ref")
            yield ref


# Words in the store


EditT = TypeVar("EditT", StubEdit, SegmentEdit, Edit)


_MORE_WORDS = ("lines", "candidates", "stretches")


def words_of(edit: Edit) -> str:
    """Return the words of an edit as one text to store."""
    if isinstance(edit, StubEdit):
        return json.dumps({"text": edit.text}, ensure_ascii=False)
    words = {"text": edit.text, "notes": edit.notes, "standing": edit.standing}
    more = {name: _plain(said) for name in _MORE_WORDS if (said := getattr(edit, name))}
    return json.dumps(words | more, ensure_ascii=False)


def without_words(edit: EditT, ref: str | None) -> EditT:
    """Return an edit whose words are in the store alone, under a ref; with None they are nowhere any more.

    What its writer was told is known on, for later parts may repeat it.
    """
    if isinstance(edit, StubEdit):
        return replace(edit, text="", words_ref=ref)
    bare = replace(edit, text="", notes=(), standing=(), words_ref=ref)
    return replace(bare, lines=(), candidates=(), stretches=())


def with_words(edit: EditT, stored: str) -> EditT:
    """Return an edit with its words, as `words_of` gave them.

    Raises:
        KeyError, TypeError, ValueError: `words_of` did not write this text.
    """
    words = json.loads(stored)
    if not (isinstance(words["text"], str) and words["text"]):
        raise ValueError(f"{edit.words_ref} holds no words")
    if isinstance(edit, StubEdit):
        return replace(edit, text=words["text"])
    return replace(
        edit,
        text=words["text"],
        notes=tuple(words["notes"]),
        standing=tuple(words["standing"]),
        # Earlier releases put it there.
        told=edit.told or tuple((ItemKey(*_with_part(item)), ref) for item, ref in words.get("told", ())),
        lines=tuple(Line(*line) for line in words.get("lines", ())),
        candidates=tuple(Candidate(*one) for one in words.get("candidates", ())),
        stretches=tuple(_stretch(*one) for one in words.get("stretches", ())),
    )


def _stretch(first: int, last: int, kinds: Iterable[tuple[str, int]]) -> Stretch:
    return Stretch(first, last, tuple((kind, times) for kind, times in kinds))


# Saved form


def _type_of(said: Any) -> Any:
    return said.get("type") if isinstance(said, dict) else None


SavedEdit = Annotated[
    Annotated[StubEdit, Tag("stub")] | Annotated[SegmentEdit, Tag("segment")],
    Discriminator(_type_of),
]
"""An edit as `edit_to_dict` writes it, for pydantic to read."""
_LEFT_OUT = frozenset(
    {"page", "notes", "standing", "stands_for_tokens", "words_ref", "items_ref", "told", "handed_over"}
    | {"lines", "next_line", "candidates", "stretches", "left_standing", "made"}
)
"""Fields that are not written where they say nothing."""


def edit_to_dict(edit: Edit) -> dict[str, Any]:
    """Return an edit as JSON-like data."""
    said = {field.name: getattr(edit, field.name) for field in fields(edit)}
    return {
        "type": "stub" if isinstance(edit, StubEdit) else "segment",
        **{name: _plain(value) for name, value in said.items() if value or name not in _LEFT_OUT},
    }


def _plain(value: Any) -> Any:
    if isinstance(value, ItemKey):
        return list(value) if value.part else value.key
    if isinstance(value, Candidate):
        return list(astuple(value))
    return [_plain(one) for one in value] if isinstance(value, tuple) else value
