"""The tool that shows media again."""

from __future__ import annotations

from typing import Any, Literal

from context_compressor.messages.media import is_data_url, kind_of_media, media_type_of
from context_compressor.messages.msg import Block, Msg
from context_compressor.messages.openai.parts import block_to_part, source_of
from context_compressor.offload.tools.arguments import Arguments, FinalAnswer
from context_compressor.offload.tools.history import Allowance, OffloadSource, find_ref, text_of
from context_compressor.offload.tools.schemas import READ_TOOL

Wire = Literal["openai", "dashscope"]


async def answer_load(memory: OffloadSource, allowance: Allowance, arguments: Arguments) -> str:
    """Return a sentence that announces media; `media_part` of what `find_media` returns has to follow it."""
    ref, url = await find_media(memory, allowance, arguments)
    return f"{ref} ({media_type_of(url) or kind_of_media(url)}) follows as a message of the user."


async def find_media(memory: OffloadSource, allowance: Allowance, arguments: Arguments) -> tuple[str, str]:
    """Return the ref of media that can be shown, and their `data:` URL."""
    arguments.check("ref")
    ref = await find_ref(memory, arguments.required("ref"))
    url = await text_of(memory, ref)
    if not is_data_url(url):
        raise FinalAnswer(f"{ref} is a text: read it with {READ_TOOL}.")
    shown = Msg("user", [_media_block(url)], "user", timestamp="", id="")
    tokens, allowed = memory.counter.count_messages([shown]), allowance.standing_tokens
    if tokens > allowed:
        raise FinalAnswer(
            f"{ref} cannot be shown: it takes {tokens} tokens, and {allowed} are allowed. Do not retry."
        )
    return ref, url


def media_part(url: str, wire: Wire) -> dict[str, Any]:
    """Return media as a content part, from their `data:` URL."""
    if wire == "dashscope":
        return {kind_of_media(url): url}
    return block_to_part(_media_block(url))


def _media_block(url: str) -> Block:
    kind = kind_of_media(url)
    if kind == "file":
        ending = media_type_of(url).rpartition("/")[2] or "bin"
        return {"type": "file", "file": {"filename": f"offloaded.{ending}", "file_data": url}}
    return {"type": kind, "source": source_of(url)}
