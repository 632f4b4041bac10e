"""Law 12 to the last byte: what a deleted message said stands in no stored file and in no saved state."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from context_compressor import (
    CompressedMemory,
    FileOffloadStore,
    InMemoryMemory,
    Msg,
    OffloadTools,
    from_openai,
)
from context_compressor.core.edits import ItemKey
from context_compressor.summarizers.protocol import Summary, SummaryRequest
from tests.memory.scripted import (
    COUNTER,
    REF,
    assistant,
    call,
    config,
    filled,
    good_view,
    new_memory,
    result,
    text,
    turns,
    user,
    wire_text,
)

pytestmark = pytest.mark.variants(6)

RARE = "quagga_7719"
"""A word that indexes name, and that nothing else says."""

Delete = Callable[[CompressedMemory, list[str]], Awaitable[Any]]


async def by_id(memory: CompressedMemory, ids: list[str]) -> None:
    assert await memory.delete(ids) == len(ids)


async def by_mark(memory: CompressedMemory, ids: list[str]) -> None:
    await memory.update_messages_mark("private", msg_ids=ids)
    assert await memory.delete_by_mark("private") == len(ids)


async def behind_its_back(memory: CompressedMemory, ids: list[str]) -> None:
    assert await memory.base.delete(ids) == len(ids)
    await memory.get_memory()


async def all_of_it(memory: CompressedMemory, ids: list[str]) -> None:
    await memory.clear()


async def by_text(memory: CompressedMemory, ids: list[str]) -> None:
    assert set(ids) <= set((await memory.forget(text=RARE)).message_ids)


WAYS: list[Delete] = [by_id, by_mark, behind_its_back, all_of_it, by_text]


def said_anywhere(memory: CompressedMemory, path: Path, word: str = RARE) -> list[str]:
    """Return where a word stands: files, the saved state without the history, the ledger in memory."""
    places = [str(file) for file in path.rglob("*") if file.is_file() and word.encode() in file.read_bytes()]
    if word in json.dumps(memory.state_dict()["compression"]):
        places.append("state")
    if word in repr(memory._tracker.state.ledger.entries):
        places.append("ledger")
    return places


async def remember(memory: CompressedMemory, messages: list[dict[str, Any]], step: int = 4) -> list[Msg]:
    """Add messages a few at a time, asking for the view after each, as agents do."""
    added = from_openai(messages)
    for start in range(0, len(added), step):
        await memory.add(added[start : start + step])
        await memory.get_memory()
    return added


def ids_saying(messages: list[Msg], word: str = RARE) -> list[str]:
    return [msg.id for msg in messages if word in json.dumps(msg.to_dict())]


@pytest.mark.parametrize("delete", WAYS)
@pytest.mark.parametrize("behind", [2, 14, 80], ids=["stub", "segment", "merged segments"])
async def test_a_tool_result(tmp_path: Path, delete: Delete, behind: int) -> None:
    memory = new_memory(store=FileOffloadStore(tmp_path))
    private = [call("private"), result("private", text(f"found {RARE}", 40))]
    added = await remember(memory, [*turns(2), *private, *turns(behind, tag="more")])
    assert said_anywhere(memory, tmp_path)
    depths = {len(segment.children) for segment in memory._tracker.state.ledger.segments()}
    assert behind < 80 or max(depths) > 0, "nothing was merged"
    await delete(memory, ids_saying(added))
    assert said_anywhere(memory, tmp_path) == []
    assert RARE not in wire_text(await good_view(memory))
    await remember(memory, turns(10, tag="later"))
    assert said_anywhere(memory, tmp_path) == []


@pytest.mark.parametrize("delete", WAYS)
@pytest.mark.parametrize("behind", [14, 80], ids=["segment", "merged segments"])
@pytest.mark.parametrize("kind", ["user", "assistant", "arguments"])
async def test_a_short_message_in_a_summary(tmp_path: Path, delete: Delete, behind: int, kind: str) -> None:
    arguments = json.dumps({"path": f"/srv/{RARE}.py"})
    said = {
        "user": [user(f"Please keep {RARE} between us.")],
        "assistant": [assistant(f"I have opened {RARE} for you.")],
        "arguments": [call("private", arguments=arguments), result("private", "ok")],
    }[kind]
    memory = new_memory(store=FileOffloadStore(tmp_path))
    added = await remember(memory, [user("Begin."), *turns(1), *said, *turns(behind, tag="more")])
    assert said_anywhere(memory, tmp_path)
    await delete(memory, ids_saying(added))
    assert said_anywhere(memory, tmp_path) == []
    assert RARE not in wire_text(await good_view(memory))


@pytest.mark.parametrize("delete", [by_id, by_mark, behind_its_back])
async def test_a_text_of_which_an_agent_read_another_part(tmp_path: Path, delete: Delete) -> None:
    memory = new_memory(config(4_000), store=FileOffloadStore(tmp_path))
    added = await remember(memory, [user("go"), call("a"), result("a", f"{text('a', 120)}\n{RARE}")])
    (ref,) = REF.findall(wire_text(await good_view(memory)))
    page = await OffloadTools(memory).call("read_offloaded", {"ref": ref, "limit": 60})
    asked = call("p", name="read_offloaded", arguments=json.dumps({"ref": ref, "limit": 60}))
    await remember(memory, [asked, result("p", page), *turns(6)])
    await memory.compress_now()
    assert "a:7 " not in wire_text(await good_view(memory))
    await delete(memory, ids_saying(added))
    assert "a:7 " in wire_text(await good_view(memory)), "the page was not deleted"
    assert said_anywhere(memory, tmp_path) == []


@pytest.mark.parametrize("kind", ["user", "result"])
async def test_a_text_over_two_blocks_that_stored_texts_have_together(tmp_path: Path, kind: str) -> None:
    blocks = [{"type": "text", "text": f"my {RARE}"}, {"type": "text", "text": f"{RARE} is it"}]
    answer = {"role": "tool", "tool_call_id": "a", "content": blocks}
    said = {"user": [{"role": "user", "content": blocks}], "result": [call("a"), answer]}[kind]
    memory = new_memory(store=FileOffloadStore(tmp_path))
    await remember(memory, [user("Begin."), *turns(1), *said, *turns(14)])
    both = f"{RARE}\n{RARE}"
    assert said_anywhere(memory, tmp_path, both)
    assert len((await memory.forget(text=both)).message_ids) == len(said)
    assert said_anywhere(memory, tmp_path, both) == []


@pytest.mark.parametrize("behind", [2, 14, 80])
async def test_a_text_that_two_messages_hold_stays_while_one_of_them_is_there(
    tmp_path: Path, behind: int
) -> None:
    shared = text(f"found {RARE}", 40)
    twice = [call("a"), result("a", shared), call("b"), result("b", shared)]
    memory = new_memory(store=FileOffloadStore(tmp_path))
    added = await remember(memory, [*turns(1), *twice, *turns(behind, tag="more")])
    first, second = ids_saying(added)
    stubs = {stub.ref for stub in memory._tracker.state.ledger.stubs() if stub.item.key in (first, second)}
    await memory.delete([first])
    for ref in stubs & set(await memory.reachable_refs()):
        assert await memory.store.read(ref) == shared
    assert said_anywhere(memory, tmp_path), "the other one still says it"
    await memory.delete([second])
    assert said_anywhere(memory, tmp_path) == []


async def test_a_resumed_memory_deletes_what_the_one_before_stored(tmp_path: Path) -> None:
    memory = new_memory(store=FileOffloadStore(tmp_path))
    private = [call("private"), result("private", text(f"found {RARE}", 40))]
    added = await remember(memory, [*turns(2), *private, *turns(60, tag="more")])
    saved = json.loads(json.dumps(memory.state_dict()))
    again = new_memory(store=FileOffloadStore(tmp_path))
    again.load_state_dict(saved)
    await again.delete(ids_saying(added))
    assert said_anywhere(again, tmp_path) == []


async def test_a_store_that_could_not_delete_does_so_at_the_next_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = new_memory(store=FileOffloadStore(tmp_path))
    private = [call("private"), result("private", text(f"found {RARE}", 40))]
    added = await remember(memory, [*private, *turns(14, tag="more")])

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", fail)
        await memory.delete(ids_saying(added))
        assert said_anywhere(memory, tmp_path)
    await remember(memory, turns(14, tag="later"))
    assert said_anywhere(memory, tmp_path) == []


async def test_deleting_everything_one_by_one_leaves_an_empty_store(tmp_path: Path) -> None:
    memory = new_memory(config(1_200), store=FileOffloadStore(tmp_path))
    added = await remember(memory, turns(25))
    assert await memory.store.refs()
    for msg in added:
        await memory.delete([msg.id])
    assert await memory.store.refs() == []
    assert COUNTER.count_messages(await memory.get_memory()) == 0


async def test_what_ended_the_waiting_for_results_behind_a_summary_goes_like_anything_else() -> None:
    """Without it the late result answers its call: the summary that covers both says something else."""
    memory = new_memory()
    late = [call("a"), user("go on"), result("a", text("late", 20))]
    added = await remember(memory, [*late, *turns(20)], step=1)
    covering = [memory._tracker.state.ledger.top_segment_of(ItemKey(msg.id)) for msg in added[:2]]
    assert covering[0] is not None
    assert covering[1] is None, "the first user message stays"
    await memory.delete([added[1].id])
    view = wire_text(await good_view(memory))
    again = new_memory(store=memory.store)
    again.load_state_dict(json.loads(json.dumps(memory.state_dict())))
    assert wire_text(await good_view(again)) == view


async def test_the_result_of_a_deleted_call_is_shown_as_a_user_message() -> None:
    memory = new_memory()
    added = await filled(memory, [user("go"), call("a"), result("a", "forty-two"), *turns(1)])
    await good_view(memory)
    assert await memory.delete([added[1].id]) == 1
    view = await good_view(memory)
    assert [msg.role for msg in view if "forty-two" in str(msg.content)] == ["user"]


class Repeating:
    """A model that repeats the lines with the rare word in all that it is told."""

    remote = True

    async def summarize(self, request: SummaryRequest) -> Summary:
        said = [msg.get_text_content() or "" for msg in (*request.messages, *request.context)]
        lines = "\n".join([*said, request.previous or "", request.request or ""]).splitlines()
        told = [f"- The user: {line}" for line in dict.fromkeys(lines) if RARE in line]
        return Summary("\n".join(["## Work", "- It went on as planned.", *told[:1]]))


def repeating(memory: CompressedMemory) -> list[str]:
    """Return the segments in the ledger that repeat the rare word."""
    return [segment.id for segment in memory._tracker.state.ledger.segments() if RARE in segment.text]


async def edited_behind_its_back(memory: CompressedMemory, ids: list[str]) -> None:
    assert isinstance(memory.base, InMemoryMemory)
    state = memory.base.state_dict()
    for msg, _ in state["content"]:
        if msg["id"] in ids:
            msg["content"] = "Never mind."
    memory.base.load_state_dict(state)
    await memory.get_memory()


@pytest.mark.parametrize("delete", [*WAYS, edited_behind_its_back])
@pytest.mark.parametrize("behind", [14, 80], ids=["segment", "merged segments"])
@pytest.mark.parametrize("place", ["first", "pinned", "last", "the agent's"])
async def test_what_a_model_repeats_of_a_message_that_stays(
    tmp_path: Path, delete: Delete, behind: int, place: str
) -> None:
    """It is told to the model as what stays, amid what leaves, or as what the agent works on."""
    memory = new_memory(
        config(2_500, background_ratio=None), store=FileOffloadStore(tmp_path), summarizer=Repeating()
    )
    say = assistant if place == "the agent's" else user
    wish = from_openai([say(f"Keep {RARE} between us.")])
    before = [] if place == "first" else [user("Begin."), *turns(3)]
    await remember(memory, before)
    is_late = place in ("last", "the agent's")
    if is_late:
        await remember(memory, turns(behind, tag="more"))
    await memory.add(wish, marks="pinned" if place == "pinned" else None)
    await remember(memory, turns(9 if is_late else behind, tag="later"))
    assert repeating(memory)
    assert len(repeating(memory)) < len(list(memory._tracker.state.ledger.segments())) or behind == 14
    await delete(memory, [wish[0].id])
    assert repeating(memory) == []
    assert said_anywhere(memory, tmp_path) == []
    assert RARE not in wire_text(await good_view(memory))


async def test_what_a_model_repeats_of_another_summary(tmp_path: Path) -> None:
    memory = new_memory(
        config(4_000, background_ratio=None), store=FileOffloadStore(tmp_path), summarizer=Repeating()
    )
    added = await remember(memory, [user("Begin."), *turns(2), user(f"Keep {RARE} between us."), *turns(40)])
    assert len(repeating(memory)) > 1
    saved = json.loads(json.dumps(memory.state_dict()))
    again = new_memory(
        config(4_000, background_ratio=None), store=FileOffloadStore(tmp_path), summarizer=Repeating()
    )
    again.load_state_dict(saved)
    assert again.state_dict() == saved
    await by_id(again, ids_saying(added))
    assert repeating(again) == []
    assert said_anywhere(again, tmp_path) == []
