"""The chat-dict codec: exact both ways, editable in between, clear about what is malformed."""

from __future__ import annotations

import copy
import json
import re
import sys
from enum import Enum
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from dashscope.api_entities.dashscope_response import GenerationResponse, Message
from hypothesis import given
from openai.types.chat import ChatCompletion, ChatCompletionMessage, ParsedChatCompletionMessage
from pydantic import BaseModel

from context_compressor import messages
from context_compressor.errors import InvalidArgumentError, InvalidMessageError
from context_compressor.memory.compressed import CompressedMemory
from context_compressor.messages.chat import from_openai, to_openai
from context_compressor.messages.msg import Msg, is_instruction, tool_calls
from context_compressor.messages.plain import parse_arguments
from context_compressor.messages.remark import (
    extra_of,
    extras_of_call,
    form_of,
    is_legacy_result,
    metadata_with,
    sends_name,
    without_remark,
)
from tests.support import strategies
from tests.support.recordings import DIRECTORY, requires_recordings, sessions

CALL = {"id": "call_1", "type": "function", "function": {"name": "search", "arguments": '{"q": "x"}'}}

DRAWN = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}


def calling(**changes: Any) -> dict[str, Any]:
    """Return an assistant dict with one call, with changes."""
    return {"role": "assistant", "content": None, "tool_calls": [copy.deepcopy(CALL)]} | changes


def assert_round_trip(history: list[Any]) -> list[Msg]:
    before = json.dumps(history)
    msgs = from_openai(history)
    assert len(msgs) == len(history)
    result = to_openai(msgs)
    assert result == history
    assert json.dumps(result) == before
    assert json.dumps(history) == before
    return msgs


# --- round trip


@requires_recordings
@pytest.mark.parametrize("name", sorted(path.name.split(".")[0] for path in DIRECTORY.glob("*.jsonl.gz")))
def test_every_recorded_session_round_trips(name):
    for session in sessions(name):
        for msg in assert_round_trip(session["messages"]):
            json.dumps(msg.metadata)


@given(strategies.chat_histories(valid=True) | strategies.chat_histories(valid=False))
def test_histories_round_trip_whether_or_not_calls_have_results(history):
    """Also through their own serialised form; nothing is shared between dicts, messages and output."""
    before = copy.deepcopy(history)
    msgs = assert_round_trip(history)
    stored = [Msg.from_dict(json.loads(json.dumps(msg.to_dict()))) for msg in msgs]
    assert json.dumps(to_openai(stored)) == json.dumps(history)
    groups = [{id(found) for found in containers(value)} for value in (history, msgs, to_openai(msgs))]
    assert len(set().union(*groups)) == sum(map(len, groups))
    assert history == before


def containers(value: Any) -> list[Any]:
    """Return every dict and list in `value`."""
    if isinstance(value, Msg):
        return containers([value.content, value.metadata])
    held = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    own = [value] if isinstance(value, dict | list) else []
    return [*own, *(found for item in held for found in containers(item))]


PART_MESSAGES = [
    {"role": "user", "content": [part]}
    for part in (
        {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}},
        {"type": "image_url", "image_url": {"url": "https://a/b.png", "detail": "low"}},
        {"image_url": {"detail": "low", "url": "data:image/png;base64,AA=="}, "type": "image_url"},
        {"type": "image_url", "image_url": "data:image/png;base64,AA=="},
        {"type": "image_url", "image_url": {"url": None}},
        {"type": "input_audio", "input_audio": {"format": "wav", "data": "AA=="}},
        {"type": "video_url", "video_url": {"url": "https://a/b.mp4"}},
        {"type": "video", "video": ["https://a/1.png", "https://a/2.png"]},
        {"type": "file", "file": {"file_id": "f"}},
        {"type": "input_audio", "input_audio": {"data": "https://a/b.mp3", "format": "mp3"}},
        {"type": "input_audio", "input_audio": {"data": "AA==", "format": "mpeg"}},
        {"image": "https://a/b.png", "source": {"x": 1}},
        {"type": "image_url", "image_url": {"url": "https://a/b.png", "media_type": "image/png"}},
        {"type": "image_url", "image_url": None},
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}},
        {"text": "typeless"},
        {"image": "https://a/b.png", "min_pixels": 1},
        {"image": "data:image/png;base64,AA=="},
        {"video": ["https://a/1.png"], "fps": 2},
        {"audio": "oss://a/b.mp3"},
    )
]


