"""Anthropic's Messages: requests, replies and streams."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from context_compressor.integrations.asked import Said
from context_compressor.integrations.clients.wire import (
    Answer,
    Beside,
    Call,
    Dict,
    Heard,
    Reader,
    changed,
    check_free,
    done_by_server,
    less,
    listed,
    plain,
    summed,
)
from context_compressor.messages.forms import FormName

_OF_ANSWER = (
    *("max_tokens", "stream", "stop_sequences", "metadata", "tool_choice", "output_format"),
    "diagnostics",
)
"""What a request says of its own answer alone."""
_OF_LIST = ("messages", "system", "tools", "mcp_servers", "container", "context_management", "cache_control")
_SUMMARY_TOKENS = 8_192
_THOUGHT = ("thinking", "redacted_thinking")
_ENDED = {"tool_use": "end_turn"}
_CUT_OFF = ("max_tokens", "model_context_window_exceeded", "refusal")
_SDK_ONLY = ("parsed_output", "partial_json")
"""What the SDK's `stream` and `parse` add to blocks."""


class MessagesWire:
    """Anthropic's `/v1/messages`."""

    form: FormName = "anthropic"
    call_key = "id"
    shows_media = True

    def said(self, request: Mapping[str, Any]) -> list[Any] | None:
        return listed(request.get("messages"))

    def passing(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        return request

    def system(self, request: Mapping[str, Any]) -> Any:
        return request.get("system")

    def takes_tools(self, request: Mapping[str, Any]) -> bool:  # noqa: ARG002
        return True

    def named(self, request: Mapping[str, Any]) -> set[str]:
        return {str(tool.get("name")) for tool in request.get("tools") or ()}

    def request(
        self, request: Mapping[str, Any], messages: list[Any], schemas: Sequence[Any], is_last: bool
    ) -> Dict:
        sent = {**request, "messages": messages}
        own = list(request.get("tools") or ())
        if schemas and not (is_last and own):
            sent["tools"] = [*own, *schemas]
            if is_last:
                sent["tool_choice"] = {"type": "none"}
        return sent

    def apart(self, request: Mapping[str, Any]) -> Dict:
        return _free(less(request, *_OF_LIST))

    def again(self, sent: Mapping[str, Any]) -> Dict:
        choice, config = sent.get("tool_choice") or {}, sent.get("output_config") or {}
        check_free(
            tool_choice=choice.get("type") in ("any", "tool"),
            output_format=sent.get("output_format") or config.get("format"),
        )
        return _free(sent)

    def asking(self, kept: Mapping[str, Any], instructions: str, text: str, room: int | None) -> Dict:
        messages = [*kept.get("messages", ()), {"role": "user", "content": text}]
        budget = (kept.get("thinking") or {}).get("budget_tokens") or 0
        made = {**kept, "messages": messages, "max_tokens": (room or _SUMMARY_TOKENS) + budget}
        return {**made, "system": instructions} if instructions else made

    def written(self, reply: Any) -> Said:
        text = "".join(block.text for block in reply.content if block.type == "text")
        usage = reply.usage
        reason = "length" if reply.stop_reason in _CUT_OFF[:2] else reply.stop_reason
        cached = usage.cache_read_input_tokens or 0
        return Said(text, _tokens_read(usage), usage.output_tokens, reason, cached)

    def refusal(self, reply: Any) -> str | None:  # noqa: ARG002
        return None  # the SDK raises

    def heard(self, reply: Any) -> Heard:
        content = [_sendable(plain(block)) for block in reply.content]
        return _heard(content, reply.stop_reason, reply.usage, reply.container)

    def handed(self, replies: Sequence[Any], names: Collection[str], usage: Any) -> Any:
        *inside, reply = replies
        if usage is not None:
            reply = changed(reply, usage=summed(usage, reply.usage))
        containers = [one.container for one in replies if one.container is not None]
        if containers and reply.container is None:
            reply = changed(reply, container=containers[-1])
        did = [block for one in inside for block in done_by_server(one.content)]
        kept = [block for block in reply.content if not _is_ours(block, names)]
        has_ours = len(kept) < len(reply.content)
        if did or has_ours:
            reply = changed(reply, content=[*did, *kept])
        if not has_ours or any(block.type == "tool_use" for block in kept):
            return reply
        return changed(reply, stop_reason=_ENDED.get(reply.stop_reason, reply.stop_reason))

    def turn(self, request: Mapping[str, Any], heard: Heard, answers: Sequence[Answer]) -> list[Dict]:  # noqa: ARG002
        attached = [part for one in answers if one.attached is not None for part in one.attached["content"]]
        return [*heard.items, {"role": "user", "content": [*_results(answers), *attached]}]

    def beside(self, after: str, heard: Heard, answers: Sequence[Answer]) -> Beside:
        ours = {answer.call.id for answer in answers}
        calls = [block for block in heard.items[0]["content"] if block.get("id") in ours]
        his = [call.id for call in heard.calls if call.id not in ours]
        attached = [part for one in answers if one.attached is not None for part in one.attached["content"]]
        return Beside(after, his, calls, _results(answers), attached)

    def said_calls(self, heard: Heard) -> list[Dict]:
        return [block for item in heard.items for block in item["content"] if block["type"] == "tool_use"]

    def calls_in(self, piece: Sequence[Any]) -> list[str]:
        blocks = [block for item in piece for block in _blocks(item)]
        return [str(block.get("id")) for block in blocks if block.get("type") == "tool_use"]

    def put_back(self, said: list[Any], place: int, beside: Beside) -> list[Any]:
        own = _blocks(said[place])
        for block in _handed_of(beside.inside, with_texts=beside.was_streamed):
            if own and _text_of(own[0]) == _text_of(block):
                own = own[1:]
        message = {**plain(said[place]), "content": [*own, *beside.calls]}
        before = [*said[:place], *beside.inside]
        if place + 1 == len(said):
            return [*before, message]
        answer = plain(said[place + 1])
        content = answer.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())
        results = [one for one in blocks if one.get("type") == "tool_result"]
        rest = [one for one in blocks if one.get("type") != "tool_result"]
        both = {**answer, "content": [*results, *beside.results, *beside.attached, *rest]}
        return [*before, message, both, *said[place + 2 :]]

    def reader(self, names: Collection[str], request: Mapping[str, Any]) -> Reader:  # noqa: ARG002
        return MessagesReader(names)


