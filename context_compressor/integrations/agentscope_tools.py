"""The read-back tools in an AgentScope `Toolkit`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from agentscope.tool import Toolkit, ToolResponse

from context_compressor.messages.openai import from_openai
from context_compressor.offload.tools.history import OffloadSource
from context_compressor.offload.tools.offload_tools import OffloadTools

_RESPONSE_BLOCKS = frozenset({"text", "image", "audio", "video"})
"""What a `ToolResponse` may hold."""


def register_offload_tools(
    toolkit: Toolkit, memory: OffloadSource, group_name: str = "basic"
) -> OffloadTools:
    """Register the tools that `OffloadTools` has for a memory: reading, searching, compressing.

    Bad arguments are answered in words. An image, audio or video that `load_offloaded` brings back is a block
    of the tool's response. Whether the model sees it is for AgentScope's formatter to say: that for OpenAI
    shows images of tool results with `promote_tool_result_images=True`.

    Args:
        toolkit: the agent's toolkit.
        memory: an `AgentScopeCompressedMemory`, a `CompressedMemory`, or anything that `OffloadTools` takes.
        group_name: the group to register them in; a group other than "basic" has to exist.

    Returns:
        What answers the calls.

    Raises:
        ValueError: the toolkit has no such group, or has a tool of one of these names already; then none of
            them is registered.
    """
    tools = OffloadTools(memory)
    registered: list[str] = []
    for schema in tools.schemas:
        name = schema["function"]["name"]
        try:
            toolkit.register_tool_function(
                _tool_function(tools, name), group_name=group_name, json_schema=schema
            )
        except ValueError:
            for earlier in registered:
                toolkit.remove_tool_function(earlier)
            raise
        registered.append(name)
    return tools


def _tool_function(tools: OffloadTools, name: str) -> Callable[..., Coroutine[Any, Any, ToolResponse]]:
    async def call(**arguments: Any) -> ToolResponse:
        attached = await tools.attachment(name, arguments)
        if attached is None:
            blocks: list[Any] = [{"type": "text", "text": await tools.call(name, arguments)}]
        else:
            blocks = [_shown(block) for block in from_openai([attached])[0].get_content_blocks()]
        return ToolResponse(content=blocks)  # plain dicts, which its typed ones are, too

    call.__name__ = name
    return call


def _shown(block: dict[str, Any]) -> dict[str, Any]:
    if block.get("type") in _RESPONSE_BLOCKS:
        return block
    return {"type": "text", "text": f"A {block.get('type')} cannot be shown in a tool's response here."}
