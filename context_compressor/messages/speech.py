"""Tell what a person said from what a program wrote in the user's place.

Agents without tool calls get what a call came to as the next user's message. Programs around agents add
reminders, what they retrieved, and nudges where nothing was called. None of it is anybody's wish.
"""

from __future__ import annotations

import re

from context_compressor.messages.msg import Msg

_RESULT_OPENINGS = (
    *("<tool_", "<function_result", "<observation", "<returncode", "observation:"),
    *("action result", "action error", "execution result of ["),
    *("new terminal output:", "current terminal screen:", "工具调用结果", "工具执行结果"),
)
"""How results begin, in lower case, of agents whose calls are text."""
_NAMED_RESULT = re.compile(r"\[[\w.-]{1,64}(?: for [^\n\]]{0,300})?\] Result:")
_NUDGES = (
    "please continue working on the task on whatever approach",
    "please proceed to the next step using your best judgement",
    "please always provide exactly one action",
    "your output was not formatted correctly",
    "your last output did not use any tool calls",
    "no tool calls found in the response",
    "[error] you did not use a tool",
)
"""How messages begin, in lower case, that go to an agent which called no tool."""
_ADDED = re.compile(r"<([\w-]{0,40}(?:reminder|memory|knowledge|environment_details))>")
"""Opens what a program adds to a message: reminders, what was retrieved, what stands open in an editor."""
_LOADED = re.compile(r"\[ctx://[0-9a-f]{16}, loaded by \w{1,64}\]")


def is_handed(msg: Msg) -> bool:
    """Tell whether a program handed a user's message over, and nobody said it."""
    blocks = msg.get_content_blocks()
    texts = [block["text"] for block in blocks if isinstance(block.get("text"), str)]
    if not any(texts):
        return False
    if is_result("\n".join(texts)):
        return True
    has_media = len(texts) < len(blocks) and not any(map(is_loaded_note, texts))
    return not has_media and not said_in("\n".join(texts))


def is_result(text: str) -> bool:
    """Tell whether a user's text begins as what a call came to."""
    start = text[:400].lstrip()
    return start.casefold().startswith(_RESULT_OPENINGS) or _NAMED_RESULT.match(start) is not None


def said_in(text: str) -> str:
    """Return what a person said in a user's text: without what programs add, "" where they wrote all."""
    if text.lstrip()[:60].casefold().startswith(_NUDGES):
        return ""
    kept, end = [], 0
    while opening := _ADDED.search(text, end):
        closing = f"</{opening[1]}>"
        close = text.find(closing, opening.end())
        if close < 0:
            break
        kept.append(text[end : opening.start()].strip("\n"))
        end = close + len(closing)
    text = "\n".join([*filter(None, kept), text[end:].strip("\n")]) if kept else text
    return "\n".join(line for line in text.split("\n") if not is_loaded_note(line)).strip()


def loaded_note(ref: str, tool: str) -> str:
    """Return what stands beside media that a tool shows again, in a message of the user."""
    return f"[{ref}, loaded by {tool}]"


def is_loaded_note(text: str) -> bool:
    """Tell whether a text is one of `loaded_note`."""
    return _LOADED.fullmatch(text) is not None
