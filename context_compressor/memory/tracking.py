"""Keeping a view in step with its history: one lock, growing with it, noticing changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Container, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from context_compressor.compression.config import CompressionConfig
from context_compressor.compression.edits import ItemKey, message_id
from context_compressor.compression.items import ViewItem
from context_compressor.compression.recovery import Recovery
from context_compressor.events import CompressionEvent
from context_compressor.memory.base import MemoryBase
from context_compressor.memory.history import BaseHistory
from context_compressor.memory.state import KnownMessages, MemoryState
from context_compressor.messages.exchanges import Decisions
from context_compressor.messages.msg import Msg
from context_compressor.tokens.counter import MessageTokens, TokenCounter
from context_compressor.tokens.off_loop import measure_all_off_loop, run_off_loop, text_characters


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


class Upkeep:
    """Move the state of a compressed memory on.

    Args:
        base: the wrapped memory.
        config: thresholds.
        counter: measures messages.

    Attributes:
        state: ledger, known messages and view; replaced as a whole when a saved state is loaded or all is
            cleared.
        history: the base memory as read by the wrapper.
        lock: guards base and state together, across the awaits of a base call, so that both see changes in
            the same order. Never held while a summary is written, a text stored for an event, or an event
            delivered.
        stale: whether state and base may have come apart: then the next refresh reads the base whole.
        edited: whether the view was edited since `get_memory` last looked whether an event is due. It looks
            again then, as a memory does that is loaded from its state: both have to show the same view.
        gone: keys of messages that left the history and may still be in the search index; None until the
            index, which another process may have left, was compared with the whole history.
    """

    lock = LoopLock()

    def __init__(self, base: MemoryBase, config: CompressionConfig, counter: TokenCounter) -> None:
        self.state = MemoryState(config, counter)
        self.history = BaseHistory(base)
        self.stale = True
        self.edited = False
        self.gone: set[str] | None = None
        self._config = config
        self._counter = counter
        self._loaded_tokens: dict[str, int] | None = None

    def is_current(self) -> bool:
        """Tell, without waiting, that the view is that of the whole history, and that no event is due."""
        state = self.state
        return not (
            self.stale
            or self.edited
            or state.queue
            or not state.is_settled
            or state.fresh
            or state.tokens > state.budget.due_tokens
            or state.budget.is_due
            or not self.history.is_unchanged()
        )

    async def refresh(self, events: list[CompressionEvent]) -> None:
        """Bring the view to the end of the history, read anew if somebody else changed it. Holds: lock."""
        while self.stale or await self.history.has_changed(len(self.state.known)):
            if await self._reread(events):
                break
        self.state.advance()

    @asynccontextmanager
    async def changing(self) -> AsyncIterator[MemoryState]:
        """Change base memory and state together, `remember` in between. Holds: lock.

        Where that breaks off half way, somebody loads another state, or the base then holds more or fewer
        messages than the state (it may refuse some, or others change it), the next refresh reads it whole.
        """
        state = self.state
        self.stale = True
        yield state
        if state is self.state:
            size = await self.history.size()
            self.stale = state is not self.state or size != len(state.known)

    def remember(self, state: MemoryState) -> bool:
        """Note that the base memory was changed by us; tell whether `state` is to change, too.

        It is not where somebody loaded another one while the base changed.
        """
        if state is not self.state:
            return False
        self.history.remember()
        return True

    async def _reread(self, events: list[CompressionEvent]) -> bool:
        """Read the whole base memory and rebuild the view; note an edit unless it only grew.

        Returns:
            Whether that is done: not where another state was loaded meanwhile.
        """
        self.stale = True
        state, loaded = self.state, self._loaded_tokens
        history = await self.history.read()
        if state is not self.state:
            return False
        known, old = KnownMessages(), state.known
        before, shown = state.tokens, list(state.items)
        tokens = dict(old.tokens) if loaded is None else loaded
        characters = text_characters(msg for _, msg in history)
        counted = await self._take_stock(history, tokens, characters)
        for key, msg in history:
            known.append(msg.id, counted[key].total if key in counted else tokens[key])
        for mark in {*old.marks, *self._weighty_marks()}:
            known.marks[mark] = set(await self.history.ids_bearing(mark))
        if state is not self.state:
            return False
        self._release(known.bearing(self._config.pinned_mark))
        seen = {key for key, _ in history[: state.ledger.frontier]} if loaded is not None else set(old.tokens)
        unseen = {key for key in known.tokens if key not in seen} | state.unseen()
        built = await run_off_loop(characters, state.build, history, counted, unseen)
        if state is not self.state:
            return False
        moved = state.set_summary(self.history.summary) and before > 0
        self._note_gone(key for key in old.tokens if key not in known.tokens)
        state.known = known
        generation = state.generation
        state.rebuild(built, len(history), counted, unseen)
        if moved or not _is_continued(shown, state.items):
            if loaded is None:
                changed = _changed_ids(shown, state.items)
                self.note_edit(events, "the base memory was changed", before, changed)
        elif any(known.bearing(mark) != old.bearing(mark) for mark in self._weighty_marks()):
            self.edited = True  # as where they are changed by the memory itself
        else:
            state.generation = generation  # it only grew: an event that is planned still holds
        self._loaded_tokens = None
        self.stale = False
        return True

    def _weighty_marks(self) -> set[str]:
        """Return the marks that decide what may leave the view."""
        pinned = self._config.pinned_mark
        return {*self._config.volatile_marks, *([] if pinned is None else [pinned])}

    async def look_up(self, mark: str) -> None:
        """Read who bears a mark, if that was not done before; from now on it is kept in step."""
        if mark not in self.state.known.marks:
            async with self.lock:  # or a mark added meanwhile would be missed for good
                self.state.known.marks[mark] = set(await self.history.ids_bearing(mark))

    async def _take_stock(
        self, history: Sequence[tuple[str, Msg]], known: Container[str], characters: int
    ) -> dict[str, MessageTokens]:
        """Withdraw what the history no longer says, and count what a view may show.

        Args:
            history: every message with its key.
            known: keys whose total is known; inside a segment that is enough.
            characters: of all texts.
        """
        ledger = self.state.ledger
        if ledger.decisions is None:
            seen = history[: ledger.frontier]
            ledger.decisions = await run_off_loop(characters, Decisions.of_earlier_releases, seen)
        ledger.decisions.keep({key for key, _ in history})
        counted = self._still_valid(history)
        # Pairing may have changed, and with it what a message says in the view.
        recovery = await run_off_loop(characters, Recovery, history, ledger, self._config.redact)
        await recovery.withdraw_outdated(characters)
        ledger.drop_withdrawn()
        missing = {
            key: msg
            for key, msg in history
            if key not in counted and not (key in known and ledger.top_segment_of(ItemKey(key)) is not None)
        }
        counts = await measure_all_off_loop(self._counter, list(missing.values()))
        return counted | dict(zip(missing, counts, strict=True))

    def _still_valid(self, history: Sequence[tuple[str, Msg]]) -> dict[str, MessageTokens]:
        """Return the counts of messages whose content is as it was when they were counted."""
        now = dict(history)
        valid = {
            item.key.key: item.source_tokens
            for item in self.state.items
            if item.kind == "message" and item.repair is None and now.get(item.key.key) == item.source
        }
        return valid | {key: tokens for key, msg, tokens in self.state.queue if now.get(key) == msg}

    def _release(self, pinned: Collection[str]) -> list[str]:
        """Withdraw what stands in for pinned messages: they may not leave; return their ids, in order."""
        state = self.state
        if not pinned:
            return []
        items = state.items_of([*pinned, *state.known.keys_of(pinned)])
        left = [item for item in items if state.ledger.stands_in_for(item)]
        for item in left:
            state.ledger.withdraw(item)
        released = {message_id(item.key) for item in left}
        return [id for id in map(message_id, state.known.tokens) if id in released] if released else []

    async def rebuild(self) -> None:
        """Build the view anew from base and ledger after an edit of our own. Holds: lock."""
        state = self.state
        history = await self.history.read()
        characters = text_characters(msg for _, msg in history)
        counted = await self._take_stock(history, state.known.tokens, characters)
        unseen = state.unseen()
        built = await run_off_loop(characters, state.build, history, counted, unseen)
        if state is self.state:  # nobody loaded another one meanwhile
            state.rebuild(built, len(history), counted, unseen)

    async def forget(self, keys: Sequence[str], events: list[CompressionEvent]) -> None:
        """Take messages that left the base memory out of view and ledger. Holds: lock."""
        state = self.state
        before = state.tokens
        covered = any(state.ledger.stands_in_for(ItemKey(key)) for key in keys)
        state.known.remove(keys)
        self._note_gone(keys)
        if covered or not state.drop_simple(set(keys)):
            for item in state.items_of(keys):
                state.ledger.withdraw(item)
            await self.rebuild()
        self.note_edit(events, "deleted", before, [message_id(key) for key in keys])

    async def marks_changed(self, marks: Collection[str], events: list[CompressionEvent]) -> None:
        """Read anew who bears these marks; bring back what is pinned now. Holds: lock."""
        state = self.state
        before = state.tokens
        weighty = self._weighty_marks()
        for mark in marks:
            if mark in weighty or mark in state.known.marks:
                state.known.marks[mark] = set(await self.history.ids_bearing(mark))
        if weighty.isdisjoint(marks):
            return
        state.generation += 1
        self.edited = True  # what may leave now may be what too many messages ask for
        if released := self._release(state.known.bearing(self._config.pinned_mark)):
            await self.rebuild()
            self.note_edit(events, "pinned messages returned", before, released)

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

    @property
    def known_tokens(self) -> dict[str, int]:
        """Tokens of every known message, by key, those that were loaded and not used yet included."""
        return self.state.known.tokens if self._loaded_tokens is None else self._loaded_tokens

    def start_empty(self) -> None:
        """Forget everything; the stored texts become unwanted."""
        ledger = self.state.ledger
        unwanted = {*ledger.refs(), *ledger.unwanted}
        generation, budget = self.state.generation + 1, self.state.budget
        self.state = MemoryState(self._config, self._counter)
        self.state.generation = generation
        self.state.budget = budget  # the provider counts as before
        self.state.ledger.unwanted = unwanted

    def start_from(self, state: MemoryState, loaded_tokens: dict[str, int]) -> None:
        """Take a loaded state; the next refresh reads the base memory and rebuilds the view."""
        self.state = state
        self._loaded_tokens = loaded_tokens
        self.gone = None
        self.stale = True


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
