"""Changing history and view together, by one way."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from context_compressor.compression.edits import ItemKey, SegmentEdit, message_id
from context_compressor.compression.engine import Done
from context_compressor.errors import ConflictError
from context_compressor.events import CompressionEvent
from context_compressor.memory.branches import Branch
from context_compressor.memory.following import CHANGED, NOTHING, HistoryFollower
from context_compressor.memory.history import (
    Add,
    Change,
    Delete,
    Entry,
    Mark,
    Record,
    SetSummary,
    Withdraw,
)
from context_compressor.memory.rebuilding import changed_ids
from context_compressor.memory.state import MemoryState
from context_compressor.messages.msg import Msg
from context_compressor.tokens.counter import MessageTokens
from context_compressor.tokens.off_loop import measure_all_off_loop

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Tracker(HistoryFollower):
    """Move a compressed memory on: whatever changes its history, view and ledger together goes in here.

    Every change goes one way: what it withdraws from the ledger is found, then both are written at once, then
    the state follows. Where others wrote meanwhile, their changes are read and all is done again. Each method
    holds: lock.
    """

    async def add(
        self,
        messages: Sequence[Msg],
        marks: Sequence[str],
        counted: Mapping[int, MessageTokens],
        events: list[CompressionEvent],
        *,
        duplicates: bool,
    ) -> None:
        """Add messages; one whose id is known gets the marks, unless duplicates are kept.

        Args:
            messages: copies; they are kept.
            marks: for each of them.
            counted: tokens, by the message's identity.
            events: receives what that led to.
            duplicates: whether to keep messages whose ids are known.
        """
        # Where the history numbers its writes, others' show in the number that comes back.
        if self._has_to_read or not (self._tells_marks or await self.is_at_head()):
            await self.catch_up(events)
        state, name = self.state, self._name
        changes: list[Change] = []
        for msg in messages:
            tokens = counted.get(id(msg))
            total = None if tokens is None else (name, tokens.total)
            changes.append(Add(msg, marks, duplicates, total))
        ids = [msg.id for msg in messages]
        if any("\0" in id for id in ids) or (
            duplicates and (len(set(ids)) < len(ids) or any(map(state.known.knows, ids)))
        ):
            await self.history.write(changes)
            await self.catch_up(events)  # the history alone knows under which keys they are
            return
        if not await self._write(changes):
            return
        marked_again = False
        for msg in messages:
            is_known = state.known.knows(msg.id)
            marked_again = marked_again or (is_known and bool(marks))
            if duplicates or not is_known:
                state.enqueue(msg, counted.get(id(msg)) or state.measure(msg))
            state.known.note_marks(msg.id, marks)
        if marked_again:
            await self._marks_changed(marks, events)

    async def delete(
        self, find: Callable[[], Awaitable[Collection[str]]], events: list[CompressionEvent]
    ) -> int:
        """Remove messages from history, view and ledger; return how many.

        Args:
            find: returns their keys.
            events: receives what that led to.
        """

        async def change() -> int:
            state = self.state
            keys = [key for key in await find() if key in state.known]
            if not keys:
                return 0
            before, changes, rebuilt = state.tokens, list[Change]([Delete(keys)]), None
            items = state.items_without(keys)
            if items is None:
                left = [entry for entry in await self.history.read() if entry.key not in set(keys)]
                rebuilt = await self._rebuild(left, keys, state.known.tokens, set())
                changes += self._following(rebuilt)
            if await self._write(changes, at=self.number):
                state.known.remove(keys)
                self._note_gone(keys)
                if rebuilt is not None:
                    self._show(rebuilt)
                elif items is not None:
                    state.show_without(items, keys)
                self.branches.drop(keys)
                self.note_edit(events, "deleted", before, [message_id(key) for key in keys])
            else:  # a wrapped memory did something else
                await self.catch_up(events)
            return sum(key not in self.state.known for key in keys)

        return await self._in_step(change, events)

    @property
    def can_insert(self) -> bool:
        """Whether the history takes messages in front of others."""
        return self._tells_marks

    async def exchange(
        self,
        gone: Sequence[str],
        added: Sequence[Msg],
        behind: Sequence[str],
        events: list[CompressionEvent],
    ) -> None:
        """Put messages in the place of others, in front of what stands behind those.

        Args:
            gone: ids of messages that leave; where as many come, each gives its marks to its successor.
            added: messages that nobody else holds.
            behind: ids of messages, of which the first that is there follows.
            events: receives what that led to.
        """
        counts = await measure_all_off_loop(self._counter, added)
        new = [(msg.id, msg) for msg in added]
        counted = {msg.id: tokens for msg, tokens in zip(added, counts, strict=True)}

        async def change() -> None:
            state = self.state
            before, shown = state.tokens, list(state.items)
            keys = state.known.keys_of(gone)
            next_key = next(iter(state.known.keys_of(behind)), None) or state.known.key_after(keys)
            found = {entry.key: entry.marks for entry in await self.history.read(ids=gone)}
            marks = [found.get(key, ()) for key in keys]
            if len(marks) != len(added):
                marks = [()] * len(added)
            changes: list[Change] = [Delete(keys)]
            changes += [Add(msg, own, before=next_key) for msg, own in zip(added, marks, strict=True)]
            items, rebuilt = state.items_with(new, keys, counted), None
            if items is None:
                left = [entry for entry in await self.history.read() if entry.key not in set(keys)]
                place = next((n for n, entry in enumerate(left) if entry.key == next_key), len(left))
                left[place:place] = [Entry(0, 0, msg.id, msg) for msg in added]
                rebuilt = await self._rebuild(left, keys, state.known.tokens, set(counted))
                changes += self._following(rebuilt)
            if not await self._write(changes, at=self.number):
                return
            state.known.exchange(keys, {key: tokens.total for key, tokens in counted.items()}, next_key)
            for msg, own in zip(added, marks, strict=True):
                state.known.note_marks(msg.id, own)
            self._note_gone(keys)
            if rebuilt is not None:
                self._show(rebuilt)
            elif items is not None:
                state.show_instead(items, keys, counted)
            self.note_edit(events, CHANGED, before, changed_ids(shown, state.items))

        await self._in_step(change, events)

    async def depart(self, ids: Sequence[str], listed: Any, events: list[CompressionEvent]) -> None:
        """Go on without some messages, and keep the conversation as it was as a branch.

        Args:
            ids: of the messages that leave.
            listed: what the list of the conversation said.
            events: receives what others' changes led to.
        """

        async def change() -> None:
            old, keys = self.state, self.state.known.keys_of(ids)
            entries = await self.history.read()
            left = [entry for entry in entries if entry.key not in set(keys)]
            rebuilt = await self._rebuild(left, keys, old.known.tokens, set())
            if await self._write([Delete(keys), *self._following(rebuilt)], at=self.number):
                self.state = new = self._empty_state()
                new.take_over(old, rebuilt.ledger)
                for entry in left:
                    new.known.put(entry.key, old.known.tokens[entry.key])
                new.known.marks = {
                    mark: {id for id in bearing if id in new.known}
                    for mark, bearing in old.known.marks.items()
                }
                new.rebuild(rebuilt.built, len(left), rebuilt.counted, rebuilt.unseen)
                self.branches.keep(Branch(old, entries, listed))
                self.edited = True

        await self._in_step(change, events)

    async def return_to(self, branch: Branch[Any], listed: Any, events: list[CompressionEvent]) -> bool:
        """Go on with a branch, and keep the conversation as it was as another; tell whether that is done.

        Args:
            branch: one of `branches`.
            listed: what the list of the conversation that is left said.
            events: receives what others' changes led to.
        """

        async def change() -> bool:
            if all(branch is not one for one in self.branches):
                return False  # what others changed meanwhile outdated it
            old, new = self.state, branch.state
            entries = await self.history.read()
            there = {entry.key for entry in entries}
            wanted = {entry.key: entry for entry in branch.entries}
            if not self.can_insert and list(wanted)[: len(there & wanted.keys())] != [
                entry.key for entry in entries if entry.key in wanted
            ]:
                there = set()  # all is added anew, in order
            changes: list[Change] = [Delete([e.key for e in entries if e.key not in wanted or not there])]
            changes += _missing(branch.entries, there)
            before, after = old.ledger.edits(), new.ledger.edits()
            gone = [name for name, edit in before.items() if after.get(name) is not edit]
            come = [edit for name, edit in after.items() if before.get(name) is not edit]
            changes += [Withdraw(gone)] if gone else []
            changes.append(Record(come, self._learnt(new)))
            is_done = await self._write(changes, at=self.number)
            if is_done:
                new.ledger.unwanted |= {ref for ref in old.ledger.unwanted if not new.ledger.is_live(ref)}
                new.budget = old.budget
                self.state = new
                self.branches.take(branch)
                self.branches.keep(Branch(old, entries, listed))
                for mark in new.known.marks:
                    await self._read_mark(mark)
                new.set_summary(old.shown.summary)
                self.edited = True
            return is_done

        return await self._in_step(change, events)

    async def clear(self, events: list[CompressionEvent]) -> None:
        """Remove everything."""

        async def change() -> None:
            before, names = self.state.tokens, self.state.ledger.edits().keys()
            all_keys = Delete(list(self.state.known.tokens))
            changes: list[Change] = [all_keys, SetSummary(""), Withdraw(names), Record((), NOTHING)]
            if await self._write(changes, at=self.number):
                self.branches.drop()
                self._start_empty()
                if before:
                    self.note_edit(events, "cleared", before, ())

        await self._in_step(change, events)

    async def mark(
        self, new: str | None, old: str | None, ids: Collection[str] | None, events: list[CompressionEvent]
    ) -> int:
        """Change marks as `MemoryBase` does; a segment's id stands for all that it covers.

        What becomes pinned returns to the view.
        """

        async def change() -> int:
            named = None if ids is None else self.state.expand(ids)
            keys = [entry.key for entry in await self.history.read(ids=named, mark=old)]
            if old is None:
                bearing = {entry.key for entry in await self.history.read(mark=new)}
                keys = [key for key in keys if key not in bearing]
            changes = [Mark(keys, add=new, remove=old)]
            if new != old and keys and await self._write(changes, at=self.number):
                await self._marks_changed([mark for mark in (new, old) if mark is not None], events)
            return 0 if new == old else len(keys)

        return await self._in_step(change, events)

    async def set_summary(self, summary: str, events: list[CompressionEvent]) -> None:
        """Set the history's own summary."""

        async def change() -> None:
            state, before = self.state, self.state.tokens
            if await self._write([SetSummary(summary)], at=self.number):
                state.set_summary(summary)
                self.note_edit(events, "summary set", before, ())

        await self._in_step(change, events)

    async def commit(
        self,
        done: Done,
        fresh: Collection[ItemKey],
        holds: Callable[[MemoryState], bool],
        events: list[CompressionEvent],
    ) -> int | None:
        """Commit an event's edits; return what the view cost before, or None where they do not hold any more.

        Args:
            done: what the event came to.
            fresh: keys of items that had just come when it was planned.
            holds: tells whether it can be committed to a state that others may have changed.
            events: receives what others' changes led to.
        """

        async def change() -> int | None:
            state = self.state
            if not holds(state):
                return None
            before = state.tokens
            learnt = {**self._learnt(), "pending": sorted(state.pending_after(done))}
            outlived = [old for edit in done.edits for old in state.ledger.outlived_by(edit)]
            record = Record([*outlived, *done.edits], learnt)
            if done.edits and not await self._write([record], at=self.number, events=events):
                return None
            state.commit(done, fresh)
            for edit in outlived:
                state.ledger.replace(edit)
            return before

        # What others added is for the next view: nothing has to be read unless the write meets it.
        try:
            if not self._has_to_read:
                return await change()
        except ConflictError:
            pass
        return await self._in_step(change, events)

    async def note_handed_over(self, segment: SegmentEdit, events: list[CompressionEvent]) -> None:
        """Note that a long-term memory has taken what a segment covers, if it is still there."""

        async def change() -> None:
            known = self.state.ledger.segment(segment.id)
            if known is None or known.ref != segment.ref or known.handed_over:
                return
            noted = replace(known, handed_over=True)
            if await self._write([Record([noted])], at=self.number):
                self.state.ledger.replace(noted)

        await self._in_step(change, events)

    async def _in_step(self, change: Callable[[], Awaitable[T]], events: list[CompressionEvent]) -> T:
        """Make a change to what is there now, again where others wrote meanwhile."""
        while True:
            await self.catch_up(events)
            try:
                return await change()
            except ConflictError:
                continue

    async def _marks_changed(self, marks: Collection[str], events: list[CompressionEvent]) -> None:
        """Read anew who bears these marks; bring back what is pinned now."""
        try:
            await self._follow_marks(marks, events)
        except BaseException as error:  # they are changed, so what they lead to has to be found
            self._has_to_read = True
            if not isinstance(error, ConflictError):
                raise

    async def _follow_marks(self, marks: Collection[str], events: list[CompressionEvent]) -> None:
        state = self.state
        before, weighty = state.tokens, self._weighty_marks()
        for mark in marks:
            if mark in weighty or mark in state.known.marks:
                await self._read_mark(mark)
        if weighty.isdisjoint(marks):
            return
        state.generation += 1
        self.edited = True  # what may leave now may be what too many messages ask for
        pinned = state.known.bearing(self._config.pinned_mark)
        items = state.items_of(state.known.keys_of(pinned)) if pinned else []
        left = {item.key for item in items if state.ledger.stands_in_for(item)}
        if not left:
            return
        rebuilt = await self._rebuild(await self.history.read(), left, state.known.tokens, set())
        if not await self._write(self._following(rebuilt), at=self.number):
            return
        self._show(rebuilt)
        ids = [message_id(key) for key in state.known.tokens if key in left]
        self.note_edit(events, "pinned messages returned", before, ids)


def _missing(entries: Sequence[Entry], there: Collection[str]) -> list[Change]:
    """Return what adds the messages that are not there, each in front of the next one that is."""
    changes: list[Change] = []
    follows: str | None = None
    for entry in reversed(entries):
        if entry.key in there:
            follows = entry.key
        elif entry.msg is not None:
            changes.append(Add(entry.msg, entry.marks, True, entry.tokens, follows))
    return changes[::-1]
