"""Handing over to mem0's `AsyncMemory`: the real one, on disk, with models on the loopback."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from context_compressor import HandOver, Msg
from context_compressor.memory.handover import Departure

DIMENSIONS = 16
REF = "ctx://0123456789abcdef"
MESSAGES = (
    Msg("user", "I live in Oslo.", "user", id="1"),
    Msg("assistant", [{"type": "tool_use", "id": "c", "name": "look", "input": {}}], "assistant", id="2"),
    Msg("look", [{"type": "tool_result", "id": "c", "name": "look", "output": "rain"}], "system", id="3"),
    Msg("assistant", "It rains there.", "assistant", id="4"),
)


class Models:
    """Embeddings by hash, and a model that finds one fact in whatever it is told."""

    def __init__(self) -> None:
        self.chats: list[Any] = []

    async def embed(self, request: web.Request) -> web.Response:
        said = (await request.json())["input"]
        texts = [said] if isinstance(said, str) else said
        data = [
            {"object": "embedding", "index": n, "embedding": [b / 255 for b in _bytes(str(one))]}
            for n, one in enumerate(texts)
        ]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        return web.json_response({"object": "list", "model": "e", "data": data, "usage": usage})

    async def chat(self, request: web.Request) -> web.Response:
        self.chats.append(await request.json())
        said = json.dumps({"memory": [{"id": "0", "text": "Lives in Oslo", "attributed_to": "user"}]})
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": said}}
        body = {"id": "c", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
        return web.json_response(body)


def _bytes(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()[:DIMENSIONS]


@pytest.fixture
async def models() -> AsyncIterator[tuple[Models, str]]:
    models, app = Models(), web.Application()
    app.router.add_post("/v1/embeddings", models.embed)
    app.router.add_post("/v1/chat/completions", models.chat)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield models, f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    await runner.cleanup()


@pytest.fixture
def quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEM0_TELEMETRY", "False")
    monkeypatch.setenv("MEM0_DIR", str(tmp_path / "mem0"))
    monkeypatch.setenv("OPENAI_API_KEY", "none")


@pytest.fixture
def config(quiet: None, models: tuple[Models, str], tmp_path: Path) -> dict[str, Any]:
    model = {"api_key": os.environ["OPENAI_API_KEY"], "openai_base_url": models[1], "model": "m"}
    store = {"path": str(tmp_path / "vectors"), "embedding_model_dims": DIMENSIONS, "on_disk": True}
    return {
        "embedder": {"provider": "openai", "config": {**model, "embedding_dims": DIMENSIONS}},
        "llm": {"provider": "openai", "config": model},
        "vector_store": {"provider": "qdrant", "config": store},
        "history_db_path": str(tmp_path / "history.db"),
    }


@pytest.fixture
async def memory(config: dict[str, Any]) -> AsyncIterator[Any]:
    memory = pytest.importorskip("mem0").AsyncMemory.from_config(config)
    yield memory
    close(memory)


def close(memory: Any) -> None:
    memory.vector_store.client.close()
    memory.db.close()


async def kept(memory: Any, user: str = "ada") -> list[tuple[str, str]]:
    found = await memory.get_all(filters={"user_id": user}, top_k=100)
    return sorted((one["memory"], one["metadata"]["ref"]) for one in found["results"])


async def test_each_message_is_kept_once_however_often_it_is_handed_over(memory: Any) -> None:
    receiver = HandOver(memory, user_id="ada", infer=False)
    part = Departure(REF, MESSAGES[:1])
    await receiver.receive(part)  # where it ended half way
    for _ in range(3):
        await receiver.receive(Departure(REF, MESSAGES))
    everything = [("I live in Oslo.", REF), ("It rains there.", REF), ("rain", REF)]
    assert await kept(memory) == everything
    other = "ctx://ffffffffffffffff"
    await receiver.receive(Departure(other, MESSAGES[:1]))
    assert await kept(memory) == sorted([*everything, ("I live in Oslo.", other)])
    await HandOver(memory, user_id="bob", infer=False).receive(part)
    assert await kept(memory, "bob") == everything[:1]


async def test_a_model_is_asked_once_for_what_left_together(memory: Any, models: tuple[Models, str]) -> None:
    receiver = HandOver(memory, user_id="ada", metadata={"app": "x"})
    for _ in range(3):
        await receiver.receive(Departure(REF, MESSAGES))
    assert len(models[0].chats) == 1
    assert "I live in Oslo." in str(models[0].chats)
    assert await kept(memory) == [("Lives in Oslo", REF)]


async def test_agentscope_s_long_term_memory_over_mem0_takes_it(config: dict[str, Any]) -> None:
    base = pytest.importorskip("mem0.configs.base")
    their = pytest.importorskip("agentscope.memory").Mem0LongTermMemory(
        user_name="ada", mem0_config=base.MemoryConfig(**config), suppress_mem0_logging=False
    )
    await HandOver(their, infer=False).receive(Departure(REF, MESSAGES))
    mem0 = their.long_term_working_memory
    (one,) = (await mem0.get_all(filters={"user_id": "ada"}, top_k=10))["results"]
    assert all(said in one["memory"] for said in ("I live in Oslo.", "rain", "It rains there."))
    mem0.embedding_model.config.openai_base_url = mem0.embedding_model.client.base_url = "http://127.0.0.1:9/"
    with pytest.raises(Exception, match="onnection"):  # so that it is handed over again
        await HandOver(their, infer=False).receive(Departure(REF, MESSAGES))
    close(mem0)
