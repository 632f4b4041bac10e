"""Searching the history: what left the view is found, told with its place, and gone when it is deleted."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import sqlite3
import threading
import weakref
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from context_compressor import (
    CompressedMemory,
    CompressionConfig,
    FileOffloadStore,
    InMemoryMemory,
    Msg,
    OffloadTools,
    TiktokenCounter,
    from_openai,
)
from context_compressor.errors import InvalidArgumentError, OffloadError
from context_compressor.memory.history import Entry, ListHistory
from context_compressor.offload.directory import Usage
from context_compressor.offload.folders import INDEX_FILE
from context_compressor.offload.store import ref_of
from context_compressor.search import Found
from context_compressor.search.hits import Document, Hit
from context_compressor.search.index import ReadTexts, SearchIndex
from context_compressor.tools.tools import SEARCH_TOKENS
from tests.memory.scripted import call, result, user

COUNTER = TiktokenCounter()
LOG = "\n".join(f"2026-03-{day:02} job_{day} finished in {day * 7} ms" for day in range(1, 29))


def turn(number: int, text: str | None = None) -> list[Msg]:
    """Return an exchange that reads a file."""
    arguments = f'{{"path": "src/part_{number}.py"}}'
    said = f"def handler_{number}(request):\n" + "    total += weight(request)\n" * 20
    return from_openai([call(f"c{number}", arguments=arguments), result(f"c{number}", text or said)])


def user_part(part: dict[str, Any]) -> dict[str, Any]:
    """Return what a user says with one content part."""
    return {"role": "user", "content": [part]}


def memory_of(budget: int = 3_000, **kinds: Any) -> CompressedMemory:
    config = CompressionConfig(max_total_tokens=budget, keep_recent_count=4, **kinds.pop("settings", {}))
    return CompressedMemory(config=config, counter=COUNTER, **kinds)


async def play(memory: CompressedMemory, turns: int = 30) -> CompressedMemory:
    """Let a session go by: a fact early on, a log, then a lot of code."""
    await memory.add(from_openai([user("The staging database is db-stage-7; tidy up the handlers.")]))
    await memory.add(turn(900, LOG))
    for number in range(turns):
        await memory.add(turn(number))
        await memory.get_memory()
    return memory


async def first(memory: CompressedMemory, query: str) -> Hit:
    hits = await memory.search_history(query)
    assert hits
    return hits[0]


async def lines_of(memory: CompressedMemory, hit: Hit) -> str:
    """Return the lines that a hit names, as they are read back."""
    begin, end = hit.lines
    return "\n".join((await memory.read_ref(hit.ref)).split("\n")[begin - 1 : end])


def terms_in(path: Path) -> set[str]:
    """Return the terms of the index in a store's directory, none where there is no file."""
    file = path / "default" / INDEX_FILE
    if not file.exists():
        return set()
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE VIRTUAL TABLE temp.words USING fts5vocab(main, terms, row)")
        return {term for (term,) in connection.execute("SELECT term FROM temp.words")}


async def test_what_left_the_view_is_found_by_name_part_and_question() -> None:
    memory = await play(memory_of())
    assert "handler_3" not in str([msg.content for msg in (await memory.get_memory())[-4:]])
    for query in ("handler_3", "src/part_3.py", "part_3"):
        hit = await first(memory, query)
        assert "_3" in hit.text
        assert not hit.in_view
        assert hit.ref is not None
    hit = await first(memory, "when did job_17 finish?")
    assert "job_17 finished in 119 ms" in hit.text
    assert (hit.role, hit.tool) == ("tool", "read_file")


async def test_a_hit_names_its_message_and_the_lines_to_read() -> None:
    memory = await play(memory_of())
    history = await memory.get_history()
    hit = await first(memory, "handler_5")
    assert hit.message_ids == (next(m.id for m in history if "handler_5" in str(m.content)),)
    position = next(n for n, m in enumerate(history) if m.id == hit.message_ids[0])
    assert hit.messages_ago == len(history) - 1 - position
    assert (await lines_of(memory, hit)).strip() == hit.text.strip()


