"""The events of a book's leases, until the keeper reports them."""

from __future__ import annotations

from celery_sqs_heartbeat.leases.calls import Answer
from celery_sqs_heartbeat.leases.events import Event, EventKind
from celery_sqs_heartbeat.leases.group_order import GroupOrder
from celery_sqs_heartbeat.leases.lease import Lease

_GOING_BACK = frozenset({EventKind.MESSAGE_RELEASED, EventKind.MESSAGE_LAPSING})
#: Too frequent to be worth a wake-up: they are only recorded.
_NO_NEWS = frozenset({EventKind.MESSAGE_RECEIVED, EventKind.TASK_STARTED})


class EventBuffer:
    """Collects events, in their order.

    Args:
        order: Knows which leases stop a message group, and is notified of each event.
    """

    def __init__(self, order: GroupOrder) -> None:
        self._order = order
        self._events: list[Event] = []
        self._has_any = False

    def __bool__(self) -> bool:
        """Whether `take` would return any event that is worth a wake-up."""
        return self._has_any

    def report(
        self,
        kind: EventKind,
        lease: Lease,
        now: float,
        answer: Answer | None = None,
        cause: str = "",
    ) -> None:
        """Add an event of a lease.

        Args:
            answer: The answer of SQS that caused it, if any.
            cause: The reason in a word or two, for the log, the metrics and the journal.
        """
        stops_group = kind in _GOING_BACK and self._order.is_stopped_by(lease)
        self._events.append(Event.of(kind, lease, now, answer, cause, stops_group=stops_group))
        self._has_any = self._has_any or kind not in _NO_NEWS
        self._order.note(kind, lease)

    def take(self) -> list[Event]:
        """Return the events since the last call of this method."""
        events, self._events, self._has_any = self._events, [], False
        return events
