"""Chat dicts (OpenAI chat completions, DashScope) <-> `Msg`, with nothing lost either way.

Content says what it can; what it cannot say goes into a remark: in `metadata["openai"]` about the message
dict, in `block["openai"]` about one call or part (`openai_calls`, `openai_parts`). About a message:

- `role`: "developer" or "function", which are `system` messages here;
- `content`: how content stood where blocks leave it open: "null", "string" (empty), "list" (empty, or one
  plain text beside calls or reasoning) or "absent";
- `keys`: the dict's keys in order, when not the usual ones; a name is sent only when it stands among them;
- `extra`: keys that have no place in content, with their values.

`to_openai` reads no other metadata.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from inspect import isawaitable
from typing import Any

from context_compressor.errors import InvalidArgumentError, InvalidMessageError
from context_compressor.messages.msg import Block, Msg, Role, copy_json
from context_compressor.messages.openai_calls import (
    block_to_call,
    block_to_held,
    call_to_block,
    function_call_to_block,
)
from context_compressor.messages.openai_common import (
    MISSING,
    REMARK,
    as_dict,
    assemble,
    plain,
    remark_of,
    remember,
    wrong,
)
from context_compressor.messages.openai_parts import block_to_part, part_to_block

_PLAIN_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_THOUGHT_KEYS = ("reasoning_content", "reasoning")
"""Where providers write what a model thought, the usual key first; the other (vLLM, OpenRouter) is remembered
as the block's `{"form": key}`."""
_ASSISTANT_KEYS = (
    "role",
    "content",
    *_THOUGHT_KEYS,
    "refusal",
    "audio",
    "images",
    "function_call",
    "tool_calls",
)
_RESULT_KEYS = {"tool": ("role", "tool_call_id", "content"), "function": ("role", "name", "content")}
_FIELD_BLOCKS: dict[str, tuple[type, str]] = {"refusal": (str, "a string"), "audio": (dict, "a dict")}
"""Keys of an assistant dict that are content; their blocks say so with the remark `{"form": "field"}`, as do
the image blocks of `images`, where OpenRouter and LiteLLM put what a model drew."""


