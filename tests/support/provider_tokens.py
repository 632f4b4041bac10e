"""How long a request is, counted by the server's side: nothing here asks the library."""

from __future__ import annotations

import base64
import importlib.util
import json
from collections.abc import Iterable
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import tiktoken

MESSAGE_TOKENS = 4
"""What a chat template puts around a message, as `<|im_start|>role` and `<|im_end|>` with their newlines."""
MEDIUM_TOKENS = 1_000
"""An image, a video, a recording or a file, whatever its size."""

_PIECE_CHARACTERS = 100_000
_QWEN_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_MEDIA = frozenset(
    {"image_url", "image", "video_url", "video", "input_audio", "audio", "file", "document", "document_url"}
)

_MEDIA_BLOCKS = frozenset({"input_image", "input_file", "computer_screenshot", "image_generation_call"})
_SEALED = frozenset({"encrypted_content", "signature"})
_LABELS = frozenset(
    {
        "type",
        "role",
        "status",
        "id",
        "item_id",
        "cache_control",
        "annotations",
        "citations",
        "logprobs",
        "phase",
    }
    | {
        "image_url",
        "file_data",
        "file_url",
        "file_id",
        "result",
        "data",
        "url",
        "media_type",
        "detail",
        "caller",
    }
)


def count_request(messages: Iterable[Any], tools: Iterable[Any] = ()) -> int:
    """Return the tokens of a request as its model reads it: texts, names, ids, arguments, tools, overhead."""
    return sum(map(count_message, messages)) + sum(count_text(_dump(tool)) for tool in tools)


def count_message(message: Any) -> int:
    """Return the tokens of one chat dict."""
    if not isinstance(message, dict):
        return MESSAGE_TOKENS
    total = MESSAGE_TOKENS + _count_content(message.get("content"))
    for key in ("name", "tool_call_id", "reasoning_content", "refusal"):
        total += count_text(message.get(key))
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else []:
        if isinstance(call, dict):
            total += count_text(call.get("id")) + _count_call(call.get("function") or call.get("custom"))
    return total + _count_call(message.get("function_call"))


def count_blocks(messages: Iterable[Any], *others: Any) -> int:
    """Return the tokens of Responses items or Anthropic messages, and of what goes with them.

    Every text counts but labels; media are worth `MEDIUM_TOKENS`, what is encrypted a quarter of its length.
    """
    return sum(MESSAGE_TOKENS + _count_value(message) for message in messages) + sum(
        map(_count_value, others)
    )


def count_text(text: object) -> int:
    """Return the tokens of a text in the Qwen vocabulary; 0 for anything else."""
    if not isinstance(text, str):
        return 0
    return sum(
        _count_piece(text[start : start + _PIECE_CHARACTERS])
        for start in range(0, len(text), _PIECE_CHARACTERS)
    )


def _count_call(function: Any) -> int:
    if not isinstance(function, dict):
        return 0
    arguments = function.get("arguments", function.get("input"))
    if arguments is not None and not isinstance(arguments, str):
        arguments = _dump(arguments)
    return count_text(function.get("name")) + count_text(arguments)


def _count_content(content: Any) -> int:
    if isinstance(content, str):
        return count_text(content)
    return sum(map(_count_part, content)) if isinstance(content, list) else 0


def _count_part(part: Any) -> int:
    if not isinstance(part, dict):
        return 0
    total = 0
    for key, value in part.items():
        if key in _MEDIA:
            total += MEDIUM_TOKENS
        elif key == "text":
            total += count_text(value)
        elif key not in ("type", "source"):
            total += count_text(value if isinstance(value, str) else _dump(value))
    return total


def _count_value(value: Any) -> int:
    if isinstance(value, list):
        return sum(map(_count_value, value))
    if not isinstance(value, dict):
        return count_text(value if isinstance(value, str) or value is None else _dump(value))
    total = MEDIUM_TOKENS if value.get("type") in _MEDIA_BLOCKS else 0
    for key, inner in value.items():
        if key in _SEALED and isinstance(inner, str):
            total += len(inner) // 4
        elif key in ("input", "arguments") and not isinstance(inner, str):
            total += count_text(_dump(inner))
        elif key == "source" and isinstance(inner, dict):
            total += _count_source(inner)
        elif key not in _LABELS:
            total += _count_value(inner)
    return total


def _count_source(source: dict[str, Any]) -> int:
    """Return what a document costs that is text; all other media cost the same."""
    if source.get("type") == "text":
        return count_text(source.get("data"))
    return _count_value(source.get("content")) if source.get("type") == "content" else MEDIUM_TOKENS


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


# An agent sends its growing conversation again and again.
@lru_cache(maxsize=20_000)
def _count_piece(text: str) -> int:
    return len(_encoding().encode_ordinary(text))


@cache
def _encoding() -> tiktoken.Encoding:
    spec = importlib.util.find_spec("dashscope")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    path = Path(spec.submodule_search_locations[0]) / "resources" / "qwen.tiktoken"
    lines = (line.split() for line in path.read_bytes().splitlines() if line)
    ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
    return tiktoken.Encoding("qwen-server", pat_str=_QWEN_PATTERN, mergeable_ranks=ranks, special_tokens={})
