"""The agent's own model writes: LangChain, Pydantic AI, OpenAI Agents and AgentScope 1."""

from __future__ import annotations

import asyncio
import json
from functools import wraps
from typing import Any

import pytest
from agents import Agent as SDKAgent
from agents import (
    FunctionTool,
    ModelSettings,
    OpenAIResponsesModel,
    RunConfig,
    RunHooks,
    Runner,
    set_tracing_disabled,
)
from agentscope.agent import ReActAgent
from agentscope.formatter import OpenAIChatFormatter
from agentscope.message import Msg, TextBlock
from agentscope.model import OpenAIChatModel as AgentScopeModel
from agentscope.tool import Toolkit, ToolResponse
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ModelRequest
from langchain_core.callbacks import BaseCallbackHandler, get_usage_metadata_callback
from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI
from openai import AsyncOpenAI
from pydantic_ai import Agent, RunContext
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import RunUsage, UsageLimits

from context_compressor.errors import SummarizerError
from context_compressor.integrations import langchain, openai_agents, pydantic_ai
from context_compressor.integrations.agentscope import AgentScopeCompressedMemory
from context_compressor.integrations.langchain.model import own_model
from context_compressor.integrations.taken import Asked, Last
from tests.support.model_server import ModelServer
from tests.support.own import *  # noqa: F403  # the tests
from tests.support.own import BENT, MODEL, Ran, Rig
from tests.support.task import FUNCTIONS, REQUEST, Workplace

set_tracing_disabled(True)


class Watching(BaseCallbackHandler):
    def __init__(self) -> None:
        self.calls, self.told = 0, list[Any]()

    def on_chat_model_start(self, *_: Any, **__: Any) -> None:
        self.calls += 1

    def on_llm_new_token(self, *told: Any, **_: Any) -> None:
        self.told.append(told)

    def on_llm_end(self, *told: Any, **_: Any) -> None:
        self.told.append(told)


class LangChain:
    takes_names = True
    writes_in_place = True

    async def run(self, server: ModelServer, place: Workplace, *, bent: bool = False, **fields: Any) -> Ran:
        options: Any = (
            {"stop": ["\n\n"], "max_tokens": 40, "extra_body": {"n": 2, "metadata": BENT["metadata"]}}
            if bent
            else {}
        )
        compression = langchain.Compression(**fields)

        class Bends(AgentMiddleware):
            def wrap_model_call(self, request: Any, handler: Any) -> Any:
                sets = {"max_tokens": 50, "store": True, "parallel_tool_calls": False} if bent else {}
                return handler(request.override(model_settings=sets, model=model))

            async def awrap_model_call(self, request: Any, handler: Any) -> Any:
                return await self.wrap_model_call(request, handler)

        watching, inner = Watching(), Watching()
        model = ChatOpenAI(
            model=MODEL,
            base_url=server.url,
            api_key="x",  # type: ignore[arg-type]
            max_retries=0,
            streaming=True,
            stream_usage=True,
            callbacks=[inner],
            **options,
        )
        functions = (place.read_file, place.grep_files, place.query)
        agent = create_agent(
            model.model_copy(update={"model_name": "another"}),
            [StructuredTool.from_function(one) for one in functions],
            middleware=[Bends(), compression],
        )
        config: Any = {"callbacks": [watching], "recursion_limit": 500}
        modes: Any = ["messages", "updates", "custom", "values"]
        given: Any = {"messages": [("user", REQUEST)]}
        with get_usage_metadata_callback() as counting:
            if fields.get("summarizer") == "own":
                streamed = agent.stream(given, config, stream_mode=modes)
                heard = await asyncio.to_thread(lambda: list(streamed))
            else:
                heard = [one async for one in agent.astream(given, config, stream_mode=modes)]
        counts = [one.usage_metadata["total_tokens"] for one in heard[-1][1]["messages"] if one.type == "ai"]
        assert counting.usage_metadata[MODEL]["total_tokens"] == sum(counts)
        assert inner.calls == watching.calls
        return Ran(compression.stats(), f"{heard} {watching.told}", watching.calls)


class PydanticAI:
    takes_names = True
    writes_in_place = True

    async def run(self, server: ModelServer, place: Workplace, *, bent: bool = False, **fields: Any) -> Ran:
        heard: list[Any] = []

        async def listen(ctx: RunContext[Any], events: Any) -> None:
            heard.extend([event async for event in events])

        named = fields.get("summarizer")
        if isinstance(named, str) and ":" in named:
            fields["summarizer"] = named.replace("openai:", "openai-chat:")
        compression, usage = pydantic_ai.Compression(**fields), RunUsage()
        inner: Any = {"stop_sequences": ["\n\n"], "max_tokens": 50} if bent else {}
        outer: Any = {"openai_store": True, "parallel_tool_calls": True} if bent else {}
        async with AsyncOpenAI(base_url=server.url, api_key="x", max_retries=0) as client:
            model = OpenAIChatModel(MODEL, provider=OpenAIProvider(openai_client=client), settings=inner)
            agent = Agent(
                model,
                tools=[place.read_file, place.grep_files, place.query],
                capabilities=[compression],
                model_settings=outer,
            )
            await agent.run(
                REQUEST, event_stream_handler=listen, usage=usage, usage_limits=UsageLimits(request_limit=12)
            )
        return Ran(compression.stats(), str(heard), usage.requests)