async def test_what_stands_in_the_view_is_so_marked() -> None:
    memory = await play(memory_of())
    newest = await first(memory, "handler_29")
    assert newest.in_view
    assert newest.messages_ago == 0
    hit = await first(memory, "staging database")
    assert hit.in_view
    assert hit.ref is None


async def test_a_text_behind_a_stub_is_found_there() -> None:
    memory = memory_of()
    large = "\n".join(f"row {number}: value_{number * 31}" for number in range(600))
    await memory.add(turn(1, large))
    await memory.get_memory()
    hit = await first(memory, "value_9300")
    assert hit.ref == ref_of(large)
    first_line, last_line = hit.lines
    assert first_line <= 301 <= last_line
    assert not hit.in_view


async def test_in_a_long_line_a_hit_names_the_column_to_read_from() -> None:
    memory = memory_of(8_000)
    await memory.add(
        turn(1, json.dumps([{"row": number, "value": f"value_{number * 31}"} for number in range(600)]))
    )
    await memory.get_memory()
    hit = await first(memory, "value_9300")
    assert hit.ref is not None
    assert hit.lines == (1, 1)
    assert f"line 1 column {hit.column}, " in await ask(memory, "search_history", query="value_9300")
    shown = await ask(memory, "read_offloaded", ref=hit.ref, offset=1, column=hit.column)
    assert "value_9300" in shown


async def test_arguments_that_were_written_in_ascii_are_found_at_their_place() -> None:
    memory = memory_of()
    await memory.add(
        from_openai([call("c", arguments=json.dumps({"path": "a.py", "name": "李雪梅"})), result("c", "ok")])
    )
    await play(memory)
    hit = await first(memory, "李雪梅")
    line = await lines_of(memory, hit)
    assert json.loads(f'"{line[hit.column - 1 :].partition(chr(34))[0]}"') == "李雪梅"


@pytest.mark.parametrize(
    ("said", "query"),
    [
        ({"role": "assistant", "content": None, "refusal": "I will not name the quagga."}, "quagga"),
        ({"role": "assistant", "content": None, "audio": {"id": "a", "transcript": "a quagga"}}, "quagga"),
        (
            user_part({"type": "file", "file": {"filename": "q3.pdf", "file_data": "data:x;base64,AA"}}),
            "q3.pdf",
        ),
        (user_part({"type": "image_url", "image_url": {"url": "https://x.example/cat_7.png"}}), "cat_7.png"),
    ],
)
async def test_what_is_said_in_other_blocks_is_found(said: dict[str, Any], query: str) -> None:
    """Refusals, spoken answers, and the names of files and addresses of images."""
    memory = memory_of()
    await memory.add(from_openai([user("The first request stays in view."), said]))
    await play(memory)
    hit = await first(memory, query)
    assert query in hit.text
    assert query in await lines_of(memory, hit)


async def test_the_latest_source_of_a_name_comes_first() -> None:
    memory = memory_of()
    for number, state in enumerate(("open", "paid", "closed")):
        await memory.add(turn(number, f"ticket TCK-4411 is {state} now\n" + "nothing else here\n" * 30))
    assert "closed" in (await first(memory, "TCK-4411")).text


@pytest.mark.parametrize("prefix", ["", "mcp__memory__", "memory_"])
async def test_what_the_tools_brought_back_is_not_found_twice(prefix: str) -> None:
    memory = await play(memory_of())
    tools = OffloadTools(memory)
    answer = await tools.call("search_history", {"query": "handler_5"})
    assert "handler_5" in answer
    before = [hit.message_ids for hit in await memory.search_history("handler_5", limit=20)]
    await memory.add(
        from_openai(
            [
                call("s1", name=f"{prefix}search_history", arguments='{"query": "handler_5"}'),
                result("s1", answer),
            ]
        )
    )
    assert [hit.message_ids for hit in await memory.search_history("handler_5", limit=20)] == before


async def test_what_a_tool_of_a_like_name_answers_is_found() -> None:
    memory = memory_of()
    await memory.add(
        from_openai([call("b1", name="browser_search_history"), result("b1", "visited zebra.example twice")])
    )
    assert (await first(memory, "zebra.example")).tool == "browser_search_history"


