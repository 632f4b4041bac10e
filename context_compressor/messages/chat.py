"""Chat dicts (OpenAI chat completions, DashScope) <-> `Msg`, with nothing lost either way.

Content says what it can; what it cannot say goes into a remark: in `metadata["openai"]` about the message
dict, in `block["openai"]` about one call or part (`calls`, `parts`). About a message:

- `role`: "developer" or "function", which are `system` messages here;
- `content`: how content stood where blocks leave it open: "null", "string" (empty), "list" (empty, or one
  plain text beside calls or reasoning) or "absent";
- `keys`: the dict's keys in order, when not the usual ones; a name is sent only when it stands among them;
- `extra`: keys that have no place in content, with their values;
- `markers`: request metadata (`cache_control`) with its places, which is no part of either.

`to_openai` reads no other metadata.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any
from urllib.parse import urlsplit

from context_compressor.errors import InvalidMessageError
from context_compressor.messages.anthropic import OF, read_message, write_messages
from context_compressor.messages.kinds import (
    FOREIGN_TYPES,
    ITEM,
    WRAPPED,
    Words,
    part_of,
    refuse_foreign,
    refuse_foreign_part,
)
from context_compressor.messages.markers import has_marker, set_markers, split_markers, with_markers
from context_compressor.messages.media import source_of, url_of
from context_compressor.messages.msg import Block, Msg, Role, copy_json
from context_compressor.messages.plain import (
    MISSING,
    arguments_text,
    as_dict,
    as_list,
    check_messages,
    dump_arguments,
    get,
    no_chat_dict,
    parse_arguments,
    plain,
    wrong,
)
from context_compressor.messages.remark import (
    MARKERS,
    REMARK,
    assemble,
    form_name_of,
    form_of,
    remark_of,
    remember,
)
from context_compressor.moved import names_of

__path__: list[str] = []  # `messages.chat` was a room: a path into it is one that moved
__getattr__ = names_of("context_compressor.messages", "plain", "remark", "markers", "kinds")

_PLAIN_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
ROLES = ("system", "developer", "user", "assistant", "tool", "function")
THOUGHT_KEYS = ("reasoning_content", "reasoning")
"""Where providers write what a model thought, the usual key first; the other (vLLM, OpenRouter) is remembered
as the block's `{"form": key}`."""
_ASSISTANT_KEYS = (
    *("role", "content", *THOUGHT_KEYS),
    *("refusal", "audio", "images", "function_call", "tool_calls"),
)
_FIELD_BLOCKS: dict[str, tuple[type, str]] = {"refusal": (str, "a string"), "audio": (dict, "a dict")}
"""Keys of an assistant dict that are content; their blocks say so with the remark `{"form": "field"}`, as do
the image blocks of `images`, where OpenRouter and LiteLLM put what a model drew."""

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
        if "role" not in data and not isinstance(message, Mapping):
            raise wrong(f"messages[{index}]", "a chat dict", message, f"; {_mend_of(message)}")
        try:
            if _has_tool_blocks(data):
                result += _read_blocks(data, tool_names)
                continue
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
        spoken = _PLAIN_ROLES.get(role)
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
        raise InvalidMessageError(f"role: expected one of {', '.join(ROLES)}, got {role!r:.200}")
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
        is_one_text = len(content) == 1 and _is_plain_text(content[0])
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
    canonical = [key for key in _ASSISTANT_KEYS if key in known and (key != "content" or "content" in data)]
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
    for key, (kind, expected) in _FIELD_BLOCKS.items():
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


# Writing


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
            said = [with_markers(said[0], remark[MARKERS])]
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
        elif kind in _FIELD_BLOCKS and kind in block and form == "field":
            held[str(kind)] = copy_json(block[str(kind)])
        elif kind == "image" and form == "field" and role == "assistant":
            held.setdefault("images", []).append(block_to_part(block))
        else:
            parts.append(_write_part(block, role))
    fields: dict[str, Any] = {"role": _sent_role(role, remark)}
    content = _write_content(parts, bool(held), role, remark.get("content"))
    if content is not MISSING:
        fields["content"] = content
    return fields | {key: held[key] for key in _ASSISTANT_KEYS if key in held}


def _write_part(block: Block, role: str) -> dict[str, Any]:
    """Return a block as a part; what was read in another form, and has no place here, is told."""
    is_foreign = form_name_of(block) is not None or block.get("type") == ITEM
    return part_of(block, role, _WORDS) if is_foreign else block_to_part(block)


def _write_medium(block: Block, role: str) -> dict[str, Any] | None:
    source = block.get("source")
    has_url = isinstance(source, dict) and url_of(source) is not None
    is_said = role != "assistant" and (has_url or block["type"] == "file")
    return block_to_part(block) if is_said else None


_WORDS: Words = {
    "text": lambda block, _: block_to_part(block),
    "image": _write_medium,
    "file": _write_medium,
}


def _is_plain_text(part: Mapping[str, Any]) -> bool:
    return len(part) == 2 and part.get("type") == "text"


