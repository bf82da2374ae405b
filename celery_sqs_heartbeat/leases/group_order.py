"""The order of each message group of a FIFO queue, and what stops it."""

from __future__ import annotations

from bisect import insort

from celery_sqs_heartbeat.leases.events import EventKind
from celery_sqs_heartbeat.leases.lease import Goal, Lease

#: Why a message is released that waited behind another of its group.
GROUP_STOPPED = "group stopped"
#: Why one is that has waited until its lease is near its end.
WAITED_LONG = "waited long"
#: Why one is that there was no room for.
NO_ROOM = "no room to wait"
#: Of messages that waited for another: what stopped their group is that one, if anything.
_BEHIND = frozenset({GROUP_STOPPED, WAITED_LONG, NO_ROOM})

#: After these a message may be someone else's at any moment.
_LOSSES = frozenset({EventKind.LEASE_EXPIRED, EventKind.LEASE_LOST, EventKind.LEASE_CAPPED})


class GroupOrder:
    """The leases of each message group, in the order in which SQS hands out their messages.

    A message that does not end with a confirmed delete stops its group: those behind it are to be
    released, the last one first, as SQS is to hand it out before them. A lease that may be someone
    else's has no place any more: SQS decides what comes next. Likewise, what comes after a message
    whose release is not confirmed yet does not wait for it: SQS would have handed that out first.

    Only leases that are kept in order have a place, see `Lease.is_in_order`. Of one group there are
    ten at most: SQS returns no more of it while one of its messages is hidden. Not thread-safe.
    """

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str | None], list[Lease]] = {}
        self._stopped: list[tuple[Lease, str]] = []

    def add(self, lease: Lease) -> None:
        """Give a lease its place; nothing where it has one, or is not kept in order."""
        if lease.is_in_order:
            lease.has_place = True
            group = self._groups.setdefault(_key(lease), [])
            if lease not in group:
                insort(group, lease, key=_position)

    def first(self, lease: Lease) -> Lease | None:
        """Return the first lease of a lease's group, or None."""
        group = self._groups.get(_key(lease))
        return group[0] if group else None

    def waits_behind(self, lease: Lease) -> bool:
        """Return whether another of its group comes before a lease."""
        return lease.is_in_order and any(
            each.goal is not Goal.RELEASE and _position(each) < _position(lease)
            for each in self._groups.get(_key(lease), [])
        )

    def behind(self, lease: Lease) -> list[Lease]:
        """Return those of its group that come after a lease, the last one first.

        None of them where it has no place itself.
        """
        group = self._groups.get(_key(lease), [])
        return group[: group.index(lease) : -1] if lease in group else []

    def is_stopped_by(self, lease: Lease) -> bool:
        """Return whether a lease that is given back is what stops its group."""
        return lease.is_in_order and lease.cause not in _BEHIND and not self.waits_behind(lease)

    def stop_behind(self, lease: Lease) -> None:
        """Have those behind a lease released."""
        self._stopped += [(each, GROUP_STOPPED) for each in self.behind(lease)]

    def end(self, lease: Lease, *, is_deleted: bool) -> None:
        """Take a lease out that has ended.

        Args:
            is_deleted: Whether SQS has confirmed the delete of its message.
        """
        # One that is to be released has stopped its group before.
        if not (is_deleted or lease.goal is Goal.RELEASE):
            self.stop_behind(lease)
        lease.has_place = False
        group = self._groups.get(_key(lease), [])
        if lease in group:
            group.remove(lease)
            if not group:
                del self._groups[_key(lease)]

    def note(self, kind: EventKind, lease: Lease) -> None:
        """Take in what has happened to a lease."""
        if kind in _LOSSES:
            self.end(lease, is_deleted=False)
        elif kind is EventKind.LEASE_CAP_NEAR and self.waits_behind(lease):
            # It would start with too little left. What is received again has all its time.
            self.stop_behind(lease)
            self._stopped.append((lease, WAITED_LONG))

    def note_before_receive(self, kind: EventKind, lease: Lease) -> None:
        """Take in what had happened to a lease when its message was received again.

        It has its place by that receive. What is behind it since an earlier one is not ours any
        more: SQS hands out none of a group while another of it is hidden.
        """
        if kind in _LOSSES:
            behind = self.behind(lease)
            outdated = [each for each in behind if each.received_at < lease.received_at]
            self._stopped += [(each, GROUP_STOPPED) for each in outdated]

    def take_stopped(self) -> list[tuple[Lease, str]]:
        """Return the leases to release, in this order, each with the cause."""
        stopped, self._stopped = self._stopped, []
        return stopped


def _key(lease: Lease) -> tuple[str, str | None]:
    return (lease.queue_url, lease.group)


def _position(lease: Lease) -> int:
    return int(lease.sequence_number or 0)
