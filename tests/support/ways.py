"""Ways out: a history goes through a memory, a wrapped client or a framework, and what is sent is caught.

The real SDKs write the bodies; nothing listens, so that thousands go by in a minute. `Sent.messages` is what
the provider would read, for the rules and the counter that know nothing of the library.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import anthropic
import httpx2
import openai
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage, convert_to_messages
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_openai import ChatOpenAI
from pydantic_ai import Agent
from pydantic_ai.messages import (
    BinaryContent,
    DocumentUrl,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.native_tools import CodeExecutionTool, WebFetchTool, WebSearchTool
from pydantic_ai.native_tools._tool_search import ToolSearchTool
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from context_compressor import CompressedMemory, InMemoryOffloadStore, TiktokenCounter
from context_compressor.integrations import langchain, pydantic_ai
from context_compressor.integrations.anthropic import compressed as compressed_anthropic
from context_compressor.integrations.anthropic import stats_of
from context_compressor.integrations.openai import compressed as compressed_openai
from context_compressor.laws.anthropic_shapes import BLOCKS

Dict = dict[str, Any]
History = list[Dict]

_OK: Dict = {"type": "text", "text": "ok"}
_GO_ON = "Go on."


@dataclass(frozen=True)
class Sent:
    """What went out for a history."""

    messages: History
    system: Any
    counted: int
    """Tokens of the view, as `stats()` tells them."""
    said: History | None = None
    """The history as the framework sends it where nothing has left; None: as it is."""


class Way(Protocol):
    """One conversation's way out; each history goes on where the one before ended."""

    async def send(self, history: History) -> Sent: ...


@dataclass
class _Caught:
    """Answers for a provider, and keeps the last body."""

    form: str
    body: Dict = field(default_factory=dict)
    says: list[Dict] = field(default_factory=list)
    """What the next reply holds."""
    number: int = 0
    replies: dict[str, Any] = field(default_factory=dict)
    """Replies as the framework reads them: it holds the same ones when a conversation goes on."""

    async def reply(self, at: int, says: list[Dict], ask: Callable[[], Awaitable[Any]]) -> Any:
        """Return the reply at a place of the history, asked for once."""
        key = json.dumps([at, says])
        if key not in self.replies:
            self.says = says
            self.replies[key] = await ask()
        return self.replies[key]

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        self.body = json.loads(request.content)
        said, self.says = self.says, []
        self.number += 1
        if self.form == "anthropic":
            head = {"id": f"msg_{self.number}", "type": "message", "role": "assistant", "model": "m"}
            usage = {"input_tokens": 0, "output_tokens": 1}
            end = {"stop_reason": "end_turn", "stop_sequence": None, "usage": usage}
            return httpx2.Response(200, json={**head, "content": said or [_OK], **end})
        text = {"type": "output_text", "text": "ok", "annotations": []}
        message = {
            "type": "message",
            "id": "m",
            "role": "assistant",
            "status": "completed",
            "content": [text],
        }
        head = {"id": f"resp_{self.number}", "object": "response", "created_at": 0, "model": "m"}
        if self.form == "chat":
            [reply] = said or [{"role": "assistant", "content": "ok"}]
            choice = {"index": 0, "finish_reason": "stop", "message": reply}
            head = {"id": f"chat_{self.number}", "object": "chat.completion", "created": 0, "model": "m"}
            return httpx2.Response(200, json={**head, "choices": [choice]})
        set_ = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
        return httpx2.Response(200, json={**head, **set_, "status": "completed", "output": said or [message]})

    async def answer_later(self, request: httpx2.Request) -> httpx2.Response:
        return self.answer(request)

    def anthropic(self) -> anthropic.AsyncAnthropic:
        http = httpx2.AsyncClient(transport=httpx2.MockTransport(self.answer_later))
        return anthropic.AsyncAnthropic(api_key="key", max_retries=0, http_client=http)

    def openai(self) -> openai.AsyncOpenAI:
        http = httpx2.AsyncClient(transport=httpx2.MockTransport(self.answer_later))
        return openai.AsyncOpenAI(api_key="key", max_retries=0, http_client=http)

    def sent(self) -> tuple[History, Any]:
        if self.form == "anthropic":
            return self.body["messages"], self.body.get("system")
        if self.form == "chat":
            return self.body["messages"], None
        return self.body["input"], self.body.get("instructions")


