"""Replay a recorded session: ask a system for a view before each turn, and judge what it sends."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from context_compressor.measure.chats import Chat
from context_compressor.measure.protocol import ReadBack, Spending, System
from context_compressor.measure.recording import FAR_MESSAGES, Evidence, RecordedTurn, Recording
from context_compressor.measure.results import Found, Missing, Replay, Turn
from context_compressor.measure.validity import RequestChecker

MAX_PROBLEMS = 20
"""Problems of a turn that are told one by one: what is wrong with a view stays wrong in those that follow."""

READ_TOOL_NAME = "read"
"""What the tool is called by which the smallest stored text is read, where a system's own show nothing."""


OnTurn = Callable[[Turn], Awaitable[None]]
"""Called after each turn, the system as it then is; the time that it takes is not the system's."""


async def replay(
    recording: Recording,
    system: System,
    *,
    budget: int,
    far_messages: int = FAR_MESSAGES,
    on_turn: OnTurn | None = None,
) -> Replay:
    """Return what a system does with a recorded session. It is closed afterwards.

    Where the system raises, it sends nothing: the turn is invalid and knows no evidence, and tokens and cost
    are those of the history that the agent is left with, and sends instead.

    Args:
        recording: the session.
        system: a new system; it belongs to this session.
        budget: tokens that a view should cost at most.
        far_messages: evidence that was named last more messages back than this is far.
        on_turn: looks on; what it raises ends the replay.
    """
    replaying = _Replaying(recording, system, budget, far_messages)
    turns: list[Turn] = []
    try:
        for turn in recording.turns:
            turns.append(await replaying.take(turn))
            if on_turn is not None:
                await on_turn(turns[-1])
        stored = await system.stored()
    finally:
        await system.aclose()
    texts = set(stored.values())
    return Replay(
        session=recording.name,
        system=system.name,
        budget=budget,
        turns=tuple(turns),
        stored_texts=len(texts),
        stored_bytes=sum(len(text.encode("utf-8", "surrogatepass")) for text in texts),
    )


class _Entry(NamedTuple):
    """What is known of a message in a view."""

    tokens: int
    text: int


