"""`CompressedMemory`: what its users may rely on."""

from __future__ import annotations

import copy
import json
import pickle
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from enum import StrEnum
from itertools import pairwise
from typing import Any

import pytest

from context_compressor import (
    CompressedMemory,
    CompressionConfig,
    CompressionEvent,
    InMemoryMemory,
    InMemoryOffloadStore,
    Msg,
    OffloadTools,
    from_openai,
    to_openai,
)
from context_compressor.errors import (
    ContextOverflowError,
    InvalidMessageError,
    OffloadCollisionError,
    OffloadNotFoundError,
    RedactionError,
)
from context_compressor.laws.chat_rules import problems
from context_compressor.memory.base import MemoryBase
from context_compressor.messages.repair import MISSING_RESULT
from tests.memory.contract import AGENTSCOPE_OLD_STATE, AGENTSCOPE_STATE, MemoryContract
from tests.memory.scripted import (
    COUNTER,
    REF,
    ForeignMemory,
    Noting,
    assistant,
    call,
    config,
    covered_ids,
    everything,
    exchange,
    filled,
    good_view,
    kind_of,
    new_memory,
    nothing_lost,
    result,
    strings,
    system,
    text,
    turns,
    user,
    wire_text,
)

LONG = turns(6)


class _Kind(StrEnum):
    USER = "user"


class TestCompressedMemory(MemoryContract):
    @pytest.fixture
    def memory(self) -> CompressedMemory:
        return CompressedMemory(counter=COUNTER)


class TestCompressedMemoryOverAForeignBase(MemoryContract):
    """The same without a revision, where changes are noticed by looking."""

    @pytest.fixture
    def memory(self) -> CompressedMemory:
        class Checked(InMemoryMemory):
            def revision(self) -> int | None:  # type: ignore[override]
                return None

        return CompressedMemory(Checked(), counter=COUNTER)


# Marks


async def test_excluding_a_mark_drops_what_bears_it_altogether_and_nothing_else() -> None:
    memory = new_memory()
    added = await filled(memory, turns(2))
    await memory.update_messages_mark("x", msg_ids=[added[0].id, added[1].id])  # of an exchange only the call
    view = await memory.get_memory(exclude_mark="x")
    assert to_openai(view) == turns(2)[1:]
    await memory.update_messages_mark("x", msg_ids=[added[2].id])
    assert to_openai(await memory.get_memory(exclude_mark="x")) == turns(2)[3:]


async def test_excluding_a_mark_that_drops_nothing_gives_the_same_view() -> None:
    memory = new_memory()
    await filled(memory, LONG)
    view = await memory.get_memory()
    for mark in ("never seen", "pinned", "hint"):
        again = await memory.get_memory(exclude_mark=mark)
        assert all(a is b for a, b in zip(view, again, strict=True))


async def test_a_segment_is_excluded_only_when_all_that_it_covers_bears_the_mark() -> None:
    memory = new_memory()
    await filled(memory, LONG)
    covered = covered_ids(await memory.get_memory())
    assert len(covered) > 1
    await memory.update_messages_mark("compressed", msg_ids=covered[1:])
    assert len(covered_ids(await memory.get_memory(exclude_mark="compressed"))) == len(covered)
    await memory.update_messages_mark("compressed", msg_ids=covered[:1])
    assert covered_ids(await memory.get_memory(exclude_mark="compressed")) == []


@pytest.mark.parametrize("is_resumed", [False, True])
async def test_excluding_a_mark_counts_messages_that_bore_it_before(is_resumed: bool) -> None:
    base = InMemoryMemory()
    memory = new_memory(base=base)
    await (memory if is_resumed else base).add(from_openai([user("old")]), marks="x")
    if is_resumed:
        state, memory = json.loads(json.dumps(memory.state_dict())), new_memory()
        memory.load_state_dict(state)
    await memory.get_memory()
    await memory.add(from_openai([user("new"), user("newer")]), marks="x")
    assert await memory.get_memory(exclude_mark="x") == []


async def test_messages_by_mark_come_whole_from_the_history_and_repaired() -> None:
    memory = new_memory()
    added = await filled(memory, LONG)
    await memory.get_memory()
    await memory.update_messages_mark("x", msg_ids=[msg.id for msg in added[:4]])
    assert to_openai(await memory.get_memory(mark="x")) == LONG[:4]
    await memory.update_messages_mark("y", msg_ids=[added[1].id])
    (shown_call, placeholder) = to_openai(await memory.get_memory(mark="y"))
    assert (shown_call, placeholder["content"]) == (LONG[1], MISSING_RESULT)


async def test_what_is_pinned_stays() -> None:
    memory = new_memory()
    said = turns(12)
    added = from_openai(said)
    for index, msg in enumerate(added):
        await memory.add(msg, marks="pinned" if index == 4 else None)
        await memory.get_memory()
    assert said[4] in to_openai(await nothing_lost(memory, said))


async def test_what_is_pinned_and_was_said_first_stays_though_the_last_exchange_has_to_leave() -> None:
    memory = new_memory()
    first = user(text("pinned", 115))
    await memory.add(from_openai([first]), marks="pinned")
    ids = [f"c{number}" for number in range(20)]
    await filled(memory, [call(*ids, name="ls", arguments="{}"), *(result(id, "ok") for id in ids)])
    view = await good_view(memory)
    assert to_openai(view)[0] == first
    assert [kind_of(msg) for msg in view] == [None, "notes"]


async def test_a_result_that_is_pinned_keeps_its_exchange() -> None:
    memory = new_memory()
    said = [user("go"), *exchange("big", 60), *turns(5)]
    added = from_openai(said)
    await memory.add(added[:2])
    await memory.add(added[2], marks="pinned")
    await memory.add(added[3:])
    assert to_openai(await good_view(memory))[:3] == said[:3]


