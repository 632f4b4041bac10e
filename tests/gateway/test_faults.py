"""Whatever fails in front of a gateway or behind it: told in that API's shape, and nothing is left of it."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import h11
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from context_compressor.gateway import app, identity
from tests.gateway.served import LISTS, PATHS, Served, every_api, notes, serving
from tests.integrations.clients_support import Api
from tests.support.model_server import (
    ModelServer,
    Reply,
    failing_stream,
    half_stream,
    hang,
    malformed,
    rate_limited,
    raw,
    reset,
    status,
)

FAULTS: dict[str, tuple[Callable[[], Reply], int, str]] = {
    "429": (lambda: rate_limited(7), 429, ""),
    "500": (lambda: status(500), 500, "scripted"),
    "no answer": (hang, 504, "in time"),
    "an answer that breaks off": (reset, 502, "cannot be reached"),
    "an answer that is torn": (malformed, 502, "no JSON object"),
    "a page": (lambda: raw("<h1>Bad gateway</h1>", content_type="text/html"), 502, "no JSON object"),
    "an error within the stream": (failing_stream, 500, "scripted"),
    "half a stream": (half_stream, 502, "cannot be reached"),
}
"""What the upstream does, the status of a whole answer to it, and what its error says."""


async def at_rest(served: Served, server: ModelServer) -> None:
    """Fail if something is held that a request held."""
    gateway = served.gateway
    async with asyncio.timeout(60):
        while b"context_compressor_open_requests 0.0" not in gateway.metrics.text():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    assert gateway._slots._value == gateway.settings.most_requests
    assert not any(lock.locked() for lock in gateway.turns._locks.values())
    server.release()
    await gateway.upstream._client.aclose()
    await server.assert_no_connections()
    left = [task for task in asyncio.all_tasks() if "_unless_gone" in repr(task) or "_gone" in repr(task)]
    assert not left


@every_api
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_faults_are_told_in_that_apis_shape(
    api: Api, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The upstream is asked once. The caller's key, which it may quote, is in no log and in nothing kept."""
    caplog.set_level(logging.INFO)
    key = f"sk-{secrets.token_hex(16)}"
    headers = {"authorization": f"Bearer {key}"}
    async with (
        ModelServer(lambda _: "Well.") as server,
        serving(server, summarizer="own") as served,
    ):
        async with served.http(headers=headers) as http:
            for name, (reply, code, told) in FAULTS.items():
                server.fail(reply())
                body = {"model": "m", "max_tokens": 9, LISTS[api.name]: notes(1), "stream": stream}
                before = len(server.requests)
                served.gateway.upstream._client.timeout = 0.3 if code == 504 else 60
                answered = await http.post(PATHS[api.name], json=body)
                if code == 504:
                    await server.started.wait()
                assert len(server.requests) == before + 1, name
                whole = answered.text
                if answered.headers["content-type"].startswith("text/event-stream"):
                    assert stream, name
                    lines = [line[6:] for line in whole.splitlines() if line.startswith("data: ")]
                    whole = lines[-1]
                else:
                    assert answered.status_code == code, name
                error = json.loads(whole)
                assert told in whole.replace("stream of events", "JSON object"), name
                if api.name == "messages":
                    assert (error["type"], "type" in error["error"]) == ("error", True), name
                else:
                    assert error.get("error") or error["type"] == "error", name
            server.fail(status(401, f"no such key: {key}"))
            await http.post(PATHS[api.name], json={**body, LISTS[api.name]: notes(24)})
            kept = repr(await served.gateway.journal.rows()) + (await http.get("/metrics")).text
        await at_rest(served, server)
    assert key not in kept
    assert key not in "\n".join(one.getMessage() for one in caplog.records)


@given(st.text(st.characters(max_codepoint=0x100), max_size=300))
@example("x" * 191 + " y")
def test_a_header_can_say_why_no_view_was_made(why: str) -> None:
    """Else the server closes the connection, and the answer is paid for in vain."""
    h11.Response(status_code=200, headers=[(app.TOLD, app._header(f"passed; {why}"))])


