"""`replay --watch`: what the view of a session would be, live, while a client writes its transcript."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from context_compressor.cli.options import CommandError
from context_compressor.cli.output import counted, make_console, say
from context_compressor.core.config import CompressionConfig
from context_compressor.events import CompressionEvent
from context_compressor.lab.readers import Format, UnreadableError, read_path
from context_compressor.memory.compressed import CompressedMemory

LOOK_SECONDS = 0.5
"""How often the file is looked at."""


def _pause() -> None:
    time.sleep(LOOK_SECONDS)


def watch_file(
    path: str,
    config: CompressionConfig,
    format: Format | None,
    max_unpacked: int,
    pause: Callable[[], None] = _pause,
) -> None:
    """Print fill and events of a session's view, and go on as its file grows, until Ctrl-C.

    Args:
        path: the file; of several sessions in it the last one is watched.
        config: thresholds.
        format: of the file; None: found out by its content.
        max_unpacked: bytes that a gzipped file may unpack to.
        pause: what is done between two looks at the file.

    Raises:
        CommandError: there is no such file.
        KeyboardInterrupt: how it ends.
    """
    file, console, seen = Path(path), make_console(), None
    if not file.is_file():
        raise CommandError(f"{path}: there is no such file; --watch takes one file")

    def tell(event: CompressionEvent) -> None:
        number = "" if event.number is None else f"event {event.number}: "
        say(console, f"{number}{event}")

    memory = CompressedMemory(config=config, on_event=tell)
    with asyncio.Runner() as runner:
        done = 0
        while True:
            stat = file.stat()
            if (now := (stat.st_mtime_ns, stat.st_size)) != seen:
                seen = now
                if messages := _read(file, format, max_unpacked):
                    done = runner.run(_follow(memory, messages, done))
                    say(console, f"{counted(len(messages), 'message')}: {memory.stats()}")
            pause()


def _read(file: Path, format: Format | None, max_unpacked: int) -> list[Any]:
    """Return the messages of the last session; none where nothing can be read yet."""
    try:
        sessions = list(read_path(file, [], format, max_unpacked))
    except UnreadableError:  # half of a line, say
        return []
    return list(sessions[-1].messages) if sessions else []


async def _follow(memory: CompressedMemory, messages: Sequence[Any], done: int) -> int:
    """Ask for the view before each answer that is new, as the agent did; return how far that is."""
    if len(messages) < done:
        done = 0
    for end in range(max(done, 1), len(messages)):
        if messages[end].get("role") == "assistant":
            await memory.view(messages[:end], reset=True)
    await memory.view(messages, reset=True)
    return len(messages)