@pytest.mark.parametrize("form", ["Observation: {}", "[read_file for 'a.py'] Result:\n{}"])
async def test_what_an_agent_without_tool_calls_reads_does_not_take_the_place_of_the_request(
    form: str,
) -> None:
    memory = new_memory()
    request = user("Which of the gates is the slowest?")
    await memory.add(from_openai([user("Look at the depot."), assistant("I shall."), request]))
    for number in range(40):
        observed = user(form.format(text(f"gate {number}", 10)))
        await memory.add(from_openai([assistant(f"Gate {number} is next."), observed]))
        assert request in to_openai(await good_view(memory))


async def test_what_becomes_pinned_returns() -> None:
    events: list[CompressionEvent] = []
    memory = new_memory(on_event=events.append)
    said = [user("go"), *exchange("big", 60), *turns(5)]
    added = await filled(memory, said)
    assert added[2].id in covered_ids(await memory.get_memory())
    await memory.update_messages_mark("pinned", msg_ids=[added[2].id])
    assert events[-1].kind == "edit"
    assert events[-1].message_ids == (added[2].id,)
    view = await nothing_lost(memory, said)
    assert said[1] in to_openai(view)
    assert said[2] in to_openai(view)


@pytest.mark.parametrize("turns_behind", [0, 6], ids=["behind a stub", "behind a summary"])
@pytest.mark.parametrize("is_resumed", [False, True])
async def test_what_becomes_pinned_returns_with_all_that_it_was_split_into(
    turns_behind: int, is_resumed: bool
) -> None:
    use = {"type": "tool_use", "id": "c", "name": "ls", "input": {}}
    done = {"type": "tool_result", "id": "c", "name": "ls", "output": text("listing", 60)}
    memory = new_memory()
    await memory.add([Msg("u", "go", "user"), Msg("a", [use, done], "assistant", id="split")])
    await memory.get_memory()
    await filled(memory, turns(turns_behind))
    assert done["output"] not in strings(to_openai(await good_view(memory)))
    if is_resumed:
        saved = memory.state_dict()["compression"]
        await memory.base.update_messages_mark("pinned", msg_ids=["split"])
        base, memory = memory.base, new_memory(store=memory.store)
        memory.load_state_dict({**base.state_dict(), "compression": saved})
    else:
        await memory.update_messages_mark("pinned", msg_ids=["split"])
    assert done["output"] in strings(to_openai(await good_view(memory)))


async def test_an_empty_string_is_a_mark_like_any_other() -> None:
    memory = new_memory(config(pinned_mark=""))
    said = turns(10)
    added = await filled(memory, said)
    assert added[2].id in covered_ids(await good_view(memory))
    await memory.update_messages_mark("", msg_ids=[added[2].id])
    assert said[2] in to_openai(await good_view(memory))


async def test_what_a_segment_stands_for_is_pinned_by_its_id() -> None:
    memory = new_memory()
    await filled(memory, LONG)
    segment = next(msg for msg in await memory.get_memory() if kind_of(msg) == "notes")
    covered = covered_ids([segment])
    await memory.update_messages_mark("pinned", msg_ids=[segment.id])
    assert {msg.id for msg in await memory.get_memory(mark="pinned")} == set(covered)


async def test_what_is_added_again_with_the_pinned_mark_returns() -> None:
    events: list[CompressionEvent] = []
    memory = new_memory(on_event=events.append)
    added = await filled(memory, LONG)
    covered = covered_ids(await memory.get_memory())
    index = [msg.id for msg in added].index(covered[0])
    await memory.add([added[index].copy(), *from_openai([user("new")])], marks="pinned")
    assert events[-1].kind == "edit"
    assert events[-1].message_ids == (added[index].id,)
    assert LONG[index] in to_openai(await nothing_lost(memory, [*LONG, user("new")]))


async def test_a_result_finds_its_call_once_what_stood_between_is_deleted() -> None:
    memory = new_memory()
    _, _, between = await filled(memory, [user("go"), call("a"), user("never mind")])
    await good_view(memory)
    await memory.delete([between.id])
    await filled(memory, [result("a", "1")])
    assert to_openai(await good_view(memory)) == [user("go"), call("a"), result("a", "1")]


async def test_events_name_messages_in_their_order_whatever_marks_they_bear() -> None:
    """A set of ids has another order in every process: events would differ between them."""
    events: list[CompressionEvent] = []
    memory = new_memory(on_event=events.append)
    await filled(memory, turns(12))
    covered = covered_ids(await good_view(memory))
    await memory.update_messages_mark("pinned", msg_ids=covered[8:2:-1])
    assert (events[-1].reason, events[-1].message_ids) == ("pinned messages returned", tuple(covered[3:9]))
    await memory.update_messages_mark("private", msg_ids=covered[::-1])
    await memory.delete_by_mark("private")
    assert events[-1].message_ids == tuple(covered)


async def test_a_hint_comes_and_goes_without_a_trace() -> None:
    memory = new_memory()
    said: list[dict[str, Any]] = []
    for number, message in enumerate(turns(12)):
        said.append(message)
        await memory.add(from_openai([message]))
        before = await good_view(memory)
        if message["role"] == "tool" or problems(said):
            continue
        await memory.add(from_openai([user(f"hint {number}: think of the tests")]), marks="hint")
        with_hint = to_openai(await good_view(memory))
        assert f"hint {number}" in with_hint[-1]["content"]
        events = memory.stats().events
        assert await memory.delete_by_mark("hint") == 1
        after = to_openai(await good_view(memory))
        assert after == with_hint[:-1]
        if events == memory.stats().events:
            assert after == to_openai(before)
    assert "hint" not in "\n".join(memory.store.texts().values())
    await nothing_lost(memory, said)


async def test_a_hint_that_stays_enters_no_segment_with_others() -> None:
    memory = new_memory()
    hint = from_openai([user("hint: think of the tests")])
    await filled(memory, turns(2))
    await memory.add(hint, marks="hint")
    await filled(memory, turns(8, tag="u"))
    view = await good_view(memory)
    assert hint[0].id in {msg.id for msg in view}
    events = memory.stats().events
    await memory.delete_by_mark("hint")
    assert to_openai(await memory.get_memory()) == [m for m in to_openai(view) if m != to_openai(hint)[0]]
    assert memory.stats().events == events + 1


