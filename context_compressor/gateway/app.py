"""The gateway: requests of agents become requests with views; all else passes."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from context_compressor.core.config import ConfigFields
from context_compressor.errors import ContextCompressorError
from context_compressor.events import CompressionEvent
from context_compressor.gateway import tracing
from context_compressor.gateway.backend import Backend, Turns
from context_compressor.gateway.identity import Identity, TooLarge, identity_of, read_body
from context_compressor.gateway.journal import Journal
from context_compressor.gateway.metrics import Metrics
from context_compressor.gateway.operations import Operation, document, routes_of
from context_compressor.gateway.pages import Pages
from context_compressor.gateway.sessions import Sessions
from context_compressor.gateway.tracing import RequestSpans
from context_compressor.gateway.upstream import (
    EventStream,
    Headers,
    Refused,
    Unreachable,
    Upstream,
    Whole,
    as_json,
    passed_on,
)
from context_compressor.gateway.working_memory import WorkingMemoryApi
from context_compressor.integrations.asked import Own
from context_compressor.integrations.clients.chat import ChatWire
from context_compressor.integrations.clients.messages import MessagesWire
from context_compressor.integrations.clients.responses import ResponsesWire
from context_compressor.integrations.clients.talk import Compression, Sender, Talk
from context_compressor.integrations.clients.wire import Heard, Wire
from context_compressor.integrations.observed import writer
from context_compressor.integrations.request import Request as Sending
from context_compressor.memory.leases import EventLease
from context_compressor.summarizers.openai import OpenAISummarizer
from context_compressor.summarizers.protocol import OWN, RULES, Summarizer

logger = logging.getLogger(__name__)

MAX_BODY_BYTES = 64 * 1024 * 1024
"""What a request may hold: long conversations, images included."""
TOLD = "x-context-compressor"
"""The header of an answer that says what was done with its request: `view`, or why it passed unchanged."""
SILENT_SECONDS = 15.0
"""For so long a stream says nothing: common proxies and clients wait for a minute, some for half of one."""
_IDENTITY = "context_compressor_identity"

Dict = dict[str, Any]


@dataclass(frozen=True)
class Api:
    """One API."""

    path: str
    make_wire: Callable[[], Wire]
    provider: str
    """Whose API it is, by the name in OpenTelemetry's conventions."""
    ends_with: bytes = b""
    """What ends a stream behind its last event."""
    names_events: bool = True
    """Whether a line before each event's data names its type."""
    ping: bytes = b": nothing yet\n\n"
    """What a stream may say at any time, and no client of it hears: a comment of server-sent events."""

    def written(self, event: Dict) -> bytes:
        """Return an event as it goes out."""
        name = f"event: {event.get('type')}\n" if self.names_events else ""
        return b"%sdata: %s\n\n" % (name.encode(), as_json(event))

    def error(self, status: int, message: str, code: str | None = None) -> Dict:
        """Return an error of the gateway's own in the shape of this API."""
        if self.path == "/v1/messages":
            kind = {413: "request_too_large", 429: "rate_limit_error", 400: "invalid_request_error"}
            return {"type": "error", "error": {"type": kind.get(status, "api_error"), "message": message}}
        kind = {429: "rate_limit_error"}
        told = kind.get(status, "invalid_request_error" if status < 500 else "server_error")
        return {"error": {"message": message, "type": told, "param": None, "code": code}}

    def error_event(self, said: Any) -> bytes:
        """Return an error within a stream as it goes out."""
        return b"%sdata: %s\n\n" % (b"event: error\n" if self.names_events else b"", as_json(said))

    def refusal_event(self, error: Refused) -> bytes:
        """Return a refusal within a stream: as the upstream told it, if that is what an API tells."""
        said: Any = None
        with suppress(ValueError):
            said = json.loads(error.content)
        is_told = isinstance(said, dict) and (said.get("error") or said.get("type") == "error")
        return self.error_event(said if is_told else self.error(error.status_code, str(error)))


APIS = (
    Api("/v1/chat/completions", ChatWire, "openai", ends_with=b"data: [DONE]\n\n", names_events=False),
    Api("/v1/responses", ResponsesWire, "openai"),
    Api("/v1/messages", MessagesWire, "anthropic", ping=b'event: ping\ndata: {"type": "ping"}\n\n'),
)