class OpenAIAgents:
    takes_names = True
    writes_in_place = False

    async def run(self, server: ModelServer, place: Workplace, *, bent: bool = False, **fields: Any) -> Ran:
        class Hooks(RunHooks[Any]):
            calls = 0

            async def on_llm_start(self, *_: Any, **__: Any) -> None:
                self.calls += 1

        def tool(said: Any) -> FunctionTool:
            async def invoke(_: Any, arguments: str) -> str:
                return place.run(said["name"], json.loads(arguments))

            return FunctionTool(said["name"], said["description"], said["parameters"], invoke)

        named = fields.get("summarizer")
        if isinstance(named, str):
            fields["summarizer"] = named.removeprefix("openai:")
        settings = ModelSettings(max_tokens=50, metadata=BENT["metadata"], store=True, tool_choice="auto")
        async with AsyncOpenAI(base_url=server.url, api_key="x", max_retries=0) as client:
            compression = openai_agents.Compression(**fields)
            agent = SDKAgent(
                "A",
                model=OpenAIResponsesModel(MODEL, client),
                tools=[*map(tool, FUNCTIONS), *compression.tools],
                model_settings=settings if bent else ModelSettings(),
            )
            hooks = Hooks()
            config = RunConfig(call_model_input_filter=compression)
            result = Runner.run_streamed(agent, REQUEST, max_turns=200, run_config=config, hooks=hooks)
            heard = [event async for event in result.stream_events()]
            assert result.context_wrapper.usage.requests == hooks.calls
        return Ran(compression.stats(), str(heard), hooks.calls)


def _responding(function: Any) -> Any:
    @wraps(function)
    async def call(*args: Any, **kwargs: Any) -> ToolResponse:
        return ToolResponse(content=[TextBlock(type="text", text=function(*args, **kwargs))])

    call.__annotations__ = {**call.__annotations__, "return": ToolResponse}
    return call


class AgentScope:
    takes_names = False
    writes_in_place = False

    async def run(self, server: ModelServer, place: Workplace, *, bent: bool = False, **fields: Any) -> Ran:
        settings: Any = {"base_url": server.url, "max_retries": 0}
        model = AgentScopeModel(
            MODEL, "x", stream=True, client_kwargs=settings, generate_kwargs=dict(BENT) if bent else None
        )
        toolkit = Toolkit()
        for function in (place.read_file, place.grep_files, place.query):
            toolkit.register_tool_function(_responding(function))
        given = None if callable(getattr(fields.get("summarizer"), "summarize", None)) else model
        async with model.client:
            memory = AgentScopeCompressedMemory(given, **fields)
            agent = ReActAgent("A", "Be brief.", model, OpenAIChatFormatter(), toolkit, memory, max_iters=200)
            agent.set_console_output_enabled(enabled=False)
            await agent(Msg("user", REQUEST, "user"))
            await memory.close()
        return Ran(memory.stats())


@pytest.fixture(params=[LangChain, PydanticAI, OpenAIAgents, AgentScope], ids=lambda one: one.__name__)
def rig(request: pytest.FixtureRequest) -> Rig:
    made: Rig = request.param()
    return made


def test_a_request_that_forces_its_answer_or_was_another_is_not_sent_again() -> None:
    model = ChatOpenAI(model=MODEL, api_key="x")  # type: ignore[arg-type]
    wires = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hi."}]
    asked = Asked((MODEL, None, []), wires)
    request: Any = ModelRequest(model=model, messages=[])
    again = own_model(request, asked).again
    assert again is not None
    assert again(Last(request, asked._replace(listed=wires[:1])))
    for last in (
        Last(request.override(tool_choice="any"), asked),
        Last(request.override(model_settings={"tool_choice": {"type": "tool", "name": "t"}}), asked),
        Last(request.override(response_format=dict), asked),
        Last(request, asked._replace(listed=[*wires, wires[0]])),
        Last(request, asked._replace(listed=[{"role": "user", "content": "I am another."}])),
        Last(request, asked._replace(beside=(MODEL, "Other rules.", []))),
    ):
        with pytest.raises(SummarizerError, match="the last request cannot be sent again: its"):
            again(last)
