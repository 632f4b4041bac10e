"""What a summariser reads of what leaves the view: of long results and arguments only a preview.

What those name is kept by the index of artifacts, which reads them whole; what they say in full is one tool
call away. A model that read them, too, would be paid for every token of them and keep little of it. Nor does
it read the indices of earlier segments: what is kept of them stands in the new one, which it is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from context_compressor.compression.labels import without_index
from context_compressor.compression.view import ViewItem
from context_compressor.messages.msg import Msg
from context_compressor.messages.parts import PartPath, other_parts, replace_parts, text_parts
from context_compressor.messages.provenance import is_segment
from context_compressor.offload.previews.making import preview
from context_compressor.tokens.protocol import TokenCounter

_ABRIDGED = ("tool_result", "argument")


def abridge(
    messages: Iterable[Msg], max_tokens: int, counter: TokenCounter, *, indices: bool
) -> tuple[Msg, ...]:
    """Return messages with a preview in place of every result and argument above `max_tokens` tokens.

    Args:
        messages: what leaves.
        max_tokens: of a preview.
        counter: measures.
        indices: whether earlier segments keep theirs.
    """
    return tuple(
        _without_index(msg) if is_segment(msg) and not indices else _abridge(msg, max_tokens, counter)
        for msg in messages
    )


def _without_index(msg: Msg) -> Msg:
    return replace_parts(msg, {part.path: without_index(part.text) for part in text_parts(msg)})


def _abridge(msg: Msg, max_tokens: int, counter: TokenCounter) -> Msg:
    shown: dict[PartPath, str] = {}
    for part in (*text_parts(msg), *other_parts(msg)):
        if part.kind not in _ABRIDGED or len(part.text) <= max_tokens:
            continue
        tokens = counter.count_text(part.text)
        if tokens > max_tokens:
            short = preview(
                part.text, max_tokens, counter.count_text, characters_per_token=len(part.text) / tokens
            )
            lines = part.text.count("\n") + 1
            shown[part.path] = f"[{lines} lines, in part:]\n{short}"
    return replace_parts(msg, shown) if shown else msg


def tokens_read(items: Sequence[ViewItem], max_tokens: int, counter: TokenCounter, *, indices: bool) -> int:
    """Return about how many tokens a model reads of what leaves, abridged as `abridge` does."""
    tokens = sum(item.tokens for item in items)
    for item in items:
        if item.kind == "segment" and not indices:
            text = str(item.source.content)
            tokens -= counter.count_text(text[len(without_index(text)) :])
        if item.kind == "message" and item.tokens > max_tokens:
            for part, whole in (*item.texts(), *item.other_parts()):
                if part.kind in _ABRIDGED:
                    tokens -= max(0, whole - max_tokens)
    return tokens
