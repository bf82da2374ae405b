"""Receives a channel's messages on threads, and delivers them where its consumer runs.

The threads make the polls and begin the leases, whatever the consumer does meanwhile: a task of a
solo pool, the wait for a free greenlet, a shutdown in a signal handler. An answer that arrives
after the end of its consumer is released by the thread that reads it.

kombu's own receives would not do. With an event loop they are sent in its next tick, and wait for
their answer without end; without one they block the consumer. Threads serve all pools alike.
"""

from __future__ import annotations

import math
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.common.escaping import get_logger
from celery_sqs_heartbeat.leases.calls import MAX_RECEIVED
from celery_sqs_heartbeat.settings.rules import DEFAULT_FIFO_BATCH
from celery_sqs_heartbeat.sqs.long_polls import WAIT_BESIDE, Poll, Raw, Receiving, Source
from celery_sqs_heartbeat.sqs.prepared_requests import make_call, prepare_calls
from celery_sqs_heartbeat.sqs.sending import CallGivenUp, sending_while
from celery_sqs_heartbeat.transport.answers import log_unreadable, readable, received
from celery_sqs_heartbeat.transport.binding import Heartbeat
from celery_sqs_heartbeat.transport.delivery import Deliverer
from celery_sqs_heartbeat.transport.kombu_channel import KombuChannel, Payload

logger = get_logger(__name__)

#: The number of unconfirmed deletes and releases at which receiving pauses. Without it, an outage
#: of SQS's deletes would pile up work without limit.
MAX_ENDING = 1_000
#: An additional poll requests at least one part of this many of the prefetch count, if that is
#: less than a full answer. More parts would cost more receives per task.
_PARTS = 4


def least_beside(prefetch_count: int) -> int:
    """Return how many messages an additional poll requests at least."""
    return min(MAX_RECEIVED, math.ceil(prefetch_count / _PARTS))


