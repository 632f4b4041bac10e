"""Calls of a model: how many an event may make, and what refuses one as too long."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field

from context_compressor.errors import SummarizerError

_CODES = frozenset({"context_length_exceeded", "context_window_exceeded", "exceed_context_size_error"})
_STATUS = frozenset({200, 400, 413, 422, 500})
"""Others say what else is wrong; 429 speaks of tokens per minute. Some servers put errors into a 200."""
_WHAT = (
    r"(?:(?<!output )(?<!completion )tokens?\b|\bprompt\b|\binputs?\b(?! image| validation)"
    r"|\btext (?:bytes|characters)|\bcontext\b|上下文|输入(?!图))"
)
"""What is too long: not an image, not what an answer may take, no field of a request."""
_EXCESS = (
    r"(?:exceed|too (?:long|large|many)|\bmax|limit\b|only supports|<=|less than \d+ tokens|range of"
    r"|超过|超出|过长|超长)"
)
_TEXT = re.compile(
    rf"{_WHAT}[^\n]{{0,80}}?{_EXCESS}|{_EXCESS}[^\n]{{0,40}}?{_WHAT}"
    r"|context[ _](?:length|window|size)|reduce the length|request(?: is)? too (?:long|large)",
    re.IGNORECASE,
)
_NO_LENGTH = re.compile(r"'[\w.\[\]]{1,80}'|\bmax_(?:completion_|output_|new_)?tokens\b")
"""Names of fields: what is said of one is not said of the prompt."""
_RATE = re.compile(r"\bper (?:min|hour|day)|\brate\b|\bwait\b|throttl|quota", re.IGNORECASE)
_NUMBER = r"(\d[\d,]{0,14}+)(?![\dk>]| \+)"
"""Python reads no number of thousands of digits, which a broken server may write; `128k` is not 128, `<400>`
is a status, and what is added to something is no limit."""
_LINK = (
    r"(?:[ _:]+(?:allowed|number|of|is|only|up|to|tokens?|input|prompt|model|context|length|len|window|size"
    r"|seq|sequence))*"
)
# In parentheses behind `limit` it may be the error's own number (MiniMax).
_LIMIT = re.compile(
    r"(?:context|max(?:imum)?|limit(?! \()|exceeds?|supports|than|[<>]=?|\[\s*\d+\s*,)"
    rf"{_LINK}[\s:(`]*{_NUMBER}|{_NUMBER} maximum",
    re.IGNORECASE,
)
_NO_TOKENS = re.compile(r"\bbytes\b|\bcharacters\b", re.IGNORECASE)
_ROOM = re.compile(
    r"max_(?:completion_)?tokens\b.{0,100}?(?:\[\s*\d+\s*,|equal to|at most|<=|: \d+ >) ?\W?(\d{1,12})"
    r"|at most (\d{1,12}) completion tokens",
    re.IGNORECASE | re.ASCII,  # a name may stand between Chinese characters
)
_MIN_LIMIT = 16


def says_overflow(status: int, code: str | None, text: str) -> bool:
    """Tell whether an answer with this HTTP status, error code and text says that the prompt was too long."""
    if code in _CODES or status == 413:
        return True
    if status not in _STATUS or _RATE.search(text) or _ROOM.search(text):
        return False  # what says that an answer may not be so long may name the context window, too
    return _TEXT.search(_NO_LENGTH.sub("", text)) is not None


def limit_said(text: str) -> int | None:
    """Return how many tokens the model reads, as an error text says, or None when it does not."""
    if _NO_TOKENS.search(text) and "token" not in text:
        return None
    numbers = (int((match[1] or match[2]).replace(",", "")) for match in _LIMIT.finditer(text))
    return next((tokens for tokens in numbers if tokens >= _MIN_LIMIT), None)


def room_in(text: str) -> int | None:
    """Return how many tokens an answer may be given, as an error text says, or None when it does not."""
    match = _ROOM.search(text)
    return int(match[match.lastindex or 0]) if match else None


@dataclass(slots=True)
class Paid:
    """Tokens of the answers that one summary took."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    """Of those read, the ones that came out of the provider's prompt cache."""

    def add(self, input_tokens: int, output_tokens: int, cached_tokens: int = 0) -> None:
        """Add an answer."""
        self.input_tokens += input_tokens
        self.output_tokens += output_tokens
        self.cached_tokens += cached_tokens


@dataclass(slots=True)
class Attempts:
    """How often providers may be called, and how often they were; and what came of it since last asked."""

    limit: int
    taken: int = 0
    failure: str = ""
    """Why the last one that failed did."""
    unused: Paid = field(default_factory=Paid)
    """Of answers of which nothing came into a summary."""
    local: Paid = field(default_factory=Paid)
    """Of answers that stand in for a model's, and that no model gave."""
    passed_over: list[str] = field(default_factory=list)
    """Why those failed in whose place another one answered."""

    @property
    def left(self) -> int:
        """How many more there may be."""
        return max(0, self.limit - self.taken)

    def take_unused(self) -> Paid:
        """Return what was paid for nothing since the last call."""
        unused, self.unused = self.unused, Paid()
        return unused

    def take_local(self) -> Paid:
        """Return what was counted as paid since the last call, and was not."""
        local, self.local = self.local, Paid()
        return local

    def take_passed_over(self) -> list[str]:
        """Return why those failed that were passed over since the last call."""
        passed_over, self.passed_over = self.passed_over, []
        return passed_over


# Tasks and threads copy the context, and share the object in it.
_budget: ContextVar[Attempts | None] = ContextVar("context_compressor_attempts", default=None)


@contextmanager
def attempt_budget(limit: int) -> Iterator[Attempts]:
    """Bound the attempts of everything asked within, tasks started there included; yield the budget."""
    budget = Attempts(limit)
    token = _budget.set(budget)
    try:
        yield budget
    finally:
        with suppress(ValueError):  # a task whose loop was closed is ended by Python, outside of its context
            _budget.reset(token)


def current_attempts() -> Attempts:
    """Return the budget that is in force; where none is, a new one without a bound, which nobody reads."""
    return _budget.get() or Attempts(sys.maxsize)


def take_attempt() -> None:
    """Take one attempt from the budget, if there is one. To be called before a provider is.

    Raises:
        SummarizerError: all are taken.
    """
    budget = current_attempts()
    if not budget.left:
        why = f"; the last that failed: {budget.failure}" if budget.failure else ""
        raise SummarizerError(f"the {budget.limit} attempts of this event are used up{why}")
    budget.taken += 1


def charge_call(summarizer: object) -> None:
    """Take the attempt of a call by a remote summariser, unless it says by `takes_attempts` that it does."""
    if getattr(summarizer, "remote", False) and not getattr(summarizer, "takes_attempts", False):
        take_attempt()


@contextmanager
def paying(summarizer: object) -> Iterator[Paid]:
    """Add up what answers cost; after an error, or a cancellation, they count as unused."""
    paid = Paid()
    try:
        yield paid
    except BaseException:
        if getattr(summarizer, "remote", False):
            current_attempts().unused.add(paid.input_tokens, paid.output_tokens)
        raise