async def test_hints_that_become_messages_like_others_leave_when_too_many_stand_in_the_view() -> None:
    """What stays when they do would leave when the memory is taken up elsewhere, and views differ."""
    of_nine = CompressionConfig(max_total_tokens=4_000, max_view_messages=9)
    memory = CompressedMemory(config=of_nine, counter=COUNTER)
    await memory.add(from_openai([user(text(str(i), 4)) for i in range(24)]), marks="hint")
    assert len(await memory.get_memory()) == 24
    await memory.update_messages_mark(None, old_mark="hint")
    view = await memory.get_memory()
    assert len(view) <= 9
    other = CompressedMemory(config=of_nine, store=memory.store, counter=COUNTER)
    other.load_state_dict(memory.state_dict())
    assert to_openai(await other.get_memory()) == to_openai(view)


async def test_where_few_messages_may_stand_events_follow_until_none_pays() -> None:
    """Else a memory that is taken up, which asks for itself, merged what the one at work still showed."""
    of_three = CompressionConfig(max_total_tokens=4_000, max_view_messages=3, keep_recent_count=0)
    memory = CompressedMemory(config=of_three, counter=COUNTER)
    for number in range(12):
        said = text(str(number), 30)
        await memory.add(from_openai([user(said) if number % 2 else assistant(said)]))
        view = await good_view(memory)
        other = CompressedMemory(config=of_three, store=memory.store, counter=COUNTER)
        other.load_state_dict(memory.state_dict())
        assert to_openai(await other.get_memory()) == to_openai(view)


# Deleting


async def test_deleting_a_segment_deletes_all_that_it_covers() -> None:
    memory = new_memory()
    await filled(memory, LONG)
    view = await memory.get_memory()
    (segment,) = [msg for msg in view if kind_of(msg) == "notes"]
    covered = covered_ids(view)
    assert await memory.delete([segment.id]) == len(covered)
    after = await good_view(memory)
    assert to_openai(after) == to_openai([msg for msg in view if msg is not segment])
    assert not set(covered) & {msg.id for msg in await memory.get_history()}
    assert memory.store.texts() == {}
    with pytest.raises(OffloadNotFoundError):
        await memory.read_ref(REF.findall(str(segment.content))[0])


async def test_deleting_one_covered_message_brings_the_others_back() -> None:
    memory = new_memory(config(2_600))
    said = turns(6)
    added = await filled(memory, said)
    await memory.get_memory()
    await memory.compress_now()
    covered = covered_ids(await memory.get_memory())
    index = next(i for i, msg in enumerate(added) if msg.id in covered and isinstance(msg.content, str))
    assert await memory.delete([added[index].id]) == 1
    left = said[:index] + said[index + 1 :]
    view = await nothing_lost(memory, left)
    if memory.stats().segments == 0:
        assert to_openai(view) == left
    assert not any(said[index]["content"] in stored for stored in memory.store.texts().values())


async def test_what_a_user_changes_in_a_view_is_told_as_an_edit_and_adding_is_not() -> None:
    events: list[CompressionEvent] = []
    memory = new_memory(on_event=events.append)
    added = await filled(memory, turns(1))
    before = COUNTER.count_messages(await memory.get_memory())
    await memory.delete([added[0].id])
    await memory.update_compressed_summary("so far")
    assert (await memory.get_memory())[0].content == "so far"
    await memory.clear()
    await memory.clear()
    assert [(event.kind, event.reason) for event in events] == [
        ("edit", reason) for reason in ("deleted", "summary set", "cleared")
    ]
    assert [events[0].tokens_before, events[-1].tokens_after] == [before, 0]
    assert all(event.tokens_after == later.tokens_before for event, later in pairwise(events))


async def test_a_deleted_text_is_in_no_saved_state() -> None:
    memory = new_memory()
    added = await filled(memory, [user("go"), *exchange("secret", 60), *turns(1)])
    await memory.get_memory()
    assert memory.stats().offloaded == 1
    await memory.delete([added[1].id, added[2].id])
    await memory.get_memory()
    assert "result-secret:" not in json.dumps(memory.state_dict())


# Bases changed behind the wrapper's back


def foreign() -> MemoryBase:
    return ForeignMemory()


@pytest.mark.parametrize("base", [InMemoryMemory, foreign], ids=["with revision", "without"])
async def test_what_others_add_to_the_base_is_in_the_next_view(base: Any) -> None:
    memory = new_memory(base=base())
    await filled(memory, turns(1))
    await memory.get_memory()
    await memory.base.add(from_openai([user("behind your back")]))
    assert to_openai(await good_view(memory)) == [*turns(1), user("behind your back")]
    await filled(memory, turns(8, tag="u"))
    await nothing_lost(memory, [*turns(1), user("behind your back"), *turns(8, tag="u")])


@pytest.mark.parametrize("base", [InMemoryMemory, foreign], ids=["with revision", "without"])
async def test_what_others_delete_from_the_base_leaves_view_and_store(base: Any) -> None:
    events: list[CompressionEvent] = []
    memory = new_memory(base=base(), on_event=events.append)
    said = [user("go"), *exchange("secret", 60), *turns(2)]
    added = await filled(memory, said)
    await memory.get_memory()
    assert memory.stats().offloaded == 1
    await memory.base.delete([added[1].id, added[2].id])
    assert to_openai(await good_view(memory)) == [said[0], *said[3:]]
    assert events[-1].kind == "edit"
    assert memory.store.texts() == {}


async def test_a_summary_that_others_set_in_the_base_is_an_edit() -> None:
    events: list[CompressionEvent] = []
    memory = new_memory(on_event=events.append)
    await memory.base.update_compressed_summary("so far")
    await filled(memory, [user("hi")])
    assert [msg.content for msg in await memory.get_memory()] == ["so far", "hi"]
    assert events == []
    await memory.base.update_compressed_summary("so good")
    assert [msg.content for msg in await memory.get_memory()] == ["so good", "hi"]
    assert [event.kind for event in events] == ["edit"]


