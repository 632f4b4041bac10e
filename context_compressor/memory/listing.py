"""A list as it is said now, what is known of it from before, and how far the two are the same."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Collection, Container, Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Self

from context_compressor.errors import InvalidMessageError
from context_compressor.messages.forms import Form
from context_compressor.messages.markers import Markers, has_marker, set_markers, split_markers
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


class Piece(NamedTuple):
    """A piece of a list that was read: a message, or what is read by itself (`Form.pieces`)."""

    msgs: list[Msg]
    """Its messages, without request metadata."""
    said: list[Any]
    """What tells cheaply that it is said again: its items as plain dicts, long texts by their hash; the items
    themselves where nobody changes them."""
    markers: Markers
    """The request metadata in it, where one message alone has any."""
    digest: str
    """The same in every process."""
    speaks: bool
    """Whether it is more than an instruction, which many conversations share."""
    wires: list[dict[str, Any]]
    """Its items as plain dicts."""
    units: list[str]
    """The digests of its units: of its messages where they are several, else of its items."""


class Known(NamedTuple):
    """What a list said in one place before."""

    said: list[Any]
    markers: Markers
    digest: str
    speaks: bool
    ids: tuple[str, ...]
    """Ids of its messages."""
    answers: bool
    """Whether it is nothing but results of calls."""
    units: tuple[Unit, ...]

    @classmethod
    def of(cls, piece: Piece, ids: Sequence[str]) -> Self:
        """Return what a piece says, whose units, or else its only message, have these ids."""
        answers = all(msg.role != "assistant" and tool_results(msg) for msg in piece.msgs)
        own = ids if len(ids) == len(piece.units) else [ids[0]] * len(piece.units)
        units = tuple(zip(piece.units, own, strict=True))
        return cls(
            piece.said, piece.markers, piece.digest, piece.speaks, tuple(dict.fromkeys(ids)), answers, units
        )

    @classmethod
    def gone(cls, saved: Followed) -> Self:
        """Return what is known of a piece that was deleted, or of which something was."""
        units = saved.units or tuple((saved.digest, id) for id in saved.ids)
        return cls([], [], saved.digest, False, saved.ids, False, units)

    def deleted(self, known: Container[str]) -> list[Unit]:
        """Return the units that were deleted by hand: their messages are not known any more."""
        return [(digest, id) for digest, id in self.units if id not in known]


Listing = tuple[Known, ...]
"""What a list said, piece by piece."""


class Said:
    """A list as it is said now. What each piece says is worked out when it is asked for, once.

    Args:
        items: the list.
        form: its shape.
    """

    def __init__(self, items: Sequence[Any], form: Form) -> None:
        self.items = items
        self.form = form
        self.pieces = form.pieces(items)
        self._wires: dict[int, list[dict[str, Any]]] = {}
        self._told: dict[int, tuple[str, bool]] = {}
        """Digest of a piece, and whether it is more than an instruction."""
        self._reworded: set[int] = set()

    def __len__(self) -> int:
        return len(self.pieces)

    def start(self, place: int) -> int:
        """Return where a piece begins in the list."""
        return sum(map(len, self.pieces[:place]))

    def wires(self, place: int) -> list[dict[str, Any]]:
        """Return the items of a piece as plain dicts.

        Raises:
            InvalidMessageError: it is malformed; the text names its place in the list. So do all others here.
        """
        if place not in self._wires:
            try:
                self._wires[place] = wires_of(self.pieces[place])
            except InvalidMessageError as error:
                raise self._placed(error, place) from None
        return self._wires[place]

    def _tell(self, place: int) -> tuple[str, bool]:
        if place not in self._told:
            wires = self.wires(place)
            self._told[place] = digest_of(wires), _speaks(wires)
        return self._told[place]

    def digest(self, place: int) -> str:
        """Return what stands for a piece in every process."""
        return self._tell(place)[0]

    def says(self, place: int, known: Known) -> bool:
        """Tell whether a piece says what another list said in its place."""
        # Comparing dicts is far cheaper than reading them, and all but the end is mostly the same.
        piece = self.pieces[place]
        if known.said == piece or known.said == [as_dict(item) for item in piece]:
            self._told[place] = known.digest, known.speaks
            return True
        if known.digest != self.digest(place):
            return False
        self._reworded.add(place)
        return True

    def shared(self, listing: Sequence[Known]) -> int:
        """Return how many pieces at the beginning say what a list said before."""
        same = 0
        for known in listing[: len(self)]:
            if not self.says(same, known):
                break
            same += 1
        return same

    def names(self) -> list[str]:
        """Return what stands for each piece that is more than an instruction: its digest, and how often that
        has come.
        """
        seen: Counter[str] = Counter()
        names: list[str] = []
        for place in range(len(self)):
            digest, speaks = self._tell(place)
            seen[digest] += 1
            if speaks:
                names.append(f"{digest}-{seen[digest]}")
        return names

    def beginning(self) -> str:
        """Return what stands for the first piece that is more than an instruction; empty if there is none."""
        told = map(self._tell, range(len(self)))
        return next((digest for digest, speaks in told if speaks), "")

    def read(self, start: int = 0, end: int | None = None) -> list[Piece]:
        """Return what pieces of the list say."""
        return [self._read(place) for place in range(start, len(self) if end is None else end)]

    def _read(self, place: int) -> Piece:
        own, wires = self.pieces[place], self.wires(place)
        split = [split_markers(wire) for wire in wires]
        bare = [one if has_marker(found) else wire for wire, (one, found) in zip(wires, split, strict=True)]
        items = [item if wire else raw for item, wire, raw in zip(bare, wires, own, strict=True)]
        try:
            msgs = self.form.read(items)
        except InvalidMessageError as error:
            raise self._placed(error, place) from None
        markers = split[0][1] if len(msgs) == len(wires) == 1 and among_of(msgs[0]) is None else []
        return self.piece(place, [set_markers(msg, []) for msg in msgs], markers)

    def piece(self, place: int, msgs: list[Msg], markers: Markers) -> Piece:
        wires, (digest, speaks) = self.wires(place), self._tell(place)
        if len(msgs) > 1:
            units = [digest_of(wires_of(self.form.write([msg.copy()]))) for msg in msgs]
        else:
            units = [digest_of([wire]) for wire in wires] if len(wires) > 1 else [digest]
        return Piece(msgs, self._cheaply(place), markers, digest, speaks, wires, units)

    def in_these_words(self, listing: Listing, same: int) -> Listing:
        """Return what is known of a list with its first pieces, which say the same, as they are said now."""
        reworded = {}
        for place in self._reworded:
            if place < same and (known := listing[place]).said != (said := self._cheaply(place)):
                wires = self.wires(place)
                own = split_markers(wires[0])[1] if len(wires) == len(known.ids) == 1 else []
                reworded[place] = known._replace(said=said, markers=own)
        if not reworded:
            return listing
        return tuple(reworded.get(place, known) for place, known in enumerate(listing))

    def _cheaply(self, place: int) -> list[Any]:
        """Return what tells cheaply that a piece is said again."""
        wires, own = self.wires(place), self.pieces[place]
        return own if self.form.is_frozen else [without_long_texts(wire) for wire in wires]

    def _placed(self, error: InvalidMessageError, place: int) -> InvalidMessageError:
        """Return an error of a piece, in its form's own words if it has any, with its place in the list."""
        try:
            self.form.read(self.pieces[place])
        except InvalidMessageError as own:
            error = own
        start = self.start(place)
        return InvalidMessageError(
            re.sub(r"^(\w+)\[(\d+)\]", lambda found: f"{found[1]}[{int(found[2]) + start}]", str(error))
        )


