"""Parts are undone while others add, write or cancel, and made anew by whoever writes the notes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from context_compressor import CompressedMemory, ContextOverflowError, InvalidArgumentError, from_openai
from tests.memory.on_disk import FileMemory
from tests.memory.scripted import Gated, Noting, fold, good_view, new_memory, turns, user, wire_text


class Failing(Noting):
    """A summariser that fails from now on, once it is told to."""

    is_failing = False

    async def summarize(self, request: Any) -> Any:
        if self.is_failing:
            raise ConnectionError("no route to model")
        return await super().summarize(request)


async def compressed(**given: Any) -> CompressedMemory:
    """Return a memory of which something has left."""
    memory = new_memory(**given)
    await memory.add(from_openai(turns(3)))
    await memory.get_memory()
    assert (event := await memory.compress_now())
    assert event.number == 1
    await memory.get_memory()
    return memory


async def test_a_part_that_is_made_anew_is_told_the_note_and_takes_its_place() -> None:
    memory = await compressed(summarizer=(writer := Noting()))
    event = await memory.undo(note="  Mind the walrus. ")
    assert (event.kind, event.number, event.note) == ("compress", 1, "kept")
    assert [request.note for request in writer.requests] == [None, "Mind the walrus."]
    assert "Mind the walrus." in wire_text(await good_view(memory))
    noted = memory.stats().noted
    await memory.undo(budget=1_150)
    assert 0 < memory.stats().noted < noted, "less left than before"
    assert memory.stats().view_tokens <= 1_150
    await memory.undo(budget=2_000)
    assert memory.stats().noted == 0, "it fits whole"
    assert await memory.undo() is None


async def test_cancelled_while_the_part_is_made_anew_it_is_as_it_was() -> None:
    writer = Gated()
    writer.gate.set()
    memory = await compressed(summarizer=writer)
    before, texts = await fold(memory), set(await memory.store.refs())
    writer.gate.clear()
    writer.asked.clear()
    undoing = asyncio.create_task(memory.undo(note="Mind the walrus."))
    await writer.asked.wait()
    undoing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await undoing
    assert await fold(memory) == before
    assert set(await memory.store.refs()) == texts
    undoing = asyncio.create_task(memory.undo(note="Mind the walrus."))
    await writer.asked.wait()
    await memory.add(from_openai([user("What came meanwhile.")]))
    writer.gate.set()
    assert (await undoing).kind == "compress"
    view = wire_text(await good_view(memory))
    assert "Mind the walrus." in view
    assert "What came meanwhile." in view
    await memory.aclose()


async def test_rules_make_it_anew_where_the_model_fails() -> None:
    memory = await compressed(summarizer=(writer := Failing()))
    writer.is_failing = True
    event = await memory.undo(note="Mind the walrus.")
    assert event.kind == "compress"
    assert "Mind the walrus." in wire_text(await good_view(memory))


async def test_others_over_the_same_history_follow() -> None:
    base = FileMemory()
    memory = await compressed(base=base)
    other = new_memory(base=base, store=memory.store)
    assert await other.get_memory() == await memory.get_memory()
    await other.add(from_openai([user("What the other one says.")]))
    await memory.undo()
    assert await other.get_memory() == await memory.get_memory() == await other.get_history()
    await other.compress_now()
    await memory.undo(note="Mind the walrus.")
    assert await other.get_memory() == await memory.get_memory() == await other.view_at(1)


async def test_others_delete_what_an_older_part_covers_while_a_part_is_made_anew() -> None:
    base, writer = FileMemory(), Gated()
    writer.gate.set()
    memory = await compressed(base=base, summarizer=writer)
    await memory.add(from_openai(turns(3, tag="more")))
    event = await memory.compress_now()
    assert event is not None
    assert event.number == 2
    first, *_ = await memory.get_history()
    writer.gate.clear()
    writer.asked.clear()
    undoing = asyncio.create_task(memory.undo(note="Mind the walrus."))
    await writer.asked.wait()
    other = new_memory(base=base, store=memory.store)
    assert await other.delete([first.id]) == 1
    writer.gate.set()
    await undoing
    assert await memory.get_memory() == await other.get_memory()
    assert first not in await memory.get_history()
    await memory.aclose()


async def test_a_view_that_does_not_fit_says_by_how_much() -> None:
    memory = await compressed()
    await memory.add(from_openai(turns(2, tag="more")))
    before = await fold(memory)
    with pytest.raises(
        ContextOverflowError, match=r"takes [\d,]+ tokens, [\d,]+ more than the budget of 2,000"
    ):
        await memory.undo()
    assert await fold(memory) == before


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"budget": 0}, "from 1 to 2,000, got 0"),
        ({"budget": 2_001}, "from 1 to 2,000, got 2001"),
        ({"budget": True}, "got True"),
        ({"note": 1}, "note: expected a string or None, got int"),
    ],
)
async def test_what_undo_is_given_is_checked(given: Any, told: str) -> None:
    with pytest.raises(InvalidArgumentError, match=told):
        await new_memory().undo(**given)


@pytest.mark.parametrize(
    "given", [{}, {"msg_ids": [], "text": "x"}, {"text": ""}, {"text": 1}, {"msg_ids": "x"}]
)
async def test_what_forget_is_given_is_checked(given: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        await new_memory().forget(**given)


async def test_there_is_no_view_of_an_event_that_never_was() -> None:
    memory = await compressed()
    for number in (0, 2, "1"):
        with pytest.raises(InvalidArgumentError, match="there are: 1"):
            await memory.view_at(number)  # type: ignore[arg-type]
