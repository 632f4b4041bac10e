"""`FallbackSummarizer`: ask one summariser after the other."""

from __future__ import annotations

from contextlib import AsyncExitStack

from context_compressor.errors import SummarizerError, check_number
from context_compressor.summarizers.attempts import current_attempts
from context_compressor.summarizers.checking import summarize_checked
from context_compressor.summarizers.protocol import (
    Summarizer,
    Summary,
    SummaryRequest,
    check_summarizer,
    name_of,
)
from context_compressor.tokens.counter import TokenCounter, check_counter
from context_compressor.tokens.tiktoken import as_counter


class FallbackSummarizer:
    """Return the first summary that passes the checks, asking each summariser in turn.

    A memory asks each of them in this order for its notes, and an event of kind `failure` says who was passed
    over, and why.

    Args:
        first, second, more: who to ask, in this order.
        counter: measures summaries; a `TiktokenCounter()` when None.
        timeout_seconds: how long each may take, so that one which hangs does not use up the time of the next;
            None waits for ever.

    Raises:
        InvalidArgumentError: one is no summariser, or another argument is of the wrong type or out of range.
    """

    takes_attempts = True

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
        self.remote = any(summarizer.remote for summarizer in self.summarizers)

    async def summarize(self, request: SummaryRequest) -> Summary:
        """Return a checked summary of `request.messages`.

        Raises:
            SummarizerError: none gave one; the text says of each why not.
        """
        replaced_tokens = self._counter.count_messages(request.messages)
        if request.previous:
            replaced_tokens += self._counter.count_text(request.previous)
        failures: list[str] = []
        for summarizer in self.summarizers:
            try:
                summary = await summarize_checked(
                    summarizer,
                    request,
                    self._counter,
                    replaced_tokens=replaced_tokens,
                    input_tokens_estimate=replaced_tokens,
                    timeout_seconds=self.timeout_seconds,
                )
            except SummarizerError as error:
                failures.append(f"{name_of(summarizer)}: {error}")
                continue
            attempts = current_attempts()
            attempts.passed_over += failures
            if self.remote and not summarizer.remote:
                attempts.local.add(summary.input_tokens, summary.output_tokens)
            return summary
        raise SummarizerError(f"all {len(failures)} summarisers failed: {'; '.join(failures)}")

    async def aclose(self) -> None:
        """Close those that can be closed, all of them even when one fails."""
        async with AsyncExitStack() as stack:
            for summarizer in self.summarizers:
                close = getattr(summarizer, "aclose", None)
                if close is not None:
                    stack.push_async_callback(close)
