"""Messages of FIFO queues that wait for another of their group.

With `fifo_batch` above 1, one receive may return several messages of a group, and a pool would run
them side by side. So Celery gets only the first. The others wait here: leased, but without a
prefetch slot or a request. Celery gets the next one when SQS has confirmed the delete of the
message before it. The end of its task is not enough: if the delete fails, that message is received
again, and none behind it may have run by then. The keeper decides which waiting messages are
released when one fails (`leases.group_order`). They are only skipped here.

We considered a queue of requests in front of the pool. Each would take a prefetch slot, and Celery
would count it as reserved. Receiving one message at a time is simpler, and the default. But then
each short task in a long group costs a receive.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from celery_sqs_heartbeat.leases import policy
from celery_sqs_heartbeat.leases.group_order import GROUP_STOPPED, NO_ROOM, WAITED_LONG
from celery_sqs_heartbeat.leases.lease import Goal, Lease
from celery_sqs_heartbeat.link.client import LinkedKeeper
from celery_sqs_heartbeat.transport.kombu_channel import Payload


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    """One waiting message.

    Attributes:
        queue: Celery's name for its queue.
        ahead: The lease on the message before it, if both arrived in one answer.
        deliver: Delivers it to its consumer.
    """

    payload: Payload = field(repr=False)
    lease: Lease
    queue: str
    ahead: Lease | None
    deliver: Callable[[Payload], object] = field(repr=False)

    @property
    def tag(self) -> str:
        return tag_of(self.payload)


class GroupWaitlist:
    """The messages of one worker that wait for their turn.

    It is used where messages are delivered, on the worker's event loop, except for `wake`.

    The first message of its group in an answer may wait beyond the limit if no other message of
    its group waits. SQS delivers it only if the message ahead of it is deleted at SQS or its lease
    is lost, so it waits only until this worker learns of that. So at most one message of each group
    waits beyond the limit. A release would cost it a receive, although each receive must request at
    least one message. With a small `maxReceiveCount` it would become a dead letter that never ran.

    Args:
        limit: How many messages may wait, not counting those beyond the limit.

    Attributes:
        call_soon: Calls a function where messages are delivered.
    """

    def __init__(self, *, keeper: LinkedKeeper, limit: int) -> None:
        self.call_soon: Callable[[Callable[[], object]], object] = lambda call: call()
        self._keeper = keeper
        self._limit = limit
        self._waiting: dict[tuple[str, str | None], deque[_Waiting]] = {}
        self._is_called = False

    def __len__(self) -> int:
        return sum(len(waiting) for waiting in tuple(self._waiting.values()))

    @property
    def most_wanted(self) -> int:
        """How many messages a receive may return without exceeding the room to wait."""
        return 1 + max(0, self._limit - len(self))

    @property
    def has_room(self) -> bool:
        """Whether another message may wait within the limit."""
        return len(self) < self._limit

    @property
    def next_up(self) -> int:
        """How many will be delivered soon, because the message ahead is being deleted."""
        return sum(
            waiting[0].ahead is not None and waiting[0].ahead.goal is not Goal.HOLD
            for waiting in tuple(self._waiting.values())
            if waiting
        )

    def hold_back(
        self, payloads: Iterable[Payload], *, queue: str, deliver: Callable[[Payload], object]
    ) -> list[Payload]:
        """Return the messages that may be delivered now. The others wait, in their order.

        Args:
            deliver: Is called with each of the others when its turn comes.
        """
        ready = []
        ahead: dict[str | None, Lease] = {}
        for payload in payloads:
            tag = tag_of(payload)
            lease = self._keeper.find(tag)
            if lease is None:
                # Released with the message before it, which SQS has confirmed.
                continue
            if not lease.is_in_order:
                ready.append(payload)
                continue
            if lease.goal is not Goal.HOLD:
                # Released with the message before it.
                continue
            key = (lease.queue_url, lease.group)
            is_alone = lease.group not in ahead and key not in self._waiting
            if not self._keeper.waits_behind(tag):
                ready.append(payload)
            elif len(self) >= self._limit and not is_alone:
                self._keeper.release(tag, cause=NO_ROOM)
            else:
                self._waiting.setdefault(key, deque()).append(
                    _Waiting(
                        payload=payload,
                        lease=lease,
                        queue=queue,
                        ahead=ahead.get(lease.group),
                        deliver=deliver,
                    )
                )
            ahead[lease.group] = lease
        return ready

    def wake(self) -> None:
        """Schedule the delivery of messages whose turn has come. Can be called from any thread."""
        if self._waiting and not self._is_called:
            self._is_called = True
            self.call_soon(self.deliver_due)

    def look(self) -> None:
        """Do as `wake`, even if an earlier call is pending: a lost connection may have lost it."""
        self._is_called = False
        self.wake()

    def deliver_due(self) -> None:
        """Deliver the messages whose turn has come."""
        self._is_called = False
        for key in tuple(self._waiting):
            for waiting in self._due(key):
                waiting.deliver(waiting.payload)

    def leave(self, cause: str, queue: str | None = None) -> None:
        """Release all waiting messages, of one queue or of all."""
        for key, group in tuple(self._waiting.items()):
            if queue is None or all(each.queue == queue for each in group):
                self._waiting.pop(key, None)
                for each in reversed(group):
                    self._release(each, cause)

    def _due(self, key: tuple[str, str | None]) -> Iterator[_Waiting]:
        """Remove and yield the messages of one group that may be delivered."""
        while group := self._waiting.get(key):
            first = group[0]
            is_left = self._keeper.find(first.tag) is first.lease
            is_held = is_left and first.lease.goal is Goal.HOLD
            if is_held and self._keeper.waits_behind(first.tag):
                return
            group.popleft()
            if not group:
                self._waiting.pop(key, None)
            if not is_held:
                # Released with a message before it.
                continue
            if not (self._keeper.owns(first.tag) and first.lease.is_exclusive):
                # A FIFO queue does not accept a handle that has expired once.
                self._release(first, GROUP_STOPPED)
            elif policy.is_half_over(first.lease, self._keeper.now()):
                self._release(first, WAITED_LONG)
            else:
                yield first

    def _release(self, waiting: _Waiting, cause: str) -> None:
        if self._keeper.find(waiting.tag) is waiting.lease:
            self._keeper.release(waiting.tag, cause=cause)


def tag_of(payload: Payload) -> str:
    """Return the delivery tag of a message: its receipt handle."""
    return str(payload["properties"]["delivery_tag"])
