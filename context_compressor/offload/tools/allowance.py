"""What pages may take: what the agent reads back must neither leave again at once nor crowd out the rest."""

from __future__ import annotations

from context_compressor.messages.msg import Msg
from context_compressor.offload.previews.making import largest_fitting
from context_compressor.offload.tools.arguments import FinalAnswer
from context_compressor.offload.tools.schemas import SEARCH_TOOL
from context_compressor.offload.tools.source import OffloadSource

MAX_PAGE_TOKENS = 2000
"""A page of this size holds some 200 lines of code; what needs more is better searched."""
PAGES_PER_BUDGET = 8
"""A page takes at most this part of the budget, below the quarter at which a result is offloaded on
arrival."""
STANDING_SHARE = 4
"""All pages in the view take at most this part of the budget; the rest stays for the conversation."""
MIN_PAGE_TOKENS = 100
"""Below this, a page is mostly frame: refuse rather than shrink further."""
_NO_PAGE = Msg(
    SEARCH_TOOL,
    [{"type": "tool_result", "id": "call_" + 24 * "0", "name": SEARCH_TOOL, "output": ""}],
    "system",
    timestamp="",
    id="",
)
"""What carries a page, under an id as long as OpenAI's."""


class Allowance:
    """Tell what answers may cost, in tokens, by a memory's budget and counter."""

    def __init__(self, memory: OffloadSource) -> None:
        self._memory = memory

    @property
    def page_tokens(self) -> int:
        """Tokens of any answer, at most."""
        return min(MAX_PAGE_TOKENS, self._memory.budget_tokens // PAGES_PER_BUDGET)

    @property
    def standing_tokens(self) -> int:
        """Tokens of all pages that stand in the view, at most."""
        return self._memory.budget_tokens // STANDING_SHARE

    def room(self) -> int:
        """Return what the next page may cost, in tokens.

        Raises:
            FinalAnswer: the pages in the view leave too little.
        """
        allowed, standing = self.standing_tokens, self._memory.standing_page_tokens()
        room = min(self.page_tokens, allowed - standing)
        if standing:  # a page stands in a message, which counts as well
            room = min(room, allowed - standing - self._memory.counter.count_messages([_NO_PAGE]))
        if room < min(MIN_PAGE_TOKENS, self.page_tokens):
            raise FinalAnswer(
                f"Not shown: pages already in view take {standing} of the {allowed} tokens allowed to pages. "
                "Work with those pages, and write down what you need from them. They make room when the "
                "conversation is next compressed; until then do not call this again."
            )
        return room

    def clip(self, answer: str) -> str:
        """Cut a sentence that is longer than a page may be; pages are made to fit."""
        count, limit = self._memory.counter.count_text, self.page_tokens
        if count(answer) <= limit:
            return answer
        return answer[: largest_fitting(lambda n: count(answer[:n]), len(answer), limit, limit * 3)]
