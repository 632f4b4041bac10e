"""Previews: what stands in the view for a text that left it. One small recogniser per kind of text."""

from __future__ import annotations

from collections.abc import Callable

from context_compressor.offload.previews.json import preview_json
from context_compressor.offload.previews.names import name_line
from context_compressor.offload.previews.text import preview_text
from context_compressor.tokens.protocol import TokenCounter

Recogniser = Callable[[str, int, TokenCounter], str | None]
"""Takes a text, a limit in tokens and the counter; returns a preview within the limit, or None when the text
is not of its kind or nothing of it fits."""

RECOGNISERS: tuple[Recogniser, ...] = (preview_json,)
"""Asked in this order; what none of them knows is plain text."""

NAMES_SHARE = 0.5
"""Part of a preview given to the names in the text; the gain that `name_line` cites was measured with it."""

_MIN_TOKENS_FOR_NAMES = 50


def preview(text: str, max_tokens: int, counter: TokenCounter, *, plain: bool = False) -> str:
    """Return a preview of at most `max_tokens`, the same for the same text; "" when nothing fits.

    Args:
        text: any text.
        max_tokens: what the preview may cost.
        counter: what it is counted by.
        plain: whether only head and tail are wanted, whatever kind of text it is.
    """
    if max_tokens < _MIN_TOKENS_FOR_NAMES:
        return _body(text, max_tokens, counter, plain)
    body = _body(text, max_tokens - int(max_tokens * NAMES_SHARE), counter, plain)
    room = max_tokens - counter.count_text(body) - 1
    while room > 0:
        names = name_line(text, body, room, counter)
        if not names:
            break
        joined = f"{body}\n{names}" if body else names
        excess = counter.count_text(joined) - max_tokens
        if excess <= 0:
            return joined
        room -= excess
    return body


def _body(text: str, max_tokens: int, counter: TokenCounter, plain: bool) -> str:
    if max_tokens <= 0:
        return ""
    for recognise in () if plain else RECOGNISERS:
        shown = recognise(text, max_tokens, counter)
        if shown is not None:
            return shown
    return preview_text(text, max_tokens, counter, errors=not plain)


__all__ = ["RECOGNISERS", "Recogniser", "name_line", "preview", "preview_json", "preview_text"]
