"""Frameworks as the tests of adapters drive them: each runs an agent through its own SDK."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from agents import (
    Agent as SDKAgent,
)
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
from langchain.agents.middleware import AgentMiddleware
from langchain_core.callbacks import BaseCallbackHandler, get_usage_metadata_callback
from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from openai import AsyncOpenAI, OpenAI
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import RunContext
from pydantic_ai import Tool as PydanticTool
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import RunUsage, UsageLimits

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else it fetches a list as it is imported
import litellm
from litellm.integrations.custom_logger import CustomLogger

from context_compressor.integrations import langchain, openai_agents, pydantic_ai
from context_compressor.integrations.agentscope import AgentScopeCompressedMemory
from context_compressor.integrations.litellm import Compression as LiteLLMCompression
from tests.support.behaviours import BENT, Agent, Rig, Setup, Tool

set_tracing_disabled(True)
litellm.suppress_debug_info = True

MANY_TURNS = 200


# LangChain


class Watching(BaseCallbackHandler):
    """What a caller's callbacks are told, but of what the agent's model is asked: the view."""

    def __init__(self) -> None:
        self.calls, self.told = 0, list[Any]()

    def on_chat_model_start(self, *_: Any, **__: Any) -> None:
        self.calls += 1

    def on_llm_new_token(self, *told: Any, **_: Any) -> None:
        self.told.append(told)

    def on_llm_end(self, *told: Any, **_: Any) -> None:
        self.told.append(told)

    def on_chain_end(self, *told: Any, **_: Any) -> None:
        self.told.append(told)


def checkpoints(saver: InMemorySaver) -> Any:
    """Return what a saver holds, all of it serialized."""
    storage = {
        thread: {ns: dict(held) for ns, held in found.items()} for thread, found in saver.storage.items()
    }
    return storage, {key: dict(held) for key, held in saver.writes.items()}, dict(saver.blobs)


def saver_of(held: Any) -> InMemorySaver:
    saver = InMemorySaver()
    storage, writes, blobs = held
    for thread, found in storage.items():
        saver.storage[thread].update(found)
    for key, found in writes.items():
        saver.writes[key].update(found)
    saver.blobs.update(blobs)
    return saver


class Bends(AgentMiddleware):
    """Set a request's model and settings before the views are made."""

    def __init__(self, model: Any, settings: dict[str, Any]) -> None:
        self._made = {"model": model, "model_settings": settings}

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(request.override(**self._made))

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        return await self.wrap_model_call(request, handler)


@dataclass
class LangChainAgent(Agent):
    graph: Any = None
    saver: Any = None
    watching: Watching = field(default_factory=Watching)
    config: Any = None

    async def ask(self, text: str) -> str:
        given: Any = {"messages": [("user", text)]}
        modes: Any = ["messages", "updates", "custom", "values", "tasks", "checkpoints", "debug"]
        before = len((await self.graph.aget_state(self.config)).values.get("messages", ()))
        with get_usage_metadata_callback() as counting:
            if self.how == "whole":
                await self.graph.ainvoke(given, self.config)
            elif self.how == "blocking":
                streamed = self.graph.stream(given, self.config, stream_mode=modes)
                self.heard += await asyncio.to_thread(lambda: list(streamed))
            else:
                self.heard += [one async for one in self.graph.astream(given, self.config, stream_mode=modes)]
        messages = (await self.graph.aget_state(self.config)).values["messages"]
        counts = [one.usage_metadata["total_tokens"] for one in messages[before:] if one.type == "ai"]
        if self.how != "whole":
            assert sum(one["total_tokens"] for one in counting.usage_metadata.values()) == sum(counts)
        self.calls, self.heard[len(self.heard) :] = self.watching.calls, self.watching.told
        return str(messages[-1].text)

    async def told(self) -> list[str]:
        return [str(one.text) for one in (await self.graph.aget_state(self.config)).values["messages"]]

    async def save(self) -> Any:
        return pickle.loads(pickle.dumps(checkpoints(self.saver)))


