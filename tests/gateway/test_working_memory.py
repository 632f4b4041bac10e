"""The real agent-memory-client keeps its sessions here; views fit its window, and nothing is lost."""

from __future__ import annotations

import ast
import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest

pytest.importorskip("agent_memory_client", reason="the client is not installed")

from agent_memory_client import MemoryAPIClient, MemoryClientConfig
from agent_memory_client.exceptions import MemoryServerError
from agent_memory_client.models import ClientMemoryRecord, WorkingMemory

from context_compressor.gateway.backend import Backend
from context_compressor.messages.chat import from_openai
from context_compressor.tokens.tiktoken import as_counter
from tests.gateway.served import Served, serving
from tests.support.markdown import blocks
from tests.support.model_server import ModelServer

PAGE = Path(__file__).parents[2] / "docs" / "working-memory.md"
NOWHERE = "http://127.0.0.1:9/v1"
WINDOW = 700
BACKENDS = ["sqlite", "redis", "memory", "postgres", "mariadb"]
URLS = {
    "sqlite": "sqlite:///{folder}/memory.db",
    "redis": "redis://127.0.0.1:{port}/0",
    "postgres": "postgresql://postgres@127.0.0.1:{port}/postgres",
    "mariadb": "mysql://test@127.0.0.1:{port}/test",
}
pytestmark = pytest.mark.filterwarnings("ignore:get_working_memory is deprecated")


@pytest.fixture(params=BACKENDS)
async def served(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Served]:
    kind = request.param
    port = request.getfixturevalue("server")(kind) if kind not in ("sqlite", "memory") else 0
    url = URLS[kind].format(folder=tmp_path, port=port) if kind in URLS else None
    backend = Backend(url, key_prefix=uuid4().hex if kind == "redis" else "")
    async with serving(NOWHERE, backend) as served:
        yield served


def client_of(served: Served, **config: Any) -> MemoryAPIClient:
    return MemoryAPIClient(MemoryClientConfig(**{"base_url": served.address.root, **config}))


def said(number: int) -> list[dict[str, Any]]:
    """Return an exchange of a user and an assistant."""
    return [
        {"role": "user", "content": f"Where is order {number}? {'word ' * 60}"},
        {"role": "assistant", "content": f"Order {number} is at gate {number * 7}. {'fine ' * 60}"},
    ]


