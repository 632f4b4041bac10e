"""Watch a replay: which events came in which turn, and what left the view."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from context_compressor.errors import ContextCompressorError
from context_compressor.events import CompressionEvent
from context_compressor.measure.recording import Recording, message_text
from context_compressor.measure.replay import replay
from context_compressor.measure.results import Replay, Turn
from context_compressor.measure.systems import Ours, System
from context_compressor.messages.msg import Msg
from context_compressor.messages.openai import to_openai
from context_compressor.messages.provenance import provenance_of, refs_shown

HEAD_CHARACTERS = 12_000
TAIL_CHARACTERS = 4_000
"""What is kept of a stored text. A session may store many megabytes; nobody reads them in a report."""


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A text, or its two ends."""

    head: str
    tail: str
    left_out: int
    """Characters between the two."""


def excerpt_of(text: str, head: int = HEAD_CHARACTERS, tail: int = TAIL_CHARACTERS) -> Excerpt:
    """Return a text, or its first and last characters where it is longer than both together."""
    left_out = len(text) - head - tail
    if left_out <= 0:
        return Excerpt(text, "", 0)
    return Excerpt(text[:head], text[len(text) - tail :], left_out)


@dataclass(frozen=True, slots=True, kw_only=True)
class StandIn:
    """A stub or segment as it first appeared in a view, beside what it stands for."""

    kind: str
    """`stub` or `segment`."""
    turn: int
    """The turn before which it appeared; the first is 1."""
    refs: tuple[str, ...]
    covers: tuple[int, ...]
    """Indexes of the messages that it stands for."""
    shown: Excerpt
    """What the agent reads."""
    shown_tokens: int
    full: Excerpt
    """What is stored under its refs."""
    full_tokens: int


@dataclass(frozen=True, slots=True)
class TurnEvent:
    """An event, and the turn that it came in."""

    turn: int
    """The first is 1."""
    event: CompressionEvent


@dataclass(frozen=True, slots=True)
class Watched:
    """The replay of one session by one system, and what was seen of it."""

    replay: Replay
    events: tuple[TurnEvent, ...] = ()
    stand_ins: tuple[StandIn, ...] = ()


async def watch(
    recording: Recording, system: System, *, budget: int, on_turn: Callable[[Turn], object] | None = None
) -> Watched:
    """Replay a session, and return what was seen on the way.

    Args:
        recording: the session.
        system: a new system; events and stand-ins are seen of an `Ours` only.
        budget: tokens that a view should cost at most.
        on_turn: called after each turn; what it raises ends the replay.
    """
    watcher = _Watcher(recording, system)

    async def look(turn: Turn) -> None:
        await watcher.look()
        if on_turn is not None:
            on_turn(turn)

    result = await replay(recording, system, budget=budget, on_turn=look)
    return Watched(result, tuple(watcher.events), await watcher.stand_ins())


class _Watcher:
    """What is seen of a system, turn by turn."""

    def __init__(self, recording: Recording, system: System) -> None:
        self._counter = recording.counter.counter
        self._ours = system if isinstance(system, Ours) else None
        self._turn = 0
        self.events: list[TurnEvent] = []
        self._seen: dict[tuple[str, tuple[str, ...]], tuple[StandIn, Sequence[str]]] = {}
        """By kind and refs; each with the ids of the messages that it covers, whose indexes come last."""

    async def look(self) -> None:
        """Note the events of this turn, and what stands in its view for the first time."""
        self._turn += 1
        if self._ours is None:
            return
        new = self._ours.events[len(self.events) :]
        self.events += [TurnEvent(self._turn, event) for event in new]
        try:
            view = await self._ours.memory.get_memory()
        except ContextCompressorError:
            return  # the replay has met it, too, and says so
        for msg in view:
            await self._note(msg)

    async def _note(self, msg: Msg) -> None:
        provenance = provenance_of(msg)
        refs, kind = refs_shown(msg), str(provenance.get("kind"))
        if not refs or (kind, refs) in self._seen:
            return
        full = "\n\n".join([await self._read(ref) for ref in refs])
        shown = "\n".join(map(message_text, to_openai([msg])))
        stand_in = StandIn(
            kind=kind,
            turn=self._turn,
            refs=refs,
            covers=(),
            shown=excerpt_of(shown),
            shown_tokens=self._counter.count_text(shown),
            full=excerpt_of(full),
            full_tokens=self._counter.count_text(full),
        )
        self._seen[kind, refs] = stand_in, provenance.get("covered_ids", ())

    async def _read(self, ref: str) -> str:
        assert self._ours is not None
        try:
            return await self._ours.memory.read_ref(ref)
        except ContextCompressorError as error:
            return f"[{ref} could not be read: {error}]"

    async def stand_ins(self) -> tuple[StandIn, ...]:
        """Return every stand-in, in the order of appearance."""
        if self._ours is None:
            return ()
        index_of = {msg.id: index for index, msg in enumerate(await self._ours.memory.get_history())}
        return tuple(
            replace(stand_in, covers=tuple(sorted(index_of[id] for id in ids if id in index_of)))
            for stand_in, ids in self._seen.values()
        )
