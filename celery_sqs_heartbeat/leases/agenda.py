"""Decides which call is due when, and forms the calls."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from celery_sqs_heartbeat.leases import policy
from celery_sqs_heartbeat.leases.events import Call, CallKind, Entry
from celery_sqs_heartbeat.leases.lease import SQS, Action, Goal, Lease, LeaseStatus

#: The most calls of one kind that wait for an answer from one queue. A queue whose calls hang must
#: not take every connection from the others.
MAX_CALLS_PER_LANE = 4
#: How many leases that can't join a call may be skipped while it is filled up.
_MAX_PASSED_OVER = 10
#: Dead entries tolerated in a heap beyond the number of leases before it is cleaned.
_SLACK = 32
#: Returns the entry for a lease that is due. If the lease needs no call, because it has lapsed or
#: is capped, it updates the lease and returns None. It may change where leases are placed.
DueEntry = Callable[[Lease, float], Entry | None]
#: A time, a number that is unique in its agenda, and a lease.
HeapEntry = tuple[float, int, Lease]


@dataclass(slots=True, eq=False)
class Lane:
    """The leases of one queue that wait for one kind of call.

    There are two heaps because a retry is due later than a new lease of the same age, but may
    expire sooner. Both are lazy: an entry is dead if its number is not its lease's `turn`.

    Attributes:
        waiting: The leases that wait, by due time.
        ready: The leases that are due, by urgency.
        in_flight: Calls that wait for their answer.
        probe_at: When the queue may be probed, after it refused a call; -inf if it refuses none.
        held: In the lane of deletes: the messages of the queue whose goal is still to hold them.
        gathered: In the lane of deletes: the acks that wait for others.
        sent_at: When the last call was planned.
    """

    queue_url: str
    kind: CallKind
    waiting: list[HeapEntry] = field(default_factory=list, repr=False)
    ready: list[HeapEntry] = field(default_factory=list, repr=False)
    in_flight: int = 0
    probe_at: float = -math.inf
    held: int = 0
    gathered: int = 0
    sent_at: float = -math.inf

    @property
    def free_at(self) -> float:
        """When it may make a call; infinity while an answer must come first.

        A queue that refuses gets one call at a time.
        """
        most = MAX_CALLS_PER_LANE if self.probe_at == -math.inf else 1
        return self.probe_at if self.in_flight < most else math.inf

    def next_due(self, now: float) -> float:
        """Return when the next call can be made, or infinity."""
        return max(now if _first(self.ready) else _first_time(self.waiting), self.free_at)


class Lanes(dict[tuple[str, CallKind], Lane]):
    """Lanes by queue and kind of call. Each begins when it is first looked up."""

    def __missing__(self, key: tuple[str, CallKind]) -> Lane:
        lane = self[key] = Lane(*key)
        return lane


class Agenda:
    """Holds each lease in the lane of its next action, and forms calls from what is due.

    A lease is in at most one call at a time, so its calls can't overtake each other. Each
    change costs O(log n).

    It also watches when leases expire, even if their calls are never answered. An extension does
    not touch that heap. When the entry of an extended lease reaches the top, it moves to the new
    expiry. So a lease costs one move per visibility timeout.

    Attributes:
        lanes: The leases that wait for calls.
    """

    def __init__(self) -> None:
        self.lanes = Lanes()
        #: An entry is dead if its time is not its lease's `watched_until`.
        self._expiries: list[HeapEntry] = []
        self._numbers, self._call_numbers = itertools.count(1), itertools.count(1)
        self._size = 0
        #: By number, each call that waits for its answer, with the end of the wait.
        self._out: dict[int, tuple[Call, float]] = {}

    @property
    def in_flight(self) -> int:
        """How many calls wait for their answer, except those given up."""
        return len(self._out)

    def add(self, lease: Lease) -> None:
        """Note that a lease has begun. It has no place yet."""
        self._size += 1
        self.lanes[lease.queue_url, CallKind.DELETE].held += lease.goal is Goal.HOLD

    def end_hold(self, lease: Lease) -> None:
        """Note that the goal of a lease is about to change."""
        self.lanes[lease.queue_url, CallKind.DELETE].held -= lease.goal is Goal.HOLD

    def remove(self, lease: Lease) -> None:
        """Note that a lease ends."""
        self._size -= 1
        self.end_hold(lease)
        lease.turn, lease.watched_until = 0, math.inf

    def put(self, lease: Lease, *, waits_for_others: bool = False) -> None:
        """Place a lease by its next action, and watch its expiry. Call this after each change.

        A lease in a call has no place.

        Args:
            waits_for_others: Whether it has no place until the calls of other leases have ended.
        """
        number, lease.turn = next(self._numbers), 0
        action = (
            None if waits_for_others or lease.pending is not None else policy.next_action(lease)
        )
        if action is not None:
            lane = self.lanes[lease.queue_url, policy.CALL_KIND[action]]
            lease.turn = number
            due = lease.extend_at if action is Action.EXTEND else lease.end_at
            self._push(lane.waiting, (due, number, lease), _has_turn)
        if lease.expires_at < lease.watched_until and _may_expire(lease):
            lease.watched_until = lease.expires_at
            self._push(self._expiries, (lease.expires_at, number, lease), _is_watched)

    def ack_due(self, lease: Lease, now: float) -> float:
        """Return when the ack of a held message is due. It may wait to share a DeleteMessageBatch.

        If the worker dies before SQS has confirmed a delete, the task runs again. So an ack waits
        only while that can save a call: for at most `policy.GATHER_SECONDS`, and until a batch is
        full. If no other message of its queue is held, it waits only until that time has passed
        since the last delete: a queue of short tasks may have no message in the worker for a
        moment. On a FIFO queue in strict order it does not wait, because the next message of its
        group waits for its delete.

        We considered waiting only while another call is in flight. It shortens the wait to the time
        of a call, but at 100 tasks/s it makes five times as many calls.
        """
        if lease.is_in_order:
            return now
        lane = self.lanes[lease.queue_url, CallKind.DELETE]
        lane.gathered += 1
        if lane.gathered >= SQS.most_entries:
            return now
        return max(now, (now if lane.held > 1 else lane.sent_at) + policy.GATHER_SECONDS)

    def pop_expired(self, now: float) -> Iterator[Lease]:
        """Yield the leases that have expired by `now`, and stop watching them."""
        while self._next_expiry() <= now:
            _, _, lease = heapq.heappop(self._expiries)
            lease.watched_until = math.inf
            yield lease

    def plan(self, now: float, room: int, due_entry: DueEntry) -> list[Call]:
        """Return the calls to make now, most urgent first, at most `room` of them."""
        for each in self.lanes.values():
            while _first_time(each.waiting) <= now:
                _, number, lease = heapq.heappop(each.waiting)
                self._push(each.ready, (policy.urgency(lease), number, lease), _has_turn)
        calls: list[Call] = []
        while len(calls) < room and (lane := self._most_urgent_lane(now)) is not None:
            if entries := self._take_due(lane, now, due_entry):
                calls.append(self._begin(lane, entries, now))
        return calls

    def end(self, call: Call) -> bool:
        """Note the end of a planned call. Its leases may be placed again.

        False if it was given up before: this answer is late.
        """
        if self._out.pop(call.number, None) is None:
            return False
        self.lanes[call.queue_url, call.kind].in_flight -= 1
        for entry in call.entries:
            entry.lease.pending = None
        return True

    def overdue(self, now: float) -> list[Call]:
        """Return the calls that have waited too long for their answers."""
        return [call for call, deadline in self._out.values() if now >= deadline]

    def release_of(self, lease: Lease) -> tuple[Call, Entry] | None:
        """Return the unanswered call that releases a lease, with its entry, or None."""
        if lease.pending is not Action.RELEASE:
            return None
        pairs = ((call, entry) for call, _ in self._out.values() for entry in call.entries)
        return next((call, entry) for call, entry in pairs if entry.lease is lease)

    def refuse(self, queue_url: str, kind: CallKind, probe_at: float) -> None:
        """Note that a queue refuses such calls. The next has one entry, not before `probe_at`."""
        self.lanes[queue_url, kind].probe_at = probe_at

    def grant(self, queue_url: str, kind: CallKind) -> None:
        """Note that a queue accepts such calls again."""
        self.lanes[queue_url, kind].probe_at = -math.inf

    def next_due(self, now: float, room: int = 1) -> float:
        """Return when `plan`, `overdue` or `pop_expired` next has something to do, or infinity.

        Args:
            room: How many more calls may be made. Without room, calls that are due do not count.
        """
        times = [self._next_expiry(), *(deadline for _, deadline in self._out.values())]
        if room > 0:
            times += [lane.next_due(now) for lane in self.lanes.values()]
        return min(times)

    def _push(
        self, heap: list[HeapEntry], entry: HeapEntry, is_alive: Callable[[HeapEntry], bool]
    ) -> None:
        """Add an entry, and remove the dead ones once they outnumber the leases.

        Otherwise, with a long visibility timeout, thousands of acked leases would pile up until
        their extensions would have been due.
        """
        heapq.heappush(heap, entry)
        if len(heap) > 2 * self._size + _SLACK:
            heap[:] = filter(is_alive, heap)
            heapq.heapify(heap)

    def _next_expiry(self) -> float:
        while (first := _first(self._expiries, _is_watched)) is not None:
            time, number, lease = first
            if not _may_expire(lease):
                lease.watched_until = math.inf
            elif lease.expires_at <= time:
                return time
            else:
                lease.watched_until = lease.expires_at
                heapq.heapreplace(self._expiries, (lease.expires_at, number, lease))
        return math.inf

    def _most_urgent_lane(self, now: float) -> Lane | None:
        lanes = [each for each in self.lanes.values() if each.free_at <= now and _first(each.ready)]
        return min(lanes, key=lambda lane: lane.ready[0][0], default=None)

    def _take_due(self, lane: Lane, now: float, due_entry: DueEntry) -> list[Entry]:
        """Remove the most urgent leases that are due from a lane, and return their entries.

        If the call is not full, those that are due next fill it up.
        """
        entries: list[Entry] = []
        is_probe = lane.probe_at > -math.inf
        most = 1 if is_probe else SQS.most_entries
        while (
            len(entries) < most
            and (first := _first(lane.ready)) is not None
            and not (entries and first[2].is_isolated)
        ):
            _, _, lease = heapq.heappop(lane.ready)
            lease.turn = 0
            if (entry := due_entry(lease, now)) is not None:
                entries.append(entry)
                if lease.is_isolated:
                    return entries
        if entries and not is_probe:
            self._fill_up(lane, entries, now)
        return entries

    def _fill_up(self, lane: Lane, entries: list[Entry], now: float) -> None:
        """Add the next leases to a call that is made anyway, until it is full.

        So leases that were received at different times gradually share batches.
        """
        passed_over: list[HeapEntry] = []
        while (
            len(entries) < SQS.most_entries
            and len(passed_over) < _MAX_PASSED_OVER
            and (first := _first(lane.waiting)) is not None
        ):
            heapq.heappop(lane.waiting)
            if (entry := policy.early_entry_for(first[2], now)) is not None:
                first[2].turn = 0
                entries.append(entry)
            else:
                passed_over.append(first)
        for each in passed_over:
            heapq.heappush(lane.waiting, each)

    def _begin(self, lane: Lane, entries: list[Entry], now: float) -> Call:
        call = Call(lane.kind, lane.queue_url, tuple(entries), now, next(self._call_numbers))
        for entry in entries:
            entry.lease.pending = entry.action
        lane.in_flight += 1
        lane.sent_at = now
        # A call that is not full takes all acks that wait.
        is_full = len(entries) == SQS.most_entries
        lane.gathered = max(0, lane.gathered - len(entries)) if is_full else 0
        threshold = min(entry.lease.terms.threshold for entry in entries)
        self._out[call.number] = (call, now + policy.call_patience(threshold))
        return call


def _has_turn(entry: HeapEntry) -> bool:
    return entry[1] == entry[2].turn


def _is_watched(entry: HeapEntry) -> bool:
    return entry[0] == entry[2].watched_until


def _first(
    heap: list[HeapEntry], is_alive: Callable[[HeapEntry], bool] = _has_turn
) -> HeapEntry | None:
    """Return the first entry that is not dead. It is then at the top of the heap."""
    while heap and not is_alive(heap[0]):
        heapq.heappop(heap)
    return heap[0] if heap else None


def _first_time(heap: list[HeapEntry]) -> float:
    first = _first(heap)
    return math.inf if first is None else first[0]


def _may_expire(lease: Lease) -> bool:
    """Return whether the book must act when the lease expires.

    It reports the expiry of a held lease, unless the task opted out of extensions. It lets a
    lease lapse whose goal is release, unless the release is in flight.
    """
    if lease.goal is Goal.RELEASE:
        return lease.pending is None
    return (
        lease.goal is Goal.HOLD
        and lease.terms.extend
        and lease.status in (LeaseStatus.OWNED, LeaseStatus.REFUSED)
    )
