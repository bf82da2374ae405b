"""What is observed of a worker: its keeper, the polls of its queues, and stopped groups."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.leases.events import Event, EventKind, KeeperHealth
from celery_sqs_heartbeat.leases.lease import LeaseView
from celery_sqs_heartbeat.leases.message import queue_name

#: A queue counts as deaf if its polls have failed for this long, in seconds, ...
DEAF_SECONDS = 60.0
#: ... and at least this many in a row. A single one may be caused by a lost NAT entry, and the next
#: poll has a new connection.
DEAF_AFTER = 2

#: How many groups are remembered. If there are more, those that stopped first are forgotten.
CAPACITY = 1_000
#: How long a group is remembered after its message became visible again, in seconds. From then on
#: any worker may receive it, and this one does not learn of it.
AFTERTIME = 60.0

_GOES_ON = frozenset({EventKind.MESSAGE_RECEIVED, EventKind.MESSAGE_DELETED})


class Watched(Protocol):
    """A keeper: a `LeaseKeeper`, or a worker's view of one in another process."""

    @property
    def health(self) -> KeeperHealth:
        """Its health. Never waits, even if the keeper hangs."""

    def snapshot(self) -> Sequence[LeaseView]:
        """Return a view of every lease, all at the same moment."""

    def now(self) -> float:
        """Return the time of its clock, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolledQueue:
    """The state of one queue's polls at one moment.

    Attributes:
        last_answered_age: Seconds since its last answered poll, or since its first poll if none was
            answered; None if nothing consumes from it any more.
        unanswered: How many of its polls failed: SQS refused them, or could not be reached, or did
            not answer in time.
        deaf: Whether they have failed for `DEAF_SECONDS`.
    """

    queue: str
    last_answered_age: float | None
    unanswered: int
    deaf: bool


class _Queue:
    def __init__(self, queue_url: str, now: float) -> None:
        self.url = queue_url
        self.is_consumed = True
        self.answered_at = now
        self.unanswered = 0
        self.unanswered_in_a_row = 0
        # The first and the last of those in a row.
        self.failing_since = self.failed_at = 0.0

    @property
    def is_deaf(self) -> bool:
        lasts = self.failed_at - self.failing_since >= DEAF_SECONDS
        return lasts and self.unanswered_in_a_row >= DEAF_AFTER


class PolledQueues:
    """Notes when each queue's last poll was answered, for health and metrics.

    Only polls count. A worker that does not poll, because it is full or runs a task of a solo
    pool, is not deaf, whatever happened to its last polls. The threads of the polls write, under
    the worker's own names for the queues. Any thread may read.
    """

    def __init__(self, now: Callable[[], float] = clock.now) -> None:
        self._now = now
        self._queues: dict[str, _Queue] = {}

    def asked(self, name: str, queue_url: str) -> None:
        """Note that a queue is polled."""
        now = self._now()
        queue = self._queues.setdefault(name, _Queue(queue_url, now))
        if not queue.is_consumed:
            queue.is_consumed = True
            if not queue.unanswered_in_a_row:
                queue.answered_at = now

    def answered(self, name: str) -> None:
        """Note that SQS answered a poll, with or without messages. An error is not an answer."""
        queue = self._queues.get(name)
        if queue is not None and queue.is_consumed:
            queue.answered_at = self._now()
            queue.unanswered_in_a_row = 0

    def unanswered(self, name: str, sent_at: float) -> None:
        """Note that a poll failed, and when it was sent."""
        queue = self._queues[name]
        queue.unanswered += 1
        queue.unanswered_in_a_row += 1
        queue.failed_at = self._now()
        if queue.unanswered_in_a_row == 1:
            queue.failing_since = sent_at

    def wait(self, name: str) -> None:
        """Note that the queue is not polled until there is room for more messages.

        Until then it is not deaf. Afterwards the next unanswered poll makes it deaf again: SQS may
        answer by then, and a worker that is full now and then must not hide that SQS does not.
        """
        if queue := self._queues.get(name):
            queue.unanswered_in_a_row = min(queue.unanswered_in_a_row, DEAF_AFTER - 1)

    def rest(self, name: str) -> None:
        """Note that nothing consumes from the queue any more.

        It stays deaf: the consumer may be the next one of the same queue, after a lost connection.
        """
        if queue := self._queues.get(name):
            queue.is_consumed = False

    def rest_all(self) -> None:
        """Note that no queue is consumed from any more, because the worker is ending."""
        for queue in list(self._queues.values()):
            queue.is_consumed = False
            queue.unanswered_in_a_row = 0

    def view(self) -> list[PolledQueue]:
        """Return the state of each queue."""
        now = self._now()
        return [
            PolledQueue(
                queue=queue_name(queue.url),
                last_answered_age=max(0.0, now - queue.answered_at)
                if queue.is_consumed or queue.unanswered_in_a_row
                else None,
                unanswered=queue.unanswered,
                deaf=queue.is_deaf,
            )
            for queue in list(self._queues.values())
        ]


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
                is_released = event.kind is EventKind.MESSAGE_RELEASED
                hidden_for = event.visibility_timeout if is_released else max(0.0, event.slack)
                self._stopped[key] = StoppedGroup(event, event.at + hidden_for)
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