class Core:
    """The memory itself."""

    def __init__(self, form: str, budget: int, counter: TiktokenCounter) -> None:
        self._form: Any = form
        store = InMemoryOffloadStore()
        self._memory = CompressedMemory(max_total_tokens=budget, store=store, counter=counter)

    async def send(self, history: History) -> Sent:
        view = await self._memory.view(history, form=self._form)
        return Sent(view, None, self._memory.stats().view_tokens)


class Client:
    """A wrapped client."""

    def __init__(self, form: str, budget: int, counter: TiktokenCounter) -> None:
        self._caught = _Caught(form)
        options: Dict = {"max_total_tokens": budget, "counter": counter}
        self._client: Any
        if form == "anthropic":
            self._client = compressed_anthropic(self._caught.anthropic(), **options)
        else:
            self._client = compressed_openai(self._caught.openai(), **options)

    async def send(self, history: History) -> Sent:
        if self._caught.form == "anthropic":
            await self._client.messages.create(model="m", max_tokens=9, messages=history)
        elif self._caught.form == "chat":
            await self._client.chat.completions.create(model="m", messages=history)
        else:
            await self._client.responses.create(model="m", input=history)
        stats = stats_of(self._client)
        return Sent(*self._caught.sent(), stats.view_tokens)


# LangChain


class _Anthropic(BaseChatModel):
    """Keeps what it is handed; its own package, which would write the body, is not among the tests' needs."""

    caught: Any
    _llm_type = "caught"

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **options: Any) -> ChatResult:
        self.caught.body = {"messages": _as_anthropic(messages)}
        return ChatResult(generations=[ChatGeneration(message=AIMessage("ok"))])


class LangChain:
    """An agent of LangChain's."""

    def __init__(self, form: str, budget: int, counter: TiktokenCounter) -> None:
        self._caught = _Caught(form)
        model: Any = _Anthropic(caught=self._caught)
        if form != "anthropic":
            http = httpx2.AsyncClient(transport=httpx2.MockTransport(self._caught.answer_later))
            held: Dict = {"use_responses_api": False}
            if form == "responses":
                held = {"use_responses_api": True, "output_version": "responses/v1"}
            model = ChatOpenAI(model="gpt-5", api_key="key", max_retries=0, http_async_client=http, **held)
        self._model = model
        compression = langchain.Compression(max_total_tokens=budget, counter=counter, summarizer="rules")
        self._stats = compression.stats
        self._plain = create_agent(model)
        self._agent = create_agent(model, middleware=[compression])

    async def send(self, history: History) -> Sent:
        if self._caught.form == "anthropic":
            messages = list(_from_anthropic(history))
        elif self._caught.form == "chat":
            messages = convert_to_messages(history)
        else:
            messages = [one async for one in self._from_responses(history)]
        await self._plain.ainvoke({"messages": messages})
        said, _ = self._caught.sent()
        await self._agent.ainvoke({"messages": messages})
        stats = self._stats()
        return Sent(*self._caught.sent(), stats.view_tokens, said)

    async def _from_responses(self, history: History) -> Any:
        ask = partial(self._model.ainvoke, [HumanMessage("Say it.")])
        for at, (says, item) in enumerate(_turns_of(history)):
            if says:
                yield await self._caught.reply(at, says, ask)
            elif str(item.get("type")).endswith("_output"):
                kind = item["type"]
                output = _told(item["output"])
                custom: Any = [{"type": kind, "output": output}] if kind.startswith("custom") else output
                yield ToolMessage(custom, tool_call_id=item["call_id"])
            else:
                yield HumanMessage(item["content"])


def _from_anthropic(history: History) -> Iterator[BaseMessage]:
    for message in history:
        content = message["content"]
        if message["role"] == "assistant":
            calls = [block for block in _blocks(content) if block["type"] == "tool_use"]
            held = [{"name": one["name"], "args": one["input"], "id": one["id"]} for one in calls]
            yield AIMessage(content, tool_calls=held)
            continue
        blocks = _blocks(content)
        for block in blocks:
            if block["type"] == "tool_result":
                status = "error" if block.get("is_error") else "success"
                content = block.get("content") or ""
                if isinstance(content, str) or not all(one.get("text", ".").strip() for one in content):
                    content = _told(content)
                yield ToolMessage(content, tool_call_id=block["tool_use_id"], status=status)
        if rest := [block for block in blocks if block["type"] != "tool_result"]:
            yield HumanMessage(content if isinstance(content, str) else rest)


