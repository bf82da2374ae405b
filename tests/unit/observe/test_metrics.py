"""The metrics of one keeper, for Prometheus and OpenTelemetry, and its spans."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from celery_sqs_heartbeat.common.journal_facts import JournalStats
from celery_sqs_heartbeat.leases.events import EventKind, Outcome
from celery_sqs_heartbeat.observe.catalogue import METRICS
from celery_sqs_heartbeat.observe.metrics import Metrics
from celery_sqs_heartbeat.observe.otel import OtelObserver
from celery_sqs_heartbeat.observe.watched import PolledQueues
from celery_sqs_heartbeat.testing import FakeClock
from tests.support.observed import Observed
from tests.unit.observe.happening import event, one_of_each


def samples(metrics: Metrics) -> list[Sample]:
    families = text_string_to_metric_families(metrics.exposition().decode())
    return [sample for family in families for sample in family.samples]


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    """Return the value of the one sample that has this name and at least these labels."""
    found = [
        sample.value
        for sample in samples(metrics)
        if sample.name == f"sqs_heartbeat_{name}" and labels.items() <= sample.labels.items()
    ]
    assert len(found) <= 1, found
    return found[0] if found else None


def count(*events: object) -> Metrics:
    metrics = Metrics()
    for each in events:
        metrics(each)  # type: ignore[arg-type]
    return metrics


@pytest.mark.parametrize(
    ("kind", "name", "labels"),
    [
        (EventKind.MESSAGE_RECEIVED, "messages_received_total", {"kind": "new"}),
        (EventKind.TASK_STARTED, "tasks_started_total", {}),
        (EventKind.LEASE_EXTENDED, "extensions_total", {}),
        (EventKind.EXTENSION_FAILED, "failed_tries_total", {"action": "extend"}),
        (EventKind.DELETE_FAILED, "failed_tries_total", {"action": "delete"}),
        (EventKind.LEASE_EXPIRED, "losses_total", {"cause": "expired"}),
        (EventKind.LEASE_LOST, "losses_total", {"cause": "lost"}),
        (EventKind.LEASE_CAPPED, "losses_total", {"cause": "capped"}),
        (EventKind.LEASE_CAP_NEAR, "caps_near_total", {}),
        (EventKind.MESSAGE_RELEASED, "releases_total", {"cause": "failed"}),
        (EventKind.MESSAGE_LAPSING, "lapses_total", {"cause": "unknown"}),
        (EventKind.MESSAGE_DELETED, "deletes_total", {}),
        (EventKind.DELETE_ABANDONED, "deletes_abandoned_total", {}),
        (EventKind.PERMISSION_DENIED, "permission_denials_total", {"action": "extend"}),
    ],
)
def test_each_kind_of_event_is_counted(kind: EventKind, name: str, labels: dict[str, str]) -> None:
    metrics = count(event(kind), event(kind, call_number=2))
    assert value(metrics, name, queue="orders", **labels) == 2


def test_queues_of_the_same_name_in_two_accounts_or_regions_are_one_series() -> None:
    scene, fake = Observed(), FakeClock()
    polled = PolledQueues(fake)
    scene.metrics.watch(scene.keeper, polled=polled.view)
    polled.asked("a", "https://sqs.eu-west-1.example/1/same")
    fake.advance(5)
    polled.asked("b", "https://sqs.us-east-1.example/2/same")
    polled.unanswered("a", fake())
    polled.unanswered("b", fake())
    assert value(scene.metrics, "polls_unanswered_total", queue="same") == 2
    assert value(scene.metrics, "last_answered_poll_age_seconds", queue="same") == 5
    polled.rest_all()
    assert value(scene.metrics, "last_answered_poll_age_seconds", queue="same") is None


def test_a_call_is_counted_once_and_its_messages_each() -> None:
    kind = EventKind.LEASE_EXTENDED
    denied = event(EventKind.DELETE_FAILED, outcome=Outcome.DENIED)
    metrics = count(
        event(kind, message_id="a"),
        event(kind, message_id="b"),
        event(EventKind.EXTENSION_FAILED, message_id="c"),
        # A keeper that was replaced numbers its calls from 1 again.
        event(kind, message_id="a", at=2000.0),
        # Two events of one entry.
        replace(denied, kind=EventKind.PERMISSION_DENIED),
        denied,
    )
    action = {"action": "ChangeMessageVisibilityBatch"}
    assert value(metrics, "calls_total", outcome="done", **action) == 2
    assert value(metrics, "calls_total", outcome="throttled", **action) is None
    assert value(metrics, "call_entries_total", outcome="done", **action) == 3
    assert value(metrics, "call_entries_total", outcome="throttled", **action) == 1
    assert value(metrics, "call_duration_seconds_count", **action) == 2
    assert value(metrics, "call_entries_total", outcome="denied") == 1


def test_counters_of_a_queue_begin_at_zero_and_the_first_loss_increases_them() -> None:
    metrics = count(event(EventKind.MESSAGE_RECEIVED))
    for cause in ("expired", "lost", "capped"):
        assert value(metrics, "losses_total", queue="orders", cause=cause) == 0
    assert value(metrics, "messages_received_total", kind="new") == 1


def test_histograms_are_cumulative() -> None:
    metrics = count(
        *(event(EventKind.LEASE_EXTENDED, slack=slack, call_number=1) for slack in (-3, 1, 9, 9e9))
    )
    name = "extension_slack_seconds"
    bounds = {"0.0": 1, "1.0": 2, "5.0": 2, "10.0": 3, "3600.0": 3, "+Inf": 4}
    assert {bound: value(metrics, f"{name}_bucket", le=bound) for bound in bounds} == bounds
    assert value(metrics, f"{name}_sum") == 9e9 + 10


def test_neither_tasks_nor_messages_are_labels() -> None:
    metrics = count(*one_of_each())
    shown = metrics.exposition().decode()
    assert "shop.pay" not in shown
    assert "SECRET" not in shown
    labels = {label for sample in samples(metrics) for label in sample.labels}
    assert labels == {"queue", "kind", "action", "outcome", "cause", "end", "le"}


def test_gauges_are_read_when_they_are_scraped() -> None:
    scene = Observed()
    metrics = scene.metrics
    assert value(metrics, "keeper_alive") == 0
    first = scene.receive("a", sent_at=scene.keeper.now() - 100)
    second = scene.receive("b")
    scene.receive("c", queue="https://sqs/1/mail")
    scene.keeper.done(first)
    scene.keeper.release(second)
    assert value(metrics, "in_flight_messages", queue="orders") == 2
    assert value(metrics, "in_flight_messages", queue="mail") == 1
    assert value(metrics, "pending_deletes", queue="orders") == 1
    assert value(metrics, "pending_releases", queue="orders") == 1
    assert value(metrics, "leases", queue="orders", status="owned") == 2
    assert value(metrics, "leases", queue="orders", status="lost") == 0
    assert (value(metrics, "oldest_lease_age_seconds", queue="orders") or 0) >= 100
    for handle in (first, second):
        scene.keeper.let_expire(handle)
    # A queue that is empty again has the value 0. Without a value, alerts on it would never end.
    assert value(metrics, "in_flight_messages", queue="orders") == 0


def test_workers_of_one_process_do_not_clash_and_can_share_a_registry() -> None:
    registry, other = CollectorRegistry(), Metrics()
    registry.register(count(event(EventKind.TASK_STARTED)))
    assert registry.get_sample_value("sqs_heartbeat_tasks_started_total", {"queue": "orders"}) == 1
    assert value(other, "tasks_started_total") is None


def test_names_follow_prometheus() -> None:
    for metric in METRICS:
        assert metric.series.endswith("_total") is (metric.kind == "counter")
        assert bool(metric.buckets) is (metric.kind == "histogram")
        assert metric.help.endswith(".")
    assert len({metric.series for metric in METRICS}) == len(METRICS)


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
