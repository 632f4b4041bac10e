"""Short-term memory middleware for LLM agents: views that fit a token budget, with nothing lost."""

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
from context_compressor.offload.tools import OffloadTools
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
