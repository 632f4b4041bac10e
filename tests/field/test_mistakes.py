"""Mistakes that other memories made, each made impossible here: one test a mistake, named after it.

The issue or report each comes from stands in its docstring. `test_defences.py` sees that each of these fails
when the defence named in its decorator is taken out.
"""

from __future__ import annotations

import asyncio
import gc
import json
import tempfile
import time
from dataclasses import replace
from typing import Any

import pytest

from context_compressor import (
    CompressedMemory,
    CompressionEvent,
    FileOffloadStore,
    InMemoryMemory,
    InMemoryOffloadStore,
    Msg,
    OffloadTools,
    Summary,
    SummaryRequest,
    TiktokenCounter,
    to_openai,
)
from context_compressor.core.decide import Draft
from context_compressor.core.event import Event
from context_compressor.core.items import segment_item
from context_compressor.core.units import classify
from context_compressor.errors import OffloadCorruptError, SummarizerOverflowError
from context_compressor.laws.chat_rules import problems
from context_compressor.memory.shown import ShownView
from context_compressor.memory.state import MemoryState
from context_compressor.memory.texts import Texts
from context_compressor.messages.exchanges import ExchangeBuilder
from context_compressor.offload.files import TextFiles
from context_compressor.summarizers.notes import Notes
from context_compressor.summarizers.writers import NotesWriter
from context_compressor.tools.grep import search_text
from tests.field.mistakes import mistake, replaced
from tests.memory.scripted import (
    COUNTER,
    REF,
    FaultyStore,
    Gated,
    Noting,
    assistant,
    call,
    config,
    exchange,
    filled,
    good_view,
    kind_of,
    new_memory,
    nothing_lost,
    reached,
    result,
    system,
    text,
    turns,
    user,
    wire_text,
)
from tests.support.media import png_url

ROOM = "context_compressor."


class Says:
    """A summariser that always answers the same."""

    remote = True

    def __init__(self, answer: str) -> None:
        self.answer = answer
        self.asked = 0

    async def summarize(self, request: SummaryRequest) -> Summary:
        self.asked += 1
        return Summary(text=self.answer)


class Doubling(TiktokenCounter):
    """A counter by which everything costs twice as much."""

    def count_text(self, text: str) -> int:
        return 2 * super().count_text(text)

    def measure(self, msg: Msg) -> Any:
        total, texts = super().measure(msg)
        return type(super().measure(msg))(2 * total, tuple(2 * tokens for tokens in texts))


def parallel(count: int, lines: int) -> list[dict[str, Any]]:
    """Return a message with several calls, and their results."""
    ids = [f"p{n}" for n in range(count)]
    return [call(*ids), *(result(id, text(id, lines)) for id in ids)]


# Pairing


_answer = ExchangeBuilder._answer


def _only_first(builder: ExchangeBuilder, result: Any, legacy: bool) -> Any:
    is_first = result["id"] == builder._newest.calls[0].own_id
    return _answer(builder, result, legacy) if is_first else None


@mistake(replaced(ROOM + "messages.exchanges.ExchangeBuilder._answer", _only_first))
async def test_pairing_stops_at_the_first_of_several_results() -> None:
    """langchain #38352: set intersection stops at the first match."""
    memory = new_memory(config(8_000))
    await filled(memory, [user("go"), *parallel(3, 4), user("next")])
    wire = to_openai(await good_view(memory))
    results = [message["content"] for message in wire if message["role"] == "tool"]
    assert results == [text(f"p{n}", 4) for n in range(3)]


def _every_message_alone(items: Any, *rest: Any) -> Any:
    return classify([replace(item, exchange=item.key) for item in items], *rest)


@mistake(replaced(ROOM + "core.decide.classify", _every_message_alone))
async def test_a_cut_falls_between_parallel_results() -> None:
    """langmem #126: the cut that keeps recent messages separates results from their call."""
    memory = new_memory(config(1_500, keep_recent_count=3))
    said = [user("go")]
    for number in range(6):
        ids = [f"{number}-{n}" for n in range(4)]
        said += [call(*ids), *(result(id, text(id, 6)) for id in ids)]
        await filled(memory, said[-5:] if number else said)
        assert problems(to_openai(await memory.get_memory())) == []


def _five_back(builder: ExchangeBuilder, result: Any, legacy: bool) -> Any:
    return _answer(builder, result, legacy) if len(builder._newest.turns[0]) <= 5 else None