@dataclass(frozen=True)
class Settings:
    """What a gateway goes by.

    Args:
        options: what `Conversations` takes: `max_total_tokens` and other fields, `summarizer`, `tools`.
        token: with which contents are read elsewhere than on this machine; None: nowhere else.
        max_body_bytes: what a request may hold.
        most_requests: requests at a time; one more is told to come again.
        wait_seconds: for how long such a request waits first.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    token: str | None = None
    max_body_bytes: int = MAX_BODY_BYTES
    most_requests: int = 512
    wait_seconds: float = 5.0


class Gateway:
    """Requests come in, go on with views, and are answered as the upstream answers.

    Args:
        upstream: where they go.
        settings: what views are made by.
        backend: where states and texts are kept.
    """

    def __init__(
        self, upstream: Upstream, settings: Settings | None = None, backend: Backend | None = None
    ) -> None:
        self.upstream = upstream
        self.settings = settings or Settings()
        self.backend = backend or Backend()
        self.turns = Turns(self.backend.leases)
        self.journal = Journal(self.backend.journal)
        self.metrics = Metrics()
        own = {
            "store": self.backend.store,
            "states": self.backend.states,
            "key": lambda seen: seen[_IDENTITY],
            "on_event": self._on_event,
        }
        options = {**own, **self.settings.options}
        self.compressions = {api.path: Compression(api.make_wire(), options, self._named) for api in APIS}
        self.sessions = Sessions(
            self.backend.service,
            {name: one for name, one in options.items() if name in ConfigFields.__annotations__},
            self._writer(options.get("summarizer")),
            self.turns,
            self.metrics.note_event,
        )
        self._slots = asyncio.Semaphore(self.settings.most_requests)

    def app(self) -> Starlette:
        """Return the application, for any ASGI server."""
        pages = Pages(self.journal, self.backend.store, self.metrics, self.settings.token)
        memories = WorkingMemoryApi(self.sessions, self.settings.token, self.settings.max_body_bytes)
        operations = [
            *pages.operations(),
            *memories.operations(),
            *(
                Operation(
                    "POST",
                    api.path,
                    "Send a request on with a view of its list.",
                    self._served(api),
                    body=f"As the upstream's {api.path} takes it.",
                    answers={200: "application/json", 413: "application/json", 502: "application/json"},
                )
                for api in APIS
            ),
        ]
        told = JSONResponse(document(operations))

        async def tell(_: Request) -> Response:
            return told

        routes = [
            Route("/openapi.json", tell),
            *routes_of(operations),
            *memories.no_others(),
            pages.no_others(),
            Route(
                "/{path:all}",
                self._pass,
                methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"],
            ),
        ]

        @asynccontextmanager
        async def life(_: Starlette) -> AsyncIterator[None]:
            await asyncio.to_thread(self._warm_up)
            try:
                yield
            finally:
                await self.upstream.aclose()
                await self.journal.aclose()
                await self.backend.aclose()
                if self.settings.options.get("observe"):
                    await asyncio.wrap_future(writer().submit(int))  # what was seen is written

        spans = Middleware(RequestSpans, {api.path: api.provider for api in APIS})
        return Starlette(routes=routes, lifespan=life, middleware=[spans])

    def _named(self, model: str) -> OpenAISummarizer:
        """Return who writes notes: a model of the upstream's, with the key of this process's environment."""
        return OpenAISummarizer(model, base_url=self.upstream.url_of("/v1"))

    def _writer(self, summarizer: Any) -> Callable[[], Summarizer] | None:
        """Return what makes who writes notes of working memories, which no agent's model asks for."""
        if summarizer in (None, OWN, RULES):
            return None
        return partial(self._named, summarizer) if isinstance(summarizer, str) else lambda: summarizer

    def _warm_up(self) -> None:
        """Read the vocabulary, before a first request waits for it."""
        for one in self.compressions.values():
            one.conversations.warm_up()

    def _on_event(self, event: CompressionEvent) -> None:
        self.metrics.note_event(event)
        self.journal.note_event(event)
        tracing.note_event(event)

    # Requests

    async def _pass(self, request: Request) -> Response:
        """Send a request on as it is, and its answer back."""
        has_body = "content-length" in request.headers or "transfer-encoding" in request.headers
        return await self._passed(request, request.stream() if has_body else None, None)

    async def _passed(
        self, request: Request, content: Any, why: str | None, api: Api | None = None
    ) -> Response:
        headers = passed_on(request.headers.items(), *(["content-length"] if why is not None else []))
        try:
            path = request.scope["raw_path"].decode("latin-1")  # not decoded: %2F stays within a name
            answer = await self.upstream.open(request.method, path, request.url.query, headers, content)
        except Unreachable as error:
            return _failed(api or APIS[0], error.status_code, str(error))

        told = [] if why is None else [(TOLD, _header(f"passed; {why}"))]
        return _Streamed(
            answer.aiter_raw(),
            answer.status_code,
            [*passed_on(answer.headers.multi_items()), *told],
            answer.aclose,
        )

    def _served(self, api: Api) -> Callable[[Request], Awaitable[Response]]:
        async def serve(request: Request) -> Response:
            self.metrics.opened(1)
            try:
                response = await limited(request)
            except BaseException:
                self.metrics.opened(-1)
                raise
            self.metrics.note_answer(api.path, response.status_code)
            self.metrics.note_done(api.path, response.headers.get(TOLD, "refused").partition(";")[0])
            if isinstance(response, _Streamed):
                response.finally_do(lambda: self.metrics.opened(-1))
            else:
                self.metrics.opened(-1)
            return response

        async def limited(request: Request) -> Response:
            try:
                async with asyncio.timeout(self.settings.wait_seconds):
                    await self._slots.acquire()
            except TimeoutError:
                full = _failed(api, 503, "the gateway has as many requests as it may; try again")
                full.headers["retry-after"] = "1"
                return full
            response = None
            try:
                response = await self._serve(api, request)
            finally:
                if not isinstance(response, _Streamed):
                    self._slots.release()
            if isinstance(response, _Streamed):
                response.finally_do(self._slots.release)
            return response

        return serve

    async def _serve(self, api: Api, request: Request) -> Response:
        try:
            content = await read_body(request, self.settings.max_body_bytes)
        except TooLarge:
            return _failed(api, 413, f"the request holds more than {self.settings.max_body_bytes:,} bytes")
        except ClientDisconnect:
            return Response(status_code=499)
        try:
            body = json.loads(content)
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            return await self._passed(request, content, "the body is no JSON object", api)
        asked: _Asked | None = None
        try:
            asked = self._begin(api, request, body)
            if asked is None:
                compression = self.compressions[api.path]
                if compression.conversations.observer is not None:
                    return await self._passed(request, content, "only observed", api)
                passing = compression.wire.passing(body)
                content = content if passing is body else as_json(passing)
                return await self._passed(request, content, "no list that a view can be made of", api)
            return await asked.answered()
        except Whole as error:
            return _answer(error.reply, error.headers)
        except Refused as error:
            response = Response(error.content, error.status_code)
            response.raw_headers = _raw(
                [*error.headers, ("content-length", str(len(error.content))), (TOLD, "view")]
            )
            if not any(name == "content-type" for name, _ in error.headers):
                response.headers["content-type"] = "application/json"
            return response
        except Unreachable as error:
            return _failed(api, error.status_code, str(error))
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception as error:
            # The agent is not to stand still for a fault of the memory's.
            is_told = isinstance(error, ContextCompressorError)  # it says what is wrong, and the mend
            why = str(error) if is_told else type(error).__name__
            if asked is not None and asked.reply is not None:  # it is paid for, and not asked for again
                logger.warning("%s: the answer goes on as it came: %s", api.path, why, exc_info=True)
                return _answer(asked.reply, asked.came)
            has_more = not is_told or error.__cause__ is not None
            logger.warning("%s: passed on unchanged: %s", api.path, why, exc_info=has_more)
            return await self._passed(request, content, why, api)

    def _begin(self, api: Api, http: Request, body: Dict) -> _Asked | None:
        """Return a request of which a view can be made; None: it passes."""
        compression = self.compressions[api.path]
        wire, form = compression.wire, compression.conversations.form
        said = wire.said(body)
        if not said:
            return None
        whose = http.headers, http.url.query
        identity = identity_of(api.path, *whose, body, said, wire.system(body), form)
        tracing.note_request(str(body.get("model")), identity.name)
        made = partial(_Asked, self, api, http, identity)
        return compression.begin(
            made, body, beside={_IDENTITY: identity.name}, streams=bool(body.get("stream"))
        )


