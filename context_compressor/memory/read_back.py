"""What the read-back tools were asked and answered, and no other text that looks like it."""

from __future__ import annotations

from collections.abc import Mapping

from context_compressor.messages.msg import Msg, tool_results
from context_compressor.offload.tools.pages import parse_page
from context_compressor.offload.tools.schemas import TOOL_NAMES, is_own_tool
from context_compressor.recall.hits import is_hits_page


def shows_page(msg: Msg, names: Mapping[str, str]) -> bool:
    """Tell whether a message holds a page that one of the tools gave.

    A web page may have the form of one: by its form alone it could take the room that is kept for pages.

    Args:
        msg: a message of the view.
        names: tool names by call id.
    """
    for block in tool_results(msg):
        if is_own_tool(names.get(block["id"]) or block.get("name")):
            output = block["output"]
            parts = [{"text": output}] if isinstance(output, str) else output
            if any(_is_page(str(part.get("text") or "")) for part in parts):
                return True
    return False


def is_read_back(tool: str | None, answer: str | None) -> bool:
    """Tell whether a text stands in the history already: what one of the tools was asked, or answered.

    Args:
        tool: the tool's name; by a prefix before it, a tool of somebody else's may have the like.
        answer: what it answered; None for what it was asked.
    """
    return tool in TOOL_NAMES or (is_own_tool(tool) and (answer is None or _is_page(answer)))


def _is_page(text: str) -> bool:
    return parse_page(text) is not None or is_hits_page(text)
