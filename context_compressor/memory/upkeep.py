"""Keeping a view in step with its history: noticing changes, running events, delivering them."""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Collection, Container, Iterable, Sequence
from typing import Any

from context_compressor.compression.config import CompressionConfig
from context_compressor.compression.edits import ItemKey, message_id
from context_compressor.compression.engine import Engine
from context_compressor.compression.planner import plan
from context_compressor.compression.plans import Plan
from context_compressor.compression.recovery import Recovery
from context_compressor.compression.view import ViewItem
from context_compressor.compression.writing import Performed
from context_compressor.errors import ContextOverflowError
from context_compressor.events import CompressionEvent, EventHook
from context_compressor.memory.base import MemoryBase
from context_compressor.memory.history import BaseHistory, withdraw_outdated
from context_compressor.memory.index import HistoryIndex
from context_compressor.memory.locks import LoopLock
from context_compressor.memory.offloaded import OffloadedTexts
from context_compressor.memory.reporting import Totals, describe_event
from context_compressor.memory.state import MemoryState
from context_compressor.messages.msg import Msg
from context_compressor.offload.protocol import OffloadStore
from context_compressor.summarizers.attempts import Attempts, attempt_budget
from context_compressor.summarizers.protocol import Summarizer
from context_compressor.tokens.measure import MessageTokens, measure_off_loop
from context_compressor.tokens.protocol import TokenCounter

logger = logging.getLogger(__name__)

MAX_ATTEMPTS_PER_EVENT = 48
"""Calls of a model that one event may make, retries and the parts of large groups included."""
_MAX_EVENTS_PER_CALL = 12
"""Events that one call may run before it gives up: each leaves a smaller view, so few are ever needed."""


