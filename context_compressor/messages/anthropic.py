"""Anthropic's Messages <-> `Msg`, with nothing lost either way.

Blocks of content are ours but for results. Tool results stand in a message of the user there, before what he
says: reading makes two messages of it, writing joins them again. What blocks cannot say goes into the remark
(`wire`), which says `of: "anthropic"`. Blocks of unknown types are carried along as they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, takewhile
from typing import Any, Final

from context_compressor.errors import InvalidMessageError
from context_compressor.messages.foreign import refuse_foreign
from context_compressor.messages.media import source_of
from context_compressor.messages.msg import Block, Msg, Role, copy_json
from context_compressor.messages.wire import (
    REMARK,
    WRAPPED,
    as_dict,
    as_list,
    assemble,
    check_messages,
    get,
    plain,
    remark_of,
    remember,
    wrong,
)

OF: Final = "anthropic"
OPENING = "[The conversation goes on.]"
"""What the user says first where a view would begin with the assistant, which this API refuses."""
MAX_CACHE_MARKS = 4
"""Breakpoints of the prompt cache in one request (Anthropic, "Prompt caching"); more are refused."""

_ROLES: tuple[Role, ...] = ("user", "assistant", "system")
_KEYS = {
    "text": ("type", "text"),
    "thinking": ("type", "thinking"),
    "tool_use": ("type", "id", "name", "input"),
}
"""Keys of blocks that are ours; what else a block has stands in its remark."""
_RESULT_KEYS = ("type", "tool_use_id", "content", "is_error")
_STRINGS = {"text": ("text",), "thinking": ("thinking",), "tool_use": ("id", "name")}
_JOINED = "joined"


def from_anthropic(messages: Iterable[Any]) -> list[Msg]:
    """Turn messages of Anthropic's API into ours; one with results and more becomes two.

    Args:
        messages: dicts, or what the SDK gives (`{"role": "assistant", "content": response.content}`).

    Raises:
        InvalidMessageError: a message is malformed, or of another form; the text names index and field.
        InvalidArgumentError: `messages` is not a list or another iterable of messages.
    """
    tool_names: dict[str, str] = {}
    result: list[Msg] = []
    for index, message in enumerate(as_list(messages)):
        try:
            result += read_message(message, tool_names)
        except InvalidMessageError as error:
            raise InvalidMessageError(f"messages[{index}].{error}") from None
    return result


def read_message(message: object, tool_names: dict[str, str]) -> list[Msg]:
    """Return what one message says; names of tools are looked up, and noted, by the ids of calls.

    Raises:
        InvalidMessageError: it is malformed; the text begins with the field.
    """
    data = as_dict(message)
    if data is None:
        raise wrong("message", "a dict", message)
    refuse_foreign(data, "anthropic")
    role, content = data.get("role"), data.get("content")
    if role not in _ROLES:
        raise InvalidMessageError(f"role: expected one of {', '.join(_ROLES)}, got {role!r}")
    noted = remember(data, ("role", "content"), ("role", "content"), "")
    # Else an instruction would be like one of another form, which has no place here.
    is_instruction = role == "system"
    if isinstance(content, str):
        return [Msg(role, content, role, _remark(noted, always=is_instruction))]
    if not isinstance(content, list | tuple):
        raise wrong("content", "a string or a list of blocks", content)
    blocks = [_read_block(part, f"content[{n}]", tool_names) for n, part in enumerate(content)]
    if role != "user":
        return [Msg(role, blocks, role, _remark(noted, always=is_instruction))]
    results = [block for block in blocks if block.get("type") == "tool_result"]
    others = [block for block in blocks if block.get("type") != "tool_result"]
    # Always with a remark: no name of a tool is sent with its result.
    read = [Msg(results[0]["name"], results, "system", _remark(noted, always=True))] if results else []
    if others or not results:
        read.append(Msg("user", others, "user", _remark({_JOINED: "yes"} if results else noted)))
    return read


def _remark(noted: dict[str, Any], *, always: bool = False) -> dict[str, Any] | None:
    return {REMARK: {"of": OF, **noted}} if noted or always else None


def _read_block(part: object, path: str, tool_names: dict[str, str]) -> Block:
    found = as_dict(part)
    if found is None:
        raise wrong(path, "a dict", part)
    refuse_foreign(found, "anthropic", f"{path}: ")
    data: dict[str, Any] = plain(dict(found), path)
    kind = data.get("type")
    if not isinstance(kind, str | None):
        raise wrong(f"{path}.type", "a string", kind)
    if kind == "tool_result":
        return _read_result(data, path, tool_names)
    if kind not in _KEYS:
        return {"type": WRAPPED, WRAPPED: data} if REMARK in data or kind in (None, WRAPPED) else data
    for key in _STRINGS[kind]:
        if not isinstance(data.get(key), str):
            raise wrong(f"{path}.{key}", "a string", data.get(key))
    if kind == "tool_use":
        if not isinstance(data.get("input"), dict):
            raise wrong(f"{path}.input", "a dict", data.get("input"))
        tool_names[data["id"]] = data["name"]
    noted = remember(data, _KEYS[kind], _KEYS[kind], f"{path}.")
    return {key: data[key] for key in _KEYS[kind]} | (_remark(noted) or {})


def _read_result(data: dict[str, Any], path: str, tool_names: dict[str, str]) -> Block:
    call_id, content = data.get("tool_use_id"), data.get("content")
    if not isinstance(call_id, str):
        raise wrong(f"{path}.tool_use_id", "a string", call_id)
    output: Any = content
    if isinstance(content, list):
        output = [_read_block(part, f"{path}.content[{n}]", {}) for n, part in enumerate(content)]
    elif content is None:
        output = ""
    elif not isinstance(content, str):
        raise wrong(f"{path}.content", "a string or a list of blocks", content)
    canonical = [key for key in _RESULT_KEYS if key in data]
    noted = remember(data, canonical, _RESULT_KEYS, f"{path}.")
    if not content:
        noted["content"] = "absent" if "content" not in data else "null" if content is None else "empty"
    block: Block = {"type": "tool_result", "id": call_id, "name": tool_names.get(call_id, "tool")}
    block["output"] = output
    if "is_error" in data:
        block["is_error"] = data["is_error"]
    return block | (_remark(noted) or {})


# Writing


def to_anthropic(messages: Iterable[Msg]) -> list[Any]:
    """Turn messages into those of Anthropic's API, as it accepts them.

    All results of an assistant's calls come first in the next message. Where the assistant would speak first,
    the user opens; of more than four cache marks the last four stay. A system message of another form, for
    which there is no place but the request's `system`, becomes the user's, as does one that no longer stands
    before the assistant. Thoughts without a signature, as other providers write them, are left out.

    Raises:
        InvalidArgumentError: `messages` is not a list or another iterable of `Msg`.
    """
    return as_accepted(write_messages(check_messages(messages)), (), None)


def write_messages(messages: Sequence[Msg]) -> list[Any]:
    """Return messages as they are on the wire, without what only the whole can say."""
    return [wire for group in groups(messages) if (wire := _write(group)) is not None]


def as_accepted(written: list[Any], said: Sequence[Any], system: Any) -> list[Any]:
    """Return a request's messages with what only the whole can say: who opens, how many cache marks, and that
    a turn which began with thoughts still does.

    Args:
        written: the messages.
        said: the list that they are a view of.
        system: what the request has as `system`, which may bear cache marks.
    """
    if written and get(written[0], "role") == "assistant":
        written = [{"role": "user", "content": OPENING}, *written]
    for place, (wire, behind) in enumerate(pairwise(written)):
        if get(wire, "role") == "system" and get(behind, "role") != "assistant":
            written[place] = {**(as_dict(wire) or {}), "role": "user"}
    thoughts, place = opening_thoughts(said), _open_turn(written)
    if thoughts and place < len(written) and not _thoughts_of(written[place]):
        wire = copy_json(as_dict(written[place]) or {})
        if isinstance(wire.get("content"), list):
            written[place] = {**wire, "content": [*copy_json(thoughts), *wire["content"]]}
    places = [place for place, wire in enumerate(written) for _ in range(count_marks(wire))]
    too_many = len(places) - MAX_CACHE_MARKS + count_marks({"content": system})
    for place in dict.fromkeys(places[: max(0, too_many)]):
        written[place], too_many = _without_marks(written[place], too_many)
    return written


def beside(said: Sequence[Any]) -> str:
    """Return what `as_accepted` may put beside a view of a list."""
    thoughts = opening_thoughts(said)
    return OPENING + (json.dumps(thoughts, ensure_ascii=False) if thoughts else "")


def opening_thoughts(said: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the thoughts with which the turn at the end of a list begins, where what follows has none.

    With thinking enabled the last run of calls and results must begin with a thought, be it that those before
    left ("a final `assistant` message must start with a thinking block"). Models that think once a turn, and
    not before each call, have it at its beginning alone.
    """
    start = _open_turn(said)
    turn = [message for message in said[start:] if get(message, "role") == "assistant"]
    return _thoughts_of(turn[0]) if len(turn) > 1 and not all(map(_thoughts_of, turn)) else []


