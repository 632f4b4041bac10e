"""Blocks as chat dicts and back: what is unaltered is the same object, what is left is accepted."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from agentscope.formatter import AnthropicChatFormatter, OpenAIChatFormatter
from agentscope.message import (
    AssistantMsg,
    Base64Source,
    DataBlock,
    HintBlock,
    Msg,
    SystemMsg,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolResultState,
    URLSource,
    UserMsg,
)
from hypothesis import given
from hypothesis import strategies as st

from context_compressor.integrations.agentscope2.blocks import Request, data_block_of, part_of
from context_compressor.integrations.conversations import Conversations, Shown
from context_compressor.laws.anthropic_rules import problems as anthropic_problems
from context_compressor.laws.chat_rules import problems

PIXELS = base64.b64encode(b"pixels" * 60).decode()


def image(name: str = "image") -> DataBlock:
    return DataBlock(id=name, source=Base64Source(data=PIXELS, media_type="image/png"))


def call(id: str, name: str = "read", input: str = '{"n": 1}') -> ToolCallBlock:
    return ToolCallBlock(id=id, name=name, input=input)


def result(id: str, output: Any, name: str = "read") -> ToolResultBlock:
    return ToolResultBlock(id=id, name=name, output=output, state=ToolResultState.SUCCESS)


async def shown(messages: list[Msg], **fields: Any) -> tuple[list[Msg], Shown]:
    request = Request(messages)
    made = await Conversations(**fields).view(request.chats, state={})
    return request.messages_of(made.messages), made


def every_block() -> Msg:
    return AssistantMsg(
        "worker",
        [
            HintBlock(hint="<system-reminder>It is noon.</system-reminder>"),
            ThinkingBlock(thinking="Hm.", signature="abc"),
            TextBlock(text="First."),
            call("a"),
            call("b"),
            result("b", [TextBlock(text="two"), image()]),
            result("a", "one"),
            HintBlock(hint=[TextBlock(text="A word of Alice's."), image("hinted")], source="alice"),
            ThinkingBlock(thinking="So."),
            call("c", input=""),
            result("c", []),
            TextBlock(text="All is"),
            TextBlock(text="well."),
        ],
    )


def conversation() -> list[Msg]:
    pdf = DataBlock(id="pdf", name="a.pdf", source=Base64Source(data=PIXELS, media_type="application/pdf"))
    return [
        SystemMsg("system", "You read."),
        UserMsg("Ada", [TextBlock(text="What is in it?"), image("asked"), pdf]),
        every_block(),
        AssistantMsg("Alice", "I looked, too."),
        UserMsg("Ada", "Go on."),
    ]


async def test_what_fits_goes_out_as_the_very_same_objects() -> None:
    messages = conversation()
    view, _ = await shown(messages)
    altered = [
        index for index, (one, other) in enumerate(zip(messages, view, strict=True)) if one is not other
    ]
    assert altered == [2]  # an argument was no JSON
    assert [block for block in view[2].content if all(block is not own for own in messages[2].content)] == [
        messages[2].content[9].model_copy(update={"input": "{}"})
    ]
    assert problems(await OpenAIChatFormatter().format(view)) == []


async def test_what_thoughts_carry_beside_their_words_is_counted() -> None:
    signature = "EqQBCgYI" * 500
    plain, sealed = (
        [UserMsg("Ada", "Go on."), AssistantMsg("worker", [ThinkingBlock(thinking="Hm.", **more), call("a")])]
        for more in ({}, {"signature": signature})
    )
    least, most = [
        (await shown(messages))[1].conversation.stats.history_tokens for messages in (plain, sealed)
    ]
    assert len(signature) / 4 <= most - least <= len(signature) / 4 + 20


async def test_what_leaves_is_a_run_of_blocks_and_the_rest_of_the_message_stays() -> None:
    rounds = [
        block
        for n in range(30)
        for block in (
            ThinkingBlock(thinking=f"Step {n}."),
            call(f"c{n}"),
            result(f"c{n}", f"{n} is fine. " * 60),
        )
    ]
    reply = AssistantMsg("worker", [*rounds, TextBlock(text="Done.")])
    messages = [
        SystemMsg("system", "You read."),
        UserMsg("Ada", "Read all."),
        reply,
        UserMsg("Ada", "And now?"),
    ]
    view, made = await shown(messages, max_total_tokens=4_000, mode="compress")
    assert view[:2] == messages[:2]
    assert view[1] is messages[1]
    assert view[-1] is messages[-1]
    assert "ctx://" in (view[2].get_text_content() or "")
    left = view[-2]
    assert left.id == reply.id
    assert left is not reply
    own = {id(block) for block in reply.content}
    assert all(id(block) in own for block in left.content)
    assert 3 < len(left.content) < len(reply.content)
    assert len(reply.content) == 91
    # A later view goes on with the same.
    later = Request([*messages, AssistantMsg("worker", "Good.")])
    again = later.messages_of(
        (
            await Conversations(max_total_tokens=4_000, mode="compress").view(
                later.chats, state=json.loads(json.dumps(made.state))
            )
        ).messages
    )
    assert await OpenAIChatFormatter().format(again[:-1]) == await OpenAIChatFormatter().format(view)


async def test_media_that_stay_in_an_altered_result_keep_their_block() -> None:
    """Its id stands in what AgentScope sends."""
    output = [TextBlock(text="long " * 3_000), image("kept")]
    reply = AssistantMsg("worker", [call("a"), result("a", output), TextBlock(text="Done.")])
    view, _ = await shown([UserMsg("Ada", "Read."), reply, UserMsg("Ada", "And?")], max_total_tokens=3_000)
    [altered] = view[1].get_content_blocks("tool_result")
    assert altered.output[-1] is output[-1]
    assert "ctx://" in altered.output[0].text
    assert altered.state == ToolResultState.SUCCESS


@pytest.mark.parametrize(
    "block",
    [
        image(),
        DataBlock(source=Base64Source(data=PIXELS, media_type="audio/wav")),
        DataBlock(source=Base64Source(data=PIXELS, media_type="application/pdf")),
        DataBlock(source=URLSource(url="https://a.b/c.mp4", media_type="video/mp4")),
    ],
)
def test_media_come_back_from_parts(block: DataBlock) -> None:
    made = data_block_of(part_of(block))
    assert part_of(made)["type"] == part_of(block)["type"]
    again = data_block_of(part_of(block))
    assert made.id == again.id
    if isinstance(block.source, Base64Source):
        assert made.source == block.source


texts = st.sampled_from(["", "ok", "Never write to disk.", "word " * 40, "word " * 400])
ids = st.sampled_from(["a", "b", "c", "d"])
blocks = st.one_of(
    st.builds(lambda text: TextBlock(text=text), texts),
    st.builds(lambda text: ThinkingBlock(thinking=text), texts),
    st.builds(lambda text: HintBlock(hint=text), texts.filter(bool)),
    st.builds(
        call, ids, st.just("read"), st.sampled_from(['{"n": 1}', "", "{", '{"text": "' + "x" * 900 + '"}'])
    ),
    st.builds(result, ids, texts),
    st.builds(lambda id, text: result(id, [TextBlock(text=text), image(f"i{id}")]), ids, texts),
)
messages_of_any_kind = st.lists(
    st.one_of(
        st.builds(lambda text: UserMsg("Ada", text), texts.filter(bool)),
        st.builds(lambda held: AssistantMsg("worker", held), st.lists(blocks, max_size=8)),
    ),
    max_size=6,
)


@given(messages_of_any_kind)
async def test_any_view_is_accepted(context: list[Msg]) -> None:
    before = [msg.model_dump_json() for msg in context]
    messages = [
        SystemMsg("system", "You read."),
        UserMsg("Ada", "Begin."),
        *context,
        UserMsg("Ada", "Go on."),
    ]
    view, _ = await shown(messages, max_total_tokens=1_500)
    assert [msg.model_dump_json() for msg in context] == before
    assert problems(await OpenAIChatFormatter().format(view)) == []
    sent = await AnthropicChatFormatter().format(view)
    found = anthropic_problems(sent[1:])
    assert [one for one in found if "signature" not in one and "alternat" not in one] == []
    assert view[-1] is messages[-1]
