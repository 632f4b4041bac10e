"""Events performed in a task before they are due, while the agent goes on; committed when the budget asks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection

from context_compressor.core.config import CompressionConfig
from context_compressor.core.decide import Perform, Plan, still_holds
from context_compressor.core.edits import SegmentEdit, message_id
from context_compressor.core.event import Done, Engine, Event
from context_compressor.events import CompressionEvent
from context_compressor.memory.reporting import Totals
from context_compressor.memory.state import MemoryState

logger = logging.getLogger(__name__)

_GROWTH = 0.05
"""Share of the budget by which a view has to grow before another preparation is tried (law 5)."""
ENDING_SECONDS = 1.0
"""How long a cancelled preparation is waited for; a summariser that ignores its cancellation gets less."""


class Performance:
    """One event that is performed for a view, and committed to that or a later one. It changes neither.

    Args:
        plan: what is to be done.
        state: the memory's, as it is now.
        engine: performs it.
        totals: where its use of a model is counted, whatever comes of it.
        note: what to keep.
        may_outlast: whether it may be committed to a view that was edited meanwhile.

    Attributes:
        event: what is performed.
        done: what came of it, once it did.
        fresh: keys of the items that had just come.
        task: performs it, where it was begun before it is due; kept here because a loop lets go of tasks that
            wait.
        failure: why nothing came of that; None unless it failed.
        removed: refs of texts that the store was asked to remove meanwhile.
    """

    def __init__(
        self,
        plan: Plan,
        state: MemoryState,
        engine: Engine,
        totals: Totals,
        *,
        note: str | None = None,
        may_outlast: bool = True,
    ) -> None:
        self.event = Event(
            engine,
            plan,
            list(state.items),
            state.ledger,
            note=note,
            names_tools=state.names_tools,
            fresh=frozenset(state.fresh),
            free_tokens=state.budget.free_tokens,
            system=state.shown.system[0],
            places={message_id(key): place for place, key in enumerate(state.known.tokens)},
        )
        self.done: Done | None = None
        self.fresh = set(state.fresh)
        self.task: asyncio.Task[None] | None = None
        self.failure: str | None = None
        self.removed: set[str] = set()
        self._state = state
        self._totals = totals
        self._generation = state.generation
        self._units = state.units() if may_outlast else None

    async def perform(self) -> None:
        """Perform the event, and count what that cost.

        Raises:
            RedactionError, OffloadError, SummarizerError: as `Event.perform`.
        """
        try:
            self.done = await self.event.perform()
        finally:
            self._totals.add(self.event)

    def begin(self, may_begin: Callable[[Plan], Awaitable[bool]]) -> None:
        """Perform the event in a task of the running loop, if a model may be paid for it.

        The task knows nothing of the memory but what it works on, and ends by its time limits at the latest.
        """

        async def perform() -> None:
            try:
                if await may_begin(self.event.plan):
                    await self.perform()
            except Exception as error:
                # Nobody has asked for it yet, so nobody is there to raise it to.
                logger.warning("an event could not be prepared: %r", error)
                self.failure = f"{type(error).__name__}: {error}"

        self.task = asyncio.create_task(perform(), name="prepare a compression event")

    async def ended(self) -> None:
        """Wait until the task has ended; whoever waits may be cancelled, the task goes on."""
        if self.task is not None:
            await asyncio.wait({self.task})

    def waits_in(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Tell whether it is under way in a loop."""
        return self.task is not None and not self.task.done() and self.task.get_loop() is loop

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will come of it, be it that its loop is gone."""
        return self.task is None or self.task.done() or self.task.get_loop().is_closed()

    def holds(self, state: MemoryState) -> bool:
        """Tell whether it is performed, or under way in the running loop, and fits the view as it is now."""
        is_there = self.done is not None or self.waits_in(asyncio.get_running_loop())
        if not is_there or state is not self._state or not self.removed.isdisjoint(self.event.attempted):
            return False
        if state.generation == self._generation:
            return True
        edits = () if self.done is None else self.done.edits
        told = {item for edit in edits if isinstance(edit, SegmentEdit) for item, _ in edit.told}
        then = self._units
        return then is not None and still_holds(self.event.plan, then, state.units(), told)

    def cancel(self) -> None:
        """Cancel the task, whichever loop it belongs to."""
        if self.task is not None and not self.has_ended:
            self.task.get_loop().call_soon_threadsafe(self.task.cancel)


class Background:
    """Prepare the coming event, one at a time.

    Args:
        config: from which share of the budget on.
        engine: performs it.
        remote: whether summaries leave the process: only then is there something to wait for.
        may_begin: asked before a model is paid.
        follow: told of what is begun; None: it waits here until it is due.

    Attributes:
        totals: what events came to, in line or in a task: a model is paid for whatever comes of its summary.
    """

    def __init__(
        self,
        config: CompressionConfig,
        engine: Engine,
        remote: bool,
        *,
        may_begin: Callable[[Plan], Awaitable[bool]],
        follow: Callable[[Performance], None] | None,
    ) -> None:
        self._ratio = (config.background_ratio or 1.0) if remote else 1.0
        self._raises = config.on_failure == "raise"
        self._engine = engine
        self._may_begin, self._follow = may_begin, follow
        self.totals = Totals()
        self._prepared: Performance | None = None
        self._dropped: list[Performance] = []
        self._failures: list[str] = []
        self._tried_tokens = 0

    @property
    def is_on(self) -> bool:
        """Whether events are prepared ahead."""
        return self._ratio < 1

    @property
    def is_kept(self) -> bool:
        """Whether an event that is due goes on although nobody waits for it any more: not where it raises."""
        return self.is_on and not self._raises

    @property
    def is_preparing(self) -> bool:
        """Whether something is prepared, or under way, and not dropped."""
        return self._prepared is not None

    @property
    def has_dropped(self) -> bool:
        """Whether there are preparations whose texts have to be removed."""
        return bool(self._dropped)

    def start_if_due(self, state: MemoryState) -> None:
        """Begin to prepare the coming event, where the view is near the budget.

        Only where events are prepared ahead (`is_on`).
        Never while texts are removed from the store: one of them could be what is stored for the event.
        """
        tokens, budget = state.tokens, state.budget.due_tokens
        if not int(self._ratio * budget) <= tokens < budget:
            self._tried_tokens = 0
            return
        self._tried_tokens = min(self._tried_tokens, tokens)
        grown = tokens - self._tried_tokens
        if state.queue or state.fresh or grown < _GROWTH * budget or self.standing(state) is not None:
            return
        self._tried_tokens = tokens
        step = state.decide(self._engine.costs(), growth_tokens=budget + 1 - tokens)
        if isinstance(step, Perform) and step.plan.needs_summary:
            self.start(step.plan, state)

    def start(self, planned: Plan, state: MemoryState) -> Performance:
        """Begin to perform a plan, in the place of any other preparation."""
        self.drop()
        self._prepared = Performance(planned, state, self._engine, self.totals)
        self._prepared.begin(self._may_begin)
        if self._follow is not None:
            self._follow(self._prepared)
        return self._prepared

    def standing(self, state: MemoryState) -> Performance | None:
        """Return the preparation, under way or ready, that can be committed to this state; drop any other."""
        if self._prepared is not None and not self._prepared.holds(state):
            self.drop()
        return self._prepared

    def note_commit(self, performance: Performance) -> None:
        """Let go of the preparation, where that was committed; begin to watch the view anew."""
        if self._prepared is performance:
            self._prepared = None
        self.start_anew()

    def drop(self) -> None:
        """Cancel the preparation, if there is one; `settle` then tells what it may have stored."""
        prepared, self._prepared = self._prepared, None
        if prepared is not None:
            prepared.cancel()
            self._dropped.append(prepared)
            if prepared.failure is not None:
                self._failures.append(prepared.failure)

    def start_anew(self) -> None:
        """Forget what was tried: it says nothing about the view as it is now."""
        self._tried_tokens = 0

    def note_removal(self, refs: Collection[str]) -> None:
        """Note that the store is about to be asked to remove texts."""
        if self._prepared is not None:
            self._prepared.removed.update(refs)

    def take_failures(self, tokens: int) -> list[CompressionEvent]:
        """Return an event for each preparation that failed and was not told of yet; the view has `tokens`."""
        failures, self._failures = self._failures, []
        return [
            CompressionEvent(
                kind="failure",
                reason="prepared ahead",
                tokens_before=tokens,
                tokens_after=tokens,
                error=failure,
            )
            for failure in failures
        ]

    def refs(self) -> set[str]:
        """Return the refs of what was stored for events that are not committed."""
        prepared = [] if self._prepared is None else [self._prepared]
        return {ref for each in (*prepared, *self._dropped) for ref in each.event.attempted}

    async def settle(self) -> set[str]:
        """Wait until dropped preparations have ended; return the refs of what they may have stored."""
        loop = asyncio.get_running_loop()
        ending = {each.task for each in self._dropped if each.task is not None and each.waits_in(loop)}
        if ending:
            await asyncio.wait(ending, timeout=ENDING_SECONDS)
        ended = [each for each in self._dropped if each.has_ended]
        self._dropped = [each for each in self._dropped if each not in ended]
        return {ref for each in ended for ref in each.event.attempted}
