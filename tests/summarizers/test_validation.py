import asyncio
import contextlib
import json
import re
import threading

import pytest

from context_compressor.errors import SummarizerError, SummarizerTimeoutError, SummaryRejectedError
from context_compressor.summarizers import checking
from context_compressor.summarizers.attempts import Paid, attempt_budget
from context_compressor.summarizers.checking import check_summary, summarize_checked
from context_compressor.summarizers.prompts import render_conversation, system_prompt, template
from context_compressor.summarizers.protocol import Summary
from tests.summarizers.samples import CHINESE, CODING, GERMAN, SHOP
from tests.summarizers.samples import GOOD as GOOD_SUMMARIES
from tests.summarizers.support import Acting, PieceCounter, Scripted, assistant, call, request, segment, user

pytestmark = pytest.mark.variants(40)

counter = PieceCounter()
GOOD = "## Goal\n- Fix parse_date in src/utils/dates.py\n\n## Done\n- read: dates.py → 120 lines"
ASK = user("Please fix parse_date in src/utils/dates.py (120 lines), it loses the time zone.")
STORY = [
    f"Paragraph {n}: the engineer opened module_{n}.py, found that the cache was never cleared after request "
    f"{n}, and wrote down the number {n * 7919} before going on to the next part of the system."
    for n in range(60)
]


async def checked(summarizer, asked=None, **kw):
    asked = asked or request(ASK)
    return await summarize_checked(summarizer, asked, counter, **{"replaced_tokens": 10_000, **kw})


async def test_a_good_summary_passes_unchanged():
    summary = await checked(Scripted(GOOD))
    assert summary.text == GOOD


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "   \n ",
            "NONE",
            "None.",
            "N/A",
            "null",
            "...",
            "无。",
            "## Goal\n- none\n\n## Done\n- N/A",
            "## Goal\n## Done",
        ),
        template(chinese=False),
        template(chinese=True),
        *("```markdown\n" + template(chinese=False) + "\n```", "# Summary", "**Goal:**\n\n**Done:**\nNone"),
        *("[object Object]",),
    ],
)
async def test_a_summary_that_says_nothing_is_rejected(text: str):
    with pytest.raises(SummaryRejectedError, match="says nothing"):
        await checked(Scripted(text))


MIXED = request(*CODING, *SHOP, *CHINESE, *GERMAN)
"""Speaks of errors, limits, requests, time-outs and servers, in three languages."""


@pytest.mark.parametrize(
    "text",
    [
        *("Error: rate limit exceeded", "Error code: 429 - {'error': {'message': 'Rate limit reached'}}"),
        *(
            "openai.RateLimitError: too many",
            "An error occurred",
            "Internal Server Error",
            "502 Bad Gateway",
            "HTTP 500",
        ),
        *(
            "429 Too Many Requests",
            "Rate limit reached for gpt-4o-mini in organization org-x",
            "Request timed out.",
        ),
        *(
            "I'm sorry, but I can't help with that.",
            "Sorry, I cannot summarize this.",
            "I apologize, but no.",
            "I can’t",
        ),
        *(
            "I cannot assist with that request.",
            "As an AI language model, I have no memory.",
            "You exceeded your quota",
        ),
        *("<!DOCTYPE html><html><head><title>Error</title></head>" + "<p>x</p>" * 500, "<html>503</html>"),
        *(
            json.dumps({"error": {"message": "invalid api key"}}),
            '{"detail": "Not Found"}',
            "Traceback (most recent call last):",
        ),
        *(
            "There is no conversation to summarize.",
            "Please provide the conversation.",
            "No messages were provided.",
        ),
        *("抱歉，我无法完成这个请求。", "错误：请求超时", "Previous conversation was too long to summarize."),
        *(
            "The model is overloaded. Please try again later.",
            "That model is currently overloaded with other requests.",
            "Service temporarily unavailable",
            "The server is busy. Please try again later.",
            "upstream connect error or disconnect/reset before headers. reset reason: overflow",
            "模型过载，请稍后重试。",
        ),
        *(
            "Your request was flagged as potentially violating our usage policy. Try another prompt.",
            "Invalid prompt: your prompt was flagged as potentially violating our usage policy.",
            "I must decline to summarize this conversation.",
            "I'd be happy to help! Could you share the conversation you want summarized?",
            "Of course! I'd be glad to summarize it.\n\nPlease paste the text.",
            "Could you share the conversation?",
        ),
        *(
            "Lo siento, pero no puedo ayudar con eso.",
            "Je suis désolé, mais je ne peux pas vous aider.",
            "Es tut mir leid, dabei kann ich nicht helfen.",
            "申し訳ありませんが、そのご要望には対応できません。",
        ),
        *(
            "作为一个人工智能语言模型，我还没学习如何回答这个问题，您可以向我问一些其它的问题。",
            "你好，我无法给到相关内容。",
            "你好，这个问题我暂时无法回答，让我们换个话题再聊聊吧。",
            "尊敬的用户您好，让我们换个话题再聊聊吧。",
            "您好！请问有什么可以帮您？",
            "您没有提供对话内容，请粘贴。",
            "根据相关法律法规和政策，无法显示该内容。",
            "网络错误，请重试",
            "当前使用人数过多，请稍后再试",
        ),
    ],
)
async def test_error_texts_and_refusals_are_rejected(text: str):
    with pytest.raises(SummaryRejectedError, match="not a summary"):
        await checked(Scripted(text), MIXED)


