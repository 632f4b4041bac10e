"""What images, audio and files cost."""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Callable
from typing import Any, cast

from context_compressor.messages.media import MediaKind
from context_compressor.messages.msg import Block
from context_compressor.messages.plain import without_request_metadata
from context_compressor.messages.remark import without_remark

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
        tiles = (math.ceil(round(side * scale) / OPENAI_TILE) for side in (width, height))
        return base + tile * math.prod(tiles)

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
    width = height = 0
    if header.startswith(b"\x89PNG\r\n\x1a\n") and len(header) >= 24:
        width, height = _big(header[16:20]), _big(header[20:24])
    elif header.startswith((b"GIF87a", b"GIF89a")):
        width, height = _little(header[6:8]), _little(header[8:10])
    elif header.startswith(b"RIFF") and header[8:12] == b"WEBP":
        width, height = _webp_size(header)
    elif header.startswith(b"\xff\xd8"):
        width, height = _jpeg_size(_decode(data[:_JPEG_HEADER_CHARACTERS]))
    return (width, height) if width and height else None


def _decode(data: str) -> bytes:
    data = data.translate(_BASE64URL_TO_BASE64)
    try:
        return base64.b64decode(data[: len(data) // 4 * 4])
    except (binascii.Error, ValueError):
        return b""


def _webp_size(data: bytes) -> tuple[int, int]:
    if data[12:16] == b"VP8 ":
        return _little(data[26:28]) & 0x3FFF, _little(data[28:30]) & 0x3FFF
    if data[12:16] == b"VP8L":
        bits = _little(data[21:25])
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if data[12:16] == b"VP8X":
        return _little(data[24:27]) + 1, _little(data[27:30]) + 1
    return 0, 0


def _jpeg_size(data: bytes) -> tuple[int, int]:
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
    return 0, 0


def _big(data: bytes) -> int:
    return int.from_bytes(data, "big")


def _little(data: bytes) -> int:
    return int.from_bytes(data, "little")


UNKNOWN_IMAGE_SIZE = (1_920, 1_080)
"""What an image whose size is not in the message (a URL, an unknown format) counts as: a full screen."""
AUDIO_TOKENS = 1_500
"""One minute at 25 tokens a second, Qwen-Audio's rate (OpenAI's is 10); the true length is not known."""
VIDEO_TOKENS = 4_096
"""A short clip, whose length is not known."""
FRAME_TOKENS = 384
"""A frame of a video that is given as a list of images: Qwen-VL spends up to 768 tokens on two of them."""
FILE_TOKENS = 3_000
"""One dense page: Anthropic's "PDF support" gives 1,500 to 3,000 tokens a page; the pages are not known."""

ENCODED_CHARACTERS = 200
"""Shorter strings are counted as text even if they are base64: few enough not to matter."""
OPAQUE_CHARACTERS = 64
"""The same for strings that are no media. Seals of citations are short and many; ids of a provider are
shorter."""
CHARACTERS_PER_OPAQUE_TOKEN = 4
"""What only its provider reads (a thought's signature, encrypted reasoning or results) costs what it was made
of. That is not known. In base64 it has a third more characters than bytes, and a token of text has some four
bytes, so this is a bound."""

_KIND_TOKENS: dict[MediaKind, int] = {"audio": AUDIO_TOKENS, "video": VIDEO_TOKENS, "file": FILE_TOKENS}
_KIND = re.compile(r"(?<![a-z])(?:(image|audio|video)|(screenshot)|(file|document|application/))")
_MEDIUM = re.compile(r"(image|audio|video|screenshot|file|document)([_-]url|_generation_call)?$")
"""Types of blocks that may name media by an address alone. Citations of files and searches in files are not
among them."""
_REFERENCE_KEYS = frozenset(
    {"url", "file_id", "file_url", "file_uri", "file_data", "document_url", "image_url"}
)
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)?[^,]{0,200};base64,")
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_=\r\n"


def block_tokens(block: Block, count_text: Callable[[str], int], image_formula: ImageFormula) -> int:
    """Return the tokens of a block that is neither text nor thinking nor a tool's call or result.

    An image, audio or video costs what its kind costs. Of any other block the JSON text is counted. In both,
    an encoded string (a data URL or base64, never its text) costs what its kind costs, and so does a medium
    that is only referred to, by an id or a URL; what is encoded and of no kind costs a token for each
    `CHARACTERS_PER_OPAQUE_TOKEN`.
    """
    kind = kind_of(block.get("type"))
    media = _Media(image_formula)
    rest = media.take_out(without_request_metadata(without_remark(block)))
    if kind is None or kind == "file":
        text = json.dumps(rest, ensure_ascii=False, default=str, separators=(",", ":"))
        return media.tokens + count_text(text)
    return media.tokens + sum(map(count_text, _long_texts(rest)))


def kind_of(text: object) -> MediaKind | None:
    """Return the kind that a block's type ("input_audio") or a media type ("application/pdf") names."""
    found = _KIND.search(text) if isinstance(text, str) else None
    return cast(MediaKind, found[1] or ("image" if found[2] else "file")) if found else None


def is_encoded(text: str, most_characters: int = ENCODED_CHARACTERS) -> bool:
    """Tell whether a string is a data URL or looks like base64, and is too long to be counted as text."""
    if len(text) <= most_characters or not text.isascii():
        return False
    url = _DATA_URL.match(text)
    data = text[url.end() :] if url else text
    return not data.encode().translate(None, _BASE64)  # nothing else is left; 1 GB/s


class _Media:
    """Adds up what the encoded strings of a block cost."""

    def __init__(self, image_formula: ImageFormula) -> None:
        self._image_formula = image_formula
        self.found = 0
        """So many media."""
        self.tokens = 0

    def add(self, kind: MediaKind, data: str | None, detail: object, max_pixels: object) -> None:
        """Count one image, audio, video or file; `data` is its base64, where known."""
        self.found += 1
        if kind == "image":
            width, height = (image_size(data) if data else None) or UNKNOWN_IMAGE_SIZE
            most = max_pixels if type(max_pixels) is int and max_pixels > 0 else None
            self.tokens += self._image_formula(width, height, detail == "low", most)
        else:
            self.tokens += _KIND_TOKENS[kind]

    def take_out(
        self,
        value: Any,
        kind: MediaKind | None = None,
        detail: object = None,
        max_pixels: object = None,
        key: str = "",
    ) -> Any:
        """Return `value` without its encoded strings, each counted as the kind that stands nearest to it."""
        if isinstance(value, dict):
            own = kind_of(value.get("media_type")) or kind_of(value.get("type"))
            detail, max_pixels = value.get("detail", detail), value.get("max_pixels", max_pixels)
            before = self.found
            left = {
                name: self.take_out(item, own or kind, detail, max_pixels, name)
                for name, item in value.items()
                if item is not None
            }
            is_medium = kind in (None, "file") and _MEDIUM.search(str(value.get("type")))
            if own and is_medium and self.found == before and (own != "file" or _refers(value)):
                self.add(own, None, _found(value, "detail"), _found(value, "max_pixels"))
            return left
        if isinstance(value, list):
            if kind == "video" and value and all(isinstance(item, str) for item in value):
                self.found += 1
                self.tokens += FRAME_TOKENS * (len(value) + len(value) % 2)
                return []
            return [self.take_out(item, kind, detail, max_pixels, key) for item in value]
        # What stands under "text" is text, even a long hexadecimal number.
        if not isinstance(value, str) or key == "text":
            return value
        url = _DATA_URL.match(value)
        data = value[url.end() :] if url else value
        kind = (url and kind_of(url[1])) or kind
        if kind is None:
            if not is_encoded(value, OPAQUE_CHARACTERS):
                return value
            self.tokens += -(-len(value) // CHARACTERS_PER_OPAQUE_TOKEN)
        elif not is_encoded(value) and not (kind == "image" and image_size(data)):
            return value
        else:
            self.add(kind, data, detail, max_pixels)
        return ""


def _found(block: Block, key: str) -> object:
    holders = (block.get("source"), block.get("image_url"), block)
    return next((holder[key] for holder in holders if isinstance(holder, dict) and key in holder), None)


def _refers(value: Any) -> bool:
    if isinstance(value, dict):
        held = ((key in _REFERENCE_KEYS and item) or _refers(item) for key, item in value.items())
        return value.get("type") == "base64" or any(held)
    return isinstance(value, list) and any(map(_refers, value))


def _long_texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [text for item in value for text in _long_texts(item)]
    is_text = isinstance(value, str) and len(value) > ENCODED_CHARACTERS and not value.startswith("http")
    return [value] if is_text else []
