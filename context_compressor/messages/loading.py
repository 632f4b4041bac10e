"""Tools that a conversation loads: what a search for tools found, and the calls of what it found.

A provider may hold back the definitions of tools. It knows a tool only from the block or item on that loads
it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from context_compressor.messages.hosted import called_in
from context_compressor.messages.kinds import held_in
from context_compressor.messages.msg import Msg, tool_calls

_REFERENCE = "tool_reference"
"""Type of Anthropic's block that loads a tool by its name, in any result of a search."""
_DEFINING = ("tool_search_output", "additional_tools")
"""Types of items of the Responses API that load tools by their definitions."""


def tools_loaded_by(msg: Msg) -> frozenset[str]:
    """Return the names of the tools that a message loads."""
    blocks = [] if isinstance(msg.content, str) else msg.content
    return frozenset(
        name for block in blocks if block.get("type") != "tool_use" for name in _loaded_in(block)
    )


def tools_called_by(msg: Msg) -> frozenset[str]:
    """Return the names of the tools that a message calls, those that the provider runs among them."""
    blocks = [] if isinstance(msg.content, str) else msg.content
    held = [held_in(block) for block in blocks if called_in(block) is not None]
    return frozenset(str(call.get("name")) for call in (*tool_calls(msg), *held))


def _loaded_in(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for inner in value:
            yield from _loaded_in(inner)
    elif isinstance(value, Mapping):
        if value.get("type") == _REFERENCE:
            yield str(value.get("tool_name") or value.get("name"))
        if value.get("type") in _DEFINING or value.get("part") in _DEFINING:  # an item, or its text
            yield from _names_in(value.get("extra", value).get("tools"))
        for inner in value.values():
            if isinstance(inner, list | Mapping):
                yield from _loaded_in(inner)


def _names_in(tools: Any) -> Iterator[str]:
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, Mapping):
            yield str(tool.get("name"))
            yield from _names_in(tool.get("tools"))