FAILURES = """
botocore.errorfactory.ValidationException: Input is too long ¦ An unknown error occurred
An unexpected error has occurred ¦ Internal error encountered. ¦ Connection error. ¦ Unknown error
HTTP 429 error ¦ 500 Internal Server Error ¦ 400 Bad Request ¦ 503 Service Unavailable
504 Gateway Time-out ¦ 401 Unauthorized ¦ 403 Forbidden ¦ 404 Not Found
400 Client Error: Bad Request for url: https://a.example ¦ 500 Server Error: for url
413 Payload Too Large ¦ Bad Gateway ¦ Gateway Timeout ¦ Request was aborted.
The connection has timed out ¦ Connection refused ¦ Connection reset by peer
The operation was aborted due to timeout ¦ Request failed with status code 429
Our servers are currently overloaded. Please try again later. ¦ This model is temporarily unavailable
The engine is currently overloaded, please try again later ¦ upstream request timeout
no healthy upstream
qwen-qwq-32b is currently over capacity. Please try again and back off exponentially. ¦ Too Many Requests
Rate limit exceeded: free-models-per-day ¦ Rate limited. ¦ Claude AI usage limit reached|1755806400
You've hit your limit · resets 3pm ¦ You have reached your specified API usage limits.
Quota exceeded for quota metric 'Generate Content API requests per minute'
Resource has been exhausted (e.g. check quota). ¦ Insufficient Balance
Your credit balance is too low to access the Anthropic API. ¦ We are very sorry for the inconvenience
I am so sorry, this is beyond me ¦ My apologies, but this is beyond me. ¦ I can not do that.
I won't continue with this. ¦ I will not continue with this. ¦ I am unable to help with this.
I'm not able to help with this. ¦ I'm not going to proceed.
I'll have to respectfully decline this request.
Your request was rejected as a result of our safety system.
Your input has been blocked by our guardrail. ¦ Your message is filtered.
The response was filtered due to the prompt triggering Azure OpenAI's content management policy.
The generated text has been blocked by our content filters.
The request was rejected because it was considered high risk ¦ There's nothing to summarize yet.
No conversation was given. ¦ No text is available. ¦ There is no content here to summarise.
No chat history was provided. ¦ I don't see any conversation to summarize.
I don't see a conversation provided. ¦ I do not have access to previous conversations.
Failed to generate conversation summary - response did not contain valid text content
Couldn't create the summary. ¦ Could not produce a response. ¦ Can't summarize this.
Cannot generate a summary. ¦ Unable to summarise. ¦ Sure! I am happy to help. Can you paste the text?
Certainly, I would be glad to help. Would you share it?
Of course, I'm more than happy to help! Please send the conversation.
I'd be happy to summarize it once there is one. ¦ Can you please send me the conversation?
Would you paste the conversation? ¦ Could you provide the conversation? ¦ Lo lamento, no puedo hacerlo.
Désolé, je ne peux pas. ¦ Leider kann ich dabei nicht helfen. ¦ Desculpe, não posso ajudar.
Sinto muito, mas não posso ajudar. ¦ Mi dispiace, non posso aiutarti.
Извините, я не могу помочь. ¦ К сожалению, я не могу помочь.
すみませんが、お手伝いできません。 ¦ 죄송하지만 도와드릴 수 없습니다. ¦ 非常抱歉，此功能无法使用。
对不起，我无法回答这个问题。 ¦ 我不能回答。 ¦ 我目前没法回答。 ¦ 该话题我不能展开。 ¦ 此类内容我无法提供。
该话题不能讨论。 ¦ 该请求无法回答。 ¦ 您的请求我暂时无法处理。 ¦ 此类内容不能讨论。 ¦ 这个问题没法回答。
该问题暂时无法回答。 ¦ 我还没有学会如何回答这个问题。 ¦ 作为AI助手，我没有对话记录。
作为一个语言模型，我无法做到。 ¦ 作为一名人工智能助手，我不能做到。 ¦ 作为人工智能，我没法做到。
请换个话题吧。 ¦ 有什么能帮您的吗？ ¦ 请提供需要总结的对话内容。 ¦ 您还未发送任何消息。
根据相关政策，该内容不能显示。 ¦ 根据相关法律法规，不予显示。
系统检测到输入或生成内容可能包含不安全或敏感内容，请您避免输入易产生敏感内容的提示语。
系统检测到内容敏感 ¦ 系统检测到输入不安全 ¦ 无法生成摘要 ¦ 无法生成总结 ¦ 无法总结该对话
无法处理您的请求 ¦ 无法处理该内容 ¦ 无法生成回复 ¦ 发生错误，请稍后重试 ¦ 触发限流 ¦ 请求失败 ¦ 请求超时
请求过于频繁，请稍后再试 ¦ 服务器繁忙，请稍后再试。 ¦ 系统当前繁忙 ¦ 网络暂时不可用 ¦ 模型不可用
服务器内部错误 ¦ 系统异常，请联系管理员 ¦ 参数错误 ¦ 连接超时 ¦ 网络超时，请稍后重试 ¦ 请求异常
当前API请求过多，请稍后重试 ¦ 当前访问过于频繁，请重试 ¦ 当前人数过多 ¦ 当前人数过多，请联系客服
您的账户已达到速率限制，请您控制请求频率 ¦ 您的账户已欠费，请充值后重试
您当前使用该 API 的频率过高，请降低频率
"""


