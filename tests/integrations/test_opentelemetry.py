"""Events as OpenTelemetry's own SDK receives them."""

from dataclasses import replace
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from context_compressor import CompressionEvent, SummaryRequest
from context_compressor.integrations.asked import AskedModel, Said
from context_compressor.integrations.opentelemetry import OpenTelemetryEvents
from tests.memory.scripted import config, filled, good_view, new_memory, turns, user


class Refusing:
    """A summariser that is out of order."""

    remote = False

    async def summarize(self, request: SummaryRequest) -> Any:
        raise ConnectionError("no route to the model")


def points(reader: InMemoryMetricReader) -> dict[str, list[Any]]:
    """Return the points of each metric."""
    data = reader.get_metrics_data()
    return {
        metric.name: list(metric.data.data_points)
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


async def test_events_become_metrics_and_spans_below_the_current_one() -> None:
    reader, spans = InMemoryMetricReader(), InMemorySpanExporter()
    meters, tracers = MeterProvider([reader]), TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    record = OpenTelemetryEvents(
        meter_provider=meters, tracer_provider=tracers, attributes={"gen_ai.agent.name": "scout"}
    )
    events: list[CompressionEvent] = []

    def hook(event: CompressionEvent) -> None:
        events.append(event)
        record(replace(event, key="chat-1"))

    memory = new_memory(config(1_500), on_event=hook, summarizer=Refusing())
    with tracers.get_tracer("agent").start_as_current_span("invoke_agent scout") as agent:
        for message in [user("go"), *turns(20)]:
            await filled(memory, [message])
            await good_view(memory)

    kinds = [event.kind for event in events]
    assert {"failure", "compress"} <= set(kinds)
    found = points(reader)
    assert {
        point.attributes["context_compressor.event.kind"]: point.value
        for point in found["context_compressor.events"]
    } == {kind: kinds.count(kind) for kind in kinds}
    assert all(
        point.attributes["gen_ai.agent.name"] == "scout" for found_ in found.values() for point in found_
    )
    assert not any(
        "gen_ai.conversation.id" in point.attributes for found_ in found.values() for point in found_
    ), "a time series for each conversation"
    removed = sum(max(0, event.tokens_before - event.tokens_after) for event in events)
    assert sum(point.value for point in found["context_compressor.removed.tokens"]) == removed > 0
    for kind in ("input", "output"):
        assert sum(
            point.value
            for point in found["context_compressor.summary.tokens"]
            if point.attributes["gen_ai.token.type"] == kind
        ) == sum(getattr(event, f"summary_{kind}_tokens") for event in events)
    for name in ("context_compressor.view.tokens", "context_compressor.event.duration"):
        assert sum(point.count for point in found[name]) == len(events)

    finished = [span for span in spans.get_finished_spans() if span.name != "invoke_agent scout"]
    assert [span.name for span in finished] == [f"context_compressor {kind}" for kind in kinds]
    for span, event in zip(finished, events, strict=True):
        assert span.parent == agent.get_span_context()
        assert span.attributes["context_compressor.tokens.after"] == event.tokens_after
        assert span.attributes["context_compressor.event.reason"] == event.reason
        assert span.attributes["gen_ai.conversation.id"] == "chat-1"
        assert (span.status.status_code is StatusCode.ERROR) == (event.kind == "failure")
        assert span.start_time is not None
        assert span.end_time is not None
        assert abs(span.end_time - span.start_time - event.seconds * 1e9) < 1_000


async def test_without_a_provider_nothing_is_recorded_and_nothing_fails() -> None:
    memory = new_memory(config(1_500), on_event=OpenTelemetryEvents())
    await filled(memory, [user("go"), *turns(20)])
    await good_view(memory)
    assert memory.stats().events


async def test_an_error_with_half_a_surrogate_pair_can_be_exported() -> None:
    """Providers quote what they refuse."""
    spans = InMemorySpanExporter()
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    refused = CompressionEvent(
        kind="failure", reason="summary failed", tokens_before=10, tokens_after=10, error="bad text '\ud83d'"
    )
    OpenTelemetryEvents(tracer_provider=tracers)(refused)
    [span] = spans.get_finished_spans()
    assert span.status.description == "bad text '\\ud83d'"


async def test_what_a_summariser_asks_stands_below_a_span_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    spans, tracers = InMemorySpanExporter(), TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    monkeypatch.setattr(trace, "get_tracer", tracers.get_tracer)

    async def ask(instructions: str, asked: str, room: int | None) -> Said:
        with tracers.get_tracer("sdk").start_as_current_span("chat gpt-5"):
            return Said("## Goal\n- find the leak")

    await AskedModel("gpt-5", ask).summarize(SummaryRequest((), 100))
    asked, summary = spans.get_finished_spans()
    assert (summary.name, asked.name) == ("context_compressor summary", "chat gpt-5")
    assert asked.parent == summary.context
