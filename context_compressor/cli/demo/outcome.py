"""What the demo shows of each turn, what it comes to, and what it checks with code of its own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from context_compressor.events import CompressionEvent

_PAGE = re.compile(r"\[(ctx://[0-9a-f]{16}) lines (\d+)-(\d+) of \d+.*\]")
_FOUND_TEXT = re.compile(r"\[(ctx://[0-9a-f]{16}) matches: .*\]")
_FOUND_LINE = re.compile(r"(\d+)(?::\d+-\d+)?(?: x\d+)?\| ")


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


def first_found(answer: str) -> tuple[str, int] | None:
    """Return ref and line of the first match that an answer of `grep_offloaded` shows."""
    ref = None
    for line in answer.split("\n"):
        if header := _FOUND_TEXT.fullmatch(line):
            ref = header[1]
        elif ref is not None and (found := _FOUND_LINE.match(line)):
            return ref, int(found[1])
    return None


def page_lines(page: str) -> list[str]:
    """Return the lines of text that an answer of `read_offloaded` shows; none when it shows no page."""
    lines = page.split("\n")
    return lines[1:-1] if _PAGE.fullmatch(lines[0]) else []


def stands_in(lines: Sequence[str], history: Sequence[dict[str, Any]]) -> bool:
    """Tell whether `lines` stand, one after the other and unchanged, in one message of the history."""
    wanted = "\n".join(("", *lines, ""))
    return bool(lines) and any(wanted in f"\n{message.get('content')}\n" for message in history)
