"""`ExtractiveSummarizer`: what was said and done, drawn from the messages themselves, without a model."""

from __future__ import annotations

from context_compressor.summarizers.notes import Notes
from context_compressor.summarizers.protocol import Summary, SummaryRequest
from context_compressor.summarizers.writing import RulesWriter
from context_compressor.tokens.counter import TokenCounter, check_counter
from context_compressor.tokens.tiktoken import as_counter


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
