"""The sessions of a service whose texts share one directory, for `retention.py`.

    python benchmarks/retention_service.py PATH NUMBER MAX_BYTES MAX_AGE_SECONDS

runs one of them in a process of its own, which waits to be killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from context_compressor import (
    CompressedMemory,
    CompressionConfig,
    FileOffloadStore,
    TiktokenCounter,
    from_openai,
    to_openai,
)
from context_compressor.offload.directory import collect_garbage
from context_compressor.offload.folders import find_namespaces

COUNTER = TiktokenCounter()
CONFIG = CompressionConfig(max_total_tokens=1_200, keep_recent_count=4)
GOES_ON, ENDS, CRASHES, DELETES = 0.05, 0.3, 0.08, 0.15
"""Chances: that an ended session goes on on a day, that an open one ends at its end, that one that ends
crashes, and that a session which takes turns deletes a message."""
REMEMBERED = 2_000
"""Ended sessions that may go on."""
APART = 200
"""One session in so many runs in a process of its own, which is killed."""
AT_ONCE = 8
"""Sessions that take turns at the same time."""


@dataclass
class Session:
    """A session, its memory while it is open, and its saved state when it ended."""

    number: int
    store: FileOffloadStore | None = None
    memory: CompressedMemory | None = None
    state: str = ""
    shown: str = ""
    said: int = 0
    lost: frozenset[str] = frozenset()
    """Refs whose texts had been removed when it went on."""

    @property
    def namespace(self) -> str:
        return f"session-{self.number}"


@dataclass
class Day:
    """What happened on a day."""

    day: int
    begun: int = 0
    open: int = 0
    resumed: int = 0
    resumed_without_texts: int = 0
    crashed: int = 0
    removed: int = 0
    used_bytes: int = 0
    peak_bytes: int = 0
    disk_bytes: int = 0
    refs: int = 0
    waiting: int = 0
    faults: list[str] = field(default_factory=list)


def make_turn(rng: random.Random, number: int, place: int) -> list[dict[str, Any]]:
    """Return a call, its result of some 1 to 12 KB, and an answer."""
    words = [f"{rng.choice('bdfgklmnprst')}{rng.choice('aeiou')}{rng.randrange(10_000)}" for _ in range(30)]
    lines = [
        f"{' '.join(rng.choices(words, k=8))} at {rng.randrange(1_000)}" for _ in range(rng.randint(20, 120))
    ]
    call = {"name": "read_file", "arguments": json.dumps({"path": f"src/{words[0]}.py"})}
    id = f"c{number}-{place}"
    return [
        {"role": "user", "content": f"And what of {words[1]}?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": id, "type": "function", "function": call}],
        },
        {"role": "tool", "tool_call_id": id, "content": "\n".join(lines)},
        {"role": "assistant", "content": f"It stands in {words[0]}: {' '.join(words[2:12])}."},
    ]


class Service:
    """The sessions of a service, in one process.

    Args:
        path: the directory that they share.
        max_bytes: its quota.
        max_age_seconds: how long a namespace may lie unused.
        seed: of everything that is left to chance.
    """

    def __init__(self, path: Path, max_bytes: int, max_age_seconds: float, seed: int) -> None:
        self.path = path
        self.max_bytes = max_bytes
        self.max_age_seconds = max_age_seconds
        self.open: list[Session] = []
        self.ended: list[Session] = []
        self.begun = 0
        self._rng = random.Random(seed)

    def _open_store(self, session: Session) -> FileOffloadStore:
        session.store = FileOffloadStore(
            self.path, session.namespace, max_bytes=self.max_bytes, max_age_seconds=self.max_age_seconds
        )
        return session.store

    async def begin(self) -> Session:
        """Begin a session and let it take its first turns."""
        session = Session(self.begun)
        self.begun += 1
        session.memory = CompressedMemory(config=CONFIG, store=self._open_store(session), counter=COUNTER)
        self.open.append(session)
        await self.take_turns(session)
        return session

    async def take_turns(self, session: Session) -> None:
        """Let a session take some turns, and perhaps delete a message."""
        memory = session.memory
        assert memory is not None
        for _ in range(self._rng.randint(1, 3)):
            await memory.add(from_openai(make_turn(self._rng, session.number, session.said)))
            session.said += 1
            await memory.get_memory()
        if self._rng.random() < DELETES:
            history = await memory.get_history()
            await memory.delete([self._rng.choice(history).id])

    async def resume(self, session: Session, day: Day) -> None:
        """Go on with an ended session; its view has to be what it was."""
        had_texts = (self.path / session.namespace).is_dir()
        session.memory = CompressedMemory(config=CONFIG, store=self._open_store(session), counter=COUNTER)
        session.memory.load_state_dict(json.loads(session.state))
        if json.dumps(to_openai(await session.memory.get_memory())) != session.shown:
            day.faults.append(f"{session.namespace}: the view of the resumed session is another one")
        refs = await session.memory.reachable_refs()
        for ref in refs:
            await session.memory.read_ref(ref)  # from the store, or made again from the history
        session.lost = frozenset(refs).difference(await session.memory.store.refs())
        day.resumed += 1
        day.resumed_without_texts += not had_texts
        session.state = ""
        self.open.append(session)
        await self.take_turns(session)

    async def end(self, session: Session) -> None:
        """Save a session and close it."""
        assert session.memory is not None
        assert session.store is not None
        session.shown = json.dumps(to_openai(await session.memory.get_memory()))
        session.state = json.dumps(session.memory.state_dict())
        await session.memory.aclose()
        session.store.close()
        session.memory = session.store = None
        self.open.remove(session)
        self.ended.append(session)

    def crash(self, session: Session) -> None:
        """Forget a session without a word, as when what held it went down."""
        assert session.store is not None
        session.store.close()  # what the system does for a process that dies
        session.memory = session.store = None
        self.open.remove(session)

    async def check(self, day: Day) -> None:
        """Read everything that the ledgers of open sessions name, from the store itself."""
        for session in self.open:
            assert session.memory is not None
            memory = session.memory
            waiting = session.lost | memory._tracker.state.ledger.pending
            waiting = waiting.difference(await memory.store.refs())
            for ref in await memory.reachable_refs():
                try:
                    if ref in waiting:
                        await memory.read_ref(ref)
                        day.waiting += 1
                    else:
                        await memory.store.read(ref)
                except Exception as error:
                    day.faults.append(f"{session.namespace}: {ref} is gone: {error}")
                day.refs += 1

    async def pass_day(self, day: Day, count: int, target_open: int) -> None:
        """Let a day's sessions begin, go on and end."""
        del self.ended[:-REMEMBERED]
        coming = [session for session in self.ended if self._rng.random() < GOES_ON]
        self.ended = [session for session in self.ended if session not in coming]
        await self._in_turn([self.resume(session, day) for session in coming])
        active = self._rng.sample(self.open, min(len(self.open), target_open // 4))
        await self._in_turn([self.take_turns(session) for session in active])
        while day.begun < count:
            if self.begun % APART == APART - 1:
                await asyncio.to_thread(self.run_apart, day)
                day.begun += 1
                continue
            group = min(AT_ONCE, count - day.begun, APART - 1 - self.begun % APART)
            await self._in_turn([self.begin() for _ in range(group)])
            day.begun += group
            while len(self.open) > target_open:
                await self._end_one(day)
            day.peak_bytes = max(day.peak_bytes, used_bytes(self.path)[0])
        for _ in range(int(ENDS * len(self.open))):
            await self._end_one(day)
        day.open = len(self.open)

    async def _in_turn(self, work: list[Coroutine[Any, Any, Any]]) -> None:
        for start in range(0, len(work), AT_ONCE):
            await asyncio.gather(*work[start : start + AT_ONCE])

    async def _end_one(self, day: Day) -> None:
        session = self._rng.choice(self.open)
        if self._rng.random() < CRASHES:
            self.crash(session)
            day.crashed += 1
        else:
            await self.end(session)

    def run_apart(self, day: Day) -> None:
        """Run a session in a process of its own, look whether it is left alone, and kill it."""
        number, self.begun = self.begun, self.begun + 1
        arguments = [str(self.path), str(number), str(self.max_bytes), str(self.max_age_seconds)]
        process = subprocess.Popen([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        names = process.stdout.readline().split()
        others = [each.name for each in find_namespaces(self.path) if each.name != f"session-{number}"]
        collect_garbage(self.path, max_bytes=0, max_age_seconds=0, keep=others)
        for name in names:
            if not (self.path / f"session-{number}" / name).is_file():
                day.faults.append(f"session-{number}: {name} was removed, and its process still has it open")
        process.send_signal(signal.SIGKILL)
        process.communicate()
        day.crashed += 1


async def run_session_apart(path: str, number: str, max_bytes: str, max_age_seconds: str) -> None:
    """Take turns, name the files that the ledger names, and wait to be killed."""
    service = Service(Path(path), int(max_bytes), float(max_age_seconds), int(number))
    service.begun = int(number)
    session = await service.begin()
    assert session.memory is not None
    ledger = session.memory._tracker.state.ledger
    refs = [ref for ref in await session.memory.reachable_refs() if ref not in ledger.pending]
    print(*(f"{ref.removeprefix('ctx://')}.txt" for ref in refs), flush=True)
    await asyncio.Event().wait()


def used_bytes(path: Path) -> tuple[int, int]:
    """Return what lies in a directory, as sizes of files and in blocks of the file system."""
    sizes = blocks = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                status = Path(folder, name).lstat()
            except FileNotFoundError:
                continue
            if not folder.endswith(".store"):
                sizes += status.st_size
            blocks += getattr(status, "st_blocks", 0) * 512
    return sizes, blocks


if __name__ == "__main__":
    asyncio.run(run_session_apart(*sys.argv[1:]))
