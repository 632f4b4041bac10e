from __future__ import annotations

import base64
import json
import random

import pytest

from context_compressor.messages.msg import Block
from context_compressor.tokens.media import (
    AUDIO_TOKENS,
    FILE_TOKENS,
    FRAME_TOKENS,
    UNKNOWN_IMAGE_SIZE,
    VIDEO_TOKENS,
    block_tokens,
    is_encoded,
    openai_tiles,
    qwen_tokens,
)
from tests.tokens.pictures import encoded, png

FORMULA = openai_tiles(85, 170)
UNKNOWN_IMAGE = FORMULA(*UNKNOWN_IMAGE_SIZE, False, None)
LARGE = base64.b64encode(random.Random(1).randbytes(30_000)).decode()
IMAGE = encoded(png(1_024, 1_024))
TINY = f"data:image/png;base64,{encoded(png(10, 10)[:60])}"
PLAIN = "It is not base64, it is what the tool said. " * 50


def cost(block: Block) -> int:
    """What a block costs when every character is a token."""
    return block_tokens(block, len, FORMULA)


@pytest.mark.parametrize(
    ("block", "tokens"),
    [
        ({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": IMAGE}}, 765),
        (
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": LARGE}},
            UNKNOWN_IMAGE,
        ),
        (
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
            UNKNOWN_IMAGE,
        ),
        ({"type": "image", "source": {"type": "url", "url": "https://x.org/" + "a" * 500}}, UNKNOWN_IMAGE),
        ({"type": "image", "source": {"type": "url", "url": "u", "detail": "low"}}, 85),
        ({"type": "image", "source": {"type": "base64", "data": IMAGE, "detail": "low"}}, 85),
        ({"type": "image", "detail": "low", "source": {"type": "base64", "data": IMAGE}}, 85),
        ({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{IMAGE}"}}, 765),
        ({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{IMAGE}", "detail": "low"}}, 85),
        ({"type": "image_url", "image_url": f"data:image/png;base64,{IMAGE}"}, 765),
        ({"type": "image_url", "image_url": {"url": "https://x.org/a.png", "detail": "low"}}, 85),
        ({"type": "image_url", "image_url": {"url": None}}, UNKNOWN_IMAGE),
        ({"type": "image"}, UNKNOWN_IMAGE),
        ({"type": "image", "source": {"type": "base64", "data": encoded(png(10, 10)[:60])}}, 255),
        ({"type": "image_url", "image_url": {"url": TINY}}, 255),
        (
            {"type": "audio", "source": {"type": "base64", "media_type": "audio/wav", "data": LARGE}},
            AUDIO_TOKENS,
        ),
        ({"type": "input_audio", "input_audio": {"data": LARGE, "format": "mp3"}}, AUDIO_TOKENS),
        ({"type": "audio", "source": {"type": "url", "url": "https://x.org/a.mp3"}}, AUDIO_TOKENS),
        ({"type": "video", "source": {"type": "url", "url": "https://x.org/a.mp4"}}, VIDEO_TOKENS),
        ({"type": "video_url", "video_url": {"url": f"data:video/mp4;base64,{LARGE}"}}, VIDEO_TOKENS),
        ({"type": "video", "video": [f"data:image/png;base64,{IMAGE}"] * 3}, 4 * FRAME_TOKENS),
        ({"type": "video", "video": [f"https://x.org/{n}.jpg" for n in range(80)]}, 80 * FRAME_TOKENS),
        ({"video": ["https://x.org/1.jpg", "https://x.org/2.jpg"], "type": "video"}, 2 * FRAME_TOKENS),
        ({"type": "video", "cover": {"type": "image", "data": IMAGE}}, 765),
        ({"type": "image", "source": {"type": "url", "url": "u"}, "openai": {"form": "url"}}, UNKNOWN_IMAGE),
    ],
)
def test_images_audio_and_video_cost_what_their_kind_costs(block: Block, tokens: int) -> None:
    assert cost(block) == tokens


@pytest.mark.parametrize(
    "block",
    [
        {"type": "file", "file": {"file_id": "file-1"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{LARGE}"}},
        {"type": "file", "source": {"type": "url", "url": "https://x.org/a.pdf"}},
        {"type": "document_url", "document_url": f"data:application/pdf;base64,{LARGE}"},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": LARGE}},
        {"type": "document", "source": {"type": "file", "file_id": "f"}},
        {"type": "input_file", "file_data": LARGE},
    ],
)
def test_a_file_costs_its_constant_and_its_json_without_the_data(block: Block) -> None:
    assert FILE_TOKENS < cost(block) < FILE_TOKENS + 200


@pytest.mark.parametrize(
    "block",
    [
        {"type": "tool_reference", "tool_name": "get_rate"},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": PLAIN}},
        {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": PLAIN}]}},
        {"type": "server_tool_use", "id": "s1", "input": {"query": PLAIN}},
        {"type": "anything", "data": PLAIN},
        {"type": "anything", "text": "ab" * 5_000},
        {"type": "profile_update", "url": "https://x.org"},
        {"text": "typeless"},
        {},
    ],
)
def test_other_blocks_and_plain_documents_are_counted_as_json_text(block: Block) -> None:
    assert cost(block) == len(json.dumps(block, ensure_ascii=False, separators=(",", ":")))


@pytest.mark.parametrize("kind", ["image", "audio", "video"])
def test_a_long_text_posing_as_media_is_counted_as_text(kind: str) -> None:
    block = {"type": kind, "source": {"type": "base64", "media_type": f"{kind}/x", "data": PLAIN}}
    assert cost(block) > len(PLAIN)


def test_media_inside_an_unknown_block_cost_what_their_kind_costs() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": IMAGE}}
    found = {"type": "web_search_result", "content": [{"type": "text", "text": PLAIN}, image, image]}
    assert 2 * 765 + len(PLAIN) < cost(found) < 2 * 765 + len(PLAIN) + 400


def test_what_only_its_provider_reads_costs_a_quarter_of_its_characters() -> None:
    for length in (100, 300, len(LARGE)):
        block = {"type": "redacted_thinking", "data": LARGE[:length]}
        assert length / 4 <= cost(block) < length / 4 + 60


@pytest.mark.parametrize(
    ("medium", "tokens"),
    [
        ({"type": "input_image", "file_id": "file-1"}, UNKNOWN_IMAGE),
        ({"type": "input_image", "image_url": "https://x.org/a.png", "detail": "low"}, 85),
        ({"type": "image", "source": {"type": "file", "file_id": "file-1"}}, UNKNOWN_IMAGE),
        ({"type": "computer_screenshot", "file_id": "file-1"}, UNKNOWN_IMAGE),
        ({"type": "image_generation_call", "id": "ig_1", "result": None}, UNKNOWN_IMAGE),
        ({"type": "input_file", "file_id": "file-1"}, FILE_TOKENS),
        ({"type": "document", "source": {"type": "url", "url": "https://x.org/a.pdf"}}, FILE_TOKENS),
        ({"type": "file_search_call", "results": [{"file_id": "file-1", "text": "found"}]}, 0),
        ({"type": "file_citation", "file_id": "file-1", "filename": "a.pdf"}, 0),
        ({"type": "container_upload", "file_id": "file-1"}, 0),
    ],
)
def test_a_medium_by_id_costs_its_kind_wherever_it_stands(medium: Block, tokens: int) -> None:
    """A citation of a file, or a search in files, is none."""
    for block in ({"type": "openai_part", "openai_part": medium}, {"type": "other", "content": [medium]}):
        assert tokens < cost(block) < tokens + 200


def test_the_remarks_of_from_openai_cost_nothing() -> None:
    refusal = {"type": "refusal", "refusal": "I cannot."}
    assert cost({**refusal, "openai": {"form": "field"}}) == cost(refusal)


def test_only_long_strings_without_blanks_are_taken_for_base64() -> None:
    assert is_encoded(LARGE)
    assert is_encoded("\r\n".join(LARGE[i : i + 76] for i in range(0, 1_000, 76)))
    assert is_encoded("data:image/svg+xml;charset=utf-8;base64," + LARGE)
    assert not is_encoded(LARGE[:200])
    assert not is_encoded(LARGE + " said the tool")
    assert not is_encoded("你好" * 200)
    assert not is_encoded("data:text/plain," + PLAIN)
    assert not is_encoded("data:image/png;base64," + PLAIN)


@pytest.mark.parametrize(
    ("extra", "tokens"),
    [({}, 2_502), ({"max_pixels": 10_000 * 784}, 10_002), ({"max_pixels": 100 * 784}, 102)],
)
def test_a_limit_of_pixels_beside_an_image_is_heeded(extra: dict[str, int], tokens: int) -> None:
    large = f"data:image/png;base64,{encoded(png(2_800, 2_800) + bytes(1_000))}"
    for part in (
        {"type": "image_url", "image_url": {"url": large}, **extra},
        {"type": "image_url", "image_url": {"url": large, **extra}},
    ):
        assert block_tokens(part, len, qwen_tokens) == tokens