class Compared(NamedTuple):
    """How a list as it is said now differs from what it said before."""

    listing: Listing
    """What it said before, in the words of now as far as these say the same."""
    same: int
    """Pieces at the beginning that are as they were."""
    gone: int
    """Where those end, in `listing`, that are not said any more."""
    put: int
    """Where those end, in the list, that are said in their place; what stood behind follows, as it was."""


def compare(listing: Listing, said: Said, *, goes_on: bool = True) -> Compared:
    """Compare a list with what it said before.

    Args:
        listing: what it said.
        said: the list.
        goes_on: whether to look where it goes on as it was, behind a difference. It does not where more
            differs than is the same from there to the end: that is another conversation that comes to the
            same words, and not the same one mended.
    """
    same = said.shared(listing)
    listing = said.in_these_words(listing, same)
    behind, place = 0, len(said)
    if goes_on and same < len(listing):
        for end in range(len(said), same, -1):
            most = min(end, len(listing)) - same
            if behind >= most:
                break
            count = 0
            while count < most and said.says(end - 1 - count, listing[-1 - count]):
                count += 1
            if count > behind:
                behind, place = count, end
    gone, put = len(listing) - behind, place - behind
    if not behind or behind < min(put, gone) - same:
        return Compared(listing, same, len(listing), len(said))
    return Compared(listing, same, gone, put)


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
    bare = [_said_in(split_markers(wire)[0]) for wire in wires]
    told = bare[0] if len(bare) == 1 else {"items": bare}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


def _said_in(bare: dict[str, Any]) -> dict[str, Any]:
    return {key: _without_nulls(value) for key, value in bare.items() if value is not None and value != []}


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value


def _speaks(wires: Iterable[dict[str, Any]]) -> bool:
    return any(wire.get("role") not in INSTRUCTING for wire in wires)


def unless_returning(followed: Iterable[Followed], returning: Container[str]) -> list[Followed]:
    """Keep the digests of messages that were deleted by hand: those are not to come back."""
    return [
        one._replace(digest=MAY_RETURN, units=()) if all(id in returning for id in one.ids) else one
        for one in followed
    ]


def is_one_exchange(listing: Sequence[Known]) -> bool:
    """Tell whether these are one exchange at most: a message, or calls and nothing but their results."""
    return all(one.answers for one in listing[1:])


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
    joined: set[int] = set()
    """Places of messages that are one with the one behind them in this form."""
    if form.may_join:
        joined = {place for place, (one, next_) in enumerate(pairwise(view)) if form.joins(one, next_)}
    if not joined and len(view) == len(originals) == len(whole):  # all of the list, before a first event
        own_ids = [ids[0] for ids, _ in originals if len(ids) == 1]
        if own_ids == [msg.id for msg in view] and all(map(whole.__contains__, own_ids)):
            return [item for _, items in originals for item in items]
    # Mostly all of it is said by one message each.
    own = {ids[0]: items for ids, items in originals if len(ids) == 1 and ids[0] in whole}
    for place in joined:
        own.pop(view[place].id, None)
        own.pop(view[place + 1].id, None)
    shown = {msg.id for msg in view if msg.id not in own}
    said = {id: one for one in originals if not shown.isdisjoint(one[0]) for id in one[0]} if shown else {}
    written: list[Any] = []
    made: list[Msg] = []

    def write_made() -> None:
        if made:
            items = [item for msg in made if msg.id in said for item in said[msg.id][1]]
            written.extend(next((item for item in items if item == wire), wire) for wire in form.write(made))
            made.clear()

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
        if ids and is_whole and not joined.intersection((place - 1, end - 1)):
            write_made()
            written += items
            place = end
        else:
            made.append(view[place])
            place += 1
    write_made()
    return written
