"""Parts of content and tool calls of chat dicts, read as blocks and written back."""

from __future__ import annotations

import json
import math
import posixpath
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from context_compressor.errors import InvalidMessageError
from context_compressor.messages.chat.common import (
    MAX_DEPTH,
    MISSING,
    REMARK,
    as_dict,
    assemble,
    plain,
    remark_of,
    remember,
    wrong,
)
from context_compressor.messages.msg import Block, copy_json
from context_compressor.messages.text import dump_sendable

WRAPPED = "openai_part"
"""Type of the block that holds a part which, unwrapped, would be taken for something else."""

_MEDIA = {"image_url": "image", "video_url": "video", "input_audio": "audio"}
_PART_TYPES = {kind: part_type for part_type, kind in _MEDIA.items()}
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
    if kind is None:
        return _typeless_to_block(data)
    if kind in _MEDIA:
        return _media_to_block(data, kind)
    if kind in _PART_TYPES and "source" in data:
        return {**data, REMARK: {"form": "native"}}
    return data


def block_to_part(block: Block) -> dict[str, Any]:
    """Return a block as a content part."""
    kind = block.get("type")
    if kind == WRAPPED and isinstance(block.get(WRAPPED), Mapping):
        return dict(copy_json(block[WRAPPED]))
    form = remark_of(block).get("form")
    if form == "typeless":
        return _block_to_typeless(block, str(kind))
    if kind in _PART_TYPES and form != "native":
        source = block.get("source")
        if isinstance(source, dict) and url_of(source) is not None:
            return _block_to_media(block, str(kind), source, form)
    return {key: copy_json(value) for key, value in block.items() if key != REMARK}


def url_of(source: Mapping[str, Any]) -> str | None:
    """Return a source as a URL, base64 data as a `data:` URL; None when it is neither."""
    if source.get("type") == "url" and isinstance(source.get("url"), str):
        return str(source["url"])
    if source.get("type") == "base64" and isinstance(source.get("data"), str):
        return f"data:{source.get('media_type', '')};base64,{source['data']}"
    return None


def source_of(url: str) -> dict[str, Any]:
    """Return a URL as a source: base64 where it splits exactly as `data:<type>;base64,<data>`, else a URL."""
    if url.startswith("data:"):
        media_type, found, data = url[5:].partition(";base64,")
        if found and not set(",;") & set(media_type):
            return {"type": "base64", "media_type": media_type, "data": data}
    return {"type": "url", "url": url}


def _media_to_block(part: dict[str, Any], part_type: str) -> Block:
    held = part.get(part_type)
    kind = _MEDIA[part_type]
    if "source" in part:
        return part
    if isinstance(held, str) and kind != "audio":
        return {**_with_source(part, part_type, kind, source_of(held)), REMARK: {"form": "url"}}
    # What has names of ours in it, or lacks its own, cannot be told apart on the way back.
    if not isinstance(held, dict) or {"type", "media_type"} & held.keys():
        return part
    source = _audio_source(held) if kind == "audio" else _url_source(held)
    return part if source is None else _with_source(part, part_type, kind, source)


def _with_source(part: dict[str, Any], key: str, kind: str, source: dict[str, Any]) -> Block:
    """Return `part` with its keys in place, `key` renamed to `source`."""
    block: Block = {}
    for name, value in part.items():
        if name == "type":
            block["type"] = kind
        elif name == key:
            block["source"] = source
        else:
            block[name] = value
    return block


def _url_source(held: dict[str, Any]) -> dict[str, Any] | None:
    if not isinstance(held.get("url"), str) or "data" in held:
        return None
    base = source_of(held["url"])
    source: dict[str, Any] = {"type": base.pop("type")}
    for key, value in held.items():
        source.update(base if key == "url" else {key: value})
    return source


def _audio_source(held: dict[str, Any]) -> dict[str, Any] | None:
    data, audio_format = held.get("data"), held.get("format")
    if not isinstance(data, str) or not isinstance(audio_format, str) or "url" in held:
        return None
    if data.startswith(("http://", "https://", "data:")):
        return {"type": "url"} | {("url" if key == "data" else key): value for key, value in held.items()}
    if audio_format in AUDIO_FORMATS:
        return None
    source: dict[str, Any] = {"type": "base64"}
    for key, value in held.items():
        source.update({"media_type": f"audio/{value}"} if key == "format" else {key: value})
    return source


def _block_to_media(block: Block, kind: str, source: dict[str, Any], form: str | None) -> dict[str, Any]:
    part_type = _PART_TYPES[kind]
    held = _audio_held(source) if kind == "audio" else _url_held(source)
    part: dict[str, Any] = {}
    for key, value in block.items():
        if key == "type":
            part["type"] = part_type
        elif key == "source":
            part[part_type] = url_of(source) if form == "url" else held
        elif key != REMARK:
            part[key] = copy_json(value)
    return part


def _url_held(source: dict[str, Any]) -> dict[str, Any]:
    place = "url" if source["type"] == "url" else "data"
    ours = ("type", "url") if place == "url" else ("type", "media_type", "data")
    held: dict[str, Any] = {}
    for key, value in source.items():
        if key == place:
            held["url"] = url_of(source)
        elif key not in ours:
            held[key] = copy_json(value)
    return held


