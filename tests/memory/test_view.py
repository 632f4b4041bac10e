"""`view`: a whole conversation in, what to send out; branches, forms, saving, and both faces."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from context_compressor import (
    CompressedMemory,
    CompressionConfig,
    CompressionEvent,
    Form,
    InMemoryOffloadStore,
    LoopError,
    UnrelatedMessagesError,
    acompress_messages,
    compress_messages,
    from_openai,
    to_openai,
)
from context_compressor.errors import InvalidArgumentError, InvalidStateError
from context_compressor.laws.chat_rules import problems
from tests.memory.scripted import (
    COUNTER,
    Dict,
    ForeignMemory,
    assistant,
    call,
    result,
    system,
    user,
)

BRIEF = system("Be brief.")


def said(tag: str, turns: int) -> list[Dict]:
    """Return what somebody asked and was answered, each word with its tag."""
    return [
        message
        for number in range(turns)
        for message in (
            user(f"{tag}-question-{number} " + "word " * 40),
            assistant(f"{tag}-answer-{number} " + "term " * 60),
        )
    ]


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def memory_of(budget: int = 1_500, **arguments: Any) -> CompressedMemory:
    return CompressedMemory(max_total_tokens=budget, counter=COUNTER, **arguments)


async def test_what_is_shown_unaltered_is_the_very_object_of_the_list() -> None:
    memory = memory_of()
    messages = [BRIEF, *said("a", 20)]
    view = await memory.view(messages)
    assert COUNTER.count_messages(from_openai(view)) <= 1_500
    assert not problems(view)
    own = [message for message in view if any(message is one for one in messages)]
    assert own[0] is BRIEF
    assert own[-1] is messages[-1]
    assert len(own) == len(view) - 1  # the segment alone is not of the list


async def test_an_object_of_an_sdk_comes_out_as_it_is() -> None:
    from openai.types.chat import ChatCompletionMessage

    answer = ChatCompletionMessage(role="assistant", content="Hello.")
    assert await memory_of().view([user("Hi"), answer]) == [user("Hi"), answer]


async def test_without_a_list_it_is_the_view_of_what_was_added() -> None:
    memory = memory_of()
    await memory.add(from_openai(said("a", 20)))
    assert await memory.view() == to_openai(await memory.get_memory())


async def test_the_system_text_is_counted_and_not_sent() -> None:
    memory, plain = memory_of(), memory_of()
    messages = said("a", 8)
    view = await memory.view(messages, system=[{"type": "text", "text": "Mind the gap. " * 200}])
    assert len(await plain.view(messages)) > len(view)
    assert not any("Mind the gap" in str(message) for message in view)
    assert 500 < memory.stats().view_tokens <= 1_500
    with pytest.raises(InvalidArgumentError, match="system: expected"):
        await memory.view(messages, system=5)  # type: ignore[arg-type]


async def test_a_form_of_ones_own_reads_and_writes() -> None:
    form = Form(
        lambda lines: from_openai([user(line) for line in lines]),
        lambda messages: [msg.get_text_content() for msg in messages],
    )
    memory = memory_of()
    lines = [f"line {number} " + "word " * 50 for number in range(40)]
    view = await memory.view(lines, form=form)
    assert view[-1] is lines[-1]
    assert any(line.startswith("[Notes by the memory") for line in view)
    with pytest.raises(InvalidArgumentError, match="form: expected 'chat'"):
        await memory.view(lines, form="runes")  # type: ignore[arg-type]


# Lists that depart


async def test_two_lists_in_turn_cost_what_each_costs_alone() -> None:
    """Two users with the same system prompt and the same first word, on one memory."""
    events: list[CompressionEvent] = []
    memory, alone = memory_of(on_event=events.append), memory_of()
    first = [BRIEF, user("Hello")]
    other = list(first)
    for number in range(20):
        first += said(f"a{number}", 1)
        other += said(f"b{number}", 1)
        shown, other_shown = json.dumps(await memory.view(first)), json.dumps(await memory.view(other))
        assert "-question" in shown
        assert f"b{number}-" not in shown
        assert f"a{number}-" not in other_shown
        await alone.view(first)
    assert len(events) <= 2 * alone.stats().events
    assert await memory.view(first) == await alone.view(first)


async def test_a_list_that_goes_back_to_what_it_departed_from_pays_for_nothing_twice() -> None:
    store = InMemoryOffloadStore()
    memory = memory_of(store=store)
    long = [BRIEF, *said("a", 20)]
    view = await memory.view(long)
    events, refs = memory.stats().events, set(await store.refs())
    await memory.view([*long[:5], user("Something else.")])
    assert set(await store.refs()) == refs  # nothing leaves the store for a list
    assert await memory.view(long) == view
    assert memory.stats().events == events


async def test_a_branch_is_let_go_of_when_its_time_is_over() -> None:
    store = InMemoryOffloadStore()
    memory = memory_of(store=store, branch_seconds=0)
    await memory.view([BRIEF, *said("a", 20)])
    assert await store.refs()
    await memory.view([BRIEF, user("a-question"), assistant("Else."), user("And?")], reset=True)
    assert await store.refs() == []


@pytest.mark.parametrize("way", ["at the next request", "when the memory is closed"])
async def test_a_branch_that_nobody_goes_back_to_leaves_no_text(way: str) -> None:
    store = InMemoryOffloadStore()
    memory = memory_of(store=store)
    short = [BRIEF, *said("a", 1), user("Else?")]
    await memory.view([BRIEF, *said("a", 20)])
    await memory.view(short)
    assert set(await store.refs()) > set(await memory.reachable_refs())
    if way == "at the next request":
        for branch in memory._tracker.branches:
            branch.left_at -= 3_600
        await memory.view(short)
    else:
        await memory.aclose()
    assert set(await store.refs()) == set(await memory.reachable_refs())


async def test_what_is_deleted_is_in_no_branch() -> None:
    memory = memory_of()
    long = [BRIEF, *said("a", 20)]
    await memory.view(long)
    await memory.view([*long[:5], user("Something else.")])
    secret = (await memory.get_history())[1]
    await memory.delete([secret.id])
    await memory.view(long)
    assert "a-question-0" not in json.dumps(to_openai(await memory.get_memory()))


@pytest.mark.parametrize("base", [None, ForeignMemory], ids=["ours", "theirs"])
async def test_branches_work_over_any_base(base: type[ForeignMemory] | None) -> None:
    memory = memory_of(base=None if base is None else base())
    first, other = [BRIEF, *said("a", 12)], [BRIEF, *said("a", 1), *said("b", 12)]
    shown, other_shown = await memory.view(first), await memory.view(other)
    for _ in range(2):
        assert await memory.view(first) == shown
        assert to_openai(await memory.get_history()) == first
        assert await memory.view(other) == other_shown
        assert to_openai(await memory.get_history()) == other


async def test_a_list_that_shares_nothing_is_refused_and_taken_with_reset() -> None:
    memory = memory_of()
    await memory.view([BRIEF, *said("a", 3)])
    other = [BRIEF, *said("b", 3)]
    with pytest.raises(UnrelatedMessagesError, match="reset=True"):
        await memory.view(other)
    for nothing in ([], [BRIEF]):
        with pytest.raises(UnrelatedMessagesError):
            await memory.view(nothing)
    assert to_openai(await memory.get_history()) == [BRIEF, *said("a", 3)]
    assert await memory.view(other, reset=True) == other


async def test_instructions_that_were_added_before_are_no_conversation() -> None:
    memory = memory_of()
    await memory.add(from_openai([BRIEF]))
    assert await memory.view([user("Hi")]) == [BRIEF, user("Hi")]


async def test_a_short_list_between_two_long_ones_costs_nothing_either() -> None:
    memory = memory_of()
    long = [BRIEF, *said("a", 20)]
    view = await memory.view(long)
    events = memory.stats().events
    await memory.view(long[:3])
    assert await memory.view(long) == view
    assert memory.stats().events == events


async def test_views_at_the_same_time_do_not_meet() -> None:
    """Sixteen of forty requests once carried another user's words."""
    memory = memory_of()
    lists = [[BRIEF, user("Hello"), *said(f"u{n}", 1)] for n in range(4)]
    for _ in range(5):
        views = await asyncio.gather(*(memory.view(list(messages)) for messages in lists))
        for number, view in enumerate(views):
            others = [f"u{n}-" for n in range(4) if n != number]
            assert not any(other in json.dumps(view) for other in others)
        for number, messages in enumerate(lists):
            messages += said(f"u{number}", 2)


