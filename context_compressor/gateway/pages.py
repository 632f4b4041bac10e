"""The gateway's own pages: what goes on, metrics, health. Nothing of a transcript can run in them."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from context_compressor.errors import ContextCompressorError
from context_compressor.gateway.identity import may_read
from context_compressor.gateway.journal import Journal
from context_compressor.gateway.metrics import Metrics
from context_compressor.gateway.operations import Handler, Operation
from context_compressor.gateway.upstream import as_json
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

    def operations(self) -> list[Operation]:
        """Return what is answered where."""
        missing: dict[int, Any] = {200: "application/json", 404: "application/json"}

        def shown(path: str, says: str, answer: Handler, answers: dict[int, Any]) -> Operation:
            return Operation("GET", path, says, self._guarded(answer), answers=answers, is_guarded=True)

        return [
            Operation("GET", "/", "Show what goes on.", self._file("page.html"), answers={200: "text/html"}),
            *(
                Operation(
                    "GET", f"/gateway/{name}", "A part of the page.", self._file(name), answers={200: kind}
                )
                for name, kind in _FILES.items()
            ),
            shown("/gateway/sessions", "List conversations.", self._sessions, {200: "application/json"}),
            shown("/gateway/sessions/{name}", "Tell of a conversation.", self._session, missing),
            shown(
                "/gateway/sessions/{name}/events/{number:int}",
                "Give the view before an event and after it.",
                self._event,
                missing,
            ),
            shown("/gateway/texts/{ref}", "Give a text that left a view.", self._text, missing),
            Operation(
                "GET",
                "/metrics",
                "Tell Prometheus.",
                self._metrics_page,
                answers={200: self._metrics.media_type},
            ),
            Operation(
                "GET", "/healthz", "Tell that it is there.", self._health, answers={200: "application/json"}
            ),
        ]

    def no_others(self) -> Route:
        """Return what answers below the page's path: nothing there is the upstream's."""

        async def answer(_: Request) -> Response:
            return _found(None)

        return Route("/gateway/{rest:all}", answer)

    def _file(self, name: str) -> Handler:
        content = files(__package__).joinpath("page", name).read_bytes()

        async def serve(_: Request) -> Response:
            return Response(content, media_type=_FILES[name], headers=_HEADERS)

        return serve

    def _guarded(self, answer: Handler) -> Handler:
        async def serve(request: Request) -> Response:
            if not may_read(request, self._token):
                told = "contents are shown on the gateway's own machine, or with its token"
                return JSONResponse({"error": told}, 403, headers=_HEADERS)
            return await answer(request)

        return serve

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
