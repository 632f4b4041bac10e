"""Sixty turns, resuming, several agents at once, and what goes wrong on the way."""

from __future__ import annotations

import gc
import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from agentscope.agent import ContextConfig
from agentscope.state import AgentState
from agentscope.tool import FunctionTool

from context_compressor import CompressionEvent, InMemoryOffloadStore
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
from tests.support.model_server import ModelServer, answer
from tests.support.replies import Reply
from tests.support.task import (
    BUDGET,
    GREP,
    QUERY,
    REQUEST,
    WINDOW,
    Talkers,
    Worker,
    Workplace,
)
from tests.support.wires import Received

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


# Another process


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
