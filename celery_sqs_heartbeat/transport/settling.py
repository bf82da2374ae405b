"""Settles leased messages: their acks, rejects and restores, and the slots that these free."""

from __future__ import annotations

from kombu.transport import SQS

from celery_sqs_heartbeat.leases.events import KEPT
from celery_sqs_heartbeat.leases.lease import Lease
from celery_sqs_heartbeat.transport.binding import Heartbeat
from celery_sqs_heartbeat.transport.delays import UNKNOWN, Delays, TaskFailure
from celery_sqs_heartbeat.transport.kombu_channel import KombuChannel


class AckHandler:
    """Decides how the lease of each of a channel's messages ends.

    Methods that return a bool return False if kombu must settle the message itself.
    """

    def __init__(self, *, kombu: KombuChannel, heartbeat: Heartbeat) -> None:
        self._kombu = kombu
        self._heartbeat = heartbeat
        self._delays = Delays(rules=heartbeat.rules, queues=heartbeat.queues, once=heartbeat.once)

    def ack(self, delivery_tag: str) -> bool:
        """Make the keeper delete the message, in a batch, until SQS confirms it."""
        keeper = self._heartbeat.keeper
        if self.forget_settled(delivery_tag):
            return True
        lease = keeper.find(delivery_tag)
        if lease is None:
            return False
        keeper.done(delivery_tag)
        return True

    def forget_settled(self, delivery_tag: str) -> bool:
        """Return whether the message was settled before its ack or reject arrived here.

        That is remembered until then, and forgotten by this call.
        """
        if not self._heartbeat.is_settled(delivery_tag):
            return False
        self._heartbeat.settled.discard(delivery_tag)
        return True

    def reject(self, delivery_tag: str, *, requeue: bool, failure: TaskFailure = UNKNOWN) -> None:
        """Release a message that must run again. Settle any other as kombu does.

        Can be called from any thread, and on a closed channel. Does not free the prefetch slot.
        """
        heartbeat = self._heartbeat
        lease = heartbeat.keeper.find(delivery_tag)
        if lease is None or heartbeat.is_settled(delivery_tag):
            return
        delay = self._kombu.backoff_delay(delivery_tag, lease.task, lease.receive_count)
        if requeue:
            delay = self._delays.after(lease, delivery_tag, ended=failure, backoff=delay)
        elif delay is not None and lease.is_last_receive:
            # Release it at once, so that SQS moves it to the dead-letter queue.
            delay = 0.0
        if delay is not None:
            cause = failure.cause if requeue else "backoff policy"
            heartbeat.keeper.release(delivery_tag, delay, cause)
        elif not requeue and self._kombu_would_delete(delivery_tag, lease):
            heartbeat.keeper.done(delivery_tag)
        else:
            heartbeat.keeper.let_expire(delivery_tag, KEPT)
        heartbeat.settled.add(delivery_tag)

    def give_up(self, delivery_tag: str, error: Exception) -> None:
        """Release a message that can't be delivered, like that of a failed task.

        If its task may have started, the message is left to its visibility timeout.
        """
        lease = self._heartbeat.keeper.find(delivery_tag)
        request = self._heartbeat.requests.get(lease.key) if lease is not None else None
        if request is not None:
            request.give_up(error)
        else:
            failure = TaskFailure(exception=type(error), is_undeliverable=True)
            self.reject(delivery_tag, requeue=True, failure=failure)
            self.forget_settled(delivery_tag)
        if self._kombu.takes_slot(delivery_tag):
            # Otherwise it would keep its prefetch slot indefinitely.
            self._kombu.free_slot(delivery_tag)

    def restore(self, delivery_tag: str) -> bool:
        """Release an unsettled message of a closed consumer, unless its task continues."""
        heartbeat = self._heartbeat
        if heartbeat.is_settled(delivery_tag):
            return True
        lease = heartbeat.keeper.find(delivery_tag)
        if lease is None:
            return False
        request = heartbeat.requests.get(lease.key)
        if request is None or (not request.outlives_consumer() and request.withdraw()):
            self.release(delivery_tag, cause="consumer closed")
        return True

    def release(self, delivery_tag: str, *, cause: str) -> None:
        """Make a message visible again."""
        if self._heartbeat.keeper.release(delivery_tag, cause=cause):
            self._kombu.free_slot(delivery_tag)

    def _kombu_would_delete(self, delivery_tag: str, lease: Lease) -> bool:
        if not self._kombu.deletes_rejected(delivery_tag):
            return False
        attributes = self._heartbeat.queues.get(lease.queue_url)
        return attributes.is_known and attributes.max_receive_count is None


class QoS(SQS.QoS):
    """Counts prefetched messages as kombu does, and reports when there is room again."""

    def ack(self, delivery_tag: str) -> None:
        """Free the message's prefetch slot, and receive what there is room for now."""
        super().ack(delivery_tag)
        self.channel.feed.note_end(delivery_tag)
