"""What counts as media: all of a text, or data in a block that is no text."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compressor.messages.media import encoded_media, is_data_url
from tests.support.media import png_url

PREFIX = "data:image/png;base64,"


@given(st.binary(max_size=400))
def test_whatever_an_encoder_writes_is_a_url(data: bytes) -> None:
    wrapped = base64.encodebytes(data).decode()
    for encoded in (
        base64.b64encode(data).decode(),
        base64.urlsafe_b64encode(data).decode(),
        base64.b64encode(data).decode().replace("=", "%3D"),
        wrapped,
        wrapped.replace("\n", "\r\n"),
    ):
        assert is_data_url(PREFIX + encoded)


@pytest.mark.parametrize(
    "text",
    [
        f"{png_url()}\nsrc/a.py: 12 matches",
        f"{png_url()} {png_url()}",
        f"{png_url()}\n{png_url(seed=1)}",
        f"{png_url()}\nword\nword",
        f"{PREFIX}{'A' * 76}\n{'A' * 76}\nan end, in words",
        f"see {png_url()}",
        f'"{png_url()}"',
        PREFIX.replace("base64", "utf8") + "AAAA",
        "data:",
        "",
    ],
)
def test_a_text_that_only_holds_one_is_none(text: str) -> None:
    assert not is_data_url(text)


@pytest.mark.parametrize("end", ["", "!"])
def test_megabytes_are_told_in_one_pass(end: str) -> None:
    # What is read and does not fit is not read again from the next place, or by a shorter piece.
    assert is_data_url(f"{PREFIX}{'A' * 5_000_000}{end}") == (not end)
    assert is_data_url(PREFIX + f"{'A' * 76}\n" * 50_000 + end) == (not end)
    assert not is_data_url("data:" + ";a" * 5_000_000)


@pytest.mark.parametrize(
    "block",
    [
        {"type": "file", "file": {"file_data": f"{PREFIX}{'damaged ' * 50}"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "damaged " * 50}},
    ],
)
def test_damaged_data_in_a_block_can_still_leave(block: dict[str, Any]) -> None:
    media = encoded_media(block)
    assert media.url == f"{PREFIX}{'damaged ' * 50}"


DATA = "A" * 400


@pytest.mark.parametrize(
    ("block", "kind"),
    [
        ({"type": "image", "source": {"type": "base64", "data": DATA}}, "image"),
        ({"type": "file", "file": {"file_data": PREFIX + DATA}}, "image"),
        ({"type": "file", "file": {"file_data": f"data:application/pdf;base64,{DATA}"}}, "file"),
        ({"type": "file", "file": {"file_data": f"data:;base64,{DATA}"}}, "file"),
        ({"type": "input_audio", "input_audio": {"data": DATA, "format": "wav"}}, "audio"),
    ],
)
def test_media_are_of_the_kind_that_their_block_or_their_type_names(block: dict[str, Any], kind: str) -> None:
    media = encoded_media(block)
    assert media.kind == kind
