"""What the demo checks with code of its own, asking nothing of the library that it shows."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

_PAGE = re.compile(r"\[(ctx://[0-9a-f]{16}) lines (\d+)-(\d+) of \d+.*\]")
_FOUND_TEXT = re.compile(r"\[(ctx://[0-9a-f]{16}) matches: .*\]")
_FOUND_LINE = re.compile(r"(\d+)(?::\d+-\d+)?(?: x\d+)?\| ")


def refused_because(messages: Sequence[dict[str, Any]]) -> str | None:
    """Return why a chat-completions provider would refuse this request; None when it would not."""
    waiting: list[str] = []
    used: set[str] = set()
    for index, message in enumerate(messages):
        role, calls = message.get("role"), message.get("tool_calls") or []
        if role == "tool":
            if message.get("tool_call_id") not in waiting:
                return f"messages[{index}]: a result without its call"
            waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            return f"messages[{index}]: call {waiting[0]} was not answered"
        if role == "assistant" and not calls and not message.get("content"):
            return f"messages[{index}]: an empty assistant message"
        for call in calls:
            if call["id"] in used:
                return f"messages[{index}]: call id {call['id']} is used twice"
            if not isinstance(json.loads(call["function"]["arguments"]), dict):
                return f"messages[{index}]: arguments that are no JSON object"
            used.add(call["id"])
            waiting.append(call["id"])
    if waiting:
        return f"call {waiting[0]} was not answered"
    return None if any(message["role"] != "system" for message in messages) else "nothing but instructions"


def first_found(answer: str) -> tuple[str, int] | None:
    """Return ref and line of the first match that an answer of `grep_offloaded` shows."""
    ref = None
    for line in answer.split("\n"):
        if header := _FOUND_TEXT.fullmatch(line):
            ref = header[1]
        elif ref is not None and (found := _FOUND_LINE.match(line)):
            return ref, int(found[1])
    return None


def page_lines(page: str) -> list[str]:
    """Return the lines of text that an answer of `read_offloaded` shows; none when it shows no page."""
    lines = page.split("\n")
    return lines[1:-1] if _PAGE.fullmatch(lines[0]) else []


def stands_in(lines: Sequence[str], history: Sequence[dict[str, Any]]) -> bool:
    """Tell whether `lines` stand, one after the other and unchanged, in one message of the history."""
    wanted = "\n".join(("", *lines, ""))
    return bool(lines) and any(wanted in f"\n{message.get('content')}\n" for message in history)
