"""Requests as OpenTelemetry spans, for a program that has loaded it; else nothing is done.

A span is called `chat {model}` and has the names of OpenTelemetry's conventions for generative AI. It holds
the conversation's id, as the page has it, and numbers: no word of a conversation, and no key.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from context_compressor.events import CompressionEvent
from context_compressor.messages.text import sendable

_SCOPE = "context_compressor"


def _trace() -> Any:
    return sys.modules.get("opentelemetry.trace")  # whoever traces has loaded it


class RequestSpans:
    """Open a span for each request of some paths, below the caller's where it names one.

    It is the current one until the answer has gone out, so that events and what asks for notes stand below.

    Args:
        app: answers the requests.
        providers: of the paths, each with the provider whose API it is.
    """

    def __init__(self, app: ASGIApp, providers: Mapping[str, str]) -> None:
        self._app, self._providers = app, providers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        trace, provider = _trace(), self._providers.get(scope.get("path", ""))
        if trace is None or provider is None:
            await self._app(scope, receive, send)
            return
        from opentelemetry.propagate import extract

        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        carried = {name: headers[name] for name in ("traceparent", "tracestate") if name in headers}
        tracer = trace.get_tracer(_SCOPE)
        attributes = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": provider}
        with tracer.start_as_current_span(
            "chat",
            extract(carried),
            kind=trace.SpanKind.SERVER,
            attributes=attributes,
            record_exception=False,  # its text may quote anything
            set_status_on_exception=False,
        ) as span:

            async def sent(message: Message) -> None:
                if message["type"] == "http.response.start":
                    _note_status(trace, span, message["status"])
                await send(message)

            await self._app(scope, receive, sent)


def _note_status(trace: Any, span: Any, status: int) -> None:
    span.set_attribute("http.response.status_code", status)
    if status >= 400:
        span.set_attribute("error.type", str(status))
        span.set_status(trace.StatusCode.ERROR)


def note_request(model: str, conversation: str) -> None:
    """Tell the current span whose request it is."""
    if (trace := _trace()) is not None:
        span = trace.get_current_span()
        span.update_name(f"chat {sendable(model)}")
        span.set_attribute("gen_ai.request.model", sendable(model))
        span.set_attribute("gen_ai.conversation.id", conversation)


def note_tokens(view: int, whole: int) -> None:
    """Tell the current span what its view costs, and what its list would, in tokens."""
    if (trace := _trace()) is not None:
        told = {"context_compressor.view.tokens": view, "context_compressor.list.tokens": whole}
        trace.get_current_span().set_attributes(told)


def note_usage(tokens: int) -> None:
    """Tell the current span the input tokens that the provider counted; 0: it did not."""
    if tokens and (trace := _trace()) is not None:
        trace.get_current_span().set_attribute("gen_ai.usage.input_tokens", tokens)


def note_event(event: CompressionEvent) -> None:
    """Record an event below the current span, as `OpenTelemetryEvents` does. Its metrics are at /metrics."""
    if _trace() is not None:
        from opentelemetry.metrics import NoOpMeterProvider

        from context_compressor.integrations.opentelemetry import OpenTelemetryEvents

        OpenTelemetryEvents(meter_provider=NoOpMeterProvider())(event)
