"""What becomes of the messages that a poll brings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from celery_sqs_heartbeat.common.escaping import get_logger
from celery_sqs_heartbeat.common.wording import counted
from celery_sqs_heartbeat.leases.receipts import Receipt
from celery_sqs_heartbeat.transport.answers import Message, log_unreadable, readable
from celery_sqs_heartbeat.transport.binding import Heartbeat
from celery_sqs_heartbeat.transport.deliverer import Deliverer
from celery_sqs_heartbeat.transport.kombu_channel import KombuChannel, Payload
from celery_sqs_heartbeat.transport.leaser import Leaser
from celery_sqs_heartbeat.transport.poll import Poll
from celery_sqs_heartbeat.transport.receives import Receives

logger = get_logger(__name__)


class Intake:
    """Takes the answers to a channel's polls: leases the messages, then delivers them."""

    def __init__(self, *, kombu: KombuChannel, heartbeat: Heartbeat, receives: Receives) -> None:
        self._heartbeat = heartbeat
        self._keeper = heartbeat.keeper
        self._receives = receives
        self._leaser = Leaser(kombu=kombu, heartbeat=heartbeat)
        self._deliverer = Deliverer(kombu=kombu, heartbeat=heartbeat)

    def take(self, poll: Poll, answer: Any, *, deliver: Callable[[Payload], object] | None) -> int:
        """Lease and deliver what a poll brought; return how many messages it was.

        Args:
            deliver: Takes a message; None where its queue's consumer, or the worker, has ended.
        """
        messages = readable(answer)
        if deliver is None:
            # Before anything is logged: the thread that reads the last polls may wait for
            # the log's lock.
            self._release(poll, messages)
        self._receives.log(poll.queue, None)
        log_unreadable(poll.queue, answer, messages)
        if deliver is not None:
            self._deliver(poll, self._leaser.lease_all(poll, messages), deliver)
        return len(messages)

    def _deliver(
        self, poll: Poll, fresh: Sequence[Payload], deliver: Callable[[Payload], object]
    ) -> None:
        """Deliver what is leased now. It may take long: solo runs tasks in it."""
        arriving = self._heartbeat.arriving
        tags = [payload["properties"]["delivery_tag"] for payload in fresh]
        arriving.update(tags)
        try:
            with self._heartbeat.curl_working.opened():
                self._deliverer.deliver_all(self._leaser.keep_ours(poll, fresh), deliver)
        finally:
            arriving.difference_update(tags)

    def _release(self, poll: Poll, messages: Sequence[Message]) -> None:
        """Release messages that come when nothing is to take them any more."""
        for message in messages:
            if self._leaser.lease(poll, message) is Receipt.NEW:
                self._keeper.release(message["ReceiptHandle"], cause="not delivered")
        if messages:
            logger.info(
                "sqs-heartbeat: released %s received after the consumer of %s ended",
                counted(len(messages), "message"),
                poll.queue,
            )
