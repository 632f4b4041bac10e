"""The wire of Anthropic's Messages API: blocks in, blocks and their events out."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from typing import Any

from context_compressor.laws.anthropic_rules import problems, thinking_of
from tests.support.provider_tokens import count_blocks
from tests.support.wires import Failure, Known, Received, Said, pieces_of

Dict = dict[str, Any]

_STOP_REASONS = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens"}
_ERRORS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


class AnthropicWire:
    """`/v1/messages`."""

    def messages(self, body: Dict) -> list[Dict]:
        found = body.get("messages")
        return found if isinstance(found, list) else []

    def earlier(self, body: Dict, known: Known) -> list[Dict]:
        return []

    def streams(self, received: Received) -> bool:
        return bool(received.json.get("stream"))

    def problems(self, received: Received, known: Known, parts: Collection[str] | None) -> list[str]:
        body = received.json
        if not isinstance(body.get("max_tokens"), int):
            return ["max_tokens: Field required"]
        asked = body.get("thinking")
        thinks = isinstance(asked, dict) and asked.get("type") != "disabled"
        return problems(received.messages, body.get("system"), known.thinking if thinks else None)

    def count(self, received: Received) -> int:
        return count_blocks(received.messages, received.json.get("system"), received.tools)

    def remember(self, said: Said, received: Received, known: Known) -> None:
        known.thinking |= thinking_of([{"role": "assistant", "content": self._content(said, received)}])

    def body(self, said: Said, received: Received) -> Dict:
        return self._head(said, received) | {
            "content": self._content(said, received),
            "stop_reason": _STOP_REASONS.get(said.finish_reason, said.finish_reason),
        }

    def events(self, said: Said, received: Received) -> list[str]:
        whole = self.body(said, received)
        read, written = said.usage or (0, 0)
        head = {**self._head(said, received), "usage": {"input_tokens": read, "output_tokens": 1}}
        events: list[Dict] = [{"type": "message_start", "message": head}, {"type": "ping"}]
        for index, block in enumerate(whole["content"]):
            events += [{**event, "index": index} for event in _block_events(block)]
        delta = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
        events.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": written}})
        events.append({"type": "message_stop"})
        return [_event(event) for event in events]

    def torn_event(self) -> str:
        return 'event: content_block_delta\ndata: {"type": "content_bl\n\n'

    def error(self, failure: Failure, received: Received) -> Dict:
        kind = "invalid_request_error" if failure.status < 500 else "api_error"
        error = {"type": _ERRORS.get(failure.status, kind), "message": failure.message}
        return {"type": "error", "error": error, "request_id": f"req_{received.number:024x}"}

    def error_event(self, failure: Failure, received: Received) -> str:
        return _event(self.error(failure, received))

    def invalid(self, message: str) -> Failure:
        return Failure(400, message)

    def overflow(self, limit: int, tokens: int | None) -> Failure:
        return Failure(400, f"prompt is too long: {tokens or limit + 1} tokens > {limit} maximum")

    def rate_limited(self) -> Failure:
        return Failure(429, "This request would exceed your organization's rate limit.")

    def inspection_failed(self) -> Failure:
        return Failure(400, "Output blocked by content filtering policy")

    def _head(self, said: Said, received: Received) -> Dict:
        read, written = said.usage or (0, 0)
        return {
            "id": f"msg_{received.number:024x}",
            "type": "message",
            "role": "assistant",
            "model": received.json.get("model") or "scripted",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": read, "output_tokens": written},
        }

    def _content(self, said: Said, received: Received) -> list[Dict]:
        message = said.message
        content: list[Dict] = []
        if message.get("reasoning_content"):
            thought = {"type": "thinking", "thinking": message["reasoning_content"]}
            content.append({**thought, "signature": f"sig{received.number:029x}"})
        content += message.get("hosted") or []
        if message.get("content"):
            content.append({"type": "text", "text": message["content"]})
        for call in message.get("tool_calls") or []:
            function = call["function"]
            given = _input(function["arguments"])
            content.append({"type": "tool_use", "id": call["id"], "name": function["name"], "input": given})
        return content


def _input(arguments: str) -> Dict:
    """Return a call's input; there is no such thing as broken arguments here."""
    try:
        given = json.loads(arguments)
    except ValueError:
        given = None
    return given if isinstance(given, dict) else {}


def _block_events(block: Dict) -> Iterator[Dict]:
    """Yield a block as it grows."""
    empty = {"text": {"text": ""}, "thinking": {"thinking": "", "signature": ""}, "tool_use": {"input": {}}}
    yield {"type": "content_block_start", "content_block": {**block, **empty.get(block["type"], {})}}
    deltas: list[Dict] = []
    match block["type"]:
        case "text":
            deltas += [{"type": "text_delta", "text": piece} for piece in pieces_of(block["text"])]
        case "thinking":
            deltas += [
                {"type": "thinking_delta", "thinking": piece} for piece in pieces_of(block["thinking"])
            ]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        case "tool_use":
            given = json.dumps(block["input"], ensure_ascii=False)
            deltas += [{"type": "input_json_delta", "partial_json": piece} for piece in pieces_of(given)]
    yield from ({"type": "content_block_delta", "delta": delta} for delta in deltas)
    yield {"type": "content_block_stop"}


def _event(event: Dict) -> str:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"


ANTHROPIC = AnthropicWire()
