"""DashScope's text generation: requests, replies and streams."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from context_compressor.integrations.asked import Said
from context_compressor.integrations.clients.chat import (
    CUT_OFF,
    ChatRequests,
    GrowingCalls,
    ended,
    heard_of,
    name_of,
    placed,
)
from context_compressor.integrations.clients.wire import Dict, Heard, Reader, changed, less, summed
from context_compressor.summarizers.dashscope import read_generation

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
        return read_generation(reply)

    def refusal(self, reply: Any) -> str | None:
        status = reply.get("status_code") if isinstance(reply, Mapping) else None
        is_of_request = isinstance(status, int) and HTTPStatus.BAD_REQUEST <= status < _OF_SERVER
        return f"{reply.get('code')}: {reply.get('message')}" if is_of_request else None

    def heard(self, reply: Any) -> Heard:
        choice = _choice_of(reply)
        if choice is None:
            return Heard([], [], is_whole=False, usage=reply.get("usage"))
        calls = [less(call, "index") for call in choice["message"].get("tool_calls") or ()]
        return _heard(choice["message"], calls, choice.get("finish_reason"), reply.get("usage"))

    def handed(self, replies: Sequence[Any], names: Collection[str], usage: Any) -> Any:
        *inside, reply = replies
        for one in reversed(inside) if reply.get("output") else ():
            # Search results, for example, which the last reply does not have.
            found = {key: said for key, said in one["output"].items() if not reply["output"].get(key)}
            reply = changed(reply, output=changed(reply["output"], **found))
        if usage is not None and reply.get("usage") is not None:
            reply = changed(reply, usage=summed(usage, reply["usage"]))
        choice = _choice_of(reply)
        calls = choice["message"].get("tool_calls") or [] if choice else []
        kept = [call for call in calls if name_of(call) not in names]
        if len(kept) == len(calls):
            return reply
        kept = [{**call, "index": n} if "index" in call else call for n, call in enumerate(kept)]
        message = changed(choice["message"], tool_calls=kept or None)
        reason = choice["finish_reason"]
        return _with_message(reply, message, reason if kept else ended(reason))

    def reader(self, names: Collection[str], request: Mapping[str, Any]) -> Reader:
        return GenerationReader(names, request.get("incremental_output"))


def _choice_of(reply: Any) -> Any:
    """Return what a reply chose; None: it is of the older form, which knows no calls, or says an error."""
    choices = (reply.get("output") or {}).get("choices") or [None]
    return choices[0] if choices[0] and choices[0].get("message") is not None else None


def _with_message(reply: Any, message: Any, reason: Any) -> Any:
    choice = {**reply["output"]["choices"][0], "message": message, "finish_reason": reason}
    return changed(reply, output=changed(reply["output"], choices=[choice]))


def _heard(message: Mapping[str, Any], calls: list[Dict], reason: Any, usage: Any) -> Heard:
    return heard_of(
        message.get("content") or "",
        {key: message[key] for key in _WANTED_BACK if message.get(key)},
        calls,
        is_whole=reason not in _UNFINISHED and reason not in CUT_OFF,
        tokens=(usage or {}).get("input_tokens"),
        usage=usage,
    )


class GenerationReader(Reader):
    """Takes streamed replies apart, in pieces or each as far as it is."""

    _TEXTS = ("content", "reasoning_content")

    def __init__(self, names: Collection[str], incremental: Any) -> None:
        self._incremental: bool | None = incremental
        self._before: dict[str, str] = {}
        """What earlier streams said."""
        self._shown: Any = None
        super().__init__(names)

    def begin(self) -> None:
        self._said: dict[str, str] = {}
        self._calls = GrowingCalls()
        self._reason: Any = None
        self._usage: Any = None
        self._held: list[Any] = []

    def feed(self, event: Any) -> list[Any]:
        self.has_begun = True
        choice = _choice_of(event)
        self._usage = event.get("usage") or self._usage
        if choice is None or not self.names:
            return [event]
        if self.spent is not None and event.get("usage") is not None:
            event = changed(event, usage=summed(self.spent, event["usage"]))
        message, reason = choice["message"], choice.get("finish_reason")
        if self._incremental is None and self._is_piece(message):
            self._incremental = True
        self._calls.add(message.get("tool_calls") or [], are_whole=not self._incremental)
        shown = self._texts(message)
        if shown is not message:
            event = _with_message(event, shown, reason)
        if reason not in _UNFINISHED:
            self._reason = reason
        if self._calls or self._reason is not None:
            self._held.append(event)
            return []
        if self._shown is not None and shown == self._shown:
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
        return changed(message, **update) if update else message

    def heard(self) -> Heard:
        return _heard(self._said, self._calls.all(), self._reason, self._usage)

    def held(self) -> list[Any]:
        for key, text in self._said.items():
            self._before[key] = "\n\n".join(filter(None, [self._before.get(key), text]))
        if not self._incremental:
            return []  # the next stream says it again
        said = [self._left(event, {}, "null") for event in self._held]
        return [one for one in said if any(map(_choice_of(one)["message"].get, self._TEXTS))]

    def end(self) -> list[Any]:
        places = self._calls.places(self.names)
        reasons = [_choice_of(event).get("finish_reason") for event in self._held]
        is_any_left = places or not self._calls
        return [
            self._left(event, places, reason if is_any_left else ended(reason))
            for event, reason in zip(self._held, reasons, strict=True)
        ]

    def _left(self, event: Any, places: Mapping[int, int], reason: Any) -> Any:
        """Return an event that was held without calls of ours."""
        message = _choice_of(event)["message"]
        calls = placed(message.get("tool_calls") or [], places)
        return _with_message(event, changed(message, tool_calls=calls or None), reason)