CALLS = [
    {"index": 0, **CALL},
    {"function": {"arguments": "{}", "name": "f"}, "id": "", "type": "function"},
    {"function": {"name": "f", "arguments": {"a": 1}}},
    {"type": "function", "function": {"name": "f", "arguments": "{}"}},
    {"type": "custom", "custom": {"name": "f", "input": "free text"}},
    {"id": "x", "function": {"name": "f", "arguments": "{}"}},
    {"id": "x", "type": None, "function": {"name": "f", "arguments": "{}"}},
    {"id": "x", "type": "builtin_function", "function": {"name": "f", "arguments": "{}", "y": 1}},
    {"id": "x", "type": "function", "function": {"name": "f", "arguments": {"a": [1.0, None]}}},
    {"type": "custom", "id": "x", "custom": {"input": "", "name": "f", "z": 0}, "index": 3},
    *(
        {"id": "x", "type": "function", "function": {"name": "f", "arguments": raw}}
        for raw in strategies.OBJECT_ARGUMENTS + strategies.OTHER_ARGUMENTS
    ),
]
DATA_URLS = ("data:image/png;base64,AA==", "data:a;b=c;base64,AA==", "data:,x", "data:;base64,")
"""Of them the first and the last are taken apart."""


@pytest.mark.parametrize(
    "message",
    [
        calling(content=""),
        *(calling(tool_calls=[call]) for call in CALLS),
        *({"role": "assistant", "content": None, "reasoning": said} for said in ("hm", None, "", {"a": 1})),
        {"reasoning": "hm", "reasoning_content": "so", "role": "assistant", "content": "a"},
        calling(reasoning_content="so", reasoning="hm"),
        calling(reasoning="hm"),
        *(
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}
            for url in DATA_URLS
        ),
        calling(content=[]),
        {"role": "assistant", "tool_calls": [CALL]},
        calling(content="one"),
        calling(content=[{"type": "text", "text": "one"}]),
        calling(content=[{"text": "one", "type": "text"}]),
        calling(content=[{"type": "text", "text": "one", "cache_control": {}}]),
        calling(content=[{"type": "text", "text": "one"}, {"type": "refusal", "refusal": "no"}]),
        calling(reasoning_content="why", refusal=None),
        calling(function_call={"name": "f", "arguments": ""}),
        {"role": "assistant", "content": "", "images": [{**DRAWN, "index": 0}]},
        {"role": "assistant", "content": None, "images": [DRAWN, DRAWN]},
        {"images": [DRAWN], "content": "a cat", "role": "assistant", "tool_calls": [CALL]},
        {"role": "assistant", "content": [{"type": "text", "text": "a cat"}], "images": [DRAWN]},
        {"role": "assistant", "images": [DRAWN, {"type": "image_url", "image_url": "https://a/b.png"}]},
        {"role": "assistant", "content": "x", "images": ["https://a/b.png", {"type": 5}]},
        {"role": "assistant", "content": "x", "images": []},
        {"role": "user", "content": "x", "images": [DRAWN]},
        {"role": "assistant", "content": None},
        {"role": "assistant", "content": []},
        {"role": "assistant", "content": ""},
        {"role": "assistant", "audio": {"id": "audio_1"}},
        {"role": "assistant", "content": "x", "tool_calls": None, "function_call": None},
        {"role": "assistant", "content": "x", "tool_calls": []},
        {"role": "assistant", "content": "x", "reasoning_content": None},
        {"role": "assistant", "content": "x", "reasoning_content": ""},
        {"role": "assistant", "content": [{"type": "text", "text": "x"}], "reasoning_content": "why"},
        {"role": "assistant", "content": "x", "refusal": "no", "audio": None},
        {"role": "assistant", "content": None, "function_call": {"arguments": "{}", "name": "f", "x": 1}},
        {"role": "function", "name": "f", "content": None},
        {"role": "function", "content": "out", "name": "f", "tool_call_id": "x"},
        {"role": "tool", "tool_call_id": "", "content": None},
        {"role": "tool", "content": "x", "name": "f"},
        {"name": "f", "content": [{"text": "x"}], "role": "tool"},
        {"role": "tool", "content": None, "tool_name": "f", "images": ["AA=="]},
        {"role": "tool", "tool_call_id": "", "content": "x", "tool_name": "f"},
        {"role": "tool", "tool_call_id": "x", "content": [{"text": "typeless"}], "name": None},
        {"role": "developer", "content": "rules", "name": "n"},
        {"content": "order", "role": "user"},
        {"role": "user", "content": "x", "name": "bob", "unknown": {"a": [1, None]}},
        {"role": "user", "content": []},
        {"role": "user", "content": "x", "tool_calls": [{"not": "ours"}], "tool_call_id": 5},
        *PART_MESSAGES,
    ],
    ids=lambda message: json.dumps(message)[:120],
)
def test_each_shape_round_trips(message):
    (msg,) = assert_round_trip([message])
    json.dumps(msg.metadata)
    assert all(isinstance(call["input"], dict) for call in tool_calls(msg))
    thoughts = [message.get(key) for key in ("reasoning_content", "reasoning")]
    found = [block["thinking"] for block in blocks_of(msg) if block.get("type") == "thinking"]
    assert found == [thought for thought in thoughts if thought and isinstance(thought, str)]


