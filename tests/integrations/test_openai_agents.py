"""Views for OpenAI's Agents SDK: its runner and models, against a server that refuses what OpenAI does."""

from __future__ import annotations

import ast
import asyncio
import contextvars
import inspect
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from agents import (
    Agent,
    FunctionTool,
    Model,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    RunState,
    SQLiteSession,
    ToolOutputImage,
    set_tracing_disabled,
)
from agents.memory import OpenAIResponsesCompactionSession
from agents.models import _openai_shared
from openai import APIError, AsyncOpenAI

from context_compressor.errors import InvalidArgumentError
from context_compressor.integrations import openai_agents
from tests.support.behaviours import Kept
from tests.support.markdown import blocks
from tests.support.media import png_url
from tests.support.model_server import ModelServer, answer
from tests.support.replies import Exchange, Reply
from tests.support.task import BUDGET, FUNCTIONS, REQUEST, WINDOW, Worker, Workplace
from tests.support.wires import Received
from tests.test_readme import ROOT

Dict = dict[str, Any]
Way = Callable[..., Any]

SMALL = 3_000
Compression = partial(openai_agents.Compression, summarizer="rules")
"""Scripted models have no summary to give."""
MODELS = {"responses": OpenAIResponsesModel, "chat": OpenAIChatCompletionsModel}

set_tracing_disabled(True)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    return Workplace(tmp_path_factory.mktemp("workplace"))


@asynccontextmanager
async def model_of(server: ModelServer, kind: str = "responses") -> AsyncIterator[Model]:
    async with AsyncOpenAI(base_url=server.url, api_key="test", max_retries=0) as client:
        yield MODELS[kind]("gpt-5", client)
    await server.assert_no_connections()


def function(name: str, run: Callable[..., Any], *parameters: str, **more: Any) -> FunctionTool:
    async def invoke(context: Any, arguments: str) -> Any:
        return run(**json.loads(arguments))

    schema = {"type": "object", "properties": {one: {} for one in parameters}}
    return FunctionTool(name, name, schema, invoke, strict_json_schema=False, **more)


def tools_of(place: Workplace, **approval: Any) -> list[FunctionTool]:
    def tool(name: str) -> FunctionTool:
        return function(name, lambda **arguments: place.run(name, arguments), **approval)

    return [tool(one["name"]) for one in FUNCTIONS]


def with_views(c: openai_agents.Compression) -> RunConfig:
    return RunConfig(call_model_input_filter=c)


async def whole(agent: Agent, given: Any, **more: Any) -> Any:
    return await Runner.run(agent, given, max_turns=200, **more)


async def streamed(agent: Agent, given: Any, **more: Any) -> Any:
    result = Runner.run_streamed(agent, given, max_turns=200, **more)
    async for _ in result.stream_events():
        pass
    return result


def texts(messages: Any) -> str:
    return json.dumps(messages)


# A long task


def outputs(items: list[Any]) -> list[str]:
    return [item["output"] for item in items if item.get("type") == "function_call_output"]


async def test_a_task_without_asyncio(place: Workplace) -> None:
    """Each run in a loop of its own, in a thread of its own."""
    worker, c = Worker(14), Compression(max_total_tokens=BUDGET)

    def run(url: str) -> None:
        given: Any = REQUEST
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        client = AsyncOpenAI(base_url=url, api_key="test", max_retries=0)
        agent = Agent("A", model=OpenAIResponsesModel("gpt-5", client), tools=[*tools_of(place), *c.tools])
        result = Runner.run_sync(agent, given, max_turns=200, run_config=with_views(c))
        assert result.final_output.startswith("All logs are read")
        loop.run_until_complete(client.close())
        asyncio.set_event_loop(None)
        loop.close()

    async with ModelServer(worker, window_tokens=WINDOW) as server:
        await asyncio.to_thread(run, server.url)
        assert server.refusals == []
    assert worker.read_back is not None


# Conversations


def deployer(c: openai_agents.Compression, model: Model, place: Workplace) -> Agent:
    asking = function("deploy", lambda: "deployed", needs_approval=True)
    return Agent("A", model=model, tools=[*tools_of(place), asking, *c.tools])


async def deployed(c: openai_agents.Compression, text: str, place: Workplace) -> list[Dict]:
    """Go on with a run that asked for approval; return the requests."""
    async with ModelServer(Worker(1), window_tokens=WINDOW) as server, model_of(server) as model:
        agent = deployer(c, model, place)
        state = await RunState.from_json(agent, json.loads(text))
        [asked] = state.get_interruptions()
        state.approve(asked)
        await whole(agent, state, run_config=with_views(c))
    assert server.refusals == []
    return [received.json for received in server.requests]


