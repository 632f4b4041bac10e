"""AgentScope's `Msg`, there and back, and views in the hands of its formatters."""

from __future__ import annotations

import json
from typing import Any

import pytest
from agentscope import formatter as formatters
from agentscope.formatter import AnthropicChatFormatter, FormatterBase, OpenAIChatFormatter
from agentscope.message import Msg
from hypothesis import given, settings
from hypothesis import strategies as st

from context_compressor.errors import InvalidArgumentError, InvalidMessageError
from context_compressor.integrations.agentscope import AgentScopeCompressedMemory
from context_compressor.integrations.agentscope.messages import from_agentscope, to_agentscope
from context_compressor.laws.chat_rules import problems
from tests.integrations.bases import KINDS, Place, new_session
from tests.integrations.messages import conversations, fields_of, messages, reply, result, turns, user

FORMATTERS = [
    name
    for name in formatters.__all__
    if name.endswith(("ChatFormatter", "AgentFormatter")) and "A2A" not in name
]


@given(messages())
def test_any_message_comes_back_field_for_field(msg: Msg) -> None:
    before = fields_of(msg)
    back = to_agentscope(from_agentscope(msg), Msg)
    assert type(back) is Msg
    assert fields_of(back) == before
    assert back.to_dict() == msg.to_dict()
    back.content = "changed"
    assert fields_of(msg) == before


def test_content_may_be_a_tuple() -> None:
    msg = Msg("Friday", "", "assistant")
    blocks = ({"type": "text", "text": "hi"},)
    msg.content = blocks
    assert from_agentscope(msg).content == list(blocks)


@pytest.fixture(scope="module", params=(None, *KINDS))
def any_place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, redis_port: Any
) -> Place | None:
    return request.param and Place(request.param, tmp_path_factory.mktemp("msgs"), redis_port, "")


@given(drawn=st.lists(messages(), min_size=1, max_size=3))
@settings(max_examples=30)
async def test_any_message_comes_back_from_any_memory(any_place: Place | None, drawn: list[Msg]) -> None:
    async def check(base: Any) -> None:
        memory = AgentScopeCompressedMemory(base=base)
        before = [fields_of(msg) for msg in drawn]
        await memory.add(drawn, marks="m")
        assert [fields_of(msg) for msg in await memory.get_history()] == before
        state = json.loads(json.dumps(memory.state_dict()))
        memory.load_state_dict(state)
        assert [fields_of(msg) for msg in await memory.get_history()] == before
        assert json.loads(json.dumps(memory.state_dict())) == state

    if any_place is None:
        await check(None)
        return
    async with any_place.open(new_session()) as theirs:
        await check(theirs)


async def test_what_a_view_does_not_change_is_as_it_was_and_the_rest_says_what_it_is() -> None:
    memory = AgentScopeCompressedMemory(max_total_tokens=4_000)
    said = turns(20)
    said[-2] = result("call_19", "line of part_19.log\n" * 250)
    said[-1].metadata, said[-1].invocation_id = None, "inv"
    await memory.add(said)
    view = await memory.get_memory()
    by_id = {msg.id: msg for msg in said}
    kinds = [(msg.metadata or {}).get("compression", {}).get("kind") for msg in view]
    assert {"notes", "stub", None} == set(kinds)
    for msg, kind in zip(view, kinds, strict=True):
        assert type(msg) is Msg
        if kind is None:
            assert fields_of(msg) == fields_of(by_id[msg.id])
        elif kind == "notes":
            provenance: Any = msg.metadata["compression"]
            assert set(provenance["covered_ids"]) < set(by_id)
            assert await memory.read_ref(provenance["ref"])
        else:
            assert msg.id in by_id
    assert [id(msg) for msg in await memory.get_memory()] == [id(msg) for msg in view]


# What is no message, or holds what none holds


class Plain(Msg):
    """A subclass that adds behaviour."""

    def shout(self) -> str:
        return (self.get_text_content() or "").upper()


class Order(Msg):
    """A subclass that adds a field."""

    def __init__(self, number: int) -> None:
        super().__init__("shop", "an order", "user")
        self.number = number


async def test_a_subclass_that_adds_no_field_is_taken_and_comes_back_plain() -> None:
    memory = AgentScopeCompressedMemory()
    msg = Plain("user", "hi", "user")
    await memory.add(msg)
    [back] = await memory.get_memory()
    assert type(back) is Msg
    assert fields_of(back) == fields_of(msg)


async def test_a_field_that_would_be_lost_is_refused_by_name() -> None:
    memory = AgentScopeCompressedMemory()
    with pytest.raises(
        InvalidMessageError, match=r"memories\[1\]\.number: no field of a Msg \(Order adds it\)"
    ):
        await memory.add([user("hi"), Order(7)])
    assert await memory.size() == 0


