"""The contracts of histories and memories, over each history that there is."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given

from context_compressor import InMemoryMemory
from context_compressor.memory.base import MemoryBase
from context_compressor.memory.history import Add, Delete, ListHistory
from context_compressor.memory.table import MessageTable
from context_compressor.memory.wrapped import MemoryHistory, history_of
from tests.memory.contract import MemoryContract, make_msg
from tests.memory.history_contract import HistoryContract
from tests.memory.model import Operation, operations, replay
from tests.memory.on_disk import FileHistory
from tests.memory.scripted import ForeignMemory

_STATE = "a memory over a history has none of its own"


class MemoryOverHistoryContract(MemoryContract):
    """`MemoryContract` for a memory whose history lasts by itself."""

    @pytest.fixture(autouse=True)
    def skip_states(self, request: pytest.FixtureRequest) -> None:
        if "state" in request.node.originalname:
            pytest.skip(_STATE)

    @pytest.fixture
    def memory(self, history: Any) -> MemoryBase:
        memory = MemoryBase(history)
        memory.state_dict = lambda: {"any": "thing"}  # type: ignore[method-assign]
        return memory


class OverList:
    @pytest.fixture
    def history(self) -> ListHistory:
        return ListHistory()


class OnDisk:
    @pytest.fixture
    def history(self, tmp_path: Path) -> FileHistory:
        return FileHistory(tmp_path / "history")


class TestListHistory(OverList, HistoryContract):
    pass


class TestMemoryOverList(OverList, MemoryOverHistoryContract):
    pass


class TestFileHistory(OnDisk, HistoryContract):
    async def test_what_was_written_is_there_for_who_opens_it_next(
        self, history: FileHistory, tmp_path: Path
    ) -> None:
        number = await history.write([Add(make_msg("a"), ["x"])])
        other = FileHistory(tmp_path / "history")
        assert (await other.head()).number == number
        assert [entry.key for entry in await other.read(mark="x")] == ["a"]
        await other.write([Delete(["a"])])
        assert [entry.msg for entry in await history.read(after=number)] == [None]


class TestMemoryOnDisk(OnDisk, MemoryOverHistoryContract):
    pass


_MARKS = "the ten methods do not tell a message's marks"
_INSERT = "the ten methods add at the end only"
_WHO = "the ten methods do not tell who changed what"
_ONE = "it is for one writer, whose ledger it keeps in this process"
_KEYS = "the ten methods know ids only"


class TestWrappedMemory(HistoryContract):
    """A memory with ten methods of its own, behind the four verbs: for one writer."""

    cannot: ClassVar = {
        "test_marks_come_with_their_messages_in_the_order_in_which_they_came": _MARKS,
        "test_messages_stand_in_front_of_another": _INSERT,
        "test_many_stand_in_front_of_the_same_one": _INSERT,
        "test_it_tells_what_later_writes_touched": _WHO,
        "test_a_deleted_message_is_told_of_by_its_id_and_bears_no_mark": _WHO,
        "test_of_what_is_deleted_and_added_again_the_place_is_new": _WHO,
        "test_a_place_is_for_life": _WHO,
        "test_duplicates_are_kept_under_keys_of_their_own": _KEYS,
        "test_tokens_come_back_with_who_counted": "the ten methods keep messages only",
        "test_what_a_provider_counts_is_known_to_whoever_opens_the_session_next": _ONE,
        "test_a_write_that_fails_has_changed_nothing": "several of the ten methods are no transaction",
    }

    @pytest.fixture(params=[InMemoryMemory, ForeignMemory])
    def history(self, request: pytest.FixtureRequest) -> MemoryHistory:
        return MemoryHistory(request.param())


class TestMemoryOverWrapped(MemoryOverHistoryContract):
    @pytest.fixture(autouse=True)
    def skip_marks(self, request: pytest.FixtureRequest) -> None:
        if "mark" in request.node.originalname:
            pytest.skip(_MARKS)

    @pytest.fixture(params=[InMemoryMemory, ForeignMemory])
    def history(self, request: pytest.FixtureRequest) -> MemoryHistory:
        return MemoryHistory(request.param())


@given(operations(duplicates=True))
async def test_a_memory_on_disk_equals_a_naive_model(drawn: list[Operation]) -> None:
    await replay(MemoryBase(FileHistory()), drawn)


@pytest.mark.parametrize("new", [ListHistory, FileHistory])
@pytest.mark.parametrize("first", [0, 1, 2])
async def test_a_reader_that_begins_late_knows_the_keys_that_the_history_gives(new: Any, first: int) -> None:
    history = new()
    await history.write([Add(make_msg("a", str(n)), duplicate=True) for n in range(3)])
    await history.write([Delete([(await history.read())[first].key])])
    known = MessageTable()
    for entry in await history.read():
        known.put(entry.key, 1)
    keys = [entry.key for entry in await history.read()]
    assert sorted(known.keys_of(["a"])) == sorted(keys)


def test_a_memory_over_a_history_is_not_wrapped() -> None:
    history = ListHistory()
    assert history_of(MemoryBase(history)) is history
    assert isinstance(history_of(ForeignMemory()), MemoryHistory)
