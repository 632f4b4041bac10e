"""Keeping a view in step with its history: one lock, one way in for every change."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from context_compressor.compression.config import CompressionConfig
from context_compressor.compression.edits import EditName, ItemKey, message_id, name_of
from context_compressor.compression.engine import Done
from context_compressor.compression.items import ViewItem
from context_compressor.compression.ledger import Ledger
from context_compressor.compression.recovery import Recovery
from context_compressor.errors import ConflictError
from context_compressor.events import CompressionEvent
from context_compressor.memory.history import (
    Add,
    Change,
    Delete,
    Entry,
    Head,
    History,
    LedgerEntry,
    Mark,
    Record,
    SetSummary,
    Withdraw,
)
from context_compressor.memory.state import KnownMessages, MemoryState
from context_compressor.messages.exchanges import Decisions, ExchangeBuilder
from context_compressor.messages.msg import Msg
from context_compressor.tokens.counter import MessageTokens, TokenCounter
from context_compressor.tokens.off_loop import measure_all_off_loop, run_off_loop, text_characters

T = TypeVar("T")

_CHANGED = "the base memory was changed"
"""Reason of an event after which the history says something else."""


class LoopLock:
    """Give each object of a class an `asyncio.Lock` for whichever event loop is running: `lock = LoopLock()`.

    asyncio's own binds itself to the loop in which somebody first had to wait; a memory used from several
    `asyncio.run` calls would fail there. What `async with` takes is the loop's own lock, so that a task of a
    loop that was closed gives back that one when Python forgets it, not what another loop's task holds.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._kept_as = f"{name} by loop"

    def __get__(self, holder: Any, owner: type) -> asyncio.Lock:
        loop = asyncio.get_running_loop()
        kept: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = vars(holder).get(self._kept_as)
        if kept is None or kept[0] is not loop:
            kept = vars(holder)[self._kept_as] = loop, asyncio.Lock()
        return kept[1]


class _Rebuilt(NamedTuple):
    """A view made anew from messages and ledger, which nobody has seen yet."""

    messages: list[tuple[str, Msg]]
    withdrawn: set[EditName]
    """The edits that do not hold any more."""
    ledger: Ledger
    """A copy without those."""
    counted: dict[str, MessageTokens]
    unseen: set[str]
    built: tuple[list[ViewItem], ExchangeBuilder]


