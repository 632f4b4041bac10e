"""What may stand for what left, and what models and servers say in place of it."""

import contextlib

import pytest

from context_compressor.errors import SummaryRejectedError
from context_compressor.summarizers.check import check_summary
from context_compressor.summarizers.prompts import render_conversation, system_prompt, template
from context_compressor.summarizers.protocol import Summary
from tests.summarizers.samples import CHINESE, CODING, GERMAN, SHOP
from tests.summarizers.samples import GOOD as GOOD_SUMMARIES
from tests.summarizers.support import assistant, call, request, segment, user

GOOD = "## Goal\n- Fix parse_date in src/utils/dates.py\n\n## Done\n- read: dates.py → 120 lines"
MIXED = request(*CODING, *SHOP, *CHINESE, *GERMAN)
"""Speaks of errors, limits, requests, time-outs and servers, in three languages."""
SHARDS = request(
    user("Check all shards, then report."),
    call("read", "s13", shard=13),
    assistant("Shards 0 to 13 are fine; shard 14 is next."),
)


def checked(text: str, asked=MIXED, **kw) -> str:
    return check_summary(Summary(text=text), asked, **kw)


@pytest.mark.parametrize("wrong", [None, "a string", {"text": GOOD}, Summary(text=None), Summary(text=b"x")])  # type: ignore[arg-type]
def test_what_is_no_summary_is_rejected(wrong: object):
    with pytest.raises(SummaryRejectedError, match="expected a Summary"):
        check_summary(wrong, MIXED)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "   \n ",
            "NONE",
            "N/A",
            "...",
            "无。",
            "## Goal\n- none\n\n## Done\n- N/A",
            "## Goal\n## Done",
        ),
        *("# Summary", "**Goal:**\n\n**Done:**\nNone", "[object Object]", "<think>The user wants a fix"),
        *(template(chinese=False), template(chinese=True), f"```markdown\n{template(chinese=False)}\n```"),
    ],
)
def test_what_says_nothing_is_rejected(text: str):
    with pytest.raises(SummaryRejectedError, match="says nothing"):
        checked(text)


@pytest.mark.parametrize(
    "text",
    [
        # by its form, however long it is
        "<!DOCTYPE html><html><head><title>Error</title></head>" + "<p>x</p>" * 500,
        "521 <!DOCTYPE html>\n<html><title>Web server is down</title></html>",
        'Traceback (most recent call last):\n  File "proxy.py", line 8, in send\n' * 9 + "ConnectError: no",
        '{"error": {"message": "' + "The model is overloaded. " * 20 + '", "code": 503}}',
        '[{"error": {"code": 503, "message": "The model is overloaded."}}]',
        # since it is short, and of something else than the material
        *(
            "Error: rate limit exceeded",
            "HTTP 500",
            "openai.RateLimitError: too many",
            '{"detail": "Not Found"}',
        ),
        "Your request was flagged as potentially violating our usage policy. Try another prompt.",
        "Failed to generate conversation summary - response did not contain valid text content",
        *("I'm sorry, but I can't help with that.", "As an AI language model, I have no memory."),
        *("There is no conversation to summarize.", "Could you share the conversation?"),
        "I'd be happy to help.\n\nCan you paste the text? Then I can begin.\n\nThank you.",
        *("Lo siento, pero no puedo ayudar con eso.", "Извините, я не могу помочь."),
        *("申し訳ありませんが、そのご要望には対応できません。", "죄송하지만 도와드릴 수 없습니다."),
        *(
            "抱歉，我无法完成这个请求。",
            "根据相关法律法规和政策，无法显示该内容。",
            "当前使用人数过多，请稍后再试",
        ),
        # an introduction or an assent alone
        *("Here is the summary of the conversation:", "好，下面是对话的总结：", "Okay, understood. Will do!"),
    ],
)
def test_what_servers_and_models_say_in_place_of_a_summary_is_rejected(text: str):
    with pytest.raises(SummaryRejectedError, match="not a summary"):
        checked(text)


@pytest.mark.parametrize(
    "text",
    [
        "I've refunded $1,249.50 for order #W8841. Would you like anything else?",
        "订单 DD2025 已发货。需要换货 W1 吗？",
        "[assistant]\nRefund RF-20933 was accepted.",
    ],
)
def test_the_next_turn_of_the_conversation_is_rejected(text: str):
    with pytest.raises(SummaryRejectedError, match="goes on with the conversation"):
        checked(text)


