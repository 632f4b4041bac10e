"""What durable memories take beside AgentScope 1's, over the same servers, with the same messages.

    python benchmarks/durable.py [--backend NAME ...] [--messages N ...] [--turns N] [--results DIR]

A turn of an agent adds two messages, one at a time, and asks for its memory. Both sides take turns in turn,
so that what else the machine does meets them alike: `CompressedMemory` over `SQLAlchemyMemory` or
`RedisMemory`, with views of 16,000 tokens, and AgentScope's `AsyncSQLAlchemyMemory` or `RedisMemory`, whose
memory is the whole conversation. SQLite is a file whose engine both share; PostgreSQL and Redis are servers
started for this, which sync what they acknowledge. Means over all turns, in ms; events of compression are in
them. Of each backend:

- messages: that the session has before the turns; theirs, ours: what a call takes;
- ratio: how many times faster ours is; turn: the two adds and the reading together;
- resume: the first reading by a memory that was just made, as another process makes it.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import fmean
from typing import Any
from uuid import uuid4

from agentscope.memory import AsyncSQLAlchemyMemory as TheirSQL
from agentscope.memory import RedisMemory as TheirRedis
from agentscope.message import Msg as TheirMsg
from redis.asyncio import ConnectionPool
from reporting import make_parser, markdown_table, notes_of, print_table, write_results
from sqlalchemy.ext.asyncio import create_async_engine

from context_compressor import CompressedMemory, Msg, RedisMemory, SQLAlchemyMemory
from tests.support import servers

COLUMNS = ("backend", "messages", "call", "theirs, ms", "ours, ms", "ratio")
BACKENDS = ("sqlite", "postgresql", "redis")
CALLS = ("add", "get_memory", "turn", "resume")
AT_ONCE = 100
RESUMED = 5


def text_of(number: int) -> str:
    return f"Parcel {number} goes from depot {number % 7} to door {number * 7919 % 10_007}. " * 6


@asynccontextmanager
async def makers(kind: str) -> AsyncIterator[tuple[Callable[[str], Any], Callable[[str], Any]]]:
    """Give what opens a session: theirs, and ours."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        if kind == "redis":
            running = servers.start_redis(folder, durable=True)
            # Theirs takes text, which it has a client decode.
            pool: Any = ConnectionPool(host="127.0.0.1", port=running.port, decode_responses=True)
            yield (
                lambda session: TheirRedis(connection_pool=pool, session_id=session),
                lambda session: CompressedMemory(
                    RedisMemory(pool, session_id=session), max_total_tokens=16_000
                ),
            )
            await pool.disconnect()
            servers.stop(running.process)
            return
        started = servers.start_postgres(folder, durable=True) if kind == "postgresql" else None
        if started is None:
            url = f"sqlite+aiosqlite:///{folder}/memory.db"
        else:
            url = f"postgresql+asyncpg://postgres@127.0.0.1:{started.port}/postgres"
        engine = create_async_engine(url)
        yield (
            lambda session: TheirSQL(engine, session_id=session, user_id="ada"),
            lambda session: CompressedMemory(
                SQLAlchemyMemory(engine, session_id=session, user_id="ada"), max_total_tokens=16_000
            ),
        )
        await engine.dispose()
        if started is not None:
            servers.stop(started.process)


async def timed(call: Awaitable[Any]) -> float:
    began = time.perf_counter()
    await call
    return 1_000 * (time.perf_counter() - began)


class Side:
    """One library's memory of a session, and what its calls took."""

    def __init__(self, make: Callable[[str], Any], msg: Any) -> None:
        self._make, self._msg, self._session = make, msg, uuid4().hex
        self.memory = make(self._session)
        self.took: dict[str, list[float]] = {name: [] for name in CALLS}

    def message(self, number: int) -> Any:
        who = ("user", "assistant")[number % 2]
        return self._msg(who, text_of(number), who)

    async def fill(self, count: int) -> None:
        for start in range(0, count, AT_ONCE):
            await self.memory.add([self.message(n) for n in range(start, min(count, start + AT_ONCE))])
        await self.memory.get_memory()

    async def turn(self, number: int) -> None:
        took = [await timed(self.memory.add(self.message(number + n))) for n in range(2)]
        read = await timed(self.memory.get_memory())
        self.took["add"] += took
        self.took["get_memory"].append(read)
        self.took["turn"].append(sum(took) + read)

    async def resume(self) -> None:
        memory = self._make(self._session)
        self.took["resume"].append(await timed(memory.get_memory()))
        if isinstance(memory, TheirSQL):
            await memory.close()  # its session; the engine goes on


async def measure(kind: str, messages: list[int], turns: int) -> list[dict[str, Any]]:
    rows = []
    async with makers(kind) as (theirs, ours):
        for count in messages:
            sides = Side(theirs, TheirMsg), Side(ours, Msg)
            for side in sides:
                await side.fill(count)
            for number in range(turns):
                for side in sides if number % 2 else sides[::-1]:
                    await side.turn(count + 2 * number)
            for _ in range(RESUMED):
                for side in sides:
                    await side.resume()
            for call in CALLS:
                their_ms, our_ms = (fmean(side.took[call]) for side in sides)
                row = {"backend": kind, "messages": count, "call": call, "theirs_ms": their_ms}
                rows.append(row | {"ours_ms": our_ms, "ratio": their_ms / our_ms})
            for side in sides:
                await side.memory.clear()
    return rows


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--backend", nargs="+", choices=BACKENDS, default=list(BACKENDS), metavar="NAME")
    parser.add_argument("--messages", type=int, nargs="+", default=[100, 10_000], metavar="N")
    parser.add_argument("--turns", type=int, default=30, help="(default 30)")
    parser.add_argument("--results", type=Path, help="folder to write durable.json and durable.md to")
    options = parser.parse_args()
    rows = [
        row for kind in options.backend for row in asyncio.run(measure(kind, options.messages, options.turns))
    ]
    told = [
        [
            row["backend"], f"{row['messages']:,}", row["call"],
            f"{row['theirs_ms']:.2f}", f"{row['ours_ms']:.2f}", f"{row['ratio']:.1f}",
        ]
        for row in rows
    ]  # fmt: skip
    print_table(COLUMNS, told)
    if options.results:
        text = f"{markdown_table(COLUMNS, told)}\n\n{notes_of(__doc__, 'messages')}"
        write_results(options.results, "durable", {"rows": rows}, "Durable memories", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
