"""Opening a long history: what the view shows is read, and of what left it an outline, which nobody sees."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from context_compressor import CompressedMemory, FileOffloadStore, Msg, from_openai
from context_compressor.backends.redis.history import RedisHistory
from context_compressor.backends.sql.history import SQLAlchemyHistory
from context_compressor.core.edits import SegmentEdit
from context_compressor.memory.base import MemoryBase
from context_compressor.memory.handover import Departure
from context_compressor.memory.history import Add, Delete, Record
from tests.memory.on_disk import FileHistory
from tests.memory.scripted import (
    assistant,
    call,
    covered_ids,
    exchange,
    good_view,
    new_memory,
    result,
    system,
    text,
    turns,
    user,
)

Dict = dict[str, Any]

ODD = [
    system("be brief"),
    call("again"),
    result("again", text("first", 4)),
    call("again"),
    result("again", text("second", 4)),
    call("never"),
    user("go on without it"),
    {"role": "assistant", "content": None, "function_call": {"name": "old", "arguments": "{}"}},
    {"role": "function", "name": "old", "content": text("legacy", 4)},
    assistant(""),
    call("", "two"),
    result("two", text("by its id", 3)),
    result("", text("by its place", 3)),
]
"""What pairing has to mend, long before the end of a history."""
SECRET = "the secret of the third question"


class Counted:
    """A history that notes what was read of it. Without an outline, it is one of which all is read."""

    def __init__(self, inner: Any, *, is_light: bool = True) -> None:
        self.inner = inner
        self.write, self.ledger = inner.write, inner.ledger
        self.heads = self.rows = self.bytes = self.outlined = 0
        if is_light:
            self.outline = self._outline

    async def head(self) -> Any:
        self.heads += 1
        return await self.inner.head()

    async def read(self, **filters: Any) -> Any:
        found = await self.inner.read(**filters)
        self.rows += len(found)
        self.bytes += sum(len(json.dumps(one.msg and one.msg.to_dict())) for one in found)
        return found

    async def _outline(self) -> Any:
        found = await self.inner.outline()
        self.outlined += len(found)
        return found


def long_history(count: int) -> list[Msg]:
    large = [user(SECRET), *exchange("parts", 60), *exchange("large", 60)]
    messages = from_openai([*ODD, *turns(3), *large, *turns(count, lines=3, tag="u")])
    for msg in messages:
        for block in msg.content if isinstance(msg.content, list) else ():
            if block.get("type") == "tool_result" and block["id"] == "parts":
                block["output"] = [{"type": "text", "text": block["output"]}]
    for number, msg in enumerate(messages):
        msg.id, msg.timestamp = f"m{number:05}", "2025-01-01 00:00:00.000"
    return messages


async def write(memory: CompressedMemory, messages: list[Msg], step: int) -> None:
    """Add messages, and look at the view now and then, as an agent does."""
    for start in range(0, len(messages), step):
        await memory.add(messages[start : start + step])
        await memory.get_memory()


async def shown(memory: CompressedMemory) -> list[Dict]:
    return [msg.to_dict() for msg in await good_view(memory)]


@pytest.mark.variants(2)
@pytest.mark.parametrize("kind", ["sqlite", "redis", "postgres", "mariadb"])
async def test_opening_reads_the_view(
    kind: str, long: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    history, close = opened(kind, tmp_path, request)
    messages, view = await grown(history, long, tmp_path)
    assert len(messages) > 2_000
    for is_light in (True, False):
        counted = Counted(history, is_light=is_light)
        number = (await history.head()).number
        other = new_memory(base=counted, store=FileOffloadStore(tmp_path / "texts"))
        assert await shown(other) == view
        assert counted.heads == 2  # before all is read, and after it
        assert (await history.head()).number == number  # nothing had to be decided or mended
        if is_light:
            assert counted.outlined == len(messages)
            assert counted.rows <= len(view)
            assert counted.bytes <= 2 * len(json.dumps(view))
        else:
            assert counted.rows >= len(messages)
    await close()


async def grown(history: Any, written: Path, folder: Path) -> tuple[list[Msg], list[Dict]]:
    """Write a history as the process did that wrote it; return its messages, and the view that it showed."""
    shutil.copytree(written / "texts", folder / "texts")
    source = FileHistory(written / "history")
    entries = await source.read()
    messages = [entry.msg for entry in entries if entry.msg is not None]
    counts = [entry.tokens for entry in entries]
    await history.write([Add(msg, tokens=one) for msg, one in zip(messages, counts, strict=True)])
    for one in await source.ledger():
        await history.write([Record(one.edits, one.learnt or {})])
    return messages, json.loads((written / "view.json").read_text())


def opened(
    kind: str, folder: Path, request: pytest.FixtureRequest
) -> tuple[Any, Callable[[], Awaitable[None]]]:
    server: Callable[[str], int] = request.getfixturevalue("server")
    if kind == "redis":
        from redis.asyncio import Redis

        client = Redis(port=server("redis"))
        return RedisHistory(client, session_id=uuid4().hex), client.aclose
    urls = {
        "sqlite": lambda: f"sqlite+aiosqlite:///{folder}/memory.db",
        "postgres": lambda: f"postgresql+asyncpg://postgres@127.0.0.1:{server('postgres')}/postgres",
        "mariadb": lambda: f"mysql+asyncmy://test@127.0.0.1:{server('mariadb')}/test",
    }
    history = SQLAlchemyHistory(urls[kind](), session_id=uuid4().hex)
    return history, history.close


def written_to(folder: Path, count: int, step: int) -> Path:
    """Write a history in one process, with its texts and the view that it shows in the end."""

    async def run() -> None:
        history = FileHistory(folder / "history")
        memory = new_memory(base=history, store=FileOffloadStore(folder / "texts"))
        await write(memory, long_history(count), step)
        (folder / "view.json").write_text(json.dumps(await shown(memory)))
        await memory.aclose()

    asyncio.run(run())
    return folder


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written_to(tmp_path_factory.mktemp("written"), 30, 8)


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written_to(tmp_path_factory.mktemp("long"), 500, 60)


class Receiver:
    def __init__(self) -> None:
        self.taken: list[Any] = []

    async def receive(self, departure: Departure) -> None:
        self.taken.append([departure.ref, *(msg.to_dict() for msg in departure.messages)])


class Side:
    """A process that opens a copy of the history, lightly or by reading all."""

    def __init__(self, written: Path, folder: Path, *, is_light: bool) -> None:
        shutil.copytree(written, folder)
        self.folder, self.is_light = folder, is_light
        self.base = FileHistory(folder / "history")
        self.open()

    def open(self, **arguments: Any) -> None:
        self.counted = Counted(self.base, is_light=self.is_light)
        store = FileOffloadStore(self.folder / "texts")
        self.memory = new_memory(base=self.counted, store=store, **arguments)

    async def covered(self) -> list[str]:
        return covered_ids(await self.memory.get_memory())

    async def texts(self) -> list[str]:
        return [await self.memory.read_ref(ref) for ref in await self.memory.reachable_refs()]

    def said(self, id: str, content: Any, role: Any = "user") -> Msg:
        return Msg(role, content, role, timestamp="2025-01-01 00:00:00.000", id=id)


async def delete(side: Side) -> Any:
    return await side.memory.delete([(await side.covered())[5]])


async def delete_segment(side: Side) -> Any:
    [segment] = [msg for msg in await side.memory.get_memory() if covered_ids([msg])][:1]
    return await side.memory.delete([segment.id])


async def pin(side: Side) -> Any:
    return await side.memory.update_messages_mark("pinned", msg_ids=(await side.covered())[20:22])


async def delete_elsewhere(side: Side) -> Any:
    return await MemoryBase(side.base).delete([(await side.covered())[7]])


async def pin_elsewhere(side: Side) -> Any:
    return await MemoryBase(side.base).update_messages_mark("pinned", msg_ids=[(await side.covered())[-1]])


async def pin_beside_a_stub(side: Side) -> Any:
    """What stood under the same segment stands again, a stub in a list of parts with it."""
    [asked] = [msg.id for msg in await side.memory.get_history() if msg.content == SECRET]
    return await MemoryBase(side.base).update_messages_mark("pinned", msg_ids=[asked])


async def exchange_elsewhere(side: Side) -> Any:
    covered = await side.covered()
    there = await side.base.read(ids=covered)
    id = [one.key for one in there if one.msg and one.msg.role == "user"][-3]
    await side.base.write([Delete([id]), Add(side.said(id, "something else"))])


async def add_uncounted_elsewhere(side: Side) -> Any:
    await MemoryBase(side.base).add(side.said("elsewhere", "from elsewhere"), marks="volatile")


async def lose_texts(side: Side) -> Any:
    for ref in await side.memory.store.refs():
        await FileOffloadStore(side.folder / "texts").delete(ref)
    return await side.texts()


async def search(side: Side) -> Any:
    found = [await side.memory.search_history(words) for words in (SECRET, "legacy module_3")]
    assert any(SECRET in hit.text for hit in found[0])
    return found


async def go_on(side: Side) -> Any:
    late: list[Dict] = [{"type": "tool_result", "id": "never", "name": "read_file", "output": "late"}]
    more = from_openai(turns(25, tag="more"))
    for number, msg in enumerate(more):
        msg.id, msg.timestamp = f"more{number}", "2025-01-01 00:00:00.000"
    more[3:3] = [side.said("late", late, "system")]
    await write(side.memory, more, 8)
    event = await side.memory.compress_now()
    return event and replace(event, seconds=0.0)


async def hand_over(side: Side) -> Any:
    receiver = Receiver()
    side.open(hand_over=receiver)
    await side.memory.get_memory()
    await side.memory.aclose()
    assert receiver.taken
    return receiver.taken


async def look_by_mark(side: Side) -> Any:
    return [await side.memory.get_memory(exclude_mark="volatile"), await side.memory.get_history()]


STEPS = [
    search,
    look_by_mark,
    delete,
    pin,
    add_uncounted_elsewhere,
    delete_elsewhere,
    pin_elsewhere,
    pin_beside_a_stub,
    exchange_elsewhere,
    go_on,
    hand_over,
    lose_texts,
    delete_segment,
]


async def test_nobody_sees_that_an_outline_was_read(written: Path, tmp_path: Path) -> None:
    """What a process does that read the view alone is what one does that read everything."""
    light, whole = (Side(written, tmp_path / str(is_light), is_light=is_light) for is_light in (True, False))
    assert await shown(light.memory) == await shown(whole.memory)
    assert 0 < light.counted.rows < whole.counted.rows / 3
    for step in STEPS:
        done = [await step(side) for side in (light, whole)]
        assert done[0] == done[1]
        for is_reopened in (False, True):
            if is_reopened:
                light.open()
                whole.open()
            assert await shown(light.memory) == await shown(whole.memory)
            assert await light.memory.reachable_refs() == await whole.memory.reachable_refs()
        assert await light.base.ledger() == await whole.base.ledger()
        assert [one.msg for one in await light.base.read()] == [one.msg for one in await whole.base.read()]
    assert await light.texts() == await whole.texts()
    for side in (light, whole):
        await side.memory.aclose()


async def test_a_history_without_segments_is_read_whole(tmp_path: Path) -> None:
    history = FileHistory()
    await new_memory(base=history).add(long_history(0)[:5])
    counted = Counted(history)
    assert len(await good_view(new_memory(base=counted))) == 5
    assert (counted.rows >= 5, counted.outlined) == (True, 0)
    assert not any(isinstance(e, SegmentEdit) for one in await history.ledger() for e in one.edits)


async def test_what_names_a_call_elsewhere_is_read(tmp_path: Path) -> None:
    """A late result under a segment is named after its call; where that is deleted, so is its name."""
    history, store = FileHistory(), FileOffloadStore(tmp_path)
    memory = new_memory(base=history, store=store)
    use = {"type": "tool_use", "id": "late", "name": "secret_tool", "input": {}}
    await memory.add(Msg("Friday", [use], "assistant", id="call"), marks="pinned")
    await memory.add(from_openai([user("go on")]))
    await memory.get_memory()
    late: list[Dict] = [{"type": "tool_result", "id": "late", "output": "it came late"}]
    await memory.add(Msg("system", late, "system", id="late"))
    await write(memory, from_openai(turns(20)), 4)
    assert "late" in covered_ids(await memory.get_memory())
    await MemoryBase(history).delete(["call"])
    other = new_memory(base=history, store=store)
    await good_view(other)
    texts = [await other.read_ref(ref) for ref in await other.reachable_refs()]
    assert texts
    assert not any("secret_tool" in text for text in texts)
