"""DashScope's classes: `Generation = compressed(Generation, max_total_tokens=16_000)`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar, Unpack

import dashscope

from context_compressor.errors import InvalidArgumentError
from context_compressor.integrations.clients.generation import GenerationWire
from context_compressor.integrations.clients.talk import (
    KEPT,
    Compression,
    Sender,
    Talk,
    asked_by,
    each,
    stats_of,
    through,
)
from context_compressor.integrations.options import KeyedOptions

__all__ = ["compressed", "stats_of"]

GenerationT = TypeVar("GenerationT", bound=type[dashscope.Generation] | type[dashscope.AioGeneration])

_OF_CALLER = ("api_key", "base_address", "headers", "request_timeout", "session", "workspace")
"""How a request is sent, and as whom."""


def compressed(generation: GenerationT, **options: Unpack[KeyedOptions[str]]) -> GenerationT:
    """Return a subclass whose `call` sends views of `messages`, streamed or not.

    Args:
        generation: the class `Generation` or `AioGeneration`.
        options: as `KeyedOptions` has them, fields of `CompressionConfig` among them. A name as `summarizer`
            is that of a model that this class asks; `key` is given a call's arguments. Tools are offered with
            `result_format="message"` alone.

    Raises:
        InvalidArgumentError: an argument of the wrong kind, or a field that there is not.
        ValueError: thresholds that cannot be, or cannot work together.
    """
    classes = (dashscope.Generation, dashscope.AioGeneration)
    if not (isinstance(generation, type) and issubclass(generation, classes)):
        raise InvalidArgumentError(
            f"generation: expected the class Generation or AioGeneration, got {generation!r:.200}"
        )
    is_blocking, given = issubclass(generation, dashscope.Generation), generation.call
    asked = asked_by(GenerationWire(), lambda sent: given(**sent), is_blocking=is_blocking)
    compression = Compression(GenerationWire(), options, asked)
    call = through(given, partial(_begin, given, compression, is_blocking), is_blocking=is_blocking)
    made: Any = type(generation.__name__, (generation,), {"call": staticmethod(call), KEPT: [compression]})
    wrapped: GenerationT = made
    return wrapped


def _begin(
    given: Callable[..., Any],
    compression: Compression,
    is_blocking: bool,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Coroutine[Any, Any, Any] | None:
    """Return what answers a call; None: it passes."""
    request = _arguments(given, args, kwargs)
    streams = bool(request.get("stream"))
    talk = compression.begin(Talk, request, beside={}, streams=streams)
    if talk is None:
        return None

    def send_apart(sent: dict[str, Any]) -> Any:
        """What was sent earlier goes out as this request does."""
        kept = {name: value for name, value in sent.items() if name not in _OF_CALLER}
        return given(**kept, **{name: request[name] for name in _OF_CALLER if name in request})

    def stream(first: Any, sender: Sender) -> Any:
        events = sender.events(first)
        return each(events) if is_blocking else events

    return Sender(talk, lambda sent: given(**sent), send_apart, is_blocking).answer(
        stream if streams else None
    )


def _arguments(given: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by their names."""
    found = dict(inspect.signature(given).bind(*args, **kwargs).arguments)
    more = found.pop("kwargs", {})
    return {**found, **more}
