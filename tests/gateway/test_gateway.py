"""Any client gets views by the gateway's base URL, and knows nothing of it; all else passes through."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from context_compressor import InMemoryOffloadStore
from context_compressor.gateway.upstream import passed_on
from context_compressor.integrations.observed import writer
from tests.gateway.served import KEY, LISTS, PATHS, every_api, notes, serving, streamed_or_not
from tests.integrations.clients_support import Api
from tests.integrations.test_own import SUMMARY
from tests.support.behaviours import IN_PLACE
from tests.support.model_server import (
    ModelServer,
    Reply,
    answer,
    context_length_exceeded,
    failing_stream,
    half_stream,
    hang,
    rate_limited,
    raw,
    status,
)
from tests.support.wires import Received, wire_of

Dict = dict[str, Any]


def listed(api: Api, received: Received) -> list[Any]:
    return list(received.json[LISTS[api.name]])


@every_api
@streamed_or_not
async def test_a_view_goes_on_and_the_answer_comes_back(api: Api, stream: bool) -> None:
    """A long list goes on within the budget; what left is told of, and its tools are offered from then on."""
    async with ModelServer(lambda _: "Well.", window_tokens=4_000) as server, serving(server) as served:
        client, said = served.client(api), notes(24)
        turn = await api.ask(client, said, stream=stream, asynchronous=True)
        await api.ask(client, [*said, *turn.items, *notes(1)], stream=stream, asynchronous=True)
        await client.close()

    assert turn.text == "Well."
    assert not server.refusals
    first, second = (listed(api, one) for one in server.requests)
    assert len(first) < 24
    assert first[-1] == said[-1]
    assert json.dumps(first)[:-1] == json.dumps(second)[: len(json.dumps(first)) - 1]
    assert "ctx://" in json.dumps(first)
    assert "read_offloaded" in json.dumps(server.requests[0].json["tools"])


@every_api
async def test_what_fits_is_the_request_itself(api: Api) -> None:
    """Nothing is added to it, and its headers go on, but those of the connection."""
    async with ModelServer(lambda _: "Well.") as server, serving(server) as served:
        client = served.client(api, default_headers={"x-mine": "1"})
        await api.ask(client, notes(1), stream=False, asynchronous=True)
        await client.close()

    [received] = server.requests
    assert listed(api, received) == notes(1)
    assert received.json["tools"] == api.tools
    assert received.headers["x-mine"] == "1"
    assert KEY in {received.headers.get("x-api-key"), received.headers.get("authorization", "")[7:]}


@every_api
@streamed_or_not
async def test_tools_are_answered_inside_beside_the_callers(api: Api, stream: bool) -> None:
    """A model reads back what left, then once more beside a call of the caller's; he sees his own alone."""

    def policy(messages: list[Any], received: Received) -> Reply | str:
        said = json.dumps(messages)
        if "read_offloaded" not in json.dumps(received.tools) or "the caller ran it" in said:
            return "Done."
        ref = said[said.index("ctx://") :][:22]
        name = received.tools[0].get("function", received.tools[0])["name"]
        ours = ("read_offloaded", {"ref": ref})
        return answer("I look.", [ours, (name, {"path": "a"})] if "I look." in said else [ours])

    async with ModelServer(policy) as server, serving(server) as served:
        client, said, way = served.client(api), notes(24), {"stream": stream, "asynchronous": True}
        turn = await api.ask(client, said, **way)
        assert turn.usage[0] == sum(wire_of(one.path).count(one) for one in server.requests)
        said += [*turn.items, *api.results([(id, "the caller ran it") for id, _, _ in turn.calls])]
        turn = await api.ask(client, said, **way)
        await client.close()

    assert turn.text == "Done."
    assert not server.refusals
    assert len(server.requests) == 3
    last = json.dumps(server.requests[-1].json)
    assert "the caller ran it" in last
    assert "Note 1: word" in last.partition("I look.")[2]