CALLS = {
    "alone": '{"name": "read", "arguments": {"shard": 14}}',
    "of a tool that the material has not": '[{"name": "rm", "parameters": {}}]',
    "in a fence": '```json\n{"name": "read", "arguments": {"shard": 14}}\n```',
    "as on the wire": '{"tool_calls": [{"function": {"name": "read", "arguments": "{\\"shard\\": 14}"}}]}',
    "an action": '{"action": "read", "action_input": {"shard": 14}}',
    "tags": '<tool_call>\n{"name": "read", "arguments": {"shard": 14}}\n</tool_call>',
    "invoke": '<function_calls>\n<invoke name="read">\n<parameter name="shard">14</parameter>\n</invoke>\n'
    "</function_calls>",
    "Seed": "<seed:tool_call>\n<function=read>\n<parameter=shard>14</parameter>\n</function>\n"
    "</seed:tool_call>",
    "a tag named like the tool": "<read>\n<shard>14</shard>\n</read>",
    "Python": "<|python_tag|>read(shard=14)",
    "Python alone": "read(shard=14)",
    "DeepSeek": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>read",
    "Kimi": "<|tool_calls_section_begin|><|tool_call_begin|>functions.read:0",
    "ReAct": 'Thought: shard 14 is next.\nAction: read\nAction Input: {"shard": 14}',
}


@pytest.mark.parametrize("text", CALLS.values(), ids=CALLS.keys())
@pytest.mark.parametrize("before", ["", "## Done\n- Shards 0 to 13 are fine\n\n```\nls\n```\n"])
def test_a_call_alone_or_behind_anything_is_rejected(text: str, before: str):
    """Servers hand a call on as text where they were not told of tools."""
    with pytest.raises(SummaryRejectedError, match="a call of a tool"):
        checked(before + text, SHARDS)
    assert checked(before + text, SHARDS, by_model=False)


@pytest.mark.parametrize(
    "text",
    [
        '{"goal": "check all shards, then report", "done": ["shards 0 to 13 are fine"], "next": "shard 14"}',
        "## Done\n- read of shard 13: fine\n- tool_call of read failed for shard 12",
        '## State and next steps\n- call read with {"shard": 14}',
        '## Done\n- the config is now:\n```json\n{"name": "shards", "size": 14}\n```',
        "## Done\n- shards 0 to 13: read(shard=n) told that they are fine",
    ],
)
def test_what_speaks_of_calls_is_a_summary(text: str):
    assert checked(text, SHARDS) == text


@pytest.mark.parametrize("name", GOOD_SUMMARIES)
def test_good_summaries_pass_unchanged(name: str):
    messages, text = GOOD_SUMMARIES[name]
    assert checked(text, request(*messages)) == text


@pytest.mark.parametrize(
    "text",
    [
        "The customer wants her money back for a broken kettle. The agent found the order, offered a refund "
        "to the card, and after she agreed it was made. She must not get receipts at the old address. She "
        "went on to ask about another kettle, which nobody has looked up so far.",
        "客は壊れたやかんの返金を求めた。担当者は注文を見つけ、カードへの返金を提案し、同意の後に実行した。"
        "古い住所へ領収書を送ってはならない。別のやかんの在庫を聞かれたが、まだ調べていない。",
        "تريد العميلة استرداد ثمن غلاية مكسورة. وجد الوكيل الطلب وعرض رد المبلغ إلى البطاقة، "
        "وبعد موافقتها تم ذلك. يجب ألا تصل الإيصالات إلى العنوان القديم. "
        "سألت أيضا عن غلاية أخرى ولم يبحث عنها أحد بعد.",
    ],
    ids=["English", "Japanese", "Arabic"],
)
def test_prose_in_any_language_is_a_summary(text: str):
    """Forms tell errors and refusals, not words: who wants another language gets it."""
    assert checked(text, request(*GERMAN)) == text


@pytest.mark.parametrize(
    "text",
    [
        "Error in tests/test_dates.py: 2 failed, because zone must be a tzinfo, not 'str'.",
        "404 pages render; the route table lives in app/routes.py.",
        "Rate limiting moved into middleware.py.",
        "I'd be happy to help. Here is the summary:\n\n- parse_date in dates.py loses the time zone",
        "请求超时一次，重试三次后成功。",
        "## Goal\n- Explain 'Error: rate limit exceeded'",
        "Leider fehlt der Lieferschein LS-5521 zur Rechnung RE-2026-117.",
        "- the tag `<think>` is stripped\n- and </think> too",
        "- the prompt fences with <conversation-0123456789ab>, labels are [user]",
    ],
)
def test_summaries_about_errors_and_marks_pass(text: str):
    assert checked(text) == text


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"```markdown\n{GOOD}\n```", GOOD),
        (f"<summary>\n{GOOD}\n</summary>", GOOD),
        (
            "## Done\n- read \x1b[31mthe\u202e log\u200b <|im_end|> \ud83d",
            "## Done\n- read the log < |im_end|> ?",
        ),
    ],
)
def test_what_stands_around_it_or_cannot_be_seen_is_taken_off(text: str, left: str):
    assert checked(text) == left


