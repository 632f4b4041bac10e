"""Which format a file is of; and that no content, however odd, breaks a reader."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compressor import from_openai
from context_compressor.lab.readers import Form, Format, UnreadableError, detect_format
from tests.lab.readers.support import SAMPLES, read_lines, read_value

CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}

CHAT = {
    "plain": [{"role": "user", "content": "hi"}],
    "text parts": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
    "images": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}]}],
    "calls": [
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c", "content": "x"},
    ],
    "names and ids": [{"id": "m", "name": "eve", "role": "user", "content": "hi", "type": "message"}],
    "blocks of others beside calls": [
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}], "tool_calls": [CALL]}
    ],
    "names, ids and times": [
        {"id": "1", "name": "eve", "role": "user", "content": "hi", "timestamp": "t", "metadata": {}},
        {
            "id": "2",
            "name": "ann",
            "role": "assistant",
            "content": "",
            "timestamp": "t",
            "tool_calls": [CALL],
        },
        {"id": "3", "name": "f", "role": "tool", "tool_call_id": "c", "content": "x", "timestamp": "t"},
    ],
    "parts with a source": [
        {"role": "user", "content": [{"type": "video", "source": {"type": "url", "url": "u"}}]}
    ],
}


@pytest.mark.parametrize("case", CHAT)
def test_chat_dicts_stay_chat_dicts(case):
    for value in (CHAT[case], {"messages": CHAT[case], "model": "m"}):
        (session,) = read_value(value).sessions
        assert session.format is Format.OPENAI
        assert session.messages == CHAT[case]
    assert read_lines(CHAT[case]).sessions[0].messages == CHAT[case]


@pytest.mark.parametrize(
    ("sample", "format"),
    [
        ([{"system": "s", "messages": [{"role": "user", "content": "hi"}]}], Format.ANTHROPIC),
        ([{"model": "m", "input": "hi"}], Format.RESPONSES),
        ([{"model": "m", "input": [{"role": "user", "content": "hi"}]}], Format.RESPONSES),
        ([{"object": "list", "data": [{"type": "reasoning", "summary": []}]}], Format.RESPONSES),
        ([{"type": "human", "data": {"content": "hi"}}], Format.LANGCHAIN),
        ([{"_compressed_summary": "", "content": []}], Format.AGENTSCOPE),
        ([{"id": "x", "timestamp": "t"}], Format.CODEX),
        ([{"type": "queue-operation", "operation": "enqueue"}], Format.CLAUDE_CODE),
        ([{"name": "x", "version": "1"}], None),
        ([{"output": ["x"]}], None),
        ([{"type": "user", "message": {"role": "user", "content": "hi"}}], None),
        ([7, "text", None], None),
        ([], None),
    ],
)
def test_formats_are_known_by_a_few_keys(sample, format):
    assert detect_format(sample) is format


SEEDS: list[Any] = [
    *([json.loads(path.read_text("utf-8"))] for path in sorted(SAMPLES.glob("*.json"))),
    *([*map(json.loads, path.read_text("utf-8").splitlines())] for path in sorted(SAMPLES.glob("*.jsonl"))),
]
"""The lines of files."""
JUNK = st.sampled_from(
    [
        None,
        0,
        -1.5,
        True,
        "",
        "x",
        [],
        {},
        [None],
        [[]],
        {"type": ["x"]},
        {"type": "text"},
        {"type": "tool_result"},
    ]
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return every `(container, key)` in a value."""
    found: list[tuple[Any, Any]] = []
    keys = (
        list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    )
    for key in keys:
        found += [(value, key), *places(value[key])]
    return found


@pytest.mark.parametrize("junk", [7, []])
@pytest.mark.parametrize("seed", range(len(SEEDS)))
def test_what_is_of_the_wrong_kind_breaks_no_reader_wherever_it_stands(seed, junk):
    value = json.loads(json.dumps(SEEDS[seed]))
    format = detect_format(value)
    for container, key in places(value):
        kept, container[key] = container[key], junk
        detect_format(value)
        try:
            for session in read_lines(value, format).sessions:
                from_openai(session.messages)
        except UnreadableError:
            pass
        container[key] = kept


@given(st.integers(0, len(SEEDS) - 1), st.data())
def test_whatever_is_wrong_in_a_file_the_rest_is_valid(seed, data):
    """Readers raise nothing but `UnreadableError`, and what they give is always accepted."""
    value = json.loads(json.dumps(SEEDS[seed]))
    for _ in range(data.draw(st.integers(1, 3))):
        container, key = data.draw(st.sampled_from(places(value)))
        container[key] = copy.deepcopy(data.draw(JUNK))  # shared by all examples, and written into
    format = data.draw(st.sampled_from([None, *Format]))
    try:
        reading = read_lines(value, format)
    except UnreadableError:
        return
    for session in reading.sessions:
        from_openai(session.messages)


