"""The clients of OpenAI and Anthropic: a copy of one whose requests go through a `Compression`.

Both SDKs are made alike: what a resource does, `create`, `stream`, `parse`, ends in the client's `post`.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator, Mapping
from contextlib import suppress
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeVar

from context_compressor.errors import InvalidArgumentError
from context_compressor.integrations.clients.talk import KEPT, Compression, Sender, Talk, each, through

ClientT = TypeVar("ClientT")

_RAW = "x-stainless-raw-response"
"""The header by which `with_raw_response` and `with_streaming_response` ask for the response itself."""
_OF_REQUEST = ("idempotency_key", "post_parser")
"""Options that are for one request and its reply."""


class Posts(NamedTuple):
    """What a wrapped client goes by."""

    by_path: Mapping[str, Compression]
    stream_class: Callable[..., Any]
    is_blocking: bool
    unset: tuple[type, ...]
    """What stands in a request for what the caller did not give."""


class GoingStream:
    """A stream of an SDK's that goes on inside: give this class and the SDK's `Stream`, in this order."""

    response: Any

    def __init__(self, first: Any, sender: Sender) -> None:
        self._opened(first)
        self._events: Generator[Any, None, None] = each(sender.events(first, self._opened))

    def _opened(self, stream: Any) -> None:
        self._current, self.response = stream, stream.response

    def __next__(self) -> Any:
        return next(self._events)

    def __iter__(self) -> Iterator[Any]:
        return self._events

    def close(self) -> None:
        with suppress(ValueError):  # somebody reads it just now
            self._events.close()
        self._current.close()


class AsyncGoingStream:
    """The same for an SDK's `AsyncStream`."""

    response: Any

    def __init__(self, first: Any, sender: Sender) -> None:
        self._opened(first)
        self._events: Any = sender.events(first, self._opened)

    def _opened(self, stream: Any) -> None:
        self._current, self.response = stream, stream.response

    async def __anext__(self) -> Any:
        return await anext(self._events)

    async def __aiter__(self) -> AsyncIterator[Any]:
        async for event in self._events:
            yield event

    async def close(self) -> None:
        with suppress(RuntimeError):  # somebody reads it just now
            await self._events.aclose()
        await self._current.close()

    async def aclose(self) -> None:
        await self.close()


def copied(client: ClientT, posts: Posts) -> ClientT:
    """Return a copy of a client whose requests go through the compressions of their paths.

    It is of the same class, with all that was set on the client, and shares its connections.

    Raises:
        InvalidArgumentError: a method that sends these requests was replaced; the copy would bypass the
            replacement.
    """
    if client.__class__ is not type(client):
        raise InvalidArgumentError(
            f"client: a {type(client).__name__} stands in for the {client.__class__.__name__}; give the "
            "client itself to compressed(), and wrap what that returns"
        )
    made: Any = _put_through(copy.copy(client), posts)
    ours = {path.removeprefix("/v1").split("/")[1] for path in posts.by_path}
    for name, resource in list(vars(made).items()):
        if not isinstance(inspect.getattr_static(type(made), name, None), cached_property):
            continue
        # A resource belongs to the client that was given. The copy makes its own, with what somebody changed.
        del vars(made)[name]
        replaced = next(_replaced(resource, getattr(made, name), name), None)
        if replaced is not None and not ours.isdisjoint(replaced.split(".")):
            raise InvalidArgumentError(
                f"client: its {replaced} was replaced, as by LangSmith's wrap_openai, and would not see "
                "what compressed() sends; compress first, then wrap: wrap_openai(compressed(client))"
            )
        if replaced is not None:
            vars(made)[name] = resource
    through: ClientT = made
    return through


def _replaced(one: Any, new: Any, name: str) -> Iterator[str]:
    """Yield what differs from a new resource: another object in its place, or replaced methods."""
    if type(one) is not type(new):
        yield name
        return
    for key, value in vars(one).items():
        of_class = inspect.getattr_static(type(one), key, None)
        if isinstance(of_class, cached_property):
            yield from _replaced(value, getattr(new, key), f"{name}.{key}")
        elif callable(of_class) or (
            not key.startswith("_") and _code_of(value) is not _code_of(vars(new).get(key))
        ):
            yield f"{name}.{key}"


def _code_of(value: Any) -> Any:
    """Return the code of a function; functions that give raw responses are made anew over the same code."""
    return getattr(value, "__code__", None)


def _put_through(client: Any, posts: Posts) -> Any:
    """Put a client's requests through, and those of its copies."""
    post, copied_by_sdk = client.post, client.copy

    def with_options(*args: Any, **kwargs: Any) -> Any:
        return _put_through(copied_by_sdk(*args, **kwargs), posts)

    # A resource takes the client's methods when it is made, which is when it is first asked for.
    client.post = through(post, partial(_begin, post, posts), is_blocking=posts.is_blocking)
    client.copy = client.with_options = with_options
    setattr(client, KEPT, list(posts.by_path.values()))
    return client


def _begin(
    post: Any, posts: Posts, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Coroutine[Any, Any, Any] | None:
    """Return what answers a request of the caller's; None: it passes."""
    [path] = args
    compression, body = posts.by_path.get(path), kwargs.get("body")
    if compression is None or not isinstance(body, Mapping):
        return None
    options = dict(kwargs.get("options") or {})
    given = {name: value for name, value in body.items() if not isinstance(value, posts.unset)}
    body = {**given, **(options.pop("extra_json", None) or {})}
    headers = options.get("headers") or {}
    opens = not any(str(name).lower() == _RAW for name in headers)
    stream_class = posts.stream_class if kwargs.get("stream") else None
    talk = compression.begin(
        Talk, body, beside={"extra_headers": headers}, opens=opens, streams=stream_class is not None
    )
    if talk is None:
        kwargs["body"] = compression.wire.passing(kwargs["body"])
        return None

    def send(sent: dict[str, Any]) -> Any:
        sending = {**kwargs, "body": sent, "options": dict(options)}
        options.pop("idempotency_key", None)  # it belongs to one request
        return post(path, **sending)

    def send_apart(sent: dict[str, Any]) -> Any:
        kept = {name: value for name, value in options.items() if name not in _OF_REQUEST}
        kept["headers"] = {name: value for name, value in headers.items() if str(name).lower() != _RAW}
        return post(path, cast_to=kwargs["cast_to"], body=sent, options=kept)

    return Sender(talk, send, send_apart, posts.is_blocking).answer(stream_class)