def _open_turn(messages: Sequence[Any]) -> int:
    """Return where the last run of the assistant's messages and results of its calls begins."""
    start = len(messages)
    while start and (get(messages[start - 1], "role") == "assistant" or _is_result(messages[start - 1])):
        start -= 1
    return start


def _is_result(message: Any) -> bool:
    content = get(message, "content")
    return isinstance(content, list | tuple) and all(get(part, "type") == "tool_result" for part in content)


def _thoughts_of(message: Any) -> list[dict[str, Any]]:
    """Return the thoughts with which a message begins."""
    content = get(message, "content")
    parts = content if isinstance(content, list | tuple) else ()
    found = takewhile(lambda part: get(part, "type") in ("thinking", "redacted_thinking"), parts)
    return [plain(dict(as_dict(part) or {}), "") for part in found]


def count_marks(value: Any) -> int:
    """Return how many cache marks a message, or a block, bears."""
    found = as_dict(value) or {}
    content = found.get("content")
    inner = sum(map(count_marks, content)) if isinstance(content, list | tuple) else 0
    return inner + (found.get("cache_control") is not None)


def _without_marks(wire: Any, most: int) -> tuple[Any, int]:
    """Return a copy without its first cache marks, at most so many, and how many more may go."""
    bare = copy_json(as_dict(wire) or {})
    content = bare.get("content")
    if isinstance(content, list):
        for place, part in enumerate(content):
            content[place], most = _without_marks(part, most)
    if most > 0 and bare.get("cache_control") is not None:
        del bare["cache_control"]
        most -= 1
    return bare, most


