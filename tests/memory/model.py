"""The contract as a naive model, and random calls to compare a memory with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from context_compressor.memory.base import MemoryBase
from context_compressor.messages.msg import Msg
from tests.memory.contract import make_msg

Operation = tuple[str, tuple[Any, ...], dict[str, Any]]


@dataclass
class NaiveMemory:
    """The contract once more, slow and obvious."""

    items: list[tuple[Msg, list[str]]] = field(default_factory=list)
    summary: str = ""

    def add(self, msgs: list[Msg], marks: list[str], allow_duplicates: bool = False) -> None:
        for msg in msgs:
            known = [item for item in self.items if item[0].id == msg.id]
            if known and not allow_duplicates:
                for item in known:
                    item[1].extend(mark for mark in marks if mark not in item[1])
            else:
                self.items.append((msg.copy(), list(marks)))

    def delete(self, ids: list[str]) -> int:
        return self._keep([item for item in self.items if item[0].id not in ids])

    def delete_by_mark(self, marks: list[str]) -> int:
        return self._keep([item for item in self.items if not set(marks) & set(item[1])])

    def update_messages_mark(self, new: str | None, old: str | None, ids: list[str] | None) -> int:
        changed = 0
        for msg, marks in self.items:
            if (ids is None or msg.id in ids) and (old is None or old in marks):
                after = [mark for mark in marks if mark != old or mark == new]
                after += [new] if new is not None and new not in after else []
                changed += after != marks
                marks[:] = after
        return changed

    def update_compressed_summary(self, summary: str) -> None:
        self.summary = summary

    def clear(self) -> None:
        self.items, self.summary = [], ""

    def ids(self, mark: str | None, exclude: str | None) -> list[str]:
        return [
            msg.id for msg, marks in self.items if (mark is None or mark in marks) and exclude not in marks
        ]

    def _keep(self, items: list[tuple[Msg, list[str]]]) -> int:
        removed = len(self.items) - len(items)
        self.items = items
        return removed


def operations(*, duplicates: bool = False) -> st.SearchStrategy[list[Operation]]:
    """Draw calls with valid arguments: few ids and marks, so that they meet."""
    ids = st.lists(st.sampled_from("abcdef"), max_size=4)
    marks = st.lists(st.sampled_from("xyz"), max_size=3, unique=True)
    mark = st.sampled_from("xyz")
    msgs = st.lists(
        st.builds(make_msg, st.sampled_from("abcdef"), st.sampled_from(("one", "two"))), max_size=4
    )
    options = st.fixed_dictionaries({"allow_duplicates": st.booleans()}) if duplicates else st.just({})
    update = st.tuples(st.none() | mark, st.none() | mark, st.none() | ids)
    return st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.tuples(msgs, marks), options),
            st.tuples(st.just("add"), st.tuples(msgs, marks), options),
            st.tuples(st.just("delete"), st.tuples(ids), st.just({})),
            st.tuples(st.just("delete_by_mark"), st.tuples(marks), st.just({})),
            st.tuples(
                st.just("update_messages_mark"),
                update.filter(lambda args: args[0] is not None or args[1] is not None),
                st.just({}),
            ),
            st.tuples(
                st.just("update_compressed_summary"), st.tuples(st.sampled_from(("", "so far"))), st.just({})
            ),
            st.tuples(st.just("clear"), st.just(()), st.just({})),
        ),
        max_size=15,
    )


async def replay(memory: MemoryBase, drawn: Sequence[Operation]) -> NaiveMemory:
    """Run operations against a memory and the model, and compare after each what can be seen of them."""
    model = NaiveMemory()
    for name, args, options in drawn:
        expected = getattr(model, name)(*args, **options)
        assert await getattr(memory, name)(*args, **options) == expected
        assert await memory.size() == len(model.items)
        for mark in (None, "x", "y"):
            for exclude in (None, "y", "z"):
                found = await memory.get_memory(mark=mark, exclude_mark=exclude, prepend_summary=False)
                assert [msg.id for msg in found] == model.ids(mark, exclude)
        everything = await memory.get_memory()
        assert [msg.content for msg in everything] == (
            [model.summary] * bool(model.summary) + [msg.content for msg, _ in model.items]
        )
    return model
