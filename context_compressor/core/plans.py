"""What a plan is, what it rests on, and what is decided about a view."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum

from context_compressor.core.config import CompressionConfig
from context_compressor.core.edits import ItemKey
from context_compressor.core.units import Marks, Unit
from context_compressor.messages.parts import PartPath


class Reason(StrEnum):
    """Why an event comes."""

    ARRIVAL = "arrival"
    """A text is too large to enter the view whole."""
    OVER = "over budget"
    CROWDED = "too many messages"
    """More than `max_view_messages`."""
    ASKED = "asked for"


@dataclass(frozen=True, slots=True)
class Costs:
    """Tokens that a stand-in costs before it says anything, by the counter in use, and who writes."""

    stub: int
    """A stub without preview."""
    media: int
    """A stub of an image or other media."""
    segment: int
    """A segment that only names its ref, as a message."""
    by_model: bool = False
    """Whether a model writes the notes, as a rule."""


@dataclass(frozen=True, slots=True)
class PlannedStub:
    """A text that is to leave, and what its stub may cost in tokens."""

    item: ItemKey
    path: PartPath
    max_tokens: int


@dataclass(frozen=True, slots=True)
class PlannedSegment:
    """Units that are to leave together, and what the notes may cost then in tokens; 0: only the ref."""

    units: tuple[Unit, ...]
    summary_tokens: int
    standing_tokens: int = 0
    """What of that is for standing instructions, word for word, if there are as many."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What an event is to do, and the tokens that the view has afterwards at most."""

    stubs: tuple[PlannedStub, ...]
    segments: tuple[PlannedSegment, ...]
    reason: Reason
    projected_tokens: int
    spare_tokens: int = 0
    """What the view may cost above that."""
    requests: tuple[Unit, ...] = ()
    """What users said that stays in the view, the oldest first."""
    hints: frozenset[ItemKey] = frozenset()
    """Keys of what comes and goes by its mark and stays in the view: no model is told of it."""
    by_rules: bool = False
    """Whether rules write what a model might: it had left before, and nobody is to wait for that again."""

    @property
    def leaving(self) -> set[ItemKey]:
        """Keys of the units that leave for a segment."""
        return {unit.key for segment in self.segments for unit in segment.units}

    @property
    def needs_summary(self) -> bool:
        """Whether a summariser has to be asked."""
        return not self.by_rules and any(segment.summary_tokens for segment in self.segments)


@dataclass(frozen=True, slots=True)
class Show:
    """The view can be handed out as it is."""


@dataclass(frozen=True, slots=True)
class Perform:
    """Something has to leave the view first."""

    plan: Plan


@dataclass(frozen=True, slots=True)
class Overflow:
    """The view exceeds the budget, and nothing more can leave."""


Step = Show | Perform | Overflow


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
    growth_tokens: int = 0
    """Tokens by which the view will have grown when the plan is committed, where that is planned ahead: what
    is to leave then is decided as if they stood at the end of the view now."""
    manual: bool = False
    """Whether the user asked for the event: then everything that may leave does."""
