"""How providers put a request, an answer and an error on the wire: one class for each form there is.

A wire renders the same `Said` and the same `Failure` as its provider does, streamed or whole.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from context_compressor.laws.chat_rules import COMPATIBLE_PARTS, OPENAI_PARTS, problems
from tests.support.provider_tokens import count_request

Dict = dict[str, Any]

TEXT_PIECES = 4
"""Into how many pieces a stream cuts a text and a call's arguments."""


@dataclass(frozen=True)
class Received:
    """A request as it came in."""

    path: str
    headers: Mapping[str, str]
    json: Dict
    refused: list[str] = field(default_factory=list)
    """Why the server refused it; empty if it did not."""
    number: int = 1
    """The first request is 1."""
    earlier: list[Dict] = field(default_factory=list)
    """What the server keeps of the response that the request continues."""

    @property
    def messages(self) -> list[Dict]:
        """The messages, wherever the wire has them."""
        return [*self.earlier, *wire_of(self.path).messages(self.json)]

    @property
    def tools(self) -> list[Dict]:
        """The tools that were offered."""
        tools = self.json.get("tools", _mapping(self.json.get("parameters")).get("tools"))
        return tools if isinstance(tools, list) else []

    @property
    def streams(self) -> bool:
        """Whether the answer is to be streamed."""
        return wire_of(self.path).streams(self)


@dataclass(frozen=True)
class Said:
    """What the model answers: a message in OpenAI's form, beside it as `hosted` what the server did."""

    message: Dict
    finish_reason: str
    usage: tuple[int, int] | None

    def deltas(self) -> Iterator[Dict]:
        """Yield the message in pieces, as OpenAI streams it."""
        message = dict(self.message)
        content, calls = message.pop("content", None), message.pop("tool_calls", None)
        reasoning = message.pop("reasoning_content", None)
        yield {**message, "content": ""}
        for piece in pieces_of(reasoning):
            yield {"reasoning_content": piece}
        for piece in pieces_of(content):
            yield {"content": piece}
        for index, call in enumerate(calls or []):
            function = call["function"]
            yield {"tool_calls": [{"index": index, **call, "function": {**function, "arguments": ""}}]}
            for piece in pieces_of(function["arguments"]):
                yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


@dataclass(frozen=True)
class Failure:
    """An error that the provider answers with."""

    status: int
    message: str
    code: str | None = None
    param: str | None = None


@dataclass
class Known:
    """What a server remembers of its answers, as far as its rules need it."""

    stored: dict[str, list[Dict]] = field(default_factory=dict)
    """By the id of a response: all that was said until then, for `previous_response_id`."""
    needs: dict[str, str] = field(default_factory=dict)
    """By the id of an item: the reasoning item that it came with."""
    thinking: dict[str, str] = field(default_factory=dict)
    """By the id of a call: the signatures of what was thought before it."""


class Wire(Protocol):
    """A provider's form of requests, answers and errors."""

    def messages(self, body: Dict) -> list[Dict]:
        """Return the messages of a request."""

    def earlier(self, body: Dict, known: Known) -> list[Dict]:
        """Return what the server keeps of the response that a request continues."""

    def streams(self, received: Received) -> bool:
        """Tell whether the answer is to be streamed."""

    def problems(self, received: Received, known: Known, parts: Collection[str] | None) -> list[str]:
        """Return what the provider refuses in a request; `parts` are the kinds of parts to take instead."""

    def count(self, received: Received) -> int:
        """Return what a request costs in tokens."""

    def remember(self, said: Said, received: Received, known: Known) -> None:
        """Note an answer that goes out."""

    def body(self, said: Said, received: Received) -> Dict:
        """Return the whole answer."""

    def events(self, said: Said, received: Received) -> list[str]:
        """Return the answer as server-sent events; the last one or two only say that it is over."""

    def torn_event(self) -> str:
        """Return an event whose JSON breaks off."""

    def error(self, failure: Failure, received: Received) -> Dict:
        """Return the body of an error."""

    def error_event(self, failure: Failure, received: Received) -> str:
        """Return an error in the middle of a stream."""

    def invalid(self, message: str) -> Failure:
        """Return the failure for a request that breaks a rule."""

    def overflow(self, limit: int, tokens: int | None) -> Failure:
        """Return the failure for a request that does not fit."""

    def rate_limited(self) -> Failure:
        """Return the failure for too many requests."""

    def inspection_failed(self) -> Failure:
        """Return the failure for content that the provider will not handle."""


class ChatRules:
    """What is the same for all chat dicts: the server remembers nothing."""

    def parts(self) -> frozenset[str]:
        """Return the kinds of content parts that the endpoint takes."""
        raise NotImplementedError

    def earlier(self, body: Dict, known: Known) -> list[Dict]:
        return []

    def problems(self, received: Received, known: Known, parts: Collection[str] | None) -> list[str]:
        return problems(received.messages, parts=self.parts() if parts is None else parts)

    def count(self, received: Received) -> int:
        return count_request(received.messages, received.tools)

    def remember(self, said: Said, received: Received, known: Known) -> None:
        pass