@every_api
@pytest.mark.parametrize("there", [True, False], ids=["in place", "apart"])
async def test_the_callers_model_writes_notes_with_his_key(api: Api, there: bool) -> None:
    """Behind its last request where all that leaves stood there, else in a request of its own."""
    asked: list[Received] = []

    def policy(messages: list[Any], received: Received) -> str:
        if IN_PLACE in json.dumps(messages[-1]) or not received.tools:
            asked.append(received)
            return SUMMARY
        return "Well."

    async with (
        ModelServer(policy) as server,
        serving(server, summarizer="own", max_total_tokens=8_000) as served,
    ):
        client, said = served.client(api, default_headers={"idempotency-key": "1"}), notes(24)
        if there:
            turn = await api.ask(client, said, stream=False, asynchronous=True)
            said += turn.items
        await api.ask(client, said + notes(4), stream=False, asynchronous=True)
        stats = served.stats(api)
        await client.close()

    assert len(asked) == 1
    assert (IN_PLACE in json.dumps(asked[0].json)) == there
    assert KEY in {asked[0].headers.get("x-api-key"), asked[0].headers.get("authorization", "")[7:]}
    assert "idempotency-key" not in asked[0].headers  # it is the caller's request's
    assert server.requests[-1].headers["idempotency-key"] == "1"
    assert stats.summarizer_calls == 1
    assert "words that a model wrote" in SUMMARY or SUMMARY.splitlines()[-1][2:] in json.dumps(
        server.requests[-1].json
    )


@every_api
@streamed_or_not
async def test_a_refusal_as_too_long_is_followed_by_a_smaller_view(api: Api, stream: bool) -> None:
    async with ModelServer(lambda _: "Well.") as server, serving(server) as served:
        server.fail(context_length_exceeded(2_500))
        client = served.client(api)
        turn = await api.ask(client, notes(10), stream=stream, asynchronous=True)
        await client.close()

    assert turn.text == "Well."
    assert len(server.requests) == 2
    assert len(json.dumps(listed(api, server.requests[1]))) < len(json.dumps(listed(api, server.requests[0])))


@pytest.mark.parametrize("is_refused", [False, True], ids=["told", "refused"])
async def test_the_usage_of_a_stream_is_asked_for_and_not_passed_on(is_refused: bool) -> None:
    """Once something has left the view. An upstream that refuses the question is not asked it again."""
    body = {"model": "m", "stream": True}
    async with ModelServer(lambda _: "Well.") as server, serving(server) as served, served.http() as http:
        await http.post(PATHS["chat"], json={**body, "messages": notes(1)})
        if is_refused:
            server.fail(status(400, "some field is not known"))
        answers = [await http.post(PATHS["chat"], json={**body, "messages": notes(n)}) for n in (24, 25)]
        await served.gateway.journal.write()
        [counted] = {row["usage"] for row in await served.gateway.journal.rows()}
        asking = {**body, "messages": notes(26), "stream_options": {"include_usage": True}}
        told = await http.post(PATHS["chat"], json=asking)

    asked = [bool(one.json.get("stream_options")) for one in server.requests]
    assert asked == [False, True, *([False, False] if is_refused else [True]), True]
    assert [one.status_code for one in answers] == [200, 200]
    assert "usage" not in "".join(one.text for one in answers)
    assert (counted > 0) == (not is_refused)
    assert '"prompt_tokens"' in told.text


FAILURES = {
    "429": (rate_limited(7), 429),
    "500": (status(500), 500),
    "401": (status(401, "no such key"), 401),
    "too long, twice": (context_length_exceeded(100), 400),
}


@every_api
@streamed_or_not
@pytest.mark.parametrize(("reply", "code"), FAILURES.values(), ids=FAILURES)
async def test_a_refusal_comes_back_as_it_was(api: Api, stream: bool, reply: Reply, code: int) -> None:
    """Status, body and headers, so that the client does what it does without a gateway."""
    async with ModelServer(lambda _: "Well.") as server, serving(server) as served:
        server.fail(reply, times=4)
        body = {"model": "m", LISTS[api.name]: notes(1), "stream": stream, "max_tokens": 100}
        async with served.http() as http, httpx.AsyncClient() as direct:
            through = await http.post(PATHS[api.name], json=body)
            past = await direct.post(server.url.removesuffix("/v1") + PATHS[api.name], json=body)

    told, told_past = ({**one.json(), "request_id": 1} for one in (through, past))
    assert (through.status_code, told) == (code, told_past)
    assert through.headers.get("retry-after") == past.headers.get("retry-after")


