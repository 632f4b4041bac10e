"""`CompressionConfig`: every threshold of a compressed memory, checked when it is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from math import inf
from typing import Annotated, Any, Literal, Self, TypedDict

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict, model_validator

from context_compressor.errors import InvalidArgumentError, check_options

_Count = Annotated[int, Strict()]
"""Of tokens, messages or images; a float or a string is refused, and not made one."""
_Limit = Annotated[int | None, Strict()]
"""The same; None: no limit."""
_LimitOfReMe = Annotated[_Limit, Field(ge=0), AfterValidator(lambda limit: limit or None)]
"""The same; 0, too, is no limit, as ReMe has it."""
_Ratio = Annotated[float, Field(gt=0, le=1)]

_MOST_TOKENS = 2**63 - 1
"""`sys.maxsize`, which some set for no limit; shares are taken of it as floats, which end somewhere."""
_DEFAULT_TOOL_TOKENS = 2_000
_DEFAULT_PREVIEW_TOKENS = 200


class OwnFields(TypedDict, total=False):
    """The fields of a `CompressionConfig` that ReMe has not."""

    mode: Literal["compact", "compress", "auto"]
    window_tokens: int | None
    window_ratio: float
    max_view_messages: int | None
    reserved_tokens: int
    keep_recent_tokens: int | None
    target_ratio: float
    arrival_ratio: float
    keep_images: int
    preview_tokens: int
    keep_first_user: bool
    pinned_mark: str | None
    volatile_marks: AbstractSet[str]
    exclude_tools: AbstractSet[str]
    redact: Callable[[str], str] | None
    summary_instructions: str | None
    background_ratio: float | None
    branch_seconds: float
    on_failure: Literal["fallback", "raise"]
    summarizer_timeout_seconds: float
    store_timeout_seconds: float


class ConfigFields(OwnFields, total=False):
    """The fields of a `CompressionConfig` as keywords of whoever takes them by themselves."""

    working_summary_mode: Literal["compact", "compress", "auto"]
    max_total_tokens: int
    max_tool_message_tokens: int
    group_token_threshold: int | None
    keep_recent_count: int
    compact_ratio_threshold: float


class CompressionConfig(BaseModel):
    """Say how large a view may be and by which means it is kept there.

    Names and defaults are those of ReMe's short-term memory, whose `working_summary_mode` is accepted for
    `mode`. Unknown fields, and set values that cannot work together, are refused by name
    (`pydantic.ValidationError`, a `ValueError`); defaults give way to what was set.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    mode: Literal["compact", "compress", "auto"] = "auto"
    """Which means come first: `compact` never calls a model, `compress` starts with notes, `auto`
    compacts and then compresses unless compacting was enough. The budget outranks the mode."""
    max_total_tokens: _Count = Field(default=20_000, gt=0, le=_MOST_TOKENS)
    """Tokens that the whole view may cost, instructions and recent messages included."""
    window_tokens: _Limit = Field(default=None, gt=0, le=_MOST_TOKENS)
    """The model's context window. Where it is given, a view costs at most `window_ratio` of it, too;
    `max_total_tokens` need not be given then."""
    window_ratio: _Ratio = 0.8
    """Share of `window_tokens` that a view may cost."""
    max_view_messages: _Limit = Field(default=None, gt=0)
    """Messages of a view beyond which an event comes although the tokens fit; None: only tokens count."""
    reserved_tokens: _Count = Field(default=0, ge=0)
    """Tokens held back for what the memory does not see: a system prompt or tool schemas added later."""
    max_tool_message_tokens: _Count = Field(default=_DEFAULT_TOOL_TOKENS, gt=0)
    """Tokens above which a tool result outside the recent messages is compacted."""
    group_token_threshold: _LimitOfReMe = None
    """Tokens of messages that one request to a writer holds at most; more goes in pieces, one after the
    other. None or 0: all of an event in one."""
    keep_recent_count: _Count = Field(default=10, ge=0)
    """Messages at the end that stay word for word as long as the budget allows. Where it was not set, they
    are at most a third of `max_view_messages`, and of large ones only as many stay as `target_ratio` has room
    for; 10 that were set stay."""
    keep_recent_tokens: _Limit = Field(default=None, gt=0)
    """Tokens of the messages at the end that stay so, in place of their number; where `keep_recent_count` is
    set, too, what is reached first. The newest exchange stays even where it is larger. None: no limit."""
    compact_ratio_threshold: _Ratio = 0.75
    """In `auto`, compacting is enough where it left at most this share of the tokens, and a quarter of the
    budget free."""
    target_ratio: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Share of the budget beside the fixed messages at which the view stands after an event: the oldest
    exchanges leave until it does. Higher: more stays word for word, and events come more often."""
    arrival_ratio: _Ratio = 0.25
    """Share of the budget above which a tool result is compacted as it arrives, however recent."""
    keep_images: _Count = Field(default=5, ge=0)
    """The newest so many images, audios, videos and files with their data in the message stay in the view;
    older ones are offloaded at the next event."""
    preview_tokens: _Count = Field(default=_DEFAULT_PREVIEW_TOKENS, ge=0)
    """Tokens of preview that a stub shows; fewer when many stubs share the room. A result that is compacted
    as it arrives shows an eighth of its own, up to six times as many."""
    keep_first_user: bool = True
    """Whether the first user message stays out of segments; what the user asked for last always does, as long
    as the budget allows."""
    pinned_mark: str | None = "pinned"
    """Mark of messages whose exchange never leaves the view; None: no such mark."""
    volatile_marks: AbstractSet[str] = frozenset({"hint"})
    """Marks of messages that come and go; they never enter a segment."""
    exclude_tools: AbstractSet[str] = frozenset()
    """Names of tools whose results and arguments are never compacted while another means keeps the budget."""
    redact: Callable[[str], str] | None = Field(default=None, exclude=True)
    """Applied to every text before it reaches the store, the search index or a summariser, keys of data and
    names of speakers among them. Names of tools, ids and encoded media stay."""
    summary_instructions: str | None = None
    """What the notes should mind, in the user's words; handed to the summariser."""
    background_ratio: Annotated[float | None, Field(gt=0, le=1)] = 0.8
    """Share of the budget from which the coming event is prepared while the agent goes on, where the
    summariser is remote. Lower: `get_memory` waits for a model more rarely; higher: less is noted that
    is never needed. None or 1: an event begins when it is due, and `get_memory` waits for it."""
    branch_seconds: float = Field(default=3600.0, ge=0)
    """Seconds for which a memory keeps what it knew of a conversation that its list departed from: whoever
    goes back to it within that time pays for nothing twice."""
    on_failure: Literal["fallback", "raise"] = "fallback"
    """What a failing summariser or store leads to: the next means down and an event, or an exception."""
    summarizer_timeout_seconds: float = Field(default=120.0, gt=0)
    """Seconds after which who writes for an event is given up."""
    store_timeout_seconds: float = Field(default=30.0, gt=0)
    """Seconds after which one call of the store is given up."""

    @property
    def budget(self) -> int:
        """Tokens that a view may cost: `max_total_tokens - reserved_tokens`."""
        return self.max_total_tokens - self.reserved_tokens

    @property
    def arrival_tokens(self) -> float:
        """Tokens above which a tool result is compacted as it arrives: `arrival_ratio * budget`."""
        return self.arrival_ratio * self.budget

    @property
    def weighty_marks(self) -> set[str]:
        """Marks that decide what may leave the view."""
        return {*self.volatile_marks, *([] if self.pinned_mark is None else [self.pinned_mark])}

    @property
    def may_shrink_recent(self) -> bool:
        """Whether fewer messages may stay for `target_ratio`: not if the user set how many do."""
        return self.keep_recent_tokens is None and "keep_recent_count" not in self.model_fields_set

    @property
    def recent_limits(self) -> tuple[float, float]:
        """How many messages at the end stay, and how many tokens of them, at most."""
        if self.keep_recent_tokens is None:
            return self.keep_recent_count, inf
        count = self.keep_recent_count if "keep_recent_count" in self.model_fields_set else inf
        return count, self.keep_recent_tokens

    @model_validator(mode="before")
    @classmethod
    def _read_old_names(cls, data: Any) -> Any:
        if isinstance(data, dict) and "working_summary_mode" in data:
            data = dict(data)
            alias = data.pop("working_summary_mode")
            if data.setdefault("mode", alias) != alias:
                raise ValueError(
                    f"mode ({data['mode']!r}) and working_summary_mode ({alias!r}) are two names of one "
                    "field; give one of them"
                )
        if isinstance(data, dict) and "cached_price" in data:
            raise ValueError(
                "cached_price is gone: an event comes when the budget, a large arrival, "
                "max_view_messages or a call asks for it, never because it would be cheaper; leave it "
                "out, and say by target_ratio how much an event leaves"
            )
        if isinstance(data, dict):
            try:
                check_options(data, known=_names(), what="field")
            except InvalidArgumentError as error:
                raise ValueError(str(error)) from None
        return data

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        self._heed_window()
        limit, remedy = f"max_total_tokens ({self.max_total_tokens})", "raise max_total_tokens"
        if self.window_tokens and self.max_total_tokens == int(self.window_ratio * self.window_tokens):
            limit = f"{self.window_ratio} of window_tokens ({self.window_tokens}), {self.max_total_tokens}"
            remedy = "raise window_ratio"
        if self.reserved_tokens >= self.max_total_tokens:
            raise ValueError(
                f"reserved_tokens ({self.reserved_tokens}) must be below {limit}; lower it, or {remedy}"
            )
        self._clamp_defaults()
        if self.max_tool_message_tokens >= self.max_total_tokens > 1:
            raise ValueError(
                f"max_tool_message_tokens ({self.max_tool_message_tokens}) must be below {limit}; lower it, "
                f"or {remedy}"
            )
        if self.preview_tokens >= self.max_tool_message_tokens > 1:
            raise ValueError(
                f"preview_tokens ({self.preview_tokens}) must be below max_tool_message_tokens "
                f"({self.max_tool_message_tokens}); lower it, or raise max_tool_message_tokens"
            )
        if self.max_view_messages is not None and self.max_view_messages <= self.keep_recent_count:
            raise ValueError(
                f"max_view_messages ({self.max_view_messages}) must be above keep_recent_count "
                f"({self.keep_recent_count}): no event takes the recent messages for their number"
            )
        if self.pinned_mark in self.volatile_marks:
            raise ValueError(
                f"pinned_mark ({self.pinned_mark!r}) must not be one of volatile_marks: a message cannot "
                "both stay for ever and come and go"
            )
        return self

    def _heed_window(self) -> None:
        """Let the model's window bound the budget, or set it where the user did not."""
        if self.window_tokens is None:
            return
        limit = max(1, int(self.window_ratio * self.window_tokens))
        if "max_total_tokens" in self.model_fields_set:
            limit = min(limit, self.max_total_tokens)
        object.__setattr__(self, "max_total_tokens", limit)

    def _clamp_defaults(self) -> None:
        """Bring values that the user did not set in line with those that they did."""
        given = self.model_fields_set
        tool, preview = self.max_tool_message_tokens, self.preview_tokens
        if "max_tool_message_tokens" not in given:
            tool = max(1, min(tool, self.budget // 2))
            if "preview_tokens" in given:
                tool = max(tool, preview + 1)
        if "preview_tokens" not in given:
            preview = min(preview, tool // 2)
        if self.max_view_messages is not None and "keep_recent_count" not in given:
            recent = min(self.keep_recent_count, self.max_view_messages // 3)
            object.__setattr__(self, "keep_recent_count", recent)
        object.__setattr__(self, "max_tool_message_tokens", tool)
        object.__setattr__(self, "preview_tokens", preview)


def _names() -> tuple[str, ...]:
    return tuple(ConfigFields.__annotations__)


def as_config(
    config: CompressionConfig | None, fields: Mapping[str, Any], *takers: Callable[..., Any]
) -> CompressionConfig:
    """Return thresholds that are given at once or one by one.

    Args:
        config: all of them.
        fields: some.
        takers: the functions that were given them; the names of their other arguments may be meant, too.

    Raises:
        InvalidArgumentError: both ways, or a field that there is not.
        ValueError: thresholds that cannot be, or cannot work together.
    """
    current = [name for name in fields if name != "cached_price"]  # the config says what took its place
    check_options(current, *takers, known=_names(), what="field")
    if config is None:
        return CompressionConfig(**fields)
    if fields:
        raise InvalidArgumentError(
            f"config and {', '.join(fields)} exclude each other; put all thresholds into config"
        )
    return config