class _Replaying:
    """A replay on its way."""

    def __init__(self, recording: Recording, system: System, budget: int, far_messages: int) -> None:
        self._recording = recording
        self._system = system
        self._budget = budget
        self._far_messages = far_messages
        self._given = 0
        """Messages that the system has seen."""
        self._raw_tokens = 0
        """Tokens of those."""
        self._view: list[Chat] = []
        """What was sent last."""
        self._checker = RequestChecker()
        self._entries: list[_Entry] = []
        self._tokens_before = [0]
        """Tokens of what stands before each message of the view, and of all of it."""
        self._entry_of = {
            id(message): _Entry(tokens, number)
            for message, tokens, number in zip(
                recording.messages, recording.tokens, recording.text_numbers, strict=True
            )
        }
        self._spending = Spending()
        self._answers: dict[tuple[str, int], ReadBack | None] = {}
        self._reached: frozenset[int] = frozenset()

    async def take(self, turn: RecordedTurn) -> Turn:
        """Ask for the view of a turn, and judge it."""
        recording = self._recording
        history = recording.messages[: turn.index]
        new = history[self._given :]
        raw_cached_tokens = self._raw_tokens
        self._raw_tokens += sum(recording.tokens[self._given : turn.index])
        self._given = turn.index

        raised: str | None = None
        view: list[Chat] | None = None
        began = time.perf_counter()
        try:
            view = await self._system.send(history, new)
        except Exception as error:
            raised = f"raised {type(error).__name__}: {error}"
        seconds = time.perf_counter() - began

        before, self._spending = self._spending, self._system.spending()
        summary_seconds = self._spending.seconds - before.seconds
        same = self._follow(history if view is None else view)
        cached_tokens, view_tokens = self._tokens_before[same], self._tokens_before[-1]
        found = self._checker.check(self._view, same)
        far, near, missing = await self._judge(turn, view)
        return Turn(
            index=turn.index,
            raw_tokens=self._raw_tokens,
            raw_cached_tokens=raw_cached_tokens,
            view_tokens=view_tokens,
            cached_tokens=cached_tokens,
            is_over=view_tokens > self._budget,
            is_sent=view is not None,
            problems=_first_of(found) if raised is None else (raised,),
            paid_input_tokens=self._spending.paid_input_tokens - before.paid_input_tokens,
            paid_output_tokens=self._spending.paid_output_tokens - before.paid_output_tokens,
            summary_input_tokens=self._spending.input_tokens - before.input_tokens,
            summary_output_tokens=self._spending.output_tokens - before.output_tokens,
            far=far,
            near=near,
            missing=tuple(missing),
            seconds=max(0.0, seconds - summary_seconds),
            summary_seconds=summary_seconds,
        )

    def _follow(self, view: list[Chat]) -> int:
        """Take over what is sent now; return how many messages at its start are those of what was before."""
        same = 0
        for old, new in zip(self._view, view, strict=False):
            if old is not new and old != new:
                break
            same += 1
        del self._entries[same:], self._tokens_before[same + 1 :]
        for message in view[same:]:
            entry = self._entry_of.get(id(message)) or self._read(message)
            self._entries.append(entry)
            self._tokens_before.append(self._tokens_before[-1] + entry.tokens)
        self._view = view
        return same

    def _read(self, message: Chat) -> _Entry:
        recording = self._recording
        text = recording.texts.add(recording.reader.text_of(message))
        return _Entry(recording.counter.count(message), text)

    async def _judge(self, turn: RecordedTurn, view: list[Chat] | None) -> tuple[Found, Found, list[Missing]]:
        """Return what became of far and near evidence, and what the view did not make known."""
        texts = self._recording.texts
        shown = {entry.text for entry in self._entries} if view is not None else set()
        unknown = [evidence for evidence in turn.evidence if not texts.is_known(evidence, shown)]
        missing = []
        if unknown:
            named = {} if view is None else await self._system.reachable(view)
            reached = frozenset(texts.add(text) for text in named.values())
            if reached != self._reached:
                self._reached = reached
                self._answers.clear()
            missing = [await self._miss(evidence) for evidence in unknown]
        lost = {one.identifier: one for one in missing}
        far, near = Found(), Found()
        for evidence in turn.evidence:
            one = lost.get(evidence.identifier)
            found = Found(1, one is None, one is None or one.is_recoverable)
            if self._is_far(evidence):
                far += found
            else:
                near += found
        return far, near, missing

    def _is_far(self, evidence: Evidence) -> bool:
        return evidence.distance > self._far_messages

    async def _miss(self, evidence: Evidence) -> Missing:
        """Describe evidence that the view does not make known."""
        is_recoverable = bool(self._recording.texts.telling(evidence, self._reached))
        read = await self._read_back(evidence) if is_recoverable else None
        return Missing(
            identifier=evidence.identifier,
            source=evidence.source,
            distance=evidence.distance,
            is_far=self._is_far(evidence),
            is_recoverable=is_recoverable,
            tokens=None if read is None else read.tokens,
            calls=None if read is None else read.calls,
        )

    async def _read_back(self, evidence: Evidence) -> ReadBack | None:
        """Return the cheapest read-back: by the system's tools, else by reading the smallest text whole."""
        key = evidence.identifier, evidence.source_text
        if key not in self._answers:
            texts, counter = self._recording.texts, self._recording.counter
            read = await self._system.read_back(
                evidence.identifier, lambda answer: texts.is_answered(evidence, answer)
            )
            if read is None:
                whole = [
                    counter.count_call(READ_TOOL_NAME, {}, texts.text(number))
                    for number in texts.telling(evidence, self._reached)
                ]
                read = ReadBack(min(whole), 1) if whole else None
            self._answers[key] = read
        return self._answers[key]


def _first_of(problems: Sequence[str]) -> tuple[str, ...]:
    """Return the first problems, and how many there are beyond."""
    more = len(problems) - MAX_PROBLEMS
    return (*problems[:MAX_PROBLEMS], f"and {more:,} more") if more > 0 else tuple(problems)
