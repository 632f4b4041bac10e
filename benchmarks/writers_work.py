"""What the processes of `writers.py` do: they write into one session, or into many, and note what they do.

Notes are lines of JSON, each written at once, so that whoever is killed leaves all but what it was about.
Their times are those of the system's monotonic clock, which is one for all processes.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import json
import os
import random
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from redis.asyncio import BlockingConnectionPool, Redis
from sqlalchemy.ext.asyncio import create_async_engine

from context_compressor import (
    CompressedMemory,
    Msg,
    RedisMemory,
    RedisOffloadStore,
    SQLAlchemyMemory,
    SQLAlchemyOffloadStore,
    Summary,
    SummaryRequest,
)
from context_compressor.backends.sql.engines import engine_for
from context_compressor.memory import leases
from context_compressor.memory.base import MemoryBase
from context_compressor.memory.history import History
from context_compressor.offload.store import OffloadStore

BUDGET = 2_000
_COUNT = re.compile(r"(\d+) times 50 and (\d+) parts")
"""No number of three digits, which would be checked."""
CONNECTIONS = 4
"""Of one process."""
LOOKS_EVERY = 4
"""Messages that a writer adds between two looks at its view."""
WORDS = ["account", "balance", "carrier", "deposit", "engine", "filter", "garden", "harbour", "invoice"]


@dataclass(frozen=True)
class Job:
    """What a process has to do."""

    url: str
    session: str
    folder: Path
    number: int
    writers: int
    messages: int
    lease_seconds: float = 30.0

    @property
    def notes(self) -> Path:
        return self.folder / f"operations-{self.number}.jsonl"


class Characters:
    """A counter for a quick start: four characters a token."""

    encoding_name = "four characters"

    def count_text(self, text: str) -> int:
        return (len(text) + 3) // 4

    def count_messages(self, messages: Any) -> int:
        return sum(4 + self.count_text(str(getattr(msg, "content", msg))) for msg in messages)


def parts_noted(text: str) -> int:
    """Return how many parts notes of `Paid` are of."""
    found = _COUNT.search(text)
    return 50 * int(found[1]) + int(found[2]) if found else 0


class Paid:
    """A remote model that notes what it is paid for, and takes its time.

    Its notes say of how many parts they are, which is how often it was paid for what was committed.
    """

    remote = True
    rewrites_notes = True

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self.memory: CompressedMemory | None = None
        """Whose it is."""

    async def summarize(self, request: SummaryRequest) -> Summary:
        said = "".join(str(msg.content) for msg in request.messages) + (request.previous or "")
        material = hashlib.sha256(said.encode()).hexdigest()[:16]
        taken_over = 0 if self.memory is None else self.memory.stats().taken_over
        self._notes.note("paid", material=material, taken_over=taken_over)
        await asyncio.sleep(random.uniform(0.05, 0.2))
        fifties, rest = divmod(parts_noted(request.previous or "") + 1, 50)
        text = f"- The work went on as planned, {fifties} times 50 and {rest} parts."
        return Summary(text, input_tokens=len(said) // 4, output_tokens=8)


class Notes:
    """What a process did and when."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(self, kind: str, **more: Any) -> None:
        line = json.dumps({"kind": kind, "at": time.monotonic_ns(), "process": os.getpid(), **more})
        os.write(self._file, f"{line}\n".encode())


def read_notes(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class Opened:
    """Memories over one pool of connections."""

    def __init__(self, url: str) -> None:
        self.redis: Redis | None = None
        if url.startswith("redis"):
            # On a busy machine the server may answer late, too.
            waits = {"timeout": None, "socket_timeout": 60.0}
            pool = BlockingConnectionPool.from_url(url, max_connections=CONNECTIONS, **waits)
            self.redis = Redis(connection_pool=pool)
        elif url.startswith("sqlite"):
            self.engine = engine_for(url)
            # No program here pulls the plug.
            sa.event.listen(
                self.engine.sync_engine, "connect", lambda db, _: db.execute("PRAGMA synchronous=OFF")
            )
        else:
            self.engine = create_async_engine(url, pool_size=CONNECTIONS, max_overflow=0)

    def base(self, session: str) -> MemoryBase:
        if self.redis is not None:
            return RedisMemory(self.redis, session_id=session)
        return SQLAlchemyMemory(self.engine, session_id=session)

    def store(self, session: str) -> OffloadStore:
        if self.redis is not None:
            return RedisOffloadStore(self.redis, session)
        return SQLAlchemyOffloadStore(self.engine, session)

    def memory(self, session: str, summarizer: Any, **fields: Any) -> CompressedMemory:
        store, base = self.store(session), self.base(session)
        return CompressedMemory(
            base,
            None,
            store,
            summarizer,
            Characters(),
            max_total_tokens=BUDGET,
            keep_recent_count=4,
            **fields,
        )

    async def close(self) -> None:
        if self.redis is not None:
            await self.redis.aclose()
            await self.redis.connection_pool.disconnect()
        else:
            await self.engine.dispose()


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Opened]:
    one = Opened(url)
    try:
        yield one
    finally:
        await one.close()


