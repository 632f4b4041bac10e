"""What a memory says to a name that it does not know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from context_compressor import (
    CompressedMemory,
    CompressionConfig,
    FsspecOffloadStore,
    InMemoryMemoryService,
    InvalidArgumentError,
    RedisMemoryService,
    SQLAlchemyMemoryService,
    compress_messages,
)
from context_compressor.integrations.agentscope import AgentScopeCompressedMemory
from context_compressor.integrations.conversations import Conversations
from context_compressor.integrations.langchain import Compression


@pytest.mark.parametrize(
    ("make", "given", "meant"),
    [
        *[
            (make, {"max_total_token": 5_000}, "max_total_tokens")
            for make in (
                CompressionConfig,
                CompressedMemory,
                Conversations,
                Compression,
                AgentScopeCompressedMemory,
                lambda **fields: compress_messages([], **fields),
            )
        ],
        (CompressedMemory, {"sumarizer": None}, "summarizer"),
        (InMemoryMemoryService, {"indexed_message": 5}, "indexed_messages"),
        (
            lambda **options: SQLAlchemyMemoryService("sqlite+aiosqlite://", **options),
            {"idle_second": 5},
            "idle_seconds",
        ),
        (RedisMemoryService, {"socket_timeouts": 5}, "socket_timeout"),
        (
            lambda **options: FsspecOffloadStore("memory://x", **options),
            {"encription_key": ""},
            "encryption_key",
        ),
    ],
)
def test_a_misspelt_name_is_told_with_the_nearest_right_one(
    make: Callable[..., Any], given: dict[str, Any], meant: str
) -> None:
    [name] = given
    told = rf"{name}: there is no such (field|option); did you mean {meant}\?"
    with pytest.raises((InvalidArgumentError, ValidationError), match=told):
        make(**given)


def test_where_none_is_near_all_are_named() -> None:
    with pytest.raises(InvalidArgumentError, match="xyz: there is no such field; the fields are mode, "):
        CompressedMemory(xyz=1)


@pytest.mark.parametrize("make", [CompressedMemory, AgentScopeCompressedMemory])
@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("content", r"await memory\.get_history\(\)"),
        ("retrieve", r"await memory\.search_history\(query\)"),
        ("store_dir", r"FileOffloadStore\(path\)"),
        ("working_summary_mode", r"memory\.(compressed\.)?config\.mode"),
        ("max_total_tokens", r"memory\.(compressed\.)?config\.max_total_tokens"),
        ("xyz", "has no attribute 'xyz'$"),
    ],
)
def test_a_name_of_other_memories_says_what_took_its_place(make: Any, name: str, instead: str) -> None:
    memory = make()
    assert not hasattr(memory, name)
    with pytest.raises(AttributeError, match=instead):
        getattr(memory, name)


def test_a_model_s_name_counts_its_tokens() -> None:
    memory = CompressedMemory(counter="qwen-plus")
    assert repr(memory.counter) == "TiktokenCounter('qwen-plus')"
    messages = [{"role": "user", "content": "a " * 50}]
    result = compress_messages(messages, counter="qwen-plus")
    assert result.stats.history_tokens == memory.counter.count_messages(messages)
    beside = compress_messages(messages, system="Be brief.").stats
    assert (beside.saved_tokens, beside.history_tokens) == (0, beside.view_tokens)


@pytest.mark.parametrize("make", [CompressedMemory, Conversations])
def test_a_model_s_name_in_place_of_a_summariser_says_what_works(make: Any) -> None:
    with pytest.raises(
        InvalidArgumentError, match=r"'gpt-5-mini' is a name; .*OpenAISummarizer\('gpt-5-mini'\)"
    ):
        make(summarizer="gpt-5-mini")
