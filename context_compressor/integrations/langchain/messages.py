"""LangChain's messages as chat dicts, and what a view says as LangChain's messages."""

from __future__ import annotations

import json
import operator
import weakref
from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import Any

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from context_compressor.memory.listing import INSTRUCTING
from context_compressor.messages.anthropic import OPENING
from context_compressor.messages.chat import from_openai, to_openai
from context_compressor.messages.forms import Form
from context_compressor.messages.msg import Msg
from context_compressor.messages.parts import leaves_of
from context_compressor.messages.plain import SENT_BESIDE, unsaid

Wire = dict[str, Any]

_TEXTS = ("text", "text-plain")
_THOUGHTS = ("thinking", "redacted_thinking", "reasoning", "reasoning_content")
_CALLS = (
    "tool_use",
    "tool_call",
    "tool_call_chunk",
    "invalid_tool_call",
    "function_call",
    "input_json_delta",
)
"""Types of blocks that say what `tool_calls` says."""
_CALLING = {"tool_use": "input", "tool_call": "args"}
"""Types of those that may say who makes the call, and where they keep its arguments."""
_ARGUMENTS = ("input", "args", "arguments", "partial_json")
_KWARGS = ("reasoning_content", "refusal", "function_call", "tool_calls", "parsed", "audio")
"""Keys of a reply's `additional_kwargs` that are read as content, or go out by their id alone."""
_ROLES = ("user", "assistant", "system", "developer")
_MEDIA = {"image": "image_url", "video": "video_url"}


class Made(dict[str, Any]):
    """A chat dict of a view that is none of the list's own, with the id of the message that it shows."""

    def __init__(self, wire: Wire, shows: str) -> None:
        super().__init__(wire)
        self.shows = shows


def _write(msgs: Sequence[Msg]) -> list[Any]:
    wires = to_openai(msgs)
    if len(wires) != len(msgs):
        return wires
    return [Made(wire, msg.id) for wire, msg in zip(wires, msgs, strict=True)]


FORM = Form(from_openai, _write, beside=lambda *_: [{"type": "text", "text": OPENING}], is_frozen=True)
"""Chat dicts of LangChain's messages."""


# To chat dicts