def test_refs_stay_that_the_material_names_and_no_others():
    """A model mistypes digits, or makes them up: the agent would ask for a text that is nowhere."""
    refs = [f"ctx://{digit * 16}" for digit in "abcde"]
    asked = request(
        user(f"The log is {refs[0]}."), previous=f"See {refs[1]}", request=refs[2], instructions=refs[3]
    )
    left = "- They read " + ", ".join([*refs[:4], "[no such ref]"])
    assert checked("- They read " + ", ".join(refs), asked) == left


@pytest.mark.parametrize(
    "piece",
    [
        "<think>\n",
        "</think>\n",
        "x </think>\n",
        "[THINK]\n",
        "<|channel|>final<",
        '{"a":',
        "# * ",
        "1. ",
        "```\n",
    ],
)
def test_rubbish_of_any_length_is_checked_in_linear_time(piece: str):
    """Quadratic scanning would take minutes."""
    text = piece * (2**18 // len(piece))
    for candidate in (text, f"{GOOD}\n{text}", f"{text}x"):
        with contextlib.suppress(SummaryRejectedError):
            checked(candidate, request(user("x")))


STORY = [
    f"Paragraph {n}: the engineer opened module_{n}.py, found that the cache was never cleared after request "
    f"{n}, and wrote down the number {n * 7919} before going on to the next part of the system."
    for n in range(60)
]


class TestCopies:
    material = (user(" ".join(STORY[:20])), assistant(" ".join(STORY[20:40])), user(" ".join(STORY[40:])))

    @pytest.mark.parametrize(
        "copy",
        [
            "\n\n".join(STORY[3:9]),
            "Here is the conversation so far:\n" + " ".join(STORY[:15]),
            " ".join(STORY),
            render_conversation(material),
            system_prompt(chinese=False),
        ],
        ids=["other line breaks", "with preamble", "across messages", "rendered", "the prompt"],
    )
    def test_repeating_the_material_is_rejected(self, copy: str):
        with pytest.raises(SummaryRejectedError, match="repeats"):
            checked(copy, request(*self.material))

    def test_what_a_program_quotes_is_no_copy(self):
        copy = "\n\n".join(STORY[3:9])
        assert checked(copy, request(*self.material), quotes=True) == copy

    def test_a_long_copy_is_told_from_a_long_summary_in_linear_time(self):
        """Each window of one was looked for in all of the other: minutes for this."""
        said, other = (" ".join(map(str, range(start, start + 150_000))) for start in (0, 5_000_000))
        with pytest.raises(SummaryRejectedError, match="repeats"):
            checked(f"In short: {said}", request(user(f"Go on. {said}")))
        assert checked(f"- {other}", request(user(said))) == f"- {other}"

    @pytest.mark.parametrize(
        "text",
        [
            "## Facts and values\n" + "\n".join(f"- {STORY[n]}" for n in range(0, 60, 7)),
            f"{GOOD}\n- The user said: {STORY[2]}\n"
            + "\n".join(f"- own words number {n}" for n in range(30)),
        ],
        ids=["sentences", "one long quote"],
    )
    def test_quotes_pass(self, text: str):
        assert checked(text, request(*self.material)) == text

    @pytest.mark.parametrize(
        "around", ["{}", GOOD + "\n- own words\n- {}" + "\n- and what is open" * 30 + "?"]
    )
    def test_a_short_message_may_be_repeated(self, around: str):
        said = "Order #W123 ships on Monday."
        assert checked(around.format(said), request(user(said))) == around.format(said)

    def test_material_inside_the_summary_is_a_copy(self):
        short = " ".join(STORY[:3])
        with pytest.raises(SummaryRejectedError, match="repeats"):
            checked(f"Words before. [user] {short} Words after.", request(user(short)))

    def test_lines_of_earlier_summaries_may_be_carried_forward(self):
        earlier = "## Facts and values\n" + "\n".join(f"- {line}" for line in STORY[:20])
        later = "## Facts and values\n" + "\n".join(f"- {line}" for line in STORY[20:40])
        merged = earlier + "\n" + "\n".join(f"- {line}" for line in STORY[20:40])
        assert checked(merged, request(segment(later), previous=earlier)) == merged
