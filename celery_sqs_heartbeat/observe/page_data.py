"""The data of the status page, as plain values. docs/status-page.md documents the fields."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from enum import Enum
from heapq import nsmallest
from itertools import islice
from typing import Any

from celery_sqs_heartbeat.leases.events import (
    DUE_LATER,
    CallKind,
    Event,
    EventKind,
    KeeperHealth,
    loss_of,
)
from celery_sqs_heartbeat.leases.lease import LeaseView
from celery_sqs_heartbeat.leases.message import queue_name
from celery_sqs_heartbeat.observe.measuring import (
    ENDS,
    MINUTES,
    Key,
    Measurer,
    behind_others,
    grouped,
    key_of,
    totals,
)
from celery_sqs_heartbeat.observe.watched import PolledQueue, Watched

STUCK = frozenset({"dead", "late", "stalled"})
#: What may be wrong with a worker, the worst first; all of it makes it unready. `STUCK` is what a
#: restart ends. It does not end the rest, which may have the same cause in every worker of a fleet.
TROUBLES: Mapping[str, Callable[[KeeperHealth, Sequence[PolledQueue]], bool]] = {
    "dead": lambda health, _: not health.alive,
    "late": lambda health, _: health.late,
    "stalled": lambda health, _: health.stalled,
    "unconnected": lambda health, _: not health.connected,
    "deaf": lambda _, queues: any(queue.deaf for queue in queues),
}
#: How many leases are listed: those that expire first. More would not help a reader.
MAX_LEASES = 500
#: How many tasks have their own counts: those with the most leases. Senders choose task names.
MAX_TASKS = 500
#: How many message groups are listed: those that stopped last.
MAX_STOPPED = 100
#: Releases and losses that are remembered.
HAPPENINGS = 50
#: Extensions that are remembered of a lease. A healthy one has one and a half per timeout.
_MARKS = 8
#: Leases whose extensions are remembered. If there are more, those extended longest ago are
#: forgotten.
_MARKED = 4_096

_RELEASES = {EventKind.MESSAGE_RELEASED: "released", EventKind.MESSAGE_LAPSING: "lapsed"}
#: What is shown of an event's message, and of a lease, under the same names.
_OF_MESSAGE = ("message_id", "task", "task_id", "receive_count", "cause")
_OF_LEASE = tuple(name for name in LeaseView._fields if name != "is_in_order")


class PageData:
    """Observes a keeper, and returns what the page shows. Safe to use from any thread.

    Args:
        measured: What watches the keeper, and observes its events, too.
        name: The worker's name, for the page's title.
    """

    def __init__(self, measured: Measurer, name: str = "") -> None:
        self._measured = measured
        self._name = name
        self._lock = threading.Lock()
        self._happenings: deque[tuple[str, Event]] = deque(maxlen=HAPPENINGS)
        # All of them, as some are not remembered.
        self._happened = 0
        self._marks: OrderedDict[Key, deque[float]] = OrderedDict()

    @property
    def _keeper(self) -> Watched:
        assert self._measured.keeper is not None, "it is watched before the page is served"
        return self._measured.keeper

    def __call__(self, event: Event) -> None:
        """Remember an event for a while."""
        key = (event.queue_url, event.message_id)
        what = loss_of(event) or _RELEASES.get(event.kind)
        with self._lock:
            if event.kind is EventKind.LEASE_EXTENDED:
                self._marks.setdefault(key, deque(maxlen=_MARKS)).append(event.at)
                self._marks.move_to_end(key)
                if len(self._marks) > _MARKED:
                    self._marks.popitem(last=False)
            elif event.kind in ENDS:
                self._marks.pop(key, None)
            # Thousands may be parked at once, and would push out the failures.
            if what and event.cause != DUE_LATER:
                self._happenings.append((what, event))
                self._happened += 1

    def health(self) -> Any:
        """Return the health of the keeper and the polls. Never waits, even if threads hang."""
        health, queues = self._keeper.health, self._measured.polled()
        troubles = (name for name, is_so in TROUBLES.items() if is_so(health, queues))
        return _shown(
            {
                "status": next(troubles, "ok"),
                "last_tick_age": health.last_tick_age,
                "replaced": health.replaced,
                "standstills": health.standstills,
                "hanging": health.hanging,
                "last_loop_age": health.loop_age,
                "polls": [asdict(queue) for queue in queues],
            }
        )

    def leases(self) -> Any:
        """Return totals of all leases and of each queue and task, and the leases that expire first.

        Beside each shortened list is the number of entries that it leaves out.
        """
        now, leases = self._keeper.now(), self._keeper.snapshot()
        with self._lock:
            marks = {key: tuple(times) for key, times in self._marks.items()}
        stopped = self._measured.stopped.view(now)
        behind = behind_others(leases)
        shown = nsmallest(MAX_LEASES, leases, key=lambda lease: lease.expires_in)
        queues = grouped(leases, lambda lease: lease.queue_url)
        tasks = grouped(leases, lambda lease: (lease.queue_url, lease.task))
        return _shown(
            {
                "worker": self._name,
                "health": self.health(),
                **totals(leases, behind),
                "queues": [{**_queue(url), **totals(held, behind)} for url, held in queues.items()],
                "tasks": [
                    {**_queue(url), "task": task, **totals(held, behind)}
                    for (url, task), held in islice(tasks.items(), MAX_TASKS)
                ],
                "tasks_left_out": max(0, len(tasks) - MAX_TASKS),
                "leases": [
                    {
                        **_queue(lease.queue_url),
                        **{name: getattr(lease, name) for name in _OF_LEASE},
                        "behind": key_of(lease) in behind,
                        "extended_ago": [now - at for at in marks.get(key_of(lease), ())],
                    }
                    for lease in shown
                ],
                "leases_left_out": len(leases) - len(shown),
                "stopped_groups": [
                    {
                        **_queue(event.queue_url),
                        **_message(event),
                        "group": event.group,
                        "max_receive_count": event.max_receive_count,
                        "ago": now - event.at,
                        "visible_in": visible_at - now,
                    }
                    for event, visible_at in stopped[:MAX_STOPPED]
                ],
                "stopped_groups_left_out": max(0, len(stopped) - MAX_STOPPED),
            }
        )

    def events(self) -> Any:
        """Return the last releases and losses, the latest first, and the calls per minute."""
        now = self._keeper.now()
        minute = int(now // 60)
        with self._lock:
            happenings, happened = list(reversed(self._happenings)), self._happened
        calls = self._measured.calls_by_minute()
        return _shown(
            {
                "happenings": [
                    {
                        "what": what,
                        "queue": queue_name(event.queue_url),
                        **_message(event),
                        "ago": now - event.at,
                        "held_for": event.held_for,
                        "slack": event.slack,
                    }
                    for what, event in happenings
                ],
                "happenings_left_out": happened - len(happenings),
                "calls_per_minute": [
                    {
                        "change_visibility": calls[each, CallKind.CHANGE_VISIBILITY],
                        "delete": calls[each, CallKind.DELETE],
                    }
                    for each in range(minute - MINUTES + 1, minute + 1)
                ],
            }
        )


def _shown(value: Any) -> Any:
    """Return plain values, with seconds rounded to milliseconds: the page never shows more."""
    if isinstance(value, dict):
        return {name: _shown(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_shown(each) for each in value]
    if isinstance(value, Enum):
        return value.value
    return round(value, 3) if isinstance(value, float) else value


def _queue(url: str) -> dict[str, str]:
    return {"queue": queue_name(url), "queue_url": url}


def _message(event: Event) -> dict[str, Any]:
    return {name: getattr(event, name) for name in _OF_MESSAGE}