class Wires:
    """Turn messages into chat dicts, each once: as long as it lives, and says the same.

    Agents hand over the same objects again and again. A chat dict is for counting and reading; what is sent
    unaltered is the message itself. Ids are left out: they may be new each time.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[BaseMessage], Wire, Wire]] = {}

    def of(self, messages: Iterable[BaseMessage]) -> list[Wire]:
        """Return messages as chat dicts, which nobody may change."""
        known, wires = self._known, list[Wire]()
        for message in messages:
            one = known.get(id(message))
            try:  # the values are mostly the same objects, which takes less than a microsecond
                is_known = one is not None and one[0]() is message and one[1] == message.__dict__
            except Exception:  # an artifact of any kind, which cannot be compared
                is_known = False
            wires.append(one[2] if one is not None and is_known else self._read(message))
        return wires

    def _read(self, message: BaseMessage) -> Wire:
        key, held, wire = id(message), message.__dict__, to_wire(message)
        alive = weakref.ref(message, lambda _: self._known.pop(key, None))
        said = {**held, "content": deepcopy(held["content"])}  # whose blocks are changed in place at times
        self._known[key] = alive, said, wire
        return wire


def to_wire(message: BaseMessage) -> Wire:
    """Return a message as a chat dict; what else goes out with it stands under `SENT_BESIDE`."""
    wire = _reply(message) if isinstance(message, AIMessage) else _spoken(message)
    beside = _beside(message, wire)
    return {**wire, SENT_BESIDE: beside} if beside else wire


def _spoken(message: BaseMessage) -> Wire:
    content = _content(message.content)
    named = {"name": message.name} if isinstance(message.name, str) else {}
    if isinstance(message, ToolMessage):
        return {"role": "tool", "tool_call_id": message.tool_call_id, "content": content, **named}
    if isinstance(message, FunctionMessage):
        return {"role": "function", "name": message.name, "content": content}
    role = "system" if isinstance(message, SystemMessage) else "user"
    if isinstance(message, ChatMessage) and message.role in _ROLES:
        role = message.role
    return {"role": role, "content": content, **named}


def _content(content: str | list[Any]) -> str | list[Wire]:
    return str(content) if isinstance(content, str) else [_part(block) for block in content]


def _reply(message: AIMessage) -> Wire:
    more = message.additional_kwargs
    thoughts: list[Any] = [more.get("reasoning_content")]
    parts: list[Wire] = []
    calls = [_call(one.get("id"), one["name"], one["args"]) for one in message.tool_calls]
    calls += [_call(one.get("id"), one.get("name"), one.get("args")) for one in message.invalid_tool_calls]
    ids = {call["id"] for call in calls}
    callers: dict[Any, Wire] = {}
    held: list[Any] = [] if isinstance(message.content, str) else message.content
    for block in held:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind in _THOUGHTS:
            thoughts += _thoughts(block)
        elif kind not in _CALLS:
            parts.append(_part(block))
        elif kind == "tool_use" and block.get("id") not in ids:
            calls.append(_call(block.get("id"), block.get("name"), block.get("input")))
        if kind in _CALLING and (caller := _caller_in(block)) is not None:
            callers[block.get("id")] = caller
    for one in calls:  # the call may come from a program that the provider runs
        one |= {"caller": callers[one["id"]]} if one["id"] in callers else {}
    content: Any = str(message.content) if isinstance(message.content, str) else parts
    wire: Wire = {"role": "assistant", "content": content or None}
    if isinstance(message.name, str):
        wire["name"] = message.name
    if thought := "\n\n".join(one for one in thoughts if isinstance(one, str) and one):
        wire["reasoning_content"] = thought
    if isinstance(more.get("refusal"), str) and more["refusal"]:
        wire["refusal"] = more["refusal"]
    if calls:
        wire["tool_calls"] = calls
    elif isinstance(call := more.get("function_call"), dict):
        wire["function_call"] = {key: str(call.get(key) or "") for key in ("name", "arguments")}
    return wire


def _beside(message: BaseMessage, wire: Wire) -> list[Any]:
    """Return what texts, thoughts and calls carry that has no place in chat dicts: seals, ids, sources."""
    said = {str(leaf) for _, leaf in leaves_of(wire)} | {str(message.text)}
    beside = []
    for block in (one for one in message.content if isinstance(one, dict)):
        kind = block.get("type")
        if kind in _THOUGHTS:
            beside.append(unsaid(block, {*said, *map(str, _thoughts(block))}))
        elif kind in _CALLS:
            beside.append(unsaid({key: held for key, held in block.items() if key not in _ARGUMENTS}, said))
        elif kind in _TEXTS:
            beside.append(unsaid(block, said))
    if isinstance(message, AIMessage):
        more = message.additional_kwargs
        beside.append(unsaid({key: held for key, held in more.items() if key not in _KWARGS}, said))
        if isinstance(more.get("audio"), dict):
            beside.append({"type": "audio"})
    return [one for one in beside if one]


def _caller_in(block: Wire) -> Wire | None:
    """Return which program of the provider's makes a call, as blocks of Anthropic and LangChain say it."""
    extras = block.get("extras")
    caller = block.get("caller") or (extras.get("caller") if isinstance(extras, dict) else None)
    return caller if isinstance(caller, dict) else None


def _call(id: object, name: object, args: object) -> Wire:
    text = args if isinstance(args, str) else _dumps({} if args is None else args)
    held = {"name": str(name or ""), "arguments": text}
    return {"id": str(id or ""), "type": "function", "function": held}