class LangChain(Rig):
    keeps_states = False  # the checkpointer has them; the adapter takes them all the same
    blocks = True

    def __init__(self, responses: str | None = None) -> None:
        self.thinks = responses is not None
        self._held: Any = {"use_responses_api": True, "output_version": responses} if responses else {}

    def adapter(self, **options: Any) -> Any:
        return langchain.Compression(**options)

    @asynccontextmanager
    async def agent(self, to: Setup) -> AsyncIterator[Agent]:
        said = {"stop": ["\n\n"], "max_tokens": 40, "extra_body": {"n": 2, "metadata": BENT["metadata"]}}
        used = ChatOpenAI(
            model=to.model,
            base_url=to.server.url,
            api_key="x",  # type: ignore[arg-type]
            max_retries=0,
            streaming=to.how != "whole",
            stream_usage=True,
            **self._held,
            **(said if to.bent else {}),
        )
        settings = {"max_tokens": 50, "store": True, "parallel_tool_calls": False} if to.bent else {}
        saver, watching = InMemorySaver() if to.saved is None else saver_of(to.saved), Watching()
        graph = create_agent(
            used.model_copy(update={"model_name": "another"}),
            [_structured(one) for one in to.tools],
            middleware=[Bends(used, settings), *([] if to.adapter is None else [to.adapter])],
            checkpointer=saver,
            system_prompt="Be brief.",
        )
        config = {"callbacks": [watching], "recursion_limit": 500, "configurable": {"thread_id": "t"}}
        yield LangChainAgent(to.how, to.adapter, graph=graph, saver=saver, watching=watching, config=config)


def _structured(one: Tool) -> StructuredTool:
    async def call(**arguments: Any) -> str:
        return await one.call(arguments)

    def blocking(**arguments: Any) -> str:
        return asyncio.run(one.call(arguments))

    return StructuredTool(
        name=one.name, description=one.description, args_schema=one.parameters, coroutine=call, func=blocking
    )


# Pydantic AI


@dataclass
class PydanticAIAgent(Agent):
    made: Any = None
    history: list[ModelMessage] = field(default_factory=list)
    usage: RunUsage = field(default_factory=RunUsage)

    async def ask(self, text: str) -> str:
        async def listen(ctx: RunContext[Any], events: Any) -> None:
            self.heard.extend([event async for event in events])

        handler: Any = listen if self.how == "streamed" else None
        limits = UsageLimits(request_limit=MANY_TURNS)
        result = await self.made.run(
            text,
            message_history=self.history,
            event_stream_handler=handler,
            usage=self.usage,
            usage_limits=limits,
        )
        self.calls = self.usage.requests
        self.history = result.all_messages()
        return str(result.output)

    async def told(self) -> list[str]:
        return [str(getattr(part, "content", "")) for one in self.history for part in one.parts]

    async def save(self) -> Any:
        return ModelMessagesTypeAdapter.dump_json(self.history)


class PydanticAI(Rig):
    thinks = True

    def __init__(self, kind: Any = OpenAIChatModel) -> None:
        self._kind = kind

    def adapter(self, **options: Any) -> Any:
        named = options.get("summarizer")
        if isinstance(named, str) and ":" in named:
            options["summarizer"] = named.replace("openai:", "openai-chat:")
        return pydantic_ai.Compression(**options)

    @asynccontextmanager
    async def agent(self, to: Setup) -> AsyncIterator[Agent]:
        inner: Any = {"stop_sequences": ["\n\n"], "max_tokens": 50} if to.bent else {}
        outer: Any = {"openai_store": True, "parallel_tool_calls": True} if to.bent else {}
        provider = OpenAIProvider(base_url=to.server.url, api_key="x")
        provider.client.max_retries = 0
        used = self._kind(to.model, provider=provider, settings=inner)
        made: Any = PydanticAgent(
            used,
            tools=[_from_schema(one) for one in to.tools],
            capabilities=[] if to.adapter is None else [to.adapter],
            model_settings=outer,
            instructions="Be thorough.",
        )
        history = [] if to.saved is None else ModelMessagesTypeAdapter.validate_json(to.saved)
        yield PydanticAIAgent(to.how, to.adapter, made=made, history=history)
        async with used:  # which closes what it opened
            pass


def _from_schema(one: Tool) -> PydanticTool[Any]:
    async def call(**arguments: Any) -> str:
        return await one.call(arguments)

    return PydanticTool.from_schema(call, one.name, one.description, one.parameters)


# OpenAI Agents


class Hooks(RunHooks[Any]):
    calls = 0

    async def on_llm_start(self, *_: Any, **__: Any) -> None:
        self.calls += 1


