"""The budget in force: the user's, or less where the provider's own counts ask for it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

from pydantic import Field, StrictInt, StrictStr

from context_compressor.core.config import CompressionConfig
from context_compressor.errors import InvalidArgumentError
from context_compressor.summarizers.protocol import Window
from context_compressor.tokens.calibration import ANCHORS, Calibration
from context_compressor.tokens.counter import TokenCounter, name_of_counter

_MOST_TOKENS = 10**12
_LEAST_RISE = 0.005
"""Share of the budget below which a higher one is not worth taking up."""


@dataclass(frozen=True, slots=True)
class SavedBudget:
    """A budget in force as it is saved, for pydantic to read; what is missing was not learnt yet."""

    shown_tokens: Annotated[StrictInt, Field(ge=0)] | None = None
    max_total_tokens: StrictInt | None = None
    budget: Annotated[StrictInt, Field(ge=1)] | None = None
    learnt: Calibration | None = None


@dataclass(frozen=True, slots=True)
class RecordedBudget:
    """What was learnt, as a history keeps it beside the ledger, for pydantic to read."""

    counter: StrictStr
    """The name of who counted ours."""
    saved: SavedBudget


class BudgetInForce:
    """Keep the thresholds that events go by in step with what a provider counts.

    A new budget is due as soon as it is known, and taken up before the next event is planned: an event under
    way ends by the thresholds that it began with.

    Args:
        config: the user's thresholds; their budget is never exceeded.

    Attributes:
        config: the thresholds in force; the very object that was given unless something was learnt.
        due_tokens: what a view may cost by all that is known now.
        shown_tokens: our count of the view that was handed out last; None before the first.
    """

    def __init__(self, config: CompressionConfig) -> None:
        self.config = config
        self.due_tokens = config.budget
        self.shown_tokens: int | None = None
        self._given = config
        self._calibration = Calibration()

    @property
    def is_lowered(self) -> bool:
        """Whether a provider's counts leave less than the user's budget."""
        return self.config is not self._given

    @property
    def is_due(self) -> bool:
        """Whether another budget than the one in force is to be taken up."""
        return self.due_tokens != self.config.budget

    @property
    def window(self) -> Window:
        """The window of the agent's model, as far as it is known, and how its provider counts."""
        limits = (self._given.window_tokens, self._calibration.limit)
        return Window(
            tokens=min((tokens for tokens in limits if tokens is not None), default=None),
            sent_tokens=self._calibration.expected(self.shown_tokens or 0),
            ratio=self._calibration.proven_ratio,
        )

    @property
    def is_settled(self) -> bool:
        """Whether the provider has counted so many views that one more moves little."""
        return self._calibration.accepted > ANCHORS

    def record_usage(self, prompt_tokens: int) -> None:
        """Note what the provider counted for the view that was handed out last.

        Raises:
            InvalidArgumentError: not a number of tokens.
        """
        _check_tokens("prompt_tokens", prompt_tokens, least=0)
        if self.shown_tokens is not None:
            self._calibration.record_usage(self.shown_tokens, prompt_tokens)
            self._reckon()

    def record_overflow(self, limit: int | None = None) -> None:
        """Note that the provider refused the view that was handed out last, with the limit that it named.

        Raises:
            InvalidArgumentError: not a number of tokens.
        """
        if limit is not None:
            _check_tokens("limit", limit, least=1)
        self._calibration.record_overflow(self.shown_tokens, limit)
        self._reckon()

    def concede(self, tokens: int) -> bool:
        """Let a view be that cannot become smaller, and may fit by all that is known; tell whether it may."""
        if tokens > self._given.budget:
            return False
        conceded = self._calibration.concede(tokens, self._given.max_total_tokens)
        if conceded:
            self.due_tokens = self._tokens()
            self.take_up()
        return conceded

    def end_shrinking(self) -> None:
        """Note that a view was made: the step that a refusal asked for was taken."""
        if self._calibration.is_shrinking:
            self._calibration.end_shrinking()
            self._reckon()

    def _tokens(self) -> int:
        return self._calibration.budget(self._given.max_total_tokens, self._given.budget)

    def _reckon(self) -> None:
        given, tokens = self._given.budget, self._tokens()
        rise = tokens - self.config.budget
        is_worth_it = rise < 0 or tokens == given or rise > _LEAST_RISE * given
        self.due_tokens = tokens if is_worth_it else self.config.budget

    def take_up(self) -> None:
        """Let the budget that is due be in force."""
        if self.is_due:
            self.config = within(self._given, self.due_tokens)

    # Saved form

    def to_dict(self) -> dict[str, Any]:
        """Return what was learnt, and what the last view costs, as JSON-like data."""
        if self._calibration.is_empty:
            return {"shown_tokens": self.shown_tokens}
        return {"shown_tokens": self.shown_tokens, **self._learnt(self.config.budget)}

    def _learnt(self, budget: int) -> dict[str, Any]:
        """Return what was learnt, and for which budgets, as it comes back from JSON.

        A state that a framework kept is compared with the one that is known.
        """
        learnt = asdict(self._calibration)
        learnt["reports"] = [list(report) for report in self._calibration.reports]
        return {"max_total_tokens": self._given.max_total_tokens, "budget": budget, "learnt": learnt}

    def recorded(self, counter: TokenCounter) -> dict[str, Any] | None:
        """Return what was learnt as a history keeps it, JSON-like data; None: nothing.

        What the last view costs is no part of it: each view would change it.

        Args:
            counter: who counts views.
        """
        if self._calibration.is_empty:
            return None
        return {"counter": name_of_counter(counter), "saved": self._learnt(self.due_tokens)}

    def following(self, saved: SavedBudget) -> BudgetInForce:
        """Return the budget that others recorded, for the view that was handed out here."""
        return self.load(replace(saved, shown_tokens=self.shown_tokens), self._given)

    @classmethod
    def load(cls, saved: SavedBudget | None, config: CompressionConfig) -> BudgetInForce:
        """Return the budget that was saved; None is that of a state without one.

        Refusals do not outlast a change of `max_total_tokens`: the model may be another one.
        """
        found = cls(config)
        if saved is None:
            return found
        calibration = Calibration() if saved.learnt is None else saved.learnt
        if saved.max_total_tokens != config.max_total_tokens:
            calibration.forget_refusals()
        elif saved.budget is not None:
            # A memory that never stopped would not take up a slightly higher one either.
            found.due_tokens = saved.budget
            found.take_up()
        found.shown_tokens = saved.shown_tokens
        found._calibration = calibration
        found._reckon()
        return found


def within(config: CompressionConfig, budget: int) -> CompressionConfig:
    """Return thresholds with a lower budget; the same object where it is the user's own.

    Thresholds in tokens stay what they are as long as the budget has room for them: what was large enough to
    be compacted before a provider's counts were known still is, and nothing else.
    """
    if budget >= config.budget:
        return config
    tool_tokens = min(config.max_tool_message_tokens, max(1, budget // 2))
    return config.model_copy(
        update={
            "max_total_tokens": budget,
            "reserved_tokens": 0,  # part of what the provider counts
            "arrival_ratio": min(1.0, config.arrival_tokens / budget),
            "max_tool_message_tokens": tool_tokens,
            "preview_tokens": min(config.preview_tokens, tool_tokens // 2),
        }
    )


def _check_tokens(name: str, value: object, *, least: int) -> None:
    if type(value) is not int or not least <= value <= _MOST_TOKENS:
        raise InvalidArgumentError(
            f"{name}: expected tokens as an int from {least} to {_MOST_TOKENS:,}, got {_shown(value)}"
        )


def _shown(value: object) -> str:
    """Return a value for an error message; Python prints no integer of thousands of digits."""
    return "a larger one" if isinstance(value, int) and value > _MOST_TOKENS else repr(value)[:80]
