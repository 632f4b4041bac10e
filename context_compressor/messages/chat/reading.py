"""Chat dicts to messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

from context_compressor.errors import InvalidMessageError
from context_compressor.messages.anthropic import OF, read_message
from context_compressor.messages.chat.blocks import call_to_block, function_call_to_block, part_to_block
from context_compressor.messages.chat.writing import has_marker, set_markers, split_markers
from context_compressor.messages.foreign import FOREIGN_TYPES, refuse_foreign, refuse_foreign_part
from context_compressor.messages.msg import Block, Msg, Role
from context_compressor.messages.wire import (
    ASSISTANT_KEYS,
    FIELD_BLOCKS,
    MISSING,
    PLAIN_ROLES,
    REMARK,
    ROLES,
    THOUGHT_KEYS,
    as_dict,
    as_list,
    get,
    is_plain_text,
    no_chat_dict,
    plain,
    remark_of,
    remember,
    wrong,
)

_TOOL_BLOCKS = {"assistant": "tool_use", "user": "tool_result"}
"""Which block of Anthropic's may stand in a message of a role."""


def from_openai(messages: Iterable[Any]) -> list[Msg]:
    """Turn chat dicts into messages, one each; broken pairing of calls and results is accepted.

    Messages whose content has calls and results as blocks, as Anthropic's have, are read as `from_anthropic`
    does.

    Calls may lack an id; so may results that say the name of their tool (`name`, `tool_name`). Views pair
    them by name and order, and give them ids.

    Args:
        messages: dicts or other mappings, or the SDKs' message objects (`response.choices[0].message`).

    Raises:
        InvalidMessageError: a dict is malformed; the text names index, field and what was expected.
        InvalidArgumentError: `messages` is not a list or another iterable of messages.
    """
    tool_names: dict[str, str] = {}
    result: list[Msg] = []
    for index, message in enumerate(as_list(messages)):
        data = as_dict(message)
        if data is None:
            raise no_chat_dict(index, message)
        if _has_tool_blocks(data):
            try:
                result += _read_blocks(data, tool_names)
            except InvalidMessageError as error:
                raise InvalidMessageError(f"messages[{index}].{error}") from None
            continue
        if "role" not in data and not isinstance(message, Mapping):
            raise wrong(f"messages[{index}]", "a chat dict", message, f"; {_mend_of(message)}")
        try:
            bare, markers = split_markers(data)
            if has_marker(markers):
                result.append(set_markers(_read_message(bare, tool_names), markers))
            else:
                result.append(_read_message(data, tool_names))
        except InvalidMessageError as error:
            raise InvalidMessageError(f"messages[{index}].{error}") from None
    return result


def _has_tool_blocks(data: Mapping[str, Any]) -> bool:
    """Tell whether calls or results stand in content, as in Anthropic's messages."""
    content, kind = data.get("content"), _TOOL_BLOCKS.get(str(data.get("role")))
    if kind is None or not isinstance(content, list | tuple):
        return False
    return any(get(part, "type") == kind for part in content)


def _read_blocks(data: dict[str, Any], tool_names: dict[str, str]) -> list[Msg]:
    """Return the messages of one that has Anthropic's blocks, each to be written as such among chat dicts."""
    read = read_message(data, tool_names, "chat")
    for msg in read:
        noted = {**remark_of(msg.metadata, OF), "of": OF, "among": "chat"}
        msg.metadata = {**(msg.metadata or {}), REMARK: noted}
    return read


def _mend_of(value: object) -> str:
    """Return what makes a chat dict of a library's object."""
    for held, path in (("choices", ".choices[0].message"), ("message", ".message")):
        if hasattr(value, held):  # the SDKs' answers, which hold it
            return f"hand over its {path}"
    return "let its library make chat dicts of its messages, LangChain by convert_to_openai_messages"


def _read_message(data: dict[str, Any], tool_names: dict[str, str]) -> Msg:
    role = data.get("role", MISSING)
    content = data.get("content", MISSING)
    refuse_foreign(data, "chat")
    # The common case, where there is nothing to remember.
    if len(data) == 2 and type(role) is str and type(content) is str and next(iter(data)) == "role":
        spoken = PLAIN_ROLES.get(role)
        if spoken is not None:
            return Msg(spoken, content, spoken)
    if role is MISSING and isinstance(data.get("type"), str):
        raise InvalidMessageError(
            f"role: missing, where the type is {data['type']!r}; items of OpenAI's Responses API are of "
            "form='responses' (from_responses); LangChain's own need convert_to_openai_messages"
        )
    if not isinstance(role, str):
        raise wrong("role", f"one of {', '.join(ROLES)}", role)
    if role not in ROLES:
        raise InvalidMessageError(f"role: expected one of {', '.join(ROLES)}, got {role!r}")
    role = str.__str__(role)  # out of an enum
    if role == "assistant":
        return _read_assistant(data, tool_names)
    if role in ("tool", "function"):
        return _read_result(data, role, tool_names)
    return _read_spoken(data, role)


def _read_spoken(data: dict[str, Any], role: str) -> Msg:
    content = _read_content(data)
    if content is None:
        raise wrong("content", "a string or a list of parts", data.get("content", MISSING))
    remark = {"role": role} if role == "developer" else {}
    name, known = _read_name(data, ("role", "content"))
    remark |= remember(data, ("role", "content"), known, "")
    kind: Role = "user" if role == "user" else "system"
    return Msg(kind if name is None else name, content, kind, {REMARK: remark} if remark else None)


