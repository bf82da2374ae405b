"""Metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Counter, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from celery_sqs_heartbeat.leases.events import Event
from celery_sqs_heartbeat.observe.catalogue import COUNTED, READ, Metric
from celery_sqs_heartbeat.observe.measuring import Measurer


class Metrics(Measurer, Collector):
    """Observes a keeper and returns its metrics.

    It is a collector that no registry has yet, so two workers in one process don't clash.

    Attributes:
        content_type: The content type of `exposition`.
    """

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        super().__init__()
        self._instruments = {metric.name: _instrument(metric) for metric in COUNTED}

    def __call__(self, event: Event) -> None:
        """Count an event."""
        for name, labels, value in self.measure(event):
            series = self._instruments[name].labels(*labels)
            if isinstance(series, Histogram):
                series.observe(value)
            else:
                series.inc(value)

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return generate_latest(self)

    def collect(self) -> Iterator[Family]:
        """Yield every metric with its values."""
        for instrument in self._instruments.values():
            for family in instrument.collect():
                # Without the start time of each series, which would double their number.
                family.samples = [each for each in family.samples if "_created" not in each.name]
                yield family
        families = {metric.name: _family(metric) for metric in READ}
        for name, labels, value in self.read():
            families[name].add_metric(labels, value)
        yield from families.values()


def _instrument(metric: Metric) -> Counter | Histogram:
    if metric.kind == "histogram":
        return Histogram(
            metric.series, metric.help, metric.labels, registry=None, buckets=metric.buckets
        )
    return Counter(metric.series, metric.help, metric.labels, registry=None)


def _family(metric: Metric) -> CounterMetricFamily | GaugeMetricFamily:
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    return kind(metric.series, metric.help, labels=metric.labels)
