"""The core of all adapters: many conversations, each found by its key or by its own messages."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import weakref
from pathlib import Path
from typing import Any

import pytest

from context_compressor import CompressionEvent, FileOffloadStore
from context_compressor.errors import InvalidArgumentError, InvalidStateError
from context_compressor.integrations import conversations as module
from context_compressor.integrations.conversations import Conversations, Shown, key_of
from context_compressor.laws.chat_rules import problems
from context_compressor.memory.loops import run_blocking
from tests.memory.scripted import Noting, exchange, system, user

Dict = dict[str, Any]
BUDGET = 2_000


class Table(dict[str, Any]):
    """States as JSON text; like many a caller's own class it has more methods than it needs."""

    def __init__(self) -> None:
        self.rows: dict[str, str] = {}

    async def get(self, key: str) -> Dict | None:  # type: ignore[override]
        return json.loads(self.rows[key]) if key in self.rows else None

    async def set(self, key: str, state: Dict) -> None:
        self.rows[key] = json.dumps(state)


def tokens_of(shown: Shown) -> int:
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
    assert stats.events == seen
    assert conversations.size() == 1


async def test_each_event_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "context_compressor")
    await follow(Conversations(max_total_tokens=BUDGET), "a", 30)
    assert any("tokens became" in record.getMessage() for record in caplog.records)


SECRET = "The quagga is at 7719. " + "Remember the lake. " * 60


