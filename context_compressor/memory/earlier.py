"""A view as it was before the last events: without their edits. Nothing is written here."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from context_compressor.core.edits import EditName
from context_compressor.core.rebuild import Rebuilt
from context_compressor.errors import InvalidArgumentError
from context_compressor.memory.rebuilder import Basis, Rebuilder
from context_compressor.memory.state import MemoryState
from context_compressor.messages.msg import Msg


class Earlier(NamedTuple):
    """A view without the edits of its last events, which nobody has seen yet."""

    state: MemoryState
    rebuilt: Rebuilt
    without: Collection[EditName]
    """Those edits."""
    of: MemoryState
    """From which it was made."""
    generation: int
    """Of that."""

    def holds(self, state: MemoryState) -> bool:
        """Tell whether it is still that of a state, which may have grown."""
        return state is self.of and state.generation == self.generation


async def find_earlier(rebuilder: Rebuilder, basis: Basis, event: int | None = None) -> Earlier | None:
    """Return the view without the edits of the last event, or of those after one.

    None: no event's edits hold.

    Args:
        rebuilder: makes it.
        basis: what is known.
        event: the number of one whose edits hold: of the messages that the view was of then.
    """
    events = basis.state.ledger.events()
    if not events:
        return None
    if event is None:
        return await without_edits(rebuilder, basis, basis.state.ledger.made_after(list(events)[-1] - 1))
    names = basis.state.ledger.made_after(event)
    return await without_edits(rebuilder, basis, names, first=events[event].messages)


async def without_edits(
    rebuilder: Rebuilder, basis: Basis, names: Collection[EditName], *, first: int | None = None
) -> Earlier:
    """Return the view without the edits of the last events.

    Args:
        rebuilder: makes it.
        basis: what is known.
        names: of those edits.
        first: of how many messages; None: of all.
    """
    old, entries, unseen = basis.state, await rebuilder.read_entries(), set[str]()
    if first is not None:
        entries = entries[:first]
        unseen = {entry.key for entry in entries}  # calls at the end wait for results, as they did
    rebuilt = await rebuilder.rebuild(basis, entries, (), unseen=unseen, without=names)
    new = old.showing(rebuilt, old.known)
    new.shown.summary_place = old.shown.summary_place
    return Earlier(new, rebuilt, names, old, old.generation)


async def view_at(rebuilder: Rebuilder, basis: Basis, event: int) -> list[Msg]:
    """Return the view as an event left it.

    Raises:
        InvalidArgumentError: it cannot be made; the text names the events of which it can be.
    """
    kept = basis.state.ledger.events_with_words()
    if type(event) is not int or event not in kept:
        told = ", ".join(map(str, kept)) or "none"
        raise InvalidArgumentError(f"n: there is no view of an event {event!r:.80}; there are: {told}")
    made = await find_earlier(rebuilder, basis, event)
    assert made is not None
    made.state.settle(summary=True)
    shown, _ = made.state.shown.pick((), with_summaries=True)
    return [msg.copy() for msg in shown]
