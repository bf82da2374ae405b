"""The parts that polls on an event loop and polls without one have in common."""

from __future__ import annotations

import re

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.common.escaping import get_logger
from celery_sqs_heartbeat.leases.calls import MAX_RECEIVED
from celery_sqs_heartbeat.settings.rules import DEFAULT_FIFO_BATCH
from celery_sqs_heartbeat.transport.binding import Heartbeat
from celery_sqs_heartbeat.transport.kombu_channel import KombuChannel
from celery_sqs_heartbeat.transport.poll import Poll

logger = get_logger(__name__)

#: How long an additional poll of a queue waits for messages, in seconds: the shortest wait for
#: which SQS asks all of its servers (SQS developer guide, "Amazon SQS short and long polling").
WAIT_BESIDE = 1
#: What differs between two texts of the same error: milliseconds, the id of an object.
_VARIABLE = re.compile(r"0x[0-9a-f]+|\d+(?= ms)")


class PollPlanner:
    """Decides what a poll requests, and notes how it was answered."""

    def __init__(self, *, kombu: KombuChannel, heartbeat: Heartbeat) -> None:
        self._kombu = kombu
        self._heartbeat = heartbeat

    def new_poll(self, queue: str, url: str, *, count: int, is_beside: bool = False) -> Poll:
        """Return a poll that is about to be sent.

        Args:
            url: The queue's URL at this broker.
            count: How many messages it requests, if there is room for them.
            is_beside: Whether the queue has another open poll, which waits for messages.
        """
        heartbeat = self._heartbeat
        timeout = heartbeat.leased.asked_timeout(queue, url)
        wait = self._kombu.wait_seconds
        poll = Poll(
            queue=queue,
            url=heartbeat.leased.lease_url(url),
            sent_at=clock.now(),
            waits=heartbeat.terms.longest_wait(
                queue, timeout, min(wait, WAIT_BESIDE) if is_beside else wait
            ),
            count=min(count, self._most_wanted(queue)),
            timeout=timeout,
        )
        heartbeat.polled.asked(queue, poll.url)
        return poll

    def _most_wanted(self, queue: str) -> int:
        """Return how many messages a receive may return.

        If a queue is kept in order, all messages of an answer except one may have to wait for
        another of their group. The same holds for each open poll. One message may always be
        requested: see `GroupWaitlist`.
        """
        settings, groups = self._heartbeat.settings, self._heartbeat.groups
        if not settings.keeps_order(queue):
            return MAX_RECEIVED
        batch = settings.for_queue(queue).fifo_batch or DEFAULT_FIFO_BATCH
        open_polls = [
            each for each in self._heartbeat.open_polls if settings.keeps_order(each.queue)
        ]
        promised = sum(poll.count - 1 for poll in open_polls)
        return max(1, min(batch, groups.most_wanted - promised))

    def note_answer(self, poll: Poll) -> None:
        """Note that SQS answered a poll."""
        self._heartbeat.polled.answered(poll.queue)

    def note_failure(self, poll: Poll, error: Exception | None = None) -> None:
        """Note that a poll failed. Log its error, if it is the last of its tries."""
        self._heartbeat.polled.unanswered(poll.queue, poll.sent_at)
        if error is not None:
            self.log(poll.queue, error)

    def log(self, queue: str, error: Exception | None) -> None:
        """Log the error of a queue's polls when it changes. None means that they work."""
        text = None if error is None else f"{type(error).__name__}: {error}"
        errors = self._heartbeat.poll_errors
        known = _VARIABLE.sub("", text) if text else None
        if known == errors.get(queue):
            return
        errors[queue] = known
        if text is None:
            logger.warning("sqs-heartbeat: receiving from queue %s works again", queue)
        else:
            logger.error(
                "sqs-heartbeat: receiving from queue %s fails and is retried: %s", queue, text
            )
