"""`ExtractiveSummarizer`: a summary drawn from the messages themselves, without a model."""

from __future__ import annotations

from context_compressor.summarizers.cutting import cut_to_tokens, fill_tokens
from context_compressor.summarizers.protocol import Summary, SummaryRequest
from context_compressor.tokens.counter import TokenCounter, check_counter
from context_compressor.tokens.off_loop import run_rules_off_loop, text_characters
from context_compressor.tokens.tiktoken import as_counter


class ExtractiveSummarizer:
    """Summarise without a model: users' words, what was done about them, what failed, what is open.

    Deterministic, and never longer than asked. Fills the room that it is given: quotes grow until it is full.
    Takes 10 to 30 ms for 10,000 tokens of messages, in a thread where they are many.

    Args:
        counter: measures the summary; a `TiktokenCounter()` when None.

    Raises:
        InvalidArgumentError: `counter` is no token counter.
    """

    remote = False
    quotes = True

    def __init__(self, counter: TokenCounter | str | None = None) -> None:
        check_counter(counter)
        self._counter: TokenCounter = as_counter(counter)

    async def summarize(self, request: SummaryRequest) -> Summary:
        """Return a summary of `request.messages` in at most `request.max_tokens` tokens."""
        return Summary(text=await run_rules_off_loop(text_characters(request.messages), self._write, request))

    def _write(self, request: SummaryRequest) -> str:
        # Not before there is something to summarise: what is imported first is what most calls need.
        from context_compressor.summarizers.extracts.writing import Draft

        draft = Draft(request)
        filled = fill_tokens(draft.write, request.max_tokens, self._counter)
        return filled or cut_to_tokens(draft.best_line(), request.max_tokens, self._counter)
