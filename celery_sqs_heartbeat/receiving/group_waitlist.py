"""Messages of FIFO queues that wait for another of their group.

With `fifo_batch` above 1, one receive may return several messages of a group, and a pool would run
them side by side. So only the first is handed over. The others wait here: leased, but without a
prefetch slot or a request. The next one is handed over when SQS has confirmed the delete of the
message before it. The end of its task is not enough: if the delete fails, that message is received
again, and none behind it may have run by then. The book releases those behind a message that
fails (`GroupOrder`). They are only skipped here.

We considered a queue of requests in front of the pool. Each would take a prefetch slot, and Celery
would count it as reserved. Receiving one message at a time is simpler, and the default. But then
each short task in a long group costs a receive.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases import policy
from celery_sqs_heartbeat.leases.lease import Goal, Lease
from celery_sqs_heartbeat.leases.message import GROUP_STOPPED, NO_ROOM, WAITED_LONG, Arrived


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    """One waiting message.

    Attributes:
        ahead: The lease on the message before it, if both arrived in one answer.
        take: Is called when its turn has come.
    """

    arrived: Arrived
    ahead: Lease | None
    take: Callable[[Arrived], object] = field(repr=False)


@dataclass(eq=False, kw_only=True, repr=False)
class GroupWaitlist:
    """The messages of one worker that wait for their turn. Its user holds a lock around it.

    The first message of its group in an answer may wait beyond the limit if no other message of
    its group waits. SQS delivers it only if the message ahead of it is deleted at SQS or its lease
    is lost, so it waits only until this worker learns of that. So at most one message of each group
    waits beyond the limit. A release would cost it a receive, although each receive must request at
    least one message. With a small `maxReceiveCount` it would become a dead letter that never ran.

    Attributes:
        limit: How many messages may wait, not counting those beyond the limit.
        poll_left: Returns for how long a release must hide a message from our own open polls, in
            seconds.
    """

    keeper: ThreadKeeper
    limit: int
    poll_left: Callable[[Lease], float] = lambda lease: 0.0
    _waiting: dict[tuple[str, str | None], deque[_Waiting]] = field(
        default_factory=dict, init=False
    )

    def __len__(self) -> int:
        return sum(len(waiting) for waiting in tuple(self._waiting.values()))

    @property
    def most_wanted(self) -> int:
        """How many messages a receive may return without exceeding the room to wait."""
        return 1 + max(0, self.limit - len(self))

    @property
    def has_room(self) -> bool:
        """Whether another message may wait within the limit."""
        return len(self) < self.limit

    @property
    def next_up(self) -> int:
        """How many will be handed over soon, because the message ahead is being deleted."""
        return sum(
            waiting[0].ahead is not None and waiting[0].ahead.goal is not Goal.HOLD
            for waiting in tuple(self._waiting.values())
            if waiting
        )

    def hold_back(
        self, messages: Iterable[Arrived], *, take: Callable[[Arrived], object]
    ) -> list[Arrived]:
        """Return the messages that may be handed over now. The others wait, in their order.

        Args:
            take: Is called with each of the others when its turn comes.
        """
        ready = []
        ahead: dict[str | None, Lease] = {}
        for arrived in messages:
            lease = arrived.lease
            if not lease.is_in_order:
                ready.append(arrived)
                continue
            if lease.goal is not Goal.HOLD or not self._has(arrived):
                # Released with the message before it.
                continue
            key = (lease.queue_url, lease.group)
            is_alone = lease.group not in ahead and key not in self._waiting
            if not self.keeper.waits_behind(arrived.handle):
                ready.append(arrived)
            elif len(self) >= self.limit and not is_alone:
                self._release(arrived, NO_ROOM)
            else:
                waiting = _Waiting(arrived=arrived, ahead=ahead.get(lease.group), take=take)
                self._waiting.setdefault(key, deque()).append(waiting)
            ahead[lease.group] = lease
        return ready

    def take_due(self) -> None:
        """Take the messages whose turn has come."""
        for key in tuple(self._waiting):
            for waiting in self._due(key):
                waiting.take(waiting.arrived)

    def leave(self, cause: str, queue: str) -> None:
        """Release all waiting messages of a queue."""
        for key, group in tuple(self._waiting.items()):
            if all(each.arrived.queue == queue for each in group):
                self._waiting.pop(key, None)
                for each in reversed(group):
                    self._release(each.arrived, cause)

    def _due(self, key: tuple[str, str | None]) -> Iterator[_Waiting]:
        """Remove and yield the messages of one group that may be handed over."""
        while group := self._waiting.get(key):
            first = group[0].arrived
            is_held = self._has(first) and first.lease.goal is Goal.HOLD
            if is_held and self.keeper.waits_behind(first.handle):
                return
            waiting = group.popleft()
            if not group:
                self._waiting.pop(key, None)
            if not is_held:
                # Released with a message before it.
                continue
            if not (self.keeper.owns(first.handle) and first.lease.is_exclusive):
                # A FIFO queue does not accept a handle that has expired once.
                self._release(first, GROUP_STOPPED)
            elif policy.is_half_over(first.lease, self.keeper.now()):
                self._release(first, WAITED_LONG)
            else:
                yield waiting

    def _has(self, arrived: Arrived) -> bool:
        return self.keeper.find(arrived.handle) is arrived.lease

    def _release(self, arrived: Arrived, cause: str) -> None:
        if self._has(arrived):
            self.keeper.release(arrived.handle, self.poll_left(arrived.lease), cause)
