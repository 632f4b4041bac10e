"""What the tools need of a memory, which texts of it they read, and what pages may cost."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Protocol, TypeGuard

from context_compressor.errors import OffloadCorruptError, OffloadError, OffloadNotFoundError
from context_compressor.events import CompressionEvent
from context_compressor.messages.msg import Block, Msg
from context_compressor.offload.guide import GREP_TOOL, SEARCH_TOOL, SpeakerRole
from context_compressor.offload.store import REF_PREFIX
from context_compressor.search.hits import Hit
from context_compressor.tokens.counter import TokenCounter, largest_fitting
from context_compressor.tools.arguments import FinalAnswer, show_value

NEWEST_NAMED = 5
"""Refs that an answer names at most."""
_MAX_REF_CHARACTERS = 1_000
"""Of what a model gives as a ref so much is looked at: a whole stub's first line is shorter."""
_HEX_REF = re.compile(r"(?<![0-9a-f])[0-9a-f]{16}(?![0-9a-f])")


class OffloadSource(Protocol):
    """What the tools need of a memory."""

    @property
    def counter(self) -> TokenCounter:
        """What pages are counted by."""
        ...

    @property
    def budget_tokens(self) -> int:
        """What a view may cost."""
        ...

    async def reachable_refs(self) -> list[str]:
        """Return every ref that the memory's ledger reaches, newest first."""
        ...

    async def read_ref(self, ref: str) -> str:
        """Return the text under a reachable ref.

        Raises:
            OffloadNotFoundError: the text is gone.
            OffloadError: it could not be read.
        """
        ...

    def standing_page_tokens(self) -> int:
        """Return the tokens of the pages that stand in the view."""
        ...


class HistorySource(OffloadSource, Protocol):
    """Methods of a memory that tools use: `search_history` and `compress_context` need one each; the others
    make answers better.
    """

    async def search_history(
        self, query: str, limit: int = ..., role: SpeakerRole | None = ...
    ) -> Sequence[Hit]:
        """Return at most `limit` passages of the whole history that answer a query, best first; those that
        one role said, if it is named.

        Raises:
            ContextCompressorError: it could not be searched.
        """
        ...

    async def ages_of_refs(self) -> Mapping[str, tuple[int, int]]:
        """Return by ref how many messages ago the newest and the oldest message of each text were."""
        ...

    def own_words_in(self, ref: str, text: str) -> Sequence[tuple[int, int]]:
        """Return where the text under a ref holds words of the memory, as starts and ends."""
        ...

    async def find_media(self, name: str) -> Block | None:
        """Return the newest block of the history with media of this URL or file id; None: there is none."""
        ...

    async def compress_now(self, keep: str | None = ...) -> CompressionEvent | None:
        """Compress all that may leave, with a note on what to keep; None if there was nothing to gain.

        Raises:
            ContextCompressorError: it could not be compressed.
        """
        ...


def can(memory: object, method: str) -> TypeGuard[HistorySource]:
    """Tell whether a memory has one of these methods, be it by handing that on to one that it wraps.

    Not by `isinstance`: since Python 3.12 that does not ask `__getattr__`.
    """
    return callable(getattr(memory, method, None))


SOURCE_MEMBERS = ("counter", "budget_tokens", "reachable_refs", "read_ref", "standing_page_tokens")


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


async def find_ref(memory: OffloadSource, given: object) -> str:
    """Return the reachable ref that the model meant, stray characters around it forgiven.

    Raises:
        FinalAnswer: there is no such text; the answer names others.
    """
    refs = await memory.reachable_refs()
    said = given[:_MAX_REF_CHARACTERS].lower() if isinstance(given, str) else ""
    digits: set[str] = set(_HEX_REF.findall(said))
    if len(digits) == 1 and (ref := REF_PREFIX + digits.pop()) in refs:
        return ref
    if not refs:
        raise FinalAnswer(
            f"No text {show_value(given)}: nothing has left this conversation yet. Do not retry."
        )
    newest = ", ".join(refs[:NEWEST_NAMED])
    raise FinalAnswer(
        f"No text {show_value(given)} is stored for this conversation, and a retry will not change that. "
        f"Stored, newest first ({len(refs)} in all): {newest}. {GREP_TOOL}(pattern) searches all of them."
    )


async def text_of(memory: OffloadSource, ref: str) -> str:
    """Return the text under a reachable ref."""
    try:
        return await memory.read_ref(ref)
    except OffloadNotFoundError:
        raise FinalAnswer(f"{ref} is no longer stored; do not ask for it again.") from None
    except OffloadCorruptError as error:
        raise FinalAnswer(f"{ref} is damaged in the store; go on without it.") from error
    except OffloadError as error:
        raise FinalAnswer(f"{ref} cannot be read from the store; go on without it.") from error
