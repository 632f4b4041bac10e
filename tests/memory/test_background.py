"""Events prepared in the background: for summarisers that are remote, from a share of the budget on."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import weakref
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import anyio
import pytest

from context_compressor import (
    CompressedMemory,
    CompressionEvent,
    ExtractiveSummarizer,
    FallbackSummarizer,
    InMemoryOffloadStore,
    Msg,
    Summary,
    SummaryRequest,
    acompress_messages,
    from_openai,
    to_openai,
)
from context_compressor.errors import RedactionError, SummarizerError
from context_compressor.memory.performance import Performance
from tests.memory.scripted import (
    Dict,
    FaultyStore,
    ForeignMemory,
    Gated,
    Noting,
    call,
    config,
    everything,
    exchange,
    fail,
    filled,
    good_view,
    hang,
    kind_of,
    new_memory,
    nothing_lost,
    reached,
    result,
    turns,
    user,
)

NEAR = turns(4)
"""Some 1,700 tokens: within the budget of 2,000, and near it."""
MORE = turns(1, tag="u")
"""Some 400 tokens: with them it is over."""


class Scripted:
    """A remote summariser that does what it is told, call by call, and at last the last thing again."""

    remote = True

    def __init__(self, *acts: Callable[[], Awaitable[Any]]) -> None:
        self.acts = list(acts)
        self.calls = 0

    async def summarize(self, request: SummaryRequest) -> Summary:
        self.calls += 1
        act = self.acts.pop(0) if len(self.acts) > 1 else self.acts[0]
        answer: Summary = await act()
        return answer


async def rambles() -> Any:
    return Summary(text="- The work went on as planned and nothing else. " * 2_000)


async def answers() -> Any:
    return Summary(text="- The work went on as planned.")


def preparation(memory: CompressedMemory) -> Performance | None:
    return memory._runner._prepared


async def ended(memory: CompressedMemory) -> Performance:
    """Wait for the preparation to end."""
    prepared = preparation(memory)
    assert prepared is not None, "nothing is being prepared"
    await asyncio.wait({prepared.task})
    return prepared


async def settled() -> None:
    """Let everything happen that waits for nothing."""
    for _ in range(50):
        await asyncio.sleep(0)


async def preparing(
    summarizer: Gated, said: list[Dict] = NEAR, **arguments: Any
) -> tuple[CompressedMemory, list[Msg]]:
    """Return a memory that prepares an event, and its messages."""
    memory = new_memory(summarizer=summarizer, **arguments)
    added = await filled(memory, said)
    view = await good_view(memory)
    assert to_openai(view) == said
    prepared = preparation(memory)
    await reached(summarizer.asked, prepared.task)
    return memory, added


# The course of things


async def test_the_coming_event_is_prepared_while_the_agent_goes_on_and_committed_when_due() -> None:
    summarizer = Gated()
    events: list[CompressionEvent] = []
    memory, _ = await preparing(summarizer, on_event=events.append)
    summarizer.gate.set()
    await ended(memory)
    assert to_openai(await good_view(memory)) == NEAR, "the view stays still until the budget asks"
    assert (events, memory.stats().segments) == ([], 0)
    await filled(memory, MORE)
    view = await nothing_lost(memory, NEAR + MORE)
    assert len(summarizer.requests) == 1
    assert any(kind_of(msg) == "notes" for msg in view)
    (event,) = events
    assert (event.kind, event.reason) == ("compress", "over budget")
    assert event.tokens_before > memory.config.budget > event.tokens_after
    assert event.tokens_after == memory.stats().view_tokens
    assert (event.summary_input_tokens, event.summary_output_tokens) == (7, 3)
    assert event.message_ids
    assert event.refs == tuple(await memory.reachable_refs())


@pytest.mark.parametrize("ratio", [0.7, 0.8, 0.9])
async def test_preparation_begins_at_the_ratio(ratio: float) -> None:
    memory = new_memory(config(4_000, background_ratio=ratio), summarizer=Noting())
    for message in turns(9):
        await filled(memory, [message])
        await memory.get_memory()
        is_near = memory.stats().view_tokens >= ratio * memory.config.budget
        assert (preparation(memory) is not None) == is_near
    assert is_near


async def test_a_view_that_outgrows_the_preparation_waits_for_it_and_asks_no_second_time() -> None:
    summarizer = Gated()
    memory, _ = await preparing(summarizer)
    await filled(memory, MORE)
    reading = asyncio.create_task(memory.get_memory())
    await settled()
    assert not reading.done()
    summarizer.gate.set()
    await reading
    await nothing_lost(memory, NEAR + MORE)
    assert len(summarizer.requests) == 1


async def test_what_leaves_too_little_room_is_followed_by_an_event_in_line() -> None:
    summarizer = Gated()
    memory, _ = await preparing(summarizer)
    summarizer.gate.set()
    await ended(memory)
    more = turns(8, tag="v")
    await filled(memory, more)
    await nothing_lost(memory, NEAR + more)


async def test_a_large_arrival_is_compacted_without_waiting_for_the_preparation() -> None:
    summarizer = Gated()
    events: list[CompressionEvent] = []
    memory, _ = await preparing(summarizer, on_event=events.append)
    huge = exchange("huge", 60)
    await filled(memory, huge)
    await nothing_lost(memory, NEAR + huge)
    assert [event.reason for event in events] == ["arrival"]
    summarizer.gate.set()
    await ended(memory)
    await filled(memory, MORE)
    await nothing_lost(memory, NEAR + huge + MORE)
    assert len(summarizer.requests) == 1
    assert [event.kind for event in events] == ["compact", "compress"]


async def test_where_compacting_is_enough_nobody_waits_for_a_model() -> None:
    """A preparation that would be waited for gives way to an event that asks no model."""
    summarizer = Gated()
    settings = config(4_000, max_tool_message_tokens=300, arrival_ratio=1.0, target_ratio=0.95)
    events: list[CompressionEvent] = []
    memory = new_memory(settings, summarizer=summarizer, on_event=events.append)
    said = turns(8)
    await filled(memory, said)
    await good_view(memory)
    prepared = preparation(memory)
    await reached(summarizer.asked, prepared.task)
    large = [*exchange("large", 80), *turns(1, 1, tag="v")]
    await filled(memory, large)
    await nothing_lost(memory, said + large)
    assert prepared.task.cancelled()
    assert [event.kind for event in events] == ["compact"]
    await memory.aclose()


# When nothing is prepared


@pytest.mark.parametrize(
    ("fields", "summarizer"),
    [
        ({"background_ratio": None}, Noting()),
        ({"background_ratio": 1}, Noting()),
        ({"mode": "compact"}, Noting()),
        ({}, None),
        ({}, Noting(remote=False)),
        ({}, ExtractiveSummarizer()),
    ],
    ids=["no ratio", "a ratio of one", "compact", "rules", "local", "extracts"],
)
async def test_nothing_is_prepared_without_a_ratio_below_one_or_for_who_is_not_remote(
    fields: Dict, summarizer: Any
) -> None:
    memory = new_memory(config(**fields), summarizer=summarizer)
    for message in NEAR + MORE:
        assert not getattr(summarizer, "requests", None), "the view was within its budget"
        await filled(memory, [message])
        await memory.get_memory()
        assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_chain_with_a_remote_member_is_remote() -> None:
    summarizer = Gated()
    memory = new_memory(summarizer=FallbackSummarizer(summarizer, ExtractiveSummarizer()))
    await filled(memory, NEAR)
    await memory.get_memory()
    prepared = preparation(memory)
    await reached(summarizer.asked, prepared.task)
    await memory.aclose()


async def test_calls_that_keep_no_memory_prepare_nothing() -> None:
    summarizer = Noting()
    await acompress_messages(NEAR, config=config(), summarizer=summarizer)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert summarizer.requests == []


async def test_what_could_not_gain_is_planned_anew_only_after_growth(monkeypatch: pytest.MonkeyPatch) -> None:
    from context_compressor.memory import state

    planned: list[int] = []
    decide = state.decide

    def counting(items: Any, situation: Any) -> Any:
        planned.append(memory.stats().view_tokens)
        return decide(items, situation)

    monkeypatch.setattr(state, "decide", counting)
    memory = new_memory(config(keep_recent_count=100), summarizer=Noting())
    await filled(memory, NEAR)
    while memory.stats().view_tokens < 1_980:
        await filled(memory, [user(f"{len(planned)} and on")])
        await memory.get_memory()
    assert preparation(memory) is None
    assert len(planned) > 1
    assert all(later - sooner >= 100 for sooner, later in pairwise(planned))


# Edits


@pytest.mark.parametrize("is_ready", [False, True])
async def test_what_is_prepared_repeats_nothing_of_a_message_that_stayed_and_was_deleted(
    is_ready: bool,
) -> None:
    summarizer = Gated()
    memory, added = await preparing(summarizer)
    first = next(msg for msg in added if msg.role == "user")
    assert summarizer.requests[0].context[0].content == first.content
    if is_ready:
        summarizer.gate.set()
        await ended(memory)
    await memory.delete([first.id])
    summarizer.gate.set()
    await filled(memory, MORE + MORE)
    await good_view(memory)
    assert memory.stats().segments == 1
    assert all(first.content != msg.content for msg in summarizer.requests[-1].context)


async def test_hints_that_come_and_go_leave_the_preparation_standing() -> None:
    summarizer = Gated()
    memory, _ = await preparing(summarizer)
    for n in range(3):
        await memory.add(from_openai([user(f"hint {n}")]), marks="hint")
        await good_view(memory)
        await memory.delete_by_mark("hint")
        await good_view(memory)
    summarizer.gate.set()
    await ended(memory)
    await filled(memory, MORE)
    await nothing_lost(memory, NEAR + MORE)
    assert len(summarizer.requests) == 1


async def test_what_has_become_recent_is_not_taken_although_it_was_prepared() -> None:
    summarizer = Gated()
    memory, added = await preparing(summarizer)
    summarizer.gate.set()
    await ended(memory)
    await memory.delete([msg.id for msg in added[-4:]])
    assert preparation(memory) is None


async def test_a_message_changed_in_the_base_meanwhile_is_not_committed_as_it_was() -> None:
    summarizer = Gated()
    base = ForeignMemory()
    memory, _ = await preparing(summarizer, base=base)
    summarizer.gate.set()
    await ended(memory)
    base.pairs[4][0].content = "something else altogether"
    await filled(memory, MORE)
    view = await good_view(memory)
    assert "something else altogether" in await everything(memory, view)
    assert not any("ask-t1:" in stored for stored in memory.store.texts().values())


async def test_a_foreign_base_is_prepared_for_as_well() -> None:
    """Without a revision the view is built anew at every event, and what was prepared still fits it."""
    summarizer = Gated()
    memory, _ = await preparing(summarizer, base=ForeignMemory())
    summarizer.gate.set()
    await ended(memory)
    await filled(memory, MORE)
    await nothing_lost(memory, NEAR + MORE)
    assert len(summarizer.requests) == 1


async def test_a_state_loaded_near_the_budget_is_prepared_for() -> None:
    memory, _ = await preparing(Gated())
    memory.load_state_dict(memory.state_dict())
    assert to_openai(await memory.get_memory()) == NEAR
    assert preparation(memory) is not None
    await memory.aclose()


async def test_asking_for_compression_takes_the_place_of_the_preparation() -> None:
    summarizer = Gated()
    memory, _ = await preparing(summarizer)
    summarizer.gate.set()
    event = await memory.compress_now()
    assert event.reason == "asked for"
    assert preparation(memory) is None
    view = await nothing_lost(memory, NEAR)
    named = await everything(memory, view)
    assert all(ref in named for ref in await memory.store.refs())
    assert memory.stats().summarizer_calls == len(summarizer.requests) == 2


async def test_what_is_prepared_is_no_orphan() -> None:
    memory = new_memory(config(4_000, background_ratio=0.8), summarizer=Noting())
    for message in turns(60):
        await filled(memory, [message])
        await memory.get_memory()
        if memory.stats().segments and preparation(memory):
            break
    await ended(memory)
    stored = await memory.store.refs()
    assert set(stored) > set(await memory.reachable_refs())
    orphan = await memory.store.write("an orphan")
    assert await memory.remove_orphans() == [orphan]
    assert await memory.store.refs() == stored


async def test_what_is_stored_for_a_coming_event_is_not_removed_meanwhile() -> None:
    summarizer = Gated()
    memory, _ = await preparing(summarizer)
    summarizer.gate.set()
    await ended(memory)
    await memory.add(from_openai([user("a hint")]), marks="hint")
    await memory.get_memory()
    # As when an earlier edit named the same text, and its message is deleted now.
    stored = await memory.store.refs()
    memory._tracker.state.ledger.give_up(stored)
    await memory.delete_by_mark("hint")
    assert await memory.store.refs() == stored
    await filled(memory, MORE)
    await nothing_lost(memory, NEAR + MORE)
    for ref in await memory.reachable_refs():
        assert await memory.store.read(ref)


async def test_nothing_is_prepared_while_texts_are_removed() -> None:
    """What is being removed could be what would be stored."""
    deleting, gate = asyncio.Event(), asyncio.Event()

    async def wait_for_the_gate() -> None:
        deleting.set()
        await gate.wait()

    def slow_to_delete(operation: str, number: int) -> Any:
        return wait_for_the_gate() if operation == "delete" else None

    summarizer = Gated()
    memory = new_memory(store=FaultyStore(slow_to_delete), summarizer=summarizer)
    added = await filled(memory, [*NEAR, user("last")])
    memory._tracker.state.ledger.give_up(["ctx://0123456789abcdef"])
    removing = asyncio.create_task(memory.delete([added[-1].id]))
    await reached(deleting, removing)
    await good_view(memory)
    assert preparation(memory) is None
    gate.set()
    await removing
    await filled(memory, [user("more")])
    await good_view(memory)
    assert preparation(memory) is not None
    await memory.aclose()


# Cancellation, closing, loops


async def test_a_cancelled_reader_leaves_the_preparation_going() -> None:
    summarizer = Gated()
    memory, _ = await preparing(summarizer)
    await filled(memory, MORE)
    reading = asyncio.create_task(memory.get_memory())
    await settled()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert memory.stats().segments == 0
    prepared = preparation(memory)
    assert not prepared.task.done()
    summarizer.gate.set()
    await nothing_lost(memory, NEAR + MORE)
    assert len(summarizer.requests) == 1


async def test_closing_ends_the_preparation_and_removes_what_it_stored() -> None:
    summarizer = Gated()
    async with new_memory(summarizer=summarizer) as memory:
        await filled(memory, NEAR)
        await memory.get_memory()
        prepared = preparation(memory)
        await reached(summarizer.asked, prepared.task)
        assert await memory.store.refs() != []
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert await memory.store.refs() == []
    summarizer.gate.set()
    await filled(memory, MORE)
    await nothing_lost(memory, NEAR + MORE)


async def test_closing_that_is_cancelled_closes_the_summariser_all_the_same() -> None:
    class Closing(Gated):
        is_closed = False

        async def aclose(self) -> None:
            self.is_closed = True

    removing, gate = asyncio.Event(), asyncio.Event()

    async def remove(operation: str) -> None:
        if operation == "delete":
            removing.set()
            await gate.wait()

    summarizer = Closing()
    store = FaultyStore(lambda operation, _: remove(operation))
    memory = new_memory(summarizer=summarizer, store=store)
    await filled(memory, NEAR)
    await memory.get_memory()
    await summarizer.asked.wait()
    closing = asyncio.create_task(memory.aclose())  # what was stored for the coming event is to go
    await reached(removing, closing)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert summarizer.is_closed
    gate.set()
    await memory.aclose()
    assert await memory.store.refs() == []


async def test_a_summariser_that_ignores_its_cancellation_does_not_hold_up_closing() -> None:
    released = asyncio.Event()

    async def stays() -> Any:
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue
        return await answers()

    memory = new_memory(summarizer=Scripted(stays))
    await filled(memory, NEAR)
    await memory.get_memory()
    await settled()
    await memory.aclose()
    assert await memory.store.refs() == []
    released.set()
    await settled()
    assert asyncio.all_tasks() == {asyncio.current_task()}


def test_a_preparation_of_a_loop_that_is_gone_is_dropped_quietly(caplog: pytest.LogCaptureFixture) -> None:
    summarizer = Gated()
    memory = new_memory(summarizer=summarizer)

    async def begin() -> None:
        summarizer.asked, summarizer.gate = asyncio.Event(), asyncio.Event()
        await filled(memory, NEAR)
        await memory.get_memory()
        prepared = preparation(memory)
        await reached(summarizer.asked, prepared.task)

    async def go_on() -> None:
        summarizer.asked, summarizer.gate = asyncio.Event(), asyncio.Event()
        summarizer.gate.set()
        await filled(memory, MORE)
        view = await nothing_lost(memory, NEAR + MORE)
        named = await everything(memory, view)
        assert all(ref in named for ref in await memory.store.refs())

    gc.collect()  # what other tests left is told of now
    caplog.clear()
    with caplog.at_level(logging.WARNING, "asyncio"):
        asyncio.run(begin())
        asyncio.run(go_on())
        gc.collect()
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []


def test_what_is_ready_is_committed_in_another_loop() -> None:
    summarizer = Noting()
    memory = new_memory(summarizer=summarizer)

    async def begin() -> None:
        await filled(memory, NEAR)
        await memory.get_memory()
        await ended(memory)

    async def go_on() -> None:
        await filled(memory, MORE)
        await nothing_lost(memory, NEAR + MORE)

    asyncio.run(begin())
    asyncio.run(go_on())
    assert len(summarizer.requests) == 1


def test_a_preparation_of_a_loop_that_stands_still_is_cancelled_in_it() -> None:
    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    summarizer = Gated()
    memory, _ = first.run_until_complete(preparing(summarizer))
    prepared = preparation(memory)
    assert prepared is not None

    async def go_on() -> None:
        summarizer.asked, summarizer.gate = asyncio.Event(), asyncio.Event()
        summarizer.gate.set()
        await filled(memory, MORE)
        await nothing_lost(memory, NEAR + MORE)
        await memory.aclose()

    second.run_until_complete(go_on())
    first.run_until_complete(asyncio.wait({prepared.task}))
    assert prepared.task.cancelled()
    assert asyncio.all_tasks(first) == asyncio.all_tasks(second) == set()
    first.close()
    second.close()


def test_a_loop_that_ends_without_closing_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def use(wait: bool) -> None:
        summarizer = Gated()
        memory = new_memory(summarizer=summarizer)
        await filled(memory, NEAR)
        await memory.get_memory()
        prepared = preparation(memory)
        if wait:
            await reached(summarizer.asked, prepared.task)

    gc.collect()  # what other tests left is told of now
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        for wait in (True, False):
            asyncio.run(use(wait))
            gc.collect()
    assert caplog.records == []


def test_it_works_under_anyio() -> None:
    summarizer = Gated()

    async def use() -> None:
        summarizer.asked, summarizer.gate = asyncio.Event(), asyncio.Event()
        async with new_memory(summarizer=summarizer) as memory:
            await filled(memory, NEAR)
            await memory.get_memory()
            await summarizer.asked.wait()
            await filled(memory, MORE)
            async with anyio.create_task_group() as group:
                group.start_soon(memory.get_memory)
                await settled()
                group.cancel_scope.cancel()
            async with anyio.create_task_group() as group:
                group.start_soon(memory.get_memory)
                await settled()
                summarizer.gate.set()
            await nothing_lost(memory, NEAR + MORE)
            assert len(summarizer.requests) == 1
            more = turns(2, tag="v")
            await filled(memory, more)
            await memory.get_memory()
            assert preparation(memory) is not None
        assert len(asyncio.all_tasks()) == 1

    anyio.run(use, backend="asyncio")


async def test_a_memory_is_let_go_of_once_its_preparation_has_ended() -> None:
    summarizer = Gated()
    memory, _ = await preparing(summarizer)
    prepared = preparation(memory)
    task, gone = prepared.task, weakref.ref(memory)
    del memory, prepared
    summarizer.gate.set()
    await asyncio.wait({task})
    del task
    gc.collect()
    assert gone() is None


# Saving


async def test_a_state_saved_meanwhile_holds_nothing_of_it_and_loses_nothing() -> None:
    summarizer = Gated()
    memory, _ = await preparing(summarizer)
    state = json.loads(json.dumps(memory.state_dict()))
    assert state["compression"]["ledger"]["entries"] == []
    assert await memory.store.refs() != []
    again = new_memory(store=memory.store)
    again.load_state_dict(state)
    assert to_openai(await good_view(again)) == NEAR
    assert await memory.store.refs() == [], "what nobody will name is removed"
    await filled(again, MORE)
    await nothing_lost(again, NEAR + MORE)
    await memory.aclose()


async def test_a_state_saved_after_the_commit_brings_the_summary_back_unpaid() -> None:
    summarizer = Noting()
    memory = new_memory(summarizer=summarizer)
    await filled(memory, NEAR)
    await memory.get_memory()
    await ended(memory)
    await filled(memory, MORE)
    view = await good_view(memory)
    again = new_memory(store=memory.store, summarizer=summarizer)
    again.load_state_dict(json.loads(json.dumps(memory.state_dict())))
    assert [msg.to_dict() for msg in await again.get_memory()] == [msg.to_dict() for msg in view]
    assert len(summarizer.requests) == 1


# Failures


@pytest.mark.parametrize("act", [fail, hang, rambles])
async def test_a_summariser_that_misbehaves_in_the_background_costs_no_message(
    act: Callable[[], Awaitable[Any]],
) -> None:
    events: list[CompressionEvent] = []
    settings = config(summarizer_timeout_seconds=0.01 if act is hang else 60)
    memory = new_memory(settings, summarizer=Scripted(act), on_event=events.append)
    await filled(memory, NEAR)
    await memory.get_memory()
    await ended(memory)
    assert events == []
    await filled(memory, MORE)
    view = await nothing_lost(memory, NEAR + MORE)
    assert any(kind_of(msg) == "notes" for msg in view)
    kinds = [event.kind for event in events]
    assert kinds == (["compress"] if act is rambles else ["failure", "compress"])


async def test_on_failure_raise_raises_in_line_and_not_out_of_nowhere() -> None:
    events: list[CompressionEvent] = []
    summarizer = Scripted(fail)
    memory = new_memory(config(on_failure="raise"), summarizer=summarizer, on_event=events.append)
    await filled(memory, NEAR)
    assert to_openai(await memory.get_memory()) == NEAR
    await ended(memory)
    late = [user("and on")]
    await filled(memory, late)
    assert to_openai(await memory.get_memory()) == NEAR + late
    assert await memory.store.refs() == []
    await filled(memory, MORE)
    with pytest.raises(SummarizerError, match="no route to model"):
        await memory.get_memory()
    assert [event.kind for event in events] == ["failure"]
    assert "no route to model" in (events[0].error or "")
    summarizer.acts = [answers]
    await nothing_lost(memory, NEAR + late + MORE)


async def test_a_failed_preparation_is_made_up_for_in_line() -> None:
    events: list[CompressionEvent] = []
    memory = new_memory(
        config(on_failure="raise"), summarizer=Scripted(fail, answers), on_event=events.append
    )
    await filled(memory, NEAR)
    await memory.get_memory()
    await ended(memory)
    await filled(memory, MORE)
    view = await nothing_lost(memory, NEAR + MORE)
    assert [event.kind for event in events] == ["failure", "compress"]
    named = await everything(memory, view)
    assert all(ref in named for ref in await memory.store.refs())


async def test_a_redaction_that_fails_is_raised_where_it_is_due() -> None:
    def redact(said: str) -> str:
        raise ValueError("no such pattern")

    memory = new_memory(config(redact=redact), summarizer=Noting())
    await filled(memory, NEAR)
    await memory.get_memory()
    await ended(memory)
    await memory.get_memory()
    await filled(memory, MORE)
    with pytest.raises(RedactionError):
        await memory.get_memory()


async def test_a_store_that_refuses_in_the_background_leaves_the_text_pending() -> None:
    def refuse_first(operation: str, number: int) -> Any:
        if operation == "write" and number == 1:
            raise OSError(28, "No space left on device")

    events: list[CompressionEvent] = []
    memory = new_memory(store=FaultyStore(refuse_first), summarizer=Noting(), on_event=events.append)
    await filled(memory, NEAR)
    await memory.get_memory()
    await ended(memory)
    await filled(memory, MORE)
    await nothing_lost(memory, NEAR + MORE)
    assert [event.kind for event in events] == ["failure", "compress"]
    assert memory.state_dict()["compression"]["ledger"]["pending"] != []
    await memory.compress_now()
    assert memory.state_dict()["compression"]["ledger"]["pending"] == []
    for ref in await memory.reachable_refs():
        assert await memory.store.read(ref)


async def test_what_was_stored_in_vain_is_removed_once_the_event_is_committed() -> None:
    """A stub is known to be smaller only when its text is stored: arguments are estimated by characters."""
    settings = config(max_tool_message_tokens=100, preview_tokens=99, background_ratio=0.6)
    memory = new_memory(settings, summarizer=Noting())
    arguments = json.dumps({"dense": "你好，世界。" * 67, "blank": " " * 402}, ensure_ascii=False)
    await filled(memory, [user("go"), call("a", arguments=arguments), result("a", "done"), *turns(3)])
    await good_view(memory)
    prepared = await ended(memory)
    assert prepared.done.blocked
    await filled(memory, turns(2, tag="u"))
    await good_view(memory)
    assert await memory.store.refs() == sorted(await memory.reachable_refs())


async def test_a_late_write_of_a_cancelled_preparation_is_removed() -> None:
    class SlowToAnswer(InMemoryOffloadStore):
        def __init__(self) -> None:
            super().__init__()
            self.written = asyncio.Event()

        async def write(self, text: str) -> str:
            ref = await super().write(text)
            self.written.set()
            await asyncio.Event().wait()
            return ref

    store = SlowToAnswer()
    memory = new_memory(store=store, summarizer=Noting())
    added = await filled(memory, NEAR)
    await memory.get_memory()
    prepared = preparation(memory)
    await reached(store.written, prepared.task)
    await memory.delete([added[4].id])
    assert await store.refs() == []


# Accounts


async def test_calls_are_counted_when_they_are_paid_for_whatever_comes_of_them() -> None:
    summarizer = Gated()
    memory, added = await preparing(summarizer)
    assert memory.stats().summarizer_calls == 0
    await memory.delete([added[4].id])
    assert memory.stats().summarizer_calls == 1, "dropped, and paid for"
    summarizer.gate.set()
    await filled(memory, MORE + MORE)
    await good_view(memory)
    stats = memory.stats()
    assert stats.summarizer_calls == len(summarizer.requests) == 2
    assert (stats.summarizer_input_tokens, stats.summarizer_output_tokens) == (7, 3)


@pytest.mark.parametrize("ratio", [None, 0.8], ids=["in line", "in the background"])
async def test_what_a_refused_answer_cost_is_counted(ratio: float | None) -> None:
    class Assenting:
        remote = True

        async def summarize(self, request: SummaryRequest) -> Summary:
            return Summary("OK", 1_000, 10)

    events: list[CompressionEvent] = []
    memory = new_memory(config(background_ratio=ratio), summarizer=Assenting(), on_event=events.append)
    await filled(memory, [user("go"), *turns(12)])
    await good_view(memory)
    stats = memory.stats()
    assert stats.segments > 0
    assert stats.summarizer_calls > 0
    assert stats.summarizer_input_tokens == 1_000 * stats.summarizer_calls
    assert stats.summarizer_output_tokens == 10 * stats.summarizer_calls
    assert sum(event.summary_input_tokens for event in events) >= 1_000 * stats.summarizer_calls
    await memory.aclose()
    assert stats.summarizer_seconds > 0


async def test_hooks_are_called_by_the_call_that_commits() -> None:
    callers: list[Any] = []

    async def note(event: CompressionEvent) -> None:
        callers.append(asyncio.current_task())

    memory = new_memory(summarizer=Scripted(fail), on_event=note)
    await filled(memory, NEAR)
    await memory.get_memory()
    await ended(memory)
    await filled(memory, MORE)
    await memory.get_memory()
    assert callers == [asyncio.current_task()] * 2


async def test_a_summary_that_is_due_survives_whoever_gives_up_waiting() -> None:
    """A web framework cancels its handler; the next request gets the summary, which is paid for once."""
    summarizer = Gated()
    memory = new_memory(summarizer=summarizer)
    await filled(memory, turns(12))
    for _ in range(3):
        reading = asyncio.create_task(memory.get_memory())
        await reached(summarizer.asked, reading)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
    summarizer.gate.set()
    await good_view(memory)
    assert len(summarizer.requests) == 1
    assert memory.stats().segments == 1
    await memory.aclose()