class Tracker:
    """Move the state of a compressed memory on, in step with its history.

    Every change goes one way: what it withdraws from the ledger is found, then both are written at once, then
    the state follows. Where others wrote meanwhile, their changes are read and all is done again.

    Args:
        history: where the messages live.
        config: thresholds.
        counter: measures messages.

    Attributes:
        state: ledger, known messages and view; replaced as a whole when a saved state is loaded or all is
            cleared.
        lock: guards history and state together, so that both see changes in the same order. Never held while
            a summary is written, a text stored for an event, or an event delivered.
        number: the head of the history that the state knows.
        edited: whether the view was edited since `get_memory` last looked whether an event is due. It looks
            again then, as a memory does that is loaded from its state: both have to show the same view.
        gone: keys of messages that left the history and may still be in the search index; None until the
            index, which another process may have left, was compared with the whole history.
    """

    lock = LoopLock()

    def __init__(self, history: History, config: CompressionConfig, counter: TokenCounter) -> None:
        self.history = history
        self.number = 0
        self.edited = False
        self.gone: set[str] | None = None
        self._config = config
        self._counter = counter
        self._has_to_read = False
        self._loaded_tokens: dict[str, int] | None = None
        self.state = self._empty_state()
        # A wrapped memory does not tell the marks of its messages, nor, without a revision, each change.
        self._tells_marks: bool = getattr(history, "tells_marks", True)
        self._counts_changes: bool = getattr(history, "counts_changes", True)

    @property
    def is_behind(self) -> bool:
        """Whether the history has to be read whatever its head says."""
        return self._has_to_read

    async def is_current(self) -> bool:
        """Tell whether the view is that of the whole history, and no event is due."""
        head = await self.history.head()
        state = self.state
        return head.number == self.number and not (
            self._has_to_read
            or self.edited
            or state.queue
            or not state.is_settled
            or state.fresh
            or state.tokens > state.budget.due_tokens
            or state.budget.is_due
        )

    async def is_in_step(self) -> bool:
        """Tell whether the state knows the whole history, and nobody is changing it."""
        head = await self.history.head()
        return head.number == self.number and not self._has_to_read and not self.lock.locked()

    # Reading

    async def catch_up(self, events: list[CompressionEvent], *, look: bool = False) -> None:
        """Bring the view to the end of the history, read anew if somebody else changed it. Holds: lock.

        Args:
            events: receives what that led to.
            look: read it whole where only that tells whether something changed.
        """
        self._has_to_read |= look and not self._counts_changes
        while self._has_to_read or (await self.history.head()).number != self.number:
            state, head = self.state, await self.history.head()
            try:
                if not await self._grow(head) and await self._reread(head, events):
                    break
            except ConflictError:
                continue
            if state is not self.state:
                self._has_to_read = True
        self.state.advance()

    async def _grow(self, head: Head) -> bool:
        """Take up what others added behind what is known; tell whether that was all that happened."""
        state = self.state
        if self._has_to_read or not self._tells_marks:
            return False
        entries = await self.history.read(after=self.number)
        edits = await self.history.ledger(after=self.number)
        added = [(entry, entry.msg) for entry in entries if entry.msg is not None]
        is_growth = (
            state is self.state
            and not edits
            and len(added) == len(entries)
            and not any(entry.key in state.known for entry in entries)
            and len(state.known) + len(added) == head.size
            and not state.shows_another(head.summary)
        )
        if is_growth and added and state.known.last_id is not None:
            last = await self.history.read(ids=[state.known.last_id])
            is_growth = state is self.state and bool(last) and last[-1].place < added[0][0].place
        if not is_growth:
            return False
        counts = await measure_all_off_loop(self._counter, [msg for _, msg in added])
        if state is self.state:
            for (entry, msg), counted in zip(added, counts, strict=True):
                state.enqueue(msg, counted, entry.key)
                state.known.note_marks(msg.id, entry.marks)
            self.number = head.number
        return True

    async def _reread(self, head: Head, events: list[CompressionEvent]) -> bool:
        """Read the whole history and rebuild the view; note an edit unless it only grew.

        Returns:
            Whether that is done: not where another state was loaded meanwhile.
        """
        self._has_to_read = True
        state, loaded, old = self.state, self._loaded_tokens, self.state.known
        entries = await self.history.read()
        edits = await self.history.ledger(after=0 if loaded is not None else self.number)
        if edits and loaded is None:
            edits = await self.history.ledger()
        known = KnownMessages()
        for mark in {*old.marks, *self._weighty_marks()}:
            known.marks[mark] = {message_id(e.key) for e in await self.history.read(mark=mark)}
        if state is not self.state:
            return False
        if edits and loaded is None:
            learnt: Mapping[str, Any] = next((entry.learnt for entry in reversed(edits) if entry.learnt), {})
            state.ledger = state.ledger.followed_by((e for entry in edits for e in entry.edits), learnt)
        before, shown = state.tokens, list(state.items)
        tokens = dict(old.tokens) if loaded is None else loaded
        seen = {e.key for e in entries[: state.ledger.frontier]} if loaded is not None else set(old.tokens)
        pinned = known.bearing(self._config.pinned_mark)
        ids = [entry.key for entry in entries if message_id(entry.key) in pinned]
        rebuilt = await self._rebuild(entries, ids, tokens, {e.key for e in entries if e.key not in seen})
        if state is not self.state:
            return False
        changes: list[Change] = [Withdraw(rebuilt.withdrawn)] if rebuilt.withdrawn else []
        if loaded is not None:
            changes = _replacing(edits, rebuilt.ledger)
        number = head.number
        if changes:
            number = await self.history.write(changes, at=head.number)
        if state is not self.state:
            return False
        for entry in entries:
            counts = rebuilt.counted.get(entry.key)
            known.put(entry.key, tokens[entry.key] if counts is None else counts.total)
        moved = state.set_summary(head.summary) and before > 0
        self._note_gone(key for key in old.tokens if key not in known.tokens)
        state.known = known
        generation = state.generation
        self._show(rebuilt)
        if moved or not _is_continued(shown, state.items):
            if loaded is None:
                changed = _changed_ids(shown, state.items)
                self.note_edit(events, _CHANGED, before, changed)
        elif any(known.bearing(mark) != old.bearing(mark) for mark in self._weighty_marks()):
            self.edited = True  # as where they are changed by the memory itself
        else:
            state.generation = generation  # it only grew: an event that is planned still holds
        self._loaded_tokens = None
        self._has_to_read = False
        self.number = number
        return True

    async def _rebuild(
        self, entries: Sequence[Entry], leaving: Iterable[str], known: Mapping[str, int], unseen: set[str]
    ) -> _Rebuilt:
        """Make the view anew from messages and ledger, neither of which changes.

        Args:
            entries: every message.
            leaving: keys of messages for which nothing may stand in any more.
            known: tokens of messages that were counted; inside a segment that is enough.
            unseen: keys of messages that no view has shown, beside those that the state knows of.
        """
        state, messages = self.state, [(e.key, e.msg) for e in entries if e.msg is not None]
        characters = text_characters(msg for _, msg in messages)
        ledger, edits = state.ledger.copy(), state.ledger.edits()
        for item in state.items_of(leaving):
            ledger.withdraw(item)
        if ledger.decisions is None:
            seen = messages[: ledger.frontier]
            ledger.decisions = await run_off_loop(characters, Decisions.of_earlier_releases, seen)
        ledger.decisions.keep({key for key, _ in messages})
        counted = self._still_valid(dict(messages))
        # Pairing may have changed, and with it what a message says in the view.
        recovery = await run_off_loop(characters, Recovery, messages, ledger, self._config.redact)
        await recovery.withdraw_outdated(characters)
        missing = {
            key: msg
            for key, msg in messages
            if key not in counted and not (key in known and ledger.top_segment_of(ItemKey(key)) is not None)
        }
        counts = await measure_all_off_loop(self._counter, list(missing.values()))
        counted |= dict(zip(missing, counts, strict=True))
        unseen = unseen | state.unseen()
        built = await run_off_loop(characters, state.build, messages, ledger, counted, unseen)
        return _Rebuilt(messages, edits.keys() - ledger.edits().keys(), ledger, counted, unseen, built)

    def _still_valid(self, now: Mapping[str, Msg]) -> dict[str, MessageTokens]:
        """Return the counts of messages whose content is as it was when they were counted."""
        valid = {
            item.key.key: item.source_tokens
            for item in self.state.items
            if item.kind == "message" and item.repair is None and now.get(item.key.key) == item.source
        }
        return valid | {key: tokens for key, msg, tokens in self.state.queue if now.get(key) == msg}

    def _show(self, rebuilt: _Rebuilt) -> None:
        state = self.state
        state.ledger.drop(rebuilt.withdrawn)
        state.rebuild(rebuilt.built, len(rebuilt.messages), rebuilt.counted, rebuilt.unseen)

    async def look_up(self, mark: str) -> None:
        """Read who bears a mark, if that was not done before; from now on it is kept in step."""
        if mark not in self.state.known.marks:
            async with self.lock:  # or a mark added meanwhile would be missed for good
                await self._read_mark(mark)

    async def _read_mark(self, mark: str) -> None:
        known = self.state.known
        known.marks[mark] = {message_id(entry.key) for entry in await self.history.read(mark=mark)}

    def _weighty_marks(self) -> set[str]:
        """Return the marks that decide what may leave the view."""
        pinned = self._config.pinned_mark
        return {*self._config.volatile_marks, *([] if pinned is None else [pinned])}

    # Changing. Each holds: lock.

    async def _write(self, changes: Sequence[Change], *, at: int | None = None) -> bool:
        """Write, and tell whether the state is to follow: not where others wrote, or another was loaded."""
        state = self.state
        number = await self.history.write(changes, at=at)
        if state is not self.state:
            return False
        if number != self.number + 1:
            return False
        self.number = number
        return True

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
        if self._has_to_read or (await self.history.head()).number != self.number:
            await self.catch_up(events)
        state, name = self.state, str(getattr(self._counter, "encoding_name", None))
        changes: list[Change] = []
        for msg in messages:
            tokens = counted.get(id(msg))
            total = None if tokens is None else (name, tokens.total)
            changes.append(Add(msg, marks, duplicates, total))
        if not await self._write(changes):
            return
        marked_again = False
        for msg in messages:
            is_known = msg.id in state.known
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
                changes += [Withdraw(rebuilt.withdrawn)] if rebuilt.withdrawn else []
            if await self._write(changes, at=self.number):
                state.known.remove(keys)
                self._note_gone(keys)
                if rebuilt is not None:
                    self._show(rebuilt)
                elif items is not None:
                    state.show_without(items, keys)
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

        async def change() -> None:
            state = self.state
            before, shown = state.tokens, list(state.items)
            keys = state.known.keys_of(gone)
            next_key = next(iter(state.known.keys_of(behind)), None)
            entries = await self.history.read()
            marks = [entry.marks for entry in entries if entry.key in set(keys)]
            if len(marks) != len(added):
                marks = [()] * len(added)
            changes: list[Change] = [Delete(keys)]
            changes += [Add(msg, own, before=next_key) for msg, own in zip(added, marks, strict=True)]
            left = [entry for entry in entries if entry.key not in set(keys)]
            place = next((n for n, entry in enumerate(left) if entry.key == next_key), len(left))
            left[place:place] = [Entry(0, 0, msg.id, msg, own) for msg, own in zip(added, marks, strict=True)]
            rebuilt = await self._rebuild(left, keys, state.known.tokens, {msg.id for msg in added})
            changes += [Withdraw(rebuilt.withdrawn)] if rebuilt.withdrawn else []
            if not await self._write(changes, at=self.number):
                return
            known = KnownMessages()
            for entry in left:
                counts = rebuilt.counted.get(entry.key)
                known.put(entry.key, state.known.tokens[entry.key] if counts is None else counts.total)
            known.marks = state.known.marks
            state.known.remove(keys)
            for msg, own in zip(added, marks, strict=True):
                known.note_marks(msg.id, own)
            state.known = known
            self._note_gone(keys)
            self._show(rebuilt)
            self.note_edit(events, _CHANGED, before, _changed_ids(shown, state.items))

        await self._in_step(change, events)

    async def clear(self, events: list[CompressionEvent]) -> None:
        """Remove everything."""

        async def change() -> None:
            before, names = self.state.tokens, self.state.ledger.edits().keys()
            all_keys = Delete(list(self.state.known.tokens))
            if await self._write([all_keys, SetSummary(""), Withdraw(names)], at=self.number):
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

    async def summarize(self, summary: str, events: list[CompressionEvent]) -> None:
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
            ledger, before = state.ledger, state.tokens
            learnt = {
                "pending": sorted((ledger.pending | done.refs(durable=False)) - done.refs(durable=True)),
                "decisions": None if ledger.decisions is None else ledger.decisions.to_dict(),
            }
            if done.edits and not await self._write([Record(done.edits, learnt)], at=self.number):
                return None
            state.commit(done, fresh)
            return before

        # What others added is for the next view: nothing has to be read unless the write meets it.
        try:
            if not self._has_to_read:
                return await change()
        except ConflictError:
            pass
        return await self._in_step(change, events)

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
        try:
            if not await self._write([Withdraw(rebuilt.withdrawn)], at=self.number):
                return
        except ConflictError:
            self._has_to_read = True  # and finds them pinned
            return
        self._show(rebuilt)
        ids = [message_id(key) for key in state.known.tokens if key in left]
        self.note_edit(events, "pinned messages returned", before, ids)

    def note_edit(self, events: list[CompressionEvent], reason: str, before: int, ids: Sequence[str]) -> None:
        """Note an event of kind `edit`."""
        self.edited = True
        events.append(
            CompressionEvent(
                kind="edit",
                reason=reason,
                tokens_before=before,
                tokens_after=self.state.tokens,
                message_ids=tuple(dict.fromkeys(ids)),
            )
        )

    def _note_gone(self, keys: Iterable[str]) -> None:
        if self.gone is not None:
            self.gone.update(keys)

    # Starting

    @property
    def known_tokens(self) -> dict[str, int]:
        """Tokens of every known message, by key, those that were loaded and not used yet included."""
        return self.state.known.tokens if self._loaded_tokens is None else self._loaded_tokens

    def _start_empty(self) -> None:
        """Forget everything; the stored texts become unwanted."""
        ledger = self.state.ledger
        unwanted = {*ledger.refs(), *ledger.unwanted}
        generation, budget = self.state.generation + 1, self.state.budget
        self.state = self._empty_state()
        self.state.generation = generation
        self.state.budget = budget  # the provider counts as before
        self.state.ledger.unwanted = unwanted

    def _empty_state(self) -> MemoryState:
        state = MemoryState(self._config, self._counter)
        state.known.marks = {mark: set() for mark in self._weighty_marks()}
        return state

    def start_from(self, state: MemoryState, loaded_tokens: dict[str, int]) -> None:
        """Take a loaded state; the next `catch_up` reads the history and rebuilds the view."""
        self.state = state
        self._loaded_tokens = loaded_tokens
        self.gone = None
        self._has_to_read = True


