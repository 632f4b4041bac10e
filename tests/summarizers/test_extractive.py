"""What a summary without a model tells: a case for each mechanism in English and Chinese, and laws."""

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from context_compressor.messages.chat import from_openai
from context_compressor.messages.msg import Msg
from context_compressor.summarizers.extracts import ExtractiveSummarizer
from context_compressor.summarizers.extracts.passages import CHINESE, ENGLISH, Labels
from tests.summarizers.support import PieceCounter, assistant, call, request, result, segment, user

counter = PieceCounter()


async def summarize(*messages: Msg, **kw: Any) -> str:
    return (await ExtractiveSummarizer(counter).summarize(request(*messages, **kw))).text


def lines_under(summary: str, heading: str) -> list[str]:
    """Return the lines of a section, without their marks."""
    _, _, section = summary.partition(f"## {heading}\n")
    lines = section.partition("\n\n## ")[0].splitlines()
    return [line.removeprefix("- ") for line in lines]


def plan(id: str, *steps: tuple[str, str]) -> Msg:
    return call("todo", id, todos=[{"content": text, "status": status} for text, status in steps])


# 1: turns


async def test_words_and_work_are_told_in_order():
    summary = await summarize(
        user("Please fix parse_date in src/dates.py."),
        call("edit", "1", path="src/dates.py", old="return strptime(v)\n", new="return fromisoformat(v)\n"),
        result("1", "ok"),
        assistant("It reads ISO dates now."),
        user("Which release was that?"),
        assistant("It was 8.2."),
    )
    assert lines_under(summary, ENGLISH.log) == [
        'User: "Please fix parse_date in src/dates.py." (answered)',
        "src/dates.py: return fromisoformat(v)",
        "Agent: It reads ISO dates now.",
        'User: "Which release was that?" (answered)',
        "Agent: It was 8.2.",
    ]


async def test_in_a_chinese_conversation_our_words_are_chinese():
    summary = await summarize(
        user("请修复 src/dates.py 里的 parse_date。"),
        call("test", "1", suite="dates"),
        result("1", "错误：缺少时区"),
        assistant("原因是没有处理时区。"),
        user("不要修改公共接口，必须兼容旧版本。"),
    )
    assert lines_under(summary, CHINESE.log) == [
        '用户: "请修复 src/dates.py 里的 parse_date。" (已答复)',
        "助手: 原因是没有处理时区。",
        '用户: "不要修改公共接口，必须兼容旧版本。"',
    ]
    assert lines_under(summary, CHINESE.failures) == ["test: dates → 错误：缺少时区"]


async def test_calls_in_plain_text_are_calls():
    spoken = '<tool_call>\n{"name": "ls", "arguments": {"path": "src/app"}}\n</tool_call>'
    summary = await summarize(
        user("What is there?"),
        assistant(f"I look into src/app, the folder.\n{spoken}"),
        user("<tool_response>\na.py b.py\n</tool_response>"),
        assistant("Two files: a.py and b.py."),
    )
    assert "tool_call" not in summary
    assert "tool_response" not in summary
    assert "Agent: I look into src/app, the folder." in summary
    assert "src/app: a.py b.py" in summary
    assert lines_under(summary, ENGLISH.state) == []


async def test_a_fenced_command_is_a_call_where_a_result_follows():
    summary = await summarize(
        user("Count the files."),
        assistant("I count.\n```bash\nls | wc -l\n```"),
        user("Observation: 17 files"),
    )
    assert "ls | wc -l → Observation: 17 files" in summary


# 2: users' words


async def test_a_long_request_keeps_its_head_and_tail():
    text = "Build the importer. " + "It reads many files of many kinds. " * 60 + "Never touch prod.db."
    [line] = lines_under(await summarize(user(text), max_tokens=200), ENGLISH.log)
    assert line.startswith('User: "Build the importer.')
    assert " … " in line
    assert line.endswith('Never touch prod.db."')


@pytest.mark.parametrize(
    ("question", "answer", "told"),
    [
        (
            "There are two ways. Shall I use SQLite or Redis?",
            "SQLite",
            '"SQLite" (asked: Shall I use SQLite or',
        ),
        ("有两种方案。使用哪个数据库？", "第一个", '"第一个" (问: 使用哪个数据库？)'),
    ],
)
async def test_a_short_answer_stands_beside_its_question(question: str, answer: str, told: str):
    assert told in await summarize(assistant(question), user(answer))


