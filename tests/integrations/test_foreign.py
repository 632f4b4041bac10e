"""Memories that are not ours as a base: what one answer for all of them takes."""

from __future__ import annotations

import asyncio
import gc
import json
from enum import Enum
from typing import Any

import pytest
from agentscope.memory import InMemoryMemory
from agentscope.message import Msg as AgentScopeMsg

from context_compressor import CompressedMemory, CompressionEvent, Msg
from context_compressor.errors import InvalidArgumentError, InvalidStateError
from context_compressor.integrations.agentscope.history import AdaptedMemory
from tests.integrations.bases import Place, new_session
from tests.memory.contract import ids_of, make_msg, make_msgs, spoil


class Notes:
    """A memory of somebody who knows neither AgentScope nor us, with the methods that it takes."""

    def __init__(self) -> None:
        self.kept: list[tuple[Any, set[str]]] = []
        self.summary = ""

    async def add(self, memories: Any, marks: Any = None, **kwargs: Any) -> None:
        known = {msg.id for msg, _ in self.kept}
        self.kept += [(msg, set(marks or ())) for msg in memories if msg.id not in known]

    async def delete(self, msg_ids: list[str], **kwargs: Any) -> int:
        self.kept = [entry for entry in self.kept if entry[0].id not in msg_ids]
        return len(msg_ids)

    async def delete_by_mark(self, mark: list[str], **kwargs: Any) -> int:
        self.kept = [entry for entry in self.kept if not entry[1] & set(mark)]
        return -1

    async def size(self) -> int:
        return len(self.kept)

    async def clear(self) -> None:
        self.kept.clear()

    async def get_memory(
        self, mark: Any = None, exclude_mark: Any = None, prepend_summary: bool = True, **kwargs: Any
    ) -> list[Any]:
        return [m for m, marks in self.kept if mark in (None, *marks) and exclude_mark not in marks]

    async def update_messages_mark(self, new_mark: Any, old_mark: Any = None, msg_ids: Any = None) -> int:
        changed = 0
        for msg, marks in self.kept:
            if (msg_ids is None or msg.id in msg_ids) and (old_mark is None or old_mark in marks):
                marks -= {old_mark}
                marks |= {new_mark} - {None}
                changed += 1
        return changed

    async def update_compressed_summary(self, summary: str) -> None:
        self.summary = summary

    def state_dict(self) -> dict[str, Any]:
        return {"notes": [[msg.to_dict(), sorted(marks)] for msg, marks in self.kept]}

    def load_state_dict(self, state: dict[str, Any], strict: bool = True) -> None:
        self.kept = []
        for data, marks in state["notes"]:
            self.kept.append((Msg.from_dict(data), set(marks)))


async def test_whoever_gives_an_agent_the_plain_wrapper_is_told_which_one_it_takes() -> None:
    with pytest.raises(InvalidArgumentError, match=r"agent of AgentScope's takes an AgentScopeCompressedMem"):
        await CompressedMemory().add([AgentScopeMsg("user", "hi", "user")])  # type: ignore[list-item]


async def test_anything_with_the_methods_is_a_base() -> None:
    notes = Notes()
    memory = CompressedMemory(base=notes)
    assert isinstance(memory.base, AdaptedMemory)
    assert memory.base.wrapped is notes
    await memory.add(make_msgs("abc"), marks="x")
    assert await memory.delete(["a", "missing"]) == 1
    assert await memory.delete_by_mark("y") == 0
    assert await memory.update_messages_mark("y", "x", ["b"]) == 1
    assert await ids_of(memory) == "bc"
    assert await ids_of(memory, mark="y") == "b"
    again = CompressedMemory(base=Notes())
    again.load_state_dict(json.loads(json.dumps(memory.state_dict())))
    assert await again.get_memory() == await memory.get_memory()


@pytest.mark.parametrize("base", [object(), {}, "memory", InMemoryMemory])
def test_what_is_no_memory_is_refused(base: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"base: .*(lacks |is a class)"):
        CompressedMemory(base=base)


async def test_what_others_add_or_delete_is_noticed_by_size(theirs: Any) -> None:
    events: list[CompressionEvent] = []
    memory = CompressedMemory(base=theirs, on_event=events.append)
    await memory.add(make_msgs("abc"))
    assert await ids_of(memory) == "abc"
    await AdaptedMemory(theirs).add(make_msg("d"))
    assert await ids_of(memory) == "abcd"
    assert events == []
    await theirs.delete(["b"])
    assert await ids_of(memory) == "acd"
    assert [event.kind for event in events] == ["edit"]
    await theirs.clear()
    assert await memory.get_memory() == []


async def test_its_own_revision_is_used_where_it_has_one() -> None:
    class Counted(InMemoryMemory):
        number = 7

        def revision(self) -> int:
            return self.number

    assert AdaptedMemory(Counted()).revision() == 7
    assert AdaptedMemory(InMemoryMemory()).revision() is None


async def test_live_messages_of_theirs_are_not_handed_out(theirs: Any) -> None:
    memory = AdaptedMemory(theirs)
    mine = make_msg("a")
    await memory.add([mine])
    spoil(mine)
    for msg in await memory.get_memory():
        spoil(msg)
    memory.state_dict().clear()
    assert await memory.get_memory() == [make_msg("a")]


async def test_calls_at_the_same_time_do_not_meet_in_one_database_session(theirs: Any) -> None:
    memory = CompressedMemory(base=theirs)
    await asyncio.gather(
        *(memory.add(make_msg(f"{n}"), marks="even" if n % 2 == 0 else "odd") for n in range(20)),
        *(memory.get_memory(mark="odd") for _ in range(5)),
        *(memory.size() for _ in range(5)),
        *(memory.get_history() for _ in range(5)),
        memory.update_messages_mark("seen", "odd"),
    )
    assert await memory.size() == 20
    assert len(await memory.get_memory()) == 20


