"""Finds when the next lease expires, no matter what its calls do."""

from __future__ import annotations

from collections.abc import Iterator

from celery_sqs_heartbeat.leases.heap import LeaseHeap, LeasePlaces
from celery_sqs_heartbeat.leases.lease import Goal, Lease, LeaseStatus


class ExpiryWatch:
    """Finds leases that have expired, even if their call is never answered.

    It is lazy: an extension does not touch the heap. When the entry of an extended lease reaches
    the top, it moves to the new expiry. So a lease costs one move per visibility timeout.
    """

    def __init__(self) -> None:
        self._places = LeasePlaces("expires_as")
        self._heap = LeaseHeap(self._places)

    def watch(self, lease: Lease) -> None:
        """Watch a lease from now on, with its current expiry."""
        self._heap.put(lease, lease.expires_at)

    def discard(self, lease: Lease) -> None:
        """Stop watching a lease."""
        self._places.leave(lease)

    def next_time(self) -> float | None:
        """Return when the next lease expires, or None."""
        while (first := self._heap.first()) is not None:
            time, lease = first
            if not _may_expire(lease):
                self._places.leave(lease)
            elif lease.expires_at <= time:
                return time
            else:
                self._heap.postpone(lease, lease.expires_at)
        return None

    def pop_expired(self, now: float) -> Iterator[Lease]:
        """Remove and yield the leases that have expired by `now`."""
        while (time := self.next_time()) is not None and time <= now:
            yield self._heap.pop()


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
