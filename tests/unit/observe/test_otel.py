"""Metrics and spans for OpenTelemetry."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from celery_sqs_heartbeat.common.journal_facts import JournalStats
from celery_sqs_heartbeat.leases.events import EventKind
from celery_sqs_heartbeat.observe.catalogue import METRICS
from celery_sqs_heartbeat.observe.otel import OtelObserver
from tests.support.observed import Observed
from tests.unit.observe.happening import event, one_of_each

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{SPAN}-01"


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> InMemoryMetricReader:
    """The reader of the global meter provider."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    monkeypatch.setattr(metrics, "get_meter", provider.get_meter)
    return reader


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    yield exporter
    provider.shutdown()


def points(reader: InMemoryMetricReader) -> dict[str, list[Any]]:
    """Return the data points by the name of their metric."""
    data = reader.get_metrics_data()
    assert data
    return {
        metric.name: list(metric.data.data_points)
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def test_the_metrics_are_those_of_prometheus(reader: InMemoryMetricReader) -> None:
    scene = Observed()
    scene.receive("a")
    scene.receive_in_order("A17", 1)
    # Only a running keeper has the time of its last tick.
    scene.keeper.start()
    observer = OtelObserver()
    observer.watch(scene.keeper, JournalStats, scene.polled.view)
    for each in one_of_each():
        observer(each)
    told = points(reader)
    assert set(told) == {f"sqs_heartbeat.{metric.name}" for metric in METRICS}
    (extensions,) = told["sqs_heartbeat.extensions"]
    assert (extensions.value, extensions.attributes) == (1, {"queue": "orders"})
    (slack,) = told["sqs_heartbeat.extension_slack"]
    assert (slack.sum, slack.explicit_bounds[-1]) == (12.0, 3600.0)
    assert [each.value for each in told["sqs_heartbeat.in_flight_messages"]] == [1, 1]
    scene.keeper.stop()


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (EventKind.LEASE_EXTENDED, "extend"),
        (EventKind.MESSAGE_RELEASED, "release"),
        (EventKind.LEASE_LOST, "lost"),
        (EventKind.LEASE_EXPIRED, "lost"),
        (EventKind.LEASE_CAPPED, "lost"),
    ],
)
def test_events_of_a_message_are_spans_of_its_trace(
    exporter: InMemorySpanExporter, kind: EventKind, name: str
) -> None:
    OtelObserver(lambda event: TRACEPARENT)(event(kind, seconds=2.0))
    span = one(exporter)
    # It lasts as long as its call.
    assert (span.end_time or 0) - (span.start_time or 0) >= 2_000_000_000
    assert (span.name, span.parent and span.parent.span_id) == (
        f"sqs_heartbeat.{name}",
        int(SPAN, 16),
    )
    assert span.context.trace_id == int(TRACE, 16)
    assert dict(span.attributes or {})["messaging.message.id"] == "m"
    assert "SECRET" not in span.to_json()


def one(exporter: InMemorySpanExporter) -> ReadableSpan:
    (span,) = exporter.get_finished_spans()
    return span


def test_a_broken_traceparent_begins_a_new_trace(exporter: InMemorySpanExporter) -> None:
    OtelObserver(lambda event: "nonsense")(event(EventKind.LEASE_EXTENDED))
    assert one(exporter).parent is None


def test_the_trace_of_a_message_is_remembered_until_its_lease_ends(
    exporter: InMemorySpanExporter,
) -> None:
    known = [TRACEPARENT]
    observer = OtelObserver(lambda event: known.pop() if known else None)
    observer(event(EventKind.TASK_STARTED))
    observer(event(EventKind.LEASE_EXTENDED))
    observer(event(EventKind.MESSAGE_RELEASED))
    observer(event(EventKind.MESSAGE_RELEASED))
    names = [span.name for span in exporter.get_finished_spans()]
    assert names == ["sqs_heartbeat.extend", "sqs_heartbeat.release"]
