"""DashScope's text generation: requests, replies and streams."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from context_compressor.integrations.asked import Said
from context_compressor.integrations.clients.chat import CUT_OFF, ChatRequests, as_said, calls_of
from context_compressor.integrations.clients.wire import Dict, Heard, Reader, summed
from context_compressor.summarizers.faults import Fault

_UNFINISHED = (None, "", "null")
"""Finish reasons of a stream that goes on: this API says so by a text."""
_OF_SERVER = HTTPStatus.INTERNAL_SERVER_ERROR
_WANTED_BACK = ("reasoning_content",)


class GenerationWire(ChatRequests):
    """DashScope's `Generation.call` with `messages`."""

    shows_media = False

    def said(self, request: Mapping[str, Any]) -> list[Any] | None:
        has_more = request.get("prompt") or request.get("history")
        return None if has_more else super().said(request)

    def takes_tools(self, request: Mapping[str, Any]) -> bool:
        return super().takes_tools(request) and request.get("result_format") == "message"

    def asking(self, kept: Mapping[str, Any], instructions: str, text: str, room: int | None) -> Dict:
        return {**super().asking(kept, instructions, text, room), "result_format": "message"}

    def written(self, reply: Any) -> Said:
        if reply.status_code != HTTPStatus.OK:
            raise Fault("status", str(reply.message), reply.status_code, str(reply.code))
        choice, usage = _choice_of(reply), reply.usage or {}
        if choice is None:
            raise Fault("empty", f"the answer holds no message: {reply!r:.200}")
        spent = (usage.get("input_tokens", 0), usage.get("output_tokens", 0))
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
        return Said(choice["message"]["content"] or "", *spent, choice.get("finish_reason"), cached)

    def refusal(self, reply: Any) -> str | None:
        status = reply.get("status_code") if isinstance(reply, Mapping) else None
        is_of_request = isinstance(status, int) and HTTPStatus.BAD_REQUEST <= status < _OF_SERVER
        return f"{reply.get('code')}: {reply.get('message')}" if is_of_request else None

    def heard(self, reply: Any) -> Heard:
        choice = _choice_of(reply)
        if choice is None:
            return Heard([], [], is_whole=False, usage=reply.get("usage"))
        calls = [_without_index(call) for call in choice["message"].get("tool_calls") or ()]
        return _heard(choice["message"], calls, choice.get("finish_reason"), reply.get("usage"))

    def handed(self, replies: Sequence[Any], names: Collection[str], usage: Any) -> Any:
        *inside, reply = replies
        for one in reversed(inside) if reply.get("output") else ():
            # Search results, for example, which the last reply does not have.
            found = {key: said for key, said in one["output"].items() if not reply["output"].get(key)}
            reply = remade(reply, output=remade(reply["output"], **found))
        if usage is not None:
            reply = remade(reply, usage=_summed(usage, reply.get("usage")))
        choice = _choice_of(reply)
        calls = choice["message"].get("tool_calls") or [] if choice else []
        kept = [call for call in calls if _name(call) not in names]
        if len(kept) == len(calls):
            return reply
        reason = "stop" if not kept and choice["finish_reason"] == "tool_calls" else choice["finish_reason"]
        return _with_message(reply, _with_calls(choice["message"], _numbered(kept)), reason)

    def reader(self, names: Collection[str], request: Mapping[str, Any]) -> Reader:
        return GenerationReader(names, request.get("incremental_output"))


def remade(value: Any, **update: Any) -> Any:
    """Return a copy of one of the SDK's objects, which are dicts, with other values."""
    return type(value)(**{**value, **update})


def _summed(one: Any, other: Any) -> Any:
    return other if one is None or other is None else remade(other, **summed(dict(one), dict(other)))


def _choice_of(reply: Any) -> Any:
    """Return what a reply chose; None: it is of the older form, which knows no calls, or says an error."""
    choices = (reply.get("output") or {}).get("choices") or [None]
    return choices[0] if choices[0] and choices[0].get("message") is not None else None


def _name(call: Mapping[str, Any]) -> Any:
    return (call.get("function") or {}).get("name")


def _without_index(call: Mapping[str, Any]) -> Dict:
    return {key: value for key, value in call.items() if key != "index"}


def _numbered(calls: Sequence[Mapping[str, Any]]) -> list[Dict]:
    return [{**call, "index": index} if "index" in call else dict(call) for index, call in enumerate(calls)]


def _with_calls(message: Any, calls: list[Dict]) -> Any:
    if calls:
        return remade(message, tool_calls=calls)
    return type(message)(**{key: value for key, value in message.items() if key != "tool_calls"})


def _with_message(reply: Any, message: Any, reason: Any) -> Any:
    choice = remade(reply["output"]["choices"][0], message=message, finish_reason=reason)
    return remade(reply, output=remade(reply["output"], choices=[choice]))


def _heard(message: Mapping[str, Any], calls: list[Dict], reason: Any, usage: Any) -> Heard:
    extra = {key: message[key] for key in _WANTED_BACK if message.get(key)}
    said = as_said(message.get("content") or "", extra, calls)
    is_whole = reason not in _UNFINISHED and reason not in CUT_OFF
    return Heard([said], calls_of(calls), is_whole, (usage or {}).get("input_tokens"), usage)


