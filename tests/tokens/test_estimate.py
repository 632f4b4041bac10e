from __future__ import annotations

import base64
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compressor.tokens.tiktoken import TiktokenCounter
from context_compressor.tokens.vocabularies import estimate_tokens
from tests.support.recordings import requires_recordings, sessions

SAMPLES = {
    "English": "The quick brown fox jumps over the lazy dog, didn't it? Surely; and then it slept. " * 5,
    "Chinese": "用户询问了关于京东和美团之间的外卖大战的看法。目前的背景调查提供了一些公关角度的观点。" * 5,
    "Japanese": "こんにちは、世界。これは日本語のテストです。" * 5,
    "Russian": "Привет, как дела? Это тестовое сообщение на русском языке. " * 5,
    "Hindi": "नमस्ते दुनिया यह एक परीक्षण है " * 5,
    "code": "def getValueOf(self, x: int) -> dict[str, Any]:\n    return {'a': [1, 2, x], \"b\": None}\n" * 5,
    "digits": "3.14159 26535 89793 2024-05-15T15:00:00Z 127.0.0.1 " * 5,
    "emoji": "😀🎉🚀👍🏽 ok " * 20,
    "base64": base64.b64encode(random.Random(1).randbytes(2_000)).decode(),
    "hexadecimal": random.Random(1).randbytes(1_000).hex(),
    "table": "| name | a1 |\n|------|----|\n| x    | 25 |\n" * 5,
}


@pytest.mark.parametrize("kind", SAMPLES)
def test_it_errs_on_the_high_side(qwen: TiktokenCounter, kind: str) -> None:
    text = SAMPLES[kind]
    assert qwen.count_text(text) <= estimate_tokens(text) <= 3.2 * qwen.count_text(text)


@requires_recordings
def test_no_recorded_text_is_estimated_too_low(qwen: TiktokenCounter) -> None:
    exact = estimated = 0
    for name in ("shapes", "intercode_sql", "inspect_logs", "deer_flow", "swe_agent_demos"):
        for session in sessions(name):
            for message in session["messages"]:
                text = message["content"]
                if isinstance(text, str):
                    assert qwen.count_text(text) <= estimate_tokens(text)
                    exact += qwen.count_text(text)
                    estimated += estimate_tokens(text)
    assert 1.2 * exact < estimated < 1.6 * exact


@given(st.text())
def test_it_is_never_above_the_bytes_and_nothing_costs_nothing(text: str) -> None:
    assert (estimate_tokens(text) > 0) == bool(text)
    assert estimate_tokens(text) <= len(text.encode("utf-8", "surrogatepass"))
