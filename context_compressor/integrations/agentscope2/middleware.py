"""The middleware: a view for each call of the model, over a history that stays whole in the agent's state."""

from __future__ import annotations

import asyncio
import copy
import sys
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Literal, Unpack

from context_compressor.errors import naming_extras

with naming_extras("agentscope2", "; for AgentScope 1.x there is context_compressor.integrations.agentscope"):
    from agentscope.agent import Agent
    from agentscope.formatter import AnthropicChatFormatter, AnthropicMultiAgentFormatter
    from agentscope.message import Msg, SystemMsg, TextBlock, UserMsg
    from agentscope.middleware import MiddlewareBase
    from agentscope.model import ChatModelBase, ChatResponse, FinishedReason
    from agentscope.permission import PermissionBehavior, PermissionDecision
    from agentscope.state import AgentState
    from agentscope.tool import FunctionTool, ToolBase, ToolChunk

    from context_compressor.integrations.agentscope2.blocks import Request, data_block_of

from context_compressor.integrations.asked import (
    Ask,
    Asked,
    AskedModel,
    Last,
    Own,
    Said,
    is_taken_over,
    name_of,
    taken_over,
)
from context_compressor.integrations.clients.wire import check_free
from context_compressor.integrations.conversations import Shown
from context_compressor.integrations.options import Options, has_tools, make_conversations
from context_compressor.integrations.request import Request as Asking
from context_compressor.memory.reporting import CompressionStats
from context_compressor.messages.msg import new_id
from context_compressor.offload.guide import READ_BACK

_NEVER = 1e6
"""A share of the model's window that no context reaches."""
_UNLIMITED = sys.maxsize

Answer = ChatResponse | AsyncGenerator[ChatResponse, None]


@dataclass(slots=True)
class _Session:
    """What is known of an agent's state, as long as that lives."""

    state: weakref.ref[AgentState]
    session_id: str
    name: str
    """Of its conversation; no other has it, however alike they are."""
    shown: Shown | None = None


