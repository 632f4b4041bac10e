"""Failure is ordinary: summarisers and stores that fail, hang or lie, cancellation, concurrency, hooks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from context_compressor import (
    CompressedMemory,
    CompressionEvent,
    FallbackSummarizer,
    InMemoryMemory,
    InMemoryOffloadStore,
    Msg,
    OpenAISummarizer,
    Summary,
    SummaryRequest,
    from_openai,
    to_openai,
)
from context_compressor.errors import (
    InvalidMessageError,
    InvalidStateError,
    OffloadCollisionError,
    OffloadError,
    OffloadFullError,
    OffloadNotFoundError,
    OffloadPermissionError,
    OffloadWriteError,
    SummarizerError,
    SummarizerTimeoutError,
)
from context_compressor.summarizers.chain import ExtractiveSummarizer
from context_compressor.summarizers.prompts import render_conversation, template
from tests.memory.scripted import (
    FaultyStore,
    Gated,
    GatedBase,
    Noting,
    assistant,
    call,
    config,
    covered_ids,
    everything,
    exchange,
    fail,
    filled,
    good_view,
    hang,
    kind_of,
    new_memory,
    nothing_lost,
    reached,
    result,
    text,
    turns,
    user,
    wire_text,
)
from tests.support.model_server import ModelServer, completion, status

LONG = turns(6)
"""Some 2,500 tokens: over the budget of 2,000."""


def seen(memory: CompressedMemory) -> tuple[str, Any]:
    """Return all that a failed call may not have changed."""
    state = memory.state_dict()
    stats = memory.stats()
    return json.dumps(state), (stats.view_tokens, stats.offloaded, stats.segments, stats.history_tokens)


# Adding and editing while a summary is written


async def test_a_state_loaded_while_the_base_is_read_is_what_the_next_view_shows() -> None:
    other = new_memory()
    await filled(other, [user("another conversation")])
    base = GatedBase()
    await base.add(from_openai(turns(1)))
    memory = new_memory(base=base)
    base.stops = {"get_memory"}
    reading = asyncio.create_task(memory.get_memory())
    await reached(base.reached, reading)
    memory.load_state_dict(other.state_dict())
    base.stops = set()
    base.gate.set()
    await reading
    assert to_openai(await memory.get_memory()) == [user("another conversation")]


async def test_asking_for_compression_while_a_message_is_deleted_still_compresses() -> None:
    summarizer = Gated()
    memory = new_memory(config(20_000), summarizer=summarizer)
    added = await filled(memory, LONG)
    await memory.get_memory()
    asking = asyncio.create_task(memory.compress_now())
    await reached(summarizer.asked, asking)
    await memory.delete([added[4].id])
    summarizer.gate.set()
    event = await asking
    assert event is not None
    assert memory.stats().segments == 1


async def test_what_is_deleted_by_mark_while_it_is_added_does_not_stay_in_the_view() -> None:
    base = GatedBase()
    memory = new_memory(base=base)
    await filled(memory, [user("before")])
    await memory.get_memory()
    base.stops = {"add"}
    adding = asyncio.create_task(memory.add(from_openai([user("a hint")]), marks="hint"))
    await reached(base.reached, adding)
    deleting = asyncio.create_task(memory.delete_by_mark("hint"))
    for _ in range(5):
        await asyncio.sleep(0)
    base.gate.set()
    await asyncio.gather(adding, deleting)
    expected = await memory.get_history()
    assert to_openai(await memory.get_memory()) == to_openai(expected)


# Cancellation


async def test_a_cancelled_summary_leaves_everything_as_it_was() -> None:
    summarizer = Gated()
    memory = new_memory(summarizer=summarizer)
    await filled(memory, LONG[:8])
    await memory.get_memory()
    await memory.add(from_openai(LONG[8:]))
    before = None
    reading = asyncio.create_task(memory.get_memory())
    await reached(summarizer.asked, reading)
    before = seen(memory)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    after = seen(memory)
    assert after[1] == before[1]
    assert json.loads(after[0])["compression"]["ledger"]["entries"] == []
    summarizer.gate.set()
    view = await nothing_lost(memory, LONG)
    named = await everything(memory, view)
    assert all(ref in named for ref in await memory.store.refs())


async def test_a_cancelled_write_that_went_through_is_removed_again() -> None:
    written = asyncio.Event()

    class SlowToAnswer(InMemoryOffloadStore):
        slow = True

        async def write(self, text: str) -> str:
            ref = await super().write(text)
            if self.slow:
                written.set()
                await hang()
            return ref

    store = SlowToAnswer()
    memory = new_memory(store=store)
    added = await filled(memory, LONG)
    reading = asyncio.create_task(memory.get_memory())
    await reached(written, reading)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    store.slow = False
    await memory.delete([msg.id for msg in added[:8]])  # so that the next event stores something else
    await filled(memory, turns(6, tag="u"))
    named = await everything(memory, await good_view(memory))
    assert [ref for ref in await store.refs() if ref not in named] == []


CALLS: dict[str, tuple[str, Callable[[CompressedMemory, str], Awaitable[Any]]]] = {
    "delete": ("get_memory", lambda memory, id: memory.delete([id])),
    "mark": ("get_memory", lambda memory, id: memory.update_messages_mark("pinned", msg_ids=[id])),
    "add": ("add", lambda memory, _: memory.add(from_openai([user("one more")]))),
}
"""Calls that change something, and the call of the base in which each is cancelled."""


@pytest.mark.parametrize("name", CALLS)
async def test_after_a_call_that_was_cancelled_half_way_the_view_is_of_what_the_base_holds(name: str) -> None:
    base = GatedBase()
    memory = new_memory(base=base)
    added = await filled(memory, LONG)
    first = covered_ids(await memory.get_memory())[0]
    stop, call = CALLS[name]
    base.stops = {stop}
    calling = asyncio.ensure_future(call(memory, first))
    await reached(base.reached, calling)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    base.stops = set()
    left = await memory.get_history()
    assert len(left) >= len(added) - 1
    view = await nothing_lost(memory, to_openai(left))
    told = {msg.id for msg in view if kind_of(msg) != "notes"}.union(covered_ids(view))
    assert told <= {msg.id for msg in left}
    pinned = await base.get_memory(mark="pinned")
    assert {msg.id for msg in pinned} <= {msg.id for msg in view}


async def test_a_deletion_that_fails_half_way_while_segments_are_merged_outdates_the_merge() -> None:
    class Failing(InMemoryMemory):
        fails = False

        async def delete(self, msg_ids: list[str], **kwargs: Any) -> int:
            deleted = await super().delete(msg_ids, **kwargs)
            if self.fails:
                self.fails = False
                raise OSError("the connection broke off")
            return deleted

    base, summarizer = Failing(), Gated()
    summarizer.gate.set()
    memory = new_memory(config(1_200, background_ratio=None), base=base, summarizer=summarizer)
    for number in range(3):
        await filled(memory, turns(2, tag=f"part{number}-"))
        await memory.get_memory()
        await memory.compress_now()
    covered = covered_ids(await memory.get_memory())
    summarizer.gate.clear()
    summarizer.asked.clear()
    await filled(memory, turns(2, tag="last"))
    reading = asyncio.create_task(memory.get_memory())
    await reached(summarizer.asked, reading)
    base.fails = True
    with pytest.raises(OSError, match="broke off"):
        await memory.delete([covered[2]])
    summarizer.gate.set()
    assert covered[2] not in covered_ids(await reading)
    await nothing_lost(memory, to_openai(await memory.get_history()))


# Summarisers


class Misbehaving:
    """A summariser that does one thing wrong at the calls named, all of them when none is."""

    remote = True

    def __init__(self, wrong: Callable[[SummaryRequest], Awaitable[Any]], at: int | None = None) -> None:
        self.wrong = wrong
        self.at = at
        self.calls = 0

    async def summarize(self, request: SummaryRequest) -> Summary:
        self.calls += 1
        if self.at is None or self.calls == self.at:
            return await self.wrong(request)  # type: ignore[no-any-return]
        return Summary(text=f"- Call {self.calls}: the work went on as planned.")


async def cancels_itself(request: SummaryRequest) -> Any:
    raise asyncio.CancelledError


def says(answer: Any) -> Callable[[SummaryRequest], Awaitable[Any]]:
    async def say(request: SummaryRequest) -> Any:
        return answer(request) if callable(answer) else answer

    return say


WRONG: dict[str, Callable[[SummaryRequest], Awaitable[Any]]] = {
    "raises": fail,
    "hangs": hang,
    "cancels itself": cancels_itself,
    "None": says(None),
    "a string": says("just a string"),
    "a Summary that holds no string": says(Summary(text=None)),  # type: ignore[arg-type]
    "a Summary that holds bytes": says(Summary(text=b"bytes")),  # type: ignore[arg-type]
    "empty": says(Summary(text="")),
    "blank": says(Summary(text=" \n\t")),
    "NONE": says(Summary(text="NONE")),
    "the template": says(Summary(text=template(chinese=False))),
    "an error text": says(Summary(text="Error: 429 too many requests")),
    "an apology": says(Summary(text="I'm sorry, but I cannot summarize this conversation.")),
    "reasoning only": says(Summary(text="<think>let me see</think>")),
    "the transcript": says(lambda request: Summary(text=render_conversation(request.messages))),
}


@pytest.mark.parametrize("name", WRONG)
async def test_a_summariser_that_misbehaves_costs_no_message(name: str) -> None:
    events: list[CompressionEvent] = []
    settings = config(summarizer_timeout_seconds=0.01)
    memory = new_memory(settings, summarizer=Misbehaving(WRONG[name]), on_event=events.append)
    await filled(memory, LONG)
    view = await nothing_lost(memory, LONG)
    assert any(kind_of(msg) == "notes" for msg in view)
    failures = [event for event in events if event.kind == "failure"]
    assert failures
    assert all(event.error for event in failures)
    assert name != "raises" or "ConnectionError: no route to model" in failures[0].error
    assert failures[0].tokens_before > failures[0].tokens_after
    assert events[-1].kind == "compress"


@pytest.mark.parametrize("ratio", [None, 0.5], ids=["in line", "in the background"])
async def test_who_was_passed_over_is_told_and_an_extract_is_not_counted_as_a_models(
    ratio: float | None,
) -> None:
    events: list[CompressionEvent] = []
    async with ModelServer() as server:
        server.script(status(401))
        model = OpenAISummarizer("small-model", base_url=server.url, api_key="wrong")
        chain = FallbackSummarizer(model, ExtractiveSummarizer())
        memory = new_memory(config(background_ratio=ratio), summarizer=chain, on_event=events.append)
        await filled(memory, LONG[:-4])
        await memory.get_memory()
        await asyncio.gather(*(task for task in asyncio.all_tasks() if task.get_name().startswith("prepare")))
        await memory.add(from_openai(LONG[-4:]))
        await memory.get_memory()
        assert server.requests
    failure, event = events
    assert (failure.kind, event.kind) == ("failure", "compress")
    assert "small-model: HTTP 401" in (failure.error or "")
    assert event.summary_input_tokens > 0
    stats = memory.stats()
    assert stats.summarizer_calls == 1
    assert (stats.summarizer_input_tokens, stats.summarizer_output_tokens) == (0, 0)


async def test_a_summary_that_is_too_long_is_cut_to_what_it_may_cost() -> None:
    """Its oldest lines leave."""
    ramble = says(Summary(text="\n".join(f"- Step {n} went on." for n in range(3_000))))
    memory = new_memory(summarizer=Misbehaving(ramble))
    await filled(memory, LONG)
    view = await nothing_lost(memory, LONG)
    assert "- Step 2999 (?) went on." in wire_text(view)
    assert "- Step 0 " not in wire_text(view)


@pytest.mark.parametrize("at", range(1, 7))
async def test_each_summary_in_turn_may_fail(at: int) -> None:
    summarizer = Misbehaving(fail, at=at)
    events: list[CompressionEvent] = []
    memory = new_memory(config(1_500), summarizer=summarizer, on_event=events.append)
    said: list[dict[str, Any]] = []
    for message in turns(16):
        said.append(message)
        await memory.add(from_openai([message]))
        await memory.get_memory()
    await nothing_lost(memory, said)
    assert summarizer.calls > at
    assert sum(event.kind == "failure" for event in events) == 1


@pytest.mark.parametrize(
    ("name", "error"),
    [("raises", SummarizerError), ("hangs", SummarizerTimeoutError), ("empty", SummarizerError)],
)
async def test_on_failure_raise_hands_out_the_summarisers_error_and_changes_nothing(
    name: str, error: type[Exception]
) -> None:
    settings = config(summarizer_timeout_seconds=0.01, on_failure="raise")
    summarizer = Misbehaving(WRONG[name], at=1)
    memory = new_memory(settings, summarizer=summarizer)
    await filled(memory, LONG)
    with pytest.raises(error):
        await memory.get_memory()
    assert memory.state_dict()["compression"]["ledger"]["entries"] == []
    assert to_openai(await memory.get_history()) == LONG
    await nothing_lost(memory, LONG)


# Stores

REFUSALS: dict[str, Callable[[], Any]] = {
    "OSError": lambda: OSError(28, "No space left on device"),
    "full": lambda: OffloadFullError("the disk is full"),
    "permission": lambda: OffloadPermissionError("may not write here"),
    "write": lambda: OffloadWriteError("could not be made durable"),
    "offload": lambda: OffloadError("something else"),
    "not found": lambda: OffloadNotFoundError("the directory is gone"),
    "wrong kind": lambda: TypeError("a bug in the store"),
    "collision": lambda: OffloadCollisionError("another text holds the ref"),
}


def refusing(error: Callable[[], Exception], at: int | None = None, operation: str = "write") -> Any:
    def fault(called: str, number: int) -> None:
        if called == operation and at in (None, number):
            raise error()

    return fault


def mixed() -> list[dict[str, Any]]:
    """Return a history that needs stubs and segments."""
    return [*turns(3), *exchange("big1", 80), *turns(3, tag="u"), *exchange("big2", 90), *turns(2, tag="v")]


NO_REF = "ctx://0000000000000000"
AT_WRITES: dict[str, tuple[Any, str]] = {
    **{name: (refusing(error), error().args[-1]) for name, error in REFUSALS.items()},
    "hangs": (lambda called, _: hang() if called == "write" else None, "within 0.01 s"),
    "answers with another ref": (lambda called, _: NO_REF if called == "write" else None, "ref"),
}
"""What a store may do at each write, and what the event says of it."""


@pytest.mark.parametrize("name", AT_WRITES)
async def test_a_store_that_takes_nothing_costs_no_message(name: str) -> None:
    events: list[CompressionEvent] = []
    fault, told = AT_WRITES[name]
    store = FaultyStore(fault)
    memory = new_memory(config(store_timeout_seconds=0.01), store=store, on_event=events.append)
    await filled(memory, mixed())
    view = await nothing_lost(memory, mixed())
    assert any(told in event.error for event in events if event.kind == "failure")
    assert NO_REF not in wire_text(view)
    assert store.texts() == {}
    assert store.calls["write"] > 0


@pytest.mark.parametrize("name", ["OSError", "collision"])
@pytest.mark.parametrize("at", range(1, 7))
async def test_each_write_in_turn_may_fail(name: str, at: int) -> None:
    store = FaultyStore(refusing(REFUSALS[name], at))
    events: list[CompressionEvent] = []
    memory = new_memory(store=store, on_event=events.append)
    said: list[dict[str, Any]] = []
    for message in mixed() + turns(4, tag="w"):
        said.append(message)
        await memory.add(from_openai([message]))
        await good_view(memory)
    await nothing_lost(memory, said)
    assert sum(event.kind == "failure" for event in events) == (store.calls["write"] >= at)
    await memory.compress_now()
    await memory.add(from_openai(turns(6, tag="x")))
    await memory.get_memory()
    assert memory.state_dict()["compression"]["ledger"]["pending"] == []


async def test_what_the_store_refused_is_written_at_the_next_event() -> None:
    store = FaultyStore(refusing(REFUSALS["OSError"]))
    memory = new_memory(store=store)
    said = mixed()
    await filled(memory, said)
    await memory.get_memory()
    assert memory.state_dict()["compression"]["ledger"]["pending"] != []
    store.fault = lambda operation, number: None
    await filled(memory, turns(6, tag="w"))
    view = await nothing_lost(memory, said + turns(6, tag="w"))
    assert memory.state_dict()["compression"]["ledger"]["pending"] == []
    for ref in await memory.reachable_refs():
        assert await store.read(ref) == await memory.read_ref(ref)
    assert any(kind_of(msg) == "notes" for msg in view)


@pytest.mark.parametrize(
    "refusal",
    [
        OffloadCollisionError("another text holds the ref"),
        OffloadFullError("the quota has no room for so long a text"),
    ],
    ids=["collision", "too long for the quota"],
)
async def test_a_text_that_stays_pending_does_not_keep_others_from_being_written(
    refusal: OffloadError,
) -> None:
    blocked = {"ref": ""}

    class Colliding(InMemoryOffloadStore):
        down = True

        async def write(self, text: str) -> str:
            if self.down:
                raise OSError(28, "No space left on device")
            if self.digest(text) == blocked["ref"]:
                raise refusal
            return await super().write(text)

        @staticmethod
        def digest(text: str) -> str:
            from context_compressor.offload.store import ref_of

            return ref_of(text)

    store = Colliding()
    memory = new_memory(store=store)
    await filled(memory, mixed())
    await memory.get_memory()
    pending = sorted(memory.state_dict()["compression"]["ledger"]["pending"])
    assert len(pending) > 1
    blocked["ref"] = pending[0]
    store.down = False
    await filled(memory, turns(6, tag="w"))
    await memory.get_memory()
    left = memory.state_dict()["compression"]["ledger"]["pending"]
    assert set(left) <= {pending[0]}


async def test_what_collided_is_compacted_once_the_message_says_something_else() -> None:
    class Colliding(InMemoryOffloadStore):
        async def write(self, text: str) -> str:
            if text.startswith("result-a:"):
                raise OffloadCollisionError("another text holds the ref")
            return await super().write(text)

    memory = new_memory(config(mode="compact", max_tool_message_tokens=300), store=Colliding())
    added = await filled(memory, [user("go"), call("a"), result("a", text("result-a", 60)), *turns(1)])
    assert kind_of((await memory.get_memory())[2]) is None
    state = memory.base.state_dict()
    state["content"][2][0]["content"][0]["output"] = text("result-b", 60)
    memory.base.load_state_dict(state)
    await memory.get_memory()
    await filled(memory, turns(2, tag="u"))
    assert added[2].id in [msg.id for msg in await memory.get_memory() if kind_of(msg) == "stub"]


async def test_a_text_deleted_while_its_write_is_tried_again_does_not_stay_stored() -> None:
    gate, trying = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        trying.set()
        await gate.wait()

    store = FaultyStore(refusing(REFUSALS["OSError"]))
    memory = new_memory(store=store)
    added = await filled(memory, [user("go"), *exchange("secret", 60), *turns(2)])
    await memory.get_memory()
    assert memory.stats().offloaded == 1
    store.fault = lambda operation, number: wait() if operation == "write" else None
    await filled(memory, turns(3, tag="u"))
    reading = asyncio.create_task(memory.get_memory())
    await reached(trying, reading)
    deleting = asyncio.create_task(memory.delete([added[1].id, added[2].id]))
    for _ in range(5):
        await asyncio.sleep(0)
    store.fault = lambda operation, number: None
    gate.set()
    await asyncio.gather(reading, deleting)
    await filled(memory, turns(3, tag="w"))
    await memory.get_memory()
    assert not any("result-secret:" in stored for stored in store.texts().values())


async def test_a_timed_out_write_that_went_through_is_removed_with_its_message() -> None:
    class SlowToAnswer(InMemoryOffloadStore):
        async def write(self, text: str) -> str:
            await super().write(text)
            await hang()
            raise AssertionError

    store = SlowToAnswer()
    memory = new_memory(config(store_timeout_seconds=0.01), store=store)
    added = await filled(memory, [user("go"), *exchange("secret", 60), *turns(2)])
    await memory.get_memory()
    await memory.delete([added[1].id, added[2].id])
    await memory.get_memory()
    assert not any("result-secret:" in stored for stored in store.texts().values())


async def test_a_text_stored_once_and_refused_once_is_removed_with_its_messages() -> None:
    store = FaultyStore(refusing(REFUSALS["OSError"], at=2))
    memory = new_memory(store=store)
    body = text("same", 60)
    first = await filled(memory, [user("go"), call("a"), result("a", body)])
    await memory.get_memory()
    second = await filled(memory, [assistant("again"), call("b"), result("b", body)])
    view = await memory.get_memory()
    assert sum(kind_of(msg) == "stub" for msg in view) == 2
    await memory.delete([msg.id for msg in first[1:] + second])
    await memory.get_memory()
    assert store.texts() == {}


@pytest.mark.parametrize(
    ("fault", "error"),
    [(REFUSALS["OSError"], OffloadWriteError), (REFUSALS["full"], OffloadFullError)],
)
async def test_on_failure_raise_hands_out_the_stores_error_and_changes_nothing(
    fault: Callable[[], Exception], error: type[Exception]
) -> None:
    store = FaultyStore(refusing(fault, at=1))
    memory = new_memory(config(on_failure="raise"), store=store)
    await filled(memory, mixed())
    with pytest.raises(error):
        await memory.get_memory()
    assert memory.state_dict()["compression"]["ledger"]["entries"] == []
    view = await nothing_lost(memory, mixed())
    named = await everything(memory, view)
    assert all(ref in named for ref in await store.refs())


async def test_a_store_that_cannot_be_read_is_made_up_for_by_the_history() -> None:
    for fault in (
        refusing(REFUSALS["OSError"], operation="read"),
        lambda op, n: hang() if op == "read" else None,
    ):
        memory = new_memory(config(store_timeout_seconds=0.01), store=FaultyStore(fault))
        await filled(memory, mixed())
        await nothing_lost(memory, mixed())


@pytest.mark.parametrize("is_resumed", [False, True])
async def test_a_failed_removal_is_tried_again_at_the_next_event(is_resumed: bool) -> None:
    store = FaultyStore(refusing(REFUSALS["OSError"], at=1, operation="delete"))
    memory = new_memory(store=store)
    added = await filled(memory, [user("go"), *exchange("secret", 60), *turns(2)])
    await memory.get_memory()
    assert await memory.delete([added[1].id, added[2].id]) == 2
    if is_resumed:
        state, memory = json.loads(json.dumps(memory.state_dict())), new_memory(store=store)
        memory.load_state_dict(state)
    await filled(memory, turns(6, tag="u"))
    await memory.get_memory()
    assert store.calls["delete"] > 1
    assert not any("result-secret:" in stored for stored in store.texts().values())


async def test_removals_that_fail_are_told_in_one_line_each_time(caplog: pytest.LogCaptureFixture) -> None:
    """A disk may be read-only for long, and every turn tries again to remove all that is unwanted."""
    memory = new_memory(store=FaultyStore(refusing(REFUSALS["OSError"], operation="delete")))
    added = await filled(memory, [user("go"), *exchange("one", 60), *exchange("two", 60), *turns(2)])
    await memory.get_memory()
    await memory.delete([msg.id for msg in added[1:5]])
    assert [record.getMessage().partition(",")[0] for record in caplog.records] == ["texts not removed"]
    assert "tried again: 2, the last for: OSError(" in caplog.text


async def test_a_removal_that_comes_late_is_made_up_for_at_the_next_event() -> None:
    """A store that was asked in vain may remove the text all the same, when it is named again."""
    late: list[str] = []

    class Late(InMemoryOffloadStore):
        async def delete(self, ref: str) -> None:
            late.append(ref)
            raise ConnectionError("no answer")

    store = Late()
    memory = new_memory(store=store)
    added = await filled(memory, [user("go"), *exchange("same", 60), *turns(2)])
    await memory.get_memory()
    await memory.delete([added[1].id, added[2].id])
    await filled(memory, exchange("same", 60))
    await good_view(memory)
    [ref] = set(late) & set(await memory.reachable_refs())
    await InMemoryOffloadStore.delete(store, ref)
    await filled(memory, turns(6, tag="u"))
    await good_view(memory)
    assert ref in await memory.reachable_refs()
    assert "result-same:" in await store.read(ref)


# Hooks


async def test_a_hook_that_raises_is_contained(caplog: pytest.LogCaptureFixture) -> None:
    delivered: list[str] = []

    def hook(event: CompressionEvent) -> None:
        delivered.append(event.kind)
        raise RuntimeError("a bug in the hook")

    async def async_hook(event: CompressionEvent) -> None:
        hook(event)

    for on_event in (hook, async_hook):
        delivered.clear()
        memory = new_memory(on_event=on_event)
        await filled(memory, LONG)
        await nothing_lost(memory, LONG)
        assert delivered == ["compress"]
    logged = [record.getMessage() for record in caplog.records]
    assert logged == ["on_event failed for an event of kind compress"] * 2


async def test_a_hook_that_waits_for_something_cancelled_cancels_nobody_else() -> None:
    waited_for: list[asyncio.Future[None]] = []

    async def hook(event: CompressionEvent) -> None:
        waited_for.append(asyncio.get_running_loop().create_future())
        waited_for[-1].cancel()
        await waited_for[-1]

    memory = new_memory(on_event=hook)
    await filled(memory, LONG)
    await nothing_lost(memory, LONG)
    assert len(waited_for) == 1


async def test_a_caller_that_is_cancelled_in_a_hook_is_cancelled() -> None:
    in_hook = asyncio.Event()

    async def hook(event: CompressionEvent) -> None:
        in_hook.set()
        await asyncio.get_running_loop().create_future()

    memory = new_memory(on_event=hook)
    await filled(memory, LONG)
    reading = asyncio.create_task(memory.get_memory())
    await reached(in_hook, reading)
    reading.cancel()
    await asyncio.wait({reading})
    assert reading.cancelled()


async def test_a_caller_that_is_cancelled_while_texts_are_removed_is_told_what_happened() -> None:
    removing, gate = asyncio.Event(), asyncio.Event()

    async def remove(operation: str) -> None:
        if operation == "delete":
            removing.set()
            await gate.wait()

    seen: list[CompressionEvent] = []
    memory = new_memory(store=FaultyStore(lambda operation, _: remove(operation)), on_event=seen.append)
    added = await filled(memory, turns(8))
    await memory.get_memory()
    deleting = asyncio.create_task(memory.delete([added[3].id]))  # its summary goes with it
    await reached(removing, deleting)
    deleting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await deleting
    assert [event.kind for event in seen] == ["compress", "edit"]
    assert memory.stats().events == 2


async def test_events_are_delivered_before_the_call_that_caused_them_returns() -> None:
    delivered: list[str] = []

    async def hook(event: CompressionEvent) -> None:
        await asyncio.sleep(0)
        delivered.append(event.kind)

    memory = new_memory(on_event=hook)
    added = await filled(memory, LONG)
    await memory.get_memory()
    assert delivered == ["compress"]
    await memory.delete([added[0].id])
    assert delivered == ["compress", "edit"]
    await filled(memory, LONG)
    delivered.clear()
    assert await memory.compress_now() is not None
    assert delivered == ["compress"]
    assert memory.stats().events == 3


async def test_a_hook_may_use_the_memory() -> None:
    seen_tokens: list[int] = []
    memory: CompressedMemory

    async def hook(event: CompressionEvent) -> None:
        view = await memory.get_memory()
        assert view
        seen_tokens.append(memory.stats().view_tokens)
        await memory.read_ref(event.refs[0])

    memory = new_memory(on_event=hook)
    await filled(memory, LONG)
    await good_view(memory)
    assert seen_tokens == [memory.stats().view_tokens]


async def test_a_hook_may_add_messages() -> None:
    memory: CompressedMemory

    async def hook(event: CompressionEvent) -> None:
        await memory.add(from_openai([user(f"the memory was compressed to {event.tokens_after} tokens")]))

    memory = new_memory(on_event=hook)
    await filled(memory, LONG)
    await memory.get_memory()
    view = await good_view(memory)
    assert "the memory was compressed" in wire_text(view[-1:])


# Loops and real clients


def test_one_memory_serves_one_event_loop_after_another() -> None:
    summarizer = Gated()
    memory = new_memory(summarizer=summarizer)

    async def use(tag: str) -> None:
        summarizer.asked, summarizer.gate = asyncio.Event(), asyncio.Event()
        await filled(memory, turns(6, tag=tag))
        # Two at once, so that one has to wait: that is when a lock remembers its loop.
        readers = [asyncio.create_task(memory.get_memory()) for _ in range(2)]
        await reached(summarizer.asked, *readers)
        for _ in range(5):
            await asyncio.sleep(0)
        summarizer.gate.set()
        await asyncio.gather(*readers)
        await good_view(memory)

    asyncio.run(use("a"))
    asyncio.run(use("b"))


async def test_a_model_behind_the_real_sdk_writes_the_summary() -> None:
    async with ModelServer() as server:
        server.script(completion("## Goal\n- Port the parser to the new grammar.", usage=(321, 12)))
        summarizer = OpenAISummarizer("scripted", base_url=server.url, api_key="test-key-1234")
        events: list[CompressionEvent] = []
        async with new_memory(summarizer=summarizer, on_event=events.append) as memory:
            await filled(memory, LONG)
            view = await nothing_lost(memory, LONG)
            assert "Port the parser to the new grammar." in wire_text(view)
            assert "ask-t1:" in server.requests[0].json["messages"][-1]["content"]
            stats = memory.stats()
            assert stats.summarizer_calls == len(server.requests) == 1
            assert (stats.summarizer_input_tokens, stats.summarizer_output_tokens) == (321, 12)
            assert (events[0].summary_input_tokens, events[0].summary_output_tokens) == (321, 12)


async def test_a_model_server_that_fails_is_made_up_for_without_a_model() -> None:
    async with ModelServer() as server:
        server.script(status(500, "out of order"))
        summarizer = OpenAISummarizer("scripted", base_url=server.url, api_key="test-key-1234", max_retries=0)
        events: list[CompressionEvent] = []
        async with new_memory(summarizer=summarizer, on_event=events.append) as memory:
            await filled(memory, LONG)
            await nothing_lost(memory, LONG)
    assert [event.kind for event in events] == ["failure", "compress"]
    assert "HTTP 500" in (events[0].error or "")
    assert memory.stats().summarizer_calls == 1


async def test_a_malformed_state_changes_nothing() -> None:
    summarizer = Noting()
    memory = new_memory(summarizer=summarizer)
    await filled(memory, LONG)
    before = to_openai(await memory.get_memory())
    good = json.loads(json.dumps(memory.state_dict()))
    states = [
        {**good, "compression": 5},
        {**good, "compression": {**good["compression"], "version": 99}},
        {**good, "compression": {**good["compression"], "tokens": [1]}},
        {**good, "compression": {**good["compression"], "withheld": [1]}},
        {**good, "compression": {**good["compression"], "ledger": None}},
        {**good, "content": [5]},
        {**good, "compression": {**good["compression"], "ledger": {"version": 1}}},
    ]
    for state in states:
        with pytest.raises(InvalidStateError):
            memory.load_state_dict(state)
        assert to_openai(await memory.get_memory()) == before
    assert len(summarizer.requests) == 1


@pytest.mark.parametrize("depth", [151, 490, 5_000])
async def test_arguments_nested_too_deep_are_refused_before_they_are_in_the_history(depth: int) -> None:
    """A model can write them; once added, no view could be made any more."""
    memory = new_memory()
    await filled(memory, LONG)
    before = to_openai(await memory.get_memory())
    nested: Any = "x" * 400
    for _ in range(depth):
        nested = [nested]
    block = {"type": "tool_use", "id": "deep", "name": "f", "input": {"value": nested}}
    with pytest.raises(InvalidMessageError, match="150 deep"):
        await memory.add(Msg("agent", [block], "assistant"))
    assert to_openai(await memory.get_memory()) == before
    await nothing_lost(memory, LONG)
