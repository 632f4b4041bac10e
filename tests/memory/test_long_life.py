"""A long life: no depth is too deep, and all but the newest parts of the notes let go of their words."""

from __future__ import annotations

import asyncio
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from context_compressor import (
    CompressedMemory,
    CompressionConfig,
    InMemoryOffloadStore,
    Summary,
    SummaryRequest,
    from_openai,
    to_openai,
)
from context_compressor.core.edits import SegmentEdit, edit_to_dict, name_of
from context_compressor.core.ledger import KEPT_PARTS
from context_compressor.core.shown import render_transcript
from context_compressor.errors import InvalidStateError
from context_compressor.memory.base import MemoryBase
from context_compressor.memory.history import ListHistory
from context_compressor.messages.msg import Msg
from context_compressor.offload.store import ref_of
from tests.memory.scripted import (
    Noting,
    assistant,
    call,
    config,
    covered_ids,
    exchange,
    filled,
    good_view,
    kept,
    kind_of,
    new_memory,
    result,
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


class Superseding:
    """A model that keeps a line for each key and exchanges its value, as the newest "key = value" says."""

    remote = True
    writes_edits = True

    def __init__(self) -> None:
        self.requests = 0

    async def summarize(self, request: SummaryRequest) -> Summary:
        self.requests += 1
        said = "\n".join(msg.get_text_content() or "" for msg in request.messages)
        known = dict(re.findall(r"^(\d+): (key_\d+) is", request.previous or "", re.MULTILINE))
        lines = {key: number for number, key in known.items()}
        values = dict(re.findall(r"(key_\d+) = (\d+)", said))
        edits = [
            f"~{lines[key]} {key} is {value}" if key in lines else f"+ {key} is {value}"
            for key, value in values.items()
        ]
        return Summary("\n".join(["## Facts and values", *edits]))


async def lived(parts: int, writer: Superseding | None = None) -> CompressedMemory:
    """Return a memory with notes of so many parts, in each of which keys get other values."""
    settings = config(2_000, background_ratio=None)
    memory = new_memory(settings, store=LastingStore(), summarizer=writer or Superseding())
    while len(parts_of(memory)) < parts:
        number = await memory.size()
        said = [user(f"key_{number % 7} = {number}0"), *exchange(f"c{number}", 9), assistant("Noted.")]
        await filled(memory, said)
        await memory.compress_now()
    return memory


def parts_of(memory: CompressedMemory) -> list[SegmentEdit]:
    return list(memory._tracker.state.ledger.segments())


def notes_in(view: list[Msg]) -> str:
    (notes,) = [str(msg.content) for msg in view if kind_of(msg) == "notes"]
    return notes


async def test_notes_of_200_parts_are_bounded_and_hold_no_line_that_a_later_part_contradicts() -> None:
    memory = await lived(200)
    *older, newest = parts_of(memory)
    assert [bool(part.text) for part in older] == [False] * (199 - KEPT_PARTS) + [True] * KEPT_PARTS
    assert not any(part.candidates or part.stretches for part in older)
    assert max(len(json.dumps(edit_to_dict(part))) for part in older[:-KEPT_PARTS]) < 600
    told = [one for part in [*older, newest] for one in part.told]
    assert len(told) == len(set(told)), "each is known of the first part whose writer was told of it"
    covered = set(covered_ids(await memory.get_memory()))
    said = "\n".join(str(m.content) for m in await memory.get_history() if m.id in covered)
    last = dict(re.findall(r"(key_\d) = (\d+)", said))
    shown = re.findall(r"^- (key_\d) is (\d+)", notes_in(await memory.get_memory()), re.MULTILINE)
    assert sorted(shown) == sorted(last.items())
    assert memory.counter.count_text(newest.text) <= memory.config.budget // 3 + 100
    assert kept(memory) == set(await memory.store.refs())


async def test_what_a_part_said_stands_again_once_the_one_behind_it_is_taken_back() -> None:
    writer = Superseding()
    memory = await lived(KEPT_PARTS + 3, writer)
    *_, before, newest = parts_of(memory)
    requests = writer.requests
    assert await memory.delete([newest.items[-1].key]) == 1
    assert notes_in(await good_view(memory)) == before.text
    assert parts_of(memory)[-1].text == before.text
    told = {name_of(e): e for one in await memory._tracker.history.ledger() for e in one.edits}
    assert told == memory._tracker.state.ledger.edits()
    assert writer.requests == requests


async def test_what_has_no_words_any_more_gives_its_messages_back_and_no_model_writes_it_again() -> None:
    writer = Superseding()
    memory = await lived(KEPT_PARTS + 5, writer)
    covered = covered_ids(await good_view(memory))
    requests = writer.requests
    assert await memory.delete([covered[0]]) == 1
    view = await good_view(memory)
    assert set(covered[1:]) <= {id for msg in view for id in [msg.id, *covered_ids([msg])]}
    assert writer.requests == requests
    assert kept(memory) == set(await memory.store.refs())


FORM_2 = Path(__file__).parent / "saved" / "form_2" / "merged_segments.json"


async def test_what_an_earlier_release_merged_stands_again_with_its_words_from_the_store() -> None:
    saved = json.loads(FORM_2.read_text(encoding="utf-8"))
    store = InMemoryOffloadStore()
    for stored in saved["texts"].values():
        await store.write(stored)
    settings = CompressionConfig(**saved["config"])
    memory = CompressedMemory(config=settings, store=store)
    memory.load_state_dict(saved["state"])
    shown = [str(msg.content) for msg in await memory.get_memory() if kind_of(msg) == "segment"]
    merged = parts_of(memory)[-1]
    (child,) = merged.children
    words = json.loads(await store.read(parts_of(memory)[-2].words_ref or ""))["text"]
    await filled(memory, turns(1, lines=2))
    assert await memory.compress_now()
    lines = notes_in(await memory.get_memory())
    assert any(line in shown[-1] for line in lines.splitlines() if line.startswith("- "))
    await memory.delete([parts_of(memory)[-1].items[0].key])
    assert [str(msg.content) for msg in await memory.get_memory() if kind_of(msg) == "segment"] == shown
    await memory.delete([merged.items[0].key])
    assert words in [part.text for part in parts_of(memory) if part.id == child]


async def test_where_a_lasting_store_lost_all_its_texts_they_are_made_again_from_the_messages() -> None:
    memory = await lived(8)
    texts = {ref: await memory.read_ref(ref) for ref in await memory.reachable_refs()}
    again = new_memory(memory.config, store=LastingStore(), summarizer=Noting())
    again.load_state_dict(json.loads(json.dumps(memory.state_dict())))
    assert {ref: await again.read_ref(ref) for ref in await again.reachable_refs()} == texts


@pytest.mark.parametrize("bit", ["\U0001f400", "\ud83d", "\ud83d\udc00", "\udc00\ud83d\udc00\ud83d\udc00x"])
async def test_halves_of_characters_come_back_as_they_were(bit: str) -> None:
    memory = new_memory()
    block = {"type": "text", "text": f"é {bit} and"}
    await filled(memory, [user(f"{bit} first {bit}"), assistant(bit), {**user(""), "content": [block]}])
    asked = call("a", arguments=json.dumps({"path": f"{bit}.py"}))
    await filled(memory, [asked, result("a", json.dumps({"found": bit}))])
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
    memory, file = await lived(4), tmp_path / "state.json"
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
    memory, file = await lived(4), tmp_path / "state.json"
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
    memory, pipe = await lived(4), tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = asyncio.create_task(asyncio.to_thread(pipe.read_text))
    state = await memory.save(pipe)
    assert pipe.is_fifo()
    assert json.loads(await asyncio.wait_for(reading, 60)) == json.loads(json.dumps(state))


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
