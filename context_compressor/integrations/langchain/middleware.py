"""`Compression`: middleware by which an agent's model reads views, and its state keeps every message."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Any, NotRequired, Unpack

from langchain.agents.middleware import (
    AgentMiddleware,
    AgentState,
    ExtendedModelResponse,
    ModelRequest,
    ModelResponse,
)
from langchain.agents.middleware.types import PrivateStateAttr
from langchain.tools import ToolRuntime
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.config import get_config
from langgraph.types import Command

from context_compressor.integrations.asked import Asked, Last, name_of
from context_compressor.integrations.conversations import Shown
from context_compressor.integrations.langchain.messages import FORM, Wires, to_messages
from context_compressor.integrations.langchain.model import asked_model, own_model
from context_compressor.integrations.options import KeptOptions, has_tools, make_conversations
from context_compressor.integrations.request import Request, own_work, run_through
from context_compressor.memory.compressed import CompressedMemory
from context_compressor.memory.loops import run_blocking
from context_compressor.memory.reporting import CompressionStats
from context_compressor.offload.guide import READ_BACK
from context_compressor.tools import OffloadTools

logger = logging.getLogger(__name__)

KEY = "context_compression"
"""Where the ledger stands in the graph's state."""
Reading = Callable[[Any, Mapping[str, Any]], AbstractAsyncContextManager[CompressedMemory]]
"""Gives the memory behind a graph's state, for a run's config."""


class CompressionState(AgentState[Any]):
    """An agent's state with the ledger, which is no part of what goes in and comes out."""

    context_compression: NotRequired[Annotated[dict[str, Any], PrivateStateAttr]]


class Compression(AgentMiddleware[CompressionState, Any, Any]):
    """Let an agent's model read views that fit a budget. The messages in the state stay as they are.

    What is known of a view, its ledger, goes into the graph's private state with each answer of the model, so
    that a checkpointer, another process, an older checkpoint and a branch go on with the view of that moment.
    One object serves any number of agents and threads.

    Args:
        with_tools: `tools`, as it was called before.
        options: as `KeptOptions` says, `max_total_tokens` and so on. Without a `store`,
            texts are read from the messages in the state where this process does not have them.
            A `summarizer` may be a chat model of LangChain's, or the name of one, such as "openai:gpt-5".
            `states` are kept in place of ledgers in the graph's state: for agents without a checkpointer.

    Raises:
        InvalidArgumentError: an option that there is not, or something of the wrong kind.
        ValueError: thresholds that cannot be, or cannot work together.
    """

    state_schema = CompressionState

    def __init__(
        self,
        *,
        with_tools: bool = True,
        **options: Unpack[KeptOptions[BaseChatModel | str]],
    ) -> None:
        super().__init__()
        are_given = has_tools(options) and with_tools
        self._is_kept_in_states = options.get("states") is not None
        self._conversations = make_conversations(
            KeptOptions,
            options,
            FORM,
            models=(BaseChatModel, str),
            asked=asked_model,
            with_tools=are_given,
            with_words=self._is_kept_in_states,
        )
        self._wires = Wires()
        self.tools = ReadBack(self._reading).tools if are_given else []

    # Around a model call

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        """Call the model with a view. If it refuses that, call it once more, smaller or without our tools."""
        if self._only_looks_on(request):
            return handler(request)
        return run_through(self._call(request, handler, is_blocking=True))

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        """Do what `wrap_model_call` does, with asyncio."""
        if self._only_looks_on(request):
            return await handler(request)
        return await self._call(request, handler, is_blocking=False)

    def _only_looks_on(self, request: ModelRequest[Any]) -> bool:
        """Tell whether a request is to pass as it is, since this object only looks on."""
        observer, message = self._conversations.observer, request.system_message
        if observer is not None:
            observer.note(
                lambda: self._wires.of(request.messages),
                lambda: message and str(message.text),
                lambda: [convert_to_openai_tool(tool) for tool in request.tools],
            )
        return observer is not None

    async def _call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any], *, is_blocking: bool
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        asked, asking = await own_work(self._begin(request), is_blocking)
        sent = request

        def send(shown: Shown) -> Any:
            nonlocal sent
            sent = self._to_send(request, asked, shown)
            return handler(sent)

        response: ModelResponse[Any] = await asking.ask(send, is_blocking=is_blocking)
        answer = next((one for one in response.result if isinstance(one, AIMessage)), None)
        usage = None if answer is None else answer.usage_metadata
        taken = asking.taken(usage and usage.get("input_tokens"), Last(sent, asked))
        await own_work(taken, is_blocking)
        if self._is_kept_in_states:
            return response
        return ExtendedModelResponse(response, Command(update={KEY: asking.shown.state}))

    async def _begin(self, request: ModelRequest[Any]) -> tuple[Asked, Request]:
        """Return what a request asks, and its view."""
        wires = self._wires.of(request.messages)
        system = None if request.system_message is None else str(request.system_message.text)
        others = self._others(request)
        asked = Asked((name_of(request.model), system, others), wires)
        shown = await self._conversations.view(
            wires,
            system=system,
            with_tools=len(others) < len(request.tools),
            tools_beside=len(others),
            model=name_of(request.model),
            own=own_model(request, asked),
            **self._place(request.state, _configurable()),
        )
        return asked, Request(self._conversations, shown)

    def _others(self, request: ModelRequest[Any]) -> list[Any]:
        """Return the tools of a request that are not ours."""
        return [tool for tool in request.tools if not any(tool is own for own in self.tools)]

    def _to_send(self, request: ModelRequest[Any], asked: Asked, shown: Shown) -> ModelRequest[Any]:
        wires: Any = asked.listed
        messages = to_messages(shown.messages, shown.conversation.spoken, request.messages, wires)
        tools = request.tools if shown.offers_tools else self._others(request)
        return request.override(messages=messages, tools=tools)

    # Which conversation it is

    def _place(self, graph: Any, configurable: Mapping[str, Any]) -> dict[str, Any]:
        """Return the key of a conversation, and its ledger in the graph's state.

        A graph of its own, with a thread, begins anew where its state has no ledger: it is an older
        checkpoint. What keeps no state of its own from one run to the next, an agent without a thread or one
        that is a node in another graph, is found again in this process by its messages.
        """
        thread = configurable.get("thread_id")
        key = None if thread is None else str(thread)
        if self._is_kept_in_states:
            return {"key": key}
        ledger = graph.get(KEY) if isinstance(graph, Mapping) else getattr(graph, KEY, None)
        is_within = "|" in str(configurable.get("checkpoint_ns", ""))
        if ledger is None and key is not None and not is_within:
            ledger = {}
        return {"key": key, "state": ledger}

    def _reading(self, graph: Any, config: Mapping[str, Any]) -> Any:
        """Give the memory that the read-back tools work with, from the graph's state."""
        messages = graph.get("messages") if isinstance(graph, Mapping) else getattr(graph, "messages", None)
        wires = self._wires.of(messages or ())
        return self._conversations.reading(wires, **self._place(graph, config.get("configurable") or {}))

    def stats(self, key: str | None = None) -> CompressionStats | None:
        """Return where the newest conversation of a thread stands, or the newest of all; None: none is.

        Args:
            key: the thread's id.
        """
        return self._conversations.stats(key)


class ReadBack:
    """Make the read-back tools, which work from the graph's state, in any process and thread.

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


def _configurable() -> Mapping[str, Any]:
    try:
        return get_config().get("configurable") or {}
    except RuntimeError:  # called outside of a graph
        return {}
