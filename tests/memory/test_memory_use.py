"""What the wrapper keeps in memory of a long session whose history and texts lie on the disk."""

from __future__ import annotations

import asyncio
import gc
import json
import tracemalloc
from collections.abc import Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from context_compressor import CompressedMemory, CompressionConfig, FileOffloadStore, from_openai
from tests.memory.on_disk import FileMemory
from tests.memory.scripted import assistant, call, result, text

BYTES_PER_MESSAGE = 4_000
"""Measured: some 2,900 here, and 3,800 of a short session, where every third message leaves a stub with an
eighth of its text, and segments say a fifth of the rest. A message says some 9,000."""

Feed = Callable[[CompressedMemory, list[dict[str, Any]]], Awaitable[None]]


def turn(number: int) -> list[dict[str, Any]]:
    return [
        {**call(f"c{number}"), "content": f"Step {number}: {text(f'thought {number}', 20)}"},
        result(f"c{number}", text(f"found {number}", 700)),
        assistant(f"So {number} it is. {text(f'said {number}', 20)}"),
    ]


async def added(memory: CompressedMemory, said: list[dict[str, Any]]) -> None:
    await memory.add(from_openai(said))


class Loop:
    """A loop that has its list from a database: no string in it is the same object as the last time.

    What it reads is made before memory is measured, and read faster than it could be made anew.
    """

    def __init__(self, turns: int) -> None:
        self.rows = [json.dumps(turn(number)) for number in range(turns)]
        self.length = 0

    async def __call__(self, memory: CompressedMemory, said: list[dict[str, Any]]) -> None:
        self.length += 1
        await memory.sync([message for row in self.rows[: self.length] for message in json.loads(row)])


async def grown(memory: CompressedMemory, feed: Feed, start: int, stop: int, every: int) -> None:
    for number in range(start, stop):
        await feed(memory, turn(number))
        if number % every == 0:
            await memory.get_memory()
    await memory.get_memory()


async def measured(folder: Path, feed: Feed, turns: int) -> int:
    """Return how many bytes this process holds more at the end than after the first quarter."""
    base = FileMemory(folder / "history")
    store = FileOffloadStore(folder / "texts")
    memory = CompressedMemory(base, CompressionConfig(max_total_tokens=8_000), store)
    tracemalloc.start()
    await grown(memory, feed, 0, turns // 4, 2)  # by then the view is as large as it gets
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    await grown(memory, feed, turns // 4, turns, 2)
    gc.collect()
    after = tracemalloc.get_traced_memory()[0]
    return after - before


def measure(folder: Path, feed: Feed, turns: int) -> int:
    return asyncio.run(measured(folder, feed, turns))


@pytest.mark.variants(0)
@pytest.mark.parametrize(("feed", "turns"), [(added, 60), (Loop(60), 60)], ids=["add", "sync"])
def test_it_grows_by_an_index_entry_per_message(tmp_path: Path, feed: Feed, turns: int) -> None:
    # In a process where nothing else goes on, such as a library that a thread of another test imports.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        grew = process.submit(measure, tmp_path, feed, turns).result()
    messages = 3 * (turns - turns // 4)
    said = sum(len(message["content"]) for number in range(turns // 4, turns) for message in turn(number))
    assert said / messages > 2 * BYTES_PER_MESSAGE, "the texts are too short to tell"
    assert grew / messages < BYTES_PER_MESSAGE


async def test_nothing_that_left_the_view_is_held(tmp_path: Path) -> None:
    """The objects themselves: no string of this process holds the word of a result that left."""
    base = FileMemory(tmp_path / "history")
    memory = CompressedMemory(
        base, CompressionConfig(max_total_tokens=8_000), FileOffloadStore(tmp_path / "texts")
    )
    await grown(memory, added, 0, 40, 1)
    gc.collect()
    held = [
        value
        for holder in gc.get_objects()
        for value in gc.get_referents(holder)
        if type(value) is str and len(value) > 3_000 and value.startswith("found ")
    ]
    shown = " ".join(str(msg.content) for msg in await memory.get_memory())
    for value in held:
        number = value.split(":")[0]
        assert f"{number}:" in shown, f"{number} left the view, and its text is held"
