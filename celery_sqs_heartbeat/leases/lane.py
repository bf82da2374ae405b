"""The leases of one queue that wait for one kind of call, most urgent first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from celery_sqs_heartbeat.leases.calls import MAX_BATCH_ENTRIES, CallKind, Entry
from celery_sqs_heartbeat.leases.heap import LeaseHeap, LeasePlaces
from celery_sqs_heartbeat.leases.lease import Lease

#: The most calls of one kind in flight for one queue. A queue whose calls hang must not
#: take every connection from the others.
MAX_CALLS_PER_LANE = 4
#: The same, with the calls that were given up and have not returned. Each of those occupies a
#: thread, and the other queues need threads, too.
MAX_STUCK_PER_LANE = 6
#: A queue with that many is tried again, with one call, after at least this many seconds. Most
#: hanging calls have ended by then: botocore renews credentials for up to 5 times 60 s.
STUCK_SECONDS = 300.0
#: How many leases that can't join a call may be skipped while it is filled up.
_MAX_PASSED_OVER = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneView:
    """The state of a lane at one moment.

    Attributes:
        in_flight: Calls that wait for their answer.
        probe_at: When the queue may be probed, after it refused a call; None if it refuses none.
        waiting: Leases that wait, each with its due time.
        ready: Leases that are due, each with its urgency.
    """

    queue_url: str
    kind: CallKind
    in_flight: int
    probe_at: float | None
    waiting: tuple[tuple[Lease, float], ...]
    ready: tuple[tuple[Lease, float], ...]


class Lane:
    """Two heaps of leases: those that wait, by due time, and those that are due, by urgency.

    There are two because a retry is due later than a new lease of the same age, but may
    expire sooner. Among the leases that are due, the most urgent goes first.
    """

    def __init__(self, queue_url: str, kind: CallKind, places: LeasePlaces) -> None:
        self.queue_url = queue_url
        self.kind = kind
        self.in_flight = 0
        #: When the queue may be probed, after it refused a call; None if it refuses none.
        self.probe_at: float | None = None
        self._stuck: dict[int, float] = {}
        self._waiting = LeaseHeap(places)
        self._ready = LeaseHeap(places)

    def view(self) -> LaneView:
        """Return its state now."""
        return LaneView(
            queue_url=self.queue_url,
            kind=self.kind,
            in_flight=self.in_flight,
            probe_at=self.probe_at,
            waiting=tuple(self._waiting),
            ready=tuple(self._ready),
        )

    def put(self, lease: Lease, due: float) -> None:
        """Add the lease, or move it here from another due time or lane."""
        self._waiting.put(lease, due)

    def advance(self, now: float, urgency: Callable[[Lease], float]) -> None:
        """Move the leases that are due by `now` to the heap of ready ones."""
        while (due := self._waiting.first_time()) is not None and due <= now:
            lease = self._waiting.pop()
            self._ready.put(lease, urgency(lease))

    def add_stuck(self, number: int, now: float) -> None:
        """Note that a call was given up, and occupies a thread."""
        self._stuck[number] = now

    def remove_stuck(self, number: int) -> None:
        """Note that a call which was given up has returned."""
        self._stuck.pop(number, None)

    def forget_stuck(self, before: float) -> None:
        """Stop counting the calls that were given up at or before that time."""
        self._stuck = {n: since for n, since in self._stuck.items() if since > before}

    def may_call(self, now: float, pause: float) -> bool:
        """Return whether another call may be made. A queue that refuses gets one at a time.

        Args:
            pause: After how many seconds a queue with too many stuck calls is tried again.
        """
        free_at = self._free_at(now, pause)
        return free_at is not None and free_at <= now

    def next_due(self, now: float, pause: float) -> float | None:
        """Return when the next call can be made; None if no lease waits or an answer is missing."""
        due = self._waiting.first_time() if self._ready.first() is None else now
        free_at = self._free_at(now, pause)
        return None if due is None or free_at is None else max(due, free_at)

    def _free_at(self, now: float, pause: float) -> float | None:
        """Return when there is room for a call; None if an answer must come first."""
        if self.in_flight >= (MAX_CALLS_PER_LANE if self.probe_at is None else 1):
            return None
        if self.in_flight and self.in_flight + len(self._stuck) >= MAX_STUCK_PER_LANE:
            return None
        free_at = now if self.probe_at is None else max(now, self.probe_at)
        if len(self._stuck) >= MAX_STUCK_PER_LANE:
            free_at = max(free_at, max(self._stuck.values()) + pause)
        return free_at

    def first_waiting(self) -> float | None:
        """Return when the first of the leases that wait is due, or None."""
        return self._waiting.first_time()

    def most_urgent(self) -> float | None:
        """Return the urgency of the first lease that is due, or None."""
        return self._ready.first_time()

    def pop_ready(self) -> Iterator[Lease]:
        """Remove and yield the leases that are due, most urgent first."""
        while self._ready.first() is not None:
            yield self._ready.pop()

    def put_back(self, lease: Lease, urgency: float) -> None:
        """Put back a lease that `pop_ready` yielded and that fits in no call now."""
        self._ready.put(lease, urgency)

    def fill_up(self, entries: list[Entry], early_entry: Callable[[Lease], Entry | None]) -> None:
        """Add the next leases to a call that is made anyway, up to ten entries.

        So leases that were received at different times gradually share batches.
        """
        passed_over: list[tuple[Lease, float]] = []
        while (
            len(entries) < MAX_BATCH_ENTRIES
            and len(passed_over) < _MAX_PASSED_OVER
            and (due := self._waiting.first_time()) is not None
        ):
            lease = self._waiting.pop()
            entry = early_entry(lease)
            if entry is None:
                passed_over.append((lease, due))
            else:
                entries.append(entry)
        for lease, due in passed_over:
            self._waiting.put(lease, due)