class Compression(MiddlewareBase):
    """Let an AgentScope 2 agent's model read views that fit a budget, over a history that stays whole.

    Each call of the model gets a view of the system prompt and the context. The ledger stands in
    `agent.state.middle_context`, under `get_middleware_key()`: a state that was saved and loaded goes on with
    the same view. The agent's own compression is off, and so is its warning that one is near. Tool results
    come into the context whole, unless `ContextConfig(tool_result_limit=...)` was set. The agent gets the
    read-back tools with its first reply; each finds the conversation of the agent that runs it.

    One object serves any number of agents, also at once.

    Args:
        options: as `Options` says, `max_total_tokens` and so on. Without a `store`, what is not in memory is
            read from the context. A `summarizer` may be another chat model of
            AgentScope's.

    Raises:
        InvalidArgumentError: an option that there is not, or something of the wrong kind.
        ValueError: thresholds that cannot be, or cannot work together.
    """

    def __init__(self, **options: Unpack[Options[ChatModelBase | Literal["own", "rules"]]]) -> None:
        self._conversations = make_conversations(Options, options, models=ChatModelBase, asked=_asked)
        self._tools = [self._tool(one) for one in READ_BACK] if has_tools(options) else []
        self._sessions: dict[int, _Session] = {}

    def stats(self, session_id: str | None = None) -> CompressionStats | None:
        """Return where a living session stands, or the conversation that was shown last; None: none was."""
        if session_id is None:
            return self._conversations.stats()
        found = [one.name for one in self._sessions.values() if one.session_id == session_id and one.shown]
        return self._conversations.stats(found[-1]) if found else None

    # What AgentScope calls

    async def list_tools(self) -> list[ToolBase]:
        """Return the read-back tools. An agent with this middleware gets them by itself."""
        return list(self._tools)

    async def on_reply(
        self,
        agent: Agent,
        input_kwargs: dict[str, Any],
        next_handler: Callable[..., AsyncGenerator[Any, None]],
    ) -> AsyncGenerator[Any, None]:
        """Give the agent its tools, and put AgentScope's own thresholds out of reach."""
        config = agent.context_config
        if config.trigger_ratio != _NEVER and self._conversations.observer is None:
            own: dict[str, Any] = {"trigger_ratio": _NEVER, "compression_tool_enabled": False}
            if "tool_result_limit" not in config.model_fields_set:
                own["tool_result_limit"] = _UNLIMITED
            agent.context_config = config.model_copy(update=own)  # the caller's may serve other agents
        for tool in self._tools:
            if await agent.toolkit.get_tool(tool.name) is None:
                await agent.toolkit.add_tool(tool)
        async with aclosing(next_handler(**input_kwargs)) as events:
            async for event in events:
                yield event

    async def on_compress_context(
        self,
        agent: Agent,  # noqa: ARG002
        input_kwargs: dict[str, Any],
        next_handler: Callable[..., Awaitable[None]],
    ) -> None:
        """Leave the context as it is: views are made when the model is called."""
        if self._conversations.observer is not None:
            await next_handler(**input_kwargs)

    async def on_model_call(
        self, agent: Agent, input_kwargs: dict[str, Any], next_handler: Callable[..., Awaitable[Answer]]
    ) -> Answer:
        """Call the model with a view. If it refuses that, call it once more, smaller or without our tools."""
        state, messages, model = agent.state, input_kwargs["messages"], input_kwargs["current_model"]
        if (observer := self._conversations.observer) is not None:
            observer.note(lambda: Request(messages, _summary_in(messages, state)).chats)
            return await next_handler(**input_kwargs)
        request = Request(messages, _summary_in(messages, state))
        session, saved = self._session_of(state), await self._saved(state)
        tools = input_kwargs.get("tools") or []
        others = [schema for schema in tools if not await self._is_own(schema, agent)]
        asked = Asked((name_of(model), others), list(request.chats))
        shown = await self._conversations.view(
            request.chats,
            key=session.name,
            label=session.session_id,
            state=saved,
            with_tools=len(others) < len(tools),
            tools_beside=len(others),
            model=name_of(model),
            own=_own(model, asked),
        )

        asking, last = Asking(self._conversations, shown), Last(None, asked)

        async def send(shown: Shown) -> Answer:
            nonlocal last
            session.shown = shown
            await self._save(state, shown)
            sent = {**input_kwargs, "messages": request.messages_of(shown.messages)}
            if len(others) < len(tools) and not shown.offers_tools:
                sent["tools"] = others
            last = Last({**sent, "messages": [_as_sent(msg) for msg in sent["messages"]]}, asked)
            return await next_handler(**sent)

        async def note(answer: ChatResponse) -> None:
            await asking.taken(_prompt_tokens(answer, model), last)
            await self._save(state, asking.shown)

        answer: Answer = await asking.ask(send)
        if isinstance(answer, AsyncGenerator):
            return _noted(answer, note)
        await note(answer)
        return answer

    # What these are made of

    async def _is_own(self, schema: Mapping[str, Any], agent: Agent) -> bool:
        """Tell whether a tool of a request is one of ours: the agent may have others of these names."""
        name = (schema.get("function") or {}).get("name")
        own = next((tool for tool in self._tools if tool.name == name), None)
        return own is not None and await agent.toolkit.get_tool(own.name) is own

    def _session_of(self, state: AgentState) -> _Session:
        place, sessions = id(state), self._sessions
        found = sessions.get(place)
        if found is None:
            living = weakref.ref(state, lambda _: sessions.pop(place, None) and None)
            found = sessions[place] = _Session(living, state.session_id, f"{state.session_id} {new_id()}")
        return found

    async def _saved(self, state: AgentState) -> Mapping[str, Any]:
        saved: Mapping[str, Any] = state.middle_context.get(await self.get_middleware_key()) or {}
        return saved

    async def _save(self, state: AgentState, shown: Shown) -> None:
        state.middle_context[await self.get_middleware_key()] = shown.state

    def _tool(self, function: Mapping[str, Any]) -> ToolBase:
        name = function["name"]

        async def call(_agent_state: AgentState, **arguments: Any) -> ToolChunk:
            return await self._answer(name, arguments, _agent_state)

        return FunctionTool(
            call,
            name=name,
            description=function["description"],
            input_schema=function["parameters"],
            is_read_only=True,
            is_state_injected=True,
            permission=PermissionDecision(
                behavior=PermissionBehavior.ALLOW, message=f"{name} only reads this conversation."
            ),
        )

    async def _answer(self, name: str, arguments: dict[str, Any], state: AgentState) -> ToolChunk:
        """Run a tool for the agent that has this state."""
        session = self._session_of(state)
        if session.shown is None:  # the call was saved with the state, and is run by another process
            request = Request(state.context)
            saved = await self._saved(state)
            session.shown = await self._conversations.view(
                request.chats, key=session.name, label=session.session_id, state=saved
            )
        answer, attached = await self._conversations.run_tool(session.shown, name, arguments)
        shown = [data_block_of(part) for part in attached["content"]] if attached else []
        if media := [block for block in shown if block is not None]:
            return ToolChunk(content=[*media])
        return ToolChunk(content=[TextBlock(text=answer)])