@dataclass
class OpenAIAgentsAgent(Agent):
    made: Any = None
    said: list[Any] = field(default_factory=list)
    hooks: Hooks = field(default_factory=Hooks)

    async def ask(self, text: str) -> str:
        given = [*self.said, {"role": "user", "content": text}]
        config = RunConfig(call_model_input_filter=self.adapter)
        options: Any = {"max_turns": MANY_TURNS, "run_config": config, "hooks": self.hooks}
        before = self.hooks.calls
        if self.how == "streamed":
            result: Any = Runner.run_streamed(self.made, given, **options)
            self.heard += [event async for event in result.stream_events()]
        else:
            result = await Runner.run(self.made, given, **options)
        assert result.context_wrapper.usage.requests == self.hooks.calls - before
        self.calls, self.said = self.hooks.calls, result.to_input_list()
        return str(result.final_output)

    async def told(self) -> list[str]:
        texts = [one.get("output") or one.get("content") for one in self.said]
        return [one if isinstance(one, str) else one[0].get("text", "") for one in texts if one]

    async def save(self) -> Any:
        return json.dumps(self.said)


class OpenAIAgents(Rig):
    writes_in_place = False
    takes_ids_again = False

    def __init__(self, kind: Any = OpenAIResponsesModel) -> None:
        self._kind = kind
        self.thinks = kind is OpenAIResponsesModel

    def adapter(self, **options: Any) -> Any:
        named = options.get("summarizer")
        if isinstance(named, str):
            options["summarizer"] = named.removeprefix("openai:")
        return openai_agents.Compression(**options)

    @asynccontextmanager
    async def agent(self, to: Setup) -> AsyncIterator[Agent]:
        settings = ModelSettings(max_tokens=50, metadata=BENT["metadata"], store=True, tool_choice="auto")
        async with AsyncOpenAI(base_url=to.server.url, api_key="x", max_retries=0) as client:
            used = self._kind(to.model, client)
            made = SDKAgent(
                "A",
                instructions="Work.",
                model=used if to.adapter is None else to.adapter.model(used),
                tools=[*map(_function_tool, to.tools), *([] if to.adapter is None else to.adapter.tools)],
                model_settings=settings if to.bent else ModelSettings(),
            )
            said = [] if to.saved is None else json.loads(to.saved)
            yield OpenAIAgentsAgent(to.how, to.adapter, made=made, said=said)


def _function_tool(one: Tool) -> FunctionTool:
    async def invoke(_: Any, arguments: str) -> str:
        return await one.call(json.loads(arguments))

    return FunctionTool(one.name, one.description, one.parameters, invoke, strict_json_schema=False)


# LiteLLM


class Hearing(CustomLogger):
    """Take note of what LiteLLM's worker tells of calls, in its own time."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Any] = []
        self._ended: dict[str, asyncio.Event] = {}

    async def async_log_success_event(self, kwargs: Any, response_obj: Any, *_: Any, **__: Any) -> None:
        self.told.append((response_obj, kwargs["messages"][0]["content"]))
        self._ended.setdefault(kwargs["litellm_call_id"], asyncio.Event()).set()

    async def hear_of(self, call_id: str) -> None:
        await asyncio.wait_for(self._ended.setdefault(call_id, asyncio.Event()).wait(), 60)


HEARING = Hearing()
"""One for all agents: of several of a class LiteLLM tells the first alone."""


@dataclass
class LiteLLMAgent(Agent):
    tools: Sequence[Tool] = ()
    said: list[Any] = field(default_factory=list)
    request: Any = None

    async def ask(self, text: str) -> str:
        self.said.append({"role": "user", "content": text})
        functions = [
            {
                "type": "function",
                "function": {"name": t.name, "description": t.description, "parameters": t.parameters},
            }
            for t in self.tools
        ]
        runs = {one.name: one for one in self.tools}
        while True:
            litellm.callbacks = [HEARING] if self.adapter is None else [self.adapter, HEARING]
            request = {**self.request, "messages": self.said, "litellm_call_id": str(uuid4())}
            answer = await self._answer(request | ({"tools": functions} if functions else {}))
            await HEARING.hear_of(request["litellm_call_id"])
            self.said.append(answer)
            if not answer.get("tool_calls"):
                self.heard[:] = HEARING.told
                return str(answer["content"])
            for call in answer["tool_calls"]:
                named = runs[call["function"]["name"]]
                try:
                    result = await named.call(json.loads(call["function"]["arguments"]))
                except (OSError, ValueError) as error:
                    result = f"Error: {error}"
                self.said.append({"role": "tool", "tool_call_id": call["id"], "content": result})

    async def _answer(self, request: Any) -> Any:
        if self.how != "streamed":
            made: Any = await litellm.acompletion(**request)
        else:
            options = {"include_usage": True}
            stream: Any = await litellm.acompletion(stream=True, stream_options=options, **request)
            made = litellm.stream_chunk_builder([one async for one in stream])
        held: dict[str, Any] = made.choices[0].message.model_dump(exclude_none=True)
        return held

    async def told(self) -> list[str]:
        return [str(one.get("content") or "") for one in self.said]

    async def save(self) -> Any:
        return json.dumps(self.said)


class LiteLLM(Rig):
    writes_in_place = False
    has_tools = False
    mends = False  # whoever calls it says how often it is tried, and where

    def adapter(self, **options: Any) -> Any:
        named = options.get("summarizer")
        if isinstance(named, str):
            options["summarizer"] = named.replace(":", "/")
        if options.get("tools") is True:
            del options["tools"]
        return LiteLLMCompression(**options)

    @asynccontextmanager
    async def agent(self, to: Setup) -> AsyncIterator[Agent]:
        request = {"model": f"openai/{to.model}", "api_base": to.server.url, "api_key": "x", "max_retries": 0}
        more: Any = {"stop": ["END"], "max_tokens": 50, "metadata": {"session_id": "ada"}} if to.bent else {}
        said = [] if to.saved is None else json.loads(to.saved)
        HEARING.told.clear()
        used = {**request, **more}
        yield LiteLLMAgent(to.how, to.adapter, calls=None, tools=to.tools, said=said, request=used)


async def settled() -> None:
    """Let LiteLLM's worker tell of what was answered."""
    from litellm.litellm_core_utils.logging_worker import GLOBAL_LOGGING_WORKER

    await GLOBAL_LOGGING_WORKER.flush()