async def test_redacted_words_are_not_found() -> None:
    memory = await play(memory_of(settings={"redact": lambda text: text.replace("db-stage-7", "[host]")}))
    assert all("db-stage-7" not in hit.text for hit in await memory.search_history("db-stage-7"))
    assert "[host]" in (await first(memory, "staging database host")).text


@pytest.mark.parametrize("on_disk", [False, True])
async def test_deleted_messages_leave_the_index_at_once(on_disk: bool, tmp_path: Path) -> None:
    memory = await play(memory_of(store=FileOffloadStore(tmp_path) if on_disk else None))
    await memory.add(from_openai([user("the quagga sleeps")]))
    hit = await first(memory, "quagga")
    assert not on_disk or "quagga" in terms_in(tmp_path)
    await memory.delete(list(hit.message_ids))
    assert all("quagga" not in hit.text for hit in await memory.search_history("quagga"))
    if on_disk:
        assert "quagga" not in terms_in(tmp_path)
    await memory.clear()
    assert await memory.search_history("handler_3") == []


async def test_changes_behind_its_back_are_seen() -> None:
    base = InMemoryMemory()
    memory = await play(memory_of(base=base))
    hit = await first(memory, "job_17")
    await base.delete(list(hit.message_ids))
    assert all("job_17" not in hit.text for hit in await memory.search_history("job_17"))
    await base.add(from_openai([user("job_17 was started anew by hand")]))
    assert "by hand" in (await first(memory, "job_17")).text


async def test_a_base_without_a_revision_that_is_changed_in_place() -> None:
    class Unnumbered(InMemoryMemory):
        async def get_memory(self, *args: Any, **kwargs: Any) -> list[Msg]:
            return await super().get_memory(*args, **kwargs)

        def revision(self) -> int | None:
            return None

    base = Unnumbered()
    memory = await play(memory_of(base=base))
    await first(memory, "staging database")
    entry = base.history.entries()[0]
    entry.msg.content = "The archive server is arch-9; tidy up the handlers."
    assert "arch-9" in (await first(memory, "arch-9")).text
    assert all(
        "db-stage-7" not in hit.text for hit in await memory.search_history("staging database db-stage-7")
    )


async def test_a_resumed_memory_finds_the_same_and_a_lost_index_is_made_anew(tmp_path: Path) -> None:
    memory = await play(memory_of(store=FileOffloadStore(tmp_path)))
    queries = ("handler_3", "job_17 finished", "staging database", "weight of a request")
    found = [await memory.search_history(query) for query in queries]
    state = memory.state_dict()
    await memory.aclose()
    index = tmp_path / "default" / INDEX_FILE
    assert index.stat().st_mode & 0o777 == 0o600
    for damage in (lambda: None, index.unlink, lambda: index.write_bytes(b"no index" * 999)):
        damage()
        other = memory_of(store=FileOffloadStore(tmp_path))
        other.load_state_dict(state)
        assert [await other.search_history(query) for query in queries] == found
        await other.aclose()


async def test_two_memories_over_one_index_each_find_their_own(tmp_path: Path) -> None:
    one = await play(memory_of(store=FileOffloadStore(tmp_path)))
    other = memory_of(store=FileOffloadStore(tmp_path))
    other.load_state_dict(one.state_dict())
    await one.add(from_openai([user("only one knows of bluebird-1")]))
    await other.add(from_openai([user("only the other knows of redbird-2")]))
    for _ in range(2):
        assert "bluebird-1" in (await first(one, "bluebird-1")).text
        assert all("redbird-2" not in hit.text for hit in await one.search_history("redbird-2"))
        assert "redbird-2" in (await first(other, "redbird-2")).text
        assert "handler_3" in (await first(other, "handler_3")).text


async def test_searches_and_additions_at_the_same_time() -> None:
    memory = await play(memory_of())

    async def search(number: int) -> list[Hit]:
        return await memory.search_history(f"handler_{number}")

    found, *_ = await asyncio.gather(
        asyncio.gather(*(search(number) for number in range(8))),
        memory.add(turn(77)),
        memory.get_memory(),
    )
    assert all(f"handler_{number}" in hits[0].text for number, hits in enumerate(found))
    assert "handler_77" in (await first(memory, "handler_77")).text


