"""The contract of a working memory, over each of AgentScope's: as a base of ours, and as an agent sees it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from agentscope.message import Msg as AgentScopeMsg
from hypothesis import given, settings

from context_compressor import CompressedMemory, MemoryBase, Msg
from context_compressor.errors import InvalidArgumentError
from context_compressor.integrations.agentscope import AgentScopeCompressedMemory
from context_compressor.integrations.agentscope.history import AdaptedMemory
from context_compressor.integrations.agentscope.messages import from_agentscope, to_agentscope
from tests.integrations.bases import KINDS, Place, new_session
from tests.memory.contract import MemoryContract, ids_of, make_msg, make_msgs
from tests.memory.model import Operation, operations, replay

pytestmark = pytest.mark.variants(2)


class AsAgentSeesIt(MemoryBase):
    """An `AgentScopeCompressedMemory` behind our contract: each message passes through AgentScope's `Msg`."""

    def __init__(self, memory: AgentScopeCompressedMemory) -> None:
        super().__init__()
        self.memory = memory

    async def add(self, memories: Any, marks: Any = None, **kwargs: Any) -> None:
        def theirs(item: Any) -> Any:
            return to_agentscope(item, AgentScopeMsg) if isinstance(item, Msg) else item

        given = [theirs(item) for item in memories] if isinstance(memories, list) else theirs(memories)
        await self.memory.add(given, marks, **kwargs)

    async def get_memory(
        self, mark: Any = None, exclude_mark: Any = None, prepend_summary: bool = True, **kwargs: Any
    ) -> list[Msg]:
        found = await self.memory.get_memory(mark, exclude_mark, prepend_summary, **kwargs)
        assert all(type(msg) is AgentScopeMsg for msg in found)
        return [from_agentscope(msg) for msg in found]

    async def delete(self, msg_ids: list[str], **kwargs: Any) -> int:
        return await self.memory.delete(msg_ids, **kwargs)

    async def delete_by_mark(self, mark: Any, *args: Any, **kwargs: Any) -> int:
        return await self.memory.delete_by_mark(mark, *args, **kwargs)

    async def size(self) -> int:
        return await self.memory.size()

    async def clear(self) -> None:
        await self.memory.clear()

    async def update_messages_mark(self, new_mark: Any, old_mark: Any = None, msg_ids: Any = None) -> int:
        return await self.memory.update_messages_mark(new_mark, old_mark, msg_ids)

    async def update_compressed_summary(self, summary: str) -> None:
        await self.memory.update_compressed_summary(summary)

    def state_dict(self) -> dict[str, Any]:
        return self.memory.state_dict()

    def load_state_dict(self, state: dict[str, Any], strict: bool = True) -> None:
        self.memory.load_state_dict(state, strict)


class OverTheirs(MemoryContract):
    """What differs over a base of AgentScope's: the empty mark, and that a database keeps its messages."""

    ids = ("a-b/c:d", " ", "编号", "a" * 200, "../../x")

    async def test_the_empty_string_is_an_id_and_no_mark(self, memory: MemoryBase) -> None:
        await memory.add([make_msg(""), make_msg("other")], marks="x")
        with pytest.raises(InvalidArgumentError, match="'' is no mark"):
            await memory.update_messages_mark("")
        with pytest.raises(InvalidArgumentError, match="'' is no mark"):
            await memory.add(make_msg("b"), marks=[""])
        assert await ids_of(memory, mark="x") == "other"
        assert await memory.delete([""]) == 1

    async def test_state_brings_everything_back_through_json(self, memory: MemoryBase, place: Place) -> None:
        if place.kind == "in_memory":
            await super().test_state_brings_everything_back_through_json(memory)
            return
        await memory.add(make_msgs("ab"), marks=["x", "y"])
        await memory.update_compressed_summary("what happened before")
        before = await memory.get_memory()
        state = json.loads(json.dumps(memory.state_dict()))
        await memory.update_compressed_summary("")
        memory.load_state_dict(state)
        assert await memory.get_memory() == before
        assert json.loads(json.dumps(memory.state_dict())) == state


class TestAsABase(OverTheirs):
    @pytest.fixture
    def memory(self, theirs: Any) -> AdaptedMemory:
        return AdaptedMemory(theirs)


class TestWrapped(OverTheirs):
    @pytest.fixture
    def memory(self, theirs: Any) -> CompressedMemory:
        memory = CompressedMemory(base=theirs)
        assert isinstance(memory.base, AdaptedMemory)
        return memory


class TestAsAnAgentSeesIt(OverTheirs):
    @pytest.fixture
    def memory(self, theirs: Any) -> AsAgentSeesIt:
        return AsAgentSeesIt(AgentScopeCompressedMemory(base=theirs))


class TestAsAnAgentSeesItOverOurOwn(MemoryContract):
    @pytest.fixture
    def memory(self) -> AsAgentSeesIt:
        return AsAgentSeesIt(AgentScopeCompressedMemory())


@pytest.fixture(scope="module", params=KINDS)
def shared_place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, redis_port: Any
) -> Place:
    return Place(request.param, tmp_path_factory.mktemp("theirs"), redis_port, "")


@given(drawn=operations())
@settings(max_examples=25)
async def test_a_base_of_theirs_equals_a_naive_model(shared_place: Place, drawn: list[Operation]) -> None:
    async with shared_place.open(new_session()) as theirs:
        await replay(AdaptedMemory(theirs), drawn)
