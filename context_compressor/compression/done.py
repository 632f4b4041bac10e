"""What an event has done so far, and writing to the store for it."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from context_compressor.compression.config import CompressionConfig
from context_compressor.compression.edits import ItemKey, SegmentEdit, StubEdit
from context_compressor.errors import OffloadCollisionError, OffloadError, SummarizerError
from context_compressor.events import NoteFate
from context_compressor.messages.parts import PartPath
from context_compressor.offload.store import OffloadStore, ref_of, write_text
from context_compressor.summarizers.attempts import Attempts, Paid
from context_compressor.summarizers.protocol import Summary
from context_compressor.tokens.off_loop import run_off_loop

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


class Writer:
    """Write texts for events.

    Args:
        config: the time limit in seconds, and what failures lead to.
        store: where the texts go.
    """

    def __init__(self, config: CompressionConfig, store: OffloadStore) -> None:
        self._config = config
        self._store = store

    async def write_own(self, text: str, done: Performed) -> str:
        """Store a text of our own making; a collision leaves it pending, served from the history."""
        ref = await run_off_loop(len(text), ref_of, text)
        try:
            await self.write(text, ref, done)
        except OffloadCollisionError as error:
            done.fail(error)
            done.pending.add(ref)
        return ref

    async def write(self, text: str, ref: str, done: Performed) -> None:
        """Make a text durable, or note it as pending.

        Raises:
            OffloadCollisionError: another text holds the ref.
            OffloadError: the store refused and `on_failure` is "raise".
        """
        done.attempted.add(ref)
        try:
            await write_text(self._store, text, ref, self._config.store_timeout_seconds)
        except OffloadCollisionError:
            raise
        except OffloadError as error:
            if self._config.on_failure == "raise":
                raise
            done.fail(error)
            done.pending.add(ref)
        else:
            done.written.add(ref)