CHAT_SESSION = {"id": "chat", "messages": [{"role": "user", "content": "hi"}, *CHAT["calls"]]}
ANTHROPIC_SESSION = {
    "id": "other",
    "messages": [
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "so"}],
        },
    ],
}


@pytest.mark.parametrize("order", [1, -1])
def test_sessions_of_several_formats_in_one_file_are_each_read_as_what_they_are(order):
    reading = read_lines([CHAT_SESSION, ANTHROPIC_SESSION][::order])

    sessions = {session.id: session for session in reading.sessions}
    assert reading.problems == ()
    assert sessions["chat"].messages == CHAT_SESSION["messages"]
    assert sessions["chat"].format is Format.OPENAI
    assert sessions["other"].messages[1]["reasoning_content"] == "hm"
    assert [session.line for session in reading.sessions] == [1, 2]
    assert reading.form is Form.FOREIGN


def test_plain_sessions_are_of_the_format_of_their_file():
    plain = {"messages": [{"role": "user", "content": "hi"}]}
    assert read_lines([plain, ANTHROPIC_SESSION, plain]).formats == (Format.ANTHROPIC,)
    assert read_lines([plain, CHAT_SESSION, plain]).form is Form.SESSION_LINES


def test_a_session_of_another_format_is_known_beyond_the_sample():
    reading = read_lines([*[CHAT_SESSION] * 60, ANTHROPIC_SESSION])
    assert [session.format for session in reading.sessions] == [*[Format.OPENAI] * 60, Format.ANTHROPIC]


@pytest.mark.parametrize(
    ("value", "format", "place"),
    [
        (CHAT_SESSION, Format.ANTHROPIC, r"messages\[1\]."),
        (CHAT["names, ids and times"], Format.AGENTSCOPE, r"content\[1\]: "),
    ],
)
def test_calls_of_openai_chat_are_not_dropped_where_blocks_are_read(value, format, place):
    with pytest.raises(UnreadableError, match=rf"2 of 3 records; first: {place}tool_calls: expected"):
        read_value(value, format)


def test_messages_of_agentscope_are_known_one_per_line_too():
    bare = json.loads((SAMPLES / "agentscope1_bare_messages.json").read_text("utf-8"))["content"]

    assert read_lines(bare).formats == (Format.AGENTSCOPE,)
    assert read_lines(bare).sessions[0].messages == read_value(bare).sessions[0].messages


HEADER = {"type": "session", "id": "x"}
MESSAGE_LINES: dict[str, tuple[Format | None, list[Any]]] = {
    "openai": (None, CHAT["plain"]),
    "anthropic": (None, ANTHROPIC_SESSION["messages"]),
    "langchain": (None, [{"type": "human", "data": {"content": "hi"}}, {"type": "ai", "content": "so"}]),
    "responses": (None, [{"role": "user", "content": "hi"}, {"type": "reasoning", "summary": []}]),
    "agentscope": (
        Format.AGENTSCOPE,
        [{"id": "1", "name": "eve", "role": "user", "content": "hi", "timestamp": "t"}],
    ),
}


@pytest.mark.parametrize("case", MESSAGE_LINES)
def test_a_header_before_messages_is_named_and_the_messages_are_read(case):
    format, lines = MESSAGE_LINES[case]

    reading = read_lines([HEADER, HEADER, *lines, *lines], format)

    (session,) = reading.sessions
    assert session.format == case
    assert session.messages[0]["content"] == "hi"
    assert session.message_lines[0] == 3
    assert [problem.line for problem in reading.problems] == [1, 2]


@pytest.mark.parametrize("other", [{"messages": 5}, {"messages": None}, [7], 7])
def test_what_is_no_session_among_sessions_is_named(other):
    reading = read_lines([CHAT_SESSION, other, CHAT_SESSION])
    assert [session.line for session in reading.sessions] == [1, 3]
    assert [problem.line for problem in reading.problems] == [2]


def test_a_message_among_sessions_stays_one_that_is_none():
    reading = read_lines([HEADER, CHAT_SESSION, CHAT["plain"][0], CHAT_SESSION])
    assert [session.line for session in reading.sessions] == [2, 4]
    assert [problem.line for problem in reading.problems] == [1, 3]