# --- what the messages look like


def test_plain_dicts_need_no_remark():
    history = [
        {"role": "system", "content": "rules"},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "reasoning_content": "why", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": "found"},
        {"role": "assistant", "content": "done"},
    ]
    msgs = assert_round_trip(history)
    assert [msg.metadata for msg in msgs] == [None] * 5
    assert [msg.name for msg in msgs] == ["system", "user", "assistant", "search", "assistant"]
    assert [msg.role for msg in msgs] == ["system", "user", "assistant", "system", "assistant"]
    assert [msg.content for msg in msgs] == [
        "rules",
        "hi",
        [
            {"type": "thinking", "thinking": "why"},
            {
                "type": "tool_use",
                "id": "call_1",
                "name": "search",
                "input": {"q": "x"},
                "raw_input": '{"q": "x"}',
            },
        ],
        [{"type": "tool_result", "id": "call_1", "name": "search", "output": "found"}],
        "done",
    ]


def test_a_result_is_named_by_itself_or_after_the_latest_call_with_its_id():
    again = copy.deepcopy(CALL)
    again["function"]["name"] = "read"
    result = {"role": "tool", "tool_call_id": "call_1", "content": "x"}
    named = [{**result, "name": "mine"}, *({"role": "tool", "content": "x", k: "mine"} for k in NAME_KEYS)]
    msgs = assert_round_trip([result, calling(), result, calling(tool_calls=[again]), result, *named])
    names = ["tool", "search", "read", "mine", "mine", "mine"]
    assert [msg.name for msg in msgs if msg.role == "system"] == names
    assert [msg.content[0]["name"] for msg in msgs if msg.role == "system"] == names


NAME_KEYS = ("name", "tool_name")


def test_an_id_that_was_given_later_shows():
    called, answered = from_openai(
        [calling(tool_calls=[{"function": CALL["function"]}]), {"role": "tool", "content": "x", "name": "f"}]
    )
    called.content[0]["id"] = answered.content[0]["id"] = "made"
    wire = to_openai([called, answered])
    assert wire[0]["tool_calls"] == [{"function": CALL["function"], "id": "made"}]
    assert wire[1] == {"role": "tool", "content": "x", "name": "f", "tool_call_id": "made"}


def test_developer_messages_are_instructions_and_results_are_not():
    developer, tool = from_openai(
        [{"role": "developer", "content": "rules"}, {"role": "tool", "tool_call_id": "x", "content": "y"}]
    )
    assert is_instruction(developer)
    assert not is_instruction(tool)


def test_media_parts_become_blocks_with_a_source():
    blocks = [from_openai([message])[0].content[0] for message in PART_MESSAGES]
    assert blocks[1] == {
        "type": "image",
        "source": {"type": "url", "url": "https://a/b.png", "detail": "low"},
    }
    assert blocks[2]["source"] == {
        "type": "base64",
        "detail": "low",
        "media_type": "image/png",
        "data": "AA==",
    }
    assert blocks[3]["source"] == {"type": "base64", "media_type": "image/png", "data": "AA=="}
    assert blocks[5] == {
        "type": "audio",
        "source": {"type": "base64", "media_type": "audio/wav", "data": "AA=="},
    }
    assert blocks[6] == {"type": "video", "source": {"type": "url", "url": "https://a/b.mp4"}}
    assert blocks[9] == {
        "type": "audio",
        "source": {"type": "url", "url": "https://a/b.mp3", "format": "mp3"},
    }
    assert [block["type"] for block in blocks[-5:]] == ["text", "image", "image", "video", "audio"]
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in DATA_URLS]
    (msg,) = from_openai([{"role": "user", "content": parts}])
    assert [block["source"]["type"] for block in blocks_of(msg)] == ["base64", "url", "url", "base64"]


# --- arguments


HUGE = '{"n": ' + "1" * (sys.get_int_max_str_digits() + 1) + "}"


