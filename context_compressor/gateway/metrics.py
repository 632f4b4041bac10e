"""What a monitor reads of a gateway, in Prometheus' form. Nothing in it names a caller or a conversation."""

from __future__ import annotations

import os
from pathlib import Path

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from context_compressor.events import CompressionEvent
from context_compressor.memory.reporting import CompressionStats

_SECONDS = (0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class Metrics:
    """Count what a worker does; `PROMETHEUS_MULTIPROC_DIR` joins those of several workers."""

    media_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            "context_compressor_requests",
            "Requests by API, and what was done.",
            ("api", "done"),
            registry=registry,
        )
        self._answers = Counter(
            "context_compressor_answers", "Answers by API and status.", ("api", "status"), registry=registry
        )
        self._seconds = Histogram(
            "context_compressor_view_seconds",
            "Seconds until a request went on: its view, and notes if any.",
            ("api",),
            buckets=_SECONDS,
            registry=registry,
        )
        self._tokens = Counter(
            "context_compressor_tokens",
            "Tokens of requests, with views and without.",
            ("of",),
            registry=registry,
        )
        self._events = Counter("context_compressor_events", "Events by kind.", ("kind",), registry=registry)
        self._twice = Counter(
            "context_compressor_taken_over",
            "Events begun by a worker that never ended them: notes maybe paid for twice.",
            registry=registry,
        )
        self._open = Gauge(
            "context_compressor_open_requests",
            "Requests now.",
            registry=registry,
            multiprocess_mode="livesum",
        )

    def note_done(self, api: str, done: str) -> None:
        """Count a request by what was done with it: `view`, `passed`, `refused`."""
        self._requests.labels(api, done).inc()

    def note_answer(self, api: str, status: int) -> None:
        """Count an answer."""
        self._answers.labels(api, str(status)).inc()

    def note_view(self, api: str, seconds: float, stats: CompressionStats | None) -> None:
        """Note how long a view took, and what it saved."""
        self._seconds.labels(api).observe(seconds)
        if stats is not None:
            self._tokens.labels("views").inc(stats.view_tokens)
            self._tokens.labels("whole lists").inc(stats.history_tokens)

    def note_event(self, event: CompressionEvent) -> None:
        """Count an event."""
        self._events.labels(event.kind).inc()

    def note_taken_over(self) -> None:
        """Count an event that another worker had begun."""
        self._twice.inc()

    def opened(self, number: int) -> None:
        """Note that so many more requests are under way."""
        self._open.inc(number)

    def text(self) -> bytes:
        """Return all of it."""
        if folder := os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
            _let_go_of_the_dead(folder)
            joined = CollectorRegistry()
            MultiProcessCollector(joined)  # type: ignore[no-untyped-call]
            return generate_latest(joined)
        return generate_latest(self._registry)


def _let_go_of_the_dead(folder: str) -> None:
    """Leave out the requests that workers had open which were killed."""
    for file in Path(folder).glob("gauge_live*_*.db"):
        process = file.stem.rpartition("_")[2]
        if process.isdecimal():
            try:
                os.kill(int(process), 0)
            except ProcessLookupError:
                mark_process_dead(int(process), folder)  # type: ignore[no-untyped-call]
            except PermissionError:  # it lives, and is another user's
                pass
