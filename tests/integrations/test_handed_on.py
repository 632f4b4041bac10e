"""What a provider does by itself in a reply that is answered inside, and ids that calls share."""

from __future__ import annotations

import json
import operator
from collections import Counter
from typing import Any

import pytest

from context_compressor.integrations.clients.chat import ChatWire, GrowingCalls
from context_compressor.integrations.clients.generation import GenerationWire
from context_compressor.integrations.clients.messages import MessagesWire
from context_compressor.integrations.clients.responses import ResponsesWire
from context_compressor.integrations.clients.wire import not_ours
from tests.integrations.clients_support import (
    CHAT,
    MESSAGES,
    OURS,
    RESPONSES,
    Api,
    each_way_once,
    work,
)
from tests.integrations.test_clients import HIS, OURS_ALONE, SAID, SMALL
from tests.support.model_server import ModelServer, answer, raw
from tests.support.wires import Received, Said, wire_of

Dict = dict[str, Any]

PAGE: Dict = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Pond."}}
FETCH: Dict = {
    "type": "server_tool_use",
    "id": "srvtoolu_1",
    "name": "web_fetch",
    "input": {"url": "https://ponds.example"},
}
FETCHED: Dict = {
    "type": "web_fetch_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": {"type": "web_fetch_result", "url": "https://ponds.example", "content": PAGE},
}
SEARCH: Dict = {
    "type": "web_search_call",
    "id": "ws_1",
    "status": "completed",
    "action": {"type": "search", "query": "ponds"},
}
ways = pytest.mark.parametrize(
    ("asynchronous", "stream"),
    [(True, True), (False, False), (False, True), (True, False)],
    ids=["async streamed", "sync", "sync streamed", "async"],
)
HOSTED: Dict = {
    "messages": ([FETCH], [FETCHED]),
    "responses": ([SEARCH], [{**SEARCH, "id": "ws_2"}]),
    "chat": ([{"index": 0, "image": "of a pond"}], [{"index": 0, "image": "of a frog"}]),
}
"""What the server does in the reply that calls only ours, and in the one after it."""


@pytest.mark.variants(9)
@pytest.mark.parametrize("beside", [True, False], ids=["beside calls", ""])
@ways
@pytest.mark.parametrize("api", [CHAT, RESPONSES, MESSAGES], ids=str)
async def test_what_a_server_did_is_handed_on_and_valid(
    api: Api, beside: bool, asynchronous: bool, stream: bool
) -> None:
    first, second = HOSTED[api.name]
    key = "images" if api is CHAT else "hosted"
    said: list[Any] = list(SAID)
    way: Dict = {"stream": stream, "asynchronous": asynchronous}
    if api is RESPONSES and not asynchronous:
        # What the server did not keep goes back without ids.
        way |= {"store": False, "include": ["reasoning.encrypted_content"]}
    async with ModelServer(lambda messages: "Well.") as server:
        async with api.open(server, asynchronous, **SMALL) as client:
            server.script(
                answer("I look.", OURS_ALONE, reasoning="Hm.", **{key: first}),
                answer("It is a pond.", HIS if beside else (), reasoning="So.", **{key: second}),
                answer("Done.", reasoning="Well."),
            )
            turn = await api.ask(client, said, **way)
            handed = json.dumps(turn.raw.model_dump(mode="json", exclude_unset=True))
            for one in (*first, *second):
                assert handed.count(mark_of(one)) == 1
            assert "grep_offloaded" not in handed
            if api is CHAT:
                turn.items[0]["images"] = turn.raw.choices[0].message.images
            said += turn.items
            said += api.results([(id, "a file") for id, *_ in turn.calls])
            said.append({"role": "user", "content": "Thanks."})
            await api.ask(client, said, **way)
        assert server.refusals == []
        assert len(server.requests) == 3
        sent = json.dumps(server.requests[-1].messages)
    counted = {mark_of(one): sent.count(mark_of(one)) for one in (*first, *second)}
    assert set(counted.values()) == {1}
    assert sent.count('grep_offloaded"') == (1 if beside else 0)
    assert sent.count("It is a pond.") == 1
    assert sent.count("I look.") == (1 if beside or stream else 0)


def mark_of(item: Dict) -> str:
    """Return what stands once in a list for what a server did."""
    key = next(key for key in ("tool_use_id", "id", "image") if key in item)
    return f'"{key}": {json.dumps(item[key])}'