def _free(request: Mapping[str, Any]) -> Dict:
    """Return a request without what it says of its own answer."""
    kept = less(request, *_OF_ANSWER)
    config = less(kept.pop("output_config", None) or {}, "format")
    return {**kept, "output_config": config} if config else kept


def _blocks(message: Any) -> list[Dict]:
    content = plain(message).get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [plain(block) for block in content or ()]


def _handed_of(inside: Sequence[Dict], *, with_texts: bool) -> list[Dict]:
    """Return the parts of the messages answered inside that the caller may have."""
    said = [one["content"] for one in inside if one["role"] == "assistant"]
    if not with_texts:
        return [block for content in said for block in done_by_server(content)]
    return [block for content in said for block in content if block["type"] != "tool_use"]


def _text_of(block: Mapping[str, Any]) -> list[Any]:
    """Return what a block says, whatever else stands in it."""
    return [block.get(key) for key in ("type", "text", "thinking", "signature", "data", "id", "tool_use_id")]


def _results(answers: Sequence[Answer]) -> list[Dict]:
    return [{"type": "tool_result", "tool_use_id": one.call.id, "content": one.text} for one in answers]


def _sendable(block: Dict) -> Dict:
    return {key: value for key, value in block.items() if key not in _SDK_ONLY}


def _is_ours(block: Any, names: Collection[str]) -> bool:
    return block.type == "tool_use" and block.name in names


def _heard(content: list[Dict], reason: str | None, usage: Any, container: Any) -> Heard:
    calls = [
        Call(block["id"], block["name"], block["input"]) for block in content if block["type"] == "tool_use"
    ]
    said: Dict = {"role": "assistant", "content": content}
    is_whole = reason is not None and reason not in _CUT_OFF
    going_on: Dict = {} if container is None else {"container": container.id}
    return Heard([said], calls, is_whole, _tokens_read(usage), usage, going_on=going_on)


def _tokens_read(usage: Any) -> int:
    read = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    return sum(getattr(usage, name, None) or 0 for name in read)


