"""Counters for tests: one a real vocabulary cannot be told apart from, others with habits of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from context_compressor.messages.msg import Msg


class _Texts:
    def count_messages(self, messages: Sequence[Msg | dict[str, Any]]) -> int:
        raise NotImplementedError("these tests count texts only")


class QuarterCounter(_Texts):
    """Four characters a token, rounded up, and never 0: not additive."""

    def count_text(self, text: str) -> int:
        return len(text) // 4 + 1


class WordCounter(_Texts):
    """A word a token: one enormous word costs 1."""

    def count_text(self, text: str) -> int:
        return len(text.split())


class ByteCounter(_Texts):
    """A byte a token, as for a vocabulary that knows no word."""

    def count_text(self, text: str) -> int:
        return len(text.encode("utf-8", "surrogatepass"))
