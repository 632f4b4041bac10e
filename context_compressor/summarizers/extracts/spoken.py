"""Read calls that stand in plain text, as a tag or a code fence: those of agents without tool calls.

What came of such a call is the next user's message, see `messages.handed`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

_READ_CHARS = 20_000
"""How much of a reply is searched for calls, from its end, where they stand."""

_JSON_OPENING = re.compile(r"<tool_call>")
_FUNCTION_OPENING = re.compile(r"<function=([\w.-]{1,64})>")
_FUNCTION_PARAMETER = re.compile(r"<parameter=([\w.-]{1,64})>")
_TAG_OPENING = re.compile(r"^<([A-Za-z][A-Za-z0-9_]{2,63})>[ \t]*\n", re.MULTILINE)
_TAG_PARAMETER = re.compile(r"<([A-Za-z][\w-]{0,63})>")
_ACTION_CALL = re.compile(r"^Action: *([^\n]{1,64})\n+Action Input: *([^\n].*)", re.DOTALL | re.MULTILINE)
_FENCE = re.compile(r"^```(bash|sh|shell|python|py|json)?[ \t]*\n(.*?)^```", re.DOTALL | re.MULTILINE)


class SpokenCall(NamedTuple):
    """A call that stood in a reply."""

    name: str
    arguments: dict[str, Any]


def read_calls(reply: str) -> tuple[str, list[SpokenCall]]:
    """Return what a reply says besides its calls, and the calls."""
    start = max(0, len(reply) - _READ_CHARS)
    text = reply[start:]
    for form in _FORMS:
        calls = list(form(text))
        if calls:
            spans = [span for span, _ in calls]
            said = reply[: start + spans[0][0]] + text[spans[-1][1] :]
            return said.strip(), [call for _, call in calls]
    return reply, []


_Found = Iterator[tuple[tuple[int, int], SpokenCall]]


def _enclosed(text: str, opening: re.Pattern[str], closing: str) -> Iterator[tuple[re.Match[str], int, int]]:
    """Yield each opening with where what it encloses ends, and where its closing does: `{}` is its name.

    None that is enclosed by another. By `find`: a lazy pattern takes quadratic time where nothing closes.
    """
    position = 0
    unclosed: set[str] = set()
    while found := opening.search(text, position):
        close = closing.format(found[1] if found.re.groups else "")
        end = -1 if close in unclosed else text.find(close, found.end())
        if end < 0:
            unclosed.add(close)
            position = found.end()
            continue
        position = end + len(close)
        yield found, end, position


def _parameters(text: str, opening: re.Pattern[str], closing: str) -> dict[str, Any]:
    return {
        found[1]: text[found.end() : end].strip("\n") for found, end, _ in _enclosed(text, opening, closing)
    }


def _json_calls(text: str) -> _Found:
    for found, end, last in _enclosed(text, _JSON_OPENING, "</tool_call>"):
        value = _load(text[found.end() : end])
        if value and isinstance(value.get("name"), str):
            arguments = value.get("arguments", value.get("parameters"))
            call = SpokenCall(value["name"], arguments if isinstance(arguments, dict) else {})
            yield (found.start(), last), call


def _function_calls(text: str) -> _Found:
    for found, end, last in _enclosed(text, _FUNCTION_OPENING, "</function>"):
        arguments = _parameters(text[found.end() : end], _FUNCTION_PARAMETER, "</parameter>")
        yield (found.start(), last), SpokenCall(found[1], arguments)


def _tag_calls(text: str) -> _Found:
    for found, end, last in _enclosed(text, _TAG_OPENING, "\n</{}>"):
        arguments = _parameters(text[found.end() : end], _TAG_PARAMETER, "</{}>")
        if arguments:
            yield (found.start(), last), SpokenCall(found[1], arguments)


def _action_calls(text: str) -> _Found:
    found = _ACTION_CALL.search(text)
    if found:
        yield found.span(), SpokenCall(found[1].strip(), _load(found[2]) or {"input": found[2].strip()})


def _terminal_calls(text: str) -> _Found:
    """Yield what Terminus types: JSON of keystrokes, all that it says."""
    fence = _FENCE.search(text)
    start, end = fence.span(2) if fence else (text.find("{"), text.rfind("}") + 1)
    value = _load(text[start:end]) if '"keystrokes"' in text[start:end] else None
    commands = value.get("commands") if value else None
    if value and isinstance(commands, list):
        typed = [step["keystrokes"] for step in commands if isinstance(step, dict) and "keystrokes" in step]
        yield (start, end), SpokenCall("terminal", {"command": "".join(map(str, typed)).strip()})


def _fenced_calls(text: str) -> _Found:
    fences = list(_FENCE.finditer(text))
    for found in fences:
        if found[1] != fences[-1][1]:
            continue  # quoted: what is to be run stands last
        language = found[1] or "bash"
        value = _load(found[2]) if language == "json" else None
        name = value.get("tool", value.get("name", value.get("action"))) if value else None
        if value and isinstance(name, str):
            arguments = value.get("arguments", value.get("args", value.get("action_input")))
            yield found.span(), SpokenCall(name, arguments if isinstance(arguments, dict) else {})
        elif language != "json":
            key = "code" if language.startswith("py") else "command"
            yield found.span(), SpokenCall(language, {key: found[2].strip()})


_FORMS: tuple[Callable[[str], _Found], ...] = (
    *(_json_calls, _function_calls, _tag_calls, _action_calls),
    *(_terminal_calls, _fenced_calls),
)


def _load(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
