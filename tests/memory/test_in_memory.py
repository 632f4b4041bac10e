from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given

from context_compressor.errors import InvalidArgumentError, InvalidStateError
from context_compressor.memory.in_memory import InMemoryMemory
from context_compressor.messages.msg import Msg
from tests.memory.contract import (
    AGENTSCOPE_OLD_STATE,
    AGENTSCOPE_STATE,
    MemoryContract,
    ids_of,
    make_msg,
    make_msgs,
)
from tests.memory.model import Operation, operations, replay


class TestInMemoryMemory(MemoryContract):
    @pytest.fixture
    def memory(self) -> InMemoryMemory:
        return InMemoryMemory()


@given(operations(duplicates=True))
async def test_it_equals_a_naive_model(drawn: list[Operation]) -> None:
    memory = InMemoryMemory()
    model = await replay(memory, drawn)
    state = memory.state_dict()
    assert state == {
        "_compressed_summary": model.summary,
        "content": [[msg.to_dict(), marks] for msg, marks in model.items],
    }
    other = InMemoryMemory()
    other.load_state_dict(json.loads(json.dumps(state)))
    assert other.state_dict() == state
    assert await other.get_memory() == await memory.get_memory()


async def test_duplicates_are_kept_on_request_and_deleted_together() -> None:
    memory = InMemoryMemory()
    await memory.add([make_msg("a", "one"), make_msg("b")])
    await memory.add(make_msg("a", "two"), marks="x", allow_duplicates=True)
    assert await ids_of(memory) == "aba"
    assert [msg.content for msg in await memory.get_memory(mark="x")] == ["two"]
    assert await memory.update_messages_mark("y", msg_ids=["a"]) == 2
    assert await memory.delete(["a"]) == 2
    assert await ids_of(memory) == "b"


async def test_another_librarys_message_is_refused_with_the_way_to_convert_it() -> None:
    class TheirMsg:
        id, name, role, content = "a", "user", "user", "hi"

    with pytest.raises(
        InvalidArgumentError, match=r"memories\[0\]: expected a Msg, got .*TheirMsg.*from_dict"
    ):
        await InMemoryMemory().add([TheirMsg()])  # type: ignore[list-item]


@pytest.mark.parametrize("chats", [{"role": "user", "content": "hi"}, [{"role": "user", "content": "hi"}]])
async def test_chat_dicts_are_refused_with_the_way_to_make_messages_of_them(chats: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"expected a Msg.*from_openai"):
        await InMemoryMemory().add(chats)


async def test_messages_that_are_no_list_are_refused_with_the_way_to_make_one() -> None:
    async def messages() -> list[Msg]:
        return [make_msg("a")]

    memory, forgotten = InMemoryMemory(), messages()
    for added in (iter([make_msg("a")]), (make_msg("a"),)):
        with pytest.raises(InvalidArgumentError, match=r"a list of Msg or None, got .*; list\(...\) makes"):
            await memory.add(added)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match=r"a list of Msg or None, got .*; await it"):
        await memory.add(forgotten)  # type: ignore[arg-type]
    forgotten.close()


async def test_options_of_other_implementations_are_ignored() -> None:
    memory = InMemoryMemory()
    await memory.add(make_msg("a"), marks=None, skip_duplicated=True)
    assert await memory.get_memory(limit=3) == [make_msg("a")]
    assert await memory.delete(["b"], force=True) == 0


async def test_agentscopes_state_loads_and_is_written_back_the_same() -> None:
    memory = InMemoryMemory()
    memory.load_state_dict(AGENTSCOPE_STATE)
    assert [msg.content for msg in await memory.get_memory()] == [
        "earlier",
        "hi",
        AGENTSCOPE_STATE["content"][1][0]["content"],
    ]
    assert await ids_of(memory, mark="compressed") == "4M9UyLNCLGh2FfSUHyjZcG"
    assert memory.state_dict() == AGENTSCOPE_STATE


