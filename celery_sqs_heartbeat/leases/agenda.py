"""Decides which action is due when, and forms the calls."""

from __future__ import annotations

import itertools
import math

from celery_sqs_heartbeat.leases.actions import CALL_KIND, due_time, next_action, urgency
from celery_sqs_heartbeat.leases.call_entries import DueEntry, take_due, take_full_batch
from celery_sqs_heartbeat.leases.calls import Call, CallKind, Entry
from celery_sqs_heartbeat.leases.heap import LeasePlaces
from celery_sqs_heartbeat.leases.lane import STUCK_SECONDS, Lane, LaneView
from celery_sqs_heartbeat.leases.lease import Lease
from celery_sqs_heartbeat.leases.policy import call_patience

#: From this many hanging calls on, over all queues, the keeper risks more of them less and less
#: often, down to one an hour. There are threads for 160 calls, and they must also serve queues
#: whose calls do not hang.
MANY_STUCK = 72
#: The longest pause between such calls, in seconds.
LONGEST_PAUSE = 3_600.0


class Agenda:
    """Holds each lease in the lane of its next action, and forms calls from what is due.

    A lease is in at most one call at a time, so its calls can't overtake each other. Each
    change costs O(log n).
    """

    def __init__(self) -> None:
        self._lanes: dict[tuple[str, CallKind], Lane] = {}
        self._places = LeasePlaces("waits_as")
        self._numbers = itertools.count(1)
        #: By number, each call that waits for its answer, with the end of the wait.
        self._out: dict[int, tuple[Call, float]] = {}
        #: The call that each lease is in.
        self._calls: dict[Lease, Call] = {}
        #: The numbers of the calls that were given up and have not returned.
        self._hanging: set[int] = set()

    @property
    def in_flight(self) -> int:
        """How many calls wait for their answer."""
        return len(self._out)

    def view(self) -> list[LaneView]:
        """Return the leases that wait for calls, for each queue and kind of call."""
        return [lane.view() for lane in self._lanes.values()]

    def call_of(self, lease: Lease) -> Call | None:
        """Return the unanswered call that contains the lease, or None."""
        return self._calls.get(lease)

    def put(self, lease: Lease) -> None:
        """Place the lease by its next action. A lease in a call has no place."""
        if lease.pending is not None or (action := next_action(lease)) is None:
            self.discard(lease)
            return
        key = (lease.queue_url, CALL_KIND[action])
        if key not in self._lanes:
            self._lanes[key] = Lane(*key, self._places)
        self._lanes[key].put(lease, due_time(lease, action))

    def discard(self, lease: Lease) -> None:
        """Take the lease out, if it is in."""
        self._places.leave(lease)

    def plan(self, now: float, room: int, due_entry: DueEntry) -> list[Call]:
        """Return the calls to make now, most urgent first, at most `room` of them."""
        for each in self._lanes.values():
            each.advance(now, urgency)
        calls: list[Call] = []
        while len(calls) < room and (lane := self._most_urgent_lane(now)) is not None:
            entries = take_due(lane, now, due_entry)
            if entries:
                calls.append(self._begin(lane, entries, now))
        for lane in dict.fromkeys(self._lanes[call.queue_url, call.kind] for call in calls):
            while len(calls) < room and lane.may_call(now, self._pause):
                entries = take_full_batch(lane, now, self.put)
                if not entries:
                    break
                calls.append(self._begin(lane, entries, now))
        return calls

    def end(self, call: Call) -> bool:
        """Note the end of a planned call. Its leases may be placed again.

        False if it was given up before: this answer is late.
        """
        if self._out.pop(call.number, None) is None:
            self._hanging.discard(call.number)
            self._lanes[call.queue_url, call.kind].remove_stuck(call.number)
            return False
        self._lanes[call.queue_url, call.kind].in_flight -= 1
        for entry in call.entries:
            entry.lease.pending = None
            del self._calls[entry.lease]
        return True

    def overdue(self, now: float) -> list[Call]:
        """Return the calls that have waited too long for their answers."""
        return [call for call, deadline in self._out.values() if now >= deadline]

    def note_answer(self, call: Call, now: float) -> None:
        """Note that a call was answered in time. The hanging calls of its queue are exceptions."""
        before = now if len(self._hanging) < MANY_STUCK else now - STUCK_SECONDS
        self._lanes[call.queue_url, call.kind].forget_stuck(before)

    def note_stuck(self, call: Call, now: float) -> None:
        """Note that a call which was given up still hangs."""
        self._hanging.add(call.number)
        self._lanes[call.queue_url, call.kind].add_stuck(call.number, now)

    def refuse(self, queue_url: str, kind: CallKind, probe_at: float) -> None:
        """Note that a queue refuses such calls. The next has one entry, not before `probe_at`."""
        self._lanes[queue_url, kind].probe_at = probe_at

    def grant(self, queue_url: str, kind: CallKind) -> None:
        """Note that a queue accepts such calls again."""
        self._lanes[queue_url, kind].probe_at = None

    def next_due(self, now: float, room: int) -> float:
        """Return when the next call is due, or infinity.

        Args:
            room: How many more calls may be made. Without room, only the ends of waits count.
        """
        times = [deadline for _, deadline in self._out.values()]
        if room > 0:
            pause = self._pause
            dues = (lane.next_due(now, pause) for lane in self._lanes.values())
            times += [due for due in dues if due is not None]
        return min(times, default=math.inf)

    @property
    def _pause(self) -> float:
        """After how many seconds a queue whose calls hang is tried again."""
        # More doublings would exceed the longest pause anyway.
        beyond = min(max(0, len(self._hanging) - MANY_STUCK), 10)
        return min(STUCK_SECONDS * 2.0**beyond, LONGEST_PAUSE)

    def _begin(self, lane: Lane, entries: list[Entry], now: float) -> Call:
        call = Call(lane.kind, lane.queue_url, tuple(entries), now, next(self._numbers))
        for entry in entries:
            entry.lease.pending = entry.action
            self._calls[entry.lease] = call
        lane.in_flight += 1
        self._out[call.number] = (call, _deadline(call))
        return call

    def _most_urgent_lane(self, now: float) -> Lane | None:
        pause = self._pause
        ready = [
            (first, index, lane)
            for index, lane in enumerate(self._lanes.values())
            if lane.may_call(now, pause) and (first := lane.most_urgent()) is not None
        ]
        return min(ready)[2] if ready else None


def _deadline(call: Call) -> float:
    threshold = min(entry.lease.terms.threshold for entry in call.entries)
    return call.planned_at + call_patience(threshold)
