"""`compress_messages`: the same for callers who keep nothing but a state between calls."""

from __future__ import annotations

import json
import tempfile
import threading
from typing import Any

import pytest

from context_compressor import (
    CompressedMemory,
    CompressionEvent,
    FileOffloadStore,
    InMemoryOffloadStore,
    acompress_messages,
    compress_messages,
    to_openai,
)
from context_compressor.errors import (
    ContextOverflowError,
    InvalidArgumentError,
    InvalidMessageError,
    InvalidStateError,
    OffloadFullError,
)
from context_compressor.laws.chat_rules import problems
from context_compressor.memory import stateless
from tests.memory.scripted import (
    COUNTER,
    REF,
    Noting,
    config,
    exchange,
    filled,
    system,
    text,
    turns,
    user,
)

Dict = dict[str, Any]


def compress(messages: Any, state: Dict | None = None, **arguments: Any) -> Any:
    """Compress to a small budget, with the state as a caller would keep it: as JSON."""
    arguments = {"config": config(), "counter": COUNTER, **arguments}
    return compress_messages(messages, state=json.loads(json.dumps(state)), **arguments)


def test_a_list_within_budget_comes_back_as_it_is() -> None:
    said = [system("be brief"), *turns(2)]
    for found in (compress(said), compress(said, {}), compress_messages(said)):
        assert found.messages == said
        assert found.stats.saved_tokens == 0


def test_a_list_over_budget_comes_back_valid_and_within_it() -> None:
    said, events = turns(8), list[CompressionEvent]()
    found = compress(said, on_event=events.append)
    assert problems(found.messages) == []
    assert COUNTER.count_messages(found.messages) <= config().budget
    assert found.stats.segments == 1
    assert found.messages[-4:] == said[-4:]
    assert [event.kind for event in events] == ["compress"]
    found.messages[-1]["content"] = "changed"
    assert said == turns(8)


async def test_it_works_where_a_loop_is_running() -> None:
    said = turns(8)
    assert (
        compress(said).messages == (await acompress_messages(said, config=config(), counter=COUNTER)).messages
    )


async def test_it_says_what_a_memory_says() -> None:
    memory = CompressedMemory(config=config(), counter=COUNTER)
    await filled(memory, turns(8))
    assert compress(turns(8)).messages == to_openai(await memory.get_memory())


def test_over_a_growing_list_views_stay_still_and_nothing_is_summarised_twice() -> None:
    summarizer, events = Noting(), []
    said = turns(20)
    state, earlier, seen = None, [], 0
    for end in range(1, len(said) + 1):
        found = compress(said[:end], state, summarizer=summarizer, on_event=events.append)
        state = found.state
        assert problems(found.messages) == [] or end == 1
        if len(events) == seen:
            assert found.messages[: len(earlier)] == earlier
        earlier, seen = found.messages, len(events)
    asked = [
        json.dumps([msg.content for msg in r.messages if msg.name != "memory"]) for r in summarizer.requests
    ]
    assert len(asked) > 2
    for n in range(20):
        assert sum(f"ask-t{n}:0" in each for each in asked) <= 1


def test_the_same_list_and_state_give_the_same_view_without_an_event() -> None:
    summarizer, events = Noting(), []
    first = compress(turns(8), summarizer=summarizer)
    second = compress(turns(8), first.state, summarizer=summarizer, on_event=events.append)
    assert second.messages == first.messages
    assert events == []
    assert len(summarizer.requests) == 1
    assert second.state == first.state


def test_the_state_carries_the_texts() -> None:
    said = [user("go"), *exchange("big", 100), *turns(2)]
    found = compress(said)
    refs = REF.findall(json.dumps(found.messages))
    assert refs
    store = InMemoryOffloadStore.from_state(json.loads(json.dumps(found.state))["texts"])
    assert store.texts()[refs[0]] == said[2]["content"]


def test_a_store_of_the_callers_own_holds_the_texts_instead() -> None:
    said = [user("go"), *exchange("big", 100), *turns(2)]
    with tempfile.TemporaryDirectory() as directory:
        found = compress(said, store=FileOffloadStore(directory))
        assert "texts" not in found.state
        again = compress([*said, user("more")], found.state, store=FileOffloadStore(directory))
        assert again.messages[:-1] == found.messages


