"""Typed calls of the public API: mypy checks them, nothing runs them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, assert_type

from openai import AsyncOpenAI

from context_compressor import (
    CompressedMemory,
    CompressionConfig,
    CompressionEvent,
    CompressionStats,
    ExtractiveSummarizer,
    FallbackSummarizer,
    FileOffloadStore,
    InMemoryMemory,
    InMemoryOffloadStore,
    MemoryBase,
    Msg,
    OffloadStore,
    OffloadTools,
    OpenAISummarizer,
    Summarizer,
    Summary,
    SummaryRequest,
    TiktokenCounter,
    TokenCounter,
    acompress_messages,
    compress_messages,
    from_openai,
    to_openai,
)

# Every argument has a default.
CompressedMemory()
CompressionConfig()
TiktokenCounter()
ExtractiveSummarizer()
InMemoryMemory()
InMemoryOffloadStore()


def redact(text: str) -> str:
    return text


def watch(event: CompressionEvent) -> None:
    assert_type(event.kind, "EventKind")
    assert_type(event.reason, str)
    assert_type(event.tokens_before, int)
    assert_type(event.tokens_after, int)
    assert_type(event.refs, tuple[str, ...])
    assert_type(event.message_ids, tuple[str, ...])
    assert_type(event.summary_input_tokens, int)
    assert_type(event.summary_output_tokens, int)
    assert_type(event.seconds, float)
    assert_type(event.error, str | None)


async def watch_async(event: CompressionEvent) -> None: ...


CONFIG = CompressionConfig(
    mode="auto",
    max_total_tokens=20_000,
    reserved_tokens=0,
    max_tool_message_tokens=2_000,
    group_token_threshold=None,
    keep_recent_count=10,
    compact_ratio_threshold=0.75,
    target_ratio=0.5,
    arrival_ratio=0.25,
    preview_tokens=200,
    keep_first_user=True,
    pinned_mark="pinned",
    volatile_marks=frozenset({"hint"}),
    exclude_tools=frozenset({"read_file"}),
    redact=redact,
    summary_instructions=None,
    on_failure="fallback",
    summarizer_timeout_seconds=120.0,
    store_timeout_seconds=30.0,
)
assert_type(CONFIG.budget, int)
