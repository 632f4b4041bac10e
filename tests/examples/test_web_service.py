"""The web service of the documentation: two processes, one database, and what is deleted is gone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest

from tests.examples.test_examples import example
from tests.support.model_server import ModelServer, answer, status


def _policy(messages: list[dict[str, Any]]) -> Any:
    newest = messages[-1]
    if newest["role"] == "user" and str(newest["content"]).startswith("Order"):
        return answer(tool_calls=[("find_order", {"order": 7})])
    if newest["role"] == "user" and "gate" in str(newest["content"]):
        return answer(tool_calls=[("grep_offloaded", {"pattern": "gate code is \\d+"})])
    return answer(f"It says: {newest['content']}")


def _all_bytes(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.iterdir())


async def test_a_session_goes_on_in_any_process_until_it_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMORY_URL", f"sqlite+aiosqlite:///{tmp_path}/memory.db")
    monkeypatch.setenv("MEMORY_TOKENS", "2000")
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    async with ModelServer(_policy, window_tokens=6_000) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        service = example("web_service")
        one, other = service.app, example("web_service").app
        async with one.router.lifespan_context(one), other.router.lifespan_context(other):
            clients = [
                httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service")
                for app in (one, other)
            ]
            path = "/users/ada/sessions/1"

            async def say(text: str, number: int) -> str:
                client = clients[number % 2]
                headers = {"X-Request-Id": str(UUID(int=number))}
                said = await client.post(f"{path}/messages", content=text, headers=headers)
                assert said.status_code == 200, said.text
                return str(said.json())

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

            def try_once(client: httpx.AsyncClient) -> Any:
                return client.post(
                    f"{path}/messages", content="Once?", headers={"X-Request-Id": str(UUID(int=99))}
                )

            asked = len(server.requests)
            tries = await asyncio.gather(*(try_once(client) for client in clients * 2))
            assert {200} <= {tried.status_code for tried in tries} <= {200, 409}
            assert all("Retry-After" in tried.headers for tried in tries if tried.status_code == 409)
            tries.append(await try_once(clients[0]))
            assert {tried.json() for tried in tries if tried.status_code == 200} == {"It says: Once?"}
            assert len(server.requests) == asked + 1, "of several tries at once one asks"

            for text, number, code in (
                ("Failing", 100, 502),
                ("Fine?", 101, 200),
                ("Failing", 100, 410),
                ("No", 101, 422),
            ):
                if code == 502:
                    server.fail(status(403))
                headers = {"X-Request-Id": str(UUID(int=number))}
                said = await clients[0].post(f"{path}/messages", content=text, headers=headers)
                assert said.status_code == code, "no answer is of another question"

            whole = (await clients[0].get(f"{path}/messages")).json()
            assert sum(message["role"] == "user" for message in whole) == 12
            async with service.turn(one.state.engine, "ada", "1"):  # what is under way would write it anew
                for gone in (path, "/users/ada"):
                    assert (await clients[1].delete(gone)).status_code == 409
            gone = (await clients[1].delete(path)).json()
            assert gone["complete"]
            assert (await clients[0].get(f"{path}/messages")).json() == []
            await say("The gate code is 7731.", 10)
            assert (await clients[0].delete("/users/ada")).status_code == 204
            assert (await clients[1].get(f"{path}/messages")).json() == []
            for client in clients:
                await client.aclose()
    assert b"gate code" not in _all_bytes(tmp_path)
