"""A memory with AgentScope's ten methods as a history: for one writer, the ledger beside it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from typing import Any

from context_compressor.core.edits import message_id
from context_compressor.errors import ConflictError
from context_compressor.memory.base import MemoryBase
from context_compressor.memory.history import (
    Add,
    Change,
    Delete,
    Entry,
    Head,
    History,
    Keys,
    LedgerEntry,
    Mark,
    Record,
    RecordedEdits,
    SetSummary,
    Withdraw,
)
from context_compressor.messages.msg import Msg

METHODS = (
    "add",
    "delete",
    "delete_by_mark",
    "size",
    "clear",
    "get_memory",
    "update_messages_mark",
    "update_compressed_summary",
)
"""What a memory of AgentScope's does with its messages."""


def history_of(memory: MemoryBase) -> History:
    """Return a memory's history: its own, or one over it where it does a method in its own way."""
    own = [name for name in METHODS if getattr(type(memory), name) is not getattr(MemoryBase, name)]
    return MemoryHistory(memory) if own or memory._history is None else memory._history


class MemoryHistory:
    """Give a memory with the ten methods the four verbs of a `History`.

    Changes of others are noticed: all of them where it has a `revision()`, else those of its size, the rest
    whenever it is read whole. Its messages do not tell their marks: ask by `read(mark=...)`.

    Args:
        memory: has AgentScope's methods, and takes and returns messages of ours.

    Attributes:
        tells_marks: whether messages that are read tell their marks.
        counts_changes: whether each change of others shows in the head's number.
    """

    tells_marks = False

    def __init__(self, memory: MemoryBase) -> None:
        self._memory = memory
        self._edits = RecordedEdits()
        self._keys = Keys()
        self._known: dict[str, None] = {}
        self._number = 0
        self._seen: tuple[int | None, int, str] | None = None
        """Revision, size and summary as seen last; None where a write of ours may have come half way."""
        self.counts_changes = self._revision() is not None

    def _revision(self) -> int | None:
        ask = getattr(self._memory, "revision", None)
        return ask() if callable(ask) else None

    def _summary(self) -> str:
        return getattr(self._memory, "_compressed_summary", "") or ""

    async def _look(self) -> tuple[int | None, int, str]:
        revision, seen = self._revision(), self._seen
        if revision is not None and seen is not None and revision == seen[0]:
            return seen
        return revision, await self._memory.size(), self._summary()

    async def head(self) -> Head:
        """Return where the memory stands; a change of others is a write."""
        seen = await self._look()
        if seen != self._seen:
            self._seen = seen
            self._number += 1 if self._number or seen[1] or seen[2] else 0
        return Head(self._number, seen[1], seen[2])

    async def read(
        self,
        *,
        after: int = 0,  # noqa: ARG002  # who changed what is not known
        ids: Collection[str] | None = None,
        mark: str | None = None,
        limit: int | None = None,
    ) -> list[Entry]:
        """Return messages as `History.read` does, all of them, marks only as asked."""
        messages = await self._memory.get_memory(mark=mark, prepend_summary=False)
        keys, known, entries = Keys(), dict[str, None](), list[Entry]()
        for place, msg in enumerate(messages):
            key = keys.new(msg.id, known)
            known[key] = None
            entries.append(Entry(place, self._number, key, msg, () if mark is None else (mark,)))
        if mark is None:
            self._keys, self._known = keys, known
        if ids is not None:
            wanted = set(ids)
            entries = [entry for entry in entries if message_id(entry.key) in wanted]
        return entries if limit is None else entries[:limit]

    async def write(self, changes: Sequence[Change], *, at: int | None = None) -> int:
        """Make changes by the memory's own methods. Where one fails, all may differ: the head moves on."""
        if at is not None and (number := (await self.head()).number) != at:
            raise ConflictError(f"the memory is at {number}, not at {at}", number=number)
        messages = [change for change in changes if not isinstance(change, Record | Withdraw)]
        if messages:
            seen, revision, self._seen = self._seen, self._revision(), None
            await self._change(messages)
            size = await self._memory.size()
            # Others wrote, or the memory did something else with ours: it is to be read.
            self._number += size != len(self._known) or (seen is not None and revision != seen[0])
            self._seen = self._revision(), size, self._summary()
        self._number += 1
        for change in changes:
            if isinstance(change, Record | Withdraw):
                self._edits.write(change, self._number)
        return self._number

    async def _change(self, changes: Sequence[Any]) -> None:
        memory, known = self._memory, self._known
        if _clears(changes, known):
            known.clear()
            self._keys = Keys()
            await memory.clear()
            return
        for kind, group in groupby(changes, key=_alike):
            same = list(group)
            if kind[0] is Add:
                await self._add(same, same[0].marks, same[0].duplicate)
            elif kind[0] is Delete:
                keys = list(dict.fromkeys(key for change in same for key in change.keys))
                await memory.delete(list(dict.fromkeys(message_id(key) for key in keys)))
                for key in keys:
                    if known.pop(key, key) is None:
                        self._keys.forget(key)
            elif kind[0] is Mark:
                for change in same:
                    ids = list(dict.fromkeys(message_id(key) for key in change.keys))
                    await memory.update_messages_mark(change.add, old_mark=change.remove, msg_ids=ids)
            else:
                assert isinstance(same[-1], SetSummary)
                await memory.update_compressed_summary(same[-1].summary)

    async def _add(self, changes: Sequence[Add], marks: Sequence[str], duplicate: bool) -> None:
        """Add messages; of those whose ids are known, each memory would make something else."""
        memory, known, new, marked = self._memory, self._known, list[Msg](), dict[str, None]()
        for change in changes:
            if not duplicate and self._keys.of([change.msg.id], known):
                marked[change.msg.id] = None
            else:
                known[self._keys.new(change.msg.id, known)] = None
                new.append(change.msg.copy())  # a memory may keep what it is given, and hand it out
        if new:
            options = {"allow_duplicates": True} if duplicate else {}
            await memory.add(new, marks=list(marks), **options)
        for mark in marks if marked else ():
            await memory.update_messages_mark(mark, msg_ids=list(marked))

    async def ledger(self, *, after: int = 0) -> list[LedgerEntry]:
        """Return edits as `History.ledger` does."""
        return self._edits.read(after)


def _clears(changes: Sequence[Any], known: Mapping[str, None]) -> bool:
    """Tell whether changes are what the memory's `clear` does."""
    if len(changes) != 2 or not isinstance(changes[0], Delete) or changes[1] != SetSummary(""):
        return False
    return set(known) <= set(changes[0].keys)


def _alike(change: Any) -> tuple[Any, ...]:
    """Return what changes have in common that one call of the memory makes."""
    if isinstance(change, Add):
        return Add, tuple(change.marks), change.duplicate
    return (type(change),)
