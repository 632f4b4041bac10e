"""What performing a plan came to."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from context_compressor.compression.edits import ItemKey, SegmentEdit, StubEdit
from context_compressor.errors import SummarizerError
from context_compressor.events import NoteFate
from context_compressor.messages.parts import PartPath
from context_compressor.summarizers.attempts import Attempts, Paid
from context_compressor.summarizers.protocol import Summary

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class SummaryUse:
    """What summarising cost in one event."""

    calls: int = 0
    """Calls of a remote summariser, failed ones and retries included."""
    input_tokens: int = 0
    output_tokens: int = 0
    remote_input_tokens: int = 0
    remote_output_tokens: int = 0

    def add_remote(self, paid: Paid | Summary) -> None:
        """Add what a model was paid for."""
        self.input_tokens += paid.input_tokens
        self.output_tokens += paid.output_tokens
        self.remote_input_tokens += paid.input_tokens
        self.remote_output_tokens += paid.output_tokens

    def take_off_local(self, local: Paid) -> None:
        """Take off what was added as a model's, and was not."""
        self.remote_input_tokens = max(0, self.remote_input_tokens - local.input_tokens)
        self.remote_output_tokens = max(0, self.remote_output_tokens - local.output_tokens)


@dataclass(slots=True)
class Performed:
    """What a plan came to: edits to commit, and what went wrong on the way."""

    stubs: list[StubEdit] = field(default_factory=list)
    segments: list[SegmentEdit] = field(default_factory=list)
    pending: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)
    attempted: set[str] = field(default_factory=set)
    """Refs that the store was asked to take, whatever it said: a write may land although nobody waited."""
    blocked: set[tuple[ItemKey, PartPath]] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)
    use: SummaryUse = field(default_factory=SummaryUse)
    note: NoteFate | None = None
    """What became of the agent's note, if there was one."""

    def fail(self, error: Exception) -> None:
        """Note what went wrong, once."""
        logger.warning("%s: %s", type(error).__name__, error)
        text = f"{type(error).__name__}: {error}"
        if text not in self.failures:
            self.failures.append(text)

    def settle(self, attempts: Attempts) -> None:
        """Add what only those know who were asked: what was paid for nothing, and who was passed over."""
        for failure in attempts.take_passed_over():
            self.fail(SummarizerError(failure))
        self.use.add_remote(attempts.take_unused())
        self.use.take_off_local(attempts.take_local())