def _write_content(parts: list[dict[str, Any]], has_fields: bool, role: str, form: str | None) -> Any:
    if parts:
        as_text = has_fields and form != "list" and len(parts) == 1 and _is_plain_text(parts[0])
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


# Parts and calls

_MEDIA = {"image_url": "image", "video_url": "video", "input_audio": "audio"}
_PART_TYPES = {kind: part_type for part_type, kind in _MEDIA.items()}
_RESPONSES_TEXTS = ("input_text", "output_text")
"""Types of texts in OpenAI's Responses API; they are read in chat dicts, too."""
_TYPELESS = ("text", "image", "audio", "video")
_OURS = frozenset({"thinking", "tool_use", "tool_result", WRAPPED})
AUDIO_FORMATS = {"mpeg": "mp3", "x-wav": "wav", "wave": "wav"}


def part_to_block(part: object, path: str) -> Block:
    """Return a content part as a block.

    Raises:
        InvalidMessageError: it is no dict, or a text part without text.
    """
    found = as_dict(part)
    if found is None:
        raise wrong(path, "a dict", part)
    data: dict[str, Any] = plain(dict(found), path)
    kind = data.get("type")
    if "type" in data and not isinstance(kind, str):
        raise wrong(f"{path}.type", "a string", kind)
    if (kind == "text" or (kind is None and "text" in data)) and not isinstance(data.get("text"), str):
        raise wrong(f"{path}.text", "a string", found.get("text"))
    if REMARK in data or kind in _OURS:
        return {"type": WRAPPED, WRAPPED: data}
    if kind in _RESPONSES_TEXTS and isinstance(data.get("text"), str):
        return {**data, "type": "text", REMARK: {"form": kind}}
    if kind == "input_image" and isinstance(data.get("image_url"), str):
        held: dict[str, dict[str, Any]] = {
            "image_url": {"source": source_of(data["image_url"])},
            "type": {"type": "image"},
        }
        return {**_swapped(data, held), REMARK: {"form": kind}}
    if "source" in data:
        return {**data, REMARK: {"form": "native"}} if kind in _PART_TYPES else data
    if kind is None:
        return _typeless_to_block(data)
    return _media_to_block(data, kind) if kind in _MEDIA else data


def block_to_part(block: Block) -> dict[str, Any]:
    """Return a block as a content part."""
    kind, form = str(block.get("type")), form_of(block)
    source: dict[str, Any] = block["source"] if isinstance(block.get("source"), dict) else {}
    if kind == WRAPPED and isinstance(block.get(WRAPPED), Mapping):
        return dict(copy_json(block[WRAPPED]))
    url = url_of(source)
    if form in _RESPONSES_TEXTS:
        return _swapped(block, {"type": {"type": form}, REMARK: {}})
    if form == "input_image" and url is not None:
        return _swapped(block, {"type": {"type": form}, "source": {"image_url": url}, REMARK: {}})
    if form == "typeless":
        swaps: dict[str, dict[str, Any]] = {"type": {}, REMARK: {}}
        if url is not None:
            swaps["source"] = {kind: url}
        return _swapped(block, swaps)
    if kind not in _PART_TYPES or form == "native" or url is None:
        return _swapped(block, {REMARK: {}})
    part_type = _PART_TYPES[kind]
    held: Any = url
    if form != "url":
        held = _audio_held(source) if kind == "audio" else _url_held(source, url)
    return _swapped(block, {"type": {"type": part_type}, "source": {part_type: held}, REMARK: {}})


