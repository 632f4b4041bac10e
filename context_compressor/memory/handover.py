"""Handing over what left a view to long-term memories: each segment at least once, crashes included.

What is still to be handed over stands in the ledger: a segment is noted there when it was taken.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from context_compressor.core.edits import SegmentEdit, message_id
from context_compressor.core.shown import Redact, shown_message
from context_compressor.errors import check_members, check_number
from context_compressor.memory import leases
from context_compressor.memory.leases import EventLease, leases_of
from context_compressor.memory.tracking import Tracker
from context_compressor.messages.msg import Msg

logger = logging.getLogger(__name__)

TIMEOUT_SECONDS = 60.0
"""How long a receiver may take for what left together, unless it says otherwise."""
_LEASE = "hand over"
"""The name under which one of several processes does it."""


@dataclass(frozen=True, slots=True)
class Departure:
    """Messages that left a view together."""

    ref: str
    """Names the text that tells them in the view; the same messages have the same."""
    messages: tuple[Msg, ...]
    """Copies, whole and in order; redacted where the memory redacts."""


class Receiver(Protocol):
    """Who takes what left a view.

    It may be given the same ref again: after a crash before that it was taken was written down. Where it has
    an attribute `timeout_seconds`, it may take so long.
    """

    async def receive(self, departure: Departure) -> None:
        """Take messages; an error says that they are to be handed over again."""
        ...


def check_receiver(receiver: object) -> None:
    """Check what a memory is given as `hand_over`.

    Raises:
        InvalidArgumentError: it is no receiver, or its time is none.
    """
    mend = "HandOver(memory, user_id=...) makes one of a long-term memory"
    check_members("hand_over", receiver, "a receiver", ("receive",), mend)
    check_number("timeout_seconds", _seconds_of(receiver), 0, is_above=True)


def _seconds_of(receiver: object) -> float:
    seconds: float = getattr(receiver, "timeout_seconds", TIMEOUT_SECONDS)
    return seconds


class HandingOver:
    """Hand over in a task of its own, for which no view waits.

    Args:
        receiver: takes what left.
        tracker: has the ledger, and the history.
        redact: what every text goes through.
        changing: what a change of the ledger goes through, as `Shell.changing`.

    Attributes:
        done: how many departures were taken.
        failures: how many attempts failed.
    """

    def __init__(
        self,
        receiver: Receiver,
        tracker: Tracker,
        redact: Redact | None,
        changing: Callable[[], AbstractAsyncContextManager[None]],
    ) -> None:
        self.done, self.failures = 0, 0
        self._receiver = receiver
        self._seconds = _seconds_of(receiver)
        self._tracker = tracker
        self._redact = redact
        self._changing = changing
        self._taken: set[str] = set()
        self._lease = EventLease(leases_of(tracker.history), _LEASE)
        self._task: asyncio.Task[None] | None = None
        self._is_asked_again = False
        self._later: asyncio.TimerHandle | None = None

    def waiting(self) -> list[SegmentEdit]:
        """Return the segments whose messages are still to be handed over, the oldest first."""
        segments = self._tracker.state.ledger.segments()
        return [one for one in segments if one.items and not one.handed_over]

    def wake(self) -> None:
        """Begin, unless that was done, or nothing is to be handed over."""
        task = self._task
        if task is not None and not task.done() and task.get_loop() is asyncio.get_running_loop():
            # What the task itself changes asks as well, and is no reason to begin anew.
            self._is_asked_again |= task is not asyncio.current_task()
        elif self.waiting():
            self._task = asyncio.create_task(self._work(), name="hand over what left the view")

    def start_anew(self) -> None:
        """Forget what was taken: another state is loaded."""
        self._taken.clear()

    async def aclose(self) -> None:
        """Wait for what goes on, as long as one departure may take, and end it."""
        if self._later is not None:
            self._later.cancel()
        task = self._task
        if task is None or task.done() or task.get_loop() is not asyncio.get_running_loop():
            return
        await asyncio.wait({task}, timeout=self._seconds)
        task.cancel()
        await asyncio.wait({task}, timeout=1.0)

    async def _work(self) -> None:
        while True:
            self._is_asked_again = False
            try:
                await self._in_turn()
            except (Exception, asyncio.CancelledError) as error:
                task = asyncio.current_task()
                if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                    raise
                self.failures += 1
                logger.warning(
                    "%d departures wait to be handed over, until the next call or start: %r",
                    len(self.waiting()),
                    error,
                )
            if not self._is_asked_again:
                return

    async def _in_turn(self) -> None:
        """Hand over all there is, where no other process does so."""
        if not await self._lease.take():
            # Who holds it may have died.
            if self._later is not None:
                self._later.cancel()
            self._later = asyncio.get_running_loop().call_later(leases.LEASE_SECONDS, self.wake)
            return
        try:
            async with self._changing():  # others may have handed over some
                await self._tracker.catch_up()
            while waiting := self.waiting():
                if not await self._lease.take():
                    return
                await self._hand_over(waiting[0])
        finally:
            await self._lease.give_back()

    async def _hand_over(self, segment: SegmentEdit) -> None:
        if segment.ref not in self._taken:
            messages = await self._messages(segment)
            if messages:
                async with asyncio.timeout(self._seconds):
                    await self._receiver.receive(Departure(segment.ref, messages))
                self.done += 1
            self._taken.add(segment.ref)
        async with self._changing():
            await self._tracker.note_handed_over(segment)

    async def _messages(self, segment: SegmentEdit) -> tuple[Msg, ...]:
        keys = dict.fromkeys(item.key for item in segment.items)
        entries = await self._tracker.history.read(ids={message_id(key) for key in keys})
        there: dict[str, Any] = {entry.key: entry.msg for entry in entries}
        found = [there[key] for key in keys if there.get(key) is not None]
        if self._redact is None:
            return tuple(msg.copy() for msg in found)
        return tuple(shown_message(msg, {}, {}, self._redact) for msg in found)
