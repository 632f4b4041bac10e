"""The read-back tools as the SDK's function tools: each finds the conversation of the run that calls it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from agents import (
    AgentBase,
    FunctionTool,
    RunContextWrapper,
    ToolOutputFileContent,
    ToolOutputImage,
    ToolOutputText,
)
from agents.tool_context import ToolContext

from context_compressor.integrations.openai_agents.turns import current
from context_compressor.offload.guide import READ_BACK

_NOT_HERE = (
    "This conversation's stored texts are not at hand yet, but are from the next turn on: call this tool "
    "once more."
)
_SHOWN = "{note} It stands beside this text; if nothing does, this model takes only text from tools."
_NOT_SHOWN = "{note} Media of this kind cannot be shown here. Do not retry."


IsEnabled = Callable[[RunContextWrapper[Any], AgentBase[Any]], Awaitable[bool]]


def read_back_tools(owner: object, is_enabled: IsEnabled) -> list[FunctionTool]:
    """Return the tools of an adapter. Any run may call them; they know only what is of its conversation."""
    return [_tool(owner, one, is_enabled) for one in READ_BACK]


def others_of(tools: Iterable[Any]) -> list[Any]:
    """Return the tools that no adapter made."""
    return [tool for tool in tools if not isinstance(tool, ReadBackTool)]


class ReadBackTool(FunctionTool):
    """A tool that an adapter made; its class tells so in any agent."""


def _tool(owner: object, function: Mapping[str, Any], is_enabled: IsEnabled) -> FunctionTool:
    name = function["name"]

    async def invoke(context: ToolContext[Any], arguments: str) -> Any:
        turn = current(owner)
        if turn is None or not turn.is_of(context.agent, context.turn_input):
            return _NOT_HERE
        asking = turn.request
        answer, attached = await asking.conversations.run_tool(asking.shown, name, arguments, "responses")
        return answer if attached is None else _as_output(attached["content"])

    return ReadBackTool(
        name=name,
        description=function["description"],
        params_json_schema=function["parameters"],
        on_invoke_tool=invoke,
        strict_json_schema=False,
        is_enabled=is_enabled,
    )


def _as_output(parts: list[dict[str, Any]]) -> Any:
    """Return what `load_offloaded` loads as a tool's output: a note, and the image or file."""
    note = " ".join(part["text"] for part in parts if part["type"] == "input_text")
    for part in parts:
        shown = ToolOutputText(text=_SHOWN.format(note=note))
        if part["type"] == "input_image":
            return [shown, ToolOutputImage(image_url=part["image_url"])]
        if part["type"] == "input_file":
            file = ToolOutputFileContent(file_data=part["file_data"], filename=part.get("filename"))
            return [shown, file]
    return _NOT_SHOWN.format(note=note)