class Feed:
    """The polls of one channel, and the messages that wait for its consumer's thread.

    Args:
        deliverer: Leases and delivers messages.
        wake: Lets the consumer's thread call `deliver`. Can be called from any thread.
    """

    def __init__(
        self,
        *,
        kombu: KombuChannel,
        heartbeat: Heartbeat,
        deliverer: Deliverer,
        wake: Callable[[], object],
    ) -> None:
        self._kombu = kombu
        self._heartbeat = heartbeat
        self._deliverer = deliverer
        self._wake = wake
        self._receiving = Receiving(room=self._room, take=self._take, lock=heartbeat.polling)
        self._waiting: deque[tuple[Poll, Sequence[Payload]]] = deque()
        #: Is held while a poll is prepared. Neither kombu's clients nor our terms are made for
        #: several threads.
        self._preparing = threading.Lock()
        self._is_backed_up = self._was_backed_up = False

    @property
    def is_over(self) -> bool:
        """Whether its channel was closed, and every poll was answered."""
        return self._kombu.is_closed and not self.polls

    @property
    def is_consuming(self) -> bool:
        """Whether its channel consumes with leases."""
        return any(map(self._kombu.is_leased, self._kombu.queues()))

    @property
    def polls(self) -> tuple[Poll, ...]:
        """The open polls."""
        return self._receiving.polls

    def consume(self) -> None:
        """Receive from the channel's queues from now on. Call this where the consumer runs."""
        self._heartbeat.polled.note_turn()
        new = [
            Source(
                queue,
                self._receive,
                most=partial(self._most, queue),
                least=partial(self._least, queue),
                pause=float(self._kombu.polling_interval or 0),
            )
            for queue in self._kombu.queues()
            if queue not in self._receiving and self._kombu.is_leased(queue)
        ]
        if new:
            # All at once: a queue that is alone may take the whole room.
            self._receiving.add(*new)

    def cancel(self, queue: str) -> None:
        """Receive no more messages of a queue, and release those that wait."""
        self._receiving.remove(queue)
        self._heartbeat.polled.rest(queue)
        self._heartbeat.groups.leave("consumer closed", queue)
        self._release_orphans()

    def fill(self) -> None:
        """Poll the queues for which there may be room now. Can be called from any thread."""
        self._receiving.fill()
        if self._is_backed_up is not self._was_backed_up:
            self._was_backed_up = self._is_backed_up
            logger.warning(
                "sqs-heartbeat: %d deletes and releases are not confirmed: consuming %s",
                self._heartbeat.keeper.ending,
                "pauses until SQS confirms them" if self._is_backed_up else "continues",
            )

    def stop(self) -> None:
        """Receive no more. Messages that open polls still return are released."""
        self._receiving.stop()
        self._release_orphans()

    def join(self, timeout: float) -> bool:
        """Wait until no poll is open. Return whether that took at most `timeout` seconds."""
        return self._receiving.join(timeout)

    def deliver(self) -> bool:
        """Deliver the messages of one poll. Return whether there were any.

        Not of more, because the consumer's thread has other work: it sees signals and acks.
        """
        self._heartbeat.polled.note_turn()
        try:
            poll, payloads = self._waiting.popleft()
        except IndexError:
            return False
        try:
            self._deliverer.deliver(poll, payloads)
        finally:
            # More may wait.
            self._wake()
        # Those that were not delivered have left room.
        self.fill()
        return True

    def _release_orphans(self) -> None:
        """Release the messages that wait for a consumer that has ended."""
        for poll, payloads in tuple(self._waiting):
            if not self._has_consumer(poll.source.name):
                try:
                    self._waiting.remove((poll, payloads))
                except ValueError:
                    # Another thread has taken them.
                    continue
                self._deliverer.release_leased(payloads)

    def _has_consumer(self, queue: str) -> bool:
        is_over = self._heartbeat.is_ending or self._kombu.is_closed
        return not is_over and self._kombu.consumer(queue) is not None

    def _room(self) -> int:
        """Return how many more messages may be held, beside those of open polls."""
        heartbeat, keeper = self._heartbeat, self._heartbeat.keeper
        if heartbeat.is_ending or self._kombu.is_closed:
            return 0
        # Before the slots: a message that is delivered meanwhile counts twice, not never.
        arriving = sum(not self._kombu.takes_slot(tag) for tag in tuple(heartbeat.arriving))
        free = self._kombu.free_slots()
        if free is None:
            # It is infinite before the first queue is known.
            free = int(min(heartbeat.terms.most_leases(), sys.maxsize)) - len(keeper)
        # Messages that wait for another of their group take no slot. But one is reserved for each
        # of them that will be delivered soon.
        room = free - arriving - heartbeat.groups.next_up
        self._is_backed_up = keeper.ending >= MAX_ENDING
        if room > 0 and (keeper.is_behind or self._is_backed_up):
            room = 0
        if room <= 0:
            for queue in self._kombu.queues():
                heartbeat.polled.wait(queue)
        return room

    def _most(self, queue: str) -> int:
        """Return how many messages a receive may return; 0 if only its one poll may ask for any.

        If a queue is kept in order, all messages of an answer except one may have to wait for
        another of their group. The same holds for each open poll. One message may always be
        requested: see `GroupWaitlist`.
        """
        heartbeat = self._heartbeat
        settings = heartbeat.settings
        if not settings.keeps_order(queue):
            return MAX_RECEIVED
        if not heartbeat.groups.has_room:
            return 0
        batch = settings.for_queue(queue).fifo_batch or DEFAULT_FIFO_BATCH
        promised = sum(
            poll.count - 1
            for feed in heartbeat.feeds
            for poll in feed.polls
            if settings.keeps_order(poll.source.name)
        )
        return max(1, min(batch, heartbeat.groups.most_wanted - promised))

    def _least(self, queue: str, is_beside: bool) -> int:
        """Return how many messages a poll of a busy queue requests at least.

        A receive takes as much of the worker's time as two tasks. So while messages wait in the
        worker for its pool, a poll waits until there is room for several.
        """
        heartbeat = self._heartbeat
        if heartbeat.settings.keeps_order(queue):
            # It requests single messages, unless the user has set `fifo_batch`.
            return 1
        prefetch_count = self._kombu.prefetch_count
        free, least = self._kombu.free_slots(), least_beside(prefetch_count)
        if free is None:
            return MAX_RECEIVED
        concurrency = heartbeat.concurrency or prefetch_count
        is_wanted = prefetch_count - free - concurrency < least
        return 1 if is_wanted and not is_beside else least

    def _receive(self, poll: Poll) -> Sequence[Raw]:
        """Make a poll, on its thread, and return the messages of the answer."""
        heartbeat, queue = self._heartbeat, poll.source.name
        poll.is_sent = False

        def may_send() -> bool:
            if poll.is_sent:
                # boto3 repeats it.
                heartbeat.polled.unanswered(queue, poll.sent_at)
            poll.is_sent, poll.sent_at = True, clock.now()
            self._report(poll)
            return self._has_consumer(queue)

        with self._preparing:
            if not self._has_consumer(queue):
                raise CallGivenUp
            parameters = self._parameters(poll)
        try:
            with self._preparing:
                # If a role must be assumed, kombu does so here.
                client = self._kombu.client(queue)
                prepare_calls(client)
            with sending_while(may_send):
                answer = make_call(client, "ReceiveMessage", parameters)
        except Exception:
            if self._has_consumer(queue):
                heartbeat.polled.unanswered(queue, poll.sent_at)
            raise
        finally:
            poll.is_over = True
            self._report(poll)
        heartbeat.polled.answered(queue)
        return received(answer)

    def _parameters(self, poll: Poll) -> dict[str, Any]:
        """Return the parameters of a poll, and note what it asks for."""
        heartbeat, queue = self._heartbeat, poll.source.name
        url = self._kombu.url(queue)
        timeout = poll.timeout = heartbeat.leased.asked_timeout(queue, url)
        poll.queue_url = heartbeat.leased.lease_url(url)
        wait = self._kombu.wait_seconds
        poll.waits = heartbeat.terms.longest_wait(
            queue, timeout, min(wait, WAIT_BESIDE) if poll.is_beside else wait
        )
        heartbeat.polled.asked(queue, poll.queue_url)
        system, of_sender = self._kombu.wanted_attributes()
        parameters = {
            "QueueUrl": url,
            "MaxNumberOfMessages": poll.count,
            "WaitTimeSeconds": int(poll.waits),
            "MessageSystemAttributeNames": system,
        }
        if of_sender:
            parameters["MessageAttributeNames"] = of_sender
        if timeout is not None:
            parameters["VisibilityTimeout"] = timeout
        return parameters

    def _report(self, poll: Poll) -> None:
        """Report to the keeper when the last open poll of the queue ends."""
        heartbeat, url = self._heartbeat, poll.queue_url
        # Within the lock, so that the last report is the latest.
        with heartbeat.polling:
            polls = [each for feed in heartbeat.feeds for each in feed.polls if not each.is_over]
            ends = [each.ends_at for each in polls if each.queue_url == url]
            heartbeat.note_poll(url, max(ends, default=0.0))

    def _take(self, poll: Poll, answered: Sequence[Any]) -> None:
        """Lease messages, on the thread of their poll, and have them delivered."""
        queue, messages = poll.source.name, readable(answered)
        if messages and not self._has_consumer(queue):
            self._deliverer.release(poll, messages)
        elif payloads := self._deliverer.lease(poll, messages):
            self._waiting.append((poll, payloads))
            self._wake()
            # The consumer may have ended meanwhile.
            self._release_orphans()
        # Not before the messages are leased or released: see `Deliverer.release`.
        log_unreadable(queue, len(answered) - len(messages), len(answered))
