"""What blocks cost that are not text: images, audio, video, files, and blocks of unknown types."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from context_compressor.messages.media import MediaKind
from context_compressor.messages.msg import Block
from context_compressor.messages.openai.common import REMARK
from context_compressor.tokens.images import ImageFormula, image_size

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

_KIND_TOKENS: dict[MediaKind, int] = {"audio": AUDIO_TOKENS, "video": VIDEO_TOKENS, "file": FILE_TOKENS}
_KINDS: dict[str, MediaKind] = {
    "image": "image",
    "audio": "audio",
    "video": "video",
    "file": "file",
    "document": "file",
    "application/": "file",
}
_KIND = re.compile(r"(?<![a-z])(image|audio|video|file|document|application/)")
_REFERENCE_KEYS = frozenset({"url", "file_id", "file_url", "file_uri", "document_url"})
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)?[^,]{0,200};base64,")
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_=\r\n"


def block_tokens(block: Block, count_text: Callable[[str], int], image_formula: ImageFormula) -> int:
    """Return the tokens of a block that is neither text nor thinking nor a tool's call or result.

    An image, audio or video costs what its kind costs. Of any other block the JSON text is counted. In both,
    an encoded string (a data URL or base64, never its text) costs what its kind costs, and a file that is
    only referred to costs `FILE_TOKENS`.
    """
    kind = kind_of(block.get("type"))
    media = _Media(image_formula)
    rest = media.take_out({key: value for key, value in block.items() if key != REMARK}, kind, None)
    if kind is None or kind == "file":
        if kind and not media.found and _refers(block):
            media.add(kind, None, None, None)
        return media.tokens + count_text(json.dumps(rest, ensure_ascii=False, default=str))
    if not media.found:
        media.add(kind, None, _found(block, "detail"), _found(block, "max_pixels"))
    return media.tokens + sum(map(count_text, _long_texts(rest)))


def kind_of(text: object) -> MediaKind | None:
    """Return the kind that a block's type ("input_audio") or a media type ("application/pdf") names."""
    found = _KIND.search(text) if isinstance(text, str) else None
    return _KINDS[found[0]] if found else None


def is_encoded(text: str) -> bool:
    """Tell whether a string is a data URL or looks like base64, and is too long to be counted as text."""
    if len(text) <= ENCODED_CHARACTERS or not text.isascii():
        return False
    url = _DATA_URL.match(text)
    data = text[url.end() :] if url else text
    return not data.encode().translate(None, _BASE64)  # nothing else is left; 1 GB/s


class _Media:
    """Adds up what the encoded strings of a block cost."""

    def __init__(self, image_formula: ImageFormula) -> None:
        self._image_formula = image_formula
        self.found = False
        self.tokens = 0

    def add(self, kind: MediaKind, data: str | None, detail: object, max_pixels: object) -> None:
        """Count one image, audio, video or file; `data` is its base64, where known."""
        self.found = True
        if kind == "image":
            width, height = (image_size(data) if data else None) or UNKNOWN_IMAGE_SIZE
            most = max_pixels if type(max_pixels) is int and max_pixels > 0 else None
            self.tokens += self._image_formula(width, height, detail == "low", most)
        else:
            self.tokens += _KIND_TOKENS[kind]

    def take_out(
        self, value: Any, kind: MediaKind | None, detail: object, max_pixels: object = None, key: str = ""
    ) -> Any:
        """Return `value` without its encoded strings, each counted as the kind that stands nearest to it."""
        if isinstance(value, dict):
            kind = kind_of(value.get("media_type")) or kind_of(value.get("type")) or kind
            detail, max_pixels = value.get("detail", detail), value.get("max_pixels", max_pixels)
            return {name: self.take_out(item, kind, detail, max_pixels, name) for name, item in value.items()}
        if isinstance(value, list):
            if kind == "video" and value and all(isinstance(item, str) for item in value):
                self.found = True
                self.tokens += FRAME_TOKENS * (len(value) + len(value) % 2)
                return []
            return [self.take_out(item, kind, detail, max_pixels, key) for item in value]
        # What stands under "text" is text, even a long hexadecimal number.
        if not isinstance(value, str) or key == "text":
            return value
        url = _DATA_URL.match(value)
        data = value[url.end() :] if url else value
        kind = (url and kind_of(url[1])) or kind
        if not is_encoded(value) and not (kind == "image" and image_size(data)):
            return value
        if kind is None:
            # Opaque, like redacted thinking: its characters or a file, whichever is less.
            self.tokens += min(len(value), FILE_TOKENS)
        else:
            self.add(kind, data, detail, max_pixels)
        return ""


def _found(block: Block, key: str) -> object:
    holders = (block.get("source"), block.get("image_url"), block)
    return next((holder[key] for holder in holders if isinstance(holder, dict) and key in holder), None)


def _refers(value: Any) -> bool:
    if isinstance(value, dict):
        return any((key in _REFERENCE_KEYS and item) or _refers(item) for key, item in value.items())
    return isinstance(value, list) and any(map(_refers, value))


def _long_texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [text for item in value for text in _long_texts(item)]
    is_text = isinstance(value, str) and len(value) > ENCODED_CHARACTERS and not value.startswith("http")
    return [value] if is_text else []
