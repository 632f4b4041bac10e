"""What the tools read from: a memory, asked for its texts so that every miss is an answer for the model."""

from __future__ import annotations

import re
from typing import Protocol

from context_compressor.errors import OffloadCorruptError, OffloadError, OffloadNotFoundError
from context_compressor.offload.protocol import REF_PREFIX
from context_compressor.offload.tools.arguments import FinalAnswer, show_value
from context_compressor.offload.tools.schemas import GREP_TOOL
from context_compressor.tokens.protocol import TokenCounter

NEWEST_NAMED = 5
"""Refs that an answer names at most."""
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


SOURCE_MEMBERS = ("counter", "budget_tokens", "reachable_refs", "read_ref", "standing_page_tokens")


async def find_ref(memory: OffloadSource, given: object) -> str:
    """Return the reachable ref that the model meant, stray characters around it forgiven.

    Raises:
        FinalAnswer: there is no such text; the answer names others.
    """
    refs = await memory.reachable_refs()
    digits: set[str] = set(_HEX_REF.findall(given.lower())) if isinstance(given, str) else set()
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
    """Return the text under a reachable ref.

    Raises:
        FinalAnswer: it cannot be read.
    """
    try:
        return await memory.read_ref(ref)
    except OffloadNotFoundError:
        raise FinalAnswer(f"{ref} is no longer stored; do not ask for it again.") from None
    except OffloadCorruptError as error:
        raise FinalAnswer(f"{ref} is damaged in the store; go on without it.") from error
    except OffloadError as error:
        raise FinalAnswer(f"{ref} cannot be read from the store; go on without it.") from error
