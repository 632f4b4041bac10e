"""When an event comes before the budget asks for it, and what triggers beside tokens. Pure."""

from __future__ import annotations

import math
from typing import Any

import pytest

from context_compressor import (
    CompressionConfig,
    CompressionEvent,
    InMemoryOffloadStore,
    from_openai,
    to_openai,
)
from context_compressor.compression.draft import Draft
from context_compressor.compression.pricing import cheapest_growth, is_crowded, may_pay
from context_compressor.compression.units import Marks, classify
from tests.compression.support import items_of
from tests.memory.scripted import (
    assistant,
    config,
    exchange,
    filled,
    good_view,
    kind_of,
    new_memory,
    system,
    text,
    turns,
    user,
)


def cost_per_turn(growth: float, rewritten: float, per_turn: float, price: float) -> float:
    """What a turn pays for what has grown, and its share of an event."""
    return price * growth / 2 + (1 - price) * rewritten * per_turn / growth


@pytest.mark.parametrize(
    ("rewritten", "per_turn", "price"), [(4_000, 600, 0.1), (900, 80, 0.25), (50, 5, 1.0)]
)
def test_no_other_growth_costs_less(rewritten: float, per_turn: float, price: float) -> None:
    best = cheapest_growth(rewritten, per_turn, price)
    if price == 1:
        assert best == 0  # nothing is cached, so an event costs nothing
        return
    least = cost_per_turn(best, rewritten, per_turn, price)
    assert all(cost_per_turn(best * f, rewritten, per_turn, price) > least for f in (0.5, 0.9, 1.1, 2))


def test_where_cached_tokens_are_free_the_budget_alone_decides() -> None:
    assert cheapest_growth(4_000, 600, 0) == math.inf


def test_a_session_that_never_reached_its_budget_is_left_alone() -> None:
    items = items_of([user("go"), *turns(60)])
    assert not may_pay(items, CompressionConfig(keep_recent_count=4))


async def events_of(session: list[dict[str, Any]], **values: Any) -> list[CompressionEvent]:
    events: list[CompressionEvent] = []
    memory = new_memory(config(4_000, **{"keep_recent_count": 2, **values}), on_event=events.append)
    for message in session:
        await filled(memory, [message])
        await good_view(memory)
    return events


SLOW = [user("go"), *(message for n in range(60) for message in exchange(f"s{n}", 4))]
"""Short messages behind a short tail: on every turn far more is read than an event would rewrite."""


async def test_after_the_first_event_the_next_come_as_soon_as_they_pay() -> None:
    early = await events_of(SLOW)
    late = await events_of(SLOW, cached_price=0)
    assert {event.reason for event in late} == {"over budget"}
    assert early[0].reason == "over budget"
    assert "cheaper than to wait" in {event.reason for event in early}
    assert len(early) > len(late)


async def test_without_a_cache_events_come_only_where_they_free_a_part_of_the_budget() -> None:
    """To send a view anew costs nothing there, but each event asks the summariser and leaves a segment."""
    events = [event for event in await events_of(SLOW, cached_price=1) if event.kind == "compress"]
    early = [event for event in events if event.reason == "cheaper than to wait"]
    assert early
    assert all(event.tokens_before - event.tokens_after >= 0.05 * 4_000 for event in early)


async def test_compact_never_summarises_early() -> None:
    assert {event.reason for event in await events_of(SLOW, mode="compact")} <= {"over budget", "arrival"}


async def test_too_many_messages_are_a_reason_for_an_event_within_the_budget() -> None:
    events: list[CompressionEvent] = []
    limit = 20
    memory = new_memory(config(50_000, keep_recent_count=4, max_view_messages=limit), on_event=events.append)
    for message in [user("go"), *turns(40)]:
        await filled(memory, [message])
        assert len(await good_view(memory)) <= limit
    assert {event.reason for event in events} <= {"too many messages", "cheaper than to wait"}
    assert "too many messages" in {event.reason for event in events}


@pytest.mark.parametrize("limit", [8, 12, 20])
async def test_events_for_the_number_of_messages_do_not_come_on_most_turns(limit: int) -> None:
    events: list[CompressionEvent] = []
    memory = new_memory(CompressionConfig(max_view_messages=limit), on_event=events.append)
    session = turns(60)
    for message in [user("go"), *session]:
        await filled(memory, [message])
        await good_view(memory)
    calls = sum(message["role"] == "assistant" for message in session)
    assert len(events) <= 5 * calls // limit