@pytest.mark.parametrize(
    ("raw", "is_object"),
    [
        *((raw, True) for raw in strategies.OBJECT_ARGUMENTS),
        *((raw, False) for raw in (*strategies.OTHER_ARGUMENTS, HUGE)),
    ],
    ids=lambda value: str(value)[:20],
)
def test_arguments_are_parsed_if_they_are_an_object_else_wrapped(raw: str, is_object: bool):
    assert parse_arguments(raw) == (json.loads(raw) if is_object else {"arguments": raw})


def test_nesting_is_limited_at_the_same_depth_everywhere():
    # 99 lists in one object: 100 deep
    fits, too_deep = ('{"a":' + "[" * n + "]" * n + "}" for n in (99, 100))
    assert parse_arguments(fits) == json.loads(fits)
    assert parse_arguments(too_deep) == {"arguments": too_deep}
    wide = '{"a": [' + ", ".join(["{}"] * 1000) + "]}"
    assert parse_arguments(wide) == json.loads(wide)


@pytest.mark.parametrize(
    ("old", "new"),
    [(1, 2), (1, True), (1, 1.0), (0, False), ("a", "b"), ({"x": 1, "y": 2}, {"y": 2, "x": 1})],
)
def test_an_edited_input_is_sent_instead_of_the_raw_text(old, new):
    call = {
        "id": "i",
        "type": "function",
        "function": {"name": "f", "arguments": json.dumps({"a": old}) + " "},
    }
    (msg,) = from_openai([calling(tool_calls=[call])])
    msg.content[0]["input"]["a"] = new
    assert to_openai([msg])[0]["tool_calls"][0]["function"]["arguments"] == json.dumps({"a": new})


def test_an_input_is_sent_as_an_object_or_refused():
    """What was received as no object is wrapped once it is known only by what it was read as."""
    call = {"id": "i", "type": "function", "function": {"name": "f", "arguments": '{"路径": '}}
    (msg,) = from_openai([calling(tool_calls=[call])])
    del msg.content[0]["raw_input"]
    sent = to_openai([msg])[0]["tool_calls"][0]["function"]["arguments"]
    assert sent == '{"arguments": "{\\"路径\\": "}'
    msg.content[0]["input"] = {"a": float("nan")}
    arguments = to_openai([msg])[0]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(arguments) == {"arguments": '{"a": NaN}'}
    msg.content[0]["input"] = {"a": object()}
    with pytest.raises(InvalidMessageError, match=r"tool_use\.input: expected JSON data"):
        to_openai([msg])


# --- edits show


def test_edited_texts_names_and_ids_show():
    history = [
        {"content": "hi", "name": "bob", "role": "user"},
        {"role": "developer", "content": "x"},
        calling(content="", reasoning_content="why", refusal="no"),
        {"content": "old", "role": "tool", "name": "search", "tool_call_id": "call_1", "x": 1},
        {"role": "user", "content": [{"text": "old"}]},
    ]
    user, developer, assistant, tool, typeless = from_openai(history)
    developer.role = "user"
    user.content, user.name = "changed", "alice"
    thinking, refusal, use = assistant.content
    thinking["thinking"], refusal["refusal"], use["id"], use["name"] = "because", "never", "call_2", "find"
    assistant.content.insert(1, {"type": "text", "text": "now with text"})
    tool.content[0] |= {"id": "call_2", "output": "new", "name": "find"}
    typeless.content[0]["text"] = "new"
    assert to_openai([user, developer, assistant, tool, typeless]) == [
        {"content": "changed", "name": "alice", "role": "user"},
        {"role": "user", "content": "x"},
        {
            "role": "assistant",
            "content": "now with text",
            "tool_calls": [CALL | {"id": "call_2", "function": CALL["function"] | {"name": "find"}}],
            "reasoning_content": "because",
            "refusal": "never",
        },
        {"content": "new", "role": "tool", "name": "find", "tool_call_id": "call_2", "x": 1},
        {"role": "user", "content": [{"text": "new"}]},
    ]


def test_removed_blocks_are_gone_and_added_calls_replace_a_null():
    removed, added = from_openai(
        [calling(content="x", name="n"), {"tool_calls": None, "role": "assistant", "content": "y"}]
    )
    added.content = [{"type": "text", "text": "y"}, removed.content[1]]
    removed.content = removed.content[:1]
    assert to_openai([removed, added]) == [
        {"role": "assistant", "content": [{"type": "text", "text": "x"}], "name": "n"},
        {"tool_calls": [CALL], "role": "assistant", "content": "y"},
    ]


