"""Following a list that its owner changes, told apart by fingerprints."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

from context_compressor.errors import (
    ContextCompressorError,
    InvalidArgumentError,
    InvalidMessageError,
    UnrelatedMessagesError,
)
from context_compressor.memory.listed import (
    MAY_RETURN,
    Followed,
    Listed,
    Piece,
    Synced,
    digest_of,
    digests_of,
    is_as_it_was,
    is_one_exchange,
    read_pieces,
    shared,
    unless_known,
    wires_of,
)
from context_compressor.memory.loops import LoopLock
from context_compressor.memory.running import EventRunner
from context_compressor.memory.tracking import Tracker
from context_compressor.messages.forms import FORMS, Form
from context_compressor.messages.markers import Markers, set_markers
from context_compressor.messages.msg import Msg, is_instruction, provenance_of
from context_compressor.messages.parts import plain_texts

T = TypeVar("T")


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
        known, there = self._known, self._tracker.state.known
        return known.loaded + [
            Followed(one.ids, one.digest, one.units if len(one.units) > 1 and one.deleted(there) else ())
            for one in known.synced
        ]

    def ids(self) -> list[tuple[str, ...]]:
        """Return the ids of the messages of each piece of the list, in order."""
        return [one.ids for one in self._known.synced]

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
        self.start_from([*followed, *(Followed((id,), MAY_RETURN) for id in doubtful)])

    async def follow(
        self,
        said: Sequence[Sequence[Any]],
        form: Form = FORMS["chat"],
        *,
        is_any: bool = True,
        show: Callable[[], Awaitable[T]] | None = None,
    ) -> T | None:
        """Add what is new; where the list says something else than before, go on from there.

        Where what follows the difference is as it was, only what lies between is exchanged, if the base
        memory is this library's: others take new messages at their end only. Where more differs than the last
        exchange, the conversation as it was is kept as a branch, to be taken up when a list goes on with it.

        Args:
            said: the list, in pieces.
            form: its shape.
            is_any: whether the list may be another conversation altogether.
            show: awaited before another list may be followed; what it returns is returned.

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
                known = None
                while known is not self._known:  # cleared or loaded meanwhile, it begins anew
                    known = self._known
                    known = await self._follow(said, known, is_any, form)
                return None if show is None else await show()
            except InvalidMessageError as error:
                raise _by_its_place(error, list(chain.from_iterable(said)), form) from None
            finally:
                self._task = None

    async def _follow(self, said: Sequence[Sequence[Any]], known: Listed, is_any: bool, form: Form) -> Listed:
        """Do so; return what is known of the list then."""
        if not known.synced:
            known.synced = await self._read_synced(said, known, form)
        same = shared(known.synced, said)
        if not is_any and (same < len(known.synced) or not known.synced):
            self._refuse_unrelated(said, known, same)
        if same < len(said):
            closest = max(self._tracker.branches, key=lambda b: shared(b.listed, said), default=None)
            if closest is not None and shared(closest.listed, said) > same:
                async with self._runner.changing():
                    is_done = await self._tracker.return_to(closest, known.synced)
                if is_done:
                    known = self._latest = Listed(self._tracker.state, list(closest.listed))
                    same = shared(known.synced, said)
        if same < len(known.synced):
            await self._runner.refresh()  # after a restart there is no view yet
            end = self._end_of_change(said, same, known)
            if end is not None:
                exchanged = read_pieces(form, said[same:end])
                read_pieces(form, said[len(known.synced) :])  # or nothing is changed
                await self._exchange(exchanged, same, end, known, form)
                same = len(known.synced)
        added = read_pieces(form, said[same:])
        if same < len(known.synced):
            self._refuse_stand_ins(added, same, form)
            place, end = self._find_behind([piece.digest for piece in added], known.synced, same)
            if end is not None:
                await self._exchange(added[:place], same, end, known, form)
                added, same = added[len(known.synced) - same :], len(known.synced)
        tail = known.synced[same:]
        outdated = [id for one in tail for id in one.ids]
        synced, new = self._without_deleted(added, tail, form)
        try:
            if not is_one_exchange(tail):
                async with self._runner.changing():
                    await self._tracker.depart(outdated, list(known.synced))
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

    def _refuse_unrelated(self, said: Sequence[Sequence[Any]], known: Listed, same: int) -> None:
        """Refuse a list of which no message but instructions was ever said here, where something was."""
        if any(one.speaks for one in known.synced[:same]):
            return
        pairs = zip(known.synced, said, strict=False)
        if any(one.speaks and is_as_it_was(one, new[: len(one.wires)]) for one, new in pairs):
            return  # what a model gave in one go may have become more
        told = [known.synced, *(branch.listed for branch in self._tracker.branches)]
        digests = {one.digest for synced in told for one in synced if one.speaks}
        shown = any(not is_instruction(item.source) for item in self._tracker.state.items)
        if (digests or shown) and digests.isdisjoint(digest_of(wires_of(new)) for new in said):
            raise UnrelatedMessagesError(
                "messages: this list shares nothing with the conversation that this memory holds; give "
                "another conversation a memory of its own, or begin this one by view(messages, reset=True)"
            )

    def _without_deleted(
        self, said: Sequence[Piece], outdated: Sequence[Synced], form: Form
    ) -> tuple[list[Synced], list[Msg]]:
        """Return what the list says as synced, and the messages of it that are to be added: what was deleted
        by hand, and is said again behind a difference or beside one, is not to come back.
        """
        deleted: dict[str, list[str]] = {}
        for one in outdated:
            for digest, id in one.deleted(self._tracker.state.known):
                deleted.setdefault(digest, []).append(id)
        synced: list[Synced] = []
        new: list[Msg] = []
        for piece in said:
            again = [deleted[unit].pop(0) if deleted.get(unit) else None for unit in piece.units]
            msgs = _unless_gone(piece, again, form)
            own = iter([msg.id for msg in msgs] if len(msgs) > 1 else [msg.id for msg in msgs] * len(again))
            ids = [next(own) if id is None else id for id in again]
            synced.append(Synced.of(piece, ids))
            new += msgs
        return synced, new

    def _refuse_stand_ins(self, said: Sequence[Piece], start: int, form: Form) -> None:
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

    def _end_of_change(self, said: Sequence[Sequence[Any]], same: int, known: Listed) -> int | None:
        """Return where the list goes on as it was, message for message, behind a difference that is shorter.

        That is found without reading messages: of a long list with a clock in its system prompt nearly all is
        as it was.
        """
        end = len(known.synced)
        if len(said) < end or not self._tracker.can_insert:
            return None
        while end > same and is_as_it_was(known.synced[end - 1], said[end - 1]):
            end -= 1
        return end if end - same <= len(known.synced) - end else None

    async def _exchange(self, added: Sequence[Piece], same: int, end: int, known: Listed, form: Form) -> None:
        """Put messages in the place of those that the list had from `same` to `end`; what follows stays."""
        self._refuse_stand_ins(added, same, form)
        gone = [id for synced in known.synced[same:end] for id in synced.ids]
        # Some of what stands behind, or all, may have been deleted from the history.
        behind = [id for synced in known.synced[end:] for id in synced.ids]
        synced, new = self._without_deleted(added, known.synced[same:end], form)
        async with self._runner.changing():
            await self._tracker.exchange(gone, new, behind)
        known.synced[same:end] = synced

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

    async def _read_synced(self, said: Sequence[Sequence[Any]], known: Listed, form: Form) -> list[Synced]:
        """Return what was synced before a restart.

        A base memory that lasts may be ahead of the saved state: what it has of the list is synced as well.
        """
        entries = [entry.msg for entry in await self._tracker.history.read() if entry.msg is not None]
        history = {one.ids: one for one in _written(entries, known.loaded, form)}
        loaded = {one.ids: one for one in known.loaded}
        digests = [(digest_of(wires), piece) for piece in said if (wires := wires_of(piece)) is not None]
        said_by_digest = dict(digests)
        written = {digest: now for now, piece in digests for digest in digests_of(wires_of(piece))}
        left = Counter(digest for digest, _ in digests)
        left.subtract(history[ids].digest for ids in loaded if ids in history)
        behind: dict[tuple[str, ...] | None, list[Synced]] = {}
        for ids, synced in history.items():
            if ids in loaded or left[synced.digest] > 0:
                left[synced.digest] -= ids not in loaded
                behind[ids] = [synced]
        last: tuple[str, ...] | None = None
        for ids, saved in loaded.items():
            digest = written.get(saved.digest, saved.digest)
            if ids in history:
                last = ids
            elif left[digest] > 0:  # deleted by hand, and not to come back
                left[digest] -= 1
                (piece,) = read_pieces(form, [said_by_digest[digest]])
                own = [id for _, id in saved.units] or list(ids)
                behind.setdefault(last, []).append(Synced.of(piece, own))
            elif digest != MAY_RETURN:  # the same, and what is said in its place may hold it
                behind.setdefault(last, []).append(Synced.gone(saved))
        known.loaded = []
        return [*behind.pop(None, []), *chain.from_iterable(behind.values())]


