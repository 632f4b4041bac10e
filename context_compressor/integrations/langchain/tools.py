"""The read-back tools as LangChain's: they work from the graph's state, in any process and thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from langchain.tools import ToolRuntime
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.types import Command

from context_compressor.memory.compressed import CompressedMemory
from context_compressor.memory.loops import run_blocking
from context_compressor.offload.guide import READ_BACK
from context_compressor.tools import OffloadTools

Reading = Callable[[Any, Mapping[str, Any]], AbstractAsyncContextManager[CompressedMemory]]
"""Gives the memory behind a graph's state, for a run's config."""


class ReadBack:
    """Make the tools.

    What `load_offloaded` shows goes into the state as a message of the user's behind the answer, since few
    models take images from tools.

    Args:
        reading: gives a memory.
    """

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self.tools = [self._tool(one) for one in READ_BACK]

    def _tool(self, function: dict[str, Any]) -> BaseTool:
        name: str = function["name"]

        def run(runtime: ToolRuntime[Any, Any], **arguments: Any) -> Any:
            return run_blocking(self._call(name, arguments, runtime))

        async def arun(runtime: ToolRuntime[Any, Any], **arguments: Any) -> Any:
            return await self._call(name, arguments, runtime)

        return StructuredTool(
            name=name,
            description=function["description"],
            args_schema=function["parameters"],
            func=run,
            coroutine=arun,
        )

    async def _call(self, name: str, arguments: dict[str, Any], runtime: ToolRuntime[Any, Any]) -> Any:
        async with self._reading(runtime.state, runtime.config) as memory:
            tools = OffloadTools(memory)
            answer = await tools.call(name, arguments)
            shown = await tools.attachment(name, arguments)
        if shown is None:
            return answer
        told = ToolMessage(answer, tool_call_id=runtime.tool_call_id, name=name)
        return Command(update={"messages": [told, HumanMessage(shown["content"])]})
