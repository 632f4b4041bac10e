"""The three APIs whose requests a gateway makes views of: their paths, and how each is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from context_compressor.gateway.upstream import as_json
from context_compressor.integrations.clients.chat import ChatWire
from context_compressor.integrations.clients.messages import MessagesWire
from context_compressor.integrations.clients.responses import ResponsesWire
from context_compressor.integrations.clients.wire import Wire

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


APIS = (
    Api("/v1/chat/completions", ChatWire, "openai", ends_with=b"data: [DONE]\n\n", names_events=False),
    Api("/v1/responses", ResponsesWire, "openai"),
    Api("/v1/messages", MessagesWire, "anthropic"),
)