def from_openai(messages: Iterable[Any]) -> list[Msg]:
    """Turn chat dicts into messages, one each; broken pairing of calls and results is accepted.

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
            mend = "; to_openai makes chat dicts of messages" if isinstance(message, Msg) else ""
            raise InvalidMessageError(f"{wrong(f'messages[{index}]', 'a chat dict', message)}{mend}")
        if "role" not in data and not isinstance(message, Mapping):
            raise InvalidMessageError(
                f"{wrong(f'messages[{index}]', 'a chat dict', message)}; let its library make chat dicts "
                "of its messages, LangChain by convert_to_openai_messages"
            )
        try:
            result.append(_read_message(data, tool_names))
        except InvalidMessageError as error:
            raise InvalidMessageError(f"messages[{index}].{error}") from None
    return result


def to_openai(messages: Iterable[Msg]) -> list[dict[str, Any]]:
    """Turn messages into chat dicts; a message with several tool results becomes several dicts.

    An assistant message gives the assistant dict first, then any results; others give the results first.

    Raises:
        InvalidArgumentError: `messages` is not a list or another iterable of `Msg`.
        InvalidMessageError: a tool call's input is not JSON data.
    """
    if isinstance(messages, str | bytes | Mapping | Msg) or not isinstance(messages, Iterable):
        raise _not_a_list(messages, "Msg")
    result: list[dict[str, Any]] = []
    for index, msg in enumerate(messages):
        # By attribute, not by class: AgentScope's own Msg will do.
        content = getattr(msg, "content", None)
        role = getattr(msg, "role", None)
        if not isinstance(content, str | list) or role not in _PLAIN_ROLES:
            raise InvalidArgumentError(f"messages[{index}]: expected a Msg, got {type(msg).__name__}")
        remark = remark_of(msg.metadata)
        if isinstance(content, str):
            result.append(_finish({"role": _sent_role(role, remark), "content": content}, msg.name, remark))
        else:
            result.extend(_write_blocks(content, role, msg.name, remark))
    return result


def as_list(messages: Iterable[Any]) -> list[Any]:
    """Return chat dicts as a list.

    Raises:
        InvalidArgumentError: a single message, or anything else that is no list.
    """
    is_single = isinstance(messages, str | bytes | Mapping) or hasattr(messages, "model_dump")
    if is_single or not isinstance(messages, Iterable):
        raise _not_a_list(messages, "chat dicts")
    return list(messages)


def _not_a_list(value: object, of: str) -> InvalidArgumentError:
    mend = "await it" if isawaitable(value) else "put a single message in a list"
    return InvalidArgumentError(f"messages: expected a list of {of}, got {type(value).__name__}; {mend}")


def _read_message(data: dict[str, Any], tool_names: dict[str, str]) -> Msg:
    role = data.get("role", MISSING)
    content = data.get("content", MISSING)
    # The common case, where there is nothing to remember.
    if len(data) == 2 and type(role) is str and type(content) is str and next(iter(data)) == "role":
        spoken = _PLAIN_ROLES.get(role)
        if spoken is not None:
            return Msg(spoken, content, spoken)
    if role is MISSING and isinstance(data.get("type"), str):
        raise InvalidMessageError(
            f"role: missing, where the type is {data['type']!r}; only chat messages are taken, not items of "
            "OpenAI's Responses API, nor LangChain's own dicts (convert_to_openai_messages makes chat dicts)"
        )
    if not isinstance(role, str):
        raise wrong("role", f"one of {', '.join(_ROLES)}", role)
    if role not in _ROLES:
        raise InvalidMessageError(f"role: expected one of {', '.join(_ROLES)}, got {role!r}")
    role = str.__str__(role)  # out of an enum
    if role == "assistant":
        return _read_assistant(data, tool_names)
    if role in _RESULT_KEYS:
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
        if block["type"] == "tool_use":
            tool_names[block["id"]] = block["name"]
    content = _read_content(data)
    form = None
    parts: list[Block] = []
    if isinstance(content, list):
        parts = content
        if not content or (blocks and len(content) == 1 and _is_plain_text(content[0])):
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
        thinking = sum(key in fields for key in _THOUGHT_KEYS)
        whole = [*blocks[:thinking], *parts, *blocks[thinking:]]
        if form:
            remark["content"] = form
    known = (*known, *fields)
    absent = () if "content" in data else ("content",)
    canonical = [key for key in _ASSISTANT_KEYS if key in known and key not in absent]
    remark |= remember(data, canonical, known, "")
    return Msg(
        "assistant" if name is None else name, whole, "assistant", {REMARK: remark} if remark else None
    )


def _read_assistant_fields(data: dict[str, Any]) -> tuple[list[Block], list[str]]:
    """Return the blocks of everything but `content`, reasoning first, and the keys that they stand for."""
    blocks: list[Block] = []
    fields: list[str] = []
    for key in _THOUGHT_KEYS:
        thought = data.get(key)
        if key == "reasoning_content" and not isinstance(thought, str | None):
            raise wrong(key, "a string", thought)
        if thought and isinstance(thought, str):
            form = {} if key == "reasoning_content" else {REMARK: {"form": key}}
            blocks.append({"type": "thinking", "thinking": plain(thought, ""), **form})
            fields.append(key)
    for key, (kind, expected) in _FIELD_BLOCKS.items():
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
    canonical = _RESULT_KEYS[role]
    name, known = _read_name(data, canonical)
    if role == "function" and name is None:
        raise wrong("name", "a string", data.get("name", MISSING))
    call_id = "" if role == "function" else data.get("tool_call_id", MISSING)
    if not isinstance(call_id, str):
        raise wrong("tool_call_id", "a string", call_id)
    output = _read_content(data)
    remark: dict[str, Any] = {"role": role} if role == "function" else {}
    if output is None:
        if "content" not in data:
            raise wrong("content", "a string or a list of parts", MISSING)
        remark["content"] = "null"
    if name is None:
        name = tool_names.get(call_id, "tool")
    remark |= remember(data, canonical, known, "")
    block = {
        "type": "tool_result",
        "id": call_id,
        "name": name,
        "output": "" if output is None else output,
    }
    return Msg(name, [block], "system", {REMARK: remark} if remark else None)


def _read_content(data: dict[str, Any]) -> str | list[Block] | None:
    content = data.get("content")
    if isinstance(content, list | tuple):
        return [part_to_block(part, f"content[{index}]") for index, part in enumerate(content)]
    if not isinstance(content, str | None):
        raise wrong("content", "a string or a list of parts", content)
    return plain(content, "")  # type: ignore[no-any-return]


def _read_name(data: dict[str, Any], known: tuple[str, ...]) -> tuple[str | None, tuple[str, ...]]:
    """Return the dict's name, and the known keys, the name among them when it is one."""
    name = data.get("name")
    if name is None:
        return None, known
    if not isinstance(name, str):
        raise wrong("name", "a string", name)
    return str.__str__(name), (*known, "name")