@every_api
@pytest.mark.parametrize("reply", [failing_stream(), half_stream()], ids=["error event", "broken"])
async def test_a_stream_that_breaks_ends_with_an_error_of_that_api(api: Api, reply: Reply) -> None:
    async with ModelServer(lambda _: "Well.") as server, serving(server) as served:
        server.fail(reply)
        body = {"model": "m", LISTS[api.name]: notes(1), "stream": True, "max_tokens": 100}
        async with served.http() as http:
            through = await http.post(PATHS[api.name], json=body)
        await server.assert_no_connections()

    last = [line[6:] for line in through.text.splitlines() if line.startswith("data: ")][-1]
    assert "error" in json.loads(last)
    assert "text" in through.text


async def test_a_streamed_answer_is_read_as_it_is_written() -> None:
    """Lines end where those of events do. A server that knows no streams answers whole, and is asked once."""
    said = [
        {"delta": {"role": "assistant", "content": "a\u2028b\x85c"}},
        {"delta": {}, "finish_reason": "stop"},
    ]
    chunks = [json.dumps({"id": "c", "choices": [{"index": 0, **one}]}, ensure_ascii=False) for one in said]
    lines = "".join(f"data: {one}\r\n\r\n" for one in [*chunks, "[DONE]"])
    whole = {"id": "c", "choices": [{"index": 0, "message": {"role": "assistant", "content": "Well."}}]}
    body = {"model": "m", "messages": notes(1), "stream": True}
    async with ModelServer(lambda _: "") as server, serving(server) as served, served.http() as http:
        server.fail(raw(lines.encode(), content_type="text/event-stream"), raw(json.dumps(whole)))
        streamed = (await http.post(PATHS["chat"], json=body)).content.decode().split("\n\n")
        assert (await http.post(PATHS["chat"], json=body)).json() == whole
        assert len(server.requests) == 2
    assert [json.loads(one[6:]) for one in streamed[:2]] == [json.loads(one) for one in chunks]
    assert streamed[2:] == ["data: [DONE]", ""]


async def test_results_of_ours_go_before_the_callers_where_the_server_keeps_the_list() -> None:
    """A reply called ours and his; he goes on from it by its id, and knows of his alone."""

    def policy(messages: list[Any], received: Received) -> Reply | str:
        if "previous_response_id" in received.json:
            return "Done."
        ref = json.dumps(messages).partition("ctx://")[2][:16]
        return answer("", [("read_offloaded", {"ref": f"ctx://{ref}"}), ("look", {})])

    tool = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
    body = {"model": "m", "tools": [tool]}
    async with ModelServer(policy) as server, serving(server) as served, served.http() as http:
        first = (await http.post(PATHS["responses"], json={**body, "input": notes(24)})).json()
        [call] = [one for one in first["output"] if one["type"] == "function_call"]
        his = {"type": "function_call_output", "call_id": call["call_id"], "output": "seen"}
        body |= {"previous_response_id": first["id"], "input": [his]}
        await http.post(PATHS["responses"], json=body)

    ours, last = server.requests[-1].json["input"]
    assert last == his
    assert (ours["type"], ours["call_id"] != call["call_id"]) == ("function_call_output", True)


async def test_an_upstream_that_is_not_there_is_told_in_the_shape_of_the_api() -> None:
    async with serving("http://127.0.0.1:9/v1") as served, served.http() as http:
        for path, name in PATHS.items():
            body = {"model": "m", LISTS[path]: notes(1)}
            answered = await http.post(name, json=body)
            assert answered.status_code == 502
            assert "cannot be reached" in answered.json()["error"]["message"]


class Pieces(httpx.AsyncByteStream):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b"\x01as it "
        yield b"is\xff"


@pytest.mark.parametrize(
    ("path", "body", "why"),
    [
        ("/v1/responses", {"model": "m", "input": "hi", "previous_response_id": "resp_1"}, "no list"),
        ("/v1/messages", {"model": "m"}, "no list"),
        ("/v1/chat/completions", b"{", "no JSON"),
        ("/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": 5}] * 2}, "content"),
        (
            "/v1/chat/completions",
            b'{"model": "m", "messages": %s}' % (b"[" * 9_000 + b"]" * 9_000),
            "no JSON",
        ),
        ("/v1/messages", b'{"messages": [{"role": "user", "content": "a"}], "top_p": 1e999}', "ValueError"),
        ("/v1/messages/count_tokens", {"model": "m", "messages": notes(40)}, None),
        ("/v1/embeddings", b"\x00\xff", None),
    ],
    ids=[
        *("kept by the server", "no list", "no JSON", "malformed", "deep", "no number of JSON's"),
        *("count_tokens", "another path"),
    ],
)
async def test_the_rest_passes_through_byte_for_byte(path: str, body: Any, why: str | None) -> None:
    """With a header that says why no view was made, where one might be expected."""
    await check_passes(path, body, why)


