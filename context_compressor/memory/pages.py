"""Which messages show pages: what the read-back tools answered, and no other text that looks like it."""

from __future__ import annotations

from collections.abc import Mapping

from context_compressor.messages.msg import Block, Msg, tool_results
from context_compressor.offload.pages import parse_page
from context_compressor.offload.schemas import TOOL_NAMES
from context_compressor.recall.hits import is_hits_page


def shows_page(msg: Msg, names: Mapping[str, str]) -> bool:
    """Tell whether a message holds a page that one of the tools gave.

    A web page may have the form of one: by its form alone it could take the room that is kept for pages.

    Args:
        msg: a message of the view.
        names: tool names by call id.
    """
    return any(_is_ours(block, names) and _is_page(block["output"]) for block in tool_results(msg))


def _is_ours(block: Block, names: Mapping[str, str]) -> bool:
    """Tell whether one of our tools answered; frameworks put prefixes before their names."""
    name = names.get(block["id"]) or block.get("name") or ""
    return any(tool in name for tool in TOOL_NAMES)


def _is_page(output: str | list[Block]) -> bool:
    texts = [output] if isinstance(output, str) else [str(block.get("text") or "") for block in output]
    return any(parse_page(text) is not None or is_hits_page(text) for text in texts)
