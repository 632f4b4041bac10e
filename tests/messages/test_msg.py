"""`Msg`: what it accepts, copies, compares and says about its content."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given

from context_compressor.errors import ContextCompressorError, InvalidMessageError
from context_compressor.messages.msg import Msg, copy_json, is_instruction, tool_calls, tool_results
from tests.support import strategies

TEXT = {"type": "text", "text": "x"}
USE = {"type": "tool_use", "id": "a", "name": "f", "input": {"k": [1]}}
RESULT = {"type": "tool_result", "id": "a", "name": "f", "output": [{"type": "text", "text": "y"}]}


def test_ids_are_generated_and_distinct():
    ids = {Msg("a", "b", "user").id for _ in range(100)}
    assert len(ids) == 100
    assert all(re.fullmatch("[0-9a-f]{22}", found) for found in ids)


def test_an_id_and_a_timestamp_that_are_given_are_kept():
    msg = Msg("a", "b", "user", None, "2025-01-01 00:00:00.000", "call-1", id="mine")
    assert (msg.id, msg.timestamp, msg.invocation_id) == ("mine", "2025-01-01 00:00:00.000", "call-1")


def test_the_timestamp_has_agentscopes_form():
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}", Msg("a", "b", "user").timestamp)


@pytest.mark.parametrize(
    ("build", "error"),
    [
        (lambda: Msg("a", "b", "tool"), "role: expected one of user, assistant, system, got 'tool'"),
        (lambda: Msg(5, "b", "user"), "name: expected a string, got int"),
        (lambda: Msg("a", None, "user"), "content: expected a string or a list of blocks, got NoneType"),
        (lambda: Msg("a", ["b"], "user"), "content[0]: expected a dict, got str"),
        (lambda: Msg("a", [TEXT, {"type": "text"}], "user"), "content[1].text: expected str in a text block"),
        (
            lambda: Msg("a", [USE | {"input": "{}"}], "user"),
            "content[0].input: expected dict in a tool_use block",
        ),
        (lambda: Msg("a", [TEXT, {"type": ["x"]}], "user"), "content[1].type: expected a string, got list"),
        (
            lambda: Msg("a", [RESULT | {"output": [{"type": {}}]}], "system"),
            "content[0].output[0].type: expected a string, got dict",
        ),
        (lambda: Msg("a", [USE | {"raw_input": {}}], "assistant"), "content[0].raw_input: expected str"),
        (lambda: Msg("a", [RESULT | {"name": 5}], "system"), "content[0].name: expected str"),
        (lambda: Msg("a", [RESULT | {"output": None}], "user"), "content[0].output: expected str or list"),
        (lambda: Msg("a", "b", "user", metadata=["x"]), "metadata: expected a dict or None, got list"),
        (lambda: Msg("a", "b", "user", timestamp=1.5), "timestamp: expected a string, got float"),
        (lambda: Msg("a", "b", "user", invocation_id=5), "invocation_id: expected a string, got int"),
        (lambda: Msg("a", "b", "user", id=5), "id: expected a string, got int"),
        (lambda: Msg.from_dict("x"), "message: expected a dict, got str"),
        (lambda: Msg.from_dict({"name": "a", "role": "user"}), "content: missing"),
        (
            lambda: Msg.from_dict({"name": "a", "role": "user", "content": "x", "id": 5}),
            "id: expected a string",
        ),
        (
            lambda: Msg.from_dict({"name": "a", "role": "user", "content": "x", "metadata": []}),
            "metadata: expected a dict or None, got list",
        ),
    ],
)
def test_wrong_arguments_are_refused_by_name(build: Callable[[], Msg], error: str):
    with pytest.raises(InvalidMessageError) as caught:
        build()
    assert error in str(caught.value)
    assert isinstance(caught.value, ContextCompressorError)


@pytest.mark.parametrize("block", [{"type": "novel", "x": 1}, {}, {"type": None}])
def test_blocks_of_unknown_type_are_carried_along(block: dict[str, Any]):
    assert Msg("a", [block], "user").get_content_blocks() == [block]


@given(strategies.messages())
def test_the_dict_form_brings_a_message_back(msgs):
    for msg in msgs:
        assert Msg.from_dict(json.loads(json.dumps(msg.to_dict()))) == msg


def test_the_dict_form_has_agentscopes_keys():
    msg = Msg("a", "b", "user", {"k": 1})
    assert list(msg.to_dict()) == ["id", "name", "role", "content", "metadata", "timestamp"]
    msg.invocation_id = "call-1"
    assert msg.to_dict()["invocation_id"] == "call-1"


@pytest.mark.parametrize("copied", [lambda msg: msg.copy(), lambda msg: Msg.from_dict(msg.to_dict())])
def test_a_copy_is_equal_and_independent(copied: Callable[[Msg], Msg]):
    msg = Msg("a", [copy_json(USE), copy_json(RESULT)], "assistant", {"k": {"deep": [1]}}, id="m")
    other = copied(msg)
    assert other == msg
    assert hash(other) == hash(msg)
    other.content[0]["input"]["k"].append(2)
    other.content[1]["output"][0]["text"] = "z"
    other.metadata["k"]["deep"].append(2)
    assert msg == Msg("a", [USE, RESULT], "assistant", {"k": {"deep": [1]}}, msg.timestamp, id="m")
    assert other != msg


def test_a_message_equals_messages_only():
    assert Msg("a", "b", "user") != {"name": "a"}


def test_string_content_reads_as_one_text_block():
    msg = Msg("a", "b", "user")
    assert msg.get_content_blocks() == [{"type": "text", "text": "b"}]
    assert msg.get_text_content() == "b"
    assert msg.has_content_blocks("text")
    assert not msg.has_content_blocks("tool_use")


def test_blocks_are_found_by_type():
    msg = Msg("a", [TEXT, USE, TEXT], "assistant")
    assert msg.get_content_blocks("tool_use") == [USE]
    assert msg.get_text_content() == "x\nx"
    assert msg.get_text_content("") == "xx"
    assert Msg("a", [USE], "assistant").get_text_content() is None
    assert list(tool_calls(msg)) == [USE]
    assert list(tool_results(Msg("a", [RESULT], "system"))) == [RESULT]
    assert list(tool_calls(Msg("a", "b", "user"))) == []


def test_only_system_messages_without_results_are_instructions():
    assert is_instruction(Msg("a", "b", "system"))
    assert is_instruction(Msg("a", [TEXT], "system"))
    assert not is_instruction(Msg("a", [RESULT], "system"))
    assert not is_instruction(Msg("a", [TEXT, RESULT], "system"))
    assert not is_instruction(Msg("a", "b", "user"))
    assert not is_instruction(Msg("a", "b", "assistant"))
