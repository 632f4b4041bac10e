"""What can leave a message: addresses, and putting texts in their place."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from context_compressor import Msg, from_openai, to_openai
from context_compressor.messages.media import encoded_media, kind_of_media, media_type_of
from context_compressor.messages.parts import (
    MIN_ARGUMENT_CHARACTERS,
    other_parts,
    part_at,
    plain_texts,
    replace_parts,
    text_parts,
)
from tests.support.media import png_url
from tests.support.strategies import chat_histories

BODY = "print('hello')\n" * 60
PNG = png_url()


def call(arguments: dict[str, Any], **extra: Any) -> Msg:
    function = {"name": "write_file", "arguments": json.dumps(arguments, indent=1)}
    data = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": function}],
    }
    return from_openai([data | extra])[0]


def user(*parts: dict[str, Any]) -> Msg:
    return from_openai([{"role": "user", "content": list(parts)}])[0]


class TestArguments:
    def test_only_long_ones_are_parts(self) -> None:
        msg = call({"path": "a.py", "content": BODY, "mode": "w"})
        (part,) = other_parts(msg)
        assert part.kind == "argument"
        assert part.text == BODY
        assert part_at(msg, part.path) == part
        assert other_parts(call({"content": "x" * (MIN_ARGUMENT_CHARACTERS - 1)})) == []

    def test_a_replaced_one_is_shortened_in_input_and_raw_input_alike(self) -> None:
        msg = call({"path": "a.py", "content": BODY, "mode": "w"})
        shown = replace_parts(msg, {other_parts(msg)[0].path: "[offloaded]"})
        block = shown.get_content_blocks("tool_use")[0]
        expected = {"path": "a.py", "content": "[offloaded]", "mode": "w"}
        assert block["input"] == expected
        assert json.loads(block["raw_input"]) == expected
        (wire,) = to_openai([shown])
        assert json.loads(wire["tool_calls"][0]["function"]["arguments"]) == expected
        assert other_parts(msg)[0].text == BODY  # the source is untouched

    def test_nested_ones_are_found_and_replaced_where_they_stand(self) -> None:
        arguments = {
            "edits": [{"old": "a", "new": BODY}, {"old": BODY + "2", "new": "b"}],
            "n": 1,
            "none": None,
        }
        msg = call(arguments)
        first, second = other_parts(msg)
        shown = replace_parts(msg, {second.path: "[two]", first.path: "[one]"})
        expected = {
            "edits": [{"old": "a", "new": "[one]"}, {"old": "[two]", "new": "b"}],
            "n": 1,
            "none": None,
        }
        assert shown.get_content_blocks("tool_use")[0]["input"] == expected

    def test_arguments_that_are_no_json_object_stay_an_object(self) -> None:
        msg = Msg(
            "a", [{"type": "tool_use", "id": "c", "name": "run", "input": {"arguments": BODY}}], "assistant"
        )
        shown = replace_parts(msg, {other_parts(msg)[0].path: "[short]"})
        assert shown.get_content_blocks("tool_use")[0]["input"] == {"arguments": "[short]"}


class TestMedia:
    @pytest.mark.parametrize(
        ("part", "kind"),
        [
            ({"type": "image_url", "image_url": {"url": PNG, "detail": "low"}}, "image"),
            ({"type": "image_url", "image_url": PNG}, "image"),
            ({"image": PNG}, "image"),
            ({"type": "input_audio", "input_audio": {"data": "A" * 400, "format": "wav"}}, "audio"),
            ({"type": "input_audio", "input_audio": {"data": "A" * 400, "format": "mpeg"}}, "audio"),
            ({"type": "video_url", "video_url": {"url": "data:video/mp4;base64," + "A" * 400}}, "video"),
            ({"type": "file", "file": {"file_data": "data:application/pdf;base64," + "A" * 400}}, "file"),
            (
                {
                    "type": "document",
                    "source": {"type": "base64", "media_type": "application/pdf", "data": "A" * 400},
                },
                "file",
            ),
        ],
    )
    def test_every_form_is_found_and_replaced(self, part: dict[str, Any], kind: str) -> None:
        msg = user({"type": "text", "text": "look"}, part)
        (found,) = other_parts(msg)
        assert found.kind == kind
        assert found.text.startswith("data:")
        assert part_at(msg, found.path) == found
        shown = replace_parts(msg, {found.path: "[offloaded]"})
        (wire,) = to_openai([shown])
        assert [p["text"] for p in wire["content"]] == ["look", "[offloaded]"]
        assert other_parts(shown) == []

    def test_a_typeless_part_gives_a_typeless_text(self) -> None:
        msg = user({"text": "look"}, {"image": PNG})
        (wire,) = to_openai([replace_parts(msg, {other_parts(msg)[0].path: "[offloaded]"})])
        assert wire["content"] == [{"text": "look"}, {"text": "[offloaded]"}]

    def test_images_in_tool_results_are_found_and_replaced(self) -> None:
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG[22:]}}
        result = {
            "type": "tool_result",
            "id": "c",
            "name": "look",
            "output": [{"type": "text", "text": "a"}, image],
        }
        msg = Msg("look", [result], "system")
        (found,) = other_parts(msg)
        assert found.text == PNG
        shown = replace_parts(msg, {found.path: "[offloaded]"})
        output = shown.get_content_blocks("tool_result")[0]["output"]
        assert output == [{"type": "text", "text": "a"}, {"type": "text", "text": "[offloaded]"}]

    @pytest.mark.parametrize(
        "block",
        [
            {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
            {
                "type": "image",
                "source": {"type": "base64", "media_type": "image/png", "data": "AA=="},
            },  # tiny
            {"type": "file", "file": {"file_id": "file-1"}},
            {"type": "text", "text": PNG},
            {"type": "redacted_thinking", "data": "A" * 1000},
            {
                "type": "gallery",
                "images": [PNG, png_url(seed=1)],
            },  # two: neither could be told from the block
        ],
    )
    def test_references_tiny_data_and_texts_stay(self, block: dict[str, Any]) -> None:
        assert encoded_media(block) is None

    def test_kinds_and_types_of_urls(self) -> None:
        assert (media_type_of(PNG), kind_of_media(PNG)) == ("image/png", "image")
        assert (media_type_of("data:;base64,AA"), kind_of_media("data:;base64,AA")) == ("", "file")
        assert media_type_of("data:image/svg+xml;charset=utf-8;base64,AA") == "image/svg+xml"


@given(chat_histories())
def test_every_address_is_unique_and_leads_back(history: list[dict[str, Any]]) -> None:
    for msg in from_openai(history):
        parts = [*text_parts(msg), *other_parts(msg)]
        assert len({part.path for part in parts}) == len(parts)
        assert plain_texts(msg) == [part.text for part in text_parts(msg)]
        for part in parts:
            shown = replace_parts(msg, {part.path: "[stub]"})
            if part.kind in ("text", "tool_result"):
                assert part_at(shown, part.path) == part._replace(text="[stub]")
            else:
                assert part_at(shown, part.path) is None
            to_openai([shown])
