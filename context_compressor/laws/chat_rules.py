"""What a chat-completions provider refuses, written down on its own: nothing here asks the library.

The sets of content parts below are what `problems(..., parts=...)` takes. A kind is a part's `type`, or for a
part without one the key it is known by, in braces; `user:image_url` is a kind that only that role may hold.
Sources: OpenAI's reference ("Create chat completion"), DashScope's ("Qwen API reference").
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

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


def problems(
    messages: Sequence[Any], *, parts: Collection[str] | None = None, takes_thoughts: bool = False
) -> list[str]:
    """Return what a provider would refuse in these chat dicts; none for a valid request or no messages.

    Parts of content are checked against `parts`, or not at all. `takes_thoughts`: an assistant message may
    hold reasoning alone, which the providers that write such messages take back.
    """
    return RequestChecker(parts, takes_thoughts=takes_thoughts).check(messages) if messages else []


class _Before(NamedTuple):
    """What was known before a message was read."""

    found: int
    called: int
    open: Mapping[str, bool]
    legacy_open: bool


class RequestChecker:
    """Check requests that follow each other; what is the same in two of them is read once."""

    def __init__(self, parts: Collection[str] | None = None, *, takes_thoughts: bool = False) -> None:
        self._parts = parts
        self._takes_thoughts = takes_thoughts
        self._before: list[_Before] = []
        self._found: list[str] = []
        self._called: dict[str, None] = {}
        """The ids of all calls, in order."""
        self._open: Mapping[str, bool] = {}
        """Whether each call of the latest assistant message has its result; changed as a copy."""
        self._legacy_open = False

    def check(self, messages: Sequence[Any], same: int = 0) -> list[str]:
        """Return what a provider would refuse in a request; none for a valid one.

        `same`: how many messages at its start are those of the request before.
        """
        if same < len(self._before):
            before = self._before[same]
            del self._before[same:], self._found[before.found :]
            self._called = dict.fromkeys(islice(self._called, before.called))
            self._open, self._legacy_open = before.open, before.legacy_open
        for index in range(same, len(messages)):
            known = _Before(len(self._found), len(self._called), self._open, self._legacy_open)
            self._before.append(known)
            self._read(f"messages[{index}]", messages[index])
        found = [*self._found, *self._missing("end")]
        if all(_role(message) in ("system", "developer") for message in messages):
            found.append("only instructions")
        return found

    def _missing(self, where: str) -> Iterator[str]:
        """Yield the calls that no result can reach any more."""
        for call_id, answered in self._open.items():
            if not answered:
                yield f"{where}: call {call_id!r} has no result"
        if self._legacy_open:
            yield f"{where}: a function_call has no result"

    def _close(self, where: str) -> None:
        self._found += self._missing(where)
        self._open, self._legacy_open = {}, False

    def _read(self, where: str, message: Any) -> None:
        if not isinstance(message, dict):
            self._close(where)
            self._found.append(f"{where}: no object: {message!r:.60}")
            return
        role, content = _role(message), message.get("content")
        self._check_content(where, role, content)
        if role == "tool":
            self._read_result(where, message)
        elif role == "function":
            if not self._legacy_open:
                self._found.append(f"{where}: function result without function_call")
            self._legacy_open = False
        else:
            self._close(where)
            if role == "assistant":
                self._read_assistant(where, message)
            elif role not in ("system", "developer", "user"):
                self._found.append(f"{where}: role {role!r}")
        needs_content = role not in ("assistant", "function")
        if needs_content and (content is None or (content == [] and role != "tool")):
            self._found.append(f"{where}: {role} message without content")

    def _read_result(self, where: str, message: dict[str, Any]) -> None:
        call_id = message.get("tool_call_id")
        if not isinstance(call_id, str) or call_id not in self._open:
            self._found.append(f"{where}: result for {call_id!r}, which is not open")
        elif self._open[call_id]:
            self._found.append(f"{where}: second result for {call_id!r}")
        else:
            self._open = {**self._open, call_id: True}

    def _read_assistant(self, where: str, message: dict[str, Any]) -> None:
        calls = message.get("tool_calls")
        if "tool_calls" in message and calls == []:
            self._found.append(f"{where}: empty tool_calls")
        if calls is not None and not isinstance(calls, list):
            self._found.append(f"{where}: tool_calls are no list: {calls!r:.60}")
            calls = None
        for call in calls or []:
            self._read_call(where, call)
        legacy = message.get("function_call")
        if legacy is not None:
            self._legacy_open = True
            self._check_named(where, "function_call", "function", legacy)
        others = any(map(message.get, ("audio", "images", "partial", "prefix")))
        said = ("content", "refusal", *["reasoning_content"] * self._takes_thoughts)
        if not (calls or legacy is not None or others or any(_says_something(message.get(k)) for k in said)):
            self._found.append(f"{where}: empty assistant message")

    def _read_call(self, where: str, call: Any) -> None:
        if not isinstance(call, dict):
            self._found.append(f"{where}: call that is no object: {call!r:.60}")
            return
        call_id = call.get("id")
        if not call_id or not isinstance(call_id, str):
            self._found.append(f"{where}: call without id")
            call_id = "" if not isinstance(call_id, str) else call_id
        if call_id in self._called:
            self._found.append(f"{where}: call id {call_id!r} used before")
        self._called[call_id] = None
        self._open = {**self._open, call_id: False}
        kind = "custom" if call.get("type") == "custom" else "function"
        self._check_named(where, f"call {call_id!r}", kind, call.get(kind))

    def _check_named(self, where: str, what: str, kind: str, named: Any) -> None:
        if not isinstance(named, dict) or not named.get("name"):
            self._found.append(f"{where}: {what} of no {kind}")
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
            self._found.append(f"{where}: arguments that are no JSON object: {str(arguments)[:60]!r}")

    def _check_content(self, where: str, role: object, content: Any) -> None:
        if content is None or isinstance(content, str):
            return
        if not isinstance(content, list):
            self._found.append(f"{where}: content that is no text and no list: {content!r:.60}")
            return
        for number, part in enumerate(content):
            at = f"{where}.content[{number}]"
            if not isinstance(part, dict):
                self._found.append(f"{at}: no object: {part!r:.60}")
                continue
            kind = part_kind(part)
            if self._parts is not None and not {kind, f"{role}:{kind}"} & set(self._parts):
                self._found.append(f"{at}: part {kind!r} in a {role} message")
            if (
                self._parts is not None
                and kind in ("text", "{text}")
                and not isinstance(part.get("text"), str)
            ):
                self._found.append(f"{at}: text part without text")


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