@mistake(replaced(ROOM + "messages.exchanges.ExchangeBuilder._answer", _five_back))
async def test_a_call_is_looked_for_only_a_few_messages_back() -> None:
    """pydantic-ai-harness: five messages back; recordings hold twelve parallel calls."""
    memory = new_memory(config(8_000))
    await filled(memory, [user("go"), *parallel(12, 1), user("next")])
    wire = to_openai(await good_view(memory))
    results = [message["content"] for message in wire if message["role"] == "tool"]
    assert results == [text(f"p{n}", 1) for n in range(12)]


def _wait_for_ever(_: ExchangeBuilder) -> list[Any]:
    return []


@mistake(replaced(ROOM + "messages.exchanges.ExchangeBuilder.settle", _wait_for_ever))
async def test_one_dead_call_blocks_compression_for_ever() -> None:
    """adk #7236: a call whose result never came keeps everything behind it from being compressed."""
    memory = new_memory(config(1_500))
    await filled(memory, [user("go"), call("dead"), *turns(8)])
    await good_view(memory)
    assert memory.stats().noted > 0
    await nothing_lost(memory, [user("go"), call("dead"), *turns(8)])


# Loops


def _no_slack(draft: Draft, candidates: Any, goal: int, _compress: Any = Draft.compress) -> None:
    _compress(draft, candidates, max(goal, draft.situation.config.budget))


async def _events_of_a_session(instruction_tokens: int) -> tuple[int, int, int]:
    """Return turns, events, and turns whose view did not begin with the one before."""
    memory = new_memory(config(2_000, keep_recent_count=2))
    instruction = text("rule", 200)
    while COUNTER.count_text(instruction) > instruction_tokens:
        instruction = instruction[: -len(instruction) // 20]
    await filled(memory, [system(instruction)])
    earlier: list[str] = []
    broken = 0
    for number in range(60):
        await filled(memory, exchange(f"e{number}", 5))
        view = [json.dumps(message) for message in to_openai(await good_view(memory))]
        broken += view[: len(earlier)] != earlier
        earlier = view
    return 60, memory.stats().events, broken


@mistake(replaced(ROOM + "core.decide.Draft.compress", _no_slack))
async def test_instructions_and_tail_above_the_trigger_compress_every_turn() -> None:
    """opencode #27924, codex #36665: system and tail alone exceed the trigger: 20 events a minute."""
    happened, events, _ = await _events_of_a_session(1_100)
    assert events <= happened / 3


def _stale_show(view: ShownView, items: Any, _show: Any = ShownView.show) -> None:
    before = view.tokens
    _show(view, items)
    view.tokens = max(before, view.tokens)


@mistake(replaced(ROOM + "memory.shown.ShownView.show", _stale_show))
async def test_token_usage_is_stale_after_an_event() -> None:
    """Several: the count from before the event triggers the next one."""
    memory = new_memory()
    await filled(memory, turns(6))
    view = await memory.get_memory()
    events = memory.stats().events
    assert await memory.get_memory() == view
    assert memory.stats().events == events
    assert memory.stats().view_tokens == COUNTER.count_messages(view)


async def _counted_by_another(counter: Any, messages: Any) -> Any:
    return [COUNTER.measure(msg) for msg in messages]


@mistake(replaced(ROOM + "memory.compressed.measure_all_off_loop", _counted_by_another))
async def test_trigger_and_acceptance_count_differently() -> None:
    """Several: an estimate triggers, another counter judges, and the request is refused."""
    counter = Doubling()
    memory = CompressedMemory(config=config(4_000), counter=counter)
    for message in turns(8):
        await filled(memory, [message])
        assert counter.count_messages(await memory.get_memory()) <= 4_000


# Lost or fake summaries


def _believed(summary: Summary, *_: Any, **__: Any) -> str:
    return summary.text


def _believe_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ROOM + "summarizers.writers.check_summary", _believed)
    patch.setattr(ROOM + "summarizers.writers.check_values", lambda text, _: text)
    patch.setattr(ROOM + "summarizers.notes.is_placeholder", lambda _: False)


async def _is_refused(answer: str) -> None:
    summarizer = Says(answer)
    memory = new_memory(summarizer=summarizer)
    await filled(memory, turns(8))
    view = await good_view(memory)
    assert summarizer.asked > 0
    segments = [str(msg.content) for msg in view if kind_of(msg) == "notes"]
    assert segments
    said = max(answer.splitlines(), key=len)[:60]
    assert all(said not in segment for segment in segments)


@mistake(_believe_all)
async def test_an_error_text_is_stored_as_the_summary() -> None:
    """langchain #38867."""
    await _is_refused("Error: Rate limit reached for gpt-4o-mini. Please try again in 20s.")