async def test_the_piece_of_the_page_runs() -> None:
    [piece] = blocks("python", PAGE.read_text(encoding="utf-8"))
    names: dict[str, Any] = {}
    async with serving(NOWHERE, Backend()) as served:
        piece = piece.replace("http://127.0.0.1:8080", served.address.root)
        await eval(compile(piece, PAGE.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
    assert "allergic to nuts" in str(names["prompt"])


@pytest.mark.variants(2)
async def test_the_client_finds_all_its_calls(served: Served) -> None:
    """Its model has texts alone; what it appends by PUT, with notes for a context, loses nothing."""
    user, records = uuid4().hex, [ClientMemoryRecord(id="m1", text="Likes tea", topics=["drinks"])]
    who: dict[str, Any] = {"user_id": user, "namespace": "shop"}
    async with client_of(served, default_context_window_max=WINDOW) as client:
        assert (await client.health_check()).now > 0
        made, empty = await client.get_or_create_working_memory("s1", **who)
        assert (made, empty.messages, empty.data) == (True, [], {})
        assert (await client.get_or_create_working_memory("s1", **who))[0] is False

        for number in range(8):
            memory = await client.append_messages_to_working_memory("s1", said(number), **who)
        assert memory.context.startswith("[Notes by the memory")
        assert len(memory.messages) < 16
        assert 0 < (memory.context_percentage_total_used or 0) <= 100

        await client.update_working_memory_data("s1", {"cart": [1]}, **who)
        await client.update_working_memory_data("s1", {"vip": True}, **who)
        prompt = await client.memory_prompt("And order 9?", "s1", **who)
        listed = await client.list_sessions(**who)

        texts = [one["content"]["text"] for one in prompt["messages"]]
        assert prompt["messages"][-1] == {"role": "user", "content": {"type": "text", "text": "And order 9?"}}
        assert texts[-3:-1] == [one["content"] for one in said(7)]
        plain = [{"role": one["role"], "content": one["content"]["text"]} for one in prompt["messages"]]
        assert as_counter(None).count_messages(from_openai(plain)) <= WINDOW
        assert (listed.sessions, listed.total) == (["s1"], 1)

        # Replaced by hand: what is not said any more is gone, and so are the notes on it.
        async with served.http(params=who) as http:
            whole = (await http.get("/v1/working-memory/s1")).json()
            ref = memory.context.partition("ctx://")[2][:16]
            text = await http.get(f"/v1/memory/texts/{ref}", params={**who, "session_id": "s1"})
            kept = await client.put_working_memory(
                "s1",
                WorkingMemory(session_id="s1", messages=whole["messages"][-2:], context="A shop.", **who),
            )
            gone = await http.get(f"/v1/memory/texts/{ref}", params={**who, "session_id": "s1"})
        assert [one["content"] for one in whole["messages"]] == [
            one["content"] for number in range(8) for one in said(number)
        ]
        assert whole["context"] is None
        assert whole["data"] == {"cart": [1], "vip": True}
        assert "is at gate" in text.json()["text"]
        assert (kept.context, [one.content for one in kept.messages]) == (
            "A shop.",
            [one["content"] for one in said(7)],
        )
        assert gone.status_code == 404
        prompt = await client.memory_prompt("Well?", "s1", **who)
        assert [one["role"] for one in prompt["messages"]] == ["system", "user", "assistant", "user"]
        assert "A shop." in prompt["messages"][0]["content"]["text"]

        await client.add_memories_to_working_memory("s2", records, namespace="shop")
        await client.set_working_memory_data("s2", {"a": {"b": 1}}, namespace="shop")
        memory = await client.get_working_memory("s2", namespace="shop")
        assert ([one.text for one in memory.memories], memory.data) == (["Likes tea"], {"a": {"b": 1}})
        calls = [
            {
                "id": f"c{number}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(said)},
            }
            for number, (name, said) in enumerate(
                [
                    ("lazily_create_long_term_memory", {"text": "Likes milk", "memory_type": "semantic"}),
                    ("update_working_memory_data", {"data": {"b": 2}}),
                    ("get_or_create_working_memory", {}),
                ]
            )
        ]
        answers = await client.resolve_tool_calls(calls, session_id="s2", namespace="shop")
        found = answers[-1]["result"]
        assert [one["success"] for one in answers] == [True] * 3
        assert [one["text"] for one in found["memories"]] == ["Likes tea", "Likes milk"]
        assert found["data"] == {"a": {"b": 1}, "b": 2}

        for _ in range(2):
            assert (await client.delete_working_memory("s1", **who)).status == "ok"
        await client.delete_working_memory("s2", namespace="shop")
        assert (await client.list_sessions(**who)).total == 0
        with pytest.raises(MemoryServerError, match="Long-term memory is disabled"):
            await client.search_long_term_memory("tea")
        with pytest.raises(MemoryServerError, match="Long-term memory is disabled"):
            await client.hydrate_memory_prompt("tea")


@pytest.mark.variants(2)
async def test_no_message_is_lost_to_another_writer(served: Served) -> None:
    """Appends go beside each other; a PUT that says what it has read is refused where that is no more."""
    path = f"/v1/working-memory/{uuid4().hex}"
    async with served.http() as http:
        one = {"messages": [{"role": "user", "content": "One."}]}
        first = await http.put(path, json=one, headers={"if-none-match": "*"})
        again = await http.put(path, json=one, headers={"if-none-match": "*"})
        appended = await asyncio.gather(
            *(
                http.post(
                    f"{path}/messages", json={"messages": [{"role": "user", "content": f"{n}", "id": f"{n}"}]}
                )
                for n in (*range(12), 0)
            )
        )
        stale = await http.put(path, json=one, headers={"if-match": first.headers["etag"]})
        now = await http.get(path, params={"model_name": "gpt-4"})
        body = {"messages": [*now.json()["messages"], {"role": "user", "content": "Last."}]}
        fresh = await http.put(path, json=body, headers={"if-match": now.headers["etag"]})

    assert [one.status_code for one in (first, again, *appended, stale, fresh)] == [
        200,
        412,
        *[200] * 13,
        412,
        200,
    ]
    assert sorted(one["content"] for one in now.json()["messages"]) == sorted(["One.", *map(str, range(12))])
    assert len(fresh.json()["messages"]) == 14
    assert now.json()["context_percentage_total_used"] == 100 * now.json()["tokens"] / 8_192


async def test_names_with_colons_are_apart() -> None:
    names = [
        ("a:b", None, "c"),
        ("a", None, "b:c"),
        ("c", "a", "b"),
        ("c", None, "a:b"),
        ("c", "a:b", None),
        ("x/\n", None, None),
    ]
    async with serving(NOWHERE) as served, served.http() as http:
        for session, namespace, user in names:
            where = {"namespace": namespace or "", "user_id": user or ""}
            said = {"data": {"of": [session, namespace, user]}}
            await http.put(f"/v1/working-memory/{quote(session, safe='')}", params=where, json=said)
        found = [
            await http.get(
                f"/v1/working-memory/{quote(one[0])}",
                params={"namespace": one[1] or "", "user_id": one[2] or ""},
            )
            for one in names
        ]
        listed = [
            (await http.get("/v1/working-memory/", params=where)).json()
            for where in ({}, {"namespace": "a:b"}, {"user_id": "a:b"}, {"limit": 2, "offset": 4})
        ]

    assert [one.json()["data"]["of"] for one in found] == [list(one) for one in names]
    assert [one["total"] for one in listed] == [6, 1, 1, 6]
    assert len(listed[3]["sessions"]) == 2


@pytest.mark.parametrize(
    ("userinfo", "headers", "token", "status"),
    [
        ("", {}, None, 200),
        ("", {"host": "gateway.example"}, None, 403),
        ("", {}, "t:t", 403),
        ("any:t:t@", {}, "t:t", 200),
        ("any:no@", {}, "t:t", 403),
    ],
)
async def test_memories_are_for_this_machine_or_with_the_token(
    userinfo: str, headers: dict[str, str], token: str | None, status: int
) -> None:
    """The client sends what its base URL says before the host; the token may be the password there."""
    async with serving(NOWHERE, token=token) as served:
        url = served.address.root.replace("://", f"://{userinfo.replace('t:t', 't%3At')}")
        async with client_of(served, base_url=url) as client:
            client._client.headers.update(headers)
            assert (await client.health_check()).now
            try:
                await client.list_sessions()
                answered = 200
            except MemoryServerError as error:
                answered = error.status_code or 0
        async with served.http(headers={"authorization": f"Bearer {token}", **headers}) as http:
            bearer = await http.get("/v1/working-memory/")
            bad = await http.get("/v1/working-memory/", headers={"authorization": "Basic !"})

    assert answered == status
    assert bearer.status_code == (200 if token else status)
    assert bad.status_code == (403 if token else status)


async def test_a_session_ends_with_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted from the last write. What comes behind it begins anew."""
    now = datetime.now(UTC).timestamp()
    monkeypatch.setattr("context_compressor.gateway.sessions.time.time", lambda: now)
    body = {"messages": [{"role": "user", "content": "Hi."}], "ttl_seconds": 60}
    more = {"messages": [{"role": "user", "content": "More."}]}
    async with serving(NOWHERE) as served, served.http() as http:
        for name in "ab":
            await http.put(f"/v1/working-memory/{name}", json=body)
        now += 59
        kept = await http.post("/v1/working-memory/a/messages", json=more)
        now += 2
        listed = await http.get("/v1/working-memory/")
        ended = await http.get("/v1/working-memory/b")
        now += 60
        anew = await http.post("/v1/working-memory/a/messages", json=more)

    assert len(kept.json()["messages"]) == 2
    assert ended.status_code == 404
    assert listed.json()["sessions"] == ["a"]
    assert ([one["content"] for one in anew.json()["messages"]], anew.json()["ttl_seconds"]) == (
        ["More."],
        None,
    )


JSON = "application/json"
HI = {"messages": [{"role": "user", "content": "Hi."}]}
EMPTY = {"messages": [{"role": "user", "content": " "}]}
NARROW = {"query": "q", "session": {"session_id": "s", "context_window_max": "1"}}


REFUSED: list[tuple[str, dict[str, Any] | str, str, int, str]] = [
    ("PUT working-memory/s", HI, "text/plain", 415, JSON),
    ("PUT working-memory/s", "{", JSON, 422, "no JSON"),
    ("PUT working-memory/s", "[" * 100_000, JSON, 422, "no JSON"),
    ("PUT working-memory/s", " " * 2_000_000, JSON, 413, "1,000,000"),
    ("PUT working-memory/s", '{"data": {"a": NaN}}', JSON, 422, "NaN"),
    ("PUT working-memory/s", EMPTY, JSON, 422, "cannot be empty"),
    ("PUT working-memory/s", {"memories": [{"text": "no id"}]}, JSON, 422, "memories.0.id"),
    ("PUT working-memory/s?model_name=gpt-99", HI, JSON, 422, "context_window_max"),
    ("POST memory/prompt", {"query": "q"}, JSON, 400, "session or long_term_search"),
    ("POST memory/prompt", NARROW, JSON, 422, "the query takes"),
    ("GET memory/texts/0123456789abcdef?session_id=s", "", JSON, 404, "ctx://"),
    ("POST working-memory/s", HI, JSON, 405, "openapi.json"),
    ("DELETE memory/texts/0123456789abcdef", "", JSON, 405, "openapi.json"),
    ("GET long-term-memory/1", "", JSON, 400, "disabled"),
]


async def test_what_cannot_be_is_refused() -> None:
    """With the reason, in the shape that the client reads."""
    answers = []
    async with serving(NOWHERE, max_body_bytes=1_000_000) as served, served.http() as http:
        await http.put("/v1/working-memory/s", json=HI)
        for asked, body, kind, _, _ in REFUSED:
            method, path = asked.split()
            content = body if isinstance(body, str) else json.dumps(body)
            headers = {"content-type": kind}
            answers.append(await http.request(method, f"/v1/{path}", content=content, headers=headers))

    for (asked, _, _, status, told), answer in zip(REFUSED, answers, strict=True):
        assert answer.status_code == status, asked
        assert told in answer.json()["detail"]


async def test_calls_of_tools_are_kept_where_a_client_has_them() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a"}'}}
    messages = [
        {"role": "user", "content": "Read a.", "id": "1"},
        {"role": "assistant", "content": None, "tool_calls": [call], "id": "2"},
        {"role": "tool", "content": "line\n" * 3_000, "tool_call_id": "c1", "id": "3"},
        {"role": "assistant", "content": "Done.", "id": "4"},
        {"role": "tool", "content": "of a client without calls", "id": "5"},
    ]
    path, window = "/v1/working-memory/s", {"context_window_max": 2_000}
    async with serving(NOWHERE) as served, served.http() as http:
        await http.put(path, json={"messages": messages})
        whole = (await http.get(path)).json()
        view = (await http.get(path, params=window)).json()
        back = (
            await http.put(
                path,
                json={
                    **view,
                    "messages": [*view["messages"], {"role": "user", "content": "And?", "id": "6"}],
                },
            )
        ).json()
        session = {"session_id": "s", **window}
        prompt = (await http.post("/v1/memory/prompt", json={"query": "So?", "session": session})).json()

    assert [one["content"] for one in whole["messages"]] == [one["content"] or "" for one in messages]
    assert whole["messages"][1]["tool_calls"] == [call]
    assert view["tokens"] <= 2_000
    assert [one["id"] for one in view["messages"]] == ["1", "2", "3", "4", "5"]
    assert "ctx://" in view["messages"][2]["content"]
    assert [one["content"] for one in back["messages"]] == [
        *(one["content"] or "" for one in messages),
        "And?",
    ]
    assert [one["role"] for one in prompt["messages"]] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "assistant",
        "user",
        "user",
    ]
    assert prompt["messages"][1]["tool_calls"] == [call]


async def test_a_named_model_writes_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the upstream, with the key of the service's environment, and for agents' requests as well."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-service")
    said_by_all = [one for number in range(8) for one in said(number)]
    options = {"summarizer": "small", "max_total_tokens": WINDOW}
    async with (
        ModelServer(lambda _: "## Goal\n- Find the orders") as server,
        serving(server, **options) as served,
        served.http(headers={"authorization": "Bearer sk-of-the-caller"}) as http,
    ):
        answer = await http.put("/v1/working-memory/s", json={"messages": said_by_all})
        prompt = {"query": "Well?", "session": {"session_id": "s"}}
        [first, *_] = (await http.post("/v1/memory/prompt", json=prompt)).json()["messages"][1:]
        await http.post("/v1/chat/completions", json={"model": "large", "messages": said_by_all})

    assert answer.json()["context"] is None
    assert "Find the orders" in first["content"]["text"]
    keys = [(one.json["model"], one.headers["authorization"]) for one in server.requests]
    assert keys == [("small", "Bearer sk-of-the-service")] * 2 + [("large", "Bearer sk-of-the-caller")]
