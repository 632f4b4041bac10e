"""How long a request is, counted by the server's side: nothing here asks the library.

One walk over the body as it was sent, in any form. Texts, names, ids, arguments and addresses count by the
tokenizer, media by the providers' formulas, what is sealed a quarter of its length. Labels count nothing.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import math
import unicodedata
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import tiktoken

MESSAGE_TOKENS = 5
"""What a chat template puts around a message, as `<|im_start|>role` and `<|im_end|>` with their newlines."""

_PIECE_CHARACTERS = 100_000
_QWEN_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_MEDIA = {
    **dict.fromkeys(("image", "image_url", "input_image", "computer_screenshot"), "image"),
    **dict.fromkeys(("image_generation_call",), "image"),
    **dict.fromkeys(("audio", "input_audio"), "audio"),
    **dict.fromkeys(("video", "video_url"), "video"),
    **dict.fromkeys(("file", "input_file", "document", "document_url"), "file"),
}
"""Types of parts that are media. DashScope's parts have such a key, and no type."""
_MEDIUM_TOKENS = {"audio": 1_500, "video": 4_096, "file": 3_000}
"""A minute, a clip, a dense page: how long one is, no request says."""
_FRAME_TOKENS = 384
_SCREEN = (1_920, 1_080)
_SEALED = frozenset({"encrypted_content", "encrypted_index", "encrypted_stdout", "signature"})
_LABELS = frozenset({"type", "role", "status", "phase", "cache_control", "prompt_cache_breakpoint"})
_OBJECTS = frozenset({"input", "arguments", "action", "operation", "parameters", "input_schema", "schema"})
"""What stands there goes to the model as JSON."""


def count_request(messages: Iterable[Any], tools: Iterable[Any] = ()) -> int:
    """Return the tokens of a request as its model reads it: messages and tools."""
    return sum(map(count_message, messages)) + sum(count_text(_dump(tool)) for tool in tools)


def count_blocks(messages: Iterable[Any], *others: Any) -> int:
    """Return the tokens of Responses items or Anthropic messages, and of what goes with them."""
    return sum(map(count_message, messages)) + sum(map(_count, others))


def count_message(message: Any) -> int:
    """Return the tokens of one message or item."""
    return MESSAGE_TOKENS + _count(message)


def count_text(text: object) -> int:
    """Return the tokens of a text in the Qwen vocabulary; 0 for anything else."""
    if not isinstance(text, str):
        return 0
    return sum(
        _count_piece(text[start : start + _PIECE_CHARACTERS])
        for start in range(0, len(text), _PIECE_CHARACTERS)
    )


def _count(value: Any, key: str = "") -> int:
    if isinstance(value, str):
        return 0 if key in _LABELS else math.ceil(len(value) / 4) if key in _SEALED else count_text(value)
    if isinstance(value, list | tuple):
        return sum(_count(item, key) for item in value)
    if not isinstance(value, Mapping) or key in _LABELS:
        return 0
    if key in _OBJECTS:
        return count_text(_dump(value))
    medium = _medium_tokens(value)
    if medium is not None:
        return medium
    sealed = {"data"} if value.get("type") == "redacted_thinking" else set()
    return sum(_count(item, "signature" if name in sealed else name) for name, item in value.items())


def _medium_tokens(part: Mapping[str, Any]) -> int | None:
    """Return what a medium costs; None: it is none, or a text that is given as a document."""
    named = (key for key in ("image", "audio", "video") if key in part and "type" not in part)
    kind = _MEDIA.get(str(part.get("type") or next(named, "")))
    source = part.get("source")
    if kind is None or (isinstance(source, Mapping) and source.get("type") in ("text", "content")):
        return None
    frames = part.get("video")
    if kind == "video" and isinstance(frames, list):
        return _FRAME_TOKENS * (len(frames) + len(frames) % 2)
    return _image_tokens(part) if kind == "image" else _MEDIUM_TOKENS[kind]


def _image_tokens(part: Any) -> int:
    """Return the more of what GPT-4o and Qwen-VL charge for an image."""
    width, height = _size_in(part) or _SCREEN
    if '"detail": "low"' in _dump(part):
        tiles = 0
    else:
        scale = min(1.0, 2_048 / max(width, height))
        scale *= min(1.0, 768 / (min(width, height) * scale))
        tiles = math.prod(math.ceil(round(side * scale) / 512) for side in (width, height))
    patches = round(width / 28) * round(height / 28)
    if patches > 2_560:
        shrink = math.sqrt(2_560 / (width * height)) * 28
        patches = math.prod(math.floor(side * shrink / 28) for side in (width, height))
    return max(85 + 170 * tiles, max(patches, 4) + 2)


def _size_in(value: Any) -> tuple[int, int] | None:
    """Return the size of the first PNG in a part."""
    if isinstance(value, str):
        data = value.partition(";base64,")[2] or value
        header = base64.b64decode(data[:64]) if data.startswith("iVBOR") else b""
        return (int.from_bytes(header[16:20]), int.from_bytes(header[20:24])) if header else None
    held = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return next(filter(None, map(_size_in, held)), None)


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


# An agent sends its growing conversation again and again.
@lru_cache(maxsize=20_000)
def _count_piece(text: str) -> int:
    return len(_encoding().encode_ordinary(unicodedata.normalize("NFC", text)))  # as Qwen's tokenizer does


@cache
def _encoding() -> tiktoken.Encoding:
    spec = importlib.util.find_spec("dashscope")
    path = Path(spec.submodule_search_locations[0]) / "resources" / "qwen.tiktoken"
    lines = (line.split() for line in path.read_bytes().splitlines() if line)
    ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
    return tiktoken.Encoding("qwen-server", pat_str=_QWEN_PATTERN, mergeable_ranks=ranks, special_tokens={})
