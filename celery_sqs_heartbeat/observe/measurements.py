"""Turns events into measurements."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import NamedTuple

from celery_sqs_heartbeat.leases.actions import CALL_KIND
from celery_sqs_heartbeat.leases.events import Event, EventKind
from celery_sqs_heartbeat.leases.lease import Action
from celery_sqs_heartbeat.leases.message import queue_name
from celery_sqs_heartbeat.leases.recent import RecentKeys
from celery_sqs_heartbeat.observe import catalogue
from celery_sqs_heartbeat.observe.catalogue import Metric
from celery_sqs_heartbeat.observe.message_groups import StoppedGroups

#: Calls and entries that are remembered, so that each is counted once. All events of a call come
#: within milliseconds of each other.
_REMEMBERED = 4_096

_COUNTS = {
    EventKind.TASK_STARTED: catalogue.STARTED,
    EventKind.LEASE_EXTENDED: catalogue.EXTENSIONS,
    EventKind.MESSAGE_DELETED: catalogue.DELETES,
    EventKind.DELETE_ABANDONED: catalogue.ABANDONED,
    EventKind.LEASE_CAP_NEAR: catalogue.CAPS_NEAR,
}
_COUNTS_BY_CAUSE = {
    EventKind.MESSAGE_RECEIVED: catalogue.RECEIVED,
    EventKind.MESSAGE_RELEASED: catalogue.RELEASES,
    EventKind.MESSAGE_LAPSING: catalogue.LAPSES,
}
_COUNTS_BY_ACTION = {
    EventKind.EXTENSION_FAILED: catalogue.FAILED_TRIES,
    EventKind.DELETE_FAILED: catalogue.FAILED_TRIES,
    EventKind.PERMISSION_DENIED: catalogue.DENIALS,
}
_ENDS = {
    EventKind.MESSAGE_DELETED: "deleted",
    EventKind.MESSAGE_RELEASED: "released",
    EventKind.MESSAGE_LAPSING: "lapsed",
}
#: After these a lease is forgotten.
ENDS = frozenset({*_ENDS, EventKind.DELETE_ABANDONED})
_LOSSES = {
    EventKind.LEASE_EXPIRED: "expired",
    EventKind.LEASE_LOST: "lost",
    EventKind.LEASE_CAPPED: "capped",
}


class Measurement(NamedTuple):
    """A value of a metric, with the values of its labels in order."""

    metric: Metric
    labels: tuple[str, ...]
    value: float = 1.0


def sqs_action(action: Action) -> str:
    """Return the name of the SQS action that a call for it uses."""
    return f"{CALL_KIND[action].value}Batch"


def loss_of(event: Event) -> str | None:
    """Return how a lease was lost: expired, lost or capped; None if it was not.

    If the keeper gives up a lease some time after its expiry, that is not a second loss.
    """
    if event.kind is EventKind.LEASE_LOST and event.outcome is None:
        return None
    return _LOSSES.get(event.kind)


class CallCount:
    """Finds the first event of each call and each entry. Safe to use from any thread.

    Calls are remembered with the time of their answer, because a restarted keeper counts its
    calls from 1 again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen = RecentKeys[tuple[object, ...]](_REMEMBERED)

    def is_new_call(self, event: Event) -> bool:
        """Return whether this is the first event of a call."""
        return event.call_number > 0 and self._is_new((event.call_number, event.at))

    def is_new_entry(self, event: Event) -> bool:
        """Return whether this is the first event of one message's part in a call."""
        key = (event.call_number, event.at, event.message_id)
        return event.call_number > 0 and self._is_new(key)

    def _is_new(self, key: tuple[object, ...]) -> bool:
        with self._lock:
            if key in self._seen:
                return False
            self._seen.add(key)
            return True


class Measurer:
    """Turns each event into measurements. Safe to use from any thread.

    Attributes:
        stopped: The message groups that have stopped.
    """

    def __init__(self) -> None:
        self.stopped = StoppedGroups()
        self._calls = CallCount()
        self._queues: set[str] = set()

    def measure(self, event: Event) -> Iterator[Measurement]:
        """Yield the measurements of an event."""
        queue = queue_name(event.queue_url)
        kind = event.kind
        self.stopped.note(event)
        if queue not in self._queues:
            self._queues.add(queue)
            yield from _zeros(queue)
        if kind in _COUNTS:
            yield Measurement(_COUNTS[kind], (queue,))
        if kind in _COUNTS_BY_CAUSE:
            yield Measurement(_COUNTS_BY_CAUSE[kind], (queue, event.cause or "unknown"))
        if event.stops_group:
            yield Measurement(catalogue.GROUP_STOPS, (queue, event.cause or "unknown"))
        if kind in _COUNTS_BY_ACTION and event.action:
            yield Measurement(_COUNTS_BY_ACTION[kind], (queue, event.action.value))
        if loss := loss_of(event):
            yield Measurement(catalogue.LOSSES, (queue, loss))
        if kind is EventKind.LEASE_EXTENDED:
            yield Measurement(catalogue.SLACK, (queue,), max(0.0, event.slack))
        if kind in _ENDS:
            yield Measurement(catalogue.AGE, (queue, _ENDS[kind]), event.held_for)
        if event.action and event.outcome:
            action = sqs_action(event.action)
            if self._calls.is_new_call(event):
                yield Measurement(catalogue.CALLS, (queue, action, event.outcome.value))
                yield Measurement(catalogue.CALL_SECONDS, (queue, action), event.seconds)
            if self._calls.is_new_entry(event):
                yield Measurement(catalogue.ENTRIES, (queue, action, event.outcome.value))


def _zeros(queue: str) -> Iterator[Measurement]:
    for metric in catalogue.COUNTED:
        for labels in metric.zeros:
            yield Measurement(metric, (queue, *labels), 0.0)
