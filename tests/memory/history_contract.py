"""What every history must do. Subclass `HistoryContract`, and give a fixture `history` that is empty.

`MemoryContract` goes with it: run it over `MemoryBase(history)`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from context_compressor.core.edits import ItemKey, SegmentEdit, StubEdit, name_of
from context_compressor.core.ledger import KEPT_PARTS
from context_compressor.errors import ConflictError, InvalidStateError
from context_compressor.memory.history import (
    Add,
    Change,
    Delete,
    Entry,
    Head,
    History,
    ListHistory,
    Mark,
    Record,
    SetSummary,
    Withdraw,
    outlines_of,
)
from context_compressor.memory.recorded import NOTHING
from context_compressor.messages.chat import from_openai
from context_compressor.messages.msg import Msg
from context_compressor.messages.skeletons import as_message, skeleton_of
from context_compressor.offload.store import InMemoryOffloadStore
from tests.memory.contract import make_msg
from tests.memory.scripted import config, fold, new_memory, turns

IDS = ["a-b/c:d", "", " ", "编号", "a" * 300, "../../x", "\ud800", "a\0", "a\x002", "%", "'", "A", "ａ"]
REF = "ctx://0123456789abcdef"


PAIRED: list[list[dict[str, Any]]] = [
    [
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "\ud83d \0"}},
        {"role": "function", "name": "f", "content": "x"},
        {"role": "assistant", "content": ""},
        {"role": "tool", "tool_call_id": "c\0", "content": "late"},
    ]
]
"""What pairing has to know more of than that it is there."""


ONE_HISTORY = [HealthCheck.function_scoped_fixture, HealthCheck.differing_executors]
"""Examples go one after another through the history of their test, and each class has that test."""


def adds(ids: str, **fields: Any) -> list[Change]:
    return [Add(make_msg(id), **fields) for id in ids]


def stub(key: str, text: str = "[stub]") -> StubEdit:
    return StubEdit(ItemKey(key), (0, 1), REF, text, 3)


def segment(id: str, *keys: str, children: tuple[str, ...] = ()) -> SegmentEdit:
    items = tuple(ItemKey(key, "#text") for key in keys)
    return SegmentEdit(id, items, children, REF, (REF,), f"text of {id}", True, ("a note",), ("a rule",), 7)


def keys_in(entries: list[Entry]) -> list[str]:
    return [entry.key for entry in entries]


async def ids_in(history: History, **filters: Any) -> str:
    return "".join(entry.msg.id for entry in await history.read(**filters) if entry.msg is not None)


async def fails(history: History, changes: list[Change], at: int) -> None:
    """Check that a write at another number than the head's changes nothing."""
    before = await history.head(), await history.read(), await history.ledger()
    with pytest.raises(ConflictError) as caught:
        await history.write(changes, at=at)
    assert caught.value.number == before[0].number
    assert (await history.head(), await history.read(), await history.ledger()) == before


