"""Images, audio, video and files in messages: data found in any block, and named as one URL."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from context_compressor.messages.msg import Block

MediaKind = Literal["image", "audio", "video", "file"]

MIN_CHARACTERS = 200
"""Shorter data stay where they are: what would stand for them is no smaller."""

_PREFIX = re.compile(r"data:([^,;\s]{0,200})(?:;[^,;\s]{1,200}){0,20};base64,")
_DATA = re.compile(r"(?:(?:[\w+/-]{76}\r?\n)++|(?:[\w+/-]{64}\r?\n)++)?[\w+/%=-]*+(?:\r?\n)?", re.ASCII)
"""Base64 in either alphabet, in one piece or in lines of 76 or 64 characters, as encoders write them."""
_KINDS: tuple[MediaKind, ...] = ("image", "audio", "video")
_NO_MEDIA = frozenset({"text", "thinking", "tool_use", "tool_result"})
_MAX_DEPTH = 4
_MEDIA_TYPE = re.compile(r"(?:input_)?(?:image|audio|video|file|document)(?:_url)?")


class Media(NamedTuple):
    """Data found in a block."""

    kind: MediaKind
    url: str
    """`data:<media type>;base64,<data>`, the form in which it is stored."""


def url_of(source: Mapping[str, Any]) -> str | None:
    """Return the source of a block as a URL, base64 data as a `data:` URL; None when it is neither."""
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


def is_data_url(text: str) -> bool:
    """Tell whether a text is a `data:` URL in base64 and nothing else; the data are not decoded."""
    prefix = _PREFIX.match(text)
    return prefix is not None and _DATA.fullmatch(text, prefix.end()) is not None


def media_type_of(url: str) -> str:
    """Return the media type of a `data:` URL, "" when it names none."""
    found = _PREFIX.match(url)
    return found[1] if found else ""


def kind_of_media(url: str) -> MediaKind:
    """Return the kind that a `data:` URL's media type names; whatever is unknown is a file."""
    head = media_type_of(url).partition("/")[0]
    return next((kind for kind in _KINDS if kind == head), "file")


def encoded_media(block: Block) -> Media | None:
    """Return the data in a block, or None when it holds none, a reference only, or data in several places."""
    if block.get("type") in _NO_MEDIA or _is_screenshot(block):
        return None
    urls = list(_data_urls(block, _MAX_DEPTH))
    if len(urls) != 1 or len(urls[0]) < MIN_CHARACTERS:
        return None
    kind = next((kind for kind in _KINDS if kind == block.get("type")), None)
    return Media(kind or kind_of_media(urls[0]), urls[0])


def media_named(blocks: Iterable[Block], name: str) -> Block | None:
    """Return the last block that shows media by this URL or file id, or None."""
    found: Block | None = None
    for block in blocks:
        within = block.get("output")
        if block.get("type") == "tool_result" and isinstance(within, list):
            found = media_named(within, name) or found
        part = block.get(str(block.get("type")))  # a part that only its own form knows
        kinds = [one.get("type") for one in (block, part) if isinstance(one, dict)]
        if any(_MEDIA_TYPE.fullmatch(str(kind)) for kind in kinds) and _is_named(block, name, _MAX_DEPTH):
            found = block
    return found


def _is_named(value: Any, name: str, depth: int) -> bool:
    if not isinstance(value, dict) or not depth:
        return False
    return any(
        (said == name and key.endswith(("url", "uri", "id"))) or _is_named(said, name, depth - 1)
        for key, said in value.items()
    )


def _is_screenshot(block: Block) -> bool:
    """Tell whether a block is a screenshot in the Responses API, in whose place no text may stand."""
    return any(
        isinstance(held, dict) and held.get("type") == "computer_screenshot" for held in block.values()
    )


def _data_urls(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        # A block that is no text holds a URL here, even where the data are damaged.
        if _PREFIX.match(value):
            yield value
    elif isinstance(value, dict) and depth:
        data, audio_format = value.get("data"), value.get("format")
        if isinstance(data, str) and value.get("type") == "base64":
            yield f"data:{value.get('media_type', '')};base64,{data}"
        elif (
            isinstance(data, str) and isinstance(audio_format, str) and not data.startswith(("data:", "http"))
        ):
            yield f"data:audio/{audio_format};base64,{data}"
        else:
            for item in value.values():
                yield from _data_urls(item, depth - 1)
    elif isinstance(value, list) and depth:
        for item in value:
            yield from _data_urls(item, depth - 1)
