"""Histories, summarisers, stores and base memories that the wrapper's tests share; none waits for a clock."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from context_compressor import (
    CompressedMemory,
    CompressionConfig,
    InMemoryMemory,
    InMemoryOffloadStore,
    Msg,
    Summary,
    SummaryRequest,
    TiktokenCounter,
    from_openai,
    to_openai,
)
from context_compressor.laws.chat_rules import problems
from context_compressor.memory.base import MemoryBase
from context_compressor.memory.history import Add

COUNTER = TiktokenCounter()
REF = re.compile(r"ctx://[0-9a-f]{16}")
Dict = dict[str, Any]


def text(tag: str, lines: int) -> str:
    """Return a text of some 12 tokens a line that no other tag gives."""
    return "\n".join(f"{tag}:{line} module_{line % 7}.py returned {line * 37 % 101}" for line in range(lines))


def user(content: str) -> Dict:
    return {"role": "user", "content": content}


def assistant(content: str) -> Dict:
    return {"role": "assistant", "content": content}


def system(content: str) -> Dict:
    return {"role": "system", "content": content}


def call(*ids: str, name: str = "read_file", arguments: str = '{"path": "a.py"}') -> Dict:
    calls = [{"id": id, "type": "function", "function": {"name": name, "arguments": arguments}} for id in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(id: str, content: str) -> Dict:
    return {"role": "tool", "tool_call_id": id, "content": content}


def exchange(id: str, lines: int, name: str = "read_file") -> list[Dict]:
    return [call(id, name=name), result(id, text(f"result-{id}", lines))]


def turns(count: int, lines: int = 9, tag: str = "t") -> list[Dict]:
    """Return turns of a user message, a call, its result and an answer."""
    said: list[Dict] = []
    for n in range(count):
        said += [user(text(f"ask-{tag}{n}", lines)), *exchange(f"{tag}{n}", lines)]
        said.append(assistant(text(f"answer-{tag}{n}", lines)))
    return said


async def fail(*_: object) -> Any:
    """Be a call that does not get through."""
    raise ConnectionError("no route to model")


async def hang(*_: object) -> Any:
    """Be a call that is never answered."""
    await asyncio.Event().wait()


class Noting:
    """A summariser that answers in one line, numbered, and keeps what it was asked."""

    def __init__(self, *, remote: bool = True) -> None:
        self.remote = remote
        self.requests: list[SummaryRequest] = []

    async def summarize(self, request: SummaryRequest) -> Summary:
        self.requests.append(request)
        return Summary(
            text=f"- Part {len(self.requests)} of the work went on as planned.",
            input_tokens=7,
            output_tokens=3,
        )


class Gated(Noting):
    """A summariser that says when it was asked and waits to be let go."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()
        self.gate = asyncio.Event()

    async def summarize(self, request: SummaryRequest) -> Summary:
        answer = await super().summarize(request)
        self.asked.set()
        await self.gate.wait()
        return answer


class FaultyStore(InMemoryOffloadStore):
    """A store whose every call can be made to fail: `fault(operation, number)` raises, waits or does nothing.

    Numbers count from 1, for each operation on its own. A fault that returns a string answers with it.
    """

    def __init__(self, fault: Callable[[str, int], Any] = lambda operation, number: None) -> None:
        super().__init__()
        self.fault = fault
        self.calls = {"write": 0, "read": 0, "delete": 0}

    async def _meet(self, operation: str) -> Any:
        self.calls[operation] += 1
        met = self.fault(operation, self.calls[operation])
        return await met if isinstance(met, Awaitable) else met

    async def write(self, text: str) -> str:
        return await self._meet("write") or await super().write(text)

    async def read(self, ref: str) -> str:
        return await self._meet("read") or await super().read(ref)

    async def delete(self, ref: str) -> None:
        await self._meet("delete")
        await super().delete(ref)


class GatedBase(InMemoryMemory):
    """A base memory that stops at calls named in `stops` until it is let go, as a database may."""

    def __init__(self) -> None:
        super().__init__()
        self.stops: set[str] = set()
        self.reached = asyncio.Event()
        self.gate = asyncio.Event()

    async def _stop(self, name: str) -> None:
        if name in self.stops:
            self.reached.set()
            await self.gate.wait()

    async def add(self, *args: Any, **kwargs: Any) -> None:
        await self._stop("add")
        await super().add(*args, **kwargs)

    async def get_memory(self, *args: Any, **kwargs: Any) -> list[Msg]:
        await self._stop("get_memory")
        return await super().get_memory(*args, **kwargs)


