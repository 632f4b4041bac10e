"""What lives and dies in `crash.py`: a process that opens a session, checks it, and goes on with it.

It tells its parent of every step, through a pipe, which outlasts it: what it is about to do, and what was
acknowledged to it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import re
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from context_compressor import (
    CompressedMemory,
    FileOffloadStore,
    InMemoryMemory,
    Msg,
    RedisMemory,
    RedisOffloadStore,
    SQLAlchemyMemory,
    SQLAlchemyOffloadStore,
    TiktokenCounter,
    ref_of,
    to_openai,
)
from context_compressor.laws.chat_rules import problems

BUDGET = 2_000
MOST_MESSAGES = 250
"""A session that is longer is cleared."""
RECOVER_SECONDS = 60.0
MARK = "m"
COUNTER = TiktokenCounter()
_REF = re.compile(r"ctx://[0-9a-f]{16}")

Step = dict[str, Any]


@dataclass(frozen=True)
class Expected:
    """What a session holds once some steps were made."""

    messages: dict[str, str] = field(default_factory=dict)
    """Digests of contents by message id, in order."""
    marked: frozenset[str] = frozenset()
    view: str | None = None
    """The digest of the view that was shown, as long as nothing changed since."""
    at: float = 0.0
    """When it was acknowledged, in seconds."""

    def after(self, step: Step) -> Expected:
        """Return what it holds then."""
        kind, ids = step["do"], step.get("ids", ())
        if kind == "add":
            marked = {id for id, _ in step["messages"]} if step["marked"] else set()
            return Expected({**self.messages, **dict(step["messages"])}, self.marked | marked)
        if kind == "delete":
            left = {id: digest for id, digest in self.messages.items() if id not in ids}
            return Expected(left, self.marked - set(ids))
        if kind == "mark":
            return Expected(self.messages, self.marked | set(ids))
        if kind == "clear":
            return Expected()
        return replace(self, view=None)


class Journal:
    """Which steps were acknowledged, and which one was under way.

    Args:
        kept: how many states to remember: a server that loses the last of what it acknowledged may be at any.
    """

    def __init__(self, kept: int = 1) -> None:
        self.states = deque([Expected()], maxlen=kept)
        self.pending: Step | None = None

    @property
    def last(self) -> Expected:
        return self.states[-1]

    def tell(self, event: Step) -> None:
        """Take up what a worker told."""
        if "do" in event:
            self.pending = event
        elif event.get("is") == "done":
            assert self.pending is not None
            done = self.last.after(self.pending)
            self.states.append(replace(done, view=event["view"], at=time.monotonic()))
            self.pending = None
        elif event.get("is") == "found":
            found = [*self.candidates()][event["candidate"]]
            self.states.append(replace(found, view=None, at=time.monotonic()))
            self.pending = None

    def lost_seconds(self, lost: int) -> float:
        """Return the time from the first to the last of the acknowledged steps that were lost."""
        return self.last.at - self.states[-lost].at if lost else 0.0

    def candidates(self) -> Iterable[Expected]:
        """Yield what the session may hold, what is likely first; only the first two lose nothing."""
        yield self.last
        yield self.last if self.pending is None else self.last.after(self.pending)
        yield from list(self.states)[-2::-1]


def opened(kind: str, url: str, folder: Path, session: str) -> CompressedMemory:
    """Open a session, as a process does that knows nothing of it."""
    if kind == "file":
        store = FileOffloadStore(folder / "texts", namespace=session)
        return CompressedMemory(InMemoryMemory(), store=store, counter=COUNTER, max_total_tokens=BUDGET)
    if kind.startswith("redis"):
        return CompressedMemory(
            RedisMemory(url, session_id=session),
            store=RedisOffloadStore(url, session),
            counter=COUNTER,
            max_total_tokens=BUDGET,
        )
    return CompressedMemory(
        SQLAlchemyMemory(url, session_id=session),
        store=SQLAlchemyOffloadStore(url, session),
        counter=COUNTER,
        max_total_tokens=BUDGET,
    )


def digest(data: Any) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]


class Worker:
    """One process's life with a session."""

    def __init__(
        self, kind: str, url: str, folder: Path, session: str, journal: Journal, seed: int, pipe: int
    ) -> None:
        self._open: Callable[[], CompressedMemory] = lambda: opened(kind, url, folder, session)
        self._state = folder / f"{session}.json" if kind == "file" else None
        self._journal = journal
        self._seed = seed
        self._random = random.Random(seed)
        self._pipe = pipe
        self._number = 0
        self._refs = self._remade = 0

    async def live(self) -> None:
        """Check the session, and go on with it until the process is killed."""
        memory = self._memory = self._open()
        if self._state is not None and self._state.exists():
            await memory.load(self._state)
        await self._check(is_new=True)
        while True:
            step, work = self._next_step()
            self._tell(step)
            try:
                view = await work()
                if self._state is not None:
                    await memory.save(self._state)
            except Exception as error:  # the server is gone
                self._tell({"is": "failed", "error": type(error).__name__})
                await self._recover()
            else:
                self._tell({"is": "done", "view": view, "events": memory.stats().events})

    def _tell(self, event: Step) -> None:
        self._journal.tell(event)
        os.write(self._pipe, json.dumps(event).encode() + b"\n")

    async def _recover(self) -> None:
        """Ask the same memory until it answers."""
        end = time.monotonic() + RECOVER_SECONDS
        while True:
            try:
                return await self._check(is_new=False)
            except Exception:
                if time.monotonic() > end:
                    raise
                await asyncio.sleep(0.02)

    # Checking

    async def _check(self, *, is_new: bool) -> None:
        memory, faults = self._memory, list[str]()
        history = await memory.get_history()
        held = {msg.id: digest(msg.content) for msg in history}
        marked = frozenset(msg.id for msg in await memory.base.get_memory(mark=MARK))
        if len(held) < len(history) or await memory.size() != len(history):
            faults.append(f"{len(history)} messages, {len(held)} ids, size {await memory.size()}")
        candidate = -1
        for number, one in enumerate(self._journal.candidates()):
            if list(one.messages.items()) == list(held.items()) and one.marked == marked:
                candidate = number
                break
        if candidate < 0:
            faults.append(self._difference(held, marked))
        view = await memory.get_memory()
        shown = digest([msg.to_dict() for msg in view])
        pending, compared = self._journal.pending, False
        if is_new and candidate == 0 and (pending is None or pending["do"] != "compress"):
            compared = self._journal.last.view is not None
            if compared and shown != self._journal.last.view:
                faults.append("the view is another than the one that was shown last")
        faults += await self._check_view(view)
        if self._state is not None:
            await memory.save(self._state)
        for fault in faults:
            self._tell({"is": "fault", "what": fault, "seed": self._seed})
        found = {"is": "found", "candidate": max(candidate, 0), "compared": compared}
        self._tell(
            {**found, "landed": pending and candidate == 1, "refs": self._refs, "remade": self._remade}
        )

    def _difference(self, held: dict[str, str], marked: frozenset[str]) -> str:
        wanted = self._journal.last
        lacking = [id for id in wanted.messages if id not in held]
        more = [id for id in held if id not in wanted.messages]
        other = [id for id in held if held[id] != wanted.messages.get(id, held[id])]
        marks = sorted(marked ^ wanted.marked)
        return (
            f"acknowledged and missing: {lacking}, there and not acknowledged: {more}, changed: {other}, "
            f"marks: {marks}; under way was {self._journal.pending}"
        )

    async def _check_view(self, view: list[Msg]) -> list[str]:
        memory = self._memory
        said = to_openai(view)
        faults = [f"view: {problem}" for problem in problems(said)]
        if (tokens := COUNTER.count_messages(view)) > BUDGET:
            faults.append(f"the view costs {tokens}, of {BUDGET}")
        named = dict.fromkeys(await memory.reachable_refs()) | dict.fromkeys(_REF.findall(json.dumps(said)))
        self._refs, self._remade = len(named), 0
        for ref in named:
            text = await memory.read_ref(ref)
            if ref_of(text) == ref:
                continue
            # What a delete removes from the store is gone before the state that no longer names it is saved.
            if self._state is not None and text and ref not in await memory.store.refs():
                self._remade += 1
            else:
                faults.append(f"{ref} reads back as another text")
        return faults

    # Steps

    def _next_step(self) -> tuple[Step, Callable[[], Any]]:
        """Return what to do, told and as a call; the call returns the digest of a view where it shows one."""
        memory, chance = self._memory, self._random.random()
        there = list(self._journal.last.messages)
        self._number += 1
        if self._journal.last.view is None and chance < 0.8:
            return {"do": "view"}, self._view
        if len(there) > MOST_MESSAGES:
            return {"do": "clear"}, memory.clear
        if len(there) > 5 and chance < 0.08:
            ids = self._random.sample(there, 3)
            return {"do": "delete", "ids": ids}, lambda: self._quietly(memory.delete(ids))
        if there and chance < 0.16:
            ids = self._random.sample(there[-40:], 1)
            return {"do": "mark", "ids": ids}, lambda: self._quietly(
                memory.update_messages_mark(MARK, msg_ids=ids)
            )
        if chance < 0.19:
            return {"do": "compress"}, lambda: self._quietly(memory.compress_now())
        messages = self._messages()
        marks = MARK if self._random.random() < 0.1 else None
        told = [(msg.id, digest(msg.content)) for msg in messages]
        step = {"do": "add", "messages": told, "marked": marks is not None}
        return step, lambda: self._quietly(memory.add(messages, marks))

    async def _view(self) -> str:
        return digest([msg.to_dict() for msg in await self._memory.get_memory()])

    async def _quietly(self, work: Any) -> None:
        await work

    def _messages(self) -> list[Msg]:
        """Return what is added at once: a word of the user's, or some calls with their results."""
        name, words = f"{self._seed}-{self._number}", self._random
        if words.random() < 0.4:
            text = f"Order {words.randrange(10**6)} goes to dock {words.randrange(99)}, gate {name}. "
            return [Msg("user", text * words.randrange(1, 12), "user", id=name)]
        messages = []
        for number in range(words.randrange(1, 3)):
            call = f"{name}-{number}"
            block = {"type": "tool_use", "id": call, "name": "track", "input": {"order": call}}
            rows = words.randrange(1, 120 if words.random() < 0.2 else 12)
            text = "\n".join(f"{call} row {row}: {words.randrange(10**9)} at dock 7" for row in range(rows))
            result = {"type": "tool_result", "id": call, "name": "track", "output": text}
            messages.append(Msg("agent", [block], "assistant", id=f"{call}-call"))
            messages.append(Msg("system", [result], "system", id=f"{call}-result"))
        return messages


def warm_up() -> None:
    """Load, in the process that is forked, what else every worker would load by itself."""
    memory = CompressedMemory(counter=COUNTER, max_total_tokens=BUDGET)

    async def use() -> None:
        for number in range(12):
            await memory.add(Msg("user", f"Order {number} goes to dock 7. " * 40, "user"))
            await memory.get_memory()

    asyncio.run(use())


def run_worker(pipe: int, *arguments: Any) -> None:
    """Live, in a process that was forked for it; tell of what ended it."""
    worker = Worker(*arguments, pipe)
    try:
        asyncio.run(worker.live())
    except BaseException as error:
        with suppress(OSError):
            text = f"the worker ended: {type(error).__name__}: {error}"
            os.write(pipe, json.dumps({"is": "fault", "what": text[:2_000]}).encode() + b"\n")
