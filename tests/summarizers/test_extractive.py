import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compressor.messages.msg import Msg, tool_calls
from context_compressor.messages.openai import from_openai
from context_compressor.offload.stubs import stub_text
from context_compressor.summarizers.extractive import ExtractiveSummarizer
from context_compressor.summarizers.identifiers.finding import count_identifiers
from context_compressor.summarizers.prompts import render_conversation
from context_compressor.summarizers.sections import parse_sections
from context_compressor.summarizers.validation import summarize_checked
from context_compressor.tokens.tiktoken_counter import TiktokenCounter
from tests.summarizers.support import (
    PieceCounter,
    assistant,
    call,
    from_dicts,
    request,
    result,
    segment,
    user,
)
from tests.support.recordings import requires_recordings, sessions

counter = PieceCounter()


async def summarize(*messages: Msg, **kw) -> str:
    return (await ExtractiveSummarizer(counter).summarize(request(*messages, **kw))).text


async def sections(*messages: Msg, **kw) -> dict[str, list[str]]:
    return parse_sections(await summarize(*messages, **kw))


REPAIR = (
    user("Please fix parse_date in src/utils/dates.py: it loses the time zone of every value it reads."),
    call("read", "1", path="src/utils/dates.py"),
    result(
        "1", "import datetime\n\ndef parse_date(value):\n    return datetime.strptime(value, FORMAT)\n" * 5
    ),
    assistant(
        "The problem is that strptime gets no time zone. I will use fromisoformat instead of strptime."
    ),
    user("ok"),
    user("You must not change the public API, and keep Python 3.8 working."),
    call("bash", "2", command="cd /repo && pytest tests/test_dates.py"),
    result("2", "E   ValueError: Invalid isoformat string: '2024-01-01Z'\n1 failed, 3 passed in 0.21s"),
    assistant("One test fails. Next step: handle the Z suffix."),
)


async def test_a_room_too_small_for_any_line_holds_the_beginning_of_the_best() -> None:
    """It was left empty, which is no summary: an event told of a failure each time."""
    said = [call("read", "1", path="src/ra4179.py"), result("1", "no3439 do464 mo9952 bo4363\n" * 40)]
    said.append(assistant("It stands in ra4179: no3439 do464 mo9952 bo4363 te9685 di501 ba8870 bo3548."))
    for most in range(10, 60):
        text = await summarize(*said, max_tokens=most, facts=("read: src/ra4179.py",))
        assert [line for line in text.splitlines() if line.startswith("- ")]
        assert counter.count_text(text) <= most


async def test_each_section_is_drawn_from_the_messages():
    found = await sections(*REPAIR)
    assert found["goal"] == [REPAIR[0].content]
    assert found["instructions"] == [REPAIR[5].content]
    assert "I will use fromisoformat instead of strptime." in found["decisions"]
    tally = "bash: pytest tests/test_dates.py → 1 failed, 3 passed in 0.21s: "
    assert any(line.startswith(tally) and "ValueError" in line for line in found["done"])
    assert any(line.startswith("read: src/utils/dates.py → def parse_date (") for line in found["done"])
    assert found["progress"] == ["One test fails. Next step: handle the Z suffix."]
    assert "next" not in found, "a sentence that was just quoted is not said again"


async def test_the_same_request_gives_the_same_summary():
    assert await summarize(*REPAIR) == await summarize(*REPAIR)


async def test_identifiers_stand_beside_a_word_that_says_what_they_are():
    orders = json.dumps([{"order_id": f"#W{n}77120", "status": "open"} for n in range(5)])
    summary = await summarize(
        user("Where are my orders?"), call("find_orders", "1", user_id="mia_garcia_4516"), result("1", orders)
    )
    for n in range(5):
        lines = [line for line in summary.splitlines() if f"#W{n}77120" in line]
        assert lines
        assert all("order_id" in line or "find_orders" in line for line in lines)