async def test_a_clock_in_the_system_prompt_brings_no_summary_to_be_written_anew() -> None:
    events: list[CompressionEvent] = []
    memory = memory_of(on_event=events.append)
    messages = said("a", 20)
    await memory.view([system("It is 9."), *messages])
    compressed = [event for event in events if event.kind != "edit"]
    for hour in range(10, 15):
        view = await memory.view([system(f"It is {hour}."), *messages])
        assert view[0] == system(f"It is {hour}.")
    assert [event for event in events if event.kind != "edit"] == compressed


# Saving


async def test_a_saved_file_brings_back_the_view(tmp_path: Path) -> None:
    memory = memory_of()
    await memory.view([BRIEF, *said("a", 20)])
    file = tmp_path / "state.json"
    state = await memory.save(file)
    assert json.loads(file.read_text()) == json.loads(json.dumps(state))
    for source in (file, str(file), state):
        again = memory_of(store=memory.store)
        await again.load(source)
        assert [msg.to_dict() for msg in await again.get_memory()] == [
            msg.to_dict() for msg in await memory.get_memory()
        ]
    assert names_in(tmp_path) == ["state.json"]


async def test_a_file_that_was_written_half_is_told_as_such(tmp_path: Path) -> None:
    memory = memory_of()
    await memory.view([BRIEF, *said("a", 20)])
    file = tmp_path / "state.json"
    await memory.save(file)
    file.write_text(file.read_text()[:-100])
    with pytest.raises(InvalidStateError, match="written half"):
        await memory_of().load(file)