def test_provenance_and_foreign_metadata_are_not_sent():
    metadata = {"compression": {"kind": "stub"}, "mine": 1, "openai": "not a remark"}
    assert to_openai([Msg("bob", "x", "user", metadata)]) == [{"role": "user", "content": "x"}]


# --- messages that did not come from chat dicts


def use(call_id: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "f", "input": {"城": 1}}


def outcome(call_id: str, output: Any) -> dict[str, Any]:
    return {"type": "tool_result", "id": call_id, "name": "f", "output": output}


TEXT = {"type": "text", "text": "so"}


@pytest.mark.parametrize(
    ("msg", "expected"),
    [
        (
            Msg("Friday", [TEXT, use("a"), use("b")], "assistant"),
            [{"role": "assistant", "content": "so", "tool_calls": ["a", "b"]}],
        ),
        (
            Msg("Friday", [{**TEXT, "cache_control": {}}, use("a")], "assistant"),
            [{"role": "assistant", "content": [{**TEXT, "cache_control": {}}], "tool_calls": ["a"]}],
        ),
        (
            Msg("Friday", [TEXT, TEXT, use("a")], "assistant"),
            [{"role": "assistant", "content": [TEXT, TEXT], "tool_calls": ["a"]}],
        ),
        (
            Msg("Friday", [use("a")], "assistant"),
            [{"role": "assistant", "content": None, "tool_calls": ["a"]}],
        ),
        (
            Msg(
                "F",
                [{"type": "thinking", "thinking": "a"}, {"type": "thinking", "thinking": "b"}, TEXT],
                "assistant",
            ),
            [{"role": "assistant", "content": "so", "reasoning_content": "a\nb"}],
        ),
        (
            Msg("system", [outcome("a", "x"), outcome("b", [TEXT])], "system"),
            [
                {"role": "tool", "tool_call_id": "a", "content": "x"},
                {"role": "tool", "tool_call_id": "b", "content": [TEXT]},
            ],
        ),
        (
            Msg("Friday", [outcome("a", "x"), TEXT, use("a")], "assistant"),
            [
                {"role": "assistant", "content": "so", "tool_calls": ["a"]},
                {"role": "tool", "tool_call_id": "a", "content": "x"},
            ],
        ),
        (
            Msg("bob", [TEXT, outcome("a", "x")], "user"),
            [{"role": "tool", "tool_call_id": "a", "content": "x"}, {"role": "user", "content": [TEXT]}],
        ),
        (Msg("system", "rules", "system"), [{"role": "system", "content": "rules"}]),
        (
            Msg(
                "bob",
                [
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}},
                    {"type": "image", "source": {"type": "url", "url": "https://a"}},
                    {"type": "audio", "source": {"type": "base64", "media_type": "audio/mpeg", "data": "AA"}},
                    {"type": "audio", "source": {"type": "url", "url": "https://a/b.WAV?c"}},
                    {"type": "video", "source": {"type": "url", "url": "https://a"}},
                ],
                "user",
            ),
            [
                {
                    "role": "user",
                    "content": [
                        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}},
                        {"type": "image_url", "image_url": {"url": "https://a"}},
                        {"type": "input_audio", "input_audio": {"format": "mp3", "data": "AA"}},
                        {
                            "type": "input_audio",
                            "input_audio": {"data": "https://a/b.WAV?c", "format": "wav"},
                        },
                        {"type": "video_url", "video_url": {"url": "https://a"}},
                    ],
                }
            ],
        ),
    ],
)
def test_agentscope_messages_become_chat_dicts(msg, expected):
    for message in expected:
        if "tool_calls" in message:
            message["tool_calls"] = [
                {"id": call_id, "type": "function", "function": {"name": "f", "arguments": '{"城": 1}'}}
                for call_id in message["tool_calls"]
            ]
    result = to_openai([msg])
    assert result == expected
    assert [list(message) for message in result if message["role"] == "tool"] == [
        list(message) for message in expected if message["role"] == "tool"
    ]


@given(strategies.messages())
def test_agentscope_messages_settle_after_one_conversion(msgs):
    sent = to_openai(msgs)
    assert_round_trip(sent)
    blocks = [block for msg in msgs for block in msg.get_content_blocks()]
    calls = [call["id"] for message in sent for call in message.get("tool_calls", ())]
    assert calls == [block["id"] for block in blocks if block["type"] == "tool_use"]
    results = [message["tool_call_id"] for message in sent if message["role"] == "tool"]
    assert results == [block["id"] for block in blocks if block["type"] == "tool_result"]


# --- malformed input


