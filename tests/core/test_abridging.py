"""What a summariser reads of long tool results and arguments."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from context_compressor import from_openai
from context_compressor.core.shown import MAX_TOKENS, abridge, shorten
from context_compressor.summarizers.prompts import render_conversation
from tests.memory.scripted import COUNTER, call, result, text, user

LINES = [f"line {n} of the log: worker-{n} is idle" for n in range(2_000)]
LONG = "\n".join([*LINES[:900], "ERROR worker-900: disk quota exceeded (EDQUOT)", *LINES[901:]])
SAID = [user(text("please", 3_000)), call("a"), result("a", LONG), call("b"), result("b", "three files")]


def test_of_a_long_result_head_tail_and_lines_with_errors_are_shown_and_everything_else_whole() -> None:
    messages = from_openai(SAID)
    shown = render_conversation(abridge(messages, COUNTER))
    assert text("please", 3_000).splitlines()[-1] in shown
    assert "three files" in shown
    assert LINES[0] in shown
    assert LINES[-1] in shown
    assert "disk quota exceeded (EDQUOT)" in shown
    assert "lines left out ...]" in shown
    assert LINES[500] not in shown
    (_, _, cut, *_) = abridge(messages, COUNTER)
    output = cut.content[0]["output"]
    assert 0.8 * MAX_TOKENS["tool_result"] < COUNTER.count_text(output) <= MAX_TOKENS["tool_result"]


def test_the_lines_that_are_left_out_are_counted() -> None:
    shown = shorten(LONG, 300, COUNTER)
    told = [line for line in shown.splitlines() if line.startswith("[... ")]
    left_out = sum(int(line.split()[1].replace(",", "")) for line in told)
    assert len(told) == 2
    assert len(shown.splitlines()) - len(told) + left_out == 2_000


def test_an_edit_is_shown_whole_up_to_a_bound() -> None:
    new = "\n".join(f"    value_{n} = compute({n})" for n in range(250))
    written = call("w", name="edit", arguments=json.dumps({"path": "a.py", "old": "x", "new": new}))
    (whole,) = abridge(from_openai([written]), COUNTER)
    assert whole.content[0]["input"]["new"] == new
    huge = call("w", name="write", arguments=json.dumps({"path": "a.log", "content": LONG}))
    (short,) = abridge(from_openai([huge]), COUNTER)
    assert short.content[0]["input"]["path"] == "a.log"
    assert "lines left out ...]" in short.content[0]["input"]["content"]
    assert COUNTER.count_messages([short]) < MAX_TOKENS["argument"] + 200


def test_one_long_line_is_cut_between_characters() -> None:
    shown = shorten('{"rows": [' + "1234, " * 50_000 + '"last"]}', 300, COUNTER)
    assert shown.startswith('{"rows": [1234')
    assert shown.endswith('"last"]}')
    assert "characters left out ...]" in shown
    assert COUNTER.count_text(shown) <= 300


@given(st.text(alphabet="ab 1\n错误error", max_size=3_000), st.integers(20, 200))
def test_what_is_shown_stands_in_the_text_or_is_a_mark_and_is_no_longer(text: str, room: int) -> None:
    shown = shorten(text, room, COUNTER)
    assert len(shown) <= len(text)
    for line in shown.split("\n"):
        assert line in text or line.startswith("[... ")
