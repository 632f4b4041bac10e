"""LangChain's own agents, with the middleware, against a server that refuses what providers refuse."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ModelRequest
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from sqlalchemy.ext.asyncio import create_async_engine

from context_compressor import CompressionEvent, SQLAlchemyOffloadStore, ref_of
from context_compressor.errors import SummarizerError
from context_compressor.integrations import langchain
from context_compressor.integrations.asked import Asked, Last
from context_compressor.integrations.conversations import Conversations
from context_compressor.integrations.langchain.messages import FORM, Wires, to_messages, to_wire
from context_compressor.integrations.langchain.model import own_model
from context_compressor.messages.plain import SENT_BESIDE
from tests.support.behaviours import Kept
from tests.support.markdown import blocks
from tests.support.model_server import (
    ModelServer,
    Received,
    Reply,
    answer,
)
from tests.support.task import BUDGET, REQUEST, WINDOW, Worker, Workplace

ROOT = Path(__file__).parents[2]
Compression = partial(langchain.Compression, summarizer="rules")
"""Scripted models have no summary to give."""
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII="
Dict = dict[str, Any]


def model_at(url: str, **options: Any) -> ChatOpenAI:
    return ChatOpenAI(model="gpt-5", base_url=url, api_key="test", max_retries=0, **options)  # type: ignore[arg-type]


def asked(text: str = REQUEST) -> Any:
    return {"messages": [HumanMessage(text)]}


def on(thread: str | None, **more: Any) -> Any:
    return {"recursion_limit": 500, "configurable": {} if thread is None else {"thread_id": thread, **more}}


def tools_of(workplace: Workplace) -> list[StructuredTool]:
    functions = (workplace.read_file, workplace.grep_files, workplace.query)
    return [StructuredTool.from_function(one) for one in functions]


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    return Workplace(tmp_path_factory.mktemp("work"))


async def run(agent: Any, how: str, given: Any, config: Any) -> Any:
    """Return the state at the end of a run."""
    if how == "ainvoke":
        return await agent.ainvoke(given, config)
    if how == "invoke":
        return await asyncio.to_thread(agent.invoke, given, config)
    if how == "astream":
        states = [state async for state in agent.astream(given, config, stream_mode="values")]
    else:
        states = await asyncio.to_thread(lambda: list(agent.stream(given, config, stream_mode="values")))
    return states[-1]


# Going on


async def test_older_checkpoints_and_branches_have_the_view_of_then(workplace: Workplace) -> None:
    worker = Worker(16)
    async with ModelServer(worker, window_tokens=WINDOW) as server:
        events: list[CompressionEvent] = []
        compression = Compression(max_total_tokens=BUDGET, on_event=events.append)
        agent = create_agent(
            model_at(server.url),
            tools_of(workplace),
            middleware=[compression],
            checkpointer=InMemorySaver(),
        )
        await agent.ainvoke(asked(), on("t"))
        sent = [one.json for one in server.requests]
        ledger = agent.get_state(on("t")).values["context_compression"]
        assert json.loads(json.dumps(ledger)) == ledger
        entries = ledger["compression"]["ledger"]["entries"]
        assert entries
        assert not any(one["text"] or one.get("notes") or one.get("standing") for one in entries)
        history = [one async for one in agent.aget_state_history(on("t"))]
        asking = [one for one in reversed(history) if one.next == ("model",)]
        assert len(asking) == len(sent)
        for number in (0, 5, 11, 15):  # from the very first, before there was a ledger
            worker.turn = worker.turns
            await agent.ainvoke(None, {**on("t"), **asking[number].config})
            assert json.dumps(server.requests[-1].json) == json.dumps(sent[number])

        worker.turn = worker.turns
        branches = [
            await agent.aupdate_state(asking[n].config, {"messages": [HumanMessage(f"Branch {n}.")]})
            for n in (8, 10)
        ]
        seen: list[list[str]] = [[], []]
        for turn in range(4):
            for n, branch in enumerate(branches):
                given: Any = None if turn == 0 else asked(f"Turn {turn}.")
                before = len(events)
                await agent.ainvoke(given, {**on("t"), **branch})
                branches[n] = (await agent.aget_state(on("t"))).config
                seen[n].append(json.dumps(server.requests[-1].json["messages"])[:-1])
                assert turn == 0 or len(events) == before  # nothing is done a second time
        for views in seen:
            assert all(later.startswith(earlier) for earlier, later in pairwise(views))
        assert server.refusals == []


@pytest.mark.parametrize("states", [None, Kept()], ids=["found by its messages", "kept in states"])
async def test_an_agent_that_keeps_no_state_goes_on(states: Any, workplace: Workplace) -> None:
    """Without a checkpointer, or as a node in another graph, which has none of the agent's private keys."""
    worker = Worker(10)
    async with ModelServer(worker, window_tokens=WINDOW) as server:
        events: list[CompressionEvent] = []
        compression = Compression(max_total_tokens=BUDGET, on_event=events.append, states=states)
        agent = create_agent(model_at(server.url), tools_of(workplace), middleware=[compression])
        state = await agent.ainvoke(asked(), on(None))
        before = len(events)
        assert before
        if states is not None:  # another process
            compression = Compression(max_total_tokens=BUDGET, on_event=events.append, states=states)
            agent = create_agent(model_at(server.url), tools_of(workplace), middleware=[compression])
        messages = [*state["messages"], HumanMessage("And now?")]
        await agent.ainvoke({"messages": messages}, on(None))
        assert len(events) == before
        assert len(server.requests[-1].json["messages"]) < len(messages)

        graph = StateGraph(MessagesState).add_node("agent", agent).add_edge(START, "agent")
        whole = graph.compile(checkpointer=InMemorySaver())
        worker.turn = 0
        whole_state = await whole.ainvoke(asked(), on("node"))
        before = len(events)
        whole_state = await whole.ainvoke(asked("And now?"), on("node"))
        assert len(events) == before
        assert whole_state["messages"][-2].content == "And now?"
        assert server.refusals == []