def _is_plain_text(part: Mapping[str, Any]) -> bool:
    return len(part) == 2 and part.get("type") == "text"


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
    others = [block for block in blocks if block.get("type") != "tool_result"] if results else blocks
    # A remark speaks of the dict that the message was: the results, unless the assistant spoke.
    of_results = bool(results) and role != "assistant"
    own_remark = {} if of_results else remark
    spoken = []
    if others or not results:
        spoken = [_finish(_write_spoken(others, role, own_remark), name, own_remark)]
    if role == "assistant":
        yield from spoken
    for block in results:
        yield _write_result(block, remark if of_results else {})
    if role != "assistant":
        yield from spoken


def _write_spoken(blocks: list[Block], role: str, remark: dict[str, Any]) -> dict[str, Any]:
    parts: list[dict[str, Any]] = []
    thoughts: dict[str, list[str]] = {}
    calls: list[dict[str, Any]] = []
    held: dict[str, Any] = {}
    for block in blocks:
        kind = block.get("type")
        form = remark_of(block).get("form")
        if kind == "thinking":
            key = form if form in _THOUGHT_KEYS else "reasoning_content"
            thoughts.setdefault(key, []).append(block["thinking"])
        elif kind == "tool_use":
            if form == "function_call" and "function_call" not in held:
                held["function_call"] = block_to_held(block)
            else:
                calls.append(block_to_call(block))
        elif kind in _FIELD_BLOCKS and kind in block and form == "field":
            held[str(kind)] = copy_json(block[str(kind)])
        elif kind == "image" and form == "field" and role == "assistant":
            held.setdefault("images", []).append(block_to_part(block))
        else:
            parts.append(block_to_part(block))
    for key, texts in thoughts.items():
        held[key] = "\n".join(texts)
    if calls:
        held["tool_calls"] = calls
    fields: dict[str, Any] = {"role": _sent_role(role, remark)}
    content = _write_content(parts, bool(held), role, remark.get("content"))
    if content is not MISSING:
        fields["content"] = content
    return fields | {key: held[key] for key in _ASSISTANT_KEYS if key in held}


def _write_content(parts: list[dict[str, Any]], has_fields: bool, role: str, form: str | None) -> Any:
    if parts:
        as_text = has_fields and form != "list" and len(parts) == 1 and _is_plain_text(parts[0])
        return parts[0]["text"] if as_text else parts
    if form == "list" or role != "assistant":
        return []
    return {"string": "", "absent": MISSING}.get(form or "null")


def _write_result(block: Block, remark: dict[str, Any]) -> dict[str, Any]:
    output = block["output"]
    content: Any = output if isinstance(output, str) else [block_to_part(inner) for inner in output]
    if output == "" and remark.get("content") == "null":
        content = None
    if remark.get("role") == "function":
        return _finish(
            {"role": "function", "name": block.get("name") or "", "content": content}, None, remark
        )
    return _finish(
        {"role": "tool", "tool_call_id": block["id"], "content": content}, block.get("name"), remark
    )
