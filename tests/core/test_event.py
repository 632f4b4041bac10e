"""What an event comes to, and what it still tells when it fails."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from context_compressor import ExtractiveSummarizer, InMemoryOffloadStore
from context_compressor.core.decide import Situation, plan
from context_compressor.core.edits import SegmentEdit, StubEdit
from context_compressor.core.event import Engine, Event
from context_compressor.core.ledger import Ledger
from context_compressor.errors import OffloadError
from context_compressor.offload.guide import TOOL_NAMES
from tests.core.support import items_of
from tests.memory.scripted import (
    COUNTER,
    FaultyStore,
    Gated,
    call,
    config,
    exchange,
    fail,
    reached,
    result,
    turns,
    user,
)
from tests.support.media import png_url


def event_of(said: list[Any], *, store: Any = None, summarizer: Any = None, **how: Any) -> Event:
    """Return the event that a view asks for."""
    settings = config(on_failure="raise", **how.pop("settings", {}))
    store = InMemoryOffloadStore() if store is None else store
    engine = Engine(
        config=settings,
        store=store,
        summarizer=summarizer or ExtractiveSummarizer(COUNTER),
        counter=COUNTER,
    )
    items = items_of(said)
    found = plan(items, Situation(settings, engine.costs(), manual=True))
    assert found is not None
    return Event(engine, found, items, Ledger(), **how)


async def test_what_was_asked_of_the_store_is_known_after_it_refused() -> None:
    event = event_of([user("go"), *turns(8)], store=FaultyStore(fail))
    with pytest.raises(OffloadError):
        await event.perform()
    assert event.attempted


async def test_what_was_asked_and_paid_is_known_after_a_cancellation() -> None:
    summarizer, store = Gated(), InMemoryOffloadStore()
    event = event_of([user("go"), *turns(8)], store=store, summarizer=summarizer)
    task = asyncio.create_task(event.perform())
    await reached(summarizer.asked, task)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(event.attempted) == await store.refs() != []
    assert event.use.calls == 1


@pytest.mark.parametrize("mode", ["auto", "compact"])
@pytest.mark.parametrize("names_tools", [True, False])
async def test_stand_ins_tell_of_tools_only_where_the_agent_has_them(mode: str, names_tools: bool) -> None:
    image = {"type": "image_url", "image_url": {"url": png_url(600, 400)}}
    said = [
        user("go"),
        {"role": "user", "content": [{"type": "text", "text": "see"}, image]},
        *exchange("big", 90),
        call("a"),
        result("a", "one long line " * 9),
        *turns(9),
    ]
    settings = {"mode": mode, "max_tool_message_tokens": 30, "preview_tokens": 0, "keep_images": 0}
    done = await event_of(said, names_tools=names_tools, settings=settings).perform()
    kinds = {type(edit) for edit in done.edits}
    assert StubEdit in kinds
    assert (SegmentEdit in kinds) or mode == "compact"
    text = "\n".join(edit.text for edit in done.edits)
    assert any(name in text for name in TOOL_NAMES) == names_tools
    assert all(edit.ref in edit.text for edit in done.edits)