# Several at once


async def test_a_batch_has_its_own_views_and_an_agent_may_call_another(workplace: Workplace) -> None:
    """All with one object; the tool's agent is run in its caller's thread."""

    def policy(messages: list[Dict], received: Received) -> Reply:
        text = json.dumps(messages)
        if "I am the inner one" in text:
            steps = sum(one["role"] == "assistant" for one in messages)
            return (
                answer("Inner is done.")
                if "\nDone" in text or steps > 2
                else answer("", [("read_file", {"number": 7})] * 3)
            )
        results = sum(one["role"] == "tool" for one in messages)
        return answer("Outer is done.") if results >= 2 else answer("", [("delegate", {})])

    async with ModelServer(policy, window_tokens=WINDOW) as server:
        compression = Compression(max_total_tokens=12_000)
        inner = create_agent(model_at(server.url), tools_of(workplace), middleware=[compression])

        def delegate() -> str:
            """Let another agent work."""
            return str(inner.invoke(asked("I am the inner one."))["messages"][-1].content)

        async def adelegate() -> str:
            return str((await inner.ainvoke(asked("I am the inner one.")))["messages"][-1].content)

        tool = StructuredTool.from_function(delegate, coroutine=adelegate)
        outer = create_agent(
            model_at(server.url), [tool], middleware=[compression], checkpointer=InMemorySaver()
        )
        states = [await outer.ainvoke(asked("Begin."), on("a"))]
        states += await asyncio.to_thread(outer.batch, [asked("One."), asked("Two.")], [on("b"), on("c")])
        for state in states:
            kinds = [one.type for one in state["messages"]]
            assert kinds == ["human", "ai", "tool", "ai", "tool", "ai"]
            assert state["messages"][2].content == "Inner is done."
        assert server.refusals == []


# What goes wrong


def test_a_request_that_forces_its_answer_or_was_another_is_not_sent_again() -> None:
    model = model_at("http://nowhere")
    wires = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hi."}]
    said = Asked(("m", None, []), wires)
    request: Any = ModelRequest(model=model, messages=[])
    again = own_model(request, said).again
    assert again is not None
    assert again(Last(request, said._replace(listed=wires[:1])))
    for last in (
        Last(request.override(tool_choice="any"), said),
        Last(request.override(model_settings={"tool_choice": {"type": "tool", "name": "t"}}), said),
        Last(request.override(response_format=dict), said),
        Last(request, said._replace(listed=[*wires, wires[0]])),
        Last(request, said._replace(listed=[{"role": "user", "content": "I am another."}])),
        Last(request, said._replace(beside=("m", "Other rules.", []))),
    ):
        with pytest.raises(SummarizerError, match="the last request cannot be sent again: its"):
            again(last)


