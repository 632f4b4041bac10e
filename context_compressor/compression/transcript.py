"""Readable transcripts of what leaves the view. Pure; texts stand verbatim, media by their ref.

Only a line of a text that reads like a title of ours is indented by a space.

Transcripts hold no generated ids and no timestamps, so the same messages give the same transcript, and the
same ref, in any process.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from context_compressor.messages.media import MIN_CHARACTERS, is_data_url
from context_compressor.messages.msg import Block, Msg
from context_compressor.messages.openai.common import remark_of
from context_compressor.offload.protocol import ref_of

_TITLE_LIKE = re.compile(r"^=== (?:user|assistant|system|result of)\b.*===[ \t\r]*$", re.MULTILINE)
"""A line that would pass for a title: indented by a space, a tool cannot speak in the user's name."""


@dataclass(frozen=True, slots=True)
class Transcript:
    """A transcript and the media texts (`data:` URLs) that it names by ref."""

    text: str
    media: tuple[str, ...]


def render_transcript(messages: Sequence[Msg], *, segments: int = 0) -> Transcript:
    """Return the transcript of messages as `shown_message` gives them.

    Args:
        messages: what leaves the view, oldest first.
        segments: how many of them, at the start, are earlier segments that are merged; the transcript is then
            the list of their contents, each with its own ref.
    """
    media: dict[str, None] = {}
    sections = []
    if segments:
        sections.append(f"[Contents: {segments} earlier parts of the conversation, oldest first]")
    if len(messages) > segments:
        sections.append(f"[Transcript of {len(messages) - segments} messages, oldest first]")
    for msg in messages:
        lines: list[str] = []
        title: str = msg.role
        if isinstance(msg.content, str):
            lines.append(msg.content)
        else:
            results = [block for block in msg.content if block.get("type") == "tool_result"]
            if results:
                title = "result of " + ", ".join(str(block.get("name") or msg.name) for block in results)
            for block in msg.content:
                lines += _render_block(block, media)
        if title == "user" and msg.name not in ("user", ""):
            title = f"user {msg.name}"
        lines += _render_extra(remark_of(msg.metadata), media)
        title = " ".join(title.split())  # names come from outside
        said = "\n".join(lines)
        if "=== " in said:  # to look for it takes a twentieth of the time
            said = _TITLE_LIKE.sub(r" \g<0>", said)
        sections.append(f"=== {title} ===\n{said}")
    return Transcript("\n\n".join(sections), tuple(media))


def _render_block(block: Block, media: dict[str, None]) -> list[str]:
    kind = block.get("type")
    if kind == "text" and isinstance(block.get("text"), str):
        return [block["text"]]
    if kind == "thinking" and isinstance(block.get("thinking"), str):
        return ["[thinking]", block["thinking"]]
    if kind == "tool_use":
        remark = remark_of(block)
        extra = [
            line for holder in (remark.get("function", {}), remark) for line in _render_extra(holder, media)
        ]
        return [call_text(block), *extra]
    if kind == "tool_result":
        output = block["output"]
        if isinstance(output, str):
            return [output]
        return [line for inner in output for line in _render_block(inner, media)]
    source = block.get("source")
    if isinstance(source, dict) and isinstance(source.get("data"), str) and source.get("type") == "base64":
        url = f"data:{source.get('media_type', '')};base64,{source['data']}"
        block = {**block, "source": {**source, "data": _media_ref(url, media)}}
    return [json.dumps(_without_media(block, media), ensure_ascii=False, default=str)]


def _render_extra(remark: Mapping[str, Any], media: dict[str, None]) -> list[str]:
    """Return what a chat dict said outside its content: sources of a web search, a thought's signature."""
    return [
        f"[{key}] {json.dumps(_without_media(value, media), ensure_ascii=False)}"
        for key, value in remark.get("extra", {}).items()
        if isinstance(value, list | dict | str) and value
    ]


def call_text(block: Block) -> str:
    """Return a call as transcripts have it: the tool, then its arguments."""
    return f"[call of {block['name']}]\n{arguments_text(block)}"


def arguments_text(block: Block) -> str:
    """Return a call's arguments as received; those that were never an object stand under a key of ours."""
    if block.get("raw_input") is not None:
        return str(block["raw_input"])
    custom = remark_of(block).get("form") == "custom"
    wrapped = block["input"].get("input" if custom else "arguments")
    if len(block["input"]) == 1 and isinstance(wrapped, str):
        return wrapped
    return json.dumps(block["input"], ensure_ascii=False, default=str)


def _without_media(value: Any, media: dict[str, None]) -> Any:
    if isinstance(value, str):
        return _media_ref(value, media) if is_data_url(value) else value
    if isinstance(value, list):
        return [_without_media(item, media) for item in value]
    if isinstance(value, dict):
        return {key: _without_media(item, media) for key, item in value.items()}
    return value


def _media_ref(url: str, media: dict[str, None]) -> str:
    if len(url) < MIN_CHARACTERS:
        return url
    media[url] = None
    return ref_of(url)
