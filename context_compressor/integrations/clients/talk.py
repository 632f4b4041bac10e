"""A request of a wrapped client: a view is sent, and asked again until the reply is one for the caller."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from dataclasses import asdict, dataclass
from functools import partial
from itertools import count
from typing import Any, TypeVar

from context_compressor.errors import InvalidArgumentError
from context_compressor.integrations.asked import Ask, Asked, AskedModel, Last, Own, Said
from context_compressor.integrations.clients.wire import (
    Answer,
    Beside,
    Call,
    Dict,
    Heard,
    Reader,
    Wire,
    kept_apart,
    summed,
)
from context_compressor.integrations.conversations import Conversations, KeyOf, Shown, key_of
from context_compressor.integrations.options import KeyedOptions, has_tools, make_conversations
from context_compressor.integrations.request import Request, own_work, run_through
from context_compressor.memory.kept import is_over
from context_compressor.memory.listing import digest_of, wires_of
from context_compressor.memory.reporting import CompressionStats
from context_compressor.offload.guide import COMPRESS_TOOL, TOOL_NAMES
from context_compressor.summarizers.faults import refuses_request
from context_compressor.summarizers.provider import ProviderSummarizer
from context_compressor.tools.tools import schemas_in

logger = logging.getLogger(__name__)

T = TypeVar("T")
TalkT = TypeVar("TalkT", bound="Talk")

MOST_ROUNDS = 8
"""So many replies that call only ours are answered for one request; the next one is the caller's."""
MOST_BESIDE = 64
"""Of one conversation, so many replies are remembered that called ours beside the caller's."""
_NOTED = "beside"
_USES = count(1)
_END: Any = object()


class Compression:
    """What one API of a wrapped client goes by.

    Args:
        wire: the API.
        options: keywords as `KeyedOptions` has them.
        asked: makes a summariser of a model's name.

    Raises:
        InvalidArgumentError: an option of the wrong kind, or one that there is not.
        ValueError: thresholds that cannot be, or cannot work together.
    """

    def __init__(
        self, wire: Wire, options: Mapping[str, Any], asked: Callable[[str], ProviderSummarizer]
    ) -> None:
        key = options.get("key")
        if key is not None and not callable(key):
            raise InvalidArgumentError(f"key: expected a function of the request, got {type(key).__name__}")
        self.wire = wire
        self.key: KeyOf | None = key
        self.conversations = make_conversations(KeyedOptions, options, wire.form, models=str, asked=asked)
        self.tools = has_tools(options)
        self.tells_usage: bool | None = None
        """Whether streams tell their usage when they are asked to; None: none was yet."""
        self.last_used = 0

    def begin(
        self,
        made: Callable[..., TalkT],
        request: Mapping[str, Any],
        *,
        beside: Mapping[str, Any],
        opens: bool = True,
        streams: bool = False,
    ) -> TalkT | None:
        """Return how a request is sent; None: it passes untouched.

        Args:
            made: `Talk`, or what makes one of its kind.
            request: what is sent.
            beside: what it carries besides, for the caller's key.
            opens: whether replies can be looked into.
            streams: whether they come in pieces.
        """
        said = self.wire.said(request)
        if not said:
            return None
        if (observer := self.conversations.observer) is not None:
            observer.note(lambda: said, lambda: self.wire.system(request), lambda: request.get("tools"))
            return None
        self.last_used = next(_USES)
        return made(self, request, said, {**request, **beside}, opens, streams)


KEPT = "_context_compressor"
"""The attribute under which a wrapped client or class has its compressions."""