async def test_a_run_that_was_saved_goes_on_elsewhere_with_the_same_view(place: Workplace) -> None:
    """From a `RunState`, with a call that was approved meanwhile."""
    kept = Kept()

    class UntilDeployed(Worker):
        def __call__(self, messages: list[Dict], received: Received) -> Reply:
            if self.turn == 12:
                return answer("Deploy?", [("deploy", {}), ("read_file", {"number": 20})])
            return super().__call__(messages, received)

    worker = UntilDeployed()
    async with ModelServer(worker, window_tokens=WINDOW) as server, model_of(server) as model:
        first = Compression(max_total_tokens=SMALL, states=kept)
        paused = await whole(deployer(first, model, place), REQUEST, run_config=with_views(first))
        text = json.dumps(paused.to_state().to_json())
        assert server.refusals == []
    there = await deployed(Compression(max_total_tokens=SMALL, states=kept), text, place)
    here = await deployed(first, text, place)
    assert there == here  # a state of the SDK's has its items' keys in an order of its own
    assert "ctx://" in texts(there)
    assert "deployed" in texts(there)


def policy_of(**parts: Callable[[list[Dict]], Iterator[Reply]]) -> Any:
    """Return a model that plays a part by what instructs it; each list of messages has its own play."""
    plays: dict[str, Any] = {}

    def play(messages: list[Dict], received: Received) -> Reply:
        part = received.json["instructions"]
        begins = next(texts(one) for one in messages if one.get("role") == "user")
        if (part, begins) not in plays:
            plays[part, begins] = parts[part](seen := [])
            plays[part, begins, "seen"] = seen
        plays[part, begins, "seen"][:] = messages
        return next(plays[part, begins])

    return play


async def test_agents_as_tools_and_handoffs(place: Workplace) -> None:
    """Agents called in parallel have conversations of their own, whose texts alone their tools find."""

    def reads(seen: list[Dict], who: str, turns: int) -> Iterator[Reply]:
        for number in range(turns):
            yield answer(f"Turn {number}.", [("read_file", {"number": number, "who": who})])

    def reads_back(seen: list[Dict], who: str) -> Iterator[Reply]:
        [ref, *_] = re.findall(r"ctx://[0-9a-f]{16}", texts(seen))
        yield answer(None, [("read_offloaded", {"ref": ref}), ("grep_offloaded", {"pattern": "for [a-z]+:"})])
        assert f"for {who}:" in texts(seen[-2:])
        assert "No line" not in texts(seen[-1:])

    def inner(seen: list[Dict]) -> Iterator[Reply]:
        who = re.findall(r"part (\w+)", texts(seen))[0]
        yield from reads(seen, who, 8)
        yield from reads_back(seen, who)
        yield answer(f"Part {who} is read.")

    def outer(seen: list[Dict]) -> Iterator[Reply]:
        yield from reads(seen, "outer", 8)
        yield from reads_back(seen, "outer")
        calls: Any = [("ask", {"input": "Read part red."}), ("ask", {"input": "Read part blue."})]
        yield answer("Both.", calls)
        assert "Part red is read." in texts(seen)
        yield from reads(seen, "outer", 2)
        yield answer(None, [("transfer_to_last", {})])

    def last(seen: list[Dict]) -> Iterator[Reply]:
        yield from reads(seen, "last", 4)
        yield answer("All done.")

    def read_file(number: int, who: str) -> str:
        return f"for {who}: " + place.read_file(number=number)[:3_000]

    policy = policy_of(inner=inner, outer=outer, last=last)
    c = Compression(max_total_tokens=SMALL)
    async with ModelServer(policy, window_tokens=2 * SMALL) as server, model_of(server) as model:
        mine = [function("read_file", read_file, "number", "who"), *c.tools]
        ends = Agent("last", instructions="last", model=model, tools=mine)
        called = Agent("inner", instructions="inner", model=model, tools=mine)
        agent = Agent(
            "outer",
            instructions="outer",
            model=model,
            tools=[*mine, called.as_tool("ask", "Ask.")],
            handoffs=[ends],
        )
        result = await streamed(agent, "Read all.", run_config=with_views(c))
        assert result.final_output == "All done."
        assert server.refusals == []
        of = {
            who: [texts(one.messages) for one in server.requests if f"part {who}" in texts(one.messages[:1])]
            for who in ("red", "blue")
        }
        rest = [
            texts(one.messages) for one in server.requests if one.json["instructions"] in ("outer", "last")
        ]
    assert len(of["red"]) == len(of["blue"]) == 10
    assert not any("for blue:" in text or "for outer:" in text for text in of["red"])
    assert not any("for red:" in text or "for outer:" in text for text in of["blue"])
    assert not any("for red:" in text or "for blue:" in text for text in rest)
    history = texts(result.to_input_list())
    assert all(f"for outer: {place.read_file(number=n)[:20]}" in history for n in range(8))


