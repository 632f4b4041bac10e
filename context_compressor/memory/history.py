"""Where messages live: the contract of a history, and the one that is kept in this process."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import islice
from secrets import token_urlsafe
from typing import Any, NamedTuple, Protocol, cast

from context_compressor.core.edits import Edit, EditName, message_id, name_of
from context_compressor.errors import ConflictError
from context_compressor.messages.msg import Msg

MOST_GONE = 10_000
"""Deleted messages and withdrawn edits that a history in this process still tells of. Who looks later
than that finds by the size that something is missing, and reads all anew."""


class WriteNumber(int):
    """The number of a write, with the names of the writes up to it.

    A number alone does not tell a history from another one that has as many writes: one that was deleted and
    begun anew, restored from a backup, or whose server lost what it had acknowledged. A history that is in
    this process needs no names.

    Args:
        number: of the write.
        names: of the last writes, the newest first, `NAME_CHARACTERS` each; "" where they have none.
    """

    names: str

    def __new__(cls, number: int, names: str = "") -> WriteNumber:
        made = super().__new__(cls, number)
        made.names = names
        return made


NAME_CHARACTERS = 4
NAMES_CHARACTERS = 128 * NAME_CHARACTERS
"""Characters of the names that are kept, of 128 writes. A process that is further behind opens the history
anew."""


def new_name() -> str:
    """Return a name for a write."""
    return token_urlsafe(3)


def continues(now: int, then: int) -> bool:
    """Tell whether a history that is at the write `now` has all the writes that it had at `then`."""
    name, behind = getattr(then, "names", "")[:NAME_CHARACTERS], (now - then) * NAME_CHARACTERS
    return now >= then and (not name or getattr(now, "names", "").startswith(name, behind))


def is_same(now: int, then: int) -> bool:
    """Tell whether a history is at the same write as before."""
    return now == then and continues(now, then)


def conflict(now: int, at: int) -> ConflictError:
    """Return the error of a write to a history that is at another write than expected."""
    where = f"at {now}, not at {at}" if now != at else f"not the one that was at {at}"
    return ConflictError(f"the history is {where}", number=now)


class Head(NamedTuple):
    """Where a history stands."""

    number: int
    """Grows with every write, whoever makes it; 0: nothing was ever written. A `WriteNumber` where other
    processes write."""
    size: int
    """Messages."""
    summary: str
    """The summary that `update_compressed_summary` set, "" where there is none."""


class Entry(NamedTuple):
    """A message of a history. It belongs to the history: whoever reads it changes nothing in it."""

    place: float | Fraction
    """The order; it never changes. Those of a history can be compared with each other only."""
    changed: int
    """Number of the last write that touched the message."""
    key: str
    """The message's id, or one of its own where an earlier message has that id; `message_id` tells the id."""
    msg: Msg | None
    """None: the message was deleted."""
    marks: tuple[str, ...] = ()
    """In the order in which they came."""
    tokens: tuple[str, int] | None = None
    """Who counted the message, and what it costs, as `Add` said."""
    added: int = 0
    """Number of the write that added it, as far as `Outlines.outline` was asked."""


@dataclass(frozen=True, slots=True)
class Add:
    """Append a message; where its id is known, the message that is there gets the marks."""

    msg: Msg
    """The history keeps it: nobody may change it afterwards."""
    marks: Sequence[str] = ()
    duplicate: bool = False
    """Whether to keep the message although its id is known."""
    tokens: tuple[str, int] | None = None
    """As in `Entry`."""
    before: str | None = None
    """Key of the message in front of which it is to stand; None: at the end. A history may refuse it."""


@dataclass(frozen=True, slots=True)
class Restored(Add):
    """A message that comes back under the key that it had."""

    key: str = ""


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove messages; unknown keys are skipped."""

    keys: Collection[str]


@dataclass(frozen=True, slots=True)
class Mark:
    """Take one mark from messages and give them another; each may be None."""

    keys: Collection[str]
    add: str | None = None
    remove: str | None = None


@dataclass(frozen=True, slots=True)
class SetSummary:
    """Set the history's own summary; "" removes it."""

    summary: str