def _as_anthropic(messages: Sequence[BaseMessage]) -> History:
    """Return messages as LangChain's own package for Anthropic writes them."""
    written: History = []
    for message in messages:
        blocks = [block for block in _blocks(message.content) if block.get("text") != ""]
        role = "assistant" if isinstance(message, AIMessage) else "user"
        if isinstance(message, AIMessage):
            known = {block.get("id") for block in blocks}
            calls = [call for call in message.tool_calls if call["id"] not in known]
            blocks += [
                {"type": "tool_use", "id": call["id"], "name": call["name"], "input": call["args"]}
                for call in calls
            ]
        if isinstance(message, ToolMessage):
            result = {"type": "tool_result", "tool_use_id": message.tool_call_id, "content": blocks}
            blocks = [result | ({"is_error": True} if message.status == "error" else {})]
        if written and written[-1]["role"] == role == "user":
            written[-1]["content"] += blocks
        else:
            written.append({"role": role, "content": blocks})
    return written


def _blocks(content: Any) -> list[Dict]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


_CALLS = ("function_call", "custom_tool_call")
_HOSTED = ("web_search_call", "file_search_call", "code_interpreter_call", "mcp_call")


def _turns_of(history: History) -> Iterator[tuple[list[Dict], Dict]]:
    """Yield what a response held, or an item of the client's, without kinds that frameworks do not take."""
    says: list[Dict] = []
    number = 0
    programs = {one["call_id"] for one in history if one.get("caller", {}).get("type") == "program"}
    for item in history:
        kind = item.get("type", "message")
        if item.get("call_id") in programs:
            continue
        if kind == "message" and item["role"] == "assistant":
            content = _blocks(item["content"])
            parts = [{**part, "type": "output_text"} if part["type"] == "text" else part for part in content]
            parts = [{"annotations": [], **part} for part in parts]
            number += 1
            held = {"id": f"msg_{number}", "status": "completed", **item, "type": "message"}
            says.append({**held, "content": parts})
        elif kind == "message" or kind in [f"{one}_output" for one in _CALLS]:
            if says:
                yield says, {}
            says = []
            yield [], item
        elif kind in (*_CALLS, *_HOSTED, "reasoning", "compaction"):
            says.append(item)
    if says:
        yield says, {}


# Pydantic AI


