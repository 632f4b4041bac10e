"""OpenAI's clients: `client = compressed(AsyncOpenAI(), max_total_tokens=16_000)`."""

from __future__ import annotations

from typing import Any, TypeVar, Unpack

import openai

from context_compressor.core.config import ConfigFields
from context_compressor.errors import InvalidArgumentError
from context_compressor.events import EventHook
from context_compressor.integrations.asked import AskedModel, as_summarizer
from context_compressor.integrations.clients.chat import ChatWire
from context_compressor.integrations.clients.posting import (
    AsyncGoingStream,
    GoingStream,
    Posts,
    copied,
    stats_of,
)
from context_compressor.integrations.clients.responses import ResponsesWire
from context_compressor.integrations.clients.talk import Compression, asker
from context_compressor.integrations.conversations import KeyOf, States
from context_compressor.offload.store import OffloadStore
from context_compressor.summarizers.protocol import Summarizer
from context_compressor.tokens.counter import TokenCounter

__all__ = ["compressed", "stats_of"]

ClientT = TypeVar("ClientT", bound=openai.OpenAI | openai.AsyncOpenAI)


class _Stream(GoingStream, openai.Stream[Any]):
    pass


class _AsyncStream(AsyncGoingStream, openai.AsyncStream[Any]):
    pass


def compressed(
    client: ClientT,
    *,
    tools: bool = True,
    key: KeyOf | None = None,
    states: States | None = None,
    store: OffloadStore | None = None,
    summarizer: Summarizer | str | None = None,
    on_event: EventHook | None = None,
    counter: TokenCounter | str | None = None,
    **fields: Unpack[ConfigFields],
) -> ClientT:
    """Return a copy of a client that sends views: chat completions and responses, streamed or not.

    The client that was given stays as it is. The copy is of its class, has all that was set on it, and shares
    its connections.

    Args:
        client: an `AsyncOpenAI` or an `OpenAI`.
        tools: whether requests offer tools that read back what left the view; calls of these are answered
            inside.
        key: returns the key of a request's conversation, given what the request says as a dict; None: it is
            found by its messages.
        states: where states are kept beyond this process.
        store: where texts go; None: in memory, for each conversation.
        summarizer: who writes summaries: "own", the model of the request, in a request of its own; "rules",
            no model; the name of a model that this client asks; or a summariser. Own when None.
        on_event: receives every event.
        counter: measures messages, or the name of a model; offline tiktoken when None.
        fields: any field of `CompressionConfig`.

    Raises:
        InvalidArgumentError: an argument of the wrong kind, or a field that there is not; a client whose
            methods were replaced: wrap what this returns.
        ValueError: thresholds that cannot be, or cannot work together.
    """
    if not isinstance(client, openai.OpenAI | openai.AsyncOpenAI):
        raise InvalidArgumentError(
            f"client: expected an AsyncOpenAI or an OpenAI, got {type(client).__name__}"
        )
    options: dict[str, Any] = {
        "tools": tools,
        "key": key,
        "states": states,
        "store": store,
        "summarizer": as_summarizer(summarizer, str, lambda model: _asked(client, model), has_own=True),
        "on_event": on_event,
        "counter": counter,
        **fields,
    }
    by_path = {
        "/chat/completions": Compression(ChatWire(), **options),
        "/responses": Compression(ResponsesWire(), **options),
    }
    is_blocking = isinstance(client, openai.OpenAI)
    unset = (openai.NotGiven, getattr(openai, "Omit", openai.NotGiven))  # earlier releases have one of them
    return copied(client, Posts(by_path, _Stream if is_blocking else _AsyncStream, is_blocking, unset))


def _asked(client: openai.OpenAI | openai.AsyncOpenAI, model: str) -> AskedModel:
    """Return the summariser that asks a model through a client."""

    def send(sent: dict[str, Any]) -> Any:
        return client.post("/chat/completions", cast_to=openai.types.chat.ChatCompletion, body=sent)

    is_blocking = isinstance(client, openai.OpenAI)
    return AskedModel(model, asker(ChatWire(), {"model": model}, send, is_blocking=is_blocking))
