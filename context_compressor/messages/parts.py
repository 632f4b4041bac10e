"""What can leave a message, each part with an address: texts, long arguments of calls, media."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any, Literal, NamedTuple

from context_compressor.messages.media import encoded_media
from context_compressor.messages.msg import Block, Msg, copy_json
from context_compressor.messages.remark import text_block_like
from context_compressor.messages.text import dump_sendable

PartPath = tuple[int, ...]
"""Where a part stands.

`()` a string content; `(i,)` text block i; `(i, -1)` the string output of the tool result in block i;
`(i, j)` text block j in its list output; `(i, -2, k)` the k-th string in the arguments of the call in
block i, read depth first; `(i, -3)` block i, which holds media; `(i, j, -3)` block j, which holds media, in
the list output of the tool result in block i.
"""

PartKind = Literal["text", "tool_result", "argument", "image", "audio", "video", "file"]

MIN_ARGUMENT_CHARACTERS = 400
"""Shorter arguments are never shortened: commands, queries and paths say what a call was."""

_ARGUMENT, _MEDIA = -2, -3


class Part(NamedTuple):
    """A part of a message, with its address."""

    path: PartPath
    kind: PartKind
    text: str
    """The text; for media their `data:` URL."""

    @property
    def is_media(self) -> bool:
        """Whether it is no text but an image, audio, video or file."""
        return self.kind not in ("text", "tool_result", "argument")


def text_parts(msg: Msg) -> list[Part]:
    """Return the message's plain texts and tool-result texts, in order; thinking and arguments are not."""
    if isinstance(msg.content, str):
        return [Part((), "text", msg.content)]
    parts: list[Part] = []
    for i, block in enumerate(msg.content):
        kind = block.get("type")
        if kind == "text":
            parts.append(Part((i,), "text", block["text"]))
        elif kind == "tool_result":
            output = block["output"]
            if isinstance(output, str):
                parts.append(Part((i, -1), "tool_result", output))
            else:
                texts = [(j, inner["text"]) for j, inner in enumerate(output) if _is_text(inner)]
                parts += [Part((i, j), "tool_result", text) for j, text in texts]
    return parts


def plain_texts(msg: Msg) -> list[str]:
    """Return the texts of `text_parts`, without their addresses."""
    return [msg.content] if isinstance(msg.content, str) else [part.text for part in text_parts(msg)]


def other_parts(msg: Msg) -> list[Part]:
    """Return the long arguments of the message's calls, and the media whose data it holds, in order."""
    if isinstance(msg.content, str):
        return []
    parts: list[Part] = []
    for i, block in enumerate(msg.content):
        kind = block.get("type")
        if kind == "tool_use":
            arguments = [
                Part((i, _ARGUMENT, k), "argument", text)
                for k, text in enumerate(_strings(block["input"]))
                if len(text) >= MIN_ARGUMENT_CHARACTERS
            ]
            if arguments and not _repeats_a_key(block.get("raw_input")):
                parts += arguments
        elif kind == "tool_result":
            if not isinstance(block["output"], str):
                for j, inner in enumerate(block["output"]):
                    if (media := encoded_media(inner)) is not None:
                        parts.append(Part((i, j, _MEDIA), media.kind, media.url))
        elif (media := encoded_media(block)) is not None:
            parts.append(Part((i, _MEDIA), media.kind, media.url))
    return parts


def thinking_characters(msg: Msg) -> int:
    """Return the characters of what the model thought, which leaves only with its message."""
    blocks = [] if isinstance(msg.content, str) else msg.content
    return sum(len(block["thinking"]) for block in blocks if block.get("type") == "thinking")


def is_argument(path: PartPath) -> bool:
    """Tell whether an address is that of an argument of a call."""
    return path[1:2] == (_ARGUMENT,)


def part_at(msg: Msg, path: PartPath) -> Part | None:
    """Return the part at an address, or None when the message has none there."""
    return next((part for part in (*text_parts(msg), *other_parts(msg)) if part.path == path), None)


def replace_parts(msg: Msg, texts: Mapping[PartPath, str]) -> Msg:
    """Return a copy of `msg` in which the parts at the given addresses are replaced by texts.

    Arguments stay an object, in `raw_input` too; a block that held media becomes a text block.
    """
    other = msg.copy()
    arguments: dict[int, dict[int, str]] = {}
    for path, text in texts.items():
        if not path:
            other.content = text
            continue
        assert isinstance(other.content, list)
        block: Block = other.content[path[0]]
        if len(path) == 1:
            block["text"] = text
        elif path[1] == -1:
            block["output"] = text
        elif path[1] == _ARGUMENT:
            arguments.setdefault(path[0], {})[path[2]] = text
        elif path[1] == _MEDIA:
            other.content[path[0]] = text_block_like(block, text)
        elif path[-1] == _MEDIA:
            block["output"][path[1]] = text_block_like(block["output"][path[1]], text)
        else:
            block["output"][path[1]]["text"] = text
    for i, replaced in arguments.items():
        assert isinstance(other.content, list)
        block = other.content[i]
        block["input"] = _with_strings(block["input"], replaced)
        if "raw_input" in block:
            block["raw_input"] = dump_sendable(block["input"])
    return other


def _is_text(part: Any) -> bool:
    return part.get("type") == "text" and isinstance(part.get("text"), str)


def _repeats_a_key(arguments: str | None) -> bool:
    """Tell whether JSON text says more than its parsed form: written anew, it would lose the first value."""
    repeats: list[bool] = []
    try:
        json.loads(
            arguments or "{}", object_pairs_hook=lambda pairs: repeats.append(len(dict(pairs)) < len(pairs))
        )
    except (ValueError, RecursionError):
        return False  # then it is out of date, and `input` is what is sent
    return any(repeats)


def leaves_of(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each scalar in JSON-like data, depth first, with the key that it stands under."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from leaves_of(item, str(name))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from leaves_of(item, key)
    else:
        yield key, value


def argument_lines(value: Any) -> Iterator[str]:
    """Yield the scalars of a call's arguments as `key: value` lines, so that keys stand beside values."""
    return (f"{key}: {leaf}" if key else str(leaf) for key, leaf in leaves_of(value))


def _strings(value: Any) -> Iterator[str]:
    return (leaf for _, leaf in leaves_of(value) if isinstance(leaf, str))


def _with_strings(value: Any, replaced: Mapping[int, str]) -> Any:
    """Return JSON-like data with some of its strings replaced, counted as `_strings` yields them."""
    numbers = count()

    def walk(item: Any) -> Any:
        if isinstance(item, str):
            return replaced.get(next(numbers), item)
        if isinstance(item, dict):
            return {key: walk(inner) for key, inner in item.items()}
        if isinstance(item, list | tuple):
            return [walk(inner) for inner in item]
        return copy_json(item)

    return walk(value)
