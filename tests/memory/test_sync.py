"""`sync`: the history follows a list that somebody else owns."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionMessage

from context_compressor import (
    CompressedMemory,
    CompressionEvent,
    InMemoryMemory,
    Msg,
    from_openai,
    to_openai,
)
from context_compressor.errors import ContextCompressorError, InvalidArgumentError, InvalidMessageError
from context_compressor.memory.base import MemoryBase
from context_compressor.messages.chat import in_turn
from tests.memory.scripted import (
    ForeignMemory,
    GatedBase,
    Noting,
    assistant,
    call,
    config,
    exchange,
    good_view,
    new_memory,
    nothing_lost,
    reached,
    result,
    system,
    text,
    turns,
    user,
)


async def test_a_hook_that_syncs_in_the_midst_of_a_sync_is_refused_and_one_that_follows_it_is_not() -> None:
    """It is called before that returns, which waits for it; a task of its own waits for that instead."""
    refused: list[str] = []
    later: list[asyncio.Task[None]] = []

    async def hook(event: CompressionEvent) -> None:
        if event.kind == "edit" and not later:
            later.append(asyncio.create_task(memory.sync(edited)))
            try:
                await memory.sync(edited)
            except ContextCompressorError as error:
                refused.append(str(error))

    memory = new_memory(on_event=hook)
    said = [user("go"), *turns(12)]
    edited = [*said[:-1], user("Something else.")]
    await memory.sync(said)
    await memory.get_memory()
    await asyncio.wait_for(memory.sync(edited), timeout=30)
    await asyncio.gather(*later)
    assert "asyncio.create_task(memory.sync(messages))" in "".join(refused)
    assert to_openai(await memory.get_history()) == edited


async def test_a_dict_changed_in_place_is_noticed() -> None:
    memory = new_memory()
    said = [user("a"), assistant("b")]
    await memory.sync(said)
    said[0]["content"] = "changed"
    await memory.sync(said)
    assert to_openai(await memory.get_history()) == said


@pytest.mark.parametrize("place", [0, 5_000, 9_999])
async def test_one_character_of_a_long_text_is_noticed(place: int) -> None:
    memory = new_memory()
    long = "x" * 10_000
    said = [user("a"), call("c"), result("c", long)]
    await memory.sync(said)
    kept = [msg.id for msg in await memory.get_history()]
    await memory.sync(json.loads(json.dumps(said)))
    assert [msg.id for msg in await memory.get_history()] == kept
    said[2] = result("c", f"{long[:place]}y{long[place + 1 :]}")
    await memory.sync(said)
    assert to_openai(await memory.get_history()) == said
    assert [msg.id for msg in await memory.get_history()][:2] == kept[:2]


async def test_a_summarised_message_that_is_edited_leaves_the_summary() -> None:
    memory = new_memory()
    said = turns(8)
    await memory.sync(said)
    await good_view(memory)
    assert memory.stats().segments == 1
    said[4] = user("something else")
    await memory.sync(said)
    await good_view(memory)
    assert to_openai(await memory.get_history()) == said
    assert not any("ask-t1:" in stored for stored in memory.store.texts().values())


async def test_a_message_between_a_summarised_call_and_its_result_leaves_a_valid_view() -> None:
    """It moves behind the result: what the summary covers is as it was."""
    memory = new_memory()
    said = [user("start"), *exchange("a", 5), *turns(8)]
    await memory.sync(said)
    await good_view(memory)
    assert memory.stats().segments == 1
    said.insert(2, user("in between"))
    await memory.sync(said)
    await nothing_lost(memory, said)


async def test_sdk_messages_may_stand_among_dicts() -> None:
    function = {"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}
    answer = ChatCompletionMessage.model_validate(
        {"role": "assistant", "content": None, "tool_calls": [function]}
    )
    memory = new_memory()
    said = [user("read it"), answer, result("c1", "contents")]
    await memory.sync(said)
    await memory.sync([*said, assistant("done")])
    assert await memory.size() == 4
    assert to_openai(await memory.get_memory())[1]["tool_calls"] == [function]


def saved_forms(message: ChatCompletionMessage) -> dict[str, dict[str, Any]]:
    """Return the dicts in which loops write down what they first handed over as an object."""
    whole = message.model_dump()
    plain = {key: whole[key] for key in ("role", "content", "tool_calls") if whole[key] is not None}
    return {"whole": whole, "without nulls": message.model_dump(exclude_none=True), "by hand": plain}


@pytest.mark.parametrize("form", ["whole", "without nulls", "by hand"])
@pytest.mark.parametrize("is_restarted", [False, True])
async def test_keys_that_say_nothing_cost_no_summary_anew(form: str, is_restarted: bool) -> None:
    memory = new_memory()
    # As providers send it.
    said: list[Any] = [
        ChatCompletionMessage.model_validate({**message, "refusal": None, "annotations": []})
        if message["role"] == "assistant"
        else message
        for message in turns(8)
    ]
    await memory.sync(said)
    view = to_openai(await memory.get_memory())
    assert memory.stats().segments == 1
    if is_restarted:
        memory, state = new_memory(store=memory.store), memory.state_dict()
        memory.load_state_dict(json.loads(json.dumps(state)))
    ids = [msg.id for msg in await memory.get_history()]
    saved = [
        saved_forms(message)[form] if isinstance(message, ChatCompletionMessage) else message
        for message in said
    ]
    await memory.sync(saved)
    assert [msg.id for msg in await memory.get_history()] == ids
    assert to_openai(await memory.get_memory()) == view
    said_more = [*saved, assistant("on")]
    await memory.sync(said_more)
    await memory.sync([*saved[:-1], assistant("something else"), assistant("on")])
    assert to_openai(await memory.get_history())[-2:] == [assistant("something else"), assistant("on")]


async def test_results_are_paired_with_calls_that_were_synced_before() -> None:
    memory = new_memory()
    said = [user("go"), call("c1", "c2"), result("c1", "one")]
    await memory.sync(said)
    assert to_openai(await memory.get_memory()) == said[:1]
    said.append(result("c2", "two"))
    await memory.sync(said)
    assert to_openai(await memory.get_memory()) == said


async def test_a_clear_while_messages_are_synced_leaves_none_of_them_out_of_the_next_list() -> None:
    base = GatedBase()
    memory = new_memory(base=base)
    said = [user("a"), assistant("b")]
    base.stops = {"add"}
    syncing = asyncio.create_task(memory.sync(said))
    await reached(base.reached, syncing)
    clearing = asyncio.create_task(memory.clear())
    await asyncio.sleep(0)
    base.gate.set()
    await asyncio.gather(syncing, clearing)
    said.append(user("c"))
    await memory.sync(said)
    assert to_openai(await memory.get_memory()) == said


async def test_a_list_synced_while_all_is_cleared_is_whole_after_the_next_sync() -> None:
    class Slow(InMemoryMemory):
        async def clear(self) -> None:
            reading = asyncio.create_task(memory.sync(said))
            await asyncio.sleep(0)  # it finds in the history what is about to go
            await super().clear()
            await reading

    base = Slow()
    memory = new_memory(base=base)
    said = [user("a"), assistant("b")]
    await memory.sync(said)
    await memory.clear()
    await memory.sync([*said, user("c")])
    assert to_openai(await memory.get_memory()) == [*said, user("c")]


@pytest.mark.parametrize("is_cleared", [False, True])
async def test_what_a_clear_that_failed_has_left_goes_with_the_next_list(is_cleared: bool) -> None:
    class Failing(InMemoryMemory):
        async def clear(self) -> None:
            if is_cleared:
                await super().clear()
            raise OSError("the connection broke off")

    memory = new_memory(base=Failing())
    await memory.sync([user("a"), assistant("b")])
    with pytest.raises(OSError, match="broke off"):
        await memory.clear()
    await memory.sync([user("a"), user("new")])
    assert to_openai(await memory.get_memory()) == [user("a"), user("new")]


@pytest.mark.parametrize("fails", [False, True])
async def test_a_list_synced_beside_a_clear_is_in_the_history_as_a_whole_and_leaves_it_as_a_whole(
    fails: bool,
) -> None:
    class Slow(InMemoryMemory):
        async def clear(self) -> None:
            clearing.set()
            await going_on.wait()
            await super().clear()

        async def get_memory(self, *args: Any, **kwargs: Any) -> list[Msg]:
            if fails and going_on.is_set() and await self.size() == 1:
                raise OSError("the connection broke off")
            return await super().get_memory(*args, **kwargs)

    clearing, going_on = asyncio.Event(), asyncio.Event()
    memory = new_memory(base=Slow())
    await memory.sync([user("a")])
    cleared = asyncio.create_task(memory.clear())
    await reached(clearing, cleared)
    synced = asyncio.create_task(memory.sync([user("a"), assistant("b")]))
    await asyncio.sleep(0)
    going_on.set()
    await asyncio.wait({cleared, synced})
    if fails:
        assert isinstance(synced.exception(), OSError)
        fails = False
    else:
        assert to_openai(await memory.get_history()) == [user("a"), assistant("b")]
    await memory.sync([user("new")])
    assert to_openai(await memory.get_history()) == [user("new")]


async def test_a_state_loaded_while_messages_are_synced_is_what_the_next_list_is_compared_with() -> None:
    class Slow(InMemoryMemory):
        async def size(self) -> int:
            size = await super().size()
            if size and not loaded:  # between the base memory's answer and the memory's
                loaded.append(True)
                memory.load_state_dict(empty)
            return size

    loaded: list[bool] = []
    memory = new_memory(base=Slow())
    empty = memory.state_dict()
    said = [user("a"), assistant("b")]
    await memory.sync(said)
    assert loaded
    said.append(user("c"))
    await memory.sync(said)
    assert to_openai(await memory.get_memory()) == said


async def test_after_another_state_was_loaded_the_list_is_compared_with_that() -> None:
    other = new_memory()
    await other.sync([system("be kind"), user("other")])
    memory = new_memory()
    await memory.sync([system("be brief"), user("first")])
    memory.load_state_dict(other.state_dict())
    said = [system("be brief"), user("first"), assistant("yes")]
    await memory.sync(said)
    assert to_openai(await memory.get_history()) == said


@pytest.mark.parametrize(
    "single", [{"role": "user", "content": "hi"}, "hi", ChatCompletionMessage(role="assistant", content="hi")]
)
async def test_a_single_message_instead_of_the_list_is_refused(single: Any) -> None:
    memory = CompressedMemory()
    with pytest.raises(InvalidArgumentError, match="expected a list of chat dicts, got"):
        await memory.sync(single)
    assert await memory.size() == 0


async def test_two_syncs_of_the_same_list_at_once_add_it_once() -> None:
    memory = new_memory()
    said = [user(text("long", 2_000)), *exchange("c1", 5)]  # long enough to be counted in a thread
    await asyncio.gather(memory.sync(said), memory.sync(said))
    assert to_openai(await memory.get_history()) == said


async def test_a_cancelled_sync_can_be_done_again() -> None:
    base = GatedBase()
    memory = new_memory(base=base)
    await memory.sync([user("a"), assistant("b")])
    base.stops = {"add"}
    said = [user("a"), assistant("B!"), user("c")]
    syncing = asyncio.create_task(memory.sync(said))
    await reached(base.reached, syncing)
    syncing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await syncing
    base.stops = set()
    await memory.sync(said)
    assert to_openai(await memory.get_history()) == said


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_what_a_cancelled_sync_added_goes_where_the_list_says_otherwise(is_restarted: bool) -> None:
    class Slow(InMemoryMemory):
        async def add(self, *args: Any, **kwargs: Any) -> None:
            await super().add(*args, **kwargs)
            added.set()
            await gate.wait()

    added, gate = asyncio.Event(), asyncio.Event()
    memory = new_memory(base=Slow())
    syncing = asyncio.create_task(memory.sync([user("a"), user("mistyped")]))
    await reached(added, syncing)
    syncing.cancel()
    await asyncio.wait([syncing])
    gate.set()
    if is_restarted:
        state, memory = memory.state_dict(), new_memory()
        memory.load_state_dict(state)
    await memory.sync([user("a"), user("typed well")])
    assert to_openai(await memory.get_memory()) == [user("a"), user("typed well")]


@pytest.mark.parametrize("how", ["cancelled", "failed"])
async def test_a_sync_that_failed_can_be_done_again_behind_a_message_of_ones_own(how: str) -> None:
    base = GatedBase()
    memory = new_memory(base=base)
    await memory.add(from_openai([system("be brief")]))
    said = [user("a"), assistant("b"), user("c")]
    await memory.sync(said[:2])
    base.stops = {"add"}
    syncing = asyncio.create_task(memory.sync(said))
    await reached(base.reached, syncing)
    if how == "failed":
        base.gate.set()
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(base.history, "write", failing)
            with pytest.raises(OSError, match="the database is away"):
                await syncing
    else:
        syncing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await syncing
    base.stops = set()
    await memory.sync(said)
    assert to_openai(await memory.get_history()) == [system("be brief"), *said]


@pytest.mark.parametrize("is_saved_before", [True, False])
async def test_a_message_of_ones_own_that_says_what_one_of_the_list_says_stays_after_a_restart(
    is_saved_before: bool,
) -> None:
    """The base memory is ahead of the saved state, and has the text once more than the list."""
    base = InMemoryMemory()
    memory = new_memory(base=base)
    empty = memory.state_dict()
    await memory.sync([user("ok")])
    state = empty if is_saved_before else memory.state_dict()
    await memory.add(from_openai([user("ok")]))
    again = new_memory(base=InMemoryMemory())
    again.load_state_dict({**base.state_dict(), "compression": state["compression"]})
    await again.sync([user("ok"), user("on")])
    assert to_openai(await again.get_history()) == [user("ok"), user("ok"), user("on")]


def failing(*_: Any) -> None:
    raise OSError("the database is away")


async def test_what_a_lasting_base_has_beyond_a_saved_state_is_not_added_twice() -> None:
    """The process died between two states, and the base memory did not."""
    base = InMemoryMemory()
    said = [user(f"message {number}") for number in range(6)]
    memory = new_memory(base=base)
    await memory.add(from_openai([system("be brief")]))
    await memory.sync(said[:4])
    state = memory.state_dict()
    await memory.sync(said)
    later = base.state_dict()
    again = new_memory(base=InMemoryMemory())
    again.load_state_dict({**later, "compression": state["compression"]})
    await again.sync([*said, user("and on")])
    assert to_openai(await again.get_history()) == [system("be brief"), *said, user("and on")]


@pytest.mark.parametrize("change", ["replaced", "inserted", "removed", "edited in the middle"])
async def test_what_is_as_it_was_behind_a_difference_stays(change: str) -> None:
    """A clock in the system prompt must not cost every summary on every turn."""
    summarizer = Noting(remote=False)
    memory = new_memory(summarizer=summarizer)
    said = [system("It is 10:00."), *turns(10)]
    await memory.sync(said)
    await memory.get_memory()
    calls, ids = len(summarizer.requests), [msg.id for msg in await memory.get_history()]
    if change == "replaced":
        said[0] = system("It is 10:01.")
    elif change == "inserted":
        said.insert(0, system("Be brief."))
    elif change == "removed":
        del said[0]
    else:
        said[-2] = result("t9", "another result")
    said += [user("and on"), assistant("yes")]
    await memory.sync(said)
    assert to_openai(await memory.get_history()) == said
    kept = [msg.id for msg in await memory.get_history()]
    assert len(set(ids) & set(kept)) >= len(ids) - 1
    view = await good_view(memory)
    assert len(summarizer.requests) == calls
    assert [msg.content for msg in view][-2:] == ["and on", "yes"]


async def test_marks_of_a_message_that_is_edited_stay() -> None:
    memory = new_memory()
    said = [user("first"), user("second"), user("third")]
    await memory.sync(said)
    await memory.update_messages_mark("pinned", msg_ids=[(await memory.get_history())[1].id])
    await memory.sync([said[0], user("2nd"), said[2], user("fourth")])
    assert [msg.content for msg in await memory.get_memory(mark="pinned")] == ["2nd"]


def letters(said: str) -> list[dict[str, Any]]:
    return [user(letter) for letter in said]


async def history_of(memory: CompressedMemory) -> str:
    return "".join(str(msg.content) for msg in await memory.get_history())


async def resumed(base: MemoryBase, state: dict[str, Any]) -> CompressedMemory:
    """Return a memory over a base that lasts, with the ledger of a state saved at another moment."""
    memory = new_memory(base=base)
    memory.load_state_dict({**base.state_dict(), "compression": json.loads(json.dumps(state["compression"]))})
    return memory


@pytest.mark.parametrize("base", [InMemoryMemory, ForeignMemory])
@pytest.mark.parametrize(
    ("since", "now"),
    [
        ("abx", "abx"),
        ("abxy", "abxyz"),
        ("axcdef", "axcdef"),
        ("abxcdef", "abxcdefg"),
        ("abef", "abef"),
        ("xbcdefg", "xbcdefgh"),
        ("abcdefgh", "aXcdefghi"),
    ],
)
async def test_an_edit_that_a_saved_state_does_not_know_of_is_not_made_twice(
    base: type[MemoryBase], since: str, now: str
) -> None:
    lasting = base()
    memory = new_memory(base=lasting)
    await memory.sync(letters("abcdef"))
    state = memory.state_dict()
    await memory.sync(letters(since))
    again = await resumed(lasting, state)
    await again.sync(letters(now))
    assert await history_of(again) == now


@pytest.mark.parametrize("base", [InMemoryMemory, ForeignMemory])
@pytest.mark.parametrize("left", ["", "abc"])
async def test_what_a_base_memory_has_lost_is_added_again(base: type[MemoryBase], left: str) -> None:
    """It expired, or was restored from a backup."""
    memory = new_memory(base=base())
    await memory.sync(letters("abcdef"))
    state = memory.state_dict()
    backup = base()
    await backup.add([msg for msg in await memory.get_history() if str(msg.content) in left])
    again = await resumed(backup, state)
    await again.sync(letters("abcdefg"))
    assert await history_of(again) == "abcdefg"


async def test_an_edit_that_failed_can_be_taken_back() -> None:
    class Shaky(InMemoryMemory):
        async def delete(self, msg_ids: list[str], **kwargs: Any) -> int:
            await super().delete(msg_ids, **kwargs)
            raise OSError("the database is away")

    memory = new_memory(base=Shaky())
    await memory.sync(letters("abc"))
    with pytest.raises(OSError, match="the database is away"):
        await memory.sync(letters("ax"))
    await memory.sync(letters("abc"))
    assert await history_of(memory) == "abc"


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_malformed_message_is_named_by_its_place_in_the_list(is_restarted: bool) -> None:
    memory = new_memory()
    await memory.sync(letters("ab"))
    if is_restarted:
        memory.load_state_dict(memory.state_dict())
    with pytest.raises(InvalidMessageError, match=r"messages\[2\]\.role"):
        await memory.sync([*letters("ab"), {"role": "nobody"}])
    with pytest.raises(InvalidMessageError, match=r"messages\[1\]\.role"):
        await memory.sync([*letters("a"), {"role": "nobody"}])
    await memory.sync(letters("ax"))
    assert await history_of(memory) == "ax"


Step = tuple[str, Any]


@st.composite
def list_lives(draw: st.DrawFn) -> list[Step]:
    """What happens to a list of letters; each stands in it once where any is deleted."""
    is_deleted_from = draw(st.booleans())
    said = st.text("abcdefg", max_size=7).map(lambda said: "".join(dict.fromkeys(said)))
    lists = said if is_deleted_from else st.text("ab", max_size=5)
    others = [st.tuples(st.just("restart"), st.none()), st.tuples(st.just("clear"), st.none())]
    others += [st.tuples(st.just("delete"), st.sampled_from("abcdefg"))] if is_deleted_from else []
    return draw(st.lists(st.one_of(st.tuples(st.just("say"), lists), *others), min_size=2, max_size=8))


@pytest.mark.parametrize("base", [InMemoryMemory, ForeignMemory])
@settings(max_examples=60, deadline=None)
@given(steps=list_lives())
@example(steps=[("say", "c"), ("restart", None), ("delete", "c")])
async def test_the_history_says_what_the_list_says_but_for_what_was_deleted(
    base: type[MemoryBase], steps: list[Step]
) -> None:
    """Whatever changes in the list, and wherever; what is as it was at the beginning keeps its ids."""
    memory = new_memory(config(branch_seconds=0), base=base())
    said, deleted, ids = "", "", list[str]()
    for step, letters_now in [*steps, ("say", "abc")]:
        if step == "say":
            same = next((n for n, (a, b) in enumerate(zip(said, letters_now, strict=False)) if a != b), None)
            same = min(len(said), len(letters_now)) if same is None else same
            kept = ids[: sum(letter not in deleted for letter in said[:same])]
            said, deleted = letters_now, "".join(one for one in deleted if one in letters_now)
            await memory.sync(iter(letters(said)))
            ids = [msg.id for msg in await memory.get_history()]
            assert ids[: len(kept)] == kept
        elif step == "delete":
            there = [msg.id for msg in await memory.get_history() if msg.content == letters_now]
            await memory.delete(there)
            deleted += letters_now if there else ""
        elif step == "clear":
            await memory.clear()
            said, deleted, ids = "", "", []
        else:
            state = json.loads(json.dumps(memory.state_dict()))
            memory = new_memory(config(branch_seconds=0), base=base())
            memory.load_state_dict(state)
        ids = [msg.id for msg in await memory.get_history()]
        expected = [letter for letter in said if letter not in deleted]
        assert [msg.content for msg in await memory.get_history()] == expected
        assert [msg.content for msg in await memory.get_memory()] == expected


@pytest.mark.parametrize("malformed", [{"role": "nobody"}, 5])
@pytest.mark.parametrize("before", [letters("AB"), letters("Ab"), letters("ab")])
async def test_a_malformed_list_changes_nothing(before: list[Any], malformed: Any) -> None:
    memory = new_memory()
    await memory.sync(letters("ab"))
    with pytest.raises(InvalidMessageError, match=r"messages\[2\]"):
        await memory.sync([*before, malformed])
    assert await history_of(memory) == "ab"


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("shown", ["notes", "previews", "joined notes"])
async def test_a_view_is_no_list_to_follow(shown: str, is_restarted: bool) -> None:
    """What stands behind its previews and notes would be deleted; `in_turn` joins notes with a message."""
    said = turns(10)
    if shown == "previews":
        said = [user("go"), *exchange("big", 60), *turns(2)]
    elif shown == "joined notes":
        said = [user("go") if n % 2 == 0 else assistant(text(f"so {n}", 16)) for n in range(30)]
    memory = new_memory(config(mode="compact" if shown == "previews" else "auto"))
    await memory.sync(said)
    view = to_openai(await memory.get_memory())
    assert view != said
    if is_restarted:
        memory.load_state_dict(json.loads(json.dumps(memory.state_dict())))
    with pytest.raises(InvalidArgumentError, match=r"messages\[\d+\]: stands in for earlier messages"):
        await memory.sync([*(in_turn(view) if shown == "joined notes" else view), user("on")])
    assert to_openai(await memory.get_history()) == said