async def test_long_arguments_are_found_too() -> None:
    memory = memory_of()
    code = "\\n".join(f"assert check_{n}(value) == {n * 17}" for n in range(200))
    await memory.add(
        from_openai([call("w", name="write_file", arguments=f'{{"text": "{code}"}}'), result("w", "ok")])
    )
    await play(memory)
    hit = await first(memory, "check_150")
    assert (hit.role, hit.tool) == ("assistant", "write_file")
    assert hit.ref is not None


@pytest.mark.parametrize(
    "query", ["", "   ", "?!*()\"'", "AND OR NOT", 'a" OR "b', "x" * 5_000, "\ud800", "NEAR(a b)"]
)
async def test_any_text_is_a_query(query: str) -> None:
    memory = await play(memory_of(), turns=2)
    assert isinstance(await memory.search_history(query), list)


@pytest.mark.parametrize(("query", "limit"), [(5, 5), (None, 5), ("a", 0), ("a", True), ("a", "5")])
async def test_wrong_arguments_are_refused_by_name(query: Any, limit: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"query|limit"):
        await memory_of().search_history(query, limit)


async def test_an_empty_history_has_no_answer() -> None:
    assert await memory_of().search_history("anything") == []


# The tools


async def ask(memory: CompressedMemory, tool: str, **arguments: Any) -> str:
    return await OffloadTools(memory).call(tool, arguments)


async def test_the_tool_answers_in_few_tokens_and_names_the_place_to_read_on() -> None:
    memory = await play(memory_of(8_000), turns=90)
    answer = await ask(memory, "search_history", query="job_17")
    assert "job_17 finished in 119 ms" in answer
    assert COUNTER.count_text(answer) <= SEARCH_TOKENS
    hit = await first(memory, "job_17")
    assert hit.ref is not None
    assert answer.startswith(f"[{hit.ref} line ")
    assert f"result of read_file, {hit.messages_ago} messages ago]" in answer
    page = await ask(memory, "read_offloaded", ref=hit.ref, offset=hit.lines[0], limit=30)
    assert "job_17 finished in 119 ms" in page
    more = await ask(memory, "search_history", query="handler total weight", limit=20)
    assert COUNTER.count_text(answer) < COUNTER.count_text(more) <= 8_000 // 8


async def test_the_tool_says_what_is_in_view_and_when_there_is_nothing() -> None:
    memory = await play(memory_of())
    assert (await ask(memory, "search_history", query="handler_29")).startswith("[in view, ")
    assert "Nothing in this conversation answers" in await ask(memory, "search_history", query="qqzzyyxx")
    assert "query must be a string" in await ask(memory, "search_history", query="  ")
    assert "needs the argument query" in await ask(memory, "search_history")
    assert "has no argument" in await ask(memory, "search_history", query="x", ref="ctx://0")


async def test_the_agent_can_ask_for_compression_with_a_note() -> None:
    memory = memory_of(20_000)
    await play(memory)
    before = memory.stats().view_tokens
    answer = await ask(memory, "compress_context", keep="the password of job_17 stands in part_4")
    now = memory.stats().view_tokens
    assert answer == f"Compressed from {before} to {now} tokens. The note was kept."
    shown = str([msg.content for msg in await memory.get_memory()])
    assert "- the password of job_17 stands in part_4" in shown
    assert "Nothing to compress" in await ask(memory, "compress_context")
    assert "keep must be a string" in await ask(memory, "compress_context", keep=5)


async def test_stats_are_one_line_for_people() -> None:
    memory = await play(memory_of())
    stats = memory.stats()
    assert str(stats).startswith(f"{stats.view_tokens:,} / 3,000 tokens, notes of {stats.noted} message")
    assert f"{stats.offloaded} text" in str(stats)
    assert stats.budget_tokens == 3_000
    before, grown = stats.events, 0
    while memory.stats().events == before:
        left = memory.stats().tokens_to_event
        await memory.add(from_openai([user("word " * 50)]))
        await memory.get_memory()
        grown += 1
    assert left <= 300
    assert grown < 60


def test_an_empty_memory_says_so() -> None:
    line = str(memory_of().stats())
    assert (
        line == "0 / 3,000 tokens, notes of 0 messages, 0 texts offloaded, next event in about 3,000 tokens"
    )