async def test_who_of_several_users_said_something_is_told():
    summary = await summarize(
        Msg("maya", "Release 8.2 is frozen until Thursday.", "user"), user("Who froze it?")
    )
    assert 'User maya: "Release 8.2 is frozen until Thursday."' in summary


async def test_what_a_program_says_in_the_users_place_is_not_told_as_theirs():
    reminder = "<system-reminder>You MUST update your list.</system-reminder>"
    summary = await summarize(user(f"{reminder}\nRename it."), assistant("Renamed."), user(reminder))
    assert 'User: "Rename it."' in summary
    assert "MUST" not in summary


async def test_media_are_named_and_not_shown():
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 400}}
    said = [{"role": "user", "content": [{"type": "text", "text": "What is this?"}, image]}]
    summary = await summarize(*from_openai(said))
    assert "AAAA" not in summary
    assert "What is this? [image]" in summary


async def test_a_request_that_was_answered_is_not_told_as_open():
    paid = [
        user("Please wire 119 EUR to S019."),
        assistant("Done: 119 EUR were wired to S019, receipt W-019."),
    ]
    summary = await summarize(*paid)
    assert lines_under(summary, ENGLISH.log) == [
        'User: "Please wire 119 EUR to S019." (answered)',
        "Agent: Done: 119 EUR were wired to S019, receipt W-019.",
    ]
    assert ENGLISH.state not in summary


async def test_what_a_user_says_again_stands_where_it_was_said_last():
    summary = await summarize(
        user("Run the ledger import for the north depot."),
        assistant("It went through with 14 rows."),
        user("Now check the totals."),
        assistant("They are 1,204.50."),
        user("Run the ledger import for the north depot."),
        assistant("It went through with 15 rows."),
    )
    assert lines_under(summary, ENGLISH.log) == [
        "Agent: It went through with 14 rows.",
        'User: "Now check the totals." (answered)',
        "Agent: They are 1,204.50.",
        'User: "Run the ledger import for the north depot." (answered)',
        "Agent: It went through with 15 rows.",
    ]


async def test_a_request_amid_whose_work_the_agent_only_speaks_is_not_told_as_answered():
    said = Msg("assistant", "The ledger of May has 119 EUR too much, I look for it.", "assistant")
    said.content = [{"type": "text", "text": said.content}, call("read", "1", path="may.csv").content[0]]
    summary = await summarize(user("Why is May wrong?"), said, result("1", "x" * 900))
    assert lines_under(summary, ENGLISH.log)[:2] == [
        'User: "Why is May wrong?"',
        "Agent: The ledger of May has 119 EUR too much, I look for it.",
    ]


# 4: the state of the work


@pytest.mark.parametrize("words", [("Read it", "Ship it"), ("阅读代码", "发布版本")])
async def test_of_a_plan_the_newest_state_is_told_by_status(words: tuple[str, str]):
    read, ship = words
    summary = await summarize(
        plan("1", (read, "in_progress"), (ship, "pending")),
        result("1", "saved"),
        plan("2", (read, "completed"), (ship, "in_progress")),
        result("2", "saved"),
    )
    state = lines_under(summary, ENGLISH.state) or lines_under(summary, CHINESE.state)
    assert state == [f"completed: {read}", f"in_progress: {ship}"]


async def test_a_call_without_a_result_is_told_as_waiting():
    summary = await summarize(user("Deploy."), call("deploy", "1", target="staging"))
    assert f"{ENGLISH.no_result}: deploy: staging" in lines_under(summary, ENGLISH.state)


# 5: the agent's own conclusions


async def test_words_that_only_lead_to_a_call_are_left_out():
    said = Msg("assistant", "The cache must be cleared. Let me look at the store:", "assistant")
    said.content = [{"type": "text", "text": said.content}, call("read", "1", path="a/store.py").content[0]]
    summary = await summarize(user("Why?"), said, result("1", "x" * 900))
    assert "Agent: The cache must be cleared." in summary
    assert "Let me look" not in summary


@pytest.mark.parametrize("said", ["Now I open the next one.", "现在看下一个。"])
async def test_few_words_without_a_value_amid_the_work_are_left_out(said: str):
    amid = Msg("assistant", said, "assistant")
    amid.content = [{"type": "text", "text": said}, call("read", "1", path="a/store.py").content[0]]
    assert said not in await summarize(user("Why?"), amid, result("1", "x" * 900))