def with_call(**changes: Any) -> dict[str, Any]:
    return calling(tool_calls=[CALL, copy.deepcopy(CALL) | changes])


@pytest.mark.parametrize(
    ("message", "error"),
    [
        ("hello", ": expected a chat dict, got str"),
        (None, ": expected a chat dict, got None"),
        (Msg("a", "b", "user"), ": expected a chat dict, got Msg; to_openai makes"),
        ({"content": "x"}, ".role: expected one of system, developer"),
        (
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            "role: missing, where the type is 'function_call'; items of OpenAI's Responses API are of",
        ),
        ({"role": "bot", "content": "x"}, "tool, function, got 'bot'"),
        ({"role": ["user"], "content": "x"}, ".role: expected one of"),
        ({"role": "user"}, ".content: expected a string or a list of parts, but it is missing"),
        ({"role": "user", "content": None}, ".content: expected a string or a list of parts, got None"),
        ({"role": "system", "content": 5}, ".content: expected a string or a list of parts, got int"),
        ({"role": "developer", "content": {}}, ".content: expected a string or a list of parts, got dict"),
        ({"role": "user", "content": ["x"]}, ".content[0]: expected a dict, got str"),
        (
            {"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "text"}]},
            ".content[1].text: expected a string",
        ),
        ({"role": "user", "content": [{"text": 5}]}, ".content[0].text: expected a string, got int"),
        ({"role": "user", "content": [{"type": 5}]}, ".content[0].type: expected a string, got int"),
        ({"role": "user", "content": "x", "name": 5}, ".name: expected a string, got int"),
        ({"role": "user", "content": "x", "y": {1}}, ".y: expected JSON data, got set"),
        ({"role": "user", "content": "x", "y": {1: 2}}, ".y: expected keys that are strings, got int"),
        ({"role": "assistant", "content": 5}, ".content: expected a string or a list of parts, got int"),
        ({"role": "assistant", "content": "x", "reasoning_content": []}, ".reasoning_content: expected"),
        ({"role": "assistant", "content": "x", "refusal": {}}, ".refusal: expected a string, got dict"),
        ({"role": "assistant", "audio": "id"}, ".audio: expected a dict, got str"),
        (calling(tool_calls={}), ".tool_calls: expected a list, got dict"),
        (calling(tool_calls=["x"]), ".tool_calls[0]: expected a dict, got str"),
        (with_call(id=None), ".tool_calls[1].id: expected a string, got None"),
        (with_call(type=5), ".tool_calls[1].type: expected a string, got int"),
        (with_call(function="f"), ".tool_calls[1].function: expected a dict, got str"),
        (with_call(type="custom"), ".tool_calls[1].custom: expected a dict, but it is missing"),
        (
            with_call(function={"arguments": "{}"}),
            ".tool_calls[1].function.name: expected a string, but it is missing",
        ),
        (
            with_call(function={"name": "f", "arguments": 5}),
            ".tool_calls[1].function.arguments: expected a string, got int",
        ),
        (
            with_call(function={"name": "f"}),
            ".tool_calls[1].function.arguments: expected a string, but it is missing",
        ),
        (
            with_call(type="custom", custom={"name": "f", "input": {}}),
            ".tool_calls[1].custom.input: expected a string, got dict",
        ),
        (
            {"role": "assistant", "function_call": {"name": None, "arguments": "{}"}},
            ".function_call.name: expected a string, got None",
        ),
        (
            {"role": "tool", "content": "x"},
            ".tool_call_id: expected a string, but it is missing; "
            "where calls have no ids, say the tool's name",
        ),
        ({"role": "tool", "tool_call_id": 7, "content": "x"}, ".tool_call_id: expected a string, got int"),
        (
            {"role": "tool", "tool_call_id": "x", "content": {"a": 1}},
            ".content: expected a string or a list of parts, got dict; json.dumps makes a string",
        ),
        ({"role": "tool", "tool_call_id": "x"}, ".content: expected a string or a list of parts"),
        ({"role": "function", "content": "x"}, ".name: expected a string, but it is missing"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_malformed_messages_are_refused_by_index_and_field(message, error):
    with pytest.raises(InvalidMessageError) as caught:
        from_openai([{"role": "user", "content": "fine"}, message])
    assert error in str(caught.value).removeprefix("messages[1]")


def test_data_that_nests_too_deep_is_refused():
    deep: Any = "x"
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(InvalidMessageError, match=r"messages\[0\]\.y: nested more than 100 deep"):
        from_openai([{"role": "user", "content": "x", "y": deep}])


@pytest.mark.parametrize(
    "value",
    [*("text", b"x", {"role": "user"}, None, 5), ChatCompletionMessage(role="assistant", content="x")],
    ids=lambda value: type(value).__name__,
)
def test_a_single_message_instead_of_a_list_is_refused(value):
    with pytest.raises(InvalidArgumentError, match="messages: expected a list"):
        from_openai(value)
    with pytest.raises(InvalidArgumentError, match=r"messages: expected a list|\[0\]: expected a Msg"):
        to_openai(value)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("content", 5, r"content: expected a string or a list"),
        ("role", "tool", "role: expected one of .*'tool'"),
    ],
)
def test_a_message_that_was_spoilt_is_refused_by_its_field(field: str, value: Any, words: str):
    msg = Msg("a", "b", "user")
    setattr(msg, field, value)
    with pytest.raises(InvalidMessageError, match=rf"messages\[0\]\.{words}"):
        to_openai([msg])


def test_only_messages_are_turned_into_dicts():
    with pytest.raises(InvalidArgumentError, match="messages: expected a list of Msg, got Msg"):
        to_openai(Msg("a", "b", "user"))
    with pytest.raises(InvalidArgumentError, match=r"messages\[1\]: expected a Msg, got dict"):
        to_openai([Msg("a", "b", "user"), {"role": "user", "content": "x"}])
    with pytest.raises(InvalidArgumentError, match=r"messages\[0\]: expected a Msg, got SimpleNamespace"):
        to_openai([SimpleNamespace(content="hi")])  # as LangChain's messages have no role


def test_whoever_forgot_to_await_is_told_so():
    forgotten = CompressedMemory().get_memory()
    with pytest.raises(InvalidArgumentError, match="expected a list of Msg, got coroutine; await it"):
        to_openai(forgotten)
    forgotten.close()


# --- SDK objects


def completion(message: dict[str, Any]) -> ChatCompletion:
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return ChatCompletion.model_validate(
        {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    )


SDK_MESSAGE = {
    "content": "lone \ud800",
    "refusal": None,
    "role": "assistant",
    "annotations": [],
    "tool_calls": [{"id": "call_1", "function": CALL["function"], "type": "function", "index": 0}],
    "reasoning_content": "why",
}


def test_an_openai_message_object_comes_back_as_what_the_api_sent():
    message = completion(SDK_MESSAGE).choices[0].message
    (msg,) = from_openai([message])
    assert to_openai([msg]) == [SDK_MESSAGE]
    assert msg.content[0] == {"type": "thinking", "thinking": "why"}
    built = {"role": "assistant", "content": "x", "tool_calls": message.tool_calls}
    assert to_openai(from_openai([built])) == [{**built, "tool_calls": SDK_MESSAGE["tool_calls"]}]


def test_a_parsed_message_is_sent_without_what_the_sdk_parsed():
    class Answer(BaseModel):
        x: int

    call = {
        "id": "c",
        "type": "function",
        "function": {"name": "f", "arguments": "{}", "parsed_arguments": {}},
    }
    message = ParsedChatCompletionMessage[Answer].model_validate(
        {"role": "assistant", "content": '{"x": 1}', "parsed": {"x": 1}, "tool_calls": [call]}
    )
    (result,) = to_openai(from_openai([message]))
    assert sorted(result) == ["content", "role", "tool_calls"]
    assert result["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}"}


def test_an_object_that_is_no_chat_message_is_refused_by_its_class():
    class HumanMessage(BaseModel):
        type: str = "human"
        content: str

    with pytest.raises(
        InvalidMessageError, match=r"messages\[1\]: expected a chat dict, got HumanMessage; let"
    ):
        from_openai([{"role": "user", "content": "x"}, HumanMessage(content="x")])


def test_a_whole_answer_is_refused_with_the_way_to_its_message():
    answer = completion(SDK_MESSAGE)
    with pytest.raises(InvalidMessageError, match=r"got ChatCompletion; hand over its .choices\[0\].message"):
        from_openai([answer])
    with pytest.raises(InvalidMessageError, match=r"got Choice; hand over its \.message"):
        from_openai(answer.choices)


def test_dashscope_message_objects_are_accepted():
    response = GenerationResponse.from_api_response(
        GenerationResponse(
            status_code=200,
            request_id="x",
            output={
                "choices": [{"finish_reason": "stop", "message": calling(content="", reasoning_content="")}]
            },
        )
    )
    messages = [Message(role="user", content=[{"text": "hi"}]), response.output.choices[0].message]
    assert isinstance(messages[1], Message)
    result = to_openai(from_openai(messages))
    assert json.dumps(result) == json.dumps([dict(message) for message in messages])
    assert all(type(message) is dict for message in result)


def test_roles_and_names_may_come_from_an_enum():
    class Role(str, Enum):  # noqa: UP042 - what users wrote before StrEnum, whose str() is no text of ours
        USER = "user"

    for message in (
        {"role": Role.USER, "content": "x"},
        {"role": Role.USER, "content": "x", "name": Role.USER},
    ):
        (msg,) = from_openai([message])
        assert type(msg.role) is type(msg.name) is str
        assert json.dumps(to_openai([msg])) == json.dumps([message])


def test_any_mapping_object_with_a_role_and_iterable_is_accepted():
    class User(BaseModel):
        role: str = "user"
        content: str
        name: str | None = None

    assert to_openai(from_openai([User(content="x")])) == [{"role": "user", "content": "x"}]
    message = MappingProxyType(
        {"role": "user", "content": (MappingProxyType({"type": "text", "text": "x"}),)}
    )
    msgs = from_openai(message for _ in range(2))
    assert to_openai(iter(msgs)) == [{"role": "user", "content": [{"type": "text", "text": "x"}]}] * 2


def blocks_of(msg: Msg) -> list[dict[str, Any]]:
    return [] if isinstance(msg.content, str) else msg.content


def test_half_a_surrogate_pair_that_came_escaped_goes_out_escaped() -> None:
    arguments = json.dumps({"path": "a", "emoji": "\ud83d"})
    (msg,) = from_openai([calling(tool_calls=[{**CALL, "function": {"name": "f", "arguments": arguments}}])])
    assert isinstance(msg.content, list)
    msg.content[0]["input"]["path"] = "b"  # an edit: the arguments are written anew
    sent = to_openai([msg])[0]["tool_calls"][0]["function"]["arguments"]
    sent.encode()
    assert json.loads(sent) == {"path": "b", "emoji": "\ud83d"}


# --- what others may ask of the remark


def test_keys_that_have_no_place_in_content_are_told() -> None:
    call = {**CALL, "index": 0, "function": {**CALL["function"], "signature": "s"}}
    (msg,) = from_openai([calling(tool_calls=[call], annotations=["a"])])
    assert extra_of(msg.metadata) == {"annotations": ["a"]}
    assert extras_of_call(blocks_of(msg)[0]) == ({"signature": "s"}, {"index": 0})
    kept = Msg("assistant", "hi", "assistant", metadata_with({"annotations": ["b"]}))
    assert to_openai([kept]) == [{"role": "assistant", "content": "hi", "annotations": ["b"]}]
    assert metadata_with({}) is None
    assert extra_of({"openai": "somebody else's"}) == {}


@pytest.mark.parametrize(
    ("message", "form"),
    [
        (calling(refusal="no"), "field"),
        (
            calling(tool_calls=[{"id": "c", "type": "custom", "custom": {"name": "f", "input": "x"}}]),
            "custom",
        ),
        (calling(tool_calls=None, function_call={"name": "f", "arguments": "{}"}), "function_call"),
        ({"role": "user", "content": [{"text": "hi"}]}, "typeless"),
        ({"role": "user", "content": [{"type": "text", "text": "hi"}]}, None),
    ],
)
def test_a_block_tells_how_it_stood_on_the_wire(message: dict[str, Any], form: str | None) -> None:
    (msg,) = from_openai([message])
    block = blocks_of(msg)[0]
    assert form_of(block) == form
    assert form_of(without_remark(block)) is None


def test_results_tell_their_role_and_whether_they_were_named() -> None:
    plain, named, legacy = from_openai(
        [
            {"role": "tool", "tool_call_id": "a", "content": "x"},
            {"role": "tool", "tool_call_id": "a", "content": "x", "name": "f"},
            {"role": "function", "name": "f", "content": "x"},
        ]
    )
    assert [is_legacy_result(msg) for msg in (plain, named, legacy)] == [False, False, True]
    assert [sends_name(msg) for msg in (plain, named)] == [False, True]


def test_nobody_else_reads_the_remark() -> None:
    """What forms keep for themselves only their own modules know."""
    package = Path(messages.__file__).parent.parent
    room = package / "messages"
    own = [room / f"{name}.py" for name in ("remark", "markers", "chat", "anthropic", "responses")]
    others = [path for path in package.rglob("*.py") if path not in own]
    reading = re.compile(r"\bremark_of\b|\bREMARK\]|metadata\[.openai.\]")
    assert [path for path in others if reading.search(path.read_text(encoding="utf-8"))] == []
