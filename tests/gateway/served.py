"""A gateway on the loopback, in front of a model server, and clients that know nothing of it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

pytest.importorskip("starlette", reason="needs the extra `gateway`")
pytest.importorskip("prometheus_client", reason="needs the extra `gateway`")

import uvicorn

from context_compressor.gateway.app import Gateway, Settings
from context_compressor.gateway.backend import Backend
from context_compressor.gateway.upstream import Upstream
from tests.integrations.clients_support import CHAT, MESSAGES, RESPONSES, Api
from tests.support.model_server import ModelServer

KEY = "sk-of-the-caller"
APIS = [CHAT, RESPONSES, MESSAGES]
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
LISTS = {"chat": "messages", "responses": "input", "messages": "messages"}
every_api = pytest.mark.parametrize("api", APIS, ids=str)
streamed_or_not = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@dataclass
class Address:
    """Where a gateway is, as the helpers of clients take a server."""

    root: str

    @property
    def url(self) -> str:
        return f"{self.root}/v1"

    @property
    def anthropic_url(self) -> str:
        return self.root


@dataclass
class Served:
    """A gateway that runs."""

    gateway: Gateway
    address: Address

    def client(self, api: Api, key: str = KEY, **settings: Any) -> Any:
        """Return an SDK's client that has the gateway's base URL."""
        return api.make(self.address, True).with_options(api_key=key, **settings)

    def http(self, **settings: Any) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.address.root, timeout=60, **settings)

    def stats(self, api: Api) -> Any:
        return self.gateway.compressions[PATHS[api.name]].conversations.stats()


@asynccontextmanager
async def serving(
    server: ModelServer | str, backend: Backend | None = None, **options: Any
) -> AsyncIterator[Served]:
    """Run a gateway. Rules write notes unless `summarizer` says otherwise."""
    settings = {name: options.pop(name) for name in Settings.__dataclass_fields__ if name in options}
    settings["options"] = {"max_total_tokens": 4_000, "summarizer": "rules", **options}
    upstream = Upstream(server if isinstance(server, str) else server.url)
    gateway = Gateway(upstream, Settings(**settings), backend)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        runner = uvicorn.Server(uvicorn.Config(gateway.app(), log_level="error", timeout_graceful_shutdown=1))
        task = asyncio.create_task(runner.serve(sockets=[listening]))
        while not runner.started:  # noqa: ASYNC110  it tells nobody
            await asyncio.sleep(0.005)
        try:
            yield Served(gateway, Address(f"http://127.0.0.1:{listening.getsockname()[1]}"))
        finally:
            runner.should_exit = True
            await task


def notes(count: int, words: int = 300) -> list[dict[str, Any]]:
    """Return so many messages of a user's."""
    return [{"role": "user", "content": f"Note {n}: {'word ' * words}"} for n in range(count)]