async def test_without_full_text_search_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise sqlite3.OperationalError("no such module: fts5")

    monkeypatch.setattr("context_compressor.search.index.SearchIndex.search", fail)
    memory = await play(memory_of(), turns=1)
    with pytest.raises(OffloadError, match="FTS5"):
        await memory.search_history("handler_0")
    assert "Not searched: " in await ask(memory, "search_history", query="handler_0")


async def test_clearing_drops_the_index_of_another_process_too(tmp_path: Path) -> None:
    memory = await play(memory_of(store=FileOffloadStore(tmp_path)), turns=3)
    await memory.add(from_openai([user("the quagga sleeps")]))
    await first(memory, "quagga")
    state = memory.state_dict()
    await memory.aclose()
    again = memory_of(store=FileOffloadStore(tmp_path))
    again.load_state_dict(state)
    assert "quagga" in terms_in(tmp_path)
    await again.clear()
    assert "quagga" not in terms_in(tmp_path)


async def test_the_index_that_a_search_wrote_counts_towards_the_quota(tmp_path: Path) -> None:
    memory = await play(memory_of(store=FileOffloadStore(tmp_path, max_bytes=10_000_000)))
    before = Usage(tmp_path).used()
    await first(memory, "handler_0")
    after = Usage(tmp_path).used()
    assert after - before == (tmp_path / "default" / INDEX_FILE).stat().st_size


async def test_what_was_deleted_behind_its_back_leaves_the_index_with_the_next_call(tmp_path: Path) -> None:
    base = InMemoryMemory()
    memory = await play(memory_of(base=base, store=FileOffloadStore(tmp_path)), turns=3)
    await memory.add(from_openai([user("the quagga sleeps")]))
    hit = await first(memory, "quagga")
    await base.delete(list(hit.message_ids))
    await memory.get_memory()
    assert "quagga" not in terms_in(tmp_path)


@pytest.mark.parametrize("with_state", [True, False])
async def test_what_was_deleted_as_the_process_died_leaves_the_index_with_the_next_one(
    tmp_path: Path, with_state: bool
) -> None:
    """The base memory had deleted it already; nobody searches any more."""
    base = InMemoryMemory()
    memory = await play(memory_of(base=base, store=FileOffloadStore(tmp_path)), turns=3)
    await memory.add(from_openai([user("the quagga sleeps")]))
    hit = await first(memory, "quagga")
    saved = memory.state_dict()["compression"]
    await base.delete(list(hit.message_ids))
    again = memory_of(base=base, store=FileOffloadStore(tmp_path))
    if with_state:
        again.load_state_dict({**base.state_dict(), "compression": saved})
    assert "quagga" in terms_in(tmp_path)
    await again.get_memory()
    assert "quagga" not in terms_in(tmp_path)
    assert terms_in(tmp_path), "what is still there stays"


async def test_the_index_stays_until_the_history_was_read(tmp_path: Path) -> None:
    """Before that a resumed memory knows of no message that it has."""
    memory = await play(memory_of(store=FileOffloadStore(tmp_path)))
    await first(memory, "handler_0")
    state, held = memory.state_dict(), terms_in(tmp_path)
    await memory.aclose()
    again = memory_of(store=FileOffloadStore(tmp_path))
    again.load_state_dict(state)
    assert await again.remove_orphans() == []
    assert terms_in(tmp_path) == held


async def test_a_deletion_that_is_cancelled_leaves_the_index_with_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = await play(memory_of(store=FileOffloadStore(tmp_path)), turns=3)
    await memory.add(from_openai([user("the quagga sleeps")]))
    hit = await first(memory, "quagga")

    async def cancelled(*_: Any) -> None:
        raise asyncio.CancelledError

    with monkeypatch.context() as patched:
        patched.setattr(memory._recall.index, "_in_thread", cancelled)
        with pytest.raises(asyncio.CancelledError):
            await memory.delete(list(hit.message_ids))
    assert "quagga" in terms_in(tmp_path)
    await memory.delete([])
    assert "quagga" not in terms_in(tmp_path)