async def test_of_a_long_answer_the_lines_that_name_values_stay():
    lines = [f"{word} it is good for many things and people like it. " * 4 for word in "abcdef"]
    lines[3] = "Tool 4 costs 119 EUR and needs Python 3.12."
    answer = "Here are some:\n" + "\n".join(lines)
    summary = await summarize(user("Which tools?"), assistant(answer), max_tokens=120)
    assert "…" in summary
    assert lines[3] in summary


@pytest.mark.parametrize(
    ("usual", "unlike"),
    [
        (
            "02:{n:02}:07 INFO depot-7 lamp {n} sent",
            "02:41:07 SLOW depot-7 lamp 8f3a-77 went back: no room left",
        ),
        ("{n:02}点07分 第{n}盏灯已寄出", "41点07分 灯K-77退回：仓库已满"),
    ],
)
async def test_of_lines_that_are_alike_the_one_that_is_not_is_told(usual: str, unlike: str):
    lines = [usual.format(n=n) for n in range(10, 60)]
    lines[31] = unlike
    summary = await summarize(user("Why?"), call("look", "1", at=7), result("1", "\n".join(lines)))
    assert unlike in summary
    assert "(50 lines)" in summary
    assert not any(line in summary for line in lines[1:31])


# 6: a row for each file and record


async def test_of_edits_the_new_side_is_told():
    summary = await summarize(
        call("edit", "1", path="src/a.py", old_string="x = 1\ny = 2", new_string="x = 1\ny = 3  # three"),
        result("1", "The file has been updated."),
        call("edit", "2", path="src/a.py", oldText="retries = 2", newText="retries = 5"),
        result("2", "The file has been updated."),
    )
    [row] = lines_under(summary, ENGLISH.log)
    assert row == "src/a.py (edit ×2): edit → y = 3 # three · edit → retries = 5"


async def test_a_record_is_told_with_what_was_done_and_what_came_of_it():
    order = {"order_id": "#W77", "user_id": "mia_4516", "status": "delivered", "items": [{"name": "lamp"}]}
    changed = {**order, "status": "exchange requested", "difference": -9.89}
    summary = await summarize(
        call("get_order", "1", order_id="#W77"),
        result("1", json.dumps(order)),
        call("exchange", "2", order_id="#W77", new_item="7958", payment="paypal_24"),
        result("2", json.dumps(changed)),
    )
    [row] = lines_under(summary, ENGLISH.log)
    assert row.startswith(
        "#W77 (get_order, exchange): user_id: mia_4516, status: delivered, items: (name: lamp)"
    )
    assert row.endswith(
        "exchange (new_item: 7958, payment: paypal_24) → status: exchange requested, difference: -9.89"
    )


async def test_a_folder_that_paths_share_is_told_once():
    edits = []
    for n in range(4):
        edits += [
            call("write", str(n), path=f"/home/ann/depot/src/m{n}.py", text="a = 1\n" * 9),
            result(str(n), "ok"),
        ]
    summary = await summarize(*edits)
    assert summary.count("/home/ann/depot/src/") == 1
    assert "\n- m3.py: a = 1" in summary


# 7: outcomes and failures


@pytest.mark.parametrize(
    "output",
    [
        "npm error code 1\nsrc/a.ts(3,4): error TS2322: bad type\nnpm error command failed",
        "Traceback (most recent call last):\n  File 'a.py'\nValueError: bad type",
        '{"output": "bad type", "exit_code": 2}',
        '{"error": "bad type"}',
        "<returncode>1</returncode>\n<output>\nbad type\n</output>",
        "错误：bad type",
        "操作失败: bad type",
        "bash: foo: command not found: bad type",
    ],
)
async def test_a_failure_stands_with_its_exact_error_until_it_is_mended(output: str):
    broken = [user("Build it."), call("bash", "1", command="make all"), result("1", output)]
    told = lines_under(await summarize(*broken), ENGLISH.failures)
    assert len(told) == 1
    assert told[0].startswith("bash: make all → ")
    assert "bad type" in told[0]
    mended = await summarize(*broken, call("bash", "2", command="make all"), result("2", "built"))
    assert ENGLISH.failures not in mended
    assert "make all → built" in mended