async def test_tools_outside_of_their_conversation_say_so(place: Workplace) -> None:
    """A run without the filter, awaited where another run was, finds nothing of that one."""
    c = Compression(max_total_tokens=SMALL)
    worker = Worker(8)
    async with ModelServer(worker, window_tokens=2 * WINDOW) as server, model_of(server) as model:
        agent = Agent("A", model=model, tools=[*tools_of(place), *c.tools])
        first = await whole(agent, REQUEST, run_config=with_views(c))
        server.script(answer("Done."), answer(None, [("grep_offloaded", {"pattern": "host"})]))
        await whole(agent, "And this?")
        assert not [one for one in server.requests[-1].tools if one["name"] == "grep_offloaded"]
        again = whole(agent, [*first.to_input_list(), {"role": "user", "content": "Well?"}])
        result = await asyncio.create_task(again, context=contextvars.Context())
    assert "not at hand yet" in outputs(result.to_input_list())[-1]


async def test_stand_ins_name_tools_that_the_agent_has(place: Workplace) -> None:
    for has_tools in (True, False):
        c = Compression(max_total_tokens=SMALL)
        async with ModelServer(Worker(8), window_tokens=WINDOW) as server, model_of(server) as model:
            agent = Agent("A", model=model, tools=[*tools_of(place), *(c.tools if has_tools else [])])
            await whole(agent, REQUEST, run_config=with_views(c))
            assert ("read_offloaded" in texts(server.requests[-1].messages)) == has_tools
            assert "ctx://" in texts(server.requests[-1].messages)


async def test_an_image_is_loaded_as_an_image(place: Workplace) -> None:
    image = png_url(500, 500)

    def play(seen: list[Dict]) -> Iterator[Reply]:
        yield answer(None, [("photograph", {})])
        for number in range(20):
            if number == 0 or "data:image" in texts(seen):
                yield answer(f"Turn {number}.", [("read_file", {"number": number})])
        [summary] = re.findall(r"Full text: (ctx://[0-9a-f]{16})", texts(seen))
        yield answer(None, [("read_offloaded", {"ref": summary})])
        [ref] = re.findall(r'"data": "(ctx://[0-9a-f]{16})', seen[-1]["output"])
        yield answer(None, [("load_offloaded", {"ref": ref})])
        yield answer("Seen.")

    c = Compression(max_total_tokens=SMALL)
    photograph = function("photograph", lambda: ToolOutputImage(image_url=image))
    async with ModelServer(policy_of(Look=play), window_tokens=WINDOW) as server, model_of(server) as model:
        agent = Agent("A", instructions="Look", model=model, tools=[photograph, *tools_of(place), *c.tools])
        result = await whole(agent, "What is there?", run_config=with_views(c))
        assert server.refusals == []
    [text, shown] = outputs(result.to_input_list())[-1]
    assert shown == {"type": "input_image", "image_url": image}
    assert "beside this text" in text["text"]


# What goes wrong


async def test_a_stream_that_fails_at_once_is_asked_again(place: Workplace) -> None:
    """OpenAI tells of a request that is too long in an event of the stream, too."""

    async def failing(exchange: Exchange) -> Any:
        head = {
            "id": "resp_0",
            "object": "response",
            "created_at": 0,
            "model": "m",
            "output": [],
            "tools": [],
        }
        head |= {"parallel_tool_calls": True, "tool_choice": "auto"}
        error = {"code": "context_length_exceeded", "message": "Your input exceeds the context window."}
        events = [
            {"type": "response.created", "response": {**head, "status": "in_progress"}},
            {"type": "response.failed", "response": {**head, "status": "failed", "error": error}},
        ]
        return await exchange.send_events(
            f"event: {one['type']}\ndata: {json.dumps({**one, 'sequence_number': n})}\n\n"
            for n, one in enumerate(events)
        )

    async with ModelServer(Worker(12), window_tokens=WINDOW) as server, model_of(server) as model:
        c = Compression(max_total_tokens=BUDGET)
        agent = Agent("A", model=c.model(model), tools=[*tools_of(place), *c.tools])
        first = await whole(agent, REQUEST, run_config=with_views(c))
        server.fail(failing)
        said: list[Any] = [*first.to_input_list(), {"role": "user", "content": "Well?"}]
        result = await streamed(agent, said, run_config=with_views(c))
        assert result.final_output.startswith("All logs")
        refused, sent = server.requests[-2:]
        assert len(texts(sent.messages)) < len(texts(refused.messages))


