"""Anthropic's Messages: requests, replies and streams."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from context_compressor.integrations.asked import Said
from context_compressor.integrations.clients.wire import (
    Answer,
    Beside,
    BlockReader,
    Call,
    Dict,
    Heard,
    Reader,
    Wire,
    changed,
    check_free,
    done_by_server,
    is_thought,
    less,
    not_ours,
    plain,
    summed,
)
from context_compressor.messages.forms import FormName
from context_compressor.messages.plain import get

_OF_ANSWER = (
    *("max_tokens", "stream", "stop_sequences", "metadata", "tool_choice", "output_format"),
    "diagnostics",
)
"""What a request says of its own answer alone."""
_OF_LIST = ("messages", "system", "tools", "mcp_servers", "container", "context_management", "cache_control")
_SUMMARY_TOKENS = 8_192
_CUT_OFF = ("max_tokens", "model_context_window_exceeded", "refusal")
_SDK_ONLY = ("parsed_output", "partial_json")
"""What the SDK's `stream` and `parse` add to blocks."""


class MessagesWire(Wire):
    """Anthropic's `/v1/messages`."""

    form: FormName = "anthropic"
    system_key = "system"
    no_calls = {"type": "none"}  # noqa: RUF012

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
        blocks, usage = get(reply, "content"), get(reply, "usage")
        text = "".join(get(block, "text") for block in blocks if get(block, "type") == "text")
        reason = get(reply, "stop_reason")
        reason = "length" if reason in _CUT_OFF[:2] else reason
        cached = get(usage, "cache_read_input_tokens") or 0
        return Said(text, _tokens_read(usage), get(usage, "output_tokens"), reason, cached)

    def refusal(self, reply: Any) -> str | None:
        error = get(reply, "error") if get(reply, "type") == "error" else None  # the SDK raises
        return None if error is None else f"{get(error, 'type')}: {get(error, 'message')}"

    def heard(self, reply: Any) -> Heard:
        content = [_sendable(plain(block)) for block in get(reply, "content")]
        return _heard(content, get(reply, "stop_reason"), get(reply, "usage"), get(reply, "container"))

    def handed(self, replies: Sequence[Any], names: Collection[str], usage: Any) -> Any:
        *inside, reply = replies
        if usage is not None:
            reply = changed(reply, usage=summed(usage, get(reply, "usage")))
        containers = [found for one in replies if (found := get(one, "container")) is not None]
        if containers and get(reply, "container") is None:
            reply = changed(reply, container=containers[-1])
        did = [block for one in inside for block in done_by_server(get(one, "content"))]
        content = get(reply, "content")
        kept = [content[place] for place in not_ours(content, names, leads_to_next=False)]
        if did or len(kept) < len(content):
            reply = changed(reply, content=[*did, *kept])
        if not _calls(content) or _calls(kept):
            return reply
        return changed(reply, stop_reason=_ended(get(reply, "stop_reason")))

    def reader(self, names: Collection[str], request: Mapping[str, Any]) -> Reader:  # noqa: ARG002
        return MessagesReader(names)

    def results(self, answers: Sequence[Answer]) -> list[Dict]:
        return [{"type": "tool_result", "tool_use_id": one.call.id, "content": one.text} for one in answers]

    def attached(self, answers: Sequence[Answer]) -> list[Dict]:
        return [part for message in super().attached(answers) for part in message["content"]]

    def turn(self, request: Mapping[str, Any], heard: Heard, answers: Sequence[Answer]) -> list[Dict]:  # noqa: ARG002
        return [*heard.items, {"role": "user", "content": [*self.results(answers), *self.attached(answers)]}]

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


def _sendable(block: Dict) -> Dict:
    return {key: value for key, value in block.items() if key not in _SDK_ONLY}


def _calls(content: Sequence[Any]) -> list[Any]:
    return [block for block in content if get(block, "type") == "tool_use"]


def _ended(reason: Any) -> Any:
    """Return why a reply ended, none of whose calls is left."""
    return "end_turn" if reason == "tool_use" else reason


