"""One of several memories over a history makes its events; the others go on, or wait for it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from context_compressor import (
    CompressedMemory,
    CompressionEvent,
    InMemoryOffloadStore,
    InvalidArgumentError,
    OffloadStore,
    Summary,
    SummaryRequest,
    to_openai,
)
from context_compressor.memory import leases, shell
from context_compressor.memory.history import ListHistory
from tests.memory.scripted import (
    Gated,
    Noting,
    config,
    exchange,
    filled,
    good_view,
    kind_of,
    new_memory,
    nothing_lost,
    reached,
    turns,
    user,
)

NEAR, MORE, LONG = turns(4), turns(1, tag="u"), turns(8)


class SharedHistory(ListHistory):
    """A history that gives leases, by a clock that tests move."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.held: dict[str, tuple[str, float]] = {}
        self.fails = False

    async def claim(self, name: str, holder: str, seconds: float) -> bool:
        if self.fails:
            raise ConnectionError("no route to the database")
        own, until = self.held.get(name, ("", 0.0))
        if own != holder and until > self.now:
            return False
        if seconds:
            self.held[name] = holder, self.now + seconds
        else:
            self.held.pop(name, None)
        return True


@pytest.fixture
def history() -> SharedHistory:
    return SharedHistory()


def memories(history: SharedHistory, *summarizers: Any, **fields: Any) -> list[CompressedMemory]:
    store: OffloadStore = InMemoryOffloadStore()
    return [new_memory(config(**fields), base=history, store=store, summarizer=one) for one in summarizers]


async def writing(history: SharedHistory, gated: Gated | None = None) -> tuple[Any, ...]:
    """Return a model that writes for a memory, another model, that memory and another, and its event."""
    gated, noting = gated or Gated(), Noting()
    one, other = memories(history, gated, noting, background_ratio=None)
    await filled(one, LONG)
    first = asyncio.create_task(good_view(one))
    await reached(gated.asked, first)
    return gated, noting, one, other, first


async def looked(times: int = 3) -> None:
    """Let whoever waits look a few times."""
    await asyncio.sleep(0.05 * times)


async def test_who_is_over_budget_waits_for_the_event_of_another(history: SharedHistory) -> None:
    gated, noting, one, other, first = await writing(history)
    second = asyncio.create_task(good_view(other))
    await looked()
    assert not second.done()
    await filled(other, [user("and more, meanwhile")])
    gated.gate.set()
    await first
    assert await second == await good_view(one)
    assert (len(gated.requests), noting.requests) == (1, [])
    assert history.held == {}
    assert other.stats().taken_over == one.stats().taken_over == 0


async def test_who_is_within_budget_goes_on_with_its_view(history: SharedHistory) -> None:
    gated, noting = Gated(), Noting()
    one, other = memories(history, gated, noting, background_ratio=None)
    await filled(one, NEAR)
    asked = asyncio.create_task(one.compress_now())
    await reached(gated.asked, asked)
    assert to_openai(await good_view(other)) == NEAR
    large = [user("look"), *exchange("large", 100)]
    await filled(other, large)  # what is too large on its arrival needs no model, and nobody's leave
    assert "stub" in [kind_of(msg) for msg in await good_view(other)]
    gated.gate.set()
    assert await asked is not None
    assert await good_view(one) == await good_view(other)
    assert noting.requests == []
    await nothing_lost(other, NEAR + large)


async def test_what_one_prepares_ahead_no_other_pays_for(history: SharedHistory) -> None:
    gated, noting = Gated(), Noting()
    one, other = memories(history, gated, noting)
    await filled(one, NEAR)
    assert to_openai(await good_view(one)) == NEAR
    prepared = one._runner._prepared
    await reached(gated.asked, prepared.task)
    await filled(other, MORE)
    view = asyncio.create_task(good_view(other))
    await looked()
    assert not view.done()
    gated.gate.set()
    await asyncio.wait({prepared.task})
    assert "notes" in [kind_of(msg) for msg in await view], "it is committed as soon as it is there"
    assert await good_view(one) == await view
    assert (len(gated.requests), noting.requests, history.held) == (1, [], {})
    await nothing_lost(other, NEAR + MORE)