async def test_an_image_that_left_is_shown_again() -> None:
    """As a user's message behind the tool's answer, which every provider takes."""
    picture = base64.b64encode(base64.b64decode(PIXEL) + bytes(9_000)).decode()
    ref = ref_of(f"data:image/png;base64,{picture}")
    asked_for: list[str] = []

    def policy(messages: list[Dict], received: Received) -> Reply:
        if "[Notes by" in json.dumps(messages) and picture not in json.dumps(messages) and not asked_for:
            asked_for.append(ref)
            return answer("", [("load_offloaded", {"ref": ref})])
        return answer("I see.")

    async with ModelServer(policy) as server:
        compression = Compression(max_total_tokens=3_000, keep_recent_count=2)
        agent = create_agent(model_at(server.url), middleware=[compression], checkpointer=InMemorySaver())
        image = {"type": "image", "base64": picture, "mime_type": "image/png"}
        await agent.ainvoke(asked("Hello."), on("t"))
        await agent.ainvoke({"messages": [HumanMessage([{"type": "text", "text": "Look."}, image])]}, on("t"))
        for number in range(6):
            text = "\n".join(f"{number}: line {line} of what was seen" for line in range(80))
            state = await agent.ainvoke(asked(text), on("t"))
        assert asked_for
        assert server.refusals == []
    kinds = [one.type for one in state["messages"]]
    place = kinds.index("tool")
    assert kinds[place : place + 3] == ["tool", "human", "ai"], state["messages"][place].content
    assert picture in json.dumps(state["messages"][place + 1].content)


# Messages


THINKING = [
    {"type": "thinking", "thinking": "Hm, logs.", "signature": "c2ln"},
    {"type": "text", "text": "I read.", "citations": []},
    {"type": "tool_use", "id": "c1", "name": "read", "input": {"n": 1}},
]


