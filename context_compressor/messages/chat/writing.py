"""Write chat dicts from messages, with the cache markers that a caller put on them, and in turn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from context_compressor.messages.anthropic import OF, write_messages
from context_compressor.messages.chat.blocks import block_to_call, block_to_held, block_to_part
from context_compressor.messages.foreign import ITEM, in_common, told
from context_compressor.messages.media import url_of
from context_compressor.messages.msg import Block, Msg, copy_json
from context_compressor.messages.wire import (
    ASSISTANT_KEYS,
    FIELD_BLOCKS,
    MARKERS,
    MISSING,
    REMARK,
    REQUEST_METADATA,
    THOUGHT_KEYS,
    as_dict,
    as_list,
    assemble,
    check_messages,
    form_name_of,
    form_of,
    is_plain_text,
    no_chat_dict,
    plain,
    remark_of,
    wrong,
)


def to_openai(messages: Iterable[Msg]) -> list[Any]:
    """Turn messages into chat dicts; a message with several tool results becomes several dicts.

    An assistant message gives the assistant dict first, then any results; others give the results first.
    What was read from Anthropic's blocks is written as such.
    Type checkers take the dicts for whatever an SDK calls its messages, `ChatCompletionMessageParam` say.

    Raises:
        InvalidArgumentError: `messages` is not a list or another iterable of `Msg`.
        InvalidMessageError: a role or content was changed to what it cannot be, or a tool call's input is not
            JSON data.
    """
    result: list[dict[str, Any]] = []
    of_blocks: list[Msg] = []
    for msg in check_messages(messages):
        if remark_of(msg.metadata, OF).get("among"):
            of_blocks.append(msg)
            continue
        if of_blocks:
            result += write_messages(of_blocks)
            of_blocks = []
        content, role = msg.content, msg.role
        remark = remark_of(msg.metadata)
        if isinstance(content, str):
            said = [_finish({"role": _sent_role(role, remark), "content": content}, msg.name, remark)]
        else:
            said = list(_write_blocks(content, role, msg.name, remark))
        if MARKERS in remark and len(said) == 1:  # of several dicts it is none's own
            said = [_with_markers(said[0], remark[MARKERS])]
        result.extend(said)
    return result + write_messages(of_blocks)


def _sent_role(role: str, remark: dict[str, Any]) -> str:
    return "developer" if role == "system" and remark.get("role") == "developer" else role


def _finish(fields: dict[str, Any], name: str | None, remark: dict[str, Any]) -> dict[str, Any]:
    if not remark:
        return fields
    if name is not None and "name" in remark.get("keys", ()) and "name" not in remark.get("extra", ()):
        fields["name"] = name
    return assemble(fields, remark)


def _write_blocks(
    blocks: list[Block], role: str, name: str, remark: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    results = [block for block in blocks if block.get("type") == "tool_result"]
    others = [block for block in blocks if block.get("type") != "tool_result"]
    # A remark speaks of the dict that the message was: the results, unless the assistant spoke.
    of_results = bool(results) and role != "assistant"
    own_remark = {} if of_results else remark
    answers = [_write_result(block, remark if of_results else {}) for block in results]
    spoken = []
    if others or not results:
        spoken = [_finish(_write_spoken(others, role, own_remark), name, own_remark)]
    yield from (*spoken, *answers) if role == "assistant" else (*answers, *spoken)


def _write_spoken(blocks: list[Block], role: str, remark: dict[str, Any]) -> dict[str, Any]:
    parts: list[dict[str, Any]] = []
    held: dict[str, Any] = {}
    for block in blocks:
        kind = block.get("type")
        form = form_of(block)
        if kind == "redacted_thinking" and form_name_of(block) is not None:
            continue
        if kind == "thinking":
            key = form if form in THOUGHT_KEYS else THOUGHT_KEYS[0]
            held[key] = f"{held[key]}\n{block['thinking']}" if key in held else block["thinking"]
        elif kind == "tool_use" and form == "function_call" and "function_call" not in held:
            held["function_call"] = block_to_held(block)
        elif kind == "tool_use":
            held.setdefault("tool_calls", []).append(block_to_call(block))
        elif kind in FIELD_BLOCKS and kind in block and form == "field":
            held[str(kind)] = copy_json(block[str(kind)])
        elif kind == "image" and form == "field" and role == "assistant":
            held.setdefault("images", []).append(block_to_part(block))
        else:
            parts.append(_write_part(block, role))
    fields: dict[str, Any] = {"role": _sent_role(role, remark)}
    content = _write_content(parts, bool(held), role, remark.get("content"))
    if content is not MISSING:
        fields["content"] = content
    return fields | {key: held[key] for key in ASSISTANT_KEYS if key in held}


def _write_part(block: Block, role: str) -> dict[str, Any]:
    """Return a block as a part; what was read in another form, and has no place here, is told."""
    if form_name_of(block) is None and block.get("type") != ITEM:
        return block_to_part(block)
    block = in_common(block)
    kind = block.get("type")
    source = block.get("source")
    is_held = kind == "file" or (kind == "image" and isinstance(source, dict) and url_of(source) is not None)
    if kind == "text" or (is_held and role != "assistant"):
        return block_to_part(block)
    return {"type": "text", "text": told(block)}


def _write_content(parts: list[dict[str, Any]], has_fields: bool, role: str, form: str | None) -> Any:
    if parts:
        as_text = has_fields and form != "list" and len(parts) == 1 and is_plain_text(parts[0])
        return parts[0]["text"] if as_text else parts
    if form == "list" or role != "assistant":
        return []
    return {"string": "", "absent": MISSING}.get(form or "null")


def _write_result(block: Block, remark: dict[str, Any]) -> dict[str, Any]:
    output = block["output"]
    content: Any = output if isinstance(output, str) else [_write_part(inner, "tool") for inner in output]
    if output == "" and remark.get("content") == "null":
        content = None
    if remark.get("role") == "function":
        legacy = {"role": "function", "name": block.get("name") or "", "content": content}
        return _finish(legacy, None, remark)
    fields = {"role": "tool", "tool_call_id": block["id"], "content": content}
    if not block["id"] and "tool_call_id" not in remark.get("keys", fields):
        del fields["tool_call_id"]
    return _finish(fields, block.get("name"), remark)


# Request metadata

Markers = list[list[Any]]
"""Each a list: where the dict stands in the message, which of its keys this is, the key and its value.

