"""Hypothesis strategies: chat histories of every shape that occurs, and messages in AgentScope's style.

Text is drawn from a short list, and long text is short text repeated: drawing is what costs, and building a
strategy costs more, so each is built once.
"""

from __future__ import annotations

import itertools
import json
from functools import cache
from typing import Any

from hypothesis import strategies as st

from context_compressor.messages.msg import Block, Msg, Role, copy_json
from tests.support.media import png_url

Dict = dict[str, Any]

FRAGMENTS = (
    "ok",
    "The quick brown fox jumps over the lazy dog. ",
    "你好，世界。这是一段较长的中文文本，",
    "naïve café e\u0301 👩‍👩‍👧 ",
    "lone \ud83d surrogate \udc00 ",
    "line one\nline two\r\n\ttabbed\u2028\x00",
    "<|endoftext|><|im_start|>system ",
    "see ctx://0123456789abcdef for more ",
    'def f(x):\n    return {"a": x}\n',
    "31415926535 8979323846 ",
    "data:image/png;base64,iVBORw0KGgo=",
    " ",
)
OBJECT_ARGUMENTS = (
    "{}",
    '{"path": "src/main.py"}',
    '{"path":"src/main.py","line":12}',
    ' {\n  "query" : "select 1" }',
    '{"a": 1, "a": 2}',
    '{"ratio": 1.0, "id": 12345678901234567890, "ok": true, "none": null}',
    '{"text": "\\ud83d\\ude42 \\u4f60 \\ud800"}',
    '{"内容": ["文件", {"深": [1, 2, [3]]}]}',
    '{"path": "a.py", "content": "' + "x = compute(1)\\n" * 120 + '"}',
    '{"edits": [{"old": "a", "new": "' + "你好，世界。" * 200 + '"}, 7]}',
)
OTHER_ARGUMENTS = (
    "",
    "null",
    "[1, 2]",
    '"text"',
    '{"path": "src/ma',
    '{"a": NaN}',
    '{"a": -Infinity}',
    '{"a": 1e999}',
    '{"n": ' + "9" * 5000 + "}",
    '{"a":' * 2000,
    '{"a":' * 150 + "1" + "}" * 150,
    '{"text": "a\nb"}',
    "rm -rf /",
    '\ufeff{"a": 1}',
)
HOSTILE_IDS = (
    "",
    "../../etc/passwd",
    "call\x00id",
    "CON",
    "a" * 300,
    "id with spaces/and:colons",
    "编号",
    "\ud800",
)
TOOL_NAMES = ("read_file", "search", "bash", "天气查询", "get_weather")
IMAGE_URLS = (
    "https://example.com/a.png",
    "data:image/png;base64,iVBORw0KGgo=",
    "data:;base64,AAAA",
    "data:image/svg+xml;charset=utf-8;base64,PHN2Zz4=",
    "data:text/plain,hello",
    "oss://bucket/key",
    "",
    png_url(),
    png_url(400, 300, seed=1),
)


@cache
def texts(*, long: bool = True) -> st.SearchStrategy[str]:
    """Return a strategy for texts: Unicode, lone surrogates, Chinese, empty, some of them long."""
    kinds = [st.sampled_from(("", *FRAGMENTS)), st.text(max_size=8)]
    if long:
        kinds.append(st.builds(str.__mul__, st.sampled_from(FRAGMENTS), st.integers(20, 300)))
    return st.one_of(kinds)