async def forget() -> None:
    """Leave neither callbacks nor LiteLLM's own worker and clients behind."""
    from litellm.litellm_core_utils.logging_worker import GLOBAL_LOGGING_WORKER

    names = ("success_callback", "failure_callback", "_async_success_callback", "_async_failure_callback")
    for name in ("callbacks", "input_callback", *names):
        setattr(litellm, name, [])
    await GLOBAL_LOGGING_WORKER.stop()
    await litellm.close_litellm_async_clients()
    for client in litellm.in_memory_llm_clients_cache.cache_dict.values():
        if isinstance(client, OpenAI):
            client.close()
    litellm.in_memory_llm_clients_cache.flush_cache()


# AgentScope 1


@dataclass
class AgentScopeAgent(Agent):
    made: Any = None

    async def ask(self, text: str) -> str:
        reply = await self.made(Msg("user", text, "user"))
        return str(reply.get_text_content())

    async def told(self) -> list[str]:
        memory = self.made.memory
        held = await (memory.get_memory() if self.adapter is None else memory.get_history())
        return [_text_of(block) for msg in held for block in msg.get_content_blocks()]

    async def save(self) -> Any:
        return json.dumps(self.made.state_dict())


def _text_of(block: Any) -> str:
    output = block.get("output", block.get("text", ""))
    return output if isinstance(output, str) else "".join(one.get("text", "") for one in output)


class AgentScope(Rig):
    takes_names = False
    writes_in_place = False
    mends = False  # the agent's next view is smaller
    keeps_states = False
    most_tools = 123  # ours are five here, with `compress_context`

    def adapter(self, **options: Any) -> Any:
        if options.get("summarizer") != "own":
            AgentScopeCompressedMemory(**options)  # what is wrong is told now
        return options

    @asynccontextmanager
    async def agent(self, to: Setup) -> AsyncIterator[Agent]:
        settings: Any = {"base_url": to.server.url, "max_retries": 0}
        used: Any = AgentScopeModel(
            to.model,
            "x",
            stream=to.how == "streamed",
            client_kwargs=settings,
            generate_kwargs=dict(BENT) if to.bent else None,
        )
        toolkit = Toolkit()
        for one in to.tools:
            function = {"name": one.name, "description": one.description, "parameters": one.parameters}
            toolkit.register_tool_function(
                _responding(one), json_schema={"type": "function", "function": function}
            )
        given = None if callable(getattr((to.adapter or {}).get("summarizer"), "summarize", None)) else used
        async with used.client:
            memory: Any = None
            if to.adapter is not None:
                memory = AgentScopeCompressedMemory(given, toolkit=toolkit, **to.adapter)
                used = memory.counted(used)
            made = ReActAgent(
                "A", "Be brief.", used, OpenAIChatFormatter(), toolkit, memory, max_iters=MANY_TURNS
            )
            made.set_console_output_enabled(enabled=False)
            if to.saved is not None:
                made.load_state_dict(json.loads(to.saved))
            yield AgentScopeAgent(to.how, memory, calls=None, made=made)
            if memory is not None:
                await memory.close()


def _responding(one: Tool) -> Any:
    async def call(**arguments: Any) -> ToolResponse:
        return ToolResponse(content=[TextBlock(type="text", text=await one.call(arguments))])

    call.__name__ = one.name
    return call
