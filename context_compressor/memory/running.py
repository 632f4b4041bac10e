"""Running events: `decide` says what is to happen, and one loop obeys."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from context_compressor.compression.config import CompressionConfig
from context_compressor.compression.engine import Engine
from context_compressor.compression.plans import Overflow, Perform, Plan, Reason
from context_compressor.events import CompressionEvent, EventHook
from context_compressor.memory.ahead import Background, Performance, Preparation
from context_compressor.memory.handover import HandingOver, Receiver
from context_compressor.memory.housekeeping import Housekeeper
from context_compressor.memory.leases import EventLease, Waits, leases_of
from context_compressor.memory.places import Recall
from context_compressor.memory.reporting import describe_event, overflow_error
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


class EventRunner(Housekeeper):
    """Run the events that a view needs.

    Args:
        tracker: keeps the view in step with the history.
        texts: those that left the view.
        config: thresholds.
        store: where texts go.
        summarizer: who writes summaries.
        counter: measures stand-ins.
        recall: drops from its index what is no longer in the history.
        on_event: receives every event.
        hand_over: takes what left the view.
    """

    def __init__(
        self,
        tracker: Tracker,
        texts: Texts,
        *,
        config: CompressionConfig,
        store: OffloadStore,
        summarizer: Summarizer,
        counter: TokenCounter,
        recall: Recall,
        on_event: EventHook | None,
        hand_over: Receiver | None = None,
    ) -> None:
        lease = EventLease(leases_of(tracker.history) if summarizer.remote else None)
        self._config = config
        self._engine = Engine(
            config=config,
            store=store,
            summarizer=summarizer,
            counter=counter,
            read_ref=texts.read,
        )
        self._remote = summarizer.remote
        background = Background(
            config,
            self._engine,
            summarizer.remote,
            may_begin=self._may_begin,
            follow=self._follow if lease.is_asked else None,
        )
        super().__init__(tracker, texts, recall, background, lease, on_event)
        if hand_over is not None:
            self.handing_over = HandingOver(hand_over, tracker, config.redact, self.changing)

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
            is_quiet = await self._bring_up_to_date(events, summary) and not self._tracker.branches.expire()
            shown = show(self._tracker.state)
            self._tracker.state.returned.clear()
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

        Where an event was prepared ahead, that is committed; where it is under way, it is waited for. Over a
        history that others share it is made by whoever has the lease; who has it not goes on with a view that
        fits, and else waits.

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
        try:
            return await self._run_events_alone(events, asked=asked, note=note, summary=summary)
        finally:
            await self._give_back()

    async def _run_events_alone(
        self, events: list[CompressionEvent], *, asked: bool, note: str | None, summary: bool
    ) -> CompressionEvent | None:
        """Do so, and keep the lease, if that was taken."""
        tracker, made, waits = self._tracker, list[CompressionEvent](), Waits()
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
                is_alone = self._lease.is_held or not self._needs_lease(plan)
                if is_alone and prepared is None and may_start and plan.needs_summary:
                    prepared, may_start = self.background.start(plan, tracker.state), False
            if not is_alone and prepared is None:
                if await self._lease.take():
                    continue  # whoever had it may have made the event meanwhile
                if not asked and tracker.state.tokens <= tracker.state.budget.due_tokens:
                    tracker.state.fresh.clear()
                    break
                await waits.next()
                continue
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
            if plan.needs_summary:
                await self._lease.begin(_name(plan))
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

    # Events of a history that others share

    def _needs_lease(self, plan: Plan) -> bool:
        """Tell whether only one may perform a plan: not where what has just come leaves without a model."""
        return self._lease.is_asked and (plan.needs_summary or plan.reason != Reason.ARRIVAL)

    async def _may_begin(self, plan: Plan) -> bool:
        """Tell whether a model may be paid for a plan that was made just now, and note that it is."""
        if not self._lease.is_asked:
            return True
        if not await self._lease.take() or await self._tracker.is_edited_by_others():
            return False
        await self._lease.begin(_name(plan))
        return True

    def _follow(self, prepared: Preparation) -> None:
        task = asyncio.create_task(self._commit_ahead(prepared), name="commit a prepared event")
        self._following.add(task)
        task.add_done_callback(self._following.discard)

    async def _commit_ahead(self, prepared: Preparation) -> None:
        """Commit what was prepared as soon as it is there, for nobody else knows of it."""
        await asyncio.wait({prepared.task})
        try:
            async with self.telling() as events, self.event_lock:
                try:
                    if prepared.is_ready and self.background.standing(self._tracker.state) is prepared:
                        events += await self._commit(prepared, events) or ()
                    self.background.drop_outdated(self._tracker.state)
                finally:
                    await self._give_back()
        except Exception as error:  # it stands, and is committed when it is due
            logger.warning("what was prepared could not be committed yet: %r", error)


def _name(plan: Plan) -> str:
    """Return what names an event, whoever plans it and whatever comes meanwhile: the first that leaves."""
    return str(min((segment.units[0].key for segment in plan.segments), default=""))
