"""Hands acks, rejects and restores to the keeper."""

from __future__ import annotations

from typing import Any

from kombu.transport import SQS

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.transport.base import LeasedChannel
from celery_sqs_heartbeat.transport.binding import Heartbeat
from celery_sqs_heartbeat.transport.delays import failure_delay
from celery_sqs_heartbeat.transport.keeping import KeptLease

#: Whether kombu deletes what is rejected without requeue (since 5.7).
_KOMBU_DELETES_REJECTED = hasattr(SQS.Channel, "_delete_rejected_message")


class SettlingChannel(LeasedChannel):
    """The side of a channel on which leases are told their end."""

    def basic_ack(self, delivery_tag: str, multiple: bool = False) -> None:
        """Have the message deleted, in a batch, until SQS confirms it."""
        heartbeat, lease = self._find(delivery_tag)
        if heartbeat is not None and heartbeat.settled.has(delivery_tag):
            heartbeat.settled.forget(delivery_tag)
            self.qos.ack(delivery_tag)
        elif heartbeat is None or lease is None:
            super().basic_ack(delivery_tag, multiple)
        elif self._acks_inline(heartbeat, lease, delivery_tag):
            heartbeat.keeper.drop(delivery_tag)
            super().basic_ack(delivery_tag, multiple)
        else:
            heartbeat.keeper.done(delivery_tag)
            self.qos.ack(delivery_tag)

    def basic_reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Settle a message that is rejected, unless its request has done so, and free its slot."""
        self.reject(delivery_tag, requeue=requeue)
        heartbeat = self._heartbeat
        if heartbeat is not None and heartbeat.settled.has(delivery_tag):
            heartbeat.settled.forget(delivery_tag)
            self.qos.ack(delivery_tag)
        else:
            super().basic_reject(delivery_tag, requeue=requeue)

    def reject(self, delivery_tag: str, *, requeue: bool) -> None:
        """Release a message that is to be run again; settle another as kombu does.

        May be called from any thread, and on a channel that is closed: its prefetch slot is
        freed by `basic_reject`.
        """
        heartbeat, lease = self._find(delivery_tag)
        if heartbeat is None or lease is None or heartbeat.settled.has(delivery_tag):
            return
        delay = self._backoff_delay(delivery_tag, lease)
        if delay is None and requeue:
            delay = failure_delay(
                lease, rules=heartbeat.rules, queues=heartbeat.queues, once=heartbeat.once
            )
        if delay is not None:
            cause = "failed" if requeue else "backoff policy"
            delay = max(delay, self._dead_poll_left(lease))
            heartbeat.keeper.release(delivery_tag, delay, cause)
        elif self._kombu_would_delete(delivery_tag, lease):
            heartbeat.keeper.done(delivery_tag)
        else:
            heartbeat.keeper.drop(delivery_tag)
        heartbeat.settled.note(delivery_tag)

    def _restore(self, message: Any, *args: Any, **kwargs: Any) -> None:
        heartbeat, lease = self._find(message.delivery_tag)
        if heartbeat is not None and heartbeat.settled.has(message.delivery_tag):
            return
        if heartbeat is None or lease is None:
            super()._restore(message, *args, **kwargs)
            return
        request = heartbeat.requests.get(lease.key)
        if request is None or not request.outlives_consumer():
            self.release(message.delivery_tag, cause="consumer closed")

    def release(self, delivery_tag: str, *, cause: str) -> None:
        """Make a message visible again at once, or when a poll that would swallow it is over."""
        heartbeat, lease = self._find(delivery_tag)
        if heartbeat is not None and lease is not None:
            heartbeat.keeper.release(delivery_tag, self._dead_poll_left(lease), cause)
            self.qos.ack(delivery_tag)

    def _acks_inline(self, heartbeat: Heartbeat, lease: KeptLease, delivery_tag: str) -> bool:
        # kombu knows the message by the handle and the channel that it came with.
        is_known = lease.receipt_handle == delivery_tag and not self.closed
        return is_known and heartbeat.rules.acks_inline(lease)

    def _backoff_delay(self, delivery_tag: str, lease: KeptLease) -> float | None:
        """Return the delay of kombu's own backoff policy, or None where it has none."""
        _, _, tasks, policy = self.qos._extract_backoff_policy_configuration_and_message(
            delivery_tag
        )
        return policy.get(lease.receive_count) if policy and lease.task in (tasks or ()) else None

    def _kombu_would_delete(self, delivery_tag: str, lease: KeptLease) -> bool:
        assert self._heartbeat is not None
        if not _KOMBU_DELETES_REJECTED or self.qos.is_backoff_task(delivery_tag):
            return False
        attributes = self._heartbeat.queues.get(lease.queue_url)
        return attributes.is_known and attributes.max_receive_count is None

    def _dead_poll_left(self, lease: KeptLease) -> float:
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
                # Another thread may change them meanwhile.
                for poll in list(self._polls)
                if poll.url == lease.queue_url
                and (self._is_ending() or poll.queue not in self._active_queues)
            ),
            default=0.0,
        )