@pytest.mark.parametrize(
    ("now", "gone"),
    [
        ([*turns(8)[:4], user("something else"), *turns(8)[5:]], "ask-t1:"),
        (turns(8)[4:], "ask-t0:"),
        ([user("hello")], "ask-t1"),
    ],
    ids=["edited", "left out", "begun anew"],
)
def test_what_a_list_says_no_more_is_nowhere(now: list[Dict], gone: str) -> None:
    found = compress(now, compress(turns(8)).state)
    assert problems(found.messages) == []
    assert gone not in json.dumps([found.messages, found.state])


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (5, "expected a dict"),
        ([1], "expected a dict"),
        ({"version": 99}, "state.version"),
        ({"version": None}, "state.version"),
        ({"compression": 5}, "compression: expected a dict"),
        ({"compression": {"version": 1, "tokens": {}, "ledger": []}}, "ledger: expected a dict"),
        ({"compression": {"version": 3}}, "compression.version: this release reads 1 and 2, the state has 3"),
        ({"compression": {"version": 1, "ledger": {"version": 2}}}, "ledger.version: this release reads 1"),
        ({"texts": []}, "offloaded texts"),
        ({"left": {"ctx://0": 1}}, "state.left: expected seconds since 1970 by digits of refs"),
        ({"texts": {"ctx://0": "x"}}, "offloaded texts"),
    ],
)
def test_a_malformed_state_is_refused_by_place(change: Any, place: str) -> None:
    state = {**compress(turns(8)).state, **change} if isinstance(change, dict) else change
    with pytest.raises(InvalidStateError, match=place):
        compress(turns(8), state)


def test_without_what_is_malformed_a_state_loads_as_the_error_says() -> None:
    state = compress(turns(8)).state
    with pytest.raises(InvalidStateError, match="without its key 'compression' the state loads"):
        compress(turns(8), {**state, "compression": 5})
    del state["compression"]
    assert compress(turns(8), state).messages == compress(turns(8)).messages


def test_what_does_not_fit_is_named_by_its_place_in_the_list() -> None:
    """Its id is made here, and the caller has never seen it."""
    state = compress([user("go")]).state
    with pytest.raises(InvalidMessageError, match=r"messages\[1\]\.role"):
        compress_messages([user("go"), {"role": "nobody"}], config=config(), counter=COUNTER, state=state)
    with pytest.raises(ContextOverflowError, match=r": messages\[0\] .*, messages\[1\] \(") as caught:
        compress([system("Be brief."), system(text("rules", 400)), user("hi")])
    assert [name for name, _ in caught.value.fixed] == ["messages[0]", "messages[1]"]


def test_texts_that_a_state_carried_go_into_a_store_that_comes_later() -> None:
    first = compress(turns(8))
    store = InMemoryOffloadStore()
    second = compress([*turns(8), user("on")], first.state, store=store)
    assert set(first.state["texts"]) <= set(store.texts())
    assert "texts" not in second.state
    for ref in REF.findall(json.dumps(second.messages)):
        assert ref in store.texts()