async def test_a_summary_that_the_base_took_before_it_failed_shows() -> None:
    class Breaking(InMemoryMemory):
        async def update_compressed_summary(self, summary: str) -> None:
            await super().update_compressed_summary(summary)
            raise OSError("gone")

        def revision(self) -> int | None:  # type: ignore[override]
            return None

    memory = new_memory(base=Breaking())
    await filled(memory, [user("hi")])
    await memory.get_memory()
    with pytest.raises(OSError, match="gone"):
        await memory.update_compressed_summary("so far")
    assert [msg.content for msg in await memory.get_memory()] == ["so far", "hi"]


@pytest.mark.parametrize("said", [[assistant("plain")], [call("c", arguments="[1]"), result("c", "one")]])
async def test_what_others_rewrite_in_the_base_shows(said: list[dict[str, Any]]) -> None:
    memory = new_memory()
    await filled(memory, [user("go"), *said])
    await memory.get_memory()
    state = memory.base.state_dict()
    rewritten = json.loads(json.dumps(state).replace("plain", "changed").replace("[1]", "[2]"))
    memory.base.load_state_dict(rewritten)
    shown = json.dumps(to_openai(await good_view(memory)))
    assert "plain" not in shown
    assert "[1]" not in shown


async def test_a_call_that_others_rewrite_while_it_waits_for_its_result_shows() -> None:
    memory = new_memory()
    await filled(memory, [user("go"), call("c", arguments='{"path": "plain"}')])
    await memory.get_memory()
    memory.base.load_state_dict(json.loads(json.dumps(memory.base.state_dict()).replace("plain", "changed")))
    await memory.get_memory()
    await filled(memory, [result("c", "one")])
    assert "changed" in json.dumps(to_openai(await good_view(memory)))


async def test_a_rewritten_text_of_a_foreign_base_is_noticed_at_the_next_event() -> None:
    base = ForeignMemory()
    memory = new_memory(base=base)
    said = turns(3)
    await filled(memory, said)
    await memory.get_memory()
    base.pairs[0][0].content = "rewritten"
    await filled(memory, turns(6, tag="u"))
    view = await good_view(memory)
    assert "ask-t0:" not in await everything(memory, view)
    await nothing_lost(memory, [user("rewritten"), *said[1:], *turns(6, tag="u")])


@pytest.mark.parametrize("base", [InMemoryMemory, foreign], ids=["with revision", "without"])
async def test_a_summary_of_what_others_rewrite_in_the_base_is_withdrawn(base: Any) -> None:
    memory = new_memory(base=base())
    said = turns(9)
    await filled(memory, said)
    assert said[4] not in to_openai(await memory.get_memory())
    if isinstance(memory.base, InMemoryMemory):
        state = json.dumps(memory.base.state_dict()).replace("ask-t1", "other")
        memory.base.load_state_dict(json.loads(state))
    else:
        memory.base.pairs[4][0].content = str(said[4]["content"]).replace("ask-t1", "other")
    said[4]["content"] = said[4]["content"].replace("ask-t1", "other")
    await filled(memory, turns(6, tag="u"))
    view = await nothing_lost(memory, [*said, *turns(6, tag="u")])
    assert "ask-t1:" not in await everything(memory, view)


async def test_what_neither_store_nor_history_has_any_more_is_not_made_up() -> None:
    memory = new_memory(base=ForeignMemory())
    await filled(memory, [*turns(9), *exchange("large", 60), user("go on")])
    await memory.get_memory()
    texts = memory.store.texts()
    assert {text.startswith("[Transcript") for text in texts.values()} == {True, False}
    for ref in texts:
        await memory.store.delete(ref)
    assert {ref: await memory.read_ref(ref) for ref in texts} == texts
    for msg, _ in memory.base.pairs:
        for block in msg.get_content_blocks("tool_result"):
            block["output"] += "!"
    for ref in texts:
        with pytest.raises(OffloadNotFoundError):
            await memory.read_ref(ref)


async def test_what_a_store_was_found_to_have_lost_is_stored_again_once_it_takes_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    memory = new_memory()
    await filled(memory, [*exchange("large", 60), *turns(9)])
    await memory.get_memory()
    texts = memory.store.texts()
    for ref in texts:
        await memory.store.delete(ref)
        assert await memory.read_ref(ref) == texts[ref]
    with monkeypatch.context() as patched:
        patched.setattr(memory.store, "write", None)
        await filled(memory, turns(9, tag="u"))
        await memory.get_memory()
    assert f"texts still not stored: {len(texts)}" in caplog.text
    await filled(memory, turns(9, tag="v"))
    await memory.get_memory()
    assert texts.items() <= memory.store.texts().items()


class Colliding(InMemoryOffloadStore):
    """A store in which other texts hold the refs of all that is no transcript."""

    async def write(self, text: str) -> str:
        if text.startswith("[Transcript"):
            return await super().write(text)
        raise OffloadCollisionError("another text holds this ref")


@pytest.mark.parametrize("base", [InMemoryMemory, foreign], ids=["with revision", "without"])
async def test_a_text_that_cannot_be_stored_leaves_with_its_exchange(base: Any) -> None:
    """A base without a revision is read anew at every event; what failed is not tried again for that."""
    memory = new_memory(base=base(), store=Colliding())
    await filled(memory, [user("go"), *exchange("large", 300)])
    await good_view(memory)


async def test_what_could_not_be_stubbed_is_not_tried_again_by_who_takes_the_memory_up() -> None:
    """The view goes on as it would have, though the other store would take the text now."""
    memory, again = new_memory(store=Colliding()), new_memory(store=Colliding())
    await filled(memory, [user("go"), *exchange("large", 100)])
    await good_view(memory)
    again.load_state_dict(json.loads(json.dumps(memory.state_dict())))
    again.store.write = InMemoryOffloadStore.write.__get__(again.store)
    for n in range(12):
        for one in (memory, again):
            await filled(one, turns(1, tag=f"t{n}"))
        assert to_openai(await again.get_memory()) == to_openai(await memory.get_memory())


