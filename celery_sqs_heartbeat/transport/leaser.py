"""Leases received messages, and decides which of them are run."""

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
from celery_sqs_heartbeat.transport.ack_handler import AckHandler
from celery_sqs_heartbeat.transport.answers import Message
from celery_sqs_heartbeat.transport.binding import Heartbeat
from celery_sqs_heartbeat.transport.eta import EtaParking, seconds_until_eta
from celery_sqs_heartbeat.transport.kombu_channel import KombuChannel, Payload
from celery_sqs_heartbeat.transport.poll import Poll
from celery_sqs_heartbeat.transport.skipped_groups import SkippedGroups
from celery_sqs_heartbeat.transport.undeliverable import log_undeliverable

logger = get_logger(__name__)

_NOT_OURS = (ReceivedAs.LAPSED, ReceivedAs.RELEASED)
_NOT_STARTED = {
    ReceivedAs.REDELIVERED: (
        "it was received again, and already runs or waits here; its lease continues"
    ),
    ReceivedAs.FINISHED: "it was received again after its task was done; it is deleted",
    ReceivedAs.RELEASED: "an earlier release of it is unanswered and may end its lease any time",
    ReceivedAs.LAPSED: "it arrived after its visibility timeout had ended",
}


class Leaser:
    """Begins the leases on the messages that a channel receives."""

    def __init__(self, *, kombu: KombuChannel, heartbeat: Heartbeat, acks: AckHandler) -> None:
        self._kombu = kombu
        self._heartbeat = heartbeat
        self._acks = acks
        self._far_etas = EtaParking(queues=heartbeat.queues, once=heartbeat.once)

    def lease_all(self, poll: Poll, messages: Iterable[Message]) -> list[Payload]:
        """Lease a whole batch before any of it is delivered. Return the new messages.

        If a message is left to SQS, the later messages of its group are released, because SQS
        must deliver them after it.
        """
        fresh: list[tuple[Message, Payload]] = []
        undecodable: dict[str, Exception] = {}
        cut = SkippedGroups()
        with self._heartbeat.keeper.gathering():
            for message in messages:
                try:
                    payload = self._kombu.decode(message, poll.queue)
                    headers = payload.get("headers") or {}
                    task, task_id = headers.get("task"), headers.get("id")
                    receipt = self.lease(poll, message, task=task, task_id=task_id)
                except Exception as error:
                    # kombu before 5.7 fails on a body that is not its own JSON.
                    log_undeliverable(poll.queue, message.get("MessageId"))
                    cut.cut(message)
                    if self.lease(poll, message) is ReceivedAs.NEW:
                        undecodable[message["ReceiptHandle"]] = error
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
            for tag in reversed(undecodable):
                self._acks.give_up(tag, undecodable[tag])
            return [payload for message, payload in fresh if not self._is_put_off(message, payload)]

    def keep_ours(self, poll: Poll, payloads: Iterable[Payload]) -> list[Payload]:
        """Return the messages of a batch that are certainly ours for long enough.

        May wait for SQS, once for all of them. The worker reads nothing meanwhile.
        """
        read_at = clock.now()
        return [each for each in payloads if self._is_still_ours(poll, each, read_at=read_at)]

    def lease(
        self, poll: Poll, message: Message, *, task: Any = None, task_id: Any = None
    ) -> ReceivedAs:
        """Begin the lease on one message, or continue its present lease.

        Args:
            task: The task's name as the sender wrote it. It may be of any type.
            task_id: The task's id, likewise.
        """
        heartbeat = self._heartbeat
        task = task if isinstance(task, str) else None
        heartbeat.received.add(message["ReceiptHandle"])
        return heartbeat.keeper.receive(
            poll.url,
            message,
            terms=heartbeat.terms.of(poll.queue, poll.timeout, task),
            # If the timeout is not known, the lease is extended at once, and it is known then.
            hidden_for=poll.timeout or 0,
            sent_at=poll.sent_at,
            max_receive_count=heartbeat.queues.get(poll.url).max_receive_count,
            task=task,
            task_id=task_id,
        )

    def _is_put_off(self, message: Message, payload: Payload) -> bool:
        """Release a message until its task's ETA if it must wait at SQS. Return whether it must.

        A message at SQS needs no slot and no extensions. It may arrive a little early, but not
        late: the worker holds it for the rest of the wait, less than a second.
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
        """Return whether a message is ours for at least the threshold. If not, let it expire.

        Normally it is. After a long poll or a standstill of the process, less may be left. Then
        it is ours once SQS has confirmed an extension.

        Args:
            read_at: When the batch was read.
        """
        keeper = self._heartbeat.keeper
        tag = payload["properties"]["delivery_tag"]
        lease = keeper.find(tag)
        if lease is None or lease.goal is not Goal.HOLD:
            # Released with an earlier message of its group, maybe during the wait for that one.
            return False
        if read_at - poll.sent_at + lease.terms.threshold <= (poll.timeout or 0):
            return True
        wait_until = read_at + max(1.0, lease.terms.threshold)
        if keeper.confirm(tag, wait_until - clock.now()):
            return True
        keeper.let_expire(tag, ARRIVED_LATE)
        logger.warning(
            "sqs-heartbeat: message %s of %s is not started: too little was left of its "
            "visibility timeout when it arrived, and SQS confirmed no extension",
            lease.message_id,
            poll.queue,
        )
        return False
