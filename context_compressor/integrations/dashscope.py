"""DashScope's classes: `Generation = compressed(Generation, max_total_tokens=16_000)`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, Unpack

import dashscope

from context_compressor.core.config import ConfigFields
from context_compressor.errors import InvalidArgumentError
from context_compressor.events import EventHook
from context_compressor.integrations.asked import AskedModel, as_summarizer
from context_compressor.integrations.clients import talk as talking
from context_compressor.integrations.clients.generation import GenerationWire
from context_compressor.integrations.clients.talk import Compression, Sender, asker, each
from context_compressor.integrations.conversations import KeyOf, States
from context_compressor.integrations.request import run_through
from context_compressor.memory.reporting import CompressionStats
from context_compressor.offload.store import OffloadStore
from context_compressor.summarizers.protocol import Summarizer
from context_compressor.tokens.counter import TokenCounter

__all__ = ["compressed", "stats_of"]

GenerationT = TypeVar("GenerationT", bound=type[dashscope.Generation] | type[dashscope.AioGeneration])

_OF_CALLER = ("api_key", "base_address", "headers", "request_timeout", "session", "workspace")
"""How a request is sent, and as whom."""
_KEPT = "_context_compressor"


def compressed(
    generation: GenerationT,
    *,
    tools: bool = True,
    key: KeyOf | None = None,
    states: States | None = None,
    store: OffloadStore | None = None,
    summarizer: Summarizer | str | None = None,
    on_event: EventHook | None = None,
    counter: TokenCounter | str | None = None,
    **fields: Unpack[ConfigFields],
) -> GenerationT:
    """Return a subclass whose `call` sends views of `messages`, streamed or not.

    Args:
        generation: the class `Generation` or `AioGeneration`.
        tools: whether requests with `result_format="message"` offer tools that read back what left the view;
            calls of these are answered inside.
        key: returns the key of a request's conversation, given its arguments as a dict; None: it is found by
            its messages.
        states: where states are kept beyond this process.
        store: where texts go; None: in memory, for each conversation.
        summarizer: who writes summaries: "own", the model of the request, in a request of its own; "rules",
            no model; the name of a model that this class asks; or a summariser. Own when None.
        on_event: receives every event.
        counter: measures messages, or the name of a model; offline tiktoken when None.
        fields: any field of `CompressionConfig`.

    Raises:
        InvalidArgumentError: an argument of the wrong kind, or a field that there is not.
        ValueError: thresholds that cannot be, or cannot work together.
    """
    classes = (dashscope.Generation, dashscope.AioGeneration)
    if not (isinstance(generation, type) and issubclass(generation, classes)):
        raise InvalidArgumentError(
            f"generation: expected the class Generation or AioGeneration, got {generation!r:.200}"
        )
    compression = Compression(
        GenerationWire(),
        tools=tools,
        key=key,
        states=states,
        store=store,
        summarizer=as_summarizer(summarizer, str, lambda model: _asked(generation, model), has_own=True),
        on_event=on_event,
        counter=counter,
        **fields,
    )
    is_blocking = issubclass(generation, dashscope.Generation)
    call = (_blocking if is_blocking else _awaited)(generation.call, compression)
    made: Any = type(generation.__name__, (generation,), {"call": staticmethod(call), _KEPT: compression})
    wrapped: GenerationT = made
    return wrapped


def stats_of(generation: Any, key: str | None = None) -> CompressionStats | None:
    """Return where a conversation of a wrapped class stands; None: there is none.

    Args:
        generation: what `compressed` returned.
        key: of the conversation; None: the newest of all.

    Raises:
        InvalidArgumentError: the class is not wrapped.
    """
    compression = getattr(generation, _KEPT, None)
    if compression is None:
        raise InvalidArgumentError(
            f"generation: expected what compressed(...) returned, got {generation!r:.200}"
        )
    return talking.stats_of([compression], key)


def _awaited(given: Callable[..., Any], compression: Compression) -> Any:
    async def call(*args: Any, **kwargs: Any) -> Any:
        request = _arguments(given, args, kwargs)
        talk = compression.begin(request, beside={}, streams=bool(request.get("stream")))
        if talk is None:
            return await given(*args, **kwargs)
        sender = _sender(given, request, is_blocking=False)
        if request.get("stream"):
            return sender.events(talk, await sender.begin(talk))
        return await sender.ask(talk)

    return call


def _blocking(given: Callable[..., Any], compression: Compression) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        request = _arguments(given, args, kwargs)
        talk = compression.begin(request, beside={}, streams=bool(request.get("stream")))
        if talk is None:
            return given(*args, **kwargs)
        sender = _sender(given, request, is_blocking=True)
        if request.get("stream"):
            return each(sender.events(talk, run_through(sender.begin(talk))))
        return run_through(sender.ask(talk))

    return call


def _arguments(given: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by their names."""
    found = dict(inspect.signature(given).bind(*args, **kwargs).arguments)
    more = found.pop("kwargs", {})
    return {**found, **more}


def _sender(given: Callable[..., Any], request: dict[str, Any], *, is_blocking: bool) -> Sender:
    def send_apart(sent: dict[str, Any]) -> Any:
        """What was sent earlier goes out as this request does."""
        kept = {name: value for name, value in sent.items() if name not in _OF_CALLER}
        return given(**kept, **{name: request[name] for name in _OF_CALLER if name in request})

    return Sender(partial(_send, given), send_apart, is_blocking)


def _send(given: Callable[..., Any], request: dict[str, Any]) -> Any:
    return given(**request)


def _asked(generation: Any, model: str) -> AskedModel:
    """Return the summariser that asks a model through a class."""
    send = partial(_send, generation.call)
    is_blocking = not issubclass(generation, dashscope.AioGeneration)
    return AskedModel(model, asker(GenerationWire(), {"model": model}, send, is_blocking=is_blocking))