@mistake(_believe_all)
async def test_the_empty_template_is_stored_as_the_summary() -> None:
    """openclaw #120663: 77 of 164 summaries."""
    from context_compressor.summarizers.prompts import template

    await _is_refused(template(chinese=False))


@mistake(_believe_all)
async def test_reasoning_is_taken_for_the_summary() -> None:
    """open-webui #29308."""
    await _is_refused("<think>The user wants a summary. Let me list what happened so far.</think>")


@mistake(_believe_all)
async def test_none_is_stored_as_the_summary() -> None:
    """redis agent-memory-server."""
    await _is_refused("NONE")


async def _canned(
    maker: Event,
    request: SummaryRequest,
    notes: Notes,
    *what: Any,
    _real: Any = Event._write,
    **how: Any,
) -> Any:
    if not any(msg.role == "user" for msg in request.messages):
        return notes.added("Previous conversation was too long to summarize."), ()
    return await _real(maker, request, notes, *what, **how)


@mistake(replaced(ROOM + "core.event.Event._write", _canned))
async def test_without_a_human_message_the_summary_is_a_canned_sentence() -> None:
    """langchain #39261: no user message among those that leave, and no model is called."""
    summarizer = Noting()
    memory = new_memory(summarizer=summarizer)
    await filled(memory, [user("go"), *(m for n in range(14) for m in exchange(f"e{n}", 12, name="bash"))])
    view = await good_view(memory)
    assert summarizer.requests
    assert "Part 1 of the work" in wire_text(view)


def _as_assistant(*arguments: Any) -> Any:
    item = segment_item(*arguments)
    item.msg.role = "assistant"
    return item


@mistake(replaced(ROOM + "core.items.segment_item", _as_assistant))
async def test_a_summary_speaks_as_the_assistant_and_is_imitated() -> None:
    """agentscope-java #1358."""
    memory = new_memory()
    await filled(memory, turns(8))
    segments = [msg for msg in await good_view(memory) if kind_of(msg) == "notes"]
    assert segments
    assert all(
        msg.role == "user" and "by the memory, not by the user" in str(msg.content) for msg in segments
    )


# Silent loss


def _trimmed(maker: Event, read: Any, *rest: Any, _real: Any = Event._request, **how: Any) -> Any:
    return _real(maker, read[-3:], *rest, **how)


@mistake(replaced(ROOM + "core.event.Event._request", _trimmed))
async def test_the_summarisers_input_is_trimmed_and_the_rest_dropped() -> None:
    """langchain's default of 4,000 tokens; redis agent-memory-server: 22 of 60 messages gone."""
    summarizer = Noting()
    memory = new_memory(summarizer=summarizer)
    said = turns(8)
    await filled(memory, said)
    view = await good_view(memory)
    covered = {
        id for msg in view if kind_of(msg) == "notes" for id in msg.metadata["compression"]["covered_ids"]
    }
    read = {msg.id for request in summarizer.requests for msg in request.messages}
    assert covered
    assert covered <= read


async def _store_only(texts: Texts, ref: str) -> str:
    return await texts._store.read(ref)


@mistake(replaced(ROOM + "memory.texts.Texts.read", _store_only))
async def test_a_summary_names_a_file_that_was_never_written() -> None:
    """deepagentsjs #621: the write failed, the view names the file."""
    memory = new_memory(
        store=FaultyStore(lambda operation, _: OSError(28, "full") if operation == "write" else None)
    )
    await filled(memory, turns(8))
    refs = REF.findall(wire_text(await good_view(memory)))
    assert refs
    for ref in refs:
        assert await memory.read_ref(ref)


def _unchecked(_: TextFiles, __: str, data: bytes) -> str:
    return data.decode()


@mistake(replaced(ROOM + "offload.files.TextFiles.text_of", _unchecked))
async def test_a_torn_file_loads_as_if_it_were_whole() -> None:
    """MemoryOS: a torn file loads as empty and is overwritten."""
    with tempfile.TemporaryDirectory() as folder:
        store = FileOffloadStore(folder)
        ref = await store.write(text("stored", 50))
        store._files.file(ref).write_text(text("stored", 50)[:100])
        with pytest.raises(OffloadCorruptError):
            await store.read(ref)


# Summariser overflow


class Narrow(Noting):
    """A summariser whose model reads 1,000 tokens."""

    async def summarize(self, request: SummaryRequest) -> Summary:
        if COUNTER.count_messages(request.messages) > 1_000:
            raise SummarizerOverflowError("this model's maximum context length is 1000 tokens")
        return await super().summarize(request)


async def _give_up(_: NotesWriter, request: Any, notes: Any, error: Exception) -> Any:
    raise error