def stats_of(client: Any, key: str | None = None) -> CompressionStats | None:
    """Return where a conversation of a wrapped client or class stands, of the API that was used last.

    Args:
        client: what `compressed` returned.
        key: of the conversation; None: the newest of all.

    Returns:
        None where there is no such conversation.

    Raises:
        InvalidArgumentError: the client is not wrapped.
    """
    compressions: Sequence[Compression] | None = getattr(client, KEPT, None)
    if compressions is None:
        raise InvalidArgumentError(f"client: expected what compressed(...) returned, got {client!r:.200}")
    for one in sorted(compressions, key=lambda one: -one.last_used):
        stats = one.conversations.stats(key)
        if stats is not None:
            return stats
    return None


class Talk:
    """One request of the caller's, until there is a reply for him. Nothing here sends anything."""

    def __init__(
        self,
        compression: Compression,
        request: Mapping[str, Any],
        said: list[Any],
        seen: Mapping[str, Any],
        opens: bool,
        streams: bool,
    ) -> None:
        self.wire = compression.wire
        self.opens, self._streams = opens, streams
        self._has_tools = compression.tools and opens and self.wire.takes_tools(request)
        self._compression, self._conversations = compression, compression.conversations
        self._request, self._said, self._seen = request, said, seen
        self._key: str | None = None
        self._has_key = False
        self.asked: Request | None = None
        """What is sent for it now, or was sent last."""
        self._sent: Last | None = None
        self._inside: list[Dict] = []
        """What was answered inside."""
        self._rounds = 0
        self.names: frozenset[str] = frozenset()
        """Names of our tools whose calls are answered."""
        self._spent: Any = None
        self.asks_usage = False
        """Whether what is sent asks the stream for its usage, for which the caller did not ask."""
        self._was_refused = False
        """Whether it was refused with that, and is sent without."""

    def own(self, send: Callable[[Dict], Any], is_blocking: bool) -> Own:
        """Return the caller's model, as requests of the library's own ask it by way of `asker`."""
        wire = self.wire

        def again(last: Last) -> Ask:
            self._asks.check_goes_on(last.asked)
            return asker(wire, wire.again(last.sent), send, is_blocking=is_blocking)

        apart = asker(wire, wire.apart(self._request), send, is_blocking=is_blocking)
        return Own(str(self._request.get("model")), apart, again)

    @property
    def _asks(self) -> Asked:
        request = self._request
        tools = list(request.get("tools") or ())
        return Asked((request.get("model"), self.wire.system(request), tools), self._said)

    async def view(self, own: Own | None = None) -> Request:
        """Return what is to be sent now, with a view of the list and of what was answered inside.

        Args:
            own: the caller's model, which may write what an event needs.

        Raises:
            InvalidArgumentError, InvalidMessageError, ContextOverflowError: as `Conversations.view`.
        """
        if not self._has_key:
            self._key, self._has_key = await key_of(self._compression.key, self._seen), True
        shown = await self._conversations.view(
            self._said,
            key=self._key,
            system=self.wire.system(self._request),
            with_tools=self._has_tools,
            tools_beside=len(self._request.get("tools") or ()),
            model=str(self._request.get("model")),
            fill=self._fill,
            own=own,
        )
        self.asked = _Sent(self, self._conversations, shown)
        return self.asked

    def request(self, shown: Shown) -> Dict:
        """Return what is sent for a view."""
        schemas = self._offer(shown)
        is_last = self._rounds >= MOST_ROUNDS
        request = self.wire.request(self._request, shown.messages, schemas, is_last)
        # As with tools, nothing is added before something has left the view.
        if self._streams and self.opens and shown.conversation.has_left:
            request = self._with_usage(request)
        self._sent = Last(request, self._asks)
        return request

    def end(self) -> None:
        """Let go of the request, which knows this talk: its lists would wait for the garbage collector."""
        self.asked = None

    def _with_usage(self, request: Dict) -> Dict:
        is_refused = self._was_refused or self._compression.tells_usage is False
        asking = request if is_refused else self.wire.with_usage(request)
        self.asks_usage = asking is not request
        return asking

    def leaves_usage_out(self, error: BaseException | str) -> bool:
        """Tell whether a refused request is to be sent once more, without asking for the usage."""
        is_named = self.wire.usage_key in str(error)
        may_be_it = self.asks_usage and (is_named or self._compression.tells_usage is None)
        self._was_refused = may_be_it and refuses_request(error)
        return self._was_refused

    def _offer(self, shown: Shown) -> list[Any]:
        ours = TOOL_NAMES - {COMPRESS_TOOL} - self.wire.named(self._request)
        # A model may call a tool that was not offered, by a name in some text. Such a call is answered as
        # well, but no stream is held back for it.
        is_answered = shown.offers_tools or (self._has_tools and not self._streams)
        self.names = ours if is_answered else frozenset()
        return [one for one in schemas_in(self.wire.form) if _name_of(one) in ours and shown.offers_tools]

    def _fill(self, said: list[Any], notes: Dict) -> list[Any]:
        """Return the caller's list with what is ours: beside his calls, and answered inside just now."""
        noted: list[Dict] = notes.get(_NOTED, [])
        known = {one["after"]: Beside(**one) for one in noted}
        filled, now = list(said), time.time()
        found: list[tuple[int, Beside]] = []
        places: set[str] = set()
        for at, place, piece in self._places(said) if known else ():
            places.add(place)
            beside = known.get(place)
            if beside is not None and set(beside.ids) == set(self.wire.calls_in(piece)):
                found.append((at, beside))
        for one in noted:
            one["left_at"] = None if one["after"] in places else one.get("left_at") or now
        seconds = self._conversations.config.branch_seconds
        if noted:
            notes[_NOTED] = [one for one in noted if not is_over(one["left_at"], now, seconds)]
        for at, beside in reversed(found):
            filled = self.wire.put_back(filled, at, beside)
        return [*filled, *self._inside]

    async def take(self, heard: Heard, *, was_streamed: bool = False) -> bool:
        """Take note of a reply; tell whether it is to be asked again, since it called only ours."""
        assert self.asked is not None
        await self.asked.taken(heard.prompt_tokens, self._sent)
        if self.asks_usage or self._was_refused:
            self._compression.tells_usage = self.asks_usage
        kept_apart(heard, self.wire.call_key, self.names)
        ours = [call for call in heard.calls if call.name in self.names]
        if not heard.is_whole or not (ours or (self._inside and heard.calls)):
            return False
        if len(ours) < len(heard.calls):
            *_, (_, after, _) = self._places(self._said)
            beside = self.wire.beside(after, heard, await self._answer(ours))
            beside.inside, beside.was_streamed = self._inside, was_streamed
            await self._remember(self.asked.shown, beside)
            return False
        if self._rounds >= MOST_ROUNDS:
            return False
        self._inside += self.wire.turn(self._request, heard, await self._answer(ours))
        self._rounds += 1
        self._request = {**self._request, **heard.going_on}
        self._spent = summed(self._spent, heard.usage)
        return True

    async def _remember(self, shown: Shown, beside: Beside) -> None:
        noted = shown.conversation.notes.get(_NOTED, [])
        try:
            await self._conversations.note(shown, _NOTED, [*noted, asdict(beside)][-MOST_BESIDE:])
        except Exception:
            logger.warning("calls that were answered inside are known to this process alone", exc_info=True)

    def reader(self) -> Reader:
        """Return what takes the streams of the reply apart."""
        return self.wire.reader(self.names, self._request)

    def handed(self, replies: Sequence[Any]) -> Any:
        """Return the last reply for the caller; those before it were answered inside."""
        return self.wire.handed(replies, self.names, self._spent)

    def _places(self, said: list[Any]) -> Iterator[tuple[int, str, Sequence[Any]]]:
        """Yield for each piece of a list its place, a hash of all that the model reads before it, and the
        piece; at the end an empty piece.

        The hash covers instructions and tools as well. Two users with the same words and ids are told apart
        by these, and what was answered inside may quote them.
        """
        beside = [{"role": "system", "content": self.wire.system(self._request) or ""}]
        beside += wires_of(self._request.get("tools") or ())
        so_far = hashlib.sha256(digest_of(beside).encode())
        at = 0
        for piece in (*self._conversations.form.pieces(said), []):
            yield at, so_far.hexdigest(), piece
            so_far.update(digest_of(wires_of(piece)).encode())
            at += len(piece)

    async def _answer(self, calls: Sequence[Call]) -> list[Answer]:
        assert self.asked is not None
        answers: list[Answer] = []
        for call in calls:
            try:
                text, attached = await self._conversations.run_tool(
                    self.asked.shown, call.name, call.arguments, self.wire.form
                )
            except Exception as error:
                logger.warning("%s failed", call.name, exc_info=True)
                text, attached = f"{call.name} failed: {error}", None
            if attached is not None and not self.wire.shows_media:
                text, attached = "It cannot be shown here: this model reads text alone. Do not retry.", None
            answers.append(Answer(call, text, attached))
        return answers


