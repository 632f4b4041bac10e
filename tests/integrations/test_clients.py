"""Wrapped clients, through the real SDKs, against a server that refuses what providers refuse."""

from __future__ import annotations

import asyncio
import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from context_compressor import TiktokenCounter
from context_compressor.integrations.observed import writer
from context_compressor.lab.readers import read_path
from tests.integrations.clients_support import (
    APIS,
    CHAT,
    GENERATION,
    GENERATION_WHOLE,
    MESSAGES,
    OURS,
    RESPONSES,
    Api,
    each_way_once,
    every_way,
    work,
)
from tests.support.behaviours import Kept
from tests.support.model_server import ModelServer, answer, context_length_exceeded
from tests.support.replies import Reply
from tests.support.task import BUDGET, LEAST_RAW_TOKENS, REQUEST, TURNS, WINDOW, Talkers, Worker, Workplace
from tests.support.wires import Received, wire_of
from tests.support_tests.clients import RefusedError

Dict = dict[str, Any]

every_api = pytest.mark.parametrize("api", APIS, ids=str)


SMALL: Dict = {"max_total_tokens": 8_000, "summarizer": "rules"}


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    return Workplace(tmp_path_factory.mktemp("work"))


@pytest.mark.variants(3)
@pytest.mark.parametrize(
    ("api", "asynchronous", "stream"),
    [
        *((api, True, True) for api in (CHAT, MESSAGES, GENERATION)),
        (RESPONSES, False, True),  # the SDK takes a while for each item that it sends
        *((api, False, False) for api in (CHAT, MESSAGES, GENERATION)),
    ],
    ids=str,
)
async def test_a_long_task(api: Api, workplace: Workplace, asynchronous: bool, stream: bool) -> None:
    worker = Worker(reasoning=True)
    said: list[Any] = [{"role": "user", "content": REQUEST}]
    async with (
        ModelServer(worker, window_tokens=WINDOW) as server,
        api.open(server, asynchronous, max_total_tokens=BUDGET) as client,
    ):
        turn = await work(
            api, client, said, workplace.run, turns=TURNS, stream=stream, asynchronous=asynchronous
        )
        assert server.refusals == []
        assert len(server.requests) == TURNS
        assert api.stats_of(client).events > 3
    assert turn.text.startswith("All logs are read")
    assert worker.read_back
    assert TiktokenCounter().count_text(json.dumps(said)) > LEAST_RAW_TOKENS


@every_api
async def test_without_it_the_same_is_refused(api: Api, workplace: Workplace) -> None:
    said: list[Any] = [{"role": "user", "content": REQUEST}]
    async with ModelServer(Worker(), window_tokens=WINDOW) as server, api.open(server, True) as client:
        with pytest.raises((openai.BadRequestError, anthropic.BadRequestError, RefusedError)):
            await work(api, client, said, workplace.run, turns=TURNS)
        assert len(server.requests) < TURNS / 2


@every_api
async def test_one_that_only_looks_on_changes_nothing(api: Api, workplace: Workplace, tmp_path: Path) -> None:
    sent, log = list[list[Dict]](), tmp_path / "log.jsonl"
    for options in ({}, {**SMALL, "observe": log}):
        said: list[Any] = [{"role": "user", "content": REQUEST}]
        async with ModelServer(Worker(5)) as server, api.open(server, True, **options) as client:
            await work(api, client, said, workplace.run, turns=5)
            sent.append([one.json for one in server.requests])
    assert sent[0] == sent[1]
    writer().submit(int).result()
    (session,) = read_path(log, [])
    assert session.turns is not None
    assert len(session.turns) == len(sent[0]) == 5


class Reads:
    """A model that calls what it is told to, request by request, and then answers."""

    def __init__(self, *calls: list[tuple[str, Dict]]) -> None:
        self.calls = list(calls)
        self.offered: list[set[str]] = []

    def __call__(self, messages: list[Dict], received: Received) -> Reply:
        tools = [one.get("function") or one for one in received.tools]
        self.offered.append({one["name"] for one in tools})
        if not self.calls:
            return answer("All done.")
        return answer(f"Step {len(self.offered)}.", self.calls.pop(0), reasoning="Hm.")


OURS_ALONE = [("grep_offloaded", {"pattern": "lost"})]
HIS = [("read_file", {"number": 1})]
BOTH = [OURS_ALONE[0], HIS[0], ("search_history", {"query": "lost"})]
SAID = [
    *({"role": "user", "content": f"Note {n}: {'word ' * 300}"} for n in range(30)),
    {"role": "user", "content": REQUEST},
]
"""More than the budget of a small client, so that something leaves and the tools are offered."""
every_stream = pytest.mark.parametrize(
    "api", [CHAT, RESPONSES, MESSAGES, GENERATION, GENERATION_WHOLE], ids=str
)


