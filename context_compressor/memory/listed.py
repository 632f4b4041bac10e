"""What a list says, kept in a few bytes a message, to be compared with what it says later."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from context_compressor.errors import InvalidMessageError
from context_compressor.memory.state import MemoryState
from context_compressor.messages.forms import Form
from context_compressor.messages.markers import Markers, has_marker, set_markers, split_markers, text_forms
from context_compressor.messages.msg import Msg, tool_results
from context_compressor.messages.plain import as_dict, plain
from context_compressor.messages.remark import among_of

_LONG_CHARACTERS = 200
"""Texts longer than this are remembered by their hash: the base memory has them already."""

INSTRUCTING = ("system", "developer")
"""Roles of messages that many conversations share."""

MAY_RETURN = ""
"""In place of the digest of a message that nobody deleted by hand: where it is gone, it is added again."""


Unit = tuple[str, str]
"""The least of a list that can be deleted and said again, by its digest and the id of its message: an item or
one of the messages that an item gives."""


class Followed(NamedTuple):
    """A piece of the list, as a saved state has it."""

    ids: tuple[str, ...]
    """Ids of its messages."""
    digest: str
    """Of what the list said, or `MAY_RETURN`."""
    units: tuple[Unit, ...] = ()
    """Of what was deleted in part, or in several parts."""


class Synced(NamedTuple):
    """What the list said in one place: a message, or what is read by itself (`Form.pieces`)."""

    wires: list[dict[str, Any]]
    """Its items as plain dicts, long texts by their hash."""
    markers: Markers
    """The request metadata in it, where one message alone has any."""
    ids: tuple[str, ...]
    """Ids of its messages."""
    digest: str
    """The same in every process."""
    answers: bool
    """Whether it is nothing but results of calls."""
    units: tuple[Unit, ...]

    @classmethod
    def of(cls, piece: Piece, ids: Sequence[str]) -> Self:
        """Return what a piece says, whose units, or else its only message, have these ids."""
        answers = all(msg.role != "assistant" and tool_results(msg) for msg in piece.msgs)
        wires = [without_long_texts(wire) for wire in piece.wires]
        own = ids if len(ids) == len(piece.units) else [ids[0]] * len(piece.units)
        units = tuple(zip(piece.units, own, strict=True))
        return cls(wires, piece.markers, tuple(dict.fromkeys(ids)), piece.digest, answers, units)

    @classmethod
    def gone(cls, saved: Followed) -> Self:
        """Return what is known of a piece that was deleted, or of which something was."""
        units = saved.units or tuple((saved.digest, id) for id in saved.ids)
        return cls([], [], saved.ids, saved.digest, False, units)

    def deleted(self, known: Container[str]) -> list[Unit]:
        """Return the units that were deleted by hand: their messages are not known any more."""
        return [(digest, id) for digest, id in self.units if id not in known]

    @property
    def speaks(self) -> bool:
        """Whether it is more than an instruction, which many conversations share."""
        return any(wire.get("role") not in INSTRUCTING for wire in self.wires)


class Piece(NamedTuple):
    """A piece of a list that was read."""

    msgs: list[Msg]
    """Its messages, without request metadata."""
    wires: list[dict[str, Any]]
    """Its items as plain dicts."""
    markers: Markers
    digest: str
    units: list[str]
    """The digests of its units: of its messages where they are several, else of its items."""

    @classmethod
    def of(cls, msgs: list[Msg], wires: list[dict[str, Any]], markers: Markers, form: Form) -> Self:
        """Return a piece whose messages and items are these."""
        digest = digest_of(wires)
        if len(msgs) > 1:
            units = [digest_of(wires_of(form.write([msg.copy()]))) for msg in msgs]
        else:
            units = [digest_of([wire]) for wire in wires] if len(wires) > 1 else [digest]
        return cls(msgs, wires, markers, digest, units)


class _LongText:
    """Equal to the text that it was made from, without holding it.

    Python keeps a string's hash with it, so that comparing costs the same however long the text is.
    """

    __slots__ = ("_hash", "_length")

    def __init__(self, text: str) -> None:
        self._hash, self._length = hash(text), len(text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and len(other) == self._length and hash(other) == self._hash

    __hash__ = None  # type: ignore[assignment]  # it stands in no set


def without_long_texts(value: Any) -> Any:
    """Return JSON-like data with each long text in a few bytes that are equal to it."""
    if isinstance(value, str):
        return value if len(value) <= _LONG_CHARACTERS else _LongText(value)
    if isinstance(value, dict):
        return {key: without_long_texts(inner) for key, inner in value.items()}
    return [without_long_texts(inner) for inner in value] if isinstance(value, list) else value


def wires_of(piece: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the items of a piece, dicts or SDK objects, which may hold further ones, as plain dicts."""
    found = [as_dict(item) for item in piece]
    return [plain(dict(item), f"items[{n}]") if item is not None else {} for n, item in enumerate(found)]


