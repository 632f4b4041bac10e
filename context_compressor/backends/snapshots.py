"""A session as it stands at one moment: read whole, shown, made again elsewhere."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from context_compressor.backends.changes import Restored
from context_compressor.compression.edits import Edit, kept_refs_of, message_id
from context_compressor.errors import ConflictError, OffloadWriteError
from context_compressor.memory.compressed import CompressedMemory
from context_compressor.memory.history import (
    Change,
    Entry,
    Head,
    History,
    LedgerEntry,
    Record,
    SetSummary,
    is_same,
)
from context_compressor.offload.store import InMemoryOffloadStore, OffloadStore

_ATTEMPTS = 20
"""How often a session is read that others write to meanwhile."""
_ANY_TOKENS = 1_000_000_000
"""A budget that no view reaches: what is shown is what the ledger says, and nothing is compressed for it."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A session as it stood at one moment."""

    head: Head
    entries: Sequence[Entry]
    """The messages, in order."""
    edits: Sequence[Edit]
    """The edits that hold, in order."""
    learnt: Mapping[str, Any] | None
    """What the newest of them said beside."""

    @property
    def refs(self) -> list[str]:
        """The refs that its ledger names, words of merged segments included."""
        return list(dict.fromkeys(ref for edit in self.edits for ref in kept_refs_of(edit)))

    @property
    def pending(self) -> set[str]:
        """The refs whose texts no store took yet: they are made from the history."""
        return set((self.learnt or {}).get("pending", ()))

    def changes(self) -> list[Change]:
        """Return the changes that make an empty history say the same."""
        changes: list[Change] = [
            Restored(entry.msg, entry.marks, True, entry.tokens, key=entry.key)
            for entry in self.entries
            if entry.msg is not None
        ]
        if self.head.summary:
            changes.append(SetSummary(self.head.summary))
        if self.edits or self.learnt:
            changes.append(Record(self.edits, self.learnt or {}))
        return changes


async def take_snapshot(history: History) -> Snapshot:
    """Read a session whole.

    Raises:
        ConflictError: others write to it all the time.
    """
    head = await history.head()
    for _ in range(_ATTEMPTS):
        entries, ledger = await history.read(), await history.ledger()
        after = await history.head()
        if is_same(after.number, head.number):
            edits = [edit for entry in ledger for edit in entry.edits]
            learnt = next((entry.learnt for entry in reversed(ledger) if entry.learnt), None)
            return Snapshot(head, entries, edits, learnt)
        head = after
    raise ConflictError("others write to the session all the time; try again", number=head.number)


class SnapshotHistory:
    """Show a snapshot as a history to one reader. What that writes is counted and forgotten."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._number = int(snapshot.head.number)

    async def head(self) -> Head:
        """Return where the session stood, with what the reader wrote since counted."""
        return self._snapshot.head._replace(number=self._number)

    async def read(
        self,
        *,
        after: int = 0,
        ids: Collection[str] | None = None,
        mark: str | None = None,
        limit: int | None = None,
    ) -> list[Entry]:
        """Return messages as `History.read` does."""
        found = (
            entry
            for entry in self._snapshot.entries
            if entry.changed > after
            and (ids is None or message_id(entry.key) in ids)
            and (mark is None or mark in entry.marks)
        )
        return list(islice(found, limit))

    async def write(self, changes: Sequence[Change], *, at: int | None = None) -> int:  # noqa: ARG002
        """Count a write, and change nothing."""
        self._number += 1
        return self._number

    async def ledger(self, *, after: int = 0) -> list[LedgerEntry]:
        """Return the edits, as if one write had made them."""
        head, edits = self._snapshot.head, self._snapshot.edits
        if after >= head.number or not (edits or self._snapshot.learnt):
            return []
        return [LedgerEntry(head.number, edits, (), self._snapshot.learnt)]


class _ReadStore:
    """Give texts of a store, and change nothing in it."""

    def __init__(self, store: OffloadStore) -> None:
        self.read, self.refs = store.read, store.refs

    async def write(self, text: str) -> str:  # noqa: ARG002
        """Refuse it."""
        raise OffloadWriteError("this store is read only")

    async def delete(self, ref: str) -> None:
        """Do nothing."""


def shown(snapshot: Snapshot, store: OffloadStore | None = None) -> CompressedMemory:
    """Return a memory that shows what a session's view was, and changes neither session nor store."""
    source = _ReadStore(InMemoryOffloadStore() if store is None else store)
    return CompressedMemory(
        SnapshotHistory(snapshot),
        store=source,
        max_total_tokens=_ANY_TOKENS,
        max_tool_message_tokens=_ANY_TOKENS - 1,
        background_ratio=None,
    )
