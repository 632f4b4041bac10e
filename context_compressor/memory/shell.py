"""The shell around what decides: it runs the events that a view needs, and tidies up behind calls.

There are two locks. The tracker's is for one change of history and state; no model is awaited under it, so
that messages can be added while one writes. The event lock is for one event, however long a model writes:
whoever comes second waits for that event and pays for none, and has its turn where the first is cancelled.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TypeVar

from context_compressor.core.config import CompressionConfig
from context_compressor.core.decide import Overflow, Perform, Plan, Reason, Show, Step
from context_compressor.core.event import Engine
from context_compressor.core.machine import Await, Begin, Claim, Commit, Machine, Wait
from context_compressor.events import CompressionEvent, EventHook, failure_event
from context_compressor.memory.earlier import Earlier, find_earlier
from context_compressor.memory.handover import HandingOver, Receiver
from context_compressor.memory.leases import EventLease, Waits, leases_of
from context_compressor.memory.loops import LoopLock
from context_compressor.memory.performance import Performance
from context_compressor.memory.places import Recall
from context_compressor.memory.reporting import (
    Totals,
    describe_event,
    overflow_error,
    undo_error,
)
from context_compressor.memory.state import MemoryState
from context_compressor.memory.texts import Texts
from context_compressor.memory.tracking import Tracker
from context_compressor.offload.store import OffloadStore
from context_compressor.summarizers.protocol import Summarizer
from context_compressor.tokens.counter import TokenCounter

logger = logging.getLogger(__name__)

T = TypeVar("T")

CLOSING_SECONDS = 30.0
"""How long a memory that is closed waits for a summary that is being written."""
ENDING_SECONDS = 1.0
"""How long a cancelled preparation is waited for; a summariser that ignores its cancellation gets less."""
_GROWTH = 0.05
"""Share of the budget by which a view has to grow before another preparation is tried (law 5)."""


class Shell:
    """Run the events that a view needs, tell of them, and tidy up behind every call.

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

    Attributes:
        event_lock: one event at a time: a second caller over budget waits for the first one's view and pays
            for none. Taken before the tracker's lock where both are.
        totals: what events came to, in line or in a task: a model is paid for whatever comes of its summary.
        handing_over: hands over what left the view, where somebody takes it.
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
        counter: TokenCounter,
        recall: Recall,
        on_event: EventHook | None,
        hand_over: Receiver | None = None,
    ) -> None:
        self.totals = Totals()
        self._config = config
        self._engine = Engine(config=config, store=store, summarizer=summarizer, counter=counter)
        self._remote = summarizer.remote
        self._ratio = (config.background_ratio or 1.0) if summarizer.remote else 1.0
        self._tracker = tracker
        self._texts = texts
        self._recall = recall
        self._lease = EventLease(leases_of(tracker.history) if summarizer.remote else None)
        self._on_event = on_event
        self._prepared: Performance | None = None
        self._dropped: list[Performance] = []
        self._failures: list[str] = []
        self._tried_tokens = 0
        self._following = set[asyncio.Task[None]]()
        self.handing_over: HandingOver | None = None
        if hand_over is not None:
            self.handing_over = HandingOver(hand_over, tracker, config.redact, self.changing)

    async def _give_back(self) -> None:
        """Give the lease back, unless something that needs it goes on. Holds: event lock."""
        if self._prepared is None:
            await self._lease.give_back()

    async def _may_remove(self) -> bool:
        try:
            return await self._lease.take()
        except Exception as error:
            logger.warning("nothing is removed from the store now: %r", error)
            return False

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
        # `event_lock` asks for the running loop each time, which is a system call: once is enough.
        tracker, event_lock = self._tracker, self.event_lock
        told, is_quiet = list[CompressionEvent](), False
        try:
            tracker.edited = False
            # The common case needs no lock: nobody is in the middle of anything, and nothing there waits.
            is_quiet = await tracker.is_in_step()
            if is_quiet:
                tracker.state.advance()
                is_quiet = tracker.state.is_settled(summary=summary)
            if not event_lock.locked():
                tracker.state.budget.take_up()
            is_quiet = is_quiet and not tracker.state.is_due
            is_due = False
            if not is_quiet:
                async with self._turn(told):
                    await tracker.make_ready(summary=summary)
                    is_due = tracker.state.is_due
            if is_due:
                async with event_lock:
                    await self._run_events(told, summary=summary)
            else:
                tracker.state.fresh.clear()
            self._standing()
            tracker.state.budget.end_shrinking()
            is_quiet = not tracker.branches.expire() and is_quiet
            shown = show(tracker.state)
            tracker.state.returned.clear()
        finally:
            if told or not is_quiet or self._dropped:
                await self.finish(told)
        if self._ratio < 1 and not event_lock.locked():
            self._prepare()
        return shown

    async def compress_now(self, note: str | None) -> CompressionEvent | None:
        """Run the event that somebody asks for; None where there was nothing to do.

        Args:
            note: what to keep.
        """
        async with self.telling() as told, self.event_lock:
            return await self._run_events(told, asked=True, note=note)

    async def undo(self, most_tokens: int | None, note: str | None) -> CompressionEvent | None:
        """Withdraw the last event; make it anew where the earlier view does not fit, or there is a note.

        Args:
            most_tokens: what the view may cost then; None: what it may cost at all, or with a note what it
                costs now.
            note: what to keep.

        Returns:
            The event that this is; None where there was nothing to undo.

        Raises:
            ContextOverflowError: the view does not fit without it, and neither is given.
        """
        tracker = self._tracker
        async with self.telling() as told, self.event_lock:
            async with self._turn(told):
                await tracker.make_ready(look=True, summary=True)
                tracker.state.budget.take_up()
                most = tracker.state.budget.due_tokens
                if most_tokens is not None:
                    most = min(most, most_tokens)
                tokens = await tracker.undo(-1 if note else most)
            if tokens is None or (tokens <= most and not note):
                await self._sweep()
                await self._give_back()
                return told[-1] if tokens is not None else None
            if most_tokens is None and not note:
                raise undo_error(tokens, most)
            goal = tracker.state.tokens if most_tokens is None else most
            return await self._run_events(told, asked=True, note=note, undo_to=goal)

    async def _run_events(
        self,
        told: list[CompressionEvent],
        *,
        asked: bool = False,
        note: str | None = None,
        summary: bool = False,
        undo_to: int | None = None,
    ) -> CompressionEvent | None:
        """Do what a `Machine` says until the view can be shown. Holds: event lock.

        Where an event was prepared ahead, that is committed; where it is under way, it is waited for. Over a
        history that others share it is made by whoever has the lease; who has it not goes on with a view that
        fits, and else waits.

        Args:
            told: receives what there is to tell.
            asked: whether somebody asked for an event: then one is run, whatever the fill level.
            note: what to keep, for such an event.
            summary: as `bring_up_to_date`.
            undo_to: where the last event is made anew: what the view is to cost then.

        Returns:
            The event that was committed last, if any.

        Raises:
            ContextOverflowError: nothing more can leave, and the view exceeds the budget.
        """
        tracker, waits = self._tracker, Waits()
        is_kept = self._ratio < 1 and self._config.on_failure != "raise"
        machine = Machine(asked=asked, is_kept=is_kept, is_shared=self._lease.is_asked)
        last: CompressionEvent | None = None
        earlier: Earlier | None = None
        try:
            await self._texts.retry_pending()
            while not machine.is_over:
                async with self._turn(told):
                    await tracker.make_ready(look=True, summary=summary)
                    if undo_to is not None:
                        earlier = await find_earlier(tracker.rebuilder, tracker.basis)
                        if earlier is None:
                            break  # others have withdrawn it
                    decided = self._decide(asked=asked, earlier=earlier, goal=undo_to)
                    prepared = self._standing() if isinstance(decided, Perform) and not earlier else None
                    told += self._take_failures()
                is_ready = None if prepared is None else prepared.done is not None
                step = machine.next(decided, is_ready, fits=self._fits, has_lease=self._lease.is_held)
                if isinstance(step, Claim):
                    if await self._lease.take():
                        continue  # whoever had it may have made the event meanwhile
                    step = step.otherwise
                match step:
                    case Show():
                        tracker.state.fresh.clear()
                        break
                    case Overflow():
                        raise overflow_error(tracker.state, self._config)
                    case Wait():
                        await waits.next()
                        continue
                    case Begin(plan):
                        await self._begin(plan).ended()
                        continue
                    case Await():
                        assert prepared is not None
                        await prepared.ended()
                        continue
                    case Commit():
                        assert prepared is not None
                        made = await self._commit(prepared, told)
                    case Perform(plan):
                        if plan.reason != Reason.ARRIVAL:  # what was prepared is not what it takes
                            self._drop_prepared()
                        made = await self._perform(plan, told, note, earlier)
                if made is not None:
                    told += made
                    last = made[-1] if made and made[-1].kind != "failure" else None
                    machine.take(is_smaller=last is not None, fits=self._fits)
            await self._sweep()
        finally:
            await self._give_back()
        return last

    @property
    def _fits(self) -> bool:
        state = self._tracker.state
        return state.tokens <= state.budget.due_tokens

    def _decide(self, *, asked: bool, earlier: Earlier | None = None, goal: int | None = None) -> Step:
        """Return what the view asks for, by the budget that is due.

        Args:
            asked: whether an event is asked for.
            earlier: the view that it is to be made of, if that is another.
            goal: what the view is to cost then; None: as little as may be.
        """
        state = self._tracker.state
        state.budget.take_up()
        if earlier is not None:
            return earlier.state.decide(self._engine.costs(), manual=True, goal_tokens=goal or 0)
        step = state.decide(self._engine.costs(), manual=asked)
        if isinstance(step, Perform):
            return step
        state.fresh.clear()
        return Show() if isinstance(step, Overflow) and state.budget.concede(state.tokens) else step

    async def _perform(
        self, plan: Plan, told: list[CompressionEvent], note: str | None, earlier: Earlier | None = None
    ) -> list[CompressionEvent] | None:
        """Perform and commit a plan that was made just now; return what there is to tell.

        An edit that comes while texts are stored and summaries written may outdate the plan: then None is
        returned. A summary that was paid for is used if it can be.
        """
        state = self._tracker.state if earlier is None else earlier.state
        performance = Performance(plan, state, self._engine, self.totals, note=note, may_outlast=self._remote)
        try:
            if plan.needs_summary:
                await self._note_begun(plan)
            await performance.perform()
            return await self._commit(performance, told, earlier)
        finally:
            self._tracker.state.ledger.give_up(performance.event.attempted)

    async def _commit(
        self, performance: Performance, told: list[CompressionEvent], earlier: Earlier | None = None
    ) -> list[CompressionEvent] | None:
        """Commit what was performed; return what there is to tell, None where it holds no more."""
        tracker, done = self._tracker, performance.done
        assert done is not None
        async with self._turn(told):
            before = await tracker.commit(done, performance.fresh, performance.holds, earlier)
            if before is None:
                return None
            if self._prepared is performance:
                self._prepared = None
            self._tried_tokens = 0
        self._tracker.state.ledger.give_up(performance.event.attempted)
        number = max(tracker.state.ledger.events(), default=None)
        return describe_event(performance.event, done, before, tracker.state.tokens, number)

    # Ahead

    def _prepare(self) -> None:
        """Begin to prepare the coming event, where the view is near the budget.

        Never while texts are removed from the store: one of them could be what is stored for the event.
        """
        state = self._tracker.state
        tokens, budget = state.tokens, state.budget.due_tokens
        if not int(self._ratio * budget) <= tokens < budget:
            self._tried_tokens = 0
            return
        self._tried_tokens = min(self._tried_tokens, tokens)
        grown = tokens - self._tried_tokens
        if state.queue or state.fresh or grown < _GROWTH * budget or self._standing() is not None:
            return
        self._tried_tokens = tokens
        step = state.decide(self._engine.costs(), growth_tokens=budget + 1 - tokens)
        if isinstance(step, Perform) and step.plan.needs_summary:
            self._begin(step.plan)

    def _begin(self, plan: Plan) -> Performance:
        """Begin to perform a plan, in the place of any other preparation."""
        self._drop_prepared()
        self._prepared = prepared = Performance(plan, self._tracker.state, self._engine, self.totals)
        prepared.begin(self._may_begin)
        if self._lease.is_asked:
            task = asyncio.create_task(self._commit_ahead(prepared), name="commit a prepared event")
            self._following.add(task)
            task.add_done_callback(self._following.discard)
        return prepared

    def _standing(self) -> Performance | None:
        """Return what is prepared, under way or ready, and can be committed to the view; drop any other."""
        if self._prepared is not None and not self._prepared.holds(self._tracker.state):
            self._drop_prepared()
        return self._prepared

    def _drop_prepared(self) -> None:
        """Cancel what is prepared; what it may have stored is removed when it has ended."""
        prepared, self._prepared = self._prepared, None
        if prepared is not None:
            prepared.cancel()
            self._dropped.append(prepared)
            if prepared.failure is not None:
                self._failures.append(prepared.failure)

    def _take_failures(self) -> list[CompressionEvent]:
        """Return an event for each preparation that failed and was not told of yet."""
        failures, self._failures = self._failures, []
        tokens = self._tracker.state.tokens
        return [failure_event("prepared ahead", tokens, failure) for failure in failures]

    def prepared_refs(self) -> set[str]:
        """Return the refs of what was stored for events that are not committed."""
        prepared = [] if self._prepared is None else [self._prepared]
        return {ref for each in (*prepared, *self._dropped) for ref in each.event.attempted}

    async def _may_begin(self, plan: Plan) -> bool:
        """Tell whether a model may be paid for a plan that was made just now, and note that it is."""
        if not self._lease.is_asked:
            return True
        if not await self._lease.take() or await self._tracker.is_edited_by_others():
            return False
        await self._note_begun(plan)
        return True

    async def _note_begun(self, plan: Plan) -> None:
        """Note that a model is about to be paid for an event, whoever plans it and whatever comes."""
        first = min((segment.units[0].key for segment in plan.segments), default="")
        is_taken_over = await self._lease.begin(str(first))
        self.totals.taken_over += is_taken_over

    async def _commit_ahead(self, prepared: Performance) -> None:
        """Commit what was prepared as soon as it is there, for nobody else knows of it."""
        await prepared.ended()
        try:
            async with self.telling() as told, self.event_lock:
                try:
                    if self._standing() is prepared and prepared.done is not None:
                        told += await self._commit(prepared, told) or ()
                    self._standing()
                finally:
                    await self._give_back()
        except Exception as error:  # it stands, and is committed when it is due
            logger.warning("what was prepared could not be committed yet: %r", error)

    # What follows upon a call

    @asynccontextmanager
    async def telling(self) -> AsyncIterator[list[CompressionEvent]]:
        """Collect the events of a call, and `finish` with them however it ends. Held outside every lock."""
        told = list[CompressionEvent]()
        try:
            yield told
        finally:
            await self.finish(told)

    @asynccontextmanager
    async def _turn(self, told: list[CompressionEvent]) -> AsyncIterator[None]:
        """Hold the tracker's lock; what there is to tell then is told by the caller, and nobody else."""
        async with self._tracker.lock:
            try:
                yield
            finally:
                told += self._tracker.told()

    @asynccontextmanager
    async def changing(self) -> AsyncIterator[None]:
        """Hold the tracker's lock; tell of events afterwards."""
        async with self.telling() as told, self._turn(told):
            yield

    async def refresh(self) -> None:
        """Bring the view to the end of the history, and tell of what that led to."""
        async with self.changing():
            await self._tracker.catch_up()

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
        self._tracker.branches.expire()
        self._standing()
        await self._give_up_dropped()
        await self._drop_gone()
        if self._tracker.state.ledger.unwanted and not self.event_lock.locked():
            async with self.event_lock:
                try:
                    await self._sweep()
                finally:
                    await self._give_back()

    async def _drop_gone(self) -> None:
        """Drop from the search index the messages that left the history."""
        tracker = self._tracker
        if tracker.gone is None and tracker.is_behind:  # the history is still to be read
            return
        gone, tracker.gone = tracker.gone, set()
        try:
            if gone is None:
                await self._recall.index.keep(list(tracker.state.known.tokens))
            else:
                await self._recall.index.forget(gone)
        except BaseException:  # cancelled, the next call drops whatever is not in the history
            tracker.gone = None
            raise

    async def _sweep(self) -> None:
        """Remove from the store what nothing names any more. Holds: event lock.

        Not while somebody else makes an event, who may have stored the same just now.
        """
        await self._give_up_dropped()
        if self._texts.removable() and await self._may_remove():
            await self._texts.remove(self.prepared_refs)

    async def _give_up_dropped(self) -> None:
        """Wait until what was dropped has ended, and let what it may have stored be removed."""
        loop = asyncio.get_running_loop()
        ending = {each.task for each in self._dropped if each.task is not None and each.waits_in(loop)}
        if ending:
            await asyncio.wait(ending, timeout=ENDING_SECONDS)
        ended = [each for each in self._dropped if each.has_ended]
        self._dropped = [each for each in self._dropped if each not in ended]
        for each in ended:
            self._tracker.state.ledger.give_up(each.event.attempted)

    async def remove_orphans(self) -> list[str]:
        """Remove the stored texts that neither the ledger nor an event under way names; return their refs.

        Whatever an event stores is named by the ledger when it ends, or removed by it. Only a process that
        ended in the middle leaves texts that nobody names. A memory whose ledger names nothing may be one
        that was not loaded yet, and removes nothing.

        Raises:
            OffloadError: the store could not be listed. What could not be removed is tried again at later
                events.
        """
        async with self.telling() as told, self.event_lock:
            async with self._turn(told):  # others may have named what this one knows nothing of
                await self._tracker.catch_up()
            if not self._tracker.state.ledger.refs():
                return []
            stored = await self._texts.stored_refs()
            ledger = self._tracker.state.ledger
            # No event writes while its lock is held. One that is prepared in the background says what it
            # writes before it does; from here to `telling`'s end, which removes what is unwanted, nothing is
            # awaited but that lock, and what an event commits in between is wanted again.
            prepared = self.prepared_refs() | self._tracker.branches.refs()
            orphans = [ref for ref in stored if not ledger.is_live(ref) and ref not in prepared]
            if orphans:
                logger.info("%d stored texts that nothing names are removed", len(orphans))
            ledger.give_up(orphans)
        return orphans

    async def _deliver(self, events: Sequence[CompressionEvent]) -> None:
        """Hand events to the hook; its errors are logged and contained."""
        self.totals.events += len(events)
        if self._on_event is None:
            return
        key = getattr(self._tracker.history, "session_id", None)
        for event in events if key is None else [replace(event, key=key) for event in events]:
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
        self.totals = Totals()
        self._on_event = on_event

    def start_anew(self) -> None:
        """Cancel what was prepared: another state is taken."""
        self._drop_prepared()
        self._tried_tokens = 0
        if self.handing_over is not None:
            self.handing_over.start_anew()

    def take_over(self, other: Shell) -> None:
        """Count on where another one ends, and cancel what it prepared; its `aclose` tidies up behind it."""
        self.totals = other.totals
        other._drop_prepared()

    async def aclose(self, *, waits: bool = True) -> None:
        """End what goes on in the background, and remove what it stored.

        Args:
            waits: whether a summary that a model is writing is waited for, where the history outlives this
                memory: whoever opens it next would pay for it again.
        """
        try:
            if waits:
                await self._end_following(CLOSING_SECONDS)
        finally:  # though it be cancelled: nothing is to be written once the base is closed
            self._drop_prepared()
        if self.handing_over is not None:
            await self.handing_over.aclose()
        self._tracker.branches.drop()  # no list can go back to them
        if waits:
            await self._record_counts()
        await self.tidy_up()
        await self._end_following(ENDING_SECONDS)
        if not self.event_lock.locked():  # else who holds it gives the lease back
            await self._give_back()

    async def _record_counts(self) -> None:
        """Record what was learnt of the provider's counts, where nothing was added since."""
        if not self._tracker.new_counts():
            return
        try:
            async with self.changing():
                await self._tracker.record_counts()
        except Exception as error:
            logger.warning("what the provider counted could not be recorded: %r", error)

    async def _end_following(self, seconds: float) -> None:
        """Wait until what is prepared is committed or dropped, for so long at most."""
        loop = asyncio.get_running_loop()
        # A hook may close the memory while it is told of what was prepared.
        ending = {task for task in self._following if task.get_loop() is loop} - {asyncio.current_task()}
        if ending:
            await asyncio.wait(ending, timeout=seconds)


def _is_cancelled() -> bool:
    """Tell whether somebody cancelled the running task, and not only what the hook waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