@dataclass(frozen=True, slots=True)
class Record:
    """Commit edits of the view. One takes the place of an earlier edit of the same name."""

    edits: Sequence[Edit]
    learnt: Mapping[str, Any] = field(default_factory=dict)
    """JSON-like data on what goes with them; the newest holds."""


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Let edits not hold any more: they are forgotten, words and all."""

    names: Collection[EditName]


Change = Add | Delete | Mark | SetSummary | Record | Withdraw


class LedgerEntry(NamedTuple):
    """What one write did to the ledger, as far as it still holds: what it withdrew, then what it recorded."""

    number: int
    edits: Sequence[Edit]
    withdrawn: Collection[EditName] = ()
    learnt: Mapping[str, Any] | None = None


class History(Protocol):
    """Where messages live, and the ledger beside them: in memory, in a database, in AgentScope's memories.

    Each call stands for itself: what others write between two calls shows in the head's number.
    """

    async def head(self) -> Head:
        """Return where the history stands."""
        ...

    async def read(
        self,
        *,
        after: int = 0,
        ids: Collection[str] | None = None,
        mark: str | None = None,
        limit: int | None = None,
    ) -> list[Entry]:
        """Return messages in the order of their places.

        Args:
            after: only what was added, marked or deleted by later writes; a deleted message comes once more,
                without its `msg`. 0: every message that is there.
            ids: only messages under these ids.
            mark: only messages that bear it.
            limit: at most so many, the first ones.
        """
        ...

    async def write(self, changes: Sequence[Change], *, at: int | None = None) -> int:
        """Make all of these changes or none, and return the number of the head then.

        Args:
            changes: in order.
            at: the number that the head must have, of the same write where it is a `WriteNumber`.

        Raises:
            ConflictError: the head has another number than `at`; nothing was changed.
        """
        ...

    async def ledger(self, *, after: int = 0) -> list[LedgerEntry]:
        """Return the edits that hold, and what later writes than `after` withdrew, in order."""
        ...


class Outlines(Protocol):
    """What a history has beside its four verbs where reading all messages costs more than their outline.

    What a message says never changes under its key there, unless it was deleted and added again.
    """

    async def outline(self) -> list[Entry]:
        """Return every message in the order of their places, with a skeleton in the place of its content.

        A skeleton is what `skeleton_of` of `context_compressor.messages.skeletons` returned when the message
        was added, as `as_message` makes a message of it again.
        """
        ...


def outlines_of(history: object) -> Outlines | None:
    """Return a history as what gives outlines; None where it does not."""
    return cast(Outlines, history) if callable(getattr(history, "outline", None)) else None


class Keys:
    """Give each message of a history a key: its id, or one of its own where that is taken, or has a NUL."""

    def __init__(self) -> None:
        self._own: dict[str, list[str]] = {}

    def new(self, msg_id: str, taken: Collection[str]) -> str:
        """Return the key of a further message."""
        if msg_id not in taken and "\0" not in msg_id:
            return msg_id
        number = len(self._own.get(msg_id, ())) + 2
        while (key := f"{msg_id}\0{number}") in taken:
            number += 1
        self.note(key)
        return key

    def note(self, key: str) -> None:
        """Note a key that a history gave to a message."""
        if (msg_id := message_id(key)) != key:
            self._own.setdefault(msg_id, []).append(key)

    def of(self, msg_ids: Iterable[str], taken: Collection[str]) -> list[str]:
        """Return the keys among `taken` of the messages under these ids."""
        return [
            key
            for id in msg_ids
            for key in (*([] if "\0" in id else [id]), *self._own.get(id, ()))
            if key in taken
        ]

    def has(self, msg_id: str, taken: Collection[str]) -> bool:
        """Tell whether there is a message under an id: `of` would return its keys."""
        is_plain = msg_id in taken and "\0" not in msg_id
        return is_plain or (msg_id in self._own and bool(self.of([msg_id], taken)))

    def forget(self, key: str) -> None:
        """Note that a message is gone."""
        keys = self._own.get(message_id(key), [])
        if key in keys:
            keys.remove(key)
            if not keys:
                del self._own[message_id(key)]


def ledger_entries(
    recorded: Iterable[tuple[int, Edit]],
    withdrawn: Iterable[tuple[int, EditName]],
    learnt: tuple[int, Mapping[str, Any]] | None,
) -> list[LedgerEntry]:
    """Return an entry for each write, of what is given with the numbers of the writes."""
    edits: dict[int, list[Edit]] = {}
    for number, edit in recorded:
        edits.setdefault(number, []).append(edit)
    names: dict[int, list[EditName]] = {}
    for number, name in withdrawn:
        names.setdefault(number, []).append(name)
    said = {} if learnt is None else dict([learnt])
    return [
        LedgerEntry(number, edits.get(number, ()), names.get(number, ()), said.get(number))
        for number in sorted({*edits, *names, *said})
    ]


class RecordedEdits:
    """The ledger of a history in this process: the edits that hold, in the order of their writes."""

    def __init__(self) -> None:
        self._edits: dict[EditName, tuple[int, Edit]] = {}
        self._withdrawn: deque[tuple[int, EditName]] = deque(maxlen=MOST_GONE)
        self._learnt: tuple[int, Mapping[str, Any]] | None = None

    def write(self, change: Record | Withdraw, number: int) -> None:
        """Take up one change of a write."""
        if isinstance(change, Record):
            for edit in change.edits:
                self._edits.pop(name_of(edit), None)
                self._edits[name_of(edit)] = number, edit
            if change.learnt:
                self._learnt = number, change.learnt
        else:
            for name in change.names:
                if self._edits.pop(name, None) is not None:
                    self._withdrawn.append((number, name))

    def read(self, after: int) -> list[LedgerEntry]:
        """Return what was written after a number, an entry for each write."""
        withdrawn = self._withdrawn if after else ()
        entries = ledger_entries(self._edits.values(), withdrawn, self._learnt)
        return [entry for entry in entries if entry.number > after]


class ListHistory:
    """A history in this process. Adding, marking and deleting take the same time however long it is."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}  # by key, in the order of their places
        self._keys = Keys()
        self._by_mark: dict[str, set[str]] = {}
        self._gone: deque[Entry] = deque(maxlen=MOST_GONE)
        self._edits = RecordedEdits()
        self._number = 0
        self._last_place = 0
        self._summary = ""

    async def head(self) -> Head:
        """Return where the history stands."""
        return Head(self._number, len(self._entries), self._summary)

    async def read(
        self,
        *,
        after: int = 0,
        ids: Collection[str] | None = None,
        mark: str | None = None,
        limit: int | None = None,
    ) -> list[Entry]:
        """Return messages as `History.read` does."""
        entries: Iterable[Entry] = self._entries.values()
        if mark is not None or ids is not None:
            keys = self._entries.keys() if ids is None else self._keys.of(dict.fromkeys(ids), self._entries)
            chosen = [key for key in keys if key in self._by_mark.get(mark, ())] if mark is not None else keys
            entries = sorted((self._entries[key] for key in chosen), key=_place)
        if after:
            gone = {entry.key: entry for entry in self._gone if entry.key not in self._entries}
            if mark is not None:
                gone = {}  # it bears none any more
            elif ids is not None:
                gone = {key: entry for key, entry in gone.items() if message_id(key) in ids}
            entries = sorted((e for e in (*entries, *gone.values()) if e.changed > after), key=_place)
        return list(entries if limit is None else islice(entries, limit))

    async def write(self, changes: Sequence[Change], *, at: int | None = None) -> int:
        """Make changes as `History.write` does."""
        if at is not None and at != self._number:
            raise conflict(self._number, at)
        for change in changes:
            if isinstance(change, Record):
                list(map(name_of, change.edits))  # what could fail fails before anything is changed
        self._number += 1
        for change in changes:
            if isinstance(change, Add):
                self._add(change)
            elif isinstance(change, Delete):
                self._delete(change.keys)
            elif isinstance(change, Mark):
                self._mark(change.keys, change.add, change.remove)
            elif isinstance(change, SetSummary):
                self._summary = change.summary
            else:
                self._edits.write(change, self._number)
        return self._number

    async def ledger(self, *, after: int = 0) -> list[LedgerEntry]:
        """Return edits as `History.ledger` does."""
        return self._edits.read(after)

    def entries(self) -> list[Entry]:
        """Return every message."""
        return list(self._entries.values())

    @property
    def summary(self) -> str:
        """The history's own summary."""
        return self._summary

    @property
    def number(self) -> int:
        """The head's number."""
        return self._number

    def replace(self, summary: str, messages: Iterable[tuple[Msg, Sequence[str]]]) -> None:
        """Hold this summary and these messages, with their marks, in the place of what is there."""
        self._number += 1
        self._delete(list(self._entries))
        self._summary = summary
        for msg, marks in messages:
            self._add(Add(msg, marks, duplicate=True))

    # Each of these keeps the indexes together.

    def _add(self, change: Add) -> None:
        msg = change.msg
        if not change.duplicate and self._keys.has(msg.id, self._entries):
            for mark in change.marks:
                self._mark(self._keys.of([msg.id], self._entries), mark, None)
            return
        if isinstance(change, Restored):
            key = change.key
            self._keys.note(key)
        else:
            key = self._keys.new(msg.id, self._entries)
        marks = tuple(dict.fromkeys(change.marks))
        self._last_place += 1
        entry = Entry(self._last_place, self._number, key, msg, marks, change.tokens)
        if change.before is not None and change.before in self._entries:
            self._insert(entry, change.before)
        else:
            self._entries[key] = entry
        for mark in marks:
            self._by_mark.setdefault(mark, set()).add(key)

    def _insert(self, entry: Entry, before: str) -> None:
        keys = list(self._entries)
        position = keys.index(before)
        follows = self._entries[before].place
        lower = self._entries[keys[position - 1]].place if position else follows - 2
        entries = list(self._entries.values())
        # Exact, so that there is room however many come to stand between the same two.
        entries.insert(position, entry._replace(place=(Fraction(lower) + Fraction(follows)) / 2))
        self._entries = {entry.key: entry for entry in entries}

    def _delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            entry = self._entries.pop(key, None)
            if entry is not None:
                self._keys.forget(key)
                for mark in entry.marks:
                    self._unindex(mark, key)
                self._gone.append(Entry(entry.place, self._number, key, None))

    def _mark(self, keys: Iterable[str], add: str | None, remove: str | None) -> None:
        for key in keys:
            entry = self._entries.get(key)
            if entry is None:
                continue
            marks = [mark for mark in entry.marks if mark != remove or mark == add]
            if len(marks) < len(entry.marks) and remove is not None:
                self._unindex(remove, key)
            if add is not None and add not in marks:
                marks.append(add)
                self._by_mark.setdefault(add, set()).add(key)
            if tuple(marks) != entry.marks:
                self._entries[key] = entry._replace(marks=tuple(marks), changed=self._number)

    def _unindex(self, mark: str, key: str) -> None:
        keys = self._by_mark[mark]
        keys.discard(key)
        if not keys:
            del self._by_mark[mark]


def _place(entry: Entry) -> float | Fraction:
    return entry.place
