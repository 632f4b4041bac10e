"""What the libraries themselves wrote, stored in `samples`, and what is read of it, in `samples.json`:

agentscope1_*.json     AgentScope 1.0.21: `InMemoryMemory.state_dict`, `JSONSession.save_session_state`; the
                       bare messages are the entries of the former without their marks, as 0.x wrote them
agentscope2_*.json     AgentScope 2.0.10: `AgentState.model_dump_json`
anthropic_*.json       anthropic 2.11.0: `Message.model_dump_json`; requests that `MessageCreateParams` takes
langchain_*.json       langchain-core 1.7.2: `messages_to_dict`, `dumpd`, `model_dump`
responses_*.json       openai 3.52.0: `Response.model_dump_json`; input that `ResponseInputParam` accepts

The others are invented, in the shapes that the sources of those programs write.
"""

import json

import pytest

from context_compressor import from_openai
from context_compressor.lab.readers import Format, UnreadableError
from tests.lab.readers.support import PNG, SAMPLES, read_sample, read_text

EXPECTED = json.loads(SAMPLES.with_suffix(".json").read_text("utf-8"))
IMAGE = {"type": "image_url", "image_url": {"url": PNG}}
TEXT = {"type": "text", "text": "a dot"}


def told(session, *keys):
    """Return the messages of a session, and what these keys tell of it, where they tell anything."""
    held = {key: value for key in keys if (value := getattr(session, key))}
    return json.loads(json.dumps({**held, "messages": session.messages}))


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.json*")), ids=lambda path: path.name)
def test_each_sample_is_known_by_its_content_and_read_whole(path):
    reading = read_sample(path.name)

    assert reading.formats == (Format(path.name.split("_")[0].rstrip("12")),)
    assert reading.problems == ()
    assert bool(reading.sessions[0].message_lines) == (path.suffix == ".jsonl")
    for session, expected in zip(reading.sessions, EXPECTED[path.name], strict=True):
        assert told(session, "id", "line", "notes", "compacted_at") == expected
        from_openai(session.messages)


def test_agentscope_1_gives_the_summary_where_it_stands_for_messages_that_are_gone():
    state = json.loads((SAMPLES / "agentscope1_state_dict.json").read_text("utf-8"))
    (whole,) = read_text(json.dumps(state)).sessions
    state["content"] = state["content"][2:]
    (rest,) = read_text(json.dumps(state)).sessions

    assert "summary is left out" in whole.notes[0]
    assert rest.notes == ()
    assert rest.messages[0] == {"role": "user", "content": "The user asked for a.txt."}


def test_langchain_a_message_per_line_says_which_line():
    messages = json.loads((SAMPLES / "langchain_messages_to_dict.json").read_text("utf-8"))

    (session,) = read_text("\n".join(json.dumps(message) for message in messages)).sessions

    assert session.messages == EXPECTED["langchain_messages_to_dict.json"][0]["messages"]
    assert session.message_lines == tuple(range(1, len(messages) + 1))


RAW_CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
CALL_BLOCK = {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}


@pytest.mark.parametrize(
    ("block", "part"),
    [
        ({"type": "text-plain", "text": "a dot"}, TEXT),
        ({"type": "image_url", "image_url": PNG}, IMAGE),
        ({"type": "image", "base64": "iVBORw0KGgo=", "mime_type": "image/png"}, IMAGE),
        ({"type": "image", "source_type": "base64", "data": "iVBORw0KGgo=", "mime_type": "image/png"}, IMAGE),
        ({"type": "image", "url": "u"}, {"type": "image_url", "image_url": {"url": "u"}}),
        (
            {"type": "audio", "base64": "AA==", "mime_type": "audio/mpeg"},
            {"type": "input_audio", "input_audio": {"data": "AA==", "format": "mp3"}},
        ),
        (
            {"type": "video", "base64": "AA==", "mime_type": "video/mp4"},
            {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AA=="}},
        ),
        (
            {"type": "file", "base64": "AA==", "mime_type": "application/pdf", "filename": "d.pdf"},
            {"type": "file", "file": {"filename": "d.pdf", "file_data": "data:application/pdf;base64,AA=="}},
        ),
        ({"type": "file", "url": "u"}, {"type": "text", "text": '{"type": "file", "url": "u"}'}),
    ],
)
def test_langchain_blocks(block, part):
    content = [{"type": "text", "text": "see"}, block]
    (session,) = read_text(json.dumps([{"type": "human", "data": {"content": content}}])).sessions

    assert session.messages[0]["content"] == [content[0], part]


def shown(block):
    """Return what stands for a block that chat dicts have no word for."""
    return {"type": "text", "text": json.dumps(block)}


LINKED = {"type": "document", "source": {"type": "url", "url": "https://example.org/d.pdf"}}
UPLOADED = {"type": "image", "source": {"type": "file", "file_id": "f"}}


@pytest.mark.parametrize(
    ("block", "part"),
    [
        (
            {"type": "image", "source": {"type": "url", "url": "u"}},
            {"type": "image_url", "image_url": {"url": "u"}},
        ),
        ({"type": "document", "source": {"type": "text", "data": "a dot"}}, TEXT),
        (
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "text/x", "data": "AA=="},
            },
            {"type": "file", "file": {"file_data": "data:text/x;base64,AA=="}},
        ),
        (LINKED, shown(LINKED)),
        (UPLOADED, shown(UPLOADED)),
        ({"type": "odd", "x": "é"}, {"type": "text", "text": '{"type": "odd", "x": "é"}'}),
    ],
)
def test_anthropic_blocks(block, part):
    messages = [{"role": "user", "content": [{"type": "text", "text": "see"}, block]}]
    (session,) = read_text(json.dumps({"system": "s", "messages": messages})).sessions

    assert session.messages[1]["content"] == [{"type": "text", "text": "see"}, part]


