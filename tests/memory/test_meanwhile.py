"""What changes while an event is made: in line, in a task, waited for or ready. One table for all of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from context_compressor import CompressedMemory, Msg, from_openai, to_openai
from tests.memory.scripted import (
    Gated,
    config,
    covered_ids,
    filled,
    good_view,
    kind_of,
    new_memory,
    nothing_lost,
    reached,
    turns,
    user,
)

NEAR, MORE = turns(4), turns(2, tag="u")
"""Near the budget of 2,000 tokens, and what is over it then."""
LATE = [user(f"late {n}") for n in range(30)]
OTHER = [user("another conversation")]


async def add(memory: CompressedMemory, added: list[Msg]) -> list[Any]:
    for message in LATE:
        await memory.add(from_openai([message]))
    return NEAR + MORE + LATE


async def delete(memory: CompressedMemory, added: list[Msg]) -> list[Any]:
    assert await memory.delete([added[4].id]) == 1
    return NEAR[:4] + NEAR[5:] + MORE


async def pin(memory: CompressedMemory, added: list[Msg]) -> list[Any]:
    await memory.update_messages_mark("pinned", msg_ids=[added[4].id])
    return NEAR + MORE


async def clear(memory: CompressedMemory, added: list[Msg]) -> list[Any]:
    await memory.clear()
    return []


async def load(memory: CompressedMemory, added: list[Msg]) -> list[Any]:
    other = new_memory()
    await filled(other, OTHER)
    memory.load_state_dict(other.state_dict())
    return list(OTHER)


async def read_again(memory: CompressedMemory, added: list[Msg]) -> list[Any]:
    reading = asyncio.create_task(memory.get_memory())
    for _ in range(5):
        await asyncio.sleep(0)
    reading.cancel()  # it would wait as well
    return NEAR + MORE


@pytest.mark.parametrize("change", [add, delete, pin, clear, load, read_again])
@pytest.mark.parametrize("how", ["in line", "kept", "ahead", "waited for", "ready"])
async def test_the_next_view_is_of_what_is_there_then(how: str, change: Any) -> None:
    summarizer = Gated()
    ratio = {"in line": None}.get(how, 0.8)
    memory = new_memory(config(background_ratio=ratio), summarizer=summarizer)
    is_ahead = how in ("ahead", "waited for", "ready")
    added = await filled(memory, NEAR if is_ahead else NEAR + MORE)
    reading = asyncio.create_task(memory.get_memory())
    await reached(summarizer.asked, reading)
    if is_ahead:
        assert to_openai(await reading) == NEAR
        if how == "ready":
            summarizer.gate.set()
            await memory._runner._prepared.ended()
        added += await filled(memory, MORE)
        if how == "waited for":
            reading = asyncio.create_task(memory.get_memory())
            for _ in range(50):
                await asyncio.sleep(0)
    assert reading.done() == (how in ("ahead", "ready"))
    said = await change(memory, added)
    summarizer.gate.set()
    await reading
    view = await nothing_lost(memory, said)
    if change in (add, read_again):  # whatever is prepared or written holds
        assert len(summarizer.requests) == 1 or change is add
        assert any(kind_of(msg) == "notes" for msg in view)
    elif change is pin:
        assert NEAR[4] in to_openai(view)
    else:
        assert added[4].id not in {*covered_ids(view), *(msg.id for msg in view)}
        assert not any("ask-t1:" in stored for stored in memory.store.texts().values())
    await memory.aclose()
    assert set(await memory.store.refs()) == set(await memory.reachable_refs())
    assert await good_view(memory) == view


@pytest.mark.parametrize("ratio", [None, 0.8], ids=["in line", "kept"])
async def test_two_readers_pay_for_one_summary(ratio: float | None) -> None:
    summarizer = Gated()
    memory = new_memory(config(background_ratio=ratio), summarizer=summarizer)
    await filled(memory, NEAR + MORE)
    readers = [asyncio.create_task(memory.get_memory()) for _ in range(2)]
    await reached(summarizer.asked, *readers)
    for _ in range(5):
        await asyncio.sleep(0)
    summarizer.gate.set()
    first, second = await asyncio.gather(*readers)
    assert to_openai(first) == to_openai(second)
    assert len(summarizer.requests) == 1
