"""Describe a call's arguments in one line: what it was made on, or the plan that it writes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from context_compressor.messages.escapes import sendable
from context_compressor.summarizers.cutting import cut
from context_compressor.summarizers.extracts.outcomes import REF

_TELLING_ARGUMENTS = (
    *("path", "file_path", "filename", "file", "command", "cmd", "query", "pattern", "url", "sql", "code"),
    *("name", "id"),
)
COMMAND_ARGUMENTS = frozenset({"command", "cmd"})
FILE_ARGUMENTS = frozenset({"path", "file_path", "filename", "file"})
_PLACE_ARGUMENTS = FILE_ARGUMENTS | COMMAND_ARGUMENTS | {"name"}
"""Arguments in which a path may be shortened to its name; in a URL or an expression it is no path."""
_WRAPPED_ARGUMENTS = ("params", "parameters", "arguments", "args", "input", "tool_input")
"""Where a tool that calls other tools has the arguments of these."""
_SAYS_NOTHING = re.compile(
    r"\W*$|</?[\w:-]+>$|#!|#include\b|import [^\s(]|from \S+ import\b|set [-+]\w"
    r"|(?:const|let|var) [^=]{1,80}= ?require\(|cd \S+$|\*\*\* Begin Patch$"
)
"""A line that many scripts, files and queries begin with: a tag alone, an import, an opened comment."""
_OPENS_SCRIPT = re.compile(r"(?:\s-\w{0,3}[ce]\s*\$?[\"'`]|^[^>]*<<-?\s*[\"']?\w+[\"']?)\s*$")
"""Ends the line of a command whose script begins on the next: `python -c "`, `psql <<EOF`."""
_MOST_TOLD = 3
_READ_LINES = 40
_LINE_CHARS = 600
_OWN_LABEL = re.compile(rf"\[[^\n]{{0,40}}{REF}")
_DIRECTORIES = re.compile(r"(?<![\w:/.@~'\"|-])(?:~|\.{1,2}|[\w@-]+)?/(?:[\w.@-]+/)*(?=[\w.-]*\w)")
"""The directories of a path. Not of an image's name (its first part has a dot); `...` alone is no name."""
_SUBSTITUTION = re.compile(r"[\"']?s([^\w\s.-]).*\1")
"""What `sed` is told to replace: no path, though it may hold some."""
_STEP_KEYS = ("content", "step", "title", "task", "name", "text", "description")
"""Where the steps of a plan say what is to be done."""
_DONE = re.compile(r"(?:complet|done|finish|cancel|abandon|skip)", re.IGNORECASE)
_CHANGE_OF_DIRECTORY = re.compile(r"cd \S+ && ")
_ENCODE = json.JSONEncoder(ensure_ascii=False, default=str).encode
"""As `json.dumps`, which makes such an encoder at every call."""


def command_line(value: Any) -> Any:
    """Return a command that is given word for word, `["bash", "-lc", "ls"]` say, as it would be typed."""
    if not (isinstance(value, list) and value and all(isinstance(word, str) for word in value)):
        return value
    return value[2] if value[1:2] in (["-c"], ["-lc"]) and len(value) == 3 else " ".join(value)


class Told(NamedTuple):
    """What an argument tells of its call."""

    key: str
    line: str
    """Its telling line."""
    says_itself: bool
    """Whether it tells enough without its key: a path, a command, a query."""


def telling_arguments(arguments: Mapping[str, Any]) -> list[Told]:
    """Return what up to three arguments of a call tell: a path, a command, a query before anything else."""
    arguments = _unwrapped(arguments)
    first = [key for key in _TELLING_ARGUMENTS if key in arguments]
    found: dict[str, Told] = {}
    for key in (*first, *(key for key in arguments if key not in first)):
        value = arguments[key]
        if value is None or value in ("", [], {}):
            continue
        if key in COMMAND_ARGUMENTS:
            value = command_line(value)
        line = _telling_line(value if isinstance(value, str) else _ENCODE(value))
        if line in found or _OWN_LABEL.match(line):
            continue  # what an edit leaves as it was, or the memory's words for a text that left
        found[line] = Told(key, line, key in first)
        if len(found) == _MOST_TOLD:
            break
    return list(found.values())


def describe_arguments(told: Sequence[Told], shortest: int | None = None) -> str:
    """Return the telling arguments of a call on one line.

    Args:
        told: these arguments.
        shortest: characters from which a path is shortened to its name, unless two of a command would then
            look the same; None: none is.
    """
    parts: list[str] = []
    for key, line, says_itself in told:
        if shortest is not None and key in _PLACE_ARGUMENTS and "/" in line:
            line = _without_directories(line, shortest)
        parts.append(cut(line, 120) if says_itself else f"{key}={cut(line, 120 if len(told) == 1 else 40)}")
    return cut(" ".join(parts), 180)


def _unwrapped(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return arguments with those of the tool that is called through another among them."""
    wrapped = next((key for key in _WRAPPED_ARGUMENTS if isinstance(arguments.get(key), dict)), None)
    if wrapped is None:
        return arguments
    return {**{key: value for key, value in arguments.items() if key != wrapped}, **arguments[wrapped]}


def _telling_line(text: str) -> str:
    """Return the first line that tells one call from another; of a script in a command behind its opening."""
    lines = _CHANGE_OF_DIRECTORY.sub("", text.strip(), count=1).split("\n", _READ_LINES)[:_READ_LINES]
    telling = (line for line in map(str.strip, lines) if not _SAYS_NOTHING.match(line))
    line = next(telling, lines[0])
    if len(lines) > 1 and _OPENS_SCRIPT.search(line[:_LINE_CHARS]):
        line = f"{line} {next(telling, '')}".rstrip()
    return sendable(line)


def describe_plan(arguments: Mapping[str, Any]) -> str:
    """Return the steps of a plan that are not done, by their status; "" where no argument is such a list."""
    for steps in arguments.values():
        if not (isinstance(steps, list) and steps and all(isinstance(step, dict) for step in steps)):
            continue
        by_status: dict[str, list[str]] = {}
        for step in steps:
            text = next((step[key] for key in _STEP_KEYS if isinstance(step.get(key), str)), None)
            if text is None or not isinstance(step.get("status"), str):
                break
            by_status.setdefault(cut(step["status"], 20), []).append(cut(text, 80))
        else:
            parts = [
                f"{status} {len(texts)}" if _DONE.match(status) else f"{status}: {'; '.join(texts)}"
                for status, texts in by_status.items()
            ]
            return cut(" | ".join(parts), 280)
    return ""


def _without_directories(line: str, shortest: int) -> str:
    words = line[:_LINE_CHARS].split(" ")
    shortened = [
        word if len(word) < shortest or _SUBSTITUTION.match(word) else _DIRECTORIES.sub("", word)
        for word in words
    ]
    return " ".join(shortened) if len(set(shortened)) == len(set(words)) else line
