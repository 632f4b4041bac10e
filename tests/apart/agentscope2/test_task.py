"""Sixty turns, resuming, several agents at once, and what goes wrong on the way."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import openai
import pytest
from agentscope.agent import Agent, ContextConfig
from agentscope.state import AgentState
from agentscope.tool import FunctionTool

from context_compressor import CompressionEvent, InMemoryOffloadStore, InvalidArgumentError
from context_compressor.integrations import agentscope2
from tests.apart.agentscope2.support import (
    agent_of,
    anthropic_model_of,
    ask,
    model_of,
    output_of,
    reader,
    results_in,
    tool,
)
from tests.support.model_server import ModelServer, answer, half_stream, hang
from tests.support.replies import Exchange, Reply
from tests.support.task import (
    BUDGET,
    GREP,
    LEAST_RAW_TOKENS,
    QUERY,
    REQUEST,
    TURNS,
    WINDOW,
    Talkers,
    Worker,
    Workplace,
)
from tests.support.wires import Failure, Received

ROOT = Path(__file__).parents[3]
Compression = partial(agentscope2.Compression, summarizer="rules")
"""Scripted models have no summary to give."""

whole_and_streamed = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    return Workplace(tmp_path_factory.mktemp("place"))


def tools_of(place: Workplace) -> list[FunctionTool]:
    return [reader(place), tool(place.grep_files, GREP), tool(place.query, QUERY)]


@whole_and_streamed
async def test_a_long_task(place: Workplace, stream: bool) -> None:
    worker, events = Worker(), list[CompressionEvent]()
    async with ModelServer(worker, window_tokens=WINDOW) as server, model_of(server, stream) as model:
        compression = Compression(max_total_tokens=BUDGET, on_event=events.append)
        agent = agent_of(model, compression, tools_of(place))
        assert await ask(agent, REQUEST) == "All logs are read: units were lost on every host."
        assert server.refusals == []
        assert len(server.requests) == TURNS
        await model.client.close()
        await server.assert_no_connections()
    assert worker.read_back is not None
    read = next(block for block in results_in(agent.state) if block.name == "read_offloaded")
    assert "host-" in output_of(read)
    assert place.read_file(1) in [output_of(block) for block in results_in(agent.state)]
    assert len(agent.state.context) == 2  # what was asked, and one reply of all rounds
    assert agent.state.summary == ""
    stats = compression.stats(agent.state.session_id)
    assert stats is not None
    assert stats.events == len(events) > 3
    assert stats.history_tokens > LEAST_RAW_TOKENS
    assert stats.view_tokens <= BUDGET
    assert set(agent.state.middle_context) == {"Compression"}
    assert asyncio.all_tasks() == {asyncio.current_task()}


def offered(received: Received) -> list[str]:
    names = [tool["function"]["name"] for tool in received.tools]
    return [name for name in names if name in ("read_offloaded", "search_history")]


@whole_and_streamed
async def test_tools_come_once_something_has_left_and_go_where_they_are_refused(stream: bool) -> None:
    async def refuse(exchange: Exchange) -> Any:
        return await exchange.send_failure(Failure(400, "scripted does not support tools"))

    refused: list[Received] = []

    def policy(messages: Any, received: Received) -> Any:
        refused.extend([received] if is_strict and received.tools else [])
        return refuse if is_strict and received.tools else answer("Well.")

    for is_strict, tools in ((False, True), (True, True), (False, False)):
        async with ModelServer(policy) as server, model_of(server, stream) as model:
            agent = agent_of(model, Compression(max_total_tokens=4_000, tools=tools))
            await ask(agent, "Hello.")
            assert not server.requests[-1].tools
            for n in range(14):
                await ask(agent, f"Note {n}: {'word ' * 300}")
            is_named = "search_history" in json.dumps(server.requests[-1].messages)
            assert "ctx://" in json.dumps(server.requests[-1].messages)
            assert bool(offered(server.requests[-1])) == is_named == (tools and not is_strict)
    assert len(refused) == 1


@whole_and_streamed
async def test_thoughts_of_anthropic_go_with_their_calls(place: Workplace, stream: bool) -> None:
    worker = Worker(20, reasoning=True)
    async with (
        ModelServer(worker, window_tokens=WINDOW) as server,
        anthropic_model_of(server, stream) as model,
    ):
        compression = Compression(max_total_tokens=BUDGET)
        agent = agent_of(model, compression, tools_of(place))
        assert (await ask(agent, REQUEST)).startswith("All logs are read")
        assert server.refusals == []
        assert "thinking" in json.dumps(server.requests[-1].messages)
    assert worker.read_back is not None


async def test_without_it_the_same_is_refused(place: Workplace) -> None:
    async with ModelServer(Worker(), window_tokens=WINDOW) as server, model_of(server) as model:
        with pytest.raises(openai.BadRequestError):
            await ask(agent_of(model, None, tools_of(place)), REQUEST)
        assert len(server.requests) < TURNS / 2


# Another process

RESUME = """
import asyncio, sys
from agentscope.state import AgentState
from context_compressor.integrations.agentscope2 import Compression
from tests.apart.agentscope2.support import agent_of, anthropic_model_of, ask, model_of, reader
from tests.support.model_server import ModelServer, answer
from tests.support.task import Workplace
from pathlib import Path