async def test_what_calls_used_and_users_named_outranks_what_tools_printed():
    listing = "\n".join(f"src/generated/module_{n}.py" for n in range(400))
    summary = await summarize(
        user("The bug must be in core_engine.py, nowhere else, I am quite sure about that."),
        call("ls", "1", path="src"),
        result("1", listing),
        call("read", "2", path="src/core_engine.py"),
        result("2", "def run_engine(): ..."),
        max_tokens=120,
    )
    assert "src/core_engine.py" in summary
    assert "core_engine.py" in summary


async def test_a_long_request_keeps_its_head_and_tail():
    text = "Build the importer. " + "It reads many files of many kinds. " * 40 + "Never touch prod.db."
    [goal] = (await sections(user(text)))["goal"]
    assert goal.startswith("Build the importer.")
    assert goal.endswith("Never touch prod.db.")


async def test_newest_and_imperative_instructions_are_preferred():
    chatter = [
        user(f"That is interesting, number {n} was nice to read about in the evening.") for n in range(40)
    ]
    found = await sections(
        user("Let us plan the trip to the mountains together, step by step."),
        *chatter[:20],
        user("You must never book flights before noon."),
        *chatter[20:],
        max_tokens=150,
    )
    assert "You must never book flights before noon." in found["instructions"]
    assert chatter[-1].content in found["instructions"]


async def test_facts_that_stand_beside_the_summary_are_not_repeated_in_it():
    alone = await sections(*REPAIR, max_tokens=300)
    facts = tuple(alone["facts"])
    beside = await sections(*REPAIR, facts=facts, max_tokens=300)
    assert facts
    assert not set(facts) & set(beside.get("facts", []))


async def test_who_of_several_users_said_something_is_told():
    said = [
        Msg("maya", "Release 8.2 is frozen until the audit is over on Thursday.", "user"),
        Msg("bot", "I keep it frozen.", "assistant"),
        Msg("planner", "You must use LightGBM only.", "user"),
        Msg("maya", "ok", "user"),
        Msg("user", "Please add INC-4471 to the notes.", "user"),
    ]
    summary = await summarize(*said, max_tokens=400)
    for line in (
        "- maya: Release 8.2 is frozen until the audit is over on Thursday.",
        "- planner: You must use LightGBM only.",
        "- Please add INC-4471 to the notes.",
    ):
        assert f"{line}\n" in summary
    assert "ok" not in summary.split()


async def test_of_what_the_facts_tell_only_one_line_is_said_again_where_there_is_nothing_else():
    asked = [f"Please tell me about river number {n}." for n in range(6)]
    facts = tuple(f"user: {text}" for text in asked)
    summary = await summarize(*map(user, asked), facts=facts, max_tokens=300)
    assert sum(text in summary for text in asked) == 1


async def test_lines_that_speak_of_what_the_user_wants_kept_are_preferred():
    chatter = [user(f"Please tell me about the weather in place number {n}, will you?") for n in range(40)]
    question = user("How much is the blue kettle in the window of the shop at the corner of the street?")
    messages = [*chatter[:1], question, *chatter[1:]]
    assert "blue kettle" not in await summarize(*messages, max_tokens=150)
    assert "blue kettle" in await summarize(*messages, max_tokens=150, instructions="Keep all on the kettle.")


async def test_a_chinese_conversation_is_summarised_under_chinese_headings():
    summary = await summarize(
        user("请修复 src/utils/dates.py 里的 parse_date，它丢失了时区。"),
        assistant("原因是 strptime 没有处理时区。接下来我要改用 fromisoformat。"),
        user("不要修改公共接口，必须兼容旧版本。"),
    )
    assert "## 目标\n- 请修复 src/utils/dates.py 里的 parse_date，它丢失了时区。" in summary
    assert "## 用户的指示与约束\n- 不要修改公共接口，必须兼容旧版本。" in summary
    assert "## 决定\n- 原因是 strptime 没有处理时区。" in summary
    assert "Goal" not in summary
    assert "## 已完成" in await summarize(
        call("search", "1", query="聂卫平的生平与贡献"), result("1", "找到三条")
    )