class _Asked(Talk):
    """One request, until it is answered: views are made in its conversation's turn, and told of.

    Args:
        gateway, api, http: where it came in.
        identity: whose conversation it belongs to.
        talk: as `Talk` takes it.
    """

    def __init__(self, gateway: Gateway, api: Api, http: Request, identity: Identity, *talk: Any) -> None:
        super().__init__(*talk)
        self._gateway, self._api, self._http, self._identity = gateway, api, http, identity
        self._headers = passed_on(http.headers.items(), "content-length")
        self._repeated = passed_on(self._headers, "idempotency-key")
        """Headers of what is sent besides: that key is for one request and its repetitions."""
        self.came: Headers = []
        """Headers of the newest answer."""
        self._listed: list[Any] = []
        """The last view."""
        self.reply: Any = None
        """The last whole answer to it."""
        self._lease: EventLease | None = None
        self._stream: EventStream | None = None
        """The newest streamed answer."""

    async def view(self, own: Own | None = None) -> Sending:
        """Return what is to be sent now."""
        gateway, name, began = self._gateway, self._identity.name, time.monotonic()
        async with gateway.turns.of(name) as self._lease:
            sending = await super().view(own)
        stats = self._compression.conversations.stats(name)
        gateway.metrics.note_view(self._api.path, time.monotonic() - began, stats)
        if stats is not None:
            tracing.note_tokens(stats.view_tokens, stats.history_tokens)
        return sending

    async def take(self, heard: Heard, *, was_streamed: bool = False) -> bool:
        """Take note of a reply; tell whether it is to be asked again."""
        goes_on = await super().take(heard, was_streamed=was_streamed)
        usage = heard.prompt_tokens if isinstance(heard.prompt_tokens, int) else 0
        stats = self._compression.conversations.stats(self._identity.name)
        tracing.note_usage(usage)
        model = str(self._request.get("model"))
        self._gateway.journal.note_request(
            self._identity, self._api.path, model, self._said, self._listed, stats, usage
        )
        return goes_on

    async def _send(self, sent: Mapping[str, Any]) -> Any:
        self._listed = self.wire.said(sent) or []
        path, query = self._http.url.path, self._http.url.query
        headers, self._headers = self._headers, self._repeated
        if sent.get("stream"):
            self._stream = await self._gateway.upstream.stream(path, query, headers, sent)
            self.came = self._stream.headers
            return self._stream
        self.reply, self.came = await self._gateway.upstream.ask(path, query, headers, sent)
        return self.reply

    async def _send_apart(self, sent: dict[str, Any]) -> Any:
        """Send a request of the library's own, for notes."""
        if self._lease is not None and await self._lease.begin(self._identity.name):
            self._gateway.metrics.note_taken_over()
        path, query = self._http.url.path, self._http.url.query
        said, _ = await self._gateway.upstream.ask(path, query, self._repeated, sent)
        return said

    async def answered(self) -> Response:
        """Return the answer; where a view takes long, a stream that says nothing until it is made."""
        sender = Sender(self, self._send, self._send_apart, is_blocking=False)
        work = asyncio.ensure_future(sender.answer((lambda first, _: first) if self._streams else None))
        await _unless_gone(self._http, work, SILENT_SECONDS if self._streams else None)
        if not work.done() and self._sent is not None:  # it is the upstream that says nothing
            await _unless_gone(self._http, work)
        if self._streams:
            if work.done():
                work.result()
            kind = ("content-type", "text/event-stream; charset=utf-8")
            headers = [*self.came, kind, (TOLD, "view")]
            return _Streamed(
                self._written(sender, work), 200, headers, partial(self._end, work), self._api.ping
            )
        return _answer(work.result(), self.came)

    async def _written(self, sender: Sender, work: asyncio.Future[Any]) -> AsyncIterator[bytes]:
        api = self._api
        try:
            async with aclosing(self._events(sender, work)) as events:
                async for event in events:
                    yield api.written(event)
            if self._stream is not None and self._stream.is_ended:
                yield api.ends_with
        except Refused as error:
            yield api.refusal_event(error)
        except Unreachable as error:
            yield api.error_event(api.error(error.status_code, str(error)))
        except Exception:
            logger.exception("%s: a stream broke off", api.path)
            yield api.error_event(api.error(500, "the gateway failed in the middle of a stream; ask again"))

    async def _events(self, sender: Sender, work: asyncio.Future[Any]) -> AsyncGenerator[Any, None]:
        """Yield what the caller gets; where no view could be made, the answer to his own list."""
        try:
            first = await work
        except (Refused, Unreachable, Whole):
            raise
        except Exception:
            logger.warning("%s: passed on unchanged", self._api.path, exc_info=True)
            async for event in await self._send(self._request):
                yield event
            return
        async with aclosing(sender.events(first)) as events:
            async for event in events:
                yield event

    async def _end(self, work: asyncio.Future[Any]) -> None:
        """Give back what is held."""
        work.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await work
        if self._stream is not None:
            await self._stream.close()


