"""Delivers leased messages to their consumer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from celery_sqs_heartbeat.leases.events import UNDELIVERABLE
from celery_sqs_heartbeat.transport.binding import Heartbeat
from celery_sqs_heartbeat.transport.group_waitlist import tag_of
from celery_sqs_heartbeat.transport.kombu_channel import KombuChannel, Payload
from celery_sqs_heartbeat.transport.undeliverable import log_undeliverable

_DELIVERED = "delivered"


class Deliverer:
    """Delivers messages one by one. An error in one does not affect the others."""

    def __init__(self, *, kombu: KombuChannel, heartbeat: Heartbeat) -> None:
        self._kombu = kombu
        self._heartbeat = heartbeat

    def deliver_all(
        self, payloads: Sequence[Payload], deliver: Callable[[Payload], object]
    ) -> None:
        """Deliver messages. One that can't be delivered neither stops nor leaks the others.

        Messages that are not delivered because the worker ends meanwhile, or its channel is closed,
        are released.

        Raises:
            Exception: The connection is lost. The undelivered messages are released.
        """
        heartbeat = self._heartbeat
        lost_errors = self._kombu.lost_errors
        waiting = list(reversed(payloads))
        try:
            while waiting and not self._has_ended():
                payload = waiting.pop()
                try:
                    deliver(payload)
                    heartbeat.arriving.discard(tag_of(payload))
                    heartbeat.broken_worker.worked(_DELIVERED)
                except Exception as error:
                    self._give_up(payload, error, is_lost=isinstance(error, lost_errors))
                    if isinstance(error, lost_errors):
                        raise
        finally:
            # The last one first: messages of a group must be released in reverse order.
            for payload in waiting:
                heartbeat.keeper.release(tag_of(payload), cause="not delivered")

    def _has_ended(self) -> bool:
        heartbeat = self._heartbeat
        is_over = heartbeat.broken_worker.is_found or heartbeat.is_ending
        return is_over or self._kombu.is_closed

    def _give_up(self, payload: Payload, error: Exception, *, is_lost: bool) -> None:
        """Leave a message to SQS.

        Args:
            is_lost: Whether the connection is lost. Neither the message nor the worker caused that.
        """
        heartbeat = self._heartbeat
        tag = tag_of(payload)
        lease = heartbeat.keeper.find(tag)
        # Not released, because its task may have started before the error.
        heartbeat.keeper.let_expire(tag, UNDELIVERABLE)
        if self._kombu.takes_slot(tag):
            # Otherwise it would keep its prefetch slot indefinitely.
            self._kombu.free_slot(tag)
        if is_lost:
            return
        # A stock worker would exit here, or continue without ever polling again.
        info = payload["properties"]["delivery_info"]
        log_undeliverable(info["sqs_queue"], info["sqs_message"]["MessageId"])
        request = heartbeat.requests.get(lease.key) if lease is not None else None
        # If Celery can't make a request from it, it is a bad message. Their number does not matter.
        if lease and request and not request.failed_before_pool:
            heartbeat.broken_worker.failed(_DELIVERED, lease.key, error)
