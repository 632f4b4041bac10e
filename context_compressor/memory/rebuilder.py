"""A view made anew of a history: reads what that takes, writes nothing and changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from context_compressor.core.config import CompressionConfig
from context_compressor.core.edits import Edit, EditName, message_id
from context_compressor.core.ledger import Ledger
from context_compressor.core.rebuild import Rebuilt, give_words_back, rebuild
from context_compressor.core.recovery import Recovery
from context_compressor.memory.history import Entry, Head, History, LedgerEntry, outlines_of
from context_compressor.memory.recorded import says_same, up_to
from context_compressor.memory.state import MemoryState
from context_compressor.memory.table import MessageTable
from context_compressor.messages.exchanges import Decisions, build_exchanges
from context_compressor.offload.store import OffloadStore, read_text
from context_compressor.tokens.counter import TokenCounter, name_of_counter


class Basis(NamedTuple):
    """What is known beside the history."""

    state: MemoryState
    number: int
    """The head of the history that the state knows."""
    loaded_tokens: Mapping[str, int] | None = None
    """Of a state that was loaded, and shows nothing yet: tokens of its messages, by key."""
    is_another: bool = False
    """Whether the history may be another one than the state was made from."""


class Made(NamedTuple):
    """A view that was made anew, which nobody has seen yet."""

    known: MessageTable
    """Has the marks alone."""
    tokens: Mapping[str, int]
    rebuilt: Rebuilt


class Rebuilder:
    """Make views anew.

    Args:
        history: where the messages live.
        config: thresholds.
        counter: measures messages.
        store: has the words of parts.

    Attributes:
        tells_marks: whether entries tell the marks of their messages, and when they came: a wrapped memory
            tells neither.
    """

    def __init__(
        self, history: History, config: CompressionConfig, counter: TokenCounter, store: OffloadStore
    ) -> None:
        self._history = history
        self._config = config
        self._counter = counter
        self._store = store
        self.tells_marks: bool = getattr(history, "tells_marks", True)

    async def read_entries(self) -> list[Entry]:
        """Return every message of the history."""
        return await self._history.read()

    async def read(self, basis: Basis, head: Head, written: Sequence[LedgerEntry]) -> Made:
        """Make the view of the whole history, and a table of what is known.

        Args:
            basis: what is known.
            head: where the history stands.
            written: what was read of its ledger.
        """
        outlines = outlines_of(self._history)
        # What stands for messages tells which of them are to be read.
        if basis.loaded_tokens is None and outlines is not None and any(basis.state.ledger.segments()):
            made = await self._read_lightly(basis, up_to(head, await outlines.outline()), written)
            if made is not None:
                return made
        entries = await self._history.read()
        return await self._make(basis, up_to(head, entries) if self.tells_marks else entries, written)

    async def _read_lightly(
        self, basis: Basis, entries: Sequence[Entry], written: Sequence[LedgerEntry]
    ) -> Made | None:
        """Make the view from an outline and the messages that it shows; None where that does not tell enough.

        Somebody deleted a message that something stands for, or added it anew, or a segment stands for a
        result that came late.
        """
        # Asked for when something was counted, since a counter may read a vocabulary for it.
        ledger, name = basis.state.ledger, name_of_counter(self._counter)
        if not all(map(self._says_same(basis, entries, written), ledger.entries)):
            return None
        left = {item.key for item in ledger.covered()} & {entry.key for entry in entries}
        counted = {entry.key for entry in entries if entry.tokens and entry.tokens[0] == name}
        bare = left & (counted if basis.is_another else counted | basis.state.known.tokens.keys())
        wanted = {entry.key for entry in entries} - bare
        while True:
            ids = {message_id(key) for key in wanted}
            bodies = {entry.key: entry for entry in await self._history.read(ids=ids)}
            found = {e.key: bodies.get(e.key) for e in entries if e.key in wanted}
            if any(body is None or body.msg is None for body in found.values()):
                return None  # it was deleted meanwhile
            entries = [e._replace(msg=body.msg) if (body := found.get(e.key)) else e for e in entries]
            made = await self._make(basis, entries, written, bare)
            if any(made.rebuilt.changes(ledger.edits())):
                return None
            if not (wanted := made.rebuilt.lacking):
                return made
            bare -= wanted

    async def _make(
        self,
        basis: Basis,
        entries: Sequence[Entry],
        written: Sequence[LedgerEntry],
        bare: Collection[str] = (),
    ) -> Made:
        state, loaded, old = basis.state, basis.loaded_tokens, basis.state.known
        known = MessageTable()
        for mark in {*old.marks, *self._config.weighty_marks}:
            bearing = entries if self.tells_marks else await self._history.read(mark=mark)
            known.marks[mark] = {message_id(entry.key) for entry in bearing if mark in entry.marks}
        name = name_of_counter(self._counter)
        counted = {e.key: e.tokens[1] for e in entries if e.tokens and e.tokens[0] == name}
        # What is known here may have been exchanged since; what was loaded, another counter may have counted.
        known_tokens = {} if basis.is_another else old.tokens
        tokens = {**known_tokens, **counted} if loaded is None else {**counted, **loaded}
        seen = set(known_tokens)
        if loaded is not None:  # counted by another counter, they are told by their places
            seen = set(list(loaded or [entry.key for entry in entries])[: state.ledger.frontier])
        pinned = known.bearing(self._config.pinned_mark)
        rebuilt = await self.rebuild(
            basis,
            entries,
            [entry.key for entry in entries if message_id(entry.key) in pinned],
            known=tokens,
            unseen={entry.key for entry in entries if entry.key not in seen},
            bare=bare,
            written=written,
        )
        return Made(known, tokens, rebuilt)

    async def rebuild(
        self,
        basis: Basis,
        entries: Sequence[Entry],
        leaving: Iterable[str],
        *,
        known: Mapping[str, int] | None = None,
        unseen: Collection[str] = (),
        bare: Collection[str] = (),
        written: Sequence[LedgerEntry] = (),
        without: Collection[EditName] = (),
    ) -> Rebuilt:
        """Return the view of these messages.

        Args:
            basis: what is known.
            entries: every message.
            leaving: keys of messages for which nothing may stand in any more.
            known: tokens of messages that were counted, by key; None: those that the state knows.
            unseen: keys of messages that no view has shown, beside those that the state knows of.
            bare: keys of messages of which there are skeletons.
            written: what was read of the history's ledger, if that was read.
            without: names of the edits of the last events, where they are not to hold any more.
        """
        state, ledger = basis.state, basis.state.ledger.copy()
        ledger.drop(without)
        messages = [(entry.key, entry.msg) for entry in entries if entry.msg is not None]
        for item in state.items_of(leaving):
            ledger.withdraw(item)
        if ledger.decisions is None:
            seen = messages[: ledger.frontier]
            ledger.decisions = await asyncio.to_thread(Decisions.of_earlier_releases, seen)
        ledger.decisions.keep({key for key, _ in messages})
        said, known = dict(messages), state.known.tokens if known is None else known
        is_numbered = self._is_numbered(basis)
        same = [e.key for e in entries if e.tokens or e.changed <= basis.number] if is_numbered else []
        make = partial(
            rebuild,
            messages,
            ledger,
            counted={key: tokens for key, msg, tokens in state.queue if said.get(key) == msg},
            measure=state.measure,
            known=known,
            sizes={key: known[key] for key in same if key in known},
            earlier={item.key: item for item in state.items},
            unseen={*unseen, *state.unseen()},
            bare=bare,
            redact=self._config.redact,
            says_same=self._says_same(basis, entries, written),
        )
        while True:
            await give_words_back(ledger, self.read_words)
            rebuilt = await asyncio.to_thread(make)
            if not ledger.shown_without_words():
                return rebuilt

    def _is_numbered(self, basis: Basis) -> bool:
        """Tell whether what the state knows of messages is told by the numbers of the history's writes."""
        return self.tells_marks and basis.loaded_tokens is None and not basis.is_another

    def _says_same(
        self, basis: Basis, entries: Iterable[Entry], written: Iterable[LedgerEntry]
    ) -> Callable[[Edit], bool]:
        return says_same(entries, written, basis.number) if self._is_numbered(basis) else lambda _: False

    async def recovery(self, ledger: Ledger) -> Recovery:
        """Return what the history still says of the texts that a ledger names."""
        entries = await self._history.read()

        def prepare() -> Recovery:
            said = ((entry.key, entry.msg) for entry in entries if entry.msg is not None)
            exchanges = build_exchanges(said, ledger.decisions)
            messages = (message for exchange in exchanges for message in exchange)
            return Recovery(messages, ledger, self._config.redact)

        return await asyncio.to_thread(prepare)

    async def read_words(self, ref: str) -> str:
        """Return the words of an edit from the store.

        Raises:
            OffloadError: as `read_text`.
        """
        return await read_text(self._store, ref, self._config.store_timeout_seconds)
