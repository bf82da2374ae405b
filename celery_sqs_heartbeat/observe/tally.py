"""Adds measurements up."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from celery_sqs_heartbeat.common import native
from celery_sqs_heartbeat.observe.catalogue import Metric
from celery_sqs_heartbeat.observe.measuring import Measurement

Labels = tuple[str, ...]


class Distribution:
    """How values of one histogram are spread.

    Attributes:
        counts: Of the values up to each upper bound and above the one before, and at the
            end of those above all bounds.
        total: The sum of the values.
    """

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    def cumulated(self) -> list[tuple[str, int]]:
        """Return how many values are at most each bound, as Prometheus writes it."""
        bounds = [*map(str, self._bounds), "+Inf"]
        return [(bound, sum(self.counts[: place + 1])) for place, bound in enumerate(bounds)]


class Tally:
    """The counters and histograms so far. Safe to use from any thread.

    On a lock of the system's own: the keeper's threads add to it and others read it, under
    gevent and eventlet too, where those of metrics libraries are cooperative.
    """

    def __init__(self) -> None:
        self._lock = native.RLock()
        self._counters: dict[Metric, dict[Labels, float]] = {}
        self._histograms: dict[Metric, dict[Labels, Distribution]] = {}

    def add(self, measurement: Measurement) -> None:
        """Take in a measurement."""
        metric, labels, value = measurement
        with self._lock:
            if metric.kind == "histogram":
                by_labels = self._histograms.setdefault(metric, {})
                if labels not in by_labels:
                    by_labels[labels] = Distribution(tuple(metric.buckets))
                by_labels[labels].add(value)
            else:
                values = self._counters.setdefault(metric, {})
                values[labels] = values.get(labels, 0.0) + value

    def counters(self, metric: Metric) -> Mapping[Labels, float]:
        """Return the values of a counter by their labels."""
        with self._lock:
            return dict(self._counters.get(metric, {}))

    def histograms(self, metric: Metric) -> Mapping[Labels, tuple[list[tuple[str, int]], float]]:
        """Return the cumulated buckets and the sum of a histogram by their labels."""
        with self._lock:
            found = self._histograms.get(metric, {})
            return {labels: (each.cumulated(), each.total) for labels, each in found.items()}
