"""Events performed in a task before they are due, while the agent goes on; committed when the budget asks."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Sequence

from context_compressor.compression.config import CompressionConfig
from context_compressor.compression.done import Performed
from context_compressor.compression.engine import Engine
from context_compressor.compression.planner import still_holds
from context_compressor.compression.plans import Perform, Plan
from context_compressor.compression.units import Unit
from context_compressor.events import CompressionEvent
from context_compressor.memory.reporting import Totals
from context_compressor.memory.state import MemoryState
from context_compressor.summarizers.attempts import attempt_budget

logger = logging.getLogger(__name__)

MAX_ATTEMPTS_PER_EVENT = 48
"""Calls of a model that one event may make, retries and the parts of large groups included."""
_GROWTH = 0.05
"""Share of the budget by which a view has to grow before another preparation is tried (law 5)."""
_ENDING_SECONDS = 1.0
"""How long a cancelled preparation is waited for; a summariser that ignores its cancellation gets less."""


class Preparation:
    """One event that a task performs before it is due. It changes neither view nor ledger.

    The task knows nothing of the memory but what it works on, and ends by its time limits at the latest.

    Args:
        planned: what is to be done.
        state: the memory's, as it is now.
        engine: performs it, in a task of the running loop.
        totals: where its use of a model is counted, whatever comes of it.

    Attributes:
        done: what came of it.
        seconds: wall-clock seconds that it took.
        failure: why nothing came of it; None unless it failed.
        removed: refs of texts that the store was asked to remove meanwhile.
        fresh: keys of the items that had just come.
        task: performs it; kept here because a loop lets go of tasks that wait.
    """

    def __init__(self, planned: Plan, state: MemoryState, engine: Engine, totals: Totals) -> None:
        self.planned = planned
        self.done = Performed()
        self.seconds = 0.0
        self.failure: str | None = None
        self.removed: set[str] = set()
        self.fresh = set(state.fresh)
        self._is_performed = False
        self._state = state
        self._generation = state.generation
        self._items = list(state.items)
        self._units = state.units()
        self.task = asyncio.create_task(self._perform(engine, totals), name="prepare a compression event")

    async def _perform(self, engine: Engine, totals: Totals) -> None:
        began = time.monotonic()
        with attempt_budget(MAX_ATTEMPTS_PER_EVENT) as attempts:
            try:
                new_segment_id = self._state.ledger.new_segment_id
                await engine.perform(self.planned, self._items, new_segment_id, self.done)
                self._is_performed = True
            except Exception as error:
                # Nobody has asked for it yet, so nobody is there to raise it to.
                logger.warning("an event could not be prepared: %r", error)
                self.failure = f"{type(error).__name__}: {error}"
            finally:
                self.seconds = time.monotonic() - began
                self.done.use.calls = attempts.taken
                self.done.settle(attempts)
                totals.add(self.done.use, self.seconds)

    @property
    def is_ready(self) -> bool:
        """Whether it came to something that can be committed."""
        return self._is_performed and self.task.done()

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will come of it, be it that its loop is gone."""
        return self.task.done() or self.task.get_loop().is_closed()

    def holds(self, state: MemoryState) -> bool:
        """Tell whether it is ready, or under way in the running loop, and fits the view as it is now."""
        under_way = not self.task.done() and self.task.get_loop() is asyncio.get_running_loop()
        if state is not self._state or not (self.is_ready or under_way):
            return False
        if not self.done.attempted.isdisjoint(self.removed):
            return False
        if state.generation == self._generation:
            return True
        return outlasts(self.planned, self.done, self._units, state.units())

    def cancel(self) -> None:
        """Cancel the task, whichever loop it belongs to."""
        if not self.has_ended:
            self.task.get_loop().call_soon_threadsafe(self.task.cancel)


def outlasts(planned: Plan, done: Performed, then: Sequence[Unit] | None, now: Sequence[Unit]) -> bool:
    """Tell whether what was performed for one view can be committed to a later one, which was edited.

    Args:
        planned: what was to be done.
        done: what came of it.
        then: the view's units when it was planned; None: not kept.
        now: its units as they are now.
    """
    # What stands for a page rests on a text of other messages, which may be gone.
    has_pages = any(stub.page for stub in done.stubs)
    return then is not None and not has_pages and still_holds(planned, then, now)


class Background:
    """Prepare the coming event, one at a time.

    Args:
        config: from which share of the budget on.
        engine: performs it.
        remote: whether summaries leave the process: only then is there something to wait for.

    Attributes:
        totals: what events came to, in line or in a task: a model is paid for whatever comes of its summary.
    """

    def __init__(self, config: CompressionConfig, engine: Engine, remote: bool) -> None:
        self._ratio = (config.background_ratio or 1.0) if remote else 1.0
        self._raises = config.on_failure == "raise"
        self._engine = engine
        self.totals = Totals()
        self._prepared: Preparation | None = None
        self._dropped: list[Preparation] = []
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

    def start(self, planned: Plan, state: MemoryState) -> Preparation:
        """Begin to perform a plan, in the place of any other preparation."""
        self.drop()
        self._prepared = Preparation(planned, state, self._engine, self.totals)
        return self._prepared

    def standing(self, state: MemoryState) -> Preparation | None:
        """Return the preparation, under way or ready, that can be committed to this state; drop any other."""
        self.drop_outdated(state)
        return self._prepared

    def drop_outdated(self, state: MemoryState) -> None:
        """Drop the preparation where it cannot be committed to this state."""
        if self._prepared is not None and not self._prepared.holds(state):
            self.drop()

    def take(self) -> None:
        """Let go of the preparation, which was committed."""
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
        return {ref for each in (*prepared, *self._dropped) for ref in each.done.attempted}

    async def settle(self) -> set[str]:
        """Wait until dropped preparations have ended; return the refs of what they may have stored."""
        loop = asyncio.get_running_loop()
        ending = {each.task for each in self._dropped if not each.has_ended and each.task.get_loop() is loop}
        if ending:
            await asyncio.wait(ending, timeout=_ENDING_SECONDS)
        ended = [each for each in self._dropped if each.has_ended]
        self._dropped = [each for each in self._dropped if each not in ended]
        return {ref for each in ended for ref in each.done.attempted}
