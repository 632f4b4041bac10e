"""How `TiktokenCounter` counts messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from context_compressor.errors import InvalidArgumentError, InvalidMessageError
from context_compressor.messages.chat import from_openai
from context_compressor.messages.msg import Block, Msg
from context_compressor.messages.parts import text_parts
from context_compressor.tokens.counter import MessageTokens, count_characters
from context_compressor.tokens.tiktoken import CALL_TOKENS, RESULT_TOKENS, TiktokenCounter
from context_compressor.tokens.vocabularies import QWEN_MESSAGE_TOKENS
from tests.support.recordings import requires_recordings, sessions
from tests.support.strategies import chat_histories, messages
from tests.tokens.pictures import encoded, png

THOUGHT_KEYS = ("reasoning_content", "reasoning")
ID = "call_Zx81kQ0mB7dW2nV5tR9yLp3C"


def call(name: str = "ls", call_id: str = ID, **arguments: Any) -> Block:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def result(output: str | list[Block], name: str = "ls", call_id: str = ID) -> Block:
    return {"type": "tool_result", "id": call_id, "name": name, "output": output}


def test_a_message_costs_its_text_and_the_overhead(qwen: TiktokenCounter) -> None:
    text = qwen.count_text("how are you?")
    assert qwen.count_messages([Msg("user", "how are you?", "user")]) == text + QWEN_MESSAGE_TOKENS
    assert qwen.count_messages([{"role": "user", "content": "how are you?"}]) == text + QWEN_MESSAGE_TOKENS
    assert qwen.count_messages([Msg("user", [], "user")]) == QWEN_MESSAGE_TOKENS
    assert qwen.count_messages([]) == 0


def test_a_name_costs_its_tokens_and_one_more(qwen: TiktokenCounter) -> None:
    plain = qwen.count_messages([Msg("user", "hi", "user")])
    assert qwen.count_messages([Msg("Friday", "hi", "user")]) == plain + 1 + qwen.count_text("Friday")
    assert qwen.count_messages([{"role": "user", "name": "Friday", "content": "hi"}]) == plain + 1 + (
        qwen.count_text("Friday")
    )


def test_a_call_costs_name_arguments_and_id(qwen: TiktokenCounter) -> None:
    arguments = json.dumps({"path": "源代码/main.py"}, ensure_ascii=False)
    parts = qwen.count_text("ls") + qwen.count_text(arguments)
    msg = Msg("assistant", [call(path="源代码/main.py")], "assistant")
    assert qwen.count_messages([msg]) == QWEN_MESSAGE_TOKENS + parts + qwen.count_text(ID)
    msg = Msg("assistant", [call(call_id="1", path="源代码/main.py")], "assistant")
    assert qwen.count_messages([msg]) == QWEN_MESSAGE_TOKENS + parts + CALL_TOKENS


def test_arguments_are_counted_as_they_were_received(qwen: TiktokenCounter) -> None:
    spaced = '{ "a" :   1 ,\n\n  "b" : 2 }'
    block = {**call(a=1, b=2), "raw_input": spaced}
    plain = qwen.count_messages([Msg("assistant", [call(a=1, b=2)], "assistant")])
    with_raw = qwen.count_messages([Msg("assistant", [block], "assistant")])
    assert with_raw - plain == qwen.count_text(spaced) - qwen.count_text('{"a": 1, "b": 2}')


def test_arguments_that_were_edited_are_counted_as_they_are(qwen: TiktokenCounter) -> None:
    edited = {**call(text="long " * 500), "raw_input": '{"text": ""}'}
    assert qwen.count_messages([Msg("assistant", [edited], "assistant")]) > 500


def test_thinking_is_counted_and_is_no_text_part(qwen: TiktokenCounter) -> None:
    thought = {"type": "thinking", "thinking": "Let me think about that. " * 20}
    msg = Msg("assistant", [thought, {"type": "text", "text": "Yes."}], "assistant")
    measured = qwen.measure(msg)
    assert measured.texts == (qwen.count_text("Yes."),)
    assert measured.total == QWEN_MESSAGE_TOKENS + qwen.count_text("Yes.") + qwen.count_text(
        thought["thinking"]
    )


def test_several_results_in_a_message_cost_as_much_as_in_several(qwen: TiktokenCounter) -> None:
    blocks = [result("one"), result("two", call_id="call_2"), result([{"type": "text", "text": "three"}])]
    apart = [Msg("system", [block], "system") for block in blocks]
    assert qwen.count_messages([Msg("system", blocks, "system")]) == qwen.count_messages(apart)
    spoken = Msg("system", [*blocks, {"type": "text", "text": "and more"}], "system")
    assert qwen.count_messages([spoken]) == qwen.count_messages([*apart, Msg("system", "and more", "system")])


def test_a_result_costs_its_output_its_name_and_its_id(qwen: TiktokenCounter) -> None:
    base = QWEN_MESSAGE_TOKENS + qwen.count_text("a.txt") + 1 + qwen.count_text("list_files")
    msg = Msg("system", [result("a.txt", "list_files")], "system")
    assert qwen.count_messages([msg]) == base + qwen.count_text(ID)
    msg = Msg("system", [result("a.txt", "list_files", "1")], "system")
    assert qwen.count_messages([msg]) == base + RESULT_TOKENS


def test_a_result_costs_the_same_beside_its_call_and_alone(qwen: TiktokenCounter) -> None:
    called = {"role": "assistant", "content": None, "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
    ]}  # fmt: skip
    nameless = {"role": "tool", "tool_call_id": "c1", "content": "sunny"}
    named = {**nameless, "name": "get_weather"}
    for answer in (nameless, named):
        _, msg = from_openai([called, answer])
        assert qwen.count_messages([msg]) == qwen.count_messages([answer])
    assert qwen.count_messages([named]) == qwen.count_messages([nameless]) + 1 + qwen.count_text(
        "get_weather"
    )


def test_an_image_is_never_counted_as_text(qwen: TiktokenCounter) -> None:
    data = encoded(png(1_024, 1_024) + bytes(1_000_000))
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    text = {"type": "text", "text": "look"}
    contents: tuple[list[Block], ...] = ([text, image], [result([text, image])])
    for content in contents:
        assert qwen.count_messages([Msg("user", content, "user")]) < 1_500
    part = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
    as_dict = {"role": "user", "content": [text, part]}
    assert qwen.count_messages([as_dict]) == qwen.count_messages([Msg("user", [text, image], "user")])


def test_an_image_costs_what_the_model_charges(qwen: TiktokenCounter, no_network: Path) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": encoded(png(100, 100))}
    msg = Msg("user", [{"type": "image", "source": source}], "user")
    assert qwen.count_messages([msg]) - QWEN_MESSAGE_TOKENS == 255  # GPT-4o's, more than Qwen's
    assert TiktokenCounter("qwen-vl-max").count_messages([msg]) - QWEN_MESSAGE_TOKENS == 18
    with pytest.warns(UserWarning, match="not in tiktoken's cache"):
        mini = TiktokenCounter("gpt-4o-mini")
    assert mini.count_messages([msg]) - QWEN_MESSAGE_TOKENS == 8_500
    with pytest.warns(UserWarning, match="no vocabulary is known"):
        claude = TiktokenCounter("claude-sonnet-4")
    assert claude.count_messages([msg]) - QWEN_MESSAGE_TOKENS == 255


def test_what_is_neither_text_nor_dict_in_an_output_is_counted(qwen: TiktokenCounter) -> None:
    odd: Any = ["bare " * 100, {"type": "text", "text": None}, 5]
    msg = Msg("system", [result([])], "system")
    msg.get_content_blocks()[0]["output"] = odd  # refused at the door, but blocks can be edited
    assert qwen.measure(msg).texts == ()
    assert qwen.measure(msg).total > 100


def test_what_is_no_message_is_refused(qwen: TiktokenCounter) -> None:
    with pytest.raises(InvalidMessageError, match="role"):
        qwen.count_messages([{"content": "hi"}])


@pytest.mark.parametrize("text", [None, 5, b"bytes", ["text"]])
def test_what_is_no_text_is_refused(qwen: TiktokenCounter, text: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="text: expected a string"):
        qwen.count_text(text)


@pytest.mark.parametrize("value", [None, 5, "text", {"role": "user", "content": "x"}, Msg("a", "b", "user")])
def test_what_is_no_list_of_messages_is_refused(qwen: TiktokenCounter, value: Any) -> None:
    with pytest.raises(
        InvalidArgumentError, match=r"messages: expected a list .* put a single message in a list"
    ):
        qwen.count_messages(value)


@settings(max_examples=40)
@given(history=chat_histories(valid=False))
def test_a_dict_costs_what_its_msg_costs(qwen: TiktokenCounter, history: list[dict[str, Any]]) -> None:
    msgs = from_openai(history)
    alone = [qwen.count_messages([message]) for message in history]
    assert alone == [qwen.count_messages([msg]) for msg in msgs]
    assert qwen.count_messages(history) == sum(alone) == qwen.count_messages(msgs)


@given(history=messages())
def test_messages_are_additive_and_cost_no_less_than_their_texts(
    qwen: TiktokenCounter, history: list[Msg]
) -> None:
    assert qwen.count_messages(history) == sum(qwen.count_messages([msg]) for msg in history)
    for msg in history:
        measured = qwen.measure(msg)
        texts = tuple(qwen.count_text(part.text) for part in text_parts(msg))
        assert measured == MessageTokens(qwen.count_messages([msg]), texts)
        others = [msg.name] if msg.name not in ("user", "assistant", "system") else []
        for block in msg.get_content_blocks("tool_use"):
            others += [block["name"], block.get("raw_input", json.dumps(block["input"], ensure_ascii=False))]
        others += [block["thinking"] for block in msg.get_content_blocks("thinking")]
        assert measured.total >= sum(texts) + sum(map(qwen.count_text, others))


@requires_recordings
def test_recorded_messages_cost_their_texts_and_little_more(qwen: TiktokenCounter) -> None:
    for session in sessions("tau_bench"):
        texts = 0
        for message in session["messages"]:
            texts += qwen.count_text(message["content"] or "")
            for tool_call in message.get("tool_calls") or ():
                texts += qwen.count_text(tool_call["function"]["arguments"])
        assert texts < qwen.count_messages(session["messages"]) < 1.35 * texts


@pytest.mark.parametrize(
    "message",
    [
        {
            "role": "assistant",
            "content": "a",
            "reasoning_details": [{"type": "reasoning.text", "text": "LONG"}],
        },
        {"role": "assistant", "content": "a", "annotations": [{"url_citation": {"title": "LONG"}}]},
        {"role": "user", "content": [{"type": "text", "text": "a"}], "context": "LONG"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}, "extra": "LONG"}
            ],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}", "extra": "LONG"}}
            ],
        },
    ],
)
def test_long_keys_without_a_place_in_content_are_counted(qwen: TiktokenCounter, message: Any) -> None:
    """Providers that know them read them."""
    short = qwen.count_messages([message])
    long = json.loads(json.dumps(message).replace("LONG", "a source of what was said " * 400))
    assert qwen.count_messages([long]) - short >= 2_000
    assert count_characters(from_openai([long])[0]) >= 10_000


def test_a_signature_of_a_thought_is_no_text(qwen: TiktokenCounter) -> None:
    call_dict = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    signed = {**call_dict, "extra_content": {"google": {"thought_signature": "QUJD" * 5_000}}}
    bare, long = (
        {"role": "assistant", "content": None, "tool_calls": [each]} for each in (call_dict, signed)
    )
    assert 5_000 <= qwen.count_messages([long]) - qwen.count_messages([bare]) <= 5_020


def test_reasoning_counts_under_either_key(qwen: TiktokenCounter) -> None:
    dicts = ({"role": "assistant", "content": "a", key: "hm, so " * 100} for key in THOUGHT_KEYS)
    assert len({qwen.count_messages([each]) for each in dicts}) == 1
