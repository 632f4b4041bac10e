"""Following a history: its view is brought in step with it, whoever wrote there."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from context_compressor.compression.config import CompressionConfig
from context_compressor.compression.edits import (
    Edit,
    ItemKey,
    message_id,
)
from context_compressor.compression.ledger import Ledger
from context_compressor.errors import ConflictError
from context_compressor.events import CompressionEvent
from context_compressor.memory.branches import Branches
from context_compressor.memory.history import (
    Change,
    Head,
    History,
    LedgerEntry,
    Record,
    Withdraw,
    continues,
    is_same,
    outlines_of,
)
from context_compressor.memory.loops import LoopLock
from context_compressor.memory.making import ViewMaker
from context_compressor.memory.reading import read_all
from context_compressor.memory.rebuilding import (
    Rebuilt,
    appended_edits,
    changed_ids,
    is_continued,
    replacing,
)
from context_compressor.memory.state import MemoryState
from context_compressor.messages.exchanges import Decisions
from context_compressor.offload.store import OffloadStore
from context_compressor.tokens.counter import TokenCounter
from context_compressor.tokens.off_loop import measure_all_off_loop

logger = logging.getLogger(__name__)

CHANGED = "the base memory was changed"
"""Reason of an event after which the history says something else."""
NOTHING: Mapping[str, Any] = {**Ledger().learnt(), "summary_place": None}
"""What is learnt of an empty history."""


class HistoryFollower(ViewMaker):
    """Keep the state of a compressed memory in step with what its history says; `ViewMaker` tells of the
    arguments.

    Attributes:
        state: ledger, known messages and view; replaced as a whole when a saved state is loaded or all is
            cleared.
        lock: guards history and state together, so that both see changes in the same order. Never held while
            a summary is written, a text stored for an event, or an event delivered.
        number: the head of the history that the state knows.
        edited: whether the view was edited since `get_memory` last looked whether an event is due. It looks
            again then, as a memory does that is loaded from its state: both have to show the same view.
        branches: conversations that a list departed from.
        gone: keys of messages that left the history and may still be in the search index; None until the
            index, which another process may have left, was compared with the whole history.
    """

    lock = LoopLock()

    def __init__(
        self, history: History, config: CompressionConfig, counter: TokenCounter, store: OffloadStore
    ) -> None:
        super().__init__(history, config, counter, store)
        self.edited = False
        self.gone: set[str] | None = None
        self.branches: Branches[Any] = Branches(config.branch_seconds, self._let_go)
        self._recorded = NOTHING
        self._unrecorded: list[Record] = []  # refused by the history; kept here until it takes them
        self._has_to_read = False
        self._names_tools = False
        self.state = self._empty_state()
        # A wrapped memory does not tell the marks of its messages, nor, without a revision, each change.
        self._tells_marks: bool = getattr(history, "tells_marks", True)
        self._counts_changes: bool = getattr(history, "counts_changes", True)

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
            self._is_settled(summary=summary)
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
        head = await self.history.head()
        is_told = not self._has_to_read and not self._unrecorded
        return is_told and is_same(head.number, self.number) and not self.lock.locked()

    # Reading

    async def catch_up(self, events: list[CompressionEvent], *, look: bool = False) -> None:
        """Bring the view to the end of the history, read anew if somebody else changed it. Holds: lock.

        Args:
            events: receives what that led to.
            look: read it whole where only that tells whether something changed.
        """
        self._has_to_read |= look and not self._counts_changes
        while not is_same((head := await self.history.head()).number, self.number) or self._has_to_read:
            state = self.state
            if not continues(head.number, self.number):
                self._is_another = self._has_to_read = True
            try:
                is_done = await self._grow(head, events)
                if not is_done:
                    is_done = await self._reread(head, events) and not self._tells_marks
            except ConflictError:
                continue
            if state is not self.state:
                self._has_to_read = True
            elif is_done:
                break  # it is the view of that head: who writes on and on would never let it come to an end
        self.state.advance()

    async def _grow(self, head: Head, events: list[CompressionEvent]) -> bool:
        """Take up messages and edits that others appended to what is known; tell whether that was all."""
        state = self.state
        # Of a history that is opened what stands for messages tells what is to be read.
        is_opened = not self.number and outlines_of(self.history) is not None
        if self._has_to_read or not self._tells_marks or is_opened:
            return False
        before, shown = state.tokens, list(state.items)
        # What came behind that head is for the next time.
        entries = [e for e in await self.history.read(after=self.number) if e.changed <= head.number]
        written = [e for e in await self.history.ledger(after=self.number) if e.number <= head.number]
        if written and self._unrecorded:
            return False
        added = [(entry, entry.msg) for entry in entries if entry.msg is not None]
        edits = appended_edits(state, written, (entry.key for entry in entries), self._recorded)
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
            self.number = head.number
            if edits and not is_continued(shown, state.items):
                self.branches.drop()
                state.generation += 1
                self.note_edit(events, CHANGED, before, changed_ids(shown, state.items))
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

    async def _reread(self, head: Head, events: list[CompressionEvent]) -> bool:
        """Read the whole history and rebuild the view; note an edit unless it only grew.

        Returns:
            Whether that is done: not where another state was loaded meanwhile.
        """
        self._has_to_read = True
        state, loaded, old = self.state, self._loaded_tokens, self.state.known
        covered = state.ledger.covered()
        is_light = loaded is None and outlines_of(self.history) is not None
        reading = None if is_light else await read_all(self.history, head)
        is_told_anew = loaded is not None or self._is_another or bool(self._unrecorded)
        edits = await self.history.ledger(after=0 if is_told_anew else self.number)
        if edits and self.number and not is_told_anew:
            edits = await self.history.ledger()
        unrecorded = NOTHING if is_told_anew else self._recorded
        learnt = next((entry.learnt for entry in reversed(edits) if entry.learnt), unrecorded)
        if state is not self.state:
            return False
        if (edits or is_told_anew) and loaded is None:
            self._unrecorded = []
            state.ledger = state.ledger.followed_by((e for entry in edits for e in entry.edits), learnt)
        self._recorded = learnt
        making = self._make_lightly(head, edits) if reading is None else self._make(reading)
        known, tokens, rebuilt = await making
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
        self._show(rebuilt, covered)
        if moved or not is_continued(shown, state.items):
            if loaded is None:
                self.branches.drop()
                changed = changed_ids(shown, state.items)
                self.note_edit(events, CHANGED, before, changed)
        elif any(known.bearing(mark) != old.bearing(mark) for mark in self._weighty_marks()):
            self.edited = True  # as where they are changed by the memory itself
        else:
            state.generation = generation  # it only grew: an event that is planned still holds
        self._loaded_tokens = None
        self._has_to_read = self._is_another = False
        self.number = number
        return True

    def _show(self, rebuilt: Rebuilt, covered: set[ItemKey] | None = None) -> None:
        """Show a view that was made anew; `covered` is what had left before, if the ledger has changed."""
        state = self.state
        covered = state.ledger.covered() if covered is None else covered
        state.ledger.drop(rebuilt.withdrawn)
        for segment in rebuilt.renewed:
            state.ledger.replace(segment)
        state.rebuild(rebuilt.built, len(rebuilt.messages), rebuilt.counted, rebuilt.unseen)
        state.returned = covered - state.ledger.covered()

    # Deciding what a view shows for good

    async def make_ready(self, events: list[CompressionEvent], *, summary: bool, look: bool = False) -> None:
        """Bring the view to the end of the history, and decide what it takes to show it. Holds: lock.

        What is decided is recorded before it is shown: whoever else has this history shows the same.

        Args:
            events: receives what that led to.
            summary: whether the history's own summary is shown.
            look: as `catch_up`.
        """
        await self.catch_up(events, look=look)
        while not await self._settle(summary, events):
            await self.catch_up(events)

    async def _settle(self, summary: bool, events: list[CompressionEvent]) -> bool:
        """Decide and record; tell whether that is done: not where others wrote meanwhile."""
        state, place = self.state, self.state.shown.summary_place
        try:
            state.settle(summary=summary)
            learnt = self._learnt()
            if learnt == self._recorded and not self._unrecorded:
                return True
            return await self._write([Record((), learnt)], at=self.number, events=events)
        except BaseException as error:
            # Nobody has seen it: what others wrote may lead to something else.
            state.ledger.decisions = Decisions.from_dict(self._recorded["decisions"])
            state.shown.summary_place = place
            self._has_to_read = True
            if not isinstance(error, ConflictError):
                raise
            return False

    def _learnt(self, state: MemoryState | None = None) -> dict[str, Any]:
        """Return what is recorded beside the edits of the ledger, so that every reader shows the same."""
        state = state or self.state
        shown = state.shown
        place = None if shown.summary_place is None else [shown.summary_id, shown.summary_place]
        return {**state.ledger.learnt(), "summary_place": place}

    def _following(self, rebuilt: Rebuilt) -> list[Change]:
        """Return what a view that is made anew changes in the ledger of the history."""
        changes: list[Change] = [Withdraw(rebuilt.withdrawn)] if rebuilt.withdrawn else []
        learnt = {**self._recorded, **rebuilt.ledger.learnt()}
        is_more = rebuilt.renewed or learnt != self._recorded
        return [*changes, Record(rebuilt.renewed, learnt)] if is_more else changes

    def _note_recorded(self, changes: Iterable[Change]) -> None:
        for change in changes:
            if isinstance(change, Record) and change.learnt:
                self._recorded = change.learnt

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
        events: list[CompressionEvent] | None = None,
    ) -> bool:
        """Write; tell whether the state may follow. It may not if others wrote, or another state was loaded.

        Args:
            changes: what to write.
            at: the number that the head must have.
            events: for edits without which no view fits: where the history takes none, as one that is full,
                they hold here, and are written with the next. Receives what that led to.
        """
        state, before = self.state, [] if at is None else self._unrecorded
        try:
            number = await self.history.write([*before, *changes], at=at)
        except Exception as error:
            is_ours = isinstance(error, ConflictError) or state is not self.state
            if events is None or is_ours or self._config.on_failure == "raise":
                raise
            if not self._unrecorded:
                self._note_refused(error, events)
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

    def _let_go(self, refs: Collection[str]) -> None:
        ledger = self.state.ledger
        ledger.unwanted |= {ref for ref in refs if not ledger.is_live(ref)}

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

    def _note_refused(self, error: Exception, events: list[CompressionEvent]) -> None:
        tokens, told = self.state.tokens, f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        logger.warning("the history takes no edits now; they are written when it does: %s", told)
        events.append(
            CompressionEvent(
                kind="failure",
                reason="edits not recorded",
                tokens_before=tokens,
                tokens_after=tokens,
                error=told,
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
        unwanted = ledger.kept_refs() | ledger.unwanted
        generation, budget = self.state.generation + 1, self.state.budget
        self.state = self._empty_state()
        self.state.generation = generation
        self.state.budget = budget  # the provider counts as before
        self.state.ledger.unwanted = unwanted

    def offer_tools(self, are_offered: bool = True) -> None:
        """Set whether stand-ins that are made from now on name the read-back tools."""
        self._names_tools = self.state.names_tools = are_offered

    def _empty_state(self) -> MemoryState:
        state = MemoryState(self._config, self._counter)
        state.names_tools = self._names_tools
        state.known.marks = {mark: set() for mark in self._weighty_marks()}
        return state

    def start_from(self, state: MemoryState, loaded_tokens: dict[str, int]) -> None:
        """Take a loaded state; the next `catch_up` reads the history and rebuilds the view."""
        self.branches.drop()
        self._unrecorded = []
        state.names_tools = self._names_tools
        self.state = state
        self._loaded_tokens = loaded_tokens
        self.gone = None
        self._has_to_read = True