def _thoughts(block: Wire) -> list[Any]:
    """Return what may be the texts of a block: Anthropic's, LangChain's own, OpenAI's and Bedrock's."""
    held = (
        block.get("summary") if isinstance(block.get("summary"), list) else [block.get("reasoning_content")]
    )
    parts = [one.get("text") for one in held or () if isinstance(one, dict)]
    return [block.get("thinking"), block.get("reasoning"), block.get("text"), *parts]


def _part(block: Any) -> Wire:
    """Return a block of content as a part of a chat dict."""
    if not isinstance(block, dict):
        return {"type": "text", "text": str(block)}
    kind = block.get("type")
    if kind in _TEXTS and isinstance(block.get("text"), str):
        return {"type": "text", "text": block["text"]}
    if (part := _media(block, str(kind))) is not None:
        return part
    if not isinstance(kind, str) or kind in (*_TEXTS, *_CALLS, "tool_result"):
        return {"type": "text", "text": _dumps(block)}
    whole: Wire = json.loads(_dumps(block))
    return whole


def _media(block: Wire, kind: str) -> Wire | None:
    """Return an image, audio, video or file, as any provider or LangChain says it, as OpenAI does."""
    if kind in ("image_url", "video_url"):
        held = block.get(kind)
        url = held.get("url") if isinstance(held, dict) else held
        detail = {"detail": held["detail"]} if isinstance(held, dict) and "detail" in held else {}
        return {"type": kind, kind: {"url": url, **detail}} if isinstance(url, str) else None
    if kind == "input_audio" and isinstance(block.get(kind), dict):
        held = {key: block[kind].get(key) for key in ("data", "format")}
        return {"type": kind, kind: held} if all(isinstance(one, str) for one in held.values()) else None
    if kind == "file" and isinstance(block.get("file"), dict):
        held = {key: value for key, value in block["file"].items() if isinstance(value, str)}
        return {"type": "file", "file": held}
    source = block["source"] if isinstance(block.get("source"), dict) else block
    if source.get("type") in ("text", "content"):  # a document of plain text
        return None
    data = source.get("base64") or source.get("data")
    media_type = source.get("mime_type") or source.get("media_type") or f"{kind}/*"
    url = f"data:{media_type};base64,{data}" if isinstance(data, str) else source.get("url")
    if not isinstance(url, str):
        return None
    if kind in _MEDIA:
        return {"type": _MEDIA[kind], _MEDIA[kind]: {"url": url}}
    if kind == "audio" and isinstance(data, str):
        return {"type": "input_audio", "input_audio": {"data": data, "format": media_type.partition("/")[2]}}
    if kind in ("file", "document") and isinstance(data, str):
        name = block.get("filename") or block.get("title") or "file"
        return {"type": "file", "file": {"filename": str(name), "file_data": url}}
    return None


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


# To messages


def to_messages(
    shown: Iterable[Any], spoken: Sequence[str], messages: Sequence[AnyMessage], wires: Sequence[Wire]
) -> list[AnyMessage]:
    """Return a view as messages: those that are shown unaltered are the very same objects.

    Args:
        shown: the view as chat dicts.
        spoken: ids of the list's messages but instructions.
        messages: the list.
        wires: its chat dicts.
    """
    shown = list(shown)
    if len(shown) == len(wires) and all(map(operator.is_, shown, wires)):
        return list(messages)
    own = {id(wire): message for wire, message in zip(wires, messages, strict=True)}
    told: dict[str, tuple[AnyMessage, Wire]] | None = None
    sent: list[AnyMessage] = []
    for wire in shown:
        message = own.get(id(wire))
        if message is None:
            if told is None:
                pairs = zip(messages, wires, strict=True)
                speaking = [pair for pair in pairs if pair[1]["role"] not in INSTRUCTING]
                told = dict(zip(spoken, speaking, strict=True))
            message = _message(wire, *told.get(getattr(wire, "shows", ""), (None, {})))
        sent.append(message)
    return _with_opening(sent, messages)