@mistake(replaced(ROOM + "summarizers.writers.NotesWriter._smaller", _give_up))
async def test_the_conversation_to_summarise_does_not_fit_the_summariser() -> None:
    """claude-code #23047, letta #3279: compression fails for ever; nobody splits the work."""
    summarizer = Narrow()
    events: list[CompressionEvent] = []
    memory = new_memory(config(6_000), summarizer=summarizer, on_event=events.append)
    await filled(memory, turns(16, lines=12))
    await good_view(memory)
    assert len(summarizer.requests) > 2
    assert not [event for event in events if event.kind == "failure"]


# One huge recent message


def _protect_recent(draft: Any) -> None:
    return None


PROTECT = replaced(ROOM + "core.decide._force", _protect_recent)


@mistake(PROTECT)
async def test_one_huge_recent_message_makes_protection_of_recent_ones_useless() -> None:
    """strands #981: what is recent stays, the request is refused."""
    memory = new_memory()
    await filled(memory, [user("go"), assistant(text("plan", 300))])
    await good_view(memory)
    await nothing_lost(memory, [user("go"), assistant(text("plan", 300))])


@mistake(PROTECT)
async def test_parallel_results_are_huge_together() -> None:
    """deepagents #3405: each is below the limit of one result, all together are above the budget."""
    memory = new_memory(config(2_000, arrival_ratio=0.5, keep_recent_count=10))
    said = [user("go"), *parallel(8, 40)]
    await filled(memory, said)
    await good_view(memory)
    await nothing_lost(memory, said)


# Miscounts


def _as_text(block: Any, count: Any, _: Any) -> int:
    return int(count(json.dumps(block)))


@mistake(replaced(ROOM + "tokens.tiktoken.block_tokens", _as_text))
async def test_images_are_counted_as_text() -> None:
    """langchain #40741: base64 counted as text, a thousand times too much."""
    part = {"type": "image_url", "image_url": {"url": png_url(1_024, 768, noise=200_000)}}
    assert COUNTER.count_messages([{"role": "user", "content": [part]}]) < 3_000


@mistake(replaced(ROOM + "tokens.tiktoken.written_arguments", lambda block: "{}"))
async def test_arguments_are_not_counted() -> None:
    """Several: a written file's body costs nothing, says the counter."""
    arguments = json.dumps({"content": text("body", 100)})
    assert COUNTER.count_messages([call("a", arguments=arguments)]) > COUNTER.count_text(text("body", 100))


# Growing


def _let_it_grow(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ROOM + "summarizers.writers.NotesWriter._fitted", lambda _, told, *rest: told)
    patch.setattr(ROOM + "core.event.segment_tokens", lambda *_: 0)


@mistake(_let_it_grow)
async def test_a_compression_enlarges() -> None:
    """gemini-cli #5432: 737,820 tokens became 1,475,805."""
    events: list[CompressionEvent] = []
    memory = new_memory(
        summarizer=Says("".join(f"- The work went on: step {n}.\n" for n in range(120))),
        on_event=events.append,
    )
    for message in turns(10):
        await filled(memory, [message])
        await good_view(memory)
    assert not [event for event in events if event.kind == "failure"], "a long answer is cut, not refused"
    assert all(event.tokens_after < event.tokens_before for event in events)


# Cache busting


@mistake(replaced(ROOM + "core.decide.Draft.compress", _no_slack))
async def test_old_messages_are_rewritten_every_turn() -> None:
    """headroom #2438: the provider's prompt cache never hits, for 2 to 7 times the price."""
    happened, _, broken = await _events_of_a_session(200)
    assert broken <= happened / 6


# Retrieval


def _whole_texts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ROOM + "tools.source.Allowance.page_tokens", 100_000)
    patch.setattr(ROOM + "tools.source.STANDING_SHARE", 1)


@mistake(_whole_texts)
async def test_what_the_agent_reads_back_is_offloaded_again() -> None:
    """headroom #1077: for ever."""
    memory = new_memory(config(4_000))
    await filled(memory, [user("go"), call("a"), result("a", text("long", 400))])
    ref = REF.findall(wire_text(await good_view(memory)))[0]
    page = await OffloadTools(memory).call("read_offloaded", {"ref": ref})
    arguments = json.dumps({"ref": ref})
    await filled(memory, [call("b", name="read_offloaded", arguments=arguments), result("b", page)])
    assert page in [message.get("content") for message in to_openai(await good_view(memory))]


async def _plain_miss(memory: object, given: object) -> str:
    from context_compressor.tools.arguments import FinalAnswer

    raise FinalAnswer("Error: not found.")


