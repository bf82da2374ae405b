"""Where the book has placed each lease, for the checks."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

from celery_sqs_heartbeat.leases.book import LeaseBook
from celery_sqs_heartbeat.leases.calls import CallKind
from celery_sqs_heartbeat.leases.lease import Lease


@dataclass(frozen=True)
class Place:
    """One place of a lease. `due` is None if the lease was found to be due."""

    queue_url: str
    kind: CallKind
    due: float | None


def places(book: LeaseBook) -> dict[Lease, list[Place]]:
    """Return every place of every lease that has one."""
    found: dict[Lease, list[Place]] = defaultdict(list)
    for lane in book.agenda.lanes.values():
        for due, number, lease in lane.waiting:
            if number == lease.turn:
                found[lease].append(Place(lane.queue_url, lane.kind, due))
        for _, number, lease in lane.ready:
            if number == lease.turn:
                found[lease].append(Place(lane.queue_url, lane.kind, None))
    return found


def probes(book: LeaseBook) -> dict[tuple[str, CallKind], float]:
    """Return when each lane that was refused a call may be probed."""
    return {
        key: lane.probe_at for key, lane in book.agenda.lanes.items() if lane.probe_at > -math.inf
    }


def in_flight(book: LeaseBook) -> dict[tuple[str, CallKind], int]:
    """Return the number of calls that each lane counts as in flight."""
    return {key: lane.in_flight for key, lane in book.agenda.lanes.items()}
