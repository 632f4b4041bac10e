"""A history that fails, hangs or is written by somebody else, at each of its calls in turn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest

from context_compressor import (
    CompressedMemory,
    CompressionEvent,
    InMemoryMemory,
    InMemoryOffloadStore,
    Summary,
    SummaryRequest,
    from_openai,
    to_openai,
)
from context_compressor.core.edits import name_of
from context_compressor.memory.history import Change, History, ListHistory
from context_compressor.memory.wrapped import MemoryHistory
from tests.memory.on_disk import FileHistory
from tests.memory.scripted import (
    COUNTER,
    ScriptedHistory,
    call,
    config,
    everything,
    exchange,
    good_view,
    result,
    strings,
    system,
    text,
    turns,
    user,
)

pytestmark = pytest.mark.variants(3)


class Short:
    """A summariser that says little, at once."""

    remote = False

    async def summarize(self, request: SummaryRequest) -> Summary:
        return Summary(text="## Work\n- It went on as planned; see the transcript for what was said.")


def steps(memory: CompressedMemory) -> list[Callable[[], Awaitable[Any]]]:
    """Return what an agent does: each step may be done again."""
    begin = from_openai([system("be brief"), *turns(2), *exchange("large", 120)])
    more = from_openai([call("open"), user("never mind"), *turns(2, tag="u")])
    late = from_openai([result("open", text("late", 3)), *turns(2, tag="v")])
    last = from_openai(turns(1, tag="w"))
    hint = from_openai([user("a hint")])
    return [
        lambda: memory.add(begin),
        memory.get_memory,
        lambda: memory.update_compressed_summary("so far"),
        lambda: memory.add(hint, marks="hint"),
        lambda: memory.add(more),
        memory.get_memory,
        lambda: memory.update_messages_mark("pinned", msg_ids=[begin[2].id]),
        lambda: memory.delete_by_mark("hint"),
        lambda: memory.add(late),
        memory.get_memory,
        lambda: memory.add(more[-2:], marks="pinned"),
        lambda: memory.delete([begin[1].id, late[1].id]),
        memory.get_memory,
        lambda: memory.update_messages_mark(None, "pinned"),
        memory.compress_now,
        memory.clear,
        lambda: memory.add([*last, *begin]),
        memory.get_memory,
    ]


def new_memory(history: History) -> CompressedMemory:
    return CompressedMemory(history, config(), InMemoryOffloadStore(), Short(), COUNTER)


async def check(memory: CompressedMemory, history: ScriptedHistory) -> None:
    """Check that the view keeps the laws, and that memory, history and store agree on the ledger."""
    history.is_quiet = True
    view = await good_view(memory)
    reachable = await everything(memory, view)
    state = memory._tracker.state
    for entry in await history.read():
        if entry.msg is not None and entry.key not in state.withheld:
            missing = [said for said in strings(entry.msg.content) if said not in reachable]
            assert all(len(said) < 20 for said in missing), "lost"  # ids and names of blocks
    told = await history.ledger()
    assert state.ledger.edits() == {name_of(edit): edit for entry in told for edit in entry.edits}
    if learnt := [entry.learnt for entry in told if entry.learnt]:
        assert {key: learnt[-1][key] for key in ("pending", "decisions")} == state.ledger.learnt()
    stored, named = set(await memory.store.refs()), set(state.ledger.refs())
    assert named <= stored
    assert stored - named <= state.ledger.unwanted  # a removal that was cancelled is for the next call
    history.is_quiet = False


async def play(history: ScriptedHistory) -> None:
    """Do all steps; one that fails or hangs is done again, after a check of all laws."""
    memory = new_memory(history)
    for step in steps(memory):
        task = asyncio.ensure_future(step())
        hung = asyncio.create_task(history.hung.wait())
        await asyncio.wait({task, hung}, return_when=asyncio.FIRST_COMPLETED)
        hung.cancel()
        if history.hung.is_set():
            history.hung.clear()
            task.cancel()
            await asyncio.wait({task})
        elif task.exception() is None:
            continue
        else:
            assert isinstance(task.exception(), ConnectionError)
        await check(memory, history)
        await step()
    await check(memory, history)
    if not isinstance(history.inner, MemoryHistory):  # which is for one writer
        history.is_quiet = True
        view = await new_memory(history.inner).get_memory()
        assert to_openai(view) == to_openai(await memory.get_memory())
    await memory.aclose()
    assert set(await memory.store.refs()) == set(memory._tracker.state.ledger.refs())


def wrapped() -> MemoryHistory:
    return MemoryHistory(InMemoryMemory())


HOW = ("fail", "fail late", "hang", "hang late", "somebody writes")


@pytest.mark.parametrize(
    ("new", "how"),
    [*((ListHistory, how) for how in HOW), (FileHistory, HOW[-1]), (wrapped, HOW[1]), (wrapped, HOW[2])],
)
async def test_all_goes_on_whatever_becomes_of_a_call(new: Callable[[], History], how: str) -> None:
    smooth = ScriptedHistory(new())
    await play(smooth)
    for number in range(1, len(smooth.calls) + 1):
        await play(ScriptedHistory(new(), {number: how}))


@pytest.mark.parametrize("how", ["fail", "fail late"])
@pytest.mark.parametrize("number", range(1, 9))
async def test_what_was_pinned_returns_to_the_view_where_a_later_call_failed(number: int, how: str) -> None:
    history = ScriptedHistory(ListHistory())
    memory = new_memory(history)
    added = from_openai(turns(8))
    await memory.add(added)
    await memory.get_memory()
    history.faults = {len(history.calls) + number: how}
    with suppress(ConnectionError):
        await memory.update_messages_mark("pinned", msg_ids=[added[4].id])
    history.faults = {}
    is_pinned = bool(await history.read(mark="pinned"))
    assert (added[4].id in [msg.id for msg in await memory.get_memory()]) == is_pinned
    await check(memory, history)


class Full(ListHistory):
    """A history that is full, or can be read only, for a while; so it gives no leases, either."""

    is_full = False

    async def write(self, changes: Sequence[Change], *, at: int | None = None) -> int:
        if self.is_full:
            raise OSError("no space left")
        return await super().write(changes, at=at)

    async def claim(self, name: str, holder: str, seconds: float) -> bool:
        if self.is_full:
            raise OSError("no space left")
        return True


class Remote(Short):
    """One that is paid for."""

    remote = True
    asked = 0

    async def summarize(self, request: SummaryRequest) -> Summary:
        self.asked += 1
        return await super().summarize(request)


@pytest.mark.parametrize("others_write", [False, True])
async def test_a_history_that_takes_no_edits_costs_no_view(others_write: bool) -> None:
    """They hold in this process, are told of once, and are written as soon as it takes them."""
    history, store, model, events = Full(), InMemoryOffloadStore(), Remote(), list[CompressionEvent]()
    fields = config(background_ratio=None)
    memory = CompressedMemory(history, fields, store, model, COUNTER, on_event=events.append)
    await memory.add(from_openai([system("be brief"), *turns(8)]))
    history.is_full = True
    view = await good_view(memory)
    assert [event.error for event in events if event.kind == "failure"] == ["OSError: no space left"]
    assert await good_view(memory) == view
    with pytest.raises(OSError, match="no space left"):
        await memory.add(from_openai([user("more")]))
    assert await good_view(memory) == view
    assert (model.asked, await history.ledger()) == (1, [])
    strict = CompressedMemory(
        history, config(background_ratio=None, on_failure="raise"), store, model, COUNTER
    )
    with pytest.raises(OSError, match="no space left"):
        await strict.get_memory()
    history.is_full = False
    other = CompressedMemory(history, fields, store, Short(), COUNTER)
    if others_write:
        await good_view(other)
    view = await good_view(memory)
    assert await good_view(other) == view
    assert await good_view(CompressedMemory(history, fields, store, Short(), COUNTER)) == view
    assert memory._tracker.state.ledger.edits() == {
        name_of(edit): edit for entry in await history.ledger() for edit in entry.edits
    }
