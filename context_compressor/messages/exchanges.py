"""Exchanges: the runs of messages that stay or leave together, and the pairing of calls with results.

This is the only place that knows pairing. `ExchangeBuilder` reads a history message by message and gives
out exchanges that any chat-completions provider accepts; what it decides depends on the order of the messages
alone, so reading the same history again gives the same exchanges.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

from context_compressor.messages.msg import Block, Msg, tool_calls, tool_results
from context_compressor.messages.repair import (
    is_empty_assistant,
    is_legacy_call,
    is_legacy_result,
    named_call,
    orphan_message,
    placeholder_message,
    with_audio_by_id,
    with_plain_content,
    with_refusal_as_text,
    with_result_content,
    without_empty_calls,
    wrapped_arguments,
)

_MADE_ID_CHARACTERS = 9
"""Mistral accepts call ids of just so many letters and digits; OpenAI refuses those above 40."""


_SPLIT = "split from calls or results in the same message"
"""The repair of a message that is part of one: what was counted is the whole."""
ORPHAN_REPAIR = "result without an open call"
"""The repair of a result that stands as a labelled user message."""


class ExchangeMessage(NamedTuple):
    """One message of an exchange, as a view may show it."""

    key: str
    """The history message it comes from; for a placeholder, the message whose call it answers."""
    msg: Msg
    """The message; the very object that was fed when nothing had to be repaired."""
    repair: str | None = None
    """What was repaired, for the log."""
    placeholder: bool = False
    part: str = ""
    """Set where one history message gives several: with `key` it names this one."""


Exchange = tuple[ExchangeMessage, ...]
"""An assistant message with tool calls plus all their results, else one message.