IN_A_FRAME_OR_AT_LENGTH = (
    'Traceback (most recent call last):\n  File "proxy.py", line 8, in send\n' * 9 + "ConnectError: refused",
    json.dumps({"error": {"message": "The model is overloaded. " * 20, "code": 503}}),
    "I'd be happy to help.\n\nCan you paste the text? Then I can begin.\n\nThank you.",
    "I'd be happy to help. Could you share it?\n\nThen I can begin.",
    '[{"error": {"code": 503, "message": "The model is overloaded."}}]',
    "521 <!DOCTYPE html>\n<html><title>Web server is down</title></html>",
)


@pytest.mark.parametrize("text", [*re.split(r"\n| ¦ ", FAILURES.strip()), *IN_A_FRAME_OR_AT_LENGTH])
def test_what_servers_and_models_say_in_place_of_a_summary_is_rejected(text: str):
    with pytest.raises(SummaryRejectedError, match="not a summary"):
        check_summary(Summary(text=text), MIXED)


CALLS = {
    "alone": '{"name": "read", "arguments": {"shard": 14}}',
    "of a tool that the material has not": '[{"name": "rm", "parameters": {}}]',
    "two": '[{"name": "read", "arguments": {"shard": 14}}, {"name": "read", "arguments": {"shard": 15}}]',
    "in a fence": '```json\n{"name": "read", "arguments": {"shard": 14}}\n```',
    "as on the wire": '{"tool_calls": [{"function": {"name": "read", "arguments": "{\\"shard\\": 14}"}}]}',
    "an action": '{"action": "read", "action_input": {"shard": 14}}',
    "tags": '<tool_call>\n{"name": "read", "arguments": {"shard": 14}}\n</tool_call>',
    "invoke": '<function_calls>\n<invoke name="read">\n<parameter name="shard">14</parameter>\n</invoke>\n'
    "</function_calls>",
    "DSML": '<｜DSML｜function_calls>\n<｜DSML｜invoke name="read">\n<｜DSML｜parameter name="shard">14'
    "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
    "MiniMax": '<minimax:tool_call>\n<invoke name="read">\n<parameter name="shard">14</parameter>\n'
    "</invoke>\n"
    "</minimax:tool_call>",
    "Seed": "<seed:tool_call>\n<function=read>\n<parameter=shard>14</parameter>\n</function>\n"
    "</seed:tool_call>",
    "a tag named like the tool": "<read>\n<shard>14</shard>\n</read>",
    "brackets": '[TOOL_CALLS] [{"name": "read", "arguments": {"shard": 14}}]',
    "Python": "<|python_tag|>read(shard=14)",
    "Python alone": "read(shard=14)",
    "DeepSeek": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>read",
    "Kimi": "<|tool_calls_section_begin|><|tool_call_begin|>functions.read:0",
    "ReAct": 'Thought: shard 14 is next.\nAction: read\nAction Input: {"shard": 14}',
}
SHARDS = request(
    user("Check all shards, then report."),
    call("read", "s13", shard=13),
    assistant("Shards 0 to 13 are fine; shard 14 is next."),
)