def _replacing(entries: Sequence[LedgerEntry], ledger: Ledger) -> list[Change]:
    """Return what brings the ledger of a history to where a loaded one is."""
    there = {name_of(edit): edit for entry in entries for edit in entry.edits}
    edits = ledger.edits()
    gone = there.keys() - edits.keys()
    new = [edit for name, edit in edits.items() if there.get(name) != edit]
    return [*([Withdraw(gone)] if gone else []), *([Record(new)] if new else [])]


def _is_continued(before: Sequence[ViewItem], after: Sequence[ViewItem]) -> bool:
    """Tell whether a view begins with all that it showed before."""
    return len(before) <= len(after) and all(map(_shows_same, before, after))


def _changed_ids(before: Sequence[ViewItem], after: Sequence[ViewItem]) -> list[str]:
    """Return the ids of the messages that a view no longer shows as it did, or shows among earlier ones."""
    now = {item.key: item for item in after}
    kept = {item.key for item in before if item.key in now and _shows_same(item, now[item.key])}
    last = max((place for place, item in enumerate(after) if item.key in kept), default=-1)
    changed = [item for item in (*before, *after[: last + 1]) if item.key not in kept]
    return [id for item in changed for id in item.covered]


def _shows_same(one: ViewItem, other: ViewItem) -> bool:
    return one.key == other.key and one.source == other.source and one.tokens == other.tokens