def _audio_held(source: dict[str, Any]) -> dict[str, Any]:
    held: dict[str, Any] = {}
    for key, value in source.items():
        if key == "media_type":
            name = str(value).removeprefix("audio/")
            held["format"] = AUDIO_FORMATS.get(name, name)
        elif key != "type":
            held["data" if key == "url" else key] = copy_json(value)
    if source["type"] == "url" and "format" not in held:
        held["format"] = posixpath.splitext(urlsplit(source["url"]).path)[1][1:].lower() or "mp3"
    return held


def _typeless_to_block(part: dict[str, Any]) -> Block:
    kinds = [key for key in _TYPELESS if key in part]
    if len(kinds) != 1 or "source" in part:
        return part
    kind = kinds[0]
    remark = {REMARK: {"form": "typeless"}}
    if kind != "text" and isinstance(part[kind], str):
        return {"type": kind, **_with_source(part, kind, kind, source_of(part[kind])), **remark}
    return {"type": kind, **part, **remark}


def _block_to_typeless(block: Block, kind: str) -> dict[str, Any]:
    source = block.get("source")
    url = url_of(source) if isinstance(source, dict) else None
    part: dict[str, Any] = {}
    for key, value in block.items():
        if key == "source" and url is not None:
            part[kind] = url
        elif key not in ("type", REMARK):
            part[key] = copy_json(value)
    return part


_CALL_KEYS = {"function": ("id", "type", "function"), "custom": ("id", "type", "custom")}
_HELD_KEYS = {"function": ("name", "arguments"), "custom": ("name", "input")}


def parse_arguments(raw: str) -> dict[str, Any]:
    """Return a call's arguments: the object that `raw` spells in JSON, else `{"arguments": raw}`.

    Strict: NaN, infinities (also by overflow) and objects nested deeper than `MAX_DEPTH` are not accepted, so
    that what is returned can always be written as JSON again.
    """
    try:
        value = _DECODER.decode(raw)
        if type(value) is dict and (raw.count("{") + raw.count("[") <= MAX_DEPTH or plain(value, "")):
            return value
    except (ValueError, RecursionError):  # ValueError: no JSON, or an integer too long for Python
        pass
    return {"arguments": raw}


def dump_arguments(value: dict[str, Any]) -> str:
    """Return a call's `input` as JSON text, always an object.

    Raises:
        InvalidMessageError: the input holds something that JSON has no form for.
    """
    try:
        try:
            return dump_sendable(value, allow_nan=False)
        except ValueError:  # a NaN: readable for the model, in a form that any provider can parse
            return dump_sendable({"arguments": json.dumps(value, ensure_ascii=False)})
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidMessageError(f"tool_use.input: expected JSON data; {error}") from error


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
    block, remark = _read_held(data.get(holder, MISSING), holder, f"{path}.{holder}")
    block["id"] = call_id
    if kind not in _CALL_KEYS:
        remark["type"] = kind
    canonical = _CALL_KEYS[holder]
    remark |= remember(data, canonical, canonical, f"{path}.")
    if holder == "custom":
        remark["form"] = "custom"
    if remark:
        block[REMARK] = remark
    return block


def function_call_to_block(call: object, path: str) -> Block:
    """Return a legacy `function_call` as a `tool_use` block; it has no id."""
    block, remark = _read_held(call, "function", path)
    block[REMARK] = remark | {"form": "function_call"}
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
    if remark.get("form") == "custom":
        fields = {"name": block["name"], "input": _custom_input(block["input"])}
    else:
        as_object = remark.get("arguments") == "object"
        arguments = copy_json(block["input"]) if as_object else _arguments_text(block)
        fields = {"name": block["name"], "arguments": arguments}
    return assemble(fields, remark.get("function", {}))


def _read_held(held: object, holder: str, path: str) -> tuple[Block, dict[str, Any]]:
    data = as_dict(held)
    if data is None:
        raise wrong(path, "a dict", held)
    canonical = _HELD_KEYS[holder]
    for key in canonical:
        value = data.get(key, MISSING)
        if not isinstance(value, str) and (key != "arguments" or as_dict(value) is None):
            raise wrong(f"{path}.{key}", "a string", value)
    text = data[canonical[1]]
    block: Block = {"type": "tool_use", "id": "", "name": data["name"]}
    remark: dict[str, Any] = {}
    if holder == "custom":
        block["input"] = {"input": text}
    elif isinstance(text, str):
        block["input"] = parse_arguments(text)
        block["raw_input"] = text
    else:
        block["input"] = plain(text, f"{path}.arguments")
        remark["arguments"] = "object"
    inner = remember(data, canonical, canonical, f"{path}.")
    if inner:
        remark["function"] = inner
    return block, remark


def _arguments_text(block: Block) -> str:
    """Return the text as received while it still says what `input` says, else `input` as JSON."""
    # Compared as JSON text: to `==`, 1, 1.0 and True are one value, and an edit between them would not show.
    text = dump_arguments(block["input"])
    raw = block.get("raw_input")
    if isinstance(raw, str) and (raw == text or dump_arguments(parse_arguments(raw)) == text):
        return raw
    return text


def _custom_input(value: dict[str, Any]) -> str:
    text = value.get("input")
    return text if isinstance(text, str) and len(value) == 1 else dump_arguments(value)


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits} is beyond a float")
    return number


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)
