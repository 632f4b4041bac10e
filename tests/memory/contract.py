"""What every memory must do. Subclass `MemoryContract`, and give a fixture `memory` that is empty.

`tests.memory.model` has a property test that goes with it.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from context_compressor import errors
from context_compressor.memory.base import MemoryBase
from context_compressor.messages.msg import Msg

AGENTSCOPE_STATE: dict[str, Any] = {
    "_compressed_summary": "earlier",
    "content": [
        [
            {
                "id": "4M9UyLNCLGh2FfSUHyjZcG",
                "name": "user",
                "role": "user",
                "content": "hi",
                "metadata": {},
                "timestamp": "2025-12-03 14:21:16.123",
            },
            ["hint", "compressed"],
        ],
        [
            {
                "id": "hmNCKg6jq5Zgu9sXyQyVzX",
                "name": "system",
                "role": "system",
                "content": [{"type": "tool_result", "id": "c1", "name": "ls", "output": "a.txt"}],
                "metadata": None,
                "timestamp": "2025-12-03 14:21:17.456",
            },
            [],
        ],
    ],
}
"""As AgentScope 1.0's `InMemoryMemory` writes it."""
AGENTSCOPE_OLD_STATE: dict[str, Any] = {"content": [pair[0] for pair in AGENTSCOPE_STATE["content"]]}
"""As its memory saved them before there were marks."""


def make_msg(msg_id: str, text: str | None = None) -> Msg:
    return Msg("user", text or f"text of {msg_id}", "user", {"n": [1]}, "2025-01-01 00:00:00.000", id=msg_id)


def make_msgs(ids: str) -> list[Msg]:
    return [make_msg(msg_id) for msg_id in ids]


async def ids_of(memory: MemoryBase, **filters: Any) -> str:
    return "".join(msg.id for msg in await memory.get_memory(prepend_summary=False, **filters))


