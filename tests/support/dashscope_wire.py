"""DashScope's own wire: text and multimodal generation."""

from __future__ import annotations

import json
from typing import Any

from context_compressor.laws.chat_rules import DASHSCOPE_PARTS, DASHSCOPE_TEXT_PARTS
from tests.support.wires import ChatRules, Failure, Received, Said

Dict = dict[str, Any]

UNFINISHED = "null"
"""DashScope's finish reason while it streams: this text, and not JSON's null."""

_CODES = {
    400: "InvalidParameter",
    401: "InvalidApiKey",
    403: "AccessDenied",
    404: "ModelNotFound",
    408: "RequestTimeOut",
    429: "Throttling.RateQuota",
}


class DashScopeWire(ChatRules):
    """One of the two endpoints; multimodal content is always a list of parts."""

    def __init__(self, *, multimodal: bool) -> None:
        self._multimodal = multimodal

    def messages(self, body: Dict) -> list[Dict]:
        given = body.get("input")
        if not isinstance(given, dict):
            return []
        messages = given.get("messages")
        if isinstance(messages, list):
            return messages
        return [{"role": "user", "content": given["prompt"]}] if given.get("prompt") else []

    def streams(self, received: Received) -> bool:
        return received.headers.get("X-DashScope-SSE", "").lower() == "enable"

    def parts(self) -> frozenset[str]:
        return DASHSCOPE_PARTS if self._multimodal else DASHSCOPE_TEXT_PARTS

    def body(self, said: Said, received: Received) -> Dict:
        return self._whole(said.message, said.finish_reason, said, received)

    def events(self, said: Said, received: Received) -> list[str]:
        incremental = bool(_parameters(received).get("incremental_output"))
        bodies: list[Dict] = []
        whole: Dict = {}
        for delta in said.deltas():
            whole = _merged(whole, delta)
            shown = {"role": "assistant", "content": "", **_with_empty_ids(delta)}
            bodies.append(self._whole(shown if incremental else whole, UNFINISHED, said, received))
        last = {"role": "assistant", "content": ""} if incremental else whole
        bodies.append(self._whole(last, said.finish_reason, said, received))
        return [
            f"id:{number}\nevent:result\n:HTTP_STATUS/200\ndata:{json.dumps(body)}\n\n"
            for number, body in enumerate(bodies, 1)
        ]

    def torn_event(self) -> str:
        return 'id:1\nevent:result\n:HTTP_STATUS/200\ndata:{"output":{"choi\n\n'

    def error(self, failure: Failure, received: Received) -> Dict:
        code = failure.code or _CODES.get(failure.status, "InternalError")
        return {"code": code, "message": failure.message, "request_id": _request_id(received)}

    def error_event(self, failure: Failure, received: Received) -> str:
        body = json.dumps(self.error(failure, received))
        # The SDK reads `status:`, the API's pages show the comment before it; both are on the wire.
        lines = (
            "id:1",
            "event:error",
            f":HTTP_STATUS/{failure.status}",
            f"status:{failure.status}",
            f"data:{body}",
        )
        return "\n".join(lines) + "\n\n"

    def invalid(self, message: str) -> Failure:
        return Failure(400, f"<400> InternalError.Algo.InvalidParameter: {message}", "InvalidParameter")

    def overflow(self, limit: int, tokens: int | None) -> Failure:
        return Failure(400, f"Range of input length should be [1, {limit}]", "InvalidParameter")

    def rate_limited(self) -> Failure:
        message = "Requests rate limit exceeded, please try again later."
        return Failure(429, message, "Throttling.RateQuota")

    def inspection_failed(self) -> Failure:
        return Failure(400, "Input data may contain inappropriate content.", "DataInspectionFailed")

    def _whole(self, message: Dict, finish_reason: str, said: Said, received: Received) -> Dict:
        output: Dict
        if self._as_text(said, received):
            output = {"text": message.get("content") or "", "finish_reason": finish_reason}
        else:
            output = {"choices": [{"finish_reason": finish_reason, "message": self._shaped(message)}]}
        body: Dict = {"output": output, "request_id": _request_id(received)}
        if said.usage is not None:
            read, written = said.usage
            body["usage"] = {"input_tokens": read, "output_tokens": written, "total_tokens": read + written}
        return body

    def _as_text(self, said: Said, received: Received) -> bool:
        """Tell whether the older form is asked for, which knows no calls."""
        wanted = _parameters(received).get("result_format", "message" if self._multimodal else "text")
        return wanted == "text" and not said.message.get("tool_calls")

    def _shaped(self, message: Dict) -> Dict:
        content = message.get("content")
        if self._multimodal and not isinstance(content, list):
            content = [{"text": content}] if content else []
        elif content is None:
            content = ""
        return {**message, "content": content}


def _with_empty_ids(delta: Dict) -> Dict:
    """Return the delta with what DashScope repeats in every piece of a call."""
    if "tool_calls" not in delta:
        return delta
    return {"tool_calls": [{"id": "", "type": "function", **call} for call in delta["tool_calls"]]}


def _merged(whole: Dict, delta: Dict) -> Dict:
    """Return the message so far with a delta added; nothing is changed in place."""
    result = {**whole}
    for key, value in delta.items():
        if key in ("content", "reasoning_content"):
            result[key] = result.get(key, "") + value
        elif key == "tool_calls":
            result[key] = _merged_calls(result.get(key, []), value)
        else:
            result[key] = value
    return result


def _merged_calls(calls: list[Dict], pieces: list[Dict]) -> list[Dict]:
    result = list(calls)
    for piece in pieces:
        if piece["index"] == len(result):
            result.append(piece)
            continue
        call = result[piece["index"]]
        arguments = call["function"]["arguments"] + piece["function"]["arguments"]
        result[piece["index"]] = {**call, "function": {**call["function"], "arguments": arguments}}
    return result


def _parameters(received: Received) -> Dict:
    parameters = received.json.get("parameters")
    return parameters if isinstance(parameters, dict) else {}


def _request_id(received: Received) -> str:
    return f"request-{received.number}"


TEXT = DashScopeWire(multimodal=False)
MULTIMODAL = DashScopeWire(multimodal=True)
