"""Short-term memory middleware for LLM agents: views that fit a token budget, with nothing lost."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from context_compressor.compression.config import CompressionConfig
    from context_compressor.events import CompressionEvent
    from context_compressor.memory.base import MemoryBase
    from context_compressor.memory.compressed import CompressedMemory
    from context_compressor.memory.in_memory import InMemoryMemory
    from context_compressor.memory.stateless import acompress_messages, compress_messages
    from context_compressor.memory.stats import CompressionStats
    from context_compressor.messages.msg import Msg
    from context_compressor.messages.openai import from_openai, to_openai
    from context_compressor.offload.files import FileOffloadStore
    from context_compressor.offload.in_memory import InMemoryOffloadStore
    from context_compressor.offload.protocol import OffloadStore
    from context_compressor.offload.tools.offload_tools import OffloadTools
    from context_compressor.summarizers.dashscope import DashScopeSummarizer
    from context_compressor.summarizers.extractive import ExtractiveSummarizer
    from context_compressor.summarizers.fallback import FallbackSummarizer
    from context_compressor.summarizers.openai import OpenAISummarizer
    from context_compressor.summarizers.protocol import Summarizer, Summary, SummaryRequest
    from context_compressor.tokens.protocol import TokenCounter
    from context_compressor.tokens.tiktoken_counter import TiktokenCounter

__all__ = [
    "CompressedMemory",
    "CompressionConfig",
    "CompressionEvent",
    "CompressionStats",
    "DashScopeSummarizer",
    "ExtractiveSummarizer",
    "FallbackSummarizer",
    "FileOffloadStore",
    "InMemoryMemory",
    "InMemoryOffloadStore",
    "MemoryBase",
    "Msg",
    "OffloadStore",
    "OffloadTools",
    "OpenAISummarizer",
    "Summarizer",
    "Summary",
    "SummaryRequest",
    "TiktokenCounter",
    "TokenCounter",
    "acompress_messages",
    "compress_messages",
    "from_openai",
    "to_openai",
]

_MODULES = {
    "CompressedMemory": "memory.compressed",
    "CompressionConfig": "compression.config",
    "CompressionEvent": "events",
    "CompressionStats": "memory.stats",
    "DashScopeSummarizer": "summarizers.dashscope",
    "ExtractiveSummarizer": "summarizers.extractive",
    "FallbackSummarizer": "summarizers.fallback",
    "FileOffloadStore": "offload.files",
    "InMemoryMemory": "memory.in_memory",
    "InMemoryOffloadStore": "offload.in_memory",
    "MemoryBase": "memory.base",
    "Msg": "messages.msg",
    "OffloadStore": "offload.protocol",
    "OffloadTools": "offload.tools.offload_tools",
    "OpenAISummarizer": "summarizers.openai",
    "Summarizer": "summarizers.protocol",
    "Summary": "summarizers.protocol",
    "SummaryRequest": "summarizers.protocol",
    "TiktokenCounter": "tokens.tiktoken_counter",
    "TokenCounter": "tokens.protocol",
    "acompress_messages": "memory.stateless",
    "compress_messages": "memory.stateless",
    "from_openai": "messages.openai",
    "to_openai": "messages.openai",
}
"""Where each public name lives. Modules are imported at the first use of a name, which takes a tenth of a
second for all that a memory needs: whoever only counts tokens or reads chat dicts does not pay for it."""


def __getattr__(name: str) -> Any:
    """Import a public name at its first use (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return [*globals(), *_MODULES]
