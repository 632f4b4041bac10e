"""Formats that are told by tables."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from context_compressor.lab.readers import Format
from context_compressor.lab.readers.coding_agents import cursor
from context_compressor.lab.readers.documents import Document
from tests.lab.readers.support import SAMPLES, outline, read_lines, read_sample, read_value


def test_a_value_per_line_is_a_session_per_line():
    log = [json.loads((SAMPLES / "pydantic-ai_messages.json").read_text("utf-8"))] * 2
    whole = read_sample("pydantic-ai_messages.json").sessions[0].messages

    reading = read_lines(log)

    assert [session.line for session in reading.sessions] == [1, 2]
    assert all(session.messages == whole for session in reading.sessions)


CHAT = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]
SEEN = [{"type": "user", "uuid": "u", "sessionId": "s", "message": {"role": "user", "content": "hi"}}]
CONTEXT = [{"type": "UserMessage", "content": "hi", "source": "user"}]


@pytest.mark.parametrize(
    ("value", "format", "id"),
    [
        ({"history": CHAT}, Format.OPENAI, None),
        ({"instance_id": "i", "history": [CHAT]}, Format.OPENAI, "i"),
        ({"conversations": CHAT, "id": 3}, Format.OPENAI, "3"),
        ({"url": "/v1", "id": "r", "body": {"model": "m", "messages": CHAT}}, Format.OPENAI, "r"),
        (
            {"request": {"messages": CHAT[:1]}, "response": {"choices": [{"message": CHAT[1]}]}},
            Format.OPENAI,
            None,
        ),
        ({"loglines": SEEN}, Format.CLAUDE_CODE, "s"),
        ({"samples": [{"id": "a", "messages": CHAT}]}, Format.OPENAI, "a"),
        ({"type": "AssistantAgentState", "llm_context": {"messages": CONTEXT}}, Format.AUTOGEN, None),
    ],
)
def test_lists_are_found_in_what_wraps_them(value, format, id):
    for reading in (
        (read_value(value), read_lines([value, value])) if format is Format.OPENAI else [read_value(value)]
    ):
        session = reading.sessions[0]
        assert (session.format, session.id) == (format, id)
        assert session.messages[0] == CHAT[0]
        assert reading.problems == ()


@pytest.mark.parametrize(
    ("request_", "answer", "format"),
    [
        (
            {"system": "Be brief.", "messages": CHAT[:1]},
            {"id": "m", "role": "assistant", "content": [{"type": "text", "text": "ho"}]},
            Format.ANTHROPIC,
        ),
        (
            {"system": "Be brief.", "messages": CHAT[:1]},
            {"content": [{"type": "text", "text": "ho"}]},
            Format.ANTHROPIC,
        ),
        (
            {"model": "m", "instructions": "Be brief.", "input": "hi"},
            {"object": "response", "output": [{"type": "message", "role": "assistant", "content": "ho"}]},
            Format.RESPONSES,
        ),
    ],
)
def test_a_request_is_followed_by_its_answer_in_a_log_of_both(request_, answer, format):
    for value in (
        {"request": request_, "response": answer},
        {"time": 1, "request": {"url": "/v1", "body": request_}, "response": {"status": 200, "body": answer}},
    ):
        for session in (*read_value(value).sessions, *read_lines([value, value]).sessions):
            assert session.format is format
            assert outline(session.messages) == [("system", "Be brief."), ("user", "hi"), ("assistant", "ho")]


def test_records_of_other_types_are_named_by_their_type():
    events = [json.loads(line) for line in (SAMPLES / "openhands_sdk.jsonl").read_text("utf-8").splitlines()]
    reading = read_lines([*events, {"kind": "SomethingNew", "text": "x"}, {"level": "info"}])

    assert [str(problem) for problem in reading.problems] == [
        "f, line 10: expected a record of OpenHands events: type 'SomethingNew' is not known",
        "f, line 11: expected a record of OpenHands events: has no type (keys found: level)",
    ]


def test_the_documentation_has_a_row_for_each_format():
    text = (Path(__file__).parents[3] / "docs" / "transcripts.md").read_text("utf-8")
    rows = [line.split("|")[1].strip(" `") for line in text.splitlines() if line.startswith("| `")]

    assert sorted(row for row in rows if row != "--format") == sorted(Format)


def test_a_forced_format_is_found_in_what_wraps_it_too():
    value = json.loads((SAMPLES / "inspect_log.json").read_text("utf-8"))
    assert read_value(value, Format.INSPECT) == read_value(value)


def test_reading_leaves_the_records_of_cursor_as_they_are() -> None:
    def says(role: str, *blocks: Any) -> Any:
        return {"role": role, "message": {"content": list(blocks)}}

    records = [
        says("assistant", {"type": "tool_use", "name": "Read", "input": {}}),
        says("user", {"type": "tool_result", "tool_use_id": "t1", "content": "six"}),
        {
            "type": "tool_call",
            "subtype": "started",
            "call_id": "c",
            "tool_call": {"lsToolCall": {"args": {}}},
        },
        {"type": "tool_call", "subtype": "completed", "call_id": "c", "tool_call": {"lsToolCall": {}}},
    ]
    before = json.dumps(records)
    document = Document("f", io.BytesIO(b"{}"), [])
    (session,) = cursor.read(document.part(iter(enumerate(records, 1))))
    assert len(session.messages) == 3
    assert json.dumps(records) == before