def _with_opening(sent: list[AnyMessage], messages: Sequence[AnyMessage]) -> list[AnyMessage]:
    """Return a view that begins with a user message if the list does: Anthropic refuses others."""
    places = (place for place, one in enumerate(sent) if not isinstance(one, SystemMessage))
    place = next(places, None)
    opens = (one for one in messages if not isinstance(one, SystemMessage))
    if place is None or not isinstance(sent[place], AIMessage) or isinstance(next(opens), AIMessage):
        return sent
    return [*sent[:place], HumanMessage(OPENING), *sent[place:]]


def _message(wire: Wire, origin: AnyMessage | None, before: Wire) -> AnyMessage:
    """Return a message that says what a chat dict says.

    Args:
        wire: the chat dict.
        origin: the message in whose place it stands, of which everything else is kept.
        before: that one's chat dict.
    """
    if isinstance(origin, AIMessage) and wire["role"] == "assistant":
        return _altered_reply(wire, origin, before)
    content: Any = _blocks(wire["content"], origin)
    if origin is not None and before["role"] == wire["role"]:
        answers = {"tool_call_id": wire["tool_call_id"]} if isinstance(origin, ToolMessage) else {}
        return origin.model_copy(update={"content": content, **answers})
    if wire["role"] == "tool":
        return ToolMessage(content, tool_call_id=wire["tool_call_id"], name=wire.get("name"))
    if wire["role"] in INSTRUCTING:
        return SystemMessage(content)
    if wire["role"] == "assistant":
        return _altered_reply(wire, AIMessage(""), {})
    return HumanMessage(content)


def _altered_reply(wire: Wire, origin: AIMessage, before: Wire) -> AIMessage:
    """Return an assistant's message with other words or calls, its thoughts kept where they were."""
    content: Any = _blocks(wire.get("content") or "", origin)
    update: dict[str, Any] = {}
    calls = wire.get("tool_calls") or []
    are_same = calls == before.get("tool_calls", [])
    if not are_same:
        update["tool_calls"] = [_tool_call(call) for call in calls]
        update["invalid_tool_calls"] = []
        more = origin.additional_kwargs.items()
        update["additional_kwargs"] = {key: said for key, said in more if key != "tool_calls"}
    held = [] if isinstance(origin.content, str) else origin.content
    kinds = [block.get("type") if isinstance(block, dict) else None for block in held]
    thoughts = [block for block, kind in zip(held, kinds, strict=True) if kind in _THOUGHTS]
    said = [block for block, kind in zip(held, kinds, strict=True) if kind in _CALLS and are_same]
    if not are_same:  # only its block says that a program made a call
        given = {call["id"]: _tool_call(call)["args"] for call in calls if "caller" in call}
        called = [block for block in held if isinstance(block, dict) and block.get("type") in _CALLING]
        said = [
            {**block, _CALLING[block["type"]]: given[block["id"]]}
            for block in called
            if _caller_in(block) is not None and block.get("id") in given
        ]
    if thoughts or said:
        words = [{"type": "text", "text": content}] if isinstance(content, str) and content else content
        content = [*thoughts, *words, *said]
    return origin.model_copy(update={**update, "content": content})


def _tool_call(call: Wire) -> dict[str, Any]:
    """Return a call that was mended: what it is given is a JSON object."""
    held = call["function"]
    args = json.loads(held["arguments"])
    return {"name": held["name"], "args": args, "id": call.get("id"), "type": "tool_call"}


def _blocks(content: Any, origin: AnyMessage | None) -> Any:
    """Return content whose parts are the origin's own blocks wherever they say the same."""
    if not isinstance(content, list) or origin is None or isinstance(origin.content, str):
        return content
    own = [(block, _part(block)) for block in origin.content]
    return [next((block for block, said in own if said == part), part) for part in content]
