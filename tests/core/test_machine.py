"""What comes next until a view can be shown: every case as a row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from context_compressor.core.decide import Overflow, Perform, Plan, PlannedSegment, Reason, Show
from context_compressor.core.machine import MOST_EVENTS, Await, Begin, Claim, Commit, Machine, Wait

SUMMARY = Plan((), (PlannedSegment((), 100),), Reason.OVER, 0)
STUBS = Plan((), (), Reason.OVER, 0)
ARRIVAL = Plan((), (), Reason.ARRIVAL, 0)
ASKED = replace(SUMMARY, reason=Reason.ASKED)


def next_of(
    decided: Any, is_ready: bool | None = None, *, fits: bool = False, has_lease: bool = False, **how: Any
) -> Any:
    machine = Machine(**{"asked": False, "is_kept": False, "is_shared": False} | how)
    step = decided if isinstance(decided, Show | Overflow) else Perform(decided)
    return machine.next(step, is_ready, fits=fits, has_lease=has_lease)


@pytest.mark.parametrize(
    ("decided", "how", "step"),
    [
        (Show(), {"is_shared": True}, Show()),
        (Overflow(), {"is_ready": True}, Overflow()),
        (SUMMARY, {}, Perform(SUMMARY)),
        # What was begun before it was due.
        (SUMMARY, {"is_ready": True}, Commit()),
        (STUBS, {"is_ready": True}, Commit()),
        (SUMMARY, {"is_ready": False}, Await()),
        (STUBS, {"is_ready": False}, Perform(STUBS)),
        (ARRIVAL, {"is_ready": True}, Perform(ARRIVAL)),
        (ASKED, {"is_ready": True, "asked": True}, Perform(ASKED)),
        # What goes on though nobody waits for it.
        (SUMMARY, {"is_kept": True}, Begin(SUMMARY)),
        (STUBS, {"is_kept": True}, Perform(STUBS)),
        (ASKED, {"is_kept": True, "asked": True}, Perform(ASKED)),
        # A history that others share.
        (SUMMARY, {"is_shared": True}, Claim(Wait())),
        (SUMMARY, {"is_shared": True, "fits": True}, Claim(Show())),
        (ASKED, {"is_shared": True, "fits": True, "asked": True}, Claim(Wait())),
        (STUBS, {"is_shared": True}, Claim(Wait())),
        (ARRIVAL, {"is_shared": True}, Perform(ARRIVAL)),
        (SUMMARY, {"is_shared": True, "is_ready": True}, Commit()),
        (SUMMARY, {"is_shared": True, "has_lease": True}, Perform(SUMMARY)),
        (SUMMARY, {"is_shared": True, "has_lease": True, "is_kept": True}, Begin(SUMMARY)),
    ],
)
def test_what_comes_next(decided: Any, how: dict[str, Any], step: Any) -> None:
    assert next_of(decided, **how) == step


def test_what_was_begun_and_came_to_nothing_is_performed_while_somebody_waits() -> None:
    machine = Machine(asked=False, is_kept=True, is_shared=False)
    steps = [machine.next(Perform(SUMMARY), None, fits=False, has_lease=False) for _ in range(2)]
    machine.take(is_smaller=True, fits=False)
    steps.append(machine.next(Perform(SUMMARY), None, fits=False, has_lease=False))
    assert steps == [Begin(SUMMARY), Perform(SUMMARY), Begin(SUMMARY)]


@pytest.mark.parametrize(
    ("asked", "is_smaller", "fits", "is_over"),
    [
        (True, True, False, True),
        (False, True, True, False),
        (False, False, True, True),
        (False, False, False, False),
    ],
)
def test_a_call_is_over_once_nothing_more_is_to_be_gained(
    asked: bool, is_smaller: bool, fits: bool, is_over: bool
) -> None:
    machine = Machine(asked=asked, is_kept=False, is_shared=False)
    machine.take(is_smaller=is_smaller, fits=fits)
    assert machine.is_over == is_over


@pytest.mark.parametrize("fits", [True, False])
def test_events_of_a_call_are_bounded(fits: bool) -> None:
    machine = Machine(asked=False, is_kept=False, is_shared=False)
    for _ in range(MOST_EVENTS):
        assert not machine.is_over
        machine.take(is_smaller=True, fits=fits)
    if not fits:
        assert machine.next(Perform(STUBS), None, fits=False, has_lease=False) == Overflow()
    assert machine.is_over == fits