@each_way_once
async def test_ids_that_our_calls_and_the_callers_share_are_kept_apart(
    api: Api, asynchronous: bool, stream: bool
) -> None:
    both = [("grep_offloaded", {"pattern": "lost"}, "call_1"), ("read_file", {"number": 1}, "call_1")]
    both.append(("search_history", {"query": "pond"}, "call_1"))
    said: list[Any] = list(SAID)
    async with (
        ModelServer(lambda messages: "Done.") as server,
        api.open(server, asynchronous, **SMALL) as client,
    ):
        server.script(answer("", both), answer("", [both[1]]), answer("", both[::-1]), answer("Done."))
        way: Dict = {"stream": stream, "asynchronous": asynchronous}
        turn = await work(api, client, said, lambda name, given: "a file", turns=4, **way)
        assert turn.text == "Done."
        assert server.refusals == []
        answered = results_of(server.requests[-1])
    assert Counter(name for name, _ in answered) == {"read_file": 3, "grep_offloaded": 2, "search_history": 2}
    for name, text in answered:
        assert (text == "a file") == (name == "read_file")
        assert ("No line matches" in text) == (name == "grep_offloaded")


def results_of(received: Received) -> list[tuple[str, str]]:
    """Return the name of each call in a request, and what answers it."""
    calls: Dict = {}
    found = []
    for message in received.messages:
        content = message.get("content")
        blocks = content if isinstance(content, list) else []
        for one in (message, *(message.get("tool_calls") or ()), *blocks):
            id = one.get("call_id") or one.get("id")
            if one.get("type") in ("function_call", "tool_use", "function"):
                calls[id] = (one.get("function") or one)["name"]
            elif one.get("type") == "function_call_output":
                found.append((calls.pop(id), one["output"]))
            elif one.get("role") == "tool":
                found.append((calls.pop(one["tool_call_id"]), one["content"]))
            elif one.get("type") == "tool_result":
                found.append((calls.pop(one["tool_use_id"]), one["content"]))
    assert not calls
    return [(name, text if isinstance(text, str) else text[0]["text"]) for name, text in found]


WIRES = {
    "/v1/chat/completions": ChatWire(),
    "/v1/responses": ResponsesWire(),
    "/v1/messages": MessagesWire(),
    "/api/v1/services/aigc/text-generation/generation": GenerationWire(),
}


@pytest.mark.parametrize("path", WIRES)
@pytest.mark.parametrize("names", [["read_file"], ["grep_offloaded", "read_file"]], ids=str)
def test_texts_go_at_once_and_calls_when_the_stream_ends(path: str, names: list[str]) -> None:
    """In the provider's own events and order; none of them says anything of ours."""
    calls = [
        {"id": f"call_{n}", "type": "function", "function": {"name": name, "arguments": '{"number": 1}'}}
        for n, name in enumerate(names)
    ]
    message = {"role": "assistant", "content": "A word.", "reasoning_content": "Hm.", "tool_calls": calls}
    parameters = {"incremental_output": True, "result_format": "message"}
    received = Received(path, {}, {"parameters": parameters, "stream_options": {"include_usage": True}})
    lines = "".join(wire_of(path).events(Said(message, "tool_calls", (9, 9)), received)).splitlines()
    data = [line.removeprefix("data:") for line in lines if line.startswith("data:")]
    events = [json.loads(text) for text in data if "[DONE]" not in text]
    reader = WIRES[path].reader(OURS, parameters)
    at_once = [one for event in events for one in reader.feed(event)]
    held = reader.end()
    [first, *_] = [n for n, event in enumerate(events) if names[0] in json.dumps(event)]
    assert len(at_once) == first
    assert all(map(operator.is_, at_once, events))
    assert [call.name for call in reader.heard().calls] == names
    assert "read_file" in json.dumps(held)
    if names == ["read_file"]:
        assert at_once + held == events
    assert "grep_offloaded" not in json.dumps(held)


def test_usage_that_nobody_asked_for_is_left_out_of_a_stream() -> None:
    """What comes beside text is the provider's own way; it tells what the replies before cost, too."""
    reader = ChatWire().reader(OURS, {})
    reader.hides_usage, reader.spent = True, {"prompt_tokens": 5}
    text = {"id": "c", "choices": [{"index": 0, "delta": {"content": "a"}}]}
    usage = {"prompt_tokens": 9}
    remark = {"id": "c", "choices": [], "prompt_filter_results": []}
    said = [remark, {**text, "usage": None}, {**text, "usage": usage}, {**remark, "usage": usage}]
    summed = {**text, "usage": {"prompt_tokens": 14}}
    assert [one for event in said for one in reader.feed(event)] == [remark, text, summed]