def digest_of(wires: Sequence[dict[str, Any]]) -> str:
    """Return what stands for the items of a piece in every process, whatever the order of their keys, whether
    they have keys that say nothing, and what request metadata they carry.

    Databases give JSON back in an order of their own (PostgreSQL's `jsonb`). What an SDK object has not set
    is null in its `model_dump()`, and what the provider set to null is left out by `exclude_none`.
    """
    bare = [split_markers(wire)[0] for wire in wires]
    if len(bare) != 1:
        return digest_of_form({"items": [_said_in(one) for one in bare]})
    return digest_of_form(text_forms(bare[0])[0])


def digests_of(wires: Sequence[dict[str, Any]]) -> list[str]:
    """Return `digest_of`, and behind it what earlier releases had where a text was the only part, or where
    parts have keys that are null.
    """
    if len(wires) != 1:
        return [digest_of(wires)]
    forms = text_forms(split_markers(wires[0])[0])
    return [*map(digest_of_form, forms), *(digest_of_form(form, within=False) for form in forms)]


def digest_of_form(bare: dict[str, Any], *, within: bool = True) -> str:
    """Return the digest of an item in one of its forms, without request metadata.

    `within`: whether keys of its parts that are null say nothing, too.
    """
    return hashlib.sha256(json.dumps(_said_in(bare, within), sort_keys=True).encode()).hexdigest()[:16]


def _said_in(bare: dict[str, Any], within: bool = True) -> dict[str, Any]:
    said = {key: value for key, value in bare.items() if value is not None and value != []}
    return {key: _without_nulls(value) for key, value in said.items()} if within else said


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value


def unless_known(followed: Iterable[Followed], known: Container[str]) -> list[Followed]:
    """Keep the digests of messages that had been deleted by hand: those are not to come back."""
    return [
        one._replace(digest=MAY_RETURN, units=()) if all(id in known for id in one.ids) else one
        for one in followed
    ]


@dataclass(slots=True)
class Listed:
    """What is known of the list, in one state of the memory: cleared or loaded, it has another."""

    state: MemoryState
    synced: list[Synced] = field(default_factory=list)
    """What the list said last time."""
    loaded: list[Followed] = field(default_factory=list)
    """What was synced before a saved state was loaded, until the history was read."""
    markers: dict[str, Markers] = field(default_factory=dict)
    """The request metadata in the newest list, by the id of its message."""

    def note_markers(self) -> None:
        """Note the request metadata that the list carries now."""
        self.markers = {one.ids[0]: one.markers for one in self.synced if has_marker(one.markers)}


