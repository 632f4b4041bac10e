"""The core of all adapters: many conversations, each found by its key or by its own messages."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import weakref
from typing import Any

import pytest

from context_compressor import CompressionEvent, FileOffloadStore
from context_compressor.errors import InvalidArgumentError, InvalidStateError
from context_compressor.integrations import conversations as module
from context_compressor.integrations.conversations import Conversations, Shown, key_of
from context_compressor.memory.loops import run_blocking
from context_compressor.memory.stateless import KeptState
from tests.memory.scripted import Noting, exchange, system, user
from tests.support.validity import problems

Dict = dict[str, Any]
BUDGET = 2_000


class Table:
    """States in a dict, as JSON text."""

    def __init__(self) -> None:
        self.rows: dict[str, str] = {}

    async def get(self, key: str) -> Dict | None:
        return json.loads(self.rows[key]) if key in self.rows else None

    async def set(self, key: str, state: Dict) -> None:
        self.rows[key] = json.dumps(state)


def tokens_of(shown: Shown) -> int:
    assert shown.conversation.stats is not None
    return shown.conversation.stats.view_tokens


def turn(tag: str, number: int) -> list[Dict]:
    return [user(f"{tag} asks {number}"), *exchange(f"{tag}{number}", 20)]


def conversation(tag: str, turns: int) -> list[Dict]:
    return [system("be brief"), *(one for number in range(turns) for one in turn(tag, number))]


async def follow(conversations: Conversations, tag: str, turns: int, **more: Any) -> list[str]:
    """Return every view of a growing conversation, as text."""
    views = []
    for number in range(1, turns + 1):
        shown = await conversations.view(conversation(tag, number), **more)
        assert problems(shown.messages) == []
        views.append(json.dumps(shown.messages))
    return views


async def test_views_stay_still_between_events_and_unaltered_messages_are_the_callers_own() -> None:
    events: list[CompressionEvent] = []
    conversations = Conversations(max_total_tokens=BUDGET, on_event=events.append)
    said, earlier, seen = [system("be brief")], [], 0
    for number in range(40):
        said += turn("a", number)
        shown = await conversations.view(said)
        if len(events) == seen:
            assert shown.messages[: len(earlier)] == earlier
        assert all(any(one is own for own in said) for one in shown.messages[-3:])
        earlier, seen = shown.messages, len(events)
    assert seen > 2
    stats = conversations.stats()
    assert stats is not None
    assert stats.events == seen
    assert conversations.size() == 1


async def test_each_event_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "context_compressor")
    await follow(Conversations(max_total_tokens=BUDGET), "a", 30)
    assert any("tokens became" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("key", ["ada", None])
async def test_another_process_goes_on_with_the_same_view(key: str | None) -> None:
    states, summarizer = Table(), Noting()
    first = Conversations(max_total_tokens=BUDGET, states=states, summarizer=summarizer)
    views = await follow(first, "a", 30, key=key)
    asked = len(summarizer.requests)
    other = Conversations(max_total_tokens=BUDGET, states=states, summarizer=summarizer)
    shown = await other.view(conversation("a", 30), key=key)
    assert json.dumps(shown.messages) == views[-1]
    assert len(summarizer.requests) == asked > 0
    async with other.memory(shown) as memory:
        for ref in await memory.reachable_refs():
            assert await memory.read_ref(ref)


async def test_processes_in_turn_go_on_with_each_others_views() -> None:
    states = Table()
    workers = [Conversations(max_total_tokens=BUDGET, states=states) for _ in range(2)]
    alone = await follow(Conversations(max_total_tokens=BUDGET), "a", 40)
    for number in range(1, 41):
        shown = await workers[number % 2].view(conversation("a", number), key="ada")
        assert json.dumps(shown.messages) == alone[number - 1]


async def test_a_framework_may_keep_the_state_and_go_back_with_it() -> None:
    conversations = Conversations(max_total_tokens=BUDGET)
    states, views = [], []
    for number in range(1, 31):
        state = json.loads(json.dumps(states[-1])) if states else {}
        shown = await conversations.view(conversation("a", number), state=state)
        states.append(shown.state)
        views.append(json.dumps(shown.messages))
    for number in (12, 20, 5):
        shown = await conversations.view(conversation("a", number + 1), state=states[number - 1])
        assert json.dumps(shown.messages) == views[number]
    assert "texts" not in states[-1]
    assert len(json.dumps(states[-1])) < len(json.dumps(conversation("a", 30))) / 2


async def test_two_at_once_never_mix_although_they_begin_alike(tmp_path: Any) -> None:
    store = FileOffloadStore(tmp_path)
    conversations = Conversations(max_total_tokens=BUDGET, store=store)
    start = conversation("both", 2)

    async def talk(tag: str, other: str) -> str:
        said, text = list(start), ""
        for number in range(20):
            said += turn(tag, number)
            shown = await conversations.view(said)
            await asyncio.sleep(0)
            text = json.dumps(shown.messages)
            assert f"{other} asks" not in text
            async with conversations.memory(shown) as memory:
                for ref in await memory.reachable_refs():
                    assert f"{other}1" not in await memory.read_ref(ref)
        return text

    await asyncio.gather(talk("ada", "bob"), talk("bob", "ada"))
    assert conversations.size() == 2


async def test_an_agent_called_by_another_under_one_key_has_a_state_of_its_own() -> None:
    states = Table()
    conversations = Conversations(max_total_tokens=BUDGET, states=states)
    alone = await follow(Conversations(max_total_tokens=BUDGET), "outer", 30)
    for number in range(1, 31):
        shown = await conversations.view(conversation("outer", number), key="k")
        assert json.dumps(shown.messages) == alone[number - 1]
        await conversations.view(conversation(f"inner{number}", 3), key="k")
    again = Conversations(max_total_tokens=BUDGET, states=states)
    shown = await again.view(conversation("outer", 30), key="k")
    assert json.dumps(shown.messages) == alone[-1]


async def test_what_the_provider_counted_holds_in_another_process_too() -> None:
    states = Table()
    first = Conversations(max_total_tokens=BUDGET, states=states)
    shown = await first.view(conversation("a", 4), key="k")
    await first.record_usage(shown, tokens_of(shown) + 900)
    views = []
    for one in (first, Conversations(max_total_tokens=BUDGET, states=states)):
        found = await one.view(conversation("a", 20), key="k")
        assert tokens_of(found) <= BUDGET - 900
        views.append(found.messages)
        states.rows.clear()
    assert len(views[0]) == len(views[1])


async def test_a_refusal_gives_a_smaller_view_and_any_other_error_none() -> None:
    conversations = Conversations(max_total_tokens=BUDGET)
    shown = await conversations.view(conversation("a", 12))
    tokens = tokens_of(shown)
    assert await conversations.after_refusal(shown, ValueError("no such model")) is None
    smaller = await conversations.after_refusal(
        shown, f"prompt is too long: {tokens} tokens > {tokens - 100} maximum"
    )
    assert smaller is not None
    assert problems(smaller.messages) == []
    assert tokens_of(smaller) < tokens - 100


async def test_without_asyncio() -> None:
    conversations = Conversations(max_total_tokens=BUDGET)
    views = await asyncio.to_thread(lambda: run_blocking(follow(conversations, "a", 20)))
    assert views == await follow(Conversations(max_total_tokens=BUDGET), "a", 20)


async def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 6)
    monkeypatch.setattr(module, "MOST_MEMORIES", 2)
    conversations = Conversations(max_total_tokens=BUDGET)
    memories = []
    for number in range(20):
        shown = await conversations.view(conversation(f"user{number}", 4))
        state = shown.conversation.state
        assert isinstance(state, KeptState)
        assert state.kept is not None
        memories.append(weakref.ref(state.kept.memory))
    del shown, state
    gc.collect()
    assert conversations.size() == 6
    assert sum(one() is not None for one in memories) == 2
    views = await follow(Conversations(max_total_tokens=BUDGET), "user16", 4)
    assert json.dumps((await conversations.view(conversation("user16", 4))).messages) == views[-1]


async def test_an_edited_message_is_followed() -> None:
    conversations = Conversations(max_total_tokens=BUDGET)
    said = conversation("a", 20)
    await conversations.view(said)
    edited = [*said[:-1], {**said[-1], "content": "another ending"}]
    shown = await conversations.view(edited)
    assert shown.messages[-1] is edited[-1]


async def test_what_is_wrong_is_refused_at_the_door() -> None:
    with pytest.raises(InvalidArgumentError, match="max_tokns"):
        Conversations(max_tokns=5)
    with pytest.raises(InvalidArgumentError, match="states"):
        Conversations(states={})  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="key: expected a string"):
        await Conversations().view([user("hi")], key=5)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="key: expected a function"):
        await key_of(lambda _: 5, None)  # type: ignore[arg-type,return-value]
    states = Table()
    await states.set("k", {"something": "else"})
    with pytest.raises(InvalidStateError, match="'k'"):
        await Conversations(states=states).view([user("hi")], key="k")


async def test_tools_of_one_find_no_word_of_another_that_went_on_from_the_same_messages() -> None:
    conversations = Conversations(max_total_tokens=BUDGET)
    start = conversation("both", 2)
    ada = await conversations.view(start)
    answers = []
    for said in ([], [user("The secret is Tollan.")]):
        await conversations.view([*start, *said])
        answers.append(await conversations.run_tool(ada, "search_history", {"query": "secret Tollan"}))
    assert "Tollan." not in str(answers)
    async with conversations.memory(ada) as memory:
        assert len(await memory.get_history()) == len(start)
    bob = await conversations.view([*start, user("The secret is Tollan.")])
    found, attached = await conversations.run_tool(bob, "search_history", {"query": "secret Tollan"})
    assert "The secret is Tollan." in found
    assert attached is None


async def test_who_goes_on_while_a_tool_reads_has_a_memory_of_its_own() -> None:
    conversations = Conversations(max_total_tokens=BUDGET)
    start = conversation("both", 12)
    ada = await conversations.view(start)
    async with conversations.memory(ada) as memory:
        await conversations.view([*start, user("The secret is Tollan.")])
        assert len(await memory.get_history()) == len(start)