@every_api
async def test_an_answer_of_another_shape_goes_to_the_caller(api: Api) -> None:
    """It is asked for once: what the upstream was paid for is not asked for again."""
    answers: list[Any] = [{}, {"choices": 5}, {"choices": [None]}, {"choices": [{"message": "a"}]}]
    answers += [{"output": "a"}, {"output": [None]}, {"content": 3}, {"content": [None]}, {"usage": [1]}]
    async with ModelServer(lambda _: "Well.") as server, serving(server) as served, served.http() as http:
        for one in answers:
            server.fail(raw(json.dumps(one)))
            body = {"model": "m", "max_tokens": 9, LISTS[api.name]: notes(1)}
            answered = await http.post(PATHS[api.name], json=body)
            assert answered.status_code == 200
            assert answered.json().items() >= one.items()
        assert len(server.requests) == len(answers)


async def test_clients_that_vanish_leave_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the midst of what they say, of an answer, a stream, or an event; the next request is as usual.

    One that says nothing any more is as good as gone.
    """
    key = f"sk-{secrets.token_hex(16)}"
    said = notes(24)
    async with (
        ModelServer(lambda _: "Well.") as server,
        serving(server, summarizer="own") as served,
        served.http(headers={"authorization": f"Bearer {key}"}) as http,
    ):
        port = int(served.address.root.rpartition(":")[2])
        for is_silent in (False, True):
            monkeypatch.setattr(identity, "_SILENT_SECONDS", 0.01 if is_silent else 60)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"POST /v1/messages HTTP/1.1\r\nhost: a\r\ncontent-length: 99\r\n\r\n{")
            await writer.drain()
            if is_silent:
                assert (await reader.read(12)).endswith(b"499")
            writer.close()
        monkeypatch.undo()
        for messages, stream in ((said[:1], False), (said[:1], True), (said, False), (said, True)):
            server.started.clear()
            server.fail(half_stream(then="hang") if stream else hang())
            body = {"model": "m", "messages": messages, "stream": stream}
            asked = asyncio.create_task(http.post(PATHS["chat"], json=body))
            await server.started.wait()
            asked.cancel()
            with suppress(asyncio.CancelledError):
                await asked
        server.release()
        again = await http.post(PATHS["chat"], json={"model": "m", "messages": said})
        assert (again.status_code, again.headers["x-context-compressor"]) == (200, "view")
        await at_rest(served, server)


AFTERWARDS = {
    "well": (None, "Well."),
    "refused": (raw("<h1>No</h1>", code=429, content_type="text/html"), "<h1>No</h1>"),
    "no view": (None, "Well."),
}


@every_api
@pytest.mark.parametrize("then", AFTERWARDS)
async def test_a_stream_says_something_while_notes_are_written(
    api: Api, then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What no SDK hears, until there is an answer, a refusal, or the answer to the caller's whole list."""
    monkeypatch.setattr(app, "SILENT_SECONDS", 0.01)
    (reply, told), on_failure = AFTERWARDS[then], "raise" if then == "no view" else "fallback"
    async with (
        ModelServer(lambda _: "Well.") as server,
        serving(server, summarizer="own", on_failure=on_failure) as served,
        served.http() as http,
    ):
        if reply is not None:
            server.fail(reply, times=2)
        server.fail(hang(), times=2)  # comes first
        client, pings, rest = served.client(api), 0, ""
        asked = asyncio.create_task(api.ask(client, notes(24), stream=True, asynchronous=True))
        body = {"model": "m", "max_tokens": 9, LISTS[api.name]: notes(25), "stream": True}
        async with http.stream("POST", PATHS[api.name], json=body) as answered:
            async for line in answered.aiter_lines():
                pings += line in (": nothing yet", "event: ping")
                if pings > 2 and len(server.requests) == 2:  # both ask for notes
                    server.release()
                rest = f"{rest}{line}\n"
        if reply is None:
            assert (await asked).text == told
        else:
            with pytest.raises(Exception, match=told):
                await asked
        await client.close()
        await at_rest(served, server)
        assert len(await served.gateway.journal.rows()) == (2 if then == "well" else 0)
    assert (answered.status_code, answered.headers["x-context-compressor"]) == (200, "view")
    assert ("<h1>" in rest) == (reply is not None)
    if then == "no view":
        assert len(server.requests[-1].json[LISTS[api.name]]) >= 24
