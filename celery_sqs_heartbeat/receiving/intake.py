"""What one channel has received: leased here, and handed over as soon as its tasks may start.

A message of an answer is handed over if it is new, certainly ours, and the first of its group. What
must wait, waits here, with its lease. Room is a credit: its owner says up to which number, counted
from the first, it can use messages. Polls follow it. What they bring beyond it is handed over, too,
because it would die with this process.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from celery_sqs_heartbeat.common.escaping import counted, get_logger
from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.events import ARRIVED_LATE, NOT_DELIVERED
from celery_sqs_heartbeat.leases.lease import Goal
from celery_sqs_heartbeat.leases.message import (
    GROUP_STOPPED,
    Arrived,
    Message,
    group_of,
    sequence_number_of,
    task_of,
)
from celery_sqs_heartbeat.leases.policy import is_confirmed
from celery_sqs_heartbeat.leases.received_as import ReceivedAs
from celery_sqs_heartbeat.receiving.group_waitlist import GroupWaitlist
from celery_sqs_heartbeat.sqs.queues import ConsumedQueue

logger = get_logger(__name__)

#: Why messages of a consumer that has ended are released.
CLOSED = "consumer closed"
_NOT_OURS = (ReceivedAs.LAPSED, ReceivedAs.RELEASED)
_NOT_STARTED = {
    ReceivedAs.REDELIVERED: (
        "it was received again, and already runs or waits here; its lease continues"
    ),
    ReceivedAs.FINISHED: "it was received again after its task was done; it is deleted",
    ReceivedAs.RELEASED: "an earlier release of it is unanswered and may end its lease any time",
    ReceivedAs.LAPSED: "it arrived after its visibility timeout had ended, or may have ended",
}


@dataclass(eq=False)
class _Batch:
    """The new messages of one answer, until it is certain of each whether it is ours.

    Attributes:
        hidden_until: The earliest end of their visibility timeout, as their receive began it, in
            seconds of the keeper's clock.
        arrived_at: When it arrived, in seconds of that clock, too.
    """

    queue: ConsumedQueue
    left: deque[Arrived] = field(repr=False)
    hidden_until: float
    arrived_at: float
    ours: list[Arrived] = field(default_factory=list, repr=False)


@dataclass(eq=False, kw_only=True, repr=False)
class Intake:
    """Leases the messages of a channel's receives, and hands them over. For any thread.

    Attributes:
        waitlist: The messages that wait for another of their group, of all channels.
        lock: Guards `waitlist` and everything here.
        hand_over: Takes messages that may start now, and returns how many of them have ended by
            then. Called without the lock.
        keep: Takes the new messages of an answer that are not handed over with it, likewise.
        release_one: Makes a message visible again that no one takes. Called with it and the cause.
        heir: Returns what takes the messages of a queue now; None if no channel consumes from it.
    """

    keeper: ThreadKeeper
    waitlist: GroupWaitlist
    lock: threading.RLock
    hand_over: Callable[[list[Arrived]], int]
    keep: Callable[[list[Arrived]], object]
    release_one: Callable[[Message, str], object]
    heir: Callable[[str], Intake | None]

    def __post_init__(self) -> None:
        self._batches: list[_Batch] = []
        self._ready: list[Arrived] = []
        self._limit = self._handed_over = 0
        self._ended: set[str] = set()

    @property
    def room(self) -> int:
        """How many more messages can be used, beside those that are held here."""
        arriving = sum(len(each.left) + len(each.ours) for each in tuple(self._batches))
        held = arriving + len(self._ready) + self.waitlist.next_up
        return self._limit - self._handed_over - held

    @property
    def free(self) -> int:
        """How many more messages can be used."""
        return self._limit - self._handed_over

    @property
    def is_unsure(self) -> bool:
        """Whether SQS must confirm an extension before messages may be handed over."""
        return bool(self._batches)

    def allow(self, limit: int) -> None:
        """Set how many messages the channel can use in all. It may be less than before."""
        self._limit = limit

    def begin(self, *queues: str) -> None:
        """Hand messages of queues over, which may have ended before."""
        self._ended.difference_update(queues)

    def end(self, queues: Sequence[str], cause: str = CLOSED) -> None:
        """Hand no more messages of queues over. Release those that wait.

        Args:
            cause: Why those that wait for another of their group are released.
        """
        # All at once: meanwhile, no message may begin to wait for its group.
        with self.lock:
            for queue in queues:
                self.waitlist.leave(cause, queue)
            self._ended.update(queues)
            self._release_ended()

    def take(
        self,
        queue: ConsumedQueue,
        messages: Sequence[Message],
        *,
        sent_at: float,
    ) -> None:
        """Lease the messages of an answer, and hand over those that may start.

        Args:
            queue: As it was when its receive was sent.
            sent_at: When that was, in seconds of the keeper's clock.
        """
        if queue.name in self._ended:
            take = self._refuse if (heir := self.heir(queue.name)) is None else heir.take
            take(queue, messages, sent_at=sent_at)
            return
        fresh = self._lease_all(queue, messages, sent_at)
        now = self.keeper.now()
        with self.lock:
            if fresh:
                self._batches.append(
                    _Batch(queue, deque(fresh), sent_at + (queue.timeout or 0), now)
                )
        over = self.look()
        if kept := [each for each in fresh if each not in over and self._is_held(each)]:
            self.keep(kept)

    def _refuse(self, queue: ConsumedQueue, messages: Sequence[Message], *, sent_at: float) -> None:
        """Release the messages of an answer that no one takes."""
        with self.keeper.gathering():
            new = [
                each for each in messages if self._lease(queue, each, sent_at)[0] is ReceivedAs.NEW
            ]
            # The last message of a group first.
            for message in reversed(new):
                self.release_one(message, NOT_DELIVERED)
        logger.info(
            "sqs-heartbeat: released %s received from %s without a consumer",
            counted(len(messages), "message"),
            queue.name,
        )

    def look(self) -> list[Arrived]:
        """Hand over what may start by now. Return it."""
        with self.lock:
            # First: no message of a consumer that has ended may begin to wait for its group.
            self._release_ended()
            dropped = [each for batch in tuple(self._batches) for each in self._go_through(batch)]
            self.waitlist.take_due()
            self._release_ended()
            over = [each for each in self._ready if self._is_held(each)]
            self._ready.clear()
            self._handed_over += len(over)
        if over and (missed := self.hand_over(over)):
            with self.lock:
                self._handed_over -= missed
        for arrived in dropped:
            logger.warning(
                "sqs-heartbeat: message %s of %s is not started: too little was left of its "
                "visibility timeout when it arrived, and SQS confirmed no extension",
                arrived.lease.message_id,
                arrived.queue,
            )
        return over

    def _lease_all(
        self, queue: ConsumedQueue, messages: Iterable[Message], sent_at: float
    ) -> list[Arrived]:
        """Lease the messages of an answer. Return those that are new.

        If a message is left to SQS, the later messages of its group are released, because SQS
        must deliver them after it.
        """
        fresh: list[Arrived] = []
        new: list[Message] = []
        behind: list[str] = []
        left_to_sqs: set[str | None] = set()
        lines = []
        try:
            with self.keeper.gathering():
                for message in messages:
                    receipt, task, task_id = self._lease(queue, message, sent_at)
                    is_fifo = sequence_number_of(message) is not None
                    handle = message["ReceiptHandle"]
                    if receipt is not ReceivedAs.NEW:
                        lines.append((receipt, message["MessageId"], task, task_id))
                        if is_fifo and receipt in _NOT_OURS:
                            left_to_sqs.add(group_of(message))
                        continue
                    new.append(message)
                    if is_fifo and group_of(message) in left_to_sqs:
                        behind.append(handle)
                    elif (lease := self.keeper.find(handle)) is not None:
                        fresh.append(Arrived(queue=queue.name, message=message, lease=lease))
                for handle in reversed(behind):
                    self.keeper.release(handle, cause=GROUP_STOPPED)
        except BaseException:
            # Otherwise they would be extended, and no one would run them.
            for each in reversed(new):
                self.release_one(each, NOT_DELIVERED)
            raise
        for receipt, message_id, task, task_id in lines:
            logger.log(
                logging.WARNING if receipt in _NOT_OURS else logging.INFO,
                "sqs-heartbeat: message %s of %s, task %s[%s], is not started: %s",
                message_id,
                queue.name,
                task,
                task_id,
                _NOT_STARTED[receipt],
            )
        return fresh

    def _lease(
        self, queue: ConsumedQueue, message: Message, sent_at: float
    ) -> tuple[ReceivedAs, str | None, str | None]:
        task, task_id = task_of(message)
        receipt = self.keeper.receive(
            queue.lease_url,
            message,
            terms=queue.terms_of(task),
            # If the timeout is not known, the lease is extended at once, and it is known then.
            hidden_for=queue.timeout or 0,
            sent_at=sent_at,
            max_receive_count=queue.max_receive_count,
            task=task,
            task_id=task_id,
        )
        return receipt, task, task_id

    def _go_through(self, batch: _Batch) -> list[Arrived]:
        """Look which messages of an answer are ours. Return those that are dropped.

        Normally all are. After a long poll or a standstill of the process, too little may be left.
        Then a message is ours once SQS has confirmed an extension. The others wait for it, to keep
        their order.
        """
        dropped: list[Arrived] = []
        while batch.left:
            is_ours = self._is_ours(batch, batch.left[0])
            if is_ours is None:
                return dropped
            arrived = batch.left.popleft()
            if is_ours:
                batch.ours.append(arrived)
            elif self._is_held(arrived):
                self.keeper.let_expire(arrived.handle, ARRIVED_LATE)
                dropped.append(arrived)
        self._batches.remove(batch)
        self._ready += self.waitlist.hold_back(batch.ours, take=self._ready.append)
        return dropped

    def _is_ours(self, batch: _Batch, arrived: Arrived) -> bool | None:
        """Return whether a message is ours for at least the threshold; None if not known yet."""
        if not self._is_held(arrived):
            # Released with an earlier message of its group.
            return False
        threshold = arrived.lease.terms.threshold
        if batch.arrived_at + threshold <= batch.hidden_until:
            return True
        now = self.keeper.now()
        is_ours = is_confirmed(arrived.lease, now, batch.hidden_until)
        if is_ours is None and now >= batch.arrived_at + max(1.0, threshold):
            return False
        return is_ours

    def _is_held(self, arrived: Arrived) -> bool:
        lease = arrived.lease
        return self.keeper.find(arrived.handle) is lease and lease.goal is Goal.HOLD

    def _release_ended(self) -> None:
        """Release the messages whose consumer has ended, the last one first."""
        for batch in [each for each in self._batches if each.queue.name in self._ended]:
            self._batches.remove(batch)
            self._release([*batch.ours, *batch.left])
        ended = [each for each in self._ready if each.queue in self._ended]
        for each in ended:
            self._ready.remove(each)
        self._release(ended)

    def _release(self, messages: Sequence[Arrived]) -> None:
        for arrived in reversed(messages):
            if self._is_held(arrived):
                self.release_one(arrived.message, NOT_DELIVERED)
