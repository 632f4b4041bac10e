"""Memories on a store with a quota, or one that was tidied: the view is valid, and every ref reads back."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from context_compressor import CompressedMemory, CompressionEvent, FileOffloadStore, InMemoryOffloadStore
from context_compressor.errors import OffloadError
from context_compressor.offload.directory import collect_garbage
from tests.memory.scripted import (
    Gated,
    filled,
    good_view,
    kept,
    new_memory,
    nothing_lost,
    reached,
    turns,
    wire_text,
)
from tests.offload.directories import bytes_in, namespaces_in, put

SAID = turns(20)


async def all_texts(memory: CompressedMemory) -> dict[str, str]:
    return {ref: await memory.read_ref(ref) for ref in await memory.reachable_refs()}


class TestFullStore:
    async def test_what_does_not_fit_is_served_from_the_history_until_there_is_room(
        self, tmp_path: Path
    ) -> None:
        other = FileOffloadStore(tmp_path, "other")
        await other.write("x" * 9_900)
        events: list[CompressionEvent] = []
        memory = new_memory(store=FileOffloadStore(tmp_path, "a", max_bytes=10_000), on_event=events.append)
        await filled(memory, SAID)
        await good_view(memory)
        await nothing_lost(memory, SAID)
        refs = set(await memory.reachable_refs())
        stored = set(await memory.store.refs())
        assert refs - stored
        assert all(await all_texts(memory))
        failures = [event.error or "" for event in events if event.kind == "failure"]
        assert any("OffloadFullError" in error and "10,000 (max_bytes)" in error for error in failures)
        assert bytes_in(tmp_path) <= 10_000
        saved = json.loads(json.dumps(memory.state_dict()))
        view = wire_text(await memory.get_memory())

        other.close()  # that session is over, and makes room
        resumed = new_memory(store=FileOffloadStore(tmp_path, "a", max_bytes=200_000))
        resumed.load_state_dict(saved)
        assert wire_text(await resumed.get_memory()) == view
        more = turns(14, tag="later")
        await filled(resumed, more)
        await nothing_lost(resumed, SAID + more)
        assert set(await resumed.reachable_refs()) <= set(await resumed.store.refs())

    async def test_a_session_makes_room_for_itself_by_those_that_are_over(self, tmp_path: Path) -> None:
        for number in range(10):
            await put(tmp_path, f"over-{number}", size=2_000, age_seconds=100 - number)
        events: list[CompressionEvent] = []
        memory = new_memory(store=FileOffloadStore(tmp_path, "a", max_bytes=30_000), on_event=events.append)
        await filled(memory, SAID)
        await nothing_lost(memory, SAID)
        assert not [event for event in events if event.kind == "failure"]
        assert set(await memory.reachable_refs()) <= set(await memory.store.refs())
        left = namespaces_in(tmp_path)
        assert "over-0" not in left
        assert bytes_in(tmp_path) <= 30_000


class TestTidiedStore:
    async def test_a_session_whose_texts_were_removed_resumes_as_it_was(self, tmp_path: Path) -> None:
        store = FileOffloadStore(tmp_path, "a")
        memory = new_memory(store=store)
        await filled(memory, SAID)
        view, texts = wire_text(await memory.get_memory()), await all_texts(memory)
        saved = json.loads(json.dumps(memory.state_dict()))
        store.close()
        assert len(collect_garbage(tmp_path, max_bytes=0).removed) == 1
        assert namespaces_in(tmp_path) == []

        resumed = new_memory(store=FileOffloadStore(tmp_path, "a"))
        resumed.load_state_dict(saved)
        assert wire_text(await resumed.get_memory()) == view
        assert await all_texts(resumed) == texts
        more = turns(20, tag="later")
        await filled(resumed, more)
        await nothing_lost(resumed, SAID + more)
        # What was read is stored again, as are the texts that the new event stored.
        assert set(await resumed.reachable_refs()) <= set(await resumed.store.refs())

    async def test_a_session_that_is_open_keeps_all_it_names(self, tmp_path: Path) -> None:
        memory = new_memory(store=FileOffloadStore(tmp_path, "a"))
        await filled(memory, SAID)
        await good_view(memory)
        assert await memory.reachable_refs()
        collect_garbage(tmp_path, max_bytes=0, max_age_seconds=0)
        for ref in await memory.reachable_refs():
            assert await memory.store.read(ref)


class TestOrphans:
    async def test_what_a_crash_left_between_write_and_commit_goes(self, tmp_path: Path) -> None:
        memory = new_memory(store=FileOffloadStore(tmp_path))
        await filled(memory, SAID)
        await good_view(memory)
        texts = await all_texts(memory)
        orphan = await memory.store.write("written for an event that was never committed")
        assert await memory.remove_orphans() == [orphan]
        assert set(await memory.store.refs()) == set(texts)
        assert await memory.remove_orphans() == []
        assert await all_texts(memory) == texts

    async def test_a_memory_that_names_nothing_removes_nothing(self, tmp_path: Path) -> None:
        """It may be one whose saved state is yet to be loaded."""
        memory = new_memory(store=FileOffloadStore(tmp_path))
        await filled(memory, SAID)
        await good_view(memory)
        again = new_memory(store=FileOffloadStore(tmp_path))
        assert await again.remove_orphans() == []
        again.load_state_dict(memory.state_dict())
        assert await again.remove_orphans() == []
        assert kept(memory) == set(await memory.store.refs())

    async def test_a_store_that_names_its_texts_otherwise_loses_none(self) -> None:
        class Digits(InMemoryOffloadStore):
            async def refs(self) -> list[str]:
                return [ref.removeprefix("ctx://") for ref in await super().refs()]

            async def delete(self, ref: str) -> None:
                await super().delete(ref if ref.startswith("ctx://") else f"ctx://{ref}")

        store = Digits()
        memory = new_memory(store=store)
        await filled(memory, SAID)
        await memory.get_memory()
        before = store.texts()
        with pytest.raises(OffloadError, match="is not a ref"):
            await memory.remove_orphans()
        assert store.texts() == before

    async def test_a_store_that_cannot_be_listed_is_an_offload_error(self) -> None:
        class Gone(InMemoryOffloadStore):
            async def refs(self) -> list[str]:
                raise ConnectionError("gone")

        memory = new_memory(store=Gone())
        await filled(memory, SAID)
        await memory.get_memory()
        with pytest.raises(OffloadError, match="failed to name its refs: ConnectionError"):
            await memory.remove_orphans()

    async def test_what_an_event_under_way_stores_is_no_orphan(self, tmp_path: Path) -> None:
        summarizer = Gated()
        memory = new_memory(store=FileOffloadStore(tmp_path), summarizer=summarizer)
        await memory.store.write("an orphan")
        await filled(memory, SAID)
        asking = asyncio.create_task(memory.get_memory())
        await reached(summarizer.asked, asking)
        removing = asyncio.create_task(memory.remove_orphans())
        for _ in range(20):
            await asyncio.sleep(0)
        summarizer.gate.set()
        await asyncio.gather(asking, removing)
        await nothing_lost(memory, SAID)
        await memory.remove_orphans()
        assert kept(memory) == set(await memory.store.refs())
        for ref in await memory.reachable_refs():
            assert await memory.store.read(ref)
