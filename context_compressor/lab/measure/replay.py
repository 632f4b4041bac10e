"""Replaying a session through a system turn by turn, and watching what it does."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from context_compressor.errors import ContextCompressorError
from context_compressor.lab.measure.probes import is_told
from context_compressor.lab.measure.recording import Chat, Recording, message_text, readable
from context_compressor.lab.measure.results import (
    EDIT_TOKENS,
    MESSAGE_TOKENS,
    PRICES,
    RAW,
    Asked,
    Excerpt,
    Prices,
    Replay,
    SeenMessage,
    StandIn,
    Turn,
    TurnEvent,
    TurnView,
    Watched,
)
from context_compressor.lab.measure.systems import Ours, Spending, System
from context_compressor.laws.chat_rules import RequestChecker
from context_compressor.messages.chat import to_openai
from context_compressor.messages.msg import Msg, provenance_of, refs_shown

HEAD_CHARACTERS = 12_000
TAIL_CHARACTERS = 4_000
"""What is kept of a stored text. A session may store many megabytes; nobody reads them in a report."""
MAX_PROBLEMS = 20
"""Problems of a turn that are told one by one: what is wrong with a view stays wrong in those that follow."""


def excerpt_of(text: str, head: int = HEAD_CHARACTERS, tail: int = TAIL_CHARACTERS) -> Excerpt:
    """Return a text, or its first and last characters where it is longer than both together."""
    left_out = len(text) - head - tail
    if left_out <= 0:
        return Excerpt(text, "", 0)
    return Excerpt(text[:head], text[len(text) - tail :], left_out)


async def watch(
    recording: Recording,
    system: System,
    *,
    budget: int,
    edit_tokens: int = EDIT_TOKENS,
    prices: Prices = PRICES,
    on_turn: Callable[[Turn], object] | None = None,
) -> Watched:
    """Replay a session, and return what was seen on the way.

    Args:
        recording: the session.
        system: a new system; events and stand-ins are seen of an `Ours` only.
        budget: tokens that a view should cost at most.
        edit_tokens: as `replay` takes them.
        prices: as `replay` takes them.
        on_turn: called after each turn; what it raises ends the replay.
    """
    watcher = _Watcher(recording, system) if isinstance(system, Ours) else None

    async def look(turn: Turn) -> None:
        if watcher is not None:
            await watcher.look()
        if on_turn is not None:
            on_turn(turn)

    result = await replay(
        recording, system, budget=budget, edit_tokens=edit_tokens, prices=prices, on_turn=look
    )
    if watcher is None:
        return Watched(result)
    return Watched(
        result,
        tuple(watcher.events),
        watcher.stand_ins(),
        tuple(watcher.messages),
        tuple(watcher.views),
    )


def _text_of(msg: Msg) -> str:
    return "\n".join(map(message_text, to_openai([msg])))


class _Watcher:
    """What is seen of our memory, turn by turn."""

    def __init__(self, recording: Recording, ours: Ours) -> None:
        self._counter = recording.counter.counter
        self._tokens = recording.tokens
        self._ours = ours
        self._turn = 0
        self.events: list[TurnEvent] = []
        self._seen: dict[tuple[str, tuple[str, ...]], tuple[StandIn, Sequence[str]]] = {}
        """By kind and refs; each with the ids of the messages that it covers, whose indexes come last."""
        self.messages: list[SeenMessage] = []
        self.views: list[TurnView] = []
        self._view: list[int] = []
        self._places: dict[tuple[str, str], int] = {}
        """Where a message of an id, with a text, stands in `messages`."""
        self._index_of: dict[str, int] = {}

    async def look(self) -> None:
        """Note the events of this turn, and what stands in its view for the first time."""
        self._turn += 1
        new = self._ours.events[len(self.events) :]
        self.events += [TurnEvent(self._turn, event) for event in new]
        first = len(self.messages)
        for msg in self._ours.history[len(self._index_of) :]:
            self._index_of[msg.id] = len(self._index_of)
            self._place(msg)
        count = len(self.messages) - first
        try:
            view = await self._ours.memory.get_memory()
        except ContextCompressorError:
            view = []  # the replay has met it, too, and says so
        before, self._view = self._view, [self._place(msg) for msg in view]
        pairs = enumerate(zip(before, self._view, strict=False))
        kept = next((n for n, (old, new) in pairs if old != new), min(len(before), len(self._view)))
        self.views.append(TurnView(kept, first, count, tuple(self._view[kept:])))
        for msg in view:
            refs, kind = refs_shown(msg), str(provenance_of(msg).get("kind"))
            if refs and (kind, refs) not in self._seen:
                covered = provenance_of(msg).get("covered_ids", ())
                self._seen[kind, refs] = await self._stand_in(msg, kind, refs), covered

    def _place(self, msg: Msg) -> int:
        """Return where a message stands among those that were seen."""
        text = _text_of(msg)
        place = self._places.setdefault((msg.id, text), len(self.messages))
        if place == len(self.messages):
            kind = str(provenance_of(msg).get("kind") or "")
            role = next((str(chat["role"]) for chat in to_openai([msg])), msg.role)
            self.messages.append(SeenMessage(role, kind, self._index_of.get(msg.id), excerpt_of(text)))
        return place

    async def _stand_in(self, msg: Msg, kind: str, refs: tuple[str, ...]) -> StandIn:
        full = "\n\n".join([await self._read(ref) for ref in refs])
        shown = _text_of(msg)
        return StandIn(
            kind=kind,
            turn=self._turn,
            refs=refs,
            covers=(),
            shown=excerpt_of(shown),
            shown_tokens=self._counter.count_text(shown),
            full=excerpt_of(full),
            full_tokens=self._counter.count_text(full),
        )

    async def _read(self, ref: str) -> str:
        try:
            return await self._ours.memory.read_ref(ref)
        except ContextCompressorError as error:
            return f"[{ref} could not be read: {error}]"

    def stand_ins(self) -> tuple[StandIn, ...]:
        """Return every stand-in, in the order of appearance."""
        found: list[StandIn] = []
        for stand_in, ids in self._seen.values():
            covers = tuple(sorted(self._index_of[id] for id in ids if id in self._index_of))
            full_tokens = stand_in.full_tokens
            if stand_in.kind == "notes":  # their ref has only what left last
                full_tokens = sum(self._tokens[index] for index in covers)
            found.append(replace(stand_in, covers=covers, full_tokens=full_tokens))
        return tuple(found)


OnTurn = Callable[[Turn], Awaitable[None]]
"""Called after each turn, the system as it then is; the time that it takes is not the system's."""

