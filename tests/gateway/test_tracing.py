"""Requests are spans with the conversation's id; no key and no word of a conversation is in a trace."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.gateway.served import KEY, LISTS, PATHS, every_api, notes, serving
from tests.integrations.clients_support import Api
from tests.support.model_server import ModelServer, status

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    found, tracers = InMemorySpanExporter(), TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(found))

    def tracer(name: str, **_: Any) -> trace.Tracer:
        return tracers.get_tracer(name)

    monkeypatch.setattr(trace, "get_tracer", tracer)
    return found


@every_api
async def test_a_request_is_a_span_and_its_event_stands_below(api: Api, spans: InMemorySpanExporter) -> None:
    """Below the caller's own span, where he names it; a refusal that quotes his key does not bring it in."""
    stream = api.name != "chat"
    headers = {"authorization": f"Bearer {KEY}", "traceparent": CALLER}
    body: dict[str, Any] = {"model": "m-5", "max_tokens": 9, "stream": stream}
    async with (
        ModelServer(lambda _: "Well.") as server,
        serving(server) as served,
        served.http(headers=headers) as http,
    ):
        await http.post(PATHS[api.name], json={**body, LISTS[api.name]: notes(24)})
        server.fail(status(500, f"no such key: {KEY}"))
        await http.post(PATHS[api.name], json={**body, LISTS[api.name]: notes(2)})
        await http.get("/healthz")
        [name] = [row["name"] for row in await served.gateway.journal.rows()]

    event, request, failed = spans.get_finished_spans()
    assert (event.name, request.name, failed.name) == ("context_compressor compress", "chat m-5", "chat m-5")
    assert event.parent == request.context
    assert format(request.parent.trace_id, "032x") == CALLER.split("-")[1]
    told = request.attributes or {}
    assert told["gen_ai.conversation.id"] == name == (event.attributes or {})["gen_ai.conversation.id"]
    assert (told["gen_ai.request.model"], told["http.response.status_code"]) == ("m-5", 200)
    assert told["context_compressor.view.tokens"] < told["context_compressor.list.tokens"]
    assert isinstance(told["gen_ai.usage.input_tokens"], int)
    assert ((failed.attributes or {})["http.response.status_code"], failed.status.is_ok) == (500, False)
    everything = "".join(one.to_json() for one in spans.get_finished_spans())
    assert KEY not in everything
    assert "word word" not in everything
