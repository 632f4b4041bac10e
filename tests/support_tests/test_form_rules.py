"""What the rules of each form refuse, and what they take."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compressor.laws import anthropic_rules, responses_rules
from context_compressor.laws.chat_rules import OPENAI_PARTS, RequestChecker
from context_compressor.laws.chat_rules import problems as chat_problems
from tests.support.recordings import requires_recordings, sessions
from tests.support_tests.refused_forms import (
    CHUNK,
    FOUND,
    FUNCTION_CALL,
    HI,
    IMAGE,
    MARK,
    REASONING,
    REFUSED_ANTHROPIC,
    REFUSED_CHAT,
    REFUSED_RESPONSES,
    SEARCH,
    SHELL,
    THOUGHT,
    call,
    chat_call,
    chat_result,
    model,
    output,
    result,
    said,
    text,
    use,
    user,
)

PICTURE = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}

ANY_CHAT = st.sampled_from(
    [message for messages, _ in REFUSED_CHAT.values() for message in messages]
    + [chat_call("a", "b"), {"role": "function", "name": "f", "content": "x"}, "no object"]
)


class TestChat:
    @pytest.mark.parametrize(("messages", "problem"), REFUSED_CHAT.values(), ids=REFUSED_CHAT)
    def test_what_breaks_a_rule_is_refused(self, messages: list[Any], problem: str):
        assert any(problem in found for found in chat_problems(messages))

    def test_what_is_valid_passes(self):
        history = [
            {"role": "system", "content": "Be kind."},
            HI,
            {**chat_call("a", "b"), "content": None},
            chat_result("b"),
            chat_result("a", ""),
            {"role": "assistant", "content": "Done."},
            HI,
            chat_call("c", arguments='{"deep": {"a": [1]}}'),
            chat_result("c"),
            FUNCTION_CALL,
            {"role": "function", "name": "f", "content": "seen"},
            {
                "role": "assistant",
                "tool_calls": [{"id": "d", "type": "custom", "custom": {"name": "run", "input": "ls"}}],
            },
            chat_result("d"),
            {"role": "assistant", "content": None, "refusal": "No."},
        ]
        assert chat_problems(history, parts=OPENAI_PARTS) == []

    @pytest.mark.parametrize(
        ("role", "part", "is_known"),
        [
            ("user", {"text": "typeless"}, False),
            ("user", {"type": "document_url", "document_url": "https://example.com/a.pdf"}, False),
            ("user", {"type": "image", "image": "https://example.com/a.png"}, False),
            ("user", {"type": "refusal", "refusal": "no"}, False),
            ("assistant", PICTURE, False),
            ("system", PICTURE, False),
            ("user", {"type": "text", "text": None}, False),
            ("user", {}, False),
            ("user", PICTURE, True),
            ("user", {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}, True),
            ("user", {"type": "file", "file": {"file_id": "file-1"}}, True),
            ("assistant", {"type": "refusal", "refusal": "no"}, True),
            ("system", {"type": "text", "text": "x"}, True),
        ],
    )
    def test_parts_are_those_of_their_role(self, role: str, part: dict[str, Any], is_known: bool):
        assert (chat_problems([HI, {"role": role, "content": [part]}], parts=OPENAI_PARTS) == []) is is_known

    @requires_recordings
    def test_recorded_sessions_are_valid_where_thoughts_are_taken(self):
        for session in sessions("[a-r]*"):
            assert chat_problems(session["messages"], takes_thoughts=True) == [], session["id"]

    @given(st.lists(st.tuples(st.integers(0, 12), st.lists(ANY_CHAT, max_size=8)), min_size=1, max_size=6))
    def test_what_is_the_same_in_two_requests_is_judged_as_if_read_anew(self, steps: list[Any]):
        checker, messages = RequestChecker(), []
        for kept, new in steps:
            same = min(kept, len(messages))
            messages = [*messages[:same], *new]
            assert checker.check(messages, same) == RequestChecker().check(messages)


class TestResponses:
    @pytest.mark.parametrize(("items", "problem"), REFUSED_RESPONSES.values(), ids=REFUSED_RESPONSES)
    def test_what_breaks_a_rule_is_refused(self, items: list[Any], problem: str):
        assert any(problem in found for found in responses_rules.problems(items))

    @pytest.mark.parametrize(
        "items",
        [
            [HI, REASONING, call(id="fc_1"), call("c2"), output("c2"), output("c1", "")],
            [HI, REASONING, {**REASONING, "id": "rs_2"}, call(), HI, output()],
            [HI, SHELL, {"type": "shell_call_output", "call_id": "c1", "output": [CHUNK]}],
            [HI, {"type": "item_reference", "id": "fc_1"}, output()],
            [HI, REASONING, {"id": "msg_1"}],
            [HI, REASONING, {"type": "web_search_call", "id": "ws_1", "status": "completed"}],
            [HI, {"type": "something_new", "x": [1]}, {"role": "assistant", "content": ""}],
            [HI, {"type": "reasoning", "summary": [], "encrypted_content": "x"}, call(), output()],
            [said({"type": "input_image", "file_id": "file-1", "detail": "auto"}, "developer")],
        ],
    )
    def test_what_is_valid_passes(self, items: list[Any]):
        assert responses_rules.problems(items, responses_rules.needs_of(items)) == []

    def test_a_call_needs_the_reasoning_that_it_came_with(self):
        history = [HI, REASONING, call(id="fc_1"), call("c2", id="fc_2"), output(), output("c2")]
        needs = responses_rules.needs_of(history)
        assert needs == {"fc_1": "rs_1", "fc_2": "rs_1"}
        without = [item for item in history if item is not REASONING]
        assert responses_rules.problems(without) == []
        [first, _second] = responses_rules.problems(without, needs)
        assert "Item 'fc_1' of type 'function_call' was provided without its required 'reasoning'" in first


class TestAnthropic:
    @pytest.mark.parametrize(("messages", "problem"), REFUSED_ANTHROPIC.values(), ids=REFUSED_ANTHROPIC)
    def test_what_breaks_a_rule_is_refused(self, messages: list[Any], problem: str):
        assert any(problem in found for found in anthropic_rules.problems(messages))

    @pytest.mark.parametrize(
        "messages",
        [
            [HI, model(THOUGHT, text(), use(), use("t2")), user(result("t2", content=""), result(), text())],
            [HI, model(THOUGHT, SEARCH, FOUND, THOUGHT, text()), HI],
            [HI, model(SEARCH)],
            [HI, HI, model(text(" x")), {"role": "assistant", "content": "The answer is"}],
            [HI, model(use()), user(result(content=[IMAGE])), {"role": "system", "content": "Be brief."}],
            [user({"type": "something_new", "x": 1}, text(**MARK))],
            [HI, model(use()), user({"type": "tool_result", "tool_use_id": "t1"})],
        ],
    )
    def test_what_is_valid_passes(self, messages: list[Any]):
        assert anthropic_rules.problems(messages) == []

    @pytest.mark.parametrize("system", ["Be kind.", "", [text(**MARK)]])
    def test_a_system_prompt_is_a_text_or_blocks_of_text(self, system: Any):
        assert anthropic_rules.problems([HI], system) == []
        assert anthropic_rules.problems([HI], [IMAGE])
        assert anthropic_rules.problems([HI], 5)

    def test_marks_are_counted_over_system_and_messages(self):
        messages = [HI, model(use(**MARK)), user(result(content=[text(**MARK)], **MARK))]
        assert anthropic_rules.problems(messages, [text(**MARK)]) == []
        assert "Found 5" in anthropic_rules.problems(messages, [text(**MARK), text(**MARK)])[0]

    def test_a_request_that_is_no_unicode_is_refused(self):
        assert "not valid JSON" in anthropic_rules.problems([user(text("half \ud83d"))])[0]

    def test_thinking_stays_while_its_turn_is_open(self):
        history = [HI, model(THOUGHT, use()), user(result()), model(THOUGHT, use("t2")), user(result("t2"))]
        thinking = anthropic_rules.thinking_of(history)
        assert thinking == {"t1": "c2ln", "t2": "c2ln"}
        assert anthropic_rules.problems(history, thinking=thinking) == []
        lost = [HI, model(use()), *history[2:]]
        [problem] = anthropic_rules.problems(lost, thinking=thinking)
        assert "messages.1.content.0.type: Expected `thinking`" in problem
        changed = [HI, model({**THOUGHT, "signature": "b3Ro"}, use()), *history[2:]]
        assert "cannot be modified" in anthropic_rules.problems(changed, thinking=thinking)[0]
        closed = [*lost, model(text()), HI]
        assert anthropic_rules.problems(closed, thinking=thinking) == []

    def test_an_open_turn_begins_with_thinking_where_it_does_in_the_history(self):
        history = [HI, model(THOUGHT, use()), user(result()), model(use("t2")), user(result("t2"))]
        for view in (history, history[:1], [HI, model(THOUGHT, use("t2")), history[4]], [HI, *history[:1]]):
            assert [*anthropic_rules.opens_without_thinking(view, history)] == []
        [problem] = anthropic_rules.opens_without_thinking([HI, *history[3:]], history)
        assert "messages.1.content.0.type: Expected `thinking`" in problem
        assert [*anthropic_rules.opens_without_thinking([HI, *history[3:]], history[3:])] == []
