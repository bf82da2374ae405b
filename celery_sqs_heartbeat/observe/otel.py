"""Metrics and spans for OpenTelemetry. Needs `opentelemetry-api`, the extra "otel"."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import partial

from opentelemetry import metrics, trace
from opentelemetry.metrics import CallbackOptions, Meter, Observation
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from celery_sqs_heartbeat.leases.events import Event, EventKind, loss_of
from celery_sqs_heartbeat.leases.message import queue_name
from celery_sqs_heartbeat.observe.catalogue import COUNTED, PREFIX, READ, Metric
from celery_sqs_heartbeat.observe.measuring import ENDS, Measurer

_SPANS = {EventKind.LEASE_EXTENDED: "extend", EventKind.MESSAGE_RELEASED: "release"}
#: Messages whose trace is remembered. If there are more, those without an event for the longest
#: time are forgotten.
_REMEMBERED = 4_096


class OtelObserver(Measurer):
    """Observes a keeper: counts with the global meter provider, and adds to each message's trace.

    Extensions, releases and losses become short spans under the span that sent the message.

    Args:
        traceparent_of: Returns the header `traceparent` of an event's message while the message
            is known. It is called until it returns one. Without it, there are no spans.
    """

    def __init__(self, traceparent_of: Callable[[Event], str | None] | None = None) -> None:
        super().__init__()
        self._traceparent_of = traceparent_of
        self._parents: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._lock = threading.Lock()
        self._tracer = trace.get_tracer(__package__)
        meter = metrics.get_meter(__package__)
        self._instruments = {
            metric.name: (metric.labels, _recording(meter, metric)) for metric in COUNTED
        }
        for metric in READ:
            create = (
                meter.create_observable_counter
                if metric.kind == "counter"
                else meter.create_observable_gauge
            )
            create(_name(metric), [partial(self._observe, metric)], _unit(metric), metric.help)

    def __call__(self, event: Event) -> None:
        """Count an event, and add its span."""
        parent = self._parent_of(event)
        for metric, labels, value in self.measure(event):
            names, record = self._instruments[metric]
            record(value, dict(zip(names, labels, strict=True)))
        loss = loss_of(event)
        name = "lost" if loss else _SPANS.get(event.kind)
        if name and parent:
            # It has the duration of the event's call.
            self._tracer.start_span(
                f"{PREFIX}.{name}",
                context=TraceContextTextMapPropagator().extract({"traceparent": parent}),
                start_time=time.time_ns() - int(event.seconds * 1_000_000_000),
                attributes={
                    "messaging.system": "aws_sqs",
                    "messaging.destination.name": queue_name(event.queue_url),
                    "messaging.message.id": event.message_id,
                    f"{PREFIX}.receive_count": event.receive_count,
                    f"{PREFIX}.held_for": event.held_for,
                    f"{PREFIX}.slack": event.slack,
                    f"{PREFIX}.cause": loss or event.cause,
                },
            ).end()

    def _observe(self, wanted: Metric, _: CallbackOptions) -> Iterator[Observation]:
        for metric, labels, value in self.read():
            if metric == wanted.name:
                yield Observation(value, dict(zip(wanted.labels, labels, strict=True)))

    def _parent_of(self, event: Event) -> str | None:
        """Remember it, because a message may be forgotten before its release is confirmed."""
        if self._traceparent_of is None:
            return None
        key = (event.queue_url, event.message_id)
        with self._lock:
            parent = self._parents.pop(key, None)
        # Not under the lock, because the caller's code may wait.
        parent = parent or self._traceparent_of(event)
        if parent and event.kind not in ENDS:
            with self._lock:
                self._parents[key] = parent
                if len(self._parents) > _REMEMBERED:
                    self._parents.popitem(last=False)
        return parent


def _recording(meter: Meter, metric: Metric) -> Callable[[float, dict[str, str]], None]:
    if metric.kind == "histogram":
        return meter.create_histogram(
            _name(metric),
            _unit(metric),
            metric.help,
            explicit_bucket_boundaries_advisory=list(metric.buckets),
        ).record
    return meter.create_counter(_name(metric), _unit(metric), metric.help).add


def _name(metric: Metric) -> str:
    return f"{PREFIX}.{metric.name}"


def _unit(metric: Metric) -> str:
    return "s" if metric.unit else "1"
