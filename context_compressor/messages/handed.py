"""Tell messages that are a user's by their role alone from what somebody said.

Agents without tool calls get what a call came to as the next user's message: Cline, Roo, mini-swe-agent,
SWE-agent, Terminus, browser-use, ReAct, and models whose template has no tools. Frames add what they
retrieved, reminders and nudges. Taken for the user's words, all that would take the place of what was asked
for: in a view, where what was asked for last stays, and in summaries.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from context_compressor.messages.msg import Msg

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

_RETRIEVED = ("long_term_memory", "retrieved_knowledge")
"""Tags around what AgentScope's agents retrieve, and add behind each request."""
_LOADED = re.compile(r"\[ctx://[0-9a-f]{16}, loaded by \w{1,64}\]")


class Result(NamedTuple):
    """What came of a call."""

    text: str
    name: str
    """The tool that it names; "" for none."""


def is_handed(msg: Msg) -> bool:
    """Tell whether a program handed a user's message over, and nobody said it."""
    blocks = msg.get_content_blocks()
    texts = [block["text"] for block in blocks if isinstance(block.get("text"), str)]
    if not texts or read_result(texts) is not None:
        return bool(texts)
    has_media = len(texts) < len(blocks) and not any(map(is_loaded_note, texts))
    return not has_media and all(map(_is_programs, texts))


def _is_programs(text: str) -> bool:
    return is_notice(text) or (text != "" and without_surroundings(text) == "")


def without_surroundings(text: str) -> str:
    """Return a text without what the editor added: open files and the time at its end, reminders anywhere."""
    text = _without_reminders(text)
    head, opening, tail = text.rpartition(_SURROUNDINGS[0])
    return head.rstrip() if opening and tail.rstrip().endswith(_SURROUNDINGS[1]) else text


def without_prompt(text: str) -> str:
    """Return a result without the prompt with which SWE-agent ends it."""
    prompt = _prompt_of(text)
    return text[: prompt.start()] if prompt else text


def _prompt_of(text: str) -> re.Match[str] | None:
    return _PROMPT.search(text, max(0, len(text) - _PROMPT_CHARS)) if "bash-$" in text[-20:] else None


def _without_reminders(text: str) -> str:
    opening, closing = _REMINDER
    kept, end = [], 0
    while (start := text.find(opening, end)) >= 0 and (close := text.find(closing, start)) >= 0:
        kept.append(text[end:start])
        end = close + len(closing)
    if not kept:
        return text
    return "\n".join(filter(None, (part.strip("\n") for part in (*kept, text[end:]))))


def is_notice(text: str) -> bool:
    """Tell whether a user's text is a frame's to an agent that called no tool, or one of `loaded_note`."""
    return text.lstrip().startswith(_NUDGES) or is_loaded_note(text)


def loaded_note(ref: str, tool: str) -> str:
    """Return what stands beside media that a tool shows again, in a message of the user."""
    return f"[{ref}, loaded by {tool}]"


def is_loaded_note(text: str) -> bool:
    """Tell whether a text is one of `loaded_note`."""
    return _LOADED.fullmatch(text) is not None


def read_result(parts: Sequence[str]) -> Result | None:
    """Return the result that a user's message of these texts reports; None where a person speaks.

    What an agent had retrieved is one, named by its tag.
    """
    text = "\n".join(parts)
    if tag := _retrieved_by(parts):
        return Result(text[len(tag) + 2 : -len(tag) - 3].strip("\n"), tag)
    found = _OPENING.match(text)
    prompt = _prompt_of(text)
    if found is None and (prompt is None or _TASK in text):
        return None
    body = text[found.end() if found else 0 : prompt.start() if prompt else None]
    body = without_surroundings(body).strip("\r\n")
    if found is None:
        return Result(body, "")
    if found[1]:
        body = body.rstrip().removesuffix(f"</{found[1]}>").rstrip()
    return Result(body, found[2] or found[3] or "")


def _retrieved_by(texts: Sequence[str]) -> str:
    """Return the tag around these texts of a user's message; "" where they were not retrieved."""
    for tag in _RETRIEVED if texts else ():
        if texts[0].startswith(f"<{tag}>") and texts[-1].endswith(f"</{tag}>"):
            return tag
    return ""
