"""Formats that are told by tables."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from context_compressor.lab.readers import Format, UnreadableError
from context_compressor.lab.readers.coding_agents import cursor
from context_compressor.lab.readers.documents import Document
from tests.lab.readers.support import SAMPLES, arguments, outline, read_lines, read_sample, read_value


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


def test_blocks_of_other_types_are_kept_as_they_are():
    message = {"role": "assistant", "content": [{"type": "text", "text": "ho"}, {"type": "odd"}, 7]}
    lines = [{"type": "message", "id": "a", "timestamp": "t", "message": message}]
    (session,) = read_lines([{"type": "session", "id": "x", "timestamp": "t"}, *lines]).sessions

    texts = ["ho", '{"type": "odd"}', "7"]
    assert session.messages == [
        {"role": "assistant", "content": [{"type": "text", "text": text} for text in texts]}
    ]


def test_the_latest_of_branches_goes_on_where_an_old_session_has_no_links():
    def entry(**more: Any) -> dict[str, Any]:
        return {"type": "message", "timestamp": "t", **more}

    (session,) = read_lines(
        [{"type": "session", "id": "x", "timestamp": "t"}, *(entry(message=message) for message in CHAT)]
    ).sessions
    assert [said for _, said in outline(session.messages)] == ["hi", "ho"]


def test_a_known_format_without_messages_is_refused():
    with pytest.raises(UnreadableError, match="holds no message"):
        read_lines([{"type": "thread.started", "thread_id": "t"}, {"type": "turn.started"}])


def test_a_gemini_session_that_is_set_anew_is_what_it_was_set_to():
    def said(id: str, kind: str, text: str) -> dict[str, Any]:
        return {"id": id, "type": kind, "content": [{"text": text}]}

    head = {"sessionId": "g", "projectHash": "h"}
    old = [said("1", "user", "long talk"), said("2", "gemini", "long answer"), said("3", "user", "go on")]
    anew = [said("9", "user", "<summary>"), said("3", "user", "go on!")]
    (session,) = read_lines([head, *old, {"$set": {"messages": anew}}, said("4", "gemini", "going")]).sessions

    assert [said for _, said in outline(session.messages)] == ["go on!", "<summary>", "going"]
    assert session.notes == (
        "left out: records that a later state lacks (2), earlier states of records (1), update (1)",
    )


def test_calls_that_gemini_tells_twice_are_read_once():
    call = {
        "id": "c",
        "name": "look",
        "args": {},
        "result": [{"functionResponse": {"response": {"output": "calm"}}}],
    }
    content = [{"functionCall": {"id": "c", "name": "look", "args": {}}}, {"text": "Looking."}]
    record = {"id": "1", "type": "gemini", "content": content, "toolCalls": [call]}
    (session,) = read_lines([{"sessionId": "g", "projectHash": "h"}, record]).sessions

    assert outline(session.messages) == [("assistant", ("Looking.", ("c", "look"))), ("tool c", "calm")]
    assert session.notes == ("left out: functionCall in content (1)",)


def test_openhands_calls_are_what_the_model_called_where_that_is_kept():
    """The arguments of an action lack what its tool took elsewhere, such as the text of a new file."""
    asked = {
        "id": "c1",
        "function": {"name": "edit", "arguments": '{"path": "log.md", "file_text": "high at six"}'},
    }
    response = {"id": "r", "choices": [{"message": {"tool_calls": [asked]}}]}
    told = {"function_name": "edit", "tool_call_id": "c1", "model_response": response}
    said = {"id": 1, "source": "user", "action": "message", "args": {"content": "note it"}}
    action = {
        "id": 2,
        "source": "agent",
        "action": "edit",
        "tool_call_metadata": told,
        "args": {"path": "log.md"},
    }
    (session,) = read_value([said, action]).sessions

    assert arguments(session.messages) == {"c1": '{"path": "log.md", "file_text": "high at six"}'}


def test_the_documentation_has_a_row_for_each_format():
    text = (Path(__file__).parents[3] / "docs" / "transcripts.md").read_text("utf-8")
    rows = [line.split("|")[1].strip(" `") for line in text.splitlines() if line.startswith("| `")]

    assert sorted(row for row in rows if row != "--format") == sorted(Format)


def test_a_forced_format_is_found_in_what_wraps_it_too():
    value = json.loads((SAMPLES / "inspect_log.json").read_text("utf-8"))
    assert read_value(value, Format.INSPECT) == read_value(value)


def test_results_that_cursor_names_by_other_ids_answer_the_calls_in_order() -> None:
    def says(role: str, *blocks: Any) -> Any:
        return {"role": role, "message": {"content": list(blocks)}}

    use = {"type": "tool_use", "name": "Read", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "high at six"}
    session = read_lines(
        [says("user", {"type": "text", "text": "When?"}), says("assistant", use), says("user", result)]
    )
    [found] = session.sessions
    assert outline(found.messages)[1:] == [
        ("assistant", (None, ("call_1", "Read"))),
        ("tool call_1", "high at six"),
    ]
    assert not found.notes


def test_thoughts_and_arguments_of_a_cursor_stream_are_kept() -> None:
    def record(kind: str, **more: Any) -> Any:
        return {"type": kind, "session_id": "s", **more}

    def call(subtype: str, **held: Any) -> Any:
        return record("tool_call", call_id="c", subtype=subtype, tool_call={"readToolCall": held})

    thoughts = [record("thinking", subtype="delta", text=text) for text in ("Look", "ing.")]
    records = [
        *thoughts,
        call("started", args={"path": "t"}),
        call("completed", result={"success": {"content": "six"}}),
    ]
    [session] = read_lines(records).sessions
    assert outline(session.messages) == [
        ("assistant", ((None, "Looking."), ("c", "read"))),
        ("tool c", "six"),
    ]
    assert arguments(session.messages) == {"c": '{"path": "t"}'}


def test_a_call_that_an_opencode_stream_tells_as_it_runs_and_done_is_one() -> None:
    def state(**more: Any) -> Any:
        part = {"type": "tool", "callID": "c", "tool": "look", "state": {"input": {"at": "sea"}, **more}}
        return {"type": "tool_use", "sessionID": "s", "part": part}

    said = {"type": "text", "sessionID": "s", "part": {"type": "text", "text": "Calm."}}
    [session] = read_lines([state(status="running"), state(status="completed", output="calm"), said]).sessions
    assert outline(session.messages) == [
        ("assistant", ("Calm.", ("c", "look"))),
        ("tool c", "calm"),
    ]
    assert session.notes == ("left out: earlier states of calls (1)",)


def test_texts_that_a_cursor_stream_tells_in_pieces_and_then_whole_are_told_once() -> None:
    def says(text: str, **more: Any) -> Any:
        message = {"role": "assistant", "content": [{"type": "text", "text": text}]}
        return {"type": "assistant", "session_id": "s", "message": message, **more}

    function = {"name": "look", "arguments": '{"at": "sea"}', "result": {"success": {"content": "calm"}}}
    call = {"type": "tool_call", "subtype": "completed", "session_id": "s", "call_id": "c"}
    records = [
        *[says(text, timestamp_ms=1) for text in ("I lo", "ok", " out.", "I look out.")],
        {**call, "tool_call": {"function": function}},
        *[says(text) for text in ("It is", " calm.", "It is calm.", "Sail.")],
    ]
    [session] = read_lines(records).sessions
    assert outline(session.messages) == [
        ("assistant", ("I look out.", ("c", "look"))),
        ("tool c", "calm"),
        ("assistant", "It is calm."),
        ("assistant", "Sail."),
    ]
    assert arguments(session.messages) == {"c": '{"at": "sea"}'}
    assert session.notes == ("left out: pieces of texts that follow whole (5)",)


def test_the_ends_of_turns_in_a_cursor_transcript_are_no_messages() -> None:
    def says(role: str, text: str) -> Any:
        return {"role": role, "message": {"content": [{"type": "text", "text": text}]}}

    ended = {"type": "turn_ended", "status": "aborted", "error": "stopped"}
    reading = read_lines([says("system", "Be brief."), says("user", "When?"), ended, ended, ended])
    [session] = reading.sessions
    assert (session.format, reading.problems) == (Format.CURSOR, ())
    assert outline(session.messages) == [("system", "Be brief."), ("user", "When?")]
    assert session.notes == ("left out: turn_ended (3)",)


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


def test_a_gemini_session_whose_messages_have_parts_is_refused_by_name() -> None:
    said = {"id": "1", "type": "user", "parts": [{"text": "When?"}]}
    told = {"id": "2", "type": "gemini", "parts": [{"text": "At six."}, {"functionCall": {"name": "look"}}]}
    with pytest.raises(UnreadableError, match="looks like Gemini contents"):
        read_value({"sessionId": "g", "projectHash": "h", "messages": [said, told]})


def test_a_record_whose_parent_is_not_in_the_file_follows_the_one_before_it() -> None:
    def record(id: str, parent: str, text: str) -> Any:
        message = {"role": "user", "content": text}
        return {"type": "message", "id": id, "parentId": parent, "timestamp": "t", "message": message}

    records = [
        record("a", "", "one"),
        record("b", "a", "gone"),
        record("c", "a", "two"),
        record("d", "call", "three"),
    ]
    [session] = read_lines(records).sessions
    assert [said for _, said in outline(session.messages)] == ["one", "two", "three"]
    assert session.notes == ("left out: records of other branches (1)",)


def test_openhands_goes_on_from_one_branch_and_keeps_what_skills_add() -> None:
    def event(id: str, parent: str, text: str, **more: Any) -> Any:
        message = {"role": "user", "content": [{"type": "text", "text": text}]}
        event = {"kind": "MessageEvent", "id": id, "parent_id": parent, "source": "user"}
        return {**event, "llm_message": message, **more}

    skill = {"extended_content": [{"type": "text", "text": "Use knots."}]}
    [session] = read_lines([event("a", "__root__", "gone"), event("b", "__root__", "Sail", **skill)]).sessions
    said = [{"type": "text", "text": "Sail"}, {"type": "text", "text": "Use knots."}]
    assert outline(session.messages) == [("user", said)]


def test_what_openhands_adds_to_its_instructions_is_kept() -> None:
    text = {"type": "text", "text": "Be brief."}
    system = {"kind": "SystemPromptEvent", "source": "agent", "id": "a", "system_prompt": text}
    context = {"type": "text", "text": "The harbor is north."}
    [session] = read_lines([{**system, "dynamic_context": context}, {**system, "id": "b"}]).sessions
    assert outline(session.messages) == [
        ("system", "Be brief."),
        ("user", "The harbor is north."),
        ("system", "Be brief."),
    ]


def test_openhands_calls_without_ids_are_told_apart() -> None:
    def act(**more: Any) -> Any:
        return {"source": "agent", **more}

    run, done = act(action="run", args={"command": "ls"}), act(observation="run", content="a")
    wrong = act(observation="error", content="no such action")
    [session] = read_value({"history": [[run, done], [run, done], [wrong]]}).sessions
    ids = [call["id"] for message in session.messages for call in message.get("tool_calls", ())]
    assert len(set(ids)) == 2
    assert outline(session.messages)[-1] == ("user", "no such action")


@pytest.mark.parametrize("mark", [{"source": "input"}, {"agent": "main", "message_type": "observation"}])
def test_messages_that_nothing_marks_are_read_among_those_that_are_marked(mark) -> None:
    system = {"id": "a", "role": "system", "content": "Be brief."}
    said = {"id": "b", "role": "user", "content": "When?", **mark}
    plain = {"role": "assistant", "content": "At six."}
    reading = read_value({"samples": [{"id": 1, "messages": [system, said, plain, said, said]}]})
    [session] = reading.sessions
    assert session.format is (Format.INSPECT if "source" in mark else Format.SWE_AGENT)
    assert reading.problems == ()
    assert [said for _, said in outline(session.messages)] == [
        "Be brief.",
        "When?",
        "At six.",
        "When?",
        "When?",
    ]


def test_the_error_of_an_inspect_result_stands_behind_what_it_printed() -> None:
    error = {"type": "output_limit", "message": "too long"}
    result = {"role": "tool", "tool_call_id": "c", "function": "f", "content": "cut", "error": error}
    [session] = read_value({"samples": [{"id": 1, "messages": [result]}]}).sessions
    parts = [{"type": "text", "text": "cut"}, {"type": "text", "text": "too long"}]
    assert [message["content"] for message in session.messages] == [parts]


def test_calls_of_sharegpt_are_known_by_the_name_in_their_text() -> None:
    call = {"from": "function_call", "value": json.dumps({"name": "tide", "arguments": {"day": 1}})}
    [session] = read_value({"conversations": [{"from": "human", "value": "When?"}, call]}).sessions
    assert outline(session.messages)[1] == ("assistant", (None, ("call_1", "tide")))
    assert arguments(session.messages) == {"call_1": '{"day": 1}'}


def test_a_saved_autogen_team_is_a_session_per_agent() -> None:
    said = {"type": "UserMessage", "source": "user", "content": "When?"}
    agent = {"agent_state": {"llm_context": {"messages": [said]}}}
    manager = {"message_thread": [said]}
    reading = read_value({"type": "TeamState", "agent_states": {"pilot": agent, "manager": manager}})
    assert [(one.id, outline(one.messages)) for one in reading.sessions] == [("pilot", [("user", "When?")])]


def test_a_session_of_qwen_code_is_refused_by_name() -> None:
    record = {
        "uuid": "u",
        "sessionId": "s",
        "type": "user",
        "message": {"role": "user", "parts": [{"text": "x"}]},
    }
    with pytest.raises(UnreadableError, match="Qwen Code"):
        read_lines([record])
