"""A skeleton is paired as its message is, and says nothing of it."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from context_compressor import Msg, from_anthropic, from_openai
from context_compressor.messages.exchanges import ORPHAN_REPAIR, Exchange, ExchangeBuilder
from context_compressor.messages.msg import tool_calls, tool_results
from context_compressor.messages.skeletons import as_message, skeleton_of
from tests.support.form_strategies import cut_anthropic_histories
from tests.support.strategies import chat_histories, interleaved, messages

Dict = dict[str, Any]


def skeleton(msg: Msg) -> Msg:
    stored = json.loads(json.dumps(skeleton_of(msg)))
    return as_message(msg.id, stored)


def structure(exchanges: list[Exchange]) -> list[Any]:
    """Return all of exchanges but what their messages say."""
    return [
        [
            (
                message.key,
                message.part,
                message.msg.id,
                message.placeholder,
                message.repair == ORPHAN_REPAIR,
                message.msg.name if message.placeholder else None,
                [(block["id"], block["name"]) for block in tool_calls(message.msg)],
                [block["id"] for block in tool_results(message.msg)],
            )
            for message in exchange
        ]
        for exchange in exchanges
    ]


def paired(said: list[Msg], settled: set[int], builder: ExchangeBuilder) -> list[Any]:
    """Return what pairing makes of messages that are shown at these places, and what it holds then."""
    found: list[Any] = []
    for place, msg in enumerate(said):
        exchanges = builder.feed(f"key {place}", msg)
        if place in settled:
            exchanges += builder.settle()
        found.append((structure(exchanges), builder.withheld))
    return [*found, builder.decisions.to_dict(), structure(builder.flush())]


@st.composite
def joined(draw: st.DrawFn) -> list[Msg]:
    """Draw messages of which some hold the content of several, whoever speaks."""
    kinds = st.one_of(chat_histories(valid=False), chat_histories(), interleaved())
    hosted = cut_anthropic_histories().map(from_anthropic)
    said = draw(st.one_of(kinds.map(from_openai), messages(), hosted))
    result: list[Msg] = []
    for msg in said:
        if result and draw(st.integers(0, 4)) == 0:
            before = result[-1]
            content = [*before.get_content_blocks(), *msg.get_content_blocks()]
            role = draw(st.sampled_from((before.role, msg.role)))
            metadata = draw(st.sampled_from((before.metadata, msg.metadata)))
            result[-1] = Msg("both", content, role, metadata, timestamp="", id=before.id)
        else:
            result.append(msg)
    return result


@given(joined(), st.data())
def test_skeletons_are_paired_as_their_messages_are(said: list[Msg], data: st.DataObject) -> None:
    settled = data.draw(st.sets(st.integers(0, max(0, len(said) - 1))))
    whole = paired(said, settled, ExchangeBuilder())
    assert paired(list(map(skeleton, said)), settled, ExchangeBuilder()) == whole
    # Among messages that are there skeletons go on as these would, and those after them say the same.
    cut = data.draw(st.integers(0, len(said)))
    bare, full = ExchangeBuilder(), ExchangeBuilder()
    for place, msg in enumerate(said[:cut]):
        bare.feed(str(place), skeleton(msg))
        full.feed(str(place), msg)
    bare.flush(), full.flush()
    for place, msg in enumerate(said[cut:], cut):
        one, other = bare.feed(str(place), msg), full.feed(str(place), msg)
        assert [[m.msg.to_dict() for m in e] for e in one] == [[m.msg.to_dict() for m in e] for e in other]


@given(joined())
def test_a_skeleton_says_nothing_of_what_was_said(said: list[Msg]) -> None:
    for msg in said:
        bare = skeleton(msg)
        assert bare.id == msg.id
        assert not (bare.get_text_content() or "").strip(".")
        assert all(block["output"] == "" for block in tool_results(bare))
        assert all(not block["input"] and len(block["raw_input"]) <= 163 for block in tool_calls(bare))


def test_a_message_that_only_stands_there_needs_no_more_than_who_says_it() -> None:
    asked, answered = from_openai([{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}])
    assert skeleton_of(asked) is None
    assert skeleton_of(answered) == {"role": "assistant"}
