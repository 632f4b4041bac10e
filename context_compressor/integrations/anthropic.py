"""Anthropic's clients: `client = compressed(AsyncAnthropic(), max_total_tokens=16_000)`."""

from __future__ import annotations

from typing import Any, TypeVar, Unpack

from context_compressor.errors import InvalidArgumentError, naming_extras
from context_compressor.integrations.clients.messages import MessagesWire
from context_compressor.integrations.clients.posting import (
    AsyncGoingStream,
    GoingStream,
    Posts,
    copied,
)
from context_compressor.integrations.clients.talk import Compression, asked_by, stats_of
from context_compressor.integrations.options import KeyedOptions

with naming_extras("anthropic"):
    import anthropic

__all__ = ["compressed", "stats_of"]

ClientT = TypeVar("ClientT", bound=anthropic.Anthropic | anthropic.AsyncAnthropic)


class _Stream(GoingStream, anthropic.Stream[Any]):
    pass


class _AsyncStream(AsyncGoingStream, anthropic.AsyncStream[Any]):
    pass


def compressed(client: ClientT, **options: Unpack[KeyedOptions[str]]) -> ClientT:
    """Return a copy of a client that sends views: `messages.create`, `stream` and `parse`.

    The client that was given stays as it is. The copy is of its class, has all that was set on it, and shares
    its connections.

    Args:
        client: an `AsyncAnthropic` or an `Anthropic`.
        options: as `KeyedOptions` has them, fields of `CompressionConfig` among them. A name as `summarizer`
            is that of a model that this client asks; `key` is given what a request says as a dict.

    Raises:
        InvalidArgumentError: an argument of the wrong kind, or a field that there is not; a client whose
            methods were replaced: wrap what this returns.
        ValueError: thresholds that cannot be, or cannot work together.
    """
    if not isinstance(client, anthropic.Anthropic | anthropic.AsyncAnthropic):
        raise InvalidArgumentError(
            f"client: expected an AsyncAnthropic or an Anthropic, got {type(client).__name__}"
        )
    path, is_blocking = "/v1/messages", isinstance(client, anthropic.Anthropic)

    def send(sent: dict[str, Any]) -> Any:
        return client.post(path, cast_to=anthropic.types.Message, body=sent)

    compression = Compression(
        MessagesWire(), options, asked_by(MessagesWire(), send, is_blocking=is_blocking)
    )
    unset = (anthropic.NotGiven, anthropic.Omit)
    stream_class = _Stream if is_blocking else _AsyncStream
    return copied(client, Posts({path: compression}, stream_class, is_blocking, unset))
