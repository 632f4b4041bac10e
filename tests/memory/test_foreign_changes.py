"""What a base memory does on its own, or others do to it while the wrapper waits."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from context_compressor import (
    CompressedMemory,
    CompressionConfig,
    CompressionEvent,
    InMemoryMemory,
    Msg,
    from_openai,
    to_openai,
)


class Picky(InMemoryMemory):
    """A base that refuses some messages without saying so."""

    async def add(self, memories: Any, marks: Any = None, **kwargs: Any) -> None:
        kept = [msg for msg in memories if "secret" not in str(msg.content)]
        await super().add(kept, marks=marks, **kwargs)


class Shared(InMemoryMemory):
    """A base to which somebody else adds while our message is on its way."""

    async def add(self, memories: Any, marks: Any = None, **kwargs: Any) -> None:
        await super().add(memories, marks=marks, **kwargs)
        await super().add(Msg("user", "foreign", "user"))


async def test_what_the_base_refused_is_in_no_view() -> None:
    memory = CompressedMemory(base=Picky())
    await memory.add([Msg("user", "hi", "user"), Msg("user", "secret", "user")])
    assert [msg.content for msg in await memory.get_memory()] == ["hi"]


async def test_what_others_add_meanwhile_is_in_the_next_view() -> None:
    memory = CompressedMemory(base=Shared())
    await memory.add(Msg("user", "own", "user"))
    assert [msg.content for msg in await memory.get_memory()] == ["own", "foreign"]


async def test_the_event_of_a_change_behind_its_back_names_the_messages() -> None:
    events: list[CompressionEvent] = []
    memory = CompressedMemory(on_event=events.append)
    said = [Msg("user", str(number), "user", id=f"m{number}") for number in range(4)]
    await memory.add(said)
    await memory.get_memory()
    await memory.base.delete(["m1"])
    await memory.get_memory()
    state = memory.base.state_dict()
    state["content"].insert(1, [Msg("user", "between", "user", id="new").to_dict(), []])
    state["content"][2][0]["content"] = "edited"
    state["content"].append([Msg("user", "at the end", "user", id="end").to_dict(), []])
    memory.base.load_state_dict(state)
    await memory.get_memory()
    assert [event.message_ids for event in events] == [("m1",), ("m2", "new")]


@pytest.mark.parametrize(
    "change",
    [
        lambda memory: memory.add(Msg("user", "three", "user")),
        lambda memory: memory.delete(["2"]),
        lambda memory: memory.update_messages_mark("x", msg_ids=["2"]),
        lambda memory: memory.update_compressed_summary("so far"),
    ],
    ids=["add", "delete", "mark", "summary"],
)
async def test_a_change_behind_its_back_shows_though_one_of_its_own_follows(
    change: Callable[[CompressedMemory], Awaitable[Any]],
) -> None:
    memory = CompressedMemory()
    await memory.add([Msg("user", "one", "user", id="1"), Msg("user", "two", "user", id="2")])
    await memory.get_memory()
    state = memory.base.state_dict()
    state["content"][0][0]["content"] = "edited"
    memory.base.load_state_dict(state)
    await change(memory)
    shown = [msg.content for msg in await memory.get_memory()]
    assert "edited" in shown
    assert "one" not in shown


async def test_deleting_by_mark_one_of_two_under_an_id_keeps_the_other() -> None:
    memory = CompressedMemory()
    msg = Msg("user", "one", "user", id="a")
    await memory.add(msg, marks="x")
    await memory.add(msg, allow_duplicates=True)
    assert await memory.delete_by_mark("x") == 1
    assert [m.content for m in await memory.get_memory()] == ["one"]


async def test_a_large_arrival_is_still_one_after_a_restart() -> None:
    config = CompressionConfig(max_total_tokens=2_000)
    memory = CompressedMemory(config=config)
    call = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
    text = "\n".join(f"file_{number}.py" for number in range(150))
    await memory.add(
        from_openai(
            [
                {"role": "user", "content": "List the files."},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c1", "content": text},
            ]
        )
    )
    await memory.update_messages_mark("note", msg_ids=["nobody"])  # moves on, and hands out no view
    again = CompressedMemory(config=config)
    again.load_state_dict(json.loads(json.dumps(memory.state_dict())))
    assert to_openai(await again.get_memory()) == to_openai(await memory.get_memory())
    assert text not in json.dumps(to_openai(await again.get_memory()))


@pytest.mark.parametrize("how", ["as it is", "restart", "behind its back"])
async def test_a_large_arrival_is_still_one_that_waited_for_another_result(how: str) -> None:
    config = CompressionConfig(max_total_tokens=2_000)
    memory = CompressedMemory(config=config)
    calls = [
        {"id": id, "type": "function", "function": {"name": "ls", "arguments": "{}"}} for id in ("c1", "c2")
    ]
    text = "\n".join(f"file_{number}.py" for number in range(150))
    await memory.add(
        from_openai(
            [
                {"role": "user", "content": "List the files."},
                {"role": "assistant", "content": None, "tool_calls": calls},
                {"role": "tool", "tool_call_id": "c1", "content": text},
            ]
        )
    )
    assert len(await memory.get_memory()) == 1
    adding = memory.base if how == "behind its back" else memory
    await adding.add(from_openai([{"role": "tool", "tool_call_id": "c2", "content": "no files"}]))
    if how == "restart":
        state = json.loads(json.dumps(memory.state_dict()))
        memory = CompressedMemory(config=config)
        memory.load_state_dict(state)
    view = json.dumps(to_openai(await memory.get_memory()))
    assert json.dumps("no files") in view
    assert json.dumps(text) not in view
