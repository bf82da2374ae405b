"""Metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.registry import Collector

from celery_sqs_heartbeat.common import native
from celery_sqs_heartbeat.journal.stats import JournalStats
from celery_sqs_heartbeat.leases.events import Event
from celery_sqs_heartbeat.observe.catalogue import COUNTED, READ, Metric
from celery_sqs_heartbeat.observe.gauges import Gauges
from celery_sqs_heartbeat.observe.measuring import Measurer
from celery_sqs_heartbeat.observe.polled import Polled
from celery_sqs_heartbeat.observe.tally import Labels, Tally
from celery_sqs_heartbeat.observe.watched import Watched

Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily


class Metrics(Collector):
    """Observes a keeper and shows its metrics.

    It has a registry of its own, so that two workers in one process don't clash; it is a
    collector that may be registered with another.

    Attributes:
        content_type: Of `exposition`.
        registry: Where this is registered.
    """

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._measurer = Measurer()
        self._tally = Tally()
        self._gauges: Gauges | None = None
        self._lock = native.RLock()
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)

    def watch(
        self,
        keeper: Watched,
        journal: Callable[[], JournalStats] | None = None,
        polled: Polled | None = None,
    ) -> None:
        """Read the gauges of that keeper, of its journal and polls, from now on."""
        self._gauges = Gauges(keeper, journal, polled)

    def __call__(self, event: Event) -> None:
        """Count an event."""
        for measurement in self._measurer.measure(event):
            self._tally.add(measurement)

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        # One at a time: the registry's own lock is cooperative under gevent and eventlet,
        # and theirs break when threads meet there.
        with self._lock:
            return generate_latest(self.registry)

    def describe(self) -> Iterator[Family]:
        """Yield every metric, without values."""
        return map(_family, (*COUNTED, *READ))

    def collect(self) -> Iterator[Family]:
        """Yield every metric with its values."""
        yield from map(self._counted, COUNTED)
        yield from self._read()

    def _counted(self, metric: Metric) -> Family:
        family = _family(metric)
        if isinstance(family, HistogramMetricFamily):
            for labels, (buckets, total) in self._tally.histograms(metric).items():
                family.add_metric(labels, buckets, total)
        else:
            for labels, value in self._tally.counters(metric).items():
                _add(family, labels, value)
        return family

    def _read(self) -> Iterator[Family]:
        families = {metric: _family(metric) for metric in READ}
        if self._gauges is not None:
            for metric, labels, value in self._gauges.read():
                _add(families[metric], labels, value)
        return iter(families.values())


def _family(metric: Metric) -> Family:
    if metric.kind == "counter":
        return CounterMetricFamily(metric.family, metric.help, labels=metric.labels)
    if metric.kind == "gauge":
        return GaugeMetricFamily(metric.family, metric.help, labels=metric.labels)
    return HistogramMetricFamily(metric.family, metric.help, labels=metric.labels)


def _add(family: Family, labels: Labels, value: float) -> None:
    if not isinstance(family, HistogramMetricFamily):
        family.add_metric(labels, value)