def test_what_a_store_does_not_take_stays_in_the_state(caplog: pytest.LogCaptureFixture) -> None:
    class Full(InMemoryOffloadStore):
        async def write(self, text: str) -> str:
            raise OffloadFullError("no room")

    first = compress(turns(8))
    second = compress([*turns(8), user("on")], first.state, store=Full())
    assert second.state["texts"] == first.state["texts"]
    assert "no room" in caplog.text
    begun_anew = compress([user("hello")], second.state, store=Full())
    assert "texts" not in begun_anew.state


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"config": {"max_total_tokens": 8_000}}, "config: expected a CompressionConfig or None, got dict"),
        ({"store": "dir"}, "store: a str is not an OffloadStore; it lacks write, read, delete, refs"),
        ({"store": FileOffloadStore}, "store: FileOffloadStore is a class; give an object"),
        ({"counter": len}, "counter: a builtin_function_or_method is not a TokenCounter"),
        ({"summarizer": 5}, "summarizer: a int is not a Summarizer; it lacks remote, summarize"),
        ({"on_event": "print"}, "on_event: expected a callable or None, got str"),
    ],
)
def test_what_a_memory_is_given_is_checked_at_the_door(arguments: Dict, expected: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        compress_messages([user("hi")], **arguments)
    assert expected in str(caught.value)
    with pytest.raises(InvalidArgumentError, match=r"^\w+: "):
        CompressedMemory(**arguments)


async def test_a_conversation_is_read_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    readers: list[threading.Thread] = []
    real = stateless._read

    def read(messages: Any, *known: Any) -> Any:
        readers.append(threading.current_thread())
        return real(messages, *known)

    monkeypatch.setattr(stateless, "_read", read)
    await acompress_messages([user("hi")])
    assert readers
    assert threading.current_thread() not in readers


def test_what_another_state_names_stays_in_the_store() -> None:
    store = InMemoryOffloadStore()
    said = turns(8)
    first = compress(said, store=store)
    compress([*said[:10], user("edited")], first.state, store=store)  # tried, and given up
    again = compress([*said, user("on")], first.state, store=store)
    for ref in REF.findall(json.dumps(again.messages)):
        assert ref in store.texts()


@pytest.mark.parametrize("seconds", [0, 3_600])
def test_what_the_list_says_no_more_leaves_the_store_when_its_time_is_over(
    seconds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000_000.0
    monkeypatch.setattr(stateless.time, "time", lambda: now)
    store, said = InMemoryOffloadStore(), turns(12)
    options: Dict = {"store": store, "config": config(branch_seconds=seconds)}

    def is_stored() -> bool:
        return "ask-t2:" in json.dumps(store.texts())

    first = compress(said, **options)
    assert is_stored()
    shorter = [one for one in said if "t2" not in json.dumps(one)]
    second = compress(shorter, first.state, **options)
    assert "ask-t2:" not in json.dumps([second.messages, second.state])
    assert is_stored() == (seconds > 0)
    now += 3_599
    third = compress([*shorter, user("on")], second.state, **options)
    assert is_stored() == (seconds > 0)
    assert ("left" in third.state) == (seconds > 0)
    now += 1
    last = compress([*shorter, user("on")], third.state, **options)
    assert not is_stored()
    assert "left" not in last.state


def test_a_view_that_is_handed_over_as_the_conversation_keeps_its_texts() -> None:
    first = compress(turns(8))
    second = compress([*first.messages, user("on")], first.state)
    for ref in REF.findall(json.dumps(second.messages)):
        assert ref in second.state["texts"]


def another_clock(said: list[Dict]) -> list[Dict]:
    return [system("It is 10:01."), *said[1:]]


def in_another_order(said: list[Dict]) -> list[Dict]:
    """A database gives the keys back in an order of its own."""
    return [dict(sorted(message.items())) for message in said]


def dumped(said: list[Dict]) -> list[Dict]:
    """What was an SDK's object in one call is what a database gives back of it in the next."""
    nothing: Dict = {"refusal": None, "annotations": []}
    return [{**message, **nothing} if message["role"] == "assistant" else message for message in said]


@pytest.mark.parametrize("change", [another_clock, in_another_order, dumped])
@pytest.mark.parametrize("through_json", [True, False])
def test_what_says_the_same_another_way_costs_no_summary_anew(change: Any, through_json: bool) -> None:
    summarizer = Noting(remote=False)
    arguments: Dict = {"config": config(), "counter": COUNTER, "summarizer": summarizer}
    said = [system("It is 10:00."), *turns(10)]
    first = compress_messages(said, **arguments)
    calls = len(summarizer.requests)
    state = json.loads(json.dumps(first.state)) if through_json else first.state
    changed = [*change(said), user("on")]
    assert json.dumps(changed[:-1]) != json.dumps(said)
    second = compress_messages(changed, state=state, **arguments)
    assert len(summarizer.requests) == calls > 0
    assert problems(second.messages) == []
    assert second.messages[1] == first.messages[1]
    assert second.messages[-1] == user("on")
