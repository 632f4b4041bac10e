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
_WORTH_ANOTHER = 0.15
"""Part of a preview that may stay empty."""


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
    names_tokens = int(max_tokens * NAMES_SHARE)
    body = _body(text, max_tokens - names_tokens, counter, plain)
    names = name_line(text, body, names_tokens, counter)
    joined = _join(body, names)
    left_over = max_tokens - counter.count_text(joined)
    room = max_tokens - counter.count_text(names) - 1
    # Once more with what the names leave over, where it is worth the time; or with less, since joining two
    # texts may cost a token or two more than both.
    while left_over < 0 or left_over > max_tokens * _WORTH_ANOTHER:
        body = _body(text, room, counter, plain)
        joined = _join(body, names)
        left_over = max_tokens - counter.count_text(joined)
        if left_over >= 0:
            break
        room += left_over
    return joined


def _join(body: str, names: str) -> str:
    return "\n".join(filter(None, (body, names)))


def _body(text: str, max_tokens: int, counter: TokenCounter, plain: bool) -> str:
    if max_tokens <= 0:
        return ""
    for recognise in () if plain else RECOGNISERS:
        shown = recognise(text, max_tokens, counter)
        if shown is not None:
            return shown
    return preview_text(text, max_tokens, counter, errors=not plain)


__all__ = ["RECOGNISERS", "Recogniser", "name_line", "preview", "preview_json", "preview_text"]