@pytest.mark.parametrize("text", CALLS.values(), ids=CALLS.keys())
@pytest.mark.parametrize(
    "before",
    ["", "Let me go on with shard 14.\n", "## Done\n- Shards 0 to 13 are fine\n\n", "```\nls\n```\n"],
)
def test_a_call_alone_or_behind_anything_is_rejected(text: str, before: str):
    """Servers hand a call on as text where they were not told of tools."""
    with pytest.raises(SummaryRejectedError, match="a call of a tool"):
        check_summary(Summary(text=before + text), SHARDS)


@pytest.mark.parametrize(
    "text",
    [
        '{"goal": "check all shards, then report", "done": ["shards 0 to 13 are fine"], "next": "shard 14"}',
        "## Done\n- read of shard 13: fine\n- tool_call of read failed for shard 12",
        '## State and next steps\n- call read with {"shard": 14}',
        '## Done\n- the config is now:\n```json\n{"name": "shards", "size": 14}\n```',
        "## Done\n- shards 0 to 13: read(shard=n) told that they are fine",
        "<summary>\n## Done\n- shards 0 to 13 are fine\n</summary>",
    ],
)
def test_what_speaks_of_calls_is_a_summary(text: str):
    kept = check_summary(Summary(text=text), SHARDS)
    assert kept == text.removeprefix("<summary>\n").removesuffix("\n</summary>")


@pytest.mark.parametrize(
    "text",
    [
        "I've refunded $1,249.50 for order #W8841. Would you like anything else?",
        "订单 DD2025 已发货。需要换货 W1 吗？",
        "Die Rechnung RE-2026-117 ist offen. Soll ich Ihnen den Lieferschein LS-5521 schicken?",
        "[assistant]\nRefund RF-20933 was accepted.",
    ],
)
def test_the_next_turn_of_the_conversation_is_rejected(text: str):
    with pytest.raises(SummaryRejectedError, match="goes on with the conversation"):
        check_summary(Summary(text=text), MIXED)


