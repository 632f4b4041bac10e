"""Making a view anew from what a history and its ledger say."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple

from context_compressor.compression.config import CompressionConfig
from context_compressor.compression.edits import message_id
from context_compressor.compression.ledger import Ledger
from context_compressor.compression.recovery import Recovery
from context_compressor.memory.history import Entry, Head, History, LedgerEntry, outlines_of
from context_compressor.memory.reading import Reading, numbers_of, read_all, read_lightly, up_to
from context_compressor.memory.rebuilding import Rebuilt, is_told_by, rebuilt_view
from context_compressor.memory.state import MemoryState
from context_compressor.memory.table import MessageTable
from context_compressor.messages.msg import Msg
from context_compressor.offload.store import OffloadStore, read_text
from context_compressor.tokens.counter import TokenCounter
from context_compressor.tokens.off_loop import run_off_loop, text_characters


class Made(NamedTuple):
    """A view that was made anew, which nobody has seen yet."""

    known: MessageTable
    """Has the marks alone."""
    tokens: Mapping[str, int]
    rebuilt: Rebuilt


class ViewMaker:
    """Make the view of a history anew. Nothing is written, and nothing changed.

    Args:
        history: where the messages live.
        config: thresholds.
        counter: measures messages.
        store: has the words of merged segments.

    Attributes:
        history: as given.
        number: the head of the history that the state knows.
        state: ledger, known messages and view.
    """

    state: MemoryState

    def __init__(
        self, history: History, config: CompressionConfig, counter: TokenCounter, store: OffloadStore
    ) -> None:
        self.history = history
        self.number = 0
        self._config = config
        self._counter = counter
        self._store = store
        self._loaded_tokens: dict[str, int] | None = None
        self._is_another = False
        """Whether the history may be another one than the state was made from."""

    @property
    def _name(self) -> str:
        """Who counts; asked for when something was counted, since a counter may read a vocabulary for it."""
        return str(getattr(self._counter, "encoding_name", None) or type(self._counter).__qualname__)

    async def _make_lightly(self, head: Head, edits: Sequence[LedgerEntry]) -> Made:
        """Make the view anew from an outline of the history where that tells enough, else from all of it."""
        state, outlines = self.state, outlines_of(self.history)
        if outlines is not None and any(state.ledger.segments()):  # else nothing stands for messages
            reading = await read_lightly(
                self.history,
                up_to(head, await outlines.outline()),
                ledger=state.ledger,
                recorded=numbers_of(edits),
                known=self.number,
                unseen=state.unseen(),
                seen={} if self._is_another else state.known.tokens,
                counter=self._name,
            )
            if reading is not None:
                made = await self._make(reading)
                if is_told_by(reading.bare, made.rebuilt):
                    return made
        return await self._make(await read_all(self.history, head))

    async def _make(self, reading: Reading) -> Made:
        """Make the view anew from what was read, and a table of it. Changes nothing."""
        state, loaded, old, entries = self.state, self._loaded_tokens, self.state.known, reading.entries
        known = MessageTable()
        for mark in {*old.marks, *self._weighty_marks()}:
            is_told = bool(reading.bare)  # an outline tells all marks, which not every history does
            found = [e for e in entries if mark in e.marks] if is_told else await self.history.read(mark=mark)
            known.marks[mark] = {message_id(entry.key) for entry in found}
        counted = {e.key: e.tokens[1] for e in entries if e.tokens and e.tokens[0] == self._name}
        # What is known here may have been exchanged since; what was loaded, another counter may have counted.
        known_tokens = {} if self._is_another else old.tokens
        tokens = known_tokens | counted if loaded is None else counted | loaded
        seen = set(known_tokens)
        if loaded is not None:  # counted by another counter, they are told by their places
            seen = set(list(loaded or [entry.key for entry in entries])[: state.ledger.frontier])
        pinned = known.bearing(self._config.pinned_mark)
        ids = [entry.key for entry in entries if message_id(entry.key) in pinned]
        unseen = {entry.key for entry in entries if entry.key not in seen}
        return Made(known, tokens, await self._rebuild(entries, ids, tokens, unseen, reading.bare))

    async def _rebuild(
        self,
        entries: Sequence[Entry],
        leaving: Iterable[str],
        known: Mapping[str, int],
        unseen: set[str],
        bare: frozenset[str] = frozenset(),
    ) -> Rebuilt:
        reading = Reading(entries, bare)
        return await rebuilt_view(self.state, reading, leaving, known, unseen, self._counter, self.recovery)

    async def recovery(
        self, messages: Sequence[tuple[str, Msg]], ledger: Ledger, bare: Container[str] = ()
    ) -> Recovery:
        """Return what these messages, of some the skeletons, still say of the texts that a ledger names."""

        def prepare() -> Recovery:
            return Recovery(messages, ledger, self._config.redact, self._read, bare)

        return await run_off_loop(text_characters(msg for _, msg in messages), prepare)

    async def _read(self, ref: str) -> str:
        return await read_text(self._store, ref, self._config.store_timeout_seconds)

    def _weighty_marks(self) -> set[str]:
        """Return the marks that decide what may leave the view."""
        pinned = self._config.pinned_mark
        return {*self._config.volatile_marks, *([] if pinned is None else [pinned])}