class Upkeep:
    """Move the state of a compressed memory on.

    Args:
        base: the wrapped memory.
        config: thresholds.
        store: where texts go.
        summarizer: who writes summaries.
        fallback: who writes them when that fails.
        counter: measures messages.
        on_event: receives every event.

    Attributes:
        state: ledger, index and view; replaced as a whole when a saved state is loaded or all is cleared.
        history: the base memory as read by the wrapper.
        texts: what left the view.
        lock: guards base and state together, across the awaits of a base call, so that both see changes in
            the same order. Never held while a summary is written, a text stored for an event, or an event
            delivered.
        event_lock: one event at a time: a second caller over budget waits for the first one's view and pays
            for none. Taken before `lock` where both are.
        stale: whether state and base may have come apart: then the next refresh reads the base whole.
    """

    def __init__(
        self,
        *,
        base: MemoryBase,
        config: CompressionConfig,
        store: OffloadStore,
        summarizer: Summarizer,
        fallback: Summarizer,
        counter: TokenCounter,
        on_event: EventHook | None,
    ) -> None:
        self.state = MemoryState(config, counter)
        self.history = BaseHistory(base)
        self.lock = LoopLock()
        self.event_lock = LoopLock()
        self.stale = True
        self.totals = Totals()
        self._config = config
        self._counter = counter
        self._on_event = on_event
        self._loaded_tokens: dict[str, int] | None = None
        self.texts = OffloadedTexts(config, store, self.history)
        self._engine = Engine(
            config=config,
            store=store,
            summarizer=summarizer,
            fallback=fallback,
            counter=counter,
            read_ref=self.read_ref,
        )

    def is_current(self) -> bool:
        """Tell, without waiting, that the view is that of the whole history and fits."""
        state = self.state
        return not (
            self.stale
            or state.queue
            or state.fresh
            or state.tokens > self._config.budget
            or not self.history.is_unchanged()
        )

    async def bring_up_to_date(self) -> None:
        """Move the view to the end of the history and run the events that takes.

        Raises:
            ContextOverflowError, RedactionError, and with `on_failure="raise"` SummarizerError, OffloadError.
        """
        if not self.stale and self.history.is_unchanged() and not self.lock.locked():
            # The common case needs no lock: nobody is in the middle of anything, and nothing here waits.
            self.state.advance()
            if not self._needs_event():
                return
        events: list[CompressionEvent] = []
        try:
            for _ in range(_MAX_EVENTS_PER_CALL):
                async with self.lock:
                    await self.refresh(events)
                    if not self._needs_event():
                        return
                async with self.event_lock:
                    await self.run_event(events)
            raise self._overflow()
        finally:
            await self.sweep_when_idle()
            await self.deliver(events)

    def _needs_event(self) -> bool:
        state = self.state
        if state.tokens > self._config.budget or state.has_large_arrival():
            return True
        state.fresh.clear()
        return False

    async def refresh(self, events: list[CompressionEvent]) -> None:
        """Bring the view to the end of the history, read anew if somebody else changed it. Holds: lock."""
        if self.stale or await self.history.has_changed(len(self.state.index)):
            await self._reread(events)
        self.state.advance()

    async def _reread(self, events: list[CompressionEvent]) -> None:
        """Read the whole base memory and rebuild the view; note an edit unless it only grew."""
        self.stale = True
        history = await self.history.read()
        state, loaded = self.state, self._loaded_tokens
        index, old = HistoryIndex(), state.index
        before, shown = state.tokens, list(state.items)
        known = dict(old.tokens) if loaded is None else loaded
        counted = await self._take_stock(history, known)
        for key, msg in history:
            index.append(msg.id, counted[key].total if key in counted else known[key])
        watched = {*old.marks, *self._config.volatile_marks}
        if self._config.pinned_mark is not None:
            watched.add(self._config.pinned_mark)
        for mark in watched:
            index.marks[mark] = await self.history.ids_bearing(mark)
        self._release(index.bearing(self._config.pinned_mark))
        state.set_summary(self.history.summary)
        state.index = index
        seen = {key for key, _ in history[: state.ledger.frontier]} if loaded is not None else set(old.tokens)
        unseen = {key for key in index.tokens if key not in seen} | {key for key, _, _ in state.queue}
        generation = state.generation
        state.rebuild(history, counted, unseen)
        if not _is_continued(shown, state.items):
            if loaded is None:
                self.note_edit(events, "the base memory was changed", before, ())
        else:
            state.generation = generation  # it only grew: an event that is planned still holds
        self._loaded_tokens = None
        self.stale = False

    async def _take_stock(
        self, history: Sequence[tuple[str, Msg]], known: Container[str]
    ) -> dict[str, MessageTokens]:
        """Withdraw what the history no longer says, and count what a view may show.

        Args:
            history: every message with its key.
            known: keys whose total is known; inside a segment that is enough.
        """
        ledger = self.state.ledger
        counted = self._still_valid(history)
        # Pairing may have changed, and with it what a message says in the view.
        withdraw_outdated(ledger, Recovery(history, ledger, self._config.redact))
        for key, msg in history:
            covered = ledger.top_segment_of(ItemKey(key)) is not None
            if key not in counted and not (covered and key in known):
                counted[key] = await measure_off_loop(self._counter, msg)
        return counted

    def _still_valid(self, history: Sequence[tuple[str, Msg]]) -> dict[str, MessageTokens]:
        """Return the counts of messages whose content is as it was when they were counted."""
        now = dict(history)
        valid = {
            item.key.key: item.source_tokens
            for item in self.state.items
            if item.kind == "message" and item.repair is None and now.get(item.key.key) == item.source
        }
        return valid | {key: tokens for key, msg, tokens in self.state.queue if now.get(key) == msg}

    def _release(self, pinned: Collection[str]) -> bool:
        """Withdraw what stands in for pinned messages: they may not leave; tell whether there was any."""
        state = self.state
        if not pinned:
            return False
        left = False
        for item in state.items_of([*pinned, *state.index.keys_of(pinned)]):
            if state.ledger.top_segment_of(item) is not None or state.ledger.stubs_of(item):
                state.withdraw(item)
                left = True
        return left

    async def rebuild(self) -> None:
        """Build the view anew from base and ledger after an edit of our own. Holds: lock."""
        history = await self.history.read()
        counted = await self._take_stock(history, self.state.index.tokens)
        self.state.rebuild(history, counted, {key for key, _, _ in self.state.queue})

    async def forget(self, keys: Sequence[str], events: list[CompressionEvent]) -> None:
        """Take messages that left the base memory out of view, ledger and index. Holds: lock."""
        state = self.state
        before = state.tokens
        items = [ItemKey(key) for key in keys]
        covered = any(state.ledger.top_segment_of(i) is not None or state.ledger.stubs_of(i) for i in items)
        state.index.remove(keys)
        if covered or not state.drop_simple(set(keys)):
            for item in state.items_of(keys):
                state.withdraw(item)
            await self.rebuild()
        self.note_edit(events, "deleted", before, [message_id(key) for key in keys])

    async def marks_changed(self, marks: Iterable[str], events: list[CompressionEvent]) -> None:
        """Read anew who bears these marks; bring back what is pinned now. Holds: lock."""
        state = self.state
        before = state.tokens
        for mark in marks:
            state.index.marks[mark] = await self.history.ids_bearing(mark)
        state.generation += 1
        if self._release(state.index.bearing(self._config.pinned_mark)):
            await self.rebuild()
            self.note_edit(events, "pinned messages returned", before, ())

    def note_edit(self, events: list[CompressionEvent], reason: str, before: int, ids: Sequence[str]) -> None:
        """Note an event of kind `edit`."""
        events.append(
            CompressionEvent(
                kind="edit",
                reason=reason,
                tokens_before=before,
                tokens_after=self.state.tokens,
                message_ids=tuple(dict.fromkeys(ids)),
            )
        )

    def to_dict(self) -> dict[str, Any]:
        """Return what a saved state needs beside the base memory's; JSON-like data."""
        saved = self.state.to_dict()
        if self._loaded_tokens is not None:  # loaded and not used yet
            saved["tokens"] = dict(self._loaded_tokens)
        return saved

    def start_empty(self) -> None:
        """Forget everything; the stored texts become unwanted."""
        ledger = self.state.ledger
        unwanted = {*ledger.refs(), *ledger.unwanted}
        generation = self.state.generation + 1
        self.state = MemoryState(self._config, self._counter)
        self.state.generation = generation
        self.state.ledger.unwanted = unwanted

    def start_from(self, state: MemoryState, loaded_tokens: dict[str, int]) -> None:
        """Take a loaded state; the next refresh reads the base memory and rebuilds the view."""
        self.state = state
        self._loaded_tokens = loaded_tokens
        self.stale = True

    async def read_ref(self, ref: str) -> str:
        """Return a text that the ledger names.

        Raises:
            OffloadError: as `OffloadedTexts.read`.
        """
        return await self.texts.read(ref, self.state.ledger)

    # Events

    async def run_event(
        self, events: list[CompressionEvent], *, manual: bool = False
    ) -> CompressionEvent | None:
        """Plan, perform and commit one event; None when there was nothing to do. Holds: event lock.

        An edit that comes while texts are stored and summaries written outdates the plan: it is made anew.
        """
        with attempt_budget(MAX_ATTEMPTS_PER_EVENT) as attempts:
            return await self._run_event(events, attempts, manual=manual)

    async def _run_event(
        self, events: list[CompressionEvent], attempts: Attempts, *, manual: bool
    ) -> CompressionEvent | None:
        started = time.monotonic()
        await self.texts.retry_pending(self.state.ledger)
        while True:
            async with self.lock:
                # Without a revision only a full look tells whether the content of the base changed.
                self.stale = self.stale or not self.history.has_revision
                await self.refresh(events)
                state = self.state
                planned = self._plan(manual=manual)
                generation, items, fresh = state.generation, list(state.items), set(state.fresh)
            if planned is None:
                await self.texts.sweep(state.ledger)
                return None
            done = Performed()
            taken = attempts.taken
            try:
                await self._engine.perform(planned, items, state.ledger.new_segment_id, done)
                async with self.lock:
                    outdated = state is not self.state or generation != state.generation
                    if not outdated:
                        before = state.tokens
                        state.commit(done, fresh)
            finally:
                done.use.calls = attempts.taken - taken
                ledger = self.state.ledger
                ledger.unwanted |= {ref for ref in done.attempted if not ledger.is_live(ref)}
                self.totals.add(done.use, time.monotonic() - started)
            if not outdated:
                await self.texts.sweep(state.ledger)
                made = describe_event(planned, done, before, state.tokens, time.monotonic() - started)
                events += made
                return made[-1] if made and made[-1].kind != "failure" else None

    def _plan(self, *, manual: bool) -> Plan | None:
        state = self.state
        if not manual and not self._needs_event():
            return None
        planned = plan(state.items, state.situation(self._engine.costs(), manual=manual))
        if planned is None:
            state.fresh.clear()
            if state.tokens > self._config.budget:
                raise self._overflow()
        return planned

    def _overflow(self) -> ContextOverflowError:
        fixed = self.state.fixed_tokens()
        budget, needed = self._config.budget, self.state.tokens
        named = ", ".join(f"{id} ({tokens:,})" for id, tokens in fixed) or "none"
        return ContextOverflowError(
            f"the smallest view takes {needed:,} tokens, the budget is {budget:,}; messages that may not "
            f"leave, with their tokens: {named}; raise max_total_tokens, or shorten or unpin them",
            budget=budget,
            needed=needed,
            fixed=fixed,
        )

    async def sweep_when_idle(self) -> None:
        """Remove what nothing names any more, unless an event is running: that one does it at its end."""
        if self.state.ledger.unwanted and not self.event_lock.locked():
            async with self.event_lock:
                await self.texts.sweep(self.state.ledger)

    async def deliver(self, events: Sequence[CompressionEvent]) -> None:
        """Hand events to the hook; its errors are logged and contained."""
        self.totals.events += len(events)
        if self._on_event is None:
            return
        for event in events:
            try:
                answer = self._on_event(event)
                if inspect.isawaitable(answer):
                    await answer
            except Exception:
                logger.exception("on_event failed for an event of kind %s", event.kind)


def _is_continued(before: Sequence[ViewItem], after: Sequence[ViewItem]) -> bool:
    """Tell whether a view begins with all that it showed before."""
    return len(before) <= len(after) and all(
        old.key == new.key and old.source == new.source and old.tokens == new.tokens
        for old, new in zip(before, after, strict=False)
    )
