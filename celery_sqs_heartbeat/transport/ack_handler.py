"""Hands acks, rejects and restores of leased messages to the keeper."""

from __future__ import annotations

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.leases.events import KEPT
from celery_sqs_heartbeat.leases.lease import Lease
from celery_sqs_heartbeat.transport.binding import Heartbeat
from celery_sqs_heartbeat.transport.delays import Delays
from celery_sqs_heartbeat.transport.kombu_channel import KombuChannel
from celery_sqs_heartbeat.transport.open_polls import OpenPolls
from celery_sqs_heartbeat.transport.task_failure import UNKNOWN, TaskFailure


class AckHandler:
    """Says of each lease of a channel's messages how it ends.

    What returns a bool returns whether that is all: else the message is kombu's to settle.
    """

    def __init__(self, *, kombu: KombuChannel, heartbeat: Heartbeat, open_polls: OpenPolls) -> None:
        self._kombu = kombu
        self._heartbeat = heartbeat
        self._open = open_polls
        self._delays = Delays(rules=heartbeat.rules, queues=heartbeat.queues, once=heartbeat.once)

    def ack(self, delivery_tag: str) -> bool:
        """Have the message deleted, in a batch, until SQS confirms it."""
        keeper = self._heartbeat.keeper
        if self.forget_settled(delivery_tag):
            return True
        lease = keeper.find(delivery_tag)
        if lease is None:
            return False
        if self._acks_inline(lease, delivery_tag):
            keeper.let_expire(delivery_tag)
            return False
        keeper.done(delivery_tag)
        return True

    def forget_settled(self, delivery_tag: str) -> bool:
        """Return whether the message was settled before its ack or reject got here.

        That is noted until then, and no more after it.
        """
        if not self._heartbeat.settled.has(delivery_tag):
            return False
        self._heartbeat.settled.forget(delivery_tag)
        return True

    def reject(self, delivery_tag: str, *, requeue: bool, failure: TaskFailure = UNKNOWN) -> None:
        """Release a message that is to be run again; settle another as kombu does.

        From any thread, and on a channel that is closed. Its prefetch slot is not freed.
        """
        heartbeat = self._heartbeat
        lease = heartbeat.keeper.find(delivery_tag)
        if lease is None or heartbeat.settled.has(delivery_tag):
            return
        delay = self._kombu.backoff_delay(delivery_tag, lease.task, lease.receive_count)
        if requeue:
            delay = self._delays.after(lease, delivery_tag, ended=failure, backoff=delay)
        elif delay is not None and lease.is_last_receive:
            # At once, so that SQS moves it to the dead-letter queue.
            delay = 0.0
        if delay is not None:
            cause = failure.cause if requeue else "backoff policy"
            delay = max(delay, self._dead_poll_left(lease))
            heartbeat.keeper.release(delivery_tag, delay, cause)
        elif not requeue and self._kombu_would_delete(delivery_tag, lease):
            heartbeat.keeper.done(delivery_tag)
        else:
            heartbeat.keeper.let_expire(delivery_tag, KEPT)
        heartbeat.settled.note(delivery_tag)

    def restore(self, delivery_tag: str) -> bool:
        """Release a message that its consumer leaves behind, unless its task runs on."""
        heartbeat = self._heartbeat
        if heartbeat.settled.has(delivery_tag):
            return True
        lease = heartbeat.keeper.find(delivery_tag)
        if lease is None:
            return False
        request = heartbeat.requests.get(lease.key)
        if request is None or (not request.outlives_consumer() and request.withdraw()):
            self.release(delivery_tag, cause="consumer closed")
        return True

    def release(self, delivery_tag: str, *, cause: str) -> None:
        """Make a message visible again at once, or when a poll that would swallow it is over."""
        keeper = self._heartbeat.keeper
        lease = keeper.find(delivery_tag)
        if lease is not None:
            keeper.release(delivery_tag, self._dead_poll_left(lease), cause)
            self._kombu.free_slot(delivery_tag)

    def _acks_inline(self, lease: Lease, delivery_tag: str) -> bool:
        # kombu knows the message by the handle and the channel that it came with.
        is_known = lease.receipt_handle == delivery_tag and not self._kombu.is_closed
        return is_known and self._heartbeat.rules.acks_inline(lease)

    def _kombu_would_delete(self, delivery_tag: str, lease: Lease) -> bool:
        if not self._kombu.deletes_rejected(delivery_tag):
            return False
        attributes = self._heartbeat.queues.get(lease.queue_url)
        return attributes.is_known and attributes.max_receive_count is None

    def _dead_poll_left(self, lease: Lease) -> float:
        """Return how long a poll might swallow the message that starts no task any more.

        After a consumer was cancelled its last long poll goes on at SQS, and would hide a
        message that is released before it ends. In a shutdown that poll is read, and what it
        brings is released; but the message would have come once more for nothing, and after
        `maxReceiveCount` it goes to the dead letters. Seconds; 0 while the consumer lives.
        """
        now = clock.now()
        return max(
            (
                max(0.0, poll.ends_at - now)
                for poll in self._open
                if poll.url == lease.queue_url
                and (self._heartbeat.is_ending or not self._kombu.is_consumed(poll.queue))
            ),
            default=0.0,
        )
