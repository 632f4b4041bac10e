"""A memory that follows a list, which its owner changes as he likes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from context_compressor.errors import (
    ContextCompressorError,
    InvalidArgumentError,
    UnrelatedMessagesError,
)
from context_compressor.memory.listing import (
    MAY_RETURN,
    Followed,
    Known,
    Listing,
    Piece,
    Said,
    compare,
    is_one_exchange,
    unless_returning,
)
from context_compressor.memory.loops import LoopLock
from context_compressor.memory.shell import Shell
from context_compressor.memory.state import MemoryState
from context_compressor.memory.tracking import Tracker
from context_compressor.messages.forms import Form
from context_compressor.messages.markers import Markers, has_marker, set_markers
from context_compressor.messages.msg import Msg, is_instruction, provenance_of
from context_compressor.messages.parts import plain_texts


@dataclass(slots=True)
class Listed:
    """What is known of the list, in one state of the memory: cleared or loaded, it has another."""

    state: MemoryState
    listing: Listing = ()
    """What the list said last time."""
    loaded: list[Followed] = field(default_factory=list)
    """What was synced before a saved state was loaded, until the history was read."""
    returning: set[str] = field(default_factory=set)
    """Ids of those that nobody deleted by hand: where the history lacks them, it is behind that state."""
    markers: dict[str, Markers] = field(default_factory=dict)
    """The request metadata in the newest list, by the id of its message."""


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
        runner: Shell,
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
        known, there = self._known, self._tracker.state.known
        loaded = unless_returning(known.loaded, known.returning.difference(self._tracker.known_tokens))
        return loaded + [
            Followed(one.ids, one.digest, one.units if len(one.units) > 1 and one.deleted(there) else ())
            for one in known.listing
        ]

    @property
    def markers(self) -> dict[str, Markers]:
        """The request metadata in the newest list, by the id of its message."""
        return self._known.markers

    def with_markers(self, messages: list[Msg]) -> list[Msg]:
        """Let messages carry the request metadata that the newest list has, stand-ins excepted."""
        if not (markers := self.markers):
            return messages
        return [
            set_markers(msg.copy(), markers[msg.id]) if msg.id in markers and not provenance_of(msg) else msg
            for msg in messages
        ]

    def start_from(
        self,
        followed: Sequence[Followed],
        returning: Iterable[str],
        markers: Mapping[str, Markers] | None = None,
    ) -> None:
        """Forget what was synced, but for these messages and what request metadata the list carried.

        Args:
            followed: the messages.
            returning: ids of those that nobody has deleted by hand.
            markers: the metadata, by the id of its message.
        """
        self._latest = Listed(
            self._tracker.state, loaded=list(followed), returning=set(returning), markers=dict(markers or {})
        )

    async def note_deleting(self) -> None:
        """Note that what leaves the history from now on is deleted by hand. Holds: the tracker's lock."""
        if self._known.loaded:
            await self._tracker.catch_up()
            self._known.returning.difference_update(self._tracker.state.known.tokens)

    def look_next_time(self, ids: Iterable[str] = ()) -> None:
        """Let the history tell how far a call that failed came.

        Args:
            ids: of messages that came from the list and may be there, or not.
        """
        doubtful = dict.fromkeys(ids)
        followed = [*self.followed(), *(Followed((id,), MAY_RETURN) for id in doubtful)]
        self.start_from(followed, {*doubtful, *self._tracker.state.known.tokens})

    @asynccontextmanager
    async def follow(self, said: Said, *, is_any: bool = True) -> AsyncIterator[Listing]:
        """Add what is new; where the list says something else than before, go on from there.

        Where what follows the difference is as it was, only what lies between is exchanged, if the base
        memory is this library's: others take new messages at their end only. Where more differs than the last
        exchange, the conversation as it was is kept as a branch, to be taken up when a list goes on with it.
        Within the context, which is given what is known of the list, no other list is followed.

        Args:
            said: the list.
            is_any: whether the list may be another conversation altogether.

        Raises:
            InvalidMessageError: a message is malformed; nothing was changed.
            InvalidArgumentError: no list, or one with stand-ins of this memory's view; nothing was changed.
            UnrelatedMessagesError: the list shares nothing with any conversation; nothing was changed.
            ContextCompressorError: `on_event` calls this for an event of this very call; nothing was changed.
        """
        if self._task is not None and self._task is asyncio.current_task():
            raise ContextCompressorError(
                "sync: on_event is called before the sync that caused the event returns, and would wait for "
                "it for ever; asyncio.create_task(memory.sync(messages)) follows it"
            )
        async with self._lock:
            self._task = asyncio.current_task()
            try:
                known = await self._follow(said, self._known, is_any)
                while known is not self._known:  # cleared or loaded meanwhile, it begins anew
                    known = await self._follow(said, self._known, is_any)
                yield known.listing
            finally:
                self._task = None

    async def _follow(self, said: Said, known: Listed, is_any: bool) -> Listed:
        """Do so; return what is known of the list then."""
        if not known.listing:
            known.listing = await self._read_listing(said, known)
        may_insert = self._tracker.can_insert
        found = compare(known.listing, said, goes_on=may_insert)
        if not is_any and (found.same < len(known.listing) or not known.listing):
            self._refuse_unrelated(said, known.listing, found.same)
        if found.same < len(said):
            branches = self._tracker.branches
            closest = max(branches, key=lambda branch: said.shared(branch.listed), default=None)
            if closest is not None and said.shared(closest.listed) > found.same:
                async with self._runner.changing():
                    is_done = await self._tracker.return_to(closest, known.listing)
                if is_done:
                    known = self._latest = Listed(self._tracker.state, closest.listed)
                    found = compare(known.listing, said, goes_on=may_insert)
        listing, (same, gone, put) = found.listing, found[1:]
        outdated, behind = listing[same:gone], listing[gone:]
        if same < len(listing):
            await self._runner.refresh()  # after a restart there is no view yet
        instead, added = said.read(same, put), said.read(put + len(behind))
        if same < len(listing):
            self._refuse_stand_ins(instead, said.form, said.start(same))
        read = self._without_deleted([*instead, *added], outdated, said.form)
        put_now = [one for one, _ in read[: len(instead)]]
        new = [msg for _, msgs in read[: len(instead)] for msg in msgs]
        later = [msg for _, msgs in read[len(instead) :] for msg in msgs]
        ids = [id for one in outdated for id in one.ids]
        try:
            if behind:
                # Some of what stands behind, or all, may have been deleted from the history.
                place = [id for one in behind for id in one.ids]
                async with self._runner.changing():
                    await self._tracker.exchange(ids, new, place)
            elif not is_one_exchange(outdated):
                async with self._runner.changing():
                    await self._tracker.depart(ids, known.listing)
                known = self._latest = Listed(self._tracker.state)
            elif ids:
                await self._delete(ids)
            known.listing = (*listing[:same], *(put_now if behind else ()), *behind)
            if fresh := later if behind else new:
                await self._add(fresh)
        except BaseException:
            self.look_next_time([*ids, *(msg.id for msg in (*new, *later))])
            raise
        known.listing = (*listing[:same], *put_now, *behind, *(one for one, _ in read[len(instead) :]))
        known.markers = {one.ids[0]: one.markers for one in known.listing if has_marker(one.markers)}
        if known is not self._known:  # what was added may be in the history of now
            self.look_next_time(msg.id for msg in (*new, *later))
        return known

    def _refuse_unrelated(self, said: Said, listing: Listing, same: int) -> None:
        """Refuse a list of which no message but instructions was ever said here, where something was."""
        if any(one.speaks for one in listing[:same]):
            return
        for place, one in enumerate(listing[: len(said)]):
            if one.speaks and Said(said.pieces[place][: len(one.said)], said.form).shared([one]):
                return  # what a model gave in one go may have become more
        told = [listing, *(branch.listed for branch in self._tracker.branches)]
        digests = {one.digest for each in told for one in each if one.speaks}
        shown = any(not is_instruction(item.source) for item in self._tracker.state.items)
        if (digests or shown) and digests.isdisjoint(map(said.digest, range(len(said)))):
            raise UnrelatedMessagesError(
                "messages: this list shares nothing with the conversation that this memory holds; give "
                "another conversation a memory of its own, or begin this one by view(messages, reset=True)"
            )

    def _without_deleted(
        self, said: Sequence[Piece], outdated: Sequence[Known], form: Form
    ) -> list[tuple[Known, list[Msg]]]:
        """Return what is known of pieces then, each with the messages of it that are to be added.

        What was deleted by hand, and is said again behind a difference or beside one, is not to come back.
        """
        deleted: dict[str, list[str]] = {}
        for one in outdated:
            for digest, id in one.deleted(self._tracker.state.known):
                deleted.setdefault(digest, []).append(id)
        found: list[tuple[Known, list[Msg]]] = []
        for piece in said:
            again = [deleted[unit].pop(0) if deleted.get(unit) else None for unit in piece.units]
            msgs = _unless_gone(piece, again, form)
            own = iter([msg.id for msg in msgs] if len(msgs) > 1 else [msg.id for msg in msgs] * len(again))
            found.append((Known.of(piece, [next(own) if id is None else id for id in again]), msgs))
        return found

    def _refuse_stand_ins(self, said: Sequence[Piece], form: Form, start: int) -> None:
        """Refuse a view as the list, `in_turn` or not: what its stand-ins stand for would be deleted."""
        items = self._tracker.state.items
        shown = [item.msg for item in items if item.kind == "segment" or item.stubs]
        stand_ins = [form.write([msg]) for msg in shown]
        segments = [str(item.msg.content) for item in items if item.kind == "segment"]
        for place, piece in enumerate(said if stand_ins else (), start):
            texts = [text for msg in piece.msgs if msg.role == "user" for text in plain_texts(msg)]
            if any(form.write([msg]) in stand_ins for msg in piece.msgs) or any(
                segment in text for text in texts for segment in segments
            ):
                raise InvalidArgumentError(
                    f"messages[{place}]: stands in for earlier messages in a view of this memory; sync the "
                    "whole conversation, not what get_memory returned"
                )

    async def _read_listing(self, said: Said, known: Listed) -> Listing:
        """Return what was synced before a restart.

        A base memory that lasts may be ahead of the saved state: what it has of the list is synced as well.
        """
        entries = [entry.msg for entry in await self._tracker.history.read() if entry.msg is not None]
        synced = unless_returning(known.loaded, known.returning)
        history = {one.ids: one for one in _written(entries, synced, said.form)}
        loaded = {one.ids: one for one in synced}
        places = {said.digest(place): place for place in range(len(said))}
        left = Counter(map(said.digest, range(len(said))))
        left.subtract(history[ids].digest for ids in loaded if ids in history)
        behind: dict[tuple[str, ...] | None, list[Known]] = {}
        for ids, one in history.items():
            if ids in loaded or left[one.digest] > 0:
                left[one.digest] -= ids not in loaded
                behind[ids] = [one]
        last: tuple[str, ...] | None = None
        for ids, saved in loaded.items():
            if ids in history:
                last = ids
            elif left[saved.digest] > 0:  # deleted by hand, and not to come back
                left[saved.digest] -= 1
                (piece,) = said.read(places[saved.digest], places[saved.digest] + 1)
                own = [id for _, id in saved.units] or list(ids)
                behind.setdefault(last, []).append(Known.of(piece, own))
            elif saved.digest != MAY_RETURN:  # the same, and what is said in its place may hold it
                behind.setdefault(last, []).append(Known.gone(saved))
        known.loaded = []
        return (*behind.pop(None, []), *chain.from_iterable(behind.values()))


