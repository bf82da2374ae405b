"""Leases what is received, and says what of it is to be run."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from typing import Any

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.common.escaping import get_logger
from celery_sqs_heartbeat.leases.events import ARRIVED_LATE, DUE_LATER
from celery_sqs_heartbeat.leases.lease import Goal
from celery_sqs_heartbeat.leases.received_as import ReceivedAs
from celery_sqs_heartbeat.transport.answers import Message
from celery_sqs_heartbeat.transport.binding import Heartbeat
from celery_sqs_heartbeat.transport.eta import seconds_until_eta
from celery_sqs_heartbeat.transport.eta_parking import EtaParking
from celery_sqs_heartbeat.transport.kombu_channel import KombuChannel, Payload
from celery_sqs_heartbeat.transport.poll import Poll
from celery_sqs_heartbeat.transport.skipped_groups import SkippedGroups
from celery_sqs_heartbeat.transport.undeliverable import log_undeliverable

logger = get_logger(__name__)

_NOT_OURS = (ReceivedAs.LAPSED, ReceivedAs.RELEASED)
_NOT_STARTED = {
    ReceivedAs.REDELIVERED: "it came again, and runs or waits here already; its lease goes on",
    ReceivedAs.FINISHED: "it came again after its task had ended well; it is deleted",
    ReceivedAs.RELEASED: "a release of it that was not answered may end its lease at any moment",
    ReceivedAs.LAPSED: "it was held up on its way until its visibility timeout was over",
}


class Leaser:
    """Begins the leases on what a channel receives."""

    def __init__(self, *, kombu: KombuChannel, heartbeat: Heartbeat) -> None:
        self._kombu = kombu
        self._heartbeat = heartbeat
        self._far_etas = EtaParking(queues=heartbeat.queues, once=heartbeat.once)

    def lease_all(self, poll: Poll, messages: Iterable[Message]) -> list[Payload]:
        """Lease a whole batch before any of it is delivered; return what is new.

        What comes after a message of its group that is left to SQS is released: SQS is to hand it
        out after that.
        """
        fresh: list[tuple[Message, Payload]] = []
        cut = SkippedGroups()
        with self._heartbeat.keeper.gathering():
            for message in messages:
                try:
                    payload = self._kombu.decode(message, poll.queue)
                    headers = payload.get("headers") or {}
                    task, task_id = headers.get("task"), headers.get("id")
                    receipt = self.lease(poll, message, task=task, task_id=task_id)
                except Exception:
                    # kombu before 5.7 fails on a body that is not its own JSON.
                    log_undeliverable(poll.queue, message.get("MessageId"))
                    cut.cut(message)
                    continue
                if receipt is ReceivedAs.NEW:
                    if not cut.takes(message):
                        fresh.append((message, payload))
                    continue
                if receipt in _NOT_OURS:
                    cut.cut(message)
                logger.log(
                    logging.WARNING if receipt in _NOT_OURS else logging.INFO,
                    "sqs-heartbeat: message %s of %s, task %s[%s], is not started: %s",
                    message.get("MessageId"),
                    poll.queue,
                    task,
                    task_id,
                    _NOT_STARTED[receipt],
                )
            cut.release(self._heartbeat.keeper)
            return [payload for message, payload in fresh if not self._is_put_off(message, payload)]

    def keep_ours(self, poll: Poll, payloads: Iterable[Payload]) -> list[Payload]:
        """Return those of a batch that are surely ours for long enough.

        It may wait for SQS, once for all of them: meanwhile the worker reads nothing.
        """
        read_at = clock.now()
        return [each for each in payloads if self._is_still_ours(poll, each, read_at=read_at)]

    def lease(
        self, poll: Poll, message: Message, *, task: Any = None, task_id: Any = None
    ) -> ReceivedAs:
        """Begin the lease on one message, or go on with the one it has.

        Args:
            task: What its sender calls its task: anything may come.
            task_id: Likewise.
        """
        heartbeat = self._heartbeat
        task = task if isinstance(task, str) else None
        heartbeat.received.add(message["ReceiptHandle"])
        return heartbeat.keeper.receive(
            poll.url,
            message,
            terms=heartbeat.terms.of(poll.queue, poll.timeout, task),
            # Where that is not known it is extended at once, and known after that.
            hidden_for=poll.timeout or 0,
            sent_at=poll.sent_at,
            max_receive_count=heartbeat.queues.get(poll.url).max_receive_count,
            task=task,
            task_id=task_id,
        )

    def _is_put_off(self, message: Message, payload: Payload) -> bool:
        """Release a message that waits at SQS for its task's ETA, until then.

        Not held until then: so no slot and no extensions are spent on it. It may come a little
        early, but not late: what is left of the wait is less than a second, and is held.
        """
        heartbeat = self._heartbeat
        wait = seconds_until_eta(payload.get("headers") or {})
        if wait is None:
            return False
        lease = heartbeat.keeper.find(message["ReceiptHandle"])
        if lease is None:
            return False
        now, hold = heartbeat.keeper.now(), heartbeat.rules.hold_eta(lease)
        if not self._far_etas.is_parked(lease, wait, hold=hold, now=now):
            return False
        heartbeat.keeper.release(message["ReceiptHandle"], math.floor(wait), DUE_LATER)
        return True

    def _is_still_ours(self, poll: Poll, payload: Payload, *, read_at: float) -> bool:
        """Return whether a message is ours for at least the threshold; let go of it if not.

        Each is, but after a long poll, or a standstill of the process, that may have left
        less: then once SQS has confirmed an extension.

        Args:
            read_at: When the batch was read.
        """
        keeper = self._heartbeat.keeper
        tag = payload["properties"]["delivery_tag"]
        lease = keeper.find(tag)
        if lease is None or lease.goal is not Goal.HOLD:
            # Released with one before it in its group, maybe while that was waited for.
            return False
        if read_at - poll.sent_at + lease.terms.threshold <= (poll.timeout or 0):
            return True
        wait_until = read_at + max(1.0, lease.terms.threshold)
        if keeper.confirm(tag, wait_until - clock.now()):
            return True
        keeper.let_expire(tag, ARRIVED_LATE)
        logger.warning(
            "sqs-heartbeat: message %s of %s is not started: too little was left of its "
            "visibility timeout when it arrived, and no extension was confirmed",
            lease.message_id,
            poll.queue,
        )
        return False