Without a key it says only that the dict stands there: a part, where a string would say the same.
"""

_HOLDERS = ("content", "tool_calls", "function")
"""Keys under which dicts stand that may bear a marker; arguments are none: what they hold is content."""
_MAX_STEPS = 8
"""How deep such dicts may stand: in a result's part in a message's part, with room to spare."""
_ONLY_PART = ["content", 0]


def split_markers(wire: Mapping[str, Any]) -> tuple[dict[str, Any], Markers]:
    """Return a chat dict without request metadata, and that with its places.

    A content of one text is a string afterwards: where it bears a marker, it cannot be one.
    """
    markers: Markers = []
    bare = _split(wire, [], markers)
    content = bare.get("content")
    only = content[0] if isinstance(content, list) and len(content) == 1 else None
    text = only["text"] if isinstance(only, dict) and list(only) == ["type", "text"] else None
    if isinstance(text, str) and only == {"type": "text", "text": text}:
        bare["content"] = text
        markers = markers if has_marker(markers, _ONLY_PART) else [[_ONLY_PART, 0, None, None], *markers]
    return bare, markers


def has_marker(markers: Markers, path: list[Any] | None = None) -> bool:
    """Tell whether there is request metadata, in one place or at all."""
    return any(key is not None and path in (None, place) for place, _, key, _ in markers)


def _split(value: Mapping[str, Any], path: list[Any], markers: Markers) -> dict[str, Any]:
    bare: dict[str, Any] = {}
    for place, (key, held) in enumerate(value.items()):
        if key in REQUEST_METADATA:
            markers.append([path, place, key, plain(held, key)])
        elif key not in _HOLDERS or len(path) > _MAX_STEPS:
            bare[key] = held
        elif isinstance(held, list | tuple):
            bare[key] = [
                item if (found := as_dict(item)) is None else _split(found, [*path, key, index], markers)
                for index, item in enumerate(held)
            ]
        else:
            bare[key] = _split(held, [*path, key], markers) if isinstance(held, dict) else held
    return bare


def _with_markers(wire: dict[str, Any], markers: Markers) -> dict[str, Any]:
    """Return a chat dict with request metadata in its places, as far as it has these; `wire` is changed."""
    if isinstance(wire.get("content"), str) and any(path[:2] == _ONLY_PART for path, *_ in markers):
        wire["content"] = [{"type": "text", "text": wire["content"]}]
    for path, place, key, value in markers:
        held: Any = wire
        for step in path:
            try:
                held = held[step]
            except (KeyError, IndexError, TypeError):
                held = None
        if key is not None and isinstance(held, dict):
            items = list(held.items())
            held.clear()
            held.update([*items[:place], (key, copy_json(value)), *items[place:]])
    return wire


def set_markers(msg: Msg, markers: Markers) -> Msg:
    """Let a message carry this request metadata and no other; return it."""
    remark = {key: said for key, said in remark_of(msg.metadata).items() if key != MARKERS}
    if markers:
        remark[MARKERS] = markers
    if remark:
        msg.metadata = {**(msg.metadata or {}), REMARK: remark}
    elif MARKERS in remark_of(msg.metadata):
        msg.metadata = {key: said for key, said in (msg.metadata or {}).items() if key != REMARK} or None
    return msg


def text_forms(bare: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a chat dict of `split_markers` in each form that says the same: a text also as the only part."""
    content = bare.get("content")
    if not isinstance(content, str):
        return [bare]
    return [bare, {**bare, "content": [{"type": "text", "text": content}]}]


