"""What parts of Pydantic AI's messages hold, as parts of chat dicts and back."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from pydantic_ai.messages import (
    BinaryContent,
    FilePart,
    ImageUrl,
    ModelResponsePart,
    NativeToolReturnPart,
    SpeechPart,
    TextContent,
    TextPart,
    VideoUrl,
)
from pydantic_core import to_jsonable_python

Dict = dict[str, Any]

_UNSENT = {"timestamp", "part_kind", "tool_kind", "metadata", "outcome", "content_file_digests"}
"""What a part holds for the framework alone."""
_AUDIO_FORMATS = {"audio/wav": "wav", "audio/mpeg": "mp3"}


def part_of(item: Any) -> Dict | None:
    """Return a part of a content; None for what says nothing, the end of a cached prefix say."""
    if isinstance(item, FilePart):
        item = item.content
    if isinstance(item, str):
        return {"type": "text", "text": item}
    if isinstance(item, TextPart | TextContent):
        return {"type": "text", "text": item.content}
    if isinstance(item, SpeechPart):
        return {"type": "text", "text": item.transcript or ""}
    if isinstance(item, ImageUrl):
        return {"type": "image_url", "image_url": {"url": item.url}}
    if isinstance(item, VideoUrl):
        return {"type": "video_url", "video_url": {"url": item.url}}
    if isinstance(item, BinaryContent):
        return _binary(item)
    kind = getattr(item, "part_kind", None) or getattr(item, "kind", type(item).__name__)
    if kind == "cache-point":
        return None
    told = to_jsonable_python(item, serialize_unknown=True, exclude_none=True, exclude=_UNSENT)
    return {**(told if isinstance(told, dict) else {"value": told}), "type": kind}


def _binary(item: BinaryContent) -> Dict:
    kind = item.media_type.partition("/")[0]
    if kind == "text":
        return {"type": "text", "text": item.data.decode("utf-8", "replace")}
    if item.media_type in _AUDIO_FORMATS:
        audio_format = _AUDIO_FORMATS[item.media_type]
        return {"type": "input_audio", "input_audio": {"data": item.base64, "format": audio_format}}
    if kind in ("image", "video"):
        return {"type": f"{kind}_url", f"{kind}_url": {"url": item.data_uri}}
    return {"type": "file", "file": {"filename": item.identifier, "file_data": item.data_uri}}


def content_of(part: Dict) -> Any:
    """Return a chat dict's part as content of a prompt."""
    if "text" in part:
        return part["text"]
    held = part.get(part["type"])
    url = next((said for said in held.values() if ":" in str(said)), None) if isinstance(held, dict) else None
    if isinstance(held, dict) and "format" in held:
        media_type = next(
            (one for one, name in _AUDIO_FORMATS.items() if name == held["format"]), "audio/wav"
        )
        url = f"data:{media_type};base64,{held['data']}"
    if url is None:
        return dumped(part)
    return BinaryContent.from_data_uri(url) if url.startswith("data:") else ImageUrl(url)


def reply_part_of(part: Dict | str) -> ModelResponsePart:
    """Return a text, or a part of a chat dict, as a part of the model's reply."""
    if isinstance(part, str):
        return TextPart(part)
    if part.get("type") != NativeToolReturnPart.part_kind:
        return TextPart(str(content_of(part)))
    made = NativeToolReturnPart(part["tool_name"], part["content"], part["tool_call_id"])
    return replace(made, provider_name=part.get("provider_name"))


def dumped(value: Any) -> str:
    """Return anything as JSON text, the same for the same."""
    return json.dumps(to_jsonable_python(value, serialize_unknown=True), sort_keys=True)
