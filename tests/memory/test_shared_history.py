"""Two memories over one history and one store, as two processes have them: what one decides, both show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from context_compressor import CompressedMemory, FileOffloadStore, InMemoryOffloadStore, Msg, to_openai
from context_compressor.memory.history import Entry, Head, History, ListHistory
from context_compressor.tokens.counter import MessageTokens
from context_compressor.tokens.tiktoken import TiktokenCounter
from tests.memory.on_disk import FileHistory
from tests.memory.scripted import (
    FaultyStore,
    Noting,
    ScriptedHistory,
    assistant,
    call,
    config,
    exchange,
    filled,
    good_view,
    kind_of,
    new_memory,
    nothing_lost,
    result,
    system,
    text,
    turns,
    user,
)


@pytest.fixture(params=[ListHistory, FileHistory])
def history(request: pytest.FixtureRequest) -> History:
    made: History = request.param()
    return made


def two(history: History, store: Any = None, **fields: Any) -> tuple[CompressedMemory, CompressedMemory]:
    shared = InMemoryOffloadStore() if store is None else store
    one, other = (new_memory(config(**fields), base=history, store=shared) for _ in range(2))
    return one, other


async def same_view(*memories: CompressedMemory) -> list[Msg]:
    views = [await good_view(memory) for memory in memories]
    assert all(view == views[0] for view in views)
    return views[0]


async def test_what_one_adds_the_other_shows(history: History) -> None:
    one, other = two(history)
    await filled(one, [system("be brief"), user("hi")])
    await same_view(one, other)
    await filled(other, [assistant("hello")])
    assert [msg.content for msg in await same_view(one, other)] == ["be brief", "hi", "hello"]


async def test_a_placeholder_that_one_showed_stands_in_the_others_view(history: History) -> None:
    one, other = two(history)
    await filled(one, [user("look"), call("c1"), user("never mind")])
    shown = to_openai(await good_view(one))
    await filled(one, [result("c1", "too late")])  # before the other one ever looked
    view = to_openai(await same_view(other, one, new_memory(base=history)))
    assert view[: len(shown)] == shown


@pytest.mark.parametrize("number", range(1, 10))
async def test_what_comes_while_one_decides_is_shown_alike(history: History, number: int) -> None:
    slow = ScriptedHistory(history)
    one, other = new_memory(base=slow), new_memory(base=history)
    await filled(other, [user("look"), call("c1"), user("never mind")])
    faults = {number: filled(other, [result("c1", "just in time")])}
    slow.faults = faults
    first = to_openai(await good_view(one))
    if len(slow.calls) < number:
        await faults.pop(number)  # it is too late
    view = to_openai(await same_view(other, one))
    assert view[: len(first)] == first


async def test_a_summary_stands_for_both_where_it_stood_first(history: History) -> None:
    one, other = two(history)
    await filled(one, [system("be brief")])
    await one.update_compressed_summary("so far")
    await good_view(one)
    await filled(one, [system("be kind")])
    assert [msg.content for msg in await same_view(other, one)] == ["be brief", "so far", "be kind"]
    await other.update_compressed_summary("so far, and on")  # another one finds its own place
    await filled(one, [user("hi")])
    contents = [msg.content for msg in await same_view(one, other)]
    assert contents == ["be brief", "be kind", "so far, and on", "hi"]


async def test_both_show_the_summary_that_one_paid_for(history: History) -> None:
    summarizer = Noting(remote=False)
    memories = [
        new_memory(base=history, store=store, summarizer=summarizer)
        for store in [InMemoryOffloadStore()]
        for _ in range(2)
    ]
    said = turns(8)
    await filled(memories[0], said)
    view = await same_view(*memories)
    assert "notes" in [kind_of(msg) for msg in view]
    assert len(summarizer.requests) == 1
    for memory in memories:
        await nothing_lost(memory, said)


async def test_a_large_arrival_is_stubbed_once(history: History) -> None:
    one, other = two(history)
    await filled(one, [user("look"), *exchange("large", 100)])
    view = await good_view(one)
    assert "stub" in [kind_of(msg) for msg in view]
    assert await same_view(other, new_memory(base=history, store=one.store), one) == view


async def test_what_one_deletes_is_gone_for_the_other(history: History) -> None:
    one, other = two(history)
    added = await filled(one, turns(8))
    await same_view(one, other)
    gone = added[1:3]
    await other.delete([msg.id for msg in gone])
    view = await same_view(one, other)
    secret = text("result-t0", 9)
    assert secret not in str(view)
    assert one.store is other.store
    for ref in await one.store.refs():
        assert secret not in await one.store.read(ref)
    assert set(await one.store.refs()) == set(await one.reachable_refs()) == set(await other.reachable_refs())


async def test_what_one_pins_returns_to_both_views(history: History) -> None:
    one, other = two(history)
    added = await filled(one, turns(8))
    await same_view(one, other)
    await other.update_messages_mark("pinned", msg_ids=[added[0].id])
    assert added[0].id in [msg.id for msg in await same_view(one, other)]


async def test_what_the_store_refused_one_the_other_stores(history: History) -> None:
    def refuse(operation: str, _: int) -> None:
        if operation == "write" and is_full:
            raise OSError(28, "No space left on device")

    is_full = True
    one, other = two(history, FaultyStore(refuse))
    said = turns(8)
    await filled(one, said)
    await same_view(one, other)
    assert await one.store.refs() == []
    await nothing_lost(other, said)  # it is made from the history
    is_full = False
    more = turns(8, tag="more")
    await filled(other, more)
    await same_view(other, one)
    for memory in (one, other):
        assert memory._tracker.state.ledger.pending == set()
        await nothing_lost(memory, said + more)
    assert set(await one.reachable_refs()) <= set(await one.store.refs())


async def test_a_text_that_the_other_names_by_now_is_not_removed(history: History) -> None:
    one, other = two(history)
    await same_view(one, other)
    await filled(one, turns(8))
    await good_view(one)
    refs = await one.reachable_refs()
    other._tracker.state.ledger.give_up(refs)  # as after an event of its own that came to nothing
    await other._runner.tidy_up()
    assert set(refs) <= set(await one.store.refs())
    await same_view(other, one)
    await other.aclose()
    assert set(refs) <= set(await one.store.refs())
    assert other._tracker.state.ledger.unwanted == set()


async def test_a_text_that_the_other_names_while_it_is_removed_is_stored_again() -> None:
    alone = new_memory(config())
    await filled(alone, turns(8))
    await good_view(alone)
    refs, heads = await alone.reachable_refs(), list[int]()

    class Meddling(InMemoryOffloadStore):
        async def delete(self, ref: str) -> None:
            if not await one.reachable_refs():
                await filled(one, turns(8))
                await good_view(one)
            await super().delete(ref)

    class Asked(ListHistory):
        async def head(self) -> Head:
            heads.append(1)
            return await super().head()

    one, other = two(Asked(), Meddling())
    await same_view(other, one)
    other._tracker.state.ledger.give_up(refs)
    await other._runner.tidy_up()
    assert set(await one.reachable_refs()) == set(refs) > set(await one.store.refs())
    await same_view(other, one)
    await filled(other, turns(8, tag="more"))
    await same_view(other, one)
    assert set(await other.reachable_refs()) <= set(await one.store.refs())
    heads.clear()
    other._tracker.state.ledger.give_up([f"ctx://{number:016x}" for number in range(50)])
    await other._runner.tidy_up()
    assert len(heads) <= 2  # however many there are to remove


async def test_orphans_are_none_that_the_other_names(history: History) -> None:
    one, other = two(history)
    await filled(other, turns(8))
    await same_view(one, other)
    await filled(one, turns(8, tag="more"))
    await good_view(one)
    assert await other.remove_orphans() == []
    assert set(await one.reachable_refs()) == set(await one.store.refs())


async def test_who_begins_late_counts_what_it_shows() -> None:
    class Counting(TiktokenCounter):
        counted = 0

        def measure(self, msg: Msg) -> MessageTokens:
            self.counted += 1
            return super().measure(msg)

    history = ListHistory()
    one, _ = two(history)
    await filled(one, turns(30))
    view = await good_view(one)
    counter = Counting()
    late = CompressedMemory(history, config(), one.store, counter=counter)
    assert await late.get_memory() == view
    assert counter.counted <= 2 * len(view)
    assert late.stats().history_tokens == one.stats().history_tokens


class Counting(ListHistory):
    """A history that counts the messages that are read from it."""

    told = 0

    async def read(self, **filters: Any) -> list[Entry]:
        entries = await super().read(**filters)
        self.told += len(entries)
        return entries


async def test_whoever_follows_reads_what_is_new_and_shows_what_a_late_one_shows(tmp_path: Path) -> None:
    history = Counting()
    store = FileOffloadStore(tmp_path, namespace="shared")
    one, other = two(history, store)
    most, said = 0, list[Any]()
    for number in range(28):
        said += (new := turns(2, tag=f"{number}-"))
        await filled(one if number % 3 else other, new)
        await good_view(one)
        history.told = 0
        view = await good_view(other)
        most = max(most, history.told)
        if number % 4 == 3:  # with what was merged by then
            late = new_memory(config(), base=history, store=FileOffloadStore(tmp_path, namespace="shared"))
            assert await late.get_memory() == view
            ledgers = [memory._tracker.state.ledger for memory in (late, one, other)]
            assert all(ledger.edits() == ledgers[0].edits() for ledger in ledgers)
            assert all(sorted(ledger.refs()) == sorted(ledgers[0].refs()) for ledger in ledgers)
    assert len(other._tracker.state.ledger.segments()) > 1, "one part followed the other"
    assert most <= 24, "what it knows is not read again"
    assert other.stats().history_tokens == one.stats().history_tokens
    await nothing_lost(other, said)


async def test_what_changes_more_than_the_end_is_read_anew(history: History) -> None:
    one, other = two(history)
    for number in range(6):
        added = await filled(one, turns(4, tag=f"{number}-"))
        await same_view(one, other)
        if number % 2:
            await one.delete([added[0].id, added[5].id])
        else:
            await one.update_messages_mark("pinned", msg_ids=[added[1].id, added[2].id])
        await filled(one, [*turns(2, tag=f"{number}+"), call("waits"), user("never mind")])
        await good_view(one)
        await same_view(other, new_memory(base=history, store=one.store), one)


async def test_of_two_that_learn_at_once_what_the_last_one_learnt_is_kept(history: History) -> None:
    one, other = two(history)
    await filled(one, [user(text("q", 100))])
    await same_view(one, other)
    for memory, factor in ((one, 2), (other, 1)):
        memory.record_usage(memory.stats().view_tokens * factor)
    await filled(one, [assistant("hello")])
    await filled(other, [assistant("hi")])  # somebody wrote meanwhile: the message is kept all the same
    await other.aclose()
    opened = new_memory(base=history)
    assert len(await good_view(opened)) == 3
    assert opened.budget_tokens == other.budget_tokens > one.budget_tokens
    await good_view(one)
    assert one.budget_tokens == other.budget_tokens