@pytest.mark.parametrize(
    ("message", "wire"),
    [
        (HumanMessage("Hi", name="Ada", id="1"), {"role": "user", "content": "Hi", "name": "Ada"}),
        (
            SystemMessage([{"type": "text", "text": "Be brief."}]),
            {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
        ),
        (ChatMessage("Hi", role="developer"), {"role": "developer", "content": "Hi"}),
        (ChatMessage("Hi", role="critic"), {"role": "user", "content": "Hi"}),
        (FunctionMessage("3", name="add"), {"role": "function", "name": "add", "content": "3"}),
        (
            ToolMessage("ok", tool_call_id="c", artifact=object(), status="error"),
            {"role": "tool", "tool_call_id": "c", "content": "ok"},
        ),
        (AIMessage(""), {"role": "assistant", "content": None}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_messages_are_read_as_chat_dicts(message: AnyMessage, wire: Dict) -> None:
    assert to_wire(message) == wire


def test_a_reply_tells_its_thoughts_and_each_call_once() -> None:
    call = {"name": "read", "args": {"n": 1}, "id": "c1", "type": "tool_call"}
    wire = to_wire(AIMessage(THINKING, tool_calls=[call]))  # type: ignore[arg-type, list-item]
    held = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"n": 1}'}}
    assert wire == {
        "role": "assistant",
        "content": [{"type": "text", "text": "I read."}],
        "reasoning_content": "Hm, logs.",
        "tool_calls": [held],
        SENT_BESIDE: [{"signature": "c2ln"}],
    }
    by_block = AIMessage(THINKING)  # type: ignore[arg-type]
    assert to_wire(by_block)["tool_calls"] == [held]
    broken = AIMessage("", invalid_tool_calls=[{"name": "read", "args": '{"n', "id": "c2", "error": "cut"}])  # type: ignore[list-item]
    assert to_wire(broken)["tool_calls"][0]["function"]["arguments"] == '{"n'
    legacy = AIMessage("", additional_kwargs={"function_call": {"name": "add", "arguments": "{}"}})
    assert to_wire(legacy)["function_call"] == {"name": "add", "arguments": "{}"}
    reasoned = [{"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "First."}]}]
    assert to_wire(AIMessage(reasoned))["reasoning_content"] == "First."  # type: ignore[arg-type]
    standard = [{"type": "reasoning", "reasoning": "First."}, {"type": "text", "text": "Second."}]
    assert to_wire(AIMessage(standard))["reasoning_content"] == "First."  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("block", "kind"),
    [
        ({"type": "image", "base64": PIXEL, "mime_type": "image/png"}, "image_url"),
        ({"type": "image", "url": "https://a/b.png"}, "image_url"),
        ({"type": "image", "source_type": "base64", "data": PIXEL, "mime_type": "image/png"}, "image_url"),
        (
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
            "image_url",
        ),
        ({"type": "image_url", "image_url": "https://a/b.png"}, "image_url"),
        ({"type": "video", "url": "https://a/b.mp4"}, "video_url"),
        ({"type": "audio", "base64": "AAAA", "mime_type": "audio/wav"}, "input_audio"),
        ({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}, "input_audio"),
        ({"type": "file", "base64": "AAAA", "mime_type": "application/pdf"}, "file"),
        ({"type": "file", "file": {"file_id": "f"}}, "file"),
        ({"type": "image", "file_id": "f"}, "image"),
        ({"type": "server_tool_call", "name": "search", "args": {"q": object()}}, "server_tool_call"),
        ({"type": 5}, "text"),
        ({"functionCall": {}}, "text"),
        ({"type": "text", "text": None}, "text"),
        ("words", "text"),
    ],
)
async def test_every_block_is_read_and_goes_back_as_it_was(block: Any, kind: str) -> None:
    messages: list[AnyMessage] = [HumanMessage([{"type": "text", "text": "Look."}, block])]
    wires = Wires().of(messages)
    assert wires[0]["content"][1]["type"] == kind
    shown = await Conversations(FORM, max_total_tokens=100_000).view(wires, key="k", state={})
    [same] = to_messages(shown.messages, shown.conversation.spoken, messages, wires)
    assert same is messages[0]


async def test_altered_messages_keep_all_else_and_unaltered_ones_are_the_same() -> None:
    long = "\n".join(f"line {line} of a long result" for line in range(2_000))
    call = {"name": "read", "args": {"n": 1}, "id": "c1", "type": "tool_call"}
    artifact = object()
    messages: list[AnyMessage] = [
        SystemMessage("Be brief."),
        HumanMessage("Read.", id="h"),
        AIMessage(THINKING, tool_calls=[call], id="a"),  # type: ignore[arg-type, list-item]
        ToolMessage(long, tool_call_id="c1", id="t", name="read", artifact=artifact, status="error"),
        AIMessage("", invalid_tool_calls=[{"name": "read", "args": '{"n', "id": "c2", "error": "e"}], id="b"),  # type: ignore[list-item]
        HumanMessage("And?"),
    ]
    known = Wires()
    wires = known.of(messages)
    assert all(map(lambda one, other: one is other, wires, known.of(messages)))
    conversations = Conversations(FORM, max_total_tokens=6_000)
    shown = await conversations.view(wires, key="k", state={})
    view = to_messages(shown.messages, shown.conversation.spoken, messages, wires)
    assert [view[n] is messages[n] for n in (0, 1, 2)] == [True] * 3
    stub = view[3]
    assert isinstance(stub, ToolMessage)
    assert (stub.id, stub.name, stub.tool_call_id, stub.status) == ("t", "read", "c1", "error")
    assert stub.artifact is artifact
    assert "ctx://" in str(stub.content)
    assert messages[3].content == long
    mended, placeholder = view[4], view[5]
    assert isinstance(mended, AIMessage)
    assert (mended.id, mended.invalid_tool_calls) == ("b", [])
    assert [(one["id"], one["args"]) for one in mended.tool_calls] == [("c2", {"arguments": '{"n'})]
    assert isinstance(placeholder, ToolMessage)
    assert placeholder.tool_call_id == "c2"
    assert view[6] is messages[5]

    messages[1].content = "Write."  # whoever changes a message is read again
    assert known.of(messages)[1]["content"] == "Write."
    del messages, wires, view, stub, mended, placeholder, shown
    assert known._known == {}


# Being used


async def test_events_are_logged_and_an_agent_may_do_without_the_tools(
    workplace: Workplace, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "context_compressor")
    async with ModelServer(Worker(8), window_tokens=WINDOW) as server:
        compression = Compression(max_total_tokens=BUDGET, with_tools=False)
        agent = create_agent(model_at(server.url), tools_of(workplace), middleware=[compression])
        await agent.ainvoke(asked(), on(None))
        assert len(server.requests[-1].tools) == 3
    assert any("tokens became" in one.getMessage() for one in caplog.records)


async def test_the_page_runs_as_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "test")
    names: Dict = {"create_agent": create_agent, "model": model_at("http://nowhere"), "tools": []}
    for block in blocks("python", (ROOT / "docs" / "langchain.md").read_text(encoding="utf-8")):
        exec(block, names)
    assert names["compression"].stats("thread-1") is None
    assert "context_compression" in names["agent"].builder.state_schema.__annotations__
    saver, engine = InMemorySaver(), create_async_engine("sqlite+aiosqlite://")
    agent = create_agent(GenericFakeChatModel(messages=iter(["Hello."] * 2)), checkpointer=saver)
    stores = [SQLAlchemyOffloadStore(engine, ("ada", thread)) for thread in "12"]
    for thread, store in zip("12", stores, strict=True):
        await agent.ainvoke(asked("Hello"), on(f"ada/{thread}"))
        await store.write("what left")
    await names["delete_thread"](saver, engine, "ada", "1")
    assert [len(await store.refs()) for store in stores] == [0, 1]
    assert [bool(saver.storage[f"ada/{thread}"]) for thread in "12"] == [False, True]
    await engine.dispose()
