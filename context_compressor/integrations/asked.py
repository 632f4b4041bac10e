"""A framework's model as summariser, the agent's own among them: asked through the framework or client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from typing import Any, NamedTuple

from context_compressor.errors import InvalidArgumentError, SummarizerError
from context_compressor.summarizers.bill import Bill
from context_compressor.summarizers.protocol import (
    OWN,
    RULES,
    NotInPlaceError,
    Summarizer,
    Summary,
    SummaryRequest,
    UnaskedError,
    check_summarizer,
    refuse_own,
)
from context_compressor.summarizers.provider import Answer, ProviderSummarizer, as_answer
from context_compressor.tokens.counter import TokenCounter

MOST_MODELS = 64
"""Of so many models an `OwnModel` remembers which output limits they refused."""

Said = Answer
Ask = Callable[[str, str, int | None], Awaitable[Said]]
"""Asks a model, given what instructs it, what it is to answer, and how many tokens the answer may take; a
framework that has no setting for that passes it over."""


class AskedModel(ProviderSummarizer):
    """Ask a model of a framework for summaries. Retries are the framework's own.

    Args:
        name: what errors call the model.
        ask: asks it.
    """

    def __init__(self, name: str, ask: Ask) -> None:
        # A memory gives up before that, after `summarizer_timeout_seconds`.
        super().__init__(name, timeout=600.0, max_retries=0, temperature=None, reasoning_tokens=8_192)
        self._ask = ask
        self._reasons = True  # it may, and nobody said

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Ask]:
        yield self._ask

    async def _send(self, client: Ask, messages: list[dict[str, str]], parameters: dict[str, Any]) -> Any:
        instructions = "\n\n".join(one["content"] for one in messages if one["role"] == "system")
        asked = "\n\n".join(one["content"] for one in messages if one["role"] != "system")
        return await client(instructions, asked, parameters.get("max_tokens"))

    def _read(self, answer: Said) -> Answer:
        tokens = (answer.input_tokens, answer.output_tokens, answer.cached_tokens)
        return as_answer(answer.text, None, answer.finish_reason, tokens)

    def _keys(self) -> list[object]:
        return []


class Own(NamedTuple):
    """The agent's own model, as the request at hand asks it."""

    name: str
    """What errors and logs call it."""
    ask: Ask
    """Asks it apart, with the request's client, key, headers and timeouts, and never through an adapter of
    this library."""
    again: Callable[[Any], Ask] | None = None
    """Returns what sends `last` once more with a user's message behind it; its instructions are empty then.
    Raises `SummarizerError` where that is not possible."""
    last: Any = None
    """What was sent last in the conversation, as the adapter noted it; `Conversations.view` puts it here."""
    held: Collection[Any] = frozenset()
    """The keys of the messages of the view in it."""


_AT_HAND: ContextVar[Own | None] = ContextVar("context_compressor_own_model", default=None)
"""The model of the request that an event belongs to. Tasks copy it: what is prepared ahead is written by the
model of the request that began it."""


@contextmanager
def at_hand(own: Own | None) -> Iterator[None]:
    """Let `OwnModel` ask this model within, and in tasks that are started within."""
    token = _AT_HAND.set(own)
    try:
        yield
    finally:
        with suppress(ValueError):  # what holds it open was closed in another task
            _AT_HAND.reset(token)


class OwnModel:
    """Ask the agent's own model for summaries: that of the request at hand. One serves many conversations."""

    remote = True
    writes_edits = True

    def __init__(self) -> None:
        self.counter: TokenCounter | None = None
        self._models: dict[str, AskedModel] = {}

    @property
    def model(self) -> str:
        """The name of the model at hand."""
        own = _AT_HAND.get()
        return OWN if own is None else own.name

    async def summarize(self, request: SummaryRequest) -> Summary:
        """Return the model's summary of `request.messages`.

        Raises:
            UnaskedError: no request of the agent's is at hand.
            SummarizerError: as `AskedModel.summarize`.
        """
        if _AT_HAND.get() is None:
            raise UnaskedError("the agent's own model writes only at a request of the agent's")
        model = self._models.pop(self.model, None) or AskedModel(self.model, _ask_at_hand)
        self._models[self.model] = model
        if len(self._models) > MOST_MODELS:
            self._models.pop(next(iter(self._models)))
        model.counter = self.counter
        return await model.summarize(request)

    @property
    def held(self) -> Collection[Any]:
        """The keys of the messages that stood in the last request of the conversation at hand."""
        own = _AT_HAND.get()
        return frozenset() if own is None else own.held

    async def in_place(
        self, text: str, max_tokens: int, bill: Bill, most_tokens: int | None = None
    ) -> Summary:
        """Return what the model answers to its last request with a user's message behind it.

        System, tools, messages and reasoning settings are those of that request, so that they come out of the
        provider's prompt cache.

        Args:
            text: the message.
            max_tokens: what the answer may take, what it reasons beside.
            bill: what is sent.
            most_tokens: what it may take with what it reasons; None: not known.

        Raises:
            NotInPlaceError: there is no last request, or it cannot be sent so: it forces a tool or a schema,
                or was of another list.
            SummarizerError: as `AskedModel.summarize`.
        """
        own = _AT_HAND.get()
        if own is None or own.again is None or own.last is None:
            raise NotInPlaceError("there is no last request of the agent's to which a message could be added")
        try:
            ask = own.again(own.last)
        except SummarizerError as error:
            raise NotInPlaceError(str(error)) from None
        model = AskedModel(own.name, ask)
        return await model.write([{"role": "user", "content": text}], max_tokens, bill, most_tokens)


