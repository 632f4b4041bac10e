"""Results that come behind another message: every way in agrees, and what was shown stays."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compressor import CompressedMemory, Msg, compress_messages, from_openai, to_openai
from context_compressor.laws.chat_rules import problems
from context_compressor.messages.repair import MISSING_RESULT
from tests.memory.scripted import (
    assistant,
    call,
    config,
    exchange,
    good_view,
    kind_of,
    new_memory,
    result,
    system,
    turns,
    user,
)
from tests.support.strategies import interleaved

Dict = dict[str, Any]


@given(interleaved())
async def test_every_way_in_gives_the_same_view(said: list[Dict]) -> None:
    at_once, one_by_one, synced, step_by_step = (new_memory() for _ in range(4))
    await at_once.add(from_openai(said))
    for msg in from_openai(said):
        await one_by_one.add(msg)
    await synced.sync(said)
    for count in range(len(said)):
        await step_by_step.sync(said[: count + 1])
    views = [to_openai(await m.get_memory()) for m in (at_once, one_by_one, synced, step_by_step)]
    views.append(compress_messages(said).messages)
    assert all(view == views[0] for view in views)
    assert MISSING_RESULT not in json.dumps(views[0])
    assert sorted(map(json.dumps, views[0])) == sorted(map(json.dumps, said))


@given(interleaved(), st.data())
async def test_what_a_view_has_shown_stays_and_each_result_says_whose_it_is(
    said: list[Dict], data: st.DataObject
) -> None:
    memory, state = new_memory(), None
    shown: list[Dict] = []
    stateless: list[Dict] = []
    for count in range(1, len(said) + 1):
        await memory.sync(said[:count])
        if not data.draw(st.booleans(), label="shown") and count < len(said):
            continue
        view = to_openai(await memory.get_memory())
        assert view[: len(shown)] == shown
        assert [p for p in problems(view) if p != "only instructions"] == []
        shown = view
        found = compress_messages(said[:count], state=state)
        stateless, state = found.messages, json.loads(json.dumps(found.state))
        assert stateless == shown
        if data.draw(st.booleans(), label="saved"):
            again = new_memory()
            again.load_state_dict(json.loads(json.dumps(memory.state_dict())))
            memory = again
            assert to_openai(await memory.get_memory()) == shown
    whole = json.dumps(shown)
    for message in said:
        if message["role"] == "tool":
            id = message["tool_call_id"]
            late = (
                f"[Result of tool tool_{id}, which came late, for the call with {{}}:]\n{message['content']}"
            )
            assert message in shown or user(late) in shown, whole


async def test_a_result_added_alone_is_told_with_the_name_of_its_tool() -> None:
    memory = new_memory()
    said = [
        call("x", name="start_export"),
        result("x", "pending"),
        assistant("Started."),
        result("x", "done"),
    ]
    for message in said:
        await memory.add(from_openai([message]))
    assert to_openai(await memory.get_memory())[-1]["content"].startswith("[Result of tool start_export, ")
    memory = new_memory()
    use = {"type": "tool_use", "id": "x", "name": "start_export", "input": {"tenant": "blue"}}
    await memory.add(Msg("Friday", [use], "assistant"))
    await memory.add(Msg("Ada", "stop", "user"))
    await memory.get_memory()
    await memory.add(Msg("system", [{"type": "tool_result", "id": "x", "output": "done"}], "system"))
    expected = '[Result of tool start_export, which came late, for the call with {"tenant": "blue"}:]\ndone'
    assert to_openai(await memory.get_memory())[-1] == user(expected)


async def test_a_call_waits_again_when_what_ended_the_waiting_is_taken_back() -> None:
    memory = new_memory()
    said = [user("go"), call("a"), user("stop")]
    await memory.sync(said)
    assert to_openai(await memory.get_memory())[2] == result("a", MISSING_RESULT)
    said[2:] = [result("a", "1"), user("on")]
    await memory.sync(said)
    assert to_openai(await memory.get_memory()) == said


async def test_a_late_result_that_a_stub_stands_for_is_the_answer_once_the_answer_is_deleted() -> None:
    """The label that it had names its call; as a result of that call it has none."""
    memory = new_memory(config(max_total_tokens=500))
    await memory.add(from_openai([user("go"), call("c"), result("c", "first")]))
    await memory.add(from_openai([result("c", "second " * 900)]))
    assert [kind_of(msg) for msg in await good_view(memory)] == [None, None, None, "stub"]
    await memory.delete([(await memory.get_history())[2].id])
    *_, answer = to_openai(await good_view(memory))
    assert answer["role"] == "tool"
    assert "second" in answer["content"]
    assert "came late" not in answer["content"]


async def test_deleting_something_else_leaves_calls_waiting_that_no_view_has_shown() -> None:
    memory = new_memory()
    added = from_openai([user("go"), user("hurry"), call("a"), system("a signal")])
    await memory.add(added[:2])
    await memory.get_memory()
    await memory.add(added[2:])
    await memory.delete([added[1].id])
    await memory.add(from_openai([result("a", "1")]))
    wire = to_openai(await memory.get_memory())
    assert wire == [user("go"), call("a"), result("a", "1"), system("a signal")]


def as_earlier_releases_saved(state: dict[str, Any]) -> dict[str, Any]:
    """Return a saved state without what they did not save."""
    older: dict[str, Any] = json.loads(json.dumps(state))
    del older["compression"]["decisions"]
    del older["compression"]["markers"]
    return older


@pytest.mark.parametrize("is_compressed", [False, True])
async def test_a_state_of_an_earlier_release_shows_what_it_showed(is_compressed: bool) -> None:
    said = [call("a"), system("a signal"), result("a", "late"), *exchange("b", 5)]
    memory: CompressedMemory = new_memory(config())
    for message in [*said, *(turns(9) if is_compressed else [])]:
        await memory.add(from_openai([message]))
        await memory.get_memory()
    view = to_openai(await good_view(memory))
    again = new_memory(config(), store=memory.store)
    again.load_state_dict(as_earlier_releases_saved(memory.state_dict()))
    shown = to_openai(await again.get_memory())
    assert memory.stats().segments == again.stats().segments
    assert (again.stats().segments > 0) == is_compressed
    if not is_compressed:
        assert shown[:3] == view[:3]
        assert shown[3] == user("[Result of a tool, which answers no open call:]\nlate")
        assert shown[4:] == view[4:]
    saved = json.loads(json.dumps(again.state_dict()))
    third = new_memory(config(), store=memory.store)
    third.load_state_dict(saved)
    assert to_openai(await third.get_memory()) == shown
