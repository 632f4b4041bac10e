"""A history followed and changed: its messages, ledger and view move together, by one way."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar
from weakref import proxy

from context_compressor.core.config import CompressionConfig
from context_compressor.core.edits import Edit, ItemKey, SegmentEdit, message_id
from context_compressor.core.event import Done
from context_compressor.core.ledger import Ledger
from context_compressor.core.rebuild import Rebuilt, changed_ids, is_continued
from context_compressor.errors import ConflictError
from context_compressor.events import CompressionEvent, edit_event, failure_event
from context_compressor.memory.branches import Branch, Branches
from context_compressor.memory.budget import BudgetInForce
from context_compressor.memory.earlier import Earlier, find_earlier, without_edits
from context_compressor.memory.forgetting import Forgotten, find_leaving
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
    continues,
    is_same,
    outlines_of,
)
from context_compressor.memory.loops import LoopLock
from context_compressor.memory.rebuilder import Basis, Rebuilder
from context_compressor.memory.recorded import (
    NOTHING,
    Counts,
    appended,
    following,
    learnt_by,
    missing,
    replacing,
    switching,
)
from context_compressor.memory.state import MemoryState
from context_compressor.memory.table import MessageTable
from context_compressor.messages.exchanges import Decisions
from context_compressor.messages.msg import Msg
from context_compressor.offload.store import OffloadStore
from context_compressor.tokens.counter import MessageTokens, TokenCounter, name_of_counter
from context_compressor.tokens.off_loop import measure_all_off_loop

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

CHANGED = "the base memory was changed"
"""Reason of an event after which the history says something else."""
UNDONE = "undone"
"""Reason of an event that withdrew the one before it."""


def in_step(
    change: Callable[Concatenate[Tracker, P], Awaitable[T]],
) -> Callable[Concatenate[Tracker, P], Coroutine[Any, Any, T]]:
    """Let a method change what is there now, again where others wrote meanwhile."""

    @wraps(change)
    async def changed(tracker: Tracker, /, *args: P.args, **how: P.kwargs) -> T:
        while True:
            await tracker.catch_up()
            try:
                return await change(tracker, *args, **how)
            except ConflictError:
                continue

    return changed


class Tracker:
    """Keep the state of a compressed memory in step with what its history says, and change both together.

    Every change goes one way: what it withdraws from the ledger is found, then both are written at once, then
    the state follows. Where others wrote meanwhile, their changes are read and all is done again. Each method
    that changes anything holds: lock.

    Args:
        history: where the messages live.
        config: thresholds.
        counter: measures messages.
        store: has the words of merged segments.

    Attributes:
        history: as given.
        state: ledger, known messages and view; replaced as a whole when a saved state is loaded or all is
            cleared.
        lock: guards history and state together, so that both see changes in the same order. Never held while
            a summary is written, a text stored for an event, or an event delivered.
        number: the head of the history that the state knows.
        edited: whether the view was edited since `get_memory` last looked whether an event is due. It looks
            again then, as a memory does that is loaded from its state: both have to show the same view.
        branches: conversations that a list departed from.
        rebuilder: makes views anew.
        gone: keys of messages that left the history and may still be in the search index; None until the
            index, which another process may have left, was compared with the whole history.
    """

    lock = LoopLock()

    def __init__(
        self, history: History, config: CompressionConfig, counter: TokenCounter, store: OffloadStore
    ) -> None:
        self.history = history
        self.number = 0
        self.edited = False
        self.gone: set[str] | None = None
        here = proxy(self)  # no part holds the whole, which else stays until the garbage collector comes
        self.branches: Branches[Any] = Branches(
            config.branch_seconds, lambda refs: here.state.ledger.give_up(refs)
        )
        self._config = config
        self._counter = counter
        self.rebuilder = Rebuilder(history, config, counter, store)
        self._loaded_tokens: dict[str, int] | None = None
        self._is_another = False
        """Whether the history may be another one than the state was made from."""
        self._recorded = NOTHING
        self._counts = Counts(counter, getattr(history, "tells_marks", True))
        self._unrecorded: list[Record] = []  # refused by the history; kept here until it takes them
        self._has_to_read = False
        self._names_tools = False
        self._told: list[CompressionEvent] = []
        self.state = self._empty_state()
        # A wrapped memory does not tell, without a revision, each change.
        self._counts_changes: bool = getattr(history, "counts_changes", True)

    @property
    def basis(self) -> Basis:
        """What is known beside the history."""
        return Basis(self.state, self.number, self._loaded_tokens, self._is_another)

    @property
    def is_behind(self) -> bool:
        """Whether the history has to be read whatever its head says."""
        return self._has_to_read

    async def is_current(self, *, summary: bool) -> bool:
        """Tell whether the view is that of the whole history, with or without its summary, and no event is
        due.
        """
        # What the state tells by itself is asked first: a head may have to be fetched from a server.
        return (
            self.number > 0
            and self._is_settled(summary=summary)
            and is_same((await self.history.head()).number, self.number)
            and self._is_settled(summary=summary)
        )

    def _is_settled(self, *, summary: bool) -> bool:
        state = self.state
        return not (
            self._has_to_read
            or self._unrecorded
            or self.edited
            or state.queue
            or not state.is_settled(summary=summary)
            or state.fresh
            or state.tokens > state.budget.due_tokens
            or state.budget.is_due
            or self.branches.over()
        )

    async def is_at_head(self) -> bool:
        """Tell whether the ledger is what the history's is now, as far as that answers."""
        try:
            return not self._has_to_read and is_same((await self.history.head()).number, self.number)
        except Exception as error:
            logger.warning("the history does not say where it stands: %r", error)
            return False

    async def is_edited_by_others(self) -> bool:
        """Tell whether others changed the ledger since the state was brought in step with it."""
        entries = await self.history.ledger(after=self.number)
        return any(entry.edits or entry.withdrawn for entry in entries)

    async def is_in_step(self) -> bool:
        """Tell whether the state knows the whole history, and nobody is changing it."""
        if not self.number:  # it was never read, or is empty: bringing it up to date asks all the same
            return False
        head = await self.history.head()
        is_told = not self._has_to_read and not self._unrecorded
        return is_told and is_same(head.number, self.number) and not self.lock.locked()

    # Reading

    async def catch_up(self, *, look: bool = False) -> None:
        """Bring the view to the end of the history, read anew if somebody else changed it. Holds: lock.

        Args:
            look: read it whole where only that tells whether something changed.
        """
        self._has_to_read |= look and not self._counts_changes
        while not is_same((head := await self.history.head()).number, self.number) or self._has_to_read:
            state = self.state
            if not continues(head.number, self.number):
                self._is_another = self._has_to_read = True
            try:
                is_done = await self._grow(head)
                if not is_done:
                    is_done = await self._reread(head) and not self.rebuilder.tells_marks
            except ConflictError:
                continue
            if state is not self.state:
                self._has_to_read = True
            elif is_done:
                break  # it is the view of that head: who writes on and on would never let it come to an end
        self.state.advance()

    async def _grow(self, head: Head) -> bool:
        """Take up messages and edits that others appended to what is known; tell whether that was all."""
        state = self.state
        # Of a history that is opened what stands for messages tells what is to be read.
        is_opened = not self.number and outlines_of(self.history) is not None
        if self._has_to_read or not self.rebuilder.tells_marks or is_opened:
            return False
        before, shown = state.tokens, list(state.items)
        # What came behind that head is for the next time.
        entries = [e for e in await self.history.read(after=self.number) if e.changed <= head.number]
        written = [e for e in await self.history.ledger(after=self.number) if e.number <= head.number]
        if written and self._unrecorded:
            return False
        added = [(entry, entry.msg) for entry in entries if entry.msg is not None]
        edits = appended(written, self._recorded)
        is_growth = (
            state is self.state
            and edits is not None
            and (self.number or not edits)  # of what left the view long ago nothing has to be counted
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
            if edits and not self._show_appended(edits, written):
                return False
            self._recorded = self._counts.take(written, state, self._recorded)
            self.number = head.number
            if edits and not is_continued(shown, state.items):
                self.branches.drop()
                state.generation += 1
                self.note_edit(CHANGED, before, changed_ids(shown, state.items))
        return True

    def _show_appended(self, edits: Sequence[Edit], written: Sequence[LedgerEntry]) -> bool:
        """Show edits of others; where that cannot be done, all is to be read, which this tells."""
        state = self.state
        state.advance()
        learnt = next((entry.learnt for entry in reversed(written) if entry.learnt), self._recorded)
        if not state.follow(edits, learnt.get("pending", ())):
            self._has_to_read = True
            return False
        self._recorded = learnt
        return True

    async def _reread(self, head: Head) -> bool:
        """Read the whole history and rebuild the view; note an edit unless it only grew.

        Returns:
            Whether that is done: not where another state was loaded meanwhile.
        """
        self._has_to_read = True
        state, loaded, old = self.state, self._loaded_tokens, self.state.known
        ledger = state.ledger
        is_told_anew = loaded is not None or self._is_another or bool(self._unrecorded)
        edits = await self.history.ledger(after=0 if is_told_anew else self.number)
        if edits and self.number and not is_told_anew:
            edits = await self.history.ledger()
        unrecorded = NOTHING if is_told_anew else self._recorded
        learnt = next((entry.learnt for entry in reversed(edits) if entry.learnt), unrecorded)
        if state is not self.state:
            return False
        self._recorded = self._counts.take(edits, state, self._recorded)
        if (edits or is_told_anew) and loaded is None:
            self._unrecorded = []
            state.ledger = state.ledger.followed_by((e for entry in edits for e in entry.edits), learnt)
        self._recorded = learnt
        known, tokens, rebuilt = await self.rebuilder.read(self.basis, head, edits)
        if state is not self.state:
            return False
        before, shown = state.tokens, list(state.items)
        replaced = None if loaded is None else replacing(edits, rebuilt.ledger, self._recorded)
        changes = self._following(rebuilt) if replaced is None else replaced
        number = head.number
        if changes:
            number = await self.history.write(changes, at=head.number)
            self._note_recorded(changes)
        if state is not self.state:
            return False
        for key, _ in rebuilt.messages:
            counts = rebuilt.counted.get(key)
            known.put(key, tokens[key] if counts is None else counts.total)
        moved = state.set_summary(head.summary) and before > 0
        placed = self._recorded["summary_place"] if loaded is None else None
        if placed is not None and placed[0] == state.shown.summary_id:
            state.shown.summary_place = placed[1]
        self._note_gone(key for key in old.tokens if key not in known.tokens)
        state.known = known
        generation = state.generation
        self._show(rebuilt, ledger)
        if moved or not is_continued(shown, state.items):
            if loaded is None:
                self.branches.drop()
                changed = changed_ids(shown, state.items)
                self.note_edit(CHANGED, before, changed)
        elif any(known.bearing(mark) != old.bearing(mark) for mark in self._config.weighty_marks):
            self.edited = True  # as where they are changed by the memory itself
        else:
            state.generation = generation  # it only grew: an event that is planned still holds
        self._loaded_tokens = None
        self._has_to_read = self._is_another = False
        self.number = number
        return True

    def _show(self, rebuilt: Rebuilt, before: Ledger | None = None) -> None:
        """Show a view that was made anew; `before` is the ledger before, if that has changed."""
        state = self.state
        state.returned = {*((before or state.ledger).covered() - rebuilt.ledger.covered())}
        withdrawn, renewed = rebuilt.changes(state.ledger.edits())
        state.ledger.drop(withdrawn)
        for segment in renewed:
            state.ledger.replace(segment)
        state.rebuild(rebuilt)

    # Deciding what a view shows for good

    async def make_ready(self, *, summary: bool, look: bool = False) -> None:
        """Bring the view to the end of the history, and decide what it takes to show it. Holds: lock.

        What is decided is recorded before it is shown: whoever else has this history shows the same.

        Args:
            summary: whether the history's own summary is shown.
            look: as `catch_up`.
        """
        await self.catch_up(look=look)
        while not await self._settle(summary):
            await self.catch_up()

    async def _settle(self, summary: bool) -> bool:
        """Decide and record; tell whether that is done: not where others wrote meanwhile."""
        state, place = self.state, self.state.shown.summary_place
        try:
            state.settle(summary=summary)
            learnt = self._learnt(self.state)
            if learnt == self._recorded and not self._unrecorded:
                return True
            return await self._write([Record((), learnt)], at=self.number, holds_here=True)
        except BaseException as error:
            # Nobody has seen it: what others wrote may lead to something else.
            state.ledger.decisions = Decisions.from_dict(self._recorded["decisions"])
            state.shown.summary_place = place
            self._has_to_read = True
            if not isinstance(error, ConflictError):
                raise
            return False

    def _learnt(self, state: MemoryState, budget: BudgetInForce | None = None) -> dict[str, Any]:
        return self._counts.beside(learnt_by(state), budget or state.budget, self._recorded)

    def _following(self, rebuilt: Rebuilt) -> list[Change]:
        return following(rebuilt, self.state.ledger, self._recorded)

    def _note_recorded(self, changes: Iterable[Change]) -> None:
        for change in changes:
            if isinstance(change, Record) and change.learnt:
                self._recorded = change.learnt

    def new_counts(self) -> list[Change]:
        """Return what records what was learnt of a provider's counts; nothing where that is not new."""
        return self._counts.changes(self.state.budget, self._recorded)

    @in_step
    async def record_counts(self) -> None:
        """Record what was learnt of a provider's counts, if the history is there."""
        if self.number and (new := self.new_counts()):
            await self._write(new, at=self.number)

    async def look_up(self, mark: str) -> None:
        """Read who bears a mark, if that was not done before; from now on it is kept in step."""
        if mark not in self.state.known.marks:
            async with self.lock:  # or a mark added meanwhile would be missed for good
                await self._read_mark(mark)

    async def _read_mark(self, mark: str) -> None:
        known = self.state.known
        known.marks[mark] = {message_id(entry.key) for entry in await self.history.read(mark=mark)}

    async def _write(
        self,
        changes: Sequence[Change],
        *,
        at: int | None = None,
        holds_here: bool = False,
    ) -> bool:
        """Write; tell whether the state may follow. It may not if others wrote, or another state was loaded.

        Args:
            changes: what to write.
            at: the number that the head must have.
            holds_here: for edits without which no view fits: where the history takes none, as one that is
                full, they hold here, and are written with the next.
        """
        if at is None and not self._unrecorded and (counts := self.new_counts()):
            with suppress(ConflictError):  # they are for the next write
                return await self._write([*changes, *counts], at=self.number)
        state, before = self.state, [] if at is None else self._unrecorded
        try:
            number = await self.history.write([*before, *changes], at=at)
        except Exception as error:
            is_ours = isinstance(error, ConflictError) or state is not self.state
            if not holds_here or is_ours or self._config.on_failure == "raise":
                raise
            if not self._unrecorded:
                self._note_refused(error)
            records = [one for one in changes if isinstance(one, Record)]
            self._unrecorded += [one for one in records if one.edits or one.learnt != self._recorded]
            self._note_recorded(records)
            return True
        if at is not None:
            self._unrecorded = []
        if state is not self.state or number != self.number + 1 or not continues(number, self.number):
            return False
        self._note_recorded(changes)
        self.number = number
        return True

    def told(self) -> list[CompressionEvent]:
        """Return what there is to tell of changes since this was asked last. Holds: lock."""
        told, self._told = self._told, []
        return told

    def note_edit(self, reason: str, before: int, ids: Sequence[str]) -> None:
        """Note an event of kind `edit`."""
        self.edited = True
        self._told.append(edit_event(reason, before, self.state.tokens, ids))

    def _note_refused(self, error: Exception) -> None:
        tokens, told = self.state.tokens, f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        logger.warning("the history takes no edits now; they are written when it does: %s", told)
        self._told.append(failure_event("edits not recorded", tokens, told))

    def _note_gone(self, keys: Iterable[str]) -> None:
        if self.gone is not None:
            self.gone.update(keys)

    # Changing

    async def add(
        self,
        messages: Sequence[Msg],
        marks: Sequence[str],
        counted: Mapping[int, MessageTokens],
        *,
        duplicates: bool,
    ) -> None:
        """Add messages; one whose id is known gets the marks, unless duplicates are kept.

        Args:
            messages: copies; they are kept.
            marks: for each of them.
            counted: tokens, by the message's identity.
            duplicates: whether to keep messages whose ids are known.
        """
        # Where the history numbers its writes, others' show in the number that comes back.
        if self._has_to_read or not (self.rebuilder.tells_marks or await self.is_at_head()):
            await self.catch_up()
        state, name = self.state, name_of_counter(self._counter)
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
            await self.catch_up()  # the history alone knows under which keys they are
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
            await self._marks_changed(marks)

    @in_step
    async def delete(self, ids: Sequence[str]) -> int:
        """Remove messages from history, view and ledger; return how many. A segment's id stands for all."""
        return await self._delete(self.state.known.keys_of(self.state.expand(ids)))

    @in_step
    async def delete_marked(self, marks: Sequence[str]) -> int:
        """Remove the messages that bear any of the marks; return how many."""
        return await self._delete(
            [entry.key for name in marks for entry in await self.history.read(mark=name)]
        )

    async def _delete(self, found: Iterable[str]) -> int:
        state = self.state
        keys = [key for key in dict.fromkeys(found) if key in state.known]
        if not keys:
            return 0
        before = state.tokens
        if await self._exchange(keys, {}, None):
            self.branches.drop(keys)
            self.note_edit("deleted", before, [message_id(key) for key in keys])
        else:  # a wrapped memory did something else
            await self.catch_up()
        return sum(key not in self.state.known for key in keys)

    @in_step
    async def undo(self, most_tokens: int) -> int | None:
        """Withdraw the last event, if the view fits without; return what that costs, None: there is none."""
        earlier = await find_earlier(self.rebuilder, self.basis)
        if earlier is None:
            return None
        state, before, shown = self.state, self.state.tokens, list(self.state.items)
        tokens = earlier.state.tokens
        if tokens <= most_tokens and await self._write(self._following(earlier.rebuilt), at=self.number):
            self._show(earlier.rebuilt)
            self.note_edit(UNDONE, before, changed_ids(shown, state.items))
        else:  # it does not fit, or a wrapped memory did something else
            await self.catch_up()
        return tokens

    @property
    def can_insert(self) -> bool:
        """Whether the history takes messages in front of others."""
        return self.rebuilder.tells_marks

    @in_step
    async def exchange(
        self,
        gone: Sequence[str],
        added: Sequence[Msg],
        behind: Sequence[str],
    ) -> None:
        """Put messages in the place of others, in front of what stands behind those.

        Args:
            gone: ids of messages that leave; where as many come, each gives its marks to its successor.
            added: messages that nobody else holds.
            behind: ids of messages, of which the first that is there follows.
        """
        counts = await measure_all_off_loop(self._counter, added)
        state = self.state
        before, shown = state.tokens, list(state.items)
        keys = state.known.keys_of(gone)
        next_key = next(iter(state.known.keys_of(behind)), None) or state.known.key_after(keys)
        found = {entry.key: entry.marks for entry in await self.history.read(ids=gone)}
        marks = [found.get(key, ()) for key in keys]
        if len(marks) != len(added):
            marks = [()] * len(added)
        new = {
            msg.id: (Add(msg, own, before=next_key), tokens)
            for msg, own, tokens in zip(added, marks, counts, strict=True)
        }
        if await self._exchange(keys, new, next_key):
            self.note_edit(CHANGED, before, changed_ids(shown, state.items))

    @in_step
    async def forget(self, ids: Sequence[str], text: str | None, *, dry_run: bool) -> Forgotten:
        """Remove messages, those under ids or all that hold a text with their exchanges, and what quotes it.

        Returns:
            What was withdrawn and removed; of the index and of what the store refuses it knows nothing.
        """
        state, tokens = self.state, self.state.tokens
        leaving = await find_leaving(self.rebuilder, self.basis, ids, text)
        told = replace(leaving.told, is_dry_run=dry_run)
        if dry_run or leaving.is_nothing:
            return told
        also = [SetSummary("")] if told.summary else []
        if await self._exchange(leaving.keys, {}, None, also=also, rebuilt=leaving.rebuilt):
            state.set_summary("" if told.summary else state.shown.summary)
            # What was departed from may hold the text as well.
            self.branches.drop(leaving.keys if text is None else None)
            self.note_edit("forgotten", tokens, told.message_ids)
        else:  # a wrapped memory did something else
            await self.catch_up()
        return told

    async def _exchange(
        self,
        gone: Collection[str],
        added: Mapping[str, tuple[Add, MessageTokens]],
        before: str | None,
        *,
        also: Sequence[Change] = (),
        rebuilt: Rebuilt | None = None,
    ) -> bool:
        """Write messages in the place of others, and show them; tell whether that is done.

        Args:
            gone: keys of the messages that leave.
            added: what is added, with its tokens, by key.
            before: key of the message in front of which they are added; None: at the end.
            also: what else is written.
            rebuilt: the view that this leads to, where it was made already.
        """
        state, items = self.state, None
        if rebuilt is None:
            new = {key: (add.msg, tokens) for key, (add, tokens) in added.items()}
            items = state.items_with(new, gone, before)
        changes: list[Change] = [Delete(gone), *(add for add, _ in added.values()), *also]
        if items is None and rebuilt is None:
            leaving = set(gone)
            left = [entry for entry in await self.history.read() if entry.key not in leaving]
            place = next((n for n, entry in enumerate(left) if entry.key == before), len(left))
            left[place:place] = [Entry(0, 0, key, add.msg) for key, (add, _) in added.items()]
            rebuilt = await self.rebuilder.rebuild(self.basis, left, gone, unseen=added.keys())
        if rebuilt is not None:
            changes += self._following(rebuilt)
        if not await self._write(changes, at=self.number):
            return False
        state.known.exchange(gone, {key: tokens.total for key, (_, tokens) in added.items()}, before)
        for add, _ in added.values():
            state.known.note_marks(add.msg.id, add.marks)
        self._note_gone(gone)
        if rebuilt is not None:
            self._show(rebuilt)
        elif items is not None:
            state.show_with(items, added, gone)
        return True

    @in_step
    async def depart(self, ids: Sequence[str], listed: Any) -> None:
        """Go on without some messages, and keep the conversation as it was as a branch.

        Args:
            ids: of the messages that leave.
            listed: what the list of the conversation said.
        """
        old, keys = self.state, self.state.known.keys_of(ids)
        entries, leaving = await self.history.read(), set(keys)
        left = [entry for entry in entries if entry.key not in leaving]
        rebuilt = await self.rebuilder.rebuild(self.basis, left, keys)
        if await self._write([Delete(keys), *self._following(rebuilt)], at=self.number):
            known = MessageTable()
            for entry in left:
                known.put(entry.key, old.known.tokens[entry.key])
            known.marks = {
                mark: {id for id in bearing if id in known} for mark, bearing in old.known.marks.items()
            }
            self.state = old.showing(rebuilt, known)
            self.branches.keep(Branch(old, entries, listed))
            self.edited = True

    @in_step
    async def return_to(self, branch: Branch[Any], listed: Any) -> bool:
        """Go on with a branch, and keep the conversation as it was as another; tell whether that is done.

        Args:
            branch: one of `branches`.
            listed: what the list of the conversation that is left said.
        """
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
        changes += missing(branch.entries, there)
        changes += switching(old, new, self._learnt(new, old.budget))
        is_done = await self._write(changes, at=self.number)
        if is_done:
            new.ledger.give_up(old.ledger.unwanted)
            new.budget = old.budget
            self.state = new
            self.branches.take(branch)
            self.branches.keep(Branch(old, entries, listed))
            for mark in new.known.marks:
                await self._read_mark(mark)
            new.set_summary(old.shown.summary)
            self.edited = True
        return is_done

    @in_step
    async def clear(self) -> None:
        """Remove everything."""
        before, names = self.state.tokens, self.state.ledger.edits().keys()
        all_keys = Delete(list(self.state.known.tokens))
        changes: list[Change] = [all_keys, SetSummary(""), Withdraw(names)]
        changes.append(Record((), self._counts.beside(NOTHING, self.state.budget, self._recorded)))
        if await self._write(changes, at=self.number):
            self.branches.drop()
            self._start_empty()
            if before:
                self.note_edit("cleared", before, ())

    @in_step
    async def mark(self, new: str | None, old: str | None, ids: Collection[str] | None) -> int:
        """Change marks as `MemoryBase` does; a segment's id stands for all that it covers.

        What becomes pinned returns to the view.
        """
        named = None if ids is None else self.state.expand(ids)
        keys = [entry.key for entry in await self.history.read(ids=named, mark=old)]
        if old is None:
            bearing = {entry.key for entry in await self.history.read(mark=new)}
            keys = [key for key in keys if key not in bearing]
        changes = [Mark(keys, add=new, remove=old)]
        if new != old and keys and await self._write(changes, at=self.number):
            await self._marks_changed([mark for mark in (new, old) if mark is not None])
        return 0 if new == old else len(keys)

    @in_step
    async def set_summary(self, summary: str) -> None:
        """Set the history's own summary."""
        state, before = self.state, self.state.tokens
        if await self._write([SetSummary(summary)], at=self.number):
            state.set_summary(summary)
            self.note_edit("summary set", before, ())

    async def commit(
        self,
        done: Done,
        fresh: Collection[ItemKey],
        holds: Callable[[MemoryState], bool],
        over: Earlier | None = None,
    ) -> int | None:
        """Commit an event's edits; return what the view cost before, or None where they do not hold any more.

        Args:
            done: what the event came to.
            fresh: keys of items that had just come when it was planned.
            holds: tells whether it can be committed to a state that others may have changed.
            over: the view for which it was planned, where the last event is made anew.
        """
        # What others added is for the next view: nothing has to be read unless the write meets it.
        is_met = self._has_to_read
        while True:
            if is_met:
                await self.catch_up()
            try:
                return await self._commit(done, fresh, holds, over)
            except ConflictError:
                is_met = True

    async def _commit(
        self,
        done: Done,
        fresh: Collection[ItemKey],
        holds: Callable[[MemoryState], bool],
        over: Earlier | None,
    ) -> int | None:
        state, then, changes = self.state, self.state, list[Change]()
        renewed: Earlier | None = None
        if over is None:
            if not holds(state):
                return None
        else:
            if not (done.edits and over.holds(state)):
                return None
            # Messages may have come meanwhile.
            renewed = await without_edits(self.rebuilder, self.basis, over.without)
            # Others may have deleted what stood in it, and the state does not know of that yet.
            is_less = bool(over.rebuilt.ledger.edits().keys() - renewed.rebuilt.ledger.edits().keys())
            if is_less or not over.holds(state):
                return None
            then, changes = renewed.state, self._following(renewed.rebuilt)
        before, ledger = state.tokens, then.ledger
        learnt = {**self._learnt(then), "pending": sorted(then.pending_after(done))}
        done = replace(done, edits=ledger.made_now(done.edits, done.reason))
        outlived = [old for edit in done.edits for old in ledger.outlived_by(edit)]
        changes.append(Record([*outlived, *done.edits], learnt))
        # Where the history takes none, a view is made with those that are needed; nobody needs the others.
        holds_here = over is None
        if done.edits and not await self._write(changes, at=self.number, holds_here=holds_here):
            return None
        if renewed is not None:
            self._show(renewed.rebuilt)
        state.commit(done, fresh)
        state.returned = {item for item in state.returned if item not in state.ledger.covered()}
        for edit in outlived:
            state.ledger.replace(edit)
        return before

    @in_step
    async def note_handed_over(self, segment: SegmentEdit) -> None:
        """Note that a long-term memory has taken what a segment covers, if it is still there."""
        known = self.state.ledger.segment(segment.id)
        if known is None or known.ref != segment.ref or known.handed_over:
            return
        noted = replace(known, handed_over=True)
        if await self._write([Record([noted])], at=self.number):
            self.state.ledger.replace(noted)

    async def _marks_changed(self, marks: Collection[str]) -> None:
        """Read anew who bears these marks; bring back what is pinned now."""
        try:
            await self._follow_marks(marks)
        except BaseException as error:  # they are changed, so what they lead to has to be found
            self._has_to_read = True
            if not isinstance(error, ConflictError):
                raise

    async def _follow_marks(self, marks: Collection[str]) -> None:
        state = self.state
        before, weighty = state.tokens, self._config.weighty_marks
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
        rebuilt = await self.rebuilder.rebuild(self.basis, await self.history.read(), left)
        if not await self._write(self._following(rebuilt), at=self.number):
            return
        self._show(rebuilt)
        ids = [message_id(key) for key in state.known.tokens if key in left]
        self.note_edit("pinned messages returned", before, ids)

    # Starting

    @property
    def known_tokens(self) -> dict[str, int]:
        """Tokens of every known message, by key, those that were loaded and not used yet included."""
        return self.state.known.tokens if self._loaded_tokens is None else self._loaded_tokens

    def _start_empty(self) -> None:
        """Forget everything; the stored texts become unwanted."""
        ledger = self.state.ledger
        unwanted = ledger.kept_refs() | ledger.unwanted
        generation, budget = self.state.generation + 1, self.state.budget
        self.state = self._empty_state()
        self.state.generation = generation
        self.state.budget = budget  # the provider counts as before
        self.state.ledger.give_up(unwanted)

    def offer_tools(self, are_offered: bool = True) -> None:
        """Set whether stand-ins that are made from now on name the read-back tools."""
        self._names_tools = self.state.names_tools = are_offered

    def _empty_state(self) -> MemoryState:
        state = MemoryState(self._config, self._counter)
        state.names_tools = self._names_tools
        state.known.marks = {mark: set() for mark in self._config.weighty_marks}
        return state

    def start_from(self, state: MemoryState, loaded_tokens: dict[str, int]) -> None:
        """Take a loaded state; the next `catch_up` reads the history and rebuilds the view."""
        self.branches.drop()
        self._unrecorded, self._recorded, self._counts.known = [], NOTHING, None
        state.names_tools = self._names_tools
        self.state = state
        self._loaded_tokens = loaded_tokens
        self.gone = None
        self._has_to_read = True
