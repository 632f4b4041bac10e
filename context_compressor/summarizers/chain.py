"""Who is asked for notes, one after the other; `FallbackSummarizer` is a chain of a user's own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack

from context_compressor.errors import SummarizerError, check_number
from context_compressor.summarizers.notes import Notes
from context_compressor.summarizers.protocol import Summarizer, Summary, SummaryRequest, check_summarizer
from context_compressor.summarizers.writers import NotesWriter, RulesWriter, Written
from context_compressor.tokens.counter import TokenCounter, check_counter
from context_compressor.tokens.tiktoken import as_counter

ChainWriter = NotesWriter | RulesWriter


class Chain:
    """Ask one writer after the other, until one has written the notes.

    Args:
        writers: in this order; rules do not fail.
    """

    def __init__(self, writers: Sequence[ChainWriter]) -> None:
        self.writers = tuple(writers)

    async def write(
        self,
        write: Callable[[ChainWriter], Awaitable[Written]],
        passed_over: Callable[[ChainWriter, SummarizerError], None],
    ) -> Written:
        """Return the first notes that are written.

        Args:
            write: asks a writer.
            passed_over: hears who failed, and why, before the next one is asked.

        Raises:
            SummarizerError: the last one failed, too.
        """
        *others, last = self.writers
        for writer in others:
            try:
                return await write(writer)
            except SummarizerError as error:
                passed_over(writer, error)
        return await write(last)


def writers_of(
    summarizer: Summarizer,
    counter: TokenCounter,
    timeout_seconds: float | None,
    piece_tokens: int | None = None,
) -> Iterator[ChainWriter]:
    """Yield who is asked where a summariser is: those of a chain each for itself.

    Args:
        summarizer: a user's own.
        counter: measures what they write.
        timeout_seconds: for each; None waits for ever.
        piece_tokens: as for `NotesWriter`.
    """
    if isinstance(summarizer, ExtractiveSummarizer):
        yield RulesWriter(counter)
    elif isinstance(summarizer, FallbackSummarizer):
        limits = [one for one in (timeout_seconds, summarizer.timeout_seconds) if one is not None]
        for one in summarizer.summarizers:
            yield from writers_of(one, counter, min(limits, default=None), piece_tokens)
    else:
        yield NotesWriter(summarizer, counter, timeout_seconds, piece_tokens)


class ExtractiveSummarizer:
    """Write without a model: users' words, what was done about them, errors, and what is not told.

    Deterministic, and never longer than asked. A memory that is given one writes its notes by the same rules,
    and chooses anew at each event among all that left.

    Args:
        counter: measures the summary; a `TiktokenCounter()` when None.

    Raises:
        InvalidArgumentError: `counter` is no token counter.
    """

    remote = False
    quotes = True

    def __init__(self, counter: TokenCounter | str | None = None) -> None:
        check_counter(counter)
        self._writer = RulesWriter(as_counter(counter))

    async def summarize(self, request: SummaryRequest) -> Summary:
        """Return a summary of `request.messages` in at most `request.max_tokens` tokens."""
        written = await self._writer.write(request, Notes().added(request.previous or ""))
        return Summary(text=written.notes.text())


class FallbackSummarizer:
    """Write the first notes that pass the checks, asking each summariser in turn.

    A memory asks each of them in this order for its notes, and an event of kind `failure` says who was passed
    over, and why.

    Args:
        first: who is asked first.
        second: who is asked where the first fails.
        more: who is asked then, in this order.
        counter: measures summaries; a `TiktokenCounter()` when None.
        timeout_seconds: how long each may take, so that one which hangs does not use up the time of the next;
            None waits for ever.

    Raises:
        InvalidArgumentError: one is no summariser, or another argument is of the wrong type or out of range.
    """

    def __init__(
        self,
        first: Summarizer,
        second: Summarizer,
        *more: Summarizer,
        counter: TokenCounter | str | None = None,
        timeout_seconds: float | None = 60.0,
    ) -> None:
        for place, summarizer in enumerate((first, second, *more), 1):
            check_summarizer(f"summariser {place}", summarizer)
        check_counter(counter)
        if timeout_seconds is not None:
            check_number("timeout_seconds", timeout_seconds, is_above=True)
        self.summarizers = (first, second, *more)
        self.timeout_seconds = timeout_seconds
        self._counter: TokenCounter = as_counter(counter)
        self._chain: Chain | None = None
        self.remote = any(summarizer.remote for summarizer in self.summarizers)

    async def summarize(self, request: SummaryRequest) -> Summary:
        """Return what `request.previous` and a summary of `request.messages` come to as notes.

        Raises:
            SummarizerError: none gave one; the text says of each why not.
        """
        notes = Notes().added(request.previous or "")
        read_tokens = self._counter.count_messages(request.messages) + self._counter.count_text(notes.text())
        failures: list[str] = []

        def write(writer: ChainWriter) -> Awaitable[Written]:
            return writer.write(request, notes, read_tokens=read_tokens)

        def note(writer: ChainWriter, error: SummarizerError) -> None:
            failures.append(f"{writer.kind}: {error}")

        if self._chain is None:  # a memory that asks each for itself has a counter of its own for them
            self._chain = Chain([*writers_of(self, self._counter, None)])
        try:
            written = await self._chain.write(write, note)
        except SummarizerError as error:
            note(self._chain.writers[-1], error)
            raise SummarizerError(f"all {len(failures)} summarisers failed: {'; '.join(failures)}") from error
        request.bill.passed_over += failures
        return Summary(written.notes.text(), written.paid.input_tokens, written.paid.output_tokens)

    async def aclose(self) -> None:
        """Close those that can be closed, all of them even when one fails."""
        async with AsyncExitStack() as stack:
            for summarizer in self.summarizers:
                close = getattr(summarizer, "aclose", None)
                if close is not None:
                    stack.push_async_callback(close)
