"""Receives for one channel of a worker: its polls, and what happens to their answers.

The threads of the polls begin the leases, whatever the worker does meanwhile. An answer that
arrives after the end of its consumer is released by the thread that reads it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.common.escaping import get_logger
from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.events import least_beside
from celery_sqs_heartbeat.leases.lease import SQS
from celery_sqs_heartbeat.leases.message import Message
from celery_sqs_heartbeat.observe.watched import PolledQueues
from celery_sqs_heartbeat.receiving.group_waitlist import GroupWaitlist
from celery_sqs_heartbeat.receiving.intake import CLOSED, Intake
from celery_sqs_heartbeat.sqs.adapter import BotoSqs
from celery_sqs_heartbeat.sqs.long_polls import Poll, Raw, Receiving, Source
from celery_sqs_heartbeat.sqs.queues import ConsumedQueue
from celery_sqs_heartbeat.sqs.sending import CallGivenUp

logger = get_logger(__name__)

#: How often a poll's thread looks again, in seconds.
_LOOK_SECONDS = 0.02


@dataclass(eq=False, kw_only=True, repr=False)
class Receiver:
    """The polls of one channel, and the messages that they bring.

    Attributes:
        sqs: Makes the receives.
        waitlist: The messages that wait for another of their group, of all channels.
        polled: Records how SQS answers the polls.
        intake: Leases the messages and hands them over.
        all_polls: Returns the open polls of all channels.
        inherited: Returns the open polls of closed channels, whose messages another one takes.
        concurrency: How many tasks the worker runs at once; 0 if not known.
        receiving: Its polls.
    """

    keeper: ThreadKeeper
    sqs: BotoSqs
    waitlist: GroupWaitlist
    polled: PolledQueues
    intake: Intake
    all_polls: Callable[[], Iterable[Poll]]
    inherited: Callable[[], Iterable[Poll]]
    concurrency: int

    def __post_init__(self) -> None:
        self._queues: dict[str, ConsumedQueue] = {}
        self._prefetch_count = 0
        self._has_ended = False
        self.receiving = Receiving(room=self._room, take=self._take)

    def wants(self, queue: str) -> bool:
        """Return whether it receives from a queue."""
        return not self._has_ended and queue in self._queues

    @property
    def polls(self) -> tuple[Poll, ...]:
        """The open polls."""
        return self.receiving.polls

    def consume(self, *queues: ConsumedQueue) -> None:
        """Receive from queues from now on, or continue with what has changed about them."""
        names = [each.name for each in queues if each.name not in self._queues]
        self.intake.begin(*names)
        self._queues.update({each.name: each for each in queues})
        # All at once: a queue that is alone may take the whole room.
        self.receiving.add(*(self._source(self._queues[name]) for name in names))

    def cancel(self, queue: str) -> None:
        """Receive no more messages of a queue, and release those that are not handed over."""
        self._queues.pop(queue, None)
        self.receiving.remove(queue)
        self.polled.rest(queue)
        self.intake.end([queue])

    def stop(self, cause: str = CLOSED) -> None:
        """Receive no more, and release what is not handed over.

        Messages that open polls still return are released, too.

        Args:
            cause: Why the messages that wait for another of their group are released.
        """
        self._has_ended = True
        self.receiving.stop()
        self.intake.end(tuple(self._queues), cause)

    def allow(self, limit: int, prefetch_count: int) -> None:
        """Set how many messages the channel can use in all."""
        self._prefetch_count = prefetch_count
        self.intake.allow(limit)

    def fill(self) -> None:
        """Hand over and receive what there is room for."""
        self.intake.look()
        self.receiving.fill()

    def _source(self, queue: ConsumedQueue) -> Source:
        return Source(
            queue.name,
            self._receive,
            most=partial(self._most, queue.name),
            least=partial(self._least, queue.name),
            pause=queue.pause,
            in_order=queue.terms.in_order,
        )

    def _room(self) -> int:
        """Return how many more messages may be held, beside those of open polls."""
        coming = sum(it.booked for it in self.inherited() if self.wants(it.source.name))
        room = self.intake.room - coming if self.keeper.may_receive else 0
        if room <= 0:
            for queue in tuple(self._queues):
                self.polled.wait(queue)
        return room

    def _most(self, queue: str) -> int:
        """Return how many messages a receive may return; 0 if only its one poll may ask for any.

        If a queue is kept in order, all messages of an answer except one may have to wait for
        another of their group. The same holds for each open poll. One message may always be
        requested: see `GroupWaitlist`.
        """
        known = self._queues.get(queue)
        if known is None or not known.terms.in_order:
            return SQS.most_received
        if not self.waitlist.has_room:
            return 0
        promised = sum(poll.count - 1 for poll in self.all_polls() if poll.source.in_order)
        return max(1, min(known.batch, self.waitlist.most_wanted - promised))

    def _least(self, queue: str, is_beside: bool) -> int:
        """Return how many messages a poll of a busy queue requests at least.

        A receive takes as much of the worker's time as two tasks. So while messages wait in the
        worker for its pool, a poll waits until there is room for several.
        """
        known = self._queues.get(queue)
        if known is None or known.terms.in_order:
            # It requests single messages, unless the user has set `fifo_batch`.
            return 1
        if not self._prefetch_count:
            return SQS.most_received
        least = least_beside(self._prefetch_count)
        concurrency = self.concurrency or self._prefetch_count
        is_wanted = self._prefetch_count - self.intake.free - concurrency < least
        return 1 if is_wanted and not is_beside else least

    def _prepare(self, poll: Poll) -> ConsumedQueue:
        """Return the queue of a poll, with the state that it has now.

        Raises:
            CallGivenUp: The poll must not be made. No message of a queue could be kept while no
                more calls of it are made.
        """
        queue = poll.queue = self._queues.get(poll.source.name)
        if queue is None or self._has_ended or self.keeper.is_stuck(queue.lease_url):
            raise CallGivenUp
        poll.is_sent, poll.waits = False, min(queue.wait, poll.longest_wait)
        return queue

    def _receive(self, poll: Poll) -> Sequence[Raw]:
        """Make a poll, on its thread, and return the messages of the answer."""
        name, polled = poll.source.name, self.polled
        queue = self._prepare(poll)
        polled.asked(name, queue.lease_url)

        def may_send() -> bool:
            if poll.is_sent:
                # boto3 repeats it.
                polled.unanswered(name, poll.sent_at)
            poll.is_sent, poll.sent_at = True, clock.now()
            return self.wants(name)

        try:
            messages = self.sqs.receive(
                queue.url,
                count=poll.count,
                wait=int(poll.waits),
                timeout=queue.timeout,
                attributes=queue.attributes,
                may_send=may_send,
            )
        except Exception:
            if self.wants(name):
                polled.unanswered(name, poll.sent_at)
            raise
        finally:
            poll.is_over = True
        polled.answered(name)
        return messages

    def _take(self, poll: Poll, answered: Sequence[Any]) -> None:
        """Lease messages, on the thread of their poll, and have them handed over."""
        queue, messages = poll.queue, _readable(answered)
        if queue is not None and messages:
            self.intake.take(queue, messages, sent_at=poll.sent_at)
            while self.intake.is_unsure and not self._has_ended:
                time.sleep(_LOOK_SECONDS)
                self.intake.look()
        # Not before the messages are leased or released: the log's lock may be held while a
        # shutdown waits for this thread.
        if count := len(answered) - len(messages):
            logger.error(
                "sqs-heartbeat: %d of %d messages received from %s have no message id or receipt "
                "handle: the worker ignores them, and they stay in the queue",
                count,
                len(answered),
                poll.source.name,
            )


def ends_at(polls: Iterable[Poll], queue_url: str) -> float:
    """Return when the last open poll of a queue ends, in seconds of `clock.now`; 0.0 if none is."""
    return max(
        (
            poll.ends_at
            for poll in polls
            if not poll.is_over and poll.queue is not None and poll.queue.lease_url == queue_url
        ),
        default=0.0,
    )


def _readable(messages: Sequence[Any]) -> list[Message]:
    """Return the messages that can be leased: those with both ids."""
    return [
        message
        for message in messages
        if isinstance(message, dict)
        and all(
            isinstance(each := message.get(name), str) and each
            for name in ("MessageId", "ReceiptHandle")
        )
    ]
