"""The MCP server as clients use it: over stdio and HTTP, with mcp 1 and, in an environment apart, mcp 2."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from context_compressor import FileOffloadStore, InvalidArgumentError, TiktokenCounter, collect_garbage
from context_compressor.cli.app import run as run_here
from context_compressor.errors import OffloadError
from context_compressor.integrations.mcp import ContextServer, http_app
from context_compressor.laws.chat_rules import problems
from context_compressor.memory.sessions import Sessions
from context_compressor.offload.folders import find_namespaces
from context_compressor.offload.locks import locked
from tests.support.markdown import blocks

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "mcp.md").read_text(encoding="utf-8")
APART = ROOT / "build" / "venvs" / "agentscope2" / "bin" / "python"
"""An environment with mcp 2."""
IS_MCP_1 = version("mcp").startswith("1.")
BUDGET = 4_000
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

Message = dict[str, Any]


def arguments(store: Path, *options: str) -> list[str]:
    return ["-m", "context_compressor", "mcp", "--store", str(store), "--namespace", "agent", *options]


@asynccontextmanager
async def over_stdio(store: Path) -> AsyncIterator[ClientSession]:
    command = StdioServerParameters(
        command=sys.executable, args=arguments(store), env={"PYTHONPATH": str(ROOT)}
    )
    async with stdio_client(command) as streams, ClientSession(*streams) as session:
        await session.initialize()
        yield session


@asynccontextmanager
async def over_http(store: Path) -> AsyncIterator[ClientSession]:
    server = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments(store, "--transport", "streamable-http", "--port", "0"),
        cwd=ROOT,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        said = (await server.stderr.readline()).decode()
        [url] = re.findall(r"http://\S+/mcp", said)
        async with streamable_http_client(url) as streams, ClientSession(*streams[:2]) as session:
            await session.initialize()
            yield session
    finally:
        server.send_signal(signal.SIGINT)
        assert await server.wait() in (130, 0)  # 0 where a shell has its background jobs ignore Ctrl-C


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def in_process(store: Path) -> ContextServer:
    return ContextServer(FileOffloadStore(store, "agent"))


async def call(client: Any, name: str, /, **given: Any) -> dict[str, Any]:
    return (await client.call_tool(name, given)).model_dump(mode="json", by_alias=True)


async def told(client: Any, name: str, /, **given: Any) -> str:
    answer = await call(client, name, **given)
    text: str = answer["content"][0]["text"]
    assert "Traceback" not in text
    return text


def turns(count: int, word: str = "zebra") -> list[Message]:
    messages: list[Message] = [{"role": "system", "content": "You look after hosts."}]
    for n in range(count):
        function = {"name": "read_log", "arguments": json.dumps({"host": n})}
        messages += [
            {"role": "user", "content": f"What does the log of host {n} say?"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"c{n}", "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": f"c{n}", "content": f"host {n}: {word}{n} is well\n" * 60},
            {"role": "assistant", "content": f"Host {n} is well."},
        ]
    return messages


async def view_of(session: Any, messages: list[Message], name: str = "chat") -> list[Message]:
    answer = await call(session, "compress", messages=messages, max_total_tokens=BUDGET, session=name)
    assert not answer["isError"]
    structured: dict[str, Any] = answer["structuredContent"]
    assert json.loads(answer["content"][0]["text"]) == structured
    view: list[Message] = structured["messages"]
    assert structured["view_tokens"] <= BUDGET
    assert problems(view) == []
    return view


@pytest.mark.parametrize("connect", [over_stdio, over_http])
async def test_views_are_made_and_what_left_them_is_found(connect: Any, tmp_path: Path) -> None:
    async with connect(tmp_path) as session:
        listed = (await session.list_tools()).model_dump(mode="json", by_alias=True)["tools"]
        offered = {tool["name"]: tool["inputSchema"] for tool in listed}
        assert list(offered) == [
            *("read_offloaded", "grep_offloaded", "load_offloaded", "search_history"),
            "compress",
        ]
        assert offered["read_offloaded"]["required"] == ["ref"]
        earlier: list[Message] = []
        whole = turns(60)
        kept = 0
        for end in range(5, len(whole) + 1, 4 * 2):
            view = await view_of(session, whole[:end])
            kept += view[: len(earlier)] == earlier
            earlier = view
        assert kept >= 10  # between two events nothing that was sent changes
        assert "search_history(query)" in str(view)
        found = await told(session, "search_history", query="zebra7")
        refs = re.findall(r"ctx://[0-9a-f]{16}(?= line)", found)
        shown = await told(session, "grep_offloaded", pattern="zebra7 ", ref=refs[0], limit=1)
        assert "host 7: zebra7 is well" in shown
        line = int(re.findall(r"^\s*(\d+)", shown, re.MULTILINE)[0])
        page = await told(session, "read_offloaded", ref=refs[0], offset=line)
        assert "host 7: zebra7 is well" in page
        assert TiktokenCounter().count_text(page) <= 2_000


async def test_another_process_goes_on_with_the_same_view(tmp_path: Path) -> None:
    whole = turns(24)
    server = ContextServer(FileOffloadStore(tmp_path, "one"))
    expected = [await view_of(server, whole[:end]) for end in (61, 65, 69)]
    first = await view_of(in_process(tmp_path), whole[:61])
    async with over_stdio(tmp_path) as session:
        rest = [await view_of(session, whole[:end]) for end in (65, 69)]
    assert json.dumps([first, *rest]) == json.dumps(expected)


async def test_nothing_outside_the_namespace_is_reached(tmp_path: Path) -> None:
    root = tmp_path / "store"
    secret = await FileOffloadStore(root, "other").write("the secret word is okapi")
    mine = await FileOffloadStore(root, "agent").write("what is mine")
    outside = tmp_path / "outside.txt"
    outside.write_text("okapi, too")
    names = ["../../outside", "/etc/passwd", "..", "a\0b", "x" * 200, "é/\n"]
    digits = "0123456789abcdef"
    (root / "agent" / f"{digits}.txt").symlink_to(outside)
    session = in_process(root)
    for ref in (secret, f"ctx://{digits}", "ctx://../other/x", "../other", str(outside), "ctx://"):
        answer = await told(session, "read_offloaded", ref=ref)
        assert answer.startswith("No text")
        assert mine in answer
        assert secret not in answer.replace(json.dumps(ref), "")
        assert (await told(session, "load_offloaded", ref=ref)).startswith("No text")
    assert (await told(session, "grep_offloaded", pattern="okapi")).startswith("No line matches")
    assert "okapi" not in (await told(session, "search_history", query="okapi secret")).replace(
        "okapi secret", ""
    )
    for name in names:
        await view_of(session, turns(2), name)
    # A state that is a link is neither read nor written.
    state = min((root / "agent").glob("session-*.json"))
    state.unlink()
    state.symlink_to(outside)
    answers = [
        await call(session, "compress", messages=turns(2), max_total_tokens=BUDGET, session=name)
        for name in names
    ]
    refused = [answer["content"][0]["text"] for answer in answers if answer["isError"]]
    assert len(refused) == 1
    assert "cannot be read" in refused[0]
    assert outside.read_text() == "okapi, too"
    assert names_in(tmp_path) == ["outside.txt", "store"]
    assert names_in(root) == [".store", "agent", "other"]
    assert len(list((root / "agent").glob("session-*.json"))) == len(names)


async def test_a_namespace_that_is_a_link_is_refused(tmp_path: Path) -> None:
    ref = await FileOffloadStore(tmp_path, "other").write("okapi")
    (tmp_path / "agent").symlink_to(tmp_path / "other")
    session = in_process(tmp_path)
    for name, given in (
        ("read_offloaded", {"ref": ref}),
        ("grep_offloaded", {"pattern": "okapi"}),
        ("search_history", {"query": "okapi"}),
        ("compress", {"messages": turns(1), "session": "s"}),
    ):
        assert "is a link, which is not followed" in await told(session, name, **given)


async def test_what_is_wrong_is_said_in_words(tmp_path: Path) -> None:
    session = in_process(tmp_path)
    for given, said in (
        ({}, "compress needs the argument messages."),
        ({"messages": turns(1)}, "compress needs the argument session."),
        ({"messages": 5, "session": "s"}, "messages must be a list of chat messages, got 5."),
        ({"messages": [{"role": "x"}], "session": "s"}, "messages[0].role: expected one of"),
        ({"messages": [3], "session": "s"}, "messages[0]"),
        ({"messages": turns(1), "session": "s" * 201}, "session: expected a name of 1 to 200"),
        ({"messages": turns(1), "session": "s", "max_total_tokens": 0}, "max_total_tokens must be"),
        ({"messages": turns(9), "session": "s", "max_total_tokens": 3}, "the budget is 3"),
        ({"messages": turns(1), "session": "s", "mode": "x"}, 'compress has no argument "mode"'),
    ):
        answer = await call(session, "compress", **given)
        assert answer["isError"], said
        assert said in answer["content"][0]["text"]
    assert "There is no tool" in await told(session, "remove_everything")
    assert "needs the argument ref" in await told(session, "read_offloaded")
    assert "must be a whole number" in await told(session, "search_history", query="x", limit="many")
    assert "Invalid pattern" in await told(session, "grep_offloaded", pattern="(")
    # A state that was damaged costs what it spared, and nothing else.
    before = await view_of(session, turns(12))
    [state] = [path for path in (tmp_path / "agent").glob("session-*.json") if path.stat().st_size > 10]
    for damage in ("{", "[]", '{"version": 1, "compression": {"version": 7}}', "{}"):
        state.write_text(damage)
        assert await view_of(session, turns(12)) == before
        assert json.loads(state.read_text())["version"] == 1


async def test_half_a_surrogate_pair_comes_back_as_an_escape(tmp_path: Path) -> None:
    said = [{"role": "user", "content": "\ud800 is half"}]
    given = {"messages": said, "session": "s"}
    answer = (await in_process(tmp_path).call_tool("compress", given)).model_dump_json(by_alias=True)
    assert json.loads(json.loads(answer)["content"][0]["text"])["messages"] == said


async def test_media_come_as_the_protocol_has_them(tmp_path: Path) -> None:
    store = FileOffloadStore(tmp_path, "agent")
    image = await store.write(f"data:image/png;base64,{PIXEL}")
    paper = await store.write(f"data:application/pdf;base64,{PIXEL}")
    session = in_process(tmp_path)
    assert "show it with load_offloaded" in await told(session, "read_offloaded", ref=image)
    note, shown = (await call(session, "load_offloaded", ref=image))["content"]
    assert image in note["text"]
    assert (shown["type"], shown["mimeType"], shown["data"]) == ("image", "image/png", PIXEL)
    shown = (await call(session, "load_offloaded", ref=paper))["content"][1]["resource"]
    assert (shown["mimeType"], shown["blob"]) == ("application/pdf", PIXEL)


async def test_calls_of_one_session_wait_for_each_other(tmp_path: Path) -> None:
    whole = turns(24)
    other = in_process(tmp_path)
    async with over_stdio(tmp_path) as one:
        views = await asyncio.gather(
            *(view_of(session, whole, name) for session in (one, other) for name in ("a", "a", "b"))
        )
        assert all(view == views[0] for view in views)
        [lock, _] = sorted((tmp_path / "agent").glob("session-*.lock"))
        with locked(lock):
            waiting = [asyncio.create_task(view_of(one, whole, name)) for name in ("a", "b")]
            done, left = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            assert (len(done), len(left)) == (1, 1)
        assert await left.pop() == views[0]


async def test_who_waits_too_long_is_told(tmp_path: Path) -> None:
    store = FileOffloadStore(tmp_path, "agent")
    sessions = Sessions(store, TiktokenCounter(), wait_seconds=0.05)
    await sessions.compress(turns(1), "s")
    [lock] = store.directory.glob("session-*.lock")
    with locked(lock), pytest.raises(OffloadError, match=r"another call for 0\.05 s; try again later"):
        await sessions.compress(turns(1), "s")
    with pytest.raises(InvalidArgumentError, match="expected a name"):
        await sessions.compress(turns(1), "")


async def test_collections_keep_a_state_as_long_as_its_texts(tmp_path: Path) -> None:
    store = FileOffloadStore(tmp_path, "agent")
    session = ContextServer(store)
    view = await view_of(session, turns(24))
    [state] = (tmp_path / "agent").glob("session-*.json")
    collect_garbage(tmp_path, max_age_seconds=0, max_bytes=0)  # it is in use
    assert await view_of(session, turns(24)) == view
    store.close()
    collect_garbage(tmp_path)
    collect_garbage(tmp_path, max_age_seconds=0, keep=["agent"])
    [found] = find_namespaces(tmp_path)
    assert found.bytes == sum(path.stat().st_size for path in (tmp_path / "agent").iterdir())
    assert not found.has_others
    assert state.exists()
    (state.parent / f".{state.stem}-abc_0123.tmp").write_text("{")  # what a process that died leaves
    collect_garbage(tmp_path, max_age_seconds=0)
    assert names_in(tmp_path) == [".store"]


async def test_what_no_session_says_any_more_goes_when_its_time_is_over(tmp_path: Path) -> None:
    store = FileOffloadStore(tmp_path, "agent")
    sessions = Sessions(store, TiktokenCounter())
    fields: dict[str, Any] = {"max_total_tokens": 2_000, "branch_seconds": 0}

    async def texts_after(name: str, said: list[Any]) -> set[str]:
        await sessions.compress(said, name, **fields)
        return set(await store.refs())

    both = await texts_after("ada", turns(24))
    assert await texts_after("bob", turns(24)) == both
    assert (
        await texts_after("ada", [{"role": "user", "content": "Hello."}]) == both
    )  # bob's tools read them without a list
    assert both
    assert await texts_after("bob", [{"role": "user", "content": "Hello."}]) == set()


async def test_a_state_that_cannot_be_kept_spoils_no_view(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("context_compressor.memory.sessions.write_state", fail)
    view = await Sessions(FileOffloadStore(tmp_path), TiktokenCounter()).compress(turns(2), "s")
    assert view.result.messages == turns(2)
    assert view.unsaved is not None
    assert "No space left" in view.unsaved


def run(*given: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *given], cwd=ROOT, capture_output=True, text=True, timeout=60, **options
    )


def test_the_command_says_what_is_missing_or_taken(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['mcp'] = None; sys.argv = ['x', *sys.argv[1:]]\n"
        "from context_compressor.__main__ import main; main()"
    )
    done = run("-c", code, *arguments(tmp_path)[2:])
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'agent-context-compressor[mcp]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run(*arguments(tmp_path, "--transport", "streamable-http", "--port", port))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "Address already in use" in done.stderr
    done = run(*arguments(tmp_path), stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(tmp_path.glob("*")) == []  # who only looks leaves nothing


HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "x", "version": "1"},
    },
}
ACCEPT = {"Accept": "application/json, text/event-stream"}


async def test_a_page_of_another_server_is_refused_at_every_address(tmp_path: Path) -> None:
    store = FileOffloadStore(tmp_path, "agent")

    async def said(address: str, host: str, origin: str | None = None) -> int:
        door = http_app(store, address, ["proxy.example"])
        async with door.app.router.lifespan_context(door.app):
            client = httpx.AsyncClient(transport=httpx.ASGITransport(door), base_url="http://x")
            more = {} if origin is None else {"Origin": origin}
            answer = await client.post("/mcp", json=HELLO, headers={**ACCEPT, "Host": host, **more})
            return answer.status_code

    for address in ("127.0.0.1", "127.0.0.2", "::1"):
        for host in ("127.0.0.1:8000", "localhost", "127.0.0.2:1", "[::1]:8000"):
            assert await said(address, host, "http://localhost:3000") == 200
        for host in (
            "evil.example",
            "127.0.0.1.evil.example",
            "proxy.example",
            "10.0.0.5",
            "",
            "[",
            "localhost.",
        ):
            assert await said(address, host) == 421
    for address in ("0.0.0.0", "10.0.0.5", "::"):
        for host in ("10.0.0.5:8000", "localhost", "Proxy.example:1", socket.gethostname(), "[fe80::1]:1"):
            assert await said(address, host, f"http://{host}") == 200
        assert await said(address, "evil.example") == 421
    for address in ("127.0.0.2", "0.0.0.0"):
        for origin in ("http://evil.example", "null", "http://10.0.0.6", "http://localhost.evil.example"):
            assert await said(address, "127.0.0.1", origin) == 403


def test_sessions_over_http_are_bounded_and_end_when_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: dict[str, Any] = {}
    make = StreamableHTTPSessionManager.__init__
    monkeypatch.setattr(
        StreamableHTTPSessionManager,
        "__init__",
        lambda self, *given, **named: told.update(named) or make(self, *given, **named),
    )
    http_app(FileOffloadStore(tmp_path, "agent"), "127.0.0.1")
    assert (told["session_idle_timeout"], told["max_sessions"]) == (600, 1_000)


async def test_the_config_of_the_page_starts_a_server(tmp_path: Path) -> None:
    [config] = blocks("json", PAGE)
    [server] = json.loads(config)["mcpServers"].values()
    [line] = blocks("bash", PAGE)[:1]
    assert server["command"] == "context-compressor"
    assert line.split() == [server["command"], *server["args"]]
    words = [str(tmp_path) if word.startswith("/") else word for word in server["args"]]
    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "context_compressor", *words],
        env={"PYTHONPATH": str(ROOT)},
    )
    async with stdio_client(command) as streams, ClientSession(*streams) as session:
        await session.initialize()
        tools = (await session.list_tools()).tools
    assert all(f"`{tool.name}(" in PAGE for tool in tools)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--allow-host", "x"], "--allow-host needs --transport streamable-http"),
        (["--port", "1"], "--port needs --transport streamable-http"),
        (["--namespace", "../x"], "--namespace: '../x' cannot name a directory"),
    ],
)
def test_a_wrong_option_is_named(
    options: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_here([*arguments(tmp_path)[2:], *options]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.skipif(not IS_MCP_1, reason="these are the tests of mcp 2")
@pytest.mark.variants(0)
def test_the_same_with_mcp_2() -> None:
    if not APART.exists():
        if os.environ.get("CI"):
            pytest.fail(f"{APART} is missing; make test makes it")
        pytest.skip(f"{APART} is missing; make test makes it")
    options = ["-q", "--noconftest", "-p", "no:cacheprovider", "-k", "not missing_or_taken and not config"]
    options += ["-o", "markers=variants(n): of the conftest that is left out"]
    done = subprocess.run(
        [APART, "-m", "pytest", *options, Path(__file__).relative_to(ROOT)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
