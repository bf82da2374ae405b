"""What is due when, and which call it goes into."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

from celery_sqs_heartbeat.core.actions import (
    CALL_KIND,
    due_time,
    early_entry_for,
    next_action,
    urgency,
)
from celery_sqs_heartbeat.core.calls import MAX_BATCH_ENTRIES, Call, CallKind, Entry
from celery_sqs_heartbeat.core.lane import Lane
from celery_sqs_heartbeat.core.lease import Lease

#: Calls of one kind in flight for one queue: a queue whose calls hang must not
#: take every connection from the others.
MAX_CALLS_PER_LANE = 4


class Agenda:
    """Holds each lease where its next action waits, and forms calls of what is due.

    A lease is in at most one call at a time, so that no call of a lease can overtake
    another. Each change costs O(log n).

    Args:
        due_entry: Returns the entry for a lease that is due; or deals with a lease that
            needs no call (it has lapsed, it is capped) and returns None.
    """

    def __init__(self, due_entry: Callable[[Lease, float], Entry | None]) -> None:
        self._due_entry = due_entry
        self._lanes: dict[tuple[str, CallKind], Lane] = {}
        self._numbers = itertools.count(1)

    def put(self, lease: Lease) -> None:
        """Place the lease by its next action; nowhere while it is in a call."""
        self.discard(lease)
        if lease.call is not None or (action := next_action(lease)) is None:
            return
        key = (lease.queue_url, CALL_KIND[action])
        if key not in self._lanes:
            self._lanes[key] = Lane(*key)
        self._lanes[key].put(lease, due_time(lease, action))

    def discard(self, lease: Lease) -> None:
        """Take the lease out, if it is in."""
        for kind in CallKind:
            if (lease.queue_url, kind) in self._lanes:
                self._lanes[lease.queue_url, kind].discard(lease)

    def plan(self, now: float, room: int) -> list[Call]:
        """Return the calls to make now, most urgent first, at most `room` of them."""
        for each in self._lanes.values():
            each.advance(now, urgency)
        calls: list[Call] = []
        while len(calls) < room and (lane := self._most_urgent_lane()) is not None:
            entries = self._take_entries(lane, now)
            if entries:
                calls.append(self._begin(lane, entries, now))
        return calls

    def end(self, call: Call) -> None:
        """Note that a planned call is over; its leases may be placed again."""
        self._lanes[call.queue_url, call.kind].in_flight -= 1
        for entry in call.entries:
            entry.lease.call = None

    def next_due(self, now: float) -> float:
        """Return when `plan` next has something to do; infinity for never."""
        if self._most_urgent_lane() is not None:
            return now
        times = (lane.next_due() for lane in self._lanes.values() if _has_room(lane))
        return min((time for time in times if time is not None), default=math.inf)

    def _begin(self, lane: Lane, entries: list[Entry], now: float) -> Call:
        call = Call(lane.kind, lane.queue_url, tuple(entries), now, next(self._numbers))
        for entry in entries:
            entry.lease.call = call
        lane.in_flight += 1
        return call

    def _most_urgent_lane(self) -> Lane | None:
        ready = [
            (first, index, lane)
            for index, lane in enumerate(self._lanes.values())
            if _has_room(lane) and (first := lane.most_urgent()) is not None
        ]
        return min(ready)[2] if ready else None

    def _take_entries(self, lane: Lane, now: float) -> list[Entry]:
        entries: list[Entry] = []
        for lease in lane.pop_ready():
            if lease.alone and entries:
                lane.put_back(lease, urgency(lease))
                break
            entry = self._due_entry(lease, now)
            if entry is None:
                continue
            entries.append(entry)
            if lease.alone or len(entries) == MAX_BATCH_ENTRIES:
                return entries
        if entries:
            lane.fill_up(entries, lambda lease: early_entry_for(lease, now))
        return entries


def _has_room(lane: Lane) -> bool:
    return lane.in_flight < MAX_CALLS_PER_LANE
