"""Links in a store's directory: never followed, whatever was planted, and nothing outside is touched."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from context_compressor import CompressedMemory, from_openai
from context_compressor.errors import ContextCompressorError, OffloadError
from context_compressor.offload.directory import collect_garbage
from context_compressor.offload.files import FileOffloadStore
from tests.offload.directories import DAY, make_older, put

pytestmark = pytest.mark.skipif(os.name == "nt", reason="links there need rights")

TEXT = "0123456789abcdef.txt"


def folder_link(store: Path, victim: Path) -> None:
    (store / ".store").symlink_to(victim)


def folder_link_to_nowhere(store: Path, victim: Path) -> None:
    (store / ".store").symlink_to(victim / "not there yet")


def namespace_link(store: Path, victim: Path) -> None:
    (store / "mine").symlink_to(victim)


def removing_link(store: Path, victim: Path) -> None:
    (store / ".store").mkdir()
    (store / ".store" / "removing-0").symlink_to(victim)


def file_link(name: str) -> Callable[[Path, Path], None]:
    def plant(store: Path, victim: Path) -> None:
        (store / ".store").mkdir()
        (store / ".store" / name).symlink_to(victim / "file")

    return plant


def file_link_to_nowhere(name: str) -> Callable[[Path, Path], None]:
    def plant(store: Path, victim: Path) -> None:
        (store / ".store").mkdir()
        (store / ".store" / name).symlink_to(victim / "not there yet")

    return plant


def hard_link(name: str) -> Callable[[Path, Path], None]:
    def plant(store: Path, victim: Path) -> None:
        (store / ".store").mkdir()
        (store / ".store" / name).hardlink_to(victim / "file")

    return plant


NAMES = ("lock", "usage", "collected", "open-1-planted", "in-use-mine~open-1-planted-0")
PLANTED: dict[str, Callable[[Path, Path], None]] = {
    "folder": folder_link,
    "folder to nowhere": folder_link_to_nowhere,
    "namespace": namespace_link,
    "being removed": removing_link,
    **{name: file_link(name) for name in NAMES},
    **{f"{name} to nowhere": file_link_to_nowhere(name) for name in NAMES},
    **{f"{name} by another name": hard_link(name) for name in NAMES},
}


def contents(directory: Path) -> dict[str, tuple[int, bytes]]:
    """Return what is in a directory, with times and texts."""
    return {
        str(path.relative_to(directory)): (
            path.lstat().st_mtime_ns,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in (directory, *directory.rglob("*"))
    }


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A directory of somebody else's, with files named as ours are."""
    victim = tmp_path / "victim"
    for folder in (victim, victim / "removing-1", victim / "namespace"):
        folder.mkdir(0o700)
        (folder / TEXT).write_text("somebody else's")
        (folder / "search.sqlite3").write_text("somebody else's, too")
    (victim / "file").write_text("a key")
    for path in (*victim.rglob("*"), victim):
        make_older(path, 99 * DAY)
    return victim


@pytest.mark.parametrize("planted", PLANTED.values(), ids=list(PLANTED))
@pytest.mark.parametrize("limits", [{}, {"max_bytes": 50}, {"max_age_seconds": 60}], ids=str)
async def test_nothing_outside_the_store_is_touched(
    tmp_path: Path, victim: Path, planted: Callable[[Path, Path], None], limits: dict[str, int]
) -> None:
    store = tmp_path / "store"
    await put(tmp_path / "made", "old", age_seconds=99 * DAY)  # a store's own namespace, which may go
    store.mkdir()
    (tmp_path / "made" / "old").rename(store / "old")
    planted(store, victim)
    before = contents(victim)
    for namespace in ("mine", "other"):
        with suppress(OffloadError):
            one = FileOffloadStore(store, namespace, **limits)
            ref = await one.write("a text")
            await one.read(ref)
            await one.delete(ref)
            await one.refs()
            one.open()
            await one.write("a longer text than there is room for, by far: " + 50 * "x")
        one.close()
    for options in ({}, {"max_bytes": 0, "max_age_seconds": 0.0}, {"max_bytes": 0, "dry_run": True}):
        with suppress(OffloadError):
            collect_garbage(store, **options)  # type: ignore[arg-type]
    assert contents(victim) == before


async def test_a_folder_that_is_a_link_is_named(tmp_path: Path, victim: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / ".store").symlink_to(victim)
    with pytest.raises(OffloadError, match="is a link, which is not followed"):
        await FileOffloadStore(tmp_path / "store", "a", max_bytes=1_000).write("text")
    with pytest.raises(OffloadError, match=r"store/.store\): the directory is a link"):
        collect_garbage(tmp_path / "store")


async def test_a_memory_puts_no_search_index_behind_a_link(tmp_path: Path, victim: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "mine").symlink_to(victim)
    before = contents(victim)
    memory = CompressedMemory(store=FileOffloadStore(tmp_path / "store", "mine"))
    await memory.add(from_openai([{"role": "user", "content": "The zebra is called Zoe."}]))
    [hit] = await memory.search_history("zebra")
    assert "Zoe" in hit.text
    with suppress(ContextCompressorError):
        await memory.clear()
    await memory.aclose()
    assert contents(victim) == before
