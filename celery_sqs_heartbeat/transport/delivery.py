"""Delivers leased messages to the consumers of a channel."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence

from celery_sqs_heartbeat.common.escaping import get_logger
from celery_sqs_heartbeat.leases.events import DUE_LATER, NOT_DELIVERED
from celery_sqs_heartbeat.leases.lease import Goal
from celery_sqs_heartbeat.link.held_message import HandedOver
from celery_sqs_heartbeat.transport.binding import Heartbeat
from celery_sqs_heartbeat.transport.eta import EtaParking, seconds_until_eta
from celery_sqs_heartbeat.transport.kombu_channel import KombuChannel, Payload
from celery_sqs_heartbeat.transport.settling import AckHandler

logger = get_logger(__name__)


class Deliverer:
    """Delivers the messages that the keeper hands over."""

    def __init__(self, *, kombu: KombuChannel, heartbeat: Heartbeat, acks: AckHandler) -> None:
        self._kombu = kombu
        self._heartbeat, self._keeper = heartbeat, heartbeat.keeper
        self._acks = acks
        self._far_etas = EtaParking(queues=heartbeat.queues, once=heartbeat.once)

    def deliver(self, messages: Iterable[HandedOver]) -> None:
        """Deliver messages. One that can't be delivered neither stops nor leaks the others.

        It may take long: a solo pool runs tasks in this call. Messages that are not delivered
        because the worker ends meanwhile, or its channel is closed, are released.

        Raises:
            Exception: The connection is lost, or a result backend raised such an error. The
                undelivered messages are released.
        """
        heartbeat = self._heartbeat
        lost_errors = self._kombu.lost_errors
        waiting = deque(messages)
        try:
            while waiting and not (heartbeat.is_ending or self._kombu.is_closed):
                arrived = waiting.popleft()
                try:
                    self._deliver(arrived)
                except Exception as error:
                    # A stock worker would exit here, or continue without ever polling again.
                    _log_undeliverable(arrived)
                    self._acks.give_up(arrived.handle, error)
                    if isinstance(error, lost_errors):
                        raise
                finally:
                    heartbeat.arriving.discard(arrived.handle)
        finally:
            self.release(waiting)

    def release(self, messages: Sequence[HandedOver]) -> None:
        """Release messages whose consumer has ended, the last one first."""
        for arrived in reversed(messages):
            self._keeper.release(arrived.handle, cause=NOT_DELIVERED)
        self._heartbeat.arriving.difference_update(each.handle for each in messages)

    def _deliver(self, arrived: HandedOver) -> None:
        consumer = self._kombu.consumer(arrived.queue)
        lease = arrived.lease
        self._heartbeat.received.add(arrived.handle)
        if consumer is None:
            self.release([arrived])
        elif self._keeper.find(arrived.handle) is lease and lease.goal is Goal.HOLD:
            payload = self._kombu.decode(arrived.message, arrived.queue)
            if not self._is_put_off(arrived, payload):
                consumer(payload)

    def _is_put_off(self, arrived: HandedOver, payload: Payload) -> bool:
        """Release a message until its task's ETA if it must wait at SQS. Return whether it must.

        A message at SQS needs no slot and no extensions. It may arrive a little early, but not
        late: the worker holds it for the rest of the wait, less than a second.
        """
        wait = seconds_until_eta(payload.get("headers") or {})
        if wait is None:
            return False
        now, hold = self._keeper.now(), self._heartbeat.rules.hold_eta(arrived.lease)
        if not self._far_etas.is_parked(arrived.lease, wait, hold=hold, now=now):
            return False
        self._keeper.release(arrived.handle, math.floor(wait), DUE_LATER)
        return True


def _log_undeliverable(arrived: HandedOver) -> None:
    """Log the error that is being handled, for a message that is given up."""
    logger.exception(
        "sqs-heartbeat: message %s of %s can't be delivered, and is released like that of a "
        "failed task",
        arrived.lease.message_id,
        arrived.queue,
    )