@pytest.mark.parametrize(
    ("said", "kept", "before_what_it_led_to"),
    [
        ("think ours", "", ""),
        ("think ours his", "think his", "think his"),
        ("think text ours", "think text", "think text"),
        ("1 ours 2 his", "1 2 his", "2 his"),
        ("1 ours 2 ours", "", ""),
        ("text think", "text think", "text think"),
    ],
)
def test_thoughts_go_with_what_they_led_to(said: str, kept: str, before_what_it_led_to: str) -> None:
    """One that led to calls of ours alone goes with these; some APIs refuse it before another thought."""
    kinds = {"text": "text", "his": "tool_use", "ours": "tool_use"}
    parts = [{"type": kinds.get(word, "thinking"), "name": word} for word in said.split()]
    for leads_to_next, left in ((False, kept), (True, before_what_it_led_to)):
        found = not_ours(parts, ["ours"], leads_to_next=leads_to_next)
        assert [said.split()[place] for place in found] == left.split()


async def test_words_in_one_piece_with_a_call_of_ours_go_on() -> None:
    """They are held with the call, and go out before what the next request answers."""
    function = {"name": "grep_offloaded", "arguments": '{"pattern": "lost"}'}
    delta = {
        "role": "assistant",
        "content": "I look.",
        "tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": function}],
    }
    head = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "m"}
    chunks = [
        {**head, "choices": [{"index": 0, "delta": said, "finish_reason": reason}]}
        for said, reason in ((delta, None), ({}, "tool_calls"))
    ]
    body = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks)
    async with ModelServer(lambda messages: "Done.") as server, CHAT.open(server, True, **SMALL) as client:
        server.script(raw(f"{body}data: [DONE]\n\n", content_type="text/event-stream"), answer("Done."))
        turn = await CHAT.ask(client, SAID, stream=True, asynchronous=True)
        assert len(server.requests) == 2
    assert (turn.text, turn.calls, turn.reason) == ("I look.\n\nDone.", [], "stop")


def test_what_a_piece_of_a_call_leaves_open_stays_as_it_was() -> None:
    calls = GrowingCalls()
    calls.add([{"index": 0, "id": "call_1", "function": {"name": "read_file", "arguments": ""}}])
    calls.add([{"index": 0, "id": "", "type": None, "function": {"name": None, "arguments": "{}"}}])
    function = {"name": "read_file", "arguments": "{}"}
    assert calls.all() == [{"id": "call_1", "type": "function", "function": function}]


def test_what_dashscope_found_is_handed_on() -> None:
    def reply(**output: Any) -> Dict:
        message = {"role": "assistant", "content": "Well."}
        return {"output": {"choices": [{"finish_reason": "stop", "message": message}], **output}, "usage": {}}

    found, later = {"search_results": [{"index": 1, "title": "Ponds"}]}, {"search_results": []}
    for last, handed in (({}, found), ({"search_info": later}, later)):
        made = GenerationWire().handed([reply(search_info=found), reply(**last)], (), None)
        assert made["output"]["search_info"] == handed


def test_a_container_goes_on_and_is_handed_on() -> None:
    """What runs in it finds its files again, in the requests that are answered inside and in the caller's."""
    usage = {"input_tokens": 1, "output_tokens": 1}
    container = {"id": "container_1", "expires_at": "2026-01-01T00:00:00Z"}
    first: Dict = {"content": [], "usage": usage, "stop_reason": "tool_use", "container": container}
    last: Dict = {"content": [], "usage": usage, "stop_reason": "end_turn", "container": None}
    wire = MessagesWire()
    assert wire.heard(first).going_on == {"container": "container_1"}
    assert wire.heard(last).going_on == {}
    assert wire.handed([first, last], OURS, None)["container"] == container
    reader, ended = wire.reader(OURS, {}), list[Dict]()
    for one in (first, last):
        reader.feed({"type": "message_start", "message": one})
        reader.feed({"type": "message_delta", "delta": one, "usage": {"output_tokens": 1}})
        assert reader.heard().going_on == {"container": "container_1"}
        ended = reader.go_on(OURS) if one is first else reader.end()
    assert [one["delta"]["container"] for one in ended] == [container]
