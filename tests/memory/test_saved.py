"""States that were saved once give the views that they gave then, byte for byte, and go on from there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from context_compressor import (
    CompressedMemory,
    CompressionConfig,
    CompressionEvent,
    FileOffloadStore,
    InMemoryOffloadStore,
    Msg,
    OffloadTools,
    Summary,
    SummaryRequest,
    TiktokenCounter,
    compress_messages,
    from_openai,
    to_openai,
)
from context_compressor.laws.chat_rules import problems
from context_compressor.offload.store import OffloadStore, ref_of
from tests.memory.scripted import REF, kept, strings, turns, user

SAVED = Path(__file__).parent / "saved"
FILES = sorted(file for folder in (".", "form_2", "notes") for file in (SAVED / folder).glob("*.json"))
STATELESS = sorted(SAVED.rglob("stateless/state.json"))
COUNTER = TiktokenCounter()


class Uncalled:
    """A summariser that nobody may ask; memories hide what it raises, so it keeps count."""

    def __init__(self, *, remote: bool) -> None:
        self.remote = remote
        self.calls = 0

    async def summarize(self, request: SummaryRequest) -> Summary:
        self.calls += 1
        raise AssertionError("a summary was asked for")


@pytest.fixture(params=FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def saved(request: pytest.FixtureRequest) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(request.param.read_text(encoding="utf-8"))
    return read


async def stored(saved: dict[str, Any], store: OffloadStore) -> OffloadStore:
    for ref, text in saved["texts"].items():
        assert await store.write(text) == ref
    return store


async def resumed(
    saved: dict[str, Any], store: OffloadStore | None = None, state: dict[str, Any] | None = None
) -> tuple[CompressedMemory, Uncalled]:
    """Return a memory that was loaded, over a store with the texts, and its summariser."""
    summarizer = Uncalled(remote=saved["remote"])
    memory = CompressedMemory(
        config=CompressionConfig(**saved["config"]),
        store=store or await stored(saved, InMemoryOffloadStore()),
        summarizer=summarizer,
    )
    memory.load_state_dict(json.loads(json.dumps(state or saved["state"])))
    return memory, summarizer


def as_text(messages: list[Any]) -> str:
    """Return messages, or chat dicts, as JSON: metadata, ids and the order of keys count."""
    return json.dumps(
        [msg.to_dict() if isinstance(msg, Msg) else msg for msg in messages], ensure_ascii=False, indent=1
    )


def test_none_is_missing() -> None:
    assert len(FILES) >= 26
    assert len(STATELESS) == 2


@pytest.mark.parametrize("file", STATELESS, ids=lambda file: file.parts[-3])
def test_a_state_between_calls_gives_the_same_view(file: Path) -> None:
    saved = json.loads(file.read_text(encoding="utf-8"))
    events: list[CompressionEvent] = []
    options: dict[str, Any] = {"config": CompressionConfig(**saved["config"]), "on_event": events.append}
    done = compress_messages(saved["messages"], state=saved["state"], **options)
    assert as_text(done.messages) == as_text(saved["wire"])
    again = compress_messages(saved["messages"], state=json.loads(json.dumps(done.state)), **options)
    assert as_text(again.messages) == as_text(saved["wire"])
    assert events == []


async def test_the_view_comes_back_byte_for_byte(saved: dict[str, Any]) -> None:
    memory, summarizer = await resumed(saved)
    view = await memory.get_memory()
    assert as_text(view) == as_text(saved["view"])
    assert as_text(to_openai(view)) == as_text(saved["wire"])
    assert as_text(await memory.get_memory()) == as_text(saved["view"])
    assert memory.budget_tokens == saved["budget_tokens"]
    await memory.aclose()
    assert summarizer.calls == 0


async def test_it_comes_back_over_files_and_after_it_was_saved_again(
    saved: dict[str, Any], tmp_path: Path
) -> None:
    """Before and after the view was asked for: what is loaded can be saved at once."""
    store = await stored(saved, FileOffloadStore(tmp_path, namespace="saved"))
    first, _ = await resumed(saved, store)
    second, _ = await resumed(saved, store, first.state_dict())
    assert as_text(await second.get_memory()) == as_text(saved["view"])
    third, summarizer = await resumed(saved, store, second.state_dict())
    assert as_text(await third.get_memory()) == as_text(saved["view"])
    assert summarizer.calls == 0


async def test_every_ref_reads_back(saved: dict[str, Any]) -> None:
    memory, _ = await resumed(saved)
    tools = OffloadTools(memory)
    shown = [
        ref for msg in await memory.get_memory() for text in strings(msg.content) for ref in REF.findall(text)
    ]
    shown += [ref for msg in saved["view"] for ref in REF.findall(json.dumps(msg["metadata"]))]
    assert shown
    todo, seen = [*shown, *saved["refs"], *await memory.reachable_refs()], set[str]()
    while todo:
        ref = todo.pop()
        if ref in seen:
            continue
        seen.add(ref)
        text = await memory.read_ref(ref)
        assert text == saved["texts"].get(ref, text)
        assert ref_of(text) == ref
        todo += REF.findall(text)
        media = text.startswith("data:")
        answer = await tools.call("load_offloaded" if media else "read_offloaded", {"ref": ref})
        assert ("image/png" if media else text.split("\n")[0][:60]) in answer
    assert seen == set(saved["refs"])


async def test_what_is_added_only_appends(saved: dict[str, Any]) -> None:
    memory, summarizer = await resumed(saved)
    await memory.get_memory()
    await memory.add(from_openai([user("Thank you; go on.")]))
    view = await memory.get_memory()
    assert as_text(view[: len(saved["view"])]) == as_text(saved["view"])
    assert view[-1].content == "Thank you; go on."
    assert problems(to_openai(view)) == []
    await memory.aclose()
    assert summarizer.calls == 0


@pytest.mark.parametrize("saved", [file for file in FILES if file.stem == "synced_list"], indirect=True)
async def test_a_list_that_was_synced_is_known(saved: dict[str, Any]) -> None:
    memory, summarizer = await resumed(saved)
    said = to_openai(await memory.get_history())
    await memory.sync(said)
    assert as_text(await memory.get_memory()) == as_text(saved["view"])
    await memory.sync([*said, user("Thank you; go on.")])
    view = await memory.get_memory()
    assert as_text(view[:-1]) == as_text(saved["view"])
    assert summarizer.calls == 0


async def test_it_goes_on_within_the_budget(saved: dict[str, Any]) -> None:
    memory, _ = await resumed(saved)
    history = await memory.size()
    added = turns(8, tag="later")
    events = memory.stats().events
    for message in added:
        await memory.add(from_openai([message]))
        view = await memory.get_memory()
        assert problems(to_openai(view)) == []
        assert COUNTER.count_messages(view) <= memory.budget_tokens
    assert await memory.size() == history + len(added)
    assert memory.stats().events > events
    assert kept(memory) == set(await memory.store.refs())  # nothing waits any more
    await memory.aclose()


async def test_what_is_deleted_leaves_view_and_store(saved: dict[str, Any]) -> None:
    """The words of the oldest message that a stand-in covers are nowhere any more."""
    memory, _ = await resumed(saved)
    covered = [id for msg in await memory.get_memory() for id in ids_behind(msg)]
    before = set(await memory.reachable_refs())
    assert await memory.delete(covered[:1]) >= 1
    view = await memory.get_memory()
    assert covered[0] not in [id for msg in view for id in [msg.id, *ids_behind(msg)]]
    assert before - set(await memory.reachable_refs())
    assert not (before - set(await memory.reachable_refs())) & set(await memory.store.refs())


def ids_behind(msg: Msg) -> list[str]:
    """Return the ids of what a message of a view stands for."""
    stands_for = (msg.metadata or {}).get("compression", {})
    return (
        list(stands_for.get("covered_ids", []))
        if stands_for.get("kind") in ("notes", "segment", "stub")
        else []
    )
