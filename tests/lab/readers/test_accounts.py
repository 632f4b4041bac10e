"""What is read of a file is most of it, and what is not is told; see `benchmarks/transcripts.py`, too."""

import json

import pytest

from context_compressor.lab.readers import Format, UnreadableError
from tests.lab.readers.support import SAMPLES, read_lines, read_text, read_value

SAID = {"role": "user", "content": "hi"}


@pytest.mark.parametrize(("good", "bad"), [(3, 2), (2, 2)])
def test_a_file_of_which_half_is_read_is_read(good, bad):
    reading = read_lines([SAID] * good + [{"level": "info"}] * bad)
    assert len(reading.sessions[0].messages) == good
    assert len(reading.problems) == bad


def test_a_file_of_which_most_is_something_else_is_refused_by_the_format_it_was_read_as():
    with pytest.raises(
        UnreadableError, match="f, line 3: most of it cannot be read as OpenAI chat: 3 of 5 records"
    ):
        read_lines([SAID] * 2 + [{"level": "info"}] * 3)


def test_a_session_of_a_log_of_which_most_is_lost_is_no_session():
    bad = {"system": "s", "messages": [SAID, {"role": "robot"}, {"role": "robot"}]}
    good = {"system": "s", "messages": [SAID]}

    reading = read_lines([good, bad, good])

    assert [session.line for session in reading.sessions] == [1, 3]
    (problem,) = reading.problems
    assert problem.line == 2
    assert problem.why.startswith("most of it cannot be read as Anthropic Messages: 2 of 3 records; first:")


def test_a_log_of_which_most_lines_are_no_sessions_is_refused():
    with pytest.raises(UnreadableError, match="2 of 3 sessions"):
        read_lines([[SAID], {"messages": 7}, {"messages": None}])


def test_a_format_is_that_of_most_values_not_of_the_first():
    rollout = {"type": "session_meta", "payload": {"id": "x"}}
    assert read_lines([rollout, *[SAID] * 5]).formats == (Format.OPENAI,)
    codex = map(json.loads, (SAMPLES / "codex_rollout.jsonl").read_text("utf-8").splitlines())
    assert read_lines([SAID, *codex]).formats == (Format.CODEX,)


BEDROCK = [
    {"role": "user", "content": [{"text": "How deep?"}]},
    {"role": "assistant", "content": [{"toolUse": {"toolUseId": "t", "name": "sound", "input": {}}}]},
    {"role": "user", "content": [{"toolResult": {"toolUseId": "t", "content": [{"text": "40 m"}]}}]},
]
GEMINI = [
    {"role": "user", "parts": [{"text": "How deep?"}]},
    {"role": "model", "parts": [{"functionCall": {"name": "sound", "args": {}}}]},
]
VERCEL = [{"id": "1", "role": "user", "parts": [{"type": "text", "text": "How deep?"}]}]
MODEL_MESSAGES = [
    {"role": "user", "content": "How deep?"},
    {
        "role": "assistant",
        "content": [{"type": "tool-call", "toolCallId": "t", "toolName": "sound", "input": {}}],
    },
]


@pytest.mark.parametrize(
    ("messages", "name"),
    [
        (BEDROCK, "Bedrock Converse"),
        (GEMINI, "Gemini contents"),
        (VERCEL, "UI messages of the Vercel AI SDK"),
        (MODEL_MESSAGES, "model messages of the Vercel AI SDK"),
    ],
)
def test_formats_that_are_not_read_are_refused_by_name_with_what_to_do(messages, name):
    key = "contents" if messages is GEMINI else "messages"
    for read in (
        lambda: read_value(messages),
        lambda: read_value({key: messages}),
        lambda: read_lines(messages),
    ):
        with pytest.raises(UnreadableError, match=f"looks like {name}.*from_anthropic"):
            read()


def test_null_bytes_at_the_end_are_one_line_that_is_told():
    line = json.dumps(SAID)
    for size in (1, 5_000):
        for end in ("\n", ""):
            reading = read_text(f"{line}\n{line}{end}" + "\0" * size)
            assert reading.sessions[0].messages == [SAID, SAID]
            (problem,) = reading.problems
            assert problem.line == (3 if end else 2)
            assert "null bytes" in problem.why


def test_what_was_written_behind_null_bytes_is_read():
    line = json.dumps(SAID)
    reading = read_text(f"{line}\n" + "\0" * 99 + f"{line}\n{line}\n")
    assert reading.sessions[0].messages == [SAID] * 3
    assert [str(problem) for problem in reading.problems] == ["f, line 2: null bytes, as a crash leaves them"]


def test_null_bytes_behind_one_value_are_told():
    for text in (json.dumps([SAID]), json.dumps([SAID], indent=2)):
        for end in ("\n", ""):
            reading = read_text(text + end + "\0" * 9)
            assert reading.sessions[0].messages == [SAID]
            assert ["null bytes" in problem.why for problem in reading.problems] == [True]


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ({"object": "chat.completion", "choices": [{"message": SAID}]}, "answers of a chat API"),
        ({"display": "hi", "project": "/w"}, "the prompt history of Claude Code"),
        (
            [{"ts": 1, "type": "say", "say": "text"}, {"ts": 2, "type": "ask", "ask": "tool"}],
            "what the window of Cline",
        ),
        ({"run_type": "llm", "inputs": {"messages": [[SAID]]}, "outputs": {}}, "runs of LangSmith"),
        ({"traceId": "t", "startTime": "s", "model": "m", "input": [SAID]}, "observations of Langfuse"),
        ({"name": "run", "input": {"messages": [SAID]}, "observations": []}, "traces of Langfuse"),
        ({"id": "t", "sessionId": "s", "tags": [], "input": [SAID], "output": "hi"}, "traces of Langfuse"),
        ({"timestamp": 1, "message": {"type": "TurnBegin", "payload": {}}}, "what Kimi CLI shows"),
        ({"tasks": [], "simulations": [{"messages": [SAID]}]}, "simulations of tau2-bench"),
        ({"request": {"messages": [SAID]}, "response": {"body": "event: ping"}}, "requests with answers"),
    ],
)
def test_what_stands_beside_sessions_is_refused_by_its_name(value, name):
    for read in (lambda: read_value(value), lambda: read_lines([value, value])):
        with pytest.raises(UnreadableError, match=f"f: looks like {name}"):
            read()