async def test_of_two_who_are_near_the_budget_one_prepares(history: SharedHistory) -> None:
    gated, noting = Gated(), Noting()
    one, other = memories(history, gated, noting)
    await filled(one, NEAR)
    await good_view(one)
    await good_view(other)
    await asyncio.wait_for(gated.asked.wait(), 60)
    await looked()
    gated.gate.set()
    await asyncio.gather(one.aclose(), other.aclose())  # which wait for what is paid for
    assert (len(gated.requests), noting.requests, history.held) == (1, [], {})


@pytest.mark.parametrize("cancelled", ["", "before", "closing"])
async def test_closing_waits_for_what_is_paid_for(history: SharedHistory, cancelled: str) -> None:
    """Another process, or the next request, goes on with it; who is cancelled gives it up for good."""
    gated, noting = Gated(), Noting()
    one, other = memories(history, gated, noting)

    async def request() -> None:
        async with one:
            await filled(one, NEAR)
            await good_view(one)
            await gated.asked.wait()
            if cancelled == "before":
                await asyncio.Event().wait()

    asked = asyncio.create_task(request())
    await reached(gated.asked, asked)
    await looked()
    assert not asked.done()
    if cancelled:
        asked.cancel()
    else:
        gated.gate.set()
    await asyncio.wait({asked})
    assert asked.cancelled() == bool(cancelled)
    number = (await history.head()).number
    gated.gate.set()
    await looked()
    assert (await history.head()).number == number, "nothing is written once it is closed"
    await filled(other, MORE)
    assert "notes" in [kind_of(msg) for msg in await good_view(other)]
    assert (len(gated.requests), len(noting.requests), history.held) == (1, int(bool(cancelled)), {})


async def test_a_lease_is_renewed_while_the_model_writes(
    history: SharedHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "LEASE_SECONDS", 0.3)
    monkeypatch.setattr(leases, "time", SimpleNamespace(monotonic=lambda: history.now))
    gated, noting, _, other, first = await writing(history)
    second = asyncio.create_task(good_view(other))
    for _ in range(8):
        history.now += 0.15
        await asyncio.sleep(0.15)
    assert not second.done()
    gated.gate.set()
    await asyncio.gather(first, second)
    assert noting.requests == []


async def test_whose_lease_ran_out_throws_its_work_away(history: SharedHistory) -> None:
    gated, noting, one, other, first = await writing(history)
    history.now += 31  # it stood still, as far as the history's clock tells
    view = await good_view(other)
    assert (other.stats().taken_over, one.stats().taken_over) == (1, 0)
    gated.gate.set()
    assert await first == view == await good_view(other)
    assert (len(gated.requests), len(noting.requests)) == (1, 1)
    assert history.held == {}
    await nothing_lost(one, LONG)
    assert set(await one.store.refs()) == set(await one.reachable_refs())


class Failing(Gated):
    """A model that fails when it is let go."""

    async def summarize(self, request: SummaryRequest) -> Summary:
        await super().summarize(request)
        raise ConnectionError("no route to model")


@pytest.mark.parametrize("end", ["cancelled", "failed"])
async def test_whoever_ends_gives_the_lease_back(history: SharedHistory, end: str) -> None:
    gated, _, _, other, first = await writing(history, Failing())
    assert len(history.held) == 2
    if end == "cancelled":
        first.cancel()
    gated.gate.set()
    await asyncio.wait({first})
    assert first.cancelled() == (end == "cancelled")
    assert history.held == {}
    await good_view(other)
    assert other.stats().taken_over == 0


