"""Directories of stores: texts of a size, ages, and what lies on the disk."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

from context_compressor.offload.files import FileOffloadStore

ROOT = Path(__file__).parents[2]
DAY = 86_400.0


def text_of(tag: object, size: int = 1_000) -> str:
    """Return a text of so many bytes that no other tag gives."""
    return f"{tag}:".ljust(size, "x")


async def put(path: Path, namespace: str, *, size: int = 1_000, age_seconds: float = 0.0) -> str:
    """Store a text in a namespace that nobody has open afterwards; return its ref."""
    store = FileOffloadStore(path, namespace)
    ref = await store.write(text_of(namespace, size))
    store.close()
    make_older(path / namespace, age_seconds)
    return ref


def make_older(directory: Path, seconds: float) -> None:
    when = time.time() - seconds
    os.utime(directory, (when, when))


def names_in(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


def namespaces_in(path: Path) -> list[str]:
    return [name for name in names_in(path) if not name.startswith(".")]


def bytes_in(path: Path) -> int:
    """Return the sizes of all texts and indexes."""
    return sum(
        file.lstat().st_size
        for namespace in namespaces_in(path)
        for file in (path / namespace).rglob("*")
        if file.is_file()
    )


def run_python(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a process that has a store's directory to itself until its stdin is closed."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


HOLD = """
    import asyncio, sys
    from context_compressor.offload.files import FileOffloadStore
    store = FileOffloadStore(sys.argv[1], sys.argv[2])
    asyncio.run(store.write("held by a process"))
    print("open", flush=True)
    sys.stdin.read()
"""


def hold_elsewhere(path: Path, namespace: str) -> subprocess.Popen[str]:
    """Return a process that has a namespace open."""
    process = run_python(HOLD, path, namespace)
    assert process.stdout.readline() == "open\n"
    return process
