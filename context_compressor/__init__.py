"""Short-term memory middleware for LLM agents: views that fit a token budget, with nothing lost.

Its rooms, each of which knows only those before it: `messages`; `tokens`; `offload` and `summarizers`;
`core`; `search`; `memory`; `tools`; `backends`; `integrations`; `services`; `gateway`; `laws`; `cli`. Beside
them stands the `lab`, which uses the library as anybody does, and which `cli` alone knows.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from context_compressor.moved import MovedFinder

if TYPE_CHECKING:
    from context_compressor.backends.fsspec import FsspecOffloadStore
    from context_compressor.backends.redis.history import RedisMemory
    from context_compressor.backends.redis.states import RedisStates
    from context_compressor.backends.redis.store import RedisOffloadStore
    from context_compressor.backends.sql.history import AsyncSQLAlchemyMemory, SQLAlchemyMemory
    from context_compressor.backends.sql.states import SQLAlchemyStates
    from context_compressor.backends.sql.store import SQLAlchemyOffloadStore
    from context_compressor.core.config import CompressionConfig
    from context_compressor.errors import (
        ConflictError,
        ContextCompressorError,
        ContextOverflowError,
        InvalidArgumentError,
        InvalidMessageError,
        InvalidStateError,
        LoopError,
        NotStartedError,
        OffloadCollisionError,
        OffloadCorruptError,
        OffloadError,
        OffloadFullError,
        OffloadKeyError,
        OffloadNotFoundError,
        OffloadPermissionError,
        OffloadWriteError,
        RedactionError,
        SessionNotFoundError,
        SummarizerError,
        SummarizerOverflowError,
        SummarizerTimeoutError,
        SummaryRejectedError,
        UnrelatedMessagesError,
    )
    from context_compressor.events import CompressionEvent
    from context_compressor.memory.base import MemoryBase
    from context_compressor.memory.compressed import CompressedMemory
    from context_compressor.memory.forgetting import Forgotten
    from context_compressor.memory.history import History
    from context_compressor.memory.in_memory import InMemoryMemory
    from context_compressor.memory.reporting import CompressionStats
    from context_compressor.memory.stateless import CompressionResult, acompress_messages, compress_messages
    from context_compressor.messages.anthropic import from_anthropic, to_anthropic
    from context_compressor.messages.chat import from_openai, in_turn, to_openai
    from context_compressor.messages.forms import Form
    from context_compressor.messages.msg import Msg
    from context_compressor.messages.responses import from_responses, to_responses
    from context_compressor.offload.directory import collect_garbage
    from context_compressor.offload.files import FileOffloadStore
    from context_compressor.offload.store import InMemoryOffloadStore, OffloadStore, ref_of
    from context_compressor.services.base import InMemoryMemoryService, MemoryService
    from context_compressor.services.handover import HandOver
    from context_compressor.services.redis import RedisMemoryService
    from context_compressor.services.sqlalchemy import SQLAlchemyMemoryService
    from context_compressor.summarizers.chain import ExtractiveSummarizer, FallbackSummarizer
    from context_compressor.summarizers.dashscope import DashScopeSummarizer
    from context_compressor.summarizers.faults import is_overflow, limit_in
    from context_compressor.summarizers.openai import OpenAISummarizer
    from context_compressor.summarizers.protocol import Summarizer, Summary, SummaryRequest
    from context_compressor.tokens.counter import TokenCounter
    from context_compressor.tokens.tiktoken import TiktokenCounter
    from context_compressor.tools.tools import OffloadTools

    __all__ = [
        "AsyncSQLAlchemyMemory",
        "CompressedMemory",
        "CompressionConfig",
        "CompressionEvent",
        "CompressionResult",
        "CompressionStats",
        "ConflictError",
        "ContextCompressorError",
        "ContextOverflowError",
        "DashScopeSummarizer",
        "ExtractiveSummarizer",
        "FallbackSummarizer",
        "FileOffloadStore",
        "Forgotten",
        "Form",
        "FsspecOffloadStore",
        "HandOver",
        "History",
        "InMemoryMemory",
        "InMemoryMemoryService",
        "InMemoryOffloadStore",
        "InvalidArgumentError",
        "InvalidMessageError",
        "InvalidStateError",
        "LoopError",
        "MemoryBase",
        "MemoryService",
        "Msg",
        "NotStartedError",
        "OffloadCollisionError",
        "OffloadCorruptError",
        "OffloadError",
        "OffloadFullError",
        "OffloadKeyError",
        "OffloadNotFoundError",
        "OffloadPermissionError",
        "OffloadStore",
        "OffloadTools",
        "OffloadWriteError",
        "OpenAISummarizer",
        "RedactionError",
        "RedisMemory",
        "RedisMemoryService",
        "RedisOffloadStore",
        "RedisStates",
        "SQLAlchemyMemory",
        "SQLAlchemyMemoryService",
        "SQLAlchemyOffloadStore",
        "SQLAlchemyStates",
        "SessionNotFoundError",
        "Summarizer",
        "SummarizerError",
        "SummarizerOverflowError",
        "SummarizerTimeoutError",
        "Summary",
        "SummaryRejectedError",
        "SummaryRequest",
        "TiktokenCounter",
        "TokenCounter",
        "UnrelatedMessagesError",
        "acompress_messages",
        "collect_garbage",
        "compress_messages",
        "from_anthropic",
        "from_openai",
        "from_responses",
        "in_turn",
        "is_overflow",
        "limit_in",
        "ref_of",
        "to_anthropic",
        "to_openai",
        "to_responses",
    ]

_MODULES = {
    "AsyncSQLAlchemyMemory": "backends.sql.history",
    "CompressedMemory": "memory.compressed",
    "CompressionConfig": "core.config",
    "CompressionEvent": "events",
    "CompressionResult": "memory.stateless",
    "CompressionStats": "memory.reporting",
    "ConflictError": "errors",
    "ContextCompressorError": "errors",
    "ContextOverflowError": "errors",
    "DashScopeSummarizer": "summarizers.dashscope",
    "ExtractiveSummarizer": "summarizers.chain",
    "FallbackSummarizer": "summarizers.chain",
    "FileOffloadStore": "offload.files",
    "Forgotten": "memory.forgetting",
    "Form": "messages.forms",
    "FsspecOffloadStore": "backends.fsspec",
    "HandOver": "services.handover",
    "History": "memory.history",
    "InMemoryMemory": "memory.in_memory",
    "InMemoryMemoryService": "services.base",
    "InMemoryOffloadStore": "offload.store",
    "InvalidArgumentError": "errors",
    "InvalidMessageError": "errors",
    "InvalidStateError": "errors",
    "LoopError": "errors",
    "MemoryBase": "memory.base",
    "MemoryService": "services.base",
    "Msg": "messages.msg",
    "NotStartedError": "errors",
    "OffloadCollisionError": "errors",
    "OffloadCorruptError": "errors",
    "OffloadError": "errors",
    "OffloadFullError": "errors",
    "OffloadKeyError": "errors",
    "OffloadNotFoundError": "errors",
    "OffloadPermissionError": "errors",
    "OffloadStore": "offload.store",
    "OffloadTools": "tools.tools",
    "OffloadWriteError": "errors",
    "OpenAISummarizer": "summarizers.openai",
    "RedactionError": "errors",
    "RedisMemory": "backends.redis.history",
    "RedisMemoryService": "services.redis",
    "RedisOffloadStore": "backends.redis.store",
    "RedisStates": "backends.redis.states",
    "SQLAlchemyMemory": "backends.sql.history",
    "SQLAlchemyMemoryService": "services.sqlalchemy",
    "SQLAlchemyOffloadStore": "backends.sql.store",
    "SQLAlchemyStates": "backends.sql.states",
    "SessionNotFoundError": "errors",
    "Summarizer": "summarizers.protocol",
    "SummarizerError": "errors",
    "SummarizerOverflowError": "errors",
    "SummarizerTimeoutError": "errors",
    "Summary": "summarizers.protocol",
    "SummaryRejectedError": "errors",
    "SummaryRequest": "summarizers.protocol",
    "TiktokenCounter": "tokens.tiktoken",
    "TokenCounter": "tokens.counter",
    "UnrelatedMessagesError": "errors",
    "acompress_messages": "memory.stateless",
    "collect_garbage": "offload.directory",
    "compress_messages": "memory.stateless",
    "from_anthropic": "messages.anthropic",
    "from_openai": "messages.chat",
    "from_responses": "messages.responses",
    "in_turn": "messages.chat",
    "is_overflow": "summarizers.faults",
    "limit_in": "summarizers.faults",
    "ref_of": "offload.store",
    "to_anthropic": "messages.anthropic",
    "to_openai": "messages.chat",
    "to_responses": "messages.responses",
}
"""Where each public name lives. Modules are imported at the first use of a name, which takes a tenth of a
second for all that a memory needs: whoever only counts tokens or reads chat dicts does not pay for it."""

sys.meta_path.insert(0, MovedFinder())


def _names() -> list[str]:
    """Return the names that `import *` brings: those whose extra is missing would make it fail."""
    from context_compressor.errors import is_extra_missing

    return [name for name, module in _MODULES.items() if not is_extra_missing(module)]


def __getattr__(name: str) -> Any:
    """Import a public name at its first use (PEP 562)."""
    if name == "__all__":
        return _names()
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from context_compressor.errors import naming_extras

    with naming_extras():
        value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return [*globals(), *_MODULES]