@pytest.mark.parametrize("what", ["taken", "begun", "renewed"])
async def test_what_is_granted_to_whoever_is_gone_is_given_back(
    history: SharedHistory, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The answer of a server is under way while a request is cancelled, or a memory closed."""
    claim, asked, answered = history.claim, asyncio.Event(), asyncio.Event()

    async def claim_late(name: str, holder: str, seconds: float) -> bool:
        if seconds:
            asked.set()
            await answered.wait()
        return await claim(name, holder, seconds)

    lease = leases.EventLease(history)
    if what != "taken":
        monkeypatch.setattr(leases, "LEASE_SECONDS", 0.03 if what == "renewed" else 30.0)
        assert await lease.take()
        await asyncio.sleep(0)  # who renews it begins to wait
    monkeypatch.setattr(leases, "LEASE_SECONDS", 30.0)
    monkeypatch.setattr(history, "claim", claim_late)
    ask = {"taken": lease.take, "begun": lambda: lease.begin("it"), "renewed": asked.wait}[what]
    asking = asyncio.ensure_future(ask())
    await asyncio.wait_for(asked.wait(), 60)
    asking.cancel()
    await asyncio.wait({asking})
    returning = asyncio.create_task(lease.give_back())
    await asyncio.sleep(0)
    answered.set()
    await returning
    assert history.held == {}
    assert not lease.is_held


@pytest.mark.parametrize("seconds", [0.3, 30.0], ids=["it knows", "by its own clock it has it still"])
async def test_each_that_takes_an_event_over_is_counted(
    history: SharedHistory, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    monkeypatch.setattr(leases, "LEASE_SECONDS", seconds)
    standing, taken_over = [leases.EventLease(history) for _ in range(3)], list[bool]()
    for lease in standing:
        history.now += 1.5 * seconds  # whoever has it stands still
        assert await lease.take()
        taken_over.append(await lease.begin("it"))
    if seconds < 1:
        await asyncio.wait({lease._renewal for lease in standing[:2] if lease._renewal}, timeout=60)
    for lease in standing[:2]:
        await lease.give_back()  # too late
    history.now += 1.5 * seconds
    last = leases.EventLease(history)
    assert await last.take()
    taken_over.append(await last.begin("it"))
    assert taken_over == [False, True, True, True]
    for lease in (standing[2], last):
        await lease.give_back()


async def test_one_at_a_time_has_a_turn_and_gives_it_back_whatever_ends_it(history: SharedHistory) -> None:
    order: list[str] = []

    async def other() -> None:
        async with leases.take_turn(history):
            order.append("other")

    async def one() -> None:
        async with leases.take_turn(history):
            waiting.append(asyncio.create_task(other()))
            await asyncio.sleep(0)  # it begins to wait
            async with leases.take_turn(history, "else"):
                order.append("one")
            raise ZeroDivisionError

    waiting: list[asyncio.Task[None]] = []
    with pytest.raises(ZeroDivisionError):
        await one()
    await waiting[0]
    assert (order, history.held) == (["one", "other"], {})
    with pytest.raises(InvalidArgumentError, match="a ListHistory is this process's alone"):
        async with leases.take_turn(ListHistory()):  # type: ignore[arg-type]
            pass


async def test_a_hook_may_close_the_memory(history: SharedHistory) -> None:
    gated, closed = Gated(), asyncio.Event()

    async def close(event: CompressionEvent) -> None:
        await memory.aclose()
        closed.set()

    memory = new_memory(config(), base=history, summarizer=gated, on_event=close)
    await filled(memory, NEAR)
    await good_view(memory)
    gated.gate.set()
    await asyncio.wait_for(closed.wait(), 60)
    assert history.held == {}


async def test_closing_gives_up_a_model_that_takes_too_long(
    history: SharedHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell, "CLOSING_SECONDS", 0.05)
    gated, noting = Gated(), Noting()
    one, other = memories(history, gated, noting)
    await filled(one, NEAR)
    await good_view(one)
    await asyncio.wait_for(gated.asked.wait(), 60)
    assert len(history.held) == 2
    await one.aclose()
    assert history.held == {}
    await filled(other, MORE)
    await good_view(other)
    assert other.stats().taken_over == 0


async def test_a_backend_that_fails_to_take_it_back_costs_nothing(history: SharedHistory) -> None:
    gated, _, _, other, first = await writing(history)
    history.fails = True
    gated.gate.set()
    view = await first
    history.fails = False
    history.now += 31
    assert await good_view(other) == view
    await filled(other, turns(8, tag="v"))
    await good_view(other)
    assert other.stats().taken_over == 0, "the event was made"


async def test_what_nothing_names_is_removed_when_nobody_makes_an_event(history: SharedHistory) -> None:
    gated, _, one, other, first = await writing(history)
    stored = set(await one.store.refs())
    assert stored
    assert await other.remove_orphans() == []  # its ledger names nothing yet
    other._tracker.state.ledger.give_up(stored)  # as after an event of its own that came to nothing
    await other._runner.tidy_up()
    assert set(await one.store.refs()) == stored
    gated.gate.set()
    await first
    await other._runner.tidy_up()
    await good_view(other)
    await other._runner.tidy_up()
    assert stored <= set(await one.store.refs())
    await nothing_lost(one, LONG)
    assert history.held == {}


async def test_without_a_model_nobody_asks(history: SharedHistory) -> None:
    history.fails = True
    one, other = memories(history, None, Noting(remote=False))
    await filled(one, LONG)
    assert await good_view(one) == await good_view(other)