# In turn

BRIDGE = "[The conversation goes on.]"
"""What the assistant says between a tool's result and a user message, and the user where the assistant would
speak first. Each takes at most 15 tokens, frame included."""


def in_turn(messages: Iterable[Any]) -> list[Any]:
    """Return a view's chat dicts with user and assistant in turn, calls and results apart.

    The templates of Mistral's and Gemma's models, and some providers, refuse two user messages in a row, and
    Mistral's API a user message right behind a tool's result. A view has both, since a summary is a user
    message that may stand beside another. Neighbours of one role are joined, what they say unchanged; behind
    a result the assistant says `BRIDGE`, as the user does where the assistant would speak first, which the
    memory has not counted (`reserved_tokens`). A dict that is not concerned is the one that came in.

    Raises:
        InvalidMessageError: one is no dict with a role; the text names its index.
        InvalidArgumentError: `messages` is not a list or another iterable of chat dicts.
    """
    result: list[dict[str, Any]] = []
    for index, message in enumerate(as_list(messages)):
        if not isinstance(message, dict):
            raise no_chat_dict(index, message)
        if "role" not in message:
            raise wrong(f"messages[{index}].role", "a string", MISSING)
        role, before = message["role"], result[-1] if result else {}
        if role == before.get("role") and _may_be_joined(before):
            result[-1] = _joined(before, message)
            continue
        if role == "user" and before.get("role") in ("tool", "function"):
            result.append({"role": "assistant", "content": BRIDGE})
        if role == "assistant" and all(one["role"] in ("system", "developer") for one in result):
            result.append({"role": "user", "content": BRIDGE})
        result.append(message)
    return result


def _may_be_joined(message: dict[str, Any]) -> bool:
    """Tell whether what follows from the same role may stand in the same message."""
    if message["role"] == "assistant":
        return not any(message.get(key) for key in ("tool_calls", "function_call", "audio", "images"))
    return bool(message["role"] == "user")


def _joined(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    both = (first, second)
    held = {**first, **{key: value for key, value in second.items() if value is not None}}
    if first.get("name") != second.get("name"):
        held.pop("name", None)
    for key in THOUGHT_KEYS:
        thoughts = [message[key] for message in both if isinstance(message.get(key), str)]
        if any(thoughts):
            held[key] = "\n\n".join(filter(None, thoughts))
    contents = [message["content"] for message in both if message.get("content")]
    if all(isinstance(content, str) for content in contents):
        content: Any = "\n\n".join(contents)
    else:
        content = [copy_json(part) for content in contents for part in _parts(content)]
    return {**held, "content": content}


def _parts(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
