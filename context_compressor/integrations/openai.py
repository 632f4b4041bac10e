"""OpenAI's clients: `client = compressed(AsyncOpenAI(), max_total_tokens=16_000)`."""

from __future__ import annotations

from typing import Any, TypeVar, Unpack

import openai

from context_compressor.errors import InvalidArgumentError
from context_compressor.integrations.clients.chat import ChatWire
from context_compressor.integrations.clients.posting import (
    AsyncGoingStream,
    GoingStream,
    Posts,
    copied,
)
from context_compressor.integrations.clients.responses import ResponsesWire
from context_compressor.integrations.clients.talk import Compression, asked_by, stats_of
from context_compressor.integrations.options import KeyedOptions

__all__ = ["compressed", "stats_of"]

ClientT = TypeVar("ClientT", bound=openai.OpenAI | openai.AsyncOpenAI)


class _Stream(GoingStream, openai.Stream[Any]):
    pass


class _AsyncStream(AsyncGoingStream, openai.AsyncStream[Any]):
    pass


def compressed(client: ClientT, **options: Unpack[KeyedOptions[str]]) -> ClientT:
    """Return a copy of a client that sends views: chat completions and responses, streamed or not.

    The client that was given stays as it is. The copy is of its class, has all that was set on it, and shares
    its connections.

    Args:
        client: an `AsyncOpenAI` or an `OpenAI`.
        options: as `KeyedOptions` has them, fields of `CompressionConfig` among them. A name as `summarizer`
            is that of a model that this client asks; `key` is given what a request says as a dict.

    Raises:
        InvalidArgumentError: an argument of the wrong kind, or a field that there is not; a client whose
            methods were replaced: wrap what this returns.
        ValueError: thresholds that cannot be, or cannot work together.
    """
    if not isinstance(client, openai.OpenAI | openai.AsyncOpenAI):
        raise InvalidArgumentError(
            f"client: expected an AsyncOpenAI or an OpenAI, got {type(client).__name__}"
        )
    path, is_blocking = "/chat/completions", isinstance(client, openai.OpenAI)

    def send(sent: dict[str, Any]) -> Any:
        return client.post(path, cast_to=openai.types.chat.ChatCompletion, body=sent)

    asked = asked_by(ChatWire(), send, is_blocking=is_blocking)
    by_path = {
        path: Compression(ChatWire(), options, asked),
        "/responses": Compression(ResponsesWire(), options, asked),
    }
    unset = (openai.NotGiven, getattr(openai, "Omit", openai.NotGiven))  # earlier releases have one of them
    return copied(client, Posts(by_path, _Stream if is_blocking else _AsyncStream, is_blocking, unset))