def _unless_gone(piece: Piece, again: Sequence[str | None], form: Form) -> list[Msg]:
    """Return the messages of a piece without those units that were deleted by hand."""
    if not any(again):
        return piece.msgs
    if len(piece.msgs) > 1:
        return [msg for msg, id in zip(piece.msgs, again, strict=True) if id is None]
    return form.read([wire for wire, id in zip(piece.wires, again, strict=True) if id is None])


def _written(messages: Sequence[Msg], loaded: Sequence[Followed], form: Form) -> list[Known]:
    """Return messages of a history as a list says them.

    Args:
        messages: of the history.
        loaded: pieces whose ids are known.
        form: the list's.
    """
    saved = {id: one for one in loaded for id in one.ids}
    groups: list[list[Msg]] = []
    for msg in messages:
        one = saved.get(msg.id)
        is_same = bool(groups) and one is not None and groups[-1][-1].id in one.ids
        joins = bool(groups) and one is None and form.joins(groups[-1][-1], msg)
        if is_same or joins:
            groups[-1].append(msg)
        else:
            groups.append([msg])
    found: list[Known] = []
    for group in groups:
        one = saved.get(group[0].id)
        if one is not None and len(group) < len(one.ids):  # others of it were deleted by hand
            found.append(Known.gone(one))
            continue
        written = Said(form.write([msg.copy() for msg in group]), form)
        # What takes several pieces to say did not come from there.
        if len(written) == 1:
            found.append(Known.of(written.piece(0, group, []), [msg.id for msg in group]))
    return found
