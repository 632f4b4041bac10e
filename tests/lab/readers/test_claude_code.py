"""The records are of the shapes that public readers of the format agree upon."""

from typing import Any

import pytest

from context_compressor.lab.readers import Format
from tests.lab.readers.support import PNG, arguments, outline, read_lines


def record(
    kind: str, uuid: str, parent: str | None, content: Any, message: str | None = None, **more: Any
) -> dict:
    held = {"role": kind, "content": content} | ({"id": message, "type": "message"} if message else {})
    return {
        "parentUuid": parent,
        "isSidechain": False,
        "userType": "external",
        "cwd": "/home/eve/project",
        "sessionId": "s1",
        "version": "2.1.0",
        "type": kind,
        "message": held,
        "uuid": uuid,
        "timestamp": "2026-01-01T00:00:00.000Z",
        **more,
    }


def text(said: str) -> list[dict]:
    return [{"type": "text", "text": said}]


def call(call_id: str) -> list[dict]:
    return [{"type": "tool_use", "id": call_id, "name": "Read", "input": {"file_path": call_id}}]


def result(call_id: str, content: Any) -> list[dict]:
    return [{"type": "tool_result", "tool_use_id": call_id, "content": content}]


TITLE = {"type": "summary", "summary": "Reading", "leafUuid": "elsewhere"}
SNAPSHOT = {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}, "isSnapshotUpdate": False}
QUEUE = {"type": "queue-operation", "operation": "dequeue", "timestamp": "t", "sessionId": "s1"}


def test_blocks_of_one_reply_are_one_message_with_its_results_behind_it():
    reading = read_lines(
        [
            TITLE,
            SNAPSHOT,
            QUEUE,
            record("user", "u1", None, "read both"),
            record(
                "assistant", "a1", "u1", [{"type": "thinking", "thinking": "hm", "signature": "s"}], "msg_1"
            ),
            record("assistant", "a2", "a1", text("Reading."), "msg_1"),
            record("assistant", "a3", "a2", call("t1"), "msg_1"),
            record("user", "r1", "a3", result("t1", "one"), toolUseResult={"file": {"content": "one"}}),
            record("assistant", "a4", "a3", call("t2"), "msg_1"),
            {"type": "progress", "uuid": "p", "parentUuid": "a4", "sessionId": "s1", "data": {}},
            record("user", "r2", "p", result("t2", text("two"))),
            record("assistant", "b1", "r2", text("Done."), "msg_2"),
            {
                "type": "system",
                "subtype": "turn_duration",
                "uuid": "d",
                "parentUuid": "b1",
                "sessionId": "s1",
            },
        ]
    )

    (session,) = reading.sessions
    assert session.format is Format.CLAUDE_CODE
    assert session.id == "s1"
    assert outline(session.messages) == [
        ("user", "read both"),
        ("assistant", (("Reading.", "hm"), ("t1", "Read"), ("t2", "Read"))),
        ("tool t1", "one"),
        ("tool t2", "two"),
        ("assistant", "Done."),
    ]
    assert arguments(session.messages)["t1"] == '{"file_path": "t1"}'
    assert session.message_lines == (4, 5, 8, 11, 12)
    assert session.notes == (
        "left out: summary (1), file-history-snapshot (1), queue-operation (1), progress (1), system (1)",
    )
    assert reading.problems == ()


def test_images_and_words_beside_results_stay():
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    (session,) = read_lines(
        [
            record("user", "u1", None, [image, *text("what is it?")]),
            record("assistant", "a1", "u1", call("t1"), "msg_1"),
            record("user", "r1", "a1", [*result("t1", [image]), *text("[Request interrupted by user]")]),
        ]
    ).sessions

    part = {"type": "image_url", "image_url": {"url": PNG}}
    assert outline(session.messages) == [
        ("user", [part, {"type": "text", "text": "what is it?"}]),
        ("assistant", (None, ("t1", "Read"))),
        ("tool t1", [part]),
        ("user", "[Request interrupted by user]"),
    ]


@pytest.mark.parametrize("attachment", [{"type": "todo_reminder", "content": []}, None])
def test_what_else_is_attached_says_nothing(attachment):
    attached = {"type": "attachment", "uuid": "q", "parentUuid": "u1", "attachment": attachment}
    reading = read_lines([record("user", "u1", None, "hi"), attached, record("user", "u2", "q", "there")])

    assert reading.problems == ()
    assert [said for _, said in outline(reading.sessions[0].messages)] == ["hi", "there"]
    assert "attachment without words" in reading.sessions[0].notes[0]


