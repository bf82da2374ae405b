"""The order of each message group of a FIFO queue, and the messages that stop it."""

from __future__ import annotations

from bisect import insort

from celery_sqs_heartbeat.leases.events import EventKind
from celery_sqs_heartbeat.leases.lease import Goal, Lease

#: Cause of releasing a waiting message: an earlier message of its group stopped the group.
GROUP_STOPPED = "group stopped"
#: Cause of releasing a waiting message: its lease is near its end.
WAITED_LONG = "waited long"
#: Cause of releasing a message: there was no room for it to wait.
NO_ROOM = "no room to wait"
#: A message that is released for one of these did not stop its group itself.
_BEHIND = frozenset({GROUP_STOPPED, WAITED_LONG, NO_ROOM})

#: After these events a message may become someone else's at any moment.
_LOSSES = frozenset({EventKind.LEASE_EXPIRED, EventKind.LEASE_LOST, EventKind.LEASE_CAPPED})


class GroupOrder:
    """The leases of each message group, in the order in which SQS delivers their messages.

    A message that does not end with a confirmed delete stops its group. The messages behind it must
    be released, the last one first, so that SQS delivers the stopping message before them. A lease
    whose message may be someone else's loses its place: SQS decides which message comes next. A
    newly received message does not wait for an earlier one whose release is unconfirmed, because
    SQS would have delivered that first.

    Only leases that are kept in order have a place, see `Lease.is_in_order`. A group has at most
    ten: SQS returns no more of its messages while one of them is hidden. Not thread-safe.
    """

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str | None], list[Lease]] = {}
        self._stopped: list[tuple[Lease, str]] = []

    def add(self, lease: Lease) -> None:
        """Give a lease its place, unless it has one or is not kept in order."""
        if lease.is_in_order:
            lease.has_place = True
            group = self._groups.setdefault(_key(lease), [])
            if lease not in group:
                insort(group, lease, key=_position)

    def first(self, lease: Lease) -> Lease | None:
        """Return the first lease of the lease's group, or None."""
        group = self._groups.get(_key(lease))
        return group[0] if group else None

    def waits_behind(self, lease: Lease) -> bool:
        """Return whether a lease must wait for an earlier one of its group."""
        return lease.is_in_order and any(
            each.goal is not Goal.RELEASE and _position(each) < _position(lease)
            for each in self._groups.get(_key(lease), [])
        )

    def behind(self, lease: Lease) -> list[Lease]:
        """Return the leases behind a lease in its group, the last one first.

        The list is empty if the lease has no place.
        """
        group = self._groups.get(_key(lease), [])
        return group[: group.index(lease) : -1] if lease in group else []

    def is_stopped_by(self, lease: Lease) -> bool:
        """Return whether a lease that is released or let expire is the one that stops its group."""
        return lease.is_in_order and lease.cause not in _BEHIND and not self.waits_behind(lease)

    def stop_behind(self, lease: Lease) -> None:
        """Mark the leases behind a lease for release."""
        self._stopped += [(each, GROUP_STOPPED) for each in self.behind(lease)]

    def end(self, lease: Lease, *, is_deleted: bool) -> None:
        """Remove a lease that has ended.

        Args:
            is_deleted: Whether SQS has confirmed the delete of its message.
        """
        # If its goal is release, it has already stopped its group.
        if not (is_deleted or lease.goal is Goal.RELEASE):
            self.stop_behind(lease)
        lease.has_place = False
        group = self._groups.get(_key(lease), [])
        if lease in group:
            group.remove(lease)
            if not group:
                del self._groups[_key(lease)]

    def note(self, kind: EventKind, lease: Lease) -> None:
        """Update the order after an event of a lease."""
        if kind in _LOSSES:
            self.end(lease, is_deleted=False)
        elif kind is EventKind.LEASE_CAP_NEAR and self.waits_behind(lease):
            # It would start with too little time left. After another receive it has all its time.
            self.stop_behind(lease)
            self._stopped.append((lease, WAITED_LONG))

    def take_stopped(self) -> list[tuple[Lease, str]]:
        """Return the leases to release, in the order of release, each with its cause."""
        stopped, self._stopped = self._stopped, []
        return stopped


def _key(lease: Lease) -> tuple[str, str | None]:
    return (lease.queue_url, lease.group)


def _position(lease: Lease) -> int:
    return int(lease.sequence_number or 0)
