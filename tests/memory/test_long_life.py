"""A long life: no depth of merges is too deep, and merged segments let go of their words."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from context_compressor import (
    CompressedMemory,
    CompressionConfig,
    InMemoryOffloadStore,
    OffloadStore,
    from_openai,
    to_openai,
)
from context_compressor.compression.shown import render_transcript
from context_compressor.errors import InvalidStateError, OffloadError
from context_compressor.memory.base import MemoryBase
from context_compressor.memory.history import ListHistory
from context_compressor.messages.msg import Msg
from context_compressor.offload.store import ref_of
from tests.memory.scripted import (
    Noting,
    assistant,
    config,
    covered_ids,
    filled,
    good_view,
    kept,
    new_memory,
    turns,
    user,
)

LEVELS = 2_000


class LastingStore:
    """One of which the memory does not know that it ends with the process."""

    def __init__(self) -> None:
        inner = InMemoryOffloadStore()
        self.write, self.read, self.delete, self.refs = inner.write, inner.read, inner.delete, inner.refs
        self.inner = inner


def chain_of(levels: int) -> dict[str, Any]:
    """Return a state of form 1 in which so many segments merged one after the other, a message in each."""
    content: list[Any] = []
    entries: list[dict[str, Any]] = []
    for n in range(levels):
        msg = Msg("user", f"message {n}", "user", timestamp="", id=f"m{n}")
        content.append([msg.to_dict(), []])
        earlier = [Msg("memory", entries[-1]["text"], "user", timestamp="")] if entries else []
        ref = ref_of(render_transcript([*earlier, msg], segments=len(earlier)).text)
        entries.append(
            {
                "type": "segment",
                "id": f"s{n}",
                "items": [f"m{n}"],
                "children": [f"s{n - 1}"] if n else [],
                "ref": ref,
                "media_refs": [],
                "text": f"[summary of {n + 1} messages, {ref}]",
                "summarized": True,
            }
        )
    content.append([Msg("user", "the last", "user", timestamp="", id="last").to_dict(), []])
    ledger = {
        "version": 1,
        "frontier": levels + 1,
        "pending": [],
        "unwanted": [],
        "withdrawn_ids": [],
        "entries": entries,
    }
    saved = {"version": 1, "ledger": ledger, "encoding": "o200k_base", "tokens": {}, "fresh": []}
    return {"_compressed_summary": "", "content": content, "compression": saved}


async def test_a_state_of_any_depth_resumes_goes_on_and_is_deleted_from() -> None:
    memory = CompressedMemory(config=CompressionConfig(max_total_tokens=4_000), store=LastingStore())
    state = chain_of(LEVELS)
    memory.load_state_dict(json.loads(json.dumps(state)))
    view = await memory.get_memory()
    assert [msg.content for msg in view] == [
        state["compression"]["ledger"]["entries"][-1]["text"],
        "the last",
    ]
    assert view[0].metadata is not None
    assert len(view[0].metadata["compression"]["covered_ids"]) == LEVELS
    again = CompressedMemory(config=memory.config, store=memory.store)
    again.load_state_dict(json.loads(json.dumps(memory.state_dict())))
    assert await again.get_memory() == view
    assert await again.delete([f"m{LEVELS - 2}"]) == 1
    below = state["compression"]["ledger"]["entries"][LEVELS - 3]["text"]
    assert [msg.content for msg in await again.get_memory()] == [below, f"message {LEVELS - 1}", "the last"]
    await filled(again, turns(30))
    await good_view(again)
    assert again.stats().events > 0
    assert await again.delete(["m0"]) == 1
    assert await again.size() == LEVELS - 1 + len(turns(30))
    await good_view(again)
    json.dumps(again.state_dict())


async def lived(store: OffloadStore | None = None) -> CompressedMemory:
    """Return a memory with merged segments, each of whose summaries has a word of its own."""
    memory = new_memory(config(2_000), store=store or LastingStore(), summarizer=Noting())
    for message in turns(150):
        await filled(memory, [message])
        await memory.get_memory()
    return memory


def merged(memory: CompressedMemory) -> list[Any]:
    ledger = memory._tracker.state.ledger
    standing = {item.segment.id for item in memory._tracker.state.items if item.segment is not None}
    return [segment for segment in ledger.segments() if segment.id not in standing]


async def test_merged_segments_keep_no_words() -> None:
    memory = await lived()
    assert len(merged(memory)) > 3
    assert all(one.words_ref and not (one.text or one.notes or one.standing) for one in merged(memory))
    assert kept(memory) == set(await memory.store.refs())
    listed = await memory.reachable_refs()
    assert not {one.words_ref for one in merged(memory)} & set(listed)
    with pytest.raises(OffloadError):
        await memory.read_ref(merged(memory)[0].words_ref)


async def test_where_the_store_ends_with_the_process_the_words_stay_in_the_state() -> None:
    memory = await lived(InMemoryOffloadStore())
    assert all(one.text and one.words_ref is None for one in merged(memory))
    again = new_memory(config(2_000), summarizer=Noting())
    again.load_state_dict(json.loads(json.dumps(memory.state_dict())))
    for ref in await memory.reachable_refs():
        assert await again.read_ref(ref) == await memory.read_ref(ref)


async def test_where_a_lasting_store_lost_all_merged_segments_read_as_their_messages() -> None:
    memory = await lived()
    again = new_memory(config(2_000), store=LastingStore(), summarizer=Noting())
    again.load_state_dict(json.loads(json.dumps(memory.state_dict())))
    texts = [await again.read_ref(ref) for ref in await memory.reachable_refs()]
    covered = covered_ids(await again.get_memory())
    said = to_openai([msg for msg in await again.get_history() if msg.id in covered])
    contents = [str(message["content"]) for message in said if message["content"]]
    assert contents
    assert all(any(content in text for text in texts) for content in contents)


async def test_segments_that_stand_again_say_what_they_said() -> None:
    memory = await lived()
    words = {one.id: json.loads(await memory.store.read(one.words_ref))["text"] for one in merged(memory)}
    parent = next(one for one in memory._tracker.state.ledger.segments() if len(one.children) > 1)
    ids = memory._tracker.state.ledger.ids_under(parent.children[-1])
    assert await memory.delete([ids[0]]) == 1
    shown = {item.segment.id: item.source.content for item in memory._tracker.state.items if item.segment}
    back = shown.keys() & words.keys()
    assert parent.children[0] in back
    assert all(shown[id] == words[id] for id in back)
    entries = {
        e.id: e for one in await memory._tracker.history.ledger() for e in one.edits if hasattr(e, "id")
    }
    assert all(entries[id].text == words[id] for id in back)


async def test_what_was_merged_and_has_lost_its_words_gives_its_messages_back() -> None:
    store = LastingStore()
    memory = await lived(store)
    for one in merged(memory):
        await store.delete(one.words_ref)
    ledger = memory._tracker.state.ledger
    parent = next(one for one in ledger.segments() if len(one.children) > 1)
    first, second = (ledger.ids_under(child) for child in parent.children[:2])
    assert await memory.delete([first[0]]) == 1
    now = memory._tracker.state
    assert parent.children[1] not in {segment.id for segment in now.ledger.segments()}
    covered = {id for item in now.items for id in item.covered}
    assert {*first[1:], *second} <= covered
    await good_view(memory)


async def test_what_the_store_refuses_stays_until_it_takes_it() -> None:
    class Refusing(LastingStore):
        refuses = True

        async def refuse(self, text: str) -> str:
            if self.refuses and text.startswith('{"text"'):
                raise OffloadError("full")
            return await self.inner.write(text)

        def __init__(self) -> None:
            super().__init__()
            self.write = self.refuse

    store = Refusing()
    memory = await lived(store)
    assert merged(memory)
    assert all(one.text and one.words_ref is None for one in merged(memory))
    store.refuses = False
    for message in turns(40, tag="later"):
        await filled(memory, [message])
        await memory.get_memory()
    assert all(one.words_ref and not one.text for one in merged(memory))


async def test_a_lost_text_of_merged_segments_is_made_again_from_their_words() -> None:
    memory = await lived()
    parent = next(one for one in memory._tracker.state.ledger.segments() if one.children)
    text = await memory.store.read(parent.ref)
    await memory.store.delete(parent.ref)
    assert await memory.read_ref(parent.ref) == text


@pytest.mark.parametrize("bit", ["\U0001f400", "\ud83d", "\ud83d\udc00", "\udc00\ud83d\udc00\ud83d\udc00x"])
async def test_halves_of_characters_come_back_as_they_were(bit: str) -> None:
    memory = new_memory()
    block = {"type": "text", "text": f"é {bit} and"}
    await filled(memory, [user(f"{bit} first {bit}"), assistant(bit), {**user(""), "content": [block]}])
    for number, message in enumerate(turns(20)):
        await filled(memory, [{**message, "content": f"{number} {bit} {message['content']}"}])
        await memory.get_memory()
    view = await memory.get_memory()
    assert memory.stats().segments
    again = new_memory(store=memory.store)
    again.load_state_dict(json.loads(json.dumps(memory.state_dict())))
    assert [msg.to_dict() for msg in await again.get_history()] == [
        msg.to_dict() for msg in await memory.get_history()
    ]
    assert await again.get_memory() == view
    assert to_openai(view) == to_openai(await again.get_memory())
    assert again.state_dict() == memory.state_dict()


async def test_a_state_that_tells_of_halves_it_does_not_have_is_refused() -> None:
    memory = new_memory()
    await memory.add(from_openai([user("\ud83d\udc00")]))
    state = json.loads(json.dumps(memory.state_dict()))
    state["split_pairs"][0][0] = ["content", 7]
    with pytest.raises(ValueError, match="split_pairs: there is no such text"):
        new_memory().load_state_dict(state)


def files_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def test_a_saved_file_is_whole_and_resumes(tmp_path: Path) -> None:
    memory, file = await lived(), tmp_path / "state.json"
    file.write_text("the state before")
    state = await memory.save(file)
    assert json.loads(file.read_text()) == json.loads(json.dumps(state))
    assert files_in(tmp_path) == ["state.json"]
    again = new_memory(config(2_000), store=memory.store, summarizer=Noting())
    await again.load(str(file))
    assert await again.get_memory() == await memory.get_memory()
    whole = file.read_text()
    file.write_text(whole[: len(whole) // 2])
    before = await again.get_memory()
    with pytest.raises(InvalidStateError, match=r"state\.json: no whole state"):
        await again.load(file)
    assert await again.get_memory() == before


async def test_a_file_is_as_it_was_where_writing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, file = await lived(), tmp_path / "state.json"
    await memory.save(file)
    whole = file.read_text()
    monkeypatch.setattr(os, "fsync", lambda descriptor: os.read(-1, 1))
    await filled(memory, turns(1))
    with pytest.raises(OSError, match="Bad file descriptor"):
        await memory.save(file)
    assert file.read_text() == whole
    assert files_in(tmp_path) == ["state.json"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
async def test_a_pipe_is_written_to_and_stays(tmp_path: Path) -> None:
    memory, pipe = await lived(), tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = asyncio.create_task(asyncio.to_thread(pipe.read_text))
    state = await memory.save(pipe)
    assert pipe.is_fifo()
    assert json.loads(await asyncio.wait_for(reading, 10)) == json.loads(json.dumps(state))


async def test_a_base_that_lasts_is_saved_without_its_messages() -> None:
    history = ListHistory()
    memory = new_memory(config(2_000), base=MemoryBase(history), store=LastingStore(), summarizer=Noting())
    for message in turns(30):
        await filled(memory, [message])
        await memory.get_memory()
    state = await memory.save()
    assert set(state) == {"compression"}
    again = new_memory(config(2_000), base=MemoryBase(history), store=memory.store, summarizer=Noting())
    await again.load(json.loads(json.dumps(state)))
    assert await again.get_memory() == await memory.get_memory()
