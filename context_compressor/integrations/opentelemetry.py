"""`OpenTelemetryEvents`: what a memory did, as OpenTelemetry metrics and spans."""

from __future__ import annotations

import time
from collections.abc import Mapping

from opentelemetry import metrics, trace
from opentelemetry.trace import StatusCode

from context_compressor.events import CompressionEvent
from context_compressor.messages.text import sendable

_SCOPE = "context_compressor"


class OpenTelemetryEvents:
    """Record every event of a memory: `CompressedMemory(on_event=OpenTelemetryEvents())`.

    Metrics, each with the attribute `context_compressor.event.kind`:

    - `context_compressor.events`, a counter;
    - `context_compressor.event.duration`, a histogram in seconds;
    - `context_compressor.view.tokens`, a histogram of the view's tokens after an event;
    - `context_compressor.removed.tokens`, a counter of the tokens by which views became smaller;
    - `context_compressor.summary.tokens`, a counter of the tokens read and written for summaries, with
      `gen_ai.token.type` `input` or `output`, as in OpenTelemetry's conventions for generative AI.

    Each event is a span, too, `context_compressor {kind}`, below the span that was current when the memory
    was asked; one of kind `failure` has the status ERROR. It has the event's key as `gen_ai.conversation.id`,
    which metrics have not: each conversation would be a time series of its own. No text of the conversation
    is recorded but what a failure's error says.

    Args:
        meter_provider: where metrics go; OpenTelemetry's global one when None.
        tracer_provider: where spans go; likewise.
        attributes: added to every metric and span, such as the agent's name.
    """

    def __init__(
        self,
        *,
        meter_provider: metrics.MeterProvider | None = None,
        tracer_provider: trace.TracerProvider | None = None,
        attributes: Mapping[str, str | bool | int | float] | None = None,
    ) -> None:
        meter = metrics.get_meter(_SCOPE, meter_provider=meter_provider)
        self._tracer = trace.get_tracer(_SCOPE, tracer_provider=tracer_provider)
        self._attributes = dict(attributes or {})
        self._events = meter.create_counter(
            "context_compressor.events", "{event}", "Times a view changed other than by growing, or failures"
        )
        self._duration = meter.create_histogram(
            "context_compressor.event.duration", "s", "What an event takes to store and note what left"
        )
        self._view = meter.create_histogram(
            "context_compressor.view.tokens", "{token}", "Tokens of the view after an event"
        )
        self._removed = meter.create_counter(
            "context_compressor.removed.tokens", "{token}", "Tokens by which views became smaller"
        )
        self._summary = meter.create_counter(
            "context_compressor.summary.tokens", "{token}", "Tokens read and written for summaries"
        )

    def __call__(self, event: CompressionEvent) -> None:
        """Record an event."""
        attributes = {**self._attributes, "context_compressor.event.kind": event.kind}
        self._events.add(1, attributes)
        self._duration.record(event.seconds, attributes)
        self._view.record(event.tokens_after, attributes)
        self._removed.add(max(0, event.tokens_before - event.tokens_after), attributes)
        for kind, tokens in (("input", event.summary_input_tokens), ("output", event.summary_output_tokens)):
            if tokens:
                self._summary.add(tokens, {**attributes, "gen_ai.token.type": kind})
        whose = {} if event.key is None else {"gen_ai.conversation.id": sendable(event.key)}
        end = time.time_ns()
        span = self._tracer.start_span(
            f"context_compressor {event.kind}",
            start_time=end - int(event.seconds * 1e9),
            attributes={
                **attributes,
                **whose,
                "context_compressor.event.reason": event.reason,
                "context_compressor.tokens.before": event.tokens_before,
                "context_compressor.tokens.after": event.tokens_after,
                "context_compressor.messages": len(event.message_ids),
                "context_compressor.refs": event.refs,
            },
        )
        if event.error is not None:
            # One that cannot be encoded would cost an exporter its whole batch.
            span.set_status(StatusCode.ERROR, sendable(event.error))
        span.end(end)
