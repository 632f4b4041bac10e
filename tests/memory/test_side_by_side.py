"""Several tasks over one memory: what one of them is handed never depends on where another one waits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from context_compressor import CompressedMemory, CompressionEvent, InMemoryMemory, Msg, from_openai, to_openai
from context_compressor.errors import InvalidArgumentError, InvalidStateError
from context_compressor.messages.exchanges import ExchangeBuilder
from context_compressor.offload import stubs
from context_compressor.offload.previews import making
from context_compressor.summarizers import writers
from context_compressor.tokens import off_loop
from context_compressor.tokens.counter import MessageTokens
from tests.memory.scripted import (
    COUNTER,
    FaultyStore,
    ForeignMemory,
    Gated,
    GatedBase,
    config,
    exchange,
    filled,
    new_memory,
    reached,
    text,
    turns,
    user,
)

BUDGET = config().budget


async def test_what_others_add_while_events_are_delivered_is_not_in_a_view_over_budget() -> None:
    delivering, going_on = asyncio.Event(), asyncio.Event()

    async def deliver(_: CompressionEvent) -> None:
        delivering.set()
        await going_on.wait()

    memory = new_memory(on_event=deliver)
    await filled(memory, turns(8))
    first = asyncio.create_task(memory.get_memory())
    await reached(delivering, first)
    await memory.add(from_openai([user(text("late", 150))]))
    second = asyncio.create_task(memory.get_memory())  # takes it into the view, and makes room for it
    await asyncio.sleep(0)
    going_on.set()
    for view in await asyncio.gather(first, second):
        assert COUNTER.count_messages(view) <= BUDGET


async def test_a_view_without_a_mark_is_within_budget_whoever_adds_while_the_mark_is_looked_up() -> None:
    base = GatedBase()
    memory = new_memory(base=base)
    await filled(memory, turns(3))
    await memory.get_memory()
    base.stops = {"get_memory"}
    reading = asyncio.create_task(memory.get_memory(exclude_mark="nobody bears it"))
    await reached(base.reached, reading)
    adding = asyncio.create_task(memory.add(from_openai(turns(8, tag="late"))))
    base.stops = set()
    base.gate.set()
    view, _ = await asyncio.gather(reading, adding)
    assert COUNTER.count_messages(view) <= BUDGET
    assert COUNTER.count_messages(await memory.get_memory(exclude_mark="nobody bears it")) <= BUDGET


async def test_large_results_that_keep_arriving_are_no_overflow() -> None:
    arrived = 0

    async def arrive(operation: str) -> None:
        nonlocal arrived
        if operation == "write" and arrived < 30:
            arrived += 1
            await memory.add(from_openai(exchange(f"late{arrived}", 80)))

    memory = new_memory(config(4_000), store=FaultyStore(lambda operation, _: arrive(operation)))
    await filled(memory, exchange("first", 200))
    while arrived < 30:
        assert COUNTER.count_messages(await memory.get_memory()) <= 4_000
    assert COUNTER.count_messages(await memory.get_memory()) <= 4_000


@pytest.mark.parametrize("change", ["mark", "hint"])
async def test_a_summary_under_way_outlasts_changes_that_do_not_concern_it(change: str) -> None:
    summarizer = Gated()
    memory = new_memory(config(background_ratio=None), summarizer=summarizer)
    added = await filled(memory, turns(8))
    reading = asyncio.create_task(memory.get_memory())
    await reached(summarizer.asked, reading)
    if change == "mark":
        await memory.update_messages_mark("seen", msg_ids=[added[-1].id])
    else:
        (hint,) = from_openai([user("a hint")])
        await memory.add([hint], marks="hint")
        await memory.delete([hint.id])
    summarizer.gate.set()
    assert COUNTER.count_messages(await reading) <= BUDGET
    assert len(summarizer.requests) == 1
    assert memory.stats().segments == 1


@pytest.mark.parametrize("background_ratio", [None, 0.8])
async def test_what_others_pin_while_a_summary_is_written_stays_in_the_view(
    background_ratio: float | None,
) -> None:
    summarizer = Gated()
    memory = new_memory(config(background_ratio=background_ratio), summarizer=summarizer)
    added = await filled(memory, turns(8))
    reading = asyncio.create_task(memory.get_memory())
    await reached(summarizer.asked, reading)
    await memory.base.update_messages_mark("pinned", msg_ids=[added[4].id])
    await filled(memory, [user("a word")])  # notices what changed
    summarizer.gate.set()
    assert added[4].id in [msg.id for msg in await reading]
    assert added[4].id in [msg.id for msg in await memory.get_memory()]


async def test_marks_that_decide_nothing_are_not_read_at_every_event() -> None:
    class Counting(ForeignMemory):
        reads = 0

        async def get_memory(self, *args: Any, **kwargs: Any) -> Any:
            self.reads += 1
            return await super().get_memory(*args, **kwargs)

    reads = []
    for marks in (0, 40):
        base = Counting()
        memory = new_memory(base=base)
        added = await filled(memory, turns(8))
        for number in range(marks):
            await memory.update_messages_mark(f"turn-{number}", msg_ids=[added[number % 8].id])
        base.reads = 0
        await memory.get_memory()
        reads.append(base.reads)
    assert reads[0] == reads[1]


async def test_a_state_loaded_while_a_message_is_added_is_what_the_next_view_shows() -> None:
    other = new_memory()
    await filled(other, [user("another"), user("conversation")])
    base = GatedBase()
    memory = new_memory(base=base)
    await filled(memory, [user("a message")])
    await memory.get_memory()
    base.stops = {"add"}
    adding = asyncio.create_task(memory.add(from_openai([user("one more")])))
    await reached(base.reached, adding)
    memory.load_state_dict(other.state_dict())
    base.stops = set()
    base.gate.set()
    await adding
    view = to_openai(await memory.get_memory())
    assert (
        view
        == to_openai(await memory.get_history())
        == [user("another"), user("conversation"), user("one more")]
    )


async def test_a_state_loaded_while_messages_are_counted_is_what_that_view_shows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counting, going_on = threading.Event(), threading.Event()
    real = COUNTER.measure

    def measure(msg: Msg) -> MessageTokens:
        counting.set()
        going_on.wait()
        return real(msg)

    other = new_memory()
    await filled(other, [user("another conversation")])
    base = InMemoryMemory()
    await base.add(from_openai([user(text("long", 3_000))]))  # is counted in a thread
    memory = new_memory(config(200_000), base=base)
    monkeypatch.setattr(COUNTER, "measure", measure)
    reading = asyncio.create_task(memory.get_memory())
    await asyncio.to_thread(counting.wait)
    memory.load_state_dict(other.state_dict())
    going_on.set()
    assert to_openai(await reading) == [user("another conversation")]


def test_a_compressed_memory_is_no_base_memory() -> None:
    with pytest.raises(InvalidArgumentError, match="compressed already; give its base"):
        CompressedMemory(new_memory())


async def test_a_state_that_names_a_message_twice_is_refused() -> None:
    memory = new_memory()
    await filled(memory, turns(8))
    await memory.get_memory()
    state = memory.state_dict()
    segment = next(entry for entry in state["compression"]["ledger"]["entries"] if entry.get("items"))
    segment["items"].append(segment["items"][0])
    with pytest.raises(InvalidStateError, match="comes twice"):
        new_memory().load_state_dict(state)


@pytest.mark.parametrize("field", ["limit", "refused"])
async def test_a_state_in_which_nothing_fits_is_refused(field: str) -> None:
    memory = new_memory()
    await filled(memory, turns(8))
    await memory.get_memory()
    memory.record_usage(1_500)
    state = memory.state_dict()
    state["compression"]["calibration"]["learnt"][field] = 0
    with pytest.raises(InvalidStateError, match=field):
        new_memory().load_state_dict(state)


async def deleted(memory: CompressedMemory, id: str) -> CompressedMemory:
    await memory.delete([id])
    return memory


async def pinned(memory: CompressedMemory, id: str) -> CompressedMemory:
    await memory.update_messages_mark("pinned", msg_ids=[id])
    return memory


async def resumed(memory: CompressedMemory, _: str) -> CompressedMemory:
    again = new_memory(store=memory.store)
    again.load_state_dict(memory.state_dict())
    await again.get_memory()
    return again


@pytest.mark.parametrize("change", [deleted, pinned, resumed])
async def test_a_long_history_is_read_anew_beside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[CompressedMemory, str], Awaitable[CompressedMemory]]
) -> None:
    """Pairing tens of thousands of messages takes seconds, in which no other session would be served."""
    memory = new_memory()
    added = await filled(memory, turns(30))
    await memory.get_memory()
    read, feed = list[bool](), ExchangeBuilder.feed

    def fed(builder: ExchangeBuilder, *args: Any) -> Any:
        read.append(threading.current_thread() is threading.main_thread())
        return feed(builder, *args)

    monkeypatch.setattr(off_loop, "OFF_LOOP_CHARACTERS", 0)
    monkeypatch.setattr(ExchangeBuilder, "feed", fed)
    changed = await change(memory, added[4].id)
    assert len(read) >= len(added) - 1
    assert not any(read)
    monkeypatch.undo()
    again = await resumed(changed, "")
    assert to_openai(await again.get_memory()) == to_openai(await changed.get_memory())


@pytest.mark.parametrize(("lines", "is_on_loop"), [(400, False), (30, True)])
async def test_rules_read_what_leaves_beside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch, lines: int, is_on_loop: bool
) -> None:
    """To summarise a few pages takes tens of milliseconds; small texts are not worth a hop."""
    read: list[bool] = []
    real = writers.candidates_of

    def watched(*args: Any, **kwargs: Any) -> Any:
        read.append(threading.current_thread() is threading.main_thread())
        return real(*args, **kwargs)

    monkeypatch.setattr(writers, "candidates_of", watched)
    memory = new_memory(config(64_000, mode="compress"))
    await filled(memory, [user("look"), *exchange("a", lines), *exchange("b", lines), *exchange("c", 1)])
    assert await memory.compress_now()
    assert read == [is_on_loop]


async def test_a_preview_is_made_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes some 5 to 15 ms."""
    made, real = list[bool](), making.preview

    def watched(*args: Any, **kwargs: Any) -> str:
        made.append(threading.current_thread() is threading.main_thread())
        return real(*args, **kwargs)

    monkeypatch.setattr(stubs, "preview", watched)
    memory = new_memory(config(8_000))
    await filled(memory, [user("look"), *exchange("a", 400)])
    await memory.get_memory()
    assert made
    assert not any(made)