async def main(state, folder):
    place = Workplace.__new__(Workplace)
    place.folder = Path(folder)
    async with ModelServer(lambda messages: answer("Done.")) as server, model_of(server) as model:
        saved = AgentState.model_validate_json(state)
        agent = agent_of(model, Compression(max_total_tokens=6_000), [reader(place)], saved)
        await ask(agent, "What is next?")
        print(server.requests[0].json["messages"])

asyncio.run(main(sys.stdin.read(), sys.argv[1]))
"""


async def test_a_saved_state_goes_on_with_the_same_view(place: Workplace) -> None:
    async with ModelServer(Talkers(12)) as server, model_of(server) as model:
        compression = Compression(max_total_tokens=6_000)
        agent = agent_of(model, compression, [reader(place)])
        await ask(agent, "I am Ada, read all.")
        saved = agent.state.model_dump_json()
        assert "ctx://" in saved
        server.script(answer("Done."))
        await ask(agent, "What is next?")
        body = server.requests[-1].json["messages"]
        shown = agent_of(model, Compression(max_total_tokens=6_000), [reader(place)], _loaded(saved))
        server.script(answer("Done."))
        await ask(shown, "What is next?")
        assert server.requests[-1].json["messages"] == body
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        RESUME,
        str(place.folder),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    printed, errors = await process.communicate(saved.encode())
    assert printed.decode().strip() == str(body), errors.decode()


def _loaded(saved: str) -> AgentState:
    return AgentState.model_validate_json(saved)


async def test_a_call_that_was_saved_before_it_ran_is_answered_by_another_process(place: Workplace) -> None:
    async with ModelServer(Talkers(12)) as server, model_of(server) as model:
        agent = agent_of(model, Compression(max_total_tokens=6_000), [reader(place)])
        await ask(agent, "I am Ada, read all.")
        body = json.dumps(server.requests[-1].json)
        ref = re.findall(r"ctx://[0-9a-f]{16}", body)[0]
    [reading] = [one for one in await Compression().list_tools() if one.name == "read_offloaded"]
    chunk = await reading.call(ref=ref, _agent_state=_loaded(agent.state.model_dump_json()))
    assert "host-" in chunk.content[0].text


async def test_what_is_no_ledger_is_made_anew_and_an_event_says_so(place: Workplace) -> None:
    events: list[CompressionEvent] = []
    async with ModelServer(lambda messages: "Well.") as server, model_of(server) as model:
        for on_failure in ("fallback", "raise"):
            state = AgentState(middle_context={"Compression": {"version": 7}})
            compression = Compression(on_event=events.append, on_failure=on_failure)
            asked = ask(agent_of(model, compression, [], state), "Hello.")
            if on_failure == "raise":
                with pytest.raises(Exception, match=r"state\.version"):
                    await asked
            else:
                assert await asked == "Well."
    assert [event.kind for event in events] == ["failure"]


# Several at once


async def test_agents_on_one_object_do_not_mix(place: Workplace) -> None:
    """They begin alike, and so are one conversation until each says who it is."""
    talkers = Talkers(2)

    def model_says(messages: list[dict[str, Any]], received: Received) -> Reply:
        if "I am" not in json.dumps(messages):
            return answer("Who are you?")
        return talkers(messages, received)

    compression = Compression(max_total_tokens=3_000)
    names = ("Ada", "Bob", "Eve")

    async with ModelServer(model_says) as server, model_of(server) as model:

        async def talk(name: str) -> Agent:
            agent = agent_of(model, compression)

            def read_file(number: int) -> str:
                return "\n".join(f"for {name} {line} of {number}: {'ok ' * 8}" for line in range(60))

            await agent.toolkit.add_tool(tool(read_file))
            for text in ("Hello.", "I have questions."):
                await ask(agent, text)
            for turn in range(7):
                await ask(agent, f"I am {name}, and this is question {turn}. Always call me {name}.")
            return agent

        agents = await asyncio.gather(*map(talk, names))
        assert server.refusals == []
    for name, agent in zip(names, agents, strict=True):
        assert talkers.heard[name] == 21
        for other in {*names} - {name}:
            assert not any(other in text for text in talkers.requests[name])
        [search] = [one for one in await compression.list_tools() if one.name == "search_history"]
        found = await search.call(query="question", _agent_state=agent.state)
        assert f"I am {name}" in found.content[0].text
        assert not any(other in found.content[0].text for other in {*names} - {name})


async def test_tools_see_their_own_conversation_while_a_twin_goes_on() -> None:
    compression = Compression(max_total_tokens=3_000)
    async with ModelServer(lambda messages: answer("Who are you?")) as server, model_of(server) as model:
        one, other = agent_of(model, compression), agent_of(model, compression)
        for agent in (one, other):
            await ask(agent, "Hello.")
        await ask(other, "The secret is Tollan.")
    [search] = [tool for tool in await compression.list_tools() if tool.name == "search_history"]
    assert "Tollan" in (await search.call(query="secret", _agent_state=other.state)).content[0].text
    assert "Tollan" not in (await search.call(query="secret is", _agent_state=one.state)).content[0].text


async def test_what_is_known_of_an_agent_ends_with_it() -> None:
    compression = Compression()
    async with ModelServer(lambda messages: answer("Hi.")) as server, model_of(server) as model:
        agents = [agent_of(model, compression) for _ in range(3)]
        for agent in agents:
            await ask(agent, "Hello.")
    assert len(compression._sessions) == 3
    del agents, agent
    gc.collect()
    assert not compression._sessions


# What goes wrong


async def test_cancelled_cut_and_failing_runs_leave_the_history_whole(place: Workplace) -> None:
    def read_file(number: int) -> str:
        if number % 3 == 1:
            raise OSError(f"disk {number} is broken")
        return place.read_file(number)

    async with ModelServer(Talkers(7), window_tokens=WINDOW) as server, model_of(server, True) as model:
        agent = agent_of(model, Compression(max_total_tokens=5_000), [tool(read_file)])
        await ask(agent, "I am Ada, read all.")
        server.fail(hang())
        run = asyncio.create_task(ask(agent, "I am Ada, are you there?"))
        await server.started.wait()
        run.cancel()
        await run
        server.release()
        server.fail(half_stream("abc"))
        with pytest.raises(openai.APIConnectionError):
            await ask(agent, "I am Ada, and now?")
        server.fail(
            answer("Two at once.", [("read_file", {"number": 1}), ("read_file", {"number": 2})]),
            answer("Good."),
        )
        assert await ask(agent, "I am Ada, once more.") == "Good."
        await ask(agent, "I am Ada, read on.")
        assert server.refusals == []
    outputs = [output_of(block) for block in results_in(agent.state)]
    assert any("is broken" in text for text in outputs)
    said = [msg.get_text_content() for msg in agent.state.context if msg.role == "user"]
    assert said == [
        "I am Ada, read all.",
        "I am Ada, are you there?",
        "I am Ada, and now?",
        "I am Ada, once more.",
        "I am Ada, read on.",
    ]


@whole_and_streamed
async def test_a_refusal_is_answered_by_one_smaller_try(place: Workplace, stream: bool) -> None:
    async with ModelServer(Talkers(12), window_tokens=16_000) as server, model_of(server, stream) as model:
        agent = agent_of(model, Compression(max_total_tokens=24_000, arrival_ratio=1.0), [reader(place)])
        assert (await ask(agent, "I am Ada, read all.")).startswith("Done")
        assert len(server.refusals) == 1
        assert "in a window of" in server.refusals[0]


async def test_other_failures_are_not_tried_again(place: Workplace) -> None:
    async with ModelServer(lambda messages: answer("Hi.")) as server, model_of(server) as model:
        agent = agent_of(model, Compression())
        model.client.base_url = server.url + "/nowhere"
        with pytest.raises(openai.NotFoundError):
            await ask(agent, "Hello.")
        assert len(server.requests) == 1


@whole_and_streamed
async def test_its_own_model_writes_summaries(place: Workplace, stream: bool) -> None:
    talkers = Talkers(9)

    def model_says(messages: list[dict[str, Any]], received: Received) -> Reply:
        if not received.tools:
            return answer("## Goal\n- Ada wants all logs read.\n## Done\n- Logs were read; all was well.")
        return talkers(messages, received)

    events: list[CompressionEvent] = []
    async with ModelServer(model_says) as server, model_of(server, stream) as model:
        compression = Compression(
            max_total_tokens=4_000, mode="compress", summarizer=model, on_event=events.append
        )
        await ask(agent_of(model, compression, [reader(place)]), "I am Ada, read all.")
        assert server.refusals == []
        assert "Ada wants all logs read" in json.dumps(server.requests[-1].messages)
    stats = compression.stats()
    assert stats is not None
    assert stats.summarizer_calls > 0
    assert stats.summarizer_input_tokens > 0


async def test_results_come_in_whole_unless_a_limit_was_set() -> None:
    long = "\n".join(f"line {n} of a long result" for n in range(12_000))  # about 75,000 tokens
    shared = ContextConfig(reserve_ratio=0.2)

    async def result_with(middleware: Any, config: ContextConfig | None = shared) -> str:
        async with ModelServer(Talkers()) as server, model_of(server) as model:
            agent = agent_of(model, middleware, [tool(lambda number: long)], context_config=config)
            await ask(agent, "I am Ada, read all.")
            return output_of(results_in(agent.state)[0])

    assert await result_with(Compression(store=InMemoryOffloadStore())) == long
    assert "TRUNCATED" in await result_with(None)
    assert "TRUNCATED" in await result_with(Compression(), ContextConfig(tool_result_limit=20_000))
    assert shared.trigger_ratio == 0.8


async def test_a_summary_of_earlier_keeps_its_place(place: Workplace) -> None:
    async with ModelServer(Talkers(12)) as server, model_of(server) as model:
        state = AgentState(
            summary="<system-info>Here is a summary of your previous work: Tollan.</system-info>"
        )
        agent = agent_of(model, Compression(max_total_tokens=4_000), [reader(place)], state)
        await ask(agent, "I am Ada, read all.")
        for request in server.requests:
            assert request.messages[1]["role"] == "user"
            assert "previous work: Tollan" in json.dumps(request.messages[1])
        assert "ctx://" in json.dumps(server.requests[-1].messages)
        assert server.refusals == []


async def test_the_agent_is_not_told_that_its_context_will_be_compressed() -> None:
    async with ModelServer(lambda messages: answer("Hi.")) as server, model_of(server) as model:
        model.context_size = 1_000
        for middleware, is_told in ((None, True), (Compression(), False)):
            agent = agent_of(model, middleware)
            await ask(agent, "Hello. " * 450)
            assert ("context-length" in json.dumps(server.requests[-1].messages)) == is_told


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(InvalidArgumentError, match="states: there is no such field"):
        Compression(states={})
    with pytest.raises(InvalidArgumentError, match="summarizer: 'gpt' is a name"):
        Compression(summarizer="gpt")  # type: ignore[arg-type]
