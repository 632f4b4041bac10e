"""One budget of attempts for all that is asked of providers in one event.

Retries, second tries of a summary that is too long, the parts of a large request: each is bounded by itself,
and together they would multiply. Within `attempt_budget` they share one bound.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field

from context_compressor.errors import SummarizerError


@dataclass(slots=True)
class Paid:
    """Tokens of the answers that one summary took."""

    input_tokens: int = 0
    output_tokens: int = 0

    def add(self, input_tokens: int, output_tokens: int) -> None:
        """Add an answer."""
        self.input_tokens += input_tokens
        self.output_tokens += output_tokens


@dataclass(slots=True)
class Attempts:
    """How often providers may be called, and how often they were."""

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
    """Bound the attempts of everything asked within, tasks started there included.

    It yields the budget, whose `taken` tells afterwards how many there were.
    """
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


def charge_call(summarizer: object) -> None:
    """Take the attempt of a call on behalf of a summariser that knows nothing of budgets.

    One that takes its own, before each request that it sends, says so by an attribute `takes_attempts`; one
    that is not `remote` costs none.
    """
    if getattr(summarizer, "remote", False) and not getattr(summarizer, "takes_attempts", False):
        take_attempt()