@cache
def content_parts(*, dashscope: bool = True) -> st.SearchStrategy[Dict]:
    """Return a strategy for content parts, DashScope's typeless ones included."""
    text = texts()
    url = st.sampled_from(IMAGE_URLS)
    detail = st.sampled_from(({}, {"detail": "high"}, {"detail": None, "x": 1}))
    extra = st.sampled_from(
        ({}, {}, {"cache_control": {"type": "ephemeral"}}, {"min_pixels": 3136, "id": "p"})
    )
    kinds: list[st.SearchStrategy[Dict]] = [
        st.builds(lambda t: {"type": "text", "text": t}, text),
        st.builds(lambda t, e: {"text": t, **e, "type": "text"}, text, extra),
        st.builds(
            lambda u, d, e: {"type": "image_url", "image_url": {"url": u, **d}, **e}, url, detail, extra
        ),
        st.builds(
            lambda u, d, e: {**e, "image_url": {**d, "url": u}, "type": "image_url"}, url, detail, extra
        ),
        st.builds(lambda u, e: {"type": "video_url", "video_url": {"url": u}, **e}, url, extra),
        st.builds(
            lambda data, kind, flip: {
                "type": "input_audio",
                "input_audio": {"format": kind, "data": data} if flip else {"data": data, "format": kind},
            },
            st.sampled_from(("UklGRg==", "https://example.com/a.mp3", "data:;base64,UklGRg==")),
            st.sampled_from(("wav", "mp3", "mpeg", "audio/x")),
            st.booleans(),
        ),
        st.sampled_from(
            (
                {"type": "image_url", "image_url": {"url": None}},
                {"type": "image_url", "image_url": "https://example.com/b.png"},
                {"type": "image_url", "image_url": {"url": "x", "type": "y"}},
                {"type": "image_url", "image_url": {"url": "x"}, "source": {}},
                {"type": "input_audio", "input_audio": {"data": "UklGRg=="}},
                {"type": "file", "file": {"file_id": "file-1"}},
                {
                    "type": "file",
                    "file": {"file_data": "data:application/pdf;base64,JVBERi0=", "filename": "a.pdf"},
                },
                {"document_url": "https://example.com/a.pdf", "type": "document_url"},
                {"tool_name": "get_rate", "type": "tool_reference"},
                {"source": {"type": "file", "file_id": "f"}, "type": "document"},
                {"type": "refusal", "refusal": "I cannot."},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}},
                {"type": "image", "image": "https://example.com/c.png"},
                {"type": "video", "video": ["https://example.com/1.png", "https://example.com/2.png"]},
                {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}], "signature": "s"},
                {"type": "openai_part", "openai_part": {"type": "text"}},
                {"type": "text", "text": "x", "openai": {"form": "typeless"}},
            )
        ),
    ]
    if dashscope:
        kinds += [
            st.builds(lambda t: {"text": t}, text),
            st.builds(lambda u, e: {"image": u, **e}, url, extra),
            st.builds(lambda u, e: {**e, "video": u, "fps": 2}, url, extra),
            st.sampled_from(
                (
                    {"video": ["https://example.com/1.png", "https://example.com/2.png"], "fps": 2},
                    {"audio": "https://example.com/a.mp3"},
                    {"image": "https://example.com/a.png", "text": "both"},
                    {"file": "https://example.com/a.pdf"},
                    {"text": "x", "openai": 1},
                    {"audio": None},
                    {},
                )
            ),
        ]
    return st.one_of(kinds)


@cache
def _contents(valid: bool, dashscope: bool) -> st.SearchStrategy[Any]:
    return st.one_of(texts(), texts(), _part_lists(valid, dashscope))


@cache
def _part_lists(valid: bool, dashscope: bool) -> st.SearchStrategy[list[Dict]]:
    return st.lists(content_parts(dashscope=dashscope), min_size=int(valid), max_size=3)


EXTRAS: tuple[Dict, ...] = (
    {},
    {},
    {},
    {"name": "alice"},
    {"name": None},
    {"name": ""},
    {"x_unknown": {"deep": [1, None, {"a": "文"}]}, "y": False},
    {"cache_control": {"type": "ephemeral"}, "name": "bob"},
)
ASSISTANT_EXTRAS: tuple[Dict, ...] = (
    *EXTRAS,
    {"reasoning_content": "Let me think.\nYes."},
    {"reasoning_content": ""},
    {"reasoning_content": None, "refusal": None},
    {"refusal": "I cannot help with that."},
    {"audio": {"id": "audio_1"}, "annotations": []},
    {"audio": None, "function_call": None, "refusal": None},
    {"partial": True, "prefix": False},
)


@st.composite
def _shuffled(draw: st.DrawFn, message: Dict) -> Dict:
    """Return the dict with its keys rotated, now and then: order is part of the contract."""
    turn = draw(st.sampled_from((0, 0, 1, 2, 3))) % max(len(message), 1)
    keys = list(message)
    return {key: message[key] for key in (*keys[turn:], *keys[:turn])}


@st.composite
def _calls(draw: st.DrawFn, ids: list[str], arguments: tuple[str, ...], dashscope: bool) -> list[Dict]:
    result: list[Dict] = []
    for call_id in ids:
        name = draw(st.sampled_from(TOOL_NAMES))
        text = draw(st.sampled_from(arguments))
        call: Dict = {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}
        match draw(st.integers(0, 11)):
            case 0:
                call = {"index": len(result), **call}
            case 1:
                call = {"function": {"arguments": text, "name": name}, "id": call_id, "type": "function"}
            case 2:
                call = {
                    "id": call_id,
                    "type": "custom",
                    "custom": {"name": name, "input": draw(texts(long=False))},
                }
            case 3:
                call |= {"extra_content": {"google": {"thought_signature": "c2ln"}}}
                call["function"] |= {"strict": None}
            case 4 if dashscope:
                call["function"]["arguments"] = {"city": "杭州", "days": [1, 2.0, None]}
            case 5 if dashscope:
                del call["type"]
            case 6:
                call |= {"type": "builtin_function"}
        result.append(call)
    return result