class MemoryContract:
    """The contract, for histories of plain messages.

    Attributes:
        ids: strings that are ids and marks alike.
    """

    ids: tuple[str, ...] = ("a-b/c:d", "", " ", "编号", "a" * 300, "../../x")

    async def test_every_method_works_before_the_first_add(self, memory: MemoryBase) -> None:
        assert await memory.size() == 0
        assert await memory.get_memory() == []
        assert await memory.get_memory(mark="a", exclude_mark="b") == []
        assert await memory.delete(["a"]) == 0
        assert await memory.delete_by_mark("a") == 0
        assert await memory.update_messages_mark("a") == 0
        await memory.clear()
        assert memory.state_dict()

    async def test_messages_come_back_whole_and_in_order(self, memory: MemoryBase) -> None:
        msgs = [
            make_msg("a"),
            Msg("Friday", [{"type": "text", "text": "你好 \U0001f600"}], "assistant", None, id="b"),
            Msg(
                "bob",
                "again",
                "user",
                {"deep": {"x": [None, 1.5, "y"]}},
                "2025-01-01 00:00:01.000",
                "inv",
                id="c",
            ),
        ]
        await memory.add(msgs[0])
        await memory.add(msgs[1:])
        assert await memory.get_memory() == msgs
        assert await memory.size() == 3

    async def test_none_and_an_empty_list_add_nothing(self, memory: MemoryBase) -> None:
        await memory.add(None)
        await memory.add([])
        await memory.add(None, marks="m")
        assert await memory.size() == 0

    async def test_a_message_that_is_there_is_not_added_again(self, memory: MemoryBase) -> None:
        await memory.add(make_msg("a", "first"))
        await memory.add([make_msg("a", "second"), make_msg("b")])
        texts = [msg.content for msg in await memory.get_memory()]
        assert texts == ["first", "text of b"]

    async def test_of_two_with_the_same_id_in_one_call_the_first_stays(self, memory: MemoryBase) -> None:
        await memory.add([make_msg("a", "first"), make_msg("a", "second")])
        assert [msg.content for msg in await memory.get_memory()] == ["first"]

    async def test_adding_a_known_id_with_a_new_mark_adds_the_mark(self, memory: MemoryBase) -> None:
        await memory.add(make_msgs("ab"), marks="x")
        await memory.add(make_msg("a"), marks=["y", "x"])
        assert await ids_of(memory, mark="y") == "a"
        assert await ids_of(memory, mark="x") == "ab"
        assert await memory.size() == 2

    @pytest.mark.parametrize(
        "memories", ["text", 5, {"role": "user"}, (make_msg("b"),), [make_msg("b"), "text"]]
    )
    async def test_what_is_no_message_is_refused_and_nothing_is_added(
        self, memory: MemoryBase, memories: Any
    ) -> None:
        await memory.add(make_msg("a"))
        with pytest.raises(TypeError, match="expected a Msg") as caught:
            await memory.add(memories)
        assert isinstance(caught.value, errors.InvalidArgumentError)
        assert await ids_of(memory) == "a"

    @pytest.mark.parametrize("marks", [5, ["x", 5], {"x": 1}, [None]])
    async def test_what_is_no_mark_is_refused_with_its_value(self, memory: MemoryBase, marks: Any) -> None:
        expected = f"marks: expected a string, a list of strings or None, got {marks!r}"
        with pytest.raises(TypeError, match=re.escape(expected)):
            await memory.add(make_msg("a"), marks=marks)
        assert await memory.size() == 0
        with pytest.raises(TypeError, match=r"marks?: expected"):
            await memory.delete_by_mark(marks)
        if isinstance(marks, int):
            with pytest.raises(TypeError, match="mark: expected a string or None, got 5"):
                await memory.get_memory(mark=marks)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="mark: expected a string or None, got 5"):
                await memory.get_memory(exclude_mark=marks)  # type: ignore[arg-type]

    @pytest.mark.parametrize("msg_ids", ["a", 5, ["a", 5], None])
    async def test_what_is_no_list_of_ids_is_refused(self, memory: MemoryBase, msg_ids: Any) -> None:
        await memory.add(make_msg("a"))
        with pytest.raises(TypeError, match="msg_ids: expected a list of strings"):
            await memory.delete(msg_ids)
        if msg_ids is not None:
            with pytest.raises(TypeError, match="msg_ids: expected a list of strings"):
                await memory.update_messages_mark("m", msg_ids=msg_ids)
        assert await memory.size() == 1

    async def test_delete_counts_what_it_removed(self, memory: MemoryBase) -> None:
        await memory.add(make_msgs("abcd"))
        assert await memory.delete(["c", "missing", "a", "c"]) == 2
        assert await memory.delete(["missing"]) == 0
        assert await memory.delete([]) == 0
        assert await ids_of(memory) == "bd"

    async def test_a_deleted_message_can_be_added_again_and_has_lost_its_marks(
        self, memory: MemoryBase
    ) -> None:
        await memory.add(make_msgs("ab"), marks="x")
        await memory.delete(["a"])
        await memory.add(make_msg("a"))
        assert await ids_of(memory) == "ba"
        assert await ids_of(memory, mark="x") == "b"

    async def test_delete_by_mark_counts_a_message_with_both_marks_once(self, memory: MemoryBase) -> None:
        await memory.add(make_msg("a"), marks=["x", "y"])
        await memory.add(make_msg("b"), marks="y")
        await memory.add(make_msg("c"))
        assert await memory.delete_by_mark("z") == 0
        assert await memory.delete_by_mark(["x", "y"]) == 2
        assert await ids_of(memory) == "c"

    async def test_marks_filter_in_the_order_of_insertion(self, memory: MemoryBase) -> None:
        await memory.add(make_msgs("abcd"))
        await memory.update_messages_mark("x", msg_ids=["d"])
        await memory.update_messages_mark("x", msg_ids=["b", "a"])
        await memory.update_messages_mark("y", msg_ids=["b"])
        assert await ids_of(memory, mark="x") == "abd"
        assert await ids_of(memory, exclude_mark="x") == "c"
        assert await ids_of(memory, mark="x", exclude_mark="y") == "ad"
        assert await ids_of(memory, mark="x", exclude_mark="x") == ""
        assert await ids_of(memory, mark="unknown") == ""

    async def test_few_marked_among_many_stay_in_order(self, memory: MemoryBase) -> None:
        await memory.add(make_msgs("abcdefghijklmnopqrstuvwxyz"))
        for marked in ("qb", "zia", "yxpc"):
            await memory.update_messages_mark(marked, msg_ids=list(marked))
            assert await ids_of(memory, mark=marked) == "".join(sorted(marked))

    async def test_a_new_mark_goes_to_all_or_to_those_named(self, memory: MemoryBase) -> None:
        await memory.add(make_msgs("abc"))
        assert await memory.update_messages_mark("x", msg_ids=["a", "missing", "a"]) == 1
        assert await memory.update_messages_mark("x") == 2
        assert await memory.update_messages_mark("x") == 0
        assert await memory.update_messages_mark("y", msg_ids=[]) == 0
        assert await ids_of(memory, mark="x") == "abc"

    async def test_an_old_mark_is_replaced_or_removed(self, memory: MemoryBase) -> None:
        await memory.add(make_msgs("ab"), marks="old")
        await memory.add(make_msg("c"), marks=["old", "new"])
        await memory.add(make_msg("d"))
        assert await memory.update_messages_mark("old", "old") == 0
        assert await memory.update_messages_mark("new", "old", ["a", "d"]) == 1
        assert await ids_of(memory, mark="new") == "ac"
        assert await memory.update_messages_mark("new", "old") == 2
        assert await ids_of(memory, mark="new") == "abc"
        assert await ids_of(memory, mark="old") == ""
        assert await memory.update_messages_mark(None, "new", ["b"]) == 1
        assert await memory.update_messages_mark(None, "new") == 2
        assert await memory.update_messages_mark(None, "new") == 0

    async def test_removing_no_mark_is_refused(self, memory: MemoryBase) -> None:
        await memory.add(make_msg("a"), marks="x")
        with pytest.raises(ValueError, match="new_mark and old_mark are both None"):
            await memory.update_messages_mark(None)
        with pytest.raises(TypeError, match="new_mark: expected a string or None, got 5"):
            await memory.update_messages_mark(5)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="old_mark: expected a string or None, got 5"):
            await memory.update_messages_mark("y", 5)  # type: ignore[arg-type]
        assert await ids_of(memory, mark="x") == "a"

    async def test_callers_cannot_corrupt_the_history(self, memory: MemoryBase) -> None:
        mine = Msg("user", [{"type": "text", "text": "whole"}], "user", {"list": []}, id="a")
        await memory.add(mine, marks="m")
        kept = mine.copy()
        spoil(mine)
        for msg in await memory.get_memory():
            spoil(msg)
        for msg in await memory.get_memory(mark="m"):
            spoil(msg)
        assert await memory.get_memory(mark="m") == [kept]

    async def test_a_summary_comes_first_and_is_no_message(self, memory: MemoryBase) -> None:
        await memory.add(make_msgs("ab"))
        await memory.update_compressed_summary("what happened before")
        summary, *rest = await memory.get_memory()
        assert (summary.name, summary.role, summary.content) == ("user", "user", "what happened before")
        assert [msg.id for msg in rest] == ["a", "b"]
        assert (await memory.get_memory())[0] == summary
        assert await ids_of(memory) == "ab"
        assert await memory.size() == 2
        assert await memory.delete([summary.id]) == 0

    async def test_an_empty_summary_is_none(self, memory: MemoryBase) -> None:
        await memory.add(make_msg("a"))
        await memory.update_compressed_summary("something")
        await memory.update_compressed_summary("")
        assert [msg.id for msg in await memory.get_memory()] == ["a"]
        with pytest.raises(TypeError, match="summary: expected a string, got None"):
            await memory.update_compressed_summary(None)  # type: ignore[arg-type]

    async def test_clear_removes_messages_marks_and_summary(self, memory: MemoryBase) -> None:
        await memory.add(make_msgs("ab"), marks="x")
        await memory.update_compressed_summary("what happened before")
        await memory.clear()
        assert await memory.get_memory() == []
        await memory.add(make_msg("a"))
        assert await ids_of(memory, mark="x") == ""
        assert await ids_of(memory) == "a"

    async def test_any_string_is_an_id_and_a_mark(self, memory: MemoryBase) -> None:
        await memory.add(make_msg("other"))
        for msg_id in self.ids:
            await memory.add(make_msg(msg_id))
            await memory.update_messages_mark(msg_id, msg_ids=[msg_id])
            assert [msg.id for msg in await memory.get_memory(mark=msg_id)] == [msg_id]
            assert await memory.delete([msg_id]) == 1
            assert await ids_of(memory) == "other"

    async def test_state_brings_everything_back_through_json(self, memory: MemoryBase) -> None:
        await memory.add(make_msgs("ab"), marks=["x", "y"])
        await memory.add(make_msg("c"))
        await memory.update_compressed_summary("what happened before")
        before = await memory.get_memory()
        state = json.loads(json.dumps(memory.state_dict()))
        await memory.clear()
        await memory.add(make_msg("d"), marks="z")
        memory.load_state_dict(state)
        assert await memory.get_memory() == before
        assert await ids_of(memory, mark="y") == "ab"
        assert await ids_of(memory, mark="z") == ""
        assert json.loads(json.dumps(memory.state_dict())) == state

    async def test_a_bad_state_leaves_everything_as_it_was(self, memory: MemoryBase) -> None:
        await memory.add(make_msgs("ab"), marks="x")
        before = memory.state_dict()
        states: tuple[Any, ...] = (None, [], {"content": 5}, {"nonsense": 1})
        for state in states:
            with pytest.raises(errors.InvalidStateError):
                memory.load_state_dict(state)
        assert memory.state_dict() == before


def spoil(msg: Msg) -> None:
    """Write into everything that can be written into."""
    if isinstance(msg.content, list):
        msg.content[0]["text"] = "spoilt"
        msg.content.append({"type": "text", "text": "more"})
    if msg.metadata is not None:
        msg.metadata["list"] = "spoilt"
    msg.name = "spoilt"
    msg.role = "assistant"
