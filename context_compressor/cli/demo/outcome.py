"""What the demo shows of each turn, and what it comes to."""

from __future__ import annotations

from dataclasses import dataclass, field

from context_compressor.events import CompressionEvent


@dataclass(slots=True)
class Row:
    """One turn, as displays show it."""

    turn: int
    tools: tuple[str, ...]
    history_tokens: int
    view_tokens: int
    events: tuple[CompressionEvent, ...]


@dataclass(slots=True)
class ReadBack:
    """A text that had left the view, fetched by the agent and compared with the original."""

    asked_for: str
    ref: str
    lines: list[str]
    is_identical: bool


@dataclass(slots=True)
class Outcome:
    """What the demo came to."""

    python: str
    budget_tokens: int
    requests: int = 0
    history_tokens: int = 0
    view_tokens: int = 0
    peak_view_tokens: int = 0
    history_input_tokens: int = 0
    """Tokens that all requests together would have cost without the memory."""
    view_input_tokens: int = 0
    """Tokens that all requests together did cost."""
    events: dict[str, int] = field(default_factory=dict)
    stored_texts: int = 0
    summarizer_calls: int = 0
    summarizer_input_tokens: int = 0
    summarizer_output_tokens: int = 0
    invalid_requests: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    read_back: ReadBack | None = None

    @property
    def is_good(self) -> bool:
        """Whether every check holds."""
        read_back = self.read_back is None or self.read_back.is_identical
        return not self.invalid_requests and self.peak_view_tokens <= self.budget_tokens and read_back