@pytest.mark.parametrize("is_rewritten", [True, False])
async def test_what_could_not_be_stubbed_is_tried_again_once_it_is_another_text(is_rewritten: bool) -> None:
    memory = new_memory(config(max_tool_message_tokens=300, keep_recent_count=2), store=Colliding())
    await filled(memory, [user("go"), *exchange("large", 45)])
    await good_view(memory)
    memory.store.write = InMemoryOffloadStore.write.__get__(memory.store)
    if is_rewritten:
        state = json.dumps(memory.base.state_dict()).replace("result-large", "result-other")
        memory.base.load_state_dict(json.loads(state))
    await filled(memory, [user(text(f"u{number}", 16)) for number in range(7)])
    await good_view(memory)
    assert memory.stats().offloaded == is_rewritten


async def test_a_wrapped_memory_may_have_a_past() -> None:
    base = InMemoryMemory()
    await base.add(from_openai(LONG))
    memory = new_memory(base=base)
    await nothing_lost(memory, LONG)


# Summaries


async def test_segments_can_be_left_out() -> None:
    memory = new_memory()
    await filled(memory, LONG)
    view = await memory.get_memory()
    without = await memory.get_memory(prepend_summary=False)
    assert without == [msg for msg in view if kind_of(msg) != "notes"]
    assert len(without) == len(view) - 1


async def test_the_bases_own_summary_is_shown_and_counted() -> None:
    memory = new_memory()
    await filled(memory, [system("be brief"), user("hi")])
    plain = (await memory.get_memory(), memory.stats().view_tokens)[1]
    await memory.update_compressed_summary(text("so-far", 5))
    view = await good_view(memory)
    assert [msg.content for msg in view] == ["be brief", text("so-far", 5), "hi"]
    assert memory.stats().view_tokens > plain
    assert len(await memory.get_memory(prepend_summary=False)) == 2
    await filled(memory, turns(8))
    assert "so-far:4" in wire_text(await good_view(memory))
    await memory.update_compressed_summary("")
    assert "so-far" not in wire_text(await good_view(memory))


async def test_an_instruction_that_comes_later_does_not_move_the_summary() -> None:
    memory = new_memory()
    await filled(memory, [system("be brief")])
    await memory.update_compressed_summary("so far")
    before = await good_view(memory)
    await filled(memory, [system("be exact")])
    view = await good_view(memory)
    assert [msg.content for msg in view] == ["be brief", "so far", "be exact"]
    assert view[:2] == before
    resumed = new_memory()
    resumed.load_state_dict(json.loads(json.dumps(memory.state_dict())))
    assert await resumed.get_memory() == view
    await memory.update_compressed_summary("so much so far")  # which changes the view anyway
    assert [msg.content for msg in await good_view(memory)] == ["be brief", "be exact", "so much so far"]


async def test_where_an_instruction_before_the_summary_is_deleted_it_still_follows_the_others() -> None:
    memory = new_memory()
    _, [exact], _ = [await filled(memory, [said]) for said in (system("a"), system("b"), user("hi"))]
    await memory.update_compressed_summary("so far")
    assert [msg.content for msg in await good_view(memory)] == ["a", "b", "so far", "hi"]
    await memory.delete([exact.id])
    assert [msg.content for msg in await good_view(memory)] == ["a", "so far", "hi"]


async def test_a_summary_that_no_view_has_shown_stands_behind_the_instructions() -> None:
    memory = new_memory()
    await memory.update_compressed_summary("so far")
    assert await memory.get_memory(prepend_summary=False) == []
    await filled(memory, [system("be brief"), user("hi")])
    assert [msg.content for msg in await good_view(memory)] == ["be brief", "so far", "hi"]


# Views


async def test_writing_into_a_view_harms_no_history() -> None:
    memory = new_memory()
    await filled(memory, [*LONG, user("last")])
    for msg in await memory.get_memory():
        if isinstance(msg.content, list):
            msg.content.clear()
        msg.content, msg.name = "spoilt", "spoilt"
    (await memory.get_memory()).clear()
    assert to_openai(await memory.get_history()) == [*LONG, user("last")]
    assert "spoilt" not in json.dumps(memory.state_dict())
    await filled(memory, turns(4, tag="u"))
    await memory.get_memory()
    assert not any("spoilt" in stored for stored in memory.store.texts().values())


async def test_provenance_says_what_a_stand_in_covers() -> None:
    memory = new_memory()
    added = await filled(memory, [user("go"), *exchange("big", 60)])
    view = await memory.get_memory()
    provenance = view[2].metadata["compression"]
    assert view[2].id == added[2].id
    assert provenance["kind"] == "stub"
    assert provenance["covered_ids"] == [added[2].id]
    assert await memory.read_ref(provenance["ref"]) == text("result-big", 60)


# State


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
async def test_who_copies_a_memory_is_told_how_to_save_it(copied: Callable[[Any], Any]) -> None:
    memory = new_memory()
    await filled(memory, [user("go")])
    await memory.get_memory()
    with pytest.raises(TypeError, match=r"cannot be copied .* by state_dict\(\), .* by load_state_dict\(\)"):
        copied(memory)


@pytest.mark.parametrize(
    ("metadata", "place"),
    [
        ({"when": datetime(2025, 1, 1)}, "metadata.when: expected JSON data, got datetime"),
        ({"a": [1, {"b": (b"x",)}]}, r"metadata.a\[1\].b\[0\]: expected JSON data, got bytes"),
        ({"a": {"x"}}, "metadata.a: expected JSON data, got set"),
    ],
)
async def test_what_json_has_no_form_for_is_named_when_it_is_saved(
    metadata: dict[str, Any], place: str
) -> None:
    memory = new_memory()
    await memory.add(
        [Msg("a", "b", "user", {"fine": (None, 1.5, _Kind.USER)}), Msg("a", "b", "user", metadata)]
    )
    assert len(await memory.get_memory()) == 2
    with pytest.raises(InvalidMessageError, match=rf"content\[1\]\[0\].{place}"):
        memory.state_dict()


