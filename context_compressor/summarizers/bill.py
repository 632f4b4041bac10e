"""What asking models may cost in one event, and what it did."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from context_compressor.errors import SummarizerError


@dataclass(slots=True)
class Paid:
    """Tokens of answers."""

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
class Bill:
    """The calls of models that one event may make, those it made, and what they cost."""

    limit: int = sys.maxsize
    """How many calls there may be."""
    calls: int = 0
    """Calls so far, failed ones and retries included."""
    failure: str = ""
    """Why the last one that failed did."""
    every: Paid = field(default_factory=Paid)
    """What all summarisers read and wrote."""
    remote: Paid = field(default_factory=Paid)
    """What remote ones did."""
    writers: list[str] = field(default_factory=list)
    """Who wrote, each once."""
    passed_over: list[str] = field(default_factory=list)
    """Why those failed in whose place another one answered."""

    @property
    def left(self) -> int:
        """How many more calls there may be."""
        return max(0, self.limit - self.calls)

    def check(self) -> None:
        """Check that there is a call left.

        Raises:
            SummarizerError: there is none.
        """
        if not self.left:
            why = f"; the last that failed: {self.failure}" if self.failure else ""
            raise SummarizerError(f"the {self.limit} attempts of this event are used up{why}")

    def take(self) -> None:
        """Take one call. To be called before each request that is sent.

        Raises:
            SummarizerError: all are taken.
        """
        self.check()
        self.calls += 1

    def add(self, paid: Paid, *, remote: bool, by: str | None = None) -> None:
        """Add what one summary took, and who wrote it."""
        if by is not None and by not in self.writers:
            self.writers.append(by)
        for sums in (self.every, self.remote) if remote else (self.every,):
            sums.add(paid.input_tokens, paid.output_tokens, paid.cached_tokens)

    @contextmanager
    def paying(self, *, remote: bool = True) -> Iterator[Paid]:
        """Add up what answers cost, for the caller to add; what fails or is cancelled is added here."""
        paid = Paid()
        try:
            yield paid
        except BaseException:
            if remote:
                self.add(paid, remote=True)
            raise


def take_attempt() -> None:
    """Do nothing: what is sent is taken from the bill of the request. It goes after one release."""
    warnings.warn(
        "take_attempt does nothing now and will go: call request.bill.take() before each request",
        DeprecationWarning,
        stacklevel=2,
    )