async def test_a_conversation_without_tools_keeps_what_was_said():
    summary = await summarize(
        user("I bought a red bicycle in Utrecht last May."),
        assistant("Great! A bicycle from Utrecht is a fine companion for the whole summer season."),
        user("My brother Jan wants one too."),
    )
    assert "red bicycle in Utrecht" in summary
    assert "My brother Jan wants one too." in summary
    assert "fine companion" in summary


async def test_of_a_call_made_again_only_the_newest_outcome_is_told():
    runs = [("1 failed", "a"), ("3 passed", "b")]
    tests = [msg for said, id in runs for msg in (call("bash", id, command="pytest -q"), result(id, said))]
    later = [
        msg for i in range(9) for msg in (call("bash", f"{i}", command=f"ls d{i}"), result(f"{i}", "x.py"))
    ]
    earlier = "## Done\n- bash: pytest -q → 5 errors"
    found = await sections(*tests, *later, previous=earlier)
    assert [line for line in found["done"] if "pytest" in line] == ["bash: pytest -q → 3 passed"]


async def test_users_who_name_things_alike_are_each_heard():
    found = await sections(user("Tidy up the repository, please."), user("mv a → b"), user("mv a → c"))
    assert found["instructions"] == ["mv a → b", "mv a → c"]


async def test_of_a_plan_only_the_newest_state_is_told():
    def plan(id: str, status: str) -> Msg:
        return call("todo", id, todos=[{"content": "Ship", "status": status}])

    earlier = "## Done\n- todo: pending: Read; Ship"
    messages = (plan("1", "pending"), result("1", "saved"), plan("2", "in_progress"), result("2", "saved"))
    assert (await sections(*messages, previous=earlier))["done"] == ["todo: in_progress: Ship"]


async def test_what_was_cut_does_not_stand_beside_its_longer_form():
    long = "Please build the importer for the archive of the museum, with all its plates. " * 8
    for max_tokens in range(20, 120, 5):
        summary = await summarize(user(long), *REPAIR[1:3], max_tokens=max_tokens, facts=("id: parse_date",))
        assert summary.count("- Please build") <= 1


async def test_what_is_asked_amid_the_work_is_not_the_goal():
    found = await sections(*REPAIR[1:])
    assert "goal" not in found
    assert REPAIR[5].content in found["instructions"]


async def test_what_is_asked_behind_the_first_reply_is_not_the_goal():
    later = "It is the one for dates, which loses the time zone of every value it reads."
    found = await sections(user("Fix the parser."), assistant("Which one do you mean?"), user(later))
    assert found["goal"] == ["Fix the parser."]
    assert later in found["instructions"]


async def test_a_goal_is_carried_forward_and_no_second_one_is_stated():
    found = await sections(REPAIR[0], previous="## Goal\n- Release version 2")
    assert found["goal"] == ["Release version 2"]
    assert found["instructions"] == [REPAIR[0].content]


async def test_of_a_screen_what_stands_below_the_newest_prompt_is_told():
    screen = (
        "user@host:~$ make check\n3 failed\nuser@host:~$ make check\n5 passed\nthe rate is 7$\nuser@host:~$"
    )
    found = await sections(user("Fix it."), call("bash", "1", command="make check"), result("1", screen))
    [line] = found["done"]
    assert "5 passed" in line
    assert "failed" not in line
    assert "host" not in line


async def test_the_state_is_not_told_again_as_a_next_step():
    found = await sections(user("Fix it."), assistant("Now let me check the remaining errors."))
    assert found["progress"] == ["Now let me check the remaining errors."]
    assert "next" not in found