class TestWhatAListSaysNoMore:
    """It goes when it was not said for `branch_seconds`, wherever in the list it stood."""

    @pytest.fixture(autouse=True)
    def clock(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000_000.0
        monkeypatch.setattr(module.time, "time", lambda: self.now)

    @staticmethod
    def said_in(states: Table, store: FileOffloadStore) -> list[str]:
        """Return where the secret still stands."""
        rows = [key for key, row in states.rows.items() if "quagga" in row]
        return [*rows, *(file.name for file in store.directory.rglob("*") if "quagga" in _text_of(file))]

    @pytest.mark.parametrize(
        ("place", "key", "elsewhere"),
        [
            ("first", "ada", True),
            ("first", None, False),  # in another process nothing leads to the row of another first message
            ("middle", "ada", False),
            ("middle", None, True),
            ("result", "ada", True),
            ("last", "ada", False),
        ],
    )
    async def test_row_and_texts(self, tmp_path: Any, place: str, key: str | None, elsewhere: bool) -> None:
        states, store, summarizer = Table(), FileOffloadStore(tmp_path), Noting()
        options: Dict = {
            "max_total_tokens": BUDGET,
            "states": states,
            "store": store,
            "summarizer": summarizer,
        }
        conversations = Conversations(**options)
        turns = [turn("ada", number) for number in range(30)]
        at = 29 if place == "last" else 9
        turns[at][-1 if place == "result" else 0]["content"] += SECRET
        said = [system("be brief"), *(one for each in turns for one in each)]
        before = [one for each in turns[:-1] for one in each]
        await conversations.view([said[0], *before], key=key)
        await conversations.view(said, key=key)
        assert self.said_in(states, store) or place == "last"
        gone = [one for one in said if "quagga" not in json.dumps(one)]
        if place == "first":
            del gone[1]
        if place == "result":  # its call goes with it
            gone = [one for one in gone if f"ada{at}" not in json.dumps(one)]
        shown = await conversations.view(gone, key=key)
        assert "quagga" not in json.dumps(shown.messages)
        self.now += 3_000
        asked = len(summarizer.requests)
        one = Conversations(**options) if elsewhere else conversations
        await one.view(said, key=key)
        assert len(summarizer.requests) == asked  # a list that goes back pays for nothing twice
        await one.view(gone, key=key)
        assert len(summarizer.requests) == asked
        self.now += 3_600
        one = Conversations(**options) if elsewhere else conversations
        await one.view([*gone, user("go on")], key=key)
        assert self.said_in(states, store) == []
        view = await one.view([*gone, user("go on")], key=key)
        async with one.memory(view) as memory:
            for ref in await memory.reachable_refs():
                assert await store.read(ref)

    async def test_at_once_where_no_time_is_given(self, tmp_path: Any) -> None:
        states, store = Table(), FileOffloadStore(tmp_path)
        conversations = Conversations(max_total_tokens=BUDGET, states=states, store=store, branch_seconds=0)
        said = conversation("ada", 30)
        said[4]["content"] = SECRET
        await conversations.view(said, key="ada")
        assert self.said_in(states, store)
        await conversations.view([*said[:4], *said[7:]], key="ada")
        assert self.said_in(states, store) == []

    async def test_a_text_that_another_conversation_says_stays(self, tmp_path: Any) -> None:
        store = FileOffloadStore(tmp_path)
        conversations = Conversations(max_total_tokens=BUDGET, store=store, branch_seconds=0)
        said = conversation("both", 30)
        await conversations.view(said, key="ada")
        bob = await conversations.view(said, key="bob")
        await conversations.view(said[-1:], key="ada")
        async with conversations.memory(bob) as memory:
            assert set(await memory.reachable_refs()) <= set(await store.refs())

    @pytest.mark.parametrize(("with_words", "goes_on"), [(True, True), (False, True), (False, False)])
    async def test_the_state_that_a_framework_keeps(
        self, tmp_path: Any, with_words: bool, goes_on: bool
    ) -> None:
        """Also where the list shares nothing with the one before."""
        store = FileOffloadStore(tmp_path)
        conversations = Conversations(max_total_tokens=BUDGET, store=store, with_words=with_words)
        said = conversation("ada", 30)
        said[4]["content"] = SECRET
        state = json.loads(json.dumps((await conversations.view(said, key="t", state={})).state))
        other = [*said[:4], *said[7:]] if goes_on else [user("Another matter.")]
        state = (await conversations.view(other, key="t", state=state)).state
        assert "quagga" not in json.dumps(state)
        assert self.said_in(Table(), store)
        self.now += 3_600
        again = Conversations(max_total_tokens=BUDGET, store=store, with_words=with_words)
        for one in (conversations, again):
            saved = json.loads(json.dumps(state))
            await one.view([*other, user("go on")], key="t", state=saved)
            assert self.said_in(Table(), store) == []


def _text_of(file: Path) -> str:
    return file.read_bytes().decode("utf-8", "replace") if file.is_file() else ""


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
    assert len(json.dumps(states[-1])) < 3 * len(json.dumps(conversation("a", 30))) / 4


async def test_a_state_is_known_again_after_json() -> None:
    """Numbers go on, and the agent's own model may be asked behind its last request."""
    conversations, state, events = Conversations(max_total_tokens=BUDGET), {}, []
    for number in range(1, 31):
        shown = await conversations.view(conversation("a", number), state=json.loads(json.dumps(state)))
        await conversations.record_usage(shown, tokens_of(shown) + number)
        state = shown.state
        assert shown.conversation.stats is not None
        events.append(shown.conversation.stats.events)
    assert events == sorted(events)
    assert events[-1] > events[len(events) // 2] > 0


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
    assert problems(smaller.messages) == []
    assert tokens_of(smaller) < tokens - 100


async def test_without_asyncio() -> None:
    conversations = Conversations(max_total_tokens=BUDGET)
    views = await asyncio.to_thread(lambda: run_blocking(follow(conversations, "a", 20)))
    assert views == await follow(Conversations(max_total_tokens=BUDGET), "a", 20)


async def test_what_is_kept_is_bounded_and_what_is_let_go_is_freed_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The garbage collector is not needed: a full collection holds a server up."""
    monkeypatch.setattr(module, "MOST", 6)
    monkeypatch.setattr(module, "MOST_MEMORIES", 2)
    conversations = Conversations(max_total_tokens=BUDGET)
    memories = []
    gc.disable()
    try:
        for number in range(20):
            shown = await conversations.view(conversation(f"user{number}", 4))
            memories.append(weakref.ref(shown.conversation.end.kept.memory))
        del shown
        assert sum(one() is not None for one in memories) == 2
    finally:
        gc.enable()
    assert conversations.size() == 6
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


NEWER: Dict = {"version": 2, "conversations": "another form"}


@pytest.mark.parametrize("on_failure", ["fallback", "raise"])
@pytest.mark.parametrize(
    "row",
    [
        {"something": "else"},
        ["no", "record"],
        NEWER,
        {"version": 1, "conversations": [{"state": {}}]},
        {"version": 1, "conversations": [{"spoken": [], "state": {"version": 9}}]},
        {
            "version": 1,
            "conversations": [{"spoken": [], "state": {"version": 1, "compression": {"version": 2}}}],
        },
    ],
    ids=str,
)
async def test_a_row_that_cannot_be_read_is_made_anew_and_an_event_says_so(row: Any, on_failure: Any) -> None:
    states, events = Table(), list[CompressionEvent]()
    await states.set("ada", row)
    options: Dict = {"states": states, "on_event": events.append, "max_total_tokens": BUDGET}
    conversations = Conversations(on_failure=on_failure, **options)
    said = conversation("a", 4)
    if on_failure == "raise":
        with pytest.raises(InvalidStateError, match="state"):
            await conversations.view(said, key="ada")
        return
    shown = await conversations.view(said, key="ada")
    assert shown.messages == (await Conversations(max_total_tokens=BUDGET).view(said)).messages
    [event] = [one for one in events if one.kind == "failure"]
    assert event.key == "ada"
    assert str(event).startswith("ada: failure (what was kept of the conversation was not read): Invalid")
    assert (await states.get("ada") == NEWER) == (row == NEWER)  # what a newer release set is left to it


async def test_events_and_their_log_lines_name_the_conversation(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "context_compressor")
    events: list[CompressionEvent] = []
    conversations = Conversations(max_total_tokens=BUDGET, on_event=events.append)
    await asyncio.gather(*(follow(conversations, tag, 12, key=f"{tag}\n7") for tag in ("ada", "bob")))
    assert {event.key for event in events} == {"ada\n7", "bob\n7"}
    assert {record.getMessage().partition(":")[0] for record in caplog.records} == {"ada 7", "bob 7"}
    await follow(conversations, "cyd", 12)
    assert events[-1].key is None


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
