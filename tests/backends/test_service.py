"""The example service: two processes, many users at once, and a model that refuses what is too long."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from context_compressor import RedisMemory, SQLAlchemyMemory
from tests.support.model_server import ModelServer, answer
from tests.support.servers import free_port

ROOT = Path(__file__).parents[2]
USERS = [f"user{number}" for number in range(4)]
TURNS = 8


def reply(messages: list[dict[str, Any]]) -> Any:
    """Say whose words a request holds."""
    owners = sorted(set(re.findall(r"user\d", str(messages))))
    return answer(f"Words of {' '.join(owners)}.")


@pytest.mark.variants(0)
@pytest.mark.parametrize("kind", ["sqlite", "redis"])
async def test_users_are_apart_in_two_processes(
    kind: str, server: Callable[[str], int], tmp_path: Path
) -> None:
    url = (
        f"redis://127.0.0.1:{server('redis')}/3"
        if kind == "redis"
        else f"sqlite+aiosqlite:///{tmp_path}/m.db"
    )
    port = free_port()
    async with ModelServer(reply, window_tokens=1_000) as model:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "uvicorn", "service_fastapi:app", "--app-dir", str(ROOT / "examples"),
            "--workers", "2", "--port", str(port), "--log-level", "warning",
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "MEMORY_URL": url,
                "MEMORY_TOKENS": "800",
                "OPENAI_API_KEY": "test",
                "OPENAI_BASE_URL": model.url,
            },
            start_new_session=True,
        )  # fmt: skip
        try:
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=120) as client:
                processes = await talk(client)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        assert model.refusals == []
    assert len(processes) == 2
    for user in USERS:
        open_memory = RedisMemory if kind == "redis" else SQLAlchemyMemory
        async with open_memory(url, user_id=user, session_id="s") as memory:
            said = [msg.content for msg in await memory.get_memory() if msg.role == "user"]
            assert said == [text_of(user, turn) for turn in range(TURNS)]
            await memory.clear()


def text_of(user: str, turn: int) -> str:
    return f"Turn {turn}: {user} orders {turn} more. " * 15


async def talk(client: httpx.AsyncClient) -> set[str]:
    """Let all users talk at once; return the processes that answered."""
    for _ in range(600):
        try:
            await client.get("/docs")
            break
        except httpx.TransportError:
            await asyncio.sleep(0.1)
    processes = set()

    async def user_talks(user: str) -> None:
        for turn in range(TURNS):
            params = {"user_id": user, "session_id": "s", "input": text_of(user, turn)}
            # A connection of its own: else one process would serve all that comes over it.
            response = await client.post("/chat", params=params, headers={"connection": "close"})
            assert response.status_code == 200, response.text
            assert response.json() == f"Words of {user}."
            processes.add(response.headers["x-process"])

    await asyncio.gather(*map(user_talks, USERS))
    return processes