class Busy(ThreadPoolExecutor):
    """The loop's threads, and how many of them have something to do."""

    count = 0

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.count += 1
        future = super().submit(function, *args, **kwargs)
        future.add_done_callback(self._end)
        return future

    def _end(self, _: Future[Any]) -> None:
        self.count -= 1


class FindingInThreads(ListHistory):
    """A history in a database that blocks."""

    def __init__(self, threads: Busy) -> None:
        super().__init__()
        self.threads = threads
        self.busy: list[int] = []
        self.meanwhile: Callable[[], Awaitable[Any]] | None = None

    async def read(self, *, ids: Collection[str] | None = None, **filters: Any) -> list[Entry]:
        found = await super().read(ids=ids, **filters)
        if ids is None:
            return found
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        self.busy.append(self.threads.count)
        return found if self.busy[-1] else await asyncio.to_thread(lambda: found)


async def test_searches_hold_no_thread_that_the_base_memory_may_need(tmp_path: Path) -> None:
    """With as many searches at a time as the loop has threads, each would wait for a thread for ever.

    What is deleted while a search takes it up is not left in the index.
    """
    threads = Busy(1)
    asyncio.get_running_loop().set_default_executor(threads)
    base = FindingInThreads(threads)
    memory = memory_of(base=base, store=FileOffloadStore(tmp_path))
    added = from_openai([user("a quagga")])
    await memory.add(from_openai([user("an okapi")]))
    assert (await first(memory, "okapi")).text == "an okapi"
    deletions: list[asyncio.Task[int]] = []

    async def delete() -> None:
        deletions.append(asyncio.create_task(memory.delete([added[0].id])))
        for _ in range(20):  # by then it waits for the search to end
            await asyncio.sleep(0)

    base.meanwhile = delete
    await memory.add(added)
    assert (await first(memory, "okapi")).text == "an okapi"
    await asyncio.gather(*deletions)
    assert terms_in(tmp_path) >= {"okapi"}
    assert "quagga" not in terms_in(tmp_path)
    assert len(base.busy) > 2
    assert set(base.busy) == {0}


async def test_a_search_reads_some_messages_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A history in a database holds the loop for as long as it makes messages of what it read."""
    base = ListHistory()
    memory, read, counts = memory_of(base=base), base.read, list[int]()
    await memory.add(from_openai([user(f"message {n} about an okapi") for n in range(600)]))
    await memory.get_memory()

    async def counted(**filters: Any) -> list[Entry]:
        found = await read(**filters)
        counts.append(len(found))
        return found

    monkeypatch.setattr(base, "read", counted)
    assert await memory.search_history("okapi")
    assert sum(counts) >= 600
    assert max(counts) < 300


@pytest.fixture
def searching(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set once a search reads texts for its index, in a thread."""
    begun, real = threading.Event(), SearchIndex.search

    def search(
        index: SearchIndex, query: str, limit: int, history: Any, read: ReadTexts, **asked: Any
    ) -> list[Found]:
        def read_on(keys: Sequence[str]) -> Iterable[Document]:
            begun.set()
            return read(keys)

        return real(index, query, limit, history, read_on, **asked)

    monkeypatch.setattr(SearchIndex, "search", search)
    return begun


async def test_closing_ends_a_search_that_goes_on(searching: threading.Event) -> None:
    memory = memory_of()
    await memory.add(from_openai([user(f"message {n} about apples in file_{n}.py") for n in range(1_500)]))
    searches = [asyncio.create_task(memory.search_history("apples")) for _ in range(3)]
    await asyncio.to_thread(searching.wait)
    async with asyncio.timeout(120):  # only so that a failure is one
        await memory.aclose()
        done = await asyncio.gather(*searches, return_exceptions=True)
    assert all(isinstance(one, OffloadError | list) for one in done)
    assert await memory.search_history("apples")


def test_a_search_given_up_in_a_loop_that_stopped_blocks_no_other(searching: threading.Event) -> None:
    memory = memory_of()

    async def give_up() -> None:
        await memory.add(from_openai([user(f"message {n} about apples") for n in range(1_500)]))
        search = asyncio.create_task(memory.search_history("apples"))
        await asyncio.to_thread(searching.wait)
        search.cancel()
        await asyncio.wait([search])

    loop = asyncio.new_event_loop()
    loop.run_until_complete(give_up())
    # Only so that a failure is one.
    found = asyncio.run(asyncio.wait_for(memory.search_history("apples"), 120))
    assert len(found) == 5
    loop.close()


