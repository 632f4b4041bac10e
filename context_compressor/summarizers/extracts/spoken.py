"""Read calls and results that stand in plain text, as agents without tool calls exchange them.

Such an agent writes its call as a tag or a code fence, and what came of it is the next user's message: Cline,
Roo, mini-swe-agent, SWE-agent, Terminus, browser-use, ReAct, and models whose template has no tools. Read as
what people said, a session's outputs would crowd out what the user asked for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from context_compressor.messages.handed import retrieved_by

_READ_CHARS = 20_000
"""How much of a reply is searched for calls, from its end, where they stand."""

_OPENING = re.compile(
    r"\s{0,9}(?:(?=<returncode>)|<(tool_response|tool_result|tool_output|function_results?|observation)>"
    r"|\[(\w[\w.-]{0,63})(?: for [^\n]*)?\] Result:|EXECUTION RESULT of \[([\w.-]{1,64})\]:"
    r"|(?:Previous response had [^\n]*\n(?:[^\n]+\n){1,9}\n)?(?:New Terminal Output|Current Terminal Screen):"
    r"|(?:Observation|OBSERVATION):|(?:🔧 ?)?工具(?:调用|执行)结果[：:][ \t]*\n"
    r"|Action (?:result(?: \d+/\d+)?:|(?=error(?: \d+/\d+)?: )))"
)
"""How the results of such agents begin."""
_PROMPT = re.compile(
    r"\n?(?:\(Open file: [^\n]{1,300}\)\n)?\(Current directory: [^\n]{1,300}\)\nbash-\$\s{0,9}\Z"
)
"""How those of SWE-agent end, and the task, too."""
_PROMPT_CHARS = 700
_TASK = "\nINSTRUCTIONS:"
"""Stands in SWE-agent's task."""
_SURROUNDINGS = ("<environment_details>", "</environment_details>")
"""What Cline and Roo add to each message: open tabs, the time, tokens used."""
_REMINDER = ("<system-reminder>", "</system-reminder>")
"""What Claude Code adds to messages and results: its list of tasks, how to read a file."""

_NUDGES = (
    "Please continue working on the task on whatever approach you think is suitable.",  # OpenHands
    "Please proceed to the next step using your best judgement.",  # OpenHands, SWE-agent
    "Please always provide EXACTLY ONE action in triple backticks",  # mini-swe-agent
    "No tool calls found in the response.",
    "Your output was not formatted correctly. You must always include one discussion",  # SWE-agent
    "Your last output did not use any tool calls!",
    "[ERROR] You did not use a tool in your previous response!",  # Cline, Roo
)
"""How messages begin that a frame writes where the agent called no tool: nobody asks for anything there."""

_JSON_OPENING = re.compile(r"<tool_call>")
_FUNCTION_OPENING = re.compile(r"<function=([\w.-]{1,64})>")
_FUNCTION_PARAMETER = re.compile(r"<parameter=([\w.-]{1,64})>")
_TAG_OPENING = re.compile(r"^<([A-Za-z][A-Za-z0-9_]{2,63})>[ \t]*\n", re.MULTILINE)
_TAG_PARAMETER = re.compile(r"<([A-Za-z][\w-]{0,63})>")
_ACTION_CALL = re.compile(r"^Action: *([^\n]{1,64})\n+Action Input: *([^\n].*)", re.DOTALL | re.MULTILINE)
_FENCE = re.compile(r"^```(bash|sh|shell|python|py|json)?[ \t]*\n(.*?)^```", re.DOTALL | re.MULTILINE)


class Result(NamedTuple):
    """What came of a call."""

    text: str
    name: str
    """The tool that it names; "" for none."""


class SpokenCall(NamedTuple):
    """A call that stood in a reply."""

    name: str
    arguments: dict[str, Any]


def without_surroundings(text: str) -> str:
    """Return a text without what the editor added: open files and the time at its end, reminders anywhere."""
    text = _without_reminders(text)
    head, opening, tail = text.rpartition(_SURROUNDINGS[0])
    return head.rstrip() if opening and tail.rstrip().endswith(_SURROUNDINGS[1]) else text


def _without_reminders(text: str) -> str:
    opening, closing = _REMINDER
    kept, end = [], 0
    while (start := text.find(opening, end)) >= 0 and (close := text.find(closing, start)) >= 0:
        kept.append(text[end:start])
        end = close + len(closing)
    if not kept:
        return text
    return "\n".join(filter(None, (part.strip("\n") for part in (*kept, text[end:]))))


def is_nudge(text: str) -> bool:
    """Tell whether a user's text is only what a frame says to an agent that called no tool."""
    return text.lstrip().startswith(_NUDGES)


def read_result(parts: Sequence[str]) -> Result | None:
    """Return the result that a user's message of these texts reports; None where a person speaks.

    What an agent had retrieved is one, named by its tag.
    """
    text = "\n".join(parts)
    if tag := retrieved_by(parts):
        return Result(text[len(tag) + 2 : -len(tag) - 3].strip("\n"), tag)
    found = _OPENING.match(text)
    prompt = _PROMPT.search(text, max(0, len(text) - _PROMPT_CHARS))
    if found is None and (prompt is None or _TASK in text):
        return None
    body = text[found.end() if found else 0 : prompt.start() if prompt else None]
    body = without_surroundings(body).strip("\r\n")
    if found is None:
        return Result(body, "")
    if found[1]:
        body = body.rstrip().removesuffix(f"</{found[1]}>").rstrip()
    return Result(body, found[2] or found[3] or "")


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