class _Sent(Request):
    """What is sent for a `Talk`; it may also leave out what only the talk asks for."""

    def __init__(self, talk: Talk, conversations: Conversations, shown: Shown) -> None:
        super().__init__(conversations, shown)
        self._talk = talk

    async def is_mended(self, error: BaseException | str, *, has_offered: bool | None = None) -> bool:
        is_mended = await super().is_mended(error, has_offered=has_offered)
        return is_mended or self._talk.leaves_usage_out(error)


def asker(wire: Wire, kept: Mapping[str, Any], send: Callable[[Dict], Any], *, is_blocking: bool) -> Ask:
    """Return what asks a model for something of the library's own.

    Args:
        wire: the API.
        kept: what goes into each request: whom it goes to, and what `Wire.apart` or `again` left.
        send: sends a request past the wrapped client, not streamed.
        is_blocking: whether that blocks.
    """

    async def ask(instructions: str, text: str, room: int | None) -> Said:
        sent = wire.asking(kept, instructions, text, room)
        return wire.written(await (_in_thread(partial(send, sent)) if is_blocking else send(sent)))

    return ask


def asked_by(
    wire: Wire, send: Callable[[Dict], Any], *, is_blocking: bool
) -> Callable[[str], ProviderSummarizer]:
    """Return what makes a summariser of a model's name; the arguments are those of `asker`."""
    return lambda model: AskedModel(model, asker(wire, {"model": model}, send, is_blocking=is_blocking))


