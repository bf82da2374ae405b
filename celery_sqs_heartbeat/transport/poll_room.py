"""Decides for how many messages a channel has room, and whether for one more poll of a queue.

SQS returns at most ten messages per receive. With one poll at a time, a worker gets at most ten
messages per round trip, whatever its prefetch: at 20 ms that is 340 tasks/s. So a queue has several
polls open while all of these hold:

- its last answer was full, which shows that more messages wait,
- the prefetch has room for another answer, beside what the open polls may return,
- the HTTP client has a connection for it, beside one for each queue,
- the worker has an event loop, or runs tasks on greenlets (`AdditionalPolls`).

The additional polls wait for a second at most. As soon as an answer is not full, no more of them
are sent. So a queue without messages has one long poll, and an idle worker makes no more calls than
with one poll at a time.

We considered a fixed number of polls per queue. Idle workers would pay for each of them, and each
could keep a worker from ending for up to 20 s. Short polls (without a wait) would not do either:
SQS asks only some of its servers then, so an answer that is not full would mean nothing.
"""

from __future__ import annotations

import math
from typing import Any

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.leases.calls import MAX_RECEIVED
from celery_sqs_heartbeat.transport.binding import Heartbeat
from celery_sqs_heartbeat.transport.kombu_channel import KombuChannel
from celery_sqs_heartbeat.transport.open_polls import OpenPolls
from celery_sqs_heartbeat.transport.poll_sending import connections

#: The most polls that a queue has open. Four bring 40 messages per round trip: at 20 ms, twice as
#: many as Celery can run.
MOST_POLLS = 4
#: An additional poll requests at least one part of this many of the prefetch count, if that is
#: less than a full answer. More parts would cost more receives per task.
_PARTS = 4
#: The same without an event loop, where a receive by boto3 takes as much time as three tasks.
_BLOCKING_PARTS = 2


def least_beside(prefetch_count: int, *, parts: int = _PARTS) -> int:
    """Return how many messages an additional poll requests at least."""
    return min(MAX_RECEIVED, math.ceil(prefetch_count / parts))


class PollRoom:
    """The room for the messages of a channel's polls, open and future ones.

    Attributes:
        client: The boto3 client that polls, if there is no event loop.
    """

    def __init__(self, *, kombu: KombuChannel, heartbeat: Heartbeat, open_polls: OpenPolls) -> None:
        self._kombu = kombu
        self._heartbeat = heartbeat
        self._open = open_polls
        self.client: Any = None

    def how_many(self, most: int) -> int:
        """Return how many messages to request: the queues share the free prefetch slots.

        If one poll takes all slots, each other queue may still request one message. So the worker
        exceeds its prefetch count by at most one message for each additional queue.

        Args:
            most: How many messages one receive may return.
        """
        free = self._kombu.free_slots()
        if free is None:
            return most
        return max(1, min(most, self._share(free), free - self._requested()))

    def is_left(self) -> bool:
        """Return whether there is room for one more message, beside those of the open polls."""
        free = self._kombu.free_slots()
        return free is None or free > self._requested()

    def is_left_beside(self, queue: str) -> bool:
        """Return whether a queue has an open poll, and there is room for one more."""
        return bool(self._open.waiting_for(queue)) and self.is_left_for_another(queue)

    def is_left_for_another(self, queue: str) -> bool:
        """Return whether there is room for a poll of a queue, beside those that are open."""
        polls = self._open.waiting_for(queue)
        if len(polls) >= MOST_POLLS:
            return False
        if not self._kombu.has_slot() or not self._has_connection():
            return False
        free = self._kombu.free_slots()
        if free is None:
            heartbeat = self._heartbeat
            left = heartbeat.terms.most_leases() - len(heartbeat.keeper)
            return left - self._requested() >= MAX_RECEIVED
        if self._heartbeat.settings.keeps_order(queue) and not self._heartbeat.groups.has_room:
            return False
        least = self._least(queue)
        own = sum(poll.count for poll in polls)
        return free - self._requested() >= least and self._share(free) - own >= least

    def is_worth_a_poll(self, queue: str) -> bool:
        """Return whether to poll a queue now that has more messages, but no open poll.

        A receive takes as much of the event loop's time as two tasks. So while messages wait in the
        worker for its pool, a poll waits until there is room for as many messages as an additional
        poll requests.
        """
        free, concurrency = self._kombu.free_slots(), self._heartbeat.concurrency
        if free is None or not concurrency:
            return True
        least = self._least(queue)
        waiting = self._kombu.prefetch_count - free - concurrency
        return waiting < least or free - self._requested() >= least

    def _share(self, free: int) -> int:
        return math.ceil(free / max(1, len(self._kombu.queues())))

    def _least(self, queue: str) -> int:
        """Return how many messages an additional poll of a queue requests at least."""
        if self._heartbeat.settings.keeps_order(queue):
            # It requests single messages, unless the user has set `fifo_batch`.
            return 1
        parts = _BLOCKING_PARTS if self._kombu.hub is None else _PARTS
        return least_beside(self._kombu.prefetch_count, parts=parts)

    def _requested(self) -> int:
        """Return how many messages take a slot soon: they arrive, or open polls may return them.

        With gevent and eventlet, messages may wait in their delivery for a free greenlet.
        """
        now = clock.now()
        arriving = sum(not self._kombu.takes_slot(tag) for tag in tuple(self._heartbeat.arriving))
        return arriving + sum(poll.count for poll in self._open if poll.ends_at > now)

    def _has_connection(self) -> bool:
        """Return whether a connection is left, beside one for each queue that has no open poll."""
        polled = {poll.queue for poll in self._open}
        unpolled = sum(queue not in polled for queue in self._kombu.queues())
        client = self.client or self._heartbeat.http_client
        return self._open.count + unpolled < connections(client)
