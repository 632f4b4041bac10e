"""The wire of OpenAI's Responses API: items in, items and typed events out."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from typing import Any

from context_compressor.laws.responses_rules import needs_of, problems
from tests.support.provider_tokens import count_blocks
from tests.support.wires import Failure, Known, Received, Said, pieces_of

Dict = dict[str, Any]


class ResponsesWire:
    """`/v1/responses`, with what it stored under the ids of its responses."""

    def messages(self, body: Dict) -> list[Dict]:
        given = body.get("input")
        if isinstance(given, str):
            return [{"type": "message", "role": "user", "content": given}]
        return given if isinstance(given, list) else []

    def earlier(self, body: Dict, known: Known) -> list[Dict]:
        return known.stored.get(str(body.get("previous_response_id")), [])

    def streams(self, received: Received) -> bool:
        return bool(received.json.get("stream"))

    def problems(self, received: Received, known: Known, parts: Collection[str] | None) -> list[str]:
        previous = received.json.get("previous_response_id")
        if previous is not None and previous not in known.stored:
            return [f"Previous response with id '{previous}' not found."]
        return problems(received.messages, known.needs)

    def count(self, received: Received) -> int:
        return count_blocks(received.messages, received.json.get("instructions"), received.tools)

    def remember(self, said: Said, received: Received, known: Known) -> None:
        output = self._output(said, received)
        known.needs |= needs_of(output)
        if received.json.get("store") is not False:
            known.stored[_response_id(received)] = [*received.messages, *output]

    def body(self, said: Said, received: Received) -> Dict:
        cut_off = said.finish_reason == "length"
        return self._head(received) | {
            "status": "incomplete" if cut_off else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if cut_off else None,
            "output": self._output(said, received),
            "usage": None if said.usage is None else _usage(*said.usage),
        }

    def events(self, said: Said, received: Received) -> list[str]:
        whole = self.body(said, received)
        head = {**self._head(received), "status": "in_progress", "output": [], "usage": None}
        events: list[Dict] = [
            {"type": "response.created", "response": head},
            {"type": "response.in_progress", "response": head},
        ]
        for index, item in enumerate(whole["output"]):
            events += [{**event, "output_index": index} for event in _item_events(item)]
        events.append({"type": f"response.{whole['status']}", "response": whole})
        return [_event({**event, "sequence_number": number}) for number, event in enumerate(events)]

    def torn_event(self) -> str:
        return 'event: response.output_text.delta\ndata: {"type": "response.outp\n\n'

    def error(self, failure: Failure, received: Received) -> Dict:
        kind = "invalid_request_error" if failure.status < 500 else "server_error"
        error = {
            "message": failure.message,
            "type": kind,
            "param": failure.param,
            "code": failure.code,
        }
        return {"error": error}

    def error_event(self, failure: Failure, received: Received) -> str:
        return _event({"type": "error", "sequence_number": 99, **self.error(failure, received)})

    def invalid(self, message: str) -> Failure:
        if message.startswith("Previous response"):
            return Failure(400, message, "previous_response_not_found", "previous_response_id")
        return Failure(400, message, None, "input")

    def overflow(self, limit: int, tokens: int | None) -> Failure:
        # The limit is not told: openai/codex#4116.
        message = (
            "Your input exceeds the context window of this model. Please adjust your input and try again."
        )
        return Failure(400, message, "context_length_exceeded", "input")

    def rate_limited(self) -> Failure:
        return Failure(429, "Rate limit reached for requests.", "rate_limit_exceeded")

    def inspection_failed(self) -> Failure:
        message = "Invalid prompt: your prompt was flagged as potentially violating our usage policy."
        return Failure(400, message, "invalid_prompt")

    def _head(self, received: Received) -> Dict:
        given = received.json
        return {
            "id": _response_id(received),
            "object": "response",
            "created_at": 0,
            "error": None,
            "incomplete_details": None,
            "instructions": given.get("instructions"),
            "metadata": given.get("metadata") or {},
            "model": given.get("model") or "scripted",
            "parallel_tool_calls": True,
            "previous_response_id": given.get("previous_response_id"),
            "temperature": 1.0,
            "tool_choice": given.get("tool_choice") or "auto",
            "tools": received.tools,
            "top_p": 1.0,
        }

    def _output(self, said: Said, received: Received) -> list[Dict]:
        message, number = said.message, received.number
        output: list[Dict] = []
        if message.get("reasoning_content"):
            summary = [{"type": "summary_text", "text": message["reasoning_content"]}]
            item: Dict = {"type": "reasoning", "id": f"rs_{number:032x}", "summary": summary}
            if "reasoning.encrypted_content" in (received.json.get("include") or []):
                item["encrypted_content"] = f"gAAAAA{number:032x}"
            output.append(item)
        output += message.get("hosted") or []
        if message.get("content"):
            part = {"type": "output_text", "text": message["content"], "annotations": [], "logprobs": []}
            head = {"type": "message", "id": f"msg_{number:032x}", "role": "assistant"}
            output.append({**head, "status": "completed", "content": [part]})
        for index, call in enumerate(message.get("tool_calls") or []):
            output.append(
                {
                    "type": "function_call",
                    "id": f"fc_{number:028x}{index:04x}",
                    "call_id": call["id"],
                    **call["function"],
                    "status": "completed",
                }
            )
        return output


def _item_events(item: Dict) -> Iterator[Dict]:
    """Yield an item as it grows."""
    at = {"item_id": item["id"]}
    empty = {"message": {"content": []}, "reasoning": {"summary": []}, "function_call": {"arguments": ""}}
    started = {**item, **empty.get(item["type"], {})}
    if "status" in item:
        started["status"] = "in_progress"
    yield {"type": "response.output_item.added", "item": started}
    match item["type"]:
        case "message":
            [part] = item["content"]
            at |= {"content_index": 0}
            yield {"type": "response.content_part.added", **at, "part": {**part, "text": ""}}
            for piece in pieces_of(part["text"]):
                yield {"type": "response.output_text.delta", **at, "delta": piece, "logprobs": []}
            yield {"type": "response.output_text.done", **at, "text": part["text"], "logprobs": []}
            yield {"type": "response.content_part.done", **at, "part": part}
        case "reasoning":
            [part] = item["summary"]
            at |= {"summary_index": 0}
            yield {"type": "response.reasoning_summary_part.added", **at, "part": {**part, "text": ""}}
            for piece in pieces_of(part["text"]):
                yield {"type": "response.reasoning_summary_text.delta", **at, "delta": piece}
            yield {"type": "response.reasoning_summary_text.done", **at, "text": part["text"]}
            yield {"type": "response.reasoning_summary_part.done", **at, "part": part}
        case "function_call":
            for piece in pieces_of(item["arguments"]):
                yield {"type": "response.function_call_arguments.delta", **at, "delta": piece}
            yield {
                "type": "response.function_call_arguments.done",
                **at,
                "name": item["name"],
                "arguments": item["arguments"],
            }
    yield {"type": "response.output_item.done", "item": item}


def _event(event: Dict) -> str:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"


def _response_id(received: Received) -> str:
    return f"resp_{received.number:032x}"


def _usage(read: int, written: int) -> Dict:
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": read + written,
    }


RESPONSES = ResponsesWire()