def test_anthropic_lists_lines_and_answers_are_read_like_requests():
    request = json.loads((SAMPLES / "anthropic_request.json").read_text("utf-8"))
    (whole,) = read_sample("anthropic_request.json").sessions
    (bare,) = read_text(json.dumps(request["messages"])).sessions
    lines = "\n".join(json.dumps(message) for message in request["messages"])
    (by_line,) = read_text(lines).sessions
    two = read_text(
        f"{json.dumps(request)}\n{json.dumps({**request, 'id': 5, 'session_id': 'x'})}\n"
    ).sessions

    assert bare.messages == by_line.messages == whole.messages[1:]
    assert by_line.message_lines == (1, 2, 2, 2, 3, 3, 3, 4)
    assert [(session.id, session.line) for session in two] == [(None, 1), ("x", 2)]
    assert two[0].messages == two[1].messages == whole.messages


def test_responses_lists_and_lines_are_read_like_requests():
    items = json.loads((SAMPLES / "responses_request.json").read_text("utf-8"))["input"]
    (whole,) = read_sample("responses_request.json").sessions
    (bare,) = read_text(json.dumps(items)).sessions
    (by_line,) = read_text("\n".join(json.dumps(item) for item in items)).sessions

    assert bare.messages == by_line.messages == whole.messages[1:]
    assert by_line.message_lines[:4] == (1, 2, 3, 5)  # the reply began with its reasoning


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}},
        {"type": "image", "source": {"type": "url", "url": PNG}},
        {"type": "image", "base64": "iVBORw0KGgo=", "mime_type": "image/png"},
        {"type": "image_url", "image_url": PNG},
        {"type": "image_url", "image_url": {"url": PNG}},
        {"type": "input_image", "image_url": PNG},
    ],
)
def test_an_image_is_one_in_whichever_format_a_block_is_written(block):
    """Programs hand blocks of one provider on in messages of another."""
    tools = [{"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "look", "input": {}}]}]
    results = [{"type": "tool_result", "tool_use_id": "c", "content": [block]}]
    (claude,) = read_text(json.dumps([*tools, {"role": "user", "content": results}])).sessions
    (chain,) = read_text(json.dumps([{"type": "human", "data": {"content": [block]}}])).sessions
    output = {"type": "function_call_output", "call_id": "c", "output": [block]}
    (items,) = read_text(json.dumps([output])).sessions

    for session in (claude, chain, items):
        assert session.messages[-1]["content"] == [IMAGE]


CASES = json.loads(SAMPLES.with_name("cases.json").read_text("utf-8"))


@pytest.mark.parametrize("name", CASES)
def test_what_is_read_of_a_few_records(name):
    """Each case is what a file holds, as lines or as one value, and what is read of it."""
    case = CASES[name]
    text = "\n".join(map(json.dumps, case["lines"])) + "\n" if "lines" in case else json.dumps(case["value"])
    if "refused" in case:
        with pytest.raises(UnreadableError) as refused:
            read_text(text)
        assert str(refused.value) == case["refused"]
        return
    reading = read_text(text)
    assert [str(problem) for problem in reading.problems] == case.get("problems", [])
    for session, expected in zip(reading.sessions, case["sessions"], strict=True):
        assert told(session, "format", "id", "notes", "compacted_at") == expected


@pytest.mark.parametrize(
    ("sample", "titles"),
    [
        ("chatgpt_export.json", ["Tides", "Low"]),
        ("opencode_export.json", ["Tides"]),
        ("droid_session.jsonl", ["Tides"]),
        ("codex_rollout.jsonl", [""]),
    ],
)
def test_session_has_the_title_that_its_program_saved(sample, titles):
    assert [session.title for session in read_sample(sample).sessions] == titles


@pytest.mark.parametrize(
    ("sample", "record"),
    [
        (
            "codex_rollout.jsonl",
            {"type": "event_msg", "payload": {"type": "thread_name_updated", "thread_name": "Low"}},
        ),
        ("copilot-cli_events.jsonl", {"type": "session.title_changed", "data": {"title": "Low"}}),
        (
            "pi_session.jsonl",
            {"type": "session_info", "id": "i", "parentId": "i0", "timestamp": "t", "name": "Low"},
        ),
        ("gemini-cli_recorded.jsonl", {"$set": {"summary": "Low"}}),
    ],
)
def test_session_has_the_last_title_that_a_record_gave_it(sample, record):
    text = (SAMPLES / sample).read_text(encoding="utf-8").rstrip("\n")
    reading = read_text(f"{text}\n{json.dumps(record)}\n")
    assert [session.title for session in reading.sessions] == ["Low"]
    assert reading.problems == read_sample(sample).problems
