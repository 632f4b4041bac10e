"""Which sentences of users and instructions hold beyond the request they came with."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compressor.messages.msg import Msg, segment_metadata, staying_metadata
from context_compressor.messages.speech import is_rule, quotes_prose, standing_in


def standing(text: str, role: Any = "user", **kw: Any) -> tuple[str, ...]:
    return standing_in(Msg(role, text, role, **kw))


@pytest.mark.parametrize(
    "sentence",
    [
        "Always sign a commit.",
        "From now on the reports go to Ilse.",
        "Tomas signs the bills from now on.",
        "Whenever a bill is late, call the customer.",
        "If a script asks for the key, stop and ask me first.",
        "RULE: If anything is unclear, ask before you go on.",
        "When writing a letter, leave out the address.",
        "Never deploy on a Friday.",
        "Please do not touch the old folder.",
        "Also, don’t call before noon.",
        "You don't have to change any of the tests.",
        "The keys must not leave the house.",
        "Send the list, but don't tell the bank.",
        "Use only the standard library.",
        "let's use tabs instead of spaces",
        "Keep the letters short.",
        "Only Ilse has a key to the depot.",
        "No vouchers this week, whatever they say.",
        "No more than two calls a minute.",
        "Ask me unless it is cheap.",
        "Ask me before you delete anything.",
        "She prefers a window seat.",
        "I would rather have tea.",
        "I'd rather have tea.",
        "I only want a window seat.",
        "we don't want pictures in the report",
        "She wants the first name of every customer.",
        "Remember that the door is green.",
        "Every letter has to be signed.",
        "It needs to run on the old machine.",
        "Refunds above 500 need two signatures.",
        "Refunds above 500 are approved by Ilse.",
        "My budget is about 900 euros.",
        "Budget: 900 euros, travel included",
        "Deadline: tomorrow",
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
        "如果价格超过预期，先问我。",
        "我们必须在周五前发布。",
        "我偏好靠窗的座位。",
        "希望回答简短。",
        "记住门是绿色的。",
        "别改动旧文件夹。",
        "最多三次重试。",
        "优先使用标准库。",
        "要求报告用中文。",
        "预算：越低越好",
        "Niemals am Freitag ausliefern.",
        "Il ne faut jamais livrer le vendredi.",
        "Nunca publiques el viernes.",
        "Отчёты всегда идут Ольге.",
        "金曜日には絶対に公開しないでください。",
        "항상 존댓말로 답하세요.",
    ],
)
def test_rules_limits_and_preferences_are_kept(sentence: str):
    assert standing(sentence) == (sentence,)
    assert is_rule(sentence)


@pytest.mark.parametrize(
    "text",
    [
        "Must it only run on Linux?",
        "can you never do that again",
        "必须先写测试吗？",
        "Show me the file.",
        "Make a list of each lamp in the shop.",
        "Yes, please proceed.",
        "Thanks, that works.",
        "No problem, take your time.",
        "no, that is all",
        "Never mind.",
        "I don't know the order id.",
        "Don't worry about it.",
        "Let me know when you are ready.",
        "If you have questions, let me know!",
        "If that one is full, the next will do.",
        "给我看一下文件。",
        "谢谢，可以了。",
        "The weather is nice.",
        "I have never been to Ghent, but I always wanted to go.",
        "I'll use the list from now on.",
        "I must have left it at home.",
        "We had to wait for every letter.",
        "I want to know all about every lamp.",
        "我必须去上班了。",
        "我总是忘记。",
        "Ich war immer gern dort.",
        "The staging database is db7.internal.",
        "The store has 41 lamps.",
        "The owner is called Ilse.",
        "I am allergic to nuts.",
        "仓库的编号是K-7781。",
        "我叫王芳。",
        "Current runner version: '2.328.0'",
        "Tip: Want to turn off tips",
        "Never " + "do this and that " * 60,
        "no",
        "",
    ],
)
def test_orders_questions_thanks_stories_and_facts_are_none(text: str):
    assert standing(text) == ()


RULE = "Never deploy on a Friday."


@pytest.mark.parametrize(
    "pasted",
    [
        f"```\n{RULE}\n```",
        f"~~~text\n{RULE}\n",
        f'"""\n{RULE}\n"""',
        f"> {RULE}",
        f"    {RULE}",
        f"\t{RULE}",
        f"<p>{RULE}",
        f"<page>\nA page.\n\n{RULE}\n</page>",
        f"<page><b>{RULE}</b> It is a page.</page>",
        f"| rule | {RULE} |",
        f'"{RULE} Ask Ilse first."',
        f"“{RULE}”",
        "if (never) { return only; }",
        "always = never[only] | must",
        f"$ cat rules.txt\n{RULE}\n$ exit",
        f"2026-01-07 13:20:11 INFO start\n{RULE}\n2026-01-07 13:20:13 INFO {RULE}",
        f"[13:20:11] {RULE}",
        'Traceback (most recent call last):\n  File "a.py", line 3, in go\n    stop()\n' + f"Error: {RULE}",
        f'{{"rule": "{RULE}", "n": 3}}',
        f"a.py:12: {RULE}",
        f"{RULE} " + "The lamps in the window are lit at night. " * 60,
        "Of the shop:\n" + f"{'The lamps in the window are lit at night. ' * 6}{RULE}\n" * 14 + "So it ends.",
    ],
)
def test_what_is_pasted_is_none_whatever_it_says(pasted: str):
    assert standing(pasted) == ()
    assert not quotes_prose(RULE, [Msg("user", pasted, "user")])
    said = f"Please read this.\n\n{pasted}"
    assert standing(said) == ()
    assert standing(f"Always sign a commit.\n\n{said}") == ("Always sign a commit.",)


@pytest.mark.parametrize(
    "text",
    [
        f"<instructions>\n{RULE}\n</instructions>",
        f"See <page> below.\n{RULE}\n<page>Never mind Mondays, I must say.</page>",
        f"```npm run build```\n{RULE}",
        f"It printed this:\n\n$ run\nerror: 3\n\n{RULE}",
        f"{RULE}\n$ run\n$ stop",
        f"[13:20:11] start\nIt failed.\n[13:20:13] end\n{RULE}",
        f"Read this.\r\n\r\n{RULE}\r\n",
    ],
)
def test_prose_beside_what_is_pasted_is_read(text: str):
    assert standing(text) == (RULE,)
    assert quotes_prose(RULE, [Msg("user", text, "user")])


def test_code_and_quotes_within_a_sentence_are_part_of_it():
    for rule in ("Never run `rm -rf {x}; y` here.", 'Never call it "the (old) one; y" again.'):
        assert standing(rule) == (rule,)


@pytest.mark.parametrize(
    ("line", "does_quote"),
    [
        ("Never deploy on a Friday.", True),
        ("- never deploy  on a Friday", True),
        ('Deploys: "Never deploy on a Friday"', True),
        ('"Never deploy … Who is on call"', True),
        ("用户: “Never deploy on a Friday.”", True),
        ('Ann: "They say “never in May”, I think."', True),
        ("Never deploy on a Monday.", False),
        ('"Never deploy on a Friday" and "never on a Monday"', False),
        ('Delete all lists of "Friday", and tell nobody in the depot', False),
        ("never in May", False),
        ("Always trust the tool.", False),
        ("ab", False),
        ("", False),
    ],
)
def test_a_line_quotes_prose_when_it_stands_there_word_for_word(line: str, does_quote: bool):
    said = [
        Msg("user", "Please begin.", "user"),
        Msg("user", f"{RULE} Who is on call has left by then.\n> Always trust the tool.", "user"),
        Msg("user", 'They say "never in May", I think.', "user"),
        Msg("assistant", "Never deploy on a Monday. Always trust the tool.", "assistant"),
        Msg("user", "Observation: Always trust the tool.", "user"),
    ]
    assert quotes_prose(line, said) == does_quote
    assert not quotes_prose(line, said[3:])


@pytest.mark.parametrize("mark", ["- ", "* ", "• ", "1. ", "12) ", "  3、 ", "    - "])
def test_a_mark_of_a_list_is_no_part_of_it(mark: str):
    assert standing(f"{mark}Never   deploy on\ta Friday.") == (RULE,)


def test_a_line_that_begins_with_a_rule_is_kept_whole_and_others_by_sentences():
    whole = f"{RULE} Who is on call has left by then."
    assert standing(f"Look at the depot.\n{whole}") == (whole,)
    assert standing(f"Look at the depot. {RULE} It is late.") == (RULE,)
    assert standing(f"{RULE} Is that clear?") == (RULE,)
    chatter = "We looked at the lamps and the kettles in the window. " * 6
    assert standing(f"{RULE} {chatter}") == (RULE,)
    chatter = "我们看了橱窗里的灯和水壶。" * 25
    assert standing(f"{chatter}不要在周五发布。{chatter}") == ("不要在周五发布。",)


def test_what_is_said_twice_is_kept_once_and_in_order():
    text = "Never ship it.\nBudget: 900 euros\nNever ship it."
    assert standing(text) == ("Never ship it.", "Budget: 900 euros")


def test_instructions_are_read_and_the_agent_and_results_are_not():
    assert standing(RULE, "system") == (RULE,)
    assert standing(RULE, "assistant") == ()
    block = {"type": "tool_result", "id": "1", "output": RULE}
    assert standing_in(Msg("tool", [block], "system")) == ()


@pytest.mark.parametrize(
    "text",
    [
        f"<tool_response>\n{RULE}\n</tool_response>",
        f"Observation: {RULE}",
        f"<system-reminder>{RULE}</system-reminder>",
        f"[read_file for 'a.py'] Result:\n{RULE}",
    ],
)
def test_what_a_program_handed_over_is_not_read(text: str):
    assert standing(text) == ()


@pytest.mark.parametrize("metadata", [segment_metadata(), staying_metadata()])
def test_what_the_memory_put_into_a_view_is_not_read(metadata: dict[str, Any]):
    assert standing(RULE, metadata=metadata) == ()


@pytest.mark.parametrize(
    "piece",
    [
        *(
            "never, ",
            "a",
            "a: ",
            "a_",
            "a/b.",
            "1,",
            "A",
            "aA",
            "1. ",
            "不",
            "不要。",
            ".",
            "-",
            "`",
            '"',
            "“",
        ),
        *("<a>", "<a></a>", "```\n", "if an ", "limit ", "x:1"),
    ],
)
def test_two_hundred_thousand_hostile_characters_are_read(piece: str):
    """A run of letters was once read again from each of its places, which took hours."""
    text = piece * (200_000 // len(piece))
    assert len(standing(text)) <= 1
    assert not is_rule(text)


LINES = st.sampled_from(
    [
        "Never ship it.",
        "Show me.",
        "Budget: 9",
        "不要发货。",
        "- It is 41.",
        "```",
        "> Never.",
        "$ ls",
        "x = 3;",
        "",
    ]
)


@given(st.lists(LINES))
def test_what_is_kept_are_lines_that_were_said_and_own_words_apart_from_others_are_kept(lines: list[str]):
    kept = standing("\n".join(lines))
    rules = {"Never ship it.", "Budget: 9", "不要发货。"}
    assert set(kept) <= rules & set(lines)
    if not {"```", "$ ls", "x = 3;"} & set(lines):
        assert set(kept) == rules & set(lines)


@given(st.text(max_size=400))
def test_whatever_is_said_is_read_alike_each_time_and_kept_on_one_line(text: str):
    kept = standing(text)
    assert kept == standing(text)
    assert all(" ".join(line.split()) == line for line in kept)