class OpenAIWire(ChatRules):
    """OpenAI's chat completions."""

    def messages(self, body: Dict) -> list[Dict]:
        found = body.get("messages")
        return found if isinstance(found, list) else []

    def streams(self, received: Received) -> bool:
        return bool(received.json.get("stream"))

    def parts(self) -> frozenset[str]:
        return OPENAI_PARTS

    def body(self, said: Said, received: Received) -> Dict:
        choice = {"index": 0, "finish_reason": said.finish_reason, "message": said.message}
        body = {**self._head("chat.completion", received), "choices": [choice]}
        if said.usage is not None:
            body["usage"] = self._usage(said.usage)
        return body

    def events(self, said: Said, received: Received) -> list[str]:
        head = self._head("chat.completion.chunk", received)
        counted = bool(_mapping(received.json.get("stream_options")).get("include_usage"))
        if counted:
            head["usage"] = None
        chunks = [
            {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
            for delta in said.deltas()
        ]
        chunks.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": said.finish_reason}]})
        if counted and said.usage is not None:
            chunks.append({**head, "choices": [], "usage": self._usage(said.usage)})
        return [*(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks), "data: [DONE]\n\n"]

    def torn_event(self) -> str:
        return 'data: {"id": "chatcmpl-1", "choi\n\n'

    def error(self, failure: Failure, received: Received) -> Dict:
        error = {
            "message": failure.message,
            "type": "invalid_request_error",
            "param": failure.param,
            "code": failure.code,
        }
        return {"error": error}

    def error_event(self, failure: Failure, received: Received) -> str:
        return f"data: {json.dumps(self.error(failure, received))}\n\n"

    def invalid(self, message: str) -> Failure:
        return Failure(400, f"Invalid parameter: {message}", "invalid_value", "messages")

    def overflow(self, limit: int, tokens: int | None) -> Failure:
        resulted = "" if tokens is None else f"However, your messages resulted in {tokens} tokens. "
        message = (
            f"This model's maximum context length is {limit} tokens. {resulted}"
            "Please reduce the length of the messages."
        )
        return Failure(400, message, "context_length_exceeded", "messages")

    def rate_limited(self) -> Failure:
        return Failure(429, "Rate limit reached for requests.", "rate_limit_exceeded")

    def inspection_failed(self) -> Failure:
        return Failure(400, "The response was filtered by the content policy.", "content_filter", "prompt")

    def _head(self, kind: str, received: Received) -> Dict:
        model = received.json.get("model") or "scripted"
        return {"id": f"chatcmpl-{received.number}", "object": kind, "created": 0, "model": model}

    def _usage(self, usage: tuple[int, int]) -> Dict:
        read, written = usage
        return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


class CompatibleWire(OpenAIWire):
    """DashScope's OpenAI-compatible mode: OpenAI's form, DashScope's words."""

    def parts(self) -> frozenset[str]:
        return COMPATIBLE_PARTS

    def error(self, failure: Failure, received: Received) -> Dict:
        number = f"{received.number}"
        return {**super().error(failure, received), "id": f"chatcmpl-{number}", "request_id": number}

    def invalid(self, message: str) -> Failure:
        text = f"<400> InternalError.Algo.InvalidParameter: {message}"
        return Failure(400, text, "invalid_parameter_error")

    def overflow(self, limit: int, tokens: int | None) -> Failure:
        return self.invalid(f"Range of input length should be [1, {limit}]")

    def rate_limited(self) -> Failure:
        return Failure(429, "Requests rate limit exceeded, please try again later.", "limit_requests")

    def inspection_failed(self) -> Failure:
        message = "Input data may contain inappropriate content."
        return Failure(400, message, "data_inspection_failed")


def wire_of(path: str) -> Wire:
    """Return the wire that is spoken at a path."""
    from tests.support.anthropic_wire import ANTHROPIC
    from tests.support.dashscope_wire import MULTIMODAL, TEXT
    from tests.support.responses_wire import RESPONSES

    if path == "/v1/responses":
        return RESPONSES
    if path == "/v1/messages":
        return ANTHROPIC
    if path.startswith("/compatible-mode/"):
        return COMPATIBLE
    if path.startswith("/api/"):
        return MULTIMODAL if "multimodal-generation" in path else TEXT
    return OPENAI


OPENAI = OpenAIWire()
COMPATIBLE = CompatibleWire()


def pieces_of(text: object) -> Iterator[str]:
    """Yield a text in the pieces in which it is streamed."""
    if isinstance(text, str) and text:
        size = -(-len(text) // TEXT_PIECES)
        for start in range(0, len(text), size):
            yield text[start : start + size]


def _mapping(value: object) -> Dict:
    return value if isinstance(value, dict) else {}