OnProbes = Callable[[int, str], Awaitable[None]]
"""Called where probes are put, with their place and the view as text, the system as it then is; not where
there was no view."""


async def replay(
    recording: Recording,
    system: System,
    *,
    budget: int,
    edit_tokens: int = EDIT_TOKENS,
    prices: Prices = PRICES,
    on_turn: OnTurn | None = None,
    on_probes: OnProbes | None = None,
) -> Replay:
    """Return what a system does with a recorded session. It is closed afterwards.

    Where the system raises, it sends nothing: the turn is invalid and tells nothing, and tokens and cost are
    those of the history that the agent is left with, and sends instead. A probe that is put between turns has
    a view of its own, which is no request and costs nothing.

    Args:
        recording: the session.
        system: a new system; it belongs to this session.
        budget: tokens that a view should cost at most.
        edit_tokens: what the agent's own model is taken to write, in place, in a turn that summarises, where
            no model wrote.
        prices: those of the provider that the session was held with.
        on_turn: looks on; what it raises ends the replay.
        on_probes: looks on, too.
    """
    replaying = _Replaying(recording, system, budget, edit_tokens)
    turns: list[Turn] = []
    asked: dict[int, Asked] = {}
    at_turns = set(recording.turns)
    try:
        for place in sorted(at_turns | {probe.at for probe in recording.probes}):
            view = await replaying.ask(place)
            if place in at_turns:
                turns.append(replaying.judge(place, view))
                if on_turn is not None:
                    await on_turn(turns[-1])
            numbers = [n for n, probe in enumerate(recording.probes) if probe.at == place]
            if numbers and view is None:
                asked |= {n: Asked(recording.probes[n], False, 0) for n in numbers}
            elif numbers and view is not None:
                text, tokens = readable(view), recording.counter.count_all(view)
                for n in numbers:
                    told = is_told(text, recording.probes[n].keys)
                    asked[n] = Asked(recording.probes[n], told, tokens)
                if on_probes is not None:
                    await on_probes(place, text)
        stored = await system.stored()
    finally:
        await system.aclose()
    texts = set(stored.values())
    return Replay(
        session=recording.name,
        system=system.name,
        budget=budget,
        turns=tuple(turns),
        asked=tuple(asked[n] for n in sorted(asked)),
        stored_texts=len(texts),
        stored_bytes=sum(len(text.encode("utf-8", "surrogatepass")) for text in texts),
        prices=prices,
    )


