"""Which conversation a run is in, for what the run calls: its tools and its model."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from context_compressor.integrations.request import Request


@dataclass(slots=True, eq=False)
class Turn:
    """A request that the filter made a view for, and the agent whose it is."""

    owner: object
    """The adapter: agents of one run may have tools of several."""
    agent: object
    request: Request
    """With the newest view; a refusal leads to another one."""
    is_without_tools: bool = False
    """Whether it went to a model that refuses ours."""

    @property
    def can_offer_tools(self) -> bool:
        """Whether the next turn can offer the read-back tools."""
        return self.request.shown.conversation.has_left and not self.is_without_tools

    def sent(self, items: Any) -> bool:
        """Tell whether a request's items are this view's, which the SDK hands on as they are."""
        if not isinstance(items, list):
            return False
        ours = {id(item) for item in self.request.shown.messages}
        return bool(items) and all(id(item) in ours for item in items)

    def is_of(self, agent: object, begun_with: Sequence[Any]) -> bool:
        """Tell whether a tool's call is of this turn: of its agent, in a run that began as its list does.

        A turn outlives its run in the task that awaited it, and a run within a tool inherits its caller's.
        """
        first = self.request.shown.said.items[:1]
        return agent is self.agent and (not begun_with or not first or begun_with[0] == first[0])


_CURRENT: ContextVar[Turn | None] = ContextVar("context_compressor_turn", default=None)
"""Set where the filter is awaited: in the run's own task, whose tools and model calls inherit it."""


def enter(turn: Turn) -> None:
    """Note a turn for what the run calls from here on."""
    _CURRENT.set(turn)


def current(owner: object) -> Turn | None:
    """Return the turn of this run, if it is this adapter's."""
    turn = _CURRENT.get()
    return turn if turn is not None and turn.owner is owner else None
