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
from context_compressor.lab.readers import Format
from tests.lab.readers.support import PNG, SAMPLES, arguments, outline, read_sample, read_text, read_value

EXPECTED = json.loads(SAMPLES.with_suffix(".json").read_text("utf-8"))
IMAGE = {"type": "image_url", "image_url": {"url": PNG}}
TEXT = {"type": "text", "text": "a dot"}


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.json*")), ids=lambda path: path.name)
def test_each_sample_is_known_by_its_content_and_read_whole(path):
    reading = read_sample(path.name)

    assert reading.formats == (Format(path.name.split("_")[0].rstrip("12")),)
    assert reading.problems == ()
    assert bool(reading.sessions[0].message_lines) == (path.suffix == ".jsonl")
    for session, expected in zip(reading.sessions, EXPECTED[path.name], strict=True):
        told = {key: getattr(session, key) for key in ("id", "line", "notes", "compacted_at")}
        known = {
            key: list(value) if isinstance(value, tuple) else value for key, value in told.items() if value
        }
        assert {**known, "messages": session.messages} == expected
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
    ("fields", "call_id"),
    [
        ({"content": "", "additional_kwargs": {"tool_calls": [RAW_CALL]}}, "c"),
        ({"content": "", "additional_kwargs": {"function_call": RAW_CALL["function"]}}, ""),
        ({"content": [CALL_BLOCK]}, "c"),
        ({"content": [CALL_BLOCK], "tool_calls": [{"id": "c", "name": "f", "args": {"a": 1}}]}, "c"),
    ],
)
def test_langchain_calls_are_read_once_wherever_they_stand(fields, call_id):
    (session,) = read_text(json.dumps([{"type": "ai", "data": fields}])).sessions

    assert outline(session.messages) == [("assistant", (None, (call_id, "f")))]
    assert arguments(session.messages) == {call_id: '{"a": 1}'}


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


def test_results_told_in_words_go_to_the_calls_in_their_order():
    """As Cline and Roo Code write them: a heading that names the tool, and the result in it or behind it."""
    calls = [
        {"type": "tool_use", "id": f"c{n}", "name": name, "input": {}}
        for n, name in enumerate(["dig", "dig", "sow"])
    ]
    told = [
        "[dig in 'bed 1'] Result:\n12 worms",
        "[dig in 'bed 2'] Result:",
        "9 worms",
        "[sow] Result:\ndone",
    ]
    words = [{"type": "text", "text": text} for text in [*told, "<details>noon</details>"]]
    (session,) = read_value(
        [
            {"role": "user", "content": "plant"},
            {"role": "assistant", "content": calls},
            {"role": "user", "content": words},
        ]
    ).sessions

    assert outline(session.messages)[2:] == [
        ("tool c0", told[0]),
        ("tool c1", words[1:3]),
        ("tool c2", told[3]),
        ("user", "<details>noon</details>"),
    ]


def test_cline_tells_of_calls_that_it_passed_over():
    calls = [
        {"type": "tool_use", "id": f"c{n}", "name": "read_file", "input": {"path": path}}
        for n, path in enumerate(["log.md", "tide.md"])
    ]
    told = ["[read_file for 'log.md'] Result:", "calm", "Tool [read_file] was not executed: one at a time."]
    words = [{"type": "text", "text": text} for text in told]
    (session,) = read_value(
        [{"role": "assistant", "content": calls}, {"role": "user", "content": words}]
    ).sessions

    assert outline(session.messages)[1:] == [("tool c0", words[:2]), ("tool c1", told[2])]


def test_thoughts_and_summaries_of_roo_code_are_read_as_what_they_are():
    call = {"type": "tool_use", "id": "c", "name": "read_file", "input": {"path": "log.md"}}
    thought = {"type": "reasoning", "text": "The log will tell.", "summary": []}
    sealed = {"type": "reasoning", "encrypted_content": "x", "summary": []}
    signed = {"type": "thoughtSignature", "thoughtSignature": "x"}
    summary = [{"type": "reasoning", "text": "Condensing."}, {"type": "text", "text": "It was calm."}]
    (session,) = read_value(
        [
            {"role": "user", "content": [{"type": "text", "text": "Calm?"}], "condenseParent": "s"},
            {"role": "assistant", "content": [], **sealed},
            {"role": "assistant", "content": [sealed, thought, call, signed], "ts": 1},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "calm"}]},
            {"role": "assistant", "content": summary, "isSummary": True, "condenseId": "s"},
            {"role": "user", "content": "Go on."},
        ]
    ).sessions

    assert session.format is Format.ANTHROPIC
    assert outline(session.messages) == [
        ("user", "Calm?"),
        ("assistant", ((None, "The log will tell."), ("c", "read_file"))),
        ("tool c", "calm"),
        ("user", "It was calm."),
        ("assistant", (None, "Condensing.")),
        ("user", "Go on."),
    ]
    assert session.compacted_at == (3,)
    assert session.notes[0] == "left out: encrypted thoughts (3), replies without words (1)"


@pytest.mark.parametrize(
    ("given", "arguments_"),
    [
        ("*** Begin Patch", '{"input": "*** Begin Patch"}'),
        ("{'path': 'log.md'}", "{\"input\": \"{'path': 'log.md'}\"}"),
        ('{"path": "log.md"}', '{"path": "log.md"}'),
    ],
)
def test_text_that_a_tool_was_called_with_becomes_an_object(given, arguments_):
    call = {"type": "tool_use", "id": "c", "name": "patch", "input": given}
    (session,) = read_value([{"role": "assistant", "content": [call]}]).sessions

    assert arguments(session.messages) == {"c": arguments_}


def test_words_that_name_no_tool_are_no_result():
    (session,) = read_value(
        [
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "dig", "input": {}}]},
            {"role": "user", "content": [{"type": "text", "text": "dig no more"}]},
        ]
    ).sessions

    assert outline(session.messages)[1:] == [("user", "dig no more")]


def test_a_system_prompt_that_cannot_be_read_is_named_and_the_rest_is_read():
    request = {"system": [5], "messages": [{"role": "user", "content": "hi"}]}
    reading = read_text(json.dumps(request))

    assert outline(reading.sessions[0].messages) == [("user", "hi")]
    assert reading.problems[0].why == "system: content[0]: expected a block, got int"


@pytest.mark.parametrize(
    "instructions",
    ["Be brief.", [{"role": "system", "content": [{"type": "input_text", "text": "Be brief."}]}]],
)
def test_responses_instructions_are_words_or_items(instructions):
    request = {"model": "m", "instructions": instructions, "input": "hi"}
    (session,) = read_text(json.dumps(request)).sessions

    assert outline(session.messages) == [("system", "Be brief."), ("user", "hi")]


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