@st.composite
def _assistant(draw: st.DrawFn, calls: list[Dict], valid: bool, dashscope: bool) -> Dict:
    extra = draw(st.sampled_from(ASSISTANT_EXTRAS))
    must_speak = valid and not calls
    forms = ("text", "list") if must_speak else ("text", "text", "null", "empty", "list", "absent")
    form = draw(st.sampled_from(forms))
    message: Dict = {"role": "assistant"}
    match form:
        case "text":
            message["content"] = draw(texts()) or ("ok" if must_speak else "")
        case "null":
            message["content"] = None
        case "empty":
            message["content"] = draw(st.sampled_from(("", [])))
        case "list":
            message["content"] = draw(_part_lists(must_speak, dashscope))
    message |= extra
    if calls:
        message["tool_calls"] = calls
    else:
        message |= draw(st.sampled_from(({}, {}, {"tool_calls": None}, {"tool_calls": []})))
    return draw(_shuffled(message))


@st.composite
def _result(draw: st.DrawFn, call_id: str, name: str, valid: bool, dashscope: bool) -> Dict:
    message: Dict = {"role": "tool", "tool_call_id": call_id, "content": draw(_contents(valid, dashscope))}
    message |= draw(
        st.sampled_from(({}, {"name": name}, {"name": name}, {"name": None}, {"is_error": False}))
    )
    return draw(_shuffled(message))


@st.composite
def _exchange(draw: st.DrawFn, ids: list[str], valid: bool, dashscope: bool) -> list[Dict]:
    arguments = OBJECT_ARGUMENTS if valid else (*OBJECT_ARGUMENTS, *OTHER_ARGUMENTS)
    calls = draw(_calls(ids, arguments, dashscope))
    order = list(range(len(calls)))
    if draw(st.booleans()):
        order.reverse()
    if not valid:
        match draw(st.integers(0, 5)):
            case 0:
                order = order[:-1]
            case 1:
                order.append(order[0])
            case 2:
                calls = []
    results = []
    for position in order:
        call = calls[position] if calls else {"function": {"name": "gone"}}
        name = (call.get("function") or call["custom"])["name"]
        results.append(draw(_result(ids[position], name, valid, dashscope)))
    messages = [draw(_assistant(calls, valid, dashscope)), *results]
    if not valid and draw(st.integers(0, 5)) == 0:
        messages.insert(draw(st.integers(0, len(messages))), {"role": "user", "content": "in between"})
    return messages


@st.composite
def _legacy_exchange(draw: st.DrawFn, valid: bool) -> list[Dict]:
    arguments = draw(st.sampled_from(OBJECT_ARGUMENTS if valid else OTHER_ARGUMENTS))
    name = draw(st.sampled_from(TOOL_NAMES))
    call = {"role": "assistant", "content": None, "function_call": {"name": name, "arguments": arguments}}
    if draw(st.booleans()):
        call = {"role": "assistant", "function_call": {"arguments": arguments, "name": name}, "content": "so"}
    result = {"role": "function", "name": name, "content": draw(st.one_of(texts(), st.none()))}
    return [call, draw(_shuffled(result))]


@st.composite
def _spoken(draw: st.DrawFn, role: str, valid: bool, dashscope: bool) -> Dict:
    message = {"role": role, "content": draw(_contents(valid, dashscope))} | draw(st.sampled_from(EXTRAS))
    return draw(_shuffled(message))