async def test_half_a_surrogate_pair_is_a_character_like_any_other():
    half = "\ud800"
    function = {"name": "ls", "arguments": json.dumps({"path": f"src/{half}"})}
    said = [
        {"role": "user", "content": f"List {half} please."},
        {
            "role": "assistant",
            "content": f"Let me look {half}.",
            "tool_calls": [{"id": "1", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "1", "content": f"a{half}.py b.py\n" * 20},
        {"role": "assistant", "content": f"There are two files {half}."},
    ]
    assert "There are two files" in await summarize(*from_openai(said))


async def test_what_cannot_be_seen_gives_no_line():
    summary = await summarize(user("Fix the importer of the archive."), assistant("\u200b\u202e"))
    assert summary == "## Goal\n- Fix the importer of the archive."


class TestEarlierSummaries:
    earlier = (
        "## Goal\n- Fix parse_date\n\n## User instructions and constraints\n- keep the public API\n\n"
        "## Facts and values\n- read dates.py: def parse_date, def format_date\n"
        "- the server runs on port 8080\n"
        "\n## Done\n- read: dates.py → ok\n"
        "\n## In progress\n- reading the tests\n\n## Next steps\n- write a test"
    )

    async def test_they_are_carried_forward_by_section(self):
        found = await sections(*REPAIR[1:], previous=self.earlier)
        assert found["goal"] == ["Fix parse_date"]
        assert "keep the public API" in found["instructions"]
        assert "the server runs on port 8080" in found["facts"]
        assert "format_date" in " ".join(found["facts"])
        assert "read: dates.py → ok" in found["done"]
        assert "reading the tests" not in found["progress"]

    async def test_segments_are_merged_line_by_line(self):
        later = "## Goal\n- Also fix format_date\n\n## Facts and values\n- the server runs on port 8080"
        found = await sections(segment(self.earlier), segment(later))
        assert found["goal"] == ["Fix parse_date"]
        assert "Also fix format_date" in found["instructions"]
        assert " ".join(found["facts"]).count("port 8080") == 1
        assert not any("memory" in line or "ctx://" in line for lines in found.values() for line in lines)

    async def test_merged_segments_are_told_in_their_order(self):
        parts = [segment(f"## Done\n- step {n}a\n- step {n}b") for n in range(6)]
        found = await sections(*parts)
        assert found["done"] == [f"step {n}{part}" for n in range(6) for part in "ab"]

    async def test_a_free_form_summary_is_carried_too(self):
        found = await sections(*REPAIR[1:], previous="The customer Mia wants a refund.\nShe paid by card.")
        assert {"The customer Mia wants a refund.", "She paid by card."} <= set(found["facts"])

    async def test_what_is_used_again_survives_many_summaries(self):
        previous = None
        for n in range(6):
            noise = "\n".join(f"value_{n}_{k} = {k}" for k in range(200))
            previous = await summarize(
                user(f"Continue with part {n} of the account acc_lasting_1, please, as before."),
                call("query", f"c{n}", account="acc_lasting_1"),
                result(f"c{n}", noise),
                previous=previous,
                max_tokens=300,
            )
        assert "acc_lasting_1" in previous
        assert "part 0 of the account" in previous


@st.composite
def conversations(draw) -> list[Msg]:
    texts = st.sampled_from(
        [
            *(
                "ok",
                "",
                "Please fix src/a_b.py now, it must work.",
                "word " * 400,
                "/x" * 300,
                "é" * 50,
                "请修复这个错误。" * 30,
            ),
            *(
                "Error: no",
                '{"id": "W_123", "n": [1, 2]}',
                "## Goal\n- inner",
                "\ud83d",
                "a\\nb\\nc\\nd_e",
                "\n\n- \n#",
            ),
        ]
    )
    messages: list[Msg] = []
    for index in range(draw(st.integers(0, 8))):
        kind = draw(st.sampled_from(["user", "assistant", "call", "segment", "orphan"]))
        text = draw(texts)
        if kind == "user":
            messages.append(user(text))
        elif kind == "assistant":
            messages.append(assistant(text))
        elif kind == "segment":
            messages.append(segment(text))
        elif kind == "orphan":
            messages.append(result(f"o{index}", [{"type": "image"}, {"type": "text", "text": text}]))
        else:
            messages += [
                call("tool_x", str(index), path=text, n=None, deep={"a": [text]}),
                result(str(index), text),
            ]
    return messages


@given(
    messages=conversations(),
    max_tokens=st.integers(1, 300),
    previous=st.sampled_from(
        [None, "", "## Done\n- read: x_y.py → ok\n## Facts and values\n- a b: c_d, e_f", "free"]
    ),
    facts=st.sampled_from([(), ("fact_1 is true",), ("long " * 100,)]),
)
def test_it_never_costs_more_than_allowed(messages: list[Msg], max_tokens: int, previous: str | None, facts):
    asked = request(*messages, max_tokens=max_tokens, previous=previous, facts=facts)
    assert counter.count_text(ExtractiveSummarizer(counter)._write(asked)) <= max_tokens


@pytest.mark.parametrize(
    "piece",
    [
        "E",
        "1",
        "1 failed ",
        "a.",
        ".'",
        "/",
        "a/",
        "# ",
        "- ",
        "ok ",
        "x: ",
        "\\",
        "\\n",
        "\n",
        "Error",
        "是",
        "<a>",
    ],
)
async def test_rubbish_of_any_length_is_read_in_linear_time(piece: str):
    """Quadratic scanning of a megabyte would take minutes."""
    text = piece * (2**20 // len(piece)) + "\\u"
    messages = (
        user(text),
        assistant(text),
        call("t", "1", path=text, more=[text]),
        result("1", text),
        segment(text),
    )
    assert counter.count_text(await summarize(*messages, previous=text, max_tokens=200)) <= 200


async def test_a_large_material_is_summarised_off_the_event_loop(monkeypatch):
    import threading

    threads = []
    summarizer = ExtractiveSummarizer(counter)
    write = summarizer._write
    monkeypatch.setattr(
        summarizer, "_write", lambda asked: threads.append(threading.current_thread()) or write(asked)
    )
    await summarizer.summarize(request(user("small")))
    await summarizer.summarize(request(user("some words " * 20_000)))
    assert [thread is threading.main_thread() for thread in threads] == [True, False]


def _said(msg: Msg) -> str:
    texts = [block["text"] for block in msg.get_content_blocks("text")]
    return "\n".join([*texts, *(str(value) for call in tool_calls(msg) for value in call["input"].values())])


@requires_recordings
async def test_on_recorded_sessions_it_keeps_most_identifiers_that_are_needed_next():
    """At 1,000 tokens for some 8,000: each passes the checks, they fill their room, and they hold most of the
    identifiers that the next assistant messages use and the material held."""
    used = kept = 0
    fills = []
    for name in (
        "swe_mini_deepseek",
        "coding_sessions_claude_code",
        "swe_openhands_pr5306",
        "synthetic_concat",
    ):
        for session in list(sessions(name))[:3]:
            messages = from_dicts(session["messages"])
            material: list[Msg] = []
            for index, msg in enumerate(messages):
                material.append(msg)
                size = sum(counter.count_text(_said(m)) for m in material)
                size += sum(counter.count_text(str(m.content)) for m in material if m.role == "system")
                if size < 8_000:
                    continue
                asked = request(*material, max_tokens=1_000)
                summary = await summarize_checked(
                    ExtractiveSummarizer(counter), asked, counter, replaced_tokens=size
                )
                fills.append(counter.count_text(summary.text) / 1_000)
                following = [m for m in messages[index + 1 :] if m.role == "assistant"][:8]
                wanted = set().union(*(count_identifiers(_said(m)) for m in following)) & set(
                    count_identifiers(render_conversation(material))
                )
                used += len(wanted)
                kept += len(wanted & set(count_identifiers(summary.text)))
                material = []
    assert sum(fills) / len(fills) > 0.9
    assert used > 500
    assert kept / used > 0.75


async def test_of_a_request_that_left_the_view_the_words_are_told_and_not_the_label():
    pasted = "\n".join(f"2024-05-01 gate {n} opened" for n in range(200))
    text = f"Fix the parser of gates.\n{pasted}\nNever touch prod.db."
    stub = stub_text(
        text, "ctx://0123456789abcdef", TiktokenCounter(), tokens=3_000, max_tokens=250, what="message"
    )
    assert stub.startswith("[Offloaded message ctx://0123456789abcdef")
    [goal] = (await sections(user(stub)))["goal"]
    assert goal.startswith("Fix the parser of gates.")
    assert goal.endswith("Never touch prod.db.")
    assert "lines" not in goal