class PydanticAI:
    """An agent of Pydantic AI's."""

    def __init__(self, form: str, budget: int, counter: TiktokenCounter) -> None:
        self._caught = _Caught(form)
        self._model: Model
        if form == "anthropic":
            held = AnthropicProvider(anthropic_client=self._caught.anthropic())
            self._model = AnthropicModel("claude-sonnet-4-5", provider=held)
        else:
            provider = OpenAIProvider(openai_client=self._caught.openai())
            kind = OpenAIChatModel if form == "chat" else OpenAIResponsesModel
            self._model = kind("gpt-5", provider=provider)
        compression = pydantic_ai.Compression(max_total_tokens=budget, counter=counter, summarizer="rules")
        self._stats = compression.stats
        self._plain = Agent(self._model, model_settings={"max_tokens": 9})
        self._agent = Agent(self._model, capabilities=[compression], model_settings={"max_tokens": 9})

    async def send(self, history: History) -> Sent:
        read = {"anthropic": self._of_anthropic, "responses": self._of_responses, "chat": self._of_chat}
        made = read[self._caught.form](history)
        messages: list[ModelMessage] = [one async for one in made]
        prompt = _GO_ON if isinstance(messages[-1], ModelResponse) else None
        await self._plain.run(prompt, message_history=messages)
        said, _ = self._caught.sent()
        await self._agent.run(prompt, message_history=messages)
        stats = self._stats()
        return Sent(*self._caught.sent(), stats.view_tokens, said)

    async def _reply(self, at: int, says: list[Dict]) -> ModelResponse:
        asked: list[ModelMessage] = [ModelRequest([UserPromptPart("Say it.")])]
        tools: list[Any] = [] if self._caught.form == "chat" else [WebSearchTool(), CodeExecutionTool()]
        if self._caught.form == "anthropic":
            tools += [WebFetchTool(), ToolSearchTool(strategy="bm25")]
        hosted = ModelRequestParameters(native_tools=tools)
        ask = partial(self._model.request, asked, {"max_tokens": 9}, hosted)
        reply: ModelResponse = await self._caught.reply(at, says, ask)
        return reply

    async def _of_anthropic(self, history: History) -> Any:
        names: dict[str, str] = {}
        for at, message in enumerate(history):
            blocks = _blocks(message["content"])
            if message["role"] == "assistant":
                names |= {block["id"]: block["name"] for block in blocks if block["type"] == "tool_use"}
                # Kinds yet to come are given out as texts without text there.
                yield await self._reply(at, [block for block in blocks if block["type"] in BLOCKS])
                continue
            parts: list[Any] = []
            for block in blocks:
                if block["type"] == "tool_result":
                    id = block["tool_use_id"]
                    parts.append(ToolReturnPart(names[id], _told(block.get("content") or ""), id))
            if rest := [_given(block) for block in blocks if block["type"] != "tool_result"]:
                parts.append(UserPromptPart(rest))
            yield ModelRequest(parts)

    async def _of_chat(self, history: History) -> Any:
        names: dict[str, str] = {}
        for at, message in enumerate(history):
            content = message["content"]
            if message["role"] == "assistant":
                calls = message.get("tool_calls", [])
                names |= {call["id"]: call["function"]["name"] for call in calls}
                told = _told(content) if isinstance(content, list) else content
                yield await self._reply(at, [{**message, "content": told}])
            elif message["role"] == "tool":
                id = message["tool_call_id"]
                yield ModelRequest([ToolReturnPart(names[id], _told(content), id)])
            elif message["role"] == "user":
                yield ModelRequest([UserPromptPart([_given(one) for one in _blocks(content)])])
            else:
                yield ModelRequest([SystemPromptPart(_told(content))])

    async def _of_responses(self, history: History) -> Any:
        names: dict[str, str] = {}
        # Pydantic AI has no custom tools.
        held = [one for one in history if not str(one.get("type")).startswith("custom_tool_call")]
        for at, (says, item) in enumerate(_turns_of(held)):
            if says:
                names |= {one["call_id"]: one["name"] for one in says if one["type"] in _CALLS}
                yield await self._reply(at, says)
            elif "call_id" in item:
                id = item["call_id"]
                yield ModelRequest([ToolReturnPart(names[id], _told(item["output"]), id)])
            else:
                yield ModelRequest([UserPromptPart([_given(one) for one in _blocks(item["content"])])])


def _told(content: Any) -> str:
    """Return a result as a text; frameworks send blank ones, which providers refuse."""
    told = content if isinstance(content, str) else "\n".join(str(one.get("text", "")) for one in content)
    return told if told.strip() else "(nothing)"


def _given(block: Dict) -> Any:
    """Return what a user gives."""
    source = block.get("source") if isinstance(block.get("source"), dict) else {}
    held = block.get(block["type"])
    block = {**held, "type": block["type"]} if isinstance(held, dict) else block  # as in chat dicts
    url = source.get("url") or block.get("image_url") or block.get("file_url") or block.get("file_data")
    url = url or block.get("url")
    if block["type"] == "input_audio":
        url = f"data:audio/{block['format']};base64,{block['data']}"
    if source.get("type") == "base64":
        url = f"data:{source['media_type']};base64,{source['data']}"
    if not isinstance(url, str):
        return str(block.get("text") or json.dumps(block))
    if url.startswith("data:"):
        return BinaryContent.from_data_uri(url)
    return ImageUrl(url) if "image" in block["type"] else DocumentUrl(url, media_type="application/pdf")


WAYS: dict[str, Callable[[str, int, TiktokenCounter], Way]] = {
    "core": Core,
    "clients": Client,
    "langchain": LangChain,
    "pydantic-ai": PydanticAI,
}
