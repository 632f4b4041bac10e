"""Chat dicts to messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from context_compressor.errors import InvalidMessageError
from context_compressor.messages.chat.blocks import call_to_block, function_call_to_block, part_to_block
from context_compressor.messages.chat.common import (
    ASSISTANT_KEYS,
    FIELD_BLOCKS,
    MISSING,
    PLAIN_ROLES,
    REMARK,
    RESULT_KEYS,
    ROLES,
    THOUGHT_KEYS,
    as_dict,
    is_plain_text,
    no_chat_dict,
    not_a_list,
    plain,
    remember,
    wrong,
)
from context_compressor.messages.chat.writing import has_marker, set_markers, split_markers
from context_compressor.messages.msg import Block, Msg, Role


def from_openai(messages: Iterable[Any]) -> list[Msg]:
    """Turn chat dicts into messages, one each; broken pairing of calls and results is accepted.

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
        if "role" not in data and not isinstance(message, Mapping):
            raise InvalidMessageError(
                f"{wrong(f'messages[{index}]', 'a chat dict', message)}; {_mend_of(message)}"
            )
        try:
            bare, markers = split_markers(data)
            if has_marker(markers):
                result.append(set_markers(_read_message(bare, tool_names), markers))
            else:
                result.append(_read_message(data, tool_names))
        except InvalidMessageError as error:
            raise InvalidMessageError(f"messages[{index}].{error}") from None
    return result


def _mend_of(value: object) -> str:
    """Return what makes a chat dict of a library's object."""
    for held, path in (("choices", ".choices[0].message"), ("message", ".message")):
        if hasattr(value, held):  # the SDKs' answers, which hold it
            return f"hand over its {path}"
    return "let its library make chat dicts of its messages, LangChain by convert_to_openai_messages"


def as_list(messages: Iterable[Any]) -> list[Any]:
    """Return chat dicts as a list.

    Raises:
        InvalidArgumentError: a single message, or anything else that is no list.
    """
    is_single = isinstance(messages, str | bytes | Mapping) or hasattr(messages, "model_dump")
    if is_single or not isinstance(messages, Iterable):
        raise not_a_list(messages, "chat dicts")
    return list(messages)


def _read_message(data: dict[str, Any], tool_names: dict[str, str]) -> Msg:
    role = data.get("role", MISSING)
    content = data.get("content", MISSING)
    # The common case, where there is nothing to remember.
    if len(data) == 2 and type(role) is str and type(content) is str and next(iter(data)) == "role":
        spoken = PLAIN_ROLES.get(role)
        if spoken is not None:
            return Msg(spoken, content, spoken)
    if role is MISSING and isinstance(data.get("type"), str):
        raise InvalidMessageError(
            f"role: missing, where the type is {data['type']!r}; only chat messages are taken, not items of "
            "OpenAI's Responses API, nor LangChain's own dicts (convert_to_openai_messages makes chat dicts)"
        )
    if not isinstance(role, str):
        raise wrong("role", f"one of {', '.join(ROLES)}", role)
    if role not in ROLES:
        raise InvalidMessageError(f"role: expected one of {', '.join(ROLES)}, got {role!r}")
    role = str.__str__(role)  # out of an enum
    if role == "assistant":
        return _read_assistant(data, tool_names)
    if role in RESULT_KEYS:
        return _read_result(data, role, tool_names)
    return _read_spoken(data, role)


def _read_spoken(data: dict[str, Any], role: str) -> Msg:
    content = _read_content(data)
    if content is None:
        raise wrong("content", "a string or a list of parts", data.get("content", MISSING))
    remark: dict[str, Any] = {"role": role} if role == "developer" else {}
    name, known = _read_name(data, ("role", "content"))
    remark |= remember(data, ("role", "content"), known, "")
    kind: Role = "user" if role == "user" else "system"
    return Msg(kind if name is None else name, content, kind, {REMARK: remark} if remark else None)