async def check_passes(path: str, body: Any, why: str | None, **options: Any) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body, indent=2).encode()
    seen: list[httpx.Request] = []

    async def upstream(request: httpx.Request) -> httpx.Response:
        await request.aread()
        seen.append(request)
        theirs = {b"x-theirs": "é 日".encode(), b"content-type": b"a/b"}
        return httpx.Response(203, stream=Pieces(), headers=theirs)

    async with serving("http://upstream/v1", **options) as served, served.http() as http:
        served.gateway.upstream._client._transport = httpx.MockTransport(upstream)
        mine = {b"x-mine": "é 日".encode(), b"authorization": KEY.encode()}
        answered = await http.post(f"{path}?a=1&a=2", content=content, headers=mine)

    [sent] = seen
    assert (sent.content, str(sent.url)) == (content, f"http://upstream{path}?a=1&a=2")
    assert (sent.headers["x-mine"], sent.headers["host"]) == ("é 日", "upstream")
    assert (answered.status_code, answered.content) == (203, b"\x01as it is\xff")
    assert (answered.headers["x-theirs"], answered.headers["content-type"]) == ("é 日", "a/b")
    assert (why or "") in answered.headers.get("x-context-compressor", "")
    assert (why is None) == ("x-context-compressor" not in answered.headers)


@every_api
@streamed_or_not
async def test_one_that_only_looks_on_changes_no_byte(api: Api, stream: bool, tmp_path: Path) -> None:
    """A list beyond the budget goes on as it came, and so does its answer; sizes alone are written down."""
    tools = [{"name": "look", "description": "Say each word. " * 50}]
    body = {"model": "m", "stream": stream, LISTS[api.name]: notes(24), "max_tokens": 5, "tools": tools}
    log = tmp_path / "log.jsonl"
    await check_passes(PATHS[api.name], body, "only observed", observe=str(log))
    writer().submit(int).result()
    _, line = map(json.loads, log.read_text().splitlines())
    assert [row["role"] for row in line["new"]] == ["user"] * 24
    assert line["instructions"] > 4 * 50
    assert not any(one in log.read_text() for one in ("word", KEY))


async def test_what_has_no_body_passes_without_one() -> None:
    seen: list[httpx.Request] = []

    def upstream(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, stream=Pieces())

    async with serving("http://upstream/v1") as served, served.http() as http:
        served.gateway.upstream._client._transport = httpx.MockTransport(upstream)
        asked = http.build_request("GET", "/v1/models/an%2Forganization%0A?a=%2F")
        for name in ("accept", "accept-encoding", "user-agent"):
            del asked.headers[name]
        answered = await http.send(asked)

    assert str(seen[0].url) == "http://upstream/v1/models/an%2Forganization%0A?a=%2F"
    assert answered.content == b"\x01as it is\xff"
    assert seen[0].headers.keys() == {"host", "connection"}  # no encoding that the caller cannot read


def test_a_length_stays_behind_where_the_body_comes_in_chunks() -> None:
    """What comes with both is as long as its chunks, whatever the length says."""
    headers = [("Content-Length", "3"), ("X-Mine", "1"), ("Transfer-Encoding", "chunked")]
    assert passed_on(headers) == [("x-mine", "1")]
    assert passed_on(headers[:2]) == [("content-length", "3"), ("x-mine", "1")]


async def test_cookies_are_a_callers_own() -> None:
    """He gets those that the upstream sets; no other caller sends them."""
    seen: list[str] = []

    def upstream(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("cookie", ""))
        return httpx.Response(200, stream=Pieces(), headers={"set-cookie": "theirs=1"})

    async with serving("http://upstream/v1") as served, served.http() as http, served.http() as other:
        served.gateway.upstream._client._transport = httpx.MockTransport(upstream)
        for one in (http, other, http):
            await one.get("/v1/models")
            await one.post(PATHS["chat"], json={"model": "m", "messages": notes(1)})

    assert seen == ["", "theirs=1"] * 2 + ["theirs=1"] * 2