def _swapped(data: Mapping[str, Any], swaps: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Return a copy of data with the items under some keys replaced, in place, by others, or by none."""
    swapped: dict[str, Any] = {}
    for key, value in data.items():
        swapped.update(swaps[key] if key in swaps else {key: copy_json(value)})
    return swapped


def _typeless_to_block(part: dict[str, Any]) -> Block:
    kinds = [key for key in _TYPELESS if key in part]
    if len(kinds) != 1:
        return part
    kind = kinds[0]
    if kind != "text" and isinstance(part[kind], str):
        part = _swapped(part, {kind: {"source": source_of(part[kind])}})
    return {"type": kind, **part, REMARK: {"form": "typeless"}}


def _media_to_block(part: dict[str, Any], part_type: str) -> Block:
    held = part.get(part_type)
    kind = _MEDIA[part_type]
    remark = {}
    source = None
    if isinstance(held, str) and kind != "audio":
        source, remark = source_of(held), {REMARK: {"form": "url"}}
    # What has names of ours in it, or lacks its own, cannot be told apart on the way back.
    elif isinstance(held, dict) and not {"type", "media_type"} & held.keys():
        source = _audio_source(held) if kind == "audio" else _url_source(held)
    if source is None:
        return part
    return {**_swapped(part, {"type": {"type": kind}, part_type: {"source": source}}), **remark}


def _url_source(held: dict[str, Any]) -> dict[str, Any] | None:
    if not isinstance(held.get("url"), str) or "data" in held:
        return None
    source = source_of(held["url"])
    return {"type": source.pop("type"), **_swapped(held, {"url": source})}


def _url_held(source: dict[str, Any], url: str) -> dict[str, Any]:
    if source["type"] == "url":
        return _swapped(source, {"type": {}, "url": {"url": url}})
    return _swapped(source, {"type": {}, "media_type": {}, "data": {"url": url}})


def _audio_source(held: dict[str, Any]) -> dict[str, Any] | None:
    data, audio_format = held.get("data"), held.get("format")
    if not isinstance(data, str) or not isinstance(audio_format, str) or "url" in held:
        return None
    if data.startswith(("http://", "https://", "data:")):
        return {"type": "url", **_swapped(held, {"data": {"url": data}})}
    if audio_format in AUDIO_FORMATS:
        return None
    return {"type": "base64", **_swapped(held, {"format": {"media_type": f"audio/{audio_format}"}})}


def _audio_held(source: dict[str, Any]) -> dict[str, Any]:
    name = str(source.get("media_type")).removeprefix("audio/")
    named = {"format": AUDIO_FORMATS.get(name, name)}
    held = _swapped(source, {"type": {}, "media_type": named, "url": {"data": source.get("url")}})
    if source["type"] == "url" and "format" not in held:
        held["format"] = posixpath.splitext(urlsplit(source["url"]).path)[1][1:].lower() or "mp3"
    return held


_CALL_KEYS = {"function": ("id", "type", "function"), "custom": ("id", "type", "custom")}
_HELD_KEYS = {"function": ("name", "arguments"), "custom": ("name", "input")}


def call_to_block(call: object, path: str) -> Block:
    """Return an element of `tool_calls` as a `tool_use` block."""
    data = as_dict(call)
    if data is None:
        raise wrong(path, "a dict", call)
    kind = data.get("type", "function")
    if not isinstance(kind, str | None):
        raise wrong(f"{path}.type", "a string", kind)
    call_id = data.get("id", "")  # Ollama and chat templates know none
    if not isinstance(call_id, str):
        raise wrong(f"{path}.id", "a string", call_id)
    holder = "custom" if kind == "custom" else "function"
    remark: dict[str, Any] = {} if kind in _CALL_KEYS else {"type": kind}
    remark |= remember(data, _CALL_KEYS[holder], _CALL_KEYS[holder], f"{path}.")
    if holder == "custom":
        remark["form"] = "custom"
    return _held_to_block(data.get(holder, MISSING), holder, call_id, f"{path}.{holder}", remark)


def function_call_to_block(call: object, path: str) -> Block:
    """Return a legacy `function_call` as a `tool_use` block; it has no id."""
    return _held_to_block(call, "function", "", path, {"form": "function_call"})


def _held_to_block(held: object, holder: str, call_id: str, path: str, remark: dict[str, Any]) -> Block:
    """Return what a call holds as its block; the remark on the call is given."""
    data = as_dict(held)
    if data is None:
        raise wrong(path, "a dict", held)
    canonical = _HELD_KEYS[holder]
    for key in canonical:
        value = data.get(key, MISSING)
        if not isinstance(value, str) and (key != "arguments" or as_dict(value) is None):
            raise wrong(f"{path}.{key}", "a string", value)
    text = data[canonical[1]]
    block: Block = {"type": "tool_use", "id": call_id, "name": data["name"]}
    own: dict[str, Any] = {}
    if holder == "custom":
        block["input"] = {"input": text}
    elif isinstance(text, str):
        block["input"] = parse_arguments(text)
        block["raw_input"] = text
    else:
        block["input"] = plain(text, f"{path}.arguments")
        own["arguments"] = "object"
    if inner := remember(data, canonical, canonical, f"{path}."):
        own["function"] = inner
    if own or remark:
        block[REMARK] = own | remark
    return block


def block_to_call(block: Block) -> dict[str, Any]:
    """Return a `tool_use` block as an element of `tool_calls`."""
    remark = remark_of(block)
    holder = "custom" if remark.get("form") == "custom" else "function"
    fields = {"id": block["id"], "type": remark.get("type", holder), holder: block_to_held(block)}
    keys = remark.get("keys", fields)
    if "type" not in keys:
        del fields["type"]
    if not block["id"] and "id" not in keys:
        del fields["id"]
    return assemble(fields, remark)


def block_to_held(block: Block) -> dict[str, Any]:
    """Return the dict inside a call: `function`, `custom`, or the legacy `function_call` itself."""
    remark = remark_of(block)
    arguments = block["input"]
    if remark.get("form") == "custom":
        text = arguments.get("input")
        is_text = isinstance(text, str) and len(arguments) == 1
        fields = {"name": block["name"], "input": text if is_text else dump_arguments(arguments)}
    else:
        as_object = remark.get("arguments") == "object"
        sent = copy_json(arguments) if as_object else arguments_text(block)
        fields = {"name": block["name"], "arguments": sent}
    return assemble(fields, remark.get("function", {}))


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