def _read_assistant(data: dict[str, Any], tool_names: dict[str, str]) -> Msg:
    name, known = _read_name(data, ("role", "content"))
    blocks, fields = _read_assistant_fields(data)
    for block in blocks:
        if block["type"] == "tool_use" and block["id"]:
            tool_names[block["id"]] = block["name"]
    content = _read_content(data)
    form = None
    parts: list[Block] = []
    if isinstance(content, list):
        parts = content
        if not content or (blocks and len(content) == 1 and is_plain_text(content[0])):
            form = "list"
    elif content:
        parts = [{"type": "text", "text": content}]
    elif content == "":
        form = "string"
    elif "content" not in data:
        form = "absent"
    remark: dict[str, Any] = {}
    whole: str | list[Block]
    if isinstance(content, str) and not blocks:
        whole = content
    else:
        thinking = sum(key in fields for key in THOUGHT_KEYS)
        whole = [*blocks[:thinking], *parts, *blocks[thinking:]]
        if form:
            remark["content"] = form
    known = (*known, *fields)
    absent = () if "content" in data else ("content",)
    canonical = [key for key in ASSISTANT_KEYS if key in known and key not in absent]
    remark |= remember(data, canonical, known, "")
    return Msg(
        "assistant" if name is None else name, whole, "assistant", {REMARK: remark} if remark else None
    )


def _read_assistant_fields(data: dict[str, Any]) -> tuple[list[Block], list[str]]:
    """Return the blocks of everything but `content`, reasoning first, and the keys that they stand for."""
    blocks: list[Block] = []
    fields: list[str] = []
    for key in THOUGHT_KEYS:
        thought = data.get(key)
        if key == "reasoning_content" and not isinstance(thought, str | None):
            raise wrong(key, "a string", thought)
        if thought and isinstance(thought, str):
            form = {} if key == "reasoning_content" else {REMARK: {"form": key}}
            blocks.append({"type": "thinking", "thinking": plain(thought, ""), **form})
            fields.append(key)
    for key, (kind, expected) in FIELD_BLOCKS.items():
        value = data.get(key)
        if kind is dict:
            value = as_dict(value) or value
        if not isinstance(value, kind | None):
            raise wrong(key, expected, value)
        if value:
            blocks.append({"type": key, key: plain(value, key), REMARK: {"form": "field"}})
            fields.append(key)
    images = _read_images(data.get("images"))
    if images:
        blocks.extend(images)
        fields.append("images")
    if data.get("function_call") is not None:
        blocks.append(function_call_to_block(data["function_call"], "function_call"))
        fields.append("function_call")
    calls = data.get("tool_calls")
    if not isinstance(calls, list | tuple | None):
        raise wrong("tool_calls", "a list", calls)
    if calls:
        blocks.extend(call_to_block(call, f"tool_calls[{index}]") for index, call in enumerate(calls))
        fields.append("tool_calls")
    return blocks, fields


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
    canonical = RESULT_KEYS[role]
    name, known = _read_name(data, canonical)
    if role == "function" and name is None:
        raise wrong("name", "a string", data.get("name", MISSING))
    tool = data.get("tool_name") if name is None else name  # Ollama's key
    if not isinstance(tool, str):
        tool = None
    call_id = "" if role == "function" else data.get("tool_call_id", MISSING)
    if call_id is MISSING:
        if tool is None:
            raise InvalidMessageError(
                f"{wrong('tool_call_id', 'a string', MISSING)}; where calls have no ids, say the tool's name"
            )
        call_id = ""
    if not isinstance(call_id, str):
        raise wrong("tool_call_id", "a string", call_id)
    output = _read_content(data)
    remark: dict[str, Any] = {"role": role} if role == "function" else {}
    if output is None:
        if "content" not in data:
            raise wrong("content", "a string or a list of parts", MISSING)
        remark["content"] = "null"
    if tool is None:
        tool = tool_names.get(call_id, "tool")
    remark |= remember(data, canonical, known, "")
    block = {
        "type": "tool_result",
        "id": call_id,
        "name": tool,
        "output": "" if output is None else output,
    }
    return Msg(tool, [block], "system", {REMARK: remark} if remark else None)


def _read_content(data: dict[str, Any]) -> str | list[Block] | None:
    content = data.get("content")
    if isinstance(content, list | tuple):
        return [part_to_block(part, f"content[{index}]") for index, part in enumerate(content)]
    if not isinstance(content, str | None):
        mend = "; json.dumps makes a string of it" if isinstance(content, dict) else ""
        raise InvalidMessageError(f"{wrong('content', 'a string or a list of parts', content)}{mend}")
    return plain(content, "")  # type: ignore[no-any-return]


def _read_name(data: dict[str, Any], known: tuple[str, ...]) -> tuple[str | None, tuple[str, ...]]:
    """Return the dict's name, and the known keys, the name among them when it is one."""
    name = data.get("name")
    if name is None:
        return None, known
    if not isinstance(name, str):
        raise wrong("name", "a string", name)
    return str.__str__(name), (*known, "name")
