"""Make texts from outside fit to be shown: nothing that a browser obeys, nothing invisible that misleads."""

from __future__ import annotations

from markupsafe import escape

from context_compressor.measure import Excerpt, excerpt_of

_CONTROL_PICTURES = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n"}
_OTHER_CONTROLS = {code: f"⟨{code:02X}⟩" for code in range(0x7F, 0xA0)}
_DIRECTIONS = {
    code: f"⟨{code:04X}⟩"
    for code in (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xFEFF)
}
"""They reorder what stands around them, so that a text reads as what it is not."""
_SURROGATES = dict.fromkeys(range(0xD800, 0xE000), "\ufffd")
"""Half a pair, which UTF-8 cannot hold."""
_TABLE = {**_CONTROL_PICTURES, **_OTHER_CONTROLS, **_DIRECTIONS, **_SURROGATES}


def clean(text: str) -> str:
    """Return a text in which characters that control, reorder or cannot be encoded are visible ones."""
    return text.replace("\r\n", "\n").translate(_TABLE)


def weigh(text: str) -> int:
    """Return the bytes that a text takes in a page."""
    return len(str(escape(clean(text))).encode())


def trim(excerpt: Excerpt, limit: int) -> Excerpt:
    """Return an excerpt that takes some `limit` bytes of a page, from both its ends."""
    weight = weigh(excerpt.head) + weigh(excerpt.tail)
    if weight <= limit:
        return excerpt
    characters = len(excerpt.head) + len(excerpt.tail)
    kept = max(2, limit * characters // weight)
    head, tail = kept - kept // 3, kept // 3
    if not excerpt.left_out:
        return excerpt_of(excerpt.head, head, tail)
    head, tail = min(head, len(excerpt.head)), min(tail, len(excerpt.tail))
    left_out = excerpt.left_out + characters - head - tail
    return Excerpt(excerpt.head[:head], excerpt.tail[len(excerpt.tail) - tail :], left_out)
