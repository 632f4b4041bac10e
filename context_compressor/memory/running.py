"""Running events: one at a time, in line or prepared ahead."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from context_compressor.compression.config import CompressionConfig
from context_compressor.compression.done import Performed
from context_compressor.compression.engine import Engine
from context_compressor.compression.plans import ARRIVAL, Overflow, Perform, Plan, Step
from context_compressor.events import CompressionEvent, EventHook
from context_compressor.memory.ahead import MAX_ATTEMPTS_PER_EVENT, Background, Preparation, outlasts
from context_compressor.memory.reporting import Totals, describe_event, overflow_error
from context_compressor.memory.searching import Recall
from context_compressor.memory.state import MemoryState
from context_compressor.memory.texts import Housekeeping, OffloadedTexts
from context_compressor.memory.tracking import Upkeep
from context_compressor.offload.store import OffloadStore
from context_compressor.summarizers.attempts import Attempts, attempt_budget
from context_compressor.summarizers.protocol import Summarizer
from context_compressor.tokens.counter import TokenCounter

T = TypeVar("T")

_MAX_EVENTS_PER_CALL = 12
"""Events that one call may run before it gives up: each leaves a smaller view, so few are ever needed."""


class EventRunner:
    """Run the events that a view needs.

    Args:
        upkeep: keeps the view in step with the history.
        config: thresholds.
        store: where texts go.
        summarizer: who writes summaries.
        fallback: who writes them when that fails.
        counter: measures stand-ins.
        recall: drops from its index what is no longer in the history.
        on_event: receives every event.

    Attributes:
        housekeeping: tidies up and delivers events; has the lock of events.
    """

    def __init__(
        self,
        upkeep: Upkeep,
        *,
        config: CompressionConfig,
        store: OffloadStore,
        summarizer: Summarizer,
        fallback: Summarizer,
        counter: TokenCounter,
        recall: Recall,
        on_event: EventHook | None,
    ) -> None:
        self._upkeep = upkeep
        self._config = config
        self._texts = OffloadedTexts(config, store, upkeep.history)
        self._engine = Engine(
            config=config,
            store=store,
            summarizer=summarizer,
            fallback=fallback,
            counter=counter,
            read_ref=self.read_ref,
        )
        self._remote = summarizer.remote
        self._background = Background(config, self._engine, summarizer.remote)
        self.housekeeping = Housekeeping(upkeep, self._texts, self._background, recall, on_event)

    @property
    def totals(self) -> Totals:
        """What events came to, those that are prepared ahead included."""
        return self._background.totals

    async def read_ref(self, ref: str) -> str:
        """Return a text that the ledger names.

        Raises:
            OffloadError: as `OffloadedTexts.read`.
        """
        return await self._texts.read(ref, self._upkeep.state.ledger)

    async def bring_up_to_date(self, show: Callable[[MemoryState], T]) -> T:
        """Move the view to the end of the history, run the events that takes, and prepare the next.

        Args:
            show: makes what is handed out, at the moment when the view fits: while events are delivered,
                others may add.

        Raises:
            ContextOverflowError, RedactionError, and with `on_failure="raise"` SummarizerError, OffloadError.
        """
        events, is_quiet = list[CompressionEvent](), False
        try:
            is_quiet = await self._bring_up_to_date(events)
            shown = show(self._upkeep.state)
        finally:
            if events or not is_quiet or self._background.has_dropped:
                await self.housekeeping.finish(events)
        if self._background.is_on and not self.housekeeping.event_lock.locked():
            self._background.start_if_due(self._upkeep.state)
        return shown

    async def _bring_up_to_date(self, events: list[CompressionEvent]) -> bool:
        """Do so, up to the moment when the view fits; tell whether that took no waiting."""
        # `event_lock` asks for the running loop each time, which is a system call: once is enough.
        upkeep, event_lock = self._upkeep, self.housekeeping.event_lock
        # The common case needs no lock: nobody is in the middle of anything, and nothing there waits.
        upkeep.edited = False
        is_common = not upkeep.stale and upkeep.history.is_unchanged() and not upkeep.lock.locked()
        if is_common:
            upkeep.state.advance()
            upkeep.state.settle()
        if not event_lock.locked():
            upkeep.state.budget.take_up()
        is_quiet = is_common and not upkeep.state.is_due
        if is_quiet:
            upkeep.state.fresh.clear()
        else:
            await self._run_events(events)
        self._background.drop_outdated(upkeep.state)
        upkeep.state.budget.end_shrinking()
        return is_quiet

    async def _run_events(self, events: list[CompressionEvent]) -> None:
        upkeep = self._upkeep
        for _ in range(_MAX_EVENTS_PER_CALL):
            async with upkeep.lock:
                await upkeep.refresh(events)
                upkeep.state.settle()
                if not upkeep.state.is_due:
                    upkeep.state.fresh.clear()
                    return
            async with self.housekeeping.event_lock:
                made = await self.run_event(events)
            if made is None and upkeep.state.tokens <= upkeep.state.budget.due_tokens:
                return  # there are many messages, and none that may leave
        # What others add faster than this makes room can wait, unless it does not fit.
        if upkeep.state.tokens > upkeep.state.budget.due_tokens:
            raise overflow_error(upkeep.state, self._config)

    async def run_event(
        self,
        events: list[CompressionEvent],
        *,
        manual: bool = False,
        note: str | None = None,
    ) -> CompressionEvent | None:
        """Plan, perform and commit one event; None when there was nothing to do. Holds: event lock.

        Where it was prepared ahead, what was prepared is committed; where that is still under way, it is
        waited for.

        Args:
            events: receives what there is to tell.
            manual: whether the user asked for it.
            note: what to keep, for a manual event.
        """
        upkeep = self._upkeep
        with attempt_budget(MAX_ATTEMPTS_PER_EVENT) as attempts:
            await self._texts.retry_pending(upkeep.state.ledger)
            made = await self._make_event(events, attempts, manual=manual, note=note)
        events += made
        await self.housekeeping.sweep()
        return made[-1] if made and made[-1].kind != "failure" else None

    async def _make_event(
        self,
        events: list[CompressionEvent],
        attempts: Attempts,
        *,
        manual: bool,
        note: str | None,
    ) -> list[CompressionEvent]:
        """Plan until a plan can be committed, or there is none; return what there is to tell of it."""
        upkeep = self._upkeep
        # Whoever waits may be cancelled, as web frameworks do; what a model was asked for is kept then.
        may_start = not manual and self._background.is_kept
        while True:
            async with upkeep.lock:
                # Without a revision only a full look tells whether the content of the base changed.
                upkeep.stale = upkeep.stale or not upkeep.history.has_revision
                await upkeep.refresh(events)
                step = self._decide(manual=manual)
                if not isinstance(step, Perform):
                    events += self._background.take_failures(upkeep.state.tokens)
                    return []
                planned = step.plan
                prepared = self._prepared_for(planned, manual=manual)
                events += self._background.take_failures(upkeep.state.tokens)
                if prepared is not None and prepared.is_ready:
                    return self._commit_prepared(prepared)
                if prepared is None and may_start and planned.needs_summary:
                    prepared, may_start = self._background.start(planned, upkeep.state), False
            if prepared is not None:
                await asyncio.wait({prepared.task})  # whoever waits may be cancelled, the task goes on
            elif (made := await self._perform(planned, attempts, events, note)) is not None:
                return made

    def _decide(self, *, manual: bool) -> Step:
        """Say what has to happen now, by the budget that is due.

        Raises:
            ContextOverflowError: nothing can, and the view exceeds the budget.
        """
        state = self._upkeep.state
        state.budget.take_up()
        step = state.decide(self._engine.costs(), manual=manual)
        if not isinstance(step, Perform):
            state.fresh.clear()
        if isinstance(step, Overflow) and not state.budget.concede(state.tokens):
            raise overflow_error(state, self._config)
        return step

    def _prepared_for(self, planned: Plan, *, manual: bool) -> Preparation | None:
        """Return what was prepared in place of `planned`; None where that is to be performed in line."""
        if planned.reason == ARRIVAL:
            return None  # what came too large was not there when the event was prepared
        prepared = self._background.standing(self._upkeep.state)
        # With a stub alone the view fits at once, so there is no reason to wait for a summary.
        if prepared is None or manual or not (prepared.is_ready or planned.needs_summary):
            self._background.drop()
            return None
        return prepared

    def _commit_prepared(self, prepared: Preparation) -> list[CompressionEvent]:
        """Commit what was prepared ahead; return what there is to tell. Holds: lock."""
        state = self._upkeep.state
        before = state.tokens
        self._background.take()
        state.commit(prepared.done, prepared.fresh)
        self.housekeeping.note_unwanted(prepared.done.attempted)
        return describe_event(prepared.planned, prepared.done, before, state.tokens, prepared.seconds)

    async def _perform(
        self, planned: Plan, attempts: Attempts, events: list[CompressionEvent], note: str | None
    ) -> list[CompressionEvent] | None:
        """Perform and commit a plan that was made just now; return what there is to tell.

        An edit that comes while texts are stored and summaries written may outdate the plan: then None is
        returned.
        """
        upkeep = self._upkeep
        state = upkeep.state
        generation, items, fresh = state.generation, list(state.items), set(state.fresh)
        units = state.units() if self._remote else None  # a summary that was paid for is used if it can be
        done = Performed()
        began, taken = time.monotonic(), attempts.taken
        try:
            await self._engine.perform(planned, items, state.ledger.new_segment_id, done, note=note)
            async with upkeep.lock:
                if upkeep.stale:  # a change broke off half way, and ledger and view may differ
                    await upkeep.refresh(events)
                if state is not upkeep.state:
                    return None
                if generation != state.generation and not outlasts(planned, done, units, state.units()):
                    return None
                before = state.tokens
                state.commit(done, fresh)
        finally:
            seconds = time.monotonic() - began
            done.use.calls = attempts.taken - taken
            done.settle(attempts)
            self.housekeeping.note_unwanted(done.attempted)
            self.totals.add(done.use, seconds)
        self._background.start_anew()
        return describe_event(planned, done, before, state.tokens, seconds)

    # Life

    def prepared_refs(self) -> set[str]:
        """Return the refs of what was stored for events that are not committed."""
        return self._background.refs()

    def start_from(self, state: MemoryState, loaded_tokens: dict[str, int]) -> None:
        """Take a loaded state; what was prepared for the one before is cancelled."""
        self._background.drop()
        self._background.start_anew()
        self._upkeep.start_from(state, loaded_tokens)

    def take_over(self, other: EventRunner) -> None:
        """Count on where another one ends, and cancel what it prepared; its `aclose` tidies up behind it."""
        self._background.totals = other.totals
        other._background.drop()

    async def aclose(self) -> None:
        """End what goes on in the background, and remove what it stored."""
        self._background.drop()
        await self.housekeeping.tidy_up()
