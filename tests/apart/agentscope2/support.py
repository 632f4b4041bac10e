"""Agents of AgentScope 2 against the loopback server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from agentscope.agent import Agent, ContextConfig, ReActConfig
from agentscope.credential import AnthropicCredential, OpenAICredential
from agentscope.message import Msg, ToolResultBlock, UserMsg
from agentscope.model import AnthropicChatModel, ChatModelBase, OpenAIChatModel
from agentscope.permission import PermissionBehavior, PermissionDecision
from agentscope.state import AgentState
from agentscope.tool import FunctionTool, Toolkit

from tests.support.model_server import ModelServer
from tests.support.task import READ_FILE, Workplace

PROMPT = "You look after hosts."
ALLOWED = PermissionDecision(behavior=PermissionBehavior.ALLOW, message="allowed")


def tool(function: Callable[..., Any], schema: dict[str, Any] = READ_FILE) -> FunctionTool:
    own = {"description": schema["description"], "input_schema": schema["parameters"]}
    return FunctionTool(function, name=schema["name"], **own, permission=ALLOWED)


@asynccontextmanager
async def model_of(server: ModelServer, stream: bool = False) -> AsyncIterator[OpenAIChatModel]:
    """Give a model whose client is closed behind it."""
    made = OpenAIChatModel(
        OpenAICredential(api_key="test", base_url=server.url),
        "scripted",
        stream=stream,
        max_retries=0,
        client_kwargs={"max_retries": 0},
    )
    async with made.client:
        yield made


@asynccontextmanager
async def anthropic_model_of(server: ModelServer, stream: bool = False) -> AsyncIterator[AnthropicChatModel]:
    """Give a model of Anthropic's that thinks."""
    made = AnthropicChatModel(
        AnthropicCredential(api_key="test", base_url=server.anthropic_url),
        "scripted",
        AnthropicChatModel.Parameters(thinking_enable=True, thinking_budget=1_024, max_tokens=4_096),
        stream=stream,
        max_retries=0,
    )
    async with made.client:
        yield made


def agent_of(
    model: ChatModelBase,
    middleware: Any = None,
    tools: list[FunctionTool] | None = None,
    state: AgentState | None = None,
    context_config: ContextConfig | None = None,
) -> Agent:
    return Agent(
        "worker",
        PROMPT,
        model,
        Toolkit(tools=tools or []),
        middlewares=[middleware] if middleware else [],
        state=state,
        context_config=context_config,
        react_config=ReActConfig(max_iters=200),
    )


async def ask(agent: Agent, text: str) -> str:
    reply: Msg = await agent.reply(UserMsg("user", text))
    return reply.get_text_content() or ""


def results_in(state: AgentState) -> list[ToolResultBlock]:
    return [block for msg in state.context for block in msg.get_content_blocks("tool_result")]


def output_of(block: ToolResultBlock) -> str:
    held = block.output
    return held if isinstance(held, str) else "".join(getattr(one, "text", "") for one in held)


def reader(place: Workplace) -> FunctionTool:
    return tool(place.read_file)