@pytest.mark.parametrize(
    "output",
    [
        "No errors found",
        "0 failed, 3 passed",
        '{"error": null, "status": "ok"}',
        "<returncode>0</returncode>\n<output>\nerrors.py\n</output>",
        "[Command finished with exit code 0]",
        "没有错误",
        "# Error handling\n" + "How to handle an error in a program.\n" * 60,
    ],
)
async def test_what_only_speaks_of_errors_has_not_failed(output: str):
    summary = await summarize(call("bash", "1", command="make all"), result("1", output))
    assert ENGLISH.failures not in summary
    assert CHINESE.failures not in summary


async def test_what_all_results_print_is_not_told_of_each():
    calls = []
    for n in range(5):
        calls += [
            call("bash", str(n), command=f"run {n}"),
            result(str(n), f"> depot@1.0 run\nresult {n} of {n}"),
        ]
    summary = await summarize(*calls)
    assert "depot@1.0" not in summary
    assert "bash: run 3 → result 3 of 3" in summary


# 8: earlier summaries


async def test_lines_of_an_earlier_extract_join_the_lists_they_were_in():
    old = await summarize(
        user("Build it."),
        call("bash", "1", command="make all"),
        result("1", "error: no rule"),
        assistant("It fails."),
    )
    kept = await summarize(segment(old), user("Try again."))
    told = ['User: "Build it." (answered)', "Agent: It fails.", 'User: "Try again."']
    assert lines_under(kept, ENGLISH.log) == told
    assert lines_under(kept, ENGLISH.failures) == ["bash: make all → error: no rule"]
    mended = await summarize(segment(old), call("bash", "2", command="make all"), result("2", "built"))
    assert ENGLISH.failures not in mended


async def test_an_answer_stands_behind_the_request_that_an_earlier_summary_told():
    old = await summarize(
        user("Please wire 119 EUR to S019."), call("bank", "1", to="S019"), result("1", "sent")
    )
    later = await summarize(segment(old), assistant("Done: 119 EUR were wired."), user("Thank you."))
    asked, *told = lines_under(later, ENGLISH.log)
    assert asked.startswith('User: "Please wire 119 EUR to S019."')
    assert told == ["bank: S019 → sent", "Agent: Done: 119 EUR were wired.", 'User: "Thank you."']


@pytest.mark.parametrize("kind", ["segment", "previous"])
async def test_prose_of_a_model_is_carried_under_a_heading_of_its_own(kind: str):
    prose = "## Goal\nWire the depot.\n\n## Decisions\n- SQLite, since Redis was too slow."
    if kind == "segment":
        summary = await summarize(segment(prose), user("Go on."))
    else:
        summary = await summarize(user("Go on."), previous=prose)
    told = ["Goal: Wire the depot.", "Decisions: SQLite, since Redis was too slow."]
    assert lines_under(summary, ENGLISH.earlier) == told
    assert lines_under(await summarize(segment(summary), user("And?")), ENGLISH.earlier) == told


async def test_state_of_an_earlier_summary_goes_when_there_is_newer():
    old = await summarize(user("Ship it."), plan("1", ("Read", "pending")), result("1", "saved"))
    assert lines_under(old, ENGLISH.state) == ["pending: Read"]
    later = await summarize(
        segment(old), plan("2", ("Read", "completed")), result("2", "saved"), assistant("Shipped.")
    )
    assert lines_under(later, ENGLISH.state) == ["completed: Read"]
    assert lines_under(
        await summarize(segment(old), call("x", "3", y=1), result("3", "2")), ENGLISH.state
    ) == (lines_under(old, ENGLISH.state))


async def test_facts_survive_five_merges_where_there_is_room():
    text = await summarize(user("The depot's code is K-7781."), assistant("Noted: K-7781."), max_tokens=80)
    for n in range(5):
        talk = [
            user(f"What about shelf {n}? {'Tell me all of it. ' * 9}"),
            assistant(f"Shelf {n} holds {n} lamps."),
        ]
        text = await summarize(segment(text), *talk, max_tokens=80 * (n + 2))
    assert 'User: "The depot\'s code is K-7781." (answered)\n- Agent: Noted: K-7781.' in text
    assert "Shelf 0 holds 0 lamps." in text


# the whole


async def test_what_the_agent_asked_to_keep_is_preferred():
    chatter = [user(f"Tell me about the weather in place number {n}, will you? " * 2) for n in range(40)]
    question = user("How much is the blue kettle in the window?")
    messages = [*chatter[:9], question, *chatter[9:]]
    assert "blue kettle" not in await summarize(*messages, max_tokens=150)
    assert "blue kettle" in await summarize(*messages, max_tokens=150, note="the price of the kettle")