# The rest


async def test_a_session_is_whole_again_behind_its_view(place: Workplace) -> None:
    session = SQLiteSession("one")
    bodies: list[Any] = []
    async with ModelServer(Worker(20), window_tokens=WINDOW) as server, model_of(server) as model:
        settings = ModelSettings(extra_args={"prompt_cache_key": "same"})
        agent = Agent("A", model=model, model_settings=settings)
        c = Compression(max_total_tokens=BUDGET)
        reader = agent.clone(tools=[*tools_of(place), *c.tools])
        await whole(reader, REQUEST, run_config=with_views(c), session=session)
        items = await session.get_items()
        for used, filtered in ((None, True), (c.session(session), True), (c.session(session), False)):
            adapter = c if used else Compression(max_total_tokens=BUDGET)
            config = with_views(adapter) if filtered else RunConfig()
            ends = agent.clone(tools=[*tools_of(place), *adapter.tools])
            server.script(answer("Nothing."))
            await whole(ends, "Anything new?", run_config=config, session=used or session)
            bodies.append(server.requests[-1].messages)
            assert (await session.get_items())[: len(items)] == items
            for _ in range(2):
                await (used or session).pop_item()
    assert sum(map(len, map(texts, bodies[0]))) < sum(map(len, map(texts, items))) / 2
    assert "Anything new?" in texts(bodies[1])
    assert "read_offloaded" in texts(bodies[1])
    assert len(texts(bodies[2])) < len(texts(items)) / 2
    session.close()


async def test_history_at_the_provider_passes_as_it_is(
    place: Workplace, caplog: pytest.LogCaptureFixture
) -> None:
    sent: list[list[Any]] = []
    for has_views in (True, False):
        async with ModelServer(Worker(6)) as server, model_of(server) as model:
            c = Compression(max_total_tokens=SMALL)
            config = with_views(c) if has_views else RunConfig()
            agent = Agent("A", model=model, tools=[*tools_of(place), *c.tools])
            await whole(agent, REQUEST, run_config=config, auto_previous_response_id=True)
            sent.append([one.json["input"] for one in server.requests])
    assert sent[0] == sent[1]
    assert len([one for one in caplog.records if "previous_response_id" in one.message]) == 1


async def test_a_request_names_its_conversation_and_an_unwrapped_model_its_refusals(place: Workplace) -> None:
    c = Compression(max_total_tokens=BUDGET, key=lambda data: data.context)
    async with ModelServer(Worker(12), window_tokens=10_000) as server, model_of(server) as model:
        agent = Agent("A", model=model, tools=[*tools_of(place), *c.tools])
        with pytest.raises(APIError):
            await whole(agent, REQUEST, run_config=with_views(c), context="ada")
    assert c.stats("ada") == c.stats() is not None


def test_what_is_wrong_is_said_at_the_door() -> None:
    c = Compression()
    with pytest.raises(InvalidArgumentError, match="model: expected a Model"):
        c.model(3)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="session"):
        c.session("one")  # type: ignore[arg-type]
    session = SQLiteSession("one")
    with pytest.raises(InvalidArgumentError, match="has OpenAI keep"):
        c.session(OpenAIResponsesCompactionSession("one", session, client=AsyncOpenAI(api_key="k")))
    session.close()
    assert c.stats() is None
    assert c.model(c.model(OpenAIResponsesModel("m", AsyncOpenAI(api_key="k")))).model == "m"


# What users read


async def test_the_pages_code_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "openai-agents.md").read_text(encoding="utf-8")
    names: Dict = {}
    async with (
        ModelServer(lambda messages: "Hello.") as server,
        AsyncOpenAI(base_url=server.url, api_key="test") as client,
    ):
        # No other test is to ask by a client that is closed by then.
        monkeypatch.setattr(_openai_shared, "_default_openai_client", client)
        for block in blocks("python", page):
            made = eval(compile(block, "page", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
            if inspect.isawaitable(made):
                await made
    assert names["result"].final_output == "Hello."
    assert len(server.requests) == 2
