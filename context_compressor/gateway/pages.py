"""The gateway's own pages: what goes on, metrics, health. Nothing of a transcript can run in them."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from context_compressor.errors import ContextCompressorError
from context_compressor.gateway.journal import Journal
from context_compressor.gateway.metrics import Metrics
from context_compressor.gateway.upstream import as_json
from context_compressor.integrations.loopback import is_loopback
from context_compressor.offload.store import OffloadStore, read_text

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
_STORE_SECONDS = 10.0
_FILES = {"page.html": "text/html", "page.css": "text/css", "page.js": "text/javascript"}


class Pages:
    """Answer what a browser and a monitor ask.

    Contents are for whoever sits at this machine, and for whoever has the token: with it as
    `Authorization: Bearer`. Health and metrics, which hold no word of a conversation, are for all.

    Args:
        journal: what is shown.
        store: of texts that left.
        metrics: of this process.
        token: None: contents are for this machine alone.
    """

    def __init__(
        self, journal: Journal, store: OffloadStore, metrics: Metrics, token: str | None = None
    ) -> None:
        self._journal, self._store, self._metrics, self._token = journal, store, metrics, token

    def routes(self) -> list[BaseRoute]:
        """Return what is answered where."""
        return [
            Route("/", self._file("page.html")),
            *(Route(f"/gateway/{name}", self._file(name)) for name in _FILES),
            Route("/gateway/sessions", self._guarded(self._sessions)),
            Route("/gateway/sessions/{name}", self._guarded(self._session)),
            Route("/gateway/sessions/{name}/events/{number:int}", self._guarded(self._event)),
            Route("/gateway/texts/{ref}", self._guarded(self._text)),
            Route("/metrics", self._metrics_page),
            Route("/healthz", self._health),
        ]

    def _file(self, name: str) -> Callable[[Request], Awaitable[Response]]:
        content = files(__package__).joinpath("page", name).read_bytes()

        async def serve(_: Request) -> Response:
            return Response(content, media_type=_FILES[name], headers=_HEADERS)

        return serve

    def _guarded(
        self, answer: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def serve(request: Request) -> Response:
            if not self.may_read(request):
                told = "contents are shown on the gateway's own machine, or with its token"
                return JSONResponse({"error": told}, 403, headers=_HEADERS)
            return await answer(request)

        return serve

    def may_read(self, request: Request) -> bool:
        """Tell whether a request may read contents."""
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self._token is not None:
            return hmac.compare_digest(given.encode(), self._token.encode())
        # What a proxy passes on comes from this machine, too. The name that a browser asked for tells a page
        # elsewhere whose name was made to mean this machine.
        is_passed_on = any(name in request.headers for name in ("x-forwarded-for", "forwarded", "x-real-ip"))
        client = "" if request.client is None else request.client.host
        return not is_passed_on and is_loopback(client) and is_loopback(request.url.hostname or "")

    async def _sessions(self, _: Request) -> Response:
        rows = await self._journal.rows()
        return _json({"sessions": rows})

    async def _session(self, request: Request) -> Response:
        return _found(await self._journal.row(request.path_params["name"]))

    async def _event(self, request: Request) -> Response:
        asked = request.path_params
        return _found(await self._journal.views(asked["name"], asked["number"]))

    async def _text(self, request: Request) -> Response:
        try:
            text = await read_text(self._store, f"ctx://{request.path_params['ref']}", _STORE_SECONDS)
        except (ContextCompressorError, ValueError) as error:
            return JSONResponse({"error": str(error)}, 404, headers=_HEADERS)
        return _json({"text": text})

    async def _metrics_page(self, _: Request) -> Response:
        return Response(self._metrics.text(), media_type=self._metrics.media_type)

    async def _health(self, _: Request) -> Response:
        return JSONResponse({"status": "ok"})


def _found(value: Any) -> Response:
    if value is None:
        return JSONResponse({"error": "there is none"}, 404, headers=_HEADERS)
    return _json(value)


def _json(value: Any) -> Response:
    return Response(as_json(value), media_type="application/json", headers=_HEADERS)
