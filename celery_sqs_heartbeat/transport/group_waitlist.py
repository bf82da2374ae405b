"""Messages of FIFO queues that wait for another of their group.

With `fifo_batch` above 1, one receive may bring several messages of a group, and a pool would run
them side by side. So only the first goes to Celery. The others wait here: leased, but with no
prefetch slot and no request. The next goes once SQS has confirmed the delete of the one before it,
not when its task has ended: after a delete that failed, that one comes again, and none behind it
may have run. Which messages a failure sends back with it, the keeper knows (`leases.group_order`);
here they are only passed over.

We considered a queue of requests in front of the pool: each would take a prefetch slot, and Celery
would count it as reserved. To receive one message at a time is simpler, and the default; but short
tasks in long groups then cost a receive each.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from celery_sqs_heartbeat.leases import policy
from celery_sqs_heartbeat.leases.group_order import GROUP_STOPPED, NO_ROOM, WAITED_LONG
from celery_sqs_heartbeat.leases.lease import Goal, Lease
from celery_sqs_heartbeat.transport.keeper_protocol import Keeper
from celery_sqs_heartbeat.transport.kombu_channel import Payload


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    """One message.

    Attributes:
        queue: As Celery calls it.
        ahead: The lease on the message before it, where that came with it.
        deliver: Hands it to its consumer.
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

    Used where messages are delivered, on the worker's event loop, but for `wake`.

    A message that is the first of its group in an answer may wait where there is no room, too, if
    no other of its group does. SQS hands it out only when the one ahead is deleted there, or is
    lost here, and it waits until this worker hears so. At most one of each group waits beyond the
    limit. To release it would cost it a receive, though it is the one message that a receive always
    asks for: with a small `maxReceiveCount` it would become a dead letter that never ran.

    Args:
        limit: How many may wait, but for those.

    Attributes:
        call_soon: Calls a function where messages are delivered.
    """

    def __init__(self, *, keeper: Keeper, limit: int) -> None:
        self.call_soon: Callable[[Callable[[], object]], object] = lambda call: call()
        self._keeper = keeper
        self._limit = limit
        self._waiting: dict[tuple[str, str | None], deque[_Waiting]] = {}
        self._is_called = False

    def __len__(self) -> int:
        return sum(len(waiting) for waiting in tuple(self._waiting.values()))

    @property
    def most_wanted(self) -> int:
        """How many messages a receive may bring, so that all that must wait have room."""
        return 1 + max(0, self._limit - len(self))

    @property
    def next_up(self) -> int:
        """How many are delivered soon, as the delete of the one ahead is under way."""
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
            deliver: Is to be given each of the others when its turn has come.
        """
        ready = []
        ahead: dict[str | None, Lease] = {}
        for payload in payloads:
            tag = tag_of(payload)
            lease = self._keeper.find(tag)
            if lease is None:
                # It went back with the one before it, and SQS has confirmed that.
                continue
            if not lease.is_in_order:
                ready.append(payload)
                continue
            if lease.goal is not Goal.HOLD:
                # Released with the one before it.
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
        """Have messages delivered whose turn has come, soon. Call it from any thread."""
        if self._waiting and not self._is_called:
            self._is_called = True
            self.call_soon(self.deliver_due)

    def look(self) -> None:
        """Do so, also where an earlier call was lost, as with a connection."""
        self._is_called = False
        self.wake()

    def deliver_due(self) -> None:
        """Deliver the messages whose turn has come."""
        self._is_called = False
        for key in tuple(self._waiting):
            for waiting in self._due(key):
                waiting.deliver(waiting.payload)

    def leave(self, cause: str, queue: str | None = None) -> None:
        """Release all that wait: of one queue, or of all."""
        for key, group in tuple(self._waiting.items()):
            if queue is None or all(each.queue == queue for each in group):
                self._waiting.pop(key, None)
                for each in reversed(group):
                    self._release(each, cause)

    def _due(self, key: tuple[str, str | None]) -> Iterator[_Waiting]:
        """Take out and yield what may be delivered of one group."""
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
                # It went back with one before it.
                continue
            if not (self._keeper.owns(first.tag) and first.lease.is_exclusive):
                # A FIFO queue takes no handle that has expired once.
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