class MessagesReader:
    """Takes streamed messages apart.

    What is thought goes on with what it leads to: before a call of ours, it is kept back with it.
    """

    def __init__(self, names: Collection[str]) -> None:
        self.has_begun = False
        self._names = names
        self._has_started = False
        self._next_index = 0
        self._has_calls = self._lost_calls = False
        self._spent: Any = None
        self._container: Any = None
        self._begin()

    def _begin(self) -> None:
        self._blocks: dict[int, Dict] = {}
        self._inputs: dict[int, str] = {}
        self._places: dict[int, int] = {}
        """Where blocks stand for the caller."""
        self._held: list[Any] = []
        """Thoughts that wait for what they lead to."""
        self._is_after_ours = False
        self._usage: Any = None
        self._reason: str | None = None
        self._tail: list[Any] = []

    def feed(self, event: Any) -> list[Any]:
        self.has_begun = True
        match event.type:
            case "message_start":
                self._usage = event.message.usage
                is_first, self._has_started = not self._has_started, True
                return [event] if is_first else []
            case "content_block_start":
                return self._start(event)
            case "content_block_delta" | "content_block_stop":
                if event.type == "content_block_delta":
                    self._note(event.index, event.delta)
                if event.index in self._places:
                    return [changed(event, index=self._places[event.index])]
                if self._blocks[event.index]["type"] in _THOUGHT:
                    self._held.append(event)
                return []
            case "message_delta":
                self._reason = event.delta.stop_reason
                self._container = event.delta.container or self._container
                self._usage = self._with_delta(event.usage)
                self._tail.append(event)
                return []
            case "message_stop":
                self._tail.append(event)
                return []
        return [event]

    def _start(self, event: Any) -> list[Any]:
        self._blocks[event.index] = _sendable(plain(event.content_block))
        if self._names and event.content_block.type in _THOUGHT:
            self._held.append(event)
            return []
        if _is_ours(event.content_block, self._names):
            self._lost_calls = self._is_after_ours = True
            return []
        self._has_calls |= event.content_block.type == "tool_use"
        return self._release(event)

    def _release(self, *events: Any) -> list[Any]:
        out = []
        for one in [*self._held, *events]:
            if one.index not in self._places:
                self._places[one.index] = self._next_index
                self._next_index += 1
            out.append(changed(one, index=self._places[one.index]))
        self._held, self._is_after_ours = [], False
        return out

    def _note(self, index: int, delta: Any) -> None:
        """Let a block grow."""
        block = self._blocks[index]
        match delta.type:
            case "text_delta":
                block["text"] = block.get("text", "") + delta.text
            case "thinking_delta":
                block["thinking"] = block.get("thinking", "") + delta.thinking
            case "signature_delta":
                block["signature"] = delta.signature
            case "citations_delta":
                block["citations"] = [*(block.get("citations") or []), plain(delta.citation)]
            case "input_json_delta":
                self._inputs[index] = self._inputs.get(index, "") + delta.partial_json

    def _with_delta(self, usage: Any) -> Any:
        """Return the stream's usage: what its last event counts goes before what the first one did."""
        counted = {name: value for name, value in usage if value is not None}
        return usage.model_copy(update={**dict(self._usage or ()), **counted})

    def heard(self) -> Heard:
        for index, text in self._inputs.items():
            try:
                self._blocks[index]["input"] = json.loads(text) if text else {}
            except ValueError:
                self._blocks[index]["input"] = {}  # it was cut off
        content = [block for _, block in sorted(self._blocks.items())]
        return _heard(content, self._reason, self._usage, self._container)

    def go_on(self, names: Collection[str]) -> None:
        self.has_begun, self._names = False, names
        self._spent = summed(self._spent, self._usage)
        self._begin()

    def end(self) -> list[Any]:
        ended = [] if self._is_after_ours else self._release()
        for event in self._tail:
            if event.type == "message_delta":
                update: Dict = {}
                if self._spent is not None:
                    whole = summed(self._spent, self._usage)
                    names = type(event.usage).model_fields
                    counted = {name: value for name, value in whole if name in names}
                    update["usage"] = event.usage.model_copy(update=counted)
                reason = event.delta.stop_reason
                if self._lost_calls and not self._has_calls:
                    update["delta"] = changed(event.delta, stop_reason=_ENDED.get(reason, reason))
                if self._container is not None and event.delta.container is None:
                    delta = update.get("delta", event.delta)
                    update["delta"] = changed(delta, container=self._container)
                event = changed(event, **update)
            ended.append(event)
        return ended
