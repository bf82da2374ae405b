"""Leases the messages that a poll returns, and delivers those that are new."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.common.escaping import get_logger
from celery_sqs_heartbeat.common.wording import counted
from celery_sqs_heartbeat.leases.events import ARRIVED_LATE, DUE_LATER
from celery_sqs_heartbeat.leases.lease import Goal
from celery_sqs_heartbeat.leases.received_as import ReceivedAs
from celery_sqs_heartbeat.sqs.long_polls import Poll
from celery_sqs_heartbeat.transport.answers import Message
from celery_sqs_heartbeat.transport.binding import Heartbeat
from celery_sqs_heartbeat.transport.eta import EtaParking, seconds_until_eta
from celery_sqs_heartbeat.transport.group_waitlist import tag_of
from celery_sqs_heartbeat.transport.kombu_channel import KombuChannel, Payload
from celery_sqs_heartbeat.transport.settling import AckHandler
from celery_sqs_heartbeat.transport.skipped_groups import SkippedGroups

logger = get_logger(__name__)

#: How long messages wait for a keeper to replace one that has died, in seconds. A busy machine may
#: need so long.
_KEEPER_SECONDS = 5.0
#: How often to check whether it is ready, in seconds.
_LOOK_SECONDS = 0.02
_NOT_OURS = (ReceivedAs.LAPSED, ReceivedAs.RELEASED)
_NOT_STARTED = {
    ReceivedAs.REDELIVERED: (
        "it was received again, and already runs or waits here; its lease continues"
    ),
    ReceivedAs.FINISHED: "it was received again after its task was done; it is deleted",
    ReceivedAs.RELEASED: "an earlier release of it is unanswered and may end its lease any time",
    ReceivedAs.LAPSED: "it arrived after its visibility timeout had ended, or may have ended",
}


class Deliverer:
    """Leases the messages of a channel's polls, then delivers those that are new.

    The thread of a poll leases and releases. The consumer's thread delivers.
    """

    def __init__(self, *, kombu: KombuChannel, heartbeat: Heartbeat, acks: AckHandler) -> None:
        self._leaser = Leaser(kombu=kombu, heartbeat=heartbeat, acks=acks)
        self._kombu = kombu
        self._heartbeat, self._keeper = heartbeat, heartbeat.keeper
        self._acks = acks

    def lease(self, poll: Poll, messages: Sequence[Message]) -> list[Payload]:
        """Lease the messages of a poll. Return those to deliver, and note that they arrive."""
        if not self._has_keeper() or self._kombu.consumer(poll.source.name) is None:
            self.release(poll, messages)
            return []
        arriving = self._heartbeat.arriving
        tags = {message["ReceiptHandle"] for message in messages}
        arriving.update(tags)
        try:
            fresh = self._leaser.lease_all(poll, messages)
            tags -= set(map(tag_of, fresh))
        except BaseException:
            # Otherwise they would be extended, and no one would run them.
            for tag in tags:
                lease = self._keeper.find(tag)
                if lease is not None and lease.key not in self._heartbeat.requests:
                    self._keeper.release(tag, cause="not delivered")
            raise
        finally:
            arriving.difference_update(tags)
        return fresh

    def _has_keeper(self) -> bool:
        """Return whether a keeper is ready, maybe after a wait.

        A task without a keeper would run, and its message would neither be extended nor deleted.
        """
        until = clock.now() + _KEEPER_SECONDS
        while self._keeper.is_behind:
            if self._heartbeat.is_ending or clock.now() >= until:
                return False
            time.sleep(_LOOK_SECONDS)
        return not self._heartbeat.is_ending

    def deliver(self, poll: Poll, fresh: Sequence[Payload]) -> None:
        """Deliver leased messages. It may take long: a solo pool runs tasks in this call."""
        deliver = self._kombu.consumer(poll.source.name)
        if deliver is None:
            self.release_leased(fresh)
            return
        with self.arriving(map(tag_of, fresh)):
            ready = self._heartbeat.groups.hold_back(
                self._leaser.keep_ours(poll, fresh),
                queue=poll.source.name,
                deliver=lambda payload: self._deliver_later(payload, deliver),
            )
            self._deliver_all(ready, deliver)

    def _deliver_later(self, payload: Payload, deliver: Callable[[Payload], object]) -> None:
        """Deliver a message that has waited for another of its group."""
        with self.arriving([tag_of(payload)]):
            self._deliver_all([payload], deliver)

    def _deliver_all(
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
            while waiting and not (heartbeat.is_ending or self._kombu.is_closed):
                payload = waiting.pop()
                try:
                    deliver(payload)
                    heartbeat.arriving.discard(tag_of(payload))
                except Exception as error:
                    # A stock worker would exit here, or continue without ever polling again.
                    info = payload["properties"]["delivery_info"]
                    _log_undeliverable(info["sqs_queue"], info["sqs_message"]["MessageId"])
                    self._acks.give_up(tag_of(payload), error)
                    if isinstance(error, lost_errors):
                        raise
        finally:
            # The last one first: messages of a group must be released in reverse order.
            for payload in waiting:
                self._keeper.release(tag_of(payload), cause="not delivered")

    @contextmanager
    def arriving(self, receipt_handles: Iterable[str]) -> Iterator[None]:
        """Note that messages are being leased or delivered. Each will take a prefetch slot."""
        tags = set(receipt_handles)
        self._heartbeat.arriving.update(tags)
        try:
            yield
        finally:
            self._heartbeat.arriving.difference_update(tags)

    def release(self, poll: Poll, messages: Sequence[Message]) -> None:
        """Release messages that arrive after their consumer has ended, or without a keeper.

        Nothing is logged before, because the log's lock may be held while a shutdown waits.
        """
        new = [each for each in messages if self._leaser.lease(poll, each) is ReceivedAs.NEW]
        # The last message of a group first.
        for message in reversed(new):
            self._keeper.release(message["ReceiptHandle"], cause="not delivered")
        logger.info(
            "sqs-heartbeat: released %s received from %s without a consumer or a keeper",
            counted(len(messages), "message"),
            poll.source.name,
        )

    def release_leased(self, payloads: Sequence[Payload]) -> None:
        """Release leased messages whose consumer has ended."""
        for payload in reversed(payloads):
            self._keeper.release(tag_of(payload), cause="not delivered")
        self._heartbeat.arriving.difference_update(map(tag_of, payloads))


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
                    payload = self._kombu.decode(message, poll.source.name)
                    headers = payload.get("headers") or {}
                    task, task_id = headers.get("task"), headers.get("id")
                    receipt = self.lease(poll, message, task=task, task_id=task_id)
                except Exception as error:
                    # kombu before 5.7 fails on a body that is not its own JSON.
                    _log_undeliverable(poll.source.name, message.get("MessageId"))
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
                    poll.source.name,
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
            poll.queue_url,
            message,
            terms=heartbeat.terms.of(poll.source.name, poll.timeout, task),
            # If the timeout is not known, the lease is extended at once, and it is known then.
            hidden_for=poll.timeout or 0,
            sent_at=poll.sent_at,
            max_receive_count=heartbeat.queues.get(poll.queue_url).max_receive_count,
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
            poll.source.name,
        )
        return False


def _log_undeliverable(queue: str, message_id: Any) -> None:
    """Log the error that is being handled, for a message that is given up."""
    logger.exception(
        "sqs-heartbeat: message %s of %s can't be delivered, and is released like that of a "
        "failed task",
        message_id,
        queue,
    )