async def test_agentscopes_old_state_without_marks_and_summary_loads() -> None:
    memory = InMemoryMemory()
    await memory.update_compressed_summary("of before")
    memory.load_state_dict(AGENTSCOPE_OLD_STATE)
    assert [msg.to_dict() for msg in await memory.get_memory()] == AGENTSCOPE_OLD_STATE["content"]


async def test_a_loaded_state_is_not_shared_with_the_memory() -> None:
    memory = InMemoryMemory()
    state = json.loads(json.dumps(AGENTSCOPE_STATE))
    memory.load_state_dict(state)
    state["content"][1][0]["content"][0]["output"] = "spoilt"
    state["content"][0][1].append("spoilt")
    memory.state_dict()["content"].clear()
    assert memory.state_dict() == AGENTSCOPE_STATE


@pytest.mark.parametrize(
    ("state", "place"),
    [
        ([], "state: expected a dict, got list"),
        ({"content": [], "ledger": {}}, "ledger: unknown key"),
        ({"_compressed_summary": ""}, "content: missing"),
        ({"content": {}}, "content: expected a list, got dict"),
        (
            {"content": [], "_compressed_summary": None},
            "_compressed_summary: expected a string, got NoneType",
        ),
        ({"content": ["text"]}, r"content\[0\]: expected a message and its marks, got str"),
        (
            {"content": [[make_msg("a").to_dict(), "x"]]},
            r"content\[0\]\[1\]: expected a list of strings, got 'x'",
        ),
        ({"content": [make_msg("a").to_dict(), [{"name": "b"}, []]]}, r"content\[1\]\[0\]\.role: missing"),
        ({"content": [{"name": "b", "role": "x", "content": ""}]}, r"content\[0\]\.role: expected one of"),
    ],
)
async def test_a_bad_state_is_refused_with_the_place(state: Any, place: str) -> None:
    memory = InMemoryMemory()
    await memory.add(make_msg("before"), marks="m")
    with pytest.raises(InvalidStateError, match=place):
        memory.load_state_dict(state)
    assert await ids_of(memory, mark="m") == "before"


async def test_a_lenient_load_passes_over_what_is_unknown_or_missing() -> None:
    memory = InMemoryMemory()
    memory.load_state_dict({**AGENTSCOPE_STATE, "ledger": {}}, strict=False)
    assert memory.state_dict() == AGENTSCOPE_STATE
    memory.load_state_dict({}, strict=False)
    assert await memory.get_memory() == []


async def test_a_revision_tells_a_load() -> None:
    memory = InMemoryMemory()
    await memory.add(make_msgs("ab"))
    before = memory.revision()
    memory.load_state_dict(memory.state_dict())
    assert memory.revision() != before


async def test_filters_stay_in_order_after_many_deletions() -> None:
    memory = InMemoryMemory()
    numbers = list(range(2_000))
    for number in numbers:
        await memory.add(make_msg(str(number)), marks=["even" if number % 2 == 0 else "odd"])
    random.Random(1).shuffle(numbers)
    gone = {str(number) for number in numbers[:1_000]}
    assert await memory.delete(sorted(gone)) == 1_000
    left = [number for number in range(2_000) if str(number) not in gone]
    assert [int(msg.id) for msg in await memory.get_memory()] == left
    assert [int(msg.id) for msg in await memory.get_memory(mark="odd")] == [n for n in left if n % 2]


async def test_a_summary_with_a_lone_surrogate_is_shown() -> None:
    memory = InMemoryMemory()
    await memory.update_compressed_summary("half \ud83d")
    assert [msg.content for msg in await memory.get_memory()] == ["half \ud83d"]


async def test_messages_without_metadata_keep_none() -> None:
    memory = InMemoryMemory()
    await memory.add(Msg("user", "x", "user", id="a"))
    assert (await memory.get_memory())[0].metadata is None
