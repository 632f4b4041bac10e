"""What segments and stubs say beside their summaries: which tools help, and what the agent asked to keep."""

from __future__ import annotations

from typing import Any

import pytest

from context_compressor import (
    CompressedMemory,
    CompressionConfig,
    Msg,
    SummaryRequest,
    TiktokenCounter,
    from_openai,
)
from context_compressor.compression.labels import segment_text, split_notes
from context_compressor.errors import InvalidArgumentError
from context_compressor.offload.schemas import GUIDE
from context_compressor.summarizers.extractive import ExtractiveSummarizer
from context_compressor.summarizers.protocol import Summary
from tests.memory.scripted import call, result, user

COUNTER = TiktokenCounter()


def said(text: str) -> list[Msg]:
    """Return what a user says."""
    return from_openai([user(text)])


def turn(number: int, lines: int = 12) -> list[Msg]:
    """Return an exchange that reads a file."""
    text = "\n".join(f"row {line} of table_{number} holds value {number * line}" for line in range(lines))
    return from_openai([call(f"c{number}"), result(f"c{number}", text)])


def memory_of(budget: int = 4_000, **settings: Any) -> CompressedMemory:
    return CompressedMemory(
        config=CompressionConfig(max_total_tokens=budget, keep_recent_count=4, **settings), counter=COUNTER
    )


def shown(view: list[Msg]) -> str:
    return "\n".join(str(msg.content) for msg in view)


@pytest.mark.parametrize("settings", [{}, {"mode": "compact"}, {"mode": "compress"}, {"cached_price": 0}])
async def test_once_something_left_the_view_names_the_tools_once(settings: dict[str, Any]) -> None:
    memory = memory_of(**settings)
    await memory.add(said("Look through every table."))
    left = 0
    for number in range(60):
        await memory.add(turn(number, lines=150 if number % 9 == 4 else 12))
        view = await memory.get_memory()
        compressed = [msg for msg in view if (msg.metadata or {}).get("compression")]
        roomy = any(COUNTER.count_text(str(msg.content)) > 150 for msg in compressed)
        assert shown(view).count(GUIDE) <= 1
        if roomy:
            left += 1
            assert GUIDE in shown(view)
    assert left > 30


async def test_a_note_stands_in_the_segment_word_for_word_and_survives_merges() -> None:
    memory = memory_of()
    await memory.add(said("Look through every table."))
    for number in range(12):
        await memory.add(turn(number))
        await memory.get_memory()
    note = "Invoice INV-2207 is disputed;\n  never touch table_3."
    event = await memory.compress_now(keep=note)
    assert event is not None
    assert event.kind == "compress"
    kept = "- Invoice INV-2207 is disputed; never touch table_3."
    assert kept in shown(await memory.get_memory())
    for number in range(12, 400):
        await memory.add(turn(number))
        view = await memory.get_memory()
        assert shown(view).count(kept) == 1
    merged = sum(len(segment.children) > 0 for segment in memory._upkeep.state.ledger.segments())
    assert merged > 0


async def test_what_does_not_fit_of_a_note_is_cut_and_the_budget_holds() -> None:
    memory = memory_of()
    await memory.add(said("Look through every table."))
    for number in range(14):
        await memory.add(turn(number))
    await memory.compress_now(keep="alpha beta gamma. " * 2_000)
    view = await memory.get_memory()
    assert COUNTER.count_messages(view) <= 4_000
    assert "alpha beta gamma." in shown(view)
    assert shown(view).count("alpha") < 400


async def test_the_summariser_is_asked_to_mind_a_note_and_never_sees_what_is_redacted() -> None:
    asked: list[SummaryRequest] = []

    class Noting:
        remote = False

        async def summarize(self, request: SummaryRequest) -> Summary:
            asked.append(request)
            return await ExtractiveSummarizer(COUNTER).summarize(request)

    memory = CompressedMemory(
        config=CompressionConfig(
            max_total_tokens=4_000,
            keep_recent_count=4,
            summary_instructions="Be brief.",
            redact=lambda text: text.replace("hunter2", "***"),
        ),
        summarizer=Noting(),
        counter=COUNTER,
    )
    await memory.add(said("Look through every table."))
    for number in range(10):
        await memory.add(turn(number))
    await memory.compress_now(keep="the password is hunter2, the host db7")
    assert asked[-1].instructions == "Be brief.\nthe password is ***, the host db7"
    assert "hunter2" not in shown(await memory.get_memory())
    assert "- the password is ***, the host db7" in shown(await memory.get_memory())


@pytest.mark.parametrize("wrong", [5, ["a"], b"x"])
async def test_a_note_that_is_no_text_is_refused_by_name(wrong: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="keep: expected a string"):
        await memory_of().compress_now(keep=wrong)


async def test_without_a_gain_nothing_happens() -> None:
    memory = memory_of()
    await memory.add(said("Hello."))
    assert await memory.compress_now(keep="anything") is None
    assert (await memory.get_memory())[0].content == "Hello."


def test_notes_are_read_back_from_a_segment() -> None:
    summary = "It went well.\n## Goal\n- x"
    made = segment_text("ctx://0123456789abcdef", 3, summary, ["f: a"], notes=["one", "two"])
    assert split_notes(made) == (segment_text("ctx://0123456789abcdef", 3, summary, ["f: a"]), ["one", "two"])
    made = segment_text("ctx://0123456789abcdef", 3, summary, notes=["one"])
    assert split_notes(made) == (segment_text("ctx://0123456789abcdef", 3, summary), ["one"])
    for plain in (segment_text("ctx://0123456789abcdef", 3, summary, ["f: a"]), "[Earlier conversation]"):
        assert split_notes(plain) == (plain, [])
