"""Stubs: the text that stands in the view for one that left it."""

from __future__ import annotations

from collections.abc import Sequence

from context_compressor.messages.media import MediaKind, media_type_of
from context_compressor.messages.text import sendable
from context_compressor.offload.guide import GUIDE, LOAD_TOOL, READ_TOOL, SHORT_GUIDE
from context_compressor.offload.previews.making import preview
from context_compressor.offload.previews.text import counted
from context_compressor.tokens.counter import TokenCounter
from context_compressor.tokens.media import image_size

_MIN_PREVIEW_TOKENS = 8
"""Below this a preview is a line number and a word or two: not worth its tokens."""


def stub_text(
    text: str,
    ref: str,
    counter: TokenCounter,
    *,
    tokens: int,
    max_tokens: int,
    what: str = "tool result",
    standing: Sequence[str] = (),
    guide: bool = False,
    names_tools: bool = True,
) -> str:
    """Return the complete stand-in for `text`: a header that names `ref`, a preview, what holds on.

    Can be sent as UTF-8. Costs at most `max_tokens`, or what `minimal_stub` costs where that is more. The
    header alone stands where no preview fits, the minimal stub where the header does not. Deterministic.
    Takes 5 to 15 ms, whatever the length: call it off the event loop.

    Args:
        text: the text that leaves.
        ref: where it is stored.
        counter: what the stub is counted by.
        tokens: what `text` costs, as counted before.
        max_tokens: what the stub may cost.
        what: what the text was. Of a message the preview is always of head and tail.
        standing: sentences, each on one line. Those that `text` holds stand behind the preview where it does
            not show them; where there is no room for all, the newest, which are the last.
        guide: whether the header is to say which tools bring back what left the view: in a few words where
            the whole would take more than half of `max_tokens`.
        names_tools: whether the minimal stub is to name its tool.
    """
    flat = " ".join(text.split()) if standing else ""
    least = counter.count_text(minimal_stub(ref, names_tools=names_tools)) if standing else 0
    kept: list[str] = []
    for line in reversed(standing):
        line_tokens = counter.count_text(sendable(f"\n{line}")) + 1  # joining may cost a token more than both
        if line in flat and least + line_tokens <= max_tokens:
            kept.insert(0, line)
            max_tokens -= line_tokens
    stub = _with_preview(text, ref, counter, tokens, max_tokens, what, guide=guide, names_tools=names_tools)
    shown = " ".join(stub.split()) if kept else ""
    return sendable("\n".join([stub, *(line for line in kept if line not in shown)]))


def _with_preview(
    text: str,
    ref: str,
    counter: TokenCounter,
    tokens: int,
    max_tokens: int,
    what: str,
    *,
    guide: bool,
    names_tools: bool,
) -> str:
    lines = counted(text.count("\n") + 1, "line")
    title = f"Offloaded {what} {ref}: {lines}, {len(text)} characters, {tokens} tokens"
    header = f"[{title}. {GUIDE}]" if guide else f"[{title}]"
    header_tokens = counter.count_text(header)
    if guide and header_tokens > max_tokens // 2:
        header = f"[{title}. {SHORT_GUIDE}]"
        header_tokens = counter.count_text(header)
    if header_tokens > max_tokens:
        shortest = f"[offloaded: {ref}; {SHORT_GUIDE}]"
        fits = guide and counter.count_text(shortest) <= max_tokens
        return shortest if fits else minimal_stub(ref, names_tools=names_tools)

    def count(shown: str) -> int:
        # With its header, since joining two texts may cost a token more than both.
        return counter.count_text(sendable(f"{header}\n{shown}")) - header_tokens

    room = max_tokens - header_tokens
    if room <= _MIN_PREVIEW_TOKENS:
        return header
    shown = preview(
        text, room, count, plain=what == "message", characters_per_token=len(text) / max(tokens, 1)
    )
    return f"{header}\n{shown}" if shown else header


def media_stub(url: str, ref: str, kind: MediaKind, *, names_tools: bool = True) -> str:
    """Return the stand-in for media: it names kind, media type, size, dimensions of an image, and the tool.

    Their URL has the form `data:<media type>;base64,<data>`.
    """
    data = url[url.index(",") + 1 :]
    size = image_size(data) if kind == "image" else None
    pixels = f", {size[0]}x{size[1]} pixels" if size else ""
    number_of_bytes = len(data) * 3 // 4 - data[-2:].count("=")
    how = f"; see {LOAD_TOOL}" if names_tools else ""
    media_type = media_type_of(url) or "unknown type"
    return f"[Offloaded {kind} {ref}: {media_type}{pixels}, {number_of_bytes} bytes{how}]"


def minimal_stub(ref: str, *, names_tools: bool = True) -> str:
    """Return the shortest stand-in that still names `ref` and the tool that reads it."""
    return f"[offloaded: {ref}; {READ_TOOL}]" if names_tools else f"[offloaded: {ref}]"
