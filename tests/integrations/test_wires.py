"""A long task through the SDKs, against a server that refuses what the two other APIs refuse."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import anthropic
import openai
import pytest

from context_compressor import CompressedMemory, OffloadTools
from tests.support.model_server import ModelServer, answer
from tests.support.replies import Reply
from tests.support.wires import Received
from tests.support_tests.test_form_wires import converse, every_way, respond

Dict = dict[str, Any]

TURNS, STEPS = 36, 4
"""Turns of the model, and of these how many for each request of the user."""
BUDGET, WINDOW = 6_000, 14_000
FIELDS = {"type": "object", "properties": {"host": {"type": "integer"}}, "required": ["host"]}
READ_LOG = {"name": "read_log", "description": "Read a host's log.", "parameters": FIELDS}


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


class Conversation:
    """A list in one form, and how a request is made of it."""

    def __init__(self, server: ModelServer, form: Any, memory: CompressedMemory | None, way: Dict) -> None:
        self.server, self.form, self.memory, self.way = server, form, memory, way
        self.said: list[Any] = []
        self.tools: OffloadTools | None = memory.tools(form) if memory else None

    async def ask(self) -> list[tuple[str, str, Any]]:
        """Send what is to be sent; return the calls of the answer."""
        view = self.said
        if self.memory is not None:
            if self.way["asynchronous"]:
                view = await self.memory.view(self.said, form=self.form)
            else:
                view = await asyncio.to_thread(self.memory.view_sync, self.said, form=self.form)
        offered = self.tools.schemas if self.tools else []
        if self.form == "responses":
            tools = [{"type": "function", "strict": False, **READ_LOG}, *offered]
            made = await respond(self.server, view, tools=tools, **self.way)
            self.said += made.output
            calls = [item for item in made.output if item.type == "function_call"]
            return [(call.call_id, call.name, json.loads(call.arguments)) for call in calls]
        own = {"name": "read_log", "description": "Read a host's log.", "input_schema": FIELDS}
        thinking = {"type": "enabled", "budget_tokens": 1_024}
        more: Dict = {"tools": [own, *offered], "thinking": thinking, "max_tokens": 2_048}
        made = await converse(self.server, view, **self.way, **more)
        self.said.append({"role": "assistant", "content": made.content})
        return [(block.id, block.name, block.input) for block in made.content if block.type == "tool_use"]

    async def run(self, name: str, arguments: Any) -> str:
        if name == "read_log" or self.tools is None:
            return log_of(arguments["host"])
        if self.way["asynchronous"]:
            return await self.tools.call(name, arguments)
        return await asyncio.to_thread(self.tools.call_sync, name, arguments)

    async def talk(self) -> None:
        for turn in range(TURNS):
            if turn % STEPS == 0:
                self.said.append({"role": "user", "content": f"Look at the next hosts, please ({turn})."})
            results = [(id, await self.run(name, arguments)) for id, name, arguments in await self.ask()]
            if not results:
                continue
            if self.form == "responses":
                kind = "function_call_output"
                self.said += [{"type": kind, "call_id": id, "output": text} for id, text in results]
            else:
                blocks = [{"type": "tool_result", "tool_use_id": id, "content": text} for id, text in results]
                self.said.append({"role": "user", "content": blocks})


@pytest.mark.variants(2)
@pytest.mark.parametrize("form", ["responses", "anthropic"])
@every_way
async def test_a_long_task(form: str, asynchronous: bool, stream: bool) -> None:
    reader = Reader()
    memory = CompressedMemory(max_total_tokens=BUDGET)
    async with ModelServer(reader, window_tokens=WINDOW) as server:
        talk = Conversation(server, form, memory, {"asynchronous": asynchronous, "stream": stream})
        await talk.talk()
        assert server.refusals == []
        assert len(server.requests) == TURNS
    assert reader.read_back is not None
    assert memory.stats().events > 3
    shown = json.dumps(server.requests[-1].messages)
    assert f"({TURNS - STEPS})" in shown
    assert len(shown) < len(json.dumps([str(item) for item in talk.said])) / 4


@pytest.mark.parametrize("form", ["responses", "anthropic"])
async def test_without_a_memory_the_same_is_refused(form: str) -> None:
    async with ModelServer(Reader(), window_tokens=WINDOW) as server:
        talk = Conversation(server, form, None, {"asynchronous": True, "stream": False})
        with pytest.raises((openai.BadRequestError, anthropic.BadRequestError)):
            await talk.talk()
        assert len(server.requests) < TURNS / 2
