"""Following a list that its owner changes, told apart by fingerprints."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple, Self, TypeVar

from context_compressor.errors import (
    ContextCompressorError,
    InvalidArgumentError,
    InvalidMessageError,
    UnrelatedMessagesError,
)
from context_compressor.memory.running import EventRunner
from context_compressor.memory.state import MemoryState
from context_compressor.memory.tracking import LoopLock, Tracker
from context_compressor.messages.chat import (
    Markers,
    as_dict,
    as_list,
    from_openai,
    has_marker,
    set_markers,
    split_markers,
    text_forms,
    to_openai,
)
from context_compressor.messages.msg import Msg, provenance_of
from context_compressor.messages.parts import plain_texts

T = TypeVar("T")

_LONG_CHARACTERS = 200
"""Texts longer than this are remembered by their hash: the base memory has them already."""

_INSTRUCTING = ("system", "developer")
"""Roles of messages that many conversations share."""

MAY_RETURN = ""
"""In place of the digest of a message that nobody deleted by hand: where it is gone, it is added again."""


class Followed(NamedTuple):
    """A message that came from the list, as a saved state has it."""

    id: str
    digest: str
    """Of what the list said, or `MAY_RETURN`."""


class Synced(NamedTuple):
    """What the list said in one place."""

    wire: dict[str, Any]
    """The message as a chat dict, long texts by their hash."""
    markers: Markers
    """The request metadata in it."""
    id: str
    """Id of its message."""
    digest: str
    """The same in every process."""

    @classmethod
    def of(cls, wire: dict[str, Any], id: str) -> Self:
        """Return what a chat dict says, whose message has this id."""
        return cls(_without_long_texts(wire), split_markers(wire)[1], id, digest_of(wire))


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


def _without_long_texts(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= _LONG_CHARACTERS else _LongText(value)
    if isinstance(value, dict):
        return {key: _without_long_texts(inner) for key, inner in value.items()}
    return [_without_long_texts(inner) for inner in value] if isinstance(value, list) else value


def wire_of(item: Any) -> dict[str, Any]:
    """Return a dict or an SDK object, which may hold further ones, as a plain dict."""
    wire: dict[str, Any] = to_openai(from_openai([item]))[0]
    return wire


def digest_of(wire: dict[str, Any]) -> str:
    """Return what stands for a chat dict in every process, whatever the order of its keys, whether it has
    keys that say nothing, and what request metadata it carries.

    Databases give JSON back in an order of their own (PostgreSQL's `jsonb`). What an SDK object has not set
    is null in its `model_dump()`, and what the provider set to null is left out by `exclude_none`.
    """
    return digests_of(wire)[0]


def digests_of(wire: dict[str, Any]) -> list[str]:
    """Return `digest_of`, and behind it what earlier releases had where a text was the only part."""
    return [_digest(form) for form in text_forms(split_markers(wire)[0])]


def _digest(bare: dict[str, Any]) -> str:
    said = {key: value for key, value in bare.items() if value is not None and value != []}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]


def unless_known(followed: Iterable[Followed], known: Container[str]) -> list[Followed]:
    """Keep the digests of messages that had been deleted by hand: those are not to come back."""
    return [one._replace(digest=MAY_RETURN) if one.id in known else one for one in followed]


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
        self.markers = {one.id: one.markers for one in self.synced if has_marker(one.markers)}


class ListFollower:
    """Bring a memory in line with a list, by position and content.

    Args:
        tracker: keeps the view in step with the history, which follows the list.
        runner: delivers events.
        add: adds messages that nobody else holds.
        delete: deletes messages by their ids.
    """

    # Two callers with one list would both find the same messages new.
    _lock = LoopLock()

    def __init__(
        self,
        tracker: Tracker,
        runner: EventRunner,
        add: Callable[[list[Msg]], Awaitable[None]],
        delete: Callable[[list[str]], Awaitable[int]],
    ) -> None:
        self._tracker = tracker
        self._runner = runner
        self._add = add
        self._delete = delete
        self._latest = Listed(tracker.state)
        self._task: asyncio.Task[Any] | None = None

    @property
    def _known(self) -> Listed:
        if self._latest.state is not self._tracker.state:
            self._latest = Listed(self._tracker.state)
        return self._latest

    def followed(self) -> list[Followed]:
        """Return the messages that came from the list."""
        known = self._known
        return known.loaded + [Followed(synced.id, synced.digest) for synced in known.synced]

    def ids(self) -> list[str]:
        """Return the ids of the list's messages, in order."""
        return [one.id for one in self._known.synced]

    @property
    def markers(self) -> dict[str, Markers]:
        """The request metadata in the newest list, by the id of its message."""
        return self._known.markers

    def mark(self, messages: list[Msg]) -> list[Msg]:
        """Let messages carry the request metadata that the newest list has, stand-ins excepted."""
        if not (markers := self.markers):
            return messages
        return [
            set_markers(msg.copy(), markers[msg.id]) if msg.id in markers and not provenance_of(msg) else msg
            for msg in messages
        ]

    def start_from(self, followed: Sequence[Followed], markers: Mapping[str, Markers] | None = None) -> None:
        """Forget what was synced, but for these messages and what request metadata the list carried."""
        self._latest = Listed(self._tracker.state, loaded=list(followed), markers=dict(markers or {}))

    def look_next_time(self, ids: Iterable[str] = ()) -> None:
        """Let the history tell how far a call that failed came.

        Args:
            ids: of messages that came from the list and may be there, or not.
        """
        doubtful = dict.fromkeys(ids)
        followed = unless_known(self.followed(), {*doubtful, *self._tracker.state.known.tokens})
        self.start_from([*followed, *(Followed(id, MAY_RETURN) for id in doubtful)])

    async def follow(
        self, messages: Iterable[Any], *, is_any: bool = True, show: Callable[[], Awaitable[T]] | None = None
    ) -> T | None:
        """Add what is new; where the list says something else than before, go on from there.

        Where what follows the difference is as it was, only what lies between is exchanged, if the base
        memory is this library's: others take new messages at their end only. Where more differs than the last
        exchange, the conversation as it was is kept as a branch, to be taken up when a list goes on with it.

        Args:
            messages: chat dicts.
            is_any: whether the list may be another conversation altogether.
            show: awaited before another list may be followed; what it returns is returned.

        Raises:
            InvalidMessageError: a message is malformed; nothing was changed.
            InvalidArgumentError: no list, or one with stand-ins of this memory's view; nothing was changed.
            UnrelatedMessagesError: the list shares nothing with any conversation; nothing was changed.
            ContextCompressorError: `on_event` calls this for an event of this very call; nothing was changed.
        """
        said = as_list(messages)
        if self._task is not None and self._task is asyncio.current_task():
            raise ContextCompressorError(
                "sync: on_event is called before the sync that caused the event returns, and would wait for "
                "it for ever; asyncio.create_task(memory.sync(messages)) follows it"
            )
        async with self._lock:
            self._task = asyncio.current_task()
            try:
                known = None
                while known is not self._known:  # cleared or loaded meanwhile, it begins anew
                    known = self._known
                    known = await self._follow(said, known, is_any)
                return None if show is None else await show()
            except InvalidMessageError as error:
                raise _by_its_place(error, said) from None
            finally:
                self._task = None

    async def _follow(self, said: list[Any], known: Listed, is_any: bool) -> Listed:
        """Do so; return what is known of the list then."""
        self._tracker.branches.expire()
        if not known.synced:
            known.synced = await self._read_synced(said, known)
        same = _shared(known.synced, said)
        if same < min(len(known.synced), len(said)) or (said and not same):
            if not is_any:
                self._refuse_unrelated(said, known)
            closest = max(self._tracker.branches, key=lambda b: _shared(b.listed, said), default=None)
            if closest is not None and _shared(closest.listed, said) > same:
                async with self._runner.changing() as events:
                    await self._tracker.return_to(closest, known.synced, events)
                known = self._latest = Listed(self._tracker.state, list(closest.listed))
                same = _shared(known.synced, said)
        if same < len(known.synced):
            await self._runner.refresh()  # after a restart there is no view yet
            end = self._end_of_change(said, same, known)
            if end is not None:
                exchanged = _read(said[same:end])
                _read(said[len(known.synced) :])  # or nothing is changed
                await self._exchange(exchanged, same, end, known)
                same = len(known.synced)
        added = _read(said[same:])
        if same < len(known.synced):
            self._refuse_stand_ins(added, same)
            place, end = self._find_behind([digest_of(wire) for _, wire in added], known.synced, same)
            if end is not None:
                await self._exchange(added[:place], same, end, known)
                added, same = added[len(known.synced) - same :], len(known.synced)
        tail = known.synced[same:]
        outdated = [one.id for one in tail]
        synced, new = self._without_deleted(added, tail)
        try:
            if not _is_one_exchange(tail):
                async with self._runner.changing() as events:
                    await self._tracker.depart(outdated, list(known.synced), events)
                known = self._latest = Listed(self._tracker.state, known.synced[:same])
            elif outdated:
                await self._delete(outdated)
            del known.synced[same:]
            if new:
                await self._add(new)
        except BaseException:
            self.look_next_time([*outdated, *(msg.id for msg in new)])
            raise
        known.synced += synced
        known.note_markers()
        if known is not self._known:  # what was added may be in the history of now
            self.look_next_time(msg.id for msg in new)
        return known

    def _refuse_unrelated(self, said: list[Any], known: Listed) -> None:
        """Refuse a list of which no message but instructions was ever said here."""
        for one, new in zip(known.synced, said, strict=False):
            if one.wire["role"] not in _INSTRUCTING and _is_as_it_was(one, new):
                return
        wires = [wire for wire in map(wire_of, said) if wire["role"] not in _INSTRUCTING]
        told = [known.synced, *(branch.listed for branch in self._tracker.branches)]
        digests = {one.digest for synced in told for one in synced if one.wire["role"] not in _INSTRUCTING}
        items = self._tracker.state.items
        if digests.isdisjoint(map(digest_of, wires)) and wires and (digests or items):
            raise UnrelatedMessagesError(
                "messages: this list shares nothing with the conversation that this memory holds; give "
                "another conversation a memory of its own, or begin this one by view(messages, reset=True)"
            )

    def _without_deleted(
        self, said: list[tuple[Msg, dict[str, Any]]], outdated: Sequence[Synced]
    ) -> tuple[list[Synced], list[Msg]]:
        """Return what the list says as synced, and the messages of it that are to be added: those that were
        deleted by hand, and that it says again behind a difference, are not to come back.
        """
        deleted: dict[str, list[Synced]] = {}
        for one in outdated:
            if one.id not in self._tracker.state.known:
                deleted.setdefault(one.digest, []).append(one)
        synced: list[Synced] = []
        new: list[Msg] = []
        for msg, wire in said:
            one = Synced.of(wire, msg.id)
            if again := deleted.get(one.digest):
                one = again.pop(0)
            else:
                new.append(msg)
            synced.append(one)
        return synced, new

    def _refuse_stand_ins(self, said: list[tuple[Msg, dict[str, Any]]], start: int) -> None:
        """Refuse a view as the list, `in_turn` or not: what its stand-ins stand for would be deleted."""
        items = self._tracker.state.items
        stand_ins = to_openai([item.msg for item in items if item.kind == "segment" or item.stubs])
        segments = [str(item.msg.content) for item in items if item.kind == "segment"]
        for place, (msg, wire) in enumerate(said if stand_ins else (), start):
            texts = plain_texts(msg) if msg.role == "user" else []
            if split_markers(wire)[0] in stand_ins or any(
                segment in text for text in texts for segment in segments
            ):
                raise InvalidArgumentError(
                    f"messages[{place}]: stands in for earlier messages in a view of this memory; sync the "
                    "whole conversation, not what get_memory returned"
                )

    def _end_of_change(self, said: list[Any], same: int, known: Listed) -> int | None:
        """Return where the list goes on as it was, message for message, behind a difference that is shorter.

        That is found without reading messages: of a long list with a clock in its system prompt nearly all is
        as it was.
        """
        end = len(known.synced)
        if len(said) < end or not self._tracker.can_insert:
            return None
        while end > same and _is_as_it_was(known.synced[end - 1], said[end - 1]):
            end -= 1
        return end if end - same <= len(known.synced) - end else None

    async def _exchange(
        self, added: list[tuple[Msg, dict[str, Any]]], same: int, end: int, known: Listed
    ) -> None:
        """Put messages in the place of those that the list had from `same` to `end`; what follows stays."""
        self._refuse_stand_ins(added, same)
        gone = [synced.id for synced in known.synced[same:end]]
        # Some of what stands behind, or all, may have been deleted from the history.
        behind = [synced.id for synced in known.synced[end:]]
        async with self._runner.changing() as events:
            await self._tracker.exchange(gone, [msg for msg, _ in added], behind, events)
        known.synced[same:end] = [Synced.of(wire, msg.id) for msg, wire in added]

    def _find_behind(self, digests: list[str], synced: list[Synced], same: int) -> tuple[int, int | None]:
        """Return how many messages of a list come before it goes on as it was, and where that was.

        None: nothing of it does, or so little that this is another conversation that comes to the same words,
        and not the same one mended.
        """
        behind, place = 0, 0
        known = [one.digest for one in synced[same:]]
        for end in range(len(digests), 0, -1):
            if behind >= min(end, len(known)):
                break
            count = 0
            while count < min(end, len(known)) and digests[end - 1 - count] == known[-1 - count]:
                count += 1
            if count > behind:
                behind, place = count, end - count
        end = len(synced) - behind
        if not behind or behind < min(place, end - same) or not self._tracker.can_insert:
            return 0, None
        return place, end

    async def _read_synced(self, said: list[Any], known: Listed) -> list[Synced]:
        """Return what was synced before a restart.

        A base memory that lasts may be ahead of the saved state: what it has of the list is synced as well.
        """
        entries = await self._tracker.history.read()
        read = [(entry.msg.id, to_openai([entry.msg])) for entry in entries if entry.msg is not None]
        # As the list says it; what takes several dicts to say did not come from there.
        history = {id: Synced.of(wires[0], id) for id, wires in read if len(wires) == 1}
        loaded = dict(known.loaded)
        digests = [(digest_of(wire), wire) for wire in map(wire_of, said)]
        said_by_digest = dict(digests)
        written = {digest: now for now, wire in digests for digest in digests_of(wire)}
        left = Counter(digest for digest, _ in digests)
        left.subtract(history[id].digest for id in loaded if id in history)
        behind: dict[str | None, list[Synced]] = {}
        for id, synced in history.items():
            if id in loaded or left[synced.digest] > 0:
                left[synced.digest] -= id not in loaded
                behind[id] = [synced]
        last: str | None = None
        for id, saved in loaded.items():
            digest = written.get(saved, saved)
            if id in history:
                last = id
            elif left[digest] > 0:  # deleted by hand, and not to come back
                left[digest] -= 1
                behind.setdefault(last, []).append(Synced.of(said_by_digest[digest], id))
        known.loaded = []
        return [*behind.pop(None, []), *chain.from_iterable(behind.values())]


def _read(said: list[Any]) -> list[tuple[Msg, dict[str, Any]]]:
    """Return what messages of a list say, each with its chat dict."""
    read = from_openai(said)
    return [(set_markers(msg, []), wire) for msg, wire in zip(read, to_openai(read), strict=True)]


def _is_as_it_was(old: Synced, new: Any) -> bool:
    # Comparing dicts is far cheaper than reading them, and all but the end is mostly the same.
    return bool(old.wire == new or old.wire == as_dict(new))


def _shared(synced: Sequence[Synced], said: Sequence[Any]) -> int:
    """Return how many messages at the beginning of a list are as they were; note what is said another way."""
    same = 0
    for old, new in zip(synced, said, strict=False):
        if not _is_as_it_was(old, new) and old.wire != (wire := wire_of(new)):
            if old.digest != digest_of(wire):
                break
            if isinstance(synced, list):
                synced[same] = Synced.of(wire, old.id)
        same += 1
    return same


def _is_one_exchange(synced: Sequence[Synced]) -> bool:
    """Tell whether these are one exchange at most: a message, or calls and nothing but their results."""
    return all(one.wire["role"] in ("tool", "function") for one in synced[1:])


def _by_its_place(error: InvalidMessageError, said: list[Any]) -> InvalidMessageError:
    """Return an error that was met in a part of the list with the message's place in the whole."""
    try:
        from_openai(said)
    except InvalidMessageError as placed:
        return placed
    return error
