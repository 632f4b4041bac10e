"""Leases: of several processes that share a history one makes an event, and the others let it."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Protocol, cast
from uuid import uuid4

from context_compressor.errors import InvalidArgumentError
from context_compressor.memory.loops import to_its_end

logger = logging.getLogger(__name__)

LEASE_SECONDS = 30.0
"""How long a claim holds that is not renewed: what others wait for a process that died."""
_RENEWALS = 3
"""Claims within that time, so that one that fails costs nothing."""
_BEGUN_SECONDS = 86_400.0
"""How long it is known that an event was begun which never ended."""
_EVENT = "event"
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 0.02, 0.5
"""A model writes for seconds: to look twice in each costs little."""


class Leases(Protocol):
    """What a history has beside its four verbs where several processes share it."""

    async def claim(self, name: str, holder: str, seconds: float) -> bool:
        """Claim something for some time by the backend's clock; tell whether the holder has it.

        A claim is no change of the history: of a session that has nothing else it makes none.

        Args:
            name: what is claimed, within this history.
            holder: who claims; the same holder renews.
            seconds: for how long, whoever claims it; 0 gives it back, and tells whether the holder had it.
                A claim that is to last for more than twice that is over: the clock was set back.
        """
        ...


def leases_of(history: object) -> Leases | None:
    """Return a history as what gives leases; None where it does not."""
    return cast(Leases, history) if callable(getattr(history, "claim", None)) else None


class Waits:
    """Longer and longer waits for what another process does, which none of many begins or ends together."""

    def __init__(self) -> None:
        self._seconds = _FIRST_WAIT_SECONDS

    async def next(self) -> None:
        """Wait once more."""
        await asyncio.sleep(self._seconds * random.uniform(0.5, 1.0))
        self._seconds = min(_LONGEST_WAIT_SECONDS, self._seconds * 1.5)


class EventLease:
    """The lease that a memory holds while it makes an event of its history, or does something else alone.

    Args:
        leases: gives it; None: the history is this process's alone, and there is nothing to ask.
        name: of what is done.
    """

    def __init__(self, leases: Leases | None, name: str = _EVENT) -> None:
        self._leases = leases
        self._name = name
        self._id = uuid4().hex
        self._held_by = ""
        self._until = 0.0
        self._begun: set[str] = set()
        self._asked: dict[str, asyncio.Task[bool]] = {}
        self._renewal: asyncio.Task[None] | None = None

    @property
    def is_asked(self) -> bool:
        """Whether there is somebody to ask."""
        return self._leases is not None

    @property
    def _holder(self) -> str:
        return f"{self._id}-{os.getpid()}"  # a process that was forked is another holder

    @property
    def is_held(self) -> bool:
        """Whether this memory has it, as far as this process's clock tells."""
        return self._held_by == self._holder and time.monotonic() < self._until

    async def take(self) -> bool:
        """Claim the lease, and renew it until it is given back; tell whether this memory has it."""
        if self._leases is None:
            return True
        if self.is_held and not self._is_left():
            return True
        try:
            if not await self._claim(self._leases):
                return False
        except Exception as error:  # a full database takes no claims
            logger.warning("no lease can be asked for; this process goes on without one: %r", error)
            self._held_by, self._until = self._holder, time.monotonic() + LEASE_SECONDS / _RENEWALS
            return True
        if self._is_left():
            self._renewal = asyncio.create_task(self._renew(self._leases), name="renew a lease")
        return True

    def _is_left(self) -> bool:
        """Tell whether nobody renews it: its time is over, or its loop is."""
        task = self._renewal
        return task is None or task.done() or task.get_loop() is not asyncio.get_running_loop()

    async def _claim(self, leases: Leases) -> bool:
        began = time.monotonic()
        is_held = await self._ask(leases, self._name, LEASE_SECONDS)
        self._held_by = self._holder
        self._until = began + LEASE_SECONDS if is_held else 0.0
        return is_held

    async def _ask(self, leases: Leases, name: str, seconds: float) -> bool:
        """Claim something. If the caller is cancelled meanwhile, a claim that is granted is given back."""
        work = to_its_end(
            lambda _: leases.claim(name, self._holder, seconds), most_seconds=LEASE_SECONDS, waits=True
        )
        self._asked[name] = task = asyncio.create_task(work)
        granted = await asyncio.shield(task)
        self._asked.pop(name, None)
        return granted

    async def _renew(self, leases: Leases) -> None:
        is_held = True
        while is_held:
            await asyncio.sleep(LEASE_SECONDS / _RENEWALS)
            try:
                is_held = await self._claim(leases)
            except Exception as error:
                logger.warning("a lease could not be renewed, it is tried again: %r", error)
        logger.warning("this process stood still, and another one has the lease")

    async def begin(self, what: str) -> bool:
        """Note that a model is about to be paid for an event; tell whether somebody had begun it before.

        Whoever ends an event, or gives it up, takes that note back, unless the lease was lost: somebody else
        may be at it by then. So it is there only after one who died, or who stood still.

        Args:
            what: the event, whoever makes it.
        """
        if self._leases is None:
            return False
        name = f"{self._name} {what}"
        try:
            is_first = await self._ask(self._leases, name, _BEGUN_SECONDS)
        except Exception as error:
            logger.warning("it is not noted that an event was begun: %r", error)
            return False
        if is_first:
            self._begun.add(name)
        else:
            logger.warning("an event is made which another process began and never ended")
        return not is_first

    async def give_back(self) -> None:
        """Give the lease back, though the caller be cancelled meanwhile; what fails runs out by itself."""
        begun, self._begun = self._begun, set()
        asked, self._asked = self._asked, {}
        names, mine = list(asked), [*begun, self._name] if self.is_held else []
        self._until = 0.0
        if self._renewal is not None:
            if not self._renewal.get_loop().is_closed():
                self._renewal.cancel()
            self._renewal = None
        leases, loop = self._leases, asyncio.get_running_loop()
        if leases is not None and (names or mine):
            under_way = [task for task in asked.values() if task.get_loop() is loop]
            await to_its_end(
                lambda _: self._return(leases, names, mine, under_way), most_seconds=LEASE_SECONDS
            )

    async def _return(
        self,
        leases: Leases,
        names: Sequence[str],
        mine: Sequence[str],
        under_way: Collection[asyncio.Task[bool]],
    ) -> None:
        """Give claims back, and those which go with the lease only while this memory has that."""
        if under_way:  # first the server has to answer the claims that are under way
            await asyncio.wait(under_way)
        try:
            # Whoever stood still meanwhile may have lost it, and somebody else be at the event.
            if len(mine) > 1 and not await leases.claim(self._name, self._holder, LEASE_SECONDS):
                mine = ()
            for name in dict.fromkeys([*names, *mine]):
                await leases.claim(name, self._holder, 0)
        except Exception as error:
            logger.warning("a lease could not be given back, it runs out: %r", error)


@asynccontextmanager
async def take_turn(leases: Leases | None, name: str = "turn") -> AsyncIterator[EventLease]:
    """Wait until nobody else has a turn at what several processes share, and keep it while the block runs.

    It is renewed meanwhile. If a process dies, others wait for its turn 30 seconds at most; one that stood
    still for so long may find somebody else at it. Those who wait get it in no order. Where the database
    takes no claims (a full disk, say) whoever asks goes on without one, which is logged, and in a transaction
    of the caller's nobody waits: what must not happen twice asks what was done once it has the turn.

    Args:
        leases: a history over a database or Redis, such as `SQLAlchemyMemory(...).history`; None: nobody
            shares anything, and there is no wait.
        name: of what is done; turns of different names do not wait for each other.

    Raises:
        InvalidArgumentError: the history is this process's alone.
    """
    if leases is not None and leases_of(leases) is None:
        raise InvalidArgumentError(
            f"leases: a {type(leases).__name__} is this process's alone; give the history of a memory over a "
            "database or Redis, or use an asyncio.Lock"
        )
    lease, waits = EventLease(leases, name), Waits()
    try:
        while not await lease.take():
            await waits.next()
        yield lease
    finally:
        await lease.give_back()
