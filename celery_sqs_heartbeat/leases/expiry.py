"""When the next lease that is held runs out, whatever its calls do."""

from __future__ import annotations

from collections.abc import Iterator

from celery_sqs_heartbeat.leases.heap import LeaseHeap
from celery_sqs_heartbeat.leases.lease import Goal, Lease, LeaseStatus


class ExpiryWatch:
    """Finds leases that have expired, also those whose call is never answered.

    Lazy: an extension does not touch the heap. An entry whose lease has grown since moves on
    when it comes up, so a lease costs one move for each of its visibility timeouts.
    """

    def __init__(self) -> None:
        self._heap = LeaseHeap()

    def watch(self, lease: Lease) -> None:
        """Look after a lease from now on, or after its new expiry."""
        self._heap.put(lease, lease.expires_at)

    def discard(self, lease: Lease) -> None:
        """Look after a lease no more."""
        self._heap.discard(lease)

    def next_time(self) -> float | None:
        """Return when the next lease expires, or None."""
        while (first := self._heap.first()) is not None:
            time, lease = first
            is_watched = _may_expire(lease)
            if is_watched and lease.expires_at <= time:
                return time
            self._heap.pop()
            if is_watched:
                self._heap.put(lease, lease.expires_at)
        return None

    def pop_expired(self, now: float) -> Iterator[Lease]:
        """Take out the leases that have expired by `now`."""
        while (time := self.next_time()) is not None and time <= now:
            yield self._heap.pop()


def _may_expire(lease: Lease) -> bool:
    """Return whether something is to be done when it expires.

    Of one that is held, it is reported; a task that opted out expects it. One that is to be
    released lapses, unless its release is under way.
    """
    if lease.goal is Goal.RELEASE:
        return lease.pending is None
    return (
        lease.goal is Goal.HOLD
        and lease.terms.extend
        and lease.status in (LeaseStatus.OWNED, LeaseStatus.REFUSED)
    )