@pytest.mark.parametrize(
    ("spoil", "place"),
    [
        (lambda msg: setattr(msg, "content", None), "content: expected a string or a list of blocks"),
        (
            lambda msg: setattr(msg, "content", [Msg("a", "b", "user")]),
            r"content\[0\]: expected a dict, got Msg",
        ),
        (
            lambda msg: setattr(msg, "content", [{"type": "text", "text": None}]),
            r"content\[0\]\.text: expected str",
        ),
        (
            lambda msg: setattr(msg, "content", [{"type": "tool_use", "id": 1}]),
            r"content\[0\]\.id: expected str",
        ),
        (
            lambda msg: setattr(msg, "role", "tool"),
            "role: expected one of user, assistant, system, got 'tool'",
        ),
        (lambda msg: setattr(msg, "name", None), "name: expected a string"),
        (lambda msg: setattr(msg, "metadata", ["x"]), "metadata: expected a dict or None, got list"),
        (lambda msg: setattr(msg, "invocation_id", 5), "invocation_id: expected a string"),
    ],
)
async def test_a_spoilt_message_is_refused_with_the_place(spoil: Any, place: str) -> None:
    memory = AgentScopeCompressedMemory()
    msg = user("hi")
    spoil(msg)
    with pytest.raises(InvalidMessageError, match=r"memories\[1\]\." + place):
        await memory.add([user("good"), msg])
    assert await memory.size() == 0


@pytest.mark.parametrize("given", ["hi", 5, {"role": "user"}, [user("hi"), None], ("a",)])
async def test_what_is_no_message_is_refused_with_its_value(given: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="expected a Msg of AgentScope's, got"):
        await AgentScopeCompressedMemory().add(given)


async def test_later_writes_into_an_added_message_do_not_reach_the_memory() -> None:
    memory = AgentScopeCompressedMemory()
    msg = result("c", "whole")
    await memory.add([reply("", ("c", "read_file", {})), msg])
    msg.content[0]["output"] = "spoilt"  # type: ignore[index]
    assert "spoilt" not in str(await memory.get_memory())


# Formatters


def make_formatter(name: str) -> FormatterBase:
    made: FormatterBase = getattr(formatters, name)()
    return made


@pytest.mark.parametrize("name", FORMATTERS)
@pytest.mark.parametrize("budget", [1_000, 20_000])
async def test_every_formatter_takes_a_view(name: str, budget: int) -> None:
    memory = AgentScopeCompressedMemory(max_total_tokens=budget)
    await memory.add(turns(20))
    formatted = await make_formatter(name).format(
        [Msg("system", "You are Friday.", "system"), *await memory.get_memory()]
    )
    assert formatted
    assert "part_19.log" in json.dumps(formatted, default=str)


@pytest.mark.parametrize("filters", [{}, {"mark": "m"}])
async def test_the_result_of_an_interrupted_tool_is_no_empty_text(filters: dict[str, str]) -> None:
    """Anthropic refuses text blocks without text; an empty list it takes, as from AgentScope's own memory."""
    memory = AgentScopeCompressedMemory()
    said = [user("Look."), reply("", ("c", "look", {})), result("c", [], "look"), user("Go on.")]
    await memory.add(said, marks="m")
    view = await memory.get_memory(**filters)
    assert await AnthropicChatFormatter().format(view) == await AnthropicChatFormatter().format(said)


@given(said=conversations(), budget=st.sampled_from([700, 2_000, 20_000]))
@settings(max_examples=60)
async def test_what_an_agent_would_send_is_valid_whatever_it_left_behind(
    said: list[Msg], budget: int
) -> None:
    memory = AgentScopeCompressedMemory(max_total_tokens=budget)
    for msg in said:
        await memory.add(msg)
        view = await memory.get_memory()
        assert memory.counter.count_messages([from_agentscope(msg) for msg in view]) <= budget
        assert problems(await OpenAIChatFormatter().format(view)) == []


async def test_a_shortened_argument_is_short_in_the_request_too() -> None:
    """AgentScope's formatter writes `input`, and passes over `raw_input`."""
    memory = AgentScopeCompressedMemory(max_total_tokens=1_500, keep_recent_count=1)
    given = {"path": "a.py", "text": "print('hello')\n" * 300}
    call = reply("", ("c", "write_file", given))
    call.content[0]["raw_input"] = json.dumps(given)  # type: ignore[index]
    await memory.add([user("Write it."), call, result("c", "written"), reply("Done."), user("Thanks.")])
    sent = await OpenAIChatFormatter().format(await memory.get_memory())
    [arguments] = [call["function"]["arguments"] for msg in sent for call in msg.get("tool_calls", ())]
    assert len(arguments) < 2_000
    assert "ctx://" in arguments
    assert json.loads(arguments)["path"] == "a.py"
