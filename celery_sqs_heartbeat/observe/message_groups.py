"""Which message groups wait, and which have stopped because their message was released."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Set
from typing import NamedTuple

from celery_sqs_heartbeat.leases.events import Event, EventKind
from celery_sqs_heartbeat.leases.lease import Goal, LeaseView
from celery_sqs_heartbeat.leases.message import queue_name

#: How many groups are remembered. If there are more, those that stopped first are forgotten.
CAPACITY = 1_000
#: How long a group is remembered after its message became visible again, in seconds. From then on
#: any worker may receive it, and this one does not learn of it.
AFTERTIME = 60.0

_GOES_ON = frozenset({EventKind.MESSAGE_RECEIVED, EventKind.MESSAGE_DELETED})


class StoppedGroup(NamedTuple):
    """A group that waits for a message.

    Attributes:
        event: The end of that message's lease.
        visible_at: When SQS shows the message again, in monotonic seconds.
    """

    event: Event
    visible_at: float


class StoppedGroups:
    """The groups that have stopped, as far as this worker knows. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stopped: OrderedDict[tuple[str, str | None], StoppedGroup] = OrderedDict()

    def note(self, event: Event) -> None:
        """Note an event. A receive of a message of the group shows that it continues."""
        if not event.stops_group and event.kind not in _GOES_ON:
            return
        key = (event.queue_url, event.group)
        with self._lock:
            self._stopped.pop(key, None)
            if event.stops_group:
                self._stopped[key] = StoppedGroup(event, event.at + _hidden_for(event))
                if len(self._stopped) > CAPACITY:
                    self._stopped.popitem(last=False)

    def view(self, now: float) -> list[StoppedGroup]:
        """Return the groups, latest stop first."""
        with self._lock:
            for key, stopped in tuple(self._stopped.items()):
                if now > stopped.visible_at + AFTERTIME:
                    del self._stopped[key]
            return list(reversed(self._stopped.values()))

    def hidden(self, now: float) -> Mapping[str, int]:
        """Return, by queue name, how many groups wait for a message that is still hidden."""
        return Counter(
            queue_name(stopped.event.queue_url)
            for stopped in self.view(now)
            if stopped.visible_at > now
        )


def _hidden_for(event: Event) -> float:
    if event.kind is EventKind.MESSAGE_RELEASED:
        return event.visibility_timeout
    return max(0.0, event.slack)


#: A message: its queue's URL and its id.
Key = tuple[str, str]


def key_of(lease: LeaseView) -> Key:
    """Return the key that identifies a lease."""
    return (lease.queue_url, lease.message_id)


def behind_others(leases: Iterable[LeaseView]) -> Set[Key]:
    """Return the held leases that are not the first of their group.

    Args:
        leases: All of a keeper.
    """
    firsts: dict[tuple[str, str | None], int] = {}
    ordered = [lease for lease in leases if lease.is_in_order]
    for lease in ordered:
        group, place = _group(lease), _place(lease)
        firsts[group] = min(place, firsts.get(group, place))
    return {
        key_of(lease)
        for lease in ordered
        if lease.goal is Goal.HOLD and _place(lease) > firsts[_group(lease)]
    }


def count_groups(leases: Iterable[LeaseView]) -> int:
    """Return the number of ordered message groups that have leases."""
    return len({_group(lease) for lease in leases if lease.is_in_order})


def _group(lease: LeaseView) -> tuple[str, str | None]:
    return (lease.queue_url, lease.group)


def _place(lease: LeaseView) -> int:
    return int(lease.sequence_number or 0)
