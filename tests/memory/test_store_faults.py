"""A memory on a real file store whose disk fails: no view names what cannot be read."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from context_compressor import CompressedMemory, CompressionEvent, FileOffloadStore, OffloadTools
from context_compressor.offload import files
from context_compressor.offload.directory import Tenant
from tests.memory.scripted import REF, config, filled, good_view, new_memory, nothing_lost, turns, wire_text

SAID = turns(10)


def failing(number: int, only: Callable[[str], bool] = lambda path: True) -> Callable[..., Any]:
    """Return an `os.open` that fails for what is written."""
    real = os.open

    def open_(path: Any, flags: int, *rest: Any, **kwargs: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR) and only(str(path)):
            raise OSError(number, os.strerror(number), str(path))
        return real(path, flags, *rest, **kwargs)

    return open_


async def test_a_disk_that_is_full_for_long_is_told_of_in_one_line_an_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    memory = new_memory(store=FileOffloadStore(tmp_path))
    monkeypatch.setattr(os, "open", failing(errno.ENOSPC))
    for number in range(12):
        await filled(memory, turns(3, tag=f"t{number}-"))
        caplog.clear()
        await good_view(memory)
    assert len(memory._tracker.state.ledger.pending) > 5
    assert 0 < sum("still not stored" in line for line in caplog.messages) <= memory.stats().events
    assert len(caplog.messages) < 8


async def every_ref_reads(memory: CompressedMemory) -> None:
    refs = REF.findall(wire_text(await good_view(memory)))
    assert refs
    for ref in refs:
        assert await memory.read_ref(ref)
        assert "cannot be read" not in await OffloadTools(memory).call("read_offloaded", {"ref": ref})


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.EIO])
async def test_a_disk_that_takes_nothing(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[CompressionEvent] = []
    memory = new_memory(store=FileOffloadStore(tmp_path), on_event=events.append)
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", failing(number))
        await filled(memory, SAID)
        await every_ref_reads(memory)
        await nothing_lost(memory, SAID)
    failures = [event.error for event in events if event.kind == "failure"]
    assert failures
    assert all(error and "Error" in error for error in failures)
    more = turns(4, tag="later")
    await filled(memory, more)  # the disk takes texts again: what was pending is written at the next event
    await nothing_lost(memory, SAID + more)
    assert set(await memory.reachable_refs()) <= set(await memory.store.refs())


@pytest.mark.parametrize("number", [errno.EACCES, errno.ESTALE, errno.EIO])
async def test_a_directory_into_which_nobody_may_look(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As a run as root leaves it, or a network disk that was exported anew."""
    real = os.stat

    def stat(path: Any, *rest: Any, **kwargs: Any) -> os.stat_result:
        if str(tmp_path) in str(path):
            raise OSError(number, os.strerror(number), str(path))
        return real(path, *rest, **kwargs)

    monkeypatch.setattr(os, "stat", stat)
    memory = new_memory(store=FileOffloadStore(tmp_path))
    added = await filled(memory, SAID)
    await every_ref_reads(memory)
    assert await memory.delete([added[0].id]) == 1
    assert "may still hold deleted words" in caplog.text
    await nothing_lost(memory, SAID[1:])
    assert await memory.search_history("ask-t3")
    await memory.clear()
    assert await memory.get_memory() == []


async def test_a_disk_that_fails_from_the_third_write_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes = 0

    def later(path: str) -> bool:
        nonlocal writes
        writes += 1
        return writes > 3

    memory = new_memory(config(mode="compact", max_tool_message_tokens=40), store=FileOffloadStore(tmp_path))
    monkeypatch.setattr(os, "open", failing(errno.ENOSPC, later))
    await filled(memory, SAID)
    await every_ref_reads(memory)
    await nothing_lost(memory, SAID)


async def test_a_directory_that_vanished(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    memory = new_memory(store=FileOffloadStore(folder))
    await filled(memory, SAID)
    await good_view(memory)
    shutil.rmtree(folder)
    await every_ref_reads(memory)  # from the history
    await filled(memory, turns(4, tag="later"))
    await every_ref_reads(memory)
    await nothing_lost(memory, SAID + turns(4, tag="later"))


async def test_files_that_were_damaged(tmp_path: Path) -> None:
    memory = new_memory(store=FileOffloadStore(tmp_path))
    await filled(memory, SAID)
    await good_view(memory)
    for file in list(tmp_path.rglob("*.txt")):  # noqa: ASYNC240  # a handful of small files
        file.write_bytes(file.read_bytes()[:50])
    await every_ref_reads(memory)
    await nothing_lost(memory, SAID)


async def test_a_directory_in_whose_place_a_file_stands(tmp_path: Path) -> None:
    memory = new_memory(store=FileOffloadStore(tmp_path / "store"))
    (tmp_path / "store").write_text("in the way")
    await filled(memory, SAID)
    await every_ref_reads(memory)
    await nothing_lost(memory, SAID)


async def test_a_path_that_no_disk_takes(tmp_path: Path) -> None:
    """To look whether a search index is there is no reason to fail, either."""
    memory = new_memory(store=FileOffloadStore(tmp_path / ("x" * 300)))
    await filled(memory, SAID)
    view = await good_view(memory)
    await every_ref_reads(memory)
    assert await memory.delete([view[-1].id]) == 1
    await memory.clear()
    await memory.aclose()


class Hanging(FileOffloadStore):
    """A store on a network disk that stopped answering."""

    async def write(self, text: str) -> str:
        await asyncio.Event().wait()
        raise AssertionError

    async def read(self, ref: str) -> str:
        await asyncio.Event().wait()
        raise AssertionError


async def test_a_disk_that_hangs(tmp_path: Path) -> None:
    before = asyncio.all_tasks()
    memory = new_memory(config(store_timeout_seconds=0.05), store=Hanging(tmp_path))
    await filled(memory, SAID)
    async with asyncio.timeout(120):  # only so that a failure is one
        await every_ref_reads(memory)
        await nothing_lost(memory, SAID)
    assert asyncio.all_tasks() == before


async def test_a_disk_that_hangs_takes_no_thread_of_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_GRACE_SECONDS", 0.0)
    hanging, gate = threading.Event(), threading.Event()

    def hang(*_: object, **__: object) -> None:
        hanging.set()
        gate.wait()

    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    memory = new_memory(config(store_timeout_seconds=0.05), store=FileOffloadStore(tmp_path))
    monkeypatch.setattr(Tenant, "enter", hang)  # a thread comes here, though the call is given up before
    await filled(memory, SAID)
    try:
        await memory.get_memory()
        assert hanging.wait(60)  # a busy machine may take longer than 50 ms to get there
        async with asyncio.timeout(60):  # only so that a failure is one
            await asyncio.to_thread(str)
    finally:
        gate.set()
