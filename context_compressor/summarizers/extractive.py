"""`ExtractiveSummarizer`: a summary drawn from the messages themselves, without a model."""

from __future__ import annotations

from context_compressor.summarizers.cutting import cut_to_tokens
from context_compressor.summarizers.digest import digest_messages
from context_compressor.summarizers.drafting import Draft
from context_compressor.summarizers.protocol import Summary, SummaryRequest
from context_compressor.tokens.off_loop import run_off_loop, text_characters
from context_compressor.tokens.protocol import TokenCounter

_CHARS_PER_TOKEN = 2.9
"""A first guess for lines full of identifiers, corrected by counting."""
_ROUNDS = 6


class ExtractiveSummarizer:
    """Summarise without a model: quote requests, list calls with outcomes, name what will be needed again.

    Deterministic, and never longer than asked. Fills the room it is given: what each section leaves goes to
    the identifiers (paths, ids, names) that the agent is likeliest to use again, each beside a word that says
    what it is. Some 8 ms for 10,000 tokens of messages.

    Args:
        counter: measures the summary; a `TiktokenCounter()` when None.
    """

    remote = False

    def __init__(self, counter: TokenCounter | None = None) -> None:
        self._counter = counter

    async def summarize(self, request: SummaryRequest) -> Summary:
        """Return a summary of `request.messages` in at most `request.max_tokens` tokens."""
        return Summary(text=await run_off_loop(text_characters(request.messages), self._write, request))

    def _write(self, request: SummaryRequest) -> str:
        counter = self._counter
        if counter is None:
            from context_compressor.tokens.tiktoken_counter import TiktokenCounter

            counter = self._counter = TiktokenCounter()
        draft = Draft(digest_messages(request.messages, request.previous), request)
        room = request.max_tokens * _CHARS_PER_TOKEN
        best = ""
        for _ in range(_ROUNDS):
            text, complete = draft.write(room)
            tokens = counter.count_text(text)
            if tokens <= request.max_tokens:
                best = text
                if complete or tokens >= 0.95 * request.max_tokens:
                    return text
            room *= min(2.0, 0.98 * request.max_tokens / max(1, tokens))
        return best or cut_to_tokens(text, request.max_tokens, counter)