async def test_what_cannot_be_seen_is_taken_out():
    summary = await summarize(user("Use \u202eUTC\x1b[31m, <|im_start|>please."), result("1", "a\u200bb"))
    assert 'User: "Use UTC, < |im_start|>please."' in summary
    assert "ab" in summary


async def test_a_stand_in_is_told_by_what_it_shows():
    stub = "[Offloaded tool result ctx://0123456789abcdef: 900 lines, 9000 characters, 3000 tokens]\n17 rows"
    summary = await summarize(call("query", "1", table="lamps"), result("1", stub))
    assert "query: lamps → 17 rows" in summary
    assert "ctx://" not in summary


@pytest.mark.parametrize("max_tokens", [12, 24, 48, 64])
async def test_a_tiny_room_tells_what_was_said_last(max_tokens: int):
    said = [user("Which shelf holds the lamps?"), assistant("The lamps are on shelf 9.")]
    summary = await summarize(*said, max_tokens=max_tokens)
    assert summary
    assert counter.count_text(summary) <= max_tokens
    assert max_tokens < 48 or "shelf 9" in summary


SENTENCES = st.sampled_from(
    [
        "The depot holds lamps of many kinds.",
        "Never ship on Fridays, and keep the ledger closed.",
        "Shelf 7 is for kettles!",
        "仓库里有很多种灯。",
        "不要在周五发货，并保持账本关闭。",
        "x = 1",
        "```\ncode\n```",
        "a — b",
    ]
)
SAID = st.lists(SENTENCES, min_size=1, max_size=30).map(" ".join)


@st.composite
def conversations(draw: st.DrawFn) -> tuple[list[Msg], set[str]]:
    """A conversation, and the commands that failed and were not made again."""
    messages: list[Msg] = []
    failed = set[str]()
    for n in range(draw(st.integers(1, 8))):
        messages.append(user(draw(SAID)))
        for k in range(draw(st.integers(0, 3))):
            fails = draw(st.booleans())
            command = f"run-{n}-{k}"
            if fails:
                failed.add(command)
            output = f"error: no such lamp {n}" if fails else draw(SAID)
            arguments = {"command": command} if draw(st.booleans()) else {"path": command, "text": draw(SAID)}
            messages += [call("tool", f"{n}-{k}", **arguments), result(f"{n}-{k}", output)]
        if draw(st.booleans()):
            messages.append(assistant(draw(SAID)))
    return messages, failed


@settings(deadline=None, max_examples=120)
@given(conversations(), st.integers(8, 900))
async def test_laws(conversation: tuple[list[Msg], set[str]], max_tokens: int):
    """Within the room, the same each time, words as they were said, no failure as done, no room left idle."""
    messages, failed = conversation
    summary = await summarize(*messages, max_tokens=max_tokens)
    tokens = counter.count_text(summary)
    assert tokens <= max_tokens
    assert summary == await summarize(*messages, max_tokens=max_tokens)
    said = " ".join(" ".join(str(msg.content).split()) for msg in messages if msg.role == "user")
    labels = CHINESE if CHINESE.log in summary else ENGLISH
    for line in summary.splitlines():
        if line.startswith(f'- {labels.user}: "'):
            quote = line.partition('"')[2].removesuffix(f" ({labels.answered})")
            quote = quote.partition(f'" ({labels.asked}')[0].removesuffix('"')
            assert all(part.strip() in said for part in quote.split("…"))
    for command in failed:
        assert all(
            _tells_failure(line, labels) for line in lines_under(summary, labels.log) if command in line
        )
    if any("…" in line for line in lines_under(summary, labels.log)) and max_tokens >= 250:
        assert tokens >= 0.8 * max_tokens


def _tells_failure(line: str, labels: Labels) -> bool:
    return f"→ {labels.failed}" in line or not re.search(r"→ \w", line)


@settings(deadline=None, max_examples=60)
@given(conversations(), SAID)
async def test_lines_of_an_earlier_summary_survive_where_there_is_room(
    conversation: tuple[list[Msg], set[str]], words: str
):
    old = await summarize(*conversation[0], max_tokens=300)
    new = await summarize(segment(old), user(words), max_tokens=20_000)
    labels = CHINESE if CHINESE.log in old else ENGLISH
    kept = {line.removesuffix(f" ({labels.answered})") for line in new.splitlines()}
    told = [line.removesuffix(f" ({labels.answered})") for line in lines_under(old, labels.log)]
    assert all(f"- {line}" in kept for line in told)
