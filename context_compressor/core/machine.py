"""What comes next until a view can be shown: a machine that says it, for a shell that obeys.

No await, no clock, no lock: the shell tells what it sees and gets, and which way that leads is decided here.
Reading and writing the history are not among the steps: what one read says decides what is read next, and a
write that meets others' is made again, so `Tracker` does each under its lock, from one head to the next. What
is removed from the store changes no view, and waits until the last step is done.
"""

from __future__ import annotations

from dataclasses import dataclass

from context_compressor.core.decide import Overflow, Perform, Plan, Reason, Show, Step

MOST_EVENTS = 12
"""Events that one call may lead to before it gives up: each leaves a smaller view, so few are ever needed."""


@dataclass(frozen=True, slots=True)
class Begin:
    """Perform a plan in a task that goes on though nobody waits for it any more."""

    plan: Plan


@dataclass(frozen=True, slots=True)
class Await:
    """Wait for what is under way."""


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit what was prepared."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait a while: somebody else makes the event."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Claim the lease, and look again: whoever had it may have made the event. Where it is refused, go on."""

    otherwise: Show | Wait


Next = Show | Overflow | Perform | Begin | Await | Commit | Wait | Claim


class Machine:
    """Say what comes next in one call.

    Args:
        asked: whether somebody asks for an event: then one is made, whatever the fill level.
        is_kept: whether an event that needs a model goes on although nobody waits for it any more.
        is_shared: whether others have the same history: then who has the lease makes its events.

    Attributes:
        is_over: whether the view is as it is to be.
    """

    def __init__(self, *, asked: bool, is_kept: bool, is_shared: bool) -> None:
        self._asked = asked
        self._is_kept = is_kept and not asked
        self._is_shared = is_shared
        self._events = 0
        self._has_begun = False
        self.is_over = False

    def next(self, decided: Step, is_ready: bool | None, *, fits: bool, has_lease: bool) -> Next:
        """Return what to do.

        Args:
            decided: what the view asks for by itself.
            is_ready: whether the event that was begun before it was due, and still holds, can be committed;
                None: there is none.
            fits: whether the view is within the budget.
            has_lease: whether this memory has the lease.
        """
        if not isinstance(decided, Perform):
            return decided
        if self._events == MOST_EVENTS:
            return Overflow()
        plan = decided.plan
        # What came too large was not there when the event was begun; and with a stub alone the view fits at
        # once, so there is no reason to wait for a summary.
        if is_ready is not None and not self._asked and plan.reason != Reason.ARRIVAL:
            if is_ready:
                return Commit()
            if plan.needs_summary:
                return Await()
        # What has just come leaves without a model whoever has the lease.
        needs_lease = self._is_shared and (plan.needs_summary or plan.reason != Reason.ARRIVAL)
        if needs_lease and not has_lease:
            return Claim(Show() if fits and not self._asked else Wait())
        if self._is_kept and not self._has_begun and plan.needs_summary:
            self._has_begun = True
            return Begin(plan)
        return decided

    def take(self, *, is_smaller: bool, fits: bool) -> None:
        """Take note of an event that was committed.

        Args:
            is_smaller: whether it led to a smaller view.
            fits: whether that is within the budget.
        """
        self._events += 1
        self._has_begun = False
        # There may be many messages, say, and none that may leave; or others add faster than this makes room.
        self.is_over = self._asked or (fits and (not is_smaller or self._events == MOST_EVENTS))
