"""What a chat-completions provider refuses, written down on its own: nothing here asks the library.

The sets of content parts below are what `problems(..., parts=...)` takes. A kind is a part's `type`, or for a
part without one the key it is known by, in braces; `user:image_url` is a kind that only that role may hold.
Sources: OpenAI's reference ("Create chat completion"), DashScope's ("Qwen API reference").
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

OPENAI_PARTS = frozenset({"text", "user:image_url", "user:input_audio", "user:file", "assistant:refusal"})
COMPATIBLE_PARTS = OPENAI_PARTS | {"user:video", "user:video_url"}
"""DashScope's OpenAI-compatible mode."""
DASHSCOPE_TEXT_PARTS = frozenset({"text", "{text}"})
DASHSCOPE_PARTS = DASHSCOPE_TEXT_PARTS | {"{image}", "{audio}", "{video}", "{file}"}
"""DashScope's own multimodal endpoint."""
RECORDED_PARTS = (
    frozenset(kind.partition(":")[2] or kind for kind in COMPATIBLE_PARTS | DASHSCOPE_PARTS)
    | {"image", "audio"}
    | {"document", "document_url", "tool_reference", "thinking"}
)
"""Everything that recorded sessions hold, in any role: for servers behind a gateway that translates."""

_TYPELESS = ("text", "image", "audio", "video", "file")


def problems(messages: Sequence[Any], *, parts: Collection[str] | None = None) -> list[str]:
    """Return what a provider would refuse in these chat dicts; none for a valid request.

    Parts of content are checked against `parts`, or not at all.
    """
    checker = _Checker(parts)
    for index, message in enumerate(messages):
        checker.read(f"messages[{index}]", message)
    checker.close("end")
    if messages and all(_role(message) in ("system", "developer") for message in messages):
        checker.found.append("only instructions")
    return checker.found


class _Checker:
    """Read messages in order, keeping the calls that are still to be answered."""

    def __init__(self, parts: Collection[str] | None) -> None:
        self.found: list[str] = []
        self._parts = parts
        self._open: dict[str, bool] = {}
        self._seen: set[str] = set()
        self._legacy_open = False

    def close(self, where: str) -> None:
        """Expect no more results for the calls so far."""
        for call_id, answered in self._open.items():
            if not answered:
                self.found.append(f"{where}: call {call_id!r} has no result")
        self._open.clear()
        if self._legacy_open:
            self.found.append(f"{where}: a function_call has no result")
        self._legacy_open = False

    def read(self, where: str, message: Any) -> None:
        """Check one message in its place."""
        if not isinstance(message, dict):
            self.close(where)
            self.found.append(f"{where}: no object: {message!r:.60}")
            return
        role = _role(message)
        self._check_content(where, role, message.get("content"))
        if role == "tool":
            self._read_result(where, message)
        elif role == "function":
            if not self._legacy_open:
                self.found.append(f"{where}: function result without function_call")
            self._legacy_open = False
        else:
            self.close(where)
            if role == "assistant":
                self._read_assistant(where, message)
            elif role not in ("system", "developer", "user"):
                self.found.append(f"{where}: role {role!r}")
            elif message.get("content") in (None, []):
                self.found.append(f"{where}: {role} message without content")

    def _read_result(self, where: str, message: dict[str, Any]) -> None:
        call_id = message.get("tool_call_id")
        if not isinstance(call_id, str) or call_id not in self._open:
            self.found.append(f"{where}: result for {call_id!r}, which is not open")
        elif self._open[call_id]:
            self.found.append(f"{where}: second result for {call_id!r}")
        else:
            self._open[call_id] = True
        if message.get("content") is None:
            self.found.append(f"{where}: result without content")

    def _read_assistant(self, where: str, message: dict[str, Any]) -> None:
        calls = message.get("tool_calls")
        if "tool_calls" in message and calls == []:
            self.found.append(f"{where}: empty tool_calls")
        if calls is not None and not isinstance(calls, list):
            self.found.append(f"{where}: tool_calls are no list: {calls!r:.60}")
            calls = None
        for call in calls or []:
            self._read_call(where, call)
        legacy = message.get("function_call")
        if legacy:
            self._legacy_open = True
            self._check_arguments(where, legacy.get("arguments") if isinstance(legacy, dict) else None)
        silent = not (calls or legacy or any(map(message.get, ("audio", "images", "partial", "prefix"))))
        if silent and not _says_something(message.get("content")):
            self.found.append(f"{where}: empty assistant message")

    def _read_call(self, where: str, call: Any) -> None:
        if not isinstance(call, dict):
            self.found.append(f"{where}: call that is no object: {call!r:.60}")
            return
        call_id = call.get("id")
        if not call_id or not isinstance(call_id, str):
            self.found.append(f"{where}: call without id")
            call_id = "" if not isinstance(call_id, str) else call_id
        if call_id in self._seen:
            self.found.append(f"{where}: call id {call_id!r} used before")
        self._seen.add(call_id)
        self._open[call_id] = False
        kind = "custom" if call.get("type") == "custom" else "function"
        named = call.get(kind)
        if not isinstance(named, dict) or not named.get("name"):
            self.found.append(f"{where}: call {call_id!r} of no {kind}")
        elif kind == "function":
            self._check_arguments(where, named.get("arguments"))

    def _check_arguments(self, where: str, arguments: object) -> None:
        if isinstance(arguments, dict):
            return
        try:
            value = json.loads(arguments) if isinstance(arguments, str) else None
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            self.found.append(f"{where}: arguments that are no JSON object: {str(arguments)[:60]!r}")

    def _check_content(self, where: str, role: object, content: Any) -> None:
        if content is None or isinstance(content, str):
            return
        if not isinstance(content, list):
            self.found.append(f"{where}: content that is no text and no list: {content!r:.60}")
            return
        for number, part in enumerate(content):
            at = f"{where}.content[{number}]"
            if not isinstance(part, dict):
                self.found.append(f"{at}: no object: {part!r:.60}")
                continue
            kind = part_kind(part)
            if self._parts is not None and not {kind, f"{role}:{kind}"} & set(self._parts):
                self.found.append(f"{at}: part {kind!r} in a {role} message")
            if (
                self._parts is not None
                and kind in ("text", "{text}")
                and not isinstance(part.get("text"), str)
            ):
                self.found.append(f"{at}: text part without text")


def part_kind(part: dict[str, Any]) -> str:
    """Return what `parts` calls a part of this form."""
    if part.get("type") is not None:
        return str(part["type"])
    known = [key for key in _TYPELESS if key in part and key != "text"] or ["text"] * ("text" in part)
    return f"{{{known[0]}}}" if known else "{}"


def _role(message: Any) -> object:
    return message.get("role") if isinstance(message, dict) else None


def _says_something(content: object) -> bool:
    if isinstance(content, str):
        return bool(content.strip())
    return isinstance(content, list) and any(_part_says_something(part) for part in content)


def _part_says_something(part: object) -> bool:
    if not isinstance(part, dict):
        return False
    if part.get("type") == "text" or (part.get("type") is None and set(part) <= {"text"}):
        return bool(str(part.get("text", "")).strip())
    return any(value for key, value in part.items() if key != "type")
