"""The forms beside chat dicts: read and written without loss, paired; what is of none is refused by name."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from context_compressor import (
    CompressedMemory,
    ContextOverflowError,
    InMemoryOffloadStore,
    InvalidMessageError,
    Msg,
    TiktokenCounter,
    UnrelatedMessagesError,
    compress_messages,
    from_anthropic,
    from_openai,
    from_responses,
    to_anthropic,
    to_openai,
    to_responses,
)
from context_compressor.laws import anthropic_rules, chat_rules, responses_rules
from context_compressor.laws.random_anthropic import FOUND as SONAR
from context_compressor.laws.random_anthropic import random_anthropic
from context_compressor.laws.random_responses import FOUND as RADAR
from context_compressor.laws.random_responses import random_responses
from context_compressor.laws.strategies import histories
from context_compressor.messages.parts import other_parts
from context_compressor.messages.repair import MISSING_RESULT

Dict = dict[str, Any]
COUNTER = TiktokenCounter()

USER: Dict = {"role": "user", "content": "Go."}
BLANK = {"type": "text", "text": " \n"}
HIDDEN = {"type": "redacted_thinking", "data": "EmwK"}
PIXELS = "data:image/png;base64," + "iVBORw0KGgo" * 40


READ: dict[str, Any] = {"chat": from_openai, "responses": from_responses, "anthropic": from_anthropic}
CHAT_PARTS = ("text", "refusal", "image_url", "input_audio", "file")


def refused(form: str, view: list[Dict]) -> list[str]:
    if form == "chat":
        parts = [part for message in view for part in message.get("content") or () if isinstance(part, dict)]
        foreign = [f"part of type {part.get('type')}" for part in parts if part.get("type") not in CHAT_PARTS]
        return chat_rules.problems(view) + foreign
    return responses_rules.problems(view) if form == "responses" else anthropic_rules.problems(view)


def rows(number: int, count: int = 60) -> str:
    return "\n".join(f"row {number}-{line} value {line * number % 97}" for line in range(count))


def marked(block: Dict) -> Dict:
    return {**block, "cache_control": {"type": "ephemeral"}}


def asked(number: int, *, marks: bool = False) -> list[Dict]:
    """Return two calls in a message of Anthropic's, and what comes back, with a word of the user's."""
    uses = [
        {"type": "tool_use", "id": f"{call}{number}", "name": "read", "input": {"shard": number}}
        for call in "ab"
    ]
    thought = {"type": "thinking", "thinking": f"Shard {number} is next.", "signature": f"sig{number}"}
    said = {"type": "text", "text": f"And {number + 1}?"}
    return [
        {"role": "assistant", "content": [thought, {"type": "text", "text": "I look."}, *uses]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": f"a{number}", "content": rows(number)},
                {
                    "type": "tool_result",
                    "tool_use_id": f"b{number}",
                    "content": [{"type": "text", "text": rows(number, 40)}],
                    "is_error": True,
                },
                marked(said) if marks else said,
            ],
        },
    ]


def made(number: int) -> list[Dict]:
    """Return what a model gives by the Responses API, with the outputs of its calls."""
    calls = [
        {
            "type": "function_call",
            "id": f"fc_{call}{number}",
            "call_id": f"{call}{number}",
            "name": "read",
            "arguments": json.dumps({"shard": number}),
            "status": "completed",
        }
        for call in "ab"
    ]
    return [
        {"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": "gAAAA" * 30},
        {
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": f"I read {number}.", "annotations": []}],
        },
        *calls,
        {"type": "function_call_output", "call_id": f"a{number}", "output": rows(number)},
        {
            "type": "function_call_output",
            "call_id": f"b{number}",
            "output": [{"type": "input_text", "text": rows(number, 40)}],
        },
    ]


ANTHROPIC = [{"role": "user", "content": "Check all shards."}, *(m for n in range(14) for m in asked(n))]
RESPONSES = [
    {"role": "user", "content": "Check all shards."},
    *(item for n in range(14) for item in made(n)),
]

ODD_MESSAGES: list[Dict] = [
    {
        "role": "user",
        "content": [{"type": "text", "text": "A", "citations": None}, {"type": "container_upload"}],
    },
    {"content": "keys in another order", "role": "assistant"},
    {
        "role": "user",
        "content": [
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
            marked({"type": "document", "source": {"type": "url", "url": "https://x/y.pdf"}, "title": "y"}),
        ],
    },
    {
        "role": "assistant",
        "content": [
            {"type": "redacted_thinking", "data": "EmwK"},
            {"signature": "s", "thinking": "", "type": "thinking"},
            {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {"query": "q"}},
            {"type": "web_search_tool_result", "tool_use_id": "srv", "content": []},
            {"type": "tool_use", "id": "t", "name": "f", "input": {}, "caller": {"type": "direct"}},
            {"type": "tool_use", "id": "u", "name": "f", "input": {}},
            {"type": "tool_use", "id": "v", "name": "f", "input": {}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "t"},
            {"type": "tool_result", "tool_use_id": "u", "content": []},
            {"tool_use_id": "v", "type": "tool_result", "is_error": False, "content": ""},
        ],
    },
    {"role": "system", "content": "From here on, be brief."},
]

ODD_ITEMS: list[Dict] = [
    {"role": "developer", "content": "Be brief."},
    {
        "type": "message",
        "role": "user",
        "content": [
            {"type": "input_text", "text": "See"},
            {"type": "input_image", "image_url": PIXELS, "detail": "auto"},
            {"type": "input_image", "file_id": "file-1", "detail": "low"},
            {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AAAA"},
        ],
    },
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}], "status": None},
    {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "q"},
    },
    {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "iVBORw0KGgo"},
    {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "phase": "commentary",
        "content": [
            {
                "type": "output_text",
                "text": "One.",
                "annotations": [{"type": "url_citation"}],
                "logprobs": [],
            },
            {"type": "refusal", "refusal": "Not that."},
        ],
    },
    {"type": "custom_tool_call", "call_id": "c1", "name": "sh", "input": "ls"},
    {
        "type": "shell_call",
        "call_id": "c2",
        "id": "sh_1",
        "action": {"commands": ["ls"]},
        "status": "completed",
    },
    {
        "type": "apply_patch_call",
        "call_id": "c3",
        "operation": {"type": "delete_file", "path": "a"},
        "status": "x",
    },
    {
        "type": "computer_call",
        "call_id": "c4",
        "id": "cu_1",
        "pending_safety_checks": [],
        "status": "completed",
    },
    {"type": "custom_tool_call_output", "call_id": "c1", "output": "a"},
    {
        "type": "shell_call_output",
        "call_id": "c2",
        "max_output_length": 9,
        "output": [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
    },
    {"type": "apply_patch_call_output", "call_id": "c3", "status": "completed"},
    {
        "type": "computer_call_output",
        "call_id": "c4",
        "output": {"type": "computer_screenshot", "image_url": PIXELS},
    },
    {"role": "assistant", "content": "In the easy form."},
    {"type": "message", "role": "assistant", "content": []},
    {"id": "msg_9"},
    {"type": "something_new", "id": "new_1", "payload": {"deep": [1, 2]}},
    {"role": "user", "content": "Go on."},
]

READ_WRITE = [
    pytest.param(from_anthropic, to_anthropic, ANTHROPIC, id="anthropic"),
    pytest.param(from_anthropic, to_anthropic, ODD_MESSAGES, id="anthropic, odd"),
    pytest.param(from_responses, to_responses, RESPONSES, id="responses"),
    pytest.param(from_responses, to_responses, ODD_ITEMS, id="responses, odd"),
    pytest.param(from_openai, to_openai, ANTHROPIC, id="anthropic among chat dicts"),
]


@pytest.mark.parametrize(("read", "write", "said"), READ_WRITE)
def test_what_is_read_is_written_as_it_was(read: Any, write: Any, said: list[Dict]) -> None:
    assert json.dumps(write(read(said))) == json.dumps(said)
    stored = [Msg.from_dict(json.loads(json.dumps(msg.to_dict()))) for msg in read(said)]
    assert json.dumps(write(stored)) == json.dumps(said)


def with_each_value_exchanged(said: Any, junk: Any) -> Iterator[Any]:
    """Yield the same list again and again, each time with another of its values in the place of one."""
    items = said.items() if isinstance(said, dict) else enumerate(said) if isinstance(said, list) else ()
    for key, value in items:
        for one in (junk, *with_each_value_exchanged(value, junk)):
            again = said.copy()
            again[key] = one
            yield again


@pytest.mark.parametrize("junk", [None, 5, [], {}], ids=repr)
@pytest.mark.parametrize(("read", "_write", "said"), READ_WRITE)
def test_whatever_stands_in_the_place_of_a_value_is_read_or_refused_by_name(
    read: Any, _write: Any, said: list[Dict], junk: Any
) -> None:
    for message in said:
        for wrong in with_each_value_exchanged(message, junk):
            with suppress(InvalidMessageError):
                read([wrong])


def test_objects_of_the_sdks_are_read_as_they_are() -> None:
    from anthropic.types import TextBlock, ToolUseBlock
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    content = [
        TextBlock(type="text", text="I look."),
        ToolUseBlock(type="tool_use", id="t", name="f", input={}),
    ]
    written = to_anthropic(
        from_anthropic([{"role": "user", "content": "Go."}, {"role": "assistant", "content": content}])
    )
    assert [block["type"] for block in written[1]["content"]] == ["text", "tool_use"]
    text = ResponseOutputText(type="output_text", text="I look.", annotations=[])
    said = ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[text])
    call = ResponseFunctionToolCall(type="function_call", call_id="c", name="f", arguments="{}")
    (msg,) = from_responses([said, call])
    assert [block["type"] for block in msg.get_content_blocks()] == ["text", "tool_use"]
    assert [item["type"] for item in to_responses([msg])] == ["message", "function_call"]


async def test_what_an_sdk_gives_is_the_same_message_when_it_is_dumped() -> None:
    """`model_dump()` writes null for whatever was not set, within parts, too."""
    from anthropic.types import TextBlock, ToolUseBlock

    said: list[Dict] = [{"role": "user", "content": "Go."}]
    for number in range(8):
        use = ToolUseBlock(type="tool_use", id=f"t{number}", name="f", input={})
        said.append({"role": "assistant", "content": [TextBlock(type="text", text=f"Part {number}."), use]})
        result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": rows(number)}
        said.append({"role": "user", "content": [result]})
    memory = CompressedMemory(max_total_tokens=2_500)
    await memory.view(said, form="anthropic")
    events = memory.stats().events
    dumped = [
        {**m, "content": [b.model_dump() for b in m["content"]]} if m["role"] == "assistant" else m
        for m in said
    ]
    assert dumped != said
    await memory.view(dumped, form="anthropic")
    assert memory.stats().events == events > 0


# Among forms


@pytest.mark.parametrize(("read", "said"), [(from_anthropic, ANTHROPIC), (from_responses, RESPONSES)])
def test_every_form_writes_what_another_read(read: Any, said: list[Dict]) -> None:
    msgs = read(said[:7])
    assert [m["role"] for m in to_openai(msgs)][:4] == ["user", "assistant", "tool", "tool"]
    items = to_responses(msgs)
    assert [item.get("type") for item in items if "type" in item].count("function_call_output") >= 2
    turns = to_anthropic(msgs)
    assert [block["type"] for block in turns[2]["content"]][:2] == ["tool_result", "tool_result"]
    assert not any("openai" in json.dumps(wire) for wire in (*to_openai(msgs), *items, *turns))


PDF = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}
FOUND = [{"type": "text", "text": "It is blue."}]
TOLD = [
    pytest.param(
        from_anthropic,
        {
            "role": "user",
            "content": [{"type": "document", "title": "y", "source": {"type": "url", "url": "https://x/y"}}],
        },
        {"chat": "[document: y, https://x/y]", "responses": "[document: y, https://x/y]"},
        id="a document by URL",
    ),
    pytest.param(
        from_anthropic,
        {
            "role": "user",
            "content": [{"type": "search_result", "source": "https://x", "title": "Sky", "content": FOUND}],
        },
        {
            "chat": "[search_result: https://x, Sky]\nIt is blue.",
            "responses": "[search_result: https://x, Sky]\nIt is",
        },
        id="a search result",
    ),
    pytest.param(
        from_anthropic,
        {"role": "user", "content": [{"type": "document", "title": "a.pdf", "source": PDF}]},
        {"chat": '"file_data": "data:application/pdf;base64,JVBERi0="', "responses": '"filename": "a.pdf"'},
        id="a document whose data are there",
    ),
    pytest.param(
        from_anthropic,
        {
            "role": "assistant",
            "content": [
                HIDDEN,
                {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web", "input": {"query": "q"}},
            ],
        },
        {"chat": "[server_tool_use: web, q]", "responses": "[server_tool_use: web, q]"},
        id="a hosted call of Anthropic's",
    ),
    pytest.param(
        from_responses,
        {
            "type": "web_search_call",
            "id": "ws_1",
            "status": "completed",
            "action": {"type": "search", "query": "q"},
        },
        {"chat": "[web_search_call: q]", "anthropic": "[web_search_call: q]"},
        id="a hosted call of OpenAI's",
    ),
    pytest.param(
        from_anthropic,
        {"role": "user", "content": [{"type": "image", "source": {"type": "file", "file_id": "file_1"}}]},
        {"chat": "[image: file_1]", "responses": "[image: file_1]"},
        id="an image of Anthropic's files",
    ),
    pytest.param(
        from_responses,
        {"role": "user", "content": [{"type": "input_file", "file_url": "https://x/a.pdf"}]},
        {"chat": "[input_file: https://x/a.pdf]", "anthropic": "[input_file: https://x/a.pdf]"},
        id="a file by URL",
    ),
    pytest.param(
        from_responses,
        {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "iVBORw0KGgo"},
        {"chat": "[image]", "anthropic": "[image]"},
        id="an image that the model drew",
    ),
    pytest.param(
        from_openai,
        {"role": "user", "content": [{"type": "video_url", "video_url": {"url": "https://x/a.mp4"}}]},
        {"responses": "[video: https://x/a.mp4]", "anthropic": "[video: https://x/a.mp4]"},
        id="a video",
    ),
]


@pytest.mark.parametrize(("read", "message", "expected"), TOLD)
async def test_what_a_form_has_no_word_for_is_told(
    read: Any, message: Dict, expected: dict[Any, str]
) -> None:
    memory = CompressedMemory(max_total_tokens=40_000)
    await memory.add(read([USER, message, {"role": "user", "content": "And?"}]))
    for form, text in expected.items():
        view = await memory.view(form=form)
        assert text in json.dumps(view, ensure_ascii=False).replace("\\n", "\n")
        assert refused(form, view) == []
        assert COUNTER.count_messages(READ[form](view)) <= memory.stats().view_tokens


def test_texts_and_images_of_the_responses_api_are_read_in_chat_dicts() -> None:
    parts = [
        {"type": "input_text", "text": "See", "extra": 1},
        {"image_url": PIXELS, "type": "input_image", "detail": "low"},
        {"type": "output_text", "text": "Seen", "annotations": []},
    ]
    said = [{"role": "user", "content": parts}]
    (msg,) = from_openai(said)
    assert msg.get_text_content() == "See\nSeen"
    assert [part.kind for part in other_parts(msg)] == ["image"]
    assert json.dumps(to_openai([msg])) == json.dumps(said)


@pytest.mark.parametrize(
    ("read", "said", "name"),
    [
        (from_openai, {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c"}}]}, "Bedrock"),
        (from_anthropic, {"role": "user", "content": [{"toolResult": {"toolUseId": "c"}}]}, "Bedrock"),
        *(
            (read, {"role": role, "content": [part]}, r"content\[0\].type: .*Goose")
            for read in READ.values()
            for role, part in (
                ("assistant", {"type": "toolRequest", "id": "t", "toolCall": {"status": "success"}}),
                ("user", {"type": "toolResponse", "id": "t", "toolResult": {"status": "success"}}),
            )
        ),
        (from_openai, {"role": "user", "parts": [{"text": "Hello"}]}, "Gemini"),
        (from_anthropic, {"role": "model", "parts": [{"functionCall": {"name": "f"}}]}, "Gemini"),
        (from_responses, {"role": "user", "parts": [{"type": "text", "text": "Hello"}]}, "Vercel"),
        (from_openai, {"type": "function_call", "call_id": "c"}, "from_responses"),
        (from_responses, {"role": "assistant", "content": None, "tool_calls": [{}]}, "chat dict"),
        (from_responses, {"role": "tool", "tool_call_id": "c", "content": "x"}, "function_call_output"),
        (from_responses, {"role": "user", "content": [{"type": "tool_result"}]}, "form='anthropic'"),
        (from_responses, {"role": "user", "content": [{"text": "x"}]}, r"content\[0\].type: .* missing"),
        (from_anthropic, {"role": "user", "content": [{"text": "x"}]}, r"content\[0\].type: .* missing"),
        (from_anthropic, {"role": "user", "content": [{"image": {"format": "png"}}]}, "Bedrock"),
        (
            from_openai,
            {"role": "user", "content": [{"cachePoint": {"type": "default"}}]},
            "cachePoint: .*Bedrock",
        ),
        (
            from_anthropic,
            {"role": "user", "content": [{"cachePoint": {}}]},
            r"content\[0\].cachePoint: .*Bedrock",
        ),
        (
            from_responses,
            {"role": "user", "content": [{"inline_data": {"data": ""}}]},
            "inline_data: .*Gemini",
        ),
        (from_responses, {"role": "user", "content": [{"function_call": {"name": "x"}}]}, "Gemini"),
        (
            from_openai,
            {"role": "assistant", "content": "", "toolInvocations": [{}]},
            "toolInvocations: .*Vercel",
        ),
        (from_anthropic, {"role": "assistant", "content": "", "toolInvocations": [{}]}, "Vercel"),
        (from_responses, {"role": "assistant", "content": "", "parts": [{"type": "step-start"}]}, "Vercel"),
        (
            from_anthropic,
            {"role": "assistant", "content": "x", "tool_calls": [{}]},
            "tool_calls: .*form='chat'",
        ),
        (from_responses, {"role": "assistant", "content": "", "function_call": {"name": "f"}}, "form='chat'"),
        (
            from_anthropic,
            {"role": "user", "content": [{"type": "image_url"}]},
            r"content\[0\].type: .*form='chat'",
        ),
        (
            from_responses,
            {"role": "user", "content": [{"type": "image_url"}]},
            r"content\[0\].type: .*form='chat'",
        ),
        (from_anthropic, {"role": "user", "content": [{"type": "input_text"}]}, "form='responses'"),
        (from_responses, {"type": 5}, "type: expected a string, got int"),
        (
            from_responses,
            {"type": "new", "data": {"a": [{1}]}},
            r"items\[0\].data.a\[0\]: expected JSON data, got set",
        ),
        (from_responses, {"type": "new", "data": {1: 2}}, r"items\[0\].data: expected keys that are strings"),
        (from_responses, {"type": "new", 1: 2}, r"items\[0\].item: expected keys that are strings"),
        (from_responses, {"type": "new", "toolUse": {}}, r"items\[0\].toolUse: is of Bedrock"),
        (from_responses, {"type": "function_call_output", "output": "x"}, "call_id: expected a string"),
        (from_anthropic, {"role": "tool", "tool_call_id": "c", "content": "x"}, "role"),
    ],
)
def test_what_is_of_another_form_is_refused_by_name(read: Any, said: Dict, name: str) -> None:
    with pytest.raises(InvalidMessageError, match=name):
        read([said])


def test_parts_of_chat_dicts_beside_anthropics_blocks_are_read_in_chat_dicts() -> None:
    picture = {"type": "image_url", "image_url": {"url": "https://x/a.png"}}
    said = [result_of("1")[0], {"role": "user", "content": [result_of("1")[1]["content"][0], picture]}]
    assert to_openai(from_openai(said)) == said


# What the whole asks for


def test_results_that_came_one_by_one_go_in_one_message_of_the_user() -> None:
    calls = [{"id": c, "type": "function", "function": {"name": "f", "arguments": "{}"}} for c in "ab"]
    msgs = from_openai(
        [
            {"role": "user", "content": "Go."},
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": "a", "content": "1"},
            {"role": "tool", "tool_call_id": "b", "content": "2"},
            {"role": "user", "content": "And?"},
        ]
    )
    assert [(m["role"], len(m["content"])) for m in to_anthropic(msgs)[1:3]] == [
        ("assistant", 2),
        ("user", 2),
    ]


def test_the_user_opens_and_four_cache_marks_stay() -> None:
    said = [{"role": "assistant", "content": [marked({"type": "text", "text": str(n)})]} for n in range(6)]
    written = to_anthropic(from_anthropic(said))
    assert written[0]["role"] == "user"
    assert ["cache_control" in m["content"][0] for m in written[1:]] == [False, False, True, True, True, True]


async def test_a_turn_that_began_with_thoughts_still_does() -> None:
    """Models that think once a turn have it at the beginning, which leaves first."""
    thought = {"type": "thinking", "thinking": "One shard after the other.", "signature": "sig"}
    said: list[Dict] = [{"role": "user", "content": "Check all shards."}]
    memory = CompressedMemory(max_total_tokens=2_000)
    for number in range(11):
        use = {"type": "tool_use", "id": f"t{number}", "name": "read", "input": {}}
        said.append({"role": "assistant", "content": [use] if number else [thought, use]})
        result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": rows(number, 40)}
        said.append({"role": "user", "content": [result]})
        view = await memory.view(said, form="anthropic")
        first = next(message for message in view if message["role"] == "assistant")
        assert first["content"][0] == thought
        assert COUNTER.count_messages(from_anthropic(view)) <= 2_000
    assert said[2:] != view[1:]
    assert said[-2]["content"] == [use]
    over = [*said, {"role": "assistant", "content": "Done."}, {"role": "user", "content": "Thanks."}]
    before, events = view, memory.stats().events
    view = await memory.view(over, form="anthropic")
    assert (view[: len(before)], memory.stats().events) == (before, events)
    assert thought not in [block for message in view[-2:] for block in message["content"]]


async def test_a_view_that_fits_stays_whatever_a_turn_that_left_it_had_thought() -> None:
    thought = {"type": "thinking", "thinking": "So it is. " * 420, "signature": "sig"}
    said: list[Dict] = [{"role": "user", "content": "Check all shards."}]
    memory = CompressedMemory(max_total_tokens=2_000)
    for number in range(6):
        use = {"type": "tool_use", "id": f"t{number}", "name": "read", "input": {}}
        said.append({"role": "assistant", "content": [use] if number else [thought, use]})
        content = rows(number, 80 if number == 1 else 20)
        result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": content}
        said.append({"role": "user", "content": [result]})
        if number == 1:
            said += [{"role": "assistant", "content": "Done."}, {"role": "user", "content": "Go on."}]
        await memory.view(said, form="anthropic")
        assert memory.stats().events == (number > 0)
    assert memory.stats().view_tokens > 2_000 - COUNTER.count_messages(from_anthropic(said[1:2]))


@pytest.mark.parametrize("seed", [26, 56, 85, 101])
async def test_what_is_lent_to_calls_exceeds_no_budget_and_refuses_no_list(seed: int) -> None:
    """Turns begin with thoughts up to and above the budget, and are asked for in the midst of calls, too."""
    rng, said = Random(seed), list[Dict]()
    for turn in range(6):
        said.append({"role": "user", "content": f"Do part {turn}. " + "please " * rng.choice([1, 5, 200])})
        words = rng.choice([5, 60, 300, 800])
        for number in range(turn * 10, turn * 10 + rng.randrange(1, 9)):
            thought = {"type": "thinking", "thinking": f"think {number} " * words, "signature": "sig"}
            use = {"type": "tool_use", "id": f"t{number}", "name": "read", "input": {}}
            thinks = number == turn * 10 or rng.random() < 0.1
            said.append({"role": "assistant", "content": [thought, use] if thinks else [use]})
            content = f"row {number} " * rng.choice([2, 40, 150])
            result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": content}
            said.append({"role": "user", "content": [result]})
        said.append({"role": "assistant", "content": f"Done {turn}."})
    memory, end = CompressedMemory(max_total_tokens=2_000), 0
    while end < len(said):
        end = min(len(said), end + rng.choice([1, 2, 2, 3, 6]))
        view = await memory.view(said[:end], form="anthropic")
        assert COUNTER.count_messages(from_anthropic(view)) <= 2_000
        assert not [*anthropic_rules.opens_without_thinking(view, said[:end])]
    assert memory.stats().events > 3


async def test_thoughts_that_were_deleted_begin_no_turn() -> None:
    thought = {"type": "thinking", "thinking": "A secret.", "signature": "sig"}
    said = [
        USER,
        *result_of("1"),
        {"role": "assistant", "content": [{**result_of("")[0]["content"][1], "id": "u"}]},
    ]
    said[1] = {"role": "assistant", "content": [thought, *said[1]["content"]]}
    said.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "u", "content": "2"}]})
    memory = CompressedMemory(max_total_tokens=4_000)
    await memory.view(said, form="anthropic")
    await memory.delete([(await memory.get_history())[1].id])
    view = await memory.view(said, form="anthropic")
    assert "A secret." not in json.dumps(view)
    assert anthropic_rules.problems(view) == []


async def test_a_word_beside_results_ends_no_turn() -> None:
    thought = {"type": "thinking", "thinking": "One shard after the other.", "signature": "sig"}
    said: list[Dict] = [{"role": "user", "content": "Check all shards."}]
    memory, lent = CompressedMemory(max_total_tokens=2_000), 0
    for number in range(12):
        use = {"type": "tool_use", "id": f"t{number}", "name": "read", "input": {}}
        said.append({"role": "assistant", "content": [use] if number else [thought, use]})
        result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": rows(number, 40)}
        said.append({"role": "user", "content": [result, {"type": "text", "text": "Be quick."}]})
        view = await memory.view(said, form="anthropic")
        firsts = [message for message in view if message["role"] == "assistant"][:1]
        assert [message["content"][0] for message in firsts] in ([], [thought])
        lent += firsts != said[1:2]
    assert lent > 1


def result_of(content: Any, **more: Any) -> list[Dict]:
    use = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": content, **more}
    return [{"role": "assistant", "content": [BLANK, use]}, {"role": "user", "content": [result, BLANK]}]


@pytest.mark.parametrize(
    ("blank", "left"),
    [
        ([{"role": "user", "content": "  "}], []),
        ([{"role": "user", "content": []}], []),
        ([{"role": "user", "content": [BLANK]}], []),
        ([{"role": "assistant", "content": [HIDDEN]}], []),
        ([{"role": "assistant", "content": [{"type": "text", "text": "Hm."}, BLANK]}], ["text"]),
        (
            [{"role": "assistant", "content": [HIDDEN, {"type": "text", "text": "Hm."}, HIDDEN]}],
            [HIDDEN, "text"],
        ),
        (result_of([BLANK, {"type": "text", "text": "1"}]), ["tool_use", "tool_result"]),
        (result_of([BLANK], is_error=True), ["tool_use", "tool_result"]),
        (result_of("", is_error=True), ["tool_use", "tool_result"]),
    ],
)
async def test_what_is_blank_is_not_shown_to_anthropic(blank: list[Dict], left: list[Any]) -> None:
    said = [USER, *blank, {"role": "user", "content": "And?"}]
    kept = json.dumps(said)
    memory = CompressedMemory(max_total_tokens=1_000)
    view = await memory.view(said, form="anthropic")
    assert anthropic_rules.problems(view) == []
    assert (view[0], view[-1]) == (said[0], said[-1])
    kinds = [block["type"] for message in view[1:-1] for block in message["content"]]
    assert kinds == [one if isinstance(one, str) else one["type"] for one in left]
    assert json.dumps(said) == kept
    longer = [*said, {"role": "assistant", "content": "Done."}]
    assert (await memory.view(longer, form="anthropic"))[: len(view)] == view


@pytest.mark.parametrize("before", [[], made(1)[:4]])
async def test_an_assistants_message_without_parts_is_not_shown_to_the_responses_api(
    before: list[Dict],
) -> None:
    empty: Dict = {
        "type": "message",
        "id": "msg_2",
        "role": "assistant",
        "status": "completed",
        "content": [],
    }
    outputs = made(1)[4:] if before else []
    said = [USER, *before, empty, *outputs, {"role": "user", "content": "And?"}]
    memory = CompressedMemory(max_total_tokens=10_000)
    view = await memory.view(said, form="responses")
    assert responses_rules.problems(view) == []
    assert [item for item in view if item.get("id") != "msg_2"] == [
        item for item in said if item is not empty
    ]
    assert to_responses(await memory.get_history()) == said


@pytest.mark.parametrize("deleted", [2, 4])
async def test_a_system_message_that_may_not_stand_where_it_stands_is_the_users(deleted: int) -> None:
    said = [
        USER,
        {"role": "assistant", "content": "Which?"},
        {"role": "user", "content": "All."},
        {"role": "system", "content": "Be brief."},
        {"role": "assistant", "content": "Done."},
        {"role": "user", "content": "Thanks."},
    ]
    memory = CompressedMemory(max_total_tokens=1_000)
    assert await memory.view(said, form="anthropic") == said
    await memory.delete([(await memory.get_history())[deleted].id])
    view = await memory.view(said, form="anthropic")
    assert anthropic_rules.problems(view) == []
    assert {"role": "user", "content": "Be brief."} in view
    at_end = said[:4]
    assert await CompressedMemory(max_total_tokens=1_000).view(at_end, form="anthropic") == at_end


async def test_marks_of_the_system_text_count_among_the_four() -> None:
    said = [{"role": "user", "content": [marked({"type": "text", "text": str(n)})]} for n in range(4)]
    memory = CompressedMemory(max_total_tokens=4_000)
    system = [marked({"type": "text", "text": "Be brief."})]
    view = await memory.view(said, form="anthropic", system=system)
    assert ["cache_control" in message["content"][0] for message in view] == [False, True, True, True]
    assert "cache_control" in said[0]["content"][0]
    assert view[1:] == said[1:]


@pytest.mark.parametrize(
    ("call", "output"),
    [
        ({"type": "custom_tool_call", "name": "f", "input": "x"}, MISSING_RESULT),
        (
            {"type": "shell_call", "action": {"commands": ["ls"]}},
            [{"stdout": MISSING_RESULT, "stderr": "", "outcome": {"type": "exit", "exit_code": 1}}],
        ),
        ({"type": "tool_search_call", "id": "ts_1", "execution": "client", "arguments": {}}, None),
    ],
)
async def test_a_call_without_output_gets_one_of_its_kind(call: Dict, output: Any) -> None:
    said = [{"role": "user", "content": "Go."}, {**call, "call_id": "c"}, {"role": "user", "content": "And?"}]
    view = await CompressedMemory(max_total_tokens=1_000).view(said, form="responses")
    assert view[:2] == said[:2]
    assert (view[2]["call_id"], view[2].get("output")) == ("c", output)
    assert view[2]["type"] in (f"{call['type']}_output", "tool_search_output")
    assert responses_rules.problems(view) == []


async def test_a_call_of_a_new_kind_is_given_no_invented_output() -> None:
    call = {"type": "robot_call", "id": "ro_1", "call_id": "c", "move": {"arm": 1}}
    said = [
        USER,
        {"type": "reasoning", "id": "rs_1", "summary": []},
        call,
        {"role": "user", "content": "And?"},
    ]
    memory = CompressedMemory(max_total_tokens=1_000)
    assert await memory.view(said, form="responses") == said
    for form in ("chat", "anthropic"):  # where every call needs a result
        assert MISSING_RESULT in json.dumps(await memory.view(form=form))  # type: ignore[arg-type]
    answered = [*said[:3], {"type": "robot_call_output", "call_id": "c", "arm": "up"}, said[3]]
    assert await CompressedMemory(max_total_tokens=1_000).view(answered, form="responses") == answered


# Views

FORMS = [
    pytest.param("anthropic", ANTHROPIC, id="anthropic"),
    pytest.param("responses", RESPONSES, id="responses"),
]


def pairs(view: list[Dict]) -> tuple[list[str], list[str]]:
    """Return the ids of calls and of results in a view, in order."""
    blocks = [b for m in view for b in (m["content"] if isinstance(m.get("content"), list) else [])]
    calls = [b["id"] for b in blocks if b["type"] == "tool_use"]
    results = [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"]
    calls += [item["call_id"] for item in view if item.get("type") == "function_call"]
    results += [item["call_id"] for item in view if item.get("type") == "function_call_output"]
    return calls, results


@pytest.mark.parametrize(("form", "said"), FORMS)
@pytest.mark.parametrize("budget", [1_500, 3_000, 6_000])
async def test_views_of_a_growing_list_are_valid_and_made_of_its_own_objects(
    form: Any, said: list[Dict], budget: int
) -> None:
    memory = CompressedMemory(max_total_tokens=budget)
    step, before = len(said) // 14, None
    for end in range(1 + step, len(said) + 1, step):
        view = await memory.view(said[:end], form=form)
        calls, results = pairs(view)
        assert calls == results
        assert memory.stats().view_tokens <= budget
        whole = [item for item in view if any(item is one for one in said)]
        assert whole[0] is said[0]
        if before is not None and memory.stats().events == before[0]:
            assert view[: len(before[1])] == before[1]
        before = memory.stats().events, view
    assert memory.stats().events > 1
    assert len(whole) < len(said)


@pytest.mark.parametrize(("form", "said"), FORMS)
async def test_a_memory_that_is_saved_goes_on_with_the_list(form: Any, said: list[Dict]) -> None:
    store = InMemoryOffloadStore()
    memory = CompressedMemory(max_total_tokens=3_000, store=store)
    view = await memory.view(said, form=form)
    again = CompressedMemory(max_total_tokens=3_000, store=store)
    await again.load(json.loads(json.dumps(await memory.save())))
    assert await again.view(said, form=form) == view
    assert again.stats().events == 0
    assert await again.size() == await memory.size()
    with pytest.raises(UnrelatedMessagesError):
        await again.view([{"role": "user", "content": "Another matter."}], form=form)


@pytest.mark.parametrize(("form", "said"), FORMS)
async def test_what_is_changed_in_a_list_is_changed_in_the_view(form: Any, said: list[Dict]) -> None:
    memory = CompressedMemory(max_total_tokens=40_000)
    await memory.view(said, form=form)
    mended = [{"role": "user", "content": "Check the first shards."}, *said[1:]]
    assert await memory.view(mended, form=form) == mended
    shorter = said[: len(said) // 2]
    shorter = [*shorter[: shorter.index(said[0]) + 1], *said[1 : 1 + len(said) // 14 * 3]]
    assert await memory.view(shorter, form=form) == shorter
    assert await memory.view(said, form=form) == said


@pytest.mark.parametrize("budget", [1_000, 6_000])
async def test_anthropics_messages_given_as_chat_dicts_stay_valid(budget: int) -> None:
    memory, state = CompressedMemory(max_total_tokens=budget), None
    for end in range(3, len(ANTHROPIC) + 1, 2):
        await memory.sync(ANTHROPIC[:end])
        result = compress_messages(ANTHROPIC[:end], max_total_tokens=budget, state=state)
        state = result.state
        for view in (result.messages, to_openai(await memory.get_memory())):
            for before, after in zip([{"content": []}, *view], [*view, {"content": []}], strict=True):
                assert pairs([before])[0] == pairs([after])[1]


@pytest.mark.parametrize(("form", "said"), FORMS)
def test_compress_messages_takes_every_form(form: Any, said: list[Dict]) -> None:
    state = None
    for end in range(1 + len(said) // 14, len(said) + 1, len(said) // 14):
        result = compress_messages(said[:end], form=form, max_total_tokens=3_000, state=state)
        state = json.loads(json.dumps(result.state))
        calls, results = pairs(result.messages)
        assert calls == results
    assert len(result.messages) < len(said)
    assert any({"input_schema", "parameters"} & schema.keys() for schema in result.tools.schemas)


# Tools


@pytest.mark.parametrize(
    ("form", "kinds"),
    [
        ("chat", ["text", "image_url"]),
        ("responses", ["input_text", "input_image"]),
        ("anthropic", ["text", "image"]),
    ],
)
async def test_tools_speak_the_form(form: Any, kinds: list[str]) -> None:
    store = InMemoryOffloadStore()
    memory = CompressedMemory(max_total_tokens=16_000, store=store)
    picture = {"type": "image_url", "image_url": {"url": PIXELS}}
    words = {"role": "assistant", "content": rows(1)}
    look = {"role": "user", "content": [{"type": "text", "text": "Look."}, picture]}
    await memory.view(
        [{"role": "user", "content": "Go."}, look, *[words] * 26, {"role": "user", "content": "And?"}]
    )
    tools = memory.tools(form)
    named = [schema.get("name") or schema["function"]["name"] for schema in tools.schemas]
    assert set(named) == tools.names
    assert all({"function", "parameters", "input_schema"} & schema.keys() for schema in tools.schemas)
    (ref,) = [
        ref for ref in await memory.reachable_refs() if (await memory.read_ref(ref)).startswith("data:")
    ]
    message = await tools.attachment("load_offloaded", {"ref": ref})
    assert [part["type"] for part in message["content"]] == kinds
    assert (await tools.load(ref)) == message["content"][1]


# Laws

CASES = [
    pytest.param("responses", histories("responses"), from_responses, to_responses, id="responses"),
    pytest.param("anthropic", histories("anthropic"), from_anthropic, to_anthropic, id="anthropic"),
]


@pytest.mark.parametrize(("form", "histories", "read", "write"), CASES)
def test_whatever_a_provider_accepts_is_written_as_it_was(
    form: str, histories: st.SearchStrategy[list[Dict]], read: Any, write: Any
) -> None:
    @given(histories)
    def check(said: list[Dict]) -> None:
        assert json.dumps(write(read(said))) == json.dumps(said)
        assert json.dumps(write(Msg.from_dict(msg.to_dict()) for msg in read(said))) == json.dumps(said)

    check()


@pytest.mark.parametrize(("form", "histories", "read", "write"), CASES)
def test_views_of_whatever_a_provider_accepts_are_accepted(
    form: Any, histories: st.SearchStrategy[list[Dict]], read: Any, write: Any
) -> None:
    @settings(max_examples=25)
    @given(histories, st.integers(600, 6_000), st.integers(0, 100))
    def check(said: list[Dict], budget: int, share: int) -> None:
        memory = CompressedMemory(max_total_tokens=budget, background_ratio=None, counter=COUNTER)
        for list_ in (said[: len(said) * share // 100], said):
            if not list_ or refused(form, list_):
                continue
            try:
                view = asyncio.run(memory.view(list_, form=form))
            except ContextOverflowError:
                continue
            assert refused(form, view) == []
            assert COUNTER.count_messages(read(view)) <= budget
            assert json.dumps(write(read(view))) == json.dumps(view)

    check()


@pytest.mark.parametrize(
    ("form", "draw", "rules", "found"),
    [
        pytest.param("responses", random_responses, responses_rules, RADAR, id="responses"),
        pytest.param("anthropic", random_anthropic, anthropic_rules, SONAR, id="anthropic"),
    ],
)
def test_no_view_calls_a_tool_whose_loading_left(form: Any, draw: Any, rules: Any, found: str) -> None:
    rng, calls, shown = Random(5), 0, 0
    for _ in range(40):
        said = draw(rng, 8)
        memory = CompressedMemory(max_total_tokens=rng.randrange(2_000, 8_000), background_ratio=None)
        if refused(form, said) or f'"name": "{found}"' not in json.dumps(said):
            continue
        try:
            view = memory.view_sync(said, form=form)
        except ContextOverflowError:
            continue
        assert rules.unloaded(view, found) == []
        calls += json.dumps(said).count(f'"name": "{found}"')
        shown += json.dumps(view).count(f'"name": "{found}"')
    assert calls > shown > 3


@pytest.mark.parametrize(("form", "histories", "read", "write"), CASES)
def test_views_in_another_form_are_accepted(
    form: str, histories: st.SearchStrategy[list[Dict]], read: Any, write: Any
) -> None:
    @settings(max_examples=25)
    @given(histories, st.integers(900, 20_000), st.sampled_from(sorted({*READ} - {form})))
    def check(said: list[Dict], budget: int, other: Any) -> None:
        async def view_of() -> list[Dict]:
            memory = CompressedMemory(max_total_tokens=budget, background_ratio=None, counter=COUNTER)
            await memory.add(read(said))
            return await memory.view(form=other)

        try:
            view = asyncio.run(view_of())
        except ContextOverflowError:
            return
        # The list itself may end with a blank, or be all instructions.
        found = [one for one in refused(other, view) if "trailing whitespace" not in one]
        assert found in ([], ["only instructions"])
        assert COUNTER.count_messages(READ[other](view)) <= budget

    check()


LONG_ID = "codex_mcp__hermes-tools__measure_exec-0f8fad5b-d9cb-469f-a165-70867728950e-"
IDS = [
    "functions.read:0",
    "functions.read:1",
    "a.b",
    "a:b",
    "调用",
    f"{LONG_ID}1",
    f"{LONG_ID}2",
    "",
    "call_1",
]


@pytest.mark.parametrize("form", ["responses", "anthropic"])
async def test_ids_of_another_provider_are_such_as_the_form_takes(form: Any) -> None:
    """Those that it takes stay; the others are the same in each view, and no two of them are the same."""
    said: list[Dict] = [USER]
    for id in IDS:
        call = {"id": id, "type": "function", "function": {"name": "read", "arguments": "{}"}}
        said.append({"role": "assistant", "content": None, "tool_calls": [call]})
        said.append({"role": "tool", "tool_call_id": id, "content": rows(1, 8)})
    memory, before = CompressedMemory(), list[Dict]()
    for start in range(0, len(said), 2):
        await memory.add(from_openai(said[start : start + 2]))
        view = await memory.view(form=form)
        assert refused(form, view) == []
        assert view[: len(before)] == before
        before = view
    written = to_responses(from_openai(said)) if form == "responses" else to_anthropic(from_openai(said))
    ids = re.findall(r"'(?:id|call_id)': '([^']*)'", str(written))
    assert len({*ids}) == len(IDS)
    assert "call_1" in ids
    assert "" not in ids


# What is counted, refused, deleted


def printed(number: int) -> list[Dict]:
    outcome = {"type": "exit", "exit_code": 2}
    output = [{"stdout": "", "stderr": rows(number, 120), "outcome": outcome}]
    call = {"type": "shell_call", "call_id": f"c{number}", "action": {"commands": ["make"]}}
    return [call, {"type": "shell_call_output", "call_id": f"c{number}", "output": output}]


def cited(number: int) -> list[Dict]:
    citation = {"type": "char_location", "cited_text": rows(number, 120), "document_index": 0}
    block = {"type": "text", "text": f"It is {number}.", "citations": [citation]}
    return [{"role": "assistant", "content": [block]}, {"role": "user", "content": f"And {number + 1}?"}]


@pytest.mark.parametrize(("form", "make"), [("responses", printed), ("anthropic", cited)])
async def test_what_stands_beside_texts_is_counted(form: Any, make: Any) -> None:
    said = [{"role": "user", "content": "Go."}, *(one for number in range(6) for one in make(number))]
    memory = CompressedMemory(max_total_tokens=2_500)
    view = await memory.view(said, form=form)
    assert memory.stats().events > 0
    assert COUNTER.count_text(json.dumps(view)) < 4_000


async def restarted(memory: CompressedMemory) -> CompressedMemory:
    again = CompressedMemory(max_total_tokens=4_000, store=memory.store)
    await again.load(json.loads(json.dumps(await memory.save())))
    return again


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("place", [2, 3])
@pytest.mark.parametrize("more", [0, 1, 6])
async def test_what_was_deleted_of_a_message_that_changes_stays_deleted(
    place: int, more: int, restarts: bool
) -> None:
    result = {"type": "tool_result", "tool_use_id": "a", "content": "a secret"}
    note = {"type": "text", "text": "a note"}
    said = [
        USER,
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]},
        {"role": "user", "content": [result, note]},
        *({"role": ("assistant", "user")[n % 2], "content": f"Said {n}."} for n in range(more)),
    ]
    memory = CompressedMemory(max_total_tokens=4_000)
    await memory.view(said, form="anthropic")
    await memory.delete([(await memory.get_history())[place].id])
    for number in range(2):
        changed = {**note, "text": f"note {number}"} if place == 2 else note
        new = {**result, "content": f"result {number}"} if place == 3 else result
        said = [*said[:2], {"role": "user", "content": [new, changed]}, *said[3:]]
        memory = await restarted(memory) if restarts else memory
        view = json.dumps(await memory.view(said, form="anthropic"))
        assert ("a secret" if place == 2 else "a note") not in view
        assert (f"note {number}" if place == 2 else f"result {number}") in view
        assert "a secret" not in json.dumps([msg.to_dict() for msg in await memory.get_history()])


@pytest.mark.parametrize("restarts", [0, 1, 3])
async def test_what_was_deleted_of_a_run_that_becomes_longer_stays_deleted(restarts: int) -> None:
    said = [USER, *({"role": "assistant", "content": f"secret {number}"} for number in range(2))]
    memory = CompressedMemory(max_total_tokens=4_000)
    await memory.view(said, form="responses")
    await memory.delete([(await memory.get_history())[1].id])
    for number in range(3):
        said.append({"role": "assistant", "content": f"More {number}."})
        memory = await restarted(memory) if number < restarts else memory
        assert await memory.view(said, form="responses") == [said[0], *said[3:]]


async def test_a_list_without_what_was_deleted_goes_on_after_a_restart() -> None:
    said = [USER, {"role": "assistant", "content": "a secret"}, {"role": "user", "content": "And?"}]
    memory = CompressedMemory(max_total_tokens=4_000)
    await memory.view(said, form="responses")
    await memory.delete([(await memory.get_history())[1].id])
    again = await restarted(memory)
    said = [said[0], said[2], {"role": "assistant", "content": "Done."}]
    assert await again.view(said, form="responses") == said
    assert await again.size() == 3


@pytest.mark.parametrize("kept", [{"of": "x", "item": "y"}, {"among": "x"}, {"of": "x", "extra": 5}, "x"])
def test_what_others_keep_under_the_key_of_the_forms_is_no_remark(kept: Any) -> None:
    msg = Msg("user", [{"type": "text", "text": "Hello.", "openai": kept}], "user", {"openai": kept})
    assert COUNTER.count_messages([msg]) == COUNTER.count_messages([{"role": "user", "content": "Hello."}])
    assert to_openai([msg])[0]["role"] == to_responses([msg])[0]["role"] == "user"


async def test_what_a_model_gave_first_may_become_more() -> None:
    memory = CompressedMemory(max_total_tokens=4_000)
    first = {"role": "assistant", "content": "Hello, how can I help?"}
    await memory.view([first], form="responses")
    said = [first, {"role": "assistant", "content": "Anyone?"}]
    assert await memory.view(said, form="responses") == said


def test_cache_marks_stay_without_a_memory() -> None:
    said = [{"role": "user", "content": [marked({"type": "text", "text": "Go."})]}]
    (message,) = compress_messages(said, form="anthropic", max_total_tokens=4_000).messages
    assert message == said[0]


async def test_a_screenshot_without_its_call_is_an_image() -> None:
    call = {"type": "computer_call", "id": "cu", "call_id": "c", "pending_safety_checks": []}
    call |= {"status": "completed", "action": {"type": "screenshot"}}
    shot = {"type": "computer_screenshot", "image_url": PIXELS}
    said = [
        {"role": "user", "content": "Go."},
        call,
        {"role": "user", "content": "Wait."},
        {"type": "computer_call_output", "call_id": "c", "output": shot},
        {"role": "user", "content": "And?"},
    ]
    memory = CompressedMemory(max_total_tokens=8_000)
    view = await memory.view(said[:3], form="responses")
    assert view[2]["output"]["type"] == "computer_screenshot"
    assert COUNTER.count_messages(from_responses(view)) == memory.stats().view_tokens
    view = await memory.view(said, form="responses")
    assert [part["type"] for part in view[4]["content"]] == ["input_text", "input_image"]
    assert responses_rules.problems(view) == []