async def test_call_ids_that_are_used_again_name_the_right_tools() -> None:
    memory = memory_of(20_000)
    await memory.add(
        from_openai(
            [
                call("call_0", name="bash"),
                result("call_0", "the zebrafile is in /tmp"),
                call("call_0", name="search_history"),
                result("call_0", "[end]"),
                call("call_0", name="list_dir"),
                result("call_0", "a yakfile"),
            ]
        )
    )
    assert (await first(memory, "zebrafile")).tool == "bash"
    assert (await first(memory, "yakfile")).tool == "list_dir"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
async def test_a_process_that_was_forked_in_the_middle_of_a_search_searches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory = memory_of()
    await memory.add(turn(1))
    reached, gate = threading.Event(), threading.Event()
    sync, parent = SearchIndex._sync, os.getpid()

    def wait_there(self: SearchIndex, *arguments: Any) -> bool:
        if os.getpid() == parent:
            reached.set()
            gate.wait()
        return sync(self, *arguments)

    monkeypatch.setattr(SearchIndex, "_sync", wait_there)
    searching = asyncio.create_task(memory.search_history("handler_1"))
    await asyncio.to_thread(reached.wait)
    child = os.fork()
    if child == 0:
        code = 1
        with suppress(BaseException):  # it must not go on with the tests

            async def search() -> list[Hit]:
                async with asyncio.timeout(60):  # only so that a failure is one
                    return await memory.search_history("handler_1")

            code = 0 if asyncio.run(search()) else 2
        os._exit(code)
    assert await asyncio.to_thread(os.waitpid, child, 0) == (child, 0)
    gate.set()
    assert await searching


async def test_a_part_of_a_message_that_left_later_than_another_is_found_where_it_went() -> None:
    """What the user said beside a result stays while it is what was asked for last."""
    call = {"type": "tool_use", "id": "z", "name": "look", "input": {}}
    answer = {"type": "tool_result", "id": "z", "name": "look", "output": "zebra\n" + LOG}
    said = {"type": "text", "text": "quokka\n" + LOG}
    memory = memory_of(settings={"mode": "compress"})
    await memory.add(
        [Msg("u", "go", "user"), Msg("a", [call], "assistant"), Msg("u", [answer, said], "user")]
    )
    for number in range(60):
        if number == 40:
            await memory.add(Msg("u", "go on", "user"))
        await memory.add(turn(number))
        await memory.get_memory()
    hits = [await first(memory, word) for word in ("zebra", "quokka")]
    assert len({hit.ref for hit in hits}) == 2
    for hit in hits:
        assert (await lines_of(memory, hit)).strip() == hit.text.strip()


async def test_of_two_arguments_the_one_with_the_passage_is_named() -> None:
    memory = memory_of()
    texts = {name: "\n".join(f"{name}_{n} = load({n})" for n in range(300)) for name in ("alpha", "beta")}
    made = call("a", "b", name="write_file")
    for one, text in zip(made["tool_calls"], texts.values(), strict=True):
        one["function"]["arguments"] = json.dumps({"path": "x.py", "text": text})
    await memory.add(from_openai([made, result("a", "ok"), result("b", "ok")]))
    for number in range(4):
        await memory.add(turn(number))
        await memory.get_memory()
    assert "beta_150 =" in await lines_of(memory, await first(memory, "beta_150"))


async def test_of_like_texts_the_lines_are_those_of_the_message() -> None:
    memory = memory_of()
    said = ["we support 8080 and the port 80 rule is old", *["something else entirely, at length"] * 3]
    await memory.add(from_openai([user(text) for text in (*said, "port 80", *said[1:])]))
    await play(memory)
    hits = await memory.search_history("port 80", limit=10)
    assert await lines_of(memory, next(hit for hit in hits if hit.text == "port 80")) == "port 80"


