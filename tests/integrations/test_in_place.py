"""The agent's own model writes notes behind its last request, where that is possible, and else apart.

The wrapped clients; for frameworks `tests/support/behaviours.py` says the same.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from typing import Any

import pytest

from context_compressor import InMemoryOffloadStore
from tests.integrations.clients_support import APIS, CHAT, GENERATION, MESSAGES, RESPONSES, Api
from tests.integrations.test_own import FORM, FORMAT, SUMMARY, is_summary, with_of
from tests.support.behaviours import IN_PLACE, Kept
from tests.support.model_server import ModelServer, Reply, answer, completion, context_length_exceeded, status
from tests.support.wires import Received, wire_of

Dict = dict[str, Any]
BUDGET = 8_000


def notes(count: int, longest: int = 300) -> list[Dict]:
    """Return so many messages of 300 tokens, the last one of `longest`."""
    lengths = [300] * (count - 1) + [longest]
    return [{"role": "user", "content": f"Note {n}: {'word ' * length}"} for n, length in enumerate(lengths)]


@dataclass
class Serving:
    """A model that answers, and writes notes as it is asked; `refuse` comes first where it is asked so."""

    refuse: Reply | None = None
    there: list[Received] = field(default_factory=list)
    apart: list[Received] = field(default_factory=list)

    def __call__(self, messages: list[Any], received: Received) -> Reply | str:
        if IN_PLACE in json.dumps(messages[-1]):
            self.there.append(received)
            refusal, self.refuse = self.refuse, None
            return refusal or answer(SUMMARY)
        if is_summary(received):
            self.apart.append(received)
            return SUMMARY
        return "Well."


def said_in(api: Api, received: Received) -> list[Any]:
    body = received.json
    return list(body["input"]["messages"] if api is GENERATION else wire_of(received.path).messages(body))


FREE = {"tool_choice", "response_format", "text", "n"}
"""What would force the answer, or is of one API alone."""


async def ask(api: Api, server: ModelServer, said: list[Dict], then: list[Dict], **more: Any) -> Any:
    """Ask twice; return what the wrapped client came to."""
    async with api.open(server, True, max_total_tokens=BUDGET, summarizer="own") as client:
        for one in (said, then):
            await api.ask(client, one, stream=False, asynchronous=True, **more)
        return api.stats_of(client)


@pytest.mark.parametrize(
    ("api", "asynchronous"),
    [(api, way) for way in (True, False) for api in APIS],
    ids=str,
)
async def test_it_is_the_last_request_with_one_message_behind_it(
    api: Api, asynchronous: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Byte for byte, also where the caller limits his own answers and what comes now fills half the budget.

    Tools, system and reasoning settings are in it as they were; what is for the answer alone is not.
    """
    caplog.set_level(logging.INFO, "context_compressor.memory.reporting")
    tells = {name: value for name, value in with_of(api).items() if name not in FREE}
    serving = Serving()
    async with (
        ModelServer(serving) as server,
        api.open(server, asynchronous, max_total_tokens=BUDGET, summarizer="own") as client,
    ):
        for said in (notes(20), notes(21, BUDGET // 2)):
            turn = await api.ask(client, said, stream=True, asynchronous=asynchronous, **tells)
        stats = api.stats_of(client)
    assert server.refusals == []
    first, asked, last = server.requests
    assert (serving.there, serving.apart) == ([asked], [])
    assert stats.summarizer_calls == 1
    assert " in place; 1 calls of a model" in caplog.text
    assert stats.summarizer_input_tokens == wire_of(asked.path).count(asked)
    assert json.dumps(said_in(api, asked)[:-1]) == json.dumps(said_in(api, first))
    assert json.dumps(asked.tools) == json.dumps(first.tools) != "[]"
    assert not asked.streams
    for name in ("system", "thinking", "instructions", "model"):
        assert asked.json.get(name) == first.json.get(name)
    parameters = {**asked.json, **asked.json.get("parameters", {})}
    for name in ("stop", "stop_sequences", "metadata", "truncation", "tool_choice"):
        assert name not in parameters
    assert all(room > 1_100 for name, room in parameters.items() if name.startswith("max_"))
    assert not asked.json.get("store")
    assert "the model of the agent wrote that" in json.dumps(last.json)
    assert turn.text == "Well."


FIRST_LONG = notes(10 * BUDGET // 300)


@pytest.mark.parametrize("api", APIS, ids=str)
@pytest.mark.parametrize("lists", [(FIRST_LONG,), (notes(20), notes(60))], ids=["ten times", "not shown"])
async def test_what_no_request_showed_is_written_apart(api: Api, lists: tuple[list[Dict], ...]) -> None:
    serving = Serving()
    async with (
        ModelServer(serving) as server,
        api.open(server, True, max_total_tokens=BUDGET, summarizer="own") as client,
    ):
        for said in lists:
            await api.ask(client, said, stream=False, asynchronous=True)
    assert server.refusals == []
    assert serving.apart
    assert serving.there == []
    assert SUMMARY.splitlines()[-1] in str(server.requests[-1].json)


async def test_what_is_opened_again_is_written_apart_until_it_has_asked() -> None:
    serving, states, store = Serving(), Kept(), InMemoryOffloadStore()
    kept: Any = {"max_total_tokens": BUDGET, "summarizer": "own", "states": states, "store": store}
    async with ModelServer(serving) as server:
        for lists in ((notes(20),), (notes(30), notes(43), notes(46))):
            async with CHAT.open(server, True, **kept) as client:
                for said in lists:
                    await CHAT.ask(client, said, stream=False, asynchronous=True)
    asked = [one for one in server.requests if one in serving.apart or one in serving.there]
    assert [one in serving.there for one in asked] == [False, True]


@pytest.mark.parametrize(
    ("api", "first", "then"),
    [
        (CHAT, {"tool_choice": "required"}, {}),
        (CHAT, {"response_format": FORM}, {"response_format": FORM}),
        (CHAT, {"model": "other"}, {}),
        (CHAT, {"tools": []}, {}),
        (RESPONSES, {"text": FORMAT}, {"text": FORMAT}),
        (RESPONSES, {"instructions": "Be brief."}, {}),
        (MESSAGES, {"tool_choice": {"type": "any"}, "thinking": {"type": "disabled"}}, {}),
        (MESSAGES, {"system": "You serve Anna."}, {"system": "You serve Bert."}),
        (GENERATION, {"model": "other"}, {}),
    ],
    ids=str,
)
async def test_a_request_that_cannot_be_said_again_is_not(api: Api, first: Any, then: Any) -> None:
    """It forces the answer, or was of another list: no word of another list goes out. Nothing has failed."""
    serving = Serving()
    async with (
        ModelServer(serving) as server,
        api.open(server, True, max_total_tokens=BUDGET, summarizer="own", on_failure="raise") as client,
    ):
        await api.ask(client, notes(20), stream=False, asynchronous=True, **first)
        await api.ask(client, notes(30), stream=False, asynchronous=True, **then)
    assert serving.there == []
    [asked] = serving.apart
    assert "Be brief." not in str(asked.json)
    assert "Anna" not in str(asked.json)


@pytest.mark.parametrize(
    "refusal",
    [
        status(400, "no such thing"),
        context_length_exceeded(20_000),
        answer("I will read the next file."),
        answer(None, [("read_file", {"number": 1})]),
    ],
    ids=["refused", "too long", "no edits", "a call"],
)
async def test_where_it_is_refused_it_is_asked_apart_in_the_same_event(refusal: Reply) -> None:
    """Both are counted, and the event tells of it."""
    serving = Serving(refuse=refusal)
    async with ModelServer(serving) as server:
        stats = await ask(CHAT, server, notes(20), notes(30))
    assert server.refusals == []
    assert serving.apart
    assert stats.summarizer_calls == len(serving.there) + len(serving.apart)
    assert SUMMARY.splitlines()[-1] in str(server.requests[-1].json)


@pytest.mark.parametrize(("place", "holds"), [(18, False), (25, True)], ids=["was read", "was not"])
async def test_what_it_read_of_what_stays_takes_the_notes_along(place: int, holds: bool) -> None:
    """Nobody writes them again while the view fits: rules do."""
    serving = Serving()
    async with (
        ModelServer(serving) as server,
        CHAT.open(server, True, max_total_tokens=BUDGET, target_ratio=0.9, summarizer="own") as client,
    ):
        for said in (notes(20), notes(30), notes(30)[:place] + notes(30)[place + 1 :]):
            await CHAT.ask(client, said, stream=False, asynchronous=True)
    assert len(serving.there) == 1
    assert (SUMMARY.splitlines()[-1] in str(server.requests[-1].json)) is holds


async def test_what_it_names_of_all_that_it_saw_bears_no_mark() -> None:
    """Be it the system's, of what leaves or of what stays; what nothing showed does."""
    noted = "## Facts and values\n+ Ticket 48213 is of Note 3; Note 19 is newer\n+ Ticket 99999 is closed"
    serving = Serving(refuse=answer(noted))
    async with (
        ModelServer(serving) as server,
        MESSAGES.open(server, True, max_total_tokens=BUDGET, target_ratio=0.9, summarizer="own") as client,
    ):
        for count in (20, 30):
            system = {"system": "Yours is ticket 48213."}
            await MESSAGES.ask(client, notes(count), stream=False, asynchronous=True, **system)
    assert len(serving.there) == 1
    sent = json.dumps(server.requests[-1].json)
    assert "Ticket 48213 is of Note 3; Note 19 is newer" in sent
    assert "Ticket 99999 (?) is closed" in sent


async def test_a_window_that_is_known_has_to_hold_it() -> None:
    serving = Serving()
    async with (
        ModelServer(serving) as server,
        CHAT.open(server, True, window_tokens=2 * BUDGET, window_ratio=0.95, summarizer="own") as client,
    ):
        for count in (40, 60):
            await CHAT.ask(client, notes(count), stream=False, asynchronous=True)
    assert serving.there == []
    assert serving.apart


LOGS = [
    f"Log {n}: " + "".join(f"host-{n} order {n}{line:03} shipped\n" for line in range(30)) for n in range(120)
]


async def test_no_request_takes_more_than_the_window_of_a_provider_that_counts_more() -> None:
    """With its answer's room. Only the first may, as nothing was counted; it is asked in smaller pieces."""
    serving, window, over = Serving(), 20_000, []

    def count(received: Received) -> int:
        return len(json.dumps([received.messages, received.tools])) * 17 // 30

    def policy(messages: list[Any], received: Received) -> Reply:
        written = serving(messages, received)
        tokens, room = count(received), received.json.get("max_tokens", 0)
        if tokens + room > window:
            over.append(received)
            return status(
                400, f"This model's maximum context length is {window} tokens, not {tokens + room}."
            )
        text = "Well." if written == "Well." else SUMMARY
        return completion(text, usage=(tokens, 20))

    limits = {"max_total_tokens": BUDGET, "window_tokens": window, "summarizer": "own"}
    async with (
        ModelServer(policy) as server,
        CHAT.open(server, True, **limits, on_failure="raise") as client,
    ):
        for number in range(90, len(LOGS), 2):
            said = [{"role": "user", "content": text} for text in LOGS[:number]]
            await CHAT.ask(client, said, stream=False, asynchronous=True)
    assert over == server.requests[:1]
    assert len(serving.apart) > 5
    assert serving.there