@dataclass(slots=True)
class _Growing:
    """A call as it comes."""

    call: Dict
    is_ours: bool | None = None
    """None: its name is not all there."""
    index: int = 0
    has_gone: bool = False


class GenerationReader:
    """Takes streamed replies apart, in pieces or each as far as it is."""

    _TEXTS = ("content", "reasoning_content")

    def __init__(self, names: Collection[str], incremental: Any) -> None:
        self.has_begun = False
        self._names = names
        self._incremental: bool | None = incremental
        self._next_index = 0
        self._spent: Any = None
        self._before: dict[str, str] = {}
        """What earlier streams said."""
        self._shown: Any = None
        self._begin()

    def _begin(self) -> None:
        self._said: dict[str, str] = {}
        self._calls: dict[int, _Growing] = {}
        self._reason: Any = None
        self._usage: Any = None
        self._tail: list[Any] = []

    def feed(self, event: Any) -> list[Any]:
        self.has_begun = True
        choice = _choice_of(event)
        self._usage = event.get("usage") or self._usage
        if choice is None or not self._names:
            return [event]
        if self._spent is not None:
            event = remade(event, usage=_summed(self._spent, event.get("usage")))
        message = choice["message"]
        pieces = message.get("tool_calls") or []
        if self._incremental is None and self._is_piece(message):
            self._incremental = True
        shown = self._texts(message)
        shown = _with_calls(shown, self._sorted(pieces))
        reason = choice.get("finish_reason")
        event = _with_message(event, shown, reason)
        if reason not in _UNFINISHED or self._tail:
            self._reason = reason
            self._tail.append(event)
            return []
        says = any(shown.get(key) for key in (*self._TEXTS, "tool_calls"))
        if (pieces or self._shown is not None) and (not says or shown == self._shown):
            return []
        self._shown = None if self._incremental else shown
        return [event]

    def _is_piece(self, message: Mapping[str, Any]) -> bool:
        """Tell whether an event does not say again what was said before."""
        return any(not str(message.get(key) or "").startswith(text) for key, text in self._said.items())

    def _texts(self, message: Any) -> Any:
        """Note the texts of an event; return its message as the caller is to see it."""
        update: Dict = {}
        for key in self._TEXTS:
            text, before = message.get(key), self._before.get(key)
            if not isinstance(text, str):
                continue
            is_first = not self._said.get(key)
            self._said[key] = self._said.get(key, "") + text if self._incremental else text
            if not before:
                continue
            if not self._incremental:
                update[key] = f"{before}\n\n{text}" if text else before
            elif is_first and text:
                update[key] = f"\n\n{text}"
        return remade(message, **update) if update else message

    def _sorted(self, pieces: Sequence[Mapping[str, Any]]) -> list[Dict]:
        """Return what of the calls in an event goes on."""
        gone: list[Dict] = []
        for place, piece in enumerate(pieces):
            index = piece.get("index", place)
            growing = self._calls.setdefault(index, _Growing({"id": "", "type": "function", "function": {}}))
            self._grow(growing, piece)
            if growing.is_ours is None:
                growing.is_ours = self._whose(growing)
            if growing.is_ours is False:
                gone.append(self._going(growing, piece))
        return gone

    def _grow(self, growing: _Growing, piece: Mapping[str, Any]) -> None:
        call, function = growing.call, piece.get("function") or {}
        if not self._incremental:
            growing.call = {**_without_index(piece), "function": dict(function)}
            return
        call.update(
            {key: value for key, value in piece.items() if value and key not in ("index", "function")}
        )
        for key, text in function.items():
            call["function"][key] = call["function"].get(key, "") + (text or "")

    def _going(self, growing: _Growing, piece: Mapping[str, Any]) -> Dict:
        if not growing.has_gone:
            growing.has_gone = True
            growing.index, self._next_index = self._next_index, self._next_index + 1
            function = dict(growing.call["function"])
            return {"index": growing.index, **growing.call, "function": function}
        return {**piece, "index": growing.index}

    def _whose(self, growing: _Growing) -> bool | None:
        name = growing.call["function"].get("name") or ""
        if name in self._names and growing.call["function"].get("arguments"):
            return True
        return None if any(one.startswith(name) for one in self._names) else False

    def heard(self) -> Heard:
        for growing in self._calls.values():
            if growing.is_ours is None:
                growing.is_ours = _name(growing.call) in self._names
        calls = [one.call for _, one in sorted(self._calls.items())]
        return _heard(self._said, calls, self._reason, self._usage)

    def go_on(self, names: Collection[str]) -> None:
        self.has_begun, self._names = False, names
        self._spent = self._usage if self._spent is None else _summed(self._spent, self._usage)
        for key, text in self._said.items():
            self._before[key] = "\n\n".join(filter(None, [self._before.get(key), text]))
        self._begin()

    def end(self) -> list[Any]:
        ended = []
        held = [one for one in self._calls.values() if one.is_ours is False and not one.has_gone]
        late = [self._going(one, {}) for one in held]
        for event in self._tail:
            choice = _choice_of(event)
            reason, message = choice["finish_reason"], choice["message"]
            if late:
                message = _with_calls(message, [*(message.get("tool_calls") or []), *late])
                late = late if not self._incremental else []
            if reason == "tool_calls" and self._calls and not self._next_index:
                reason = "stop"
            ended.append(_with_message(event, message, reason))
        return ended