Where each of several calls is a message of its own, and all results follow (Qwen-Agent), it is these with
their results, each behind its call.
"""


@dataclass(slots=True, eq=False)
class _OpenCall:
    id: str
    name: str
    legacy: bool
    """Whether it is a `function_call`, which only a message of role `function` answers."""
    place: str
    """Which call of its message it is: its own id, numbered where several have the same. The id that it is
    shown under depends on other messages, and a ledger names placeholders for longer than those are there."""
    own_id: str
    """The id by which a result names it."""
    turn: list[ExchangeMessage]
    """The message that calls, and the results of its calls."""
    answered: bool = False


class ExchangeBuilder:
    """Turn history messages, fed in order, into valid exchanges.

    An exchange whose results are not all there is withheld until they are, or until another message
    follows; then placeholders answer what is missing. A result with no open call is given out at once.
    """

    def __init__(self) -> None:
        self._turns: list[list[ExchangeMessage]] = []
        self._calls: list[_OpenCall] = []
        # What no result has answered yet, by the id that a result names and whether it is a legacy one.
        self._unanswered: dict[tuple[str, bool], deque[_OpenCall]] = {}
        self._used_ids: set[str] = set()
        self._reuses: Counter[str] = Counter()
        self.closing: set[str] = set()
        """Keys of the messages behind calls that were not all answered: each was what ended the waiting."""

    @property
    def withheld(self) -> tuple[str, ...]:
        """Keys of the messages that wait for results."""
        return tuple(dict.fromkeys(message.key for turn in self._turns for message in turn))

    def feed(self, key: str, msg: Msg) -> list[Exchange]:
        """Read the next history message; return the exchanges that became complete, in order."""
        if isinstance(msg.content, str):
            return self._feed_message(key, msg)
        results = tool_results(msg)
        if not results:
            return self._feed_message(key, msg)
        if len(results) == len(msg.content):
            return self._feed_results(key, msg, results)
        rest = [block for block in msg.content if block.get("type") != "tool_result"]
        # Both in one message: an assistant's own results follow its calls, anybody else's results come first.
        lead, results_msg = _with_content(msg, rest), _with_content(msg, results)
        if msg.role == "assistant":
            first = self._feed_message(key, lead, repair=_SPLIT)
            return [*first, *self._feed_results(key, results_msg, results, "#results", repair=_SPLIT)]
        first = self._feed_results(key, results_msg, results, repair=_SPLIT)
        return [*first, *self._feed_message(key, lead, "#text", repair=_SPLIT)]

    def flush(self) -> list[Exchange]:
        """Complete what is withheld with placeholders, as if another message followed."""
        if not self._turns:
            return []
        for call in self._calls:
            if not call.answered:
                first = call.turn[0]
                part = f":missing:{call.place}"
                filler = placeholder_message(first.msg, part, call.id, call.name, legacy=call.legacy)
                note = "a call without result answered by a placeholder"
                call.turn.append(ExchangeMessage(first.key, filler, note, placeholder=True, part=part))
        exchange = tuple(message for turn in self._turns for message in turn)
        self._turns, self._calls, self._unanswered = [], [], {}
        return [exchange]

    def _feed_message(self, key: str, msg: Msg, part: str = "", repair: str | None = None) -> list[Exchange]:
        shown = msg
        if msg.role == "assistant" and is_empty_assistant(msg):
            shown = with_refusal_as_text(msg)
            if shown is msg:
                return []
        shown = with_audio_by_id(without_empty_calls(with_plain_content(shown)))
        repair = repair if shown is msg else "content rewritten"
        calls = tool_calls(shown)
        closed: list[Exchange] = []
        if self._turns and not self._joins(calls):
            self.closing.add(key)
            closed = self.flush()
        if not calls:
            return [*closed, (_named(key, shown, repair, part),)]
        self._turns.append(self._open(key, shown, calls, repair))
        return closed

    def _joins(self, calls: list[Block]) -> bool:
        """Tell whether calls are made beside those that are open: more of `function_call`, of which a message
        can hold only one, before any result.
        """
        if not calls or not all(map(is_legacy_call, calls)):
            return False
        return all(call.legacy and not call.answered for call in self._calls)

    def _open(self, key: str, msg: Msg, calls: list[Block], repair: str | None) -> list[ExchangeMessage]:
        repaired: dict[int, Block] = {}
        alike: dict[str, int] = {}
        turn: list[ExchangeMessage] = []
        for call in calls:
            call_id = self._claim_id(call["id"])
            block = named_call(wrapped_arguments(call))
            number = alike[call["id"]] = alike.get(call["id"], 0) + 1
            place = call["id"] + (f" {number}" if number > 1 else "")
            opened = _OpenCall(call_id, block["name"], is_legacy_call(call), place, call["id"], turn)
            self._calls.append(opened)
            self._unanswered.setdefault((call["id"], opened.legacy), deque()).append(opened)
            if call_id != call["id"]:
                block = {**block, "id": call_id}
            if block is not call:
                repaired[id(call)] = block
        if repaired:
            assert isinstance(msg.content, list)
            msg = _with_content(msg, [repaired.get(id(block), block) for block in msg.content])
            repair = "calls renamed or arguments wrapped"
        turn.append(ExchangeMessage(key, msg, repair))
        return turn

    def _claim_id(self, original: str) -> str:
        call_id = original
        while not call_id or call_id in self._used_ids:
            self._reuses[original] += 1
            seed = f"{self._reuses[original]} {original}".encode("utf-8", "surrogatepass")
            call_id = sha256(seed).hexdigest()[:_MADE_ID_CHARACTERS]
        self._used_ids.add(call_id)
        return call_id

    def _feed_results(
        self, key: str, msg: Msg, results: list[Block], part: str = "", repair: str | None = None
    ) -> list[Exchange]:
        legacy = is_legacy_result(msg)
        paired: list[Block] = []
        orphans: list[Block] = []
        turn: list[ExchangeMessage] = []
        renamed = False
        for result in results:
            call = self._answer(result, legacy)
            if call is None:
                orphans.append(result)
                continue
            if result["id"] != call.id:
                renamed = True
                result = {**result, "id": call.id}
            turn = call.turn
            paired.append(result)
        if paired:
            shown = with_result_content(msg, paired)
            if shown is msg and (renamed or orphans):
                shown = _with_content(msg, paired)
            turn.append(_named(key, shown, repair if shown is msg else "result rewritten", part))
        exchanges: list[Exchange] = []
        for number, result in enumerate(orphans):
            name = f"#orphan{number}" if paired or number else part
            exchanges.append((_named(key, orphan_message(msg, result), ORPHAN_REPAIR, name),))
        if not self._unanswered:
            exchanges += self.flush()
        return exchanges

    def _answer(self, result: Block, legacy: bool) -> _OpenCall | None:
        """Return the call that a result answers, and note that it is answered.

        A result that names no id, as those of `function_call` and of providers that pair by order, answers
        the first call of its tool that waits, or the first that waits at all.
        """
        if result["id"]:
            waiting: Sequence[_OpenCall] = self._unanswered.get((result["id"], legacy), ())
        else:
            waiting = [call for call in self._calls if call.legacy == legacy and not call.answered]
            waiting = [call for call in waiting if call.name == result.get("name")] or waiting
        if not waiting:
            return None
        call = waiting[0]
        call.answered = True
        same_id = self._unanswered[call.own_id, legacy]
        same_id.remove(call)
        if not same_id:
            del self._unanswered[call.own_id, legacy]
        return call


def _with_content(msg: Msg, blocks: list[Block]) -> Msg:
    other = msg.copy()
    other.content = [dict(block) for block in blocks]
    return other


def _named(key: str, msg: Msg, repair: str | None, part: str) -> ExchangeMessage:
    """Give a repaired message its own id where one history message gives several."""
    if part:
        msg.id += part
    return ExchangeMessage(key, msg, repair, part=part)


def build_exchanges(messages: Iterable[tuple[str, Msg]]) -> list[Exchange]:
    """Return the complete exchanges of `(key, message)` pairs; a trailing incomplete one is withheld."""
    builder = ExchangeBuilder()
    return [exchange for key, msg in messages for exchange in builder.feed(key, msg)]


def repaired(messages: Iterable[Msg]) -> list[Msg]:
    """Return messages as a provider accepts them; calls without results get placeholders, at the end too."""
    builder = ExchangeBuilder()
    exchanges = [e for index, msg in enumerate(messages) for e in builder.feed(str(index), msg)]
    return [message.msg for exchange in [*exchanges, *builder.flush()] for message in exchange]


def is_simple(msg: Msg) -> bool:
    """Tell whether a message takes no part in pairing: no call, no result."""
    return not tool_calls(msg) and not tool_results(msg)