async def _noted(
    answer: AsyncGenerator[ChatResponse, None], note: Callable[[ChatResponse], Awaitable[None]]
) -> AsyncGenerator[ChatResponse, None]:
    """Yield a streamed answer, and note what it says of tokens."""
    async with aclosing(answer) as chunks:
        async for chunk in chunks:
            if chunk.is_last:
                await note(chunk)
            yield chunk


def _summary_in(messages: list[Msg], state: AgentState) -> Msg | None:
    """Return the message with the summary that AgentScope's own compression wrote, if there is one."""
    if not state.summary or len(messages) < 2 or any(messages[1] is msg for msg in state.context):
        return None
    return messages[1] if messages[1].role == "user" else None


def _prompt_tokens(answer: ChatResponse, model: ChatModelBase) -> int | None:
    usage = answer.usage
    if usage is None:
        return None
    formatter = getattr(model, "formatter", None)
    if isinstance(formatter, AnthropicChatFormatter | AnthropicMultiAgentFormatter):
        # In Anthropic's form what is cached is counted apart.
        cached = (usage.cache_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)
        return usage.input_tokens + cached
    return usage.input_tokens


def _asked(model: ChatModelBase) -> AskedModel:
    return AskedModel(model.model, _asking(model))


def _as_sent(msg: Msg) -> Msg:
    """Return a message as it is now: the agent's reply grows in place."""
    return msg.model_copy(update={"content": [block.model_copy() for block in msg.get_content_blocks()]})


def _own(model: ChatModelBase, asked: Asked) -> Own:
    """Return the model of a call, which asks this."""

    def again(last: Last) -> Ask:
        asked.check_goes_on(last.asked)
        choice = getattr(last.sent.get("tool_choice"), "mode", None)
        check_free(tool_choice=choice not in (None, "auto", "none"))
        return _asking(model, last.sent)

    return Own(model.model, _asking(model), again)


def _asking(model: ChatModelBase, sent: Mapping[str, Any] | None = None) -> Ask:
    """Return what asks a model, apart or behind what was sent."""

    async def ask(instructions: str, asked: str, room: int | None) -> Said:
        prompt, tools = [SystemMsg("system", instructions), UserMsg("user", asked)], None
        if sent is not None:
            prompt, tools = [*sent["messages"], prompt[-1]], sent.get("tools")
        answer = await _in_words(model, room)(prompt, tools)
        if isinstance(answer, AsyncGenerator):
            async with aclosing(answer) as chunks:
                *_, answer = [chunk async for chunk in chunks]  # the last has all
        if answer.finished_reason == FinishedReason.INTERRUPTED:
            raise asyncio.CancelledError  # which AgentScope's models keep to themselves
        text = "".join(block.text for block in answer.content if isinstance(block, TextBlock))
        usage = answer.usage
        counts = (_prompt_tokens(answer, model) or 0, usage.output_tokens) if usage else (0, 0)
        cached = (usage.cache_input_tokens or 0) if usage else 0
        return Said(text, *counts, cached_tokens=cached)

    return ask


def _in_words(model: ChatModelBase, room: int | None) -> ChatModelBase:
    """Return a model that answers in words and has so many tokens for it, and is the given one otherwise."""
    held, made = model.parameters, copy.copy(model)
    said = {
        name: room if name == "max_tokens" else field.get_default(call_default_factory=True)
        for name, field in type(held).model_fields.items()
        if not is_taken_over(name, getattr(held, name))
    }
    made.parameters = held.model_copy(update=said)
    if isinstance(body := getattr(made, "extra_body", None), dict):
        made.extra_body = taken_over(body)  # type: ignore[attr-defined]
    return made
