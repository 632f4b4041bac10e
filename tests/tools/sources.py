"""What the tools read from, without a memory."""

from __future__ import annotations

from context_compressor.offload.store import ref_of
from context_compressor.tokens.counter import TokenCounter
from context_compressor.tokens.tiktoken import TiktokenCounter

COUNTER = TiktokenCounter()


class Source:
    """A memory as the tools see it: texts, newest first."""

    def __init__(self, *texts: str, budget: int = 16_000, counter: TokenCounter = COUNTER) -> None:
        self.texts = {ref_of(text): text for text in texts}
        self.budget_tokens = budget
        self.counter = counter
        self.standing = 0
        self.failing: dict[str, Exception] = {}

    async def reachable_refs(self) -> list[str]:
        return list(self.texts)

    async def read_ref(self, ref: str) -> str:
        if ref in self.failing:
            raise self.failing[ref]
        return self.texts[ref]

    def standing_page_tokens(self) -> int:
        return self.standing