@mistake(replaced(ROOM + "tools.tools.find_ref", _plain_miss))
async def test_a_dead_ref_is_tried_again_and_again() -> None:
    """headroom #1776: 25 times; a miss must be final and say what to do."""
    memory = new_memory()
    await filled(memory, turns(8))
    await good_view(memory)
    answer = await OffloadTools(memory).call("read_offloaded", {"ref": "ctx://0000000000000000"})
    assert "a retry will not change that" in answer
    assert set(REF.findall(answer)) & set(await memory.reachable_refs())


def _patient(text: str, ref: str, pattern: Any, seconds: float, *more: Any) -> Any:
    ended = time.process_time() + 0.8
    while time.process_time() < ended:
        found = search_text(text, ref, pattern, seconds, *more)
    return found


@mistake(replaced(ROOM + "tools.tools.search_text", _patient))
async def test_a_pattern_of_the_model_never_ends() -> None:
    """Several: a regular expression that backtracks for ever holds the agent."""
    memory = new_memory(config(4_000))
    await filled(memory, [user("go"), call("a"), result("a", ("a" * 40 + "!\n") * 400)])
    await good_view(memory)
    gc.freeze()  # else a collection of what other tests left may take as long
    try:
        started = time.process_time()  # not by the clock on the wall: the machine may be busy
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ROOM + "tools.tools.SEARCH_SECONDS", 0.1)
            answer = await OffloadTools(memory).call("grep_offloaded", {"pattern": "(a|a)+(a|aa)+$"})
        spent = time.process_time() - started
    finally:
        gc.unfreeze()
    assert spent < 0.7
    assert "stopped" in answer


# Disk


async def _keep_all(texts: Texts, refs: Any) -> None:
    return None


@mistake(replaced(ROOM + "memory.texts.Texts.remove", _keep_all))
async def test_nothing_is_ever_removed_from_disk() -> None:
    """opencode #29694: 63 GB."""
    store = InMemoryOffloadStore()
    memory = new_memory(store=store)
    await filled(memory, turns(8))
    await good_view(memory)
    assert await store.refs()
    await memory.clear()
    assert await store.refs() == []


@mistake(replaced(ROOM + "core.ledger.Ledger.is_live", lambda ledger, ref: False))
async def test_a_file_that_is_still_named_is_removed() -> None:
    """ReMe: after three days."""
    store = InMemoryOffloadStore()
    memory = new_memory(config(2_500), store=store)
    same = text("same", 150)
    said = [user("go"), call("a"), result("a", same), call("b"), result("b", same)]
    added = await filled(memory, said)
    await good_view(memory)
    await memory.delete([msg.id for msg in added[1:3]])
    refs = REF.findall(wire_text(await good_view(memory)))
    assert refs
    assert set(refs) <= set(await store.refs())
    assert await memory.read_ref(refs[0]) == same


# Concurrency


def _forgetful(state: MemoryState, *arguments: Any, _commit: Any = MemoryState.commit) -> None:
    state.queue.clear()
    _commit(state, *arguments)


@mistake(replaced(ROOM + "memory.state.MemoryState.commit", _forgetful))
async def test_what_arrives_during_a_compression_is_lost() -> None:
    """openai-agents #4679."""
    summarizer = Gated()
    memory = new_memory(config(background_ratio=None), summarizer=summarizer)
    said = turns(8)
    await filled(memory, said)
    asking = asyncio.create_task(memory.get_memory())
    await reached(summarizer.asked, asking)
    late = user("stop at once, the disk is full")
    await filled(memory, [late])
    summarizer.gate.set()
    await asking
    assert late["content"] in wire_text(await good_view(memory))


async def _clear_and_add(memory: CompressedMemory, memories: Any, _add: Any = CompressedMemory.add) -> None:
    before = await memory.base.get_memory()
    await memory.base.clear()
    await memory.base.add([*before, *memories])


class Fragile(InMemoryMemory):
    """A base memory whose next write can be made to fail."""

    broken = False

    async def add(self, memories: Any, marks: Any = None, **kwargs: Any) -> None:
        if self.broken:
            raise ConnectionError("the database went away")
        await super().add(memories, marks, **kwargs)


@mistake(replaced(ROOM + "memory.compressed.CompressedMemory.add", _clear_and_add))
async def test_a_clear_before_a_failing_write_loses_everything() -> None:
    """openai-agents #3116: the session is cleared, then the rewrite fails."""
    base = Fragile()
    memory = new_memory(base=base)
    await filled(memory, turns(2))
    base.broken = True
    with pytest.raises(ConnectionError):
        await filled(memory, [user("one more")])
    base.broken = False
    assert to_openai(await memory.get_history()) == turns(2)