async def test_a_loaded_state_can_be_saved_before_it_is_used() -> None:
    memory = new_memory()
    await filled(memory, LONG)
    await memory.get_memory()
    state = json.loads(json.dumps(memory.state_dict()))
    again = new_memory()
    again.load_state_dict(state)
    assert json.loads(json.dumps(again.state_dict())) == state


@pytest.mark.parametrize("state", [AGENTSCOPE_STATE, AGENTSCOPE_OLD_STATE])
async def test_agentscopes_plain_state_loads(state: dict[str, Any]) -> None:
    memory = new_memory()
    memory.load_state_dict(state)
    assert await memory.size() == 2
    view = await good_view(memory)
    assert "hi" in [msg.content for msg in view]
    assert ("earlier" in [msg.content for msg in view]) == ("_compressed_summary" in state)


async def test_the_summary_of_a_state_with_marks_shows_only_what_is_not_excluded() -> None:
    memory = new_memory()
    memory.load_state_dict(AGENTSCOPE_STATE)
    view = await memory.get_memory(exclude_mark="compressed")
    assert [msg.content for msg in view][:1] == ["earlier"]
    assert "hi" not in [msg.content for msg in view]


# By hand


async def test_compressing_by_hand_returns_the_event_and_then_none() -> None:
    events: list[CompressionEvent] = []
    memory = new_memory(config(50_000), on_event=events.append)
    await filled(memory, LONG)
    before = to_openai(await memory.get_memory())
    event = await memory.compress_now()
    assert event == events[0]
    assert (event.kind, event.reason) == ("compress", "asked for")
    assert event.tokens_after < event.tokens_before
    view = await nothing_lost(memory, LONG)
    assert event.tokens_after == memory.stats().view_tokens
    assert to_openai(view)[-4:] == before[-4:]
    assert await memory.compress_now() is None
    assert len(events) == 1


async def test_there_is_nothing_to_compress_in_a_short_or_empty_memory() -> None:
    memory = new_memory()
    assert await memory.compress_now() is None
    await filled(memory, turns(1))
    assert await memory.compress_now() is None


# What stays


async def test_recent_messages_stay_word_for_word() -> None:
    memory = new_memory()
    said: list[dict[str, Any]] = []
    for message in turns(20):
        said.append(message)
        await memory.add(from_openai([message]))
        shown = to_openai(await good_view(memory))
        recent = said[-4:-1] if message.get("tool_calls") else said[-4:]
        assert shown[-len(recent) :] == recent


async def test_where_exchanges_are_large_fewer_stay_than_were_not_asked_for() -> None:
    said = [user("go"), *(message for n in range(30) for message in exchange(f"e{n}", 25))]
    unasked = new_memory(CompressionConfig(max_total_tokens=3_000))
    asked = new_memory(CompressionConfig(max_total_tokens=3_000, keep_recent_count=10))
    for message in from_openai(said):
        for memory in (unasked, asked):
            await memory.add(message)
            await good_view(memory)
    assert unasked.stats().events <= asked.stats().events / 2
    for memory in (unasked, asked):
        await nothing_lost(memory, said)
    assert to_openai(await unasked.get_memory())[-2:] == said[-2:]


@pytest.mark.parametrize("keep", [True, False])
async def test_the_first_user_message_is_kept_if_asked(keep: bool) -> None:
    memory = new_memory(config(keep_first_user=keep))
    said = [system("be brief"), *turns(12)]
    await filled(memory, said)
    shown = to_openai(await nothing_lost(memory, said))
    assert shown[0] == said[0]
    assert (said[1] in shown) == keep


async def test_excluded_tools_are_never_compacted() -> None:
    memory = new_memory(config(6_000, exclude_tools={"lookup"}))
    said = [user("go"), *exchange("a", 150, name="lookup"), *exchange("b", 150), user("on")]
    await filled(memory, said)
    view = await good_view(memory)
    assert [kind_of(msg) for msg in view] == [None, None, None, None, "stub", None]


@pytest.mark.parametrize("mode", ["auto", "compact", "compress"])
@pytest.mark.parametrize(("parts", "lines"), [(2, 100), (8, 25), (30, 7)])
async def test_a_huge_result_in_parts_never_enters_a_view_whole(mode: str, parts: int, lines: int) -> None:
    """Servers of tools answer in parts: each may be small where the result is not."""
    events: list[CompressionEvent] = []
    memory = new_memory(config(8_000, mode=mode), on_event=events.append)
    output = [{"type": "text", "text": text(f"part-{n}", lines)} for n in range(parts)]
    said = [user("go"), call("a"), {"role": "tool", "tool_call_id": "a", "content": output}]
    await filled(memory, said)
    reachable = await everything(memory, await good_view(memory))
    assert [part["text"] for part in output if part["text"] not in reachable] == []
    assert [(event.kind, event.reason) for event in events] == [("compact", "arrival")]
    assert events[0].tokens_before > 2_000 >= events[0].tokens_after


async def test_a_huge_result_never_enters_a_view_whole() -> None:
    memory = new_memory()
    said = [user("go"), *exchange("huge", 5_000)]
    await filled(memory, said)
    view = await nothing_lost(memory, said)
    assert kind_of(view[-1]) == "stub"
    assert to_openai(view)[:2] == said[:2]
    assert "result-huge:0" in wire_text(view)


async def test_several_huge_results_at_once_fit_together() -> None:
    memory = new_memory()
    ids = [f"p{n}" for n in range(8)]
    said = [user("go"), call(*ids), *(result(id, text(f"result-{id}", 1_000)) for id in ids)]
    await filled(memory, said)
    view = await nothing_lost(memory, said)
    assert [kind_of(msg) for msg in view] == [None, None, *["stub"] * 8]


async def test_where_nothing_is_summarised_first_looks_shrink_before_their_exchanges_leave() -> None:
    memory = CompressedMemory(config=CompressionConfig(max_total_tokens=8_000, mode="compact"))
    for number in range(12):
        await memory.add(from_openai(exchange(f"e{number}", 700)))
        view = await memory.get_memory()
    assert (memory.stats().segments, memory.stats().offloaded) == (0, 12)
    sizes = [memory.counter.count_messages([msg]) for msg in view[1::2]]
    assert sizes[0] < 400 < sizes[-1]