PROSE = {
    "English": "The customer wants her money back for a broken kettle. The agent found the order, offered a "
    "refund to the card, and after she agreed it was made. She must not get receipts at the old address. "
    "She went on to ask about another kettle, which nobody has looked up so far.",
    "German": "Die Kundin will ihr Geld für einen kaputten Kessel zurück. Der Agent fand die Bestellung und "
    "bot eine Erstattung auf die Karte an; nach ihrem Ja wurde sie ausgeführt. An die alte Adresse darf "
    "keine Quittung gehen. Nach einem anderen Kessel hat sie gefragt, das ist offen.",
    "Chinese": "顾客因为水壶破损要求退款。客服找到订单，提出退回原卡，她同意之后已经办妥。"
    "旧邮箱不能再收到收据。她又问另一款水壶是否有货，这一点还没有查。下一步是查库存并答复她。",
    "Japanese": "客は壊れたやかんの返金を求めた。担当者は注文を見つけ、カードへの返金を提案し、同意の後に"
    "実行した。古い住所へ領収書を送ってはならない。別のやかんの在庫を聞かれたが、まだ調べていない。",
    "Arabic": "تريد العميلة استرداد ثمن غلاية مكسورة. وجد الوكيل الطلب وعرض رد المبلغ إلى البطاقة، "
    "وبعد موافقتها تم ذلك. يجب ألا تصل الإيصالات إلى العنوان القديم. "
    "سألت أيضا عن غلاية أخرى ولم يبحث عنها أحد بعد.",
    "Thai": "ลูกค้าต้องการเงินคืนเพราะกาน้ำแตก ตัวแทนพบคำสั่งซื้อและเสนอคืนเงินเข้าบัตร "
    "หลังจากเธอตกลงก็ดำเนินการแล้ว ห้ามส่งใบเสร็จไปที่อยู่เดิม เธอถามถึงกาน้ำอีกใบ แต่ยังไม่มีใครตรวจสอบ",
}


@pytest.mark.parametrize("text", PROSE.values(), ids=PROSE.keys())
@pytest.mark.parametrize("material", [SHOP, GERMAN], ids=["of an English talk", "of a German one"])
async def test_prose_in_any_language_is_a_summary(text: str, material):
    """Forms tell errors and refusals, not words: who wants another language gets it."""
    assert (await checked(Scripted(text), request(*material))).text == text


@pytest.mark.parametrize("name", GOOD_SUMMARIES)
async def test_good_summaries_pass_unchanged(name: str):
    messages, text = GOOD_SUMMARIES[name]
    assert (await checked(Scripted(text), request(*messages))).text == text


@pytest.mark.parametrize(
    "text",
    [
        "Okay, here is a summary of our chat:",
        "Certainly! Below is the summary.",
        "Here is the summary of the conversation:",
        "Sure! Here’s a short summary of our chat so far:\n\n## Goal\n- none",
        "好，下面是对话的总结：",
        "Okay, understood. Will do!",
        "OK",
    ],
)
def test_an_introduction_or_an_assent_alone_is_no_summary(text: str):
    with pytest.raises(SummaryRejectedError):
        check_summary(Summary(text=text), MIXED)


@pytest.mark.parametrize(
    "text",
    [
        "Error in tests/test_dates.py: 2 failed, because zone must be a tzinfo, not 'str'.",
        "404 pages render; the route table lives in app/routes.py.",
        "Rate limiting moved into middleware.py.",
        "We have a retry limit of 5 in client.py.",
        "TypeError in src/utils/dates.py line 88: zone must be a tzinfo.",
        "I'd be happy to help. Here is the summary:\n\n- parse_date in dates.py loses the time zone",
        "Here is the summary: parse_date in dates.py loses the time zone.",
        "Your request was to fix parse_date in src/utils/dates.py.",
        "The server rejects tokens after 15 minutes, so login.tsx warns the user.",
        "网络异常 E1032 已关闭；问题不能复现就关闭。",
        "请求超时一次，重试三次后成功。",
        "无法复现，退款 W1 改为换货。",
        "你好，以下是对话摘要：\n- 订单 DD2025 已发货",
        "## Goal\n- Explain 'Error: rate limit exceeded'",
        "Sorry was said for the trouble with order #W8841; refund RF-20933 was accepted.",
        "Leider fehlt der Lieferschein LS-5521 zur Rechnung RE-2026-117.",
        "- the tag `<think>` is stripped\n- and </think> too",
    ],
)
async def test_summaries_about_errors_pass(text: str):
    assert (await checked(Scripted(text, remote=False), MIXED)).text == text


async def test_refs_stay_that_the_material_names_and_no_others():
    """A model mistypes digits, or makes them up: the agent would ask for a text that is nowhere."""
    refs = [f"ctx://{digit * 16}" for digit in "abcdef"]
    asked = request(
        user(f"The log is {refs[0]}."), previous=f"See {refs[1]}", request=refs[2], instructions=refs[3]
    )
    summary = await checked(
        Scripted("- They read " + ", ".join(refs), remote=False), asked, material=f"Also {refs[4]}"
    )
    assert summary.text == "- They read " + ", ".join([*refs[:5], "[no such ref]"])