class TestReadingBack:
    @every_way
    async def test_a_reply_that_calls_only_ours_is_answered_inside(
        self, api: Api, asynchronous: bool, stream: bool
    ) -> None:
        reads = Reads(OURS_ALONE, OURS_ALONE)
        async with ModelServer(reads) as server, api.open(server, asynchronous, **SMALL) as client:
            turn = await api.ask(client, SAID, stream=stream, asynchronous=asynchronous)
            assert server.refusals == []
            assert len(server.requests) == 3
            read = [count_of(received) for received in server.requests]
        assert reads.offered[0] == {"read_file", "grep_files", "query", *OURS}
        assert turn.calls == []
        assert turn.text.endswith("All done.")
        assert turn.text.count("Step 1.") == (1 if stream else 0)
        assert turn.usage[0] == sum(read)
        assert turn.reason in ("stop", "completed", "end_turn")
        assert SAID[-1] == {"role": "user", "content": REQUEST}

    @every_way
    async def test_ours_beside_the_callers_are_answered_beside_his(
        self, api: Api, asynchronous: bool, stream: bool
    ) -> None:
        way: Dict = {"stream": stream, "asynchronous": asynchronous}
        said: list[Any] = list(SAID)
        async with ModelServer(Reads(OURS_ALONE, BOTH, HIS)) as server:
            async with api.open(server, asynchronous, **SMALL) as client:
                turn = await work(api, client, said, lambda name, given: "a file", turns=4, **way)
            assert server.refusals == []
            assert turn.text == "All done."
            asked = [json.dumps(received.messages) for received in server.requests]
        for text, count in zip(asked, (0, 1, 2, 2), strict=True):
            assert text.count('"grep_offloaded"') == count
            assert text.count("No line matches") == count
        for text in asked[2:]:
            assert text.count('"search_history"') == text.count("Step 1.") == text.count("Step 2.") == 1
        for before, later in pairwise(asked):
            assert later.startswith(before[:-1])
        assert not any(name in json.dumps(said) for name in OURS)

    @each_way_once
    async def test_what_calls_on_and_on_comes_to_an_end(
        self, api: Api, asynchronous: bool, stream: bool
    ) -> None:
        reads = Reads(*[OURS_ALONE] * 9)
        async with ModelServer(reads) as server, api.open(server, asynchronous, **SMALL) as client:
            turn = await api.ask(client, SAID, stream=stream, asynchronous=asynchronous)
        assert len(reads.offered) == 9
        assert reads.offered[-1] == {"read_file", "grep_files", "query"}
        assert turn.calls == []
        assert turn.reason in ("stop", "completed", "end_turn")
        assert "Step 9." in turn.text

    @each_way_once
    async def test_a_refusal_is_answered_by_one_smaller_try(
        self, api: Api, asynchronous: bool, stream: bool
    ) -> None:
        said = [{"role": "user", "content": f"Note {n}: {'word ' * 300}"} for n in range(30)]
        async with (
            ModelServer(lambda messages: "Well.") as server,
            api.open(server, asynchronous, max_total_tokens=16_000) as client,
        ):
            server.fail(context_length_exceeded(8_000))
            turn = await api.ask(client, said, stream=stream, asynchronous=asynchronous)
            assert turn.text == "Well."
            first, second = [len(json.dumps(received.messages)) for received in server.requests]
            assert second < first * 0.8
            server.fail(context_length_exceeded(4_000), times=2)
            with pytest.raises((openai.BadRequestError, anthropic.BadRequestError, RefusedError)):
                await api.ask(client, said, stream=stream, asynchronous=asynchronous)
            assert len(server.requests) == 4


def count_of(received: Received) -> int:
    return wire_of(received.path).count(received)


@every_api
async def test_two_conversations_at_once_do_not_mix(api: Api) -> None:
    talkers = Talkers()

    async def talk(client: Any, name: str) -> None:
        said: list[Any] = [{"role": "user", "content": "Hello. "}]
        for n in range(8):
            said.append({"role": "user", "content": f"I am {name}, this is request {n}."})
            run = lambda tool, given: f"{name} has a file: " + f"{name}-line ok. " * 200  # noqa: E731
            await work(api, client, said, run, turns=2)

    async with ModelServer(talkers, window_tokens=WINDOW) as server:
        async with api.open(server, True, max_total_tokens=6_000) as client:
            await asyncio.gather(talk(client, "Ada"), talk(client, "Bob"))
        assert server.refusals == []
        assert api.stats_of(client).events > 0
    assert all("Bob" not in text for text in talkers.requests["Ada"])
    assert all("Ada" not in text for text in talkers.requests["Bob"])
    assert talkers.heard == {"Ada": 16, "Bob": 16}


