"""Exchanges: the runs of messages that stay or leave together, and the pairing of calls with results.

This is the only place that knows pairing. `ExchangeBuilder` reads a history message by message and gives
out exchanges that any chat-completions provider accepts. What it decides depends on the order of the
messages, and on which calls had no result when a view showed them: with the same `Decisions` the same history
gives the same exchanges.
"""

from __future__ import annotations

import operator
from collections import Counter, deque
from collections.abc import Container, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import islice
from typing import Any, NamedTuple

from context_compressor.errors import InvalidStateError
from context_compressor.messages import hosted
from context_compressor.messages.msg import Block, Msg, tool_calls, tool_results
from context_compressor.messages.remark import is_legacy_result
from context_compressor.messages.repair import (
    arguments_line,
    hosted_placeholder,
    is_empty_assistant,
    is_legacy_call,
    named_call,
    orphan_message,
    placeholder_message,
    with_audio_by_id,
    with_content,
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
    goes_on: bool = False
    """Whether an exchange that begins here is the rest of the one before, which was already returned."""


Exchange = tuple[ExchangeMessage, ...]
"""An assistant message with tool calls plus all their results, else one message.

Where each of several calls is a message of its own, and all results follow (Qwen-Agent), it is these with
their results, each behind its call.

A tool that the provider runs itself may give its result in a later message. What stands up to that is of the
same exchange, but is given out as it comes: the provider has to be sent it to go on.
"""


@dataclass(slots=True, eq=False)
class _Call:
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
    held: _Held
    waits: bool = True
    answered: bool = False

    @property
    def missing(self) -> tuple[str, str]:
        """The key and the part of the placeholder that stands for its result."""
        return self.turn[0].key, f":missing:{self.place}"


@dataclass(slots=True, eq=False)
class _Held:
    """An exchange that is not given out yet: it waits for results, or stands behind one that does."""

    turns: list[list[ExchangeMessage]] = field(default_factory=list)
    calls: list[_Call] = field(default_factory=list)
    waiting: int = 0
    follows: bool = True
    """Whether it ends the waiting of calls before it, once it is to be shown: a result does not."""
    goes_on: bool = False
    """Whether it is the rest of the exchange before it."""


@dataclass(slots=True)
class Decisions:
    """What pairing decided when messages entered a view; what comes later does not change it."""

    missing: dict[tuple[str, str], str] = field(default_factory=dict)
    """The placeholders, each by the key of the message that calls and its own part, with the key of the
    message that ended the waiting."""
    plain: set[str] = field(default_factory=set)
    """Keys of results without an open call that earlier releases showed: their labels name no call."""

    @classmethod
    def of_earlier_releases(cls, history: Iterable[tuple[str, Msg]]) -> Decisions:
        """Return what was decided when every message but a result ended the waiting of calls before it."""
        builder = ExchangeBuilder()
        exchanges = [e for key, msg in history for e in (*builder.feed(key, msg), *builder.settle())]
        orphans = {m.key for exchange in exchanges for m in exchange if m.repair == ORPHAN_REPAIR}
        return cls(builder.decisions.missing, orphans)

    def to_dict(self) -> dict[str, Any]:
        """Return them as JSON-like data."""
        missing = [[*call, closing] for call, closing in self.missing.items()]
        return {"missing": missing, "plain": sorted(self.plain)}

    @classmethod
    def from_dict(cls, data: object) -> Decisions:
        """Read what `to_dict` returned.

        Raises:
            InvalidStateError: it is malformed.
        """
        try:
            missing = {(str(key), str(part)): str(closing) for key, part, closing in data["missing"]}  # type: ignore[index]
            return cls(missing, set(map(str, data["plain"])))  # type: ignore[index]
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidStateError(f"compression.decisions: malformed ({error!r})") from error

    def keep(self, keys: Container[str]) -> None:
        """Forget what was decided for, or because of, messages that are gone: their calls wait again."""
        self.missing = {
            call: closing for call, closing in self.missing.items() if call[0] in keys and closing in keys
        }


class ExchangeBuilder:
    """Turn history messages, fed in order, into valid exchanges.

    A call waits for its result, and what is fed meanwhile stands behind it, until `settle`, `flush`, or a
    later call under the same id. A result with no call that waits becomes a labelled user message.

    Args:
        decisions: what was decided before; copied.

    Attributes:
        decisions: what has been decided by now.
    """

    def __init__(self, decisions: Decisions | None = None) -> None:
        self.decisions = Decisions() if decisions is None else deepcopy(decisions)
        self._held: deque[_Held] = deque()
        self._newest = _Held()
        # What waits for a result, by the id that a result names and whether it is a legacy one.
        self._waiting: dict[tuple[str, bool], deque[_Call]] = {}
        self._used_ids: set[str] = set()
        self._reuses: Counter[str] = Counter()
        self._called: dict[str, tuple[str, str]] = {}
        # Calls of hosted tools without a result, by their ids, and whether the client's tools were called
        # beside the newest of them.
        self._hosted: dict[str, tuple[str, Msg, Block]] = {}
        self._is_mixed = False

    @property
    def withheld(self) -> tuple[str, ...]:
        """Keys of the messages that wait for results, or stand behind such."""
        return tuple(dict.fromkeys(m.key for held in self._held for turn in held.turns for m in turn))

    def feed(self, key: str, msg: Msg) -> list[Exchange]:
        """Read the next history message; return the exchanges that became complete, in order."""
        is_plain = isinstance(msg.content, str) and not msg.metadata and msg.content.strip()
        if is_plain and not (self._held or self._hosted):
            return [(ExchangeMessage(key, msg),)]  # most of a long history: nothing waits, nothing to repair
        results = tool_results(msg)
        if isinstance(msg.content, str) or not results:
            self._feed_message(key, msg)
        elif len(results) == len(msg.content):
            self._feed_results(key, msg, results)
        else:
            rest = [block for block in msg.content if block.get("type") != "tool_result"]
            # Both in one message: an assistant's own results follow its calls, anybody else's come first.
            lead, results_msg = with_content(msg, rest), with_content(msg, results)
            if msg.role == "assistant":
                self._feed_message(key, lead, repair=_SPLIT)
                self._feed_results(key, results_msg, results, "#results", repair=_SPLIT)
            else:
                self._feed_results(key, results_msg, results, repair=_SPLIT)
                self._feed_message(key, lead, "#text", repair=_SPLIT)
        return self._take_complete()

    def settle(self) -> list[Exchange]:
        """Complete with placeholders the calls behind which a message stands: all is about to be shown."""
        done: list[Exchange] = []
        while (closing := self._closing) is not None:
            self._give_up(self._held[0], closing.turns[0][0].key)
            done += self._take_complete()
        return done

    @property
    def is_settled(self) -> bool:
        """Whether `settle` would change nothing."""
        return self._closing is None

    @property
    def _closing(self) -> _Held | None:
        """What ends the waiting of the first exchange, once it is to be shown."""
        return next((held for held in islice(self._held, 1, None) if held.follows), None)

    def flush(self) -> list[Exchange]:
        """Complete with placeholders whatever waits, as if another message followed."""
        for held in self._held:
            self._give_up(held, "")
        return self._take_complete()

    def _give_up(self, held: _Held, closing: str) -> None:
        for call in held.calls:
            if call.waits:
                self.decisions.missing[call.missing] = closing
                self._stop_waiting(call)

    def _take_complete(self) -> list[Exchange]:
        done: list[Exchange] = []
        while self._held and not self._held[0].waiting:
            held = self._held.popleft()
            for call in held.calls:
                if not call.answered:
                    key, part = call.missing
                    filler = placeholder_message(
                        call.turn[0].msg, part, call.id, call.name, legacy=call.legacy
                    )
                    note = "a call without result answered by a placeholder"
                    call.turn.append(ExchangeMessage(key, filler, note, placeholder=True, part=part))
            held.calls.clear()  # they know what holds them: both would stay for the garbage collector
            exchange = tuple(message for turn in held.turns for message in turn)
            if held.goes_on:
                exchange = (exchange[0]._replace(goes_on=True), *exchange[1:])
            done.append(exchange)
        return done

    def _feed_message(self, key: str, msg: Msg, part: str = "", repair: str | None = None) -> None:
        shown = msg
        if msg.role == "assistant" and is_empty_assistant(msg):
            shown = with_refusal_as_text(msg)
            if shown is msg:
                return
        shown = with_audio_by_id(without_empty_calls(with_plain_content(shown)))
        calls = tool_calls(shown)
        goes_on = self._go_on(key, shown)
        if msg.role == "assistant":
            shown, self._is_mixed = self._with_hosted_calls(key, shown), bool(calls)
        repair = repair if shown is msg else "content rewritten"
        if not calls:
            self._held.append(_Held([[_named(key, shown, repair, part)]], goes_on=goes_on))
            return
        if not self._joins(calls):
            self._newest = _Held(goes_on=goes_on)
            self._held.append(self._newest)
        self._newest.turns.append(self._open(key, shown, tool_calls(shown), repair))

    def _go_on(self, key: str, msg: Msg) -> bool:
        """Tell whether a message is of the exchange before it, whose hosted tools have not given all results;
        where it ends their waiting, they get placeholders.

        What the model says next holds such a result, or calls that a hosted one makes. Others speak before
        that only where results of the client's tools stand between.
        """
        if not self._hosted:
            return False
        if msg.role == "assistant":
            blocks = hosted.blocks_of(msg)
            named = [id for block in blocks for id in (hosted.answered_in(block), hosted.caller_of(block))]
            goes_on = not self._hosted.keys().isdisjoint(named)
        else:
            goes_on = self._is_mixed
        for id, (caller, calling, call) in () if goes_on else self._hosted.items():
            part = f":hosted:{id}"
            self.decisions.missing[caller, part] = key
            filler = hosted_placeholder(calling, part, call)
            note = "a hosted tool's call without result answered by a placeholder"
            self._held.append(
                _Held([[ExchangeMessage(caller, filler, note, placeholder=True, part=part)]], goes_on=True)
            )
        if not goes_on:
            self._hosted = {}
        return goes_on

    def _with_hosted_calls(self, key: str, msg: Msg) -> Msg:
        """Return a message whose results of hosted tools have their calls, and note what waits for one."""
        shown = hosted.with_calls(msg, self._hosted)
        for block in filter(hosted.is_hosted, hosted.blocks_of(shown)):
            if (id := hosted.called_in(block)) is not None:
                self._hosted[id] = key, msg, block
            elif (id := hosted.answered_in(block)) is not None:
                self._hosted.pop(id, None)
        return shown

    def _joins(self, calls: list[Block]) -> bool:
        """Tell whether calls are made beside those of the message before: more of `function_call`, of which a
        message can hold only one, before any result.
        """
        if not self._held or self._held[-1] is not self._newest or not all(map(is_legacy_call, calls)):
            return False
        return all(call.legacy and call.waits for call in self._newest.calls)

    def _open(self, key: str, msg: Msg, calls: list[Block], repair: str | None) -> list[ExchangeMessage]:
        repaired: dict[int, Block] = {}
        alike: dict[str, int] = {}
        turn: list[ExchangeMessage] = []
        for call in calls:
            call_id = self._claim_id(call["id"])
            block = named_call(wrapped_arguments(call))
            number = alike[call["id"]] = alike.get(call["id"], 0) + 1
            place = call["id"] + (f" {number}" if number > 1 else "")
            legacy = is_legacy_call(call)
            opened = _Call(call_id, block["name"], legacy, place, call["id"], turn, self._newest)
            if call["id"]:
                self._called[call["id"]] = block["name"], arguments_line(block)
            self._newest.calls.append(opened)
            same_id = self._waiting.setdefault((call["id"], legacy), deque())
            if same_id and same_id[0].held is not self._newest:
                same_id.clear()  # a result under this id is this call's from now on
            same_id.append(opened)
            self._newest.waiting += 1
            if call_id != call["id"]:
                block = {**block, "id": call_id}
            if block is not call:
                repaired[id(call)] = block
        if repaired:
            assert isinstance(msg.content, list)
            msg = with_content(msg, [repaired.get(id(block), block) for block in msg.content])
            repair = "calls renamed or arguments wrapped"
        turn.append(ExchangeMessage(key, msg, repair))
        for opened in self._newest.calls:
            if opened.turn is turn and opened.missing in self.decisions.missing:
                self._stop_waiting(opened)
        return turn

    def _stop_waiting(self, call: _Call) -> None:
        call.waits = False
        call.held.waiting -= 1
        same_id = self._waiting[call.own_id, call.legacy]
        if call in same_id:
            same_id.remove(call)

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
    ) -> None:
        legacy = is_legacy_result(msg)
        paired: list[tuple[_Call, Block]] = []
        orphans: list[Block] = []
        for result in results:
            if (call := self._answer(result, legacy)) is None:
                orphans.append(result)
            else:
                paired.append((call, result if result["id"] == call.id else {**result, "id": call.id}))
        turns = {id(call.turn): call.turn for call, _ in paired}
        for number, turn in enumerate(turns.values()):
            own = [result for call, result in paired if call.turn is turn]
            shown = with_result_content(msg, own)
            if shown is msg and not (len(own) == len(results) and all(map(operator.is_, own, results))):
                shown = with_content(msg, own)
            name = f"{part}#turn{number}" if number else part
            turn.append(_named(key, shown, repair if shown is msg else "result rewritten", name))
        for number, result in enumerate(orphans):
            name = f"#orphan{number}" if paired or number else part
            called = None if key in self.decisions.plain else self._called.get(result["id"])
            orphan = _named(key, orphan_message(msg, result, called), ORPHAN_REPAIR, name)
            goes_on = self._go_on(key, orphan.msg)
            self._held.append(_Held([[orphan]], follows=False, goes_on=goes_on))

    def _answer(self, result: Block, legacy: bool) -> _Call | None:
        """Return the call that a result answers, and note that it is answered.

        A result that names no id, as those of `function_call` and of providers that pair by order, answers
        of the newest calls the first of its tool that waits, or the first that waits at all.
        """
        waiting: Sequence[_Call]
        if result["id"]:
            waiting = self._waiting.get((result["id"], legacy), ())
        else:
            waiting = [call for call in self._newest.calls if call.legacy == legacy and call.waits]
            waiting = [call for call in waiting if call.name == result.get("name")] or waiting
        if not waiting:
            return None
        call = waiting[0]
        call.answered = True
        self._stop_waiting(call)
        return call


def _named(key: str, msg: Msg, repair: str | None, part: str) -> ExchangeMessage:
    """Give a repaired message its own id where one history message gives several."""
    if part:
        msg.id += part
    return ExchangeMessage(key, msg, repair, part=part)


def build_exchanges(
    messages: Iterable[tuple[str, Msg]], decisions: Decisions | None = None
) -> list[Exchange]:
    """Return the exchanges of `(key, message)` pairs that a view shows, but for one at the end that waits."""
    builder = ExchangeBuilder(decisions)
    return [exchange for key, msg in messages for exchange in builder.feed(key, msg)] + builder.settle()


def repaired(messages: Iterable[Msg]) -> list[Msg]:
    """Return messages as a provider accepts them; calls without results get placeholders, at the end too."""
    builder = ExchangeBuilder()
    exchanges = [e for index, msg in enumerate(messages) for e in builder.feed(str(index), msg)]
    return [message.msg for exchange in [*exchanges, *builder.flush()] for message in exchange]


def is_simple(msg: Msg) -> bool:
    """Tell whether a message takes no part in pairing: no call, no result."""
    return not (tool_calls(msg) or tool_results(msg) or any(map(hosted.is_hosted, hosted.blocks_of(msg))))
