"""The pairing rules, each broken on its own."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compressor.lab.measure import RequestChecker
from tests.lab.measure.support import call, result, says
from tests.support.recordings import requires_recordings, sessions

USER = says("user", "go")
CALL, RESULT = call("c1", "look", "{}"), result("c1", "seen")


def two_calls() -> dict:
    first, second = call("c1", "look", "{}"), call("c2", "look", "{}")
    return {**first, "tool_calls": first["tool_calls"] + second["tool_calls"]}


def with_function(**changes) -> dict:
    changed = json.loads(json.dumps(CALL))
    changed["tool_calls"][0]["function"].update(changes)
    return changed


VALID = {
    "plain": [USER],
    "instructions and a question": [says("system", "be"), says("developer", "brief"), USER],
    "a call and its answer": [USER, CALL, RESULT],
    "answers in any order": [
        USER,
        two_calls(),
        result("c2", "b"),
        result("c1", "a"),
        says("assistant", "so"),
    ],
    "an answer that is empty": [USER, CALL, result("c1", "")],
    "parts": [{"role": "user", "content": [{"type": "text", "text": "go"}]}],
    "a picture in an answer": [USER, {**says("assistant", ""), "content": [{"type": "image_url"}]}],
    "reasoning alone": [USER, {"role": "assistant", "content": None, "reasoning_content": "hm"}],
    "a refusal": [USER, {"role": "assistant", "content": None, "refusal": "no"}],
    "the old form": [
        USER,
        {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": "{}"}},
        {"role": "function", "name": "look", "content": "seen"},
    ],
    "a custom tool": [
        USER,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "custom", "custom": {"name": "run", "input": "not json"}}],
        },
        RESULT,
    ],
}
BROKEN = {
    "nothing": ([], "no message that is not an instruction"),
    "only instructions": ([says("system", "be brief")], "no message that is not an instruction"),
    "an unknown role": ([{"role": "human", "content": "go"}], "unknown role"),
    "a call unanswered at the end": ([USER, CALL], "call 'c1' has no answer"),
    "a call unanswered before a user": ([USER, CALL, USER], "messages[2]: call 'c1' has no answer"),
    "one of two calls unanswered": ([USER, two_calls(), RESULT], "call 'c2' has no answer"),
    "an answer to nothing": ([USER, RESULT], "does not call"),
    "an answer that comes late": ([USER, CALL, USER, RESULT], "messages[3]: an answer to 'c1'"),
    "an answer to another call": ([USER, CALL, result("c9", "seen")], "'c9', which"),
    "a second answer": ([USER, CALL, RESULT, RESULT], "a second answer to 'c1'"),
    "an answer without an id": ([USER, CALL, {"role": "tool", "content": "seen"}], "an answer to None"),
    "an id again": ([USER, CALL, RESULT, CALL, RESULT], "the call id 'c1' again"),
    "an empty id": ([USER, call("", "look", "{}")], "a call without an id"),
    "a call without a name": ([USER, with_function(name=""), RESULT], "names no tool"),
    "arguments that are no JSON": ([USER, with_function(arguments="{"), RESULT], "no JSON object"),
    "arguments that are a list": ([USER, with_function(arguments="[]"), RESULT], "no JSON object"),
    "arguments that are no text": ([USER, with_function(arguments={}), RESULT], "no JSON object"),
    "no calls in tool_calls": ([USER, {**says("assistant", "so"), "tool_calls": []}], "an empty one"),
    "an assistant that says nothing": ([USER, says("assistant", " ")], "says and calls nothing"),
    "a user that says nothing": ([{"role": "user", "content": None}], "without content"),
    "an answer that says nothing": ([USER, CALL, {**RESULT, "content": None}], "without content"),
    "a function result alone": (
        [USER, {"role": "function", "name": "f", "content": "x"}],
        "without a function_call",
    ),
    "a function_call alone": (
        [USER, {"role": "assistant", "function_call": {"name": "look", "arguments": "{}"}}, USER],
        "a function_call has no answer",
    ),
}


@pytest.mark.parametrize("messages", VALID.values(), ids=VALID)
def test_valid_requests_have_no_problem(messages) -> None:
    assert RequestChecker().check(messages) == []


@pytest.mark.parametrize(("messages", "expected"), BROKEN.values(), ids=BROKEN)
def test_broken_requests_have_one_that_says_what(messages, expected) -> None:
    problems = RequestChecker().check(messages)
    assert any(expected in problem for problem in problems), problems


@requires_recordings
def test_recorded_sessions_are_valid() -> None:
    """What providers accepted when it was recorded has no problem."""
    for session in sessions("[a-r]*"):
        assert RequestChecker().check(session["messages"]) == [], session["id"]


MESSAGES = st.sampled_from(
    [
        USER,
        says("system", "be brief"),
        says("assistant", "so"),
        {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": "{}"}},
        {"role": "function", "name": "look", "content": "seen"},
        {"role": "robot"},
        CALL,
        two_calls(),
        call("c3", "look", "no object"),
        RESULT,
        result("c2", "seen"),
        result("c3", "seen"),
    ]
)


@given(st.lists(st.tuples(st.integers(0, 12), st.lists(MESSAGES, max_size=8)), min_size=1, max_size=6))
def test_requests_that_follow_each_other_are_judged_as_if_each_stood_alone(steps) -> None:
    """However much of a request is that of the one before, what is found is what is found of it alone."""
    checker, messages = RequestChecker(), []
    for kept, new in steps:
        same = min(kept, len(messages))
        messages = [*messages[:same], *new]
        assert checker.check(messages, same) == RequestChecker().check(messages)
