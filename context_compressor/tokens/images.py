"""What an image costs, from its width and height, which stand in the first bytes of its file."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable

ImageFormula = Callable[[int, int, bool, int | None], int]
"""Tokens of an image of a width and a height in pixels, with `detail: "low"` or without, and the most pixels
that it may keep (Qwen-VL's `max_pixels`) where the message says so."""

QWEN_PIXELS_PER_SIDE = 28
QWEN_MIN_TOKENS = 4
QWEN_MAX_TOKENS = 2_560
QWEN_MARKER_TOKENS = 2
"""Alibaba Cloud Model Studio, "Visual understanding": sides are rounded to multiples of 28 pixels (32 since
Qwen3-VL, which is cheaper), a token each, two more around the image. Larger images are scaled down to at most
1,280 tokens, 2,560 since Qwen3-VL, unless `max_pixels`, beside the image in the message, sets another limit,
or the request does (`vl_high_resolution_images`), which a message does not show.
"""

OPENAI_BOX = 2_048
OPENAI_SHORT_SIDE = 768
OPENAI_TILE = 512
OPENAI_PATCH = 32
"""OpenAI, "Images and vision": models with tiles scale an image into a 2,048-pixel box, then its short side
to 768, and charge a base and so much per 512-pixel tile (`detail: "low"`: the base alone); models with
patches charge for patches of 32 pixels, up to a limit to which larger images are scaled, times a factor.
"""

_OPENAI_TILE_TOKENS = {  # (base, per tile), by the longest prefix of the model's name
    "gpt-4o-mini": (2_833, 5_667),
    "gpt-4": (85, 170),
    "chatgpt-4o": (85, 170),
    "gpt-5": (70, 140),
    "o1": (75, 150),
    "o3": (75, 150),
}
_OPENAI_PATCHES = {  # (factor, limit)
    "gpt-4.1-mini": (1.62, 1_536),
    "gpt-4.1-nano": (2.46, 1_536),
    "gpt-5-mini": (1.62, 1_536),
    "gpt-5-nano": (2.46, 1_536),
    "gpt-5.2": (1.2, 1_536),
    "gpt-5.3": (1.2, 1_536),
    "gpt-5.4": (1.2, 2_500),
    "gpt-5.4-mini": (1.62, 2_500),
    "gpt-5.4-nano": (2.46, 2_500),
    "gpt-5.5": (1.2, 10_000),  # unless `detail` says otherwise
    "o4-mini": (1.72, 1_536),
}

_HEADER_CHARACTERS = 64
_JPEG_HEADER_CHARACTERS = 400_000
"""How much of a JPEG is searched: colour profiles, previews and Exif data may stand before its size."""
_BASE64URL_TO_BASE64 = str.maketrans("-_", "+/", "\r\n")


def openai_tiles(base: int, tile: int) -> ImageFormula:
    """Return the formula of an OpenAI model that charges by tiles."""

    def tokens(width: int, height: int, is_low_detail: bool, _max_pixels: int | None) -> int:
        if is_low_detail:
            return base
        scale = min(1.0, OPENAI_BOX / max(width, height))
        scale *= min(1.0, OPENAI_SHORT_SIDE / (min(width, height) * scale))
        return base + tile * math.prod(
            math.ceil(round(side * scale) / OPENAI_TILE) for side in (width, height)
        )

    return tokens


def openai_patches(factor: float, limit: int) -> ImageFormula:
    """Return the formula of an OpenAI model that charges by patches, `detail` aside."""

    def tokens(width: int, height: int, _is_low_detail: bool, _max_pixels: int | None) -> int:
        patches = math.ceil(width / OPENAI_PATCH) * math.ceil(height / OPENAI_PATCH)
        if patches > limit:
            # Scaled to that area, then further down until one side has whole patches.
            scale = math.sqrt(limit / (width * height))
            sides = width * scale, height * scale
            fit = min(max(math.floor(side), 1) / side for side in sides)
            patches = min(limit, math.prod(math.ceil(round(side * fit, 6)) for side in sides))
        return math.ceil(factor * patches)

    return tokens


def qwen_tokens(width: int, height: int, _is_low_detail: bool, max_pixels: int | None) -> int:
    """Return an image's tokens in a Qwen-VL model; `detail` is unknown to it."""
    sides = width / QWEN_PIXELS_PER_SIDE, height / QWEN_PIXELS_PER_SIDE
    most = QWEN_MAX_TOKENS if max_pixels is None else max_pixels / QWEN_PIXELS_PER_SIDE**2
    tokens = math.prod(map(round, sides))
    if tokens > most:
        scale = math.sqrt(most / math.prod(sides))
        tokens = math.prod(max(math.floor(side * scale), 1) for side in sides)
    elif tokens < QWEN_MIN_TOKENS:
        scale = math.sqrt(QWEN_MIN_TOKENS / math.prod(sides))
        tokens = math.prod(math.ceil(side * scale) for side in sides)
    return max(tokens, QWEN_MIN_TOKENS) + QWEN_MARKER_TOKENS


def highest_tokens(width: int, height: int, is_low_detail: bool, max_pixels: int | None) -> int:
    """Return what an image costs at most in GPT-4o or Qwen-VL, for models whose formula is not known."""
    formulas = (openai_tiles(85, 170), qwen_tokens)
    return max(formula(width, height, is_low_detail, max_pixels) for formula in formulas)


def openai_formula(model: str) -> ImageFormula:
    """Return the formula of an OpenAI model, GPT-4o's where none is published."""
    name = model.rpartition("/")[2].lower().removeprefix("ft:")
    prefixes = [prefix for prefix in (*_OPENAI_TILE_TOKENS, *_OPENAI_PATCHES) if name.startswith(prefix)]
    prefix = max(prefixes, key=len, default="gpt-4")
    if prefix in _OPENAI_PATCHES:
        return openai_patches(*_OPENAI_PATCHES[prefix])
    return openai_tiles(*_OPENAI_TILE_TOKENS[prefix])


def image_size(data: str) -> tuple[int, int] | None:
    """Return width and height in pixels of a PNG, JPEG, GIF or WebP in base64; None if they are not found."""
    header = _decode(data[:_HEADER_CHARACTERS])
    size: tuple[int, int] | None = None
    if header.startswith(b"\x89PNG\r\n\x1a\n") and len(header) >= 24:
        size = _big(header[16:20]), _big(header[20:24])
    elif header.startswith((b"GIF87a", b"GIF89a")):
        size = _little(header[6:8]), _little(header[8:10])
    elif header.startswith(b"RIFF") and header[8:12] == b"WEBP":
        size = _webp_size(header)
    elif header.startswith(b"\xff\xd8"):
        size = _jpeg_size(_decode(data[:_JPEG_HEADER_CHARACTERS]))
    return size if size and all(size) else None


def _decode(data: str) -> bytes:
    data = data.translate(_BASE64URL_TO_BASE64)
    try:
        return base64.b64decode(data[: len(data) // 4 * 4])
    except (binascii.Error, ValueError):
        return b""


def _webp_size(data: bytes) -> tuple[int, int] | None:
    if data[12:16] == b"VP8 ":
        return _little(data[26:28]) & 0x3FFF, _little(data[28:30]) & 0x3FFF
    if data[12:16] == b"VP8L":
        bits = _little(data[21:25])
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if data[12:16] == b"VP8X":
        return _little(data[24:27]) + 1, _little(data[27:30]) + 1
    return None


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    position = 2
    while position + 9 <= len(data) and data[position] == 0xFF:
        marker = data[position + 1]
        if marker == 0xFF:  # padding between segments
            position += 1
        # Start-of-frame markers hold the size; C4, C8 and CC share their range and mean something else.
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return _big(data[position + 7 : position + 9]), _big(data[position + 5 : position + 7])
        else:
            position += 2 + _big(data[position + 2 : position + 4])
    return None


def _big(data: bytes) -> int:
    return int.from_bytes(data, "big")


def _little(data: bytes) -> int:
    return int.from_bytes(data, "little")
