"""Files that backends and commands write: their owner's alone, and nothing half written for good."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from context_compressor import (
    CompressedMemory,
    FileOffloadStore,
    FsspecOffloadStore,
    Msg,
    SQLAlchemyMemory,
    SQLAlchemyMemoryService,
    SQLAlchemyOffloadStore,
)
from context_compressor.backends.admin.archive import export_session
from context_compressor.cli.output import write_output
from context_compressor.offload import folders
from context_compressor.search.index import SearchIndex

Write = Callable[[Path], Awaitable[Any]]


async def _memory(folder: Path, url: str = "sqlite+aiosqlite:///{}/memory.db") -> None:
    async with SQLAlchemyMemory(url.format(folder)) as memory:
        await memory.add(Msg("user", "a", "user"))


async def _over_an_engine(folder: Path) -> None:
    engine = create_async_engine(f"sqlite+aiosqlite:///{folder}/memory.db")
    async with AsyncSession(engine) as session, session.begin():
        await SQLAlchemyMemory(session).add(Msg("user", "a", "user"))
    await engine.dispose()


async def _index(folder: Path) -> None:
    await asyncio.to_thread(SearchIndex(folder / "texts" / "index.sqlite3").update, [], lambda _: [])


async def _export(folder: Path) -> None:
    async with SQLAlchemyMemory(f"sqlite+aiosqlite:///{folder}/memory.db") as memory:
        await memory.add(Msg("user", "a", "user"))
        await export_session(memory, None, folder / "archive.jsonl.gz")


async def _service(folder: Path) -> None:
    async with SQLAlchemyMemoryService(f"sqlite+aiosqlite:///{folder}/memory.db") as service:
        await service.add_memory("ada", [Msg("user", "a", "user")])


async def _text(store: Any) -> None:
    await store.write(f"text {len(await store.refs())}")
    closing = store.close()
    if closing is not None:
        await closing


async def _output(folder: Path) -> None:
    write_output(str(folder / "out.json"), "[]")


async def _save(folder: Path) -> None:
    await CompressedMemory().save(folder / "state.json")


@pytest.mark.parametrize(
    "write",
    [
        _memory,
        lambda folder: _memory(folder, "sqlite+aiosqlite:///file:{}/memory.db?uri=true"),
        _over_an_engine,
        _service,
        _export,
        _save,
        _index,
        lambda folder: _text(FileOffloadStore(folder)),
        lambda folder: _text(SQLAlchemyOffloadStore(f"sqlite+aiosqlite:///{folder}/texts.db", "a")),
        lambda folder: _text(FsspecOffloadStore(f"file://{folder}/texts", "a")),
    ],
)
async def test_what_is_made_is_its_owners_alone(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: dict[Path, int] = {}

    def look(_: int) -> None:  # also at what is there only for a while, as a log of SQLite's is
        modes.update({path: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")})

    monkeypatch.setattr(os, "fsync", look)
    before = os.umask(0)
    try:
        await write(tmp_path)
    finally:
        os.umask(before)
    look(0)
    assert modes
    assert {path: mode for path, mode in modes.items() if mode & 0o077} == {}


async def test_a_database_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    file = tmp_path / "memory.db"
    file.touch(0o660)
    file.chmod(0o660)
    await _memory(tmp_path)
    assert stat.S_IMODE(file.stat().st_mode) == 0o660


@pytest.mark.parametrize(
    "write",
    [_save, _export, _output, lambda folder: _text(FsspecOffloadStore(f"file://{folder}", "a"))],
)
async def test_what_a_kill_left_half_written_is_swept(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    half: list[Path] = []
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", lambda _: half.extend(tmp_path.rglob("*.tmp")))
        await write(tmp_path)
    assert half
    assert not any(path.exists() for path in half)
    old, young = half[0], half[0].with_name(half[0].name.replace("writing-", "writing-young-"))
    for path in (old, young):
        path.write_text("half")
    os.utime(old, (0, 0))
    folders._sweep.cache_clear()  # an hour later
    await write(tmp_path)
    assert (old.exists(), young.exists()) == (False, True)
