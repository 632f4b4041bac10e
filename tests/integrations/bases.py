"""Every memory that an AgentScope application may have already, to be opened more than once."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from agentscope.memory import AsyncSQLAlchemyMemory, InMemoryMemory, RedisMemory
from sqlalchemy import event
from sqlalchemy.ext.asyncio import create_async_engine

_STARTS = 5
"""A port that was free may be taken by the time the server asks for it."""


@contextmanager
def redis_server(folder: Path) -> Iterator[int]:
    """Run a server of our own, which keeps nothing, and give its port; skip the test where there is none."""
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        pytest.skip("redis-server is not installed (Debian, Ubuntu: apt install redis-server)")
    for _ in range(_STARTS):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        options = {"port": port, "bind": "127.0.0.1", "save": "", "appendonly": "no", "dir": folder}
        arguments = [text for name, value in options.items() for text in (f"--{name}", str(value))]
        with subprocess.Popen([program, *arguments], stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            try:
                if any("Ready to accept connections" in line for line in server.stdout):
                    yield port
                    return
            finally:
                server.terminate()
                server.communicate()
    pytest.fail(f"redis-server did not start in {_STARTS} attempts")


@dataclass(frozen=True)
class Place:
    """Where a durable memory keeps its messages; opened twice, it is the same memory."""

    kind: str
    folder: Path
    redis_port: Callable[[], int]
    session: str

    @asynccontextmanager
    async def open(self, session: str | None = None, user: str = "somebody") -> AsyncIterator[Any]:
        """Give the memory, and close it behind it."""
        session = session or self.session
        if self.kind == "sqlalchemy":
            engine = create_async_engine(f"sqlite+aiosqlite:///{self.folder / 'memory.db'}")
            # No test pulls the plug, and waiting for the disk takes most of the time.
            event.listen(engine.sync_engine, "connect", lambda db, _: db.execute("PRAGMA synchronous=OFF"))
            try:
                async with AsyncSQLAlchemyMemory(engine, session_id=session, user_id=user) as memory:
                    yield memory
            finally:
                await engine.dispose()
        elif self.kind == "redis":
            async with RedisMemory(session_id=session, user_id=user, port=self.redis_port()) as memory:
                yield memory
        else:
            yield InMemoryMemory()


KINDS = ("in_memory", "sqlalchemy", "redis")
DURABLE = KINDS[1:]


def new_session() -> str:
    """Return a session id that nobody else uses."""
    return uuid4().hex