class HistoryContract:
    """The contract of `History`."""

    cannot: ClassVar[Mapping[str, str]] = {}
    """Tests of what a history cannot do, with the reason."""

    @pytest.fixture(autouse=True)
    def skip_what_it_cannot(self, request: pytest.FixtureRequest) -> None:
        if reason := self.cannot.get(request.node.originalname):
            pytest.skip(reason)

    async def test_an_empty_one_is_at_0(self, history: History) -> None:
        assert await history.head() == Head(0, 0, "")
        assert await history.read() == []
        assert await history.read(after=0, ids=["a"], mark="x", limit=3) == []
        assert await history.ledger() == []
        assert await history.ledger(after=0) == []

    async def test_the_head_tells_number_size_and_summary(self, history: History) -> None:
        first = await history.write(adds("ab"))
        assert first > 0
        assert await history.head() == Head(first, 2, "")
        second = await history.write([SetSummary("so far"), Delete(["a"])])
        assert await history.head() == Head(second, 1, "so far")
        assert second > first
        await history.write([SetSummary("")])
        assert (await history.head()).summary == ""

    async def test_the_number_grows_by_one_with_every_write(self, history: History) -> None:
        writes: list[list[Change]] = [
            adds("abc"),
            [Delete(["a", "b"]), *adds("de")],
            [Mark(["c"], add="x")],
            [SetSummary("so far")],
            [Record([stub("c")], {"n": 1})],
            [Withdraw([name_of(stub("c"))])],
            [Record((), {"n": 2})],
        ]
        numbers = [await history.write(changes) for changes in writes]
        assert all(later == earlier + 1 for earlier, later in pairwise(numbers))
        assert (await history.head()).number == numbers[-1]

    async def test_messages_come_back_whole_and_in_order(self, history: History) -> None:
        msgs = [
            make_msg("a"),
            Msg("Friday", [{"type": "text", "text": "你好 \U0001f600 \ud800 \0"}], "assistant", None, id="b"),
            Msg(
                "bob",
                "",
                "user",
                {"deep": [None, 1.5, {"y": True}]},
                "2025-01-01 00:00:01.000",
                "inv",
                id="c",
            ),
        ]
        await history.write([Add(msg.copy()) for msg in msgs])
        entries = await history.read()
        assert [entry.msg for entry in entries] == msgs
        assert keys_in(entries) == ["a", "b", "c"]
        assert all(earlier.place < later.place for earlier, later in pairwise(entries))

    async def test_a_place_is_for_life(self, history: History) -> None:
        await history.write(adds("abc"))
        places = {entry.key: entry.place for entry in await history.read()}
        await history.write([Delete(["b"]), Mark(["a"], add="x"), *adds("d")])
        await history.write([Add(make_msg("a"), ["y"])])
        assert {e.key: e.place for e in await history.read(ids=["a", "c"])} == {k: places[k] for k in "ac"}

    async def test_of_what_is_deleted_and_added_again_the_place_is_new(self, history: History) -> None:
        await history.write(adds("ab"))
        before = (await history.head()).number
        await history.write([Delete(["a"])])
        await history.write(adds("a"))
        assert await ids_in(history) == "ba"
        assert [entry.msg is None for entry in await history.read(after=before)] == [False]

    async def test_ids_choose_messages_whatever_their_order(self, history: History) -> None:
        await history.write(adds("abcde"))
        assert await ids_in(history, ids=["e", "b", "missing", "b", "a"]) == "abe"
        assert await ids_in(history, ids=[]) == ""
        assert await ids_in(history, ids=["e", "b", "a"], limit=2) == "ab"

    async def test_a_mark_chooses_messages_in_their_order(self, history: History) -> None:
        await history.write(adds("abcde"))
        await history.write([Mark(["d"], add="x")])
        await history.write([Mark(["b", "a"], add="x")])
        assert await ids_in(history, mark="x") == "abd"
        assert await ids_in(history, mark="x", ids=["d", "c", "a"]) == "ad"
        assert await ids_in(history, mark="unknown") == ""
        await history.write([Delete(["b"])])
        assert await ids_in(history, mark="x") == "ad"

    async def test_a_limit_takes_the_first(self, history: History) -> None:
        await history.write(adds("abcde"))
        assert await ids_in(history, limit=2) == "ab"
        assert await ids_in(history, limit=0) == ""
        assert await ids_in(history, limit=9) == "abcde"

    async def test_it_tells_what_later_writes_touched(self, history: History) -> None:
        numbers = [await history.write(adds("abc"))]
        numbers.append(await history.write([*adds("d"), Mark(["b"], add="x")]))
        numbers.append(await history.write([Mark(["b"], add="x"), SetSummary("so far")]))  # has it already
        numbers.append(await history.write([Delete(["c", "missing"])]))
        numbers.append(await history.write([Record([stub("a")])]))
        told = await history.read(after=numbers[0])
        assert [(e.key, e.changed, e.msg is None) for e in told] == [
            ("b", numbers[1], False),
            ("c", numbers[3], True),
            ("d", numbers[1], False),
        ]
        assert keys_in(await history.read(after=numbers[1])) == ["c"]
        assert await history.read(after=numbers[3]) == []
        assert keys_in(await history.read()) == ["a", "b", "d"]
        assert keys_in(await history.read(after=numbers[0], limit=2)) == ["b", "c"]

    async def test_a_deleted_message_is_told_of_by_its_id_and_bears_no_mark(self, history: History) -> None:
        number = await history.write(adds("abc", marks=["x"]))
        await history.write([Delete(["a", "b"])])
        [gone] = await history.read(after=number, ids=["a"])
        assert (gone.key, gone.msg, gone.marks, gone.tokens) == ("a", None, (), None)
        assert await history.read(after=number, mark="x") == []
        assert keys_in(await history.read(ids=["a"])) == []

    async def test_a_write_at_another_number_changes_nothing(self, history: History) -> None:
        number = await history.write(adds("ab"), at=0)
        changes: list[Change] = [*adds("c"), Delete(["a"]), SetSummary("x"), Record([stub("b")], {"n": 1})]
        await fails(history, changes, at=0)
        await fails(history, changes, at=number + 1)
        await history.write([Mark(["a"], add="x")])
        await fails(history, changes, at=number)
        await history.write(changes, at=(await history.head()).number)
        assert await ids_in(history) == "bc"

    async def test_of_two_writes_at_one_number_one_is_refused(self, history: History) -> None:
        at = await history.write(adds("a"))
        for number in "bcd":
            writes = [history.write([Add(make_msg(f"{number}{n}"))], at=at) for n in range(2)]
            done = await asyncio.gather(*writes, return_exceptions=True)
            assert sorted(isinstance(one, ConflictError) for one in done) == [False, True]
            at = next(one for one in done if isinstance(one, int))

    @settings(max_examples=1, deadline=None, suppress_health_check=ONE_HISTORY)
    @given(counts=st.lists(st.integers(1, 4), min_size=2, max_size=4))
    @example(counts=[2] * (KEPT_PARTS + 2))
    async def test_what_is_undone_leaves_view_and_ledger_as_before(
        self, history: History, counts: list[int]
    ) -> None:
        memory = new_memory(base=history)
        await memory.clear()
        views: dict[int, list[Msg]] = {}
        for number, count in enumerate(counts):
            await memory.add(from_openai(turns(count, tag=f"{number}-")))
            before = await fold(memory)
            for is_undone in (True, False):
                event = await memory.compress_now()
                if event is not None and is_undone:
                    await memory.undo()
                    assert await fold(memory) == before
                    told = [edit for entry in await history.ledger() for edit in entry.edits]
                    assert {name_of(edit): edit for edit in told} == memory._tracker.state.ledger.edits()
                elif event is not None and event.number is not None:
                    views[event.number] = await memory.get_memory()
        for number in memory._tracker.state.ledger.events_with_words():
            if number in views:
                assert await memory.view_at(number) == views[number]

    async def test_changes_are_made_in_order(self, history: History) -> None:
        await history.write([*adds("ab"), Delete(["a"]), *adds("a"), Mark(["a"], add="x")])
        assert await ids_in(history) == "ba"
        assert await ids_in(history, mark="x") == "a"

    async def test_a_write_that_fails_has_changed_nothing(self, history: History) -> None:
        number = await history.write(
            [*adds("ab", marks=["x"]), SetSummary("so far"), Record([stub("a")], {"n": 1})]
        )
        before = await history.read(), await history.ledger(), await history.read(mark="x")
        bad: Any = Record([object()])  # type: ignore[list-item]
        changes = [
            *adds("c"),
            Delete(["a"]),
            Mark(["b"], remove="x"),
            SetSummary(""),
            Withdraw([name_of(stub("a"))]),
        ]
        with pytest.raises((TypeError, AttributeError)):
            await history.write([*changes, bad])
        assert await history.head() == Head(number, 2, "so far")
        assert (await history.read(), await history.ledger(), await history.read(mark="x")) == before
        assert await history.read(after=number) == []
        await history.write(changes, at=number)
        assert await ids_in(history) == "bc"

    async def test_of_one_id_the_first_stays_and_gets_the_marks(self, history: History) -> None:
        await history.write([Add(make_msg("a", "one"), ["x"]), Add(make_msg("a", "two"), ["y"])])
        await history.write([Add(make_msg("a", "three"), ["z", "x"])])
        [entry] = await history.read()
        assert entry.msg == make_msg("a", "one")
        assert await ids_in(history, mark="y") == await ids_in(history, mark="z") == "a"

    async def test_marks_come_with_their_messages_in_the_order_in_which_they_came(
        self, history: History
    ) -> None:
        await history.write([Add(make_msg("a"), ["y", "x", "y"]), Add(make_msg("b"))])
        await history.write([Mark(["a", "b"], add="z", remove="y")])
        assert [entry.marks for entry in await history.read()] == [("x", "z"), ("z",)]
        await history.write([Mark(["a", "missing"], add="x"), Mark(["b"], remove="unknown")])
        await history.write([Mark(["a"], add="x", remove="x")])
        assert [entry.marks for entry in await history.read(mark="z")] == [("x", "z"), ("z",)]

    async def test_duplicates_are_kept_under_keys_of_their_own(self, history: History) -> None:
        await history.write([Add(make_msg("a", "one")), Add(make_msg("b"))])
        await history.write([Add(make_msg("a", text), duplicate=True) for text in ("two", "three")])
        assert await ids_in(history) == "abaa"
        entries = await history.read(ids=["a"])
        assert [entry.msg.content for entry in entries if entry.msg] == ["one", "two", "three"]
        keys = keys_in(entries)
        assert len(set(keys)) == 3
        assert keys[0] == "a"
        await history.write([Add(make_msg("a"), ["x"])])  # each gets it
        assert keys_in(await history.read(mark="x")) == keys
        await history.write([Delete([keys[1]])])
        assert keys_in(await history.read(ids=["a"])) == [keys[0], keys[2]]
        await history.write([Delete([keys[0]])])
        assert keys_in(await history.read(ids=["a"])) == [keys[2]]
        await history.write([Add(make_msg("a", "four"))])  # there is one
        assert await ids_in(history) == "ba"
        await history.write([Add(make_msg("a", "five"), duplicate=True)])
        assert [entry.msg.content for entry in await history.read(ids=["a"]) if entry.msg] == [
            "three",
            "five",
        ]

    async def test_messages_stand_in_front_of_another(self, history: History) -> None:
        await history.write(adds("ad"))
        before = (await history.head()).number
        await history.write(adds("bc", before="d"))
        await history.write(adds("0", before="a"))
        await history.write(adds("e", before="missing"))
        assert await ids_in(history) == "0abcde"
        assert await ids_in(history, ids=list("edcba0")) == "0abcde"
        assert await ids_in(history, after=before) == "0bce"
        places = [entry.place for entry in await history.read()]
        assert places == sorted(set(places))

    async def test_many_stand_in_front_of_the_same_one(self, history: History) -> None:
        await history.write(adds("az"))
        ids = [f"{number:03}" for number in range(120)]
        for id in ids:
            await history.write([Add(make_msg(id), before="z")])
        assert keys_in(await history.read(ids=["z", *reversed(ids), "a"])) == ["a", *ids, "z"]
        places = [entry.place for entry in await history.read()]
        assert places == sorted(set(places))

    async def test_tokens_come_back_with_who_counted(self, history: History) -> None:
        await history.write([Add(make_msg("a"), tokens=("o200k_base", 12)), Add(make_msg("b"))])
        await history.write([Mark(["a"], add="x")])
        assert [entry.tokens for entry in await history.read()] == [("o200k_base", 12), None]
        assert [entry.tokens for entry in await history.read(mark="x")] == [("o200k_base", 12)]

    async def test_an_outline_tells_all_but_what_was_said(self, history: History) -> None:
        if (outlines := outlines_of(history)) is None:
            pytest.skip("this history has none")
        assert await outlines.outline() == []
        said = [msg for example in PAIRED for msg in from_openai(example)]
        added = {}
        for msg in [*said, make_msg("\ud800\0"), make_msg("z")]:
            added[msg.id] = await history.write([Add(msg, ["x", "y"], tokens=("o200k_base", 12))])
        await history.write([Add(said[0].copy(), duplicate=True), *adds("b", before="z")])
        await history.write([Mark(["z"], add="pinned", remove="x"), Delete([said[1].id])])
        entries, outlined = await history.read(), await outlines.outline()
        bare = [entry._replace(msg=None, added=0) for entry in outlined]
        assert bare == [entry._replace(msg=None) for entry in entries]
        assert [entry.added for entry in outlined if entry.key in added] == [
            added[entry.key] for entry in entries if entry.key in added
        ]
        for entry, one in zip(entries, outlined, strict=True):
            assert one.msg.to_dict() == as_message(entry.msg.id, skeleton_of(entry.msg)).to_dict()
        await history.write([Delete(["b"])])
        number = await history.write([Add(make_msg("b", "another"))])
        last = (await outlines.outline())[-1]
        assert (last.key, last.added) == ("b", number)

    async def test_any_string_is_an_id_and_a_mark(self, history: History) -> None:
        await history.write([Add(make_msg("a")), Add(make_msg("other"))])
        for id in IDS:
            number = await history.write([Add(make_msg(id))])
            [entry] = await history.read(ids=[id])
            assert entry.msg == make_msg(id)
            await history.write([Mark([entry.key], add=id)])
            assert keys_in(await history.read(mark=id)) == [entry.key]
            await history.write([Add(make_msg(id), ["again"])])
            assert keys_in(await history.read(mark="again")) == [entry.key]
            await history.write([Delete([entry.key])])
            assert await ids_in(history) == "aother"
            gone = [entry.key for entry in await history.read(after=number) if entry.msg is None]
            assert gone in ([entry.key], [])  # who cannot tell of it says so by the size

    async def test_edits_come_back_as_they_were_in_order(self, history: History) -> None:
        edits = [stub("a"), segment("s1", "a", "b"), segment("s2", "c"), segment("s3", children=("s1", "s2"))]
        first = await history.write([*adds("abc"), Record(edits[:2], {"n": 1})])
        second = await history.write([Record([edits[2], edits[3]], {"n": 2, "deep": [["x", None]]})])
        told = await history.ledger()
        assert [edit for entry in told for edit in entry.edits] == edits
        assert [entry.number for entry in told] == [first, second]
        assert told[-1].learnt == {"n": 2, "deep": [["x", None]]}
        assert [list(entry.edits) for entry in await history.ledger(after=first)] == [edits[2:]]
        assert await history.ledger(after=second) == []

    async def test_an_edit_takes_the_place_of_one_of_the_same_name(self, history: History) -> None:
        first = await history.write([Record([stub("a", "one"), stub("b")])])
        await history.write([Record([stub("a", "two")])])
        assert [edit for entry in await history.ledger() for edit in entry.edits] == [
            stub("b"),
            stub("a", "two"),
        ]
        assert [list(entry.edits) for entry in await history.ledger(after=first)] == [[stub("a", "two")]]

    async def test_what_is_withdrawn_holds_no_more_and_is_told_of(self, history: History) -> None:
        first = await history.write([Record([stub("a"), stub("b"), segment("s1", "c")])])
        second = await history.write(
            [Withdraw([name_of(stub("a")), name_of(segment("s1")), name_of(stub("z"))])]
        )
        assert [edit for entry in await history.ledger() for edit in entry.edits] == [stub("b")]
        [told] = await history.ledger(after=first)
        assert (told.number, list(told.edits)) == (second, [])
        assert set(told.withdrawn) == {name_of(stub("a")), name_of(segment("s1"))}
        third = await history.write([Record([stub("a")])])
        assert [edit for entry in await history.ledger(after=second) for edit in entry.edits] == [stub("a")]
        await history.write([Withdraw([name_of(stub("a"))]), Record([stub("a", "two")])])
        [told] = await history.ledger(after=third)
        assert list(told.edits) == [stub("a", "two")]

    async def test_the_newest_that_was_learnt_holds(self, history: History) -> None:
        await history.write([Record([stub("a")], {"n": 1})])
        await history.write([Record((), {"n": 2})])
        await history.write([Record([stub("b")])])  # says nothing of it
        learnt = [entry.learnt for entry in await history.ledger() if entry.learnt]
        assert learnt[-1] == {"n": 2}
        number = (await history.head()).number
        await history.write([Record((), {"n": 3}), Record((), {"n": 4})])
        assert [entry.learnt for entry in await history.ledger(after=number)] == [{"n": 4}]

    async def test_what_a_provider_counts_is_known_to_whoever_opens_the_session_next(
        self, history: History
    ) -> None:
        """As it is to a memory that is kept; and only what is new of it is written."""
        store, ended = InMemoryOffloadStore(), list[tuple[int, int]]()
        kept, wanted = new_memory(base=ListHistory(), store=store), list[tuple[int, int]]()
        for turn in range(9):
            opened = new_memory(base=history, store=store)
            for memory, told in ((kept, wanted), (opened, ended)):
                await memory.add(Msg("user", f"Question {turn}: " + "is it in hall seven? " * 40, "user"))
                await memory.get_memory()
                if turn == 4:
                    memory.record_overflow(1_500)
                    await memory.get_memory()
                if turn != 6:
                    memory.record_usage(memory.stats().view_tokens * 8 // 5 + 100)
                if turn % 3:
                    await memory.add(
                        Msg("agent", f"Answer {turn}: " + "the pump is fine. " * 40, "assistant")
                    )
                told.append((memory.budget_tokens, memory.stats().view_tokens))
            await opened.aclose()
        assert ended == wanted
        assert wanted[-1][0] < kept.config.budget
        number = (await history.head()).number
        for tokens in (opened.config.max_total_tokens, 4_000):  # another budget goes by the same counts
            async with new_memory(config(max_total_tokens=tokens), base=history, store=store) as memory:
                await memory.get_memory()
                assert memory.budget_tokens < tokens
        assert (await history.head()).number == number, "nothing new is written"
        await history.write([Record((), {**NOTHING, "calibration": {"counter": "x", "saved": [3]}})])
        with pytest.raises(InvalidStateError, match=r"the history's calibration\.saved: expected a dict"):
            await new_memory(base=history).get_memory()

    async def test_the_ledger_is_written_with_the_messages_it_speaks_of(self, history: History) -> None:
        number = await history.write(adds("ab"))
        await history.write([Record([stub("a")])], at=number)
        changes = [Delete(["a"]), Withdraw([name_of(stub("a"))])]
        await fails(history, changes, at=number)
        later = await history.write(changes, at=number + 1)
        assert await ids_in(history) == "b"
        assert [edit for entry in await history.ledger() for edit in entry.edits] == []
        assert [entry.number for entry in await history.ledger(after=number + 1)] == [later]
