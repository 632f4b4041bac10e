"""Parts of content and tool calls of chat dicts, read as blocks and written back."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from context_compressor.messages.media import source_of, url_of
from context_compressor.messages.msg import Block, copy_json
from context_compressor.messages.wire import (
    MISSING,
    REMARK,
    WRAPPED,
    arguments_text,
    as_dict,
    assemble,
    dump_arguments,
    form_of,
    parse_arguments,
    plain,
    remark_of,
    remember,
    wrong,
)

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