class ScriptedHistory:
    """A history around another, of which calls can be made to go wrong.

    Args:
        inner: answers.
        faults: what happens at a call, by its number, all verbs counted together from 1: it may "fail" or
            "hang", each before it does anything or "late", when it has; or "somebody writes" before it, which
            an awaitable does in its own way.

    Attributes:
        calls: the verbs called so far.
        hung: set when a call hangs; only cancelling it ends it.
        is_quiet: whether calls are neither counted nor go wrong.
    """

    is_quiet = False

    def __init__(self, inner: Any, faults: Mapping[int, str | Awaitable[Any]] | None = None) -> None:
        self.inner = inner
        self.faults = faults or {}
        self.calls: list[str] = []
        self.hung = asyncio.Event()
        self.tells_marks = getattr(inner, "tells_marks", True)
        self.counts_changes = getattr(inner, "counts_changes", True)
        self.outline = partial(self._call, "outline") if hasattr(inner, "outline") else None

    async def _call(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        if self.is_quiet:
            return await getattr(self.inner, verb)(*args, **kwargs)
        self.calls.append(verb)
        fault = self.faults.get(len(self.calls), "")
        if not isinstance(fault, str):
            await fault
            fault = ""
        if fault == "somebody writes":
            await self.inner.write([Add(Msg("user", f"somebody says {len(self.calls)}", "user"))])
        answer = await getattr(self.inner, verb)(*args, **kwargs) if "late" in fault else None
        if "fail" in fault:
            raise ConnectionError("no route to the database")
        if "hang" in fault:
            self.hung.set()
            await asyncio.Event().wait()
        return await getattr(self.inner, verb)(*args, **kwargs) if answer is None else answer

    async def head(self) -> Any:
        return await self._call("head")

    async def read(self, **kwargs: Any) -> Any:
        return await self._call("read", **kwargs)

    async def write(self, changes: Any, *, at: int | None = None) -> Any:
        return await self._call("write", changes, at=at)

    async def ledger(self, *, after: int = 0) -> Any:
        return await self._call("ledger", after=after)


class ForeignMemory(MemoryBase):
    """A memory of somebody else's making: a list of pairs, no revision, nothing else of ours."""

    def __init__(self) -> None:
        self.pairs: list[tuple[Msg, list[str]]] = []

    async def add(self, memories: Any, marks: Any = None, **kwargs: Any) -> None:
        marks = [marks] if isinstance(marks, str) else list(marks or [])
        known = {msg.id for msg, _ in self.pairs}
        for msg in [memories] if isinstance(memories, Msg) else memories or []:
            if msg.id not in known:
                self.pairs.append((msg.copy(), list(marks)))

    async def delete(self, msg_ids: list[str], **kwargs: Any) -> int:
        return self._keep(lambda msg, marks: msg.id not in msg_ids)

    async def delete_by_mark(self, mark: Any, *args: Any, **kwargs: Any) -> int:
        names = {mark} if isinstance(mark, str) else set(mark)
        return self._keep(lambda msg, marks: not names & set(marks))

    def _keep(self, keeps: Callable[[Msg, list[str]], bool]) -> int:
        before = len(self.pairs)
        self.pairs = [pair for pair in self.pairs if keeps(*pair)]
        return before - len(self.pairs)

    async def size(self) -> int:
        return len(self.pairs)

    async def clear(self) -> None:
        self.pairs = []
        self._compressed_summary = ""

    async def get_memory(
        self, mark: Any = None, exclude_mark: Any = None, prepend_summary: bool = True, **kwargs: Any
    ) -> list[Msg]:
        found = [
            msg.copy()
            for msg, marks in self.pairs
            if (mark is None or mark in marks) and exclude_mark not in marks
        ]
        if prepend_summary and self._compressed_summary:
            found.insert(0, Msg("user", self._compressed_summary, "user"))
        return found

    async def update_messages_mark(self, new_mark: Any, old_mark: Any = None, msg_ids: Any = None) -> int:
        changed = 0
        for msg, marks in self.pairs:
            if (msg_ids is None or msg.id in msg_ids) and (old_mark is None or old_mark in marks):
                if old_mark in marks:
                    marks.remove(old_mark)
                if new_mark is not None and new_mark not in marks:
                    marks.append(new_mark)
                changed += 1
        return changed

    async def update_compressed_summary(self, summary: str) -> None:
        self._compressed_summary = summary

    def state_dict(self) -> Dict:
        return {"content": [[msg.to_dict(), marks] for msg, marks in self.pairs]}

    def load_state_dict(self, state: Dict, strict: bool = True) -> None:
        self.pairs = [(Msg.from_dict(data), list(marks)) for data, marks in state["content"]]


async def reached(event: asyncio.Event, *tasks: asyncio.Task[Any]) -> None:
    """Wait until an event is set; fail, rather than wait for ever, when the tasks end without it."""
    waiting = asyncio.create_task(event.wait())
    await asyncio.wait({waiting, *tasks}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    for task in tasks:
        if task.done() and not task.cancelled():
            task.result()
    assert event.is_set(), "ended without getting there"


def config(budget: int = 2_000, **values: Any) -> CompressionConfig:
    return CompressionConfig(**{"max_total_tokens": budget, "keep_recent_count": 4, **values})


def new_memory(settings: CompressionConfig | None = None, **arguments: Any) -> CompressedMemory:
    """Return a memory with a small budget, whose agent has the read-back tools."""
    memory = CompressedMemory(config=settings or config(), counter=COUNTER, **arguments)
    memory.offer_tools()
    return memory


async def filled(memory: CompressedMemory, said: list[Dict]) -> list[Msg]:
    """Add chat dicts and return the messages."""
    added = from_openai(said)
    await memory.add(added)
    return added


async def fold(memory: CompressedMemory) -> tuple[list[Dict], list[Any], Dict]:
    """Return the view, the names of all edits, and the edits of which the view is."""
    view = [msg.to_dict() for msg in await memory.get_memory()]
    ledger = memory._tracker.state.ledger
    edits = ledger.edits()
    shown = {
        str(name): edit for name, edit in edits.items() if ledger.top_segment_of(name[0]) in (None, edit)
    }
    return view, list(edits), shown


async def good_view(memory: CompressedMemory) -> list[Msg]:
    """Return the view after checking that it is valid, within the budget and counted rightly."""
    view = await memory.get_memory()
    assert problems(to_openai(view)) == []
    tokens = COUNTER.count_messages(view)
    assert tokens == memory.stats().view_tokens
    assert tokens <= memory.config.budget
    return view


def kind_of(msg: Msg) -> str | None:
    """Return what a view's message stands for: stub, segment, placeholder, or None for itself."""
    kind = ((msg.metadata or {}).get("compression") or {}).get("kind")
    return kind if isinstance(kind, str) else None


def covered_ids(view: list[Msg]) -> list[str]:
    """Return the ids covered by the segments of a view."""
    return [
        id for msg in view if kind_of(msg) == "notes" for id in msg.metadata["compression"]["covered_ids"]
    ]


def wire_text(view: list[Msg]) -> str:
    """Return all that a view says as one string."""
    return "\n".join(str(message) for message in to_openai(view))


async def everything(memory: CompressedMemory, view: list[Msg]) -> str:
    """Return all texts that a view says or leads to, refs followed; each ref in it has to read back."""
    texts = [block_text for msg in view for block_text in strings(msg.content)]
    todo = [ref for each in texts for ref in REF.findall(each)]
    seen: set[str] = set()
    while todo:
        ref = todo.pop()
        if ref not in seen:
            seen.add(ref)
            stored = await memory.read_ref(ref)
            texts.append(stored)
            todo += REF.findall(stored)
    return "\n\0".join(texts)


def strings(value: Any) -> list[str]:
    """Return every string in JSON-like data, keys left out."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [found for item in value for found in strings(item)] if isinstance(value, list) else []


async def nothing_lost(memory: CompressedMemory, said: list[Dict]) -> list[Msg]:
    """Check laws 1 to 3 and return the view: valid, within budget, history whole, all of it reachable."""
    view = await good_view(memory)
    assert to_openai(await memory.get_history()) == said
    reachable = await everything(memory, view)
    for message in said:
        if message.get("content"):
            assert message["content"] in reachable
    return view


def kept(memory: CompressedMemory) -> set[str]:
    """Return the refs of all that is to stay in the store: what can be read, and words of merged segments."""
    return memory._tracker.state.ledger.kept_refs()