def _read_assistant(data: dict[str, Any], tool_names: dict[str, str]) -> Msg:
    name, known = _read_name(data, ("role", "content"))
    thoughts, others = _read_thoughts(data), _read_fields(data)
    for block in others.get("tool_calls", ()):
        if block["id"]:
            tool_names[block["id"]] = block["name"]
    content = _read_content(data)
    fields = {**thoughts, **others}
    whole: str | list[Block]
    form = None
    if isinstance(content, list):
        is_one_text = len(content) == 1 and is_plain_text(content[0])
        form = "list" if not content or (fields and is_one_text) else None
    elif content == "":
        form = "string" if fields else None
    elif content is None:
        form = None if "content" in data else "absent"
    if isinstance(content, str) and not fields:
        whole = content
    else:
        parts = [{"type": "text", "text": content}] if isinstance(content, str) and content else content
        before, behind = chain(*thoughts.values()), chain(*others.values())
        whole = [*before, *(parts or []), *behind]
    remark: dict[str, Any] = {"content": form} if form else {}
    known = (*known, *fields)
    canonical = [key for key in ASSISTANT_KEYS if key in known and (key != "content" or "content" in data)]
    remark |= remember(data, canonical, known, "")
    return Msg(
        "assistant" if name is None else name, whole, "assistant", {REMARK: remark} if remark else None
    )


def _read_thoughts(data: dict[str, Any]) -> dict[str, list[Block]]:
    """Return the blocks of what the model thought, by key."""
    found: dict[str, list[Block]] = {}
    for key in THOUGHT_KEYS:
        thought = data.get(key)
        if key == "reasoning_content" and not isinstance(thought, str | None):
            raise wrong(key, "a string", thought)
        if thought and isinstance(thought, str):
            form = {} if key == "reasoning_content" else {REMARK: {"form": key}}
            found[key] = [{"type": "thinking", "thinking": plain(thought, ""), **form}]
    return found


def _read_fields(data: dict[str, Any]) -> dict[str, list[Block]]:
    """Return the blocks of what stands beside the content, by key."""
    found: dict[str, list[Block]] = {}
    for key, (kind, expected) in FIELD_BLOCKS.items():
        value = data.get(key)
        if kind is dict:
            value = as_dict(value) or value
        if not isinstance(value, kind | None):
            raise wrong(key, expected, value)
        if value:
            found[key] = [{"type": key, key: plain(value, key), REMARK: {"form": "field"}}]
    if images := _read_images(data.get("images")):
        found["images"] = images
    if data.get("function_call") is not None:
        found["function_call"] = [function_call_to_block(data["function_call"], "function_call")]
    calls = data.get("tool_calls")
    if not isinstance(calls, list | tuple | None):
        raise wrong("tool_calls", "a list", calls)
    if calls:
        found["tool_calls"] = [
            call_to_block(call, f"tool_calls[{index}]") for index, call in enumerate(calls)
        ]
    return found


def _read_images(images: object) -> list[Block]:
    """Return the images of an assistant dict as blocks; none where one of them is no plain image part."""
    parts = [as_dict(image) or {} for image in images] if isinstance(images, list | tuple) else []
    if not all(part.get("type") == "image_url" for part in parts):
        return []
    blocks = [part_to_block(part, f"images[{index}]") for index, part in enumerate(parts)]
    if any(block["type"] != "image" or REMARK in block for block in blocks):
        return []
    return [{**block, REMARK: {"form": "field"}} for block in blocks]


def _read_result(data: dict[str, Any], role: str, tool_names: dict[str, str]) -> Msg:
    is_legacy = role == "function"
    canonical = ("role", "name" if is_legacy else "tool_call_id", "content")
    name, known = _read_name(data, canonical)
    if is_legacy and name is None:
        raise wrong("name", "a string", data.get("name", MISSING))
    tool = data.get("tool_name") if name is None else name  # Ollama's key
    if not isinstance(tool, str):
        tool = None
    call_id = data.get("tool_call_id", MISSING) if not is_legacy else ""
    if call_id is MISSING:
        if tool is None:
            mend = "; where calls have no ids, say the tool's name"
            raise wrong("tool_call_id", "a string", MISSING, mend)
        call_id = ""
    if not isinstance(call_id, str):
        raise wrong("tool_call_id", "a string", call_id)
    output = _read_content(data)
    if output is None and "content" not in data:
        raise wrong("content", "a string or a list of parts", MISSING)
    remark: dict[str, Any] = {"role": role} if is_legacy else {}
    if output is None:
        remark["content"] = "null"
    remark |= remember(data, canonical, known, "")
    if tool is None:
        tool = tool_names.get(call_id, "tool")
    shown = "" if output is None else output
    block = {"type": "tool_result", "id": call_id, "name": tool, "output": shown}
    return Msg(tool, [block], "system", {REMARK: remark} if remark else None)


def _read_content(data: dict[str, Any]) -> str | list[Block] | None:
    content = data.get("content")
    if isinstance(content, list | tuple):
        for index, part in enumerate(content):
            if isinstance(part, Mapping) and ("type" not in part or str(part["type"]) in FOREIGN_TYPES):
                refuse_foreign_part(part, "chat", f"content[{index}]")
        return [part_to_block(part, f"content[{index}]") for index, part in enumerate(content)]
    if not isinstance(content, str | None):
        mend = "; json.dumps makes a string of it" if isinstance(content, dict) else ""
        raise wrong("content", "a string or a list of parts", content, mend)
    return plain(content, "")  # type: ignore[no-any-return]


def _read_name(data: dict[str, Any], known: tuple[str, ...]) -> tuple[str | None, tuple[str, ...]]:
    """Return the dict's name, and the known keys, the name among them when it is one."""
    name = data.get("name")
    if name is None:
        return None, known
    if not isinstance(name, str):
        raise wrong("name", "a string", name)
    return str.__str__(name), (*known, "name")