@pytest.mark.parametrize("history", [[], [user("go"), assistant("yes?")]])
async def test_one_huge_user_message_keeps_its_head_and_tail(history: list[dict[str, Any]]) -> None:
    memory = new_memory()
    said = user(text("huge", 2_000))
    await filled(memory, [*history, said])
    shown = wire_text(await nothing_lost(memory, [*history, said]))
    assert "huge:0 " in shown
    assert said["content"].splitlines()[-1] in shown


async def test_an_overflow_that_no_message_is_to_blame_for_only_says_to_raise_the_budget() -> None:
    memory = CompressedMemory(config=CompressionConfig(max_total_tokens=10))
    await memory.sync([user(text(name, 100)) for name in "abc"])
    with pytest.raises(ContextOverflowError, match=r"the budget is 10; raise max_total_tokens$") as caught:
        await memory.get_memory()
    assert caught.value.fixed == ()


async def test_instructions_that_exceed_the_budget_are_an_overflow_that_names_them() -> None:
    memory = new_memory()
    added = await filled(memory, [system(text("rules", 300)), user("hi")])
    with pytest.raises(ContextOverflowError) as caught:
        await memory.get_memory()
    error = caught.value
    tokens = COUNTER.count_messages(added[:1])
    assert error.fixed == ((added[0].id, tokens),)
    assert error.budget == 2_000
    assert error.needed > tokens
    assert added[0].id in str(error)
    assert f"{tokens:,}" in str(error)
    await memory.delete([added[0].id])
    assert to_openai(await good_view(memory)) == [user("hi")]


# Modes, groups, loops


async def test_compact_never_calls_a_summariser() -> None:
    summarizer = Noting()
    memory = new_memory(config(mode="compact"), summarizer=summarizer)
    said: list[dict[str, Any]] = []
    for message in turns(16):
        said.append(message)
        await memory.add(from_openai([message]))
        await good_view(memory)
    await memory.compress_now()
    await nothing_lost(memory, said)
    assert summarizer.requests == []
    assert memory.stats().summarizer_calls == 0


async def test_no_event_every_turn_where_the_tail_alone_nearly_fills_the_budget() -> None:
    events: list[CompressionEvent] = []
    memory = new_memory(config(keep_recent_count=10), on_event=events.append)
    rules = system(text("rules", 40))  # some 600 of 2,000; ten recent messages take 1,200
    await filled(memory, [rules])
    for n in range(300):
        speak = user if n % 2 else assistant
        await memory.add(from_openai([speak(text(f"say-{n}", 8))]))
        assert COUNTER.count_messages(await memory.get_memory()) <= 2_000
    # What may leave is so little that two turns fill the room again; an event each turn would be a loop.
    assert len(events) < 150


# Counting


class Noticing:
    """Count as the real counter does, and note which texts are counted."""

    encoding_name = COUNTER.encoding_name
    is_loaded = True

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()

    def count_text(self, text: str) -> int:
        self.seen[text] += 1
        return COUNTER.count_text(text)

    def count_messages(self, messages: Sequence[Any]) -> int:
        for msg in messages:
            self.seen.update(strings(msg.content))
        return COUNTER.count_messages(messages)

    def measure(self, msg: Msg) -> Any:
        self.seen.update(strings(msg.content))
        return COUNTER.measure(msg)


async def test_a_text_is_counted_once_in_its_life() -> None:
    counter = Noticing()
    memory = CompressedMemory(config=config(), counter=counter)
    said = [system("be brief"), *turns(10), *exchange("big", 60), *turns(10, tag="u")]
    for message in said:
        await memory.add(from_openai([message]))
        await memory.get_memory()
    assert memory.stats().segments > 0
    texts = [message["content"] for message in said if message["content"]]
    assert {each: counter.seen[each] for each in texts if counter.seen[each] != 1} == {}


# Pages


async def read_back(
    memory: CompressedMemory, ref: str, id: str, *, named: str = "read_offloaded", **arguments: Any
) -> list[dict[str, Any]]:
    """Return the exchange in which an agent reads a stored text back."""
    arguments = {"ref": ref, **arguments}
    page = await OffloadTools(memory).call("read_offloaded", arguments)
    return [call(id, name=named, arguments=json.dumps(arguments)), result(id, page)]


async def test_a_page_that_was_read_back_is_a_result_like_any_other() -> None:
    memory = new_memory(config(8_000, max_tool_message_tokens=300))
    said = [user("go"), *exchange("big", 200)]
    await filled(memory, said)
    ref = REF.findall(wire_text(await memory.get_memory()))[0]
    said += await read_back(memory, ref, "read1", offset=50, limit=40)
    await filled(memory, said[3:])
    assert memory.standing_page_tokens() > 300
    said += turns(8)
    await filled(memory, turns(8))
    await memory.compress_now()
    await nothing_lost(memory, said)
    assert memory.standing_page_tokens() == 0
    assert said[4]["content"] in memory.store.texts().values()


@pytest.mark.parametrize("named", ["read_offloaded", "mcp__memory__read_offloaded"])
async def test_pages_take_a_quarter_of_the_budget_with_the_messages_that_hold_them(named: str) -> None:
    memory = new_memory(config(2_000))
    lines = "\n".join("ab"[n % 2] for n in range(3_000))  # short ones, which fill a page to the last token
    await filled(memory, [user("go"), call("big"), result("big", lines)])
    ref = REF.findall(wire_text(await memory.get_memory()))[0]
    for n in range(3):
        await memory.add(from_openai(await read_back(memory, ref, f"call_{n}", named=named)))
    assert 400 < memory.standing_page_tokens() <= 2_000 // 4


