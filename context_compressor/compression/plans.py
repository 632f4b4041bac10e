"""What a plan is, and what it rests on."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from context_compressor.compression.config import CompressionConfig
from context_compressor.compression.edits import ItemKey
from context_compressor.compression.units import Marks, Unit
from context_compressor.messages.parts import PartPath

ARRIVAL = "arrival"
"""Reason of a plan that only compacts what is too large to enter the view whole."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Tokens that a stand-in costs before it says anything, by the counter in use."""

    stub: int
    """A stub without preview."""
    media: int
    """A stub of an image or other media."""
    segment: int
    """A segment that only names its ref, as a message."""


@dataclass(frozen=True, slots=True)
class PlannedStub:
    """A text that is to leave, and what its stub may cost in tokens."""

    item: ItemKey
    path: PartPath
    max_tokens: int


@dataclass(frozen=True, slots=True)
class PlannedSegment:
    """Units that are to leave together, and what their summary may cost in tokens; 0: only the ref."""

    units: tuple[Unit, ...]
    summary_tokens: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What an event is to do, and the tokens that the view has afterwards at most."""

    stubs: tuple[PlannedStub, ...]
    segments: tuple[PlannedSegment, ...]
    reason: str
    projected_tokens: int

    @property
    def needs_summary(self) -> bool:
        """Whether a summariser has to be asked."""
        return any(segment.summary_tokens for segment in self.segments)


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything that a decision rests on, beside the view."""

    config: CompressionConfig
    costs: Costs
    marks: Marks = field(default_factory=Marks)
    fresh: Collection[ItemKey] = frozenset()
    """Items that no view has shown yet."""
    blocked: Collection[tuple[ItemKey, PartPath]] = frozenset()
    """Texts that could not be stubbed (a collision, or no gain)."""
    extra_tokens: int = 0
    """Tokens of fixed messages that are not items: the base memory's own summary."""
    history_tokens: int = 0
    """Tokens of all that the view stands for."""
    growth_tokens: int = 0
    """Tokens by which the view will have grown when the plan is committed, where that is planned ahead: what
    is to leave then is decided as if they stood at the end of the view now."""
    early: bool = True
    """Whether an event may come before the budget asks for it, where that is cheaper."""
    manual: bool = False
    """Whether the user asked for the event: then everything that may leave does."""