async def test_a_fault_of_the_memorys_lets_the_request_through() -> None:
    """Unchanged, with a header that says so: the agent does not stand still."""

    class Broken(InMemoryOffloadStore):
        async def write(self, text: str) -> str:
            raise RuntimeError("no")

    async with (
        ModelServer(lambda _: "Well.") as server,
        serving(server, store=Broken(), on_failure="raise") as served,
        served.http() as http,
    ):
        answered = await http.post(PATHS["chat"], json={"model": "m", "messages": notes(24)})

    assert answered.status_code == 200
    assert answered.headers["x-context-compressor"].startswith("passed; ")
    assert server.requests[0].json["messages"] == notes(24)


async def test_conversations_are_told_apart_by_key_name_and_beginning() -> None:
    """Another key, another header, another beginning or other instructions: another conversation.

    A clock in the instructions is none.
    """
    async with ModelServer(lambda _: "Well.") as server, serving(server) as served, served.http() as http:

        async def names(key: str, system: str, *said: str, **headers: str) -> set[str]:
            messages = [{"role": "system", "content": system}]
            messages += [{"role": "user", "content": one} for one in said]
            before = set(await served.gateway.journal._names())
            headers = {"authorization": f"Bearer {key}", **headers}
            await http.post(PATHS["chat"], json={"model": "m", "messages": messages}, headers=headers)
            return set(await served.gateway.journal._names()) - before

        assert len(await names("a", "Help. It is 10:00.", "Hello")) == 1
        assert await names("a", "Help. It is 10:01.", "Hello", "again") == set()
        assert len(await names("b", "Help. It is 10:00.", "Hello")) == 1
        assert len(await names("a", "Give a title.", "Hello")) == 1
        assert len(await names("a", "Help.", "Another")) == 1
        assert len(await names("a", "Help.", "Hello", **{"x-session-id": "s"})) == 1
        assert await names("a", "Help.", "Other", **{"x-session-id": "s"}) == set()


@every_api
async def test_keys_are_kept_nowhere(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    """Not in states, texts, the page, metrics or logs."""
    caplog.set_level(logging.DEBUG)
    async with ModelServer(lambda _: "Well.") as server, serving(server, summarizer="own") as served:
        client = served.client(api)
        await api.ask(client, notes(24), stream=False, asynchronous=True)
        server.fail(status(500))
        with pytest.raises(Exception, match="500"):
            await api.ask(client, notes(25), stream=False, asynchronous=True)
        await client.close()
        backend = served.gateway.backend
        await served.gateway.journal.write()
        kept = [await backend.journal.get(key) for key in await backend.journal.keys()]
        kept += [await backend.store.read(ref) for ref in await backend.store.refs()]
        conversations = served.gateway.compressions[PATHS[api.name]].conversations
        kept += [vars(conversations), conversations._known]
        kept.append(served.gateway.metrics.text().decode())

    mine = [
        record.getMessage()
        for record in caplog.records
        if not record.name.startswith(("httpcore", "openai", "anthropic", "httpx"))
    ]
    assert KEY not in repr(kept)
    assert KEY not in "\n".join(mine)


async def test_limits_are_told_in_the_shape_of_the_api() -> None:
    """A body that is too large, and more requests than there may be."""
    async with (
        ModelServer(lambda _: "Well.") as server,
        serving(server, max_body_bytes=1_000, most_requests=1, wait_seconds=0.05) as served,
        served.http() as http,
    ):
        body = {"model": "m", "max_tokens": 9, "messages": notes(1, 5)}
        large = await http.post(PATHS["messages"], json={**body, "messages": notes(9)})
        server.fail(hang())
        first = asyncio.create_task(http.post(PATHS["messages"], json=body))
        await server.started.wait()
        full = await http.post(PATHS["messages"], json=body)
        server.release()
        await first
        after = await http.post(PATHS["messages"], json=body)

    assert (large.status_code, large.json()["error"]["type"]) == (413, "request_too_large")
    assert (full.status_code, full.headers["retry-after"]) == (503, "1")
    assert after.status_code == 200


@streamed_or_not
async def test_a_client_that_goes_away_ends_its_request(stream: bool) -> None:
    async with ModelServer(lambda _: "Well.") as server, serving(server) as served:
        server.fail(half_stream(then="hang") if stream else hang())
        body = {"model": "m", "messages": notes(1), "stream": stream}
        async with served.http() as http:
            asked = asyncio.create_task(http.post(PATHS["chat"], json=body))
            await server.started.wait()
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked
        await server.assert_no_connections()
        async with served.http() as http:  # nothing is held back of it
            assert (await http.post(PATHS["chat"], json={**body, "stream": False})).status_code == 200