def linked(uuid: str, parent: str, **more: Any) -> dict:
    return {"type": "progress", "uuid": uuid, "parentUuid": parent, "sessionId": "s1", **more}


START = record("user", "u1", None, "start")
READY = record("assistant", "a1", "u1", text("ready"), "msg_1")
CALLED = record("assistant", "a1", "u1", call("t1"), "msg_1")
ALSO = record("assistant", "a2", "a1", call("t2"), "msg_1")
ONE = record("user", "r1", "a1", result("t1", "one"))
TWO = record("user", "r2", "a2", result("t2", "two"))
QUEUED = {"type": "queued_command", "prompt": "and c", "commandMode": "prompt"}
WRONG_WAY = record("user", "x1", "a1", "wrong way")
RIGHT_WAY = record("user", "y1", "a1", "right way")


def done(parent: str) -> dict:
    return record("assistant", "b1", parent, text("done"), "msg_2")


BRANCHES = {
    "what was rewound is left out and counted": (
        [START, READY, WRONG_WAY, record("assistant", "x2", "x1", text("wrong"), "msg_2"), RIGHT_WAY],
        ["start", "ready", "right way"],
        "rewound records (2)",
    ),
    "what was attached to it goes with it": (
        [
            *[START, READY, WRONG_WAY],
            linked("t1", "x1", type="attachment", attachment={"type": "file", "content": "old words"}),
            record("assistant", "x2", "t1", text("wrong"), "msg_2"),
            RIGHT_WAY,
        ],
        ["start", "ready", "right way"],
        "rewound records (3)",
    ),
    "a line that is lost breaks no chain": ([START, READY, done("u2")], ["start", "ready", "done"], ""),
    "what a resumed session repeats is read once": (
        [START, READY, START, READY, record("user", "u2", "a1", "more")],
        ["start", "ready", "more"],
        "repeated records (2)",
    ),
    "results of parallel calls are none, though the conversation goes on from one": (
        [START, CALLED, ALSO, TWO, ONE, done("r1")],
        ["start", None, "two", "one", "done"],
        "",
    ),
    "a mere link before the result of a parallel call makes none of it": (
        [START, CALLED, ALSO, linked("p", "a1"), {**ONE, "parentUuid": "p"}, TWO, done("r2")],
        ["start", None, "one", "two", "done"],
        "progress (1)",
    ),
    "what stands beside such a result makes none of it": (
        [
            *[START, CALLED, ALSO],
            record("user", "r1", "a1", [*result("t1", "one"), *text("a note")]),
            linked("q", "a1", type="attachment", attachment=QUEUED),
            *[TWO, done("r2")],
        ],
        ["start", None, "one", "two", "a note", "and c", "done"],
        "",
    ),
    "mere links within a reply, as hooks report, make none of its calls": (
        [
            *[START, CALLED, linked("p1", "a1"), linked("p2", "p1"), {**ALSO, "parentUuid": "p2"}],
            *[TWO, ONE, done("r1")],
        ],
        ["start", None, "two", "one", "done"],
        "progress (2)",
    ),
    "what a person typed beside a call that waits stays": (
        [START, CALLED, record("user", "q1", "a1", "mind the margins"), ONE, done("r1")],
        ["start", None, "one", "mind the margins", "done"],
        "",
    ),
    "what a person typed instead of waiting, and took back, is one": (
        [
            *[START, CALLED, record("user", "q1", "a1", "stop")],
            *[record("assistant", "q2", "q1", text("stopped"), "msg_x"), ONE, done("r1")],
        ],
        ["start", None, "one", "done"],
        "rewound records (2)",
    ),
}


@pytest.mark.parametrize("name", BRANCHES)
def test_of_branches(name):
    records, said, left_out = BRANCHES[name]
    (session,) = read_lines(records).sessions

    assert [message["content"] for message in session.messages] == said
    assert session.notes == ((f"left out: {left_out}",) if left_out else ())


NOTES = {"type": "text", "file": {"filePath": "/w/tides.txt", "content": "High water at six.", "numLines": 1}}


@pytest.mark.parametrize(
    ("attachment", "said"),
    [
        ({"type": "file", "filename": "/w/tides.txt", "displayPath": "tides.txt", "content": NOTES},
         "tides.txt:\nHigh water at six."),
        ({"type": "edited_text_file", "filename": "log.md", "snippet": "1\tA line."}, "log.md:\n1\tA line."),
        ({"type": "hook_additional_context", "content": ["The lock is closed."]}, "The lock is closed."),
        ({"type": "queued_command", "prompt": text("and the tides")}, "and the tides"),
        ({"type": "of a later version", "text": "some words"}, "some words"),
    ],
)  # fmt: skip
def test_attachments_are_kept_as_words_of_the_user(attachment, said):
    attached = linked("t1", "u1", type="attachment", attachment=attachment)
    (session,) = read_lines(
        [
            record("user", "u1", None, "when?"),
            attached,
            record("assistant", "a1", "t1", text("at six"), "msg_1"),
        ]
    ).sessions

    assert outline(session.messages) == [("user", "when?"), ("user", said), ("assistant", "at six")]
    assert session.notes == ()


