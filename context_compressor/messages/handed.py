"""Tell messages that are a user's by their role alone from what somebody said.

Taken for the user's words they would take the place of what was asked for: in a view, where what was asked
for last stays, and in summaries.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from context_compressor.messages.msg import Msg

_RETRIEVED = ("long_term_memory", "retrieved_knowledge")
"""Tags around what AgentScope's agents retrieve, and add behind each request."""
_LOADED = re.compile(r"\[ctx://[0-9a-f]{16}, loaded by \w{1,64}\]")


def loaded_note(ref: str, tool: str) -> str:
    """Return what stands beside media that a tool shows again, in a message of the user."""
    return f"[{ref}, loaded by {tool}]"


def is_loaded_note(text: str) -> bool:
    """Tell whether a text is one of `loaded_note`."""
    return _LOADED.fullmatch(text) is not None


def retrieved_by(texts: Sequence[str]) -> str:
    """Return the tag around these texts of a user's message; "" where they were not retrieved."""
    for tag in _RETRIEVED if texts else ():
        if texts[0].startswith(f"<{tag}>") and texts[-1].endswith(f"</{tag}>"):
            return tag
    return ""


def is_handed(msg: Msg) -> bool:
    """Tell whether a program handed a user's message over: retrieved texts, or media shown again."""
    texts = [block["text"] for block in msg.get_content_blocks() if isinstance(block.get("text"), str)]
    return bool(retrieved_by(texts)) or (len(texts) == 1 and is_loaded_note(texts[0]))
