"""The texts of a message that can leave it, each with an address."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from context_compressor.messages.msg import Msg

PartPath = tuple[int, ...]
"""Where a text stands: `()` a string content; `(i,)` text block i; `(i, -1)` the string output of the
tool result in block i; `(i, j)` text block j in the list output of the tool result in block i."""


class TextPart(NamedTuple):
    """A text of a message, with its address."""

    path: PartPath
    kind: Literal["text", "tool_result"]
    text: str


def text_parts(msg: Msg) -> list[TextPart]:
    """Return the message's plain texts and tool-result texts, in order; thinking and arguments are not."""
    if isinstance(msg.content, str):
        return [TextPart((), "text", msg.content)]
    parts: list[TextPart] = []
    for i, block in enumerate(msg.content):
        kind = block.get("type")
        if kind == "text":
            parts.append(TextPart((i,), "text", block["text"]))
        elif kind == "tool_result":
            output = block["output"]
            if isinstance(output, str):
                parts.append(TextPart((i, -1), "tool_result", output))
            else:
                parts += [
                    TextPart((i, j), "tool_result", part["text"])
                    for j, part in enumerate(output)
                    if _is_text(part)
                ]
    return parts


def count_texts(msg: Msg) -> int:
    """Return how many texts `text_parts` gives."""
    if isinstance(msg.content, str):
        return 1
    count = 0
    for block in msg.content:
        kind = block.get("type")
        if kind == "text":
            count += 1
        elif kind == "tool_result":
            output = block["output"]
            count += 1 if isinstance(output, str) else len([part for part in output if _is_text(part)])
    return count


def _is_text(part: Any) -> bool:
    return part.get("type") == "text" and isinstance(part.get("text"), str)


def replace_texts(msg: Msg, texts: Mapping[PartPath, str]) -> Msg:
    """Return a copy of `msg` in which the texts at the given addresses are replaced."""
    other = msg.copy()
    for path, text in texts.items():
        if not path:
            other.content = text
            continue
        assert isinstance(other.content, list)
        block: dict[str, Any] = other.content[path[0]]
        if len(path) == 1:
            block["text"] = text
        elif path[1] == -1:
            block["output"] = text
        else:
            block["output"][path[1]]["text"] = text
    return other