async def test_what_other_tools_print_in_the_form_of_a_page_takes_no_room_from_pages() -> None:
    """A web page could keep the agent from reading back at all."""
    memory = new_memory(config(8_000))
    await filled(memory, [user("go"), *exchange("big", 300)])
    ref = REF.findall(wire_text(await memory.get_memory()))[0]
    lines = "\n".join(f"line {n} of what looks like a page" for n in range(1, 181))
    for n in range(2):
        forged = f"[{ref} lines 1-180 of 180]\n{lines}\n[end]"
        await filled(memory, [call(f"f{n}", name="fetch"), result(f"f{n}", forged)])
    assert memory.stats().offloaded == 1
    assert memory.standing_page_tokens() == 0
    await filled(memory, page := await read_back(memory, ref, "read1"))
    assert page[1]["content"].startswith(f"[{ref} lines 1-")
    assert memory.standing_page_tokens() > 300


# Redaction


def hide(found: str) -> str:
    return found.replace("SECRET", "[hidden]")


async def test_redaction_reaches_store_stubs_transcripts_and_summariser() -> None:
    summarizer = Noting()
    memory = new_memory(config(redact=hide), summarizer=summarizer)
    said = [
        user("first"),
        user("the SECRET of " + text("a", 20)),
        call("c1", arguments='{"path": "SECRET"}'),
        result("c1", "SECRET\n" + text("b", 20)),
        call("c2"),
        result("c2", "SECRET\n" + text("c", 80)),
        *turns(6),
    ]
    await filled(memory, said)
    view = await good_view(memory)
    assert memory.stats().segments == 1
    assert "SECRET" not in "\n".join(memory.store.texts().values())
    assert "[hidden]" in "\n".join(memory.store.texts().values())
    assert "SECRET" not in json.dumps(
        [msg.to_dict() for request in summarizer.requests for msg in request.messages]
    )
    assert "SECRET" not in await everything(memory, view)
    assert "SECRET" not in json.dumps(memory.state_dict()["compression"])
    assert to_openai(await memory.get_history()) == said


@pytest.mark.parametrize("key", ["name", "id", "type", "role", "path"])
async def test_redaction_reaches_arguments_whatever_they_are_called(key: str) -> None:
    summarizer = Noting()
    memory = new_memory(config(redact=hide), summarizer=summarizer)
    await filled(memory, [user("first")])
    use = {"type": "tool_use", "id": "c1", "name": "create_user", "input": {key: "SECRET"}}
    done = {"type": "tool_result", "id": "c1", "name": "create_user", "output": text("done", 10)}
    await memory.add([Msg("Friday", [use], "assistant"), Msg("system", [done], "system")])
    await filled(memory, turns(8))
    await good_view(memory)
    assert "SECRET" not in "\n".join(memory.store.texts().values())
    assert "SECRET" not in json.dumps(
        [msg.to_dict() for request in summarizer.requests for msg in request.messages]
    )


async def test_a_redaction_that_fails_changes_nothing() -> None:
    failing = {"on": True}

    def redact(found: str) -> str:
        if failing["on"]:
            raise ValueError("no key")
        return found

    store = InMemoryOffloadStore()
    memory = new_memory(config(redact=redact), store=store)
    await filled(memory, LONG)
    with pytest.raises(RedactionError, match="ValueError") as caught:
        await memory.get_memory()
    assert str(caught.value.__cause__) == "no key"
    assert store.texts() == {}
    assert memory.state_dict()["compression"]["ledger"]["entries"] == []
    failing["on"] = False
    await nothing_lost(memory, LONG)


async def test_a_redaction_that_returns_no_string_is_refused() -> None:
    memory = new_memory(config(redact=lambda found: None))  # type: ignore[arg-type,return-value]
    await filled(memory, LONG)
    with pytest.raises(RedactionError, match="must return a string, returned NoneType"):
        await memory.get_memory()


async def test_a_redaction_that_fails_later_does_not_keep_a_deleted_message_in_the_view() -> None:
    failing = {"on": False}

    def redact(found: str) -> str:
        if failing["on"]:
            raise ValueError("no key")
        return found

    memory = new_memory(config(redact=redact))
    added = await filled(memory, [user("go"), *exchange("big", 60), *turns(2)])
    await memory.get_memory()
    failing["on"] = True
    try:
        await memory.delete([added[4].id, added[5].id])
    except RedactionError:
        failing["on"] = False
    left = {msg.id for msg in await memory.get_history()}
    assert {msg.id for msg in await memory.get_memory()} <= left


async def test_a_base_that_extends_add_is_asked_to_add() -> None:
    class Persisting(InMemoryMemory):
        def __init__(self) -> None:
            super().__init__()
            self.saved: list[str] = []

        async def add(self, memories: Any, marks: Any = None, **kwargs: Any) -> None:
            await super().add(memories, marks, **kwargs)
            self.saved += [msg.id for msg in memories]

    base = Persisting()
    added = await filled(new_memory(base=base), [user("hi")])
    assert base.saved == [added[0].id]


@pytest.mark.parametrize("role", ["assistant", "user"])
async def test_of_a_message_that_is_split_each_part_counts_what_it_says(role: str) -> None:
    use = {"type": "tool_use", "id": "c", "name": "ls", "input": {}}
    done = {"type": "tool_result", "id": "c", "name": "ls", "output": text("listing", 60)}
    remark = {"type": "text", "text": "and go on"}
    whole = [Msg("a", [remark, use, done], "assistant")]
    parted = [Msg("a", [use], "assistant"), Msg("u", [done, remark], "user")]
    memory = new_memory(config(2_000))
    await memory.add([Msg("u", "go", "user"), *(whole if role == "assistant" else parted)])
    view = await memory.get_memory()
    assert memory.stats().view_tokens == COUNTER.count_messages(view)
    await filled(memory, turns(6))


async def test_a_view_compressed_by_hand_has_no_more_messages_than_it_may() -> None:
    settings = config(4_000, max_view_messages=8, group_token_threshold=100, keep_recent_count=2)
    memory = new_memory(settings)
    await filled(memory, turns(6, lines=4))
    assert await memory.compress_now()
    view = to_openai(await good_view(memory))
    assert len(view) <= 8
    again = new_memory(settings, store=memory.store)
    again.load_state_dict(json.loads(json.dumps(memory.state_dict())))
    assert to_openai(await again.get_memory()) == view
