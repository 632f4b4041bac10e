"""What says nothing is no message; what was said is kept, whoever wrote it down and wherever it stands."""

from typing import Any

import pytest

from context_compressor.lab.readers import Format, UnreadableError
from tests.lab.readers.support import read_lines, read_value

HUMAN, GPT = {"from": "human", "value": "When is high water?"}, {"from": "gpt", "value": "At six."}
CHAT = [{"role": "user", "content": "Which port?"}, {"role": "assistant", "content": "8080."}]


def record(number: int, kind: str, **more: Any) -> dict[str, Any]:
    """Return a record of Claude Code that follows the one before it."""
    return {"type": kind, "uuid": f"r{number}", "parentUuid": f"r{number - 1}", "sessionId": "s", **more}


def said(number: int, role: str, *content: Any, **more: Any) -> dict[str, Any]:
    return record(number, role, message={"role": role, "content": list(content)}, **more)


TEXT = {"type": "text", "text": "hi"}
SILENT = {
    "openai": {"role": "assistant"},
    "anthropic": {"role": "user", "content": [{"type": "text", "text": " "}]},
    "responses": {"type": "message", "role": "user", "content": []},
    "langchain": {"type": "ai", "content": ""},
    "claude-code": said(9, "user"),
    "pi": {"type": "message", "timestamp": "t", "message": {"role": "assistant", "content": []}},
    "goose": {"role": "user", "created": 1, "content": []},
    "sharegpt": {"from": "gpt", "value": ""},
}
SPOKEN = {
    "openai": CHAT[0],
    "anthropic": {"role": "user", "content": [TEXT]},
    "responses": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
    "langchain": {"type": "human", "content": "hi"},
    "claude-code": said(8, "user", TEXT),
    "pi": {"type": "message", "timestamp": "t", "message": {"role": "user", "content": [TEXT]}},
    "goose": {"role": "user", "created": 1, "content": [TEXT]},
    "sharegpt": HUMAN,
}


@pytest.mark.parametrize("format", SILENT)
def test_a_record_that_says_nothing_is_no_message_in_any_format(format):
    reading = read_lines([SPOKEN[format], SILENT[format]], Format(format))
    assert len(reading.sessions[0].messages) == 1
    assert ["says nothing" in problem.why for problem in reading.problems] == [True]

    with pytest.raises(UnreadableError):
        read_lines(
            [SPOKEN[format], SILENT[format], {**SILENT[format], "uuid": "r10", "parentUuid": "r9"}],
            Format(format),
        )


def test_a_silent_message_of_a_list_is_told_by_its_line_and_the_others_are_read():
    (session,) = (reading := read_value([*CHAT, {"role": "assistant", "content": None}])).sessions
    assert session.messages == CHAT
    assert [str(problem)[:31] for problem in reading.problems] == ["f, line 1: messages[2]: says no"]
    # What is wrapped stands somewhere in the file: no line is told, rather than a wrong one.
    (problem,) = read_value([[*CHAT, {"role": "assistant", "content": None}]]).problems
    assert str(problem).startswith("f: messages[2]: says nothing")


def test_a_session_that_is_refused_counts_as_all_that_it_holds():
    odd = {"messages": [*CHAT * 9, {"role": "wizard", "content": "x"}]}
    with pytest.raises(UnreadableError, match=r"most of it .* 19 of 21 records; first: messages\[18\]"):
        read_lines([{"messages": CHAT}, odd])

    reading = read_lines([{"messages": CHAT * 20}, odd])
    assert len(reading.sessions) == len(reading.problems) == 1


LISTS: dict[str, list[Any]] = {
    "openai": [{"messages": CHAT}, {"messages": CHAT}],
    "bare": [CHAT, CHAT],
    "sharegpt": [{"conversations": [HUMAN, GPT]}, {"conversations": [HUMAN, GPT]}],
    "tau-bench": [{"task_id": 1, "reward": 1.0, "traj": CHAT}, {"task_id": 2, "reward": 0.0, "traj": CHAT}],
}


@pytest.mark.parametrize("name", LISTS)
def test_a_list_of_sessions_is_read_as_its_sessions(name):
    reading = read_value(LISTS[name])
    assert [len(session.messages) for session in reading.sessions] == [2, 2]
