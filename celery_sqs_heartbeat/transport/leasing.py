"""Leases what is received, and delivers what is to be run."""

from __future__ import annotations

import logging
from typing import Any

from celery_sqs_heartbeat.common import clock
from celery_sqs_heartbeat.common.escaping import get_logger
from celery_sqs_heartbeat.common.wording import counted
from celery_sqs_heartbeat.leases.book import Receipt
from celery_sqs_heartbeat.transport.base import LeasedChannel
from celery_sqs_heartbeat.transport.eta import seconds_until_eta
from celery_sqs_heartbeat.transport.far_etas import is_too_far
from celery_sqs_heartbeat.transport.poll import Poll

logger = get_logger(__name__)


class LeasingChannel(LeasedChannel):
    """The side of a channel on which leases begin."""

    def _leases(self, queue: str) -> bool:
        """Return whether messages of that queue are leased.

        Not those that are deleted on receive, nor those that somebody gets one by one:
        nobody need ever ack these.
        """
        return (
            self._heartbeat is not None
            and queue in self._active_queues
            and queue not in self._noack_queues
        )

    def _lease_all(self, poll: Poll, messages: list[Any]) -> list[dict[str, Any]]:
        """Lease a whole batch before any of it is delivered; return what is to be run."""
        fresh = []
        for message in messages:
            try:
                payload = self._message_to_python(message, poll.queue, self._new_queue(poll.queue))
                headers = payload.get("headers") or {}
                receipt = self._lease(poll, message, headers.get("task"), headers.get("id"))
            except Exception:
                # kombu before 5.7 fails on a body that is not its own JSON.
                _log_undeliverable(poll.queue, message.get("MessageId"))
                continue
            if receipt is Receipt.NEW:
                if not self._hand_back(message, headers):
                    fresh.append(payload)
                continue
            logger.log(
                logging.WARNING if receipt in _NOT_OURS else logging.INFO,
                "sqs-heartbeat: message %s of %s, task %s[%s], is not started: %s",
                message.get("MessageId"),
                poll.queue,
                headers.get("task"),
                headers.get("id"),
                _NOT_STARTED[receipt],
            )
        return self._still_ours(poll, fresh)

    def _hand_back(self, message: Any, headers: Any) -> bool:
        """Release a message with an ETA beyond what its lease may last, until then.

        Not held until the lease ends: so no slot and no extensions are spent on it.
        """
        heartbeat = self._heartbeat
        assert heartbeat is not None
        wait = seconds_until_eta(headers)
        lease = heartbeat.keeper.find(message["ReceiptHandle"])
        if wait is None or lease is None:
            return False
        now = heartbeat.keeper.now()
        if not is_too_far(lease, wait, now=now, queues=heartbeat.queues, once=heartbeat.once):
            return False
        heartbeat.keeper.release(message["ReceiptHandle"], wait, "due later")
        return True

    def _still_ours(self, poll: Poll, payloads: list[Any]) -> list[Any]:
        """Return those messages that are ours for at least the threshold.

        All of them, but after a long poll, or a standstill of the process, that may have
        left less: then once SQS has confirmed an extension.
        """
        heartbeat = self._heartbeat
        assert heartbeat is not None
        since = clock.now() - poll.sent_at
        sure = []
        for payload in payloads:
            tag = payload["properties"]["delivery_tag"]
            lease = heartbeat.keeper.find(tag)
            if lease is None or since + lease.terms.threshold <= (poll.timeout or 0):
                sure.append(payload)
                continue
            if heartbeat.keeper.confirm(tag, max(1.0, lease.terms.threshold)):
                sure.append(payload)
                continue
            heartbeat.keeper.drop(tag)
            logger.warning(
                "sqs-heartbeat: message %s of %s is not started: too little was left of its "
                "visibility timeout when it arrived, and no extension was confirmed",
                lease.message_id,
                poll.queue,
            )
        return sure

    def _lease(self, poll: Poll, message: Any, task: Any = None, task_id: Any = None) -> Receipt:
        heartbeat = self._heartbeat
        assert heartbeat is not None
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

    def _release_unread(self, poll: Poll, messages: list[Any]) -> None:
        """Release messages that come when their queue's consumer, or the worker, has ended."""
        if not messages:
            return
        for message in messages:
            if self._lease(poll, message) is Receipt.NEW:
                self._release(message["ReceiptHandle"])
        # Only now: the thread that reads the last polls may wait for the log's lock.
        logger.info(
            "sqs-heartbeat: released %s received after the consumer of %s ended",
            counted(len(messages), "message"),
            poll.queue,
        )

    def _deliver_all(self, payloads: list[dict[str, Any]], deliver: Any) -> None:
        """Deliver messages; one that can't be delivered neither stops nor leaks the others."""
        heartbeat = self._heartbeat
        assert heartbeat is not None
        connection_errors = self.connection.connection_errors + self.connection.channel_errors
        waiting = list(reversed(payloads))
        try:
            while waiting and not heartbeat.breakage.is_found:
                payload = waiting.pop()
                try:
                    deliver(payload)
                    heartbeat.breakage.worked(_DELIVERED)
                except Exception as error:
                    # Dropped, not released: its task may have been started before the error.
                    tag = payload["properties"]["delivery_tag"]
                    lease = heartbeat.keeper.find(tag)
                    heartbeat.keeper.drop(tag)
                    if tag in self.qos._delivered:
                        # Else it would hold its prefetch slot for ever.
                        self.qos.ack(tag)
                    if isinstance(error, connection_errors):
                        raise
                    # A stock worker would end here, or go on without ever polling again.
                    info = payload["properties"]["delivery_info"]
                    _log_undeliverable(info["sqs_queue"], info["sqs_message"]["MessageId"])
                    request = heartbeat.requests.get(lease.key) if lease is not None else None
                    # What Celery can't make a request of is a bad message, however many come.
                    if lease and request and not request.failed_before_pool:
                        heartbeat.breakage.failed(_DELIVERED, lease.key, error)
        finally:
            for payload in waiting:
                self._release(payload["properties"]["delivery_tag"])


_DELIVERED = "delivered"
_NOT_OURS = (Receipt.LAPSED, Receipt.RELEASED)
_NOT_STARTED = {
    Receipt.REDELIVERED: "it came again, and runs or waits here already; its lease goes on",
    Receipt.FINISHED: "it came again after its task had ended well; it is deleted",
    Receipt.RELEASED: "a release of it that was not answered may end its lease at any moment",
    Receipt.LAPSED: "it was held up on its way until its visibility timeout was over",
}


def _log_undeliverable(queue: str, message_id: Any) -> None:
    logger.exception(
        "sqs-heartbeat: message %s of %s can't be delivered: it is left in the queue and comes "
        "back when its visibility timeout ends",
        message_id,
        queue,
    )
