"""Request metadata that moves (`cache_control`): no content, and carried where the newest list has it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from context_compressor import TiktokenCounter, compress_messages, from_anthropic, from_openai, to_openai
from context_compressor.laws.chat_rules import problems
from context_compressor.messages.markers import split_markers
from tests.memory.scripted import (
    assistant,
    call,
    config,
    kind_of,
    new_memory,
    result,
    system,
    turns,
    user,
)

Dict = dict[str, Any]
EPHEMERAL = {"type": "ephemeral"}


def on_message(message: Dict) -> Dict:
    return {**message, "cache_control": EPHEMERAL}


def on_part(message: Dict) -> Dict:
    if message["content"] is None:
        return on_call(message)
    part = {"type": "text", "text": message["content"], "cache_control": EPHEMERAL}
    return {**message, "content": [part]}


def on_call(message: Dict) -> Dict:
    if "tool_calls" not in message:
        return on_message(message)
    return {**message, "tool_calls": [{**each, "cache_control": EPHEMERAL} for each in message["tool_calls"]]}


PLACES = [on_message, on_part, on_call]


def marked(said: list[Dict], mark: Callable[[Dict], Dict], last: int = 2) -> list[Dict]:
    """Return a list with breakpoints on its last messages, as callers set them anew for each request."""
    return [*said[:-last], *map(mark, said[-last:])]


def bare(wire: list[Dict]) -> list[Dict]:
    return [split_markers(message)[0] for message in wire]


@pytest.mark.parametrize("mark", PLACES)
async def test_a_marker_that_moves_changes_nothing_in_a_synced_view(mark: Callable[[Dict], Dict]) -> None:
    events: list[str] = []
    plain, moving = new_memory(), new_memory(on_event=lambda event: events.append(event.kind))
    said = [system("be brief"), *turns(9)]
    for count in range(1, len(said) + 1):
        await plain.sync(said[:count])
        await moving.sync(marked(said[:count], mark))
        expected, view = to_openai(await plain.get_memory()), to_openai(await moving.get_memory())
        assert bare(view) == expected
        assert moving.stats().view_tokens == plain.stats().view_tokens
        shown = [message for message in view if message not in expected]
        assert shown == [message for message in marked(said[:count], mark) if message in view][-len(shown) :]
    assert set(events) == {"compress"}
    assert bare(to_openai(await moving.get_history())) == said


@pytest.mark.parametrize("mark", PLACES)
def test_a_marker_that_moves_costs_nothing_between_calls_without_a_memory(
    mark: Callable[[Dict], Dict],
) -> None:
    state = expected_state = None
    said = [system("be brief"), *turns(9)]
    for count in range(1, len(said) + 1):
        expected = compress_messages(said[:count], config=config(), state=expected_state)
        found = compress_messages(marked(said[:count], mark), config=config(), state=state)
        expected_state, state = expected.state, json.loads(json.dumps(found.state))
        assert bare(found.messages) == expected.messages
        assert state == expected_state


async def test_the_newest_list_tells_where_markers_stand() -> None:
    memory = new_memory()
    said = [user("a"), assistant("b"), user("c")]
    for newest in (
        marked(said, on_message, 3),
        marked(said, on_part, 1),
        said,
        [on_message(said[0]), *said[1:]],
    ):
        await memory.sync(newest)
        assert to_openai(await memory.get_memory()) == newest
        assert to_openai(await memory.get_history()) == newest


async def test_a_stub_carries_no_marker() -> None:
    memory = new_memory(config(1_500))
    said = [user("go"), call("a"), result("a", "\n".join(f"row {n} of a long table" for n in range(2_000)))]
    await memory.sync(marked(said, on_part, 1))
    (*_, shown) = await memory.get_memory()
    assert kind_of(shown) == "stub"
    assert "cache_control" not in json.dumps(to_openai([shown]))
    found = compress_messages(marked(said, on_message, 1), config=config(1_500))
    assert "cache_control" not in json.dumps(found.messages)
    assert problems(found.messages) == []


async def test_a_result_under_a_new_id_keeps_its_marker() -> None:
    said = [user("go"), call("a"), result("a", "1"), call("a"), result("a", "2")]
    memory = new_memory()
    await memory.sync(marked(said, on_part, 1))
    view = to_openai(await memory.get_memory())
    assert view[-1]["tool_call_id"] != "a"
    assert view[-1]["content"] == on_part(result("a", "2"))["content"]


async def test_a_saved_view_comes_back_with_its_markers() -> None:
    memory, again = new_memory(), new_memory()
    said = turns(2)
    await memory.sync(marked(said, on_part))
    view = to_openai(await memory.get_memory())
    again.load_state_dict(json.loads(json.dumps(memory.state_dict())))
    assert to_openai(await again.get_memory()) == view == marked(said, on_part)
    await again.sync(marked(said, on_message, 1))
    assert to_openai(await again.get_memory()) == marked(said, on_message, 1)


@pytest.mark.parametrize("as_parts", [False, True])
async def test_a_marked_text_is_the_same_as_a_string_and_as_the_only_part(as_parts: bool) -> None:
    """Callers that write parts always, and callers that write one only to have a place for the marker."""
    said = turns(9)
    if as_parts:
        said = [
            {**message, "content": [{"type": "text", "text": message["content"]}]}
            if isinstance(message["content"], str)
            else message
            for message in said
        ]
    plain = compress_messages(said, config=config())
    parts = [split_markers(message)[0] for message in said]
    again = compress_messages(marked(parts, on_part), config=config(), state=plain.state)
    assert again.state == plain.state
    assert again.stats.segments == plain.stats.segments == 1


def test_what_an_argument_or_a_text_says_is_content() -> None:
    arguments = {"cache_control": EPHEMERAL, "content": [{"cache_control": EPHEMERAL}]}
    asked = call("a")
    asked["tool_calls"][0]["function"]["arguments"] = arguments
    said = [user('{"cache_control": {"type": "ephemeral"}}'), asked]
    assert [split_markers(message) for message in said] == [(message, []) for message in said]


def test_markers_are_read_and_written_as_they_stand() -> None:
    said = [
        {"cache_control": EPHEMERAL, **user("first")},
        on_part({"role": "user", "name": "Ada", "content": "x"}),
        {"role": "user", "content": [{"cache_control": EPHEMERAL, "type": "text", "text": "x"}]},
        {"role": "user", "content": [{"text": "x", "cache_control": EPHEMERAL, "type": "text"}]},
        on_message(on_part(call("a") | {"content": ""})),
        on_call(call("a", "b") | {"content": "now"}),
        on_part(result("a", "")),
        {**on_part(result("b", "1")), "cache_control": None},
        {"role": "assistant", "content": [{"text": "a"}, {"text": "b", "cache_control": EPHEMERAL}]},
    ]
    before = copy.deepcopy(said)
    msgs = from_openai(said)
    assert json.dumps(to_openai(msgs)) == json.dumps(said)
    assert said == before
    blocks = json.dumps([msg.content for msg in msgs])
    assert "cache_control" not in blocks


def test_it_costs_nothing_beside_what_a_text_carries() -> None:
    # So long that the mark beside it would make it worth counting.
    citation = {"type": "char_location", "document_index": 0, "cited_text": "a text that was cited. " * 4}
    text = {"type": "text", "text": "As it says.", "citations": [citation]}
    unknown = {"type": "of_tomorrow", "holds": "words"}
    bare = {"role": "assistant", "content": [text, unknown]}
    marked = {**bare, "content": [{**part, "cache_control": EPHEMERAL} for part in bare["content"]]}
    counts = [TiktokenCounter().count_messages(from_anthropic([one])) for one in (bare, marked)]
    assert counts[0] == counts[1]
