"""Where the book has placed each lease: read from its inside, for the checks."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from celery_sqs_heartbeat.core.book import LeaseBook
from celery_sqs_heartbeat.core.calls import CallKind
from celery_sqs_heartbeat.core.heap import LeaseHeap
from celery_sqs_heartbeat.core.lease import Lease


@dataclass(frozen=True)
class Place:
    """One place of a lease. `due` is None where it has been found to be due."""

    queue_url: str
    kind: CallKind
    due: float | None


def places(book: LeaseBook) -> dict[Lease, list[Place]]:
    """Return every place of every lease that is placed."""
    found: dict[Lease, list[Place]] = defaultdict(list)
    for lane in book._agenda._lanes.values():
        for lease, due in _live(lane._waiting):
            found[lease].append(Place(lane.queue_url, lane.kind, due))
        for lease, _ in _live(lane._ready):
            found[lease].append(Place(lane.queue_url, lane.kind, None))
    return found


def probes(book: LeaseBook) -> dict[tuple[str, CallKind], float]:
    """Return when each lane that was refused a call may be probed."""
    lanes = book._agenda._lanes.items()
    return {key: lane.probe_at for key, lane in lanes if lane.probe_at is not None}


def in_flight(book: LeaseBook) -> dict[tuple[str, CallKind], int]:
    """Return the calls that each lane takes to be out."""
    return {key: lane.in_flight for key, lane in book._agenda._lanes.items()}


def handles(book: LeaseBook) -> dict[str, Lease]:
    """Return the book's map of receipt handles."""
    return book._by_handle


def _live(heap: LeaseHeap) -> list[tuple[Lease, float]]:
    live = [
        (lease, time) for time, serial, lease in heap._entries if heap._live.get(lease) == serial
    ]
    assert len(live) == len(heap)
    return live
