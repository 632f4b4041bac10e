"""Which format a file is of; and that no content, however odd, breaks a reader."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compressor import from_openai
from context_compressor.readers import Format, UnreadableError, detect_format
from tests.readers.support import SAMPLES, read_lines, read_value

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
    "nothing": [],
}


@pytest.mark.parametrize("case", CHAT)
def test_chat_dicts_stay_chat_dicts(case):
    for value in (CHAT[case], {"messages": CHAT[case], "model": "m"}):
        (session,) = read_value(value).sessions
        assert session.format is Format.OPENAI
        assert session.messages == CHAT[case]
    if CHAT[case]:
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
        ([7, "text", None], None),
        ([], None),
    ],
)
def test_formats_are_known_by_a_few_keys(sample, format):
    assert detect_format(sample) is format


SEEDS: list[Any] = [json.loads(path.read_text()) for path in sorted(SAMPLES.glob("*.json"))]
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


@given(st.integers(0, len(SEEDS) - 1), st.data())
def test_whatever_is_wrong_in_a_file_the_rest_is_valid(seed, data):
    """Readers raise nothing but `UnreadableError`, and what they give is always accepted."""
    value = json.loads(json.dumps(SEEDS[seed]))
    for _ in range(data.draw(st.integers(1, 3))):
        container, key = data.draw(st.sampled_from(places(value)))
        container[key] = copy.deepcopy(data.draw(JUNK))  # shared by all examples, and written into
    format = data.draw(st.sampled_from([None, *Format]))
    try:
        reading = read_value(value, format)
    except UnreadableError:
        return
    for session in reading.sessions:
        from_openai(session.messages)
