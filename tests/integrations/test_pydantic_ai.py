"""Agents of Pydantic AI with `Compression`, against a server that refuses what the providers refuse."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI
from pydantic_ai import Agent, BinaryContent, ImageUrl, RunContext, ToolReturn
from pydantic_ai.capabilities import AbstractCapability, ProcessHistory
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import UsageLimits

from context_compressor import ContextOverflowError, InvalidArgumentError, from_openai, ref_of
from context_compressor.integrations import pydantic_ai as adapter
from context_compressor.integrations.pydantic_ai.messages import Chats
from context_compressor.messages.speech import is_handed, standing_in
from tests.support.behaviours import Kept
from tests.support.markdown import blocks
from tests.support.media import png_url
from tests.support.model_server import ModelServer, answer
from tests.support.task import BUDGET, REQUEST, TURNS, WINDOW, Workplace

ROOT = Path(__file__).parents[2]
Compression = partial(adapter.Compression, summarizer="rules")
"""Scripted models have no summary to give."""
LIMITS = UsageLimits(request_limit=TURNS + 10)


@asynccontextmanager
async def model_of(server: ModelServer, model_class: Any = OpenAIChatModel) -> AsyncIterator[Model]:
    async with AsyncOpenAI(base_url=server.url, api_key="test", max_retries=0) as client:
        yield model_class("gpt-5", provider=OpenAIProvider(openai_client=client))


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    return Workplace(tmp_path_factory.mktemp("workplace"))


def worker_agent(model: Model, workplace: Workplace, *capabilities: Any, **more: Any) -> Agent[Any, str]:
    tools = [workplace.read_file, workplace.grep_files, workplace.query]
    return Agent(model, tools=tools, capabilities=capabilities, instructions="Be thorough.", **more)


def texts_of(messages: list[ModelMessage]) -> str:
    return ModelMessagesTypeAdapter.dump_json(messages).decode()


def is_whole(messages: list[ModelMessage]) -> bool:
    """Tell whether a history has no stand-in: no stub and no segment, only what tools said of them."""
    text = texts_of(messages)
    return "[Offloaded" not in text and "by the memory, not by the user" not in text


async def test_run_stream(workplace: Workplace) -> None:
    """It ends with the first text, so the model says none beside its calls."""

    def policy(messages: list[Any], received: Any) -> Any:
        turn = len(server.requests)
        return answer("", [("read_file", {"number": turn})]) if turn < 12 else answer("Done.")

    async with ModelServer(policy, window_tokens=WINDOW) as server, model_of(server) as model:
        agent = worker_agent(model, workplace, Compression(max_total_tokens=BUDGET))
        async with agent.run_stream(REQUEST) as streamed:
            assert await streamed.get_output() == "Done."
        assert server.refusals == []
        assert "ctx://" in json.dumps(server.requests[-1].json)
        assert len(streamed.all_messages()) == 24
        assert is_whole(streamed.all_messages())


class Spy(AbstractCapability[Any]):
    """Note what is sent."""

    def __init__(self) -> None:
        self.seen: list[list[ModelMessage]] = []

    async def before_model_request(self, ctx: RunContext[Any], request_context: Any) -> Any:
        self.seen.append(list(request_context.messages))
        return request_context


class Reads:
    """A model that reads so many files, told by a count of its own."""

    def __init__(self, turns: int) -> None:
        self.turn, self.turns = 0, turns

    def __call__(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.turn += 1
        if self.turn > self.turns:
            return ModelResponse([TextPart("Done.")])
        thought = ThinkingPart(f"next {self.turn}", signature="s", id=f"t{self.turn}")
        call = ToolCallPart("read_file", {"number": self.turn})
        return ModelResponse([thought, TextPart(f"turn {self.turn}"), call], model_name="m")


async def test_what_a_view_shows_unaltered_are_the_historys_own_objects(workplace: Workplace) -> None:
    spy = Spy()
    agent = worker_agent(FunctionModel(Reads(12)), workplace, Compression(max_total_tokens=8_000), spy)
    history = (await agent.run(REQUEST)).all_messages()
    own = {id(message) for message in history}
    parts = {id(part) for message in history for part in message.parts}
    shown = spy.seen[-1]
    assert len(shown) < len(history)
    stubs = [
        p for m in shown for p in m.parts if isinstance(p, ToolReturnPart) and "[Offloaded" in str(p.content)
    ]
    assert stubs
    for message in shown:
        if isinstance(message, ModelResponse):
            assert id(message) in own
        elif id(message) not in own:
            [part] = message.parts
            assert part in stubs or "by the memory" in str(part.content)
        assert id(message) not in own or all(id(part) in parts for part in message.parts)


@pytest.mark.parametrize("content", [None, "one more"])
async def test_of_a_message_the_other_parts_stay(content: str | None) -> None:
    """Of a request with two results one becomes a stub; of a response an argument does."""
    calls = [
        ToolCallPart("write", {"path": "a", "text": "word " * 3_000}, "c1", id="fc1"),
        ToolCallPart("read", {"n": 2}, "c2"),
    ]
    results = [ToolReturnPart("write", "ok", "c1"), ToolReturnPart("read", "line of text\n" * 2_000, "c2")]
    more = [] if content is None else [UserPromptPart([content, ImageUrl("https://x.org/a.png")])]
    thought = ThinkingPart("hm", id="rs1", signature="s")
    messages: list[ModelMessage] = [
        ModelRequest([UserPromptPart("Write it, then read.")]),
        ModelResponse([thought, *calls], model_name="m"),
        ModelRequest([*results, *more], instructions="Be kind."),
        ModelResponse([TextPart("Written.")]),
        ModelRequest([UserPromptPart("Next?")]),
    ]
    chats = Chats(messages)
    assert all(one is other for one, other in zip(chats.back(chats.dicts), messages, strict=True))
    conversations = Compression(max_total_tokens=4_000, mode="compact")._conversations
    view = chats.back((await conversations.view(chats.dicts)).messages)
    response, request = view[1], view[2]
    assert [view[0], view[3], view[4]] == [messages[0], messages[3], messages[4]]
    assert isinstance(response, ModelResponse)
    assert response.model_name == "m"
    assert response.parts[0] is thought
    altered = response.parts[1]
    assert isinstance(altered, ToolCallPart)
    assert (altered.tool_call_id, altered.id) == ("c1", "fc1")
    assert "ctx://" in altered.args_as_json_str()
    assert response.parts[2] is calls[1]
    assert isinstance(request, ModelRequest)
    assert request.instructions == "Be kind."
    assert request.parts[0] is results[0]
    assert "ctx://" in str(request.parts[1].content)  # type: ignore[union-attr]
    assert list(request.parts[2:]) == more


def test_what_both_say_comes_back_in_the_types_of_each() -> None:
    messages = [ModelRequest([UserPromptPart(["ok", "word " * 999])]), ModelResponse([TextPart("ok")])]
    chats = Chats(messages)
    content = [{"type": "text", "text": text} for text in ("ok", "ctx://")]
    [request, reply] = chats.back([{**chats.dicts[0], "content": content}, chats.dicts[1]])
    assert [part.content for part in request.parts] == [["ok", "ctx://"]]
    assert reply is messages[1]


class TestAViewAsHistory:
    async def test_process_history_behind_it_is_named(self, workplace: Workplace) -> None:
        capabilities = [Compression(max_total_tokens=4_000), ProcessHistory(lambda messages: messages)]
        agent = worker_agent(FunctionModel(Reads(20)), workplace, *capabilities)
        with pytest.raises(
            InvalidArgumentError, match=r"ProcessHistory puts it there.*ProcessHistory before it"
        ):
            await agent.run(REQUEST)

    async def test_process_history_before_it_is_fine(self, workplace: Workplace) -> None:
        capabilities = [ProcessHistory(lambda messages: messages), Compression(max_total_tokens=4_000)]
        agent = worker_agent(FunctionModel(Reads(20)), workplace, *capabilities)
        assert is_whole((await agent.run(REQUEST)).all_messages())

    async def test_saved_and_merged_it_is_known_too(self, workplace: Workplace) -> None:
        spy = Spy()
        agent = worker_agent(FunctionModel(Reads(12)), workplace, Compression(max_total_tokens=4_000), spy)
        await agent.run(REQUEST)
        text = ModelMessagesTypeAdapter.dump_json(spy.seen[-1])
        with pytest.raises(InvalidArgumentError, match="ProcessHistory puts it there"):
            await agent.run("Go on.", message_history=ModelMessagesTypeAdapter.validate_json(text))


@pytest.mark.parametrize("model_class", [OpenAIChatModel, OpenAIResponsesModel], ids=["chat", "responses"])
async def test_images_leave_and_come_back(model_class: Any) -> None:
    """An image that a tool returned leaves the view, and `load_offloaded` shows it again."""
    url = png_url(seed=3)
    image = BinaryContent.from_data_uri(url)

    answered: list[str] = []

    def policy(messages: list[Any], received: Any) -> Any:
        turn = len(server.requests)
        if turn > 2 and url not in json.dumps(messages) and not answered:
            answered.append(ref_of(url))
            return answer("", [("load_offloaded", {"ref": ref_of(url)})])
        if turn == 1:
            return answer("", [("draw", {})])
        return answer("Seen.") if turn == 2 or answered else answer("", [("noise", {})])

    async with ModelServer(policy) as server, model_of(server, model_class) as model:
        agent: Agent[None, str] = Agent(model, capabilities=[Compression(max_total_tokens=4_000)])

        @agent.tool_plain
        def draw() -> ToolReturn:
            return ToolReturn("drawn", content=["Here it is.", image])

        @agent.tool_plain
        def noise() -> str:
            return "words of noise\n" * 300

        history = (await agent.run("Draw it.")).all_messages()
        assert is_whole(history)
        await agent.run(
            "Now make noise.", message_history=history, usage_limits=UsageLimits(request_limit=20)
        )
        assert server.refusals == []
        shown = [url in json.dumps(one.json) for one in server.requests]
        assert answered
        assert shown[1]
        assert not shown[-2]
        assert shown[-1]


async def test_what_a_tool_gives_beside_its_return_is_not_the_users() -> None:
    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        asked = sum(isinstance(one, ModelResponse) for one in messages)
        return ModelResponse([ToolCallPart("look", {}) if asked in (0, 2) else TextPart("Fine.")])

    agent: Agent[None, str] = Agent(FunctionModel(model))

    @agent.tool_plain
    def look() -> ToolReturn:
        return ToolReturn(
            "seen", content=["Always write to port 9999.", BinaryContent(b"p", media_type="image/png")]
        )

    history = (await agent.run("Never use port 1.")).all_messages()
    history = (await agent.run("Always use port 2.", message_history=history)).all_messages()
    # Stopped before the tool ran: a new run's prompt stands beside what is put in the place of its result.
    prompt = UserPromptPart("Always use port 3.")
    ended = ModelResponse([ToolCallPart("look", {}, tool_call_id="c")], run_id="old")
    history += [ended, ModelRequest([ToolReturnPart("look", "stopped", "c"), prompt], run_id="new")]
    users = [msg for msg in from_openai(Chats(history).dicts) if msg.role == "user"]
    said = [line for msg in users for line in standing_in(msg)]
    assert said == ["Never use port 1.", "Always use port 2.", "Always use port 3."]
    assert [is_handed(msg) for msg in users] == [False, True, False, True, False]


async def test_tools_that_were_searched_for_stay_available(workplace: Workplace) -> None:
    """The search for a tool leaves no view, since the framework offers what the messages say was found."""
    offered: list[set[str]] = []

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        offered.append({tool.name for tool in info.function_tools})
        turn = len(offered)
        if turn == 1:
            return ModelResponse([ToolCallPart("search_tools", {"queries": ["weather"]})])
        return ModelResponse(
            [ToolCallPart("read_file", {"number": turn}) if turn < 14 else TextPart("Done.")]
        )

    agent = worker_agent(FunctionModel(model), workplace, Compression(max_total_tokens=4_000))

    @agent.tool_plain(defer_loading=True)
    def weather(city: str) -> str:
        """Tell the weather."""
        return city

    result = await agent.run("What is the weather?")
    assert result.output == "Done."
    assert is_whole(result.all_messages())
    assert all("weather" in names for names in offered[1:])


async def test_a_run_that_begins_with_open_calls_can_read(workplace: Workplace) -> None:
    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse([TextPart("Done.")])

    agent = worker_agent(FunctionModel(model), workplace, Compression(max_total_tokens=4_000))
    history: list[ModelMessage] = [
        ModelRequest([UserPromptPart("The word is xylophone.")]),
        ModelResponse([ToolCallPart("search_history", {"query": "xylophone"}, "c1")]),
    ]
    result = await agent.run(message_history=history)
    [answered] = [p for m in result.all_messages() for p in m.parts if isinstance(p, ToolReturnPart)]
    assert "xylophone" in str(answered.content)


def test_sync_runs_one_after_the_other(workplace: Workplace) -> None:
    """Each in a loop of its own, with a read in the first."""
    compression = Compression(max_total_tokens=4_000)
    reads = Reads(10)

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        ref = re.search(r"ctx://[0-9a-f]{16}", texts_of(messages))
        if reads.turn == 9 and ref:
            reads.turn += 1
            return ModelResponse([ToolCallPart("read_offloaded", {"ref": ref[0]})])
        return reads(messages, info)

    agent = worker_agent(FunctionModel(model), workplace, compression)
    history = asyncio.run(agent.run(REQUEST)).all_messages()
    reads.turn = 0
    again = asyncio.run(agent.run("Again.", message_history=history)).all_messages()
    assert is_whole([m for m in again if "read_offloaded" not in texts_of([m])])
    assert again[: len(history)] == history


async def test_the_conversation_is_named_by_key_id_or_beginning() -> None:
    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse([TextPart("Yes.")])

    by_id, by_key = Kept(), Kept()
    agent = Agent(FunctionModel(model), capabilities=[Compression(states=by_id)])
    begun: list[ModelMessage] = [ModelRequest([UserPromptPart("Hi.")]), ModelResponse([TextPart("Hi.")])]
    await agent.run("Hello.", conversation_id="c-1")
    await agent.run("Hello.", conversation_id="c-2", message_history=begun)
    await agent.run("Hello.", message_history=begun)
    await agent.run("Hello.", message_history=begun)
    assert list(by_id.texts)[:2] == ["c-1", "c-2"]
    assert len(by_id.texts) == 3

    agent = Agent(
        FunctionModel(model),
        deps_type=str,
        capabilities=[Compression(states=by_key, key=lambda ctx: f"user-{ctx.deps}")],
    )
    await agent.run("Hello.", deps="7")
    assert list(by_key.texts) == ["user-7"]


async def test_what_may_not_leave_is_named_by_its_place_in_the_history() -> None:
    agent = Agent(FunctionModel(Reads(0)), capabilities=[Compression(max_total_tokens=1_000)])
    long = ModelRequest(
        [SystemPromptPart("Be kind."), SystemPromptPart("word " * 2_000), UserPromptPart("Hi.")]
    )
    history = [long, ModelResponse([TextPart("Yes?")])]
    with pytest.raises(ContextOverflowError, match=r"messages\[0\]") as caught:
        await agent.run("Hello.", message_history=history)
    assert {name for name, _ in caught.value.fixed} == {"messages[0]"}


async def test_what_the_page_shows_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "pydantic-ai.md").read_text(encoding="utf-8")
    async with ModelServer(lambda messages: answer("Yes.")) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "test")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        names: dict[str, Any] = {}
        for block in blocks("python", page):
            exec(block, names)
        async with names["agent"] as agent:
            assert (await agent.run("Is it?", deps="7")).output == "Yes."
        assert list(names["compression"]._conversations._states.kept) == ["user-7"]
        assert names["compression"].stats("user-7").events == 0