async def _ask_at_hand(instructions: str, asked: str, room: int | None) -> Said:
    own = _AT_HAND.get()
    assert own is not None
    return await own.ask(instructions, asked, room)


def name_of(model: object) -> str:
    """Return a key for a framework's model: its class, name and address, as far as it has them."""
    said = (getattr(model, name, None) for name in ("model_name", "model", "base_url", "openai_api_base"))
    return " ".join([type(model).__name__, *(str(one) for one in said if one)])


def check_tools(tools: object) -> bool:
    """Return whether an adapter is to offer read-back tools.

    Raises:
        InvalidArgumentError: it is neither True nor False.
    """
    if not isinstance(tools, bool):
        raise InvalidArgumentError(f"tools: expected True or False, got {tools!r:.200}")
    return tools


def as_summarizer(
    summarizer: Any,
    model_class: type[Any] | tuple[type[Any], ...],
    asked: Callable[[Any], ProviderSummarizer],
    *,
    has_own: bool = False,
) -> Summarizer | None:
    """Return what was given as `summarizer=`; None: rules write.

    Args:
        summarizer: "own", "rules", a framework's model or a summariser; None: own where there is one, else
            rules.
        model_class: what a framework's models are; with `str` among them, names of models too.
        asked: makes a summariser of one.
        has_own: whether the adapter gives each request's `Own` to `Conversations.view`.

    Raises:
        InvalidArgumentError: none of these.
    """
    is_word = isinstance(summarizer, str)
    if is_word and summarizer == RULES:
        return None
    if summarizer is None or (is_word and summarizer == OWN):
        if is_word and not has_own:
            refuse_own("summarizer")
        return OwnModel() if has_own else None
    if isinstance(summarizer, model_class):
        return asked(summarizer)
    if callable(getattr(summarizer, "summarize", None)):
        found: Summarizer = summarizer
        return found
    if is_word:
        check_summarizer("summarizer", summarizer)
    raise InvalidArgumentError(
        "summarizer: expected a summariser or a model of the framework's, 'own' or 'rules', got "
        f"{type(summarizer).__name__}"
    )


# What is taken over from an agent's own requests

_ANSWERS = frozenset(
    (
        *("max_tokens", "max_completion_tokens", "max_output_tokens", "n", "stop", "stop_sequences"),
        *(
            "tool_choice",
            "parallel_tool_calls",
            "response_format",
            "modalities",
            "audio",
            "voice",
            "prediction",
        ),
        *("logprobs", "top_logprobs", "stream", "stream_options", "metadata", "store", "truncation"),
        *("context_management", "background", "previous_response_id", "conversation_id", "conversation"),
    )
)
"""How long an answer to the agent is, what shape it has, and where it is kept. The rest says how a model is
reached and how it thinks."""
_BODIES = ("extra_body", "extra_args", "model_kwargs")
"""Settings that hold settings."""


def is_taken_over(name: str, value: object = None) -> bool:
    """Tell whether a request for a summary takes a setting over; a provider's name may stand before its own.

    That nothing is to be stored holds for all that is said.
    """
    is_own = name in _ANSWERS or any(name.endswith(f"_{one}") for one in _ANSWERS)
    return not is_own or (value is False and name.endswith("store"))


def taken_over(settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the settings that a request for a summary takes over."""
    return {
        name: taken_over(value) if name in _BODIES and isinstance(value, Mapping) else value
        for name, value in (settings or {}).items()
        if is_taken_over(name, value)
    }


class Asked(NamedTuple):
    """What a request of an agent's asks whom."""

    beside: tuple[Any, ...]
    """The model, its instructions and the agent's tools."""
    listed: Sequence[Any]
    """The whole list that the view was made of."""

    def check_goes_on(self, last: Asked) -> None:
        """Check that a request goes on where the last one was, so that what that one said may be said again.

        Raises:
            SummarizerError: it does not.
        """
        if self.beside != last.beside or self.listed[: len(last.listed)] != last.listed:
            raise SummarizerError(
                "the last request cannot be sent again: its list, instructions, tools or model were others"
            )


class Last(NamedTuple):
    """An agent's request as it was sent, and what it asked."""

    sent: Any
    asked: Asked
