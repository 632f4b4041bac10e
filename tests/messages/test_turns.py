"""`in_turn`: what templates and providers accept that want user and assistant in turn."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from jinja2 import Environment
from jinja2.exceptions import TemplateError

from context_compressor import CompressedMemory, CompressionConfig, Msg, from_openai, to_openai
from context_compressor.errors import InvalidArgumentError, InvalidMessageError
from context_compressor.laws.chat_rules import problems
from context_compressor.messages.chat import BRIDGE, in_turn
from tests.support.strategies import chat_histories

Dict = dict[str, Any]

AFTER_THE_SYSTEM_MESSAGE = (
    "{%- set said = messages[1:] if messages[0]['role'] == 'system' else messages -%}"
    "{%- set ns = namespace(index=0) -%}"
)
MISTRAL = AFTER_THE_SYSTEM_MESSAGE + (
    "{%- for message in said -%}"
    "{%- if message.role == 'user' or (message.role == 'assistant' and not message.tool_calls) -%}"
    "{%- if (message.role == 'user') != (ns.index % 2 == 0) -%}"
    "{{ refuse('roles must alternate except for tool calls and results') }}{%- endif -%}"
    "{%- set ns.index = ns.index + 1 -%}{%- endif -%}{%- endfor -%}"
)
"""What the templates of Devstral, Magistral and Mistral Small check."""
GEMMA = AFTER_THE_SYSTEM_MESSAGE + (
    "{%- for message in said -%}"
    "{%- if (message.role == 'user') != (loop.index0 % 2 == 0) -%}"
    "{{ refuse('roles must alternate') }}{%- endif -%}{%- endfor -%}"
)
"""What those of Gemma and Llama 2 check; they know no tools."""


def checker(template: str) -> Callable[[list[Dict]], list[str]]:
    made = Environment(autoescape=False).from_string(template)

    def refuse(text: str) -> None:
        raise TemplateError(text)

    def check(messages: list[Dict]) -> list[str]:
        try:
            made.render(messages=messages, refuse=refuse)
        except TemplateError as error:
            return [str(error)]
        return []

    return check


def mistral_s_api(messages: list[Dict]) -> list[str]:
    """Say what "Unexpected role 'user' after role 'tool'" is said of."""
    pairs = pairwise(messages)
    return ["user after tool" for one, two in pairs if one["role"] == "tool" and two["role"] == "user"]


def says(role: str, content: Any, **more: Any) -> Dict:
    return {"role": role, "content": content, **more}


GO = says("user", "go")


def session(with_tools: bool) -> list[Dict]:
    messages = [says("system", "You help."), says("user", "Look through the reports.")]
    for number in range(12):
        if with_tools:
            function = {"name": "read", "arguments": json.dumps({"report": number})}
            call = {"id": f"call_{number}", "type": "function", "function": function}
            messages.append(says("assistant", None, tool_calls=[call]))
            messages.append(says("tool", f"Report {number}: all is well. " * 30, tool_call_id=call["id"]))
        messages.append(says("assistant", f"Report {number} says that all is well."))
        messages.append(says("user", f"What of report {number + 1}? " + "Tell me all of it. " * 20))
    return messages


@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize(("template", "with_tools"), [(MISTRAL, True), (GEMMA, False)])
async def test_templates_that_want_turns_take_every_view(
    template: str, with_tools: bool, pinned: bool
) -> None:
    check = checker(template)
    memory = CompressedMemory(config=CompressionConfig(max_total_tokens=1_500))
    refused = 0
    messages = session(with_tools)
    assert check(messages) == []
    for number, message in enumerate(messages):
        is_exchange = message["role"] == "tool" or bool(message.get("tool_calls"))
        await memory.add(
            from_openai([message]), marks="pinned" if pinned and number < 6 and is_exchange else None
        )
        if message["role"] not in ("user", "tool"):
            continue
        view = to_openai(await memory.get_memory())
        refused += bool(check(view))
        sent = in_turn(view)
        assert check(sent) + mistral_s_api(sent) + problems(sent) == []
    assert refused  # views need it


def test_a_history_in_turn_comes_back_as_it_is() -> None:
    messages = session(with_tools=True)
    assert all(one is two for one, two in zip(messages, in_turn(messages), strict=True))


def test_what_neighbours_say_stands_in_one_message() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    texts = [says("user", "one", name="ann"), says("user", "two", name="bob")]
    mixed = [says("user", "one"), says("user", [image])]
    call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    calls = [says("assistant", "I look."), says("assistant", None, tool_calls=[call])]
    assert in_turn(texts) == [says("user", "one\n\ntwo")]
    assert in_turn(texts[:1] * 2) == [says("user", "one\n\none", name="ann")]
    assert in_turn(mixed) == [says("user", [{"type": "text", "text": "one"}, image])]
    assert in_turn([GO, *calls]) == [GO, says("assistant", "I look.", tool_calls=[call])]
    assert texts[0] == says("user", "one", name="ann")


@pytest.mark.parametrize(
    ("thoughts", "kept"),
    [(["first", "second"], "first\n\nsecond"), (["first", None], "first"), (["", "second"], "second")],
)
def test_what_neighbours_thought_stays(thoughts: list[str | None], kept: str) -> None:
    messages = [says("assistant", "said", reasoning_content=thought) for thought in thoughts]
    assert in_turn([GO, *messages]) == [GO, says("assistant", "said\n\nsaid", reasoning_content=kept)]


def test_what_a_neighbour_does_not_say_takes_nothing_away() -> None:
    messages = [says("assistant", None, refusal="No."), says("assistant", "Well.", refusal=None)]
    assert in_turn([GO, *messages]) == [GO, says("assistant", "Well.", refusal="No.")]


def test_calls_that_were_interrupted_get_an_answer() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    result = says("tool", "no", tool_call_id="c")
    messages = [says("user", "go"), says("assistant", None, tool_calls=[call]), result, says("user", "stop")]
    assert in_turn(messages) == [*messages[:3], says("assistant", BRIDGE), messages[3]]


def unplaced(found: list[str]) -> set[str]:
    return {text.partition(": ")[2] for text in found}


@given(chat_histories())
def test_what_is_valid_stays_valid(messages: list[Dict]) -> None:
    before = json.dumps(messages)
    sent = in_turn(messages)
    assert unplaced(problems(sent)) <= unplaced(problems(messages))
    assert in_turn(sent) == sent
    spoken = [message for message in sent if message["role"] not in ("system", "developer")]
    assert not spoken or spoken[0]["role"] != "assistant"
    assert json.dumps(messages) == before


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        (None, InvalidArgumentError, "messages: expected a list of chat dicts, got NoneType"),
        (
            {"role": "user", "content": "hi"},
            InvalidArgumentError,
            "messages: expected a list of chat dicts, got dict",
        ),
        (
            [{"role": "user", "content": "hi"}, Msg("a", "b", "user")],
            InvalidMessageError,
            r"messages\[1\]: .* to_openai makes chat dicts",
        ),
        (
            [{"role": "user", "content": "hi"}, 5],
            InvalidMessageError,
            r"messages\[1\]: expected a chat dict, got int",
        ),
        (
            [{"role": "user", "content": "hi"}, {}],
            InvalidMessageError,
            r"messages\[1\].role: expected a string, but it is missing",
        ),
    ],
)
def test_what_is_no_list_of_chat_dicts_is_refused(value: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        in_turn(value)