async def test_where_too_many_messages_cannot_leave_the_view_is_handed_out_all_the_same() -> None:
    memory = new_memory(config(50_000, keep_recent_count=4, max_view_messages=5, pinned_mark="pinned"))
    await memory.add(from_openai(turns(8)), marks="pinned")
    assert len(to_openai(await memory.get_memory())) == len(turns(8))
    assert memory.stats().events == 0


async def test_where_the_number_cannot_be_reached_an_event_does_not_come_on_every_turn() -> None:
    """Opencode's and codex's loop, for messages: what stays alone is above the trigger."""
    events: list[CompressionEvent] = []
    limit = 15
    memory = new_memory(config(50_000, keep_recent_count=10, max_view_messages=limit), on_event=events.append)
    await memory.add(from_openai([user(f"rule {n}") for n in range(20)]), marks="pinned")
    session = turns(60)
    for message in session:
        await filled(memory, [message])
        await good_view(memory)
    assert 0 < len(events) <= len(session) // (limit // 2)


async def test_a_memory_that_is_resumed_finds_no_further_event_to_be_due() -> None:
    """What an event leaves may still be too many messages, or cheaper to merge than to wait."""
    settings = config(50_000, mode="compact", keep_recent_count=0, max_view_messages=3)
    store = InMemoryOffloadStore()
    memory = new_memory(settings, store=store)
    asked, rules = [user(text(tag, 3)) for tag in "ab"], [system(text(tag, 2)) for tag in "cd"]
    for message in (*exchange("e", 3), asked[0], *rules, asked[1]):
        await filled(memory, [message])
        view = await good_view(memory)
        resumed = new_memory(settings, store=store)
        resumed.load_state_dict(memory.state_dict())
        assert await resumed.get_memory() == view


async def test_compact_leaves_refs_where_messages_are_too_many() -> None:
    memory = new_memory(config(50_000, mode="compact", keep_recent_count=4, max_view_messages=12))
    await filled(memory, [user("go"), *turns(20)])
    view = await good_view(memory)
    assert len(view) <= 12
    assert "segment" in map(kind_of, view)


def test_a_view_is_crowded_only_where_a_number_was_set() -> None:
    units = classify(items_of(turns(10)), CompressionConfig(), Marks())
    assert not is_crowded(units, CompressionConfig())
    assert is_crowded(units, CompressionConfig(max_view_messages=len(units) - 1))


def test_a_view_is_not_crowded_where_a_segment_would_take_the_place_of_what_leaves() -> None:
    """Such an event leaves as many messages as before, and would come again with the next one."""
    said = [user("go"), *(assistant(f"a{n}") for n in range(8))]
    numbered = CompressionConfig(keep_recent_count=7, max_view_messages=8)
    units = classify(items_of(said), numbered, Marks())
    assert sum(unit.compressible for unit in units) == 1
    assert not is_crowded(units, numbered)


async def test_an_event_that_pays_is_seen_where_recent_messages_are_counted_in_tokens() -> None:
    counted = await events_of(SLOW, keep_recent_count=1_000, keep_recent_tokens=150)
    assert "cheaper than to wait" in {event.reason for event in counted}
    assert {event.reason for event in await events_of(SLOW, keep_recent_count=1_000)} == {"over budget"}


async def test_what_stays_whatever_comes_does_not_bring_the_next_event_nearer() -> None:
    """Long instructions and a long first request stay: weighed with the rest, they let every turn plan."""
    memory = new_memory(config(4_000, keep_recent_count=2))
    shown: list[int] = []
    await memory.add(from_openai([system(text("rules", 40)), user(text("task", 20))]))
    for message in SLOW[1:]:
        events = memory.stats().events
        await filled(memory, [message])
        await good_view(memory)
        stats = memory.stats()
        if stats.segments and stats.events == events:
            shown.append(stats.tokens_to_event)
    assert len(shown) > 40
    assert shown.count(0) <= len(shown) // 4


async def test_what_may_pay_by_the_cheap_look_is_about_what_pays_by_the_exact_one() -> None:
    memory = new_memory(config(4_000, keep_recent_count=2))
    seen = asked = paid = 0
    await memory.add(from_openai([system(text("rules", 15)), user("go")]))
    for message in SLOW[1:]:
        await filled(memory, [message])
        state = memory._upkeep.state
        state.advance()
        if state.ledger.has_segments:
            pays = Draft(state.items, state.situation(memory._runner._engine.costs())).pays()
            may = may_pay(state.items, memory.config)
            assert may or not pays
            seen, asked, paid = seen + 1, asked + may, paid + pays
        await good_view(memory)
    assert 0 < paid <= asked <= seen // 3