def read_pieces(form: Form, pieces: Sequence[Sequence[Any]]) -> list[Piece]:
    """Return what pieces of a list say.

    Raises:
        InvalidMessageError: one is malformed; the text names its place among all that was given.
    """
    read: list[Piece] = []
    place = 0
    for piece in pieces:
        try:
            wires = wires_of(piece)
            split = [split_markers(wire) for wire in wires]
            bare = [one if has_marker(own) else wire for wire, (one, own) in zip(wires, split, strict=True)]
            items = [item if wire else own for item, wire, own in zip(bare, wires, piece, strict=True)]
            msgs = form.read(items)
        except InvalidMessageError as error:
            raise InvalidMessageError(_moved(str(error), place)) from None
        own = split[0][1] if len(msgs) == len(wires) == 1 and among_of(msgs[0]) is None else []
        read.append(Piece.of([set_markers(msg, []) for msg in msgs], wires, own, form))
        place += len(piece)
    return read


def _moved(text: str, place: int) -> str:
    """Return an error's text with the place in the whole list."""
    return re.sub(r"^(\w+)\[(\d+)\]", lambda found: f"{found[1]}[{int(found[2]) + place}]", text)


def is_as_it_was(old: Synced, new: Sequence[Any]) -> bool:
    # Comparing dicts is far cheaper than reading them, and all but the end is mostly the same.
    return bool(old.wires == new or old.wires == [as_dict(item) for item in new])


def shared(synced: Sequence[Synced], said: Sequence[Sequence[Any]]) -> int:
    """Return how many pieces at the beginning of a list are as they were; note what is said another way."""
    same = 0
    for old, new in zip(synced, said, strict=False):
        if not is_as_it_was(old, new) and old.wires != (wires := wires_of(new)):
            if old.digest != digest_of(wires):
                break
            if isinstance(synced, list):
                plain_wires = [without_long_texts(wire) for wire in wires]
                own = split_markers(wires[0])[1] if len(wires) == 1 else []
                synced[same] = old._replace(wires=plain_wires, markers=own if len(old.ids) == 1 else [])
        same += 1
    return same


def is_one_exchange(synced: Sequence[Synced]) -> bool:
    """Tell whether these are one exchange at most: a message, or calls and nothing but their results."""
    return all(one.answers for one in synced[1:])


Originals = list[tuple[tuple[str, ...], list[Any]]]
"""What a list says, its own objects, piece by piece, each with the ids of its messages."""


def write_view(view: Sequence[Msg], whole: Collection[str], form: Form, originals: Originals) -> list[Any]:
    """Return a view in a form, made of a list's own objects wherever they say the same.

    Args:
        view: the messages.
        whole: ids of those that are shown as they came.
        form: the shape.
        originals: what the list says.
    """
    may_join = form.may_join
    if not may_join and len(view) == len(originals) == len(whole):  # all of the list, before a first event
        own_ids = [ids[0] for ids, _ in originals if len(ids) == 1]
        if own_ids == [msg.id for msg in view] and all(map(whole.__contains__, own_ids)):
            return [item for _, items in originals for item in items]
    # Mostly all of it is said by one message each.
    own = {} if may_join else {ids[0]: items for ids, items in originals if len(ids) == 1 and ids[0] in whole}
    shown = {msg.id for msg in view if msg.id not in own}
    said = {id: one for one in originals if not shown.isdisjoint(one[0]) for id in one[0]} if shown else {}
    written: list[Any] = []
    made: list[Msg] = []

    def write_made() -> None:
        if made:
            items = [item for msg in made if msg.id in said for item in said[msg.id][1]]
            written.extend(next((item for item in items if item == wire), wire) for wire in form.write(made))
            made.clear()

    def is_joined(before: int) -> bool:
        """Tell whether a message and the one behind it are one in this form."""
        return 0 <= before < len(view) - 1 and form.joins(view[before], view[before + 1])

    place = 0
    while place < len(view):
        if (alone := own.get(view[place].id)) is not None:
            write_made()
            written += alone
            place += 1
            continue
        ids, items = said.get(view[place].id, ((), []))
        end = place + len(ids)
        is_whole = all(id in whole for id in ids) and tuple(msg.id for msg in view[place:end]) == ids
        if ids and is_whole and not (may_join and (is_joined(place - 1) or is_joined(end - 1))):
            write_made()
            written += items
            place = end
        else:
            made.append(view[place])
            place += 1
    write_made()
    return written
