"""Messages in pieces of a size: what is more than a writer reads is split between exchanges."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from context_compressor.messages.exchanges import ExchangeBuilder
from context_compressor.messages.msg import Block, Msg, tool_names
from context_compressor.summarizers.prompts import render_arguments, render_conversation, render_output
from context_compressor.tokens.counter import TokenCounter

Part = tuple[Msg, ...]

_MIN_LINE_SHARE = 0.5
"""A piece ends with a line where that leaves it at least this much of its room."""
_SHRINK = 0.8
"""A piece that is too long keeps this share of its length at most; one that fills less of its room grows."""


def count_material(messages: Sequence[Msg], counter: TokenCounter) -> int:
    """Return what messages cost as a prompt shows them."""
    return counter.count_text(render_conversation(messages)) if messages else 0


def split_messages(messages: Sequence[Msg], room: int, counter: TokenCounter) -> list[Part]:
    """Return the messages in parts of at most `room` tokens each, of about the same size, in order.

    A piece smaller than one character's tokens cannot be made; `room` should be some hundred.
    """
    units: list[tuple[Part, int]] = []
    for exchange in _exchanges(messages):
        tokens = count_material(exchange, counter)
        if tokens <= room:
            units.append((exchange, tokens))
        else:
            units += _split_exchange(exchange, room, counter)
    return _pack(units, room)


def _exchanges(messages: Sequence[Msg]) -> Iterator[Part]:
    """Yield runs of messages that stay together; the messages are those given, not repaired ones."""
    given = {str(index): msg for index, msg in enumerate(messages)}
    builder = ExchangeBuilder()
    exchanges = [exchange for key, msg in given.items() for exchange in builder.feed(key, msg)]
    for exchange in [*exchanges, *builder.flush()]:
        # One message may be part of two exchanges; empty ones are part of none.
        if run := tuple(given.pop(key) for key in dict.fromkeys(m.key for m in exchange) if key in given):
            yield run


def _pack(units: Sequence[tuple[Part, int]], room: int) -> list[Part]:
    """Join neighbours into parts that are as few as fit, and of about the same size."""
    total = sum(tokens for _, tokens in units)
    share = total / max(1, math.ceil(total / room))
    parts: list[Part] = []
    current: list[Msg] = []
    used = done = 0
    for unit, tokens in units:
        if current and (used + tokens > room or done + tokens / 2 > share * (len(parts) + 1)):
            parts.append(tuple(current))
            current, used = [], 0
        current += unit
        used += tokens
        done += tokens
    return [*parts, tuple(current)] if current else parts


def _split_exchange(exchange: Part, room: int, counter: TokenCounter) -> Iterator[tuple[Part, int]]:
    names = tool_names(exchange)
    for msg in exchange:
        named = _with_result_names(msg, names)
        tokens = count_material([named], counter)
        if tokens <= room:
            yield (named,), tokens
            continue
        for block, key, text in _texts(named):
            yield from _split_text_of(named, block, key, text, room, counter)


def _texts(msg: Msg) -> Iterator[tuple[Block, str, str]]:
    """Yield the texts of a message, each with the block that is to hold a piece of it, and the key there."""
    quoting: Block = {"type": "text"}
    for block in msg.get_content_blocks():
        kind = block.get("type")
        if kind == "tool_result":
            yield block, "output", render_output(block["output"])
        elif kind == "tool_use":
            # A piece of arguments is no longer a call with arguments; it reads as one that is quoted.
            yield quoting, "text", f"call of {block['name']}: {render_arguments(block)}"
        elif kind == "text":
            yield block, "text", block["text"]
        elif kind != "thinking":
            yield quoting, "text", render_output([block])


def _split_text_of(
    msg: Msg, block: Block, key: str, text: str, room: int, counter: TokenCounter
) -> Iterator[tuple[Part, int]]:
    def part_of(piece: str) -> Part:
        other = msg.copy()
        other.content = [{**block, key: piece}]
        return (other,)

    for piece, tokens in split_text(text, room, lambda piece: count_material(part_of(piece), counter)):
        yield part_of(piece), tokens


def _with_result_names(msg: Msg, names: dict[str, str]) -> Msg:
    """Return a message whose results bear the names of their tools, which the calls will no longer tell."""
    if isinstance(msg.content, str) or not any(block.get("id") in names for block in msg.content):
        return msg
    other = msg.copy()
    other.content = [
        {**block, "name": names[block["id"]]}
        if block.get("type") == "tool_result" and block["id"] in names
        else block
        for block in msg.content
    ]
    return other


def split_text(text: str, room: int, count: Callable[[str], int]) -> Iterator[tuple[str, int]]:
    """Yield `text` in pieces of at most `room` tokens, and what each costs, ended by lines if it can be."""
    start = 0
    length = max(1, room)
    while start < len(text):
        piece = text[start : start + length]
        tokens = count(piece)
        if tokens > room and len(piece) > 1:
            length = max(1, int(len(piece) * min(_SHRINK, room / tokens)))
            continue
        if start + len(piece) < len(text):
            if tokens < _SHRINK * room:
                longer = text[start : start + max(length + 1, int(length * min(4.0, room / max(1, tokens))))]
                if count(longer) <= room:
                    length = len(longer)
                    continue
            end = piece.rfind("\n") + 1
            if end >= _MIN_LINE_SHARE * len(piece):
                piece = piece[:end]
                tokens = count(piece)
        yield piece, tokens
        start += len(piece)
