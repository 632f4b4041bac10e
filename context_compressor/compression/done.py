"""What an event came to, and what it asks of the store on the way."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from context_compressor.compression.config import CompressionConfig
from context_compressor.compression.edits import Edit, EditName
from context_compressor.errors import OffloadCollisionError, OffloadError, SummarizerError
from context_compressor.events import NoteFate
from context_compressor.offload.store import OffloadStore, ref_of, write_text
from context_compressor.summarizers.attempts import Attempts, Paid
from context_compressor.tokens.off_loop import run_off_loop

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class SummaryUse:
    """What summarising cost in one event."""

    calls: int = 0
    """Calls of a remote summariser, failed ones and retries included."""
    every: Paid = field(default_factory=Paid)
    """What all summarisers read and wrote."""
    remote: Paid = field(default_factory=Paid)
    """What remote ones did."""

    def add(self, input_tokens: int, output_tokens: int, *, remote: bool) -> None:
        """Add what one summary took."""
        self.every.add(input_tokens, output_tokens)
        if remote:
            self.remote.add(input_tokens, output_tokens)


@dataclass(frozen=True, slots=True)
class Done:
    """What an event came to."""

    edits: Sequence[Edit]
    """To be committed: stubs, then segments."""
    writes: Mapping[str, bool | None]
    """As `Writer.writes`."""
    failures: Sequence[str]
    """What went wrong on the way."""
    use: SummaryUse
    blocked: AbstractSet[EditName] = frozenset()
    """Texts that could not be stubbed."""
    note: NoteFate | None = None
    """What became of the agent's note, if there was one."""

    def refs(self, *, durable: bool) -> set[str]:
        """Return the refs of texts that are durable, or of those that are pending."""
        return {ref for ref, is_durable in self.writes.items() if is_durable is durable}


class Writer:
    """Write the texts of one event, and note what goes wrong and what is paid.

    Args:
        config: the time limit in seconds, and what failures lead to.
        store: where the texts go.

    Attributes:
        writes: the refs that the store was asked to take, each with whether its text is durable. False: it is
            pending. None: another text holds the ref, or the store did not answer, and the write may land.
        failures: what went wrong, each once.
        use: what summarising cost.
    """

    def __init__(self, config: CompressionConfig, store: OffloadStore) -> None:
        self._config = config
        self._store = store
        self.writes: dict[str, bool | None] = {}
        self.failures: list[str] = []
        self.use = SummaryUse()

    async def write_own(self, text: str) -> str:
        """Store a text of our own making; a collision leaves it pending, served from the history."""
        ref = await run_off_loop(len(text), ref_of, text)
        try:
            await self.write(text, ref)
        except OffloadCollisionError as error:
            self._leave_pending(ref, error)
        return ref

    async def write(self, text: str, ref: str) -> None:
        """Make a text durable, or note it as pending.

        Raises:
            OffloadCollisionError: another text holds the ref.
            OffloadError: the store refused and `on_failure` is "raise".
        """
        self.writes.setdefault(ref, None)
        try:
            await write_text(self._store, text, ref, self._config.store_timeout_seconds)
        except OffloadCollisionError:
            raise
        except OffloadError as error:
            if self._config.on_failure == "raise":
                raise
            self._leave_pending(ref, error)
        else:
            self.writes[ref] = True

    def _leave_pending(self, ref: str, error: OffloadError) -> None:
        self.fail(error)
        self.writes[ref] = bool(self.writes[ref])  # one that landed is durable, whatever came of another

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
        self.use.calls = attempts.taken
        unused, local, remote = attempts.take_unused(), attempts.take_local(), self.use.remote
        self.use.add(unused.input_tokens, unused.output_tokens, remote=True)
        remote.input_tokens = max(0, remote.input_tokens - local.input_tokens)
        remote.output_tokens = max(0, remote.output_tokens - local.output_tokens)