def _heard(content: list[Dict], reason: str | None, usage: Any, container: Any) -> Heard:
    calls = [Call(block["id"], block["name"], block["input"], block) for block in _calls(content)]
    said: Dict = {"role": "assistant", "content": content}
    is_whole = reason is not None and reason not in _CUT_OFF
    going_on: Dict = {} if container is None else {"container": get(container, "id")}
    return Heard([said], calls, is_whole, _tokens_read(usage), usage, going_on=going_on)


def _tokens_read(usage: Any) -> int:
    read = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    return sum(get(usage, name) or 0 for name in read)


class MessagesReader(BlockReader):
    """Takes streamed messages apart."""

    index_key = "index"

    def __init__(self, names: Collection[str]) -> None:
        self._has_started = False
        self._is_any_called = False
        self._container: Any = None
        super().__init__(names)

    def begin(self) -> None:
        super().begin()
        self._blocks: dict[int, Dict] = {}
        self._inputs: dict[int, str] = {}
        self._usage: Any = None
        self._reason: str | None = None
        self._tail: list[Any] = []

    def feed(self, event: Any) -> list[Any]:
        self.has_begun = True
        match get(event, "type"):
            case "message_start":
                self._usage = get(get(event, "message"), "usage")
                is_first, self._has_started = not self._has_started, True
                return [event] if is_first else []
            case "content_block_start":
                block = _sendable(plain(get(event, "content_block")))
                self._blocks[get(event, "index")] = block
                is_call = block["type"] == "tool_use"
                return self.take(event, "thought" if is_thought(block) else "call" if is_call else "other")
            case "content_block_delta":
                self._note(get(event, "index"), get(event, "delta"))
                return self.take(event)
            case "content_block_stop":
                return self.take(event)
            case "message_delta":
                delta = get(event, "delta")
                self._reason = get(delta, "stop_reason")
                self._container = get(delta, "container") or self._container
                counted = {
                    name: value for name, value in dict(get(event, "usage")).items() if value is not None
                }
                # What the last event counts goes before what the first one did.
                self._usage = changed(get(event, "usage"), **{**dict(self._usage or ()), **counted})
                self._tail.append(event)
                return []
            case "message_stop":
                self._tail.append(event)
                return []
        return [event]

    def _note(self, index: int, delta: Any) -> None:
        """Let a block grow."""
        block = self._blocks[index]
        match get(delta, "type"):
            case "text_delta":
                block["text"] = block.get("text", "") + get(delta, "text")
            case "thinking_delta":
                block["thinking"] = block.get("thinking", "") + get(delta, "thinking")
            case "signature_delta":
                block["signature"] = get(delta, "signature")
            case "citations_delta":
                block["citations"] = [*(block.get("citations") or []), plain(get(delta, "citation"))]
            case "input_json_delta":
                self._inputs[index] = self._inputs.get(index, "") + get(delta, "partial_json")

    def heard(self) -> Heard:
        for index, text in self._inputs.items():
            try:
                self._blocks[index]["input"] = json.loads(text) if text else {}
            except ValueError:
                self._blocks[index]["input"] = {}  # it was cut off
        content = [block for _, block in sorted(self._blocks.items())]
        return _heard(content, self._reason, self._usage, self._container)

    def held(self) -> list[Any]:
        indexes, blocks = list(self._blocks), list(self._blocks.values())
        kept = not_ours(blocks, self.names, leads_to_next=False)
        self._is_any_called = bool(_calls([blocks[place] for place in kept]))
        return self.release(set(indexes).difference(indexes[place] for place in kept))

    def end(self) -> list[Any]:
        ended = self.held()
        for event in self._tail:
            if get(event, "type") == "message_delta":
                event = self._ending(event)
            ended.append(event)
        return ended

    def _ending(self, event: Any) -> Any:
        delta, usage, update = get(event, "delta"), get(event, "usage"), dict[str, Any]()
        if self.spent is not None:
            whole = dict(summed(self.spent, self._usage))
            known = whole if isinstance(usage, Mapping) else type(usage).model_fields
            update["usage"] = changed(usage, **{name: whole[name] for name in whole if name in known})
        reason = get(delta, "stop_reason")
        if _calls(list(self._blocks.values())) and not self._is_any_called:
            delta = changed(delta, stop_reason=_ended(reason))
        if self._container is not None and get(delta, "container") is None:
            delta = changed(delta, container=self._container)
        return changed(event, delta=delta, **update)
