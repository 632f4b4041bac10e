"""Conversations that a list departed from, kept for a while: whoever goes back to one pays for it once."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from context_compressor.memory.history import Entry
from context_compressor.memory.state import MemoryState

T = TypeVar("T")

MOST_BRANCHES = 32
"""Conversations that are kept beside the one at hand; with more the oldest goes."""


@dataclass(slots=True, eq=False)
class Branch(Generic[T]):
    """A conversation that was left."""

    state: MemoryState
    """Its view and ledger."""
    entries: Sequence[Entry]
    """Its messages, with their marks."""
    listed: T
    """What its list said."""
    left_at: float = field(default_factory=time.monotonic)


class Branches(Generic[T]):
    """Keep the conversations that a list departed from.

    Their texts stay in the store as long as they are kept; what is saved is the conversation at hand.

    Args:
        seconds: how long each is kept.
        let_go: is given the refs of one that is kept no longer.
    """

    def __init__(self, seconds: float, let_go: Callable[[Collection[str]], None]) -> None:
        self._seconds = seconds
        self._let_go = let_go
        self._branches: list[Branch[T]] = []

    def __iter__(self) -> Iterator[Branch[T]]:
        return iter(self._branches)

    def holds(self, ref: str) -> bool:
        """Tell whether one of them names a ref."""
        return any(branch.state.ledger.is_live(ref) for branch in self._branches)

    def refs(self) -> set[str]:
        """Return the refs that they name."""
        return {ref for branch in self._branches for ref in branch.state.ledger.kept_refs()}

    def keep(self, branch: Branch[T]) -> None:
        """Keep one more."""
        self._branches.append(branch)
        self._drop(self._branches[:-MOST_BRANCHES])

    def take(self, branch: Branch[T]) -> None:
        """Hand one over: it is the conversation at hand now."""
        self._branches.remove(branch)

    def over(self) -> list[Branch[T]]:
        """Return the branches that were left too long ago."""
        oldest = time.monotonic() - self._seconds
        return [branch for branch in self._branches if branch.left_at <= oldest]

    def expire(self) -> bool:
        """Let go of the branches that were left too long ago; tell whether there were any."""
        over = self.over()
        self._drop(over)
        return bool(over)

    def drop(self, keys: Collection[str] | None = None) -> None:
        """Let go of those that hold one of these messages, which was deleted or changed; None: of all."""
        gone = None if keys is None else set(keys)
        self._drop(
            [b for b in self._branches if gone is None or any(entry.key in gone for entry in b.entries)]
        )

    def _drop(self, branches: Sequence[Branch[T]]) -> None:
        for branch in branches:
            self._branches.remove(branch)
            self._let_go(branch.state.ledger.kept_refs() | branch.state.ledger.unwanted)
