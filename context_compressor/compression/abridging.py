"""What a summariser reads of what leaves the view: of long results only a part."""

from __future__ import annotations

from collections.abc import Iterable

from context_compressor.compression.view import READ_TOKENS
from context_compressor.messages.msg import Msg
from context_compressor.messages.parts import PartPath, replace_parts, text_parts
from context_compressor.offload.previews.making import preview
from context_compressor.tokens.protocol import TokenCounter


def abridge(messages: Iterable[Msg], counter: TokenCounter) -> tuple[Msg, ...]:
    """Return messages with a part in place of every result above `READ_TOKENS` tokens."""
    return tuple(_abridge(msg, counter) for msg in messages)


def _abridge(msg: Msg, counter: TokenCounter) -> Msg:
    shown: dict[PartPath, str] = {}
    for part in text_parts(msg):
        if part.kind != "tool_result" or len(part.text) <= READ_TOKENS:
            continue
        tokens = counter.count_text(part.text)
        if tokens > READ_TOKENS:
            shown[part.path] = preview(
                part.text, READ_TOKENS, counter.count_text, characters_per_token=len(part.text) / tokens
            )
    return replace_parts(msg, shown) if shown else msg
