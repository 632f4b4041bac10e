"""One event that is performed for a view: while somebody waits, or in a task before it is due."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from context_compressor.core.decide import Plan, still_holds
from context_compressor.core.edits import SegmentEdit
from context_compressor.core.event import Done, Engine, Event
from context_compressor.memory.reporting import Totals
from context_compressor.memory.state import MemoryState

logger = logging.getLogger(__name__)


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
            window=state.budget.window,
            system=state.shown.system,
            places=state.known.places_of(_leaving(plan)),
        )
        self.done: Done | None = None
        self.fresh = set(state.fresh)
        self.task: asyncio.Task[None] | None = None
        self.failure: str | None = None
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
        if not is_there or state is not self._state:
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


def _leaving(plan: Plan) -> set[str]:
    """Return the ids of the messages that a plan takes out of the view."""
    units = (unit for segment in plan.segments for unit in segment.units if not unit.segment)
    return {one for unit in units for item in unit.items for one in item.covered}