async def test_answers_of_searches_count_among_the_pages_in_view() -> None:
    memory = await play(memory_of(8_000), turns=90)
    shown = 0
    for number in range(12):
        answer = await ask(memory, "search_history", query="handler total weight", limit=50)
        if answer.startswith("Not shown"):
            break
        shown += COUNTER.count_text(answer)
        made = call(f"s{number}", name="search_history", arguments='{"query": "handler", "limit": 50}')
        await memory.add(from_openai([made, result(f"s{number}", answer)]))
    assert answer.startswith("Not shown")
    assert shown <= 8_000 // 4


def statement(number: int) -> str:
    return json.dumps({"database": f"orders_{number:02}", "statement": "select count(*) where s = 'open'"})


@pytest.mark.parametrize(
    "raw", [statement, lambda number: json.dumps(json.loads(statement(number)), indent=1)]
)
async def test_of_like_calls_the_lines_are_those_of_the_one_asked_for(raw: Callable[[int], str]) -> None:
    memory = memory_of()
    for number in range(30):
        made = call(f"q{number}", name="run_sql", arguments=raw(number))
        await memory.add(from_openai([made, result(f"q{number}", f"{number * 7} rows")]))
    await play(memory)
    for number in (0, 7, 23, 29):
        hits = await memory.search_history(f"orders_{number:02}")
        hit = next(hit for hit in hits if hit.role == "assistant")
        assert f"orders_{number:02}" in await lines_of(memory, hit)
        assert hit.lines[0] == hit.lines[1]


async def test_equal_calls_have_the_lines_of_their_own() -> None:
    memory = memory_of()
    for number in range(20):
        said = [user(f"turn {number} " + "and so on " * 20), call(f"c{number}", arguments=statement(3))]
        await memory.add(from_openai([*said, result(f"c{number}", "ok")]))
    await play(memory)
    hits = await memory.search_history("orders_03", limit=20)
    places = [(hit.ref, hit.lines) for hit in hits if hit.lines is not None and not hit.in_view]
    assert len(set(places)) == len(places) == 20


async def test_of_a_call_with_a_long_argument_what_is_asked_for_is_where_it_says() -> None:
    """The path in the view or the transcript, the text under the ref of its stub."""
    memory = memory_of()
    texts = [f"begin_{n}()\n" + "".join(f"load({n}, {k})\n" for k in range(300)) for n in range(6)]
    for number, text in enumerate(texts):
        arguments = json.dumps({"path": f"src/made_{number}.py", "text": text})
        made = call(f"w{number}", name="write_file", arguments=arguments)
        await memory.add(from_openai([made, result(f"w{number}", "ok")]))
        await memory.get_memory()
    places = set()
    for number in range(6):
        for name in (f"made_{number}", f"begin_{number}"):
            hit = await first(memory, name)
            assert name in hit.text
            places.add(
                "view" if hit.in_view else "argument" if hit.ref == ref_of(texts[number]) else "segment"
            )
            if not hit.in_view:
                assert name in await lines_of(memory, hit)
    assert places >= {"view", "argument"}


@pytest.mark.parametrize(
    "redact",
    [
        lambda text: re.sub(r'("password":\s*)"[^"]*"', r'\1"[gone]"', text),
        lambda text: re.sub(r"(password: ).*", r"\1[gone]", text),
        lambda text: "[gone]" if text == "hunter2" else text,
    ],
)
async def test_a_hit_shows_nothing_that_redaction_keeps_out_of_the_store(
    redact: Callable[[str], str],
) -> None:
    """Whether it looks for JSON, for lines or for single values."""
    memory = memory_of(settings={"redact": redact})
    login = call("l", name="login", arguments='{"user": "ann", "password": "hunter2"}')
    await memory.add(from_openai([login, result("l", "ok")]))
    hit = await first(memory, "login ann password")
    assert "[gone]" in hit.text
    assert all("hunter2" not in hit.text for hit in await memory.search_history("hunter2"))


async def test_clearing_lets_go_of_what_a_search_knew_of_the_history() -> None:
    memory = await play(memory_of())
    await memory.search_history("handler_3")
    known = weakref.ref(memory._tracker.state.known)
    await memory.clear()
    for thread in threading.enumerate():
        if thread.name.startswith("search"):
            thread.join(60)  # it lets go of its work after it is done
    gc.collect()
    assert known() is None
