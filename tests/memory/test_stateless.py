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
from tests.support.validity import problems

Dict = dict[str, Any]


def compress(messages: Any, state: Dict | None = None, **arguments: Any) -> Any:
    """Compress to a small budget, with the state as a caller would keep it: as JSON."""
    arguments = {"config": config(), "counter": COUNTER, **arguments}
    return compress_messages(messages, state=json.loads(json.dumps(state)), **arguments)


def test_a_list_within_budget_comes_back_as_it_is() -> None:
    said = [system("be brief"), *turns(2)]
    found = compress(said)
    assert found.messages == said
    assert found.stats.saved_tokens == 0


def test_a_list_over_budget_comes_back_valid_and_within_it() -> None:
    said = turns(8)
    found = compress(said)
    assert problems(found.messages) == []
    assert COUNTER.count_messages(found.messages) <= config().budget
    assert found.stats.segments == 1
    assert found.messages[-4:] == said[-4:]


def test_defaults_will_do() -> None:
    assert compress_messages([user("hi")]).messages == [user("hi")]


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


def test_an_edited_list_shows_what_it_says_now() -> None:
    said = turns(8)
    state = compress(said).state
    said[4] = user("something else entirely")
    found = compress(said, state)
    assert problems(found.messages) == []
    assert "ask-t1:" not in json.dumps(found.messages)
    assert "ask-t1:" not in json.dumps(found.state)


def test_what_is_gone_from_the_list_is_gone_from_the_state() -> None:
    said = [user("go"), *exchange("big", 100), *turns(2)]
    state = compress(said).state
    assert "result-big:5 " in json.dumps(state)
    found = compress([said[0], *said[3:]], state)
    assert "result-big:5 " not in json.dumps(found.state)


def test_a_conversation_that_begins_anew_keeps_nothing_of_the_old_one() -> None:
    state = compress(turns(8)).state
    found = compress([user("hello")], state)
    assert found.messages == [user("hello")]
    assert "ask-t1" not in json.dumps(found.state)


@pytest.mark.parametrize(
    ("change", "place"),
    [
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
def test_a_malformed_state_is_refused_by_place(change: Dict, place: str) -> None:
    state = {**compress(turns(8)).state, **change}
    with pytest.raises(InvalidStateError, match=place):
        compress(turns(8), state)


def test_without_what_is_malformed_a_state_loads_as_the_error_says() -> None:
    state = compress(turns(8)).state
    state["compression"]["ledger"]["frontier"] = -1
    with pytest.raises(InvalidStateError, match="without its key 'compression' the state loads"):
        compress(turns(8), state)
    del state["compression"]
    assert compress(turns(8), state).messages == compress(turns(8)).messages


def test_an_empty_state_is_none() -> None:
    assert compress_messages(turns(8), state={}).messages == compress_messages(turns(8)).messages


def test_what_is_no_state_is_refused() -> None:
    for state in (5, "text", [1]):
        with pytest.raises(InvalidStateError, match="expected a dict"):
            compress_messages([user("hi")], state=state)  # type: ignore[arg-type]


def test_errors_come_out_as_they_are() -> None:
    with pytest.raises(InvalidMessageError):
        compress([{"role": "nobody"}])
    with pytest.raises(ContextOverflowError, match="budget is 2,000"):
        compress([system(text("rules", 400)), user("hi")])


def test_what_does_not_fit_is_named_by_its_place_in_the_list() -> None:
    """Its id is made here, and the caller has never seen it."""
    with pytest.raises(ContextOverflowError, match=r": messages\[0\] .*, messages\[1\] \(") as caught:
        compress([system("Be brief."), system(text("rules", 400)), user("hi")])
    assert [name for name, _ in caught.value.fixed] == ["messages[0]", "messages[1]"]


def test_the_callers_list_is_left_alone() -> None:
    said = turns(8)
    found = compress(said)
    found.messages[-1]["content"] = "changed"
    assert said == turns(8)


def test_events_are_reported() -> None:
    events: list[CompressionEvent] = []
    found = compress(turns(8), on_event=events.append)
    assert [event.kind for event in events] == ["compress"]
    assert found.stats.events == 1


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


def test_a_message_at_the_beginning_costs_no_summary_anew() -> None:
    summarizer = Noting(remote=False)
    said = turns(10)
    first = compress(said, summarizer=summarizer)
    calls = len(summarizer.requests)
    second = compress([system("It is 10:00."), *said], first.state, summarizer=summarizer)
    assert len(summarizer.requests) == calls
    third = compress([system("It is 10:01."), *said], second.state, summarizer=summarizer)
    assert len(summarizer.requests) == calls
    assert third.messages[1:] == second.messages[1:]


def test_messages_whose_keys_come_in_another_order_cost_no_summary_anew() -> None:
    summarizer = Noting(remote=False)
    said = turns(10)
    first = compress(said, summarizer=summarizer)
    calls = len(summarizer.requests)
    reordered = [dict(sorted(message.items())) for message in said]
    assert json.dumps(reordered) != json.dumps(said)
    compress([*reordered, user("on")], first.state, summarizer=summarizer)
    assert len(summarizer.requests) == calls > 0


def test_keys_that_say_nothing_cost_no_summary_anew() -> None:
    """What was an SDK's object in one call is what a database gives back of it in the next."""
    summarizer = Noting(remote=False)
    said = turns(10)
    first = compress(said, summarizer=summarizer)
    calls = len(summarizer.requests)
    dumped = [
        {**message, "refusal": None, "annotations": []} if message["role"] == "assistant" else message
        for message in said
    ]
    second = compress([*dumped, user("on")], first.state, summarizer=summarizer)
    assert len(summarizer.requests) == calls > 0
    assert problems(second.messages) == []