def history_of(memory: CompressedMemory) -> History:
    return memory._tracker.history


def bytes_of(view: list[Msg]) -> str:
    return hashlib.sha256(json.dumps([msg.to_dict() for msg in view]).encode()).hexdigest()


def id_of(writer: int, number: int) -> str:
    return f"w{writer}-{number:04}"


def text_of(id: str) -> str:
    words = random.Random(id)
    return f"{id} says: " + " ".join(words.choice(WORDS) for _ in range(30))


async def look(memory: CompressedMemory, notes: Notes) -> None:
    """Read the view, and note of which head it is."""
    notes.note("look")
    view = await memory.get_memory()
    tracker = memory._tracker
    # What was prepared may have been committed while events were delivered.
    is_same = bytes_of(tracker.state.view(None, with_summaries=True)) == bytes_of(view)
    stats = memory.stats()
    notes.note(
        "view",
        number=tracker.number if is_same else None,
        size=len(tracker.state.known) if is_same else None,
        digest=bytes_of(view),
        tokens=stats.view_tokens,
        taken_over=stats.taken_over,
        calls=stats.summarizer_calls,
    )


async def _write(job: Job) -> None:
    leases.LEASE_SECONDS = job.lease_seconds
    done = {note["id"] for note in read_notes(job.notes) if note["kind"] == "added"}
    notes = Notes(job.notes)
    paid = Paid(notes)
    async with opened(job.url) as pool, pool.memory(job.session, paid) as memory:
        paid.memory = memory
        for number in range(job.messages):
            if (id := id_of(job.number, number)) in done:
                continue
            notes.note("add", id=id)
            await memory.add(Msg("user", text_of(id), "user", id=id))
            notes.note("added", id=id)
            if number % LOOKS_EVERY == LOOKS_EVERY - 1:
                await look(memory, notes)
        while await memory.size() < job.writers * job.messages:  # noqa: ASYNC110 - others write them
            await asyncio.sleep(0.1)
        await look(memory, notes)
    notes.note("ended")


def write(job: Job) -> None:
    """Write the messages that are not written yet, and look at the view from time to time."""
    random.seed()
    asyncio.run(_write(job))


# Many sessions in one process


async def _serve(job: Job, sessions: int) -> None:
    notes, limit = Notes(job.notes), asyncio.Semaphore(50)
    async with opened(job.url) as pool:

        async def session(number: int) -> None:
            async with limit:
                name = f"{job.session} {job.number} {number}"
                async with pool.memory(name, Paid(notes)) as memory:
                    for count in range(job.messages):
                        await memory.add(Msg("user", text_of(id_of(number, count)), "user"))
                        if count % LOOKS_EVERY == 0:
                            await memory.get_memory()
                    await memory.get_memory()
                    assert await memory.size() == job.messages
                    assert memory.stats().view_tokens <= BUDGET

        async def all_of(numbers: range) -> None:
            await asyncio.gather(*map(session, numbers))
            gc.collect()
            left = sum(isinstance(one, CompressedMemory) for one in gc.get_objects())
            held = {"files": _open_files(), "size": _resident()}
            notes.note("served", memories=left, tasks=len(asyncio.all_tasks()), **held)

        await all_of(range(sessions // 5))  # what is made once is there then
        await all_of(range(sessions // 5, sessions))


def _open_files() -> int:
    """Return how many files this process has open."""
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.exists() else 0


def _resident() -> int:
    """Return this process's resident megabytes."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS")), 0)


def serve(job: Job, sessions: int) -> None:
    """Go through many sessions, fifty at a time, over one pool."""
    asyncio.run(_serve(job, sessions))
