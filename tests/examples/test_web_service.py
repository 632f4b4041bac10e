"""The web service of the documentation: two processes, one database, and what is deleted is gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.examples.test_examples import example
from tests.support.model_server import ModelServer, answer, status
from tests.support.policies import Policy

PATH = "/users/ada/sessions/1"


def _policy(messages: list[dict[str, Any]]) -> Any:
    newest = messages[-1]
    if newest["role"] == "user" and str(newest["content"]).startswith("Order"):
        return answer(tool_calls=[("find_order", {"order": 7})])
    if newest["role"] == "user" and "gate" in str(newest["content"]):
        return answer(tool_calls=[("grep_offloaded", {"pattern": "gate code is \\d+"})])
    return answer(f"It says: {newest['content']}")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the folder of the database that the service is told of."""
    monkeypatch.setenv("MEMORY_URL", f"sqlite+aiosqlite:///{tmp_path}/memory.db")
    monkeypatch.setenv("MEMORY_TOKENS", "2000")
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    return tmp_path


@asynccontextmanager
async def _served(monkeypatch: pytest.MonkeyPatch, policy: Policy = _policy) -> AsyncIterator[Any]:
    """Run two processes, and give a model's server, their modules, and a client of each."""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(ModelServer(policy, window_tokens=6_000))
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        modules, clients = [example("web_service"), example("web_service")], []
        for module in modules:
            await stack.enter_async_context(module.app.router.lifespan_context(module.app))
            client = httpx.AsyncClient(
                transport=httpx.ASGITransport(module.app), base_url="http://service", timeout=None
            )
            clients.append(await stack.enter_async_context(client))
        yield server, modules, clients


async def _say(client: httpx.AsyncClient, text: str, id: str, path: str = PATH) -> tuple[int, str]:
    said = await client.post(f"{path}/messages", content=text, headers={"X-Request-Id": id})
    return said.status_code, said.json() if said.status_code == 200 else said.json()["detail"]


def _all_bytes(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.iterdir())


async def test_a_session_goes_on_in_any_process_until_it_is_deleted(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with _served(monkeypatch) as (server, _, clients):

        async def say(text: str, number: int) -> str:
            code, said = await _say(clients[number % 2], text, str(number))
            assert code == 200, said
            return said

        first = await say("Order 7?", 1)
        assert "shipped on Monday" in first
        asked = len(server.requests)
        assert await say("Order 7?", 1) == first  # sent again, since no answer came, say
        assert len(server.requests) == asked
        await say("The gate code is 7731. " + "Nothing else matters here. " * 60, 2)
        for number in range(3, 9):
            await say(f"Line {number}: " + f"part {number} came and went. " * 60, number)
        assert "gate code is 7731" in await say("What was the gate code?", 9)
        asked = len(server.requests)
        assert await say("Order 7?", 1) == first  # though the view has it no more
        assert len(server.requests) == asked
        assert all(not received.refused for received in server.requests)

        tries = await asyncio.gather(*(_say(client, "Once?", "once") for client in clients * 2))
        assert set(tries) == {(200, "It says: Once?")}
        assert len(server.requests) == asked + 1, "of several tries at once one asks"

        whole = (await clients[0].get(f"{PATH}/messages")).json()
        assert sum(message["role"] == "user" for message in whole) == 10
        [gone] = (await clients[1].delete(PATH)).json()
        assert gone["complete"]
        assert (await clients[0].delete(PATH)).json() == [], "it may be asked for again"
        assert (await clients[0].get(f"{PATH}/messages")).json() == []
    assert b"gate code" not in _all_bytes(place)


@pytest.mark.usefixtures("place")
async def test_an_answer_is_of_its_own_question(monkeypatch: pytest.MonkeyPatch) -> None:
    async with _served(monkeypatch) as (server, modules, [client, _]):
        server.fail(status(400), times=2)
        assert (await _say(client, "One?", "a"))[0] == 503
        assert (await _say(client, "One?", "a"))[0] == 503
        assert await _say(client, "One?", "a") == (200, "It says: One?")
        assert (await _say(client, "Another?", "a"))[0] == 422
        for id in ("answer a", "a:answer", "question a"):
            assert await _say(client, f"Is it {id}?", id) == (200, f"It says: Is it {id}?")

        server.fail(status(400))
        assert (await _say(client, "Two?", "b"))[0] == 503
        assert await _say(client, "Three?", "c") == (200, "It says: Three?")
        asked = len(server.requests)
        for _ in range(2):
            assert (await _say(client, "Two?", "b"))[0] == 409, "the user has gone on"
        assert await _say(client, "Three?", "c") == (200, "It says: Three?")
        assert len(server.requests) == asked

        modules[0].ANSWER_SECONDS = 0
        assert (await _say(client, "Four?", "d"))[0] == 503
        modules[0].ANSWER_SECONDS = 120
        assert await _say(client, "Four?", "d") == (200, "It says: Four?")


@pytest.mark.parametrize(
    ("deleted", "refused"), [(PATH, [PATH]), ("/users/ada", [PATH, "/users/ada/sessions/2"])]
)
async def test_a_deletion_waits_for_what_is_under_way_and_lets_nothing_in(
    place: Path, monkeypatch: pytest.MonkeyPatch, deleted: str, refused: list[str]
) -> None:
    deleting: list[asyncio.Task[httpx.Response]] = []

    async def policy(_messages: list[dict[str, Any]]) -> str:
        deleting.append(asyncio.create_task(clients[1].delete(deleted)))
        # A database tells nobody of what others write.
        while not await modules[0].is_deleted(modules[0].app.state.engine, "ada", "1"):  # noqa: ASYNC110
            await asyncio.sleep(0)
        return "a secret"

    async with _served(monkeypatch, policy) as (server, modules, clients):
        assert await _say(clients[0], "Do you keep a secret?", "a") == (200, "a secret")
        [gone] = (await deleting[0]).json()
        assert gone["complete"]
        for path in refused:
            for id in ("a", "b"):
                assert (await _say(clients[0], "Do you keep a secret?", id, path))[0] == 410
            assert (await clients[0].get(f"{path}/messages")).json() == []
        marked = iter([False, True])

        async def is_deleted(*_: object) -> bool:
            return next(marked)

        modules[0].is_deleted = is_deleted  # by who looked for sessions before this one was there
        assert (await _say(clients[0], "Do you keep a secret?", "a", "/users/ben/sessions/1"))[0] == 410
        assert len(server.requests) == 1
    assert b"secret" not in _all_bytes(place)
