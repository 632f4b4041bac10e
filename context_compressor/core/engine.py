"""What an event works with: the store that it writes to, who summarises; and what it came to."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from context_compressor.core.config import CompressionConfig
from context_compressor.core.edits import Edit, EditName
from context_compressor.core.items import segment_tokens
from context_compressor.core.labels import SAMPLE_REF, segment_text
from context_compressor.core.plans import Costs
from context_compressor.errors import OffloadCollisionError, OffloadError, SummarizerError
from context_compressor.events import NoteFate
from context_compressor.offload.store import OffloadStore, ref_of, write_text
from context_compressor.offload.stubs import media_stub, minimal_stub
from context_compressor.summarizers.attempts import Attempts, Paid
from context_compressor.summarizers.extracts import ExtractiveSummarizer
from context_compressor.summarizers.fallback import FallbackSummarizer
from context_compressor.summarizers.protocol import Summarizer
from context_compressor.summarizers.writing import NotesWriter, RulesWriter
from context_compressor.tokens.counter import TokenCounter
from context_compressor.tokens.off_loop import run_off_loop

logger = logging.getLogger(__name__)

_SAMPLE_MEDIA = "data:application/octet-stream;base64,"


def writers_of(
    summarizer: Summarizer, config: CompressionConfig, counter: TokenCounter
) -> tuple[NotesWriter, ...]:
    """Return who is asked for notes, one after the other until one has written them; rules follow."""
    seconds = config.summarizer_timeout_seconds
    chain: tuple[Summarizer, ...] = (summarizer,)
    if isinstance(summarizer, FallbackSummarizer):
        chain, each = summarizer.summarizers, summarizer.timeout_seconds
        seconds = seconds if each is None else min(seconds, each)
    return tuple(
        NotesWriter(one, counter, seconds, config.group_token_threshold)
        for one in chain
        if not isinstance(one, ExtractiveSummarizer)
    )


class Engine:
    """What events work with: a store, summarisers, a counter.

    Args:
        config: thresholds, redaction, timeouts in seconds, what failures lead to.
        store: where texts go.
        summarizer: who writes notes; rules do where that fails.
        counter: measures stand-ins.
    """

    def __init__(
        self,
        *,
        config: CompressionConfig,
        store: OffloadStore,
        summarizer: Summarizer,
        counter: TokenCounter,
    ) -> None:
        self.config = config
        self.store = store
        self.writers = writers_of(summarizer, config, counter)
        self.rules = RulesWriter(counter)
        self.counter = counter
        self._costs: Costs | None = None

    def costs(self) -> Costs:
        """Return what the bare stand-ins cost by the counter, measured at first use.

        Those that name no tool cost less.
        """
        if self._costs is None:
            # A count of messages as large as it may become, so that no real stand-in costs more.
            self._costs = Costs(
                stub=self.counter.count_text(minimal_stub(SAMPLE_REF)),
                media=self.counter.count_text(media_stub(_SAMPLE_MEDIA, SAMPLE_REF, "image")) + 20,
                segment=segment_tokens(segment_text(SAMPLE_REF, 9_999_999, "x"), self.counter),
                by_model=any(writer.remote for writer in self.writers[:1]),
            )
        return self._costs


@dataclass(slots=True)
class SummaryUse:
    """What summarising cost in one event."""

    calls: int = 0
    """Calls of a remote summariser, failed ones and retries included."""
    every: Paid = field(default_factory=Paid)
    """What all summarisers read and wrote."""
    remote: Paid = field(default_factory=Paid)
    """What remote ones did."""

    writers: list[str] = field(default_factory=list)
    """Who wrote, each once."""

    def add(self, paid: Paid, *, remote: bool, by: str | None = None) -> None:
        """Add what one summary took, and who wrote it."""
        if by is not None and by not in self.writers:
            self.writers.append(by)
        for sums in (self.every, self.remote) if remote else (self.every,):
            sums.add(paid.input_tokens, paid.output_tokens, paid.cached_tokens)


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

    Attributes:
        writes: the refs that the store was asked to take, each with whether its text is durable. False: it is
            pending. None: another text holds the ref, or the store did not answer, and the write may land.
        failures: what went wrong, each once.
        use: what summarising cost.
    """

    def __init__(self, engine: Engine) -> None:
        self._config = engine.config
        self._store = engine.store
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
        self.use.add(unused, remote=True)
        remote.input_tokens = max(0, remote.input_tokens - local.input_tokens)
        remote.output_tokens = max(0, remote.output_tokens - local.output_tokens)