def joins(before: Msg, after: Msg) -> bool:
    """Tell whether two messages, one behind the other, are one on the wire."""
    if not _is_answer(before):
        return False
    return _is_answer(after) or bool(remark_of(after.metadata, OF).get(_JOINED))


def groups(messages: Sequence[Msg]) -> Iterator[list[Msg]]:
    """Yield messages by what is one on the wire."""
    group: list[Msg] = []
    for msg in messages:
        if group and not joins(group[-1], msg):
            yield group
            group = []
        group.append(msg)
    if group:
        yield group


def _is_answer(msg: Msg) -> bool:
    """Tell whether a message is of results, which the user brings."""
    return msg.role != "assistant" and any(
        block.get("type") == "tool_result" for block in msg.get_content_blocks()
    )


def _write(group: Sequence[Msg]) -> dict[str, Any] | None:
    """Return what some messages are on the wire; None where nothing of them can be said there."""
    first = group[0]
    noted = remark_of(first.metadata, OF)
    role: str = first.role
    if role == "system" and (_is_answer(first) or not noted):
        role = "user"
    if len(group) == 1 and isinstance(first.content, str):
        return assemble({"role": role, "content": first.content}, noted)
    blocks = [block for msg in group for block in msg.get_content_blocks()]
    results = [block for block in blocks if block.get("type") == "tool_result"]
    others = [block for block in blocks if block.get("type") != "tool_result"]
    ordered = blocks if role == "assistant" else [*results, *others]
    content = [part for block in ordered if (part := _write_block(block)) is not None]
    if blocks and not content:
        return None
    return assemble({"role": role, "content": content}, noted)


def _write_block(block: Block) -> dict[str, Any] | None:
    kind, noted = block.get("type"), remark_of(block, OF)
    if kind == WRAPPED and isinstance(block.get(WRAPPED), Mapping):
        return dict(copy_json(block[WRAPPED]))
    if kind == "tool_result":
        return _write_result(block, noted)
    if kind == "thinking" and not noted:
        return None
    if kind == "text" and not block["text"].strip() and not noted:
        return None
    if kind == "file" and isinstance(block.get("file"), Mapping):  # as chat dicts have it
        source = source_of(str(block["file"].get("file_data") or ""))
        return {"type": "document", "source": source} if source["type"] == "base64" else None
    if kind in _KEYS:
        return assemble({key: copy_json(block[key]) for key in _KEYS[str(kind)]}, noted)
    return {key: copy_json(value) for key, value in block.items() if key != REMARK}


def _write_result(block: Block, noted: Mapping[str, Any]) -> dict[str, Any]:
    output, form = block["output"], noted.get("content")
    fields: dict[str, Any] = {"type": "tool_result", "tool_use_id": block["id"]}
    if output != "" or form in (None, "empty"):
        inner = output if isinstance(output, str) else [_write_block(part) for part in output]
        fields["content"] = inner if isinstance(inner, str) else [part for part in inner if part is not None]
    elif form == "null":
        fields["content"] = None
    if "is_error" in block:
        fields["is_error"] = block["is_error"]
    return assemble(fields, noted)