async def _unless_gone(request: Request, work: asyncio.Future[Any], seconds: float | None = None) -> None:
    """Wait for some work until it is done, or for so long; cancel it when the client goes away.

    Raises:
        ClientDisconnect: it did.
    """
    gone = asyncio.ensure_future(_gone(request))
    is_left = True
    try:
        await asyncio.wait({work, gone}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        is_left = gone.done() and not work.done()
        if is_left:
            raise ClientDisconnect
    finally:
        for one in (work, gone) if is_left else (gone,):
            if not one.done():
                one.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await one


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


class _Streamed(StreamingResponse):
    """A streamed answer that gives back what it holds, however it ends, if it never began to.

    Args:
        body: its pieces, each a whole event where there is a `ping`.
        status, headers: of the answer.
        close: gives back what it holds.
        ping: sent where nothing else was for a while: some proxies and clients take silence for a fault.
    """

    def __init__(
        self,
        body: AsyncIterator[bytes],
        status: int,
        headers: Headers,
        close: Callable[[], Awaitable[None]],
        ping: bytes | None = None,
    ) -> None:
        super().__init__(body, status)
        self.raw_headers = _raw(headers)
        self._close, self._ping = close, ping
        self._then: list[Callable[[], object]] = []

    def finally_do(self, what: Callable[[], object]) -> None:
        """Do this as well when it has ended."""
        self._then.append(what)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        last = time.monotonic()

        async def noted(message: Message) -> None:
            nonlocal last
            await send(message)
            last = time.monotonic()

        async def keep_alive(ping: bytes) -> None:
            while True:
                await asyncio.sleep(last + SILENT_SECONDS - time.monotonic())
                if time.monotonic() - last >= SILENT_SECONDS:
                    await noted({"type": "http.response.body", "body": ping, "more_body": True})

        pinging = None if self._ping is None else asyncio.create_task(keep_alive(self._ping))
        try:
            await super().__call__(scope, receive, noted)
        finally:
            if pinging is not None:
                pinging.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await pinging
            for do in self._then:
                do()
            with suppress(Exception):
                await asyncio.shield(self._close())


def _answer(reply: Any, headers: Headers) -> Response:
    """Return a whole answer to a request that was sent with a view."""
    response = Response(as_json(reply), media_type="application/json")
    response.raw_headers = [*response.raw_headers, *_raw([*headers, (TOLD, "view")])]
    return response


def _failed(api: Api, status: int, message: str) -> JSONResponse:
    return JSONResponse(api.error(status, message), status)


def _header(text: str) -> str:
    """Return a text that a header can hold: printable ASCII, and no blank at its ends."""
    return " ".join(re.findall(r"[!-~]+", text.encode("ascii", "replace").decode()))[:200].rstrip()


def _raw(headers: Headers) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
