"""A long task through the SDKs, against a server that refuses what the two other APIs refuse."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import anthropic
import openai
import pytest

from context_compressor import CompressedMemory
from tests.integrations.clients_support import MESSAGES, RESPONSES, Api
from tests.support.model_server import ModelServer, answer
from tests.support.replies import Reply
from tests.support.wires import Received
from tests.support_tests.test_form_wires import every_way

Dict = dict[str, Any]

TURNS, STEPS = 36, 4
"""Turns of the model, and of these how many for each request of the user."""
BUDGET, WINDOW = 6_000, 14_000
FIELDS = {"type": "object", "properties": {"host": {"type": "integer"}}, "required": ["host"]}
NAMED = {"name": "read_log", "description": "Read a host's log."}
READ_LOG: Dict = {
    "responses": {"type": "function", "strict": False, **NAMED, "parameters": FIELDS},
    "anthropic": {**NAMED, "input_schema": FIELDS},
}


def log_of(host: int) -> str:
    return "\n".join(f"host-{host} {line:03} unit {line * host % 89} ok" for line in range(60))


class Reader:
    """A model that reads logs, in one turn two at once, and in one an offloaded text that it sees named."""

    def __init__(self) -> None:
        self.turn = 0
        self.read_back: str | None = None

    def __call__(self, messages: list[Dict], received: Received) -> Reply:
        self.turn += 1
        if self.turn % STEPS == 0:
            return answer(f"Done by turn {self.turn}.", reasoning="All is read.")
        seen = re.search(r"ctx://[0-9a-f]{16}", json.dumps(messages))
        if self.turn > 2 * TURNS // 3 and seen and self.read_back is None:
            self.read_back = seen[0]
            return answer("Once more.", [("read_offloaded", {"ref": seen[0]})], reasoning="What was that?")
        hosts = (self.turn, self.turn + 100) if self.turn % STEPS == 2 else (self.turn,)
        return answer(f"Turn {self.turn}.", [("read_log", {"host": n}) for n in hosts], reasoning="Next.")


async def talk(api: Api, client: Any, memory: CompressedMemory | None, **way: Any) -> list[Any]:
    """Have a conversation, its requests views of a memory's if there is one; return all that was said."""
    form, is_async = ("anthropic" if api is MESSAGES else "responses"), way["asynchronous"]
    tools = memory.tools(form) if memory else None
    said: list[Any] = []
    for turn in range(TURNS):
        if turn % STEPS == 0:
            said.append({"role": "user", "content": f"Look at the next hosts, please ({turn})."})
        view: Any = said
        if memory is not None and is_async:
            view = await memory.view(said, form=form)
        elif memory is not None:
            view = await asyncio.to_thread(memory.view_sync, said, form=form)
        made = await api.ask(client, view, tools=[READ_LOG[form], *(tools.schemas if tools else [])], **way)
        said += made.raw.output if api is RESPONSES else [{"role": "assistant", "content": made.raw.content}]
        results = list[tuple[str, str]]()
        for id, name, given in made.calls:
            if name == "read_log" or tools is None:
                results.append((id, log_of(given["host"])))
            elif is_async:
                results.append((id, await tools.call(name, given)))
            else:
                results.append((id, await asyncio.to_thread(tools.call_sync, name, given)))
        said += api.results(results) if results else []
    return said


every_api = pytest.mark.parametrize("api", [RESPONSES, MESSAGES], ids=str)


@pytest.mark.variants(2)
@every_api
@every_way
async def test_a_long_task(api: Api, asynchronous: bool, stream: bool) -> None:
    reader = Reader()
    memory = CompressedMemory(max_total_tokens=BUDGET)
    async with (
        ModelServer(reader, window_tokens=WINDOW) as server,
        api.open(server, asynchronous) as client,
    ):
        said = await talk(api, client, memory, asynchronous=asynchronous, stream=stream)
        assert server.refusals == []
        assert len(server.requests) == TURNS
    assert reader.read_back is not None
    assert memory.stats().events > 3
    shown = json.dumps(server.requests[-1].messages)
    assert f"({TURNS - STEPS})" in shown
    assert len(shown) < len(json.dumps([str(item) for item in said])) / 4


@every_api
async def test_without_a_memory_the_same_is_refused(api: Api) -> None:
    async with ModelServer(Reader(), window_tokens=WINDOW) as server, api.open(server, True) as client:
        with pytest.raises((openai.BadRequestError, anthropic.BadRequestError)):
            await talk(api, client, None, asynchronous=True, stream=False)
        assert len(server.requests) < TURNS / 2
