"""What a summariser is: the request, the answer, the protocol."""

from __future__ import annotations

import warnings
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, NoReturn, Protocol, runtime_checkable

from context_compressor.errors import InvalidArgumentError, SummarizerError, check_members
from context_compressor.messages.msg import Msg
from context_compressor.summarizers.bill import Bill
from context_compressor.tokens.counter import TokenCounter

Rules = Literal["rules"]
OWN, RULES = "own", "rules"
"""What `summarizer=` may say instead of an object: the agent's own model, or no model."""


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """What is to be summarised."""

    messages: tuple[Msg, ...]
    """The messages that will leave the view, oldest first, and among them what users said there that stays
    (`is_staying`), to tell the order."""
    max_tokens: int
    """What the answer may come to, in tokens of the memory's counter: all of the notes, or the text that is
    added to them."""
    previous: str | None = None
    """The notes so far, for who edits or rewrites them: keep what holds, change what the messages change."""
    context: tuple[Msg, ...] = ()
    """What stays in the view: what the memory wrote there (`is_segment`), the notes among it for who only
    adds to them; and the messages, oldest first, long results cut, but for instructions and the newest
    exchange. None of it needs to be repeated."""
    request: str | None = None
    """What the agent works on now; it stays in the view."""
    instructions: str | None = None
    """What the user wants the summary to mind, in their words."""
    note: str | None = None
    """What the agent noted that it still needs, on one line: material, like the conversation."""
    repair: str | None = None
    """What the memory says of the last answer, where edits could not be made or took too much room.
    `previous` are the notes with what could be made; where no more is needed to mend it, `messages` is
    empty."""
    answer_tokens: int | None = field(default=None, kw_only=True)
    """What the model's window leaves for the answer, with what is reasoned; None: not known."""
    bill: Bill = field(default_factory=Bill, compare=False, repr=False, kw_only=True)
    """What is sent for it: who sends several requests for one summary calls `bill.take()` before each."""

    @property
    def facts(self) -> tuple[str, ...]:
        """Nothing: no index stands beside a summary any more. It goes after one release."""
        warnings.warn(
            "SummaryRequest.facts is always empty now and will go: no index of names stands beside a summary",
            DeprecationWarning,
            stacklevel=2,
        )
        return ()


@dataclass(frozen=True, slots=True)
class Departure:
    """What leaves, to a model that has it before its eyes: by which words, for nothing there has a number."""

    count: int
    """How many messages leave."""
    last: str
    """The last of them."""
    next: str = ""
    """The first behind it that stays; empty: none does that the model has seen."""
    amid: tuple[str, ...] = ()
    """What stays though it stands before the last one."""
    since: tuple[str, ...] = ()
    """Whose messages came since, which it has not seen and which stay: no word of them is told."""
    before_tokens: int = 0
    """Tokens of the view that it was sent last."""


class Window(NamedTuple):
    """What the agent's own model takes in one request, its answer included, and how its provider counts."""

    tokens: int | None = None
    """None: not known."""
    sent_tokens: int | None = None
    """What the agent's last request takes of it; None: the provider has not counted."""
    ratio: float = 1.0
    """Tokens of the provider's per token of ours, in the agent's requests."""


class UnaskedError(SummarizerError):
    """Report that a model could not be asked. Nothing was sent."""


class NotInPlaceError(UnaskedError):
    """Report that the last request cannot be sent again with a message behind it."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What a summariser wrote."""

    text: str
    input_tokens: int = 0
    """Tokens read, as the model reported them; 0 when unknown."""
    output_tokens: int = 0
    """Tokens written, as the model reported them; 0 when unknown."""
    cached_tokens: int = 0
    """Of the tokens read, those that came out of the provider's prompt cache, as the model reported them."""


@runtime_checkable
class Summarizer(Protocol):
    """Write a summary of messages. Structural: any object with these two members will do.

    Its text is added to the notes, and where they are full the oldest lines leave. With `rewrites_notes`
    true it is given the notes as `previous`, and its text replaces them; with `writes_edits` it answers with
    edits.

    Two more are heeded where a summariser has them: `max_input_tokens`, how much it reads (None: not known;
    what is longer it is given in pieces, one after the other); and `quotes`, true where all that it writes is
    quoted from the messages, so that it is not refused as their copy. It may raise `SummarizerOverflowError`
    for a request that is too long, and is then given pieces of it. A call counts as one request to a model,
    unless it takes those that it sends from `request.bill`.
    """

    remote: bool
    """Whether a call leaves the process."""

    async def summarize(self, request: SummaryRequest) -> Summary:
        """Return a summary of `request.messages` in at most `request.max_tokens` tokens."""
        ...


@runtime_checkable
class InPlaceSummarizer(Summarizer, Protocol):
    """The agent's own model, which can be asked behind what it was sent last."""

    @property
    def held(self) -> Collection[Any]:
        """The keys of the messages that stood in the last request."""
        ...

    async def in_place(
        self, text: str, max_tokens: int, bill: Bill, most_tokens: int | None = None
    ) -> Summary:
        """Return what it answers to its last request with a user's message behind it.

        Args:
            text: the message.
            max_tokens: what the answer may take.
            bill: what is sent.
            most_tokens: what it may take with what is reasoned; None: not known.

        Raises:
            NotInPlaceError: that request cannot be sent so.
            SummarizerError: the model failed.
        """
        ...


@runtime_checkable
class CountingSummarizer(Summarizer, Protocol):
    """A summariser that tells its model limits in the tokens of a counter, where it is given one."""

    counter: TokenCounter | None


def check_summarizer(argument: str, summarizer: object, mend: str = "") -> None:
    """Check at the door what is given as a summariser.

    Raises:
        InvalidArgumentError: it is none; the text names what it lacks.
    """
    if isinstance(summarizer, str):
        if summarizer == OWN:
            refuse_own(argument)
        raise InvalidArgumentError(
            f"{argument}: {summarizer!r:.99} is a name; give a summarizer that asks that model, such as "
            f"OpenAISummarizer({summarizer!r:.99}) or DashScopeSummarizer({summarizer!r:.99})"
        )
    check_members(argument, summarizer, "a Summarizer", ("remote", "summarize"), mend)


def is_rules(summarizer: object) -> bool:
    """Tell whether what was given as `summarizer=` stands for the summariser that asks no model."""
    return summarizer is None or (isinstance(summarizer, str) and summarizer == RULES)


def refuse_own(argument: str) -> NoReturn:
    """Refuse "own" where there is no agent's request, and so no model of its own.

    Raises:
        InvalidArgumentError: always.
    """
    raise InvalidArgumentError(
        f"{argument}: 'own' is the model of an agent's request, which is not seen here; use the adapter of "
        "your client or framework, or give a summarizer that asks that model, such as "
        "OpenAISummarizer(model); 'rules' asks none"
    )


def writer_of(summarizer: object) -> str:
    """Return who writes, as logs call it: a model by its name, else by its class."""
    model = getattr(summarizer, "model", None)
    return model if isinstance(model, str) else type(summarizer).__name__
