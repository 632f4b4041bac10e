"""Redaction: no form of a message says what a rule takes out, and what is ours or encoded stays."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from context_compressor import Msg, from_openai, to_openai
from context_compressor.core.shown import Redact, redacted_text, render_transcript, shown_message
from context_compressor.errors import RedactionError
from tests.memory.scripted import assistant, call, result, user

PNG = "data:image/png;base64," + "iVBORw0KGgo" * 100


def test_stubs_stand_where_texts_left_and_are_not_redacted() -> None:
    (msg,) = from_openai([user("a SECRET")])
    shown = shown_message(msg, {(): "[stub of SECRET]"}, {}, lambda found: found.replace("SECRET", "x"))
    assert shown.content == "[stub of SECRET]"
    assert msg.content == "a SECRET"


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_audio", "input_audio": {"data": "UklGRg" * 20, "format": "wav"}},
        {"type": "image_url", "image_url": {"url": PNG}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AAAA"}},
    ],
)
def test_encoded_media_are_not_redacted(part: dict[str, Any]) -> None:
    """A rule that takes long words for keys would leave no media to read back."""
    content = [part, {"type": "text", "text": "SECRETSECRET"}]
    for msg in (*from_openai([user(content)]), Msg("user", content, "user")):  # type: ignore[arg-type]
        shown = shown_message(msg, {}, {}, lambda found: re.sub(r"[\w:;,/]{12,}", "[gone]", found))
        (sent,) = to_openai([shown])
        assert sent["content"] == [part, {"type": "text", "text": "[gone]"}]


GAVE = {"user": "ann", "password": "hunter2", "note": "x" * 500}


@pytest.mark.parametrize("as_text", [True, False])
@pytest.mark.parametrize(
    "redact",
    [
        lambda text: "[gone]" if text == "hunter2" else text,
        lambda text: re.sub(r'("password":\s*)"[^"]*"', r'\1"[gone]"', text),
        lambda text: re.sub(r'("password":\s*)"[^"]*"', r"\1[gone]", text),  # leaves no JSON
    ],
)
def test_arguments_are_redacted_in_every_form_that_is_read(redact: Redact, as_text: bool) -> None:
    """One by one and as JSON, be it received as text or as an object, and with a stub in its place too."""
    made = call("c1")
    made["tool_calls"][0]["function"]["arguments"] = json.dumps(GAVE) if as_text else GAVE
    (msg,) = from_openai([made])
    for stubs in ({}, {(0, -2, 2): "[stub]"}):
        shown = shown_message(msg, stubs, {}, redact)
        assert "hunter2" not in str(shown.to_dict())
        text = render_transcript([shown]).text
        assert "[gone]" in text
        assert "ann" in text
    assert "hunter2" in str(msg.to_dict())


def test_arguments_that_are_no_object_are_redacted_once() -> None:
    (msg,) = from_openai([call("c1", arguments="SECRET, no JSON")])
    shown = shown_message(msg, {}, {}, lambda text: text.replace("SECRET", "[SECRETIVE]"))
    assert render_transcript([shown]).text.endswith("\n[SECRETIVE], no JSON")


KEY = "ann@example.com"


@pytest.mark.parametrize(
    "said",
    [
        user([{"type": "text", "text": "so"}, {"type": "contact", KEY: 1}]),
        user([{"type": "contact", "id": KEY, "name": KEY, "role": KEY, "nested": [{KEY: {"id": KEY}}]}]),
        user("hi") | {"name": KEY},
        assistant("hi") | {"annotations": [{"type": "url_citation", KEY: KEY}]},
        assistant("hi") | {KEY: "said so"},
        call("c1", arguments=json.dumps({KEY: 1, "to": [{KEY: "x"}]})),
        result("c1", [{"type": "text", "text": "so", KEY: 1}, {"type": "odd", KEY: 1}]),  # type: ignore[arg-type]
    ],
)
def test_keys_and_names_from_outside_are_redacted_like_texts(said: dict[str, Any]) -> None:
    (msg,) = from_openai([said])
    msg.metadata = (msg.metadata or {}) | {"seen by": KEY}
    shown = shown_message(msg, {}, {}, lambda text: "[mail]" if text == KEY else text)
    assert KEY not in str(shown.to_dict())
    assert KEY not in render_transcript([shown]).text


def test_keys_that_become_one_keep_their_values() -> None:
    (msg,) = from_openai([call("c1", arguments=json.dumps({"a@x": 1, "b@x": 2, "plain": 3}))])
    shown = shown_message(msg, {}, {}, lambda text: re.sub(r"\b\w@x\b", "[mail]", text))
    assert shown.get_content_blocks()[0]["input"] == {"[mail]": 1, "[mail] 2": 2, "plain": 3}


def test_a_redaction_that_fails_does_not_tell_the_text() -> None:
    """Errors are logged, and `search_history` answers with them."""

    def refuse(text: str) -> str:
        raise ValueError(f"cannot parse {text!r}")

    with pytest.raises(RedactionError, match=r"a text of 7 characters: ValueError$") as caught:
        redacted_text("hunter2", refuse)
    assert isinstance(caught.value.__cause__, ValueError)