NOTES = [{"role": "user", "content": f"Note {n}: {'word ' * 80}"} for n in range(14)]


def served(api: Api, name: str, by: str) -> tuple[list[Any], Dict]:
    """Return a user's list and what goes beside it: only instructions, or tools, say whose it is."""
    text = f"This serves {name}."
    if by == "tools":
        tools = json.loads(json.dumps(api.tools))
        (tools[0].get("function") or tools[0])["description"] = text
        return list(NOTES), {"tools": tools}
    beside = {"messages": "system", "responses": "instructions"}.get(api.name)
    if beside is not None:
        return list(NOTES), {beside: text}
    return [{"role": "system", "content": text}, *NOTES], {}


@pytest.mark.parametrize("by", ["instructions", "tools"])
@every_stream
async def test_no_word_of_one_user_goes_out_for_another_whose_words_and_call_ids_are_the_same(
    api: Api, by: str
) -> None:
    """What a model answers, asks for and reads back may quote all that it was told."""

    def quotes(messages: list[Dict], received: Received) -> Reply:
        [name] = set(re.findall(r"This serves (\w+)", json.dumps(received.json)))
        results = json.dumps(messages).count("a file")
        offered = {(one.get("function") or one)["name"] for one in received.tools}
        if results > 3 or not offered & set(OURS):
            return answer("Done.")
        ours = ("search_history", {"query": f"what serves {name}"}, f"ours_{results}")
        his = ("read_file", {"number": 1}, f"call_{results}")
        return answer(None, [ours, his] if name == "Ada" else [his])

    names, stream = ["Ada", "Bob"], by == "tools"
    async with (
        ModelServer(quotes) as server,
        api.open(server, True, max_total_tokens=1_000) as client,
    ):
        lists = {name: served(api, name, by) for name in names}
        for name in names * 3:
            said, beside = lists[name]
            turn = await api.ask(client, said, stream=stream, asynchronous=True, **beside)
            said += turn.items
            said += api.results([(id, "a file") for id, _, _ in turn.calls])
        sent = [json.dumps(received.json) for received in server.requests]
    assert any("what serves" in text for text in sent)
    for text in sent:
        assert len({name for name in names if name in text}) == 1


async def test_what_was_read_back_is_forgotten_with_the_message_that_said_it() -> None:
    states, said = Kept(), [dict(note) for note in NOTES]
    said[3]["content"] += " The quagga is at 7719."
    reads = Reads([("search_history", {"query": "quagga"}), *HIS])
    options: Dict = {"max_total_tokens": 1_000, "states": states, "key": lambda _: "ada", "branch_seconds": 0}
    async with ModelServer(reads) as server, CHAT.open(server, True, **options) as client:
        turn = await CHAT.ask(client, said, stream=False, asynchronous=True)
        said += [*turn.items, *CHAT.results([(turn.calls[0][0], "a file")])]
        await CHAT.ask(client, said, stream=False, asynchronous=True)
        assert "quagga" in json.dumps(server.requests[-1].messages)
        assert "quagga" in states.texts["ada"]
        del said[3]
        await CHAT.ask(client, said, stream=False, asynchronous=True)
        assert "quagga" not in json.dumps(server.requests[-1].messages)
    assert "quagga" not in states.texts["ada"]


def named(states: Kept) -> Dict:
    return {"max_total_tokens": 8_000, "states": states, "key": lambda request: "one"}


def request_for(name: str, said: list[Any], states: Kept) -> Any:
    """Return the request that goes out for a list in this process."""
    [api] = [one for one in APIS if one.name == name]

    async def ask() -> Any:
        async with ModelServer(Reads()) as server, api.open(server, True, **named(states)) as client:
            await api.ask(client, said, stream=False, asynchronous=True)
        return server.requests[-1].json

    return asyncio.run(ask())


@pytest.mark.variants(0)
@every_api
async def test_another_process_goes_on_with_the_same_request(
    api: Api, workplace: Workplace, elsewhere: Any
) -> None:
    states, said = Kept(), list(SAID)
    run = workplace.run
    reads = Reads(*[HIS] * 9, BOTH, *[HIS] * 3)
    async with ModelServer(reads) as server, api.open(server, True, **named(states)) as client:
        with pytest.raises(AssertionError, match="no answer"):
            await work(api, client, said, run, turns=12)
        there = await elsewhere(request_for, api.name, said, states)
        await api.ask(client, said, stream=False, asynchronous=True)
        assert list(states.texts) == ["one"]
    one = server.requests[-1].json
    assert json.dumps(there) == json.dumps(one)
    assert "ctx://" in json.dumps(one)
