"""What a system under test is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from context_compressor.measure.chats import Chat


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """What a system's summaries have cost so far."""

    paid_input_tokens: int = 0
    """Tokens that a model read to summarise; 0 where no model did."""
    paid_output_tokens: int = 0
    """Tokens that a model wrote."""
    input_tokens: int = 0
    """Tokens read by whoever summarised: what a model would have read in its place."""
    output_tokens: int = 0
    """Tokens written by whoever summarised."""
    seconds: float = 0.0
    """Seconds in which the summariser was at work."""


@dataclass(frozen=True, slots=True)
class ReadBack:
    """What it takes to read an identifier back."""

    tokens: int
    """Tokens that the calls and their answers add to the conversation."""
    calls: int


class System(Protocol):
    """Something that turns the history so far into what is sent. Made for one session.

    The messages that it is given must not be changed, nor those that it returned. A class
    that inherits from this one stores and summarises nothing, unless its own methods say so.
    """

    name: str
    """What to call it in results."""

    async def send(self, history: Sequence[Chat], new: Sequence[Chat]) -> list[Chat]:
        """Return what to send for the next assistant message.

        Args:
            history: every message so far.
            new: those at its end that no earlier call had.
        """
        ...

    async def reachable(self, view: Sequence[Chat]) -> Mapping[str, str]:  # noqa: ARG002
        """Return the texts that an agent who reads `view` can read back, by what they are called there."""
        return {}

    async def read_back(
        self,
        identifier: str,  # noqa: ARG002
        is_answer: Callable[[str], bool],  # noqa: ARG002
    ) -> ReadBack | None:
        """Return what the cheapest way costs by which the system's own tools show an identifier, if any does.

        Args:
            identifier: what is looked for.
            is_answer: tells whether a tool's answer makes it known.
        """
        return None

    def spending(self) -> Spending:
        """Return what summaries have cost so far."""
        return Spending()

    async def stored(self) -> Mapping[str, str]:
        """Return every text in the store, by its key there."""
        return {}

    async def aclose(self) -> None:
        """End what the system began."""
        return  # most began nothing
