"""What a summariser reads of long tool results."""

from __future__ import annotations

import json
from dataclasses import replace

from context_compressor import Msg, from_openai
from context_compressor.compression.abridging import abridge, tokens_read
from context_compressor.compression.labels import segment_text, without_index
from context_compressor.messages.provenance import segment_metadata
from context_compressor.summarizers.prompts import render_conversation
from tests.compression.support import items_of
from tests.memory.scripted import COUNTER, call, result, text, user

LONG = "\n".join(f"line {n} of the log: worker-{n} is idle" for n in range(400))
SAID = [user(text("please", 300)), call("a"), result("a", LONG), call("b"), result("b", "three files")]


def test_long_results_are_shown_in_part_and_everything_else_whole() -> None:
    messages = from_openai(SAID)
    shown = render_conversation(abridge(messages, 100, COUNTER, indices=False))
    assert text("please", 300).splitlines()[-1] in shown
    assert "three files" in shown
    assert "[400 lines, in part:]" in shown
    assert LONG not in shown
    assert COUNTER.count_text(shown) < COUNTER.count_text(text("please", 300)) + 700


def test_long_arguments_are_shown_in_part_too_and_stay_arguments() -> None:
    written = call("w", name="write_file", arguments=json.dumps({"path": "a.log", "content": LONG}))
    (short,) = abridge(from_openai([written]), 100, COUNTER, indices=False)
    assert short.content[0]["input"]["path"] == "a.log"
    assert short.content[0]["input"]["content"].startswith("[400 lines, in part:]")
    assert COUNTER.count_messages([short]) < 200


def test_the_messages_themselves_stay_as_they_are() -> None:
    messages = from_openai(SAID)
    abridge(messages, 100, COUNTER, indices=False)
    assert [msg.content for msg in messages] == [msg.content for msg in from_openai(SAID)]


def test_what_is_read_is_estimated_without_reading_it() -> None:
    items = items_of(SAID)
    read = COUNTER.count_messages([*abridge([item.source for item in items], 100, COUNTER, indices=False)])
    assert abs(tokens_read(items, 100, COUNTER, indices=False) - read) < 60


def test_of_earlier_segments_a_model_reads_the_summary_without_its_index() -> None:
    """The new index, which it is shown, holds what is kept of it."""
    told = segment_text(
        "ctx://0123456789abcdef", 9, "- Went on.", ["read a.py: parse_date"] * 40, notes=["b"]
    )
    bare = segment_text("ctx://0123456789abcdef", 9, "- Went on.", notes=["b"])
    (earlier, other) = (Msg("memory", text, "user", metadata=segment_metadata()) for text in (told, bare))
    assert [msg.content for msg in abridge([earlier, other], 100, COUNTER, indices=False)] == [bare, bare]
    (item, *_) = items_of([user(told)])
    read = tokens_read([replace(item, kind="segment")], 100, COUNTER, indices=False)
    assert abs(read - COUNTER.count_messages([other])) < 5
    assert without_index("- A summary\n\n## Index of names") == "- A summary\n\n## Index of names"


def test_without_a_new_index_a_model_reads_the_earlier_ones() -> None:
    told = segment_text("ctx://0123456789abcdef", 9, "- Went on.", ["read a.py: parse_date"])
    earlier = Msg("memory", told, "user", metadata=segment_metadata())
    assert [msg.content for msg in abridge([earlier], 100, COUNTER, indices=True)] == [told]


def test_a_heading_within_a_summary_is_no_index() -> None:
    written = "- Went on.\n\n## Index\n- of pages\n\n## Next\n- ship b.py"
    assert without_index(written) == written
