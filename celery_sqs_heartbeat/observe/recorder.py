"""Remembers recent events for the status page."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from typing import NamedTuple

from celery_sqs_heartbeat.leases.actions import CALL_KIND
from celery_sqs_heartbeat.leases.calls import CallKind
from celery_sqs_heartbeat.leases.events import DUE_LATER, Event, EventKind
from celery_sqs_heartbeat.observe.measurements import ENDS, CallCount, loss_of
from celery_sqs_heartbeat.observe.message_groups import StoppedGroups

#: Releases and losses that are remembered.
HAPPENINGS = 50
#: Minutes for which calls are counted.
MINUTES = 30
#: Extensions that are remembered of a lease. A healthy one has one and a half per timeout.
_MARKS = 8
#: Leases whose extensions are remembered. If there are more, those extended longest ago are
#: forgotten.
_MARKED = 4_096

_RELEASES = {EventKind.MESSAGE_RELEASED: "released", EventKind.MESSAGE_LAPSING: "lapsed"}


class Happening(NamedTuple):
    """A release or a loss. `what`: released, lapsed, expired, lost or capped."""

    what: str
    event: Event


class MinuteOfCalls(NamedTuple):
    """Calls that were answered in one minute, by their SQS action."""

    minute: int
    change_visibility: int
    delete: int


class Recorder:
    """Observes a keeper for the status page. Safe to use from any thread.

    Attributes:
        stopped: The message groups that have stopped.
    """

    def __init__(self) -> None:
        self.stopped = StoppedGroups()
        self._lock = threading.Lock()
        self._count = CallCount()
        self._happenings: deque[Happening] = deque(maxlen=HAPPENINGS)
        self._happened = 0
        self._marks: OrderedDict[tuple[str, str], deque[float]] = OrderedDict()
        self._calls: OrderedDict[int, dict[CallKind, int]] = OrderedDict()

    def __call__(self, event: Event) -> None:
        """Record an event."""
        self.stopped.note(event)
        key = (event.queue_url, event.message_id)
        what = loss_of(event) or _RELEASES.get(event.kind)
        with self._lock:
            if event.kind is EventKind.LEASE_EXTENDED:
                self._mark(key, event.at)
            elif event.kind in ENDS:
                self._marks.pop(key, None)
            # Thousands may be parked at once, and would push out the failures.
            if what and event.cause != DUE_LATER:
                self._happenings.append(Happening(what, event))
                self._happened += 1
            if event.action and self._count.is_new_call(event):
                self._add_call(CALL_KIND[event.action], int(event.at // 60))

    def extended_at(self) -> dict[tuple[str, str], tuple[float, ...]]:
        """Return the times of each lease's last extensions, by queue URL and message id."""
        with self._lock:
            return {key: tuple(marks) for key, marks in self._marks.items()}

    def happenings(self) -> list[Happening]:
        """Return the last releases and losses, the latest first."""
        with self._lock:
            return list(reversed(self._happenings))

    @property
    def happened(self) -> int:
        """How many releases and losses there were, including those that are not remembered."""
        return self._happened

    def calls(self, now: float) -> list[MinuteOfCalls]:
        """Return the calls of each of the last minutes, the current one last."""
        current = int(now // 60)
        with self._lock:
            counts = {minute: dict(calls) for minute, calls in self._calls.items()}
        return [
            MinuteOfCalls(
                minute,
                calls.get(CallKind.CHANGE_VISIBILITY, 0),
                calls.get(CallKind.DELETE, 0),
            )
            for minute in range(current - MINUTES + 1, current + 1)
            for calls in (counts.get(minute, {}),)
        ]

    def _mark(self, key: tuple[str, str], at: float) -> None:
        self._marks.setdefault(key, deque(maxlen=_MARKS)).append(at)
        self._marks.move_to_end(key)
        if len(self._marks) > _MARKED:
            self._marks.popitem(last=False)

    def _add_call(self, kind: CallKind, minute: int) -> None:
        calls = self._calls.setdefault(minute, {})
        calls[kind] = calls.get(kind, 0) + 1
        if len(self._calls) > MINUTES + 1:
            self._calls.popitem(last=False)
