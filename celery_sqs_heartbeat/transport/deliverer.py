"""Delivers leased messages to their consumer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from celery_sqs_heartbeat.transport.ack_handler import AckHandler
from celery_sqs_heartbeat.transport.binding import Heartbeat
from celery_sqs_heartbeat.transport.group_waitlist import tag_of
from celery_sqs_heartbeat.transport.kombu_channel import KombuChannel, Payload
from celery_sqs_heartbeat.transport.undeliverable import log_undeliverable


class Deliverer:
    """Delivers messages one by one. An error in one does not affect the others."""

    def __init__(self, *, kombu: KombuChannel, heartbeat: Heartbeat, acks: AckHandler) -> None:
        self._kombu = kombu
        self._heartbeat = heartbeat
        self._acks = acks

    def deliver_all(
        self, payloads: Sequence[Payload], deliver: Callable[[Payload], object]
    ) -> None:
        """Deliver messages. One that can't be delivered neither stops nor leaks the others.

        Messages that are not delivered because the worker ends meanwhile, or its channel is closed,
        are released.

        Raises:
            Exception: The connection is lost, or a result backend raised such an error. The
                undelivered messages are released.
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
                except Exception as error:
                    self._give_up(payload, error)
                    if isinstance(error, lost_errors):
                        raise
        finally:
            # The last one first: messages of a group must be released in reverse order.
            for payload in waiting:
                heartbeat.keeper.release(tag_of(payload), cause="not delivered")

    def _has_ended(self) -> bool:
        return self._heartbeat.is_ending or self._kombu.is_closed

    def _give_up(self, payload: Payload, error: Exception) -> None:
        # A stock worker would exit here, or continue without ever polling again.
        info = payload["properties"]["delivery_info"]
        log_undeliverable(info["sqs_queue"], info["sqs_message"]["MessageId"])
        self._acks.give_up(tag_of(payload), error)
