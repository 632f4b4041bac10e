"""Which sentences of users and instructions hold beyond the request they came with."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compressor.messages.msg import Msg, segment_metadata, staying_metadata
from context_compressor.messages.speech import is_rule, standing_in, weight_of


def standing(text: str, role: Any = "user", **kw: Any) -> tuple[str, ...]:
    return standing_in(Msg(role, text, role, **kw))


@pytest.mark.parametrize(
    "sentence",
    [
        "Always sign a commit.",
        "From now on the reports go to Ilse.",
        "Whenever a bill is late, call the customer.",
        "Never deploy on a Friday.",
        "Please do not touch the old folder.",
        "The keys must not leave the house.",
        "Send the list, but don't tell the bank.",
        "Use only the standard library.",
        "No more than two calls a minute.",
        "Ask me unless it is cheap.",
        "She prefers a window seat.",
        "I would rather have tea.",
        "Remember that the door is green.",
        "Every letter has to be signed.",
        "You may not call before noon.",
        "Stop adding notes to the bills.",
        "The tests should run first.",
        "必须先写测试。",
        "以后的报告都寄给王芳。",
        "不要在周五发布。",
        "禁止删除旧文件夹。",
        "切勿泄露密码。",
        "只能用标准库。",
        "除非很便宜，先问我。",
        "我偏好靠窗的座位。",
        "希望回答简短。",
        "记住门是绿色的。",
        "别改动旧文件夹。",
        "最多三次重试。",
        "优先使用标准库。",
    ],
)
def test_rules_limits_and_preferences_are_kept(sentence: str):
    assert standing(sentence) == (sentence,)
    assert is_rule(sentence)


@pytest.mark.parametrize(
    "sentence",
    [
        "Budget: as low as it gets",
        "Deadline: tomorrow",
        "Tone of the letters: warm",
        "Quux: whatever it says",
        "预算：越低越好",
        "随便什么词：都行",
    ],
)
def test_what_somebody_labels_is_kept_whatever_the_label(sentence: str):
    assert standing(sentence) == (sentence,)


@pytest.mark.parametrize(
    "sentence",
    [
        "The staging database is db7.internal.",
        "The store has 41 lamps.",
        "Refunds above 500 need two signatures.",
        "The owner is called Ilse.",
        "The manual lives at https://depot.example/manual.",
        "仓库的编号是K-7781。",
        "店里有41盏灯。",
        "接口地址是 https://depot.example/v2",
    ],
)
def test_facts_with_a_value_are_kept_and_are_no_rules(sentence: str):
    assert standing(sentence) == (sentence,)
    assert not is_rule(sentence)
    assert weight_of(sentence) > 0


@pytest.mark.parametrize("sentence", ["I am allergic to nuts.", "My name is Ilse.", "我叫王芳。"])
def test_what_users_tell_of_themselves_is_kept_and_is_no_rule(sentence: str):
    assert standing(sentence) == (sentence,)
    assert not is_rule(sentence)


@pytest.mark.parametrize(
    "text",
    [
        "Must it only run on Linux?",
        "必须先写测试吗？",
        "Show me the file.",
        "Thanks, that works.",
        "给我看一下文件。",
        "谢谢，可以了。",
        "The weather is nice.",
        "if (never) { return only; }",
        "always = never[only] | must",
        "```\nNever do this.\n```",
        "~~~text\n不要这样。\n~~~",
        "> Never do this.",
        "    Never do this.",
        "\tNever do this.",
        "<p>Never do this.",
        "| never | always |",
        "Never " + "do this and that " * 60,
        "no",
        "",
    ],
)
def test_questions_requests_code_and_quoted_lines_are_not(text: str):
    assert standing(text) == ()


@pytest.mark.parametrize("mark", ["- ", "* ", "• ", "1. ", "12) ", "  3、 "])
def test_a_mark_of_a_list_is_no_part_of_it(mark: str):
    assert standing(f"{mark}Never   deploy on\ta Friday.") == ("Never deploy on a Friday.",)


def test_a_line_is_kept_whole_and_a_long_one_by_sentences():
    rule = "Never deploy on a Friday. Who is on call has left by then."
    assert standing(f"Look at the depot.\n{rule}") == (rule,)
    chatter = "We looked at the lamps and the kettles in the window. " * 6
    assert standing(f"{chatter}Never deploy on a Friday. {chatter}") == ("Never deploy on a Friday.",)
    chatter = "我们看了橱窗里的灯和水壶。" * 25
    assert standing(f"{chatter}不要在周五发布。{chatter}") == ("不要在周五发布。",)


def test_what_is_said_twice_is_kept_once_and_in_order():
    text = "Never ship it.\nBudget: 900 euros\nNever ship it."
    assert standing(text) == ("Never ship it.", "Budget: 900 euros")


def test_instructions_are_read_and_the_agent_and_results_are_not():
    rule = "Never deploy on a Friday."
    assert standing(rule, "system") == (rule,)
    assert standing(rule, "assistant") == ()
    block = {"type": "tool_result", "id": "1", "output": rule}
    assert standing_in(Msg("tool", [block], "system")) == ()


@pytest.mark.parametrize(
    "text",
    [
        "<tool_response>\nNever deploy on a Friday.\n</tool_response>",
        "Observation: Never deploy on a Friday.",
        "<system-reminder>Never deploy on a Friday.</system-reminder>",
        "[read_file for 'a.py'] Result:\nNever deploy on a Friday.",
    ],
)
def test_what_a_program_handed_over_is_not_read(text: str):
    assert standing(text) == ()


@pytest.mark.parametrize("metadata", [segment_metadata(), staying_metadata()])
def test_what_the_memory_put_into_a_view_is_not_read(metadata: dict[str, Any]):
    assert standing("Never deploy on a Friday.", metadata=metadata) == ()


def test_weight_is_that_of_values_rules_and_labels():
    assert weight_of("so it goes") == 0
    assert weight_of("Never.") == 20
    assert weight_of("depot: green") == 15
    assert weight_of("it is 4711") == 4
    assert weight_of("Depot: never more than 4711") == 15 + 20 + 4


@pytest.mark.parametrize(
    "piece", ["never, ", "a", "a: ", "a_", "a/b.", "1,", "A", "aA", "1. ", "不", "不要。", ".", "-", "`"]
)
def test_two_hundred_thousand_hostile_characters_are_read(piece: str):
    """A run of letters was once read again from each of its places, which took hours."""
    text = piece * (200_000 // len(piece))
    assert len(standing(text)) <= 1
    assert is_rule(text) == is_rule(piece)
    weight_of(text)


LINES = st.sampled_from(
    ["Never ship it.", "Show me.", "Budget: 9", "不要发货。", "- It is 41.", "```", "> Never.", "Really?", ""]
)


@given(st.lists(LINES), st.lists(LINES))
def test_what_is_kept_are_lines_that_were_said_each_on_its_own(before: list[str], after: list[str]):
    """What stands beside a line decides nothing, fences of code apart."""
    kept = standing("\n".join([*before, *after]))
    assert set(kept) <= {line.removeprefix("- ") for line in [*before, *after]}
    if "```" not in before:
        assert set(kept) == {*standing("\n".join(before)), *standing("\n".join(after))}


@given(st.text(max_size=400))
def test_whatever_is_said_is_read_alike_each_time_and_kept_on_one_line(text: str):
    kept = standing(text)
    assert kept == standing(text)
    assert all(" ".join(line.split()) == line for line in kept)
