"""`Compression`: a capability that lets each request carry a view, whatever the run's history holds."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Unpack
from uuid import UUID

from pydantic_ai import RetryModelRequest, RunContext, Tool, ToolReturn
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import Model, ModelRequestContext
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import FunctionToolset

from context_compressor.errors import InvalidArgumentError
from context_compressor.integrations.asked import Asked, Last, Own, name_of
from context_compressor.integrations.conversations import Shown, key_of
from context_compressor.integrations.options import KeyedOptions, has_tools, make_conversations
from context_compressor.integrations.pydantic_ai.contents import content_of
from context_compressor.integrations.pydantic_ai.messages import Chats
from context_compressor.integrations.pydantic_ai.model import asked_model, own_model
from context_compressor.integrations.request import Request
from context_compressor.memory.reporting import CompressionStats
from context_compressor.offload.guide import READ_BACK

_GENERATED = 7
"""The version of the UUIDs that Pydantic AI gives conversations to which the caller gave no id."""
_OURS = "context_compressor"
"""Key in the metadata of our tools, which marks them under any name."""


class Compression(AbstractCapability[Any]):
    """Let each request carry a view that fits the budget, and give the agent tools to read the rest.

    `all_messages()` stays whole. A request that the provider refuses as too long is sent once more, smaller.
    One object serves any number of agents and of runs at once.

    Args:
        options: as `KeyedOptions` says, `max_total_tokens` and so on. A `summarizer` may be a model of
            Pydantic AI, or its name ("openai:gpt-5-mini"). `key` is given a run's `RunContext`; without it a
            conversation is named by its `conversation_id`, where the caller or the history has one.

    Raises:
        InvalidArgumentError: an option that there is not, or something of the wrong kind.
        ValueError: thresholds that cannot be, or cannot work together.
    """

    def __init__(self, **options: Unpack[KeyedOptions[Model | str]]) -> None:
        key = options.get("key")
        if key is not None and not callable(key):
            raise InvalidArgumentError(
                f"key: expected a function of the RunContext, got {type(key).__name__}; "
                "to name one conversation, pass conversation_id= to the run"
            )
        self._key = _conversation_of if key is None else key
        self._tools = has_tools(options)
        self._conversations = make_conversations(
            KeyedOptions, options, models=(Model, str), asked=asked_model
        )
        self._asking: Request | None = None
        self._chats: Chats | None = None
        self._view_length = 0
        self._mended: list[ModelMessage] | None = None
        self._asked: Asked | None = None
        self._sent: ModelRequestContext | None = None

    async def for_run(self, ctx: RunContext[Any]) -> Compression:  # noqa: ARG002
        """Return an instance that knows one run alone, so that tools of parallel runs never mix."""
        own = copy.copy(self)
        own._asking, own._chats, own._mended, own._asked, own._sent = None, None, None, None, None
        return own

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Let the request carry a view of the messages."""
        messages = list(request_context.messages)
        if (observer := self._conversations.observer) is not None:
            parts = request_context.model_request_parameters.instruction_parts or ()
            observer.note(lambda: Chats(messages).dicts, lambda: "\n\n".join(part.content for part in parts))
            return request_context
        # A turn that the provider paused is continued: that one has to stand last, as it is.
        paused = messages[-1:] if messages and isinstance(messages[-1], ModelResponse) else []
        self._mended = None
        self._chats = Chats(messages[: len(messages) - len(paused)])
        parameters = request_context.model_request_parameters
        told = [part.content for part in parameters.instruction_parts or ()]
        tools = [*_others(parameters.function_tools), *parameters.output_tools]
        name, beside = name_of(request_context.model), [told, self._chats.beside, parameters.native_tools]
        self._asked = Asked((name, beside, tools), list(self._chats.dicts))
        own = own_model(request_context, self._asked)
        shown = await self._view(ctx, self._chats, told, len(tools), name, own)
        self._asking = Request(self._conversations, shown)
        view = self._chats.back(shown.messages)
        self._view_length = len(view)
        return replace(request_context, messages=[*view, *paused])

    async def _view(
        self,
        ctx: RunContext[Any],
        chats: Chats,
        instructions: Sequence[str] = (),
        tools_beside: int = 0,
        model: str = "",
        own: Own | None = None,
    ) -> Shown:
        key = await key_of(self._key, ctx)
        system = "\n\n".join([*instructions, *chats.beside])
        with chats.placed():
            return await self._conversations.view(
                chats.dicts, key=key, system=system, tools_beside=tools_beside, model=model, own=own
            )

    async def on_model_request_error(
        self,
        ctx: RunContext[Any],  # noqa: ARG002
        *,
        request_context: ModelRequestContext,  # noqa: ARG002
        error: Exception,
    ) -> ModelResponse:
        """After a refusal, ask for one more attempt with a smaller view or without our tools."""
        if self._asking is not None and self._chats is not None:
            with self._chats.placed():
                is_mended = await self._asking.is_mended(error)
            if is_mended:
                self._mended = self._chats.back(self._asking.shown.messages)
                raise RetryModelRequest() from error
        raise error

    async def prepare_model_request(
        self,
        ctx: RunContext[Any],  # noqa: ARG002
        request_context: ModelRequestContext,
    ) -> ModelRequestContext:
        """Offer our tools once something has left the view; after a refusal, send the mended request.

        In `before_model_request` the framework would write new tools into the caller's history.
        """
        if self._mended is not None:
            behind = request_context.messages[self._view_length :]
            request_context = replace(request_context, messages=[*self._mended, *behind])
        if self._asking is not None and not self._asking.shown.offers_tools:
            parameters = request_context.model_request_parameters
            others = replace(parameters, function_tools=_others(parameters.function_tools))
            request_context = replace(request_context, model_request_parameters=others)
        self._sent = replace(request_context, messages=list(request_context.messages))
        return request_context

    async def after_model_request(
        self,
        ctx: RunContext[Any],  # noqa: ARG002
        *,
        request_context: ModelRequestContext,  # noqa: ARG002
        response: ModelResponse,
    ) -> ModelResponse:
        """Note how many tokens the provider counted."""
        if self._asking is not None and self._asked is not None:
            await self._asking.taken(response.usage.input_tokens, Last(self._sent, self._asked))
        return response

    def get_toolset(self) -> FunctionToolset[Any] | None:
        """Return the tools by which the agent finds and reads what left its view."""
        return FunctionToolset([self._tool(one) for one in READ_BACK]) if self._tools else None

    def _tool(self, function: dict[str, Any]) -> Tool[Any]:
        name: str = function["name"]

        async def run(ctx: RunContext[Any], /, **arguments: Any) -> str | ToolReturn:
            return await self._run_tool(ctx, name, arguments)

        tool = Tool.from_schema(run, name, function["description"], function["parameters"], takes_ctx=True)
        tool.metadata = {_OURS: True}
        return tool

    async def _run_tool(self, ctx: RunContext[Any], name: str, arguments: dict[str, Any]) -> str | ToolReturn:
        # A run may begin with calls that an earlier one left open.
        shown = self._asking.shown if self._asking else await self._view(ctx, Chats(ctx.messages))
        answer, attached = await self._conversations.run_tool(shown, name, arguments)
        if attached is None:
            return answer
        return ToolReturn(answer, content=[content_of(part) for part in attached["content"]])

    def stats(self, key: str | None = None) -> CompressionStats | None:
        """Return where the newest conversation under a key stands, or the newest of all; None: none is."""
        return self._conversations.stats(key)


def _others(tools: Sequence[ToolDefinition]) -> list[ToolDefinition]:
    """Return the tools that are not ours."""
    return [tool for tool in tools if _OURS not in (tool.metadata or {})]


def _conversation_of(ctx: RunContext[Any]) -> str | None:
    """Return the id of a run's conversation; None where it was made up for messages that had none."""
    named = ctx.conversation_id
    if named is None or (ctx.messages and ctx.messages[0].conversation_id is not None):
        return named
    try:
        return None if UUID(named).version == _GENERATED else named
    except ValueError:
        return named