def _unless_gone(piece: Piece, again: Sequence[str | None], form: Form) -> list[Msg]:
    """Return the messages of a piece without those units that were deleted by hand."""
    if not any(again):
        return piece.msgs
    if len(piece.msgs) > 1:
        return [msg for msg, id in zip(piece.msgs, again, strict=True) if id is None]
    return form.read([wire for wire, id in zip(piece.wires, again, strict=True) if id is None])


def _written(messages: Sequence[Msg], loaded: Sequence[Followed], form: Form) -> list[Synced]:
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
    found: list[Synced] = []
    for group in groups:
        one = saved.get(group[0].id)
        if one is not None and len(group) < len(one.ids):  # others of it were deleted by hand
            found.append(Synced.gone(one))
            continue
        wires = form.write([msg.copy() for msg in group])
        # What takes several pieces to say did not come from there.
        if len(form.pieces(wires)) == 1:
            piece = Piece.of(group, wires_of(wires), [], form)
            found.append(Synced.of(piece, [msg.id for msg in group]))
    return found


def _by_its_place(error: InvalidMessageError, said: Sequence[Any], form: Form) -> InvalidMessageError:
    """Return an error that was met in a part of the list with the message's place in the whole."""
    try:
        form.read(said)
    except InvalidMessageError as placed:
        return placed
    return error