@st.composite
def chat_histories(
    draw: st.DrawFn,
    *,
    valid: bool = True,
    legacy: bool = True,
    dashscope: bool = True,
    max_turns: int = 6,
) -> list[Dict]:
    """Draw a list of chat dicts, of any shape that a provider accepts.

    Args:
        draw: given by Hypothesis.
        valid: each call answered once, unique ids, arguments that are JSON objects. When False also orphans,
            missing and doubled results, reused, empty and hostile ids, other arguments, messages in between.
        legacy: include `function_call` and role `function`.
        dashscope: include typeless parts, arguments that are objects, calls without a type.
        max_turns: at most so many turns; a turn is one message or one exchange.
    """
    numbers = itertools.count(1)
    hostile = st.sampled_from(("call_again", "call_again", *HOSTILE_IDS))
    history: list[Dict] = []
    turns = draw(
        st.lists(
            st.sampled_from(
                ("user", "user", "assistant", "calls", "calls", "calls", "many calls", "instruction")
                + (("legacy",) if legacy else ())
            ),
            max_size=max_turns,
        )
    )
    if draw(st.booleans()):
        turns.insert(0, "instruction")
    for turn in turns:
        match turn:
            case "instruction":
                history.append(
                    draw(_spoken(draw(st.sampled_from(("system", "developer"))), valid, dashscope))
                )
            case "user":
                history.append(draw(_spoken("user", valid, dashscope)))
            case "assistant":
                history.append(draw(_assistant([], valid, dashscope)))
            case "legacy":
                history.extend(draw(_legacy_exchange(valid)))
            case _:
                count = draw(st.integers(5, 12) if turn == "many calls" else st.integers(1, 3))
                reuse = not valid and draw(st.booleans())
                ids = [draw(hostile) if reuse else f"call_{next(numbers)}" for _ in range(count)]
                history.extend(draw(_exchange(ids, valid, dashscope)))
    return copy_json(history)  # type: ignore[no-any-return]  # what was sampled stays as it is


@st.composite
def messages(draw: st.DrawFn, *, max_turns: int = 5) -> list[Msg]:
    """Draw messages in AgentScope's style: all results of an exchange in one message of role `system`."""
    numbers = itertools.count(1)
    result: list[Msg] = []

    def add(name: str, content: str | list[Block], role: Role) -> None:
        number = next(numbers)
        result.append(Msg(name, copy_json(content), role, None, "2025-01-01 00:00:00.000", id=f"msg{number}"))

    for turn in draw(
        st.lists(st.sampled_from(("user", "assistant", "calls", "calls", "system")), max_size=max_turns)
    ):
        if turn == "calls":
            uses: list[Block] = []
            outputs: list[Block] = []
            for _ in range(draw(st.integers(1, 4))):
                call_id, name = f"call_{next(numbers)}", draw(st.sampled_from(TOOL_NAMES))
                raw = draw(st.sampled_from(OBJECT_ARGUMENTS))
                uses.append({"type": "tool_use", "id": call_id, "name": name, "input": json.loads(raw)})
                if draw(st.booleans()):
                    uses[-1]["raw_input"] = raw
                output = draw(st.one_of(texts(), st.lists(_blocks(), max_size=2)))
                outputs.append({"type": "tool_result", "id": call_id, "name": name, "output": output})
            add("Friday", [*draw(st.lists(_blocks(thinking=True), max_size=2)), *uses], "assistant")
            add("system", outputs, "system")
        else:
            content = draw(
                st.one_of(texts(), st.lists(_blocks(thinking=turn == "assistant"), min_size=1, max_size=3))
            )
            add({"assistant": "Friday"}.get(turn, turn), content, turn)  # type: ignore[arg-type]
    return result


@cache
def _blocks(*, thinking: bool = False) -> st.SearchStrategy[Block]:
    url = st.sampled_from(IMAGE_URLS[:1])
    kinds: list[st.SearchStrategy[Block]] = [
        st.builds(lambda t: {"type": "text", "text": t}, texts()),
        st.builds(lambda u: {"type": "image", "source": {"type": "url", "url": u}}, url),
        st.builds(
            lambda kind: {
                "type": kind,
                "source": {"type": "base64", "media_type": f"{kind}/x", "data": "AAAA"},
            },
            st.sampled_from(("image", "audio", "video")),
        ),
    ]
    if thinking:
        kinds.append(st.builds(lambda t: {"type": "thinking", "thinking": t}, texts(long=False)))
    return st.one_of(kinds)


@st.composite
def interleaved(draw: st.DrawFn) -> list[Dict]:
    """Draw calls, each answered once somewhere behind its message, with other messages in between."""
    said: list[Dict] = []
    waiting: list[str] = []
    numbers = itertools.count(1)
    steps = draw(st.lists(st.sampled_from(("calls", "result", "result", "user", "assistant", "system"))))
    for step in [*steps, *["result"] * sum(3 for step in steps if step == "calls")]:
        if step == "calls":
            ids = [f"c{next(numbers)}" for _ in range(draw(st.integers(1, 3)))]
            calls = [
                {"id": id, "type": "function", "function": {"name": f"tool_{id}", "arguments": "{}"}}
                for id in ids
            ]
            said.append({"role": "assistant", "content": None, "tool_calls": calls})
            waiting += ids
        elif step != "result":
            said.append({"role": step, "content": f"{step} {next(numbers)}"})
        elif waiting:
            id = waiting.pop(draw(st.integers(0, len(waiting) - 1)))
            said.append({"role": "tool", "tool_call_id": id, "content": f"result of {id}"})
    return said
