from __future__ import annotations

import base64
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compressor.tokens.media import (
    highest_tokens,
    image_size,
    openai_formula,
    openai_patches,
    openai_tiles,
    qwen_tokens,
)
from tests.tokens.pictures import encoded, png


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + bytes(500)


def jpeg(width: int, height: int, before: int = 0) -> bytes:
    exif = b"\xff\xe1" + struct.pack(">H", 2 + min(before, 60_000)) + bytes(min(before, 60_000))
    tables = b"\xff\xc4\x00\x04\x00\x00"  # shares the range of the markers that hold the size
    frame = b"\xff\xff\xc2\x00\x11\x08" + struct.pack(">HH", height, width) + bytes(500)
    return b"\xff\xd8" + exif * max(before // 60_000, 1) + tables + frame


def webp(chunk: bytes, body: bytes) -> bytes:
    return b"RIFF\x00\x00\x00\x00WEBP" + chunk + b"\x00\x00\x00\x00" + body + bytes(500)


def webp_lossy(width: int, height: int) -> bytes:
    return webp(b"VP8 ", b"\x00\x00\x00\x9d\x01\x2a" + struct.pack("<HH", width, height))


def webp_lossless(width: int, height: int) -> bytes:
    return webp(b"VP8L", b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14))


def webp_extended(width: int, height: int) -> bytes:
    sides = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return webp(b"VP8X", b"\x00\x00\x00\x00" + sides)


MAKERS = (png, gif, jpeg, webp_lossy, webp_lossless, webp_extended)


@pytest.mark.parametrize("maker", MAKERS)
@given(width=st.integers(1, 16_383), height=st.integers(1, 16_383))
def test_width_and_height_are_read_from_the_header(maker, width: int, height: int) -> None:  # type: ignore[no-untyped-def]
    assert image_size(encoded(maker(width, height))) == (width, height)


@pytest.mark.parametrize("before", [10, 60_000, 240_000])
def test_a_jpegs_size_is_found_behind_its_other_segments(before: int) -> None:
    assert image_size(encoded(jpeg(640, 480, before))) == (640, 480)


def test_url_safe_and_wrapped_base64_are_read() -> None:
    data = base64.urlsafe_b64encode(png(1_000, 62)).decode()
    assert image_size("\r\n".join(data[i : i + 20] for i in range(0, len(data), 20))) == (1_000, 62)


@pytest.mark.parametrize(
    "data",
    [
        "",
        "A",
        "not base64 at all",
        "你好" * 100,
        encoded(b"%PDF-1.4" + bytes(100)),
        encoded(png(100, 100)[:20]),
        encoded(png(0, 100)),
        encoded(b"\xff\xd8\xff\xe1"),
        encoded(b"\xff\xd8" + bytes(100)),
        encoded(b"\xff\xd8\xff\xda\x00\x02" + bytes(100)),
        encoded(webp(b"ALPH", bytes(20))),
    ],
)
def test_what_is_no_image_has_no_size(data: str) -> None:
    assert image_size(data) is None


@given(st.binary(max_size=200), st.sampled_from(MAKERS), st.integers(0, 200))
def test_no_bytes_make_the_reader_fail(data: bytes, maker, cut: int) -> None:  # type: ignore[no-untyped-def]
    image_size(encoded(maker(300, 200)[:cut] + data))
    image_size(encoded(data))


@pytest.mark.parametrize(
    ("width", "height", "low", "tokens"),
    [  # OpenAI's own examples, then the ends of the steps
        (1_024, 1_024, False, 765),
        (2_048, 4_096, False, 1_105),
        (4_096, 8_192, True, 85),
        (128, 64, False, 255),
        (512, 512, False, 255),
        (513, 512, False, 425),
        (10_000, 10, False, 765),
    ],
)
def test_tiles_cost_what_openai_says(width: int, height: int, low: bool, tokens: int) -> None:
    assert openai_tiles(85, 170)(width, height, low, None) == tokens


@pytest.mark.parametrize(
    ("width", "height", "tokens"),
    [  # OpenAI's own examples, then the ends of the steps
        (1_024, 1_024, 1_024),
        (1_800, 2_400, 1_452),
        (1, 1, 1),
        (33, 32, 2),
        (3_200, 3_200, 1_521),
        (1_000_000, 20, 1_536),
    ],
)
def test_patches_cost_what_openai_says(width: int, height: int, tokens: int) -> None:
    assert openai_patches(1.0, 1_536)(width, height, False, None) == tokens
    assert openai_patches(1.62, 1_536)(width, height, True, None) == -(-tokens * 162 // 100)


@pytest.mark.parametrize(
    ("width", "height", "tokens"),
    [
        (28, 28, 4),
        (224, 448, 128),
        (400, 400, 196),  # 14.3 pieces a side
        (1_024, 1_024, 1_369),
        (1_920, 1_080, 67 * 37),
        (8_000, 8_000, 50 * 50),
        (20, 2_000, 71),
        (2_000, 10, 29),
    ],
)
def test_qwen_charges_28_pixels_a_side_within_limits(width: int, height: int, tokens: int) -> None:
    assert qwen_tokens(width, height, False, None) == tokens + 2


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ("gpt-4o", 765),
        ("openai/gpt-4o-2024-11-20", 765),
        ("gpt-4.1", 765),
        ("gpt-4o-mini", 2_833 + 4 * 5_667),
        ("ft:gpt-4o-mini:acme", 2_833 + 4 * 5_667),
        ("gpt-5", 70 + 4 * 140),
        ("gpt-5.1", 70 + 4 * 140),
        ("gpt-5-mini", 1_659),
        ("gpt-5.2", 1_229),
        ("gpt-5.4-nano", 2_520),
        ("o3", 75 + 4 * 150),
        ("o4-mini-2025-04-16", 1_762),
        ("an-unknown-one", 765),
    ],
)
def test_a_model_has_the_formula_of_its_longest_known_name(model: str, tokens: int) -> None:
    assert openai_formula(model)(1_024, 1_024, False, None) == tokens


@given(st.integers(1, 10_000), st.integers(1, 10_000), st.booleans())
def test_an_unknown_model_is_charged_the_most(width: int, height: int, low: bool) -> None:
    highest = highest_tokens(width, height, low, None)
    assert highest == max(
        openai_formula("gpt-4o")(width, height, low, None), qwen_tokens(width, height, low, None)
    )
