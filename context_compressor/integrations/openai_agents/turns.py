"""Which conversation a run is in, for what the run calls: its model and the read-back tools.

The tools are the SDK's function tools; each finds the conversation of the run that calls it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
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

from context_compressor.integrations.request import Request
from context_compressor.offload.guide import READ_BACK

_NOT_HERE = (
    "This conversation's stored texts are not at hand yet, but are from the next turn on: call this tool "
    "once more."
)
_SHOWN = "{note} It stands beside this text; if nothing does, this model takes only text from tools."
_NOT_SHOWN = "{note} Media of this kind cannot be shown here. Do not retry."
IsEnabled = Callable[[RunContextWrapper[Any], AgentBase[Any]], Awaitable[bool]]


@dataclass(slots=True, eq=False)
class Turn:
    """A request that the filter made a view for, and the agent whose it is."""

    owner: object
    """The adapter: agents of one run may have tools of several."""
    agent: object
    request: Request
    """With the newest view; a refusal leads to another one."""
    is_without_tools: bool = False
    """Whether it went to a model that refuses ours."""

    @property
    def can_offer_tools(self) -> bool:
        """Whether the next turn can offer the read-back tools."""
        return self.request.shown.conversation.has_left and not self.is_without_tools

    def sent(self, items: Any) -> bool:
        """Tell whether a request's items are this view's, which the SDK hands on as they are."""
        if not isinstance(items, list):
            return False
        ours = {id(item) for item in self.request.shown.messages}
        return bool(items) and all(id(item) in ours for item in items)

    def is_of(self, agent: object, begun_with: Sequence[Any]) -> bool:
        """Tell whether a tool's call is of this turn: of its agent, in a run that began as its list does.

        A turn outlives its run in the task that awaited it, and a run within a tool inherits its caller's.
        """
        first = self.request.shown.said.items[:1]
        return agent is self.agent and (not begun_with or not first or begun_with[0] == first[0])


_CURRENT: ContextVar[Turn | None] = ContextVar("context_compressor_turn", default=None)
"""Set where the filter is awaited: in the run's own task, whose tools and model calls inherit it."""


def enter(turn: Turn) -> None:
    """Note a turn for what the run calls from here on."""
    _CURRENT.set(turn)


def current(owner: object) -> Turn | None:
    """Return the turn of this run, if it is this adapter's."""
    turn = _CURRENT.get()
    return turn if turn is not None and turn.owner is owner else None


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