async def test_a_call_that_is_cancelled_goes_on_to_its_end(theirs: Any) -> None:
    """A database session that is broken off refuses every call that follows."""
    base = AdaptedMemory(theirs)
    for passes in range(10):
        for work in (base.add(Msg("user", "hi", "user")), base.get_memory(), base.delete_by_mark("m")):
            task = asyncio.ensure_future(work)
            for _ in range(passes):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
    assert await base.size() == 9  # the first was cancelled before it began


async def test_a_call_that_fails_when_its_caller_was_cancelled_says_nothing() -> None:
    """A database that is gone is mostly given up by a time limit first; nobody asks for its error then."""
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    asked, gone = asyncio.Event(), asyncio.Event()

    class Gone(Notes):
        async def size(self) -> int:
            asked.set()
            await gone.wait()
            raise ConnectionError("gone")

    task = asyncio.create_task(AdaptedMemory(Gone()).size())
    await asked.wait()
    task.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    gone.set()
    await asyncio.wait([task])
    assert task.cancelled()
    del task  # which refers to all that it called
    gc.collect()
    assert told == []


async def test_no_call_names_more_ids_than_an_old_database_takes() -> None:
    class Bound(Notes):
        async def delete(self, msg_ids: list[str], **kwargs: Any) -> int:
            assert len(msg_ids) <= 999
            return await super().delete(msg_ids, **kwargs)

        async def update_messages_mark(self, new_mark: Any, old_mark: Any = None, msg_ids: Any = None) -> int:
            assert len(msg_ids) <= 999
            return await super().update_messages_mark(new_mark, old_mark, msg_ids)

    memory = AdaptedMemory(Bound())
    ids = [str(number) for number in range(1_200)]
    await memory.add([make_msg(id) for id in ids])
    assert await memory.update_messages_mark("x") == 1_200
    assert await memory.update_messages_mark("y", "x", msg_ids=[*ids, "missing"]) == 1_200
    assert await memory.delete([*ids[:-1], "missing"]) == 1_199
    assert await ids_of(memory, mark="y") == "1199"


async def test_known_and_new_messages_alike_get_the_marks_they_come_with(theirs: Any) -> None:
    memory = AdaptedMemory(theirs)
    await memory.add(make_msgs("ab"), marks=["x"])
    await memory.add([make_msg("a"), make_msg("c"), make_msg("a")], marks=["y", "x"])
    assert await ids_of(memory) == "abc"
    assert await ids_of(memory, mark="y") == "ac"
    assert await ids_of(memory, mark="x") == "abc"


async def test_members_of_an_enum_are_kept_as_the_marks_that_they_say(theirs: Any) -> None:
    """Written into a Redis key they would say `Mark.HINT`, and be found by nobody else."""

    class Mark(str, Enum):  # noqa: UP042  # as AgentScope writes its own
        HINT = "hint"
        SEEN = "seen"

    memory = AdaptedMemory(theirs)
    await memory.add(make_msgs("ab"), marks=Mark.HINT)
    await memory.update_messages_mark(Mark.SEEN, Mark.HINT, ["b"])
    assert [msg.id for msg in await theirs.get_memory(mark="hint")] == ["a"]
    assert await ids_of(memory, exclude_mark=Mark.HINT) == "b"
    assert await memory.delete_by_mark([Mark.SEEN]) == 1


async def test_sessions_are_apart(durable: Place) -> None:
    async with durable.open(new_session()) as one, durable.open(new_session()) as other:
        first, second = AdaptedMemory(one), AdaptedMemory(other)
        await first.add(make_msg("a"), marks="x")
        await second.add(make_msg("a"), marks="y")
        assert await ids_of(first, mark="x") == "a"
        assert await ids_of(first, mark="y") == ""
        await first.clear()
        assert await ids_of(second) == "a"


# State


async def test_a_state_that_breaks_half_way_leaves_everything_as_it_was() -> None:
    memory = AdaptedMemory(InMemoryMemory())
    await memory.add(make_msgs("ab"), marks="x")
    await memory.update_compressed_summary("so far")
    before = memory.state_dict()
    broken = {**before, "content": [before["content"][0], [{"id": "c"}, []]]}
    with pytest.raises(InvalidStateError, match="InMemoryMemory refuses it: KeyError"):
        memory.load_state_dict(broken)
    assert memory.state_dict() == before
    with pytest.raises(InvalidStateError, match="_compressed_summary: expected a string, got int"):
        memory.load_state_dict({**before, "_compressed_summary": 5})


async def test_messages_are_not_passed_over_by_a_database_that_loads_none(durable: Place) -> None:
    held = AdaptedMemory(InMemoryMemory())
    await held.add(make_msgs("ab"))
    await held.update_compressed_summary("so far")
    async with durable.open() as theirs:
        memory = AdaptedMemory(theirs)
        with pytest.raises(InvalidStateError, match=r"content: .* keeps its messages in a database"):
            memory.load_state_dict(held.state_dict())
        assert await memory.get_memory() == []
        memory.load_state_dict(held.state_dict(), strict=False)
        assert [msg.content for msg in await memory.get_memory()] == ["so far"]


async def test_an_invocation_id_outlives_every_save() -> None:
    msg = Msg("Friday", "hi", "assistant", None, invocation_id="inv", id="a")
    memory = AdaptedMemory(InMemoryMemory())
    await memory.add(msg)
    for _ in range(2):
        state = json.loads(json.dumps(memory.state_dict()))
        memory = AdaptedMemory(InMemoryMemory())
        memory.load_state_dict(state)
    [back] = await memory.get_memory()
    assert (back.invocation_id, back.metadata) == ("inv", None)
