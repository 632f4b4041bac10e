"""Running events: `decide` says what is to happen, one loop obeys; and what follows upon every call."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from context_compressor.compression.config import CompressionConfig
from context_compressor.compression.engine import Engine
from context_compressor.compression.plans import Overflow, Perform, Plan, Reason
from context_compressor.events import CompressionEvent, EventHook
from context_compressor.memory.ahead import Background, Performance, Preparation
from context_compressor.memory.handover import HandingOver, Receiver
from context_compressor.memory.loops import LoopLock
from context_compressor.memory.reporting import Totals, describe_event, overflow_error
from context_compressor.memory.searching import Recall
from context_compressor.memory.state import MemoryState
from context_compressor.memory.texts import Texts
from context_compressor.memory.tracking import Tracker
from context_compressor.offload.store import OffloadStore
from context_compressor.summarizers.protocol import Summarizer
from context_compressor.tokens.counter import TokenCounter

logger = logging.getLogger(__name__)

T = TypeVar("T")

_MAX_EVENTS_PER_CALL = 12
"""Events that one call may run before it gives up: each leaves a smaller view, so few are ever needed."""


class EventRunner:
    """Run the events that a view needs, tell of them, and tidy up behind every call.

    Args:
        tracker: keeps the view in step with the history.
        texts: those that left the view.
        config: thresholds.
        store: where texts go.
        summarizer: who writes summaries.
        fallback: who writes them when that fails.
        counter: measures stand-ins.
        recall: drops from its index what is no longer in the history.
        on_event: receives every event.
        hand_over: takes what left the view.

    Attributes:
        event_lock: one event at a time: a second caller over budget waits for the first one's view and pays
            for none. Taken before the tracker's lock where both are.
        background: what is prepared ahead, and what events came to.
    """

    event_lock = LoopLock()

    def __init__(
        self,
        tracker: Tracker,
        texts: Texts,
        *,
        config: CompressionConfig,
        store: OffloadStore,
        summarizer: Summarizer,
        fallback: Summarizer,
        counter: TokenCounter,
        recall: Recall,
        on_event: EventHook | None,
        hand_over: Receiver | None = None,
    ) -> None:
        self._tracker = tracker
        self._texts = texts
        self._config = config
        self._engine = Engine(
            config=config,
            store=store,
            summarizer=summarizer,
            fallback=fallback,
            counter=counter,
            read_ref=texts.read,
        )
        self._remote = summarizer.remote
        self.background = Background(config, self._engine, summarizer.remote)
        self._recall = recall
        self._on_event = on_event
        self.handing_over = (
            None if hand_over is None else HandingOver(hand_over, tracker, config.redact, self.changing)
        )

    @property
    def totals(self) -> Totals:
        """What events came to, those that are prepared ahead included."""
        return self.background.totals

    # Showing

    async def bring_up_to_date(self, show: Callable[[MemoryState], T], *, summary: bool) -> T:
        """Move the view to the end of the history, run the events that takes, and prepare the next.

        Args:
            show: makes what is handed out, at the moment when the view fits: while events are delivered,
                others may add.
            summary: whether the base memory's own summary is shown, and so has a place from now on.

        Raises:
            ContextOverflowError, RedactionError, and with `on_failure="raise"` SummarizerError, OffloadError.
        """
        events, is_quiet = list[CompressionEvent](), False
        try:
            is_quiet = await self._bring_up_to_date(events, summary)
            shown = show(self._tracker.state)
        finally:
            if events or not is_quiet or self.background.has_dropped:
                await self.finish(events)
        if self.background.is_on and not self.event_lock.locked():
            self.background.start_if_due(self._tracker.state)
        return shown

    async def _bring_up_to_date(self, events: list[CompressionEvent], summary: bool) -> bool:
        """Do so, up to the moment when the view fits; tell whether that took no waiting."""
        # `event_lock` asks for the running loop each time, which is a system call: once is enough.
        tracker, event_lock = self._tracker, self.event_lock
        tracker.edited = False
        # The common case needs no lock: nobody is in the middle of anything, and nothing there waits.
        is_quiet = await tracker.is_in_step()
        if is_quiet:
            tracker.state.advance()
            is_quiet = tracker.state.is_settled(summary=summary)
        if not event_lock.locked():
            tracker.state.budget.take_up()
        if is_quiet and not tracker.state.is_due:
            tracker.state.fresh.clear()
        else:
            is_quiet = False
            async with tracker.lock:
                await tracker.make_ready(events, summary=summary)
                is_due = tracker.state.is_due
                if not is_due:
                    tracker.state.fresh.clear()
            if is_due:
                async with event_lock:
                    await self._run_events(events, summary=summary)
        self.background.drop_outdated(tracker.state)
        tracker.state.budget.end_shrinking()
        return is_quiet

    async def compress_now(self, note: str | None) -> CompressionEvent | None:
        """Run the event that somebody asks for; None where there was nothing to do.

        Args:
            note: what to keep.
        """
        async with self.telling() as events, self.event_lock:
            return await self._run_events(events, asked=True, note=note)

    async def _run_events(
        self,
        events: list[CompressionEvent],
        *,
        asked: bool = False,
        note: str | None = None,
        summary: bool = False,
    ) -> CompressionEvent | None:
        """Do what `decide` says until it says that the view can be shown. Holds: event lock.

        Where an event was prepared ahead, that is committed; where it is under way, it is waited for.

        Args:
            events: receives what there is to tell.
            asked: whether somebody asked for an event: then one is run, whatever the fill level.
            note: what to keep, for such an event.
            summary: as `bring_up_to_date`.

        Returns:
            The event that was committed last, if any.

        Raises:
            ContextOverflowError: nothing more can leave, and the view exceeds the budget.
        """
        tracker, made = self._tracker, list[CompressionEvent]()
        await self._texts.retry_pending()
        # Whoever waits may be cancelled, as web frameworks do; what a model was asked for is kept then.
        count, may_start = 0, not asked and self.background.is_kept
        while count < _MAX_EVENTS_PER_CALL:
            async with tracker.lock:
                await tracker.make_ready(events, look=True, summary=summary)
                plan = self._next_plan(asked=asked)
                prepared = None if plan is None else self._prepared_for(plan, asked=asked)
                events += self.background.take_failures(tracker.state.tokens)
                if plan is None:
                    break
                if prepared is None and may_start and plan.needs_summary:
                    prepared, may_start = self.background.start(plan, tracker.state), False
            if prepared is not None and not prepared.is_ready:
                await asyncio.wait({prepared.task})  # whoever waits may be cancelled, the task goes on
                continue
            told = await (self._commit(prepared, events) if prepared else self._perform(plan, events, note))
            if told is None:
                continue
            events += told
            made += told
            count, may_start = count + 1, not asked and self.background.is_kept
            is_done = bool(told) and told[-1].kind != "failure"
            if asked or (not is_done and tracker.state.tokens <= tracker.state.budget.due_tokens):
                break  # there are many messages, say, and none that may leave
        else:
            # What others add faster than this makes room can wait, unless it does not fit.
            if tracker.state.tokens > tracker.state.budget.due_tokens:
                raise overflow_error(tracker.state, self._config)
        if refusal := await self._texts.put_words_away():
            tokens = tracker.state.tokens
            error = f"{type(refusal).__name__}: {refusal}"
            events.append(
                CompressionEvent(
                    kind="failure",
                    reason="words of merged segments",
                    tokens_before=tokens,
                    tokens_after=tokens,
                    error=error,
                )
            )
        await self._sweep()
        return made[-1] if made and made[-1].kind != "failure" else None

    def _next_plan(self, *, asked: bool) -> Plan | None:
        """Return what is to be done now, by the budget that is due; None: the view can be shown.

        Raises:
            ContextOverflowError: nothing can be done, and the view exceeds the budget.
        """
        state = self._tracker.state
        state.budget.take_up()
        step = state.decide(self._engine.costs(), manual=asked)
        if isinstance(step, Perform):
            return step.plan
        state.fresh.clear()
        if isinstance(step, Overflow) and not state.budget.concede(state.tokens):
            raise overflow_error(state, self._config)
        return None

    def _prepared_for(self, planned: Plan, *, asked: bool) -> Preparation | None:
        """Return what was prepared in place of `planned`; None where that is to be performed in line."""
        if planned.reason == Reason.ARRIVAL:
            return None  # what came too large was not there when the event was prepared
        prepared = self.background.standing(self._tracker.state)
        # With a stub alone the view fits at once, so there is no reason to wait for a summary.
        if prepared is None or asked or not (prepared.is_ready or planned.needs_summary):
            self.background.drop()
            return None
        return prepared

    async def _perform(
        self, plan: Plan, events: list[CompressionEvent], note: str | None
    ) -> list[CompressionEvent] | None:
        """Perform and commit a plan that was made just now; return what there is to tell.

        An edit that comes while texts are stored and summaries written may outdate the plan: then None is
        returned. A summary that was paid for is used if it can be.
        """
        performance = Performance(
            plan, self._tracker.state, self._engine, self.totals, note=note, may_outlast=self._remote
        )
        try:
            await performance.perform()
            return await self._commit(performance, events)
        finally:
            self._texts.note_unwanted(performance.event.attempted)

    async def _commit(
        self, performance: Performance, events: list[CompressionEvent]
    ) -> list[CompressionEvent] | None:
        """Commit what was performed; return what there is to tell, None where it holds no more."""
        tracker, done = self._tracker, performance.done
        assert done is not None
        async with tracker.lock:
            before = await tracker.commit(done, performance.fresh, performance.holds, events)
            if before is None:
                return None
            self.background.note_commit(performance)
        self._texts.note_unwanted(performance.event.attempted)
        return describe_event(performance.event, done, before, tracker.state.tokens)

    # What follows upon a call

    @asynccontextmanager
    async def telling(self) -> AsyncIterator[list[CompressionEvent]]:
        """Collect the events of a call, and `finish` with them however it ends. Held outside every lock."""
        events = list[CompressionEvent]()
        try:
            yield events
        finally:
            await self.finish(events)

    @asynccontextmanager
    async def changing(self) -> AsyncIterator[list[CompressionEvent]]:
        """Hold the tracker's lock; tell of events afterwards."""
        async with self.telling() as events, self._tracker.lock:
            yield events

    async def refresh(self) -> None:
        """Bring the view to the end of the history, and tell of what that led to."""
        async with self.changing() as events:
            await self._tracker.catch_up(events)

    async def finish(self, events: Sequence[CompressionEvent]) -> None:
        """Tidy up after whatever a call changed, and deliver the events that it led to."""
        try:
            await self.tidy_up()
        finally:  # cancelled while a store removes something, say: what happened has happened
            await self._deliver(events)
            if self.handing_over is not None:
                self.handing_over.wake()

    async def tidy_up(self) -> None:
        """Cancel a preparation that holds no more; remove what nothing names, unless an event does it."""
        self.background.drop_outdated(self._tracker.state)
        await self._give_up_dropped()
        await self._drop_gone()
        if self._tracker.state.ledger.unwanted and not self.event_lock.locked():
            async with self.event_lock:
                await self._sweep()

    async def _drop_gone(self) -> None:
        """Drop from the search index the messages that left the history."""
        tracker = self._tracker
        if tracker.gone is None and tracker.is_behind:  # the history is still to be read
            return
        gone, tracker.gone = tracker.gone, set()
        try:
            if gone is None:
                await self._recall.keep(list(tracker.state.known.tokens))
            else:
                await self._recall.forget(gone)
        except BaseException:  # cancelled, the next call drops whatever is not in the history
            tracker.gone = None
            raise

    async def _sweep(self) -> None:
        """Remove from the store what nothing names any more. Holds: event lock."""
        await self._give_up_dropped()
        ledger = self._tracker.state.ledger
        held = self._tracker.branches.holds
        gone = [ref for ref in ledger.unwanted if not (ledger.is_live(ref) or held(ref))]
        self.background.note_removal(gone)
        await self._texts.sweep()

    async def _give_up_dropped(self) -> None:
        self._texts.note_unwanted(await self.background.settle())

    async def remove_orphans(self) -> list[str]:
        """Remove the stored texts that neither the ledger nor an event under way names; return their refs.

        Whatever an event stores is named by the ledger when it ends, or removed by it. Only a process that
        ended in the middle leaves texts that nobody names. A memory whose ledger names nothing may be one
        that was not loaded yet, and removes nothing.

        Raises:
            OffloadError: the store could not be listed. What could not be removed is tried again at later
                events.
        """
        async with self.telling() as events, self.event_lock:
            async with self._tracker.lock:  # others may have named what this one knows nothing of
                await self._tracker.catch_up(events)
            if not self._tracker.state.ledger.refs():
                return []
            stored = await self._texts.stored_refs()
            ledger = self._tracker.state.ledger
            # No event writes while its lock is held. One that is prepared in the background says what it
            # writes before it does; from here to `telling`'s end, which removes what is unwanted, nothing is
            # awaited but that lock, and what an event commits in between is wanted again.
            prepared = self.background.refs() | self._tracker.branches.refs()
            orphans = [ref for ref in stored if not ledger.is_live(ref) and ref not in prepared]
            if orphans:
                logger.info("%d stored texts that nothing names are removed", len(orphans))
            ledger.unwanted.update(orphans)
        return orphans

    async def _deliver(self, events: Sequence[CompressionEvent]) -> None:
        """Hand events to the hook; its errors are logged and contained."""
        self.background.totals.events += len(events)
        if self._on_event is None:
            return
        for event in events:
            try:
                answer = self._on_event(event)
                if inspect.isawaitable(answer):
                    await answer
            except (Exception, asyncio.CancelledError) as error:
                if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                    raise
                logger.exception("on_event failed for an event of kind %s", event.kind)

    # Life

    def start_counting(self, on_event: EventHook | None) -> None:
        """Count what events come to from now on, and tell another hook of them."""
        self.background.totals = Totals()
        self._on_event = on_event

    def start_anew(self) -> None:
        """Cancel what was prepared: another state is taken."""
        self.background.drop()
        self.background.start_anew()
        if self.handing_over is not None:
            self.handing_over.start_anew()

    def take_over(self, other: EventRunner) -> None:
        """Count on where another one ends, and cancel what it prepared; its `aclose` tidies up behind it."""
        self.background.totals = other.totals
        other.background.drop()

    async def aclose(self) -> None:
        """End what goes on in the background, and remove what it stored."""
        self.background.drop()
        if self.handing_over is not None:
            await self.handing_over.aclose()
        await self.tidy_up()


def _is_cancelled() -> bool:
    """Tell whether somebody cancelled the running task, and not only what the hook waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
