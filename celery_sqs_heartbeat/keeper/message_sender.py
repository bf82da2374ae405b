"""Sends messages again that a release would make dead letters, although their tasks never started.

The new message has the same body, so the same task id, and its receives count from 1. The old one
is deleted once SQS has confirmed the send. See docs/decisions/2026-11-28-send-again.md.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from celery_sqs_heartbeat.common.escaping import get_logger
from celery_sqs_heartbeat.common.threads import wait_for
from celery_sqs_heartbeat.keeper.thread_keeper import ThreadKeeper
from celery_sqs_heartbeat.leases.events import SENT_AGAIN
from celery_sqs_heartbeat.leases.lease import Goal, Lease

logger = get_logger(__name__)

#: The longest delay of a sent message, in seconds (SQS API reference, SendMessage, DelaySeconds).
MAX_DELAY_SECONDS = 900


class MessageSender:
    """Replaces messages of a keeper by copies.

    Args:
        send: Sends a copy, and returns its id; see `BotoSqs.send_message`.
        run: Runs a function on another thread.
    """

    def __init__(
        self,
        keeper: ThreadKeeper,
        send: Callable[..., str],
        run: Callable[[Callable[[], object]], object],
    ) -> None:
        self._keeper = keeper
        self._send = send
        self._run = run
        self._sending: set[str] = set()

    def send_again(
        self, receipt_handle: str, content: Mapping[str, Any], delay: float, cause: str
    ) -> bool:
        """Send a message again, then delete it. False if no lease has that handle.

        It is released instead if SQS does not confirm the send, or if it is not certainly ours.

        Args:
            delay: The seconds until it becomes visible.
            cause: The reason for the release.
        """
        lease = self._keeper.find(receipt_handle)
        if (
            lease is None
            or lease.goal is not Goal.HOLD
            or not (lease.is_exclusive and self._keeper.owns(receipt_handle))
        ):
            return self._keeper.release(receipt_handle, delay, cause)
        self._sending.add(receipt_handle)
        try:
            self._run(partial(self._replace, lease, receipt_handle, content, delay, cause))
        except RuntimeError:
            # No thread is free, and the system refuses a new one.
            self._sending.discard(receipt_handle)
            return self._keeper.release(receipt_handle, delay, cause)
        return True

    def wait(self, timeout: float) -> float:
        """Wait until SQS has answered every send. Return how long that took, in seconds."""
        if not self._sending:
            return 0.0
        began = time.monotonic()
        wait_for(lambda: not self._sending or None, timeout)
        return min(time.monotonic() - began, timeout)

    def _replace(
        self,
        lease: Lease,
        receipt_handle: str,
        content: Mapping[str, Any],
        delay: float,
        cause: str,
    ) -> None:
        # Without a delay of its own, the message would get its queue's.
        options: dict[str, Any] = {"DelaySeconds": min(math.ceil(delay), MAX_DELAY_SECONDS)}
        if lease.group is not None:
            options["MessageGroupId"] = lease.group
        subject = (lease.message_id, lease.queue_url, lease.task, lease.task_id)
        try:
            copy = self._send(lease.queue_url, content, **options)
        except Exception as error:
            logger.warning(
                "sqs-heartbeat: message %s of %s, task %s[%s], was received for the last time "
                "(maxReceiveCount), its task has not started, and it can't be sent again: %s. It "
                "is released, and SQS moves it to the dead-letter queue. Permit sqs:SendMessage, "
                "or raise maxReceiveCount",
                *subject,
                error,
            )
            self._keeper.release(receipt_handle, delay, cause)
        else:
            logger.info(
                "sqs-heartbeat: message %s of %s, task %s[%s], was received for the last time "
                "(maxReceiveCount), and its task has not started (%s): it was sent again as %s",
                *subject,
                cause,
                copy,
            )
            self._keeper.done(receipt_handle, SENT_AGAIN)
        finally:
            self._sending.discard(receipt_handle)
