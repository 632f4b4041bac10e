"""AgentScope's messages for tests: made by hand, and drawn at random."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from agentscope.message import Msg
from hypothesis import strategies as st

from tests.support.media import png_url

FIELDS = ("id", "name", "role", "content", "metadata", "timestamp", "invocation_id")
IMAGE = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": png_url().partition(",")[2]},
}


def fields_of(msg: Msg) -> dict[str, Any]:
    """Return every field; later changes do not show."""
    return deepcopy({name: getattr(msg, name) for name in FIELDS})


def user(text: str) -> Msg:
    return Msg("user", text, "user")


def reply(text: str, *calls: tuple[str, str, dict[str, Any]]) -> Msg:
    """Return what an assistant says and calls, each call as id, name and input."""
    blocks: list[Any] = [{"type": "text", "text": text}] if text else []
    blocks += [{"type": "tool_use", "id": id, "name": name, "input": given} for id, name, given in calls]
    return Msg("Friday", blocks, "assistant")


def result(id: str, output: Any, name: str = "read_file") -> Msg:
    return Msg("system", [{"type": "tool_result", "id": id, "name": name, "output": output}], "system")


def turns(count: int, words: int = 60) -> list[Msg]:
    """Return a conversation of `count` requests, each with a call, its result and an answer."""
    said: list[Msg] = []
    for n in range(count):
        text = f"line of part_{n}.log\n" * words
        said += [
            user(f"What does part_{n}.log say?"),
            reply("I shall look.", (f"call_{n}", "read_file", {"path": f"part_{n}.log"})),
            result(f"call_{n}", [{"type": "text", "text": text}]),
            reply(f"part_{n}.log repeats itself {words} times."),
        ]
    return said


# Drawn

plain_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | plain_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(plain_text, inner, max_size=3),
    max_leaves=6,
)


def _block(kind: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Draw a block with its fields and, at times, keys that nobody knows."""
    extra = st.dictionaries(st.sampled_from(["signature", "cache_control", "x"]), json_values, max_size=2)
    known = st.fixed_dictionaries({"type": st.just(kind), **fields})
    return st.builds(lambda more, block: {**more, **block}, extra, known)


_inner = _block("text", text=plain_text) | st.just(IMAGE)
blocks = st.one_of(
    _block("text", text=plain_text),
    _block("thinking", thinking=plain_text),
    _block(
        "tool_use", id=plain_text, name=plain_text, input=st.dictionaries(plain_text, json_values, max_size=3)
    ),
    _block("tool_use", id=plain_text, name=plain_text, input=st.just({"a": 1}), raw_input=st.just('{"a": 1')),
    _block("tool_result", id=plain_text, name=plain_text, output=plain_text | st.lists(_inner, max_size=3)),
    _block("image", source=st.just(IMAGE["source"])),
    _block("audio", source=st.fixed_dictionaries({"type": st.just("url"), "url": plain_text})),
    _block("something new", payload=json_values),
)


@st.composite
def messages(draw: st.DrawFn) -> Msg:
    """Draw any message that AgentScope can hold."""
    msg = Msg(
        draw(plain_text),
        draw(plain_text | st.lists(blocks, max_size=4)),
        draw(st.sampled_from(["user", "assistant", "system"])),
        timestamp=draw(st.none() | st.just("2026-01-01 00:00:00.000")),
        invocation_id=draw(st.none() | plain_text),
    )
    msg.metadata = draw(st.none() | st.just({}) | st.dictionaries(plain_text, json_values, max_size=3))
    return msg


@st.composite
def conversations(draw: st.DrawFn) -> list[Msg]:
    """Draw what agents leave behind: calls with results, with some missing, late, doubled or empty."""
    said = [user("Begin. " + "word " * draw(st.integers(0, 100)))]
    for n in range(draw(st.integers(1, 6))):
        ids = [draw(st.sampled_from([f"c{n}_{k}", "", "again"])) for k in range(draw(st.integers(0, 3)))]
        given = [{"text": "long argument " * draw(st.sampled_from([1, 60]))} for _ in ids]
        said.append(
            reply(
                draw(st.sampled_from(["", "Now this."])),
                *((id, "act", g) for id, g in zip(ids, given, strict=True)),
            )
        )
        answered = [id for id in ids if draw(st.integers(0, 4))] + ["nobody asked"] * (
            draw(st.integers(0, 5)) == 5
        )
        outputs = [draw(_outputs) for _ in answered]
        if draw(st.booleans()):
            said += [result(id, output, "act") for id, output in zip(answered, outputs, strict=True)]
        elif answered:
            content: list[Any] = [
                {"type": "tool_result", "id": id, "name": "act", "output": output}
                for id, output in zip(answered, outputs, strict=True)
            ]
            said.append(Msg("system", content, "system"))
        if draw(st.booleans()):
            said.append(user("Go on. " + "word " * draw(st.integers(0, 200))))
    return said


_outputs = st.one_of(
    st.just([]),
    st.just("done"),
    st.integers(1, 400).map(lambda n: "row of a table\n" * n),
    st.integers(1, 400).map(lambda n: [{"type": "text", "text": "row of a table\n" * n}]),
    st.just([{"type": "text", "text": "see"}, IMAGE]),
)