class _Replaying:
    """A replay on its way."""

    def __init__(self, recording: Recording, system: System, budget: int, edit_tokens: int) -> None:
        self._recording = recording
        self._system = system
        self._budget = budget
        self._edit_tokens = edit_tokens
        self._given = 0
        """Messages that the system has seen."""
        self._judged = 0
        """Messages that stood before the last turn."""
        self._raw_tokens = 0
        """Tokens of what was really sent then."""
        self._view: list[Chat] = []
        """What was sent last."""
        self._checker = RequestChecker(takes_thoughts=True)
        self._tokens_before = [0]
        """Tokens of what stands before each message of the view, and of all of it."""
        self._spending = Spending()
        self._seconds = 0.0
        self._raised: str | None = None

    async def ask(self, place: int) -> list[Chat] | None:
        """Return the view after so many messages; None where the system raises."""
        is_raw = self._system.name == RAW
        history = self._recording.sent(place) if is_raw else self._recording.messages[:place]
        new = self._recording.messages[self._given : place]
        self._given = place
        self._raised = None
        began = time.perf_counter()
        try:
            return await self._system.send(history, new)
        except Exception as error:
            self._raised = f"raised {type(error).__name__}: {error}"
            return None
        finally:
            self._seconds = time.perf_counter() - began

    def judge(self, place: int, view: list[Chat] | None) -> Turn:
        """Return what is to be said of the view of a turn."""
        recording = self._recording
        raw_cached_tokens = self._raw_tokens
        is_compacted = recording.sent_from(place) > recording.sent_from(self._judged)
        if is_compacted:
            self._raw_tokens = recording.sent_tokens(place)
            raw_cached_tokens = min(raw_cached_tokens, recording.instruction_tokens)
        else:
            self._raw_tokens += sum(recording.tokens[self._judged : place])
        self._judged = place
        before, self._spending = self._spending, self._system.spending()
        summary_seconds = self._spending.seconds - before.seconds
        summary_input_tokens = self._spending.input_tokens - before.input_tokens
        summary_output_tokens = self._spending.output_tokens - before.output_tokens
        paid_output_tokens = self._spending.paid_output_tokens - before.paid_output_tokens
        paid_input_tokens = self._spending.paid_input_tokens - before.paid_input_tokens
        paid_cached_tokens = self._spending.paid_cached_tokens - before.paid_cached_tokens
        in_place = 0, 0, 0
        if summary_output_tokens:
            sent_before = self._tokens_before[-1]
            asked = before.notes_tokens + MESSAGE_TOKENS + (0 if sent_before else summary_input_tokens)
            in_place = sent_before, asked, paid_output_tokens or self._edit_tokens
        if paid_cached_tokens:  # a model did write in place
            in_place = paid_cached_tokens, paid_input_tokens - paid_cached_tokens, paid_output_tokens
        same = self._follow(recording.messages[:place] if view is None else view)
        cached_tokens, view_tokens = self._tokens_before[same], self._tokens_before[-1]
        found = self._checker.check(self._view, same)
        return Turn(
            index=place,
            raw_tokens=self._raw_tokens,
            raw_cached_tokens=raw_cached_tokens,
            view_tokens=view_tokens,
            cached_tokens=cached_tokens,
            is_over=view_tokens > self._budget,
            is_sent=view is not None,
            problems=_first_of(found) if self._raised is None else (self._raised,),
            paid_input_tokens=paid_input_tokens,
            paid_cached_tokens=paid_cached_tokens,
            paid_output_tokens=paid_output_tokens,
            summary_input_tokens=summary_input_tokens,
            summary_output_tokens=summary_output_tokens,
            in_place_cached_tokens=in_place[0],
            in_place_input_tokens=in_place[1],
            in_place_output_tokens=in_place[2],
            is_summarised=self._spending.output_tokens > 0,
            seconds=max(0.0, self._seconds - summary_seconds),
            summary_seconds=summary_seconds,
            is_compacted=is_compacted,
        )

    def _follow(self, view: list[Chat]) -> int:
        """Take over what is sent now; return how many messages at its start are those of what was before."""
        same = 0
        for old, new in zip(self._view, view, strict=False):
            if old is not new and old != new:
                break
            same += 1
        del self._tokens_before[same + 1 :]
        for message in view[same:]:
            self._tokens_before.append(self._tokens_before[-1] + self._recording.counter.count(message))
        self._view = view
        return same


def _first_of(problems: Sequence[str]) -> tuple[str, ...]:
    """Return the first problems, and how many there are beyond."""
    more = len(problems) - MAX_PROBLEMS
    return (*problems[:MAX_PROBLEMS], f"and {more:,} more") if more > 0 else tuple(problems)
