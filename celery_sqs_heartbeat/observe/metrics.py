"""Metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from celery_sqs_heartbeat.common.journal_facts import JournalStats
from celery_sqs_heartbeat.leases.events import Event
from celery_sqs_heartbeat.observe.catalogue import COUNTED, READ, Metric
from celery_sqs_heartbeat.observe.gauges import Gauges
from celery_sqs_heartbeat.observe.measurements import Measurer
from celery_sqs_heartbeat.observe.observers import Watched
from celery_sqs_heartbeat.observe.polled import Polled


class Metrics(Collector):
    """Observes a keeper and returns its metrics.

    It has its own registry, so two workers in one process don't clash. It is a collector, so it
    may be registered with another registry, too.

    Attributes:
        content_type: The content type of `exposition`.
        registry: The registry that this is registered with.
    """

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._measurer = Measurer()
        self._counted = {metric: _instrument(metric) for metric in COUNTED}
        self._gauges: Gauges | None = None
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)

    def watch(
        self,
        keeper: Watched,
        journal: Callable[[], JournalStats] | None = None,
        polled: Polled | None = None,
    ) -> None:
        """Read the gauges of that keeper, its journal and its polls from now on."""
        self._gauges = Gauges(keeper, journal, polled, stopped=self._measurer.stopped)

    def __call__(self, event: Event) -> None:
        """Count an event."""
        for metric, labels, value in self._measurer.measure(event):
            series = self._counted[metric].labels(*labels)
            if isinstance(series, Histogram):
                series.observe(value)
            else:
                series.inc(value)

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return generate_latest(self.registry)

    def describe(self) -> Iterator[Family]:
        """Yield every metric, without values."""
        for instrument in self._counted.values():
            yield from instrument.describe()
        yield from map(_family, READ)

    def collect(self) -> Iterator[Family]:
        """Yield every metric with its values."""
        for instrument in self._counted.values():
            yield from map(_without_times, instrument.collect())
        yield from self._read()

    def _read(self) -> Iterator[Family]:
        families = {metric: _family(metric) for metric in READ}
        if self._gauges is not None:
            for metric, labels, value in self._gauges.read():
                families[metric].add_metric(labels, value)
        return iter(families.values())


def _instrument(metric: Metric) -> Counter | Histogram:
    if metric.kind == "histogram":
        return Histogram(
            metric.family, metric.help, metric.labels, registry=None, buckets=metric.buckets
        )
    return Counter(metric.family, metric.help, metric.labels, registry=None)


def _family(metric: Metric) -> CounterMetricFamily | GaugeMetricFamily:
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    return kind(metric.family, metric.help, labels=metric.labels)


def _without_times(family: Family) -> Family:
    """Leave out the start time of each series: it would double the number of series."""
    family.samples = [each for each in family.samples if not each.name.endswith("_created")]
    return family
