"""AgentScope's agents, models and formatters against the loopback server, on both wires."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import dashscope
import pytest
from agentscope.agent import ReActAgent
from agentscope.formatter import DashScopeChatFormatter, FormatterBase, OpenAIChatFormatter
from agentscope.memory import InMemoryMemory, MemoryBase
from agentscope.message import Msg
from agentscope.model import ChatModelBase, DashScopeChatModel, OpenAIChatModel
from agentscope.tool import Toolkit
from dashscope.api_entities.aio_session import close_shared_aio_session

from context_compressor import DashScopeSummarizer, OpenAISummarizer, Summarizer
from context_compressor.integrations.agentscope import AgentScopeCompressedMemory, register_offload_tools
from context_compressor.integrations.agentscope.history import AdaptedMemory
from tests.integrations.agents.depot import PROMPT
from tests.support.model_server import ModelServer
from tests.support.provider_tokens import count_request
from tests.support.rendering import render_request

KEY = "test"


@dataclass(frozen=True)
class Wire:
    """A provider, as AgentScope and this library speak to it."""

    name: str
    url: Callable[[ModelServer], str]
    formatter: Callable[[], FormatterBase]
    summarizer_class: Callable[..., Summarizer]

    def __str__(self) -> str:
        return self.name

    def summarizer(self, server: ModelServer) -> Summarizer:
        """Return this library's summarizer of this wire."""
        return self.summarizer_class("scripted", base_url=self.url(server), api_key=KEY)

    @asynccontextmanager
    async def model(self, server: ModelServer, stream: bool = False) -> AsyncIterator[ChatModelBase]:
        """Give AgentScope's model of this wire; what its SDK holds open is closed behind it."""
        if self.name == "openai":
            settings: dict[str, Any] = {"base_url": server.url, "max_retries": 0}
            model = OpenAIChatModel("scripted", KEY, stream=stream, client_kwargs=settings)
            async with model.client:
                yield model
        else:
            # The SDK knows one address only, for the whole process.
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(dashscope, "base_http_api_url", server.dashscope_url)
                try:
                    yield DashScopeChatModel("scripted", KEY, stream=stream)
                finally:
                    await close_shared_aio_session()


OPENAI = Wire("openai", lambda server: server.url, OpenAIChatFormatter, OpenAISummarizer)
DASHSCOPE = Wire(
    "dashscope", lambda server: server.dashscope_url, DashScopeChatFormatter, DashScopeSummarizer
)
WIRES = (OPENAI, DASHSCOPE)
on_every_wire = pytest.mark.parametrize("wire", WIRES, ids=str)
in_every_way = pytest.mark.parametrize(
    ("wire", "stream"), [(OPENAI, True), (DASHSCOPE, False), (OPENAI, False), (DASHSCOPE, True)], ids=str
)

SMALL_BUDGET = 4_000
SMALL_WINDOW = 8_000
"""For the small budget, a system prompt and tools: AgentScope's plan tools alone take 3,000."""
LINES = 20
"""Of a log in small runs, which then takes some 740 tokens."""


class WatchedMemory(AgentScopeCompressedMemory):
    """The memory under test over AgentScope's own, with what was given to it kept apart."""

    def __init__(self, max_total_tokens: int, base: MemoryBase | None = None, **more: Any) -> None:
        super().__init__(max_total_tokens=max_total_tokens, base=base or InMemoryMemory(), **more)
        self.given: list[tuple[dict[str, Any], Any]] = []
        """Every message that was added and not taken away again, and its marks."""

    async def add(self, memories: Any, marks: Any = None, **more: Any) -> None:
        added = [] if memories is None else memories if isinstance(memories, list) else [memories]
        self.given += [(fields_of(msg), marks) for msg in added]
        await super().add(memories, marks, **more)

    async def delete_by_mark(self, mark: Any, *more: Any, **named: Any) -> int:
        self.given = [(msg, marks) for msg, marks in self.given if marks != mark]
        return await super().delete_by_mark(mark, *more, **named)

    async def assert_whole(self) -> None:
        """Fail unless the base holds every message that was given, word for word and in order."""
        base = self.compressed.base
        assert isinstance(base, AdaptedMemory)
        held = await base.wrapped.get_memory(prepend_summary=False)
        assert list(map(fields_of, held)) == [fields for fields, _ in self.given]


def fields_of(msg: Msg) -> dict[str, Any]:
    """Return every field of a message; later changes to it do not show."""
    names = ("id", "name", "role", "content", "metadata", "timestamp", "invocation_id")
    return deepcopy({name: getattr(msg, name) for name in names})


def user(text: str) -> Msg:
    """Return what a user says."""
    return Msg("user", text, "user")


def make_agent(
    wire: Wire, model: ChatModelBase, toolkit: Toolkit, memory: MemoryBase, **more: Any
) -> ReActAgent:
    """Return a quiet agent, with the tools to read back if its memory is one of ours."""
    if isinstance(memory, AgentScopeCompressedMemory):
        register_offload_tools(toolkit, memory)
    settings: dict[str, Any] = {"name": "Ada", "sys_prompt": PROMPT, "formatter": wire.formatter()}
    agent = ReActAgent(model=model, toolkit=toolkit, memory=memory, **(settings | more))
    agent.set_console_output_enabled(False)
    return agent


def sent_tokens(server: ModelServer) -> list[int]:
    """Return what the view cost in each request of an agent, as sent: no system prompt, no tools."""
    return [count_request(request.messages[1:]) for request in server.requests if request.tools]


async def assert_sound(server: ModelServer, *memories: WatchedMemory) -> None:
    """Fail unless nothing was refused, every view was within budget as sent, and histories are whole."""
    for request in server.requests:
        assert not request.refused, render_request(request)
    assert [tokens for tokens in sent_tokens(server) if tokens > memories[0].budget_tokens] == []
    for memory in memories:
        await memory.assert_whole()