def test_compaction_keeps_what_was_before_and_its_summary():
    boundary = {"type": "system", "subtype": "compact_boundary", "uuid": "c", "parentUuid": None}
    (session,) = read_lines(
        [
            record("user", "u1", None, "start"),
            record("assistant", "a1", "u1", text("ready"), "msg_1"),
            {**boundary, "logicalParentUuid": "a1", "content": "Conversation compacted", "sessionId": "s1"},
            record("user", "s", "c", "This session is continued. Summary: ...", isCompactSummary=True),
            record("assistant", "b1", "s", text("going on"), "msg_2"),
        ]
    ).sessions

    assert [role for role, _ in outline(session.messages)] == ["user", "assistant", "user", "assistant"]
    assert session.notes == (
        "left out: compact_boundary (1)",
        "was compacted by its program: what was there before stays, its summary too",
    )
    assert session.compacted_at == (2,)


def test_sub_agents_are_sessions_of_their_own():
    reading = read_lines(
        [
            record("user", "u1", None, "delegate"),
            record("user", "x1", None, "task", isSidechain=True),
            record("assistant", "x2", "x1", text("found"), "msg_x", isSidechain=True),
            record("user", "y1", None, "other task", isSidechain=True, agentId="de30ae5d"),
            record("assistant", "a1", "u1", text("done"), "msg_1"),
        ]
    )

    assert [(session.id, len(session.messages)) for session in reading.sessions] == [
        ("s1", 2),
        ("s1/agent-1", 2),
        ("s1/agent-de30ae5d", 1),
    ]


def test_the_stream_of_a_run_without_terminal_is_read_too():
    (session,) = read_lines(
        [
            {"type": "system", "subtype": "init", "session_id": "s2", "tools": []},
            {"type": "user", "message": {"role": "user", "content": text("hi")}, "session_id": "s2"},
            {"type": "assistant", "message": {"id": "m", "role": "assistant", "content": text("hello")},
             "parent_tool_use_id": None, "session_id": "s2"},
            {"type": "result", "subtype": "success", "result": "hello", "session_id": "s2"},
        ]
    ).sessions  # fmt: skip

    assert session.id == "s2"
    assert [said for _, said in outline(session.messages)] == ["hi", "hello"]


def test_a_sub_agent_in_such_a_stream_is_known_by_the_call_that_began_it():
    spoken = {"type": "assistant", "message": {"id": "m", "role": "assistant", "content": text("main")}}
    below = {"type": "assistant", "message": {"id": "n", "role": "assistant", "content": text("sub")}}
    main, sub = read_lines(
        [
            {**spoken, "parent_tool_use_id": None, "session_id": "s2"},
            {**below, "parent_tool_use_id": "t1", "session_id": "s2"},
        ]
    ).sessions

    assert (main.id, sub.id) == ("s2", "s2/agent-t1")
    assert [outline(session.messages) for session in (main, sub)] == [
        [("assistant", "main")],
        [("assistant", "sub")],
    ]


def test_a_record_that_is_none_is_named():
    reading = read_lines(
        [
            record("user", "u1", None, "start"),
            {**record("assistant", "a1", "u1", ""), "message": None},
            record("assistant", "a2", "u1", [{"type": "tool_use", "name": "Read"}], "m"),
            record("assistant", "a3", "u1", text("fine"), "m"),
        ]
    )

    assert [str(problem) for problem in reading.problems] == [
        "f, line 2: message: expected an object, got null",
        "f, line 3: content[0].id: expected a string, but it is missing",
    ]
    assert len(reading.sessions[0].messages) == 2


def test_session_has_the_title_that_a_person_gave_else_the_program_and_of_its_own_records_only():
    said = [record("user", "u1", None, "read both"), record("assistant", "a1", "u1", text("Done."))]
    own = {**TITLE, "summary": "Own", "leafUuid": "a1"}
    named = {"type": "custom-title", "customTitle": "Named", "sessionId": "s1"}

    titles = [read_lines([TITLE, *more, *said]).sessions[0].title for more in ([], [own], [named, own])]

    assert titles == ["", "Own", "Named"]