async def test_reasoning_alone_is_no_summary():
    with pytest.raises(SummaryRejectedError, match="says nothing"):
        await checked(Scripted("<think>The user wants a fix for parse_date"))


async def test_a_code_fence_around_the_summary_is_taken_off():
    assert (await checked(Scripted(f"```markdown\n{GOOD}\n```"))).text == GOOD


@pytest.mark.parametrize(
    "wrong", [None, "a string", 5, {"text": GOOD}, Summary(text=None), Summary(text=b"x")]
)  # type: ignore[arg-type]
async def test_what_is_no_summary_is_rejected(wrong: object):
    async def act(_request):
        return wrong

    with pytest.raises(SummaryRejectedError, match="expected a Summary"):
        await checked(Acting(act))


@pytest.mark.variants(9)
@pytest.mark.parametrize(
    "piece",
    [
        *("<think>\n", "</think>\n", "x </think>\n", "<think></think>", "# </think>\n", "<think> "),
        *(
            "[THINK]\n",
            "◁/think▷\n",
            "<|channel|>",
            "<|channel|>final<",
            "<|end|>",
            '{"a":',
            "I'd be glad to ",
        ),
        *(
            "error ",
            "Error",
            "- ",
            "# * ",
            "**",
            "1. ",
            "#",
            " ",
            "\n",
            "...\n",
            "。",
            "```\n",
            "{",
            "sorry ",
        ),
    ],
)
async def test_rubbish_of_any_length_is_checked_in_linear_time(piece: str):
    """Quadratic scanning of a megabyte would take minutes."""
    text = piece * (2**20 // len(piece))
    for candidate in (text, f"{GOOD}\n{text}", f"{text}x"):
        with contextlib.suppress(SummaryRejectedError):
            check_summary(Summary(text=candidate), request(user("x")))


class TestCopies:
    material = (user(" ".join(STORY[:20])), assistant(" ".join(STORY[20:40])), user(" ".join(STORY[40:])))

    def check(self, text: str, *messages, **kw) -> str:
        return check_summary(Summary(text=text), request(*(messages or self.material), **kw))

    @pytest.mark.parametrize(
        "copy",
        [
            " ".join(STORY[3:9]),
            "\n\n".join(STORY[3:9]),
            "Here is the conversation so far:\n" + " ".join(STORY[:15]),
            " ".join(STORY),
            render_conversation(material),
            system_prompt(chinese=False),
        ],
        ids=["stretch", "other line breaks", "with preamble", "across messages", "rendered", "the prompt"],
    )
    def test_repeating_the_material_is_rejected(self, copy: str):
        with pytest.raises(SummaryRejectedError, match="repeats"):
            self.check(copy)

    def test_a_long_copy_is_told_from_a_long_summary_in_linear_time(self):
        """Each window of one was looked for in all of the other: minutes for this."""
        said, other = (" ".join(map(str, range(start, start + 700_000))) for start in (0, 5_000_000))
        with pytest.raises(SummaryRejectedError, match="repeats"):
            self.check(f"In short: {said}", user(f"Go on. {said}"))
        assert self.check(f"- {other}", user(said)) == f"- {other}"

    def test_quoted_sentences_pass(self):
        quotes = "## Facts and values\n" + "\n".join(f"- {STORY[n]}" for n in range(0, 60, 7))
        assert self.check(quotes) == quotes

    def test_one_long_quote_among_other_lines_passes(self):
        text = f"{GOOD}\n- The user said: {STORY[2]}\n" + "\n".join(
            f"- own words number {n}" for n in range(30)
        )
        assert self.check(text) == text

    def test_a_short_message_may_be_repeated(self):
        assert self.check("Order #W123 ships on Monday.", user("Order #W123 ships on Monday."))

    def test_material_inside_the_summary_is_a_copy(self):
        short = " ".join(STORY[:3])
        with pytest.raises(SummaryRejectedError, match="repeats"):
            self.check(f"Words before. [user] {short} Words after.", user(short))

    def test_lines_of_earlier_summaries_may_be_carried_forward(self):
        earlier = "## Facts and values\n" + "\n".join(f"- {line}" for line in STORY[:20])
        later = "## Facts and values\n" + "\n".join(f"- {line}" for line in STORY[20:40])
        merged = earlier + "\n" + "\n".join(f"- {line}" for line in STORY[20:40])
        messages = (segment(later),)
        rendered = f"[user]\n{segment(earlier).content}\n\n{render_conversation(messages)}"
        asked = request(*messages, previous=earlier)
        assert check_summary(Summary(text=merged), asked, material=rendered) == merged


class TestLengths:
    async def test_it_must_be_smaller_than_what_it_replaces(self):
        size = counter.count_text(GOOD)
        with pytest.raises(SummaryRejectedError, match=f"{size} tokens are not fewer than the {size}"):
            await checked(Scripted(GOOD), replaced_tokens=size)
        assert (await checked(Scripted(GOOD), replaced_tokens=size + 1)).text == GOOD

    async def test_one_that_is_too_long_is_asked_for_again_with_a_note(self):
        long = GOOD + "\n- more" * 200
        summarizer = Scripted(long, GOOD)
        asked = request(ASK, max_tokens=100, instructions="Keep prices.")
        summary = await checked(summarizer, asked)
        assert summary.text == GOOD
        first, second = summarizer.requests
        assert first is asked
        assert second.instructions == "Keep prices."
        assert second.repair is not None
        assert str(counter.count_text(long)) in second.repair
        assert "100" in second.repair

    async def test_one_that_stays_too_long_is_asked_for_once_and_cut_at_a_line(self):
        summarizer = Scripted(GOOD + "\n- more of it" * 300, GOOD + "\n- more of it" * 200)
        summary = await checked(summarizer, request(ASK, max_tokens=100))
        assert len(summarizer.requests) == 2
        assert counter.count_text(summary.text) <= 100
        assert summary.text.startswith(GOOD)
        assert summary.text.endswith("- more of it …")

    @pytest.mark.parametrize("second", [RuntimeError("gone"), "NONE", "Error: no"])
    async def test_a_failing_second_attempt_leaves_the_first_to_be_cut(self, second: object):
        summary = await checked(Scripted(GOOD + "\n- more" * 200, second), request(ASK, max_tokens=100))
        assert summary.text.startswith(GOOD)
        assert summary.text.endswith("…")

    async def test_a_refused_second_attempt_counts(self):
        first = Summary(GOOD + "\n- more" * 200, input_tokens=50, output_tokens=220)
        summary = await checked(
            Scripted(first, Summary("OK", input_tokens=60, output_tokens=2)),
            request(ASK, max_tokens=100),
        )
        assert (summary.input_tokens, summary.output_tokens) == (110, 222)

    @pytest.mark.parametrize(
        ("answer", "remote", "unused"),
        [
            (Summary("OK", input_tokens=60, output_tokens=2), True, (60, 2)),
            (Summary("OK", input_tokens=60, output_tokens=2), False, (0, 0)),
            (Summary("OK"), True, (7, 1)),
            (Summary(GOOD, input_tokens=60, output_tokens=20), True, (60, 20)),
            (SummarizerError("down"), True, (0, 0)),
        ],
        ids=["refused", "of no model", "nothing reported", "too long", "none"],
    )
    async def test_what_is_refused_is_noted_as_unused(
        self, answer: object, remote: bool, unused: tuple[int, int]
    ):
        with attempt_budget(9) as budget, pytest.raises(SummarizerError):
            await summarize_checked(
                Scripted(answer, remote=remote),
                request(ASK, max_tokens=100),
                PieceCounter(),
                replaced_tokens=2,
                input_tokens_estimate=7,
            )
        assert budget.take_unused() == Paid(*unused)

    async def test_an_endless_answer_is_counted_and_cut_off_the_event_loop(self):
        threads = set()

        class Watching(PieceCounter):
            def count_text(self, text: str) -> int:
                if len(text) > 200_000:
                    threads.add(threading.current_thread())
                return super().count_text(text)

        endless = GOOD + "\n- more of it" * 50_000
        asked = request(ASK, max_tokens=100)
        summary = await summarize_checked(Scripted(endless), asked, Watching(), replaced_tokens=200)
        assert summary.text.startswith(GOOD)
        assert threads
        assert threading.main_thread() not in threads

    async def test_a_limit_that_leaves_nothing_is_a_rejection(self):
        with pytest.raises(SummaryRejectedError, match="1 tokens leave nothing"):
            await checked(Scripted(GOOD), request(user("x"), max_tokens=1))


class TestTokenCounts:
    async def test_reported_counts_are_passed_on(self):
        summary = await checked(
            Scripted(Summary(text=GOOD, input_tokens=7, output_tokens=5)), input_tokens_estimate=99
        )
        assert (summary.input_tokens, summary.output_tokens) == (7, 5)

    async def test_missing_counts_are_filled_in(self):
        summary = await checked(Scripted(GOOD), input_tokens_estimate=99)
        assert (summary.input_tokens, summary.output_tokens) == (99, counter.count_text(GOOD))

    async def test_both_attempts_are_added_up(self):
        long = Summary(text=GOOD + "\n- more" * 200, input_tokens=10, output_tokens=300)
        short = Summary(text=GOOD, input_tokens=11, output_tokens=30)
        summary = await checked(Scripted(long, short), request(ASK, max_tokens=100))
        assert (summary.input_tokens, summary.output_tokens) == (21, 330)

    async def test_nonsense_counts_are_taken_for_missing(self):
        nonsense = Summary(text=GOOD, input_tokens=-3, output_tokens="many")  # type: ignore[arg-type]
        summary = await checked(Scripted(nonsense), input_tokens_estimate=99)
        assert (summary.input_tokens, summary.output_tokens) == (99, counter.count_text(GOOD))


class TestFailures:
    async def test_any_exception_becomes_a_summarizer_error_that_names_it(self):
        cause = KeyError("choices")
        with pytest.raises(SummarizerError, match=r"Scripted failed: KeyError: 'choices'") as caught:
            await checked(Scripted(cause))
        assert caught.value.__cause__ is cause

    async def test_summarizer_errors_pass_as_they_are(self):
        cause = SummarizerError("no key")
        with pytest.raises(SummarizerError) as caught:
            await checked(Scripted(cause))
        assert caught.value is cause

    async def test_its_own_timeout_is_a_timeout(self):
        with pytest.raises(SummarizerTimeoutError, match="Scripted timed out"):
            await checked(Scripted(TimeoutError()))

    async def test_one_that_hangs_is_given_up_and_cancelled(self):
        cancelled = asyncio.Event()

        async def act(_request):
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        with pytest.raises(SummarizerTimeoutError, match=r"Acting did not answer within 0\.01 seconds"):
            await checked(Acting(act), timeout_seconds=0.01)
        assert cancelled.is_set()

    async def test_one_that_ignores_its_cancellation_does_not_hold_us_up(self, monkeypatch):
        monkeypatch.setattr(checking, "_CANCELLATION_GRACE_SECONDS", 0)
        release = asyncio.Event()
        ended = asyncio.Event()

        async def act(_request):
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue
            ended.set()
            raise RuntimeError("too late for anybody to hear")

        with pytest.raises(SummarizerTimeoutError):
            await checked(Acting(act), timeout_seconds=0.01)
        release.set()
        await ended.wait()

    async def test_our_cancellation_reaches_the_summarizer(self):
        started, cancelled = asyncio.Event(), asyncio.Event()

        async def act(_request):
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        task = asyncio.create_task(checked(Acting(act)))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert cancelled.is_set()

    async def test_a_summarizer_that_cancels_itself_cancels_nobody_else(self):
        with pytest.raises(SummarizerError, match="cancelled from within"):
            await checked(Scripted(asyncio.CancelledError()))

    async def test_one_that_is_no_coroutine_is_a_failure(self):
        class Plain:
            remote = False

            def summarize(self, _request):
                return Summary(text=GOOD)

        with pytest.raises(SummarizerError, match="Plain failed: TypeError"):
            await checked(Plain())
