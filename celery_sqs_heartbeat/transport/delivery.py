"""Delivers messages to the consumers of a channel, or leaves them at SQS until they are due."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from celery.utils.time import maybe_iso8601, maybe_make_aware

from celery_sqs_heartbeat.common.escaping import get_logger, seconds
from celery_sqs_heartbeat.leases import policy
from celery_sqs_heartbeat.leases.events import DUE_LATER, NOT_DELIVERED, named
from celery_sqs_heartbeat.leases.lease import Goal, Lease
from celery_sqs_heartbeat.leases.message import Arrived, is_fifo
from celery_sqs_heartbeat.transport.kombu_channel import Payload
from celery_sqs_heartbeat.transport.settling import SettlingChannel

logger = get_logger(__name__)


def seconds_until_eta(headers: Mapping[str, Any], now: datetime | None = None) -> float | None:
    """Return the seconds until the ETA in a message's headers.

    None if there is no ETA, or none that can be read, which Celery logs. Only messages of
    Celery's protocol 2, the default since 4.0, have the ETA in their headers.

    Args:
        now: The present time, if not the clock's.
    """
    eta = headers.get("eta")
    if not isinstance(eta, str):
        return None
    try:
        moment = maybe_make_aware(maybe_iso8601(eta))
        left = moment - (now or datetime.now(timezone.utc))
    except (ValueError, TypeError, OverflowError):
        return None
    return float(left.total_seconds())


def _end(lease: Lease) -> float:
    """Return when a lease ends at the latest. Without extensions, that is when it expires."""
    return (
        policy.lease_end(lease)
        if lease.terms.extend
        else min(policy.lease_end(lease), lease.expires_at)
    )


class Deliverer:
    """Delivers the messages that the keeper hands over."""

    def __init__(self, channel: SettlingChannel) -> None:
        self._channel = channel
        self._heartbeat = heartbeat = channel.heartbeat
        self._keeper = heartbeat.keeper

    def deliver(self, messages: Iterable[Arrived]) -> None:
        """Deliver messages. One that can't be delivered neither stops nor leaks the others.

        It may take long: a solo pool runs tasks in this call. Messages that are not delivered
        because the worker ends meanwhile, or its channel is closed, are released.

        Raises:
            Exception: The connection is lost, or a result backend raised such an error. The
                undelivered messages are released.
        """
        heartbeat = self._heartbeat
        lost_errors = self._channel.lost_errors
        waiting = deque(messages)
        try:
            while waiting and not (heartbeat.is_ending or self._channel.closed):
                arrived = waiting.popleft()
                try:
                    self._deliver(arrived)
                except Exception as error:
                    # A stock worker would exit here, or continue without ever polling again.
                    _log_undeliverable(arrived)
                    self._channel.give_up(arrived.handle, error)
                    if isinstance(error, lost_errors):
                        raise
                finally:
                    heartbeat.arriving.discard(arrived.handle)
        finally:
            self.release(waiting)

    def release(self, messages: Sequence[Arrived]) -> None:
        """Release messages whose consumer has ended, the last one first."""
        for arrived in reversed(messages):
            self._keeper.release(arrived.handle, cause=NOT_DELIVERED)
        self._heartbeat.arriving.difference_update(each.handle for each in messages)

    def _deliver(self, arrived: Arrived) -> None:
        consumer = self._channel.consumer(arrived.queue)
        lease = arrived.lease
        if consumer is None:
            self.release([arrived])
        elif self._keeper.find(arrived.handle) is lease and lease.goal is Goal.HOLD:
            payload = self._channel.decode(arrived.message, arrived.queue)
            if not self._is_put_off(arrived, payload):
                consumer(payload)

    def _is_put_off(self, arrived: Arrived, payload: Payload) -> bool:
        """Release a message until its task's ETA if it must wait at SQS. Return whether it must.

        A message at SQS needs no slot and no extensions. It may arrive a little early, but not
        late: the worker holds it for the rest of the wait, less than a second.
        """
        wait = seconds_until_eta(payload.get("headers") or {})
        if wait is None:
            return False
        now, hold = self._keeper.now(), self._heartbeat.leased.hold_eta(arrived.lease)
        if not self._is_parked(arrived.lease, wait, hold=hold, now=now):
            return False
        self._keeper.release(arrived.handle, math.floor(wait), DUE_LATER)
        return True

    def _is_parked(self, lease: Lease, wait: float, *, hold: float, now: float) -> bool:
        """Return whether a message waits at SQS until its task is due.

        A message whose lease can't last until then always waits at SQS. Any other message waits
        there if that is cheaper, unless it would have too few receives left, or would block its
        group at SQS.

        Args:
            wait: The seconds until the ETA.
            hold: The longest wait for which the worker holds a message, in seconds.
            now: In seconds of the keeper's clock.
        """
        lasts = _end(lease) - now
        if wait > lasts:
            self._log_too_far(lease, wait, lasts)
            return True
        is_worth_it = wait > hold and wait >= policy.SHORTEST_PARKING
        if not is_worth_it or is_fifo(lease.queue_url):
            return False
        attributes = self._heartbeat.queues.get(lease.queue_url)
        if not attributes.is_known:
            return False
        most = attributes.max_receive_count
        if not policy.has_receives_to_park(lease.receive_count, most):
            self._log_held(lease, wait, most)
            return False
        self._log_parked(lease, hold)
        return True

    def _log_too_far(self, lease: Lease, wait: float, lasts: float) -> None:
        """Log the release. Warn once per FIFO queue if it does not allow enough receives.

        On a standard queue the message is sent again instead of its last release.
        """
        receives = lease.receive_count + policy.receives_until(wait, lasts=lasts)
        logger.info(
            "sqs-heartbeat: message %s, task %s[%s], is due in %.0f s and may be held for %.0f s: "
            "the worker releases it until then. By then it will be at receive %d",
            lease.message_id,
            lease.task,
            lease.task_id,
            wait,
            lasts,
            receives,
        )
        most = self._heartbeat.queues.get(lease.queue_url).max_receive_count
        # Once per queue, not per task: senders choose task names, so their number has no limit.
        subject = f"too few receives {lease.queue_url}"
        is_short = most is not None and receives > most and is_fifo(lease.queue_url)
        if is_short and self._heartbeat.first_time(subject):
            logger.warning(
                "sqs-heartbeat: task %s is due in %.0f s. Its message needs %d receives until "
                "then, and queue %s allows %d (maxReceiveCount): SQS will move the message to the "
                "dead-letter queue before its task runs. Raise maxReceiveCount, or send the "
                "message later",
                lease.task,
                wait,
                receives,
                lease.queue_url,
                most,
            )

    def _log_parked(self, lease: Lease, hold: float) -> None:
        if self._heartbeat.first_time(f"parked {lease.queue_url} {hold}"):
            logger.info(
                "sqs-heartbeat: messages of %s wait at SQS until then if their tasks are due in "
                "more than %s s (sqs_heartbeat_hold_eta)",
                lease.queue_url,
                seconds(hold),
            )

    def _log_held(self, lease: Lease, wait: float, most: int | None) -> None:
        if self._heartbeat.first_time(f"held {lease.queue_url}"):
            logger.info(
                "sqs-heartbeat: %s, is due in %.0f s and is held: this is receive %d, and its "
                "queue allows %s (maxReceiveCount), too few for a wait at SQS. This is logged once "
                "per queue",
                named(lease),
                wait,
                lease.receive_count,
                most,
            )


def _log_undeliverable(arrived: Arrived) -> None:
    """Log the error that is being handled, for a message that is given up."""
    logger.exception(
        "sqs-heartbeat: message %s of %s can't be delivered, and is released like that of a "
        "failed task",
        arrived.lease.message_id,
        arrived.queue,
    )