async def _in_thread(call: Callable[[], T]) -> T:
    """Run a blocking call in a thread of its own.

    One that hangs goes on in its thread after it was given up. The loop's threads, which count tokens, are
    few.
    """
    thread = ThreadPoolExecutor(1, thread_name_prefix="ask")
    try:
        return await asyncio.get_running_loop().run_in_executor(thread, partial(copy_context().run, call))
    finally:
        thread.shutdown(wait=False)


def _name_of(schema: Mapping[str, Any]) -> Any:
    return (schema.get("function") or schema).get("name")


# Sending: written once. Where a client blocks, nothing below waits for an event loop.


@dataclass(frozen=True, slots=True)
class Sender:
    """How a client sends a request of the caller's: awaited, or blocking.

    Args:
        talk: the request.
        send: sends it, and returns a reply, or a stream.
        send_apart: sends a request of the library's own in the same way, and returns a reply.
        is_blocking: whether it is to be called without asyncio.
    """

    talk: Talk
    send: Callable[[Dict], Any]
    send_apart: Callable[[Dict], Any]
    is_blocking: bool

    async def answer(self, stream: Callable[[Any, Sender], Any] | None) -> Any:
        """Return what the caller gets: a reply, or what `stream` makes of a stream that has begun."""
        if stream is None or not self.talk.opens:
            return await self._reply()
        return stream(await self._begin(), self)

    async def _begin(self) -> Any:
        """Send a view; if it is refused, mend it and send it once more. Return the reply."""
        await self._own(self.talk.view(self.talk.own(self.send_apart, self.is_blocking)))
        return await self._open()

    async def _open(self) -> Any:
        talk = self.talk
        assert talk.asked is not None
        return await talk.asked.ask(
            lambda shown: self.send(talk.request(shown)),
            is_blocking=self.is_blocking,
            refusal=talk.wire.refusal,
        )

    async def _reply(self) -> Any:
        """Return a whole reply for the caller."""
        replies: list[Any] = []
        try:
            while True:
                replies.append(await self._begin())
                if not self.talk.opens:
                    return replies[-1]
                if not await self._own(self.talk.take(self.talk.wire.heard(replies[-1]))):
                    return self.talk.handed(replies)
        finally:
            self.talk.end()

    async def events(
        self, stream: Any, opened: Callable[[Any], None] | None = None
    ) -> AsyncGenerator[Any, None]:
        """Yield what a stream, and those that go on from it, have for the caller.

        Args:
            stream: the first one.
            opened: told of each further one.
        """
        talk = self.talk
        reader = talk.reader()
        while True:
            reader.hides_usage = talk.asks_usage  # a view that is sent later may have become smaller
            refused: BaseException | str | None = None
            try:
                while (event := await self._next(stream)) is not _END:
                    if not reader.has_begun and (refused := talk.wire.refusal(event)) is not None:
                        break
                    for one in reader.feed(event):
                        yield one
            except Exception as error:
                if reader.has_begun or not await self._is_mended(error):
                    raise
                refused = error
            else:
                if refused is not None and not await self._is_mended(refused):
                    for one in reader.feed(event):
                        yield one
                    break
                if refused is None and not await self._own(talk.take(reader.heard(), was_streamed=True)):
                    break
            finally:
                await self._close(stream)
            stream = await (self._begin() if refused is None else self._open())
            if opened is not None:
                opened(stream)
            for one in reader.go_on(talk.names):
                yield one
        talk.end()
        for one in reader.end():
            yield one

    async def _is_mended(self, error: BaseException | str) -> bool:
        assert self.talk.asked is not None
        return await self._own(self.talk.asked.is_mended(error))

    async def _own(self, work: Coroutine[Any, Any, T]) -> T:
        return await own_work(work, self.is_blocking)

    async def _next(self, stream: Any) -> Any:
        return next(stream, _END) if self.is_blocking else await anext(stream, _END)

    async def _close(self, stream: Any) -> None:
        """Give back what a stream holds."""
        close = getattr(stream, "close", None) or getattr(stream, "aclose", None)
        closed = None if close is None else close()
        if closed is not None and not self.is_blocking:
            await closed


def through(
    given: Callable[..., Any],
    begin: Callable[[tuple[Any, ...], Dict], Coroutine[Any, Any, Any] | None],
    *,
    is_blocking: bool,
) -> Callable[..., Any]:
    """Return a method of a client whose requests go out with views.

    Args:
        given: the client's own, which sends requests as they are.
        begin: returns what answers a call with these arguments; None: `given` is called with them.
        is_blocking: whether it is called without asyncio.
    """

    def blocking(*args: Any, **kwargs: Any) -> Any:
        answer = begin(args, kwargs)
        return given(*args, **kwargs) if answer is None else run_through(answer)

    async def awaited(*args: Any, **kwargs: Any) -> Any:
        answer = begin(args, kwargs)
        return await (given(*args, **kwargs) if answer is None else answer)

    return blocking if is_blocking else awaited


def each(events: Any) -> Generator[Any, None, None]:
    """Yield what an async generator does that waits for nothing."""
    try:
        while True:
            try:
                event = run_through(events.__anext__())
            except StopAsyncIteration:
                return
            yield event
    finally:
        with suppress(StopAsyncIteration):
            run_through(events.aclose())