async def test_a_save_that_fails_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = memory_of()
    await memory.view([user("first")])
    file = tmp_path / "state.json"
    await memory.save(file)
    before = file.read_bytes()
    await memory.view([user("first"), assistant("second")])

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        await memory.save(file)
    assert file.read_bytes() == before
    assert names_in(tmp_path) == ["state.json"]


# Both faces


def test_it_works_without_asyncio() -> None:
    memory = memory_of()
    messages = [BRIEF, *said("a", 20)]
    view = memory.view_sync(messages)
    assert len(view) < len(messages)
    tools = memory.tools()
    assert "a-question-3" in tools.call_sync("search_history", {"query": "a-question-3"})
    with pytest.raises(LoopError, match="view_sync"):
        asyncio.run(memory.view(messages))
    with pytest.raises(LoopError, match="view_sync"):
        asyncio.run(tools.call("search_history", {"query": "x"}))


async def test_a_memory_of_asyncio_is_refused_without_it_and_another_blocks_the_loop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    memory = memory_of()
    await memory.view([user("Hi")])
    with pytest.raises(LoopError, match=r"await memory\.view"):
        memory.view_sync([user("Hi")])
    with pytest.raises(LoopError, match=r"await tools\.call"):
        memory.tools().call_sync("search_history", {"query": "x"})
    assert memory_of().view_sync([user("Hi")]) == [user("Hi")]
    assert "block the event loop" in caplog.text


def test_what_goes_wrong_without_asyncio_is_raised_there() -> None:
    with pytest.raises(InvalidArgumentError, match="messages"):
        memory_of().view_sync(5)  # type: ignore[arg-type]


# Thresholds one by one, and the tools


def test_thresholds_are_given_at_once_or_one_by_one() -> None:
    config = CompressionConfig(max_total_tokens=900, keep_recent_count=3)
    assert CompressedMemory(max_total_tokens=900, keep_recent_count=3).config == config
    assert CompressedMemory(config).config == config
    with pytest.raises(InvalidArgumentError, match="exclude each other"):
        CompressedMemory(config=config, max_total_tokens=900)
    with pytest.raises(InvalidArgumentError, match="budget: there is no such field"):
        CompressedMemory(budget=900)
    assert compress_messages(said("a", 20), max_total_tokens=900).stats.budget_tokens == 900


@pytest.mark.parametrize("has_tools", [False, True])
async def test_stand_ins_name_the_tools_where_the_agent_has_them(has_tools: bool) -> None:
    memory = memory_of(max_tool_message_tokens=200)
    if has_tools:
        memory.tools()
    work = [m for n in range(12) for m in (call(f"c{n}"), result(f"c{n}", f"found {n}\n" * 200))]
    view = await memory.view([user("Look into it."), *work])
    shown = json.dumps(view)
    assert "ctx://" in shown
    named = [tool for tool in ("read_offloaded", "search_history", "grep_offloaded") if tool in shown]
    assert bool(named) == has_tools


async def test_tools_of_a_result_read_back_what_left_and_are_named_from_then_on() -> None:
    first = await acompress_messages(said("a", 20), max_total_tokens=900)
    assert "search_history" not in json.dumps(first.messages)
    assert "a-question-2" in await first.tools.call("search_history", {"query": "a-question-2"})
    state = json.loads(json.dumps(first.state))
    second = await acompress_messages(said("a", 40), max_total_tokens=900, state=state)
    assert "search_history" in json.dumps(second.messages)
    assert "a-question-2" in compress_messages(said("a", 20), max_total_tokens=900).tools.call_sync(
        "search_history", {"query": "a-question-2"}
    )


async def test_what_takes_the_place_of_another_stands_there_in_the_history_too() -> None:
    """The messages that the list has behind it may all have been deleted by hand."""
    memory = memory_of()
    await memory.view([user("first")])
    await memory.delete([(await memory.get_history())[0].id])
    await memory.view([system("It is 9."), user("first")])
    await memory.add(from_openai([user("added")]))
    view = await memory.view([system("It is 10."), user("first")])
    assert view == [system("It is 10."), user("added")]
    assert to_openai(await memory.get_history()) == view


async def test_a_message_put_between_results_that_were_summarised_leaves_no_result_alone() -> None:
    calls = call("one", "two")
    before = [call("none"), calls, result("two", "alpha beta " * 170), result("one", "gamma " * 30)]
    after = [*before[:3], user("a stray word " * 10), before[3]]
    thresholds: dict[str, Any] = {"max_total_tokens": 400, "mode": "compress", "keep_recent_count": 0}
    first = await acompress_messages(before, **thresholds)
    state = json.loads(json.dumps(first.state))
    assert not problems((await acompress_messages(after, state=state, **thresholds)).messages)
